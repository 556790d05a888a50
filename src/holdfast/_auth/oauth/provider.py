"""Tokens as credentials: kept, renewed before they end, and replaced after a 401.

Rules: all calls of one event loop share one fetch, and all loops, threads and processes that share
a `TokenStore` take turns; a token that is refused is forgotten only if it is still the one in use;
what an authorization server answers is a failure of the credentials, and never of the agent.
"""

from __future__ import annotations

import asyncio
import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict, TypeVar
from urllib.parse import urlsplit

import msgspec

from holdfast._aio.cancel_scope import wait_until
from holdfast._aio.env import SystemEnv
from holdfast._aio.per_loop import PerLoop
from holdfast._aio.single_flight import SingleFlight
from holdfast._arguments import (
    check_able,
    check_credential,
    check_options,
    check_seconds,
    items,
    not_empty,
)
from holdfast._auth.oauth.requests import (
    AskedServer,
    ClientIdentity,
    concerns_resource,
    error_code,
    oauth_library,
)
from holdfast._auth.oauth.servers import (
    AuthorizationServer,
    FromCard,
    check_endpoint,
    discover,
    named_in,
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
from holdfast.errors import A2AError, AuthenticationError, CredentialOriginError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    import aiohttp

    from holdfast._aio.env import Env
    from holdfast._auth.oauth.tokens import TokenStore
    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig
    from holdfast._pipeline.transport import AnyCall
    from holdfast.errors import PermissionDeniedError
    from holdfast.types import AgentCard

__all__ = ["Asking", "OAuthOptions", "OAuthProvider"]

T = TypeVar("T")

_METHODS = ("client_secret_basic", "client_secret_post", "none")
_NOTHING = Credentials()
_REMEMBERED = 256
"""Purposes of tokens to remember: a card may name others each time."""
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

    The client that asks decides how far inside the network their server may be.
    """

    place: str
    metadata_url: str | None
    server: AuthorizationServer | None
    scopes: tuple[str, ...]
    resource: str | None = None
    reach: NetworkReach | None = None

    def key(self, client_id: str) -> str:
        said = (self.place, client_id, *sorted(self.scopes), f"resource={self.resource or ''}")
        return " ".join(said)


class _Held(msgspec.Struct):
    """The tokens of one event loop: by purpose, with the moment at which each ends."""

    tokens: BoundedDict[str, tuple[Token, float | None]] = msgspec.field(
        default_factory=lambda: BoundedDict(_REMEMBERED)
    )
    fetches: SingleFlight[Token] = msgspec.field(default_factory=lambda: SingleFlight(_cancelled))


def _cancelled() -> AuthenticationError:
    return AuthenticationError("the fetch of the token was cancelled", executed=False)


class OAuthOptions(TypedDict, total=False):
    """What every provider of tokens takes besides its own arguments.

    Attributes:
        client_auth: How the client says who it is: ``client_secret_basic``,
            ``client_secret_post`` or ``none``; what the server takes if left out.
        scopes: What tokens must be for, besides what the card requires (`FromCard`).
        resource: The resource that tokens are for (RFC 8707), as an absolute URI. If left out,
            it is the origin that a call goes to, such as ``https://agent.example.com``: one token
            serves all interfaces of an agent there, and no agent elsewhere. False sends no
            resource, for servers that refuse the parameter.
        step_up: The scopes that the client requests if an agent answers that they are missing
            (403, ``insufficient_scope``). True allows the scopes that the agent's card declares,
            which the agent itself writes; False, the default, allows none.
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
    resource: str | Literal[False] | None
    step_up: bool | Iterable[str]
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
        self._resource: str | Literal[False] | None = _checked_resource(resource)
        allowed = step_up if isinstance(step_up, bool) else items("step_up", step_up)
        self._step_up = StepUp(allowed)
        if store is not None:
            check_able("store", store, "load", "save", "remove", "turn")
        self._store: TokenStore = MemoryTokenStore() if store is None else store
        check_number("margin", margin, "number of seconds")
        self._margin = max(0.0, margin)
        self._timeout = check_seconds("timeout", timeout)
        check_tls(tls, engine)
        if engine is not None:
            resolve_engine(engine)
        self._engine, self._tls = engine, tls
        self._env = SystemEnv() if env is None else env
        self._held = PerLoop(_Held)
        self._refused: BoundedDict[str, tuple[str, float]] = BoundedDict(_REMEMBERED)
        self._found: BoundedDict[str, tuple[AuthorizationServer, NetworkReach | None]] = (
            BoundedDict(_REMEMBERED)
        )

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
            return await self._stepped_up(call, purpose, error, challenge.scopes)
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
        return await self._stepped_up(call, purpose, error, challenge.scopes)

    async def token(self, agent_card: AgentCard | None = None) -> Token:
        """The token that a call would carry, fetched where there is none.

        Args:
            agent_card: The card of the agent: its first interface says whom the token is for, and
                it names the server where that is left to it. Without it, and without `resource`,
                the token is for no agent in particular, and calls do not use it.

        Raises:
            AuthenticationError: See `credentials`.
            CredentialOriginError: See `credentials`.
        """
        interfaces = () if agent_card is None else agent_card.supported_interfaces
        purpose = self._purpose_for(agent_card, interfaces[0].url if interfaces else "")
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
        server, named_resource = self._server, self._resource
        resource = audience(url) if named_resource is None else named_resource or None
        if isinstance(server, str):
            return _Purpose(server, None, None, self._scopes, resource)
        if isinstance(server, AuthorizationServer):
            return _Purpose(server.token_endpoint, None, server, self._scopes, resource)
        named = None if card is None else named_in(card, self._flow, server)
        if named is None:
            return None
        # What one agent's card says counts for that agent alone; and what one server gave out is
        # shown to no other one, though the card names that now.
        at = named.metadata_url or ("" if named.server is None else named.server.token_endpoint)
        place = f"{canonical_origin(url) if url else ''} {named.scheme} {at}"
        scopes = tuple(dict.fromkeys((*self._scopes, *named.scopes)))
        return _Purpose(place, named.metadata_url, named.server, scopes, resource)

    def _key(self, purpose: _Purpose) -> str:
        return purpose.key(self._client.client_id)

    def _scopes_of(self, purpose: _Purpose) -> tuple[str, ...]:
        """What tokens are asked for: what they must be for, and what step-ups have added."""
        return tuple(dict.fromkeys((*purpose.scopes, *self._step_up.granted(self._key(purpose)))))

    # ── Having one ───────────────────────────────────────────────────────────────────────────

    async def _token(self, purpose: _Purpose, more: tuple[str, ...] = ()) -> Token:
        """A token that has not ended; another one for `more` scopes, if there are any."""
        key = self._key(purpose)
        held = self._held.here()
        known = held.tokens.get(key)
        if not more and known is not None and self._is_fresh(*known):
            return known[0]
        name = " ".join((key, *sorted(more)))
        try:
            return await held.fetches.run(lambda: self._fetched(purpose, more, name), name)
        except A2AError as error:
            raise self._failure(error) from error

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

    async def _within_timeout(self, request: Awaitable[T]) -> T:
        """Return what a request to the authorization server gives, within `timeout`.

        Raises:
            AuthenticationError: It took too long.
        """
        at = asyncio.get_running_loop().time() + self._timeout
        return await wait_until(at, request, self._too_late)

    def _too_late(self) -> AuthenticationError:
        text = f"the authorization server gave no token for {self._timeout:g} s or more"
        return AuthenticationError(text, transient=True, executed=False)

    async def _fetched(self, purpose: _Purpose, more: tuple[str, ...], name: str) -> Token:
        """Return the store's token, or a new one; the fetch of one is not interrupted half-way."""
        seconds = self._timeout
        if self._patience is not None:  # somebody else's person first, and then one's own
            seconds = 2 * (self._patience + 2 * self._timeout)
        at = asyncio.get_running_loop().time() + seconds
        return await wait_until(at, self._fetched_in_turn(purpose, more, name), self._too_late)

    async def _fetched_in_turn(self, purpose: _Purpose, more: tuple[str, ...], name: str) -> Token:
        key = self._key(purpose)
        async with self._store.turn(key):
            token = await self._store.load(key)
            # Read within the turn: another step-up may have come to its end in the one before.
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
            used, owned = resolve_engine(self._engine, self._tls)
            if purpose.reach is not None:
                used = EngineWithin(used, purpose.reach)
            try:
                fresh = await self._got(purpose, scopes, used, token, name)
            except A2AError:
                self._found.pop(purpose.place, None)  # it may have moved
                raise
            finally:
                if owned is not None:
                    await owned.close()
            if fresh.scopes is None:  # it is for what was asked for (RFC 6749, 5.1)
                fresh = msgspec.structs.replace(fresh, scopes=scopes)
            self._step_up.note_granted(key, more)
            self._hold(key, fresh)
            await self._store.save(key, fresh)
        return fresh

    def _scopes_held(self, key: str) -> tuple[str, ...]:
        """What the token in use is for: a server may give scopes by default."""
        known = self._held.here().tokens.get(key)
        return () if known is None else known[0].scopes or ()

    def _is_usable(self, token: Token, key: str, needed: set[str]) -> bool:
        left = token.left(self._env.wall(), margin=self._margin)
        is_enough = needed <= set(token.scopes or ())
        known = self._held.here().tokens.get(key)  # which is over, or is not for enough
        is_over = known is not None and known[0].access_token == token.access_token
        is_refused = token.access_token == self._refused.get(key, ("", 0.0))[0]
        return is_enough and not (is_over or is_refused) and (left is None or left > 0)

    async def _got(
        self,
        purpose: _Purpose,
        scopes: tuple[str, ...],
        engine: HttpEngine,
        last: Token | None,
        name: str,
    ) -> Token:
        server, reach = await self._where(purpose, engine)
        endpoint = AskedServer(engine, self._env, server, self._client, reach)
        asking = Asking(endpoint, scopes, purpose.resource)
        try:
            if last is not None and last.refresh_token is not None:
                self._held.here().fetches.shield(name)  # what it is spent for would be lost
                try:
                    return await self._within_timeout(_refreshed(asking, last))
                except AuthenticationError as error:
                    if not _is_spent(error):
                        raise
            return await self._grant(asking)
        except AuthenticationError as error:
            if purpose.resource is not None and concerns_resource(error):
                error.message = (
                    f"{error.message}; the token was requested for the resource "
                    f"{presentable(purpose.resource)} (RFC 8707): pass resource= to name another "
                    "one, or resource=False to send none"
                )
            raise

    async def _where(
        self, purpose: _Purpose, engine: HttpEngine
    ) -> tuple[AuthorizationServer, NetworkReach | None]:
        if purpose.server is not None:
            return purpose.server, None
        found = self._found.get(purpose.place)
        if found is None:
            issuer = purpose.metadata_url or purpose.place
            discovering = discover(engine, issuer, at=purpose.metadata_url)
            said = await self._within_timeout(discovering)
            if isinstance(self._server, FromCard):
                self._server.check_server(said.server)
            found = self._found[purpose.place] = (said.server, NetworkReach(inward=said.asked))
        return found

    # ── Having another one ───────────────────────────────────────────────────────────────────

    def _forget(self, purpose: _Purpose, refused: str) -> None:
        """Uses a token no more that was refused, if it is still the one in use."""
        key = self._key(purpose)
        held = self._held.here()
        known, now = held.tokens.get(key), asyncio.get_running_loop().time()
        last, at = self._refused.get(key, (refused, now))
        if last != refused and 0 <= now - at < _PAUSE:
            return
        if known is not None and known[0].access_token == refused:
            del held.tokens[key]
        self._refused[key] = (refused, now)

    async def _stepped_up(
        self, call: AnyCall, purpose: _Purpose, error: A2AError, wanted: tuple[str, ...]
    ) -> bool:
        """Asks for the scopes that a token lacks, if an agent may ask for them."""
        key = self._key(purpose)
        has = {*self._scopes_of(purpose), *self._scopes_held(key)}
        missing = tuple(dict.fromkeys(scope for scope in wanted if scope not in has))
        objection = self._step_up.objection(key, missing, call.card)
        if wanted and objection is None:
            # Where nothing is missing, another step-up has added it since.
            try:
                token = await self._token(purpose, missing)
            except A2AError as failure:
                if missing and not failure.transient:
                    self._step_up.note_refused(key, missing)
                raise
            if token.access_token != _shown(call):
                return True
        advice = "" if objection is None else f"; {objection}"
        error.message = (
            f"{error.message}; the token must be for {' '.join(wanted) or 'more'}{advice}"
        )
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
    if not parts.scheme or "#" in str(resource) or any(one <= " " for one in str(resource)):
        text = "resource must be an absolute URI without fragment (RFC 8707, 2)"
        raise ValueError(text)
    if parts.username is not None:
        text = "resource must hold no credentials: pass client_id and client_secret instead"
        raise ValueError(text)
    return str(resource)


def _shown(call: AnyCall) -> str:
    """The token that a call carried."""
    return call.headers.get("authorization", "").removeprefix("Bearer ")


async def _refreshed(asking: Asking, last: Token) -> Token:
    """Spends a refresh token (RFC 6749, 6); where the server gives no other, it stays."""
    spent = last.refresh_token or ""
    parameters = asking.parameters("refresh_token", refresh_token=spent)
    scopes = asking.scopes  # of a reply without scopes: those that were requested (5.1), or
    if last.scopes is not None and set(scopes) <= set(last.scopes):
        parameters.pop("scope", None)
        scopes = last.scopes  # where none are requested, the same as before (6)
    fresh = await asking.endpoint.ask_token(parameters)
    if fresh.refresh_token is None:
        fresh = msgspec.structs.replace(fresh, refresh_token=spent)
    if fresh.scopes is None:
        fresh = msgspec.structs.replace(fresh, scopes=scopes)
    return fresh


def _is_spent(error: AuthenticationError) -> bool:
    """Whether a refresh token is worth nothing any more, so that the grant begins anew."""
    return error_code(error) in {"invalid_grant", "invalid_scope"}
