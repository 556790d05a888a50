"""Fake agents in process: an engine that sends requests to them without a socket.

It works in virtual time, and keeps the contract of `HttpEngine`: the timeout of each phase, the
facts about execution, the bound on replies, and that a cancelled request frees its slot.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from holdfast._aio.cancel_scope import CancelScope
from holdfast._arguments import explains_unknown_options
from holdfast._model.hosts import ip_literal
from holdfast._testing.bodies import Reply, WholeBody
from holdfast._testing.faults import Garbage, Refuse, Stall
from holdfast.errors import (
    A2AConnectionError,
    A2ATimeoutError,
    Facts,
    InvalidAgentResponseError,
)
from holdfast.extend import (
    HttpReply,
    HttpRequest,
    HttpStream,
    connection_error,
    excerpt,
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

    from holdfast._testing.agent import FakeAgent
    from holdfast._testing.bodies import Body
    from holdfast._testing.exchange import Exchange
    from holdfast.errors import ConnectionFailure, TimeoutPhase

__all__ = ["FakeNetwork"]


class FakeNetwork:
    """Engine (`HttpEngine`) that reaches fake agents by their origin, and nothing else.

    Args:
        agents: The agents that can be reached.
        latency: Seconds that connecting takes; every request makes a connection.
        addresses: IP addresses by host name, for checks of the network that a request may reach. A
            host name without an address counts as public.

    Attributes:
        in_flight: Number of requests in flight and open streams; zero when nothing leaks.
        peak: The highest number in flight at a time.

    Example:
        Two agents in one network::

            from holdfast.testing import FakeAgent, FakeNetwork

            moon = FakeAgent("384,400 km", url="http://moon.test")
            sun = FakeAgent("150,000,000 km", url="http://sun.test")
            network = FakeNetwork(moon, sun)
            async with holdfast.Coordinator([moon.url, sun.url], engine=network) as agents:
                results = await agents.fan_out("How far are you?")
            assert [result.answer.text for result in results] == ["384,400 km", "150,000,000 km"]
    """

    @explains_unknown_options()
    def __init__(
        self,
        *agents: FakeAgent,
        latency: float = 0.0,
        addresses: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._addresses = dict(addresses)
        self._agents = {origin(agent.url): agent for agent in agents}
        self._latency = latency
        self.in_flight = 0
        self.peak = 0

    async def request(self, request: HttpRequest) -> HttpReply:
        """Send a request to the agent at its origin.

        Args:
            request: The request.

        Raises:
            A2AConnectionError: There is no such agent, or because of a fault.
            A2ATimeoutError: A timeout of ``request.timeouts`` expired.
            NetworkPolicyError: ``request.reach`` does not allow the address.
            LimitExceededError: The body is larger than ``request.limits`` allow.
            InvalidAgentResponseError: The reply is not HTTP.
        """
        async with self.stream(request) as reply:
            body = await reply.read()
            address: str | None = getattr(reply, "address", None)
            return HttpReply(
                status=reply.status, headers=reply.headers, body=body, address=address
            )

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Send a request; the body is read while the context is open.

        Args:
            request: The request.

        Raises:
            A2AConnectionError: There is no such agent, or because of a fault; also from the
                chunks.
            A2ATimeoutError: A timeout of ``request.timeouts`` expired; also from the chunks.
            NetworkPolicyError: ``request.reach`` does not allow the address.
            InvalidAgentResponseError: The reply is not HTTP.
        """
        return _Connection(self, request)

    async def close(self) -> None:
        """Do nothing; there is nothing to free."""

    async def connect(self, request: HttpRequest) -> FakeAgent:
        """Make a connection.

        Args:
            request: The request.

        Raises:
            A2AConnectionError: There is no such agent.
            A2ATimeoutError: Connecting takes too long.
            NetworkPolicyError: ``request.reach`` does not allow the address.
        """
        address = self.address_of(request.url)
        if request.reach is not None and address is not None and request.reach.refuses(address):
            raise reach_error(request.url, address, request.reach)
        agent = self._agents.get(origin(request.url))
        limit = request.timeouts.connect
        await asyncio.sleep(min(self._latency, limit))
        if self._latency > limit:
            raise _timeout("connect", request)
        if agent is None:
            raise _broken("dns", request)
        return agent

    def address_of(self, url: str) -> str | None:
        """Return the IP address of the host of a URL; None for a public host name.

        Args:
            url: The URL.
        """
        host = urlsplit(url).hostname or ""
        address = self._addresses.get(host)
        if address is not None:
            return address
        literal = ip_literal(host)
        return None if literal is None else str(literal)


class _Connection:
    """One request, and its reply while it is read."""

    def __init__(self, network: FakeNetwork, request: HttpRequest) -> None:
        self._network = network
        self._request = request
        self._exchange: Exchange | None = None
        self._reply = Reply(status=0, headers={}, body=WholeBody(b""))
        self._open = False
        self.address = network.address_of(request.url)

    async def __aenter__(self) -> HttpStream:
        network = self._network
        network.in_flight += 1
        network.peak = max(network.peak, network.in_flight)
        self._open = True
        try:
            self._reply = await self._send()
        except BaseException:
            self._free()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._free()

    @property
    def status(self) -> int:
        return self._reply.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._reply.headers

    def chunks(self) -> AsyncIterator[bytes]:
        return _Chunks(self._reply.body, self._request)

    async def read(self) -> bytes:
        body, limits = bytearray(), self._request.limits
        async for piece in self.chunks():
            body += piece
            if len(body) > limits.body:
                if self.status >= 300:
                    return b""
                text = f"the reply is larger than {limits.body} bytes"
                raise limit_error("body", limits, text, **_facts(self._request))
        return bytes(body)

    async def _send(self) -> Reply:
        """Send the request, and wait for the headers of the reply."""
        request = self._request
        agent = await self._network.connect(request)
        exchange = self._exchange = agent.exchange(request)
        fault = exchange.fault
        match fault:
            case Refuse():
                raise _broken("refused", request)
            case Stall(phase="connect"):
                await asyncio.sleep(request.timeouts.connect)
                raise _timeout("connect", request)
            case _:
                pass
        request.progress.sent = True
        reply = None
        async with CancelScope.within(request.timeouts.first_byte) as scope:
            reply = await exchange.reply()
            if isinstance(fault, Stall) and fault.phase == "first_byte":
                await asyncio.sleep(request.timeouts.first_byte)
        if scope.expired:
            raise _timeout("first_byte", request)
        if isinstance(fault, Garbage):
            facts = _facts(request)
            facts["excerpt"] = excerpt(fault.data)
            text = f"the reply of {presentable(request.url)} is not HTTP"
            raise InvalidAgentResponseError(text, **facts)
        if reply is None:
            raise _broken("disconnected", request)
        return reply

    def _free(self) -> None:
        if self._open:
            self._open = False
            self._network.in_flight -= 1
            if self._exchange is not None:
                self._exchange.close()


class _Chunks:
    """The body, piece by piece."""

    def __init__(self, body: Body, request: HttpRequest) -> None:
        self._body = body
        self._request = request

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        with contextlib.suppress(StopAsyncIteration):
            async with CancelScope.within(self._request.timeouts.idle) as scope:
                return await anext(self._body)
            if scope.expired:
                raise _timeout("idle", self._request)
        match self._body.ending:
            case "whole":
                raise StopAsyncIteration
            case "stalled":
                await asyncio.sleep(self._request.timeouts.idle)
                raise _timeout("idle", self._request)
            case "cut" | "reset":  # a client cannot distinguish them
                raise _broken("truncated", self._request)


def _broken(failure: ConnectionFailure, request: HttpRequest) -> A2AConnectionError:
    # "dns" is for a host name that does not exist, and never will.
    sent = request.progress.sent
    return connection_error(request, failure, sent=sent, transient=failure != "dns")


def _timeout(phase: TimeoutPhase, request: HttpRequest) -> A2ATimeoutError:
    return timeout_error(request, phase, sent=request.progress.sent)


def _facts(request: HttpRequest) -> Facts:
    executed = None if request.progress.sent else False
    return Facts(executed=executed, agent=presentable(request.url))
