"""Making clients for many agents alike, in the words of the official SDK; see `connect`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack, cast

from holdfast._arguments import check_kind, check_url, hooks, items, not_empty
from holdfast._client.connect import connect
from holdfast._compat.config import ClientConfig
from holdfast._model.grpc_addresses import grpc_address
from holdfast._pipeline.transport import Transport
from holdfast._wire.bindings import HTTP_BINDINGS
from holdfast._wire.http import presentable
from holdfast.types import AgentCapabilities, AgentCard, AgentInterface

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from holdfast._client.client import Client
    from holdfast._client.options import ConnectOptions, CreateOptions
    from holdfast._pipeline.listeners import Consumer, Interceptor
    from holdfast._pipeline.produced import TransportProducer

__all__ = ["ClientFactory", "Producer", "minimal_agent_card"]

Producer = Callable[[AgentCard, str, ClientConfig], Transport]
"""Makes the transport for a card, the address of its interface and the factory's configuration.

What it makes is treated like that of a `TransportProducer`.
"""


class ClientFactory:
    """Makes clients that are configured alike.

    Args:
        config: What they have in common; `ClientConfig()` if left out.
        consumers: Told of what comes, before those of each client.

    Raises:
        TypeError: An argument of another type.
    """

    def __init__(
        self, config: ClientConfig | None = None, consumers: Iterable[Consumer] | None = None
    ) -> None:
        self._config = ClientConfig() if config is None else config
        check_kind("config", self._config, ClientConfig)
        self._consumers = hooks("consumers", () if consumers is None else consumers, "__call__")
        self._producers: dict[str, Producer] = {}

    def register(self, label: str, producer: Producer) -> None:
        """Adds a binding of your own, for clients that are made after this.

        Args:
            label: Its name in cards; one that Holdfast speaks is taken over.
            producer: See `Producer`; called when the interface is first called. Its transport
                carries calls under all of the client's layers.

        Raises:
            ValueError: The name is empty.
            TypeError: An argument of another type.
        """
        not_empty("label", label)
        hooks("producers", (producer,), "__call__")
        self._producers[label] = producer

    def create(
        self,
        agent: str | Path | AgentCard | Mapping[str, Any],
        /,
        consumers: Iterable[Consumer] | None = None,
        interceptors: Iterable[Interceptor] | None = None,
        **options: Unpack[CreateOptions],
    ) -> Client:
        """Makes a client for one agent. Nothing is fetched before its first call.

        Args:
            agent: The agent's card, or what else `connect` takes.
            consumers: Told of what comes, behind those of the factory.
            interceptors: See `Interceptor`.
            options: See `connect`. They count before the configuration, and
                ``transport_producers`` before what was registered.

        Raises:
            ValueError: See `connect`.
            InvalidAgentCardError: See `connect`.
            TypeError: See `connect`.
        """
        config = self._config
        supported = items(
            "supported_protocol_bindings",
            options.get("supported_protocol_bindings", config.supported_protocol_bindings),
        )
        producers = {label: self._with_config(made) for label, made in self._producers.items()}
        own = options.get("transport_producers")
        if own is not None:
            check_kind("transport_producers", own, Mapping)
            producers.update(own)
        settings: ConnectOptions = {
            "engine": config.engine,
            "grpc_channel_factory": config.grpc_channel_factory,
            "bindings": supported if config.use_client_preference else (),
            "configuration": config.configuration,
            "streaming": config.streaming,
            **options,
            "supported_protocol_bindings": supported,
            "transport_producers": producers,
            "consumers": (
                *self._consumers,
                *items("consumers", () if consumers is None else consumers),
            ),
            "interceptors": items("interceptors", () if interceptors is None else interceptors),
        }
        return connect(agent, **settings)

    def _with_config(self, producer: Producer) -> TransportProducer:
        return lambda card, interface: producer(card, interface.url, self._config)


def minimal_agent_card(url: str, transports: Sequence[str] | None = None) -> AgentCard:
    """A card that says no more than where an agent is, to ask it for its extended card.

    Args:
        url: Address of its interface, the same for each binding; of ``GRPC`` alone, it may be
            ``host:port``.
        transports: The bindings that it speaks, best first; ``JSONRPC`` if left out.

    Raises:
        ValueError: The address cannot be right, or there is no binding.
        TypeError: An argument of another type.
    """
    bindings = ("JSONRPC",) if transports is None else items("transports", transports)
    if "GRPC" not in bindings or not isinstance(cast("object", url), str) or not grpc_address(url):
        check_url(url, "url", any_scheme=not set(HTTP_BINDINGS) >= set(bindings))
    if not bindings:
        text = "transports is empty; leave it out for JSONRPC"
        raise ValueError(text)
    return AgentCard(
        name=presentable(url),
        supported_interfaces=tuple(
            AgentInterface(url=url, protocol_binding=not_empty("one of transports", binding))
            for binding in bindings
        ),
        capabilities=AgentCapabilities(extended_agent_card=True),
    )
