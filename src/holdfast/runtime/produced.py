"""Bindings that a caller brings: their transports stand where the client's own binding stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from holdfast.model.card import AgentCard, AgentInterface
from holdfast.runtime.transport import Call, PassThrough, Reply, Transport

__all__ = ["ProducedTransports", "TransportProducer"]

P = TypeVar("P")
R = TypeVar("R")

_MOST = 100
"""Transports that are kept; the ones that were not used for longest are closed."""

TransportProducer = Callable[[AgentCard, AgentInterface], Transport]
"""Makes the transport for an interface of a card, when it is first called.

It carries calls to that interface: parameters with the interface's tenant, headers and query with
the credentials in them. It raises an `A2AError` that says what is known of the execution; what it
does not say (``executed``) is taken for unknown. It is closed with the client.
"""


class ProducedTransports(PassThrough):
    """The bottom of the stack: a caller's transports by their bindings, and the client's own."""

    def __init__(self, inner: Transport, producers: Mapping[str, TransportProducer]) -> None:
        super().__init__(inner)
        self._producers = dict(producers)
        self._made: dict[AgentInterface, Transport] = {}

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        """Makes the call once.

        Raises:
            A2AError: What the transport raises.
            TypeError: A producer made something else.
        """
        endpoint = call.endpoint
        if endpoint is None or call.card is None:
            message = "the call has no endpoint yet"
            raise RuntimeError(message)
        interface = endpoint.interface
        producer = self._producers.get(interface.protocol_binding)
        if producer is None:
            return await self._inner.unary(call)
        transport = self._made.pop(interface, None) or _made(producer, call.card, interface)
        self._made[interface] = transport  # the most recently used one comes last
        if len(self._made) > _MOST:
            await self._made.pop(next(iter(self._made))).close()
        params: Any = call.params
        addressed = msgspec.structs.replace(
            call, params=msgspec.structs.replace(params, tenant=interface.tenant)
        )
        call.progress.sent = True  # for all that can be known of it here
        call.progress.secrets.note(call.headers, call.query, interface.url)
        reply = await transport.unary(addressed)
        return msgspec.structs.replace(reply, endpoint=endpoint)

    async def close(self) -> None:
        """Closes every transport that was made."""
        made, self._made = self._made, {}
        await asyncio.gather(*(transport.close() for transport in made.values()))
        await self._inner.close()


def _made(producer: TransportProducer, card: AgentCard, interface: AgentInterface) -> Transport:
    transport = producer(card, interface)
    if not all(callable(getattr(transport, name, None)) for name in ("unary", "close")):
        message = (
            f"the producer of {interface.protocol_binding} made no Transport but "
            f"{type(transport).__name__}"
        )
        raise TypeError(message)
    return transport
