"""Making a client: checks what the caller passes, and puts the layers together."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from holdfast.arguments import (
    check_able,
    check_age,
    check_kind,
    check_networks,
    check_seconds,
    check_url,
    hooks,
    items,
)
from holdfast.auth import AuthInterceptor, AuthProvider, CredentialService, to_provider
from holdfast.calls import Calls
from holdfast.client import Client
from holdfast.model.card import AgentCard
from holdfast.policy.resilience import Resilience
from holdfast.runtime.binding import HttpBinding
from holdfast.runtime.credentials import AuthSlot, CredentialsLayer
from holdfast.runtime.discovery import CardTransport
from holdfast.runtime.endpoints import Endpoints
from holdfast.runtime.env import Env, SystemEnv
from holdfast.runtime.layers import (
    DeadlineLayer,
    InterceptorLayer,
    ObservedLayer,
    OutcomeLayer,
)
from holdfast.runtime.listeners import Consumer, Interceptor, Observer, Observers
from holdfast.runtime.resolver import AgentCardResolver
from holdfast.runtime.retrying import RetryLayer
from holdfast.runtime.routing import InterfaceLayer, Route
from holdfast.runtime.transport import Layer, Transport, compose
from holdfast.wire.bindings import BINDINGS
from holdfast.wire.http import check_headers, origins
from holdfast.wire.limits import Limits

if TYPE_CHECKING:
    import aiohttp

    from holdfast.answer import Answer
    from holdfast.content import Content
    from holdfast.runtime.engine import HttpEngine
    from holdfast.wire.reach import Network

__all__ = ["ask", "connect"]


def connect(
    agent: str | Path | AgentCard | Mapping[str, Any],
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
    headers: Mapping[str, str] | None = None,
    credential_origins: Iterable[str] = (),
    allowed_networks: Iterable[str] = (),
    interceptors: Sequence[Interceptor] = (),
    consumers: Sequence[Consumer] = (),
    observers: Sequence[Observer] = (),
    call_layers: Sequence[Layer] = (),
    attempt_layers: Sequence[Layer] = (),
) -> Client:
    """Makes a client for one agent. Nothing is fetched before the first call.

    Args:
        agent: Where the agent is: its origin or address (the card is looked for below it), the
            card's own URL, a `Path` to the card's file, the card, or its JSON object.
        auth: A value for ``Authorization``, headers, an `AuthProvider`, or a `CredentialService`
            that is asked as the card's security requirements say; see `AuthInterceptor`.
        timeout: Seconds for a whole call, with everything that is tried again.
        card_ttl: Seconds that the card is kept if its server does not say (``Cache-Control``);
            0 keeps none for longer than the calls that wait for it.
        resilience: What to do when things go wrong; `Resilience.standard()` if left out.
        limits: How large a reply to accept; see `Limits` for the defaults.
        engine: What carries requests: an `HttpEngine` or an `aiohttp.ClientSession`, which are
            used and not closed; an `AiohttpEngine` of the client's own if left out.
        shared: What is known of agents, to share between clients.
        env: Wall time, randomness and ids; for tests.
        url: Address of the agent's interface, in place of the one that the card names.
        tenant: Tenant, in place of the one that the card names.
        bindings: Preferred bindings, best first: ``"JSONRPC"``, ``"HTTP+JSON"``. Where the card
            has none of them, its own order counts.
        headers: Sent with every request. Like `auth`, they go to the origin of `agent` and `url`
            (of the card's first interface, where the card was passed) and nowhere else.
        credential_origins: More origins that may get `auth` and `headers`.
        allowed_networks: Networks, such as ``"10.0.0.0/8"``, that an address may lead to which
            the card or a redirect names on another origin. Without this such an address leads
            no further inside (private, link-local, loopback) than where the agent itself is, and
            never to a cloud's metadata.
        interceptors: See `Interceptor`. An `AuthInterceptor` among them is the same as `auth`.
        consumers: Called with the tasks and messages that sending and waiting give; see
            `Consumer`.
        observers: Called with what happens; see `Observer`.
        call_layers: Your own layers around each call with all its attempts, outermost first.
        attempt_layers: Your own layers around each attempt, outermost first.

    Raises:
        ValueError: An address, a header, a binding or a number that cannot be right.
        TypeError: An argument of another type.
    """
    resilience = Resilience.standard() if resilience is None else resilience
    limits = Limits() if limits is None else limits
    env = SystemEnv() if env is None else env
    endpoints = Endpoints() if shared is None else shared  # an empty registry is false
    check_kind("resilience", resilience, Resilience)
    check_kind("limits", limits, Limits)
    check_kind("shared", endpoints, Endpoints)
    check_able("env", env, "wall", "random", "new_id")
    own_headers = check_headers({} if headers is None else headers)
    check_seconds("timeout", timeout)
    check_age("card_ttl", card_ttl)
    interceptors = hooks("interceptors", interceptors, "before", "after")
    slot = AuthSlot(_provider(auth, interceptors))
    consumers = hooks("consumers", consumers, "__call__")
    observers = hooks("observers", observers, "__call__")
    call_layers = hooks("call_layers", call_layers, "__call__")
    attempt_layers = hooks("attempt_layers", attempt_layers, "__call__")
    route = _route(
        agent,
        url=url,
        tenant=tenant,
        bindings=bindings,
        credential_origins=credential_origins,
        networks=check_networks("allowed_networks", allowed_networks),
    )
    used, owned = _engine(engine)
    listening = Observers(observers)

    def observed(inner: Transport) -> Transport:
        return ObservedLayer(inner, listening)

    def intercepted(inner: Transport) -> Transport:
        return InterceptorLayer(inner, interceptors) if interceptors else inner

    def retried(inner: Transport) -> Transport:
        return RetryLayer(inner, resilience.retry, resilience.budget, env, listening)

    def routed(inner: Transport) -> Transport:
        return InterfaceLayer(inner, resolver, route, endpoints, slot)

    cards = CardTransport(
        used, env, timeouts=resilience.timeouts, limits=limits, networks=route.networks
    )
    resolver = AgentCardResolver(
        agent,
        compose((retried, CredentialsLayer), cards),
        endpoints,
        slot,
        headers=own_headers,
        ttl=card_ttl,
        limits=limits,
    )
    transport = compose(
        (
            observed,
            intercepted,
            OutcomeLayer,
            DeadlineLayer,
            *call_layers,
            routed,
            retried,
            *attempt_layers,
            CredentialsLayer,
        ),
        HttpBinding(used, env, resilience, limits),
    )
    calls = Calls(
        transport,
        compose((observed, DeadlineLayer), resolver),
        resolver,
        env,
        timeout=timeout,
        headers=own_headers,
        consumers=consumers,
    )
    return Client(calls, owned=owned)


async def ask(
    agent: str | Path | AgentCard | Mapping[str, Any], message: Content, **options: Any
) -> Answer:
    """Asks an agent one thing: connects, sends, waits, closes.

    Args:
        agent: See `connect`.
        message: See `Client.ask`.
        options: Options of `connect`.

    Raises:
        A2AError: See `Client.ask`.
    """
    async with connect(agent, **options) as client:
        return await client.ask(message)


def _provider(
    auth: str | Mapping[str, str] | AuthProvider | CredentialService | None,
    interceptors: Sequence[Interceptor],
) -> AuthProvider | None:
    """The one place that credentials come from."""
    given = to_provider(auth)
    found = [given] if given is not None else []
    found += [one for one in interceptors if isinstance(one, AuthInterceptor)]
    if len(found) > 1:
        text = "credentials come from one place: pass auth=, or one AuthInterceptor"
        raise ValueError(text)
    return found[0] if found else None


def _engine(
    engine: HttpEngine | aiohttp.ClientSession | None,
) -> tuple[HttpEngine, HttpEngine | None]:
    """The engine to use, and the one to close."""
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
    agent: str | Path | AgentCard | Mapping[str, Any],
    *,
    url: str | None,
    tenant: str | None,
    bindings: Sequence[str],
    credential_origins: Iterable[str],
    networks: tuple[Network, ...],
) -> Route:
    bindings = items("bindings", bindings)
    for binding in bindings:
        if binding not in tuple(BINDINGS):
            text = f"{binding!r} is no binding; bindings is a sequence of {', '.join(BINDINGS)}"
            raise ValueError(text)
    if tenant is not None:
        check_kind("tenant", tenant, str)
    named = [
        check_url(address, "credential origin")
        for address in items("credential_origins", credential_origins)
    ]
    if url is not None:
        named.append(check_url(url, "url"))
    if isinstance(agent, str):
        named.append(check_url(agent, "agent URL"))
    elif not isinstance(cast("object", agent), Path | AgentCard | Mapping):
        text = f"agent is a URL, a Path, an AgentCard or a dict, not {type(agent).__name__}"
        raise TypeError(text)
    return Route(
        bindings=bindings,
        url=url,
        tenant=tenant,
        trusted=frozenset[str]().union(*(origins(address) for address in named)),
        trust_first=not isinstance(agent, str),
        source=agent if isinstance(agent, str) else None,
        networks=networks,
    )
