"""Making a client: checks what the caller passes, and puts the layers together."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast, get_args

from holdfast.arguments import (
    check_able,
    check_age,
    check_configuration,
    check_kind,
    check_networks,
    check_one_of,
    check_seconds,
    check_url,
    extension_uris,
    hooks,
    items,
    not_empty,
)
from holdfast.auth import AuthProvider, CredentialService, one_provider, to_provider
from holdfast.calls import Calls
from holdfast.client import Client
from holdfast.errors import A2AError
from holdfast.journaling import Journaling
from holdfast.model.addresses import is_http_address
from holdfast.model.card import AgentCard, check_card
from holdfast.model.card_reading import read_card
from holdfast.model.requests import SendMessageConfiguration
from holdfast.policy.breaker import Switch
from holdfast.policy.reconcile import ContextIds, OnUnknown
from holdfast.policy.resilience import Resilience
from holdfast.runtime.admission import Admission, AdmissionLayer
from holdfast.runtime.agent_name import agent_name
from holdfast.runtime.attempts import AttemptLayer
from holdfast.runtime.binding import HttpBinding
from holdfast.runtime.credentials import AuthSlot, CredentialsLayer
from holdfast.runtime.discovery import CardTransport
from holdfast.runtime.endpoints import Endpoints, KnownEndpoints
from holdfast.runtime.env import Env, SystemEnv
from holdfast.runtime.guarding import GuardLayer
from holdfast.runtime.hedging import HedgeLayer
from holdfast.runtime.interfaces import Route, choose_interfaces
from holdfast.runtime.journal import Journal
from holdfast.runtime.layers import (
    DeadlineLayer,
    InterceptorLayer,
    ObservedLayer,
    OutcomeLayer,
)
from holdfast.runtime.listeners import Consumer, Hooks, Interceptor, Observer, Observers
from holdfast.runtime.perloop import PerLoop
from holdfast.runtime.produced import ProducedTransports, TransportProducer
from holdfast.runtime.replica_cards import ReplicaCards
from holdfast.runtime.replicas import Replica, ReplicaLayer
from holdfast.runtime.resolver import AgentCardResolver
from holdfast.runtime.retrying import RetryLayer
from holdfast.runtime.routing import InterfaceLayer
from holdfast.runtime.transport import Layer, Transport, compose
from holdfast.wire.bindings import (
    BINDINGS,
    OLDER_VERSION,
    PROTOCOL_VERSION,
    PROTOCOL_VERSIONS,
    ProtocolVersion,
)
from holdfast.wire.http import check_headers
from holdfast.wire.limits import Limits
from holdfast.wire.origins import origin_and_aliases

if TYPE_CHECKING:
    import aiohttp

    from holdfast.answer import Answer
    from holdfast.client_tools import ClientTools
    from holdfast.content import Content
    from holdfast.options import ConnectOptions
    from holdfast.runtime.engine import HttpEngine
    from holdfast.wire.reach import Network

__all__ = ["ask", "card_source", "connect", "engine_of", "journal_file", "journal_of"]


AnAgent = str | Path | AgentCard | Mapping[str, Any]
"""How an agent can be named."""


def connect(
    agent: AnAgent | Sequence[AnAgent],
    *,
    auth: str | Mapping[str, str] | AuthProvider | CredentialService | None = None,
    timeout: float = 900.0,
    card_ttl: float = 300.0,
    resilience: Resilience | None = None,
    limits: Limits | None = None,
    engine: HttpEngine | aiohttp.ClientSession | None = None,
    shared: Endpoints | None = None,
    env: Env | None = None,
    url: str | None = None,
    tenant: str | None = None,
    bindings: Sequence[str] = (),
    supported_protocol_bindings: Sequence[str] = (),
    protocol_version: ProtocolVersion | None = None,
    allow_legacy: bool = False,
    transport_producers: Mapping[str, TransportProducer] | None = None,
    configuration: SendMessageConfiguration | None = None,
    streaming: bool = True,
    on_unknown: OnUnknown = "reconcile",
    context_ids: ContextIds = "agent",
    journal: str | os.PathLike[str] | Journal | None = None,
    headers: Mapping[str, str] | None = None,
    extensions: Iterable[str] = (),
    credential_origins: Iterable[str] = (),
    allowed_networks: Iterable[str] = (),
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
            these: the same agent at several places, which stand in for each other; what belongs to
            a task or a conversation goes where that was made.
        auth: A value for ``Authorization``, headers, an `AuthProvider`, or a `CredentialService`
            that is asked as the card's security requirements say; see `AuthInterceptor`.
        timeout: Seconds for a whole call, with everything that is tried again.
        card_ttl: Seconds that the card is kept if its server does not say (``Cache-Control``);
            0 keeps none for longer than the calls that wait for it.
        resilience: What to do when things go wrong; `Resilience.standard()` if left out.
        limits: How large a reply to accept; see `Limits` for the defaults.
        engine: What carries requests: an `HttpEngine` or an `aiohttp.ClientSession`, which are
            used and not closed; an `AiohttpEngine` of the client's own if left out.
        shared: What is known of agents, to share between clients. Those whose
            `Resilience.budget` is the same spend it together.
        env: Wall time, randomness and ids; for tests.
        url: Address of the agent's interface, in place of the one that the card names.
        tenant: Tenant, in place of the one that the card names.
        bindings: Preferred bindings, best first: ``"JSONRPC"``, ``"HTTP+JSON"``. Where the card
            has none of them, its own order counts. An interface of the protocol's newer version
            comes before one that is preferred.
        supported_protocol_bindings: The only bindings that may be used; all of them if left out.
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
        headers: Sent with every request. Like `auth`, they go to the origin of `agent` and `url`
            (of the card's first interface, where the card was passed) and nowhere else.
        extensions: URIs of protocol extensions for ``A2A-Extensions``, asked for with every call
            (A2A 4.6). One that the card does not declare, and one that it requires and that is
            not among them nor among those of a call, are errors before anything is sent.
        credential_origins: More origins that may get `auth` and `headers`.
        allowed_networks: Networks that the card or a redirect may point into, such as
            ``"10.0.0.0/8"``. Into others they may point from another origin only where the agent
            itself is at least as far inside (private, link-local, loopback), and never at a
            cloud's metadata.
        interceptors: See `Interceptor`. An `AuthInterceptor` among them is the same as `auth`.
        consumers: Called with the tasks and messages that sending and waiting give; see
            `Consumer`.
        observers: Called with what happens; see `Observer`.
        call_layers: Your own layers around each call with all its attempts, outermost first.
        attempt_layers: Your own layers around each attempt, outermost first.

    Raises:
        ValueError: An address, a header, a binding or a number that cannot be right, or options
            that contradict each other; or the card that was passed has no interface that may be
            used.
        InvalidAgentCardError: The card that was passed is not usable; `field` says what of it.
        TypeError: An argument of another type.
    """
    resilience = Resilience.standard() if resilience is None else resilience
    limits = Limits() if limits is None else limits
    env = SystemEnv() if env is None else env
    configuration = SendMessageConfiguration() if configuration is None else configuration
    producers = _producers(transport_producers)
    check_kind("resilience", resilience, Resilience)
    check_kind("limits", limits, Limits)
    check_kind("configuration", configuration, SendMessageConfiguration)
    check_configuration(configuration)
    check_kind("streaming", streaming, bool)
    check_one_of("on_unknown", on_unknown, get_args(OnUnknown))
    check_one_of("context_ids", context_ids, get_args(ContextIds))
    check_able("env", env, "wall", "random", "new_id")
    endpoints = KnownEndpoints(_registry(shared))
    admissions = _admissions(resilience)
    own_headers = check_headers({} if headers is None else headers)
    uris = extension_uris(extensions)
    check_seconds("timeout", timeout)
    check_age("card_ttl", card_ttl)
    interceptors = hooks("interceptors", interceptors, "before", "after")
    slot = AuthSlot(one_provider(to_provider(auth), interceptors))
    consumers = hooks("consumers", consumers, "__call__")
    hung = Hooks(interceptors, consumers)
    observers = hooks("observers", observers, "__call__")
    call_layers = hooks("call_layers", call_layers, "__call__")
    attempt_layers = hooks("attempt_layers", attempt_layers, "__call__")
    networks = check_networks("allowed_networks", allowed_networks)
    agents = _agents(agent, url)
    routes = [
        _route(
            one,
            url=url,
            tenant=tenant,
            bindings=bindings,
            supported=supported_protocol_bindings,
            version=protocol_version,
            allow_legacy=allow_legacy,
            produced=producers,
            credential_origins=credential_origins,
            networks=networks,
        )
        for one in agents
    ]
    in_hand = [_in_hand(one, route) for one, route in zip(agents, routes, strict=True)]
    kept = None if journal is None else journal_of(journal)
    used, owned = engine_of(engine)
    listening = Observers(observers)

    def observed(inner: Transport) -> Transport:
        return ObservedLayer(inner, listening)

    def intercepted(inner: Transport) -> Transport:
        return InterceptorLayer(inner, hung)

    def attempted(inner: Transport) -> Transport:
        return AttemptLayer(inner, listening)

    cards = card_source(
        used,
        resilience,
        env,
        listening,
        limits=limits,
        networks=networks,
        version=protocol_version,
        switch=endpoints.switch,
    )
    resolvers = [
        AgentCardResolver(
            one, cards, endpoints, slot, headers=own_headers, ttl=card_ttl, limits=limits
        )
        for one in in_hand
    ]
    known = resolvers[0] if len(resolvers) == 1 else ReplicaCards(resolvers)

    def routed(inner: Transport) -> Transport:
        ways = [
            InterfaceLayer(inner, resolver, route, endpoints)
            for resolver, route in zip(resolvers, routes, strict=True)
        ]
        if len(ways) == 1:
            return ways[0]
        return ReplicaLayer(inner, list(map(Replica, ways)), env)

    bottom: Transport = HttpBinding(used, env, resilience, limits)
    if producers:
        bottom = ProducedTransports(bottom, producers)
    transport = compose(
        (
            observed,
            intercepted,
            OutcomeLayer,
            DeadlineLayer,
            *_admitted(resilience, admissions),
            *call_layers,
            _retried(resilience, env, listening),
            *_hedged(resilience),
            routed,
            _guarded(resilience, env, listening, endpoints.switch),
            attempted,
            *attempt_layers,
            CredentialsLayer,
        ),
        bottom,
    )
    calls = Calls(
        transport,
        compose((observed, DeadlineLayer), known),
        known,
        env,
        timeout=timeout,
        headers=own_headers,
        extensions=uris,
        configuration=configuration,
        hooks=hung,
        auth=slot,
        observers=listening,
        resilience=resilience,
        limits=limits,
        streaming=streaming,
        on_unknown=on_unknown,
        context_ids=context_ids,
        journaling=None if kept is None else Journaling(kept, _name_of(in_hand), env),
        endpoints=endpoints,
        admissions=admissions,
    )
    # The bottom once more: a layer of the caller's may close without what is below it.
    closed = (bottom, owned, kept if kept is not journal else None)
    return Client(calls, owned=[one for one in closed if one is not None])


def card_source(
    engine: HttpEngine,
    resilience: Resilience,
    env: Env,
    observers: Observers,
    *,
    limits: Limits,
    networks: tuple[Network, ...],
    version: str | None = None,
    switch: Switch | None = None,
) -> Transport:
    """What fetches cards: the layers around each fetch, in their order.

    Args:
        engine: What carries requests.
        resilience: What to do when things go wrong.
        env: Wall time and randomness.
        observers: Who is told of attempts.
        limits: How large a card may be.
        networks: Where a redirect may lead besides the outside.
        version: The version of the protocol to ask for; the newest if left out.
        switch: What somebody has decided by hand about circuits; nothing if left out.
    """
    cards = CardTransport(
        engine,
        env,
        timeouts=resilience.timeouts,
        limits=limits,
        networks=networks,
        version=version or PROTOCOL_VERSION,
    )

    def attempted(inner: Transport) -> Transport:
        return AttemptLayer(inner, observers)

    return compose(
        (
            _retried(resilience, env, observers),
            _guarded(resilience, env, observers, switch or Switch()),
            attempted,
            CredentialsLayer,
        ),
        cards,
    )


def _retried(resilience: Resilience, env: Env, observers: Observers) -> Layer:
    def retried(inner: Transport) -> Transport:
        return RetryLayer(inner, resilience, env, observers)

    return retried


def _registry(shared: Endpoints | None) -> Endpoints:
    if shared is None:
        return Endpoints()
    check_kind("shared", shared, Endpoints)
    return shared


def _admissions(resilience: Resilience) -> PerLoop[Admission] | None:
    policy = resilience.concurrency
    return None if policy is None else PerLoop(lambda: Admission(policy.limit))


def _admitted(resilience: Resilience, admissions: PerLoop[Admission] | None) -> tuple[Layer, ...]:
    policy = resilience.concurrency
    if policy is None or admissions is None:
        return ()
    return (lambda inner: AdmissionLayer(inner, policy, admissions),)


def _hedged(resilience: Resilience) -> tuple[Layer, ...]:
    policy = resilience.hedge
    return () if policy is None else (lambda inner: HedgeLayer(inner, policy),)


def _guarded(resilience: Resilience, env: Env, observers: Observers, switch: Switch) -> Layer:
    def guarded(inner: Transport) -> Transport:
        return GuardLayer(inner, resilience, env, observers, switch)

    return guarded


async def ask(
    agent: AnAgent | Sequence[AnAgent],
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


def journal_of(journal: str | os.PathLike[str] | Journal) -> Journal:
    """The journal to use.

    Raises:
        ValueError: An address that names none.
        TypeError: It is not a journal.
    """
    if isinstance(journal, str | os.PathLike):
        from holdfast.journals.sqlite import SqliteJournal  # sqlite3 is not for everybody

        return SqliteJournal(journal_file("journal", journal))
    check_able("journal", journal)
    lease = getattr(journal, "lease", None)
    lacks = [method for method in _JOURNAL if not callable(getattr(journal, method, None))]
    if not isinstance(getattr(journal, "stores_messages", None), bool):
        lacks.append("stores_messages (a bool)")
    if not isinstance(lease, int | float) or not 0 < lease < math.inf:
        lacks.append("lease (seconds)")
    if lacks:
        kind = type(journal).__name__
        text = f"journal must be a file or a Journal; {kind} has no {', '.join(lacks)}"
        raise TypeError(text)
    return journal


_JOURNAL = tuple(name for name, member in vars(Journal).items() if iscoroutinefunction(member))
"""The methods of a journal."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def journal_file(name: str, journal: str | os.PathLike[str]) -> str:
    """The file of a journal.

    Args:
        name: What messages call it.
        journal: The file, or an address that names it.

    Raises:
        ValueError: An address that names none.
        TypeError: A path of bytes.
    """
    address = os.fspath(journal)
    check_kind(name, address, str)
    scheme = _SCHEME.match(address)
    path = address.removeprefix("sqlite:///")
    if not path or (scheme and path == address):
        shown = address if scheme is None else f"{scheme[0]}…"
        text = f"{name} must be a file, such as 'calls.db' or 'sqlite:///calls.db', not {shown!r}"
        raise ValueError(text)
    return path


def _agents(agent: AnAgent | Sequence[AnAgent], url: str | None) -> list[AnAgent]:
    """Where the agent is, which may be several places.

    Raises:
        ValueError: No place is named; or several, and one address for all.
    """
    if not isinstance(agent, list | tuple):
        return [cast("AnAgent", agent)]
    agents = list(cast("Sequence[AnAgent]", agent))
    if not agents:
        message = "no agent is named"
        raise ValueError(message)
    if len(agents) > 1 and url is not None:
        message = "url= is the address of one agent, and several are named"
        raise ValueError(message)
    return agents


def _name_of(agents: Sequence[str | Path | AgentCard]) -> str:
    """What a journal calls an agent, which may be at several places."""
    return " ".join(sorted(map(agent_name, agents)))


def engine_of(
    engine: HttpEngine | aiohttp.ClientSession | None,
) -> tuple[HttpEngine, HttpEngine | None]:
    """The engine to use, and the one to close.

    Raises:
        TypeError: It is not an engine.
    """
    if engine is None:
        from holdfast.net.aiohttp import AiohttpEngine  # heavy; importing holdfast is not

        own = AiohttpEngine()
        return own, own
    if "aiohttp" in sys.modules:
        import aiohttp

        if isinstance(engine, aiohttp.ClientSession):
            from holdfast.net.aiohttp import AiohttpEngine

            return AiohttpEngine(session=engine), None
    check_able("engine", engine, "request", "stream", "close")
    return cast("HttpEngine", engine), None


def _route(
    agent: AnAgent,
    *,
    url: str | None,
    tenant: str | None,
    bindings: Sequence[str],
    supported: Sequence[str],
    version: str | None,
    allow_legacy: bool,
    produced: Mapping[str, TransportProducer],
    credential_origins: Iterable[str],
    networks: tuple[Network, ...],
) -> Route:
    known = (*BINDINGS, *(label for label in produced if label not in BINDINGS))
    supported = _known_bindings("supported_protocol_bindings", supported, known)
    bindings = _known_bindings("bindings", bindings, supported or known)
    if tenant is not None:
        check_kind("tenant", tenant, str)
    check_kind("allow_legacy", allow_legacy, bool)
    if version is not None:
        _check_version(version)
    if allow_legacy and version == PROTOCOL_VERSION:
        text = (
            f'protocol_version="{version}" rules out {OLDER_VERSION}, and allow_legacy=True lets '
            "it be found out: pass one of them"
        )
        raise ValueError(text)
    if tenant and not produced and (allow_legacy or version == OLDER_VERSION):
        option = "allow_legacy=True" if version is None else f'protocol_version="{version}"'
        text = f"protocol {OLDER_VERSION} knows no tenants: leave out tenant= or {option}"
        raise ValueError(text)
    named = [
        check_url(address, "credential origin", any_scheme=bool(produced))
        for address in items("credential_origins", credential_origins)
    ]
    if url is not None:
        named.append(check_url(url, "url", any_scheme=bool(produced)))
    if isinstance(agent, str):
        named.append(check_url(agent, "agent URL", or_path=True))
    elif not isinstance(cast("object", agent), Path | AgentCard | Mapping):
        text = f"agent must be a URL, a Path, an AgentCard or a dict, not {type(agent).__name__}"
        raise TypeError(text)
    return Route(
        bindings=bindings,
        supported=supported or known,
        produced=frozenset(produced),
        url=url,
        tenant=tenant,
        version=version,
        allow_legacy=allow_legacy,
        trusted=frozenset[str]().union(*(origin_and_aliases(address) for address in named)),
        trust_first=not isinstance(agent, str),
        source=agent if isinstance(agent, str) else None,
        networks=networks,
    )


def _in_hand(agent: AnAgent, route: Route) -> str | Path | AgentCard:
    """Reads a card that the caller brought along, and checks that it has an interface to call."""
    if isinstance(agent, str | Path):
        return agent
    if isinstance(agent, AgentCard):
        card = agent
        check_card(card)
    else:
        card = read_card(dict(agent))
    try:
        choose_interfaces(card, route)
    except A2AError as error:
        raise ValueError(str(error)) from None
    return card


def _known_bindings(name: str, given: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    bindings = items(name, given)
    for binding in bindings:
        if binding not in known:
            text = f"{binding!r} in {name} is not a binding; there are {', '.join(known)}"
            raise ValueError(text)
    return bindings


def _check_version(version: str) -> None:
    check_kind("protocol_version", version, str)
    if version not in PROTOCOL_VERSIONS:
        text = f"protocol_version is one of {', '.join(PROTOCOL_VERSIONS)}, not {version!r}"
        raise ValueError(text)


def _producers(given: Mapping[str, TransportProducer] | None) -> dict[str, TransportProducer]:
    if given is None:
        return {}
    check_kind("transport_producers", given, Mapping)
    for label, producer in given.items():
        not_empty("the name of a binding", label)
        hooks("transport_producers", (producer,), "__call__")
    # Cards write the names of bindings in either case; what Holdfast speaks is taken over so, too.
    upper = {label: label.upper() for label in given}
    return {upper[n] if upper[n] in BINDINGS else n: made for n, made in given.items()}
