"""One request to an ASGI application and its reply, as a server handles them (ASGI 3).

Rules: up to 64 KiB of the reply are buffered; beyond that the application waits. After its client
has left, or its reply is complete, the application receives ``http.disconnect``, and what it sends
is discarded; it is not cancelled. Common servers do the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from holdfast._asgi import header_map

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    from holdfast._asgi import ASGIApplication
    from holdfast.extend import HttpRequest

__all__ = ["AsgiExchange", "IncompleteReplyError"]

_MAX_BUFFERED_BYTES = 64 * 1024
_INTERNAL_SERVER_ERROR = 500
_DEFAULT_PORTS = {"http": 80, "https": 443}


class IncompleteReplyError(Exception):
    """The application stopped in the middle of its reply."""


class AsgiExchange:
    """A request that an application handles in a task.

    Args:
        app: The application.
        request: The request.
        state: The application's state from its startup.
        on_crash: Called with an exception of the application.

    Attributes:
        task: The task that runs the application; it never raises.
    """

    def __init__(
        self,
        app: ASGIApplication,
        request: HttpRequest,
        state: Mapping[str, object],
        on_crash: Callable[[Exception], None],
    ) -> None:
        self._on_crash = on_crash
        self._request = request
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._buffer: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._is_received = False
        self._is_complete = False
        self._is_finished = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._is_disconnected = False
        self._disconnected = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._run(app, _scope(request, state)))

    async def head(self) -> tuple[int, Mapping[str, str]]:
        """Wait until the reply starts; return its status, and headers with lower-case names."""
        while self._status is None and not self._is_finished:
            await self._wait_message()
        if self._status is None:  # servers send this if an application sends no reply
            self._status, self._headers = (
                _INTERNAL_SERVER_ERROR,
                {"content-type": "text/plain; charset=utf-8"},
            )
            self._buffer, self._is_complete = deque([b"Internal Server Error"]), True
        return self._status, self._headers

    async def piece(self) -> bytes:
        """Wait for the next piece of the body; empty at its end.

        Raises:
            BrokenOffError: The application stopped before the end.
        """
        while not self._buffer and not self._is_complete:
            if self._is_finished:
                raise IncompleteReplyError
            await self._wait_message()
        if not self._buffer:
            return b""
        piece = self._buffer.popleft()
        self._buffered_bytes -= len(piece)
        if self._buffered_bytes < _MAX_BUFFERED_BYTES:
            self._room.set()
        return piece

    def disconnect(self) -> None:
        """Disconnect the client: the rest of the reply is discarded."""
        self._is_disconnected = True
        self._disconnected.set()
        self._room.set()

    async def _wait_message(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _run(self, app: ASGIApplication, scope: MutableMapping[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:  # noqa: BLE001  servers catch it too
            self._on_crash(error)
        finally:
            self._is_finished = True
            self._changed.set()

    async def _receive(self) -> MutableMapping[str, Any]:
        if not self._is_received:
            self._is_received = True
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        await self._disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if self._is_disconnected:
            return
        match message["type"], self._status:
            case "http.response.start", None:
                self._status = message["status"]
                self._headers = header_map(message.get("headers", ()))
            case "http.response.body", int() if not self._is_complete:
                await self._buffer_piece(message.get("body", b""))
                if not message.get("more_body", False):
                    self._is_complete = True
            case kind, _:
                position = "after the end of" if self._is_complete else "at this point of"
                text = f"the application sent {kind!r} {position} its reply"
                raise RuntimeError(text)
        self._changed.set()
        if self._is_complete:
            self._disconnected.set()  # the client sends nothing after its reply

    async def _buffer_piece(self, piece: bytes) -> None:
        await self._room.wait()
        if piece and not self._is_disconnected:
            self._buffer.append(bytes(piece))
            self._buffered_bytes += len(piece)
            if self._buffered_bytes >= _MAX_BUFFERED_BYTES:
                self._room.clear()


def _scope(request: HttpRequest, state: Mapping[str, object]) -> MutableMapping[str, Any]:
    parts = urlsplit(request.url)
    headers = {"host": parts.netloc, **request.headers}
    if request.body:
        headers["content-length"] = str(len(request.body))
    return {
        "type": "http",
        # In 2.4, sending to a client that has left must raise, which few servers do.
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": parts.scheme,
        "path": unquote(parts.path) or "/",
        "raw_path": parts.path.encode() or b"/",
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(name.encode(), _encode(value)) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": (parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)),
        "state": dict(state),
    }


def _encode(value: str) -> bytes:
    return value.encode("latin-1")
