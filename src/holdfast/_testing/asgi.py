"""Applications in process: an engine that speaks ASGI 3 to them, chunk by chunk, without a socket.

It replaces the server of an ASGI application. A reply is available as soon as the application
starts it, and each piece as soon as it is sent. If a client leaves, the application receives
``http.disconnect`` and may continue; it is cancelled only when the network is closed. It works in
virtual time, and keeps the contract of `HttpEngine`: the timeout of each phase, the facts about
execution, the bound on replies, and that a cancelled request frees its slot.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from holdfast._aio.cancel_scope import CancelScope, wait_within
from holdfast._model.hosts import ip_literal
from holdfast._testing.asgi_exchange import AsgiExchange, IncompleteReplyError
from holdfast._testing.asgi_lifespan import Lifespan
from holdfast.errors import Facts
from holdfast.extend import (
    HttpReply,
    HttpRequest,
    HttpStream,
    connection_error,
    limit_error,
    origin,
    presentable,
    reach_error,
    timeout_error,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from holdfast._asgi import ASGIApplication

__all__ = ["AsgiNetwork"]

_CLOSE_GRACE_S = 1.0
"""Seconds that an application has to end requests whose clients have left, before they are
cancelled."""


class AsgiNetwork:
    """Engine (`HttpEngine`) that reaches ASGI applications by their origin, and nothing else.

    Used without ``async with``, it must be closed if applications may still handle requests whose
    clients have left. As an async context manager, it starts the applications up and shuts them
    down (ASGI lifespan; applications without it work too), and at its end raises the first
    exception that an application raised. In virtual time, use it as a context manager for
    applications on sse-starlette, such as those of the official SDK: they leave a task behind that
    only its end stops.

    Args:
        apps: Applications by origin, as in ``{"http://agent.test": app}``.

    Attributes:
        crashes: Exceptions of the applications, in order. A client sees HTTP 500 or an incomplete
            reply, as behind a server.
        in_flight: Number of requests in flight and open streams; zero when nothing leaks.
    """

    def __init__(self, apps: Mapping[str, ASGIApplication] = MappingProxyType({})) -> None:
        self._apps = {origin(url): app for url, app in apps.items()}
        self.crashes: list[Exception] = []
        self.in_flight = 0
        self._running: set[AsgiExchange] = set()
        self._states: dict[str, dict[str, object]] = {}
        self._lifespans = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for url, app in self._apps.items():
                self._states[url] = await stack.enter_async_context(Lifespan(app))
            self._lifespans = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        finally:
            self._states.clear()
            try:
                await self._lifespans.aclose()
            finally:
                await _end_watchers()
        if self.crashes and error is None:
            raise self.crashes[0]

    def add(self, url: str, app: ASGIApplication) -> None:
        """Add or replace an application; after the network was entered, it is not started up.

        Args:
            url: The application's origin.
            app: The application.
        """
        self._apps[origin(url)] = app

    async def request(self, request: HttpRequest) -> HttpReply:
        """Send a request to the application at its origin.

        Args:
            request: The request.

        Raises:
            A2AConnectionError: There is no such application, or the reply is incomplete.
            A2ATimeoutError: A timeout of ``request.timeouts`` expired.
            NetworkPolicyError: ``request.reach`` does not allow the address.
            LimitExceededError: The body is larger than ``request.limits`` allow.
        """
        async with self.stream(request) as reply:
            body = await reply.read()
            address = _ip_address(request.url)
            return HttpReply(
                status=reply.status, headers=reply.headers, body=body, address=address
            )

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Send a request; the body is read while the context is open.

        Args:
            request: The request.

        Raises:
            A2AConnectionError: There is no such application, or the reply is incomplete; also
                from the chunks.
            A2ATimeoutError: A timeout of ``request.timeouts`` expired; also from the chunks.
            NetworkPolicyError: ``request.reach`` does not allow the address.
        """
        return _Connection(self, request)

    async def close(self) -> None:
        """Disconnect all clients, and cancel requests that do not end within 1 s.

        It waits 1 s more for requests that do not end when they are cancelled.
        """
        running = [*self._running]
        for exchange in running:
            exchange.disconnect()
        tasks = [exchange.task for exchange in running]
        if not tasks:
            return
        try:
            await asyncio.wait(tasks, timeout=_CLOSE_GRACE_S)
        finally:
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks, timeout=_CLOSE_GRACE_S)

    def begin(self, request: HttpRequest) -> AsgiExchange:
        """Pass a request to its application.

        Args:
            request: The request.

        Raises:
            A2AConnectionError: There is no such application, or the network is closed.
            NetworkPolicyError: ``request.reach`` does not allow the address.
        """
        address = _ip_address(request.url)
        if request.reach is not None and address is not None and request.reach.refuses(address):
            raise reach_error(request.url, address, request.reach)
        url = origin(request.url)
        app = self._apps.get(url)
        if app is None:  # as for a host name that does not exist
            raise connection_error(request, "dns", sent=False, transient=False)
        request.progress.sent = True
        state = self._states.get(url, {})
        exchange = AsgiExchange(app, request, state, self.crashes.append)
        self._running.add(exchange)
        exchange.task.add_done_callback(lambda _task: self._running.discard(exchange))
        return exchange


class _Connection:
    """One request, and its reply while it is read."""

    def __init__(self, network: AsgiNetwork, request: HttpRequest) -> None:
        self._network = network
        self._request = request
        self._exchange: AsgiExchange | None = None
        self.status = 0
        self.headers: Mapping[str, str] = {}

    async def __aenter__(self) -> HttpStream:
        request = self._request
        self._exchange = exchange = self._network.begin(request)
        self._network.in_flight += 1
        try:
            async with CancelScope.within(request.timeouts.first_byte):
                self.status, self.headers = await exchange.head()
                return self
        except BaseException:
            self._free()
            raise
        self._free()
        raise timeout_error(request, "first_byte", sent=True)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._free()

    def chunks(self) -> AsyncIterator[bytes]:
        return _Chunks(self._exchange, self._request)

    async def read(self) -> bytes:
        body, request = bytearray(), self._request
        async for piece in self.chunks():
            body += piece
            if len(body) > request.limits.body:
                if self.status >= 300:
                    return b""
                text = f"the reply is larger than {request.limits.body} bytes"
                facts = Facts(executed=None, agent=presentable(request.url))
                raise limit_error("body", request.limits, text, **facts)
        return bytes(body)

    def _free(self) -> None:
        if self._exchange is not None:
            self._exchange.disconnect()
            self._exchange = None
            self._network.in_flight -= 1


class _Chunks:
    """The body, piece by piece."""

    def __init__(self, exchange: AsgiExchange | None, request: HttpRequest) -> None:
        self._exchange = exchange
        self._request = request

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._exchange is None:  # the context has ended
            raise StopAsyncIteration
        request, reading = self._request, self._exchange.piece()
        try:
            piece = await wait_within(
                request.timeouts.idle, reading, lambda: timeout_error(request, "idle", sent=True)
            )
        except IncompleteReplyError:
            raise connection_error(request, "truncated", sent=True) from None
        if not piece:
            raise StopAsyncIteration
        return piece


async def _end_watchers() -> None:
    """Cancel the task of sse-starlette that polls twice a second whether to shut down.

    The first stream of a thread starts it, and it never ends, so that virtual time would never
    stand still. The next stream starts another one.
    """
    watchers = [
        task
        for task in asyncio.all_tasks()
        if getattr(task.get_coro(), "__qualname__", "") == "_shutdown_watcher"
    ]
    for watcher in watchers:
        watcher.cancel()
    if watchers:
        await asyncio.wait(watchers, timeout=_CLOSE_GRACE_S)


def _ip_address(url: str) -> str | None:
    """Return the IP address in a URL; None if it has a host name."""
    address = ip_literal(urlsplit(url).hostname or "")
    return None if address is None else str(address)
