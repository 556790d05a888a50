"""Making a client: checks what the caller passes, and puts the layers together."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from holdfast.auth import AuthProvider, check_headers, to_provider
from holdfast.client import Client, check_timeout
from holdfast.model.card import AgentCard
from holdfast.policy.resilience import Resilience
from holdfast.runtime.binding import HttpBinding
from holdfast.runtime.discovery import (
    AgentCardResolver,
    CardTransport,
    InterfaceLayer,
    Route,
)
from holdfast.runtime.endpoints import Endpoints
from holdfast.runtime.env import Env, SystemEnv
from holdfast.runtime.layers import (
    CredentialsLayer,
    DeadlineLayer,
    InterceptorLayer,
    ObservedLayer,
    OutcomeLayer,
    RetryLayer,
)
from holdfast.runtime.listeners import Consumer, Interceptor, Observer, Observers, log
from holdfast.runtime.transport import Layer, Transport, compose
from holdfast.wire.bindings import BINDINGS
from holdfast.wire.http import origin

if TYPE_CHECKING:
    import aiohttp

    from holdfast.answer import Answer
    from holdfast.content import Content
    from holdfast.runtime.engine import HttpEngine

__all__ = ["ask", "connect"]

T = TypeVar("T")


def connect(
    agent: str | Path | AgentCard | Mapping[str, Any],
    *,
    auth: str | Mapping[str, str] | AuthProvider | None = None,
    timeout: float = 900.0,
    card_ttl: float = 300.0,
    resilience: Resilience | None = None,
    engine: HttpEngine | aiohttp.ClientSession | None = None,
    shared: Endpoints | None = None,
    env: Env | None = None,
    url: str | None = None,
    tenant: str | None = None,
    bindings: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    credential_origins: Iterable[str] = (),
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
        auth: A value for ``Authorization``, headers, or an `AuthProvider`.
        timeout: Seconds for a whole call, with everything that is tried again.
        card_ttl: Seconds that the card is kept.
        resilience: What to do when things go wrong; `Resilience.standard()` if left out.
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
        interceptors: See `Interceptor`.
        consumers: Called with every task and message; see `Consumer`.
        observers: Called with what happens; see `Observer`.
        call_layers: Your own layers around each call, outermost first.
        attempt_layers: Your own layers around each attempt, outermost first.

    Raises:
        ValueError: An address, a header, a binding or a number that cannot be right.
        TypeError: An argument of another type.
    """
    resilience = Resilience.standard() if resilience is None else resilience
    env = SystemEnv() if env is None else env
    endpoints = Endpoints() if shared is None else shared  # an empty registry is false
    _check_kind("resilience", resilience, Resilience)
    _check_kind("shared", endpoints, Endpoints)
    _check_able("env", env, "wall", "random", "new_id")
    provider = to_provider(auth)
    own_headers = check_headers({} if headers is None else headers)
    check_timeout(timeout)
    _check_ttl(card_ttl)
    interceptors = _hooks("interceptors", interceptors, "before", "after")
    consumers = _hooks("consumers", consumers, "__call__")
    observers = _hooks("observers", observers, "__call__")
    call_layers = _hooks("call_layers", call_layers, "__call__")
    attempt_layers = _hooks("attempt_layers", attempt_layers, "__call__")
    route = _route(
        agent,
        url=url,
        tenant=tenant,
        bindings=bindings,
        credential_origins=credential_origins,
        has_credentials=provider is not None,
    )
    used, owned = _engine(engine)
    observe = Observers((log, *observers))

    def observed(inner: Transport) -> Transport:
        return ObservedLayer(inner, observe)

    def intercepted(inner: Transport) -> Transport:
        return InterceptorLayer(inner, interceptors) if interceptors else inner

    def retried(inner: Transport) -> Transport:
        return RetryLayer(inner, resilience.retry, resilience.budget, env, observe)

    def routed(inner: Transport) -> Transport:
        return InterfaceLayer(inner, resolver, route, endpoints)

    def authorized(inner: Transport) -> Transport:
        return inner if provider is None else CredentialsLayer(inner, provider)

    resolver = AgentCardResolver(
        agent,
        compose((retried, authorized), CardTransport(used, env, resilience.timeouts)),
        endpoints,
        ttl=card_ttl,
    )
    transport = compose(
        (
            observed,
            intercepted,
            *call_layers,
            OutcomeLayer,
            DeadlineLayer,
            routed,
            retried,
            *attempt_layers,
            authorized,
        ),
        HttpBinding(used, env, resilience),
    )
    return Client(
        transport,
        compose((observed, DeadlineLayer), resolver),
        resolver,
        env,
        owned=owned,
        timeout=timeout,
        headers=own_headers,
        consumers=consumers,
    )


async def ask(agent: str, message: Content, **options: Any) -> Answer:
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
    _check_able("engine", engine, "request", "stream", "close")
    return cast("HttpEngine", engine), None


def _route(
    agent: str | Path | AgentCard | Mapping[str, Any],
    *,
    url: str | None,
    tenant: str | None,
    bindings: Sequence[str],
    credential_origins: Iterable[str],
    has_credentials: bool,
) -> Route:
    bindings = _items("bindings", bindings)
    for binding in bindings:
        if binding not in tuple(BINDINGS):
            text = f"{binding!r} is no binding; bindings is a sequence of {', '.join(BINDINGS)}"
            raise ValueError(text)
    if tenant is not None:
        _check_kind("tenant", tenant, str)
    named = [
        _check_url(address, "credential origin")
        for address in _items("credential_origins", credential_origins)
    ]
    if url is not None:
        named.append(_check_url(url, "url"))
    if isinstance(agent, str):
        named.append(_check_url(agent, "agent URL"))
    elif not isinstance(cast("object", agent), Path | AgentCard | Mapping):
        text = f"agent is a URL, a Path, an AgentCard or a dict, not {type(agent).__name__}"
        raise TypeError(text)
    return Route(
        bindings=bindings,
        url=url,
        tenant=tenant,
        trusted=frozenset(origin(address) for address in named),
        trust_first=not isinstance(agent, str),
        has_credentials=has_credentials,
    )


def _check_url(url: object, what: str) -> str:
    """Checks an address. What may be a secret in it, before an ``@`` or in the query, stays out.

    Raises:
        ValueError: It is none.
        TypeError: It is no string.
    """
    if not isinstance(url, str):
        text = f"the {what} is a string, not {type(url).__name__}"
        raise TypeError(text)
    shown = re.split(r"[?#]", url, maxsplit=1)[0]
    if "@" in re.split(r"[/?#]", url.partition("://")[2] or url, maxsplit=1)[0]:
        text = f"the {what} holds a user name or password; pass them as auth= instead"
        raise ValueError(text)
    if any(character.isspace() or not character.isprintable() for character in url):
        text = f"the {what} {shown!r} has a space or a control character in it"
        raise ValueError(text)
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        text = f"the {what} {shown!r} is no URL: {error}"
        raise ValueError(text) from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        text = f"the {what} {shown!r} must begin with http:// or https:// and name a host"
        raise ValueError(text)
    return url


def _check_ttl(seconds: object) -> None:
    if not isinstance(seconds, int | float):
        text = f"card_ttl is a number of seconds, not {type(seconds).__name__}"
        raise TypeError(text)
    if not seconds >= 0:
        text = f"card_ttl must not be negative, and is {seconds}"
        raise ValueError(text)


def _check_kind(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        text = f"{name} is a {kind.__name__}, not {type(value).__name__}"
        raise TypeError(text)


def _check_able(name: str, value: object, *methods: str) -> None:
    """Checks what a caller passes for a protocol by what it can do."""
    if isinstance(value, type) or not all(callable(getattr(value, m, None)) for m in methods):
        needed = ", ".join(methods)
        text = f"{name} needs something that has {needed}, not {type(value).__name__}"
        raise TypeError(text)


def _hooks(name: str, hooks: Iterable[T], *methods: str) -> tuple[T, ...]:
    checked = _items(name, hooks)
    for hook in checked:
        able = all(callable(getattr(hook, method, None)) for method in methods)
        if not able or (isinstance(hook, type) and methods != ("__call__",)):
            text = f"{type(hook).__name__} cannot be one of the {name}"
            raise TypeError(text)
    return checked


def _items(name: str, items: Iterable[T]) -> tuple[T, ...]:
    given = cast("object", items)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        text = f"{name} is a sequence, not {type(given).__name__}"
        raise TypeError(text)
    return tuple(items)
