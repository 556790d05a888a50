"""Applications in process: an engine that speaks ASGI 3 to them, chunk by chunk, without a socket.

It is to an ASGI application what a server is. A reply is there as soon as the application begins
it, and a piece of it as soon as that is sent. Whoever leaves is told to the application by
``http.disconnect``, and it goes on as it likes: it is ended only when the network is closed. It
works in virtual time, and keeps the contract of `HttpEngine`: the timeouts of each phase, what is
known about execution, the largest reply, and that a cancelled request frees its slot.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from holdfast._aio.cancel_scope import CancelScope
from holdfast._model.hosts import ip_literal
from holdfast._net.engine import connection_error, reach_error, timeout_error
from holdfast._testing.asgi_exchange import AsgiExchange, BrokenOffError
from holdfast._testing.asgi_lifespan import Lifespan
from holdfast._wire.http import HttpReply, HttpRequest, HttpStream, presentable
from holdfast._wire.limits import limit_error
from holdfast._wire.origins import origin
from holdfast.errors import Facts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from holdfast._net.asgi import Application

__all__ = ["AsgiNetwork"]

_GRACE = 1.0
"""Seconds that an application has to end what nobody waits for any more; then it is cancelled."""


class AsgiNetwork:
    """An `HttpEngine` that reaches ASGI applications by their origin, and nobody else.

    It can be used as it is; then close it when applications may be left with requests whose
    clients are gone. Entered, it has the applications start up before and shut down after (ASGI
    lifespan; those without are served all the same), and raises at its end what one of them
    raised meanwhile, if anything. In virtual time, enter it for applications over sse-starlette,
    and so over the official SDK: they leave a task behind that only the end of it ends.

    Args:
        apps: Applications by origin, as in ``{"http://agent.test": app}``.

    Attributes:
        crashes: What the applications raised, in order. As behind a server, a client sees a 500
            of it, or a reply that breaks off.
        in_flight: Requests under way and streams open; zero when nothing leaks.
    """

    def __init__(self, apps: Mapping[str, Application] = MappingProxyType({})) -> None:
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

    def add(self, url: str, app: Application) -> None:
        """Adds an application, or replaces one; in an entered network, nobody has it start up.

        Args:
            url: Its origin.
            app: The application.
        """
        self._apps[origin(url)] = app

    async def request(self, request: HttpRequest) -> HttpReply:
        """Carries a request to the application at its origin.

        Raises:
            A2AConnectionError: Nobody is there, or the reply broke off.
            A2ATimeoutError: A limit of ``request.timeouts`` fired.
            NetworkPolicyError: The request must not reach that far.
            LimitExceededError: The body is larger than ``request.limits`` allow.
        """
        async with self.stream(request) as reply:
            body = await reply.read()
            number = _number_in(request.url)
            return HttpReply(status=reply.status, headers=reply.headers, body=body, address=number)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Carries a request; the body is read while the context is open.

        Raises:
            A2AConnectionError: Nobody is there, or the reply broke off; also from the chunks.
            A2ATimeoutError: A limit of ``request.timeouts`` fired; also from the chunks.
            NetworkPolicyError: The request must not reach that far.
        """
        return _Connection(self, request)

    async def close(self) -> None:
        """Ends what is under way: every client has left, and who does not stop is cancelled.

        It takes 1 s at most, and as long again for those that hold on to their cancellation.
        """
        running = [*self._running]
        for exchange in running:
            exchange.leave()
        tasks = [exchange.task for exchange in running]
        if not tasks:
            return
        try:
            await asyncio.wait(tasks, timeout=_GRACE)
        finally:
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks, timeout=_GRACE)

    def begin(self, request: HttpRequest) -> AsgiExchange:
        """Hands a request to its application.

        Raises:
            A2AConnectionError: Nobody is there.
            NetworkPolicyError: The request must not reach that far.
        """
        number = _number_in(request.url)
        if request.reach is not None and number is not None and request.reach.refuses(number):
            raise reach_error(request.url, number, request.reach)
        url = origin(request.url)
        app = self._apps.get(url)
        if app is None:  # nobody has that name, now or later
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
                what = f"the reply is larger than {request.limits.body} bytes"
                facts = Facts(executed=None, agent=presentable(request.url))
                raise limit_error("body", request.limits, what, **facts)
        return bytes(body)

    def _free(self) -> None:
        if self._exchange is not None:
            self._exchange.leave()
            self._exchange = None
            self._network.in_flight -= 1


class _Chunks:
    """The body as it comes."""

    def __init__(self, exchange: AsgiExchange | None, request: HttpRequest) -> None:
        self._exchange = exchange
        self._request = request

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._exchange is None:  # the context is left
            raise StopAsyncIteration
        try:
            async with CancelScope.within(self._request.timeouts.idle) as scope:
                piece = await self._exchange.piece()
        except BrokenOffError:
            raise connection_error(self._request, "truncated", sent=True) from None
        if scope.expired:
            raise timeout_error(self._request, "idle", sent=True)
        if not piece:
            raise StopAsyncIteration
        return piece


async def _end_watchers() -> None:
    """Ends what sse-starlette leaves behind: a task that asks twice a second whether to shut down.

    It begins with a thread's first stream, and would outlive all of them, and virtual time would
    never stand still for it. The next stream begins another.
    """
    watchers = [
        task
        for task in asyncio.all_tasks()
        if getattr(task.get_coro(), "__qualname__", "") == "_shutdown_watcher"
    ]
    for watcher in watchers:
        watcher.cancel()
    if watchers:
        await asyncio.wait(watchers, timeout=_GRACE)


def _number_in(url: str) -> str | None:
    """The number that an address names; None where it names a host."""
    number = ip_literal(urlsplit(url).hostname or "")
    return None if number is None else str(number)
