"""The connection of a command to one agent: engine, cached cards, credentials, and the client.

Rules: nothing is fetched here. A client certificate is a credential, and an entry of a catalog is
limited to the networks of its catalog: neither shares cached cards with other commands.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import click

from holdfast._cli.agent.cards import CachedCards, CardCache, card_verifier
from holdfast._cli.agent.credentials import Credentials
from holdfast._cli.agent.reference import ListedAddress, read_reference
from holdfast._cli.environment import LOGINS, CliEnvironment
from holdfast._cli.options.masking import masked_reference
from holdfast._cli.options.settings import CLIENT_KEY_PASSWORD, Settings
from holdfast._cli.options.values import read_secret
from holdfast._client.connect import connect
from holdfast._net.engine import EngineWithin, HttpEngine
from holdfast._pipeline.cards.fetch import CardLocation
from holdfast._pipeline.grpc_extra import use_of_grpc
from holdfast._pipeline.layers import ReachLayer
from holdfast._policy.resilience import Resilience
from holdfast._wire.bindings import BINDINGS, HTTP_BINDINGS, ProtocolVersion
from holdfast._wire.origins import origin
from holdfast.errors import InvalidAgentCardError

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast._auth.providers import AuthProvider
    from holdfast._cli.agent.login_store import Login, LoginCredentials, Logins
    from holdfast._client.client import Client
    from holdfast._journal.protocol import Journal
    from holdfast._net.tls_config import TlsConfig
    from holdfast._pipeline.observations import Observer
    from holdfast._pipeline.transport import Layer
    from holdfast.types import AgentCard

__all__ = ["Connection"]

_CERTIFICATE = {
    "cert_file": "--client-cert",
    "key_file": "--client-key",
    "key_password": CLIENT_KEY_PASSWORD,
}
"""Members of a `TlsConfig` whose errors name the options of the command line instead."""


class Connection:
    """The client of a command, and what it is made of.

    Args:
        environment: The environment of the command.
        settings: The settings of the command.
        reference: Where the card is.
        protocol_version: The version to speak; None leaves it to the card.
        observer: Gets each observation of a call.
        journal: Where calls are recorded; None for nowhere.

    Attributes:
        client: The client.
        engine: Sends requests.
        plain_engine: The same without a log of its traffic: for requests for secrets.
        credentials: The credentials of the settings; None if there are none.
        login: The tokens of the user's logins; None if none may apply.
        auth: One of the two; None without either.
        usable_bindings: The bindings that are installed.
        max_attempts: Maximum number of attempts of a call.

    Raises:
        click.UsageError: The reference, or a certificate, is invalid.
    """

    def __init__(
        self,
        environment: CliEnvironment,
        settings: Settings,
        reference: str | Path,
        *,
        protocol_version: ProtocolVersion | None,
        observer: Observer,
        journal: Journal | None,
    ) -> None:
        self._environment = environment
        self._settings = settings
        self._reference = reference
        # A command for one agent has no alternative: it retries an unreachable agent.
        resilience = Resilience(breaker=None)
        self.max_attempts = resilience.retry.max_retries + 1
        engine = environment.engine(verify=not settings.insecure, **_own_certificate(settings))
        self.plain_engine: HttpEngine = engine
        grpc = use_of_grpc(engine, None)
        self.usable_bindings = HTTP_BINDINGS if grpc == "missing" else BINDINGS
        layers: tuple[Layer, ...] = ()
        if isinstance(reference, ListedAddress):
            engine = EngineWithin(engine, reference.reach, only=origin(reference))
            layers = (partial(ReachLayer, reach=reference.reach),)
        if settings.debug:
            from holdfast._cli.agent.wire_log import LoggedEngine, LoggedGrpc

            engine, layers = LoggedEngine(engine), (*layers, LoggedGrpc)
        self.engine: HttpEngine = engine
        verifier = card_verifier(settings)
        self.credentials = (
            Credentials(settings.bearer, settings.api_key, answers=settings.is_credential_origin)
            if settings.credentials
            else None
        )
        try:
            self.login = None if self.credentials else self._login_credentials()
            self.auth: AuthProvider | None = self.credentials or self.login
            first = _card_of_endpoint(settings) if settings.is_endpoint else reference
            self.client: Client = connect(
                [first, *map(read_reference, settings.replicas)],
                auth=self.auth,
                timeout=settings.timeout,
                resilience=resilience,
                card_ttl=math.inf,
                engine=self._with_cached_cards(),
                extensions=settings.extensions,
                bindings=tuple(
                    name for name in settings.transports if name in self.usable_bindings
                ),
                supported_protocol_bindings=BINDINGS if grpc == "spoken" else (),
                protocol_version=protocol_version,
                observers=(observer,),
                attempt_layers=layers,
                card_verifier=verifier,
                require_signature=settings.require_signature,
                journal=journal,
                env=environment.env,
            )
        except ValueError as error:
            flag = "--endpoint" if settings.is_endpoint else "--agent-card"
            raise click.UsageError(f"{flag}: {error}") from None
        except InvalidAgentCardError:
            if not settings.is_endpoint:
                raise
            where, binding = masked_reference(settings.agent_card), settings.transports[0]
            form = "host:port or grpc://host:port" if binding == "GRPC" else "http:// or https://"
            verb = "is written" if binding == "GRPC" else "begins with"
            message = f"--endpoint: {where!r} is not an address for {binding}, which {verb} {form}"
            raise click.UsageError(message) from None

    def adapt_to_card(self, card: AgentCard) -> str | None:
        """Learn from the card how credentials are sent; return a warning, or None.

        Raises:
            InvalidAgentCardError: It wants them in a location that does not exist.
            click.UsageError: They cannot be sent as it wants.
        """
        if self.credentials is not None:
            try:
                self.credentials.adapt_to_card(card)
            except ValueError as error:
                raise click.UsageError(f"--api-key: {error}") from None
        if self.login is not None and self.login.adapt_to_card(card):
            return (
                "the token of your login is not sent: the card declares no scheme for it "
                "(OAuth, OpenID Connect or bearer)"
            )
        return None

    @property
    def undeclared(self) -> set[str]:
        """The flags of the credentials that no scheme of the card takes."""
        return set() if self.credentials is None else self.credentials.undeclared

    def _with_cached_cards(self) -> HttpEngine:
        """Return the engine of the client's requests: the card may come from the cache.

        Not with a client certificate, which is a credential, and not for an entry of a catalog,
        which is limited to the networks of its catalog.
        """
        reference, settings = self._reference, self._settings
        is_own = settings.client_cert is not None or settings.client_key is not None
        if settings.no_cache or settings.is_endpoint or is_own or not isinstance(reference, str):
            return self.engine
        directory = None if isinstance(reference, ListedAddress) else self._environment.cache()
        if directory is None:
            return self.engine
        return CachedCards(
            self.engine,
            CardCache(directory),
            self._environment.env,
            urls=CardLocation.of(reference).urls,
            is_verifying=not settings.insecure,
        )

    @property
    def logins(self) -> Logins:
        """The user's logins."""
        from holdfast._cli.agent.login_store import Logins  # requires an extra

        return Logins(self._environment.home())

    def _login_credentials(self) -> LoginCredentials | None:
        """Return the tokens of the user's logins, if any may apply."""
        if not self._environment.home().joinpath(*LOGINS).is_dir():
            return None
        from holdfast._cli.agent.login_store import LoginCredentials

        logins, reference = self.logins, self._reference
        if not (logins.has(reference) if isinstance(reference, str) else logins.agents()):
            return None
        return LoginCredentials(
            logins,
            self._client_secret,
            self.plain_engine,
            self._environment.env,
            answers=self._settings.is_credential_origin,
        )

    def _client_secret(self, login: Login) -> str | None:
        """Return the client's secret, unless its source binds it to another login."""
        client_id, issuer = self._settings.client_of_secret
        is_other = client_id not in {None, login.client_id} or (
            issuer is not None and login.issuer not in {None, issuer}
        )
        stated = self._settings.client_secret
        return None if is_other or not stated else read_secret(stated)


def _card_of_endpoint(settings: Settings) -> AgentCard:
    """Return the substitute for a card if the caller names an interface (``--endpoint``).

    The agent's capabilities are unknown then, so that calls try them.
    """
    from holdfast.types import AgentCapabilities, AgentCard, AgentInterface

    url = settings.agent_card
    return AgentCard(
        name=masked_reference(url),
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=True, extended_agent_card=True
        ),
        supported_interfaces=(
            AgentInterface(
                url=url,
                protocol_binding=settings.transports[0],
                protocol_version=settings.version,
            ),
        ),
    )


def _own_certificate(settings: Settings) -> dict[str, TlsConfig]:
    """Return the certificate of the client, if it has one.

    Raises:
        click.UsageError: The certificate cannot be read.
    """
    if settings.client_cert is None and settings.client_key is None:
        return {}
    from holdfast._net.tls_config import TlsConfig

    try:
        tls = TlsConfig(
            cert_file=settings.client_cert,
            key_file=settings.client_key,
            key_password=settings.client_key_password,
            verify=not settings.insecure,
        )
    except (OSError, ValueError) as error:
        message = str(error)
        for name, flag in _CERTIFICATE.items():
            message = message.replace(name, flag)
        raise click.UsageError(message) from None
    return {"tls": tls}
