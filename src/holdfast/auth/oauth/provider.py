"""Tokens as credentials: kept, renewed before they end, and replaced after a 401.

Rules: all calls of one event loop share one fetch, and all loops, threads and processes that share
a `TokenStore` take turns; a token that is refused is forgotten only if it is still the one in use;
what an authorization server answers is a failure of the credentials, and never of the agent.
"""

from __future__ import annotations

import asyncio
import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import msgspec

from holdfast.arguments import (
    check_able,
    check_credential,
    check_options,
    check_seconds,
    items,
    not_empty,
)
from holdfast.auth.oauth.flights import Flight
from holdfast.auth.oauth.requests import AskedServer, ClientIdentity, error_code, oauth_library
from holdfast.auth.oauth.servers import (
    AuthorizationServer,
    FromCard,
    check_endpoint,
    discover,
    named_in,
)
from holdfast.auth.oauth.tokens import MemoryTokenStore, Token
from holdfast.engines import check_tls, engine_of
from holdfast.errors import A2AError, AuthenticationError, CredentialOriginError
from holdfast.model.settings import check_kind, check_number
from holdfast.runtime.engine import EngineWithin
from holdfast.runtime.env import SystemEnv
from holdfast.runtime.perloop import PerLoop
from holdfast.wire.challenges import bearer_challenge
from holdfast.wire.credentials import Credentials
from holdfast.wire.origins import canonical_origin
from holdfast.wire.reach import Reach

if TYPE_CHECKING:
    from collections.abc import Iterable

    import aiohttp

    from holdfast.auth.oauth.tokens import TokenStore
    from holdfast.errors import PermissionDeniedError
    from holdfast.model.card import AgentCard
    from holdfast.net.tls_config import TlsConfig
    from holdfast.runtime.engine import HttpEngine
    from holdfast.runtime.env import Env
    from holdfast.runtime.transport import AnyCall

__all__ = ["Asking", "OAuthOptions", "OAuthProvider"]

_METHODS = ("client_secret_basic", "client_secret_post", "none")
_NOTHING = Credentials()
_PAUSE = 30.0
"""Seconds after a refused token for which its successor stays, though that is refused as well: an
agent that takes none would have a new one fetched, or a person asked, for each call."""


class Asking(NamedTuple):
    """What a token is asked for.

    Attributes:
        endpoint: Whom to ask.
        scopes: What it must be for.
        resource: Whom it is for (RFC 8707); None where that is not said.
    """

    endpoint: AskedServer
    scopes: tuple[str, ...]
    resource: str | None

    def parameters(self, grant: str, **more: str) -> dict[str, str]:
        """The parameters of a request for a token by some grant."""
        said = {"grant_type": grant, **more}
        if self.scopes:
            said["scope"] = " ".join(self.scopes)
        if self.resource is not None:
            said["resource"] = self.resource
        return said


class _Purpose(NamedTuple):
    """What tokens are for that are the same for all: who gives them, whom they are shown to.

    How far inside whoever gives them may be is said by the client that asks.
    """

    place: str
    metadata_url: str | None
    server: AuthorizationServer | None
    scopes: tuple[str, ...]
    reach: Reach | None = None

    def key(self, client_id: str, scopes: tuple[str, ...], resource: str | None) -> str:
        return " ".join((self.place, client_id, *sorted(scopes), f"resource={resource or ''}"))


class _Held(msgspec.Struct):
    """The tokens of one event loop: by purpose, with the moment at which each ends."""

    tokens: dict[str, tuple[Token, float | None]] = {}
    flights: dict[str, Flight[Token]] = {}


class OAuthOptions(TypedDict, total=False):
    """What every provider of tokens takes besides its own arguments.

    Attributes:
        client_auth: How the client says who it is: ``client_secret_basic``,
            ``client_secret_post`` or ``none``; what the server takes if left out.
        scopes: What tokens must be for, besides what the card requires (`FromCard`).
        resource: Whom tokens are for (RFC 8707): the agent's address.
        step_up: Whether to ask for the scopes that an agent says are missing.
        store: Where tokens are kept; in memory if left out.
        margin: Seconds before its end in which a token is not used any more; at most a quarter
            of its life.
        timeout: Seconds that the authorization server has for each token.
        engine: What carries requests to it; used and not closed. If left out, connections are
            made for each fetch, and closed after it.
        tls: Whom to trust there, and which certificate to show, without `engine`.
        env: Wall time, for tests.
    """

    client_auth: str | None
    scopes: Iterable[str]
    resource: str | None
    step_up: bool
    store: TokenStore | None
    margin: float
    timeout: float
    engine: HttpEngine | aiohttp.ClientSession | None
    tls: TlsConfig | None
    env: Env | None


class OAuthProvider(ABC):
    """Shows tokens of an authorization server to an agent; an `AuthProvider`.

    Give it as ``auth=`` to `connect`; several clients may share it. The token goes to the origins
    that the client trusts and nowhere else, as all credentials do.
    """

    _flow: str
    _patience: float | None = None
    """Seconds that a person may take; None where nobody is asked."""

    def __init__(
        self,
        server: str | AuthorizationServer | FromCard,
        client_id: str,
        *,
        client_secret: str | None = None,
        client_auth: str | None = None,
        scopes: Iterable[str] = (),
        resource: str | None = None,
        step_up: bool = False,
        store: TokenStore | None = None,
        margin: float = 30.0,
        timeout: float = 30.0,
        engine: HttpEngine | aiohttp.ClientSession | None = None,
        tls: TlsConfig | None = None,
        env: Env | None = None,
        **unknown: object,
    ) -> None:
        known = tuple(OAuthOptions.__annotations__)
        check_options(type(self).__name__, unknown, known, of=type(self))
        oauth_library()
        self._server = _checked_server(server)
        not_empty("client_id", client_id)
        if client_secret is not None:
            check_credential("client_secret", client_secret)
        if client_auth is not None and client_auth not in _METHODS:
            text = f"client_auth must be one of {', '.join(_METHODS)}"
            raise ValueError(text)
        if client_auth is not None and (client_auth == "none") != (client_secret is None):
            text = f"client_auth={client_auth!r} and client_secret do not fit each other"
            raise ValueError(text)
        self._client = ClientIdentity(
            client_id=client_id, client_secret=client_secret, method=client_auth
        )
        self._scopes = tuple(dict.fromkeys(items("scopes", scopes)))
        if resource is not None:
            check_endpoint(resource, "resource")
        self._resource = resource
        check_kind("step_up", step_up, bool)
        self._step_up = step_up
        if store is not None:
            check_able("store", store, "load", "save", "remove", "turn")
        self._store: TokenStore = MemoryTokenStore() if store is None else store
        check_number("margin", margin, "number of seconds")
        self._margin = max(0.0, margin)
        self._timeout = check_seconds("timeout", timeout)
        check_tls(tls, engine)
        if engine is not None:
            engine_of(engine)
        self._engine, self._tls = engine, tls
        self._env = SystemEnv() if env is None else env
        self._held = PerLoop(_Held)
        self._more: dict[str, tuple[str, ...]] = {}
        self._vain: dict[str, tuple[str, ...]] = {}
        self._refused: dict[str, tuple[str, float]] = {}
        self._found: dict[str, tuple[AuthorizationServer, Reach | None]] = {}

    async def credentials(self, call: AnyCall, /) -> Credentials:
        """A token that has not ended, fetched where there is none.

        Raises:
            AuthenticationError: There is none to be had; `data` is what the server says.
            CredentialOriginError: The card names a server that is not trusted.
        """
        purpose = self._purpose(call)
        if purpose is None:
            return _NOTHING
        token = await self._token(purpose)
        return Credentials(headers={"authorization": f"Bearer {token.access_token}"})

    async def on_unauthorized(self, call: AnyCall, error: AuthenticationError, /) -> bool:
        """Whether there is another token than the one that was refused."""
        purpose = self._purpose(call)
        if purpose is None:
            return False
        challenge = bearer_challenge(error.headers)
        if challenge is not None and challenge.error == "insufficient_scope":
            return await self._stepped_up(purpose, error, challenge.scopes, shown=_shown(call))
        if challenge is not None and challenge.error == "invalid_request":
            return False
        refused = _shown(call)
        self._forget(purpose, refused)
        return (await self._token(purpose)).access_token != refused

    def note_refused(self, call: AnyCall, error: AuthenticationError, /) -> None:
        """Told of a 401 after which the call is not sent again: the token is not used again."""
        challenge = bearer_challenge(error.headers)
        is_bad = challenge is None or challenge.error in {None, "invalid_token"}
        purpose = self._purpose(call) if is_bad else None
        if purpose is not None:
            self._forget(purpose, _shown(call))

    async def on_forbidden(self, call: AnyCall, error: PermissionDeniedError, /) -> bool:
        """Whether there is a token for more, where the one that was shown is for too little."""
        purpose, challenge = self._purpose(call), bearer_challenge(error.headers)
        if purpose is None or challenge is None or challenge.error != "insufficient_scope":
            return False
        return await self._stepped_up(purpose, error, challenge.scopes, shown=_shown(call))

    async def token(self, agent_card: AgentCard | None = None) -> Token:
        """The token that a call would carry, fetched where there is none.

        Args:
            agent_card: The card that names the server, where that is left to it.

        Raises:
            AuthenticationError: See `credentials`.
            CredentialOriginError: See `credentials`.
        """
        purpose = self._purpose_for(agent_card, "")
        if purpose is None:
            text = "no authorization server is known: pass the agent's card"
            raise AuthenticationError(text, executed=False)
        return await self._token(purpose)

    @abstractmethod
    async def _grant(self, asking: Asking) -> Token:
        """Gets a token from nothing but the grant."""

    # ── What for ─────────────────────────────────────────────────────────────────────────────

    def _purpose(self, call: AnyCall) -> _Purpose | None:
        purpose = self._purpose_for(
            call.card, "" if call.endpoint is None else call.endpoint.interface.url
        )
        if purpose is None or call.reach is None or not call.reach.is_strict:
            return purpose
        return purpose._replace(reach=call.reach)

    def _purpose_for(self, card: AgentCard | None, url: str) -> _Purpose | None:
        server = self._server
        if isinstance(server, str):
            return _Purpose(server, None, None, ())
        if isinstance(server, AuthorizationServer):
            return _Purpose(server.token_endpoint, None, server, ())
        named = None if card is None else named_in(card, self._flow, server)
        if named is None:
            return None
        # What one agent's card says counts for that agent alone; and what one server gave out is
        # shown to no other one, though the card names that now.
        at = named.metadata_url or ("" if named.server is None else named.server.token_endpoint)
        place = f"{canonical_origin(url) if url else ''} {named.scheme} {at}"
        return _Purpose(place, named.metadata_url, named.server, named.scopes)

    def _key(self, purpose: _Purpose) -> tuple[str, tuple[str, ...]]:
        base = tuple(dict.fromkeys((*self._scopes, *purpose.scopes)))
        key = purpose.key(self._client.client_id, base, self._resource)
        return key, tuple(dict.fromkeys((*base, *self._more.get(key, ()))))

    # ── Having one ───────────────────────────────────────────────────────────────────────────

    async def _token(self, purpose: _Purpose) -> Token:
        key, scopes = self._key(purpose)
        held = self._held.here()
        known = held.tokens.get(key)
        if known is not None and self._is_fresh(*known):
            return known[0]
        flight = held.flights.setdefault(key, Flight())
        try:
            return await flight.joined(lambda: self._fetched(purpose, key, scopes, flight))
        except A2AError as error:
            raise self._failure(error) from error
        except TimeoutError as error:
            text = f"the authorization server gave no token for {self._timeout:g} s or more"
            raise AuthenticationError(text, transient=True, executed=False) from error

    def _failure(self, error: A2AError) -> AuthenticationError | A2AError:
        """The error of one who waits, with facts of its own."""
        if isinstance(error, CredentialOriginError):
            return copy.copy(error)
        if isinstance(error, AuthenticationError):
            own = AuthenticationError(error.message, schemes=error.schemes, missing=error.missing)
        else:
            own = AuthenticationError(f"no token could be had: {error.message}")
        for name, fact in error.facts().items():
            setattr(own, name, fact)
        own.executed = False
        return own

    def _is_fresh(self, token: Token, ends: float | None) -> bool:
        """Whether it may be used, by both clocks: one may be set, and the other one sleeps."""
        left = token.left(self._env.wall(), margin=self._margin)
        if left is not None and left <= 0:
            return False
        return ends is None or asyncio.get_running_loop().time() < ends

    def _hold(self, key: str, token: Token) -> None:
        left = token.left(self._env.wall(), margin=self._margin)
        ends = None if left is None else asyncio.get_running_loop().time() + left
        self._held.here().tokens[key] = (token, ends)

    async def _fetched(
        self, purpose: _Purpose, key: str, scopes: tuple[str, ...], flight: Flight[Token]
    ) -> Token:
        """What the store has, or what the server gives; nothing of it is interrupted half-way."""
        limit = self._timeout
        if self._patience is not None:  # somebody else's person first, and then one's own
            limit = 2 * (self._patience + 2 * self._timeout)
        async with asyncio.timeout(limit), self._store.turn(key):
            token = await self._store.load(key)
            if token is not None and self._is_usable(token, key):
                self._hold(key, token)
                return token
            owned: HttpEngine | None = None
            used, owned = engine_of(self._engine, self._tls)
            if purpose.reach is not None:
                used = EngineWithin(used, purpose.reach)
            try:
                fresh = await self._got(purpose, scopes, used, token, flight)
            except A2AError:
                self._found.pop(purpose.place, None)  # it may have moved
                raise
            finally:
                if owned is not None:
                    await owned.close()
            if fresh.scopes is None:  # it is for what was asked for (RFC 6749, 5.1)
                fresh = msgspec.structs.replace(fresh, scopes=scopes)
            self._hold(key, fresh)
            await self._store.save(key, fresh)
        return fresh

    def _is_usable(self, token: Token, key: str) -> bool:
        left = token.left(self._env.wall(), margin=self._margin)
        is_enough = set(self._more.get(key, ())) <= set(token.scopes or ())
        known = self._held.here().tokens.get(key)  # which is there only if it is over
        is_over = known is not None and known[0].access_token == token.access_token
        is_refused = token.access_token == self._refused.get(key, ("", 0.0))[0]
        return is_enough and not (is_over or is_refused) and (left is None or left > 0)

    async def _got(
        self,
        purpose: _Purpose,
        scopes: tuple[str, ...],
        engine: HttpEngine,
        last: Token | None,
        flight: Flight[Token],
    ) -> Token:
        server, reach = await self._where(purpose, engine)
        endpoint = AskedServer(engine, self._env, server, self._client, reach)
        asking = Asking(endpoint, scopes, self._resource)
        if last is not None and last.refresh_token is not None:
            flight.must_land()  # what it is spent for would be lost
            try:
                async with asyncio.timeout(self._timeout):
                    return await _refreshed(asking, last)
            except AuthenticationError as error:
                if not _is_spent(error):
                    raise
        return await self._grant(asking)

    async def _where(
        self, purpose: _Purpose, engine: HttpEngine
    ) -> tuple[AuthorizationServer, Reach | None]:
        if purpose.server is not None:
            return purpose.server, None
        found = self._found.get(purpose.place)
        if found is None:
            issuer = purpose.metadata_url or purpose.place
            async with asyncio.timeout(self._timeout):
                said = await discover(engine, issuer, at=purpose.metadata_url)
            if isinstance(self._server, FromCard):
                self._server.check_server(said.server)
            found = self._found[purpose.place] = (said.server, Reach(inward=said.asked))
        return found

    # ── Having another one ───────────────────────────────────────────────────────────────────

    def _forget(self, purpose: _Purpose, refused: str) -> None:
        """Uses a token no more that was refused, if it is still the one in use."""
        key, _ = self._key(purpose)
        held = self._held.here()
        known, now = held.tokens.get(key), asyncio.get_running_loop().time()
        last, at = self._refused.get(key, (refused, now))
        if last != refused and 0 <= now - at < _PAUSE:
            return
        if known is not None and known[0].access_token == refused:
            del held.tokens[key]
        self._refused[key] = (refused, now)

    async def _stepped_up(
        self, purpose: _Purpose, error: A2AError, wanted: tuple[str, ...], *, shown: str
    ) -> bool:
        key, scopes = self._key(purpose)
        vain = self._vain.get(key, ())
        missing = tuple(one for one in wanted if one not in scopes and one not in vain)
        if self._step_up and wanted and not missing:
            flight = self._held.here().flights.get(key)
            if key in self._more and flight is not None and flight.is_under_way:
                await self._token(purpose)  # somebody else asks for the same just now
            known = self._held.here().tokens.get(key)
            if known is not None and known[0].access_token != shown:
                return True
        if not missing or not self._step_up:
            named = " ".join(wanted) or "more"
            advice = "" if self._step_up else "; pass scopes=, or step_up=True to ask for them"
            error.message = f"{error.message}; the token must be for {named}{advice}"
            return False
        before = self._more.get(key)
        held = self._held.here()
        last = held.tokens.pop(key, None)
        self._more[key] = (*(before or ()), *missing)
        try:
            await self._token(purpose)
        except BaseException as failure:
            # What an agent wants in vain must not keep the others from what they had.
            if isinstance(failure, A2AError) and not failure.transient:
                self._vain[key] = (*vain, *missing)
            if before is None:
                self._more.pop(key, None)
            else:
                self._more[key] = before
            if last is not None:
                held.tokens.setdefault(key, last)
            raise
        return True

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


def _shown(call: AnyCall) -> str:
    """The token that a call carried."""
    return call.headers.get("authorization", "").removeprefix("Bearer ")


async def _refreshed(asking: Asking, last: Token) -> Token:
    """Spends a refresh token (RFC 6749, 6); where the server gives no other, it stays."""
    spent = last.refresh_token or ""
    parameters = asking.parameters("refresh_token", refresh_token=spent)
    if last.scopes is None or not set(asking.scopes) - set(last.scopes):
        parameters.pop("scope", None)  # the same as before
    fresh = await asking.endpoint.ask_token(parameters)
    if fresh.refresh_token is None:
        fresh = msgspec.structs.replace(fresh, refresh_token=spent)
    if fresh.scopes is None:
        fresh = msgspec.structs.replace(fresh, scopes=last.scopes)
    return fresh


def _is_spent(error: AuthenticationError) -> bool:
    """Whether a refresh token is worth nothing any more, so that the grant begins anew."""
    return error_code(error) in {"invalid_grant", "invalid_scope"}
