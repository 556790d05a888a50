"""Where a browser comes back to: a port of this machine, open for one answer (RFC 8252, 7.3).

Rules: it listens on 127.0.0.1 alone; only one path is answered, and the first request for it that
carries the right ``state`` counts, since any page in any browser can make others; requests are
small, and have a moment to come; what it shows holds nothing of what it was sent.
"""

from __future__ import annotations

import asyncio
import hmac
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qs

from holdfast._net.accepting import settle_accepted

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["LoopbackRedirect"]

_PATH = "/callback"
_REQUEST = 10.0
"""Seconds that a request has to come."""

_LARGEST = 16 * 1024
_DONE = b"<!doctype html><title>Done</title><p>You can close this window."


class LoopbackRedirect:
    """Waits for a browser. Use it as an async context manager.

    Args:
        state: What the browser brings along that nobody else knows.

    Attributes:
        uri: The address to send the browser to.
    """

    def __init__(self, state: str) -> None:
        self.uri = ""
        self._state = state.encode()
        self._answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._connections: set[asyncio.Task[None]] = set()
        self._has_left = False

    async def received(self) -> str:
        """The address that the browser came with."""
        return await self._answer

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_LARGEST)
        self.uri = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{_PATH}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._has_left = True
        self._answer.cancel()
        for task in self._connections:
            task.cancel()
        try:
            await settle_accepted()
        finally:
            self._server.close()
        await asyncio.sleep(0)
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._has_left:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._answered(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        # Not the task itself: it may be cancelled before it has begun.
        task.add_done_callback(lambda _: writer.close())

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST):
                head = await reader.readuntil(b"\r\n\r\n")
                target = self._target(head)
                status = "200 OK" if target is not None else "404 Not Found"
                body = _DONE if target is not None else b""
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
                    f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n"
                    "Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
            if target is not None and not self._answer.done():
                self._answer.set_result(self.uri.removesuffix(_PATH) + target)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            pass  # somebody else's request, or half of one

    def _target(self, head: bytes) -> str | None:
        """The target of a request, if it is the browser's."""
        method, _, rest = head.partition(b"\r\n")[0].decode("ascii").partition(" ")
        target = rest.rpartition(" ")[0]
        path, _, query = target.partition("?")
        states = [value.encode() for value in parse_qs(query).get("state", [])]
        is_answer = bool(states) and hmac.compare_digest(states[0], self._state)
        return target if method == "GET" and path == _PATH and is_answer else None
