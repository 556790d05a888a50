"""OAuth tokens as credentials: cached, renewed before they expire, and replaced after a 401.

Rules: all calls of one event loop share one fetch; loops, threads and processes that share a
`TokenStore` fetch one after the other. A refused token is dropped only if it is still the current
one. An error of the authorization server is a failure of the credentials, never of the agent.
"""

from __future__ import annotations

import asyncio
import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict, TypeVar
from urllib.parse import urlsplit

import msgspec

from holdfast._aio.cancel_scope import wait_within
from holdfast._aio.env import SystemEnv
from holdfast._aio.per_loop import PerLoop
from holdfast._aio.single_flight import SingleFlight
from holdfast._arguments import (
    check_credential,
    check_items,
    check_methods,
    check_not_empty,
    check_options,
    check_seconds,
)
from holdfast._auth.oauth.requests import (
    ClientIdentity,
    OAuthEndpoint,
    concerns_resource,
    error_code,
    oauth_library,
)
from holdfast._auth.oauth.servers import (
    AuthorizationServer,
    FromCard,
    card_server,
    check_endpoint,
    discover,
)
from holdfast._auth.oauth.step_up import StepUp
from holdfast._auth.oauth.tokens import MemoryTokenStore, Token
from holdfast._model.bounded_dict import BoundedDict
from holdfast._model.settings import check_kind, check_number
from holdfast._net.engine import EngineWithin
from holdfast._net.resolve_engine import check_tls, resolve_engine
from holdfast._wire.challenges import bearer_challenge
from holdfast._wire.credentials import Credentials
from holdfast._wire.http import presentable
from holdfast._wire.network_scope import NetworkReach
from holdfast._wire.origins import audience, canonical_origin
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    AuthenticationError,
    CredentialOriginError,
)
from holdfast.types import AgentCard

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    import aiohttp

    from holdfast._aio.env import Env
    from holdfast._auth.oauth.tokens import TokenStore
    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig
    from holdfast._pipeline.transport import AnyCall
    from holdfast.errors import PermissionDeniedError

__all__ = ["GrantRequest", "OAuthOptions", "OAuthProvider"]

T = TypeVar("T")

_CLIENT_AUTH_METHODS = ("client_secret_basic", "client_secret_post", "none")
_NO_CREDENTIALS = Credentials()
_MAX_PURPOSES = 256
"""Purposes of tokens to remember: a card may name others each time."""
_REPLACEMENT_PAUSE_S = 30.0
"""Seconds after a refused token in which its successor is kept, even if that is refused too.
Otherwise an agent that refuses every token would cause a fetch, or a login, for each call."""


class GrantRequest(NamedTuple):
    """Request for a token by a grant.

    Attributes:
        endpoint: The authorization server to call.
        scopes: Scopes that the token must have.
        resource: Resource of the token (RFC 8707); None to send none.
    """

    endpoint: OAuthEndpoint
    scopes: tuple[str, ...]
    resource: str | None

    def parameters(self, grant: str, **more: str) -> dict[str, str]:
        """Return the parameters of a token request."""
        form = {"grant_type": grant, **more}
        if self.scopes:
            form["scope"] = " ".join(self.scopes)
        if self.resource is not None:
            form["resource"] = self.resource
        return form


class _Purpose(NamedTuple):
    """Key of tokens: tokens with the same key are interchangeable.

    `reach`, which is not part of the key, limits the networks of the server for this client.
    """

    source: str
    metadata_url: str | None
    server: AuthorizationServer | None
    scopes: tuple[str, ...]
    resource: str | None = None
    reach: NetworkReach | None = None

    def key(self, client_id: str) -> str:
        parts = (self.source, client_id, *sorted(self.scopes), f"resource={self.resource or ''}")
        return " ".join(parts)


class _LoopTokens(msgspec.Struct):
    """Tokens of one event loop by purpose, each with its expiry on the loop's clock."""

    tokens: BoundedDict[str, tuple[Token, float | None]] = msgspec.field(
        default_factory=lambda: BoundedDict(_MAX_PURPOSES)
    )
    fetches: SingleFlight[Token] = msgspec.field(default_factory=lambda: SingleFlight(_cancelled))


def _cancelled() -> AuthenticationError:
    return AuthenticationError("the token request was cancelled", executed=False)


class OAuthOptions(TypedDict, total=False):
    """Options of every provider of OAuth tokens.

    Attributes:
        client_auth: How the client authenticates: ``client_secret_basic``, ``client_secret_post``
            or ``none``; by default a method that the server supports.
        scopes: Scopes of the tokens, in addition to those that the card requires (`FromCard`).
        resource: Resource of the tokens (RFC 8707), as an absolute URI. By default the origin of a
            call, such as ``https://agent.example.com``: one token serves all interfaces of an
            agent there, and no agent elsewhere. False sends no resource, for servers that reject
            the parameter.
        step_up: Scopes that the client requests if an agent answers that they are missing (403,
            ``insufficient_scope``). True allows the scopes that the agent's card declares, which
            the agent itself writes; False, the default, allows none.
        store: Storage of tokens; in memory by default.
        margin: Seconds before the expiry in which a token is not used any more, 30 by default; at
            most a quarter of its lifetime.
        timeout: Seconds that the authorization server has for each token, more than 0, 30 by
            default.
        engine: Carries requests to the authorization server; not closed. By default connections
            are opened for each fetch, and closed after it.
        tls: TLS settings for the authorization server, without `engine`.
        env: Provides wall time, for tests.
    """

    client_auth: str | None
    scopes: Iterable[str]
    resource: str | Literal[False] | None
    step_up: bool | Iterable[str]
    store: TokenStore | None
    margin: float
    timeout: float
    engine: HttpEngine | aiohttp.ClientSession | None
    tls: TlsConfig | None
    env: Env | None


class OAuthProvider(ABC):
    """Base class of providers of OAuth tokens; an `AuthProvider`.

    Pass it as ``auth=`` to `connect`; several clients may share it. Like all credentials, tokens
    are sent only to origins that the client trusts.
    """

    _flow: str
    _user_timeout: float | None = None
    """Seconds that a user may take; None for grants without a user."""

    def __init__(
        self,
        server: str | AuthorizationServer | FromCard,
        client_id: str,
        *,
        client_secret: str | None = None,
        client_auth: str | None = None,
        scopes: Iterable[str] = (),
        resource: str | Literal[False] | None = None,
        step_up: bool | Iterable[str] = False,
        store: TokenStore | None = None,
        margin: float = 30.0,
        timeout: float = 30.0,
        engine: HttpEngine | aiohttp.ClientSession | None = None,
        tls: TlsConfig | None = None,
        env: Env | None = None,
        **unknown: object,
    ) -> None:
        option_names = tuple(OAuthOptions.__annotations__)
        check_options(type(self).__name__, unknown, option_names, function=type(self))
        oauth_library()
        self._server = _checked_server(server)
        check_not_empty("client_id", client_id)
        if client_secret is not None:
            check_credential("client_secret", client_secret)
        if client_auth is not None and client_auth not in _CLIENT_AUTH_METHODS:
            text = f"client_auth must be one of {', '.join(_CLIENT_AUTH_METHODS)}"
            raise ValueError(text)
        if client_auth is not None and (client_auth == "none") != (client_secret is None):
            relation = "excludes" if client_secret is not None else "needs"
            text = f"client_auth={client_auth!r} {relation} client_secret"
            raise ValueError(text)
        self._client = ClientIdentity(
            client_id=client_id, client_secret=client_secret, method=client_auth
        )
        self._scopes = tuple(dict.fromkeys(check_items("scopes", scopes)))
        self._resource: str | Literal[False] | None = _checked_resource(resource)
        allowed = step_up if isinstance(step_up, bool) else check_items("step_up", step_up)
        self._step_up = StepUp(allowed)
        if store is not None:
            check_methods("store", store, "load", "save", "remove", "turn")
        self._store: TokenStore = MemoryTokenStore() if store is None else store
        check_number("margin", margin, "number of seconds")
        self._margin = max(0.0, margin)
        self._timeout = check_seconds("timeout", timeout)
        check_tls(tls, engine)
        if engine is not None:
            resolve_engine(engine)
        self._engine, self._tls = engine, tls
        self._env = SystemEnv() if env is None else env
        self._loop_tokens = PerLoop(_LoopTokens)
        self._refused: BoundedDict[str, tuple[str, float]] = BoundedDict(_MAX_PURPOSES)
        self._servers: BoundedDict[str, tuple[AuthorizationServer, NetworkReach | None]] = (
            BoundedDict(_MAX_PURPOSES)
        )

    async def credentials(self, call: AnyCall, /) -> Credentials:
        """Return a valid token, fetching one if there is none.

        Args:
            call: The call.

        Raises:
            AuthenticationError: No token was issued; the error's ``data`` is the server's
                response.
            CredentialOriginError: The card names a server that is not trusted.
        """
        purpose = self._purpose(call)
        if purpose is None:
            return _NO_CREDENTIALS
        token = await self._token(purpose)
        return Credentials(headers={"authorization": f"Bearer {token.access_token}"})

    async def on_unauthorized(self, call: AnyCall, error: AuthenticationError, /) -> bool:
        """Return True if there is another token than the refused one.

        Args:
            call: The call as it was sent, with the token that was refused.
            error: The error of the agent.
        """
        purpose = self._purpose(call)
        if purpose is None:
            return False
        challenge = bearer_challenge(error.headers)
        if challenge is not None and challenge.error == "insufficient_scope":
            return await self._stepped_up(call, purpose, error, challenge.scopes)
        if challenge is not None and challenge.error == "invalid_request":
            return False
        refused = _token_of(call)
        self._forget(purpose, refused)
        return (await self._token(purpose)).access_token != refused

    def note_refused(self, call: AnyCall, error: AuthenticationError, /) -> None:
        """Drop the token of a call that failed with 401 and will not be retried.

        Args:
            call: The call as it was sent, with the token that was refused.
            error: The error of the agent.
        """
        challenge = bearer_challenge(error.headers)
        is_bad = challenge is None or challenge.error in {None, "invalid_token"}
        purpose = self._purpose(call) if is_bad else None
        if purpose is not None:
            self._forget(purpose, _token_of(call))

    async def on_forbidden(self, call: AnyCall, error: PermissionDeniedError, /) -> bool:
        """Return True if a token with the missing scopes was obtained.

        Args:
            call: The call as it was sent.
            error: The error of the agent.
        """
        purpose, challenge = self._purpose(call), bearer_challenge(error.headers)
        if purpose is None or challenge is None or challenge.error != "insufficient_scope":
            return False
        return await self._stepped_up(call, purpose, error, challenge.scopes)

    async def token(self, agent_card: AgentCard | None = None) -> Token:
        """Return the token that a call would carry, fetching one if there is none.

        Args:
            agent_card: Card of the agent, as `Client.agent_card` returns it: its first interface
                determines the resource of the token, and it names the server for `FromCard`.
                Without it, and without ``resource``, the token is for no particular agent, and
                calls do not use it.

        Raises:
            AuthenticationError: No token was issued; the error's ``data`` is the server's
                response.
            CredentialOriginError: The card names a server that is not trusted.
            TypeError: The argument is not a card.
        """
        advice = " or None (await client.agent_card() returns the card)"
        check_kind("agent_card", agent_card, (AgentCard, type(None)), or_else=advice)
        interfaces = () if agent_card is None else agent_card.supported_interfaces
        purpose = self._purpose_for(agent_card, interfaces[0].url if interfaces else "")
        if purpose is None:
            text = "no authorization server is known: pass the agent's card"
            raise AuthenticationError(text, executed=False)
        return await self._token(purpose)

    @abstractmethod
    async def _grant(self, request: GrantRequest) -> Token:
        """Obtain a token by the grant."""

    # ── Purposes ─────────────────────────────────────────────────────────────────────────────

    def _purpose(self, call: AnyCall) -> _Purpose | None:
        purpose = self._purpose_for(
            call.card, "" if call.endpoint is None else call.endpoint.interface.url
        )
        if purpose is None or call.reach is None or not call.reach.is_strict:
            return purpose
        return purpose._replace(reach=call.reach)

    def _purpose_for(self, card: AgentCard | None, url: str) -> _Purpose | None:
        server, named_resource = self._server, self._resource
        resource = audience(url) if named_resource is None else named_resource or None
        if isinstance(server, str):
            return _Purpose(server, None, None, self._scopes, resource)
        if isinstance(server, AuthorizationServer):
            return _Purpose(server.token_endpoint, None, server, self._scopes, resource)
        named = None if card is None else card_server(card, self._flow, server)
        if named is None:
            return None
        # A card is valid only for its own agent; and a token of one server is not sent to
        # another one that the card names later.
        address = named.metadata_url or (named.server.token_endpoint if named.server else "")
        source = f"{canonical_origin(url) if url else ''} {named.scheme} {address}"
        scopes = tuple(dict.fromkeys((*self._scopes, *named.scopes)))
        return _Purpose(source, named.metadata_url, named.server, scopes, resource)

    def _key(self, purpose: _Purpose) -> str:
        return purpose.key(self._client.client_id)

    def _scopes_of(self, purpose: _Purpose) -> tuple[str, ...]:
        """Return the scopes to request: of the purpose, and those that step-ups added."""
        return tuple(dict.fromkeys((*purpose.scopes, *self._step_up.granted(self._key(purpose)))))

    # ── Fetching ─────────────────────────────────────────────────────────────────────────────

    async def _token(self, purpose: _Purpose, more: tuple[str, ...] = ()) -> Token:
        """Return a valid token; a new one with the scopes in `more`, if there are any."""
        key = self._key(purpose)
        state = self._loop_tokens.here()
        current = state.tokens.get(key)
        if not more and current is not None and self._is_fresh(*current):
            return current[0]
        name = " ".join((key, *sorted(more)))
        try:
            return await state.fetches.run(lambda: self._fetched(purpose, more, name), name)
        except A2AError as error:
            raise self._failure(error) from error

    def _failure(self, error: A2AError) -> AuthenticationError | A2AError:
        """Return the error for one waiting call, with its own facts."""
        if isinstance(error, CredentialOriginError):
            return copy.copy(error)
        if isinstance(error, AuthenticationError):
            own = AuthenticationError(error.message, schemes=error.schemes, missing=error.missing)
        elif isinstance(error, A2AConnectionError):
            own = AuthenticationError(
                f"could not get a token: the authorization server {error.agent} could not be "
                f"reached: {error.message}"
            )
        else:
            own = AuthenticationError(
                f"could not get a token from the authorization server {error.agent}: "
                f"{error.message}"
            )
        for name, fact in error.facts().items():
            setattr(own, name, fact)
        # The agent was not called: the address that failed is the server's.
        own.executed, own.agent, own.authorization_server = False, None, error.agent
        return own

    def _is_fresh(self, token: Token, expires_at: float | None) -> bool:
        """Return whether a token is valid by both clocks: one may be set, the other may stop."""
        remaining = token.remaining(self._env.wall(), margin=self._margin)
        if remaining is not None and remaining <= 0:
            return False
        return expires_at is None or asyncio.get_running_loop().time() < expires_at

    def _hold(self, key: str, token: Token) -> None:
        remaining = token.remaining(self._env.wall(), margin=self._margin)
        expires_at = None if remaining is None else asyncio.get_running_loop().time() + remaining
        self._loop_tokens.here().tokens[key] = (token, expires_at)

    async def _within_timeout(self, request: Awaitable[T]) -> T:
        """Return the result of a request to the authorization server, within `timeout`.

        Raises:
            AuthenticationError: The timeout has expired.
        """
        return await wait_within(self._timeout, request, self._timeout_error)

    def _timeout_error(self) -> AuthenticationError:
        text = f"the authorization server sent no token within {self._timeout:g} s"
        return AuthenticationError(text, transient=True, executed=False)

    async def _fetched(self, purpose: _Purpose, more: tuple[str, ...], name: str) -> Token:
        """Return the store's token, or a new one; a fetch that has started is completed."""
        seconds = self._timeout
        if self._user_timeout is not None:  # another provider's user first, then its own
            seconds = 2 * (self._user_timeout + 2 * self._timeout)
        fetching = self._fetched_in_turn(purpose, more, name)
        return await wait_within(seconds, fetching, self._timeout_error)

    async def _fetched_in_turn(self, purpose: _Purpose, more: tuple[str, ...], name: str) -> Token:
        key = self._key(purpose)
        async with self._store.turn(key):
            token = await self._store.load(key)
            # Read while locked: another step-up may have finished before.
            needed = {*self._step_up.granted(key), *more}
            if more and token is not None and not purpose.scopes:
                # The scopes that the server grants by default are kept.
                more = (*(token.scopes or ()), *more)
            scopes = tuple(dict.fromkeys((*self._scopes_of(purpose), *more)))
            if token is not None and self._is_usable(token, key, needed):
                self._step_up.note_granted(key, more)
                self._hold(key, token)
                return token
            owned: HttpEngine | None = None
            engine, owned = resolve_engine(self._engine, self._tls)
            if purpose.reach is not None:
                engine = EngineWithin(engine, purpose.reach)
            try:
                fresh = await self._obtain(purpose, scopes, engine, token, name)
            except A2AError:
                self._servers.pop(purpose.source, None)  # it may have moved
                raise
            finally:
                if owned is not None:
                    await owned.close()
            if fresh.scopes is None:  # those that were requested (RFC 6749, 5.1)
                fresh = msgspec.structs.replace(fresh, scopes=scopes)
            self._step_up.note_granted(key, more)
            self._hold(key, fresh)
            await self._store.save(key, fresh)
        return fresh

    def _current_scopes(self, key: str) -> tuple[str, ...]:
        """Return the scopes of the current token: a server may grant scopes by default."""
        current = self._loop_tokens.here().tokens.get(key)
        return () if current is None else current[0].scopes or ()

    def _is_usable(self, token: Token, key: str, needed: set[str]) -> bool:
        remaining = token.remaining(self._env.wall(), margin=self._margin)
        has_scopes = needed <= set(token.scopes or ())
        current = self._loop_tokens.here().tokens.get(key)  # expired, or with too few scopes
        is_expired = current is not None and current[0].access_token == token.access_token
        is_refused = token.access_token == self._refused.get(key, ("", 0.0))[0]
        return (
            has_scopes and not (is_expired or is_refused) and (remaining is None or remaining > 0)
        )

    async def _obtain(
        self,
        purpose: _Purpose,
        scopes: tuple[str, ...],
        engine: HttpEngine,
        last: Token | None,
        name: str,
    ) -> Token:
        server, reach = await self._resolve_server(purpose, engine)
        endpoint = OAuthEndpoint(engine, self._env, server, self._client, reach)
        request = GrantRequest(endpoint, scopes, purpose.resource)
        try:
            if last is not None and last.refresh_token is not None:
                self._loop_tokens.here().fetches.shield(name)  # its replacement would be lost
                try:
                    return await self._within_timeout(_refreshed(request, last))
                except AuthenticationError as error:
                    if not _is_spent(error):
                        raise
            return await self._grant(request)
        except AuthenticationError as error:
            if purpose.resource is not None and concerns_resource(error):
                error.message = (
                    f"{error.message}; the token was requested for the resource "
                    f"{presentable(purpose.resource)} (RFC 8707): pass resource= to name another "
                    "one, or resource=False to send none"
                )
            raise

    async def _resolve_server(
        self, purpose: _Purpose, engine: HttpEngine
    ) -> tuple[AuthorizationServer, NetworkReach | None]:
        if purpose.server is not None:
            return purpose.server, None
        resolved = self._servers.get(purpose.source)
        if resolved is None:
            issuer = purpose.metadata_url or purpose.source
            discovery = discover(engine, issuer, metadata_url=purpose.metadata_url)
            server, scope = await self._within_timeout(discovery)
            if isinstance(self._server, FromCard):
                self._server.check_server(server)
            resolved = self._servers[purpose.source] = (server, NetworkReach(inward=scope))
        return resolved

    # ── Replacing ────────────────────────────────────────────────────────────────────────────

    def _forget(self, purpose: _Purpose, refused: str) -> None:
        """Drop a refused token, if it is still the current one."""
        key = self._key(purpose)
        state = self._loop_tokens.here()
        current, now = state.tokens.get(key), asyncio.get_running_loop().time()
        last, refused_at = self._refused.get(key, (refused, now))
        if last != refused and 0 <= now - refused_at < _REPLACEMENT_PAUSE_S:
            return
        if current is not None and current[0].access_token == refused:
            del state.tokens[key]
        self._refused[key] = (refused, now)

    async def _stepped_up(
        self, call: AnyCall, purpose: _Purpose, error: A2AError, requested: tuple[str, ...]
    ) -> bool:
        """Request the scopes that a token lacks, if the agent is allowed to."""
        key = self._key(purpose)
        present = {*self._scopes_of(purpose), *self._current_scopes(key)}
        missing = tuple(dict.fromkeys(scope for scope in requested if scope not in present))
        objection = self._step_up.objection(key, missing, call.card)
        if requested and objection is None:
            # If nothing is missing, another step-up has added it meanwhile.
            try:
                token = await self._token(purpose, missing)
            except A2AError as failure:
                if missing and not failure.transient:
                    self._step_up.note_refused(key, missing)
                raise
            if token.access_token != _token_of(call):
                return True
        advice = "" if objection is None else f"; {objection}"
        needed = f"the scope {' '.join(requested)}" if requested else "more scopes"
        error.message = f"{error.message}; the token needs {needed}{advice}"
        return False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._client.client_id!r})"


def _checked_server(
    server: str | AuthorizationServer | FromCard,
) -> str | AuthorizationServer | FromCard:
    if isinstance(server, str):
        return check_endpoint(server, "issuer")
    kinds = (AuthorizationServer, FromCard)
    check_kind("server", server, kinds, or_else=", FromCard or an issuer's address")
    return server


def _checked_resource(resource: object) -> str | Literal[False] | None:
    if resource is None or resource is False:
        return resource
    check_kind("resource", resource, str, or_else=" or False")
    parts = urlsplit(str(resource))
    if not parts.scheme or "#" in str(resource) or any(char <= " " for char in str(resource)):
        text = "resource must be an absolute URI without fragment (RFC 8707, 2)"
        raise ValueError(text)
    if parts.username is not None:
        text = "resource must not contain credentials; pass client_id and client_secret instead"
        raise ValueError(text)
    return str(resource)


def _token_of(call: AnyCall) -> str:
    """Return the token that a call carried."""
    return call.headers.get("authorization", "").removeprefix("Bearer ")


async def _refreshed(request: GrantRequest, last: Token) -> Token:
    """Use a refresh token (RFC 6749, 6); it is kept unless the server issues another."""
    refresh_token = last.refresh_token or ""
    parameters = request.parameters("refresh_token", refresh_token=refresh_token)
    scopes = request.scopes  # of a response without scopes: the requested ones (5.1), or
    if last.scopes is not None and set(scopes) <= set(last.scopes):
        parameters.pop("scope", None)
        scopes = last.scopes  # if none are requested, the previous ones (6)
    fresh = await request.endpoint.request_token(parameters)
    if fresh.refresh_token is None:
        fresh = msgspec.structs.replace(fresh, refresh_token=refresh_token)
    if fresh.scopes is None:
        fresh = msgspec.structs.replace(fresh, scopes=scopes)
    return fresh


def _is_spent(error: AuthenticationError) -> bool:
    """Return whether a refresh token is invalid, so that the grant starts anew."""
    return error_code(error) in {"invalid_grant", "invalid_scope"}
