"""How much clients may send: each body is bounded in size and time, and all together in memory.

Rules: a body is read whole when the application first asks for it, and not before, so that
authentication comes first; the agent sees none that is refused. A body counts from its first byte
until the response begins, since the application holds on to it until then. The first bytes of each
body do not count: the connection that they came over costs as much, and small requests get through
while large ones fill the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._push.asgi import Gone, read_body
from holdfast._push.refusals import Refusal, Refused
from holdfast._server.answers import refuse

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from holdfast._push.asgi import ASGIReceive, ASGIScope, ASGISend
    from holdfast._server.answers import Application

__all__ = ["BoundedBodies"]

_UNCOUNTED = 64 * 1024
"""Bytes of each body that do not count towards the sum."""

_RETRY_AFTER = "1"

_ANSWERS: dict[Refusal, tuple[int, dict[str, str]]] = {
    Refusal.TOO_LARGE: (413, {}),
    Refusal.TOO_SLOW: (408, {"connection": "close"}),
    Refusal.NOT_NOW: (503, {"retry-after": _RETRY_AFTER}),
}
"""A body that is too large is still taken from the socket, and thrown away, so that the client
reads the answer; one that is too slow is not waited for."""


class BoundedBodies:
    """An ASGI application around another, which gets no body that is too large or too slow.

    Args:
        app: The application.
        limit: Bytes that a body may have.
        seconds: How long it may take to come.
        memory: Bytes that all bodies together may take.
    """

    def __init__(self, app: Application, *, limit: int, seconds: float, memory: int) -> None:
        self._app = app
        self._limit = limit
        self._seconds = seconds
        self._memory = memory
        self._held = 0

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Request(self, receive, send)
        try:
            await self._app(scope, request.receive, request.send)
        except Exception:
            if not request.is_refused:  # else it was answered, and this is what followed
                raise
        finally:
            request.release()

    async def read(self, receive: ASGIReceive, request: _Request) -> bytes:
        """Reads the body of a request.

        Raises:
            Refused: It is too large, too slow, or there is no memory for it now.
            Gone: The client has left.
        """
        return await read_body(
            receive, limit=self._limit, seconds=self._seconds, take=request.take
        )

    def hold(self, size: int) -> None:
        """Counts bytes in memory.

        Raises:
            Refused: There are too many.
        """
        if self._held + size > self._memory:
            text = "the bodies of other requests take all memory that there is for them"
            raise Refused(Refusal.NOT_NOW, text)
        self._held += size

    def release(self, size: int) -> None:
        """Counts bytes that are not in memory any more."""
        self._held -= size


class _Request:
    """One request, whose body is read when it is asked for.

    Attributes:
        is_refused: Whether it was answered here.
    """

    def __init__(self, bodies: BoundedBodies, receive: ASGIReceive, send: ASGISend) -> None:
        self.is_refused = False
        self._bodies = bodies
        self._receive = receive
        self._send = send
        self._has_begun = False  # to be answered
        self._is_read = False
        self._size = 0
        self._held = 0

    async def receive(self) -> MutableMapping[str, Any]:
        """The body in one piece, and then whatever the server says (ASGI 3)."""
        if self.is_refused:
            return _DISCONNECTED
        if self._is_read:
            return await self._receive()
        self._is_read = True
        try:
            body = await self._bodies.read(self._receive, self)
        except Gone:
            return _DISCONNECTED
        except Refused as refused:
            await self._refuse(refused)
            return _DISCONNECTED
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Passes on what the application answers, unless the request was refused."""
        if self.is_refused:
            return
        if message["type"] == "http.response.start":
            self._has_begun = True
            self.release()
        await self._send(message)

    def take(self, size: int) -> None:
        """Counts bytes that were read.

        Raises:
            Refused: There is no memory for them now.
        """
        self._size += size
        more = max(0, self._size - _UNCOUNTED) - self._held
        if more > 0:
            self._bodies.hold(more)
            self._held += more

    def release(self) -> None:
        """Counts the body no more; can be called twice."""
        held, self._held = self._held, 0
        self._bodies.release(held)

    async def _refuse(self, refused: Refused) -> None:
        self.release()
        if not self._has_begun:
            self.is_refused = True
            status, headers = _ANSWERS[refused.fact]
            await refuse(self._send, status, refused.text, headers)


_DISCONNECTED: MutableMapping[str, Any] = {"type": "http.disconnect"}
