"""Making clients for many agents alike, in the words of the official SDK; see `connect`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec

from holdfast._arguments import (
    check_configuration,
    check_hook,
    check_kind,
    check_url,
    hooks,
    items,
    not_empty,
)
from holdfast._client.connect import connect
from holdfast._model.grpc_addresses import grpc_address
from holdfast._net.engine import HttpEngine
from holdfast._net.resolve_engine import resolve_engine
from holdfast._pipeline.transport import Transport
from holdfast._wire.bindings import HTTP_BINDINGS
from holdfast._wire.http import presentable
from holdfast.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    SendMessageConfiguration,
    TaskPushNotificationConfig,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import aiohttp
    from grpc import aio

    from holdfast._client.client import Client
    from holdfast._client.options import ConnectOptions, CreateOptions
    from holdfast._pipeline.listeners import Consumer, Interceptor
    from holdfast._pipeline.produced import TransportProducer

    Engine = HttpEngine | aiohttp.ClientSession
    Channel = aio.Channel
else:
    Engine = HttpEngine  # aiohttp is slow to import
    Channel = Any  # the same, and comes with an extra

__all__ = ["ClientConfig", "ClientFactory", "Producer", "minimal_agent_card"]


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a `ClientFactory` gives to each client that it makes.

    Attributes:
        streaming: Whether to use streams where the agent offers them; tasks are polled else.
        polling: Whether `Client.send_message` asks the agent to answer at once, and leaves it
            to the caller to watch the task.
        engine: What carries requests: an `HttpEngine` or an `aiohttp.ClientSession`, which are
            used and not closed; None lets each client have its own.
        grpc_channel_factory: Makes the channels of gRPC, which are never closed; see `connect`.
        supported_protocol_bindings: The only bindings that may be used, best first; empty for
            all that the clients speak.
        use_client_preference: Whether the order of these counts; else the card's does.
        accepted_output_modes: Media types that the caller can use; sent with each message.
        push_notification_configs: Where agents send news of the tasks that messages begin; the
            protocol takes one at most.

    Raises:
        ValueError: A value that cannot be right.
        TypeError: A value of another type.
    """

    streaming: bool = True
    polling: bool = False
    engine: Engine | None = None
    grpc_channel_factory: Callable[[str], Channel] | None = None
    supported_protocol_bindings: Sequence[str] = ()
    use_client_preference: bool = False
    accepted_output_modes: Sequence[str] = ()
    push_notification_configs: Sequence[TaskPushNotificationConfig] = ()

    def __post_init__(self) -> None:
        check_kind("streaming", self.streaming, bool)
        check_kind("polling", self.polling, bool)
        check_kind("use_client_preference", self.use_client_preference, bool)
        if self.engine is not None:
            resolve_engine(self.engine)
        if self.grpc_channel_factory is not None:
            check_hook("grpc_channel_factory", self.grpc_channel_factory)
        name = "supported_protocol_bindings"
        bindings = items(name, self.supported_protocol_bindings)
        for binding in bindings:
            not_empty(f"one of {name}", binding)
        modes = items("accepted_output_modes", self.accepted_output_modes)
        configs = items("push_notification_configs", self.push_notification_configs)
        if len(configs) > 1:
            text = "push_notification_configs has more than the one that the protocol takes"
            raise ValueError(text)
        # What the caller goes on to change must not change this.
        msgspec.structs.force_setattr(self, name, bindings)
        msgspec.structs.force_setattr(self, "accepted_output_modes", modes)
        msgspec.structs.force_setattr(self, "push_notification_configs", configs)
        check_configuration(self.configuration)

    def __repr__(self) -> str:
        # Not all: a push notification's token is secret, and an engine says nothing.
        return (
            f"ClientConfig(streaming={self.streaming}, polling={self.polling}, "
            f"supported_protocol_bindings={self.supported_protocol_bindings}, "
            f"use_client_preference={self.use_client_preference}, "
            f"accepted_output_modes={self.accepted_output_modes})"
        )

    @property
    def configuration(self) -> SendMessageConfiguration:
        """The configuration of each message."""
        return SendMessageConfiguration(
            accepted_output_modes=tuple(self.accepted_output_modes),
            task_push_notification_config=next(iter(self.push_notification_configs), None),
            return_immediately=self.polling,
        )


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
