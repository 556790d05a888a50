"""A fake agent behind a real loopback socket, with faults at the level of bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Self

from holdfast.runtime.env import SystemEnv
from holdfast.testing.bodies import EventBody
from holdfast.testing.faults import Fault, Garbage, Refuse, Reset, Stall
from holdfast.testing.serverhttp import (
    LARGEST_HEAD,
    LAST_CHUNK,
    BadRequestError,
    chunk_of,
    error_reply,
    head_of,
    read_request,
)

if TYPE_CHECKING:
    from types import TracebackType

    from holdfast.testing.agent import FakeAgent
    from holdfast.testing.bodies import Ending, Reply

__all__ = ["LoopbackServer"]

_HOST = "127.0.0.1"


class LoopbackServer:
    """Serves a fake agent on 127.0.0.1 while the context is open.

    The agent tells real time from then on. The server speaks just enough HTTP/1.1: requests with
    Content-Length, one after the other on a connection. Leaving the context closes every
    connection, and raises what the agent's behaviour raised meanwhile, if anything.

    Args:
        agent: The agent.
        port: The port; 0 takes a free one.

    Attributes:
        url: The agent's address, once the context is open.
        connections: Connections that were made.
    """

    def __init__(self, agent: FakeAgent, *, port: int = 0) -> None:
        self._agent = agent
        self._port = port
        self._server: asyncio.Server | None = None
        self._full: list[socket.socket] = []
        self._handlers: set[asyncio.Task[None]] = set()
        self._failures: list[Exception] = []
        self._left = False
        self.url = ""
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._left = False
        self._agent.epoch = SystemEnv().wall() - asyncio.get_running_loop().time()
        await self.listen()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left = True
        await self.refuse()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        failures, self._failures = self._failures, []
        if failures and error is None:
            raise failures[0]

    async def listen(self) -> None:
        """Takes connections: again after `refuse` or `stall`, at the same address."""
        if self._server is not None:
            return
        self._drop_backlog()
        self._server = await asyncio.start_server(
            self._accept, _HOST, self._port, limit=LARGEST_HEAD
        )
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://{_HOST}:{self._port}"

    async def refuse(self) -> None:
        """Refuses new connections; open ones go on."""
        self._drop_backlog()
        server, self._server = self._server, None
        if server is not None:
            server.close()
            await asyncio.sleep(0)

    async def stall(self) -> None:
        """Lets new connections hang before they come about; open ones go on.

        The kernel's queue of connections that nobody accepts is filled, as on a machine that is
        overrun. Works on Linux.
        """
        await self.refuse()
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._full.append(listening)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_HOST, self._port))
        listening.listen(0)
        waiting = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._full.append(waiting)
        waiting.setblocking(False)  # noqa: FBT003  the socket's own spelling
        await asyncio.get_running_loop().sock_connect(waiting, (_HOST, self._port))

    def _drop_backlog(self) -> None:
        while self._full:
            self._full.pop().close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._left:
            writer.transport.abort()
            return
        self.connections += 1
        handler = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection until either side ends it."""
        try:
            while await self._serve_one(reader, writer):
                pass
            writer.close()
            await writer.wait_closed()
        except ConnectionError:
            pass  # the client went away
        except Exception as error:  # noqa: BLE001  raised again when the context is left
            self._failures.append(error)
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serves one request; says whether another one may follow."""
        try:
            request = await read_request(reader, self.url)
        except BadRequestError as bad:
            writer.write(error_reply(bad.status))
            await writer.drain()
            return False
        if request is None:
            return False
        exchange = self._agent.exchange(request)
        if isinstance(exchange.fault, Refuse) or _is_connect_stall(exchange.fault):
            text = "a socket cannot refuse or stall one request: use refuse() or stall()"
            raise TypeError(text)
        try:
            reply = await exchange.reply()
            if reply is None:
                await _instead_of_reply(exchange.fault, reader, writer)
                return False
            keep_alive = request.headers.get("connection", "").lower() != "close"
            if isinstance(reply.body, EventBody):
                return await _stream(reply, reply.body, reader, writer, keep_alive=keep_alive)
            return await _send(reply, reader, writer, keep_alive=keep_alive)
        except asyncio.CancelledError:
            exchange.drop()  # the server closes
            raise
        finally:
            exchange.close()


def _is_connect_stall(fault: Fault | None) -> bool:
    return isinstance(fault, Stall) and fault.phase == "connect"


async def _send(
    reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, keep_alive: bool
) -> bool:
    """Sends what there is of a reply; says whether another may follow."""
    length = reply.body.length
    head = head_of(reply.status, reply.headers, length=length, keep_alive=keep_alive)
    writer.write(head + b"".join([piece async for piece in reply.body]))
    await writer.drain()
    return await _end(reply.body.ending, reader, writer) and keep_alive


async def _stream(
    reply: Reply,
    body: EventBody,
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
            _reset(writer)
            return False
        case "stalled":
            await reader.read()  # until the client gives up
            return False


async def _instead_of_reply(
    fault: Fault | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    match fault:
        case Reset():
            _reset(writer)
        case Garbage():
            writer.write(fault.data)
            await writer.drain()
        case _:
            await reader.read()  # until the client gives up


def _reset(writer: asyncio.StreamWriter) -> None:
    """Sends RST: a close with the linger time set to zero."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
