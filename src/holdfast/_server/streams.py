"""The SDK's routes with checked requests, and with event streams that send keep-alive comments.

The SDK answers with sse-starlette's streams, which watch the process for signals in a task that
never ends, and which end when another server in the process is stopped. The bytes are the same.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from sse_starlette import EventSourceResponse
from sse_starlette import event as sse
from starlette.responses import Response
from starlette.routing import Mount, Route

from holdfast._aio.callbacks import cancel_and_wait
from holdfast._server.json_requests import JsonRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

__all__ = ["with_safe_requests"]

_KEEP_ALIVE_COMMENT = b": alive\n\n"
_LINE_END = "\n"


def with_safe_requests(
    routes: Iterable[BaseRoute], *, keep_alive: float, max_values: int
) -> list[BaseRoute]:
    """Return the same routes, with checked requests and with streams that are kept alive.

    Args:
        routes: The SDK's routes.
        keep_alive: Seconds without an event after which a stream sends a comment.
        max_values: JSON values that the body of a request may contain.
    """
    return [_wrap(route, keep_alive, max_values) for route in routes]


def _wrap(route: BaseRoute, keep_alive: float, max_values: int) -> BaseRoute:
    if isinstance(route, Mount):
        inner = with_safe_requests(route.routes, keep_alive=keep_alive, max_values=max_values)
        return Mount(route.path, routes=inner)
    if not isinstance(route, Route):
        return route
    sdk_endpoint: Callable[[Request], Awaitable[Response]] = route.endpoint

    async def endpoint(sdk_request: Request) -> Response:
        request = JsonRequest(sdk_request.scope, sdk_request.receive)
        if not await request.has_json_type():
            return Response(
                "the body must be JSON, with the Content-Type application/json", status_code=415
            )
        if refusal := await request.refusal(max_values=max_values, is_rpc=route.path == "/"):
            return refusal
        response = await sdk_endpoint(request)
        if isinstance(response, EventSourceResponse):
            return _EventStream(response, keep_alive)
        return response

    methods = None if route.methods is None else list(route.methods)
    return Route(route.path, endpoint, methods=methods)


class _EventStream(Response):
    """Sends the events of an SDK response."""

    def __init__(self, response: EventSourceResponse, keep_alive: float) -> None:
        self.status_code = response.status_code
        self.raw_headers = response.raw_headers
        self.background = None
        self._events: Any = cast("Any", response).body_iterator
        self._keep_alive = keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the events until the stream ends, or the client leaves."""
        gone = asyncio.create_task(_wait_gone(receive), name="waiting for the client to leave")
        next_event: asyncio.Task[Any] | None = None
        try:
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            while not gone.done():
                if next_event is None:
                    next_event = asyncio.create_task(_next(self._events), name="the next event")
                await asyncio.wait(
                    [next_event, gone],
                    timeout=self._keep_alive,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not next_event.done():
                    if not gone.done():
                        await send(_body(_KEEP_ALIVE_COMMENT, more=True))
                    continue
                event, next_event = next_event.result(), None
                if event is None:
                    await send(_body(b"", more=False))
                    return
                await send(_body(_encode(event), more=True))
        finally:
            await cancel_and_wait(*(task for task in (gone, next_event) if task is not None))
            if hasattr(self._events, "aclose"):
                await self._events.aclose()


def _encode(event: Any) -> bytes:
    encoded: bytes = cast("Any", sse).ensure_bytes(event, _LINE_END)
    return encoded


async def _next(events: Any) -> Any:
    """Return the next event; None at the end."""
    async for event in events:
        return event
    return None


async def _wait_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":  # noqa: ASYNC110  ASGI has no event
        await asyncio.sleep(0)  # some servers return empty messages without waiting


def _body(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}
