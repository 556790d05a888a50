"""How much a client may send: its body is read whole before the agent sees any of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.push.asgi import Gone, ShortReply, read_body, reply
from holdfast.push.refusals import Refusal, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from holdfast.push.asgi import ASGIReceive, ASGIScope, ASGISend

    Application = Callable[[ASGIScope, ASGIReceive, ASGISend], Awaitable[None]]

__all__ = ["BoundedBodies"]

_ANSWERS: dict[Refusal, tuple[int, dict[str, str]]] = {
    Refusal.TOO_LARGE: (413, {}),
    Refusal.TOO_SLOW: (408, {"connection": "close"}),
}
"""Whoever sends too much has it taken, and thrown away, so that the answer is read; whoever is
too slow is not waited for."""


class BoundedBodies:
    """An ASGI application around another, which gets no body that is too large or too slow.

    Args:
        app: The application.
        limit: Bytes that a body may have.
        seconds: How long it may take to come.
    """

    def __init__(self, app: Application, *, limit: int, seconds: float) -> None:
        self._app = app
        self._limit = limit
        self._seconds = seconds

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await read_body(
                receive, limit=self._limit, seconds=self._seconds, take=lambda _: None
            )
        except Gone:
            return
        except Refused as refused:
            status, headers = _ANSWERS[refused.fact]
            await reply(send, ShortReply(status, refused.text, headers))
            return
        held: list[MutableMapping[str, Any]] = [
            {"type": "http.request", "body": body, "more_body": False}
        ]

        async def replay() -> MutableMapping[str, Any]:
            return held.pop() if held else await receive()

        await self._app(scope, replay, send)
