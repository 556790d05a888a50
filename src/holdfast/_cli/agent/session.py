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
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import click

from holdfast._aio.cancel_scope import wait_within
from holdfast._cli.agent.connection import Connection
from holdfast._cli.agent.credentials import origin_of
from holdfast._cli.agent.progress import ProgressReporter
from holdfast._cli.errors import CommandError, Failure, out_of_time
from holdfast._cli.options.masking import masked_reference, secrets_in_params, secrets_in_reference
from holdfast._cli.output.base import Notice
from holdfast._client.client import chosen_interface
from holdfast._journal.records import label_of
from holdfast._model.extras import install_hint
from holdfast._model.operations import SEND_NAMES
from holdfast._pipeline.interfaces import declared_versions, leaves_room_for
from holdfast._pipeline.observations import AttemptStarted
from holdfast._version import __version__
from holdfast._wire.bindings import (
    OLDER_VERSION,
    PROTOCOL_VERSION,
    PROTOCOL_VERSIONS,
    spoken_version,
)
from holdfast.errors import A2AError, VersionNotSupportedError
from holdfast.types import TaskState

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import TracebackType

    from holdfast._cli.environment import CliEnvironment
    from holdfast._cli.options.settings import Settings
    from holdfast._cli.output.base import Output
    from holdfast._journal.protocol import Journal
    from holdfast._pipeline.observations import Observation
    from holdfast._pipeline.transport import AuthProvider
    from holdfast._policy.reconcile import OnUnknown
    from holdfast._wire.bindings import ProtocolVersion
    from holdfast.types import AgentCard, AgentInterface, Event, Task

__all__ = ["Session"]

T = TypeVar("T")

logger = logging.getLogger("holdfast.cli")


_MIN_TIMEOUT_S = 0.001
"""Seconds; the timeout of a call after the deadline, so that the call itself reports it."""


class Session:
    """An agent, and the progress of a command with it.

    Args:
        environment: The environment of the command.
        settings: The settings of the command.
        reference: Where the card is.
        output: Where results and errors go.
        journal: Where calls are recorded; closed with the session.
        key: The key of the message in the journal; None for none.

    Attributes:
        settings: The settings of the command.
        reference: Where the card is.
        card: The agent's card, once it is known.
        task: The task as last seen, once there is one.
        binding: The binding that calls go over, once it is chosen.
        protocol_version: The version that calls are made in, once it is chosen.
        message_id: Id of the message that is being sent, if one is.
        may_have_been_sent: Whether it may have been sent.
        continues: Whether that message continues a task.
        follows: Whether the output shows an answer as it arrives.
        asks_for_config: Whether the command is about a configuration of the task, by its id.
        awaits_card: Whether the agent's card was requested, and has not arrived.
        connection: The client, and what it is made of.
        client: The client.
        engine: Sends requests.
        env: Wall time, randomness and ids.
        journal: As given.
        key: As given.
        on_unknown: What happens to a message whose reply is lost.

    Raises:
        click.UsageError: The reference, or a certificate, is invalid.
    """

    def __init__(
        self,
        environment: CliEnvironment,
        settings: Settings,
        reference: str | Path,
        output: Output,
        *,
        journal: Journal | None = None,
        key: str | None = None,
    ) -> None:
        self.settings = settings
        self.journal = journal
        self.key = key
        self.on_unknown: OnUnknown = "reconcile"
        self.card: AgentCard | None = None
        self.task: Task | None = None
        self.binding: str | None = None
        self.protocol_version: str | None = None
        self.message_id: str | None = None
        self.may_have_been_sent = False
        self.continues = False
        self.follows = settings.stream
        self.asks_for_config = False
        self.awaits_card = False
        self._output = output
        self._is_warned_of_version = False
        self._is_prepared = False
        self.reference = reference
        self._deadline = math.inf
        self.env = environment.env
        self.connection = Connection(
            environment,
            settings,
            reference,
            protocol_version=self.requested_version,
            observer=self._on_observation,
            journal=journal,
        )
        self.client = self.connection.client
        self.engine = self.connection.engine
        self._progress = ProgressReporter(
            self,
            output,
            max_attempts=self.connection.max_attempts,
            reports_replies=not self.has_many_calls,
        )

    has_many_calls = False
    """Whether many calls may be in flight at once."""

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
        try:
            await self.client.close()
            await self.engine.close()
        finally:
            if self.journal is not None:
                await self.journal.close()

    def begin(self, task: Task | None = None) -> None:
        """Begin the command, or a turn of a chat, with the whole timeout.

        Args:
            task: The task that it is about.
        """
        self.task = task
        self._deadline = asyncio.get_running_loop().time() + self.settings.timeout

    def seconds_left(self) -> float:
        """The seconds left for the command."""
        return max(self._deadline - asyncio.get_running_loop().time(), _MIN_TIMEOUT_S)

    async def within_time(self, work: Awaitable[T], failure: Failure | None = None) -> T:
        """Return the result of some work, if it ends before the deadline of the command.

        Args:
            work: The work; cancelled at the deadline.
            failure: The failure to report then; that of a timeout if left out.

        Raises:
            CommandError: The deadline has passed.
        """
        failure = failure or out_of_time(self.settings.timeout)
        return await wait_within(self.seconds_left(), work, lambda: CommandError(failure))

    async def has_result(self) -> bool:
        """Return whether the journal has the result of the key, so that no request is needed."""
        if self.key is None or self.journal is None:
            return False
        reading = self.journal.find_label(label_of("", self.key))
        record = await self.within_time(reading)
        if record is None or record.outcome != "answered" or record.result is None:
            return False
        return record.state is None or TaskState(record.state).is_terminal

    def await_key(self) -> None:
        """Report the wait for the earlier call of the key, if it is long."""
        self._progress.await_key(self.key or "")

    @property
    def svc_params(self) -> dict[str, str]:
        """The headers that carry the service parameters."""
        return dict(self.settings.svc_params)

    @property
    def auth(self) -> AuthProvider | None:
        """The source of credentials."""
        return self.connection.auth

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
            card = await self.client.agent_card(timeout=self.seconds_left())
        finally:
            self._progress.end_wait()
        self.awaits_card = False
        self.card = card
        version = self.settings.version
        if version != PROTOCOL_VERSION and not leaves_room_for(version, card):
            declared = ", ".join(declared_versions(card))
            self._output.emit(
                Notice.warning(
                    f"--a2a-version {version} is used, but the card declares protocol {declared}"
                )
            )
        return card

    async def prepare(self) -> None:
        """Fetch the card and prepare for calls; a result from the journal needs neither.

        Raises:
            A2AError: There is no card, or no usable interface on it.
        """
        card = await self.get_card()
        interface = await self._interface()
        self._record_interface(interface)
        logger.debug(
            "card of %s: calls go to %s by %s, protocol %s",
            card.name,
            masked_reference(interface.url),
            interface.protocol_binding,
            spoken_version(interface.protocol_version),
        )
        self.adapt_to_card(card)
        if not self._is_prepared:
            self._is_prepared = True
            await self.client.add_event_consumer(self._on_event)

    def adapt_to_card(self, card: AgentCard) -> None:
        """Learn from the card how credentials are sent.

        Raises:
            InvalidAgentCardError: It wants them in a location that does not exist.
            click.UsageError: They cannot be sent as it wants, or its file has changed.
        """
        self.card = card
        bound_to = self.settings.bound_to
        if isinstance(self.reference, Path) and bound_to not in {None, origin_of(card)}:
            message = f"--agent-card: {self.reference} changed while the command was starting"
            raise click.UsageError(message)
        warning = self.connection.adapt_to_card(card)
        if warning is not None:
            self._output.emit(Notice.warning(warning))

    async def usable_interface(self) -> AgentInterface | None:
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
        self._record_interface(interface)
        return interface

    async def named_address(self) -> str:
        """Return the address of the agent that the caller names, or that of the card in a file."""
        if isinstance(self.reference, str):
            return self.reference
        return (await self._interface()).url

    async def _interface(self) -> AgentInterface:
        if self.requested_version == PROTOCOL_VERSION:
            _check_declared(self.card or await self.client.agent_card(timeout=self.seconds_left()))
        return await chosen_interface(
            self.client, timeout=self.seconds_left(), headers=self.svc_params
        )

    @property
    def requested_version(self) -> ProtocolVersion | None:
        """The version that the caller asked for; None leaves it to the card."""
        settings = self.settings
        if not settings.version_given:
            return PROTOCOL_VERSION if settings.is_endpoint else None
        return next((v for v in PROTOCOL_VERSIONS if v == settings.version), None)

    def _record_interface(self, interface: AgentInterface) -> None:
        """Record the binding and version; warn once if the caller requested others."""
        self._warn_of_binding(interface.protocol_binding)
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

    def _warn_of_binding(self, binding: str) -> None:
        """Warn once if the card offers none of the preferred bindings."""
        usable = self.connection.usable_bindings
        preferred = [name for name in self.settings.transports if name in usable]
        if self.binding is None and preferred and binding not in preferred:
            wanted = " or ".join(preferred)
            self._output.emit(
                Notice.warning(f"--transport: the card does not offer {wanted}; {binding} is used")
            )

    def command(self, *words: str) -> str:
        """Return a command that continues, with the settings of this one about the agent."""
        return shlex.join(("holdfast", *words, *self.settings.agent_words))

    @property
    def journal_name(self) -> str | None:
        """The file or the address of the journal; None without one."""
        return None if self.journal is None else str(getattr(self.journal, "name", "")) or None

    def resume_command(self, task_id: str) -> str:
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
        self.may_have_been_sent = False
        self.message_id = str(uuid.uuid4())
        return self.message_id

    def _on_event(self, _event: Event, task: Task | None, _card: AgentCard) -> None:
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
            self._output.emit(Notice.warning(f"task {task.id} waits for authorization{text}"))

    def _on_observation(self, observation: Observation) -> None:
        if isinstance(observation, AttemptStarted):
            self.may_have_been_sent |= observation.method in SEND_NAMES
        self._progress.observe(observation)

    def _warn(self) -> None:
        """Report settings that are in effect and may surprise."""
        settings = self.settings
        for name in settings.transports:
            if name not in self.connection.usable_bindings:
                install = install_hint("grpc")
                self._output.emit(
                    Notice.warning(f"--transport {name} is skipped: it needs an extra: {install}")
                )
        if not settings.insecure:
            return
        secrets = secrets_in_params(settings.svc_params) + secrets_in_reference(
            settings.agent_card
        )
        if self.auth is not None or secrets:
            self._output.emit(
                Notice.warning(
                    "SECURITY: a credential or service parameter is sent over a connection "
                    "whose certificate is not verified (--insecure): anyone on the network path "
                    "can read it"
                )
            )


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
