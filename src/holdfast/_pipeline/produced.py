"""Bindings that a caller brings: their transports stand where the client's own binding stands."""

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
from holdfast._net.engine import reach_error
from holdfast._pipeline.transport import (
    AnyCall,
    Call,
    PassThrough,
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

_MOST = 100
"""Transports that are kept, besides those with a call in them: an agent may change its card as
often as it likes. The ones that were not used for longest are closed."""

_CLOSING = 5.0
"""Seconds that a caller's transport has to close."""

TransportProducer = Callable[[AgentCard, AgentInterface], Transport]
"""Makes the transport for an interface of a card, when it is first called.

It carries calls to that interface: parameters with the interface's tenant, headers and query with
the credentials in them. It raises an `A2AError` that says what is known of the execution; what it
does not say (``executed``) is taken for unknown. It is closed with the client, or earlier when a
hundred others were used since; within 5 seconds, and never while a call is in it that still has
time. What closing it earlier raises is raised when the client is closed. It belongs to the event
loop in which it was made. Where the names of addresses lead is for it to look at (`Call.reach`);
numbers that must not be reached are refused before.
"""


class ProducedTransports(PassThrough):
    """The bottom of the stack: a caller's transports by their bindings, and the client's own."""

    def __init__(self, inner: Transport, producers: Mapping[str, TransportProducer]) -> None:
        super().__init__(inner)
        self._producers = dict(producers)
        self._made = PerLoop[dict[AgentInterface, _Produced]](dict)
        self._letting_go = PerLoop[set[asyncio.Task[None]]](set)
        self._failure: Exception | None = None

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        """Makes the call once.

        Raises:
            A2AError: What the transport raises.
            TypeError: A producer made something else.
            NetworkPolicyError: The address names a number that must not be reached.
        """
        produced = self._entered(call)
        if produced is None:
            return await self._inner.unary(call)
        try:
            reply = await produced.transport.unary(addressed(call))
        finally:
            self._leave(produced)
        return msgspec.structs.replace(reply, endpoint=call.endpoint)

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Makes the call once; the transport is in use until the stream is closed.

        Raises:
            UnsupportedOperationError: The transport has no streams; nothing was sent.
            A2AError: What the transport raises.
            TypeError: A producer made something else.
            NetworkPolicyError: The address names a number that must not be reached.
        """
        produced = self._entered(call)
        if produced is None:
            return await self._inner.stream(call)
        try:
            transport: Any = produced.transport
            if not hasattr(transport, "stream"):
                transport = UnaryOnly()
                call.progress.sent = False
            reply: Reply[Stream[R]] = await transport.stream(addressed(call))
            stream = _InUse(reply.value, partial(self._leave, produced))
            return msgspec.structs.replace(reply, value=stream, endpoint=call.endpoint)
        except BaseException:
            self._leave(produced)
            raise

    def _entered(self, call: AnyCall) -> _Produced | None:
        """The transport for a call, which is in it from now on; None if it is not a caller's."""
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
        call.progress.sent = True  # for all that can be known of it here
        call.progress.secrets.note(call.headers, call.query, interface.url)
        produced.calls += 1
        return produced

    def _leave(self, produced: _Produced) -> None:
        produced.calls -= 1
        self._let_some_go(self._made.here())

    async def close(self) -> None:
        """Closes every transport that was made.

        Raises:
            TimeoutError: One did not close in time.
            Exception: What one of them raised, now or when it was let go.
        """
        all_made = self._made.here_and_closed()
        self._made.forget()
        closing = [
            close(made.pop(interface).transport, seconds=_CLOSING)
            for made in all_made
            for interface in list(made)
        ]
        try:
            outcomes = await asyncio.gather(
                *self._letting_go.here(), *closing, return_exceptions=True
            )
        finally:
            await self._inner.close()
        failure, self._failure = self._failure, None
        raise_first((failure, *outcomes))

    def _let_some_go(self, made: dict[AgentInterface, _Produced]) -> None:
        """Closes what is too much and has no call in it, in nobody's time."""
        too_many = len(made) - _MOST
        if too_many <= 0:
            return
        idle = [interface for interface, produced in made.items() if not produced.calls]
        in_flight = self._letting_go.here()
        for interface in idle[:too_many]:
            closing = asyncio.ensure_future(self._let_go(made.pop(interface).transport))
            in_flight.add(closing)
            closing.add_done_callback(in_flight.discard)

    async def _let_go(self, transport: Transport) -> None:
        try:
            await close(transport, seconds=_CLOSING)
        except Exception as error:  # noqa: BLE001  told when the client is closed
            self._failure = self._failure or error


class _Produced:
    """A caller's transport, and how many calls are in it."""

    __slots__ = ("calls", "transport")

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.calls = 0


class _InUse(StreamWrapper[R]):
    """A stream of a caller's transport, which tells when it is closed."""

    def __init__(self, inner: Stream[R], closed: Callable[[], None]) -> None:
        super().__init__(inner)
        self._closed: Callable[[], None] | None = closed

    async def close(self) -> None:
        """Closes it."""
        closed, self._closed = self._closed, None
        try:
            await self._inner.close()
        finally:
            if closed is not None:
                closed()


def _check_host(url: str, reach: NetworkReach) -> None:
    """Checks the number in an address, if there is one; where a name leads, the transport sees."""
    host = urlsplit(url).hostname or url.rpartition(":")[0].strip("[]")
    number = ip_literal(host)
    if number is not None and reach.refuses(str(number)):
        raise reach_error(url, str(number), reach)


def _produce(producer: TransportProducer, card: AgentCard, interface: AgentInterface) -> Transport:
    transport = producer(card, interface)
    if not all(callable(getattr(transport, name, None)) for name in ("unary", "close")):
        message = (
            f"the producer of {interface.protocol_binding} must make a Transport, not "
            f"{type(transport).__name__}"
        )
        raise TypeError(message)
    return transport
