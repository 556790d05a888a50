"""One command's session with one agent: the card, the client, the remaining time.

Rules: nothing outlives the command; the whole command has one deadline; the session records what
a later command needs to resume after an interruption as soon as it is known.
"""

from __future__ import annotations

import asyncio
import logging
import math
import shlex
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import click

from holdfast._aio.cancel_scope import wait_within
from holdfast._cli.agent.cards import CachedCards, CardCache, card_verifier
from holdfast._cli.agent.credentials import Credentials, origin_of
from holdfast._cli.agent.progress import ProgressReporter
from holdfast._cli.agent.reference import ListedAddress
from holdfast._cli.environment import LOGINS
from holdfast._cli.errors import CommandError, Failure, out_of_time
from holdfast._cli.options.settings import CLIENT_KEY_PASSWORD
from holdfast._cli.options.values import (
    masked_reference,
    read_secret,
    secrets_in_params,
    secrets_in_reference,
)
from holdfast._cli.output.events import Notice
from holdfast._client.client import chosen_interface
from holdfast._client.connect import connect
from holdfast._model.extras import install_command
from holdfast._model.operations import SEND_NAMES
from holdfast._net.engine import EngineWithin
from holdfast._pipeline.cards.fetch import CardLocation
from holdfast._pipeline.grpc_extra import use_of_grpc
from holdfast._pipeline.interfaces import declared_versions, leaves_room_for
from holdfast._pipeline.layers import ReachLayer
from holdfast._pipeline.listeners import (
    AttemptStarted,
)
from holdfast._policy.resilience import Resilience
from holdfast._version import __version__
from holdfast._wire.bindings import (
    BINDINGS,
    HTTP_BINDINGS,
    OLDER_VERSION,
    PROTOCOL_VERSION,
    PROTOCOL_VERSIONS,
    spoken_version,
)
from holdfast._wire.origins import origin
from holdfast.errors import A2AError, InvalidAgentCardError, VersionNotSupportedError
from holdfast.types import TaskState

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import TracebackType

    from holdfast._cli.environment import CliEnvironment
    from holdfast._cli.logins.store import KeptCredentials, Login, Logins
    from holdfast._cli.options.settings import Settings
    from holdfast._cli.output.base import Output
    from holdfast._client.client import Client
    from holdfast._journal.protocol import Journal
    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig
    from holdfast._pipeline.listeners import Observation
    from holdfast._pipeline.transport import AuthProvider, Layer
    from holdfast._wire.bindings import ProtocolVersion
    from holdfast.types import AgentCard, AgentInterface, Event, Task

__all__ = ["Session"]

T = TypeVar("T")

logger = logging.getLogger("holdfast.cli")

_CERTIFICATE = {
    "cert_file": "--client-cert",
    "key_file": "--client-key",
    "key_password": CLIENT_KEY_PASSWORD,
}
"""Members of a `TlsConfig` whose errors name the options of the command line instead."""

_MIN_TIMEOUT_S = 0.001
"""Seconds; the timeout of a call after the deadline, so that the call itself reports it."""


class Session:
    """An agent, and the progress of a command with it.

    Args:
        world: The environment of the command.
        settings: The settings of the command.
        reference: Where the card is.
        output: Where results and errors go.
        journal: Where calls are recorded.

    Attributes:
        settings: The settings of the command.
        reference: Where the card is.
        card: The agent's card, once it is known.
        task: The task as last seen, once there is one.
        binding: The binding that calls go over, once it is chosen.
        protocol_version: The version that calls are made in, once it is chosen.
        message_id: Id of the message that is being sent, if one is.
        may_have_left: Whether it may have been sent.
        continues: Whether that message continues a task.
        follows: Whether the output shows an answer as it arrives.
        asks_for_config: Whether the command is about a configuration of the task, by its id.
        awaits_card: Whether the agent's card was requested, and has not arrived.
        engine: Sends requests.
        plain_engine: The same without a log of its traffic: for requests for secrets.
        logins: The user's logins.
        env: Wall time, randomness and ids.

    Raises:
        click.UsageError: The reference, or a certificate, is invalid.
    """

    def __init__(
        self,
        world: CliEnvironment,
        settings: Settings,
        reference: str | Path,
        output: Output,
        *,
        journal: Journal | None = None,
    ) -> None:
        self.settings = settings
        self.card: AgentCard | None = None
        self.task: Task | None = None
        self.binding: str | None = None
        self.protocol_version: str | None = None
        self.message_id: str | None = None
        self.may_have_left = False
        self.continues = False
        self.follows = settings.stream
        self.asks_for_config = False
        self.awaits_card = False
        self._output = output
        self._is_warned_of_version = False
        self.reference = reference
        self._ends = math.inf
        self._credentials = (
            Credentials(settings.bearer, settings.api_key, answers=settings.is_credential_origin)
            if settings.credentials
            else None
        )
        # A command for one agent has no alternative: it retries an unreachable agent.
        resilience = Resilience(breaker=None)
        self._progress = ProgressReporter(
            self,
            output,
            max_attempts=resilience.retry.max_retries + 1,
            reports_replies=journal is None,
        )
        self.env = world.env
        engine = world.engine(verify=not settings.insecure, **_own_certificate(settings))
        self.plain_engine: HttpEngine = engine
        grpc = use_of_grpc(engine, None)
        self._usable_bindings = HTTP_BINDINGS if grpc == "missing" else BINDINGS
        layers: tuple[Layer, ...] = ()
        if isinstance(reference, ListedAddress):
            engine = EngineWithin(engine, reference.reach, only=origin(reference))
            layers = (partial(ReachLayer, reach=reference.reach),)
        if settings.debug:
            from holdfast._cli.agent.wire_log import LoggedEngine, LoggedGrpc

            engine, layers = LoggedEngine(engine), (*layers, LoggedGrpc)
        self.engine: HttpEngine = engine
        self._world = world
        verifier = card_verifier(settings)
        try:
            self._login = None if self._credentials else self._login_credentials(reference)
            self._auth = self._credentials or self._login
            self.client: Client = connect(
                _card_of_endpoint(settings) if settings.is_endpoint else reference,
                auth=self._auth,
                timeout=settings.timeout,
                resilience=resilience,
                card_ttl=math.inf,
                engine=self._with_cached_cards(),
                extensions=settings.extensions,
                bindings=tuple(
                    name for name in settings.transports if name in self._usable_bindings
                ),
                supported_protocol_bindings=BINDINGS if grpc == "spoken" else (),
                protocol_version=self.asked_version,
                consumers=(self._saw,),
                observers=(self._observed,),
                attempt_layers=layers,
                card_verifier=verifier,
                require_signature=settings.require_signature,
                journal=journal,
                env=world.env,
            )
        except ValueError as error:
            flag = "--endpoint" if settings.is_endpoint else "--agent-card"
            raise click.UsageError(f"{flag}: {error}") from None
        except InvalidAgentCardError:
            if not settings.is_endpoint:
                raise
            where, binding = masked_reference(settings.agent_card), settings.transports[0]
            message = f"--endpoint: {where!r} is not an address for {binding}"
            raise click.UsageError(message) from None

    async def __aenter__(self) -> Self:
        self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.end_wait()
        await self.client.close()
        await self.engine.close()

    def begin(self, task: Task | None = None) -> None:
        """Begin the command, or a turn of a chat, with the whole timeout.

        Args:
            task: The task that it is about.
        """
        self.task = task
        self._ends = asyncio.get_running_loop().time() + self.settings.timeout

    def left(self) -> float:
        """The seconds left for the command."""
        return max(self._ends - asyncio.get_running_loop().time(), _MIN_TIMEOUT_S)

    async def within_time(self, work: Awaitable[T], failure: Failure | None = None) -> T:
        """Return the result of some work, if it ends before the deadline of the command.

        Args:
            work: The work; cancelled at the deadline.
            failure: The failure to report then; that of a timeout if left out.

        Raises:
            CommandError: The deadline has passed.
        """
        failure = failure or out_of_time(self.settings.timeout)
        return await wait_within(self.left(), work, lambda: CommandError(failure))

    def _with_cached_cards(self) -> HttpEngine:
        """Return the engine of the client's requests: the card may come from the cache.

        Not with a client certificate, which is a credential, and not for an entry of a catalog,
        which is limited to the networks of its catalog.
        """
        reference, settings = self.reference, self.settings
        is_own = settings.client_cert is not None or settings.client_key is not None
        if settings.no_cache or settings.is_endpoint or is_own or not isinstance(reference, str):
            return self.engine
        directory = None if isinstance(reference, ListedAddress) else self._world.cache()
        if directory is None:
            return self.engine
        return CachedCards(
            self.engine,
            CardCache(directory),
            self.env,
            urls=CardLocation.of(reference).urls,
            is_verifying=not settings.insecure,
        )

    @property
    def svc_params(self) -> dict[str, str]:
        """The headers that carry the service parameters."""
        return dict(self.settings.svc_params)

    @property
    def auth(self) -> AuthProvider | None:
        """The source of credentials."""
        return self._auth

    @property
    def logins(self) -> Logins:
        """The user's logins."""
        from holdfast._cli.logins.store import Logins  # requires an extra

        return Logins(self._world.home())

    def _login_credentials(self, reference: str | Path) -> KeptCredentials | None:
        """Return the tokens of the user's logins, if any may apply."""
        if not self._world.home().joinpath(*LOGINS).is_dir():
            return None
        from holdfast._cli.logins.store import KeptCredentials

        logins = self.logins
        if not (logins.has(reference) if isinstance(reference, str) else logins.agents()):
            return None
        return KeptCredentials(
            logins,
            self._client_secret,
            self.plain_engine,
            self.env,
            answers=self.settings.is_credential_origin,
        )

    def _client_secret(self, login: Login) -> str | None:
        """Return the client's secret, unless its source binds it to another login."""
        client_id, issuer = self.settings.client_of_secret
        is_other = client_id not in {None, login.client_id} or (
            issuer is not None and login.issuer not in {None, issuer}
        )
        stated = self.settings.client_secret
        return None if is_other or not stated else read_secret(stated)

    def check(self) -> None:
        """Check the settings before anything is sent, and show warnings about them.

        Raises:
            VersionNotSupportedError: The caller asks for a version that is not supported.
        """
        _check_version(self.settings.version)
        self._warn()

    async def get_card(self) -> AgentCard:
        """Fetch the card.

        Raises:
            VersionNotSupportedError: The caller asks for a version that is not supported.
            A2AError: There is no card, or it is not usable.
        """
        self.check()
        self.awaits_card = True
        self._progress.await_card()
        try:
            card = await self.client.agent_card(timeout=self.left())
        finally:
            self._progress.end_wait()
        self.awaits_card = False
        self.card = card
        version = self.settings.version
        if version != PROTOCOL_VERSION and not leaves_room_for(version, card):
            declared = ", ".join(declared_versions(card))
            self._output.emit(
                Notice.warning(f"the card declares protocol {declared}; {version} was asked for")
            )
        return card

    async def prepare(self) -> None:
        """Fetch the card and prepare for calls.

        Raises:
            A2AError: There is no card, or no usable interface on it.
        """
        card = await self.get_card()
        interface = await self._interface()
        self._speaks(interface)
        logger.debug(
            "card of %s: calls go to %s by %s, protocol %s",
            card.name,
            masked_reference(interface.url),
            interface.protocol_binding,
            spoken_version(interface.protocol_version),
        )
        self.fit(card)

    def fit(self, card: AgentCard) -> None:
        """Learn from the card how credentials are sent.

        Raises:
            InvalidAgentCardError: It wants them in a location that does not exist.
            click.UsageError: They cannot be sent as it wants, or its file has changed.
        """
        self.card = card
        bound_to = self.settings.bound_to
        if isinstance(self.reference, Path) and bound_to not in {None, origin_of(card)}:
            message = f"--agent-card: {self.reference} changed while the command began"
            raise click.UsageError(message)
        if self._login is not None and self._login.fit(card):
            self._output.emit(
                Notice.warning(
                    "the token of your login is not sent: the card declares no scheme for it "
                    "(OAuth, OpenID Connect or bearer)"
                )
            )
        if self._credentials is not None:
            try:
                self._credentials.fit(card)
            except ValueError as error:
                raise click.UsageError(f"--api-key: {error}") from None

    @property
    def undeclared(self) -> set[str]:
        """The flags of the credentials that no scheme of the card takes."""
        return set() if self._credentials is None else self._credentials.undeclared

    async def chosen(self) -> AgentInterface | None:
        """Return the interface that calls would use; None, with a warning, if there is none."""
        try:
            interface = await self._interface()
        except A2AError as error:
            from holdfast._cli.error_table import describe  # most commands do not need it

            failure = describe(error, self)
            self._output.emit(Notice.warning(failure.message))
            if failure.hint:
                self._output.emit(Notice.hint(failure.hint))
            return None
        self._speaks(interface)
        return interface

    async def named_address(self) -> str:
        """Return the address of the agent that the caller names, or that of the card in a file."""
        if isinstance(self.reference, str):
            return self.reference
        return (await self._interface()).url

    async def _interface(self) -> AgentInterface:
        if self.asked_version == PROTOCOL_VERSION:
            _check_declared(self.card or await self.client.agent_card(timeout=self.left()))
        return await chosen_interface(self.client, timeout=self.left(), headers=self.svc_params)

    @property
    def asked_version(self) -> ProtocolVersion | None:
        """The version that the caller asked for; None leaves it to the card."""
        settings = self.settings
        if not settings.version_given:
            return PROTOCOL_VERSION if settings.is_endpoint else None
        return next((v for v in PROTOCOL_VERSIONS if v == settings.version), None)

    def _speaks(self, interface: AgentInterface) -> None:
        """Record the binding and version; warn once of an older version that was not requested."""
        self.binding = interface.protocol_binding
        self.protocol_version = spoken_version(interface.protocol_version)
        if self.settings.version_given or self._is_warned_of_version:
            return
        if spoken_version(interface.protocol_version) == OLDER_VERSION:
            self._is_warned_of_version = True
            self._output.emit(
                Notice.warning(
                    f"the agent's card declares no protocol newer than {OLDER_VERSION}, so the "
                    f"client uses {OLDER_VERSION}; --a2a-version {PROTOCOL_VERSION} refuses that"
                )
            )

    def command(self, *words: str) -> str:
        """Return a command that continues, with the settings of this one about the agent."""
        settings = self.settings
        transports = [word for name in settings.transports for word in ("--transport", name)]
        extensions = [word for uri in settings.extensions for word in ("--extension", uri)]
        insecure = ["--insecure"] if settings.insecure else []
        for flag, path in (
            ("--client-cert", settings.client_cert),
            ("--client-key", settings.client_key),
        ):
            insecure += [] if path is None else [flag, path]
        is_newest = settings.version == PROTOCOL_VERSION
        version = [] if is_newest else ["--a2a-version", settings.version]
        config = [] if settings.config is None else ["--config", settings.config]
        flag = "--endpoint" if settings.is_endpoint else "--agent-card"
        card = [flag, masked_reference(settings.agent_card)]
        agent = (*card, *config, *version, *transports, *extensions, *insecure)
        return shlex.join(("holdfast", *words, *agent))

    def go_on(self, task_id: str) -> str:
        """Return the command that resumes a task, with the settings of this one."""
        if self.follows:
            return self.command("task", "subscribe", "--stream", *self._through(), task_id)
        return self.command("task", "get", "--wait", *self._through(), task_id)

    def _through(self) -> list[str]:
        return ["--through-auth"] if self.settings.through_auth else []

    def is_at_rest(self, task: Task) -> bool:
        """Return whether the wait ends: the task is over, or a person must act (a2a-cli 9.1)."""
        if self.settings.through_auth and task.state is TaskState.AUTH_REQUIRED:
            return False
        return task.state.is_terminal or task.state.is_interrupted

    def new_message_id(self) -> str:
        """Return the id of the message that is about to be sent."""
        self.may_have_left = False
        self.message_id = str(uuid.uuid4())
        return self.message_id

    def _saw(self, _event: Event, task: Task | None, _card: AgentCard) -> None:
        self._progress.note_answer()
        if task is None:
            return
        if self.task is None or self.task.state is not task.state:
            logger.debug("task %s is %s", task.id, task.state)
            self._ask_for_authorization(task)
        self.task = task

    def _ask_for_authorization(self, task: Task) -> None:
        """Report the authorization that a task asks for while the wait continues (A2A 7.6.2)."""
        if self.settings.through_auth and task.state is TaskState.AUTH_REQUIRED:
            message = task.status.message
            text = f": {message.text}" if message is not None and message.text else ""
            self._output.emit(Notice.warning(f"task {task.id} waits for an authorization{text}"))

    def _observed(self, observation: Observation) -> None:
        if isinstance(observation, AttemptStarted):
            self.may_have_left |= observation.operation in SEND_NAMES
        self._progress.observe(observation)

    def _warn(self) -> None:
        """Report settings that are in effect and may surprise."""
        settings = self.settings
        for name in settings.transports:
            if name not in self._usable_bindings:
                install = install_command("grpc")
                self._output.emit(
                    Notice.warning(f"--transport {name} is skipped: it needs an extra, {install}")
                )
        if not settings.insecure:
            return
        secrets = secrets_in_params(settings.svc_params) + secrets_in_reference(
            settings.agent_card
        )
        if self._auth is not None or secrets:
            self._output.emit(
                Notice.warning(
                    "SECURITY: a credential, or what may be one, is sent over a connection "
                    "whose other end is not verified (--insecure): anyone on the network path can "
                    "read it"
                )
            )


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


def _check_version(version: str) -> None:
    """Check the requested version: no lower version replaces it (a2a-cli 13.2)."""
    if version not in PROTOCOL_VERSIONS:
        raise VersionNotSupportedError(
            f"holdfast {__version__} does not speak protocol version {version}; nothing was sent",
            executed=False,
        )


def _check_declared(card: AgentCard) -> None:
    """Check that the card offers 1.0: an older version must be requested (a2a-cli 13.2)."""
    if not leaves_room_for(PROTOCOL_VERSION, card):
        is_older = leaves_room_for(OLDER_VERSION, card)
        raise VersionNotSupportedError(
            f"agent {card.name!r} speaks protocol {', '.join(declared_versions(card))}, and not "
            f"{PROTOCOL_VERSION}",
            executed=False,
            other_version=OLDER_VERSION if is_older else None,
        )
