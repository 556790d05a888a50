"""Writing a reply to a socket, as far as its fault lets it come, and ending it as that says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from holdfast._testing.bodies import Body
from holdfast._testing.faults import Fault, Garbage, Reset
from holdfast._testing.listening import reset
from holdfast._testing.serverhttp import LAST_CHUNK, chunk_of, head_of

if TYPE_CHECKING:
    from holdfast._testing.bodies import Ending, Reply

__all__ = ["StreamedBody", "send_events", "send_instead", "send_whole"]


class StreamedBody(Body, Protocol):
    """A body that comes while it is sent."""

    def close(self) -> None:
        """Ends it where it stands: nobody reads it any more."""
        ...


async def send_whole(
    reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, keep_alive: bool
) -> bool:
    """Sends what there is of a reply; says whether another may follow."""
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
    """Sends what there is of a stream, as it comes; says whether another reply may follow."""

    def left(watching: asyncio.Task[bytes]) -> None:
        if not watching.cancelled() and (watching.exception() or not watching.result()):
            body.close()

    # Whoever leaves while there is nothing to send is noticed by reading.
    watching = asyncio.get_running_loop().create_task(reader.read(1))
    watching.add_done_callback(left)
    try:
        writer.write(head_of(reply.status, reply.headers, length=None, keep_alive=keep_alive))
        async for piece in body:
            writer.write(chunk_of(piece))
            await writer.drain()
        if body.ending == "whole":
            writer.write(LAST_CHUNK)
        await writer.drain()
        if watching.done():
            return False  # it has left, or sent more before it had the reply
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return await _end(body.ending, reader, writer) and keep_alive


async def _end(ending: Ending, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Ends a reply, all of which was handed over; says whether another may follow."""
    match ending:
        case "whole":
            return True
        case "cut":
            return False
        case "reset":
            reset(writer)
            return False
        case "stalled":
            await reader.read()  # until the client gives up
            return False


async def send_instead(
    fault: Fault | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Does what the fault says where no reply comes."""
    match fault:
        case Reset():
            reset(writer)
        case Garbage():
            writer.write(fault.data)
            await writer.drain()
        case _:
            await reader.read()  # until the client gives up
