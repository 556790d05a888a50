"""Loopback redirect of a login: a port of this machine, open for one response (RFC 8252, 7.3).

Rules: it listens on 127.0.0.1 only. It serves one path, and accepts the first request with the
right ``state``, since any page in any browser can send others. The size and time of a request are
bounded. The page that it shows repeats nothing of the request.
"""

from __future__ import annotations

import asyncio
import hmac
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qs

from holdfast._aio.accepting import settle_accepted

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["LoopbackRedirect"]

_PATH = "/callback"
_REQUEST_TIMEOUT_S = 10.0
"""Time in which a request must arrive."""

_MAX_REQUEST_BYTES = 16 * 1024
_PAGE = b"<!doctype html><title>Done</title><p>You can close this window."


class LoopbackRedirect:
    """Waits for the browser's redirect. Use it as an async context manager.

    Args:
        state: Secret state of the login, which the browser must return.

    Attributes:
        uri: Redirect URI for the authorization request.
    """

    def __init__(self, state: str) -> None:
        self.uri = ""
        self._state = state.encode()
        self._answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._connections: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def received(self) -> str:
        """Return the URL that the browser requested."""
        return await self._answer

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, limit=_MAX_REQUEST_BYTES
        )
        self.uri = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{_PATH}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closed = True
        self._answer.cancel()
        for task in self._connections:
            task.cancel()
        try:
            await settle_accepted()
        finally:
            self._server.close()
        await asyncio.sleep(0)
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closed:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._respond(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        # Not in the task: it may be cancelled before it starts.
        task.add_done_callback(lambda _: writer.close())

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                target = self._target(head)
                status = "200 OK" if target is not None else "404 Not Found"
                body = _PAGE if target is not None else b""
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
            pass  # another request, or an incomplete one

    def _target(self, head: bytes) -> str | None:
        """Return the target of a request if it is the browser's redirect."""
        method, _, target_and_version = head.partition(b"\r\n")[0].decode("ascii").partition(" ")
        target = target_and_version.rpartition(" ")[0]
        path, _, query = target.partition("?")
        states = [value.encode() for value in parse_qs(query).get("state", [])]
        is_answer = bool(states) and hmac.compare_digest(states[0], self._state)
        return target if method == "GET" and path == _PATH and is_answer else None
