"""Custom bindings: caller-supplied transports take the place of the client's own binding."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from holdfast._aio.closing import close, raise_first
from holdfast._aio.per_loop import PerLoop
from holdfast._model.hosts import ip_literal
from holdfast._model.sdk_values import is_of_sdk, kind_of
from holdfast._net.engine import reach_error
from holdfast._pipeline.transport import (
    AnyCall,
    BaseLayer,
    Call,
    Reply,
    Stream,
    StreamWrapper,
    Transport,
    UnaryOnly,
    addressed,
    endpoint_of,
)
from holdfast.types import AgentCard, AgentInterface

if TYPE_CHECKING:
    from holdfast._wire.network_scope import NetworkReach

__all__ = ["ProducedTransports", "TransportProducer"]

P = TypeVar("P")
R = TypeVar("R")

_MAX_IDLE = 100
"""Idle transports that are kept: an agent may change its card as often as it likes. The least
recently used ones are closed."""

_CLOSE_TIMEOUT_S = 5.0
"""Seconds that a caller-supplied transport has to close."""

TransportProducer = Callable[[AgentCard, AgentInterface], Transport]
"""Function that makes the transport for an interface of a card, when it is first called.

The transport carries calls to that interface: parameters with the interface's tenant, headers and
query with the credentials in them. It raises an `A2AError` whose ``executed`` says whether the
call was executed; without it, that counts as unknown. The transport is closed with the client, or
earlier once a hundred others were used since; within 5 seconds, and never while it carries a call
that still has time. An error of an earlier close is raised when the client is closed. The
transport belongs to the event loop in which it was made. It has to check the addresses to which
host names resolve (`Call.reach`) itself; forbidden IP addresses are refused before it is called.
"""


class ProducedTransports(BaseLayer):
    """The bottom of the stack: caller-supplied transports by binding, and the client's own."""

    def __init__(self, inner: Transport, producers: Mapping[str, TransportProducer]) -> None:
        super().__init__(inner)
        self._producers = dict(producers)
        self._made = PerLoop[dict[AgentInterface, _Produced]](dict)
        self._closings = PerLoop[set[asyncio.Task[None]]](set)
        self._failure: Exception | None = None

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        """Make one attempt.

        Raises:
            A2AError: The error of the transport.
            TypeError: A producer returned something else than a transport.
            NetworkPolicyError: The address contains an IP address that must not be reached.
        """
        produced = self._enter(call)
        if produced is None:
            return await self._inner.unary(call)
        try:
            reply = await produced.transport.unary(addressed(call))
        finally:
            self._leave(produced)
        return msgspec.structs.replace(reply, endpoint=call.endpoint)

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Make one attempt; the transport is in use until the stream is closed.

        Raises:
            UnsupportedOperationError: The transport has no streams; nothing was sent.
            A2AError: The error of the transport.
            TypeError: A producer returned something else than a transport.
            NetworkPolicyError: The address contains an IP address that must not be reached.
        """
        produced = self._enter(call)
        if produced is None:
            return await self._inner.stream(call)
        try:
            transport: Any = produced.transport
            if not hasattr(transport, "stream"):
                transport = UnaryOnly()
                call.progress.request.sent = False
            reply: Reply[Stream[R]] = await transport.stream(addressed(call))
            stream = _InUse(reply.value, partial(self._leave, produced))
            return msgspec.structs.replace(reply, value=stream, endpoint=call.endpoint)
        except BaseException:
            self._leave(produced)
            raise

    def _enter(self, call: AnyCall) -> _Produced | None:
        """Return the transport of a call, now in use; None for the client's own bindings."""
        endpoint = endpoint_of(call)
        if call.card is None:
            message = "the call has no card yet"
            raise RuntimeError(message)
        interface = endpoint.interface
        producer = self._producers.get(interface.protocol_binding)
        if producer is None:
            return None
        if call.reach is not None:
            _check_host(interface.url, call.reach)
        made = self._made.here()
        produced = made.pop(interface, None)
        if produced is None:
            produced = _Produced(_produce(producer, call.card, interface))
        made[interface] = produced  # the most recently used one comes last
        call.progress.request.sent = True  # from here on, the client cannot know
        call.progress.secrets.note(call.headers, call.query, interface.url)
        produced.calls += 1
        return produced

    def _leave(self, produced: _Produced) -> None:
        produced.calls -= 1
        self._close_surplus(self._made.here())

    async def close(self) -> None:
        """Close every transport that was made.

        Raises:
            TimeoutError: A transport did not close in time.
            Exception: An error of closing a transport, now or earlier.
        """
        all_made = self._made.here_and_closed()
        self._made.forget()
        closing = [
            close(made.pop(interface).transport, seconds=_CLOSE_TIMEOUT_S)
            for made in all_made
            for interface in list(made)
        ]
        try:
            outcomes = await asyncio.gather(
                *self._closings.here(), *closing, return_exceptions=True
            )
        finally:
            await self._inner.close()
        failure, self._failure = self._failure, None
        raise_first((failure, *outcomes))

    def _close_surplus(self, made: dict[AgentInterface, _Produced]) -> None:
        """Close idle transports beyond the limit, in tasks that no call waits for."""
        surplus = len(made) - _MAX_IDLE
        if surplus <= 0:
            return
        idle = [interface for interface, produced in made.items() if not produced.calls]
        in_flight = self._closings.here()
        for interface in idle[:surplus]:
            closing = asyncio.ensure_future(self._close_now(made.pop(interface).transport))
            in_flight.add(closing)
            closing.add_done_callback(in_flight.discard)

    async def _close_now(self, transport: Transport) -> None:
        try:
            await close(transport, seconds=_CLOSE_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001  raised when the client is closed
            self._failure = self._failure or error


class _Produced:
    """A caller-supplied transport, and how many calls are using it."""

    __slots__ = ("calls", "transport")

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.calls = 0


class _InUse(StreamWrapper[R]):
    """A stream of a caller-supplied transport, which reports when it is closed."""

    def __init__(self, inner: Stream[R], closed: Callable[[], None]) -> None:
        super().__init__(inner)
        self._closed: Callable[[], None] | None = closed

    async def close(self) -> None:
        """Close the stream."""
        closed, self._closed = self._closed, None
        try:
            await self._inner.close()
        finally:
            if closed is not None:
                closed()


def _check_host(url: str, reach: NetworkReach) -> None:
    """Check an IP address in a URL; for a host name, the transport checks what it resolves to."""
    host = urlsplit(url).hostname or url.rpartition(":")[0].strip("[]")
    ip_address = ip_literal(host)
    if ip_address is not None and reach.refuses(str(ip_address)):
        raise reach_error(url, str(ip_address), reach)


def _produce(producer: TransportProducer, card: AgentCard, interface: AgentInterface) -> Transport:
    transport = producer(card, interface)
    if not all(callable(getattr(transport, name, None)) for name in ("unary", "close")):
        message = (
            f"the producer of {interface.protocol_binding} must return a Transport, not "
            f"{kind_of(transport)}"
        )
        if is_of_sdk(type(transport)):
            message += (
                "; use the official SDK's client: register holdfast.integrations.a2a_sdk."
                "HoldfastTransport in its ClientFactory, or use client_factory of that module"
            )
        raise TypeError(message)
    return transport
