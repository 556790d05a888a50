"""The options of a client, checked in one place before anything is opened.

`connect` makes a client from the result; other callers use it to check options alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, get_args

import msgspec

from holdfast._aio.env import Env, SystemEnv
from holdfast._arguments import (
    check_configuration,
    check_duration,
    check_extension_uris,
    check_hook,
    check_hooks,
    check_interceptors,
    check_items,
    check_kind,
    check_methods,
    check_networks,
    check_observers,
    check_one_of,
    check_reach,
    check_seconds,
)
from holdfast._auth.providers import AuthProvider, one_provider, to_provider
from holdfast._client.options import CALL_TIMEOUT, CARD_TTL, ConnectOptions
from holdfast._client.targets import AgentTarget, check_transport_producers, route_to
from holdfast._model.redacted_repr import RedactedRepr
from holdfast._pipeline.endpoints import Endpoints
from holdfast._pipeline.grpc_extra import use_of_grpc
from holdfast._pipeline.listeners import Consumer, Interceptor
from holdfast._pipeline.observations import Observer, TelemetrySource
from holdfast._policy.reconcile import ContextIds, OnUnknown
from holdfast._policy.resilience import Resilience
from holdfast._wire.http import check_caller_headers
from holdfast._wire.limits import Limits
from holdfast._wire.network_scope import Network, NetworkReach
from holdfast.types import SendMessageConfiguration

if TYPE_CHECKING:
    from holdfast._pipeline.interfaces import Route

__all__ = ["OTHER_OPTIONS", "ClientSettings", "check_connect_options"]

P = ParamSpec("P")
R = TypeVar("R")

OTHER_OPTIONS = {
    **{field: f"pass resilience=Resilience({field}=…)" for field in Resilience.__struct_fields__},
    **dict.fromkeys(
        ("attempts", "max_attempts", "max_retries", "retries"),
        "pass resilience=Resilience(retry=RetryPolicy(max_retries=…))",
    ),
    "retry_config": "pass resilience=Resilience(retry=RetryPolicy(max_retries=…))",
    "circuit_breaker": "pass resilience=Resilience(breaker=BreakerPolicy(…))",
    **dict.fromkeys(
        ("rate", "rate_limit"),
        "the client obeys Retry-After by itself; Client.run has rate=, and "
        "resilience=Resilience(concurrency=ConcurrencyPolicy(…)) limits the calls in flight",
    ),
    **dict.fromkeys(("bearer", "credentials", "token"), "pass auth='Bearer <token>'"),
    "api_key": "pass auth={'X-API-Key': '<key>'}, with the header that the agent's card names",
    "base_url": "pass the agent's address as the first argument",
    **dict.fromkeys(("cert", "ssl", "verify"), "pass tls=TlsConfig(…)"),
    **dict.fromkeys(
        ("client", "http_client", "session"),
        "pass engine=, an HttpEngine or an aiohttp.ClientSession",
    ),
    "httpx_client": (
        "pass its credentials as auth=, its other headers as headers=, and connections of your "
        "own as engine=, an HttpEngine or an aiohttp.ClientSession"
    ),
    "transport": (
        "pass engine=, an HttpEngine or an aiohttp.ClientSession; a transport of the official SDK "
        "goes to holdfast.integrations.a2a_sdk.RetryTransport"
    ),
}
"""Options of other libraries, and what to pass here."""


class ClientSettings(RedactedRepr, msgspec.Struct, frozen=True, kw_only=True):
    """The checked options of `connect`, in the form in which a client uses them.

    Options that are missing here are used as they were passed: the engine, TLS, and the journal.

    Attributes:
        provider: The source of credentials; None for no credentials.
        timeout: Seconds of a call that names no timeout.
        card_ttl: Seconds that a card is cached if its server does not say.
        resilience: Retries, timeouts and other policies.
        limits: How large a reply to accept.
        registry: The shared state of agents.
        env: Wall time, randomness and ids.
        url: The address of the interface, in place of the card's.
        producers: Make the transports of custom bindings.
        configuration: The configuration of messages where a call does not override it.
        streaming: Whether to use streams where they are offered.
        on_unknown: What to do about a message whose reply was lost.
        context_ids: Whether the agent or the client creates the id of a conversation.
        shared_store: Whether replicas share a store; None to find out.
        headers: Sent with every request; names in lower case.
        extensions: URIs for ``A2A-Extensions`` of every call.
        networks: Networks that the card or a redirect may point into.
        within: The most private network that any address may be in; None for any.
        interceptors: In order.
        consumers: In order.
        observers: In order.
        call_layers: Custom layers around each call.
        attempt_layers: Custom layers around each attempt.
        telemetry: The telemetry; None for that of ``HoldfastInstrumentor``, or none.
        routing: The remaining arguments of `route_to`.
    """

    provider: AuthProvider | None
    timeout: float
    card_ttl: float
    resilience: Resilience
    limits: Limits
    registry: Endpoints
    env: Env
    url: str | None
    producers: dict[str, Any]
    configuration: SendMessageConfiguration
    streaming: bool
    on_unknown: OnUnknown
    context_ids: ContextIds
    shared_store: bool | None
    headers: dict[str, str]
    extensions: tuple[str, ...]
    networks: tuple[Network, ...]
    within: NetworkReach | None
    interceptors: tuple[Interceptor, ...]
    consumers: tuple[Consumer, ...]
    observers: tuple[Observer, ...]
    call_layers: tuple[Any, ...]
    attempt_layers: tuple[Any, ...]
    telemetry: TelemetrySource | None
    routing: dict[str, Any]

    def __repr__(self) -> str:
        return "ClientSettings(…)"  # headers and the provider contain secrets

    def route(self, target: AgentTarget) -> Route:
        """Return the route to an agent.

        Raises:
            ValueError: An option about routes, or the target, is not valid.
            ImportError: gRPC is requested, and its extra is not installed.
            TypeError: One of them is of another type.
        """
        return route_to(
            target,
            url=self.url,
            produced=self.producers,
            networks=self.networks,
            within=self.within,
            **self.routing,
        )


def check_connect_options(**options: Unpack[ConnectOptions]) -> ClientSettings:
    """Check the options of `connect`, which documents them; nothing is opened.

    Raises:
        ValueError: A value that is not valid, or options that contradict each other.
        TypeError: A value of another type.
    """
    resilience, limits, env = options.get("resilience"), options.get("limits"), options.get("env")
    resilience = Resilience.standard() if resilience is None else resilience
    limits = Limits() if limits is None else limits
    env = SystemEnv() if env is None else env
    configuration = options.get("configuration")
    configuration = SendMessageConfiguration() if configuration is None else configuration
    streaming = options.get("streaming", True)
    on_unknown: OnUnknown = options.get("on_unknown", "reconcile")
    context_ids: ContextIds = options.get("context_ids", "agent")
    shared_store, shared = options.get("shared_store"), options.get("shared")
    headers, channel_factory = options.get("headers"), options.get("grpc_channel_factory")
    producers = check_transport_producers(options.get("transport_producers"))
    verifier = options.get("card_verifier")
    require_signature = options.get("require_signature", False)
    if verifier is not None or require_signature is not False:
        from holdfast._signatures.verifier import check_card_verifier  # few clients verify cards

        check_card_verifier(verifier, require_signature=require_signature)
    check_kind("resilience", resilience, Resilience)
    check_kind("limits", limits, Limits)
    check_kind("configuration", configuration, SendMessageConfiguration)
    check_configuration(configuration)
    check_kind("streaming", streaming, bool)
    check_one_of("on_unknown", on_unknown, get_args(OnUnknown))
    check_one_of("context_ids", context_ids, get_args(ContextIds))
    check_kind("shared_store", shared_store, (bool, type(None)))
    check_methods("env", env, "wall", "random", "new_id")
    if shared is not None:
        check_kind("shared", shared, Endpoints)
    checked_headers = check_caller_headers({} if headers is None else headers)
    extensions = check_extension_uris(options.get("extensions", ()))
    timeout = check_seconds("timeout", options.get("timeout", CALL_TIMEOUT))
    card_ttl = options.get("card_ttl", CARD_TTL)
    check_duration("card_ttl", card_ttl)
    interceptors = check_interceptors(options.get("interceptors", ()))
    provider = one_provider(to_provider(options.get("auth")), interceptors)
    consumers = check_hooks("consumers", options.get("consumers", ()), "__call__")
    observers = check_observers(options.get("observers", ()))
    call_layers = check_hooks("call_layers", options.get("call_layers", ()), "__call__")
    attempt_layers = check_hooks("attempt_layers", options.get("attempt_layers", ()), "__call__")
    if (telemetry := options.get("telemetry")) is not None:
        check_methods("telemetry", telemetry, "observe", "layer")
    networks = check_networks("allowed_networks", options.get("allowed_networks", ()))
    within = check_reach(options.get("reach", "any"), networks)
    if channel_factory is not None:
        check_hook("grpc_channel_factory", channel_factory)
    return ClientSettings(
        provider=provider,
        timeout=timeout,
        card_ttl=card_ttl,
        resilience=resilience,
        limits=limits,
        registry=Endpoints() if shared is None else shared,
        env=env,
        url=options.get("url"),
        producers=producers,
        configuration=configuration,
        streaming=streaming,
        on_unknown=on_unknown,
        context_ids=context_ids,
        shared_store=shared_store,
        headers=checked_headers,
        extensions=extensions,
        networks=networks,
        within=within,
        interceptors=interceptors,
        consumers=consumers,
        observers=observers,
        call_layers=call_layers,
        attempt_layers=attempt_layers,
        telemetry=telemetry,
        routing={
            "tenant": options.get("tenant"),
            "bindings": check_items("bindings", options.get("bindings", ())),
            "supported": check_items(
                "supported_protocol_bindings", options.get("supported_protocol_bindings", ())
            ),
            "version": options.get("protocol_version"),
            "allow_legacy": options.get("allow_legacy", False),
            "credential_origins": check_items(
                "credential_origins", options.get("credential_origins", ())
            ),
            "grpc": use_of_grpc(options.get("engine"), channel_factory),
        },
    )
