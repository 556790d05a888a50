"""Streams of events over HTTP, with a word now and then that they are alive.

The SDK answers with sse-starlette's, which watches the process for signals in a task that never
ends, and ends streams by what another server in the process was told. What is sent is the same.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from sse_starlette import EventSourceResponse
from sse_starlette import event as sse
from starlette.responses import Response
from starlette.routing import Mount, Route

from holdfast._server.json_requests import JsonRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

__all__ = ["with_own_streams"]

_ALIVE = b": alive\n\n"
_SEPARATOR = "\n"


def with_own_streams(
    routes: Iterable[BaseRoute], *, keep_alive: float, json_values: int
) -> list[BaseRoute]:
    """The same routes, whose requests are checked and whose streams are written here.

    Args:
        routes: The SDK's.
        keep_alive: Seconds without an event after which a comment is sent.
        json_values: Values that the JSON of a request may hold.
    """
    return [_own(route, keep_alive, json_values) for route in routes]


def _own(route: BaseRoute, keep_alive: float, json_values: int) -> BaseRoute:
    if isinstance(route, Mount):
        inner = with_own_streams(route.routes, keep_alive=keep_alive, json_values=json_values)
        return Mount(route.path, routes=inner)
    if not isinstance(route, Route):
        return route
    answer: Callable[[Request], Awaitable[Response]] = route.endpoint

    async def endpoint(given: Request) -> Response:
        request = JsonRequest(given.scope, given.receive)
        if not await request.is_called_json():
            return Response("the body has to be JSON, and called so", status_code=415)
        if refusal := await request.refusal(values=json_values, is_rpc=route.path == "/"):
            return refusal
        response = await answer(request)
        if isinstance(response, EventSourceResponse):
            return _EventStream(response, keep_alive)
        return response

    methods = None if route.methods is None else list(route.methods)
    return Route(route.path, endpoint, methods=methods)


class _EventStream(Response):
    """The events of another response."""

    def __init__(self, response: EventSourceResponse, keep_alive: float) -> None:
        self.status_code = response.status_code
        self.raw_headers = response.raw_headers
        self.background = None
        self._events: Any = cast("Any", response).body_iterator
        self._keep_alive = keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Sends the events until there are no more, or nobody is there."""
        gone = asyncio.create_task(_until_gone(receive), name="waiting for the client to leave")
        coming: asyncio.Task[Any] | None = None
        try:
            await send({"type": "http.response.start", **self._head()})
            while not gone.done():
                coming = coming or asyncio.create_task(_next(self._events), name="the next event")
                await asyncio.wait(
                    [coming, gone],
                    timeout=self._keep_alive,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not coming.done():
                    if not gone.done():
                        await send(_body(_ALIVE, more=True))
                    continue
                event, coming = coming.result(), None
                if event is None:
                    await send(_body(b"", more=False))
                    return
                await send(_body(_written(event), more=True))
        finally:
            await _end(gone, coming)
            if hasattr(self._events, "aclose"):
                await self._events.aclose()

    def _head(self) -> dict[str, Any]:
        return {"status": self.status_code, "headers": self.raw_headers}


def _written(event: Any) -> bytes:
    written: bytes = cast("Any", sse).ensure_bytes(event, _SEPARATOR)
    return written


async def _next(events: Any) -> Any:
    """The next event; None at the end."""
    async for event in events:
        return event
    return None


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":  # noqa: ASYNC110  it is asked
        await asyncio.sleep(0)  # not all servers wait before they bring nothing


def _body(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def _end(*tasks: asyncio.Task[Any] | None) -> None:
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
