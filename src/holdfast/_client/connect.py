"""Making a client: check the caller's options, open what the client needs, and assemble it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from holdfast._aio.per_loop import PerLoop
from holdfast._arguments import explains_unknown_options
from holdfast._client.client import Client, new_client
from holdfast._client.core import ClientCore
from holdfast._client.options import CALL_TIMEOUT, CARD_TTL
from holdfast._client.settings import OTHER_OPTIONS, check_connect_options
from holdfast._client.targets import (
    AgentTarget,
    as_targets,
    load_given_card,
)
from holdfast._journal.agent_name import agent_name, name_of_replicas
from holdfast._model.addresses import is_http_address
from holdfast._model.error_values import presentable
from holdfast._net.engine import EngineWithin
from holdfast._net.resolve_engine import resolve_engine
from holdfast._pipeline.admission import Admission
from holdfast._pipeline.cards.resolver import AgentCardResolver
from holdfast._pipeline.cards.trust import CardTrust
from holdfast._pipeline.credentials import AuthProviderRef
from holdfast._pipeline.endpoints import Endpoints, KnownEndpoints
from holdfast._pipeline.interfaces_layer import InterfaceLayer
from holdfast._pipeline.listeners import Consumer, Interceptor, ListenerSet, Observers
from holdfast._pipeline.order import CallPipeline, binding_transport, card_pipeline, card_source
from holdfast._pipeline.security_warnings import SecurityWarnings
from holdfast._pipeline.transport import Reply, UnaryOnly
from holdfast._wire.bindings import GRPC_BINDING
from holdfast.types import AgentCard

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import aiohttp
    from grpc import aio

    from holdfast._aio.env import Env
    from holdfast._auth.providers import AuthProvider, CredentialService
    from holdfast._client.answer import Answer
    from holdfast._client.client_tools import ClientTools
    from holdfast._client.content import Content
    from holdfast._client.options import ConnectOptions
    from holdfast._journal.protocol import Journal
    from holdfast._journal.writer import Journaling
    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig
    from holdfast._pipeline.cards.replicas import ReplicaCards
    from holdfast._pipeline.cards.trust import CardChecker
    from holdfast._pipeline.interfaces import Route
    from holdfast._pipeline.observations import Observer, TelemetrySource
    from holdfast._pipeline.produced import TransportProducer
    from holdfast._pipeline.transport import Call, Layer, Transport
    from holdfast._policy.reconcile import ContextIds, OnUnknown
    from holdfast._policy.resilience import Resilience
    from holdfast._signatures.verifier import CardVerifier, CardVerifierCallable
    from holdfast._wire.bindings import ProtocolVersion
    from holdfast._wire.limits import Limits
    from holdfast._wire.network_scope import AgentReach, NetworkReach
    from holdfast.types import SendMessageConfiguration

__all__ = ["ask", "connect"]


@explains_unknown_options(
    OTHER_OPTIONS,
    too_many="connect takes only the agent by position: pass options by keyword, several agents "
    "as a list, and a ClientConfig to holdfast.compat.ClientFactory(…)",
)
def connect(
    agent: AgentTarget | Sequence[AgentTarget],
    *,
    auth: str | Mapping[str, str] | AuthProvider | CredentialService | None = None,
    timeout: float = CALL_TIMEOUT,
    card_ttl: float = CARD_TTL,
    card_verifier: CardVerifier | CardVerifierCallable | None = None,
    require_signature: bool = False,
    resilience: Resilience | None = None,
    limits: Limits | None = None,
    engine: HttpEngine | aiohttp.ClientSession | None = None,
    tls: TlsConfig | None = None,
    shared: Endpoints | None = None,
    env: Env | None = None,
    url: str | None = None,
    tenant: str | None = None,
    bindings: Sequence[str] = (),
    supported_protocol_bindings: Sequence[str] = (),
    protocol_version: ProtocolVersion | None = None,
    allow_legacy: bool = False,
    transport_producers: Mapping[str, TransportProducer] | None = None,
    grpc_channel_factory: Callable[[str], aio.Channel] | None = None,
    configuration: SendMessageConfiguration | None = None,
    streaming: bool = True,
    on_unknown: OnUnknown = "reconcile",
    context_ids: ContextIds = "agent",
    journal: str | os.PathLike[str] | Journal | None = None,
    shared_store: bool | None = None,
    headers: Mapping[str, str] | None = None,
    extensions: Iterable[str] = (),
    credential_origins: Iterable[str] = (),
    allowed_networks: Iterable[str] = (),
    reach: AgentReach = "any",
    interceptors: Sequence[Interceptor] = (),
    consumers: Sequence[Consumer] = (),
    observers: Sequence[Observer] = (),
    telemetry: TelemetrySource | None = None,
    call_layers: Sequence[Layer] = (),
    attempt_layers: Sequence[Layer] = (),
) -> Client:
    """Make a client for one agent; nothing is fetched before the first call.

    A card that is passed is checked immediately; for a card that has to be fetched or read from a
    file, the first call reports the same problems as an `A2AError`.

    Args:
        agent: The agent: its origin or address (the card is fetched from the well-known path below
            it), the card's own URL, a ``Path`` to the card's file, the card, or its JSON object
            (`AgentTarget`). Or a list of these: replicas of the same agent. Calls about a task or
            a conversation go to the replica that created it; while that replica is unreachable, to
            the others if they share its store.
        auth: A value for ``Authorization`` with its scheme, such as ``"Bearer …"``; headers; an
            `AuthProvider`; or a `CredentialService`, which is asked for the credentials that the
            card's security requirements name, as by `AuthInterceptor`. None by default.
        timeout: Seconds for a whole call, including all retries; more than 0, 900 by default.
        card_ttl: Seconds for which the card is cached if its server sends no ``Cache-Control``;
            300 by default. 0 shares a card only among the calls that wait for the same fetch.
        card_verifier: Verifier of the signatures of the agent's card: a `CardVerifier`, or a
            function, plain or async, that gets the JSON object of a signed card as received, and
            raises if a signature is wrong. Only the signed members of a verified card are used; a
            card with a wrong signature is refused; `Client.card_verification` is the result. None,
            the default, verifies nothing. Pass a card as its JSON object or file: an `AgentCard`
            may lack members that were signed.
        require_signature: Whether to refuse a card that is not verified, because it has no
            signature or because its key is unknown; then nothing is sent to the agent. False by
            default.
        resilience: Retries, timeouts and other policies; `Resilience.standard` by default.
        limits: Bounds on the size of replies; ``Limits()`` by default.
        engine: The HTTP engine: an `HttpEngine` or an ``aiohttp.ClientSession``, which is used and
            not closed; by default an `AiohttpEngine` of the client's own.
        tls: TLS settings for the client's own connections: authorities to trust, and a certificate
            to present. A caller-supplied engine has its own: ``AiohttpEngine(ssl=TlsConfig(…))``.
            The system's authorities by default.
        shared: State of agents (circuits, budgets, versions) that several clients share; by
            default a client has its own. Clients with the same `Resilience.budget` share that
            retry budget.
        env: Source of wall time, random numbers and ids, for tests; the system's by default.
        url: Address of the agent's interface; the card's by default. An address that begins with
            ``grpc://``, or with ``grpcs://`` for TLS, restricts the client to gRPC.
        tenant: Tenant of all requests; the card's by default.
        bindings: Preferred bindings, best first: ``"JSONRPC"``, ``"HTTP+JSON"``, ``"GRPC"``. Where
            the card has none of them, or the list is empty, the card's order counts. An interface
            of the newer protocol version comes before one with a preferred binding. ``"GRPC"``
            needs the extra ``grpc``; without it, and with a custom ``engine``, which gRPC does not
            use, a gRPC interface is not chosen unless the list names the binding.
        supported_protocol_bindings: The only bindings that may be used; all if empty, the default,
            as in the official SDK's configuration.
        protocol_version: The version to use, ``"1.0"`` or ``"0.3"``, regardless of the card. By
            default, each interface is called in the version that the card declares for it, 1.0
            before 0.3; where it declares none, the client sends a harmless read request before the
            first call to find out.
        allow_legacy: Whether to probe for protocol 0.3 in the same way if the card declares 1.0
            only. Without this option, 0.3 is never used with such an agent: an undeclared older
            version may be an attempt at a downgrade. The option adds nothing to
            ``protocol_version="0.3"``, and is refused together with ``"1.0"``. Both options are
            refused together with ``tenant``, which 0.3 does not have. False by default.
        transport_producers: Factories of the transports of custom bindings, by the names of the
            bindings in cards: functions that get a card and one of its interfaces, and return a
            `Transport` (`TransportProducer`). None by default.
        grpc_channel_factory: Function that makes the channel for the address of a gRPC interface,
            as the card or ``url`` writes it; the channel is used unchanged, shared by all calls to
            that address, and never closed. By default, the client opens its own channels, with the
            TLS of ``tls``, or of an ``AiohttpEngine(ssl=TlsConfig(…))``. An address without a
            scheme, such as ``host:port``, uses TLS, unless it is this machine's. After a fork, the
            process must not make gRPC calls.
        configuration: Configuration of messages whose call sets none (A2A 3.2.2); none by default.
        streaming: Whether to use streams if the agent offers them; otherwise tasks are polled.
            True by default.
        on_unknown: Handling of a message that was sent and whose reply was lost. ``"reconcile"``,
            the default, searches for the task that the message created, which then replaces the
            reply (`ReconcilePolicy` bounds the search), and raises `OutcomeUnknownError` if none
            is found; ``"raise"`` raises it at once. The other two values send the same message
            again, up to `RetryPolicy.max_retries` times. They are for messages that may be
            executed twice: ``"resend_if_absent"`` resends after a search that was complete and
            found no task. It assumes that the agent's list shows every task soon, with the
            messages that created it, and that no request is delayed in the network for longer;
            ``"resend"`` assumes nothing and does not search.
        context_ids: The side that creates the id of a conversation: ``"agent"``, the default, or
            ``"client"``, which makes a lost reply findable where an agent stores no messages. The
            protocol lets agents refuse a client's context id (A2A 3.4.1); the message is then sent
            again without one.
        journal: Journal in which calls are recorded before they are sent, so that none is lost
            when the process crashes: a file, as ``"calls.db"``, a ``Path``, or
            ``"sqlite:///calls.db"`` (with four slashes for an absolute path); a PostgreSQL
            database, as ``"postgresql://host/name"``; or a `Journal`, which may be shared and is
            not closed. `Client.pending` returns the calls without an
            outcome. None, the default, records nothing.
        shared_store: Whether the replicas of a list share a store of tasks, so that each of them
            can serve every task. None lets the client find out: while the replica that created a
            task is unreachable, it asks the others for the task. True assumes a shared store from
            the start, which helps if that replica fails early. False keeps each task at the
            replica that created it.
        headers: HTTP headers to send with every request. Like ``auth``, they go to the origin of
            ``agent`` and ``url`` (of the card's first interface, where the card was passed) and
            nowhere else.
        extensions: URIs of protocol extensions for ``A2A-Extensions``, requested with every call
            (A2A 4.6). It is an error before anything is sent if the card does not declare a
            requested extension, or requires one that neither this option nor the call names.
        credential_origins: Further origins that may get ``auth`` and ``headers``. Messages are
            sent to the origin that the card names in any case. If neither this option nor
            ``agent`` or ``url`` names it, the logger ``holdfast.security`` warns once.
        allowed_networks: Networks that the card or a redirect may point into, such as
            ``"10.0.0.0/8"``. An address from another origin may point into other private,
            link-local or loopback networks only where the agent's own address is at least as
            private, and never to a cloud's metadata service.
        reach: Addresses that this client may connect to (SSRF protection): ``"any"``, the default,
            or ``"public"`` for public addresses and ``allowed_networks`` only. Use ``"public"`` in
            services that get agents' addresses from their users. It covers ``agent`` and ``url``,
            cards, redirects, interfaces over HTTP and gRPC, key sets, and the authorization server
            of ``auth``, and checks the IP address of each connection (`NetworkPolicyError`). A
            name that a proxy or ``grpc_channel_factory`` resolves is refused, because the client
            cannot check its address.
        interceptors: Objects whose methods are called before and after each call, and may change
            it or answer it early (`Interceptor`). An `AuthInterceptor` among them is the same as
            ``auth``. None by default.
        consumers: Functions or coroutine functions that are called with each task, message or
            event that sending and waiting return, the task after it, and the agent's card
            (`Consumer`). Their exceptions are raised to the caller. None by default.
        observers: Plain functions that are called with each `Observation`, such as
            `OperationFinished` (`Observer`). An exception of an observer is logged, and the first
            one is also a ``RuntimeWarning``. None by default.
        telemetry: Makes spans and metrics, such as
            ``holdfast.integrations.opentelemetry.Telemetry``. By default that of
            ``HoldfastInstrumentor``, or none.
        call_layers: Custom layers around each call with all its attempts, outermost first:
            functions that get a `Transport` and return one (`Layer`). None by default.
        attempt_layers: Custom layers around each attempt, outermost first; as for ``call_layers``.

    Returns:
        The client; close it, or use it as an async context manager. Nothing is sent before its
        first call.

    Raises:
        ValueError: An address, a header, a binding or a number that is not valid, or options
            that contradict each other; or no interface of the card that was passed may be used.
        InvalidAgentCardError: The card that was passed is not usable; ``field`` names the cause.
        ImportError: gRPC is requested, and its extra is not installed.
        TypeError: An argument of another type.

    Example:
        Ask one agent, with a deadline of a minute for each call::

            async with holdfast.connect("http://localhost:9999", timeout=60) as agent:
                answer = await agent.ask("How far is the moon?")
                print(answer.text)
    """
    settings = check_connect_options(
        auth=auth,
        timeout=timeout,
        card_ttl=card_ttl,
        card_verifier=card_verifier,
        require_signature=require_signature,
        resilience=resilience,
        limits=limits,
        engine=engine,
        tls=tls,
        shared=shared,
        env=env,
        url=url,
        tenant=tenant,
        bindings=bindings,
        supported_protocol_bindings=supported_protocol_bindings,
        protocol_version=protocol_version,
        allow_legacy=allow_legacy,
        transport_producers=transport_producers,
        grpc_channel_factory=grpc_channel_factory,
        configuration=configuration,
        streaming=streaming,
        on_unknown=on_unknown,
        context_ids=context_ids,
        journal=journal,
        shared_store=shared_store,
        headers=headers,
        extensions=extensions,
        credential_origins=credential_origins,
        allowed_networks=allowed_networks,
        reach=reach,
        interceptors=interceptors,
        consumers=consumers,
        observers=observers,
        telemetry=telemetry,
        call_layers=call_layers,
        attempt_layers=attempt_layers,
    )
    env, limits, networks = settings.env, settings.limits, settings.networks
    agents = as_targets(agent, url)
    routes = [settings.route(target) for target in agents]
    loaded = [load_given_card(target, route) for target, route in zip(agents, routes, strict=True)]
    endpoints, auth_ref = KnownEndpoints(settings.registry), AuthProviderRef(settings.provider)
    hooks = ListenerSet(settings.interceptors, settings.consumers)
    admissions = _admissions(settings.resilience)
    opened_journal = _opened_journal(journal)
    name = ", ".join(map(_shown, loaded))
    owner = f"Client of {name}"
    used_engine, owned = _engine_within(settings.within, engine, tls, owner)
    notifier = Observers(
        settings.observers,
        name,
        telemetry=settings.telemetry,
        budget=settings.resilience.budget,
    )
    trust = CardTrust(
        _card_checker(card_verifier, used_engine, env),
        is_required=require_signature,
        observers=notifier,
    )
    warnings = SecurityWarnings()
    cards = card_source(
        used_engine,
        settings.resilience,
        env,
        notifier,
        limits=limits,
        networks=networks,
        version=protocol_version,
        override=endpoints.override,
        warnings=warnings,
    )
    resolvers = [
        AgentCardResolver(
            card,
            cards,
            endpoints,
            auth_ref,
            headers=settings.headers,
            ttl=settings.card_ttl,
            limits=limits,
            trust=trust,
            document=dict(target) if isinstance(target, Mapping) else None,
            reach=settings.within,
        )
        for card, target in zip(loaded, agents, strict=True)
    ]
    card_resolver = _cards_of(resolvers)

    bottom = binding_transport(
        used_engine,
        env,
        settings.resilience,
        limits,
        has_grpc=any(GRPC_BINDING in route.supported for route in routes),
        channel_factory=grpc_channel_factory,
        producers=settings.producers,
        networks=networks,
    )
    choice = _EndpointChoice(
        resolvers,
        routes,
        endpoints,
        warnings=warnings,
        env=env,
        names=list(map(agent_name, loaded)),
        shared_store=settings.shared_store,
    )
    pipeline = CallPipeline(
        bottom,
        choice=choice.layer,
        resilience=settings.resilience,
        env=env,
        observers=notifier,
        hooks=hooks,
        auth=auth_ref,
        override=endpoints.override,
        warnings=warnings,
        admissions=admissions,
        call_layers=settings.call_layers,
        attempt_layers=settings.attempt_layers,
    )
    core = ClientCore(
        pipeline,
        card_pipeline(card_resolver),
        card_pipeline(choice),
        card_resolver,
        env,
        timeout=settings.timeout,
        headers=settings.headers,
        extensions=settings.extensions,
        configuration=settings.configuration,
        hooks=hooks,
        auth=auth_ref,
        observers=notifier,
        resilience=settings.resilience,
        limits=limits,
        streaming=settings.streaming,
        on_unknown=settings.on_unknown,
        context_ids=settings.context_ids,
        journaling=_journaling(opened_journal, loaded),
        endpoints=endpoints,
        admissions=admissions,
        trust=trust,
    )
    # The bottom is closed here too: a caller-supplied layer may not close what is below it.
    own_journal = opened_journal if opened_journal is not journal else None
    resources = (bottom, owned, own_journal)
    return new_client(
        core,
        owned=[each for each in resources if each is not None],
        name=name,
    )


class _EndpointChoice(UnaryOnly):
    """Chooses the endpoint of a call: one of several replicas, and an interface of its card.

    `layer` is the layer of every call; the other methods are the bottom of the stack that chooses
    an interface without a call.
    """

    def __init__(
        self,
        resolvers: Sequence[AgentCardResolver],
        routes: Sequence[Route],
        endpoints: KnownEndpoints,
        *,
        env: Env,
        warnings: SecurityWarnings,
        names: Sequence[str],
        shared_store: bool | None,
    ) -> None:
        self._resolvers = resolvers
        self._routes = routes
        self._endpoints = endpoints
        self._env = env
        self._warnings = warnings
        self._names = names
        self._shared_store = shared_store
        self._interfaces: list[InterfaceLayer] = []

    def layer(self, inner: Transport, older_files: Transport) -> Transport:
        """Return the layer that chooses where a call goes."""
        self._interfaces = [
            InterfaceLayer(
                inner,
                older_files,
                resolver,
                route,
                endpoints=self._endpoints,
                warnings=self._warnings,
            )
            for resolver, route in zip(self._resolvers, self._routes, strict=True)
        ]
        if len(self._interfaces) == 1:
            return self._interfaces[0]
        from holdfast._pipeline.replicas import Replica, ReplicaLayer  # few agents have several

        replicas = [
            Replica(interface, name, cards)
            for interface, name, cards in zip(
                self._interfaces, self._names, self._resolvers, strict=True
            )
        ]
        return ReplicaLayer(inner, replicas, self._env, shared_store=self._shared_store)

    async def unary(self, call: Call[Any, Any], /) -> Reply[Any]:
        """Answer `CHOOSE_INTERFACE`, from the first replica if there are several."""
        return Reply(value=await self._interfaces[0].interface(call))

    async def close(self) -> None:
        """Do nothing: the layers below are closed with the stack of calls."""


def _card_checker(
    verifier: CardVerifier | CardVerifierCallable | None, engine: HttpEngine, env: Env
) -> CardChecker | None:
    if verifier is None:
        return None
    from holdfast._signatures.verifier import card_checker  # few clients verify cards

    return card_checker(verifier, engine, env)


def _cards_of(resolvers: Sequence[AgentCardResolver]) -> AgentCardResolver | ReplicaCards:
    if len(resolvers) == 1:
        return resolvers[0]
    from holdfast._pipeline.cards.replicas import ReplicaCards  # few agents have several

    return ReplicaCards(resolvers)


def _opened_journal(journal: str | os.PathLike[str] | Journal | None) -> Journal | None:
    if journal is None:
        return None
    from holdfast._journal.resolve import resolve_journal  # few clients have a journal

    return resolve_journal(journal)


def _journaling(
    journal: Journal | None, agents: Sequence[str | Path | AgentCard]
) -> Journaling | None:
    if journal is None:
        return None
    from holdfast._journal.writer import Journaling  # few clients have a journal

    return Journaling(journal, name_of_replicas(agents))


def _engine_within(
    within: NetworkReach | None,
    engine: HttpEngine | aiohttp.ClientSession | None,
    tls: TlsConfig | None,
    owner: str,
) -> tuple[HttpEngine, HttpEngine | None]:
    """Return the engine to use, within the networks that it may reach, and the one to close."""
    used, owned = resolve_engine(engine, tls, owner)
    return used if within is None else EngineWithin(used, within), owned


def _admissions(resilience: Resilience) -> PerLoop[Admission] | None:
    policy = resilience.concurrency
    return None if policy is None else PerLoop(lambda: Admission(policy.limit))


async def ask(
    agent: AgentTarget | Sequence[AgentTarget],
    message: Content,
    *,
    tools: ClientTools | Iterable[Callable[..., Any]] = (),
    **options: Unpack[ConnectOptions],
) -> Answer:
    """Send one message to an agent, and return the answer; opens and closes a client for it.

    Args:
        agent: Address of the agent, its card's file, its card, or a list of replicas, as for
            `connect`.
        message: The `Content` to send: text, parts, a `Message` or its JSON object.
        tools: Functions that the agent may call, or `ClientTools`, as for `Client.ask`.
        options: Options of `connect`: ``auth``, ``timeout`` (seconds, 900 by default),
            ``card_ttl`` (seconds, 300 by default), ``card_verifier``, ``require_signature``,
            ``resilience``, ``limits``, ``engine``, ``tls``, ``shared``, ``env``, ``url``,
            ``tenant``, ``bindings``, ``supported_protocol_bindings``, ``protocol_version``,
            ``allow_legacy``, ``transport_producers``, ``grpc_channel_factory``, ``configuration``,
            ``streaming``, ``on_unknown``, ``context_ids``, ``journal``, ``shared_store``,
            ``headers``, ``extensions``, ``credential_origins``, ``allowed_networks``, ``reach``,
            ``interceptors``, ``consumers``, ``observers``, ``telemetry``, ``call_layers`` and
            ``attempt_layers``.

    Returns:
        The answer, which is a completed task, a task that waits for input (`Answer.needs_input`),
        or a message.

    Raises:
        A2AError: The call failed; ``executed`` says whether the agent executed the message.
        ValueError: The message has no content, or an option is not valid.
        TypeError: An argument of another type.

    Example:
        Ask one question::

            answer = await holdfast.ask("http://localhost:9999", "How far is the moon?")
            print(answer.text)
    """
    try:
        client = connect(agent, **options)
    except ValueError:
        if isinstance(agent, str) and isinstance(message, str) and _are_swapped(agent, message):
            text = "the arguments are in the wrong order: ask(agent, message)"
            raise ValueError(text) from None
        raise
    async with client:
        return await client.ask(message, tools=tools)


def _are_swapped(agent: str, message: str) -> bool:
    return is_http_address(message) and not is_http_address(agent)


def _shown(agent: str | Path | AgentCard) -> str:
    """Return an agent's address as its client shows it, without secrets."""
    if isinstance(agent, AgentCard):
        agent = agent.supported_interfaces[0].url
    return presentable(agent) if isinstance(agent, str) else str(agent)
