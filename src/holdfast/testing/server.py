"""A fake agent behind a real loopback socket, with faults at the level of bytes."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Self

from holdfast.testing.faults import Cut, Delay, Fault, Garbage, Reset, Respond, Stall
from holdfast.wire.http import HttpReply, HttpRequest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from holdfast.testing.agent import FakeAgent

__all__ = ["LoopbackServer"]

_LARGEST_HEAD = 64 * 1024
_LARGEST_BODY = 64 * 1024 * 1024


class LoopbackServer:
    """Serves a fake agent on 127.0.0.1 while the context is open.

    It speaks just enough HTTP/1.1 for clients that behave: requests with Content-Length, one at
    a time on a connection.

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
        self._handlers: set[asyncio.Task[None]] = set()
        self.url = ""
        self.connections = 0

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.refuse()
        for handler in list(self._handlers):
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def listen(self) -> None:
        """Takes connections, again after `refuse` and at the same address."""
        if self._server is not None:
            return
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self._port, limit=_LARGEST_HEAD
        )
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def refuse(self) -> None:
        """Refuses new connections; open ones go on."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        if task is not None:
            self._handlers.add(task)
            task.add_done_callback(self._handlers.discard)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client went away, or does not behave
        except asyncio.CancelledError:
            pass  # the server closes; the task has nobody to tell
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serves one request; says whether another one may follow."""
        request = await self._read(reader)
        if request is None:
            return False
        fault = self._agent.next_fault(request)
        if fault is not None and not fault.after_execution and not isinstance(fault, Delay):
            return await _happen(fault, None, reader, writer)
        loop = asyncio.get_running_loop()
        answering = self._agent.receive(request, loop.time())
        if answering.at is None:
            return await _happen(Stall(), None, reader, writer)
        late = fault.seconds if isinstance(fault, Delay) else 0.0
        await asyncio.sleep(max(0.0, answering.at + late - loop.time()))
        reply = answering.reply()
        if fault is not None and not isinstance(fault, Delay):
            return await _happen(fault, reply, reader, writer)
        writer.write(_bytes_of(reply))
        await writer.drain()
        return True

    async def _read(self, reader: asyncio.StreamReader) -> HttpRequest | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = min(int(headers.get("content-length", "0")), _LARGEST_BODY)
        body = await reader.readexactly(length)
        return HttpRequest(method=method, url=f"{self.url}{target}", headers=headers, body=body)


async def _happen(
    fault: Fault,
    reply: HttpReply | None,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> bool:
    match fault:
        case Reset():
            _reset(writer)
            return False
        case Stall():
            await reader.read()  # until the client gives up
            return False
        case Cut() if reply is not None:
            whole = _bytes_of(reply)
            head, _, body = whole.partition(b"\r\n\r\n")
            writer.write(head + b"\r\n\r\n" + body[: fault.after_bytes])
            await writer.drain()
            return False
        case Garbage():
            writer.write(fault.data)
            await writer.drain()
            return False
        case Respond():
            writer.write(
                _bytes_of(HttpReply(status=fault.status, headers=fault.headers, body=fault.body))
            )
            await writer.drain()
            return True
        case _:
            text = f"{type(fault).__name__} cannot happen on a socket"
            raise TypeError(text)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Sends RST: a close with the linger time set to zero."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _bytes_of(reply: HttpReply) -> bytes:
    headers: Mapping[str, str] = {**reply.headers, "content-length": str(len(reply.body))}
    lines = [f"HTTP/1.1 {reply.status} -", *(f"{n}: {v}" for n, v in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + reply.body
