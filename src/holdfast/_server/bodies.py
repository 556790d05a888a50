"""Bounds on request bodies: size and time of each, and memory of all together.

Rules: a body is read whole when the application first asks for it, and not before, so that
authentication comes first; the agent gets no body that is refused. A body counts from its first
byte until the response begins, because the application keeps it until then. The first bytes of
each body do not count: the connection costs as much, and small requests succeed while large ones
fill the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._asgi import BodyRejected, ClientGone, read_body
from holdfast._server.answers import refuse

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from holdfast._asgi import ASGIApplication, ASGIReceive, ASGIScope, ASGISend

__all__ = ["BoundedBodies"]

_UNCOUNTED_BYTES = 64 * 1024
"""Bytes of each body that do not count towards the sum."""

_HEADERS: dict[int, dict[str, str]] = {408: {"connection": "close"}, 503: {"retry-after": "1"}}
"""Headers of the answers to refused bodies. With 413 the server still reads the rest of the body
and discards it, so that the client reads the answer; with 408 it does not wait for the rest."""


class BoundedBodies:
    """ASGI middleware whose application gets no body that is too large or too slow.

    Args:
        app: The application.
        limit: Bytes that a body may have.
        seconds: Seconds that reading a body may take.
        memory: Bytes that all bodies together may take.
    """

    def __init__(self, app: ASGIApplication, *, limit: int, seconds: float, memory: int) -> None:
        self._app = app
        self._limit = limit
        self._seconds = seconds
        self._memory = memory
        self._held = 0

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Request(self, receive, send)
        try:
            await self._app(scope, request.receive, request.send)
        except Exception:
            if not request.is_refused:  # else the client was answered, and this is a consequence
                raise
        finally:
            request.release()

    async def read(self, receive: ASGIReceive, request: _Request) -> bytes:
        """Read the body of a request.

        Raises:
            BodyRejected: It is too large or too slow, or there is no memory left.
            ClientGone: The client has left.
        """
        return await read_body(
            receive, limit=self._limit, seconds=self._seconds, reserve=request.reserve
        )

    def hold(self, size: int) -> None:
        """Reserve memory for bytes of a body.

        Raises:
            BodyRejected: There is none left.
        """
        if self._held + size > self._memory:
            text = "other requests use all memory reserved for bodies"
            raise BodyRejected(503, text)
        self._held += size

    def release(self, size: int) -> None:
        """Free reserved memory."""
        self._held -= size


class _Request:
    """One request, whose body is read when the application asks for it.

    Attributes:
        is_refused: Whether the request was answered with a refusal.
    """

    def __init__(self, bodies: BoundedBodies, receive: ASGIReceive, send: ASGISend) -> None:
        self.is_refused = False
        self._bodies = bodies
        self._receive = receive
        self._send = send
        self._has_response = False  # it has started
        self._is_read = False
        self._size = 0
        self._held = 0

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the body in one piece, and then the server's messages (ASGI 3)."""
        if self.is_refused:
            return _DISCONNECTED
        if self._is_read:
            return await self._receive()
        self._is_read = True
        try:
            body = await self._bodies.read(self._receive, self)
        except ClientGone:
            return _DISCONNECTED
        except BodyRejected as rejected:
            await self._refuse(rejected)
            return _DISCONNECTED
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Pass on the application's response, unless the request was refused."""
        if self.is_refused:
            return
        if message["type"] == "http.response.start":
            self._has_response = True
            self.release()
        await self._send(message)

    def reserve(self, size: int) -> None:
        """Reserve memory for bytes that were read.

        Raises:
            BodyRejected: There is none left.
        """
        self._size += size
        uncovered = max(0, self._size - _UNCOUNTED_BYTES) - self._held
        if uncovered > 0:
            self._bodies.hold(uncovered)
            self._held += uncovered

    def release(self) -> None:
        """Free the memory of the body; may be called twice."""
        held, self._held = self._held, 0
        self._bodies.release(held)

    async def _refuse(self, rejected: BodyRejected) -> None:
        self.release()
        if not self._has_response:
            self.is_refused = True
            headers = _HEADERS.get(rejected.status)
            await refuse(self._send, rejected.status, rejected.text, headers)


_DISCONNECTED: MutableMapping[str, Any] = {"type": "http.disconnect"}
