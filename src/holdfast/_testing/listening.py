"""A port on this machine that can refuse connections, and let them hang.

It owns the listening socket and its connections; the `serve` function handles each connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Self

from holdfast._aio.accepting import settle_accepted
from holdfast._arguments import check_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

__all__ = ["Listener", "reset"]


class Listener:
    """Listens while the context is open; the end of the context closes every connection.

    The end of the context also raises the first exception of `serve`.

    Args:
        serve: Called for each connection, which is closed afterwards.
        host: The address to listen on.
        port: The port; 0 for a free one.
        largest_head: Bytes that the head of a request may have.

    Attributes:
        url: Its address, while the context is open.
        connections: Number of connections that were made.
    """

    def __init__(self, serve: Serve, *, host: str, port: int, largest_head: int) -> None:
        self._serve = serve
        self._host = host
        self._port: int = check_port("port", port)
        self._largest_head = largest_head
        self._server: asyncio.Server | None = None
        self._full: list[socket.socket] = []
        self._handlers: set[asyncio.Task[None]] = set()
        self._failures: list[Exception] = []
        self._left = False
        self.url = ""
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._left = False
        await self.listen()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left = True
        for handler in self._handlers:
            handler.cancel()
        try:
            await self.refuse()
        finally:
            await asyncio.gather(*self._handlers, return_exceptions=True)
        failures, self._failures = self._failures, []
        if failures and error is None:
            raise failures[0]

    async def listen(self) -> None:
        """Accept connections; after `refuse` or `stall` again at the same address."""
        if self._server is not None:
            return
        self._drop_backlog()
        self._server = await asyncio.start_server(
            self._accept, self._host, self._port, limit=self._largest_head
        )
        port: int = self._server.sockets[0].getsockname()[1]
        self._port = port
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{host}:{self._port}"

    async def refuse(self) -> None:
        """Refuse new connections; open ones continue."""
        self._drop_backlog()
        server, self._server = self._server, None
        if server is not None:
            try:
                await settle_accepted()
            finally:
                server.close()
            await asyncio.sleep(0)

    async def stall(self) -> None:
        """Let new connections hang while they connect; open ones continue.

        It fills the kernel's queue of connections that are not accepted, as on an overloaded
        machine. Works on Linux.
        """
        await self.refuse()
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        self._full.append(listening)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((self._host, self._port))
        listening.listen(0)
        waiting = socket.socket(family, socket.SOCK_STREAM)
        self._full.append(waiting)
        waiting.setblocking(False)  # noqa: FBT003  the parameter is positional-only
        await asyncio.get_running_loop().sock_connect(waiting, (self._host, self._port))

    def _drop_backlog(self) -> None:
        while self._full:
            self._full.pop().close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._left:
            writer.transport.abort()
            return
        self.connections += 1
        handler = asyncio.get_running_loop().create_task(self._handle(reader, writer))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)
        # A task that is cancelled before it starts closes nothing itself.
        handler.add_done_callback(lambda _: writer.transport.abort())

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side closes it."""
        try:
            await self._serve(reader, writer)
            writer.close()
            await writer.wait_closed()
        except ConnectionError:
            pass  # the client has left
        except Exception as error:  # noqa: BLE001  the end of the context raises it
            self._failures.append(error)
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def reset(writer: asyncio.StreamWriter) -> None:
    """Reset a connection: send RST, by closing with a linger time of zero."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
