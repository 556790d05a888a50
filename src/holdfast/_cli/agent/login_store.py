"""Logins that outlive a command: how to get tokens for an agent, and the tokens (a2a-cli 12.2).

Rules: a login is for the origin of one agent, and its token goes nowhere else; it is in files that
only their owner can read; a client secret is never written, but read anew from the
environment, or from the file that the caller names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._auth.oauth.files import read_private, write_private
from holdfast._cli.agent.credentials import asks_for_token
from holdfast._cli.environment import LOGINS
from holdfast._cli.options.values import Flow
from holdfast._model.operations import GET_AGENT_CARD
from holdfast._wire.challenges import bearer_challenge
from holdfast._wire.credentials import Credentials
from holdfast._wire.origins import canonical_origin
from holdfast.auth.oauth import (
    AuthorizationCode,
    AuthorizationServer,
    ClientCredentials,
    FileTokenStore,
    OAuthProvider,
)
from holdfast.errors import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from holdfast._aio.env import Env
    from holdfast._auth.oauth.provider import GrantRequest
    from holdfast._net.engine import HttpEngine
    from holdfast._pipeline.transport import AnyCall
    from holdfast.auth.oauth import OAuthOptions, Token, TokenStore
    from holdfast.types import AgentCard

__all__ = ["Login", "LoginCredentials", "Logins", "OneToken"]


class Login(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to get tokens for an agent; nothing in it is secret.

    Attributes:
        agent: The agent's origin.
        flow: The flow of the login.
        client_id: The client's id.
        token_endpoint: The token endpoint.
        issuer: The issuer of the server.
        client_auth: The client's authentication method there.
        is_confidential: Whether it has a secret.
        scopes: The scopes of tokens.
        resource: The resource of tokens (RFC 8707); None if it was not sent.
    """

    agent: str
    flow: Flow
    client_id: str
    token_endpoint: str
    issuer: str | None = None
    client_auth: str | None = None
    is_confidential: bool = False
    scopes: tuple[str, ...] = ()
    resource: str | None = None


class Logins:
    """The logins of a user.

    Args:
        home: The home directory.
    """

    def __init__(self, home: Path) -> None:
        self._directory = home.joinpath(*LOGINS)
        self._tokens = FileTokenStore(self._directory)

    def store(self, agent: str) -> TokenStore:
        """Return the store of the token of one agent."""
        return OneToken(self._tokens, canonical_origin(agent))

    def save(self, login: Login) -> None:
        """Save a login.

        Raises:
            AuthenticationError: It cannot be written.
        """
        write_private(self._file(login.agent), msgspec.json.encode(login))

    def find(self, agent: str) -> Login | None:
        """Return the login of an agent; None if there is none.

        Raises:
            AuthenticationError: The file cannot be read, or others can read it.
        """
        path = self._file(agent)
        content = read_private(path)
        if content is None:
            return None
        try:
            login = msgspec.json.decode(content, type=Login)
            AuthorizationServer(token_endpoint=login.token_endpoint)
        except (msgspec.DecodeError, ValueError):
            text = f"{path} does not contain a login; remove it, and log in again"
            raise AuthenticationError(text, executed=False) from None
        return login if login.agent == canonical_origin(agent) else None

    def has(self, agent: str) -> bool:
        """Return whether there is a login for an agent, of any kind."""
        return self._file(agent).exists()

    def agents(self) -> list[str]:
        """Return the origins of the agents that have a login."""
        return [login.agent for login in self.all()[0]]

    def all(self) -> tuple[list[Login], list[str]]:
        """Return the logins by agent, and the problems with files that hold none."""
        logins: list[Login] = []
        problems: list[str] = []
        for path in sorted(self._directory.glob("*.login")):
            try:
                logins.append(msgspec.json.decode(read_private(path) or b"", type=Login))
            except AuthenticationError as error:
                problems.append(error.message)
            except (msgspec.DecodeError, ValueError):
                problems.append(f"{path} does not contain a login; remove it, and log in again")
        return sorted(logins, key=lambda login: login.agent), problems

    def path(self, agent: str) -> Path:
        """Return the file of a login, whether it exists or not."""
        return self._file(agent)

    async def remove(self, agent: str) -> bool:
        """Remove a login with its token; return whether there was one."""
        path = self._file(agent)
        was_there = path.exists()
        await self.store(agent).remove("")
        path.unlink(missing_ok=True)
        return was_there

    def _file(self, agent: str) -> Path:
        return self._tokens.path(canonical_origin(agent)).with_suffix(".login")


class OneToken:
    """A store of one token under a fixed key.

    Args:
        store: The underlying store.
        key: The key of the token there.
    """

    def __init__(self, store: TokenStore, key: str) -> None:
        self._store = store
        self._key = key

    async def load(self, _key: str, /) -> Token | None:
        """Return the token."""
        return await self._store.load(self._key)

    async def save(self, _key: str, token: Token, /) -> None:
        """Save the token."""
        await self._store.save(self._key, token)

    async def remove(self, _key: str, /) -> None:
        """Remove the token."""
        await self._store.remove(self._key)

    def turn(self, _key: str, /) -> AbstractAsyncContextManager[None]:
        """Return a lock: one caller after the other gets the token."""
        return self._store.turn(self._key)


class _Ended(AuthorizationCode):
    """A login of a person that cannot be renewed without that person."""

    async def _grant(self, request: GrantRequest) -> Token:
        del request
        text = "the login has expired; log in again: holdfast auth login"
        raise AuthenticationError(text, executed=False)


class LoginCredentials:
    """Sends the token of the login at an agent; an `AuthProvider`.

    Args:
        logins: The logins.
        secret: Returns the client's secret for a login, if there is one.
        engine: Sends requests to authorization servers.
        env: Supplies wall time.
        answers: Whether a card's server that asks for a token gets it before its card is known:
            the caller named it by ``--credential-origin``.
    """

    def __init__(
        self,
        logins: Logins,
        secret: Callable[[Login], str | None],
        engine: HttpEngine,
        env: Env,
        *,
        answers: bool = False,
    ) -> None:
        self._answers = answers
        self._is_asked_for = False
        self._logins = logins
        self._secret = secret
        self._engine = engine
        self._env = env
        self._providers: dict[str, OAuthProvider | None] = {}
        self._card_is_guarded = False

    def adapt_to_card(self, card: AgentCard) -> bool:
        """Learn from the card whether it asks for a token; none goes elsewhere.

        Returns:
            Whether there is a login that the card does not ask for.
        """
        self._is_asked_for = asks_for_token(card)
        if self._is_asked_for:
            return False
        agents = {canonical_origin(interface.url) for interface in card.supported_interfaces}
        return any(self._logins.has(agent) for agent in agents)

    async def credentials(self, call: AnyCall, /) -> Credentials:
        """Return the token for the origin of a call whose card asks for one."""
        is_card = call.operation is GET_AGENT_CARD
        is_asked = self._card_is_guarded if is_card else self._is_asked_for
        provider = self._provider(call) if is_asked else None
        return Credentials() if provider is None else await provider.credentials(call)

    async def on_unauthorized(self, call: AnyCall, error: AuthenticationError, /) -> bool:
        """Return whether there is another token."""
        provider = self._provider(call)
        if call.operation is GET_AGENT_CARD and not self._card_is_guarded:
            is_requested = self._answers and bearer_challenge(error.headers) is not None
            self._card_is_guarded = is_requested
            return is_requested and provider is not None
        if provider is None or not self._is_asked_for:
            return False
        return await provider.on_unauthorized(call, error)

    def note_refused(self, call: AnyCall, error: AuthenticationError, /) -> None:
        """Note that a token was refused."""
        provider = self._provider(call)
        if provider is not None:
            provider.note_refused(call, error)

    def _provider(self, call: AnyCall) -> OAuthProvider | None:
        if call.endpoint is None:
            return None
        agent = canonical_origin(call.endpoint.interface.url)
        if agent not in self._providers:
            login = self._logins.find(agent)
            self._providers[agent] = None if login is None else self._of(login)
        return self._providers[agent]

    def _of(self, login: Login) -> OAuthProvider:
        secret = self._secret(login) if login.is_confidential else None
        options: OAuthOptions = {
            "scopes": login.scopes,
            "resource": login.resource or False,
            "client_auth": login.client_auth if secret or not login.is_confidential else None,
            "store": self._logins.store(login.agent),
            "engine": self._engine,
            "env": self._env,
        }
        server = AuthorizationServer(token_endpoint=login.token_endpoint, issuer=login.issuer)
        kind = ClientCredentials if login.flow == "client-credentials" and secret else _Ended
        try:
            return kind(server, login.client_id, secret, **options)
        except ImportError as error:  # the extra was installed at login
            raise AuthenticationError(str(error), executed=False) from None
