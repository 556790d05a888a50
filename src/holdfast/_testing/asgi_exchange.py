"""One request to an ASGI application, and what comes back, as a server handles it (ASGI 3).

Rules: what the application sends waits to be read, up to 64 KiB; beyond that the application
waits. After its client has left, or its reply is complete, it receives ``http.disconnect``, and
what it sends goes nowhere, as with common servers: it is not cancelled for that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    from holdfast._net.asgi import Application
    from holdfast._wire.http import HttpRequest

__all__ = ["AsgiExchange", "BrokenOffError"]

_MOST_UNREAD = 64 * 1024
_FAILED = 500
_PORTS = {"http": 80, "https": 443}


class BrokenOffError(Exception):
    """The application stopped in the middle of its reply."""


class AsgiExchange:
    """A request that an application works on, in a task of its own.

    Args:
        app: The application.
        request: The request.
        state: What the application kept when it started up.
        crashed: Called with what the application raises.

    Attributes:
        task: Where the application runs; it never raises.
    """

    def __init__(
        self,
        app: Application,
        request: HttpRequest,
        state: Mapping[str, object],
        crashed: Callable[[Exception], None],
    ) -> None:
        self._crashed = crashed
        self._request = request
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._unread: deque[bytes] = deque()
        self._size = 0
        self._is_received = False
        self._is_complete = False
        self._is_over = False
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._has_left = False
        self._gone = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._run(app, _scope(request, state)))

    async def head(self) -> tuple[int, Mapping[str, str]]:
        """Waits until the reply begins; its status, and its headers by names in lower case."""
        while self._status is None and not self._is_over:
            await self._next_arrival()
        if self._status is None:  # as servers answer for an application that does not
            self._status, self._headers = _FAILED, {"content-type": "text/plain; charset=utf-8"}
            self._unread, self._is_complete = deque([b"Internal Server Error"]), True
        return self._status, self._headers

    async def piece(self) -> bytes:
        """Waits for the next piece of the body; empty at its end.

        Raises:
            BrokenOffError: The application stopped before the end.
        """
        while not self._unread and not self._is_complete:
            if self._is_over:
                raise BrokenOffError
            await self._next_arrival()
        if not self._unread:
            return b""
        piece = self._unread.popleft()
        self._size -= len(piece)
        if self._size < _MOST_UNREAD:
            self._room.set()
        return piece

    def leave(self) -> None:
        """Nobody waits for the reply, or the rest of it, any more."""
        self._has_left = True
        self._gone.set()
        self._room.set()

    async def _next_arrival(self) -> None:
        self._arrived.clear()
        await self._arrived.wait()

    async def _run(self, app: Application, scope: MutableMapping[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:  # noqa: BLE001  as a server does; for who runs it
            self._crashed(error)
        finally:
            self._is_over = True
            self._arrived.set()

    async def _receive(self) -> MutableMapping[str, Any]:
        if not self._is_received:
            self._is_received = True
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if self._has_left:
            return
        match message["type"], self._status:
            case "http.response.start", None:
                self._status = message["status"]
                self._headers = _joined(message.get("headers", ()))
            case "http.response.body", int() if not self._is_complete:
                await self._take(message.get("body", b""))
                if not message.get("more_body", False):
                    self._is_complete = True
            case kind, _:
                at = "after the end of" if self._is_complete else "at this point of"
                text = f"the application sent {kind!r} {at} its reply"
                raise RuntimeError(text)
        self._arrived.set()
        if self._is_complete:
            self._gone.set()  # nothing more is to be expected of the client

    async def _take(self, piece: bytes) -> None:
        await self._room.wait()
        if piece and not self._has_left:
            self._unread.append(bytes(piece))
            self._size += len(piece)
            if self._size >= _MOST_UNREAD:
                self._room.clear()


def _scope(request: HttpRequest, state: Mapping[str, object]) -> MutableMapping[str, Any]:
    parts = urlsplit(request.url)
    headers = {"host": parts.netloc, **request.headers}
    if request.body:
        headers["content-length"] = str(len(request.body))
    return {
        "type": "http",
        # With 2.4 what is sent to who has left would have to raise, which few servers do.
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": parts.scheme,
        "path": unquote(parts.path) or "/",
        "raw_path": parts.path.encode() or b"/",
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(name.encode(), _encoded(value)) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": (parts.hostname, parts.port or _PORTS.get(parts.scheme)),
        "state": dict(state),
    }


def _encoded(value: str) -> bytes:
    return value.encode("latin-1")


def _joined(headers: Any) -> dict[str, str]:
    """Headers by name; those that come twice as one (RFC 9110, 5.3)."""
    joined: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = bytes(raw_name).decode("latin-1").lower(), bytes(raw_value).decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined
