"""Making a client: checks what the caller passes, opens what it needs, and puts it together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from holdfast._aio.per_loop import PerLoop
from holdfast._client.client import Client
from holdfast._client.core import ClientCore
from holdfast._client.options import CALL_TIMEOUT, CARD_TTL
from holdfast._client.resolve import resolve_engine, resolve_journal
from holdfast._client.settings import check_connect_options
from holdfast._client.targets import (
    AgentTarget,
    as_targets,
    load_given_card,
)
from holdfast._journal.agent_name import agent_name
from holdfast._journal.writer import Journaling
from holdfast._model.addresses import is_http_address
from holdfast._net.engine import EngineWithin
from holdfast._pipeline.admission import Admission
from holdfast._pipeline.cards.replicas import ReplicaCards
from holdfast._pipeline.cards.resolver import AgentCardResolver
from holdfast._pipeline.cards.trust import CardTrust
from holdfast._pipeline.cautions import Cautions
from holdfast._pipeline.credentials import AuthProviderRef
from holdfast._pipeline.endpoints import Endpoints, KnownEndpoints
from holdfast._pipeline.interfaces_layer import InterfaceLayer
from holdfast._pipeline.listeners import Consumer, Interceptor, ListenerSet, Observer, Observers
from holdfast._pipeline.order import CallPipeline, binding_transport, card_pipeline, card_source
from holdfast._pipeline.replicas import Replica, ReplicaLayer
from holdfast._pipeline.transport import Reply, UnaryOnly
from holdfast._signatures.verifier import (
    CardVerifier,
    CardVerifierCallable,
    card_checker,
)
from holdfast._wire.bindings import GRPC_BINDING

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
    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig
    from holdfast._pipeline.interfaces import Route
    from holdfast._pipeline.produced import TransportProducer
    from holdfast._pipeline.transport import Call, Layer, Transport
    from holdfast._policy.reconcile import ContextIds, OnUnknown
    from holdfast._policy.resilience import Resilience
    from holdfast._wire.bindings import ProtocolVersion
    from holdfast._wire.limits import Limits
    from holdfast._wire.network_scope import AgentReach, NetworkReach
    from holdfast.types import AgentCard, SendMessageConfiguration

__all__ = ["ask", "connect"]


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
    call_layers: Sequence[Layer] = (),
    attempt_layers: Sequence[Layer] = (),
) -> Client:
    """Makes a client for one agent. Nothing is fetched before the first call.

    A card that is passed is read and judged here; of one that has to be fetched or read from a
    file, the first call tells the same as an `A2AError`.

    Args:
        agent: Where the agent is: its origin or address (the card is looked for below it), the
            card's own URL, a `Path` to the card's file, the card, or its JSON object. Or a list of
            these: replicas of the same agent. Calls about a task or a conversation go to the
            replica that created it; while that replica is unreachable, to the others if they share
            its store.
        auth: A value for ``Authorization``, headers, an `AuthProvider`, or a `CredentialService`
            that is asked as the card's security requirements say; see `AuthInterceptor`.
        timeout: Seconds for a whole call, with everything that is tried again.
        card_ttl: Seconds that the card is kept if its server does not say (``Cache-Control``);
            0 keeps none for longer than the calls that wait for it.
        card_verifier: Who verifies the signatures of the agent's card: a `CardVerifier`, or a
            function of your own, of either kind, that gets the JSON object of a signed card as it
            was received, and raises if a signature is wrong. A card that was verified is used as
            far as its signature covers it; one whose signature is wrong is refused; see
            `Client.card_verification` for what became of it. A card that is passed should be its
            JSON object or file: an `AgentCard` has not all that may have been signed.
        require_signature: Whether a card is refused that is not verified, be it that it has no
            signature, or that nobody has the key. Nothing is sent to the agent then.
        resilience: What to do when things go wrong; `Resilience.standard()` if left out.
        limits: How large a reply to accept; see `Limits` for the defaults.
        engine: What carries requests: an `HttpEngine` or an `aiohttp.ClientSession`, which are
            used and not closed; an `AiohttpEngine` of the client's own if left out.
        tls: Whom to trust and which certificate to show, for the client's own connections. One
            that is lent says that itself: `AiohttpEngine(ssl=TlsConfig(…))`.
        shared: What is known of agents, to share between clients. Those whose
            `Resilience.budget` is the same spend it together.
        env: Wall time, randomness and ids; for tests.
        url: Address of the agent's interface, in place of the one that the card names. One that
            begins with ``grpc://``, or with ``grpcs://`` for TLS, leaves gRPC alone to be spoken.
        tenant: Tenant, in place of the one that the card names.
        bindings: Preferred bindings, best first: ``"JSONRPC"``, ``"HTTP+JSON"``, ``"GRPC"``. Where
            the card has none of them, or the list is empty, its own order counts. An interface of
            the protocol's newer version comes before one that is preferred. ``"GRPC"`` needs the
            extra ``grpc``; without it, and with a custom `engine`, which gRPC does not use, a
            gRPC interface is not chosen unless you name the binding.
        supported_protocol_bindings: The only bindings that may be used; all of them if left out
            or empty, as in the official SDK's configuration.
        protocol_version: The version to speak, ``"1.0"`` or ``"0.3"``, whatever the card says. If
            left out, each interface is spoken to in the version that the card declares for it, 1.0
            before 0.3; where it declares none, a harmless request finds out before the first call.
        allow_legacy: Whether to find out in the same way if the card declares 1.0 only. Unless
            you say so, such an agent is never spoken to in 0.3: what nobody declared could as
            well be somebody's attempt to have less asked of it. It adds nothing to
            ``protocol_version="0.3"``, and is refused beside ``"1.0"``; `tenant` is something that
            0.3 does not know, and is refused beside either way to it.
        transport_producers: What makes the transports of bindings of your own, by the names of
            these in cards; see `TransportProducer`.
        grpc_channel_factory: Makes the channel for the address of an interface of gRPC, as the
            card or `url` writes it; it is used as it is, shared by all calls there, and never
            closed. If left out, the client has channels of its own, with the TLS of `tls`, or of
            an ``AiohttpEngine(ssl=TlsConfig(…))``. An address without a scheme, as ``host:port``,
            is one of TLS, unless it is this machine's. A process that forks calls nothing over
            gRPC afterwards.
        configuration: How messages are to be treated where a call does not say (A2A 3.2.2).
        streaming: Whether to use streams where the agent offers them; tasks are polled else.
        on_unknown: What to do about a message that was sent and whose reply was lost.
            ``"reconcile"`` looks for the task that it made, which then stands for the reply (see
            `ReconcilePolicy`), and raises `OutcomeUnknownError` if there is none to be found;
            ``"raise"`` raises it at once. The other two send the same message again, as often as
            `RetryPolicy.max_retries` says. They are for messages that may well be executed twice:
            ``"resend_if_absent"`` does where all that may be looked at was, to its end. It assumes
            that the agent's list shows every task soon, with the messages that made it, and that
            no request is held back on the way for longer;
            ``"resend"`` assumes nothing and looks for nothing.
        context_ids: Who names the context of a conversation: ``"agent"``, or ``"client"``, which
            makes a lost reply findable where an agent keeps no messages. The protocol leaves it to
            agents whether to take a client's context (A2A 3.4.1); one that refuses it is asked
            again without.
        journal: Where to write calls down before they are sent, so that none is lost when the
            program dies: a file, as ``"calls.db"``, a `Path`, or ``"sqlite:///calls.db"`` (with
            four slashes for an absolute path); or a `Journal`, which may be shared and is not
            closed. See `Client.pending`.
        shared_store: Whether the replicas of a list share a store of tasks, so that each of them
            can serve every task. None lets the client find out: while the replica that created a
            task is unreachable, it asks the others for the task. True assumes it from the start,
            which helps if that replica fails before the client has found out. False keeps each
            task at the replica that created it.
        headers: Sent with every request. Like `auth`, they go to the origin of `agent` and `url`
            (of the card's first interface, where the card was passed) and nowhere else.
        extensions: URIs of protocol extensions for ``A2A-Extensions``, asked for with every call
            (A2A 4.6). One that the card does not declare, and one that it requires and that is
            not among them nor among those of a call, are errors before anything is sent.
        credential_origins: More origins that may get `auth` and `headers`. Messages are sent to
            the origin that the card names in any case. If neither this option nor `agent` or `url`
            names it, the logger ``holdfast.security`` warns once.
        allowed_networks: Networks that the card or a redirect may point into, such as
            ``"10.0.0.0/8"``. Into others they may point from another origin only where the agent
            itself is at least as far inside (private, link-local, loopback), and never at a
            cloud's metadata.
        reach: Which addresses this client may connect to (SSRF protection): ``"any"``, or
            ``"public"`` for public addresses and `allowed_networks` only. Use ``"public"`` in
            services that get agents' addresses from their users. It covers `agent` and `url`,
            cards, redirects, interfaces over HTTP and gRPC, key sets, and the authorization server
            of `auth`, and checks the IP address of each connection (`NetworkPolicyError`). A name
            that a proxy or `grpc_channel_factory` resolves is refused, because the client cannot
            check its address.
        interceptors: See `Interceptor`. An `AuthInterceptor` among them is the same as `auth`.
        consumers: Called with the tasks and messages that sending and waiting give; see
            `Consumer`.
        observers: Plain functions that are called with what happens; see `Observer`. What one
            raises is logged, and the first time also a `RuntimeWarning`.
        call_layers: Your own layers around each call with all its attempts, outermost first.
        attempt_layers: Your own layers around each attempt, outermost first.

    Raises:
        ValueError: An address, a header, a binding or a number that cannot be right, or options
            that contradict each other; or the card that was passed has no interface that may be
            used.
        InvalidAgentCardError: The card that was passed is not usable; `field` says what of it.
        ImportError: gRPC is asked for, and its extra is not installed.
        TypeError: An argument of another type.
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
        call_layers=call_layers,
        attempt_layers=attempt_layers,
    )
    env, limits, networks = settings.env, settings.limits, settings.networks
    agents = as_targets(agent, url)
    routes = [settings.route(target) for target in agents]
    in_hand = [
        load_given_card(target, route) for target, route in zip(agents, routes, strict=True)
    ]
    endpoints, slot = KnownEndpoints(settings.registry), AuthProviderRef(settings.provider)
    hung = ListenerSet(settings.interceptors, settings.consumers)
    admissions = _admissions(settings.resilience)
    kept = None if journal is None else resolve_journal(journal)
    used, owned = _engine_within(settings.within, engine, tls)
    listening = Observers(settings.observers)
    trust = CardTrust(
        card_checker(card_verifier, used, env), is_required=require_signature, observers=listening
    )
    cautions = Cautions()
    cards = card_source(
        used,
        settings.resilience,
        env,
        listening,
        limits=limits,
        networks=networks,
        version=protocol_version,
        override=endpoints.override,
        cautions=cautions,
    )
    resolvers = [
        AgentCardResolver(
            one,
            cards,
            endpoints,
            slot,
            headers=settings.headers,
            ttl=settings.card_ttl,
            limits=limits,
            trust=trust,
            document=dict(given) if isinstance(given, Mapping) else None,
            reach=settings.within,
        )
        for one, given in zip(in_hand, agents, strict=True)
    ]
    known = resolvers[0] if len(resolvers) == 1 else ReplicaCards(resolvers)

    bottom = binding_transport(
        used,
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
        cautions=cautions,
        env=env,
        names=list(map(agent_name, in_hand)),
        shared_store=settings.shared_store,
    )
    pipeline = CallPipeline(
        bottom,
        choice=choice.layer,
        resilience=settings.resilience,
        env=env,
        observers=listening,
        hooks=hung,
        auth=slot,
        override=endpoints.override,
        cautions=cautions,
        admissions=admissions,
        call_layers=settings.call_layers,
        attempt_layers=settings.attempt_layers,
    )
    core = ClientCore(
        pipeline,
        card_pipeline(known, listening),
        card_pipeline(choice, listening),
        known,
        env,
        timeout=settings.timeout,
        headers=settings.headers,
        extensions=settings.extensions,
        configuration=settings.configuration,
        hooks=hung,
        auth=slot,
        observers=listening,
        resilience=settings.resilience,
        limits=limits,
        streaming=settings.streaming,
        on_unknown=settings.on_unknown,
        context_ids=settings.context_ids,
        journaling=None if kept is None else Journaling(kept, _name_of(in_hand), env),
        endpoints=endpoints,
        admissions=admissions,
        trust=trust,
    )
    # The bottom once more: a layer of the caller's may close without what is below it.
    closed = (bottom, owned, kept if kept is not journal else None)
    return Client(core, owned=[one for one in closed if one is not None])


class _EndpointChoice(UnaryOnly):
    """Chooses where calls go: one of several replicas, and an interface there.

    `layer` is the layer of every call; the rest is the bottom of the stack that chooses an
    interface without a call.
    """

    def __init__(
        self,
        resolvers: Sequence[AgentCardResolver],
        routes: Sequence[Route],
        endpoints: KnownEndpoints,
        *,
        env: Env,
        cautions: Cautions,
        names: Sequence[str],
        shared_store: bool | None,
    ) -> None:
        self._resolvers = resolvers
        self._routes = routes
        self._endpoints = endpoints
        self._env = env
        self._cautions = cautions
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
                cautions=self._cautions,
            )
            for resolver, route in zip(self._resolvers, self._routes, strict=True)
        ]
        if len(self._interfaces) == 1:
            return self._interfaces[0]
        replicas = [
            Replica(way, name, cards)
            for way, name, cards in zip(
                self._interfaces, self._names, self._resolvers, strict=True
            )
        ]
        return ReplicaLayer(inner, replicas, self._env, shared_store=self._shared_store)

    async def unary(self, call: Call[Any, Any], /) -> Reply[Any]:
        """Answer `CHOOSE_INTERFACE`; of several replicas, the first one counts."""
        return Reply(value=await self._interfaces[0].interface(call))

    async def close(self) -> None:
        """Free nothing: what is below belongs to the stack of calls."""


def _engine_within(
    within: NetworkReach | None,
    engine: HttpEngine | aiohttp.ClientSession | None,
    tls: TlsConfig | None,
) -> tuple[HttpEngine, HttpEngine | None]:
    """The engine to use, which reaches no further than it may, and the one to close."""
    used, owned = resolve_engine(engine, tls)
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
    """Asks an agent one thing: connects, sends, waits, closes.

    Args:
        agent: See `connect`.
        message: See `Client.ask`.
        tools: See `Client.ask`.
        options: See `connect`.

    Raises:
        A2AError: See `Client.ask`.
        ValueError: See `connect`.
        TypeError: See `connect`.
    """
    try:
        client = connect(agent, **options)
    except ValueError:
        if isinstance(agent, str) and isinstance(message, str) and _are_swapped(agent, message):
            text = "the agent comes first, and then the message: ask(agent, message)"
            raise ValueError(text) from None
        raise
    async with client:
        return await client.ask(message, tools=tools)


def _are_swapped(agent: str, message: str) -> bool:
    return is_http_address(message) and not is_http_address(agent)


def _name_of(agents: Sequence[str | Path | AgentCard]) -> str:
    """What a journal calls an agent, which may be at several places."""
    return " ".join(sorted(map(agent_name, agents)))
