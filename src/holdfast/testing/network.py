"""Fake agents in process: an engine that carries requests to them without a socket.

Made for virtual time. It keeps an engine's contract: the timeouts of each phase, what is known
about execution, and that a cancelled request frees its slot.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

from holdfast.errors import (
    A2AConnectionError,
    A2ATimeoutError,
    InvalidAgentResponseError,
    LimitExceededError,
)
from holdfast.testing.faults import Cut, Delay, Fault, Garbage, Refuse, Reset, Respond, Stall
from holdfast.wire.http import HttpReply, HttpRequest, HttpStream, excerpt, origin, presentable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from holdfast.errors import TimeoutPhase
    from holdfast.testing.agent import FakeAgent

__all__ = ["FakeNetwork"]


class FakeNetwork:
    """An `HttpEngine` that reaches fake agents by their origin, and nobody else.

    Args:
        agents: Who is reachable.
        latency: Seconds that a connection takes.

    Attributes:
        in_flight: Requests under way; zero when nothing leaks.
        peak: Most requests that were under way at a time.
    """

    def __init__(self, *agents: FakeAgent, latency: float = 0.0) -> None:
        self._agents = {origin(agent.url): agent for agent in agents}
        self._latency = latency
        self.in_flight = 0
        self.peak = 0

    async def request(self, request: HttpRequest) -> HttpReply:
        """Carries a request to the agent at its origin.

        Raises:
            A2AConnectionError: Nobody is there, or as a fault says.
            A2ATimeoutError: A timeout of the request's.
        """
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            return await self._carry(request)
        finally:
            self.in_flight -= 1

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Carries a request; the body comes in one piece."""
        return _WholeStream(self, request)

    async def close(self) -> None:
        """Nothing to free."""

    async def _carry(self, request: HttpRequest) -> HttpReply:
        agent = self._agents.get(origin(request.url))
        await asyncio.sleep(self._latency)
        if agent is None:
            raise A2AConnectionError(
                f"{presentable(request.url)}: the name could not be resolved",
                failure="dns",
                executed=False,
            )
        fault = agent.next_fault(request)
        if isinstance(fault, Refuse):
            raise A2AConnectionError(
                f"{presentable(request.url)}: the connection was refused",
                failure="refused",
                executed=False,
                transient=True,
            )
        request.progress.sent = True
        if fault is not None and not fault.after_execution and not isinstance(fault, Delay):
            return await _happen(fault, request)
        now = asyncio.get_running_loop().time()
        answering = agent.receive(request, now)
        late = fault.seconds if isinstance(fault, Delay) else 0.0
        limit = request.timeouts.first_byte
        wait = None if answering.at is None else answering.at + late - now
        if wait is None or wait > limit:
            await _time_out("first_byte", limit, request)
        else:
            await asyncio.sleep(wait)
        reply = answering.reply()
        if fault is not None and not isinstance(fault, Delay):
            return await _happen(fault, request)
        if len(reply.body) > request.max_reply:
            raise LimitExceededError(
                f"the reply is larger than {request.max_reply} bytes",
                which="reply bytes",
                bound=request.max_reply,
            )
        return reply


async def _happen(fault: Fault, request: HttpRequest) -> HttpReply:
    """What a client sees of a fault once its request has left."""
    where = presentable(request.url)
    match fault:
        case Reset():
            raise A2AConnectionError(
                f"{where}: the connection was closed before the reply",
                failure="disconnected",
                transient=True,
            )
        case Cut():
            raise A2AConnectionError(
                f"{where}: the reply ended too early", failure="truncated", transient=True
            )
        case Stall():
            return await _time_out("first_byte", request.timeouts.first_byte, request)
        case Garbage():
            raise InvalidAgentResponseError(
                f"the reply of {where} is not HTTP", excerpt=excerpt(fault.data)
            )
        case Respond():
            return HttpReply(status=fault.status, headers=fault.headers, body=fault.body)
        case _:
            text = f"{type(fault).__name__} cannot happen here"
            raise TypeError(text)


async def _time_out(phase: TimeoutPhase, limit: float, request: HttpRequest) -> NoReturn:
    await asyncio.sleep(limit)
    raise A2ATimeoutError(
        f"{presentable(request.url)}: no reply began for {limit:g} s",
        phase=phase,
        timeout=limit,
        transient=True,
    )


class _WholeStream:
    """A stream of one piece."""

    def __init__(self, network: FakeNetwork, request: HttpRequest) -> None:
        self._network = network
        self._request = request
        self._reply = HttpReply(status=0)

    async def __aenter__(self) -> HttpStream:
        self._reply = await self._network.request(self._request)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    @property
    def status(self) -> int:
        return self._reply.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._reply.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        if self._reply.body:
            yield self._reply.body

    async def read(self) -> bytes:
        return self._reply.body
