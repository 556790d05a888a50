"""A factory of clients with shared settings, with the names of the official SDK."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec

from holdfast._arguments import (
    check_configuration,
    check_hook,
    check_hooks,
    check_items,
    check_kind,
    check_not_empty,
    check_producer,
    check_url,
)
from holdfast._client.connect import connect
from holdfast._model.grpc_addresses import grpc_address
from holdfast._model.settings import Policy, explains_unknown_options
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


class ClientConfig(Policy, frozen=True, kw_only=True):
    """The settings that a `ClientFactory` shares among its clients.

    Attributes:
        streaming: Whether to use streams if the agent offers them; otherwise tasks are polled.
            True by default.
        polling: Whether `Client.send_message` asks the agent to return immediately; the caller
            then polls the task. False by default.
        engine: The HTTP engine: an `HttpEngine` or an ``aiohttp.ClientSession``, which is not
            closed; None for an engine for each client.
        grpc_channel_factory: Function that creates the gRPC channel for an interface's address;
            channels are never closed. None, the default, for the client's own channels.
        supported_protocol_bindings: The bindings that may be used, the preferred one first; empty
            for all supported ones.
        use_client_preference: Whether their order decides; False by default: the card's order
            decides.
        accepted_output_modes: Media types that the caller accepts; sent with each message.
        push_notification_configs: The push notification configuration for tasks that messages
            create; the protocol allows one at most.

    Raises:
        ValueError: A value is not valid.
        TypeError: A value has the wrong type.
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
        bindings = check_items(name, self.supported_protocol_bindings)
        for binding in bindings:
            check_not_empty(f"one of {name}", binding)
        modes = check_items("accepted_output_modes", self.accepted_output_modes)
        configs = check_items("push_notification_configs", self.push_notification_configs)
        if len(configs) > 1:
            text = "push_notification_configs must have at most one config, as the protocol does"
            raise ValueError(text)
        # Copies, so that the caller's later changes do not affect this object.
        msgspec.structs.force_setattr(self, name, bindings)
        msgspec.structs.force_setattr(self, "accepted_output_modes", modes)
        msgspec.structs.force_setattr(self, "push_notification_configs", configs)
        check_configuration(self.configuration)

    def __repr__(self) -> str:
        # A push notification's token is secret, and an engine's representation is not useful.
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
"""Function that creates a transport from a card, an interface's address and a `ClientConfig`.

The transport is used like one of a `TransportProducer`.
"""


class ClientFactory:
    """Factory of clients with shared settings, under the names of the official SDK.

    Args:
        config: The shared settings; None for ``ClientConfig()``.
        consumers: Functions or coroutine functions that every client calls with each event, the
            task after it, and the agent's card (`Consumer`), before its own consumers.

    Raises:
        TypeError: An argument has the wrong type.
    """

    @explains_unknown_options()
    def __init__(
        self, config: ClientConfig | None = None, consumers: Iterable[Consumer] | None = None
    ) -> None:
        self._config = ClientConfig() if config is None else config
        check_kind("config", self._config, ClientConfig)
        self._consumers = check_hooks(
            "consumers", () if consumers is None else consumers, "__call__"
        )
        self._producers: dict[str, Producer] = {}

    def register(self, label: str, producer: Producer) -> None:
        """Register a custom binding, for clients that are created afterwards.

        Args:
            label: The binding's name in cards; a binding that Holdfast supports is replaced.
            producer: Function that gets the card, the interface's address and the `ClientConfig`,
                and returns the transport (`Producer`); called when the interface is first used.
                The transport carries calls below all of the client's layers.

        Raises:
            ValueError: The name is empty.
            TypeError: An argument has the wrong type.
        """
        check_not_empty("label", label)
        check_producer("producers", producer)
        self._producers[label] = producer

    def create(
        self,
        agent: str | Path | AgentCard | Mapping[str, Any],
        /,
        consumers: Iterable[Consumer] | None = None,
        interceptors: Iterable[Interceptor] | None = None,
        **options: Unpack[CreateOptions],
    ) -> Client:
        """Create a client for one agent; nothing is fetched before its first call.

        Args:
            agent: The agent's card, or any other agent that `connect` accepts.
            consumers: Functions or coroutine functions that this client calls with each event, the
                task after it, and the agent's card (`Consumer`), after the factory's consumers.
            interceptors: Objects whose methods are called before and after each call
                (`Interceptor`); none by default.
            options: Other options of `connect`: ``auth``, ``timeout`` (seconds, 900 by default),
                ``card_ttl`` (seconds, 300 by default), ``card_verifier``, ``require_signature``,
                ``resilience``, ``limits``, ``engine``, ``tls``, ``shared``, ``env``, ``url``,
                ``tenant``, ``bindings``, ``supported_protocol_bindings``, ``protocol_version``,
                ``allow_legacy``, ``transport_producers``, ``grpc_channel_factory``,
                ``configuration``, ``streaming``, ``on_unknown``, ``context_ids``, ``journal``,
                ``shared_store``, ``headers``, ``extensions``, ``credential_origins``,
                ``allowed_networks``, ``reach``, ``observers``, ``telemetry``, ``call_layers`` and
                ``attempt_layers``. They override the configuration, and ``transport_producers``
                override registered producers.

        Raises:
            ValueError: An option is not valid, or options contradict each other.
            InvalidAgentCardError: The card is not valid.
            TypeError: An argument has the wrong type.
        """
        config = self._config
        supported = check_items(
            "supported_protocol_bindings",
            options.get("supported_protocol_bindings", config.supported_protocol_bindings),
        )
        producers = {
            label: self._with_config(producer) for label, producer in self._producers.items()
        }
        overrides = options.get("transport_producers")
        if overrides is not None:
            check_kind("transport_producers", overrides, Mapping)
            producers.update(overrides)
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
                *check_items("consumers", () if consumers is None else consumers),
            ),
            "interceptors": check_items(
                "interceptors", () if interceptors is None else interceptors
            ),
        }
        return connect(agent, **settings)

    async def create_from_url(
        self,
        agent: str,
        /,
        interceptors: Iterable[Interceptor] | None = None,
        **options: Unpack[CreateOptions],
    ) -> Client:
        """Create a client for the agent at an address, and fetch its card.

        Args:
            agent: The agent's address, or that of its card.
            interceptors: Objects whose methods are called before and after each call
                (`Interceptor`); none by default.
            options: Other options of `connect`, as for `create`: ``auth``, ``timeout`` (seconds,
                900 by default), ``card_ttl`` (seconds, 300 by default), ``card_verifier``,
                ``require_signature``, ``resilience``, ``limits``, ``engine``, ``tls``, ``shared``,
                ``env``, ``url``, ``tenant``, ``bindings``, ``supported_protocol_bindings``,
                ``protocol_version``, ``allow_legacy``, ``transport_producers``,
                ``grpc_channel_factory``, ``configuration``, ``streaming``, ``on_unknown``,
                ``context_ids``, ``journal``, ``shared_store``, ``headers``, ``extensions``,
                ``credential_origins``, ``allowed_networks``, ``reach``, ``observers``,
                ``telemetry``, ``call_layers`` and ``attempt_layers``.

        Raises:
            AgentCardResolutionError: No card was found.
            InvalidAgentCardError: The card is not usable.
            CardSignatureError: The signature of the card is invalid, or is required and not
                verified.
            A2AError: The card could not be fetched.
            ValueError: An option is not valid, or options contradict each other.
            TypeError: An argument has the wrong type.
        """
        client = self.create(agent, interceptors=interceptors, **options)
        try:
            await client.agent_card()
        except BaseException:
            await client.close()
            raise
        return client

    def _with_config(self, producer: Producer) -> TransportProducer:
        return lambda card, interface: producer(card, interface.url, self._config)


def minimal_agent_card(url: str, transports: Sequence[str] | None = None) -> AgentCard:
    """Return a card with an agent's interfaces only, to get the agent's extended card with it.

    Args:
        url: Address of its interface, the same for each binding; for ``GRPC`` alone, it may be
            ``host:port``.
        transports: The bindings that the agent supports, the preferred one first; None for
            ``JSONRPC``.

    Raises:
        ValueError: The address is not valid, or there is no binding.
        TypeError: An argument has the wrong type.
    """
    bindings = ("JSONRPC",) if transports is None else check_items("transports", transports)
    if "GRPC" not in bindings or not isinstance(cast("object", url), str) or not grpc_address(url):
        check_url(url, "url", any_scheme=not set(HTTP_BINDINGS) >= set(bindings))
    if not bindings:
        text = "transports must not be empty; omit it for JSONRPC"
        raise ValueError(text)
    return AgentCard(
        name=presentable(url),
        supported_interfaces=tuple(
            AgentInterface(url=url, protocol_binding=check_not_empty("one of transports", binding))
            for binding in bindings
        ),
        capabilities=AgentCapabilities(extended_agent_card=True),
    )
