"""Writing replies to sockets, with their faults."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from holdfast._testing.bodies import Body
from holdfast._testing.faults import Fault, Garbage, Reset
from holdfast._testing.http_messages import LAST_CHUNK, chunk_of, head_of
from holdfast._testing.listening import reset

if TYPE_CHECKING:
    from holdfast._testing.bodies import BodyEnd, Reply

__all__ = ["StreamedBody", "send_events", "send_instead", "send_whole"]


class StreamedBody(Body, Protocol):
    """A body that is produced while it is sent."""

    def close(self) -> None:
        """End the body at once: its client has left."""
        ...


async def send_whole(
    reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, keep_alive: bool
) -> bool:
    """Send a reply with a length; return whether another reply may follow."""
    length = reply.body.length
    head = head_of(reply.status, reply.headers, length=length, keep_alive=keep_alive)
    writer.write(head + b"".join([piece async for piece in reply.body]))
    await writer.drain()
    return await _end(reply.body.ending, reader, writer) and keep_alive


async def send_events(
    reply: Reply,
    body: StreamedBody,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    keep_alive: bool,
) -> bool:
    """Send a stream; return whether another reply may follow."""

    def close_if_left(watching: asyncio.Task[bytes]) -> None:
        if not watching.cancelled() and (watching.exception() or not watching.result()):
            body.close()

    # Only reading shows that a client leaves while there is nothing to send.
    watching = asyncio.get_running_loop().create_task(reader.read(1))
    watching.add_done_callback(close_if_left)
    try:
        writer.write(head_of(reply.status, reply.headers, length=None, keep_alive=keep_alive))
        async for piece in body:
            writer.write(chunk_of(piece))
            await writer.drain()
        if body.ending == "whole":
            writer.write(LAST_CHUNK)
        await writer.drain()
        if watching.done():
            return False  # the client has left, or has sent more before it had the reply
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return await _end(body.ending, reader, writer) and keep_alive


async def _end(
    ending: BodyEnd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """End a reply that was written; return whether another reply may follow."""
    match ending:
        case "whole":
            return True
        case "cut":
            return False
        case "reset":
            reset(writer)
            return False
        case "stalled":
            await reader.read()  # until the client closes the connection
            return False


async def send_instead(
    fault: Fault | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Apply a fault that replaces the reply."""
    match fault:
        case Reset():
            reset(writer)
        case Garbage():
            writer.write(fault.data)
            await writer.drain()
        case _:
            await reader.read()  # until the client closes the connection
