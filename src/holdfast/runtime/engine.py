"""The seam of bytes: whatever can carry an HTTP request is an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.wire.http import HttpReply, HttpRequest, HttpStream, follow

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

__all__ = ["HttpEngine", "send"]


class HttpEngine(Protocol):
    """Carries HTTP requests.

    An engine sends each request once, follows no redirect, keeps no cookie, keeps the request's
    timeouts, sets ``request.progress.sent`` before the first byte leaves, and tells failures as
    `A2AConnectionError`, `A2ATimeoutError` or `LimitExceededError` whose `executed` is False
    where no byte left and None otherwise. Being cancelled, it frees what it holds.
    """

    async def request(self, request: HttpRequest) -> HttpReply:
        """Sends a request and reads the whole reply, whatever its status."""
        ...

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Sends a request; the body is read while the context is open."""
        ...

    async def close(self) -> None:
        """Frees everything; can be called twice, and the engine can be used again after it."""
        ...


async def send(
    engine: HttpEngine, request: HttpRequest, *, to_any_origin: bool = False
) -> HttpReply:
    """Sends a request and follows the redirects that may be followed.

    Args:
        engine: What carries it.
        request: What to send.
        to_any_origin: Whether this is a GET of a public document; see `follow`.

    Raises:
        A2AHTTPError: A redirect that must not be followed.
        A2AError: What the engine raises.
    """
    followed = 0
    while True:
        reply = await engine.request(request)
        if reply.status < 300 or reply.status >= 400:
            return reply
        onward = follow(request, reply, to_any_origin=to_any_origin, followed=followed)
        if onward is None:
            return reply
        request, followed = onward, followed + 1
