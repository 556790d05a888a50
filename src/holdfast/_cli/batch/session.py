"""What the commands with a journal share: opening its file, and sessions that record their calls.

Many calls may be in flight at once, so none of them is *the* task of the command: each call and
each failure is reported with its own task.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from holdfast._cli.agent.session import Session
from holdfast._cli.error_hints import JOURNAL_HINTS
from holdfast._cli.error_table import describe
from holdfast._cli.errors import CommandError, Failure, internal
from holdfast._cli.options.masking import masked_reference
from holdfast._cli.options.parameters import MissingExtraError
from holdfast._cli.options.values import shown_duration
from holdfast._cli.output.json_output import document
from holdfast._client.answer import Answer
from holdfast._journal.agent_name import addresses_in
from holdfast._journal.resolve import open_journal
from holdfast._journal.sqlite import SqliteJournal
from holdfast.errors import (
    A2AError,
    CallEndedError,
    DeadlineExceededError,
    JournalError,
    KeyConflictError,
    OutcomeUnknownError,
    TaskInterruptedError,
    TaskNotFoundError,
    TaskTerminalError,
)
from holdfast.types import Message

if TYPE_CHECKING:
    from holdfast._cli.environment import CliEnvironment
    from holdfast._cli.options.settings import Settings
    from holdfast._cli.output.base import Output
    from holdfast._journal.postgres import PostgresJournal
    from holdfast._pipeline.observations import Observation
    from holdfast._policy.reconcile import OnUnknown
    from holdfast.types import AgentCard, Event, Task

__all__ = [
    "JournaledSession",
    "answer_of",
    "check_journal",
    "failure_of",
    "is_of_other_agent",
    "journal_at",
    "journal_failure",
    "members_of",
    "unusable_journal",
    "was_not_sent",
]

_ANY_HINT = "check --journal: name a file that holdfast created, in a directory that is writable"
"""The hint for a journal that cannot be used, by reason; and the hint for all other reasons."""

_CREATED_BY = (
    "check the path; a journal is created by holdfast run or send with --journal FILE, or by a "
    "program that calls connect(..., journal=FILE)"
)

_LEASE = 5.0
"""Seconds after which the next run resumes the calls that a killed run had in flight."""


_LOST_TASK_HINT = (
    "the agent has lost the task, so no answer can arrive; if executing the message twice does no "
    "harm, send it in a run with another --run-id"
)


StoredJournal: TypeAlias = "SqliteJournal | PostgresJournal"
"""A journal that a command opens by its address."""


class JournaledSession(Session):
    """An agent, and a journal of all calls to it.

    Args:
        environment: What the command runs in.
        settings: The settings of the command.
        reference: Where the card is.
        output: Where results and errors go.
        journal: The journal; closed with the session.
    """

    def __init__(
        self,
        environment: CliEnvironment,
        settings: Settings,
        reference: str | Path,
        output: Output,
        journal: StoredJournal,
    ) -> None:
        if isinstance(reference, Path):
            reference = reference.absolute()  # a later command needs the absolute path
        super().__init__(environment, settings, reference, output, journal=journal)

    has_many_calls = True
    journal: StoredJournal

    def _on_event(self, _event: Event, task: Task | None, _card: AgentCard) -> None:
        """Keep no task: there are many."""

    def _on_observation(self, observation: Observation) -> None:
        if self.settings.verbose:
            super()._on_observation(observation)


def journal_at(name: str, *, is_there: bool = False, read_only: bool = False) -> StoredJournal:
    """Return the journal of a command.

    Args:
        name: The file, or the address, as the caller wrote it.
        is_there: Whether a file must exist.
        read_only: Whether nothing is written.

    Raises:
        CommandError: The file does not exist.
        UsageError: It is an address of no journal, or needs an extra that is not installed.
    """
    try:
        journal = open_journal(
            "--journal",
            name,
            store_messages=True,
            lease=_LEASE,
            retention=None,
            read_only=read_only,
        )
    except ImportError as error:
        raise MissingExtraError("a journal in PostgreSQL", "postgres") from error
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if is_there and isinstance(journal, SqliteJournal) and not journal.path.exists():
        message = f"the journal {journal.path.absolute()} does not exist"
        raise CommandError(Failure(code="HOLDFAST_ERR_JOURNAL", message=message, hint=_CREATED_BY))
    return journal


async def check_journal(journal: StoredJournal) -> None:
    """Check that a journal can be used.

    Raises:
        CommandError: The journal cannot be used.
    """
    try:
        await journal.find("")
    except JournalError as error:
        raise CommandError(unusable_journal(error)) from None


def unusable_journal(error: JournalError, *, command: str | None = None) -> Failure:
    """Return the failure of a command whose journal cannot be used.

    Args:
        error: Why the journal cannot be used.
        command: The command that resumes the work once the journal can be used; None for no hint.
    """
    hint = JOURNAL_HINTS.get(error.reason, _ANY_HINT)
    if command is not None:
        hint = f"{hint}; then, to resume: {command}"
    return journal_failure(error)._replace(hint=hint)


def journal_failure(error: JournalError) -> Failure:
    """Return the failure for an error of the journal."""
    hint = JOURNAL_HINTS.get(error.reason)
    return Failure(code="HOLDFAST_ERR_JOURNAL", message=error.message, hint=hint)


def answer_of(outcome: Answer | Exception) -> Task | Message | None:
    """Return the answer of an outcome, including a failed or waiting task; None for others."""
    if isinstance(outcome, Answer):
        return outcome.task or outcome.message
    return outcome.task if isinstance(outcome, TaskTerminalError | TaskInterruptedError) else None


def was_not_sent(outcome: Answer | Exception) -> bool:
    """Return whether the agent certainly did not run a message."""
    return isinstance(outcome, A2AError) and outcome.executed is False


def members_of(outcome: Answer | Exception, session: Session, output: Output) -> dict[str, Any]:
    """Return the members of a document for an outcome: task, message or error."""
    answer = answer_of(outcome)
    if answer is None:
        return {"error": output.error_members(failure_of(outcome, session))}
    return {"message" if isinstance(answer, Message) else "task": document(answer)}


def failure_of(outcome: object, session: Session) -> Failure:
    """Return the failure of a call without an answer."""
    if isinstance(outcome, JournalError):
        return journal_failure(outcome)
    if isinstance(outcome, KeyConflictError):
        return Failure(code="HOLDFAST_ERR_INPUT", message=outcome.message)
    if isinstance(outcome, A2AError):
        failure = describe(outcome, _Call(session, outcome))
        if isinstance(outcome, OutcomeUnknownError):
            return _of_unknown(failure, outcome)
        if isinstance(outcome, TaskNotFoundError) and outcome.executed:
            return failure._replace(hint=_LOST_TASK_HINT)
        if isinstance(outcome, CallEndedError) and outcome.outcome == "dismissed":
            message = (
                f"the call of message {outcome.message_id} was dismissed with holdfast resume"
            )
            return failure._replace(message=f"{message} --dismiss; it was not sent again")
        return failure
    return internal(outcome if isinstance(outcome, Exception) else RuntimeError(str(outcome)))


def _of_unknown(failure: Failure, error: OutcomeUnknownError) -> Failure:
    """Add the known facts of a message with an unknown outcome to its failure."""
    cause = error.search_error
    if (recorded_for := _recorded_for(error)) is not None:
        agent = masked_reference(addresses_in(recorded_for)[0])
        hint = f"name that agent with --agent-card {agent}, or another run with --run-id"
        message = (
            f"message {error.message_id} was recorded for {agent}, and this agent has no task of "
            "it; it was not sent again"
        )
        return failure._replace(message=message, hint=hint)
    if error.searched:
        searched = f"searched: {'; '.join(error.searched)}"
        failure = failure._replace(message=f"{failure.message}; {searched}")
    if isinstance(cause, DeadlineExceededError) and cause.deadline == "reconcile":
        late = f"the search for its task did not finish within {shown_duration(cause.timeout)}"
        hint = "the call is pending in the journal: holdfast resume searches for its task again"
        failure = failure._replace(message=f"{failure.message}; {late}", hint=hint)
    return failure


def is_of_other_agent(error: OutcomeUnknownError) -> bool:
    """Return whether a message was recorded for another agent, so that it is not sent again."""
    return _recorded_for(error) is not None


def _recorded_for(error: OutcomeUnknownError) -> str | None:
    """Return the other agent that a message was recorded for; None if it is the same."""
    cause = error.search_error
    if isinstance(cause, JournalError) and cause.reason == "other_agent":
        return cause.agent
    return None


class _Call:
    """The state of one call among many."""

    continues = False
    asks_for_config = False
    key = None
    journal_name = None

    def __init__(self, session: Session, error: A2AError) -> None:
        self.settings = session.settings
        self.on_unknown: OnUnknown = session.on_unknown
        self.reference = session.reference
        self.card = session.card
        self.auth = session.auth
        self.binding = session.binding
        self.task: Task | None = error.task
        self.message_id: str | None = getattr(error, "message_id", None)
        self.may_have_been_sent = error.executed is not False
        self.command = session.command
        self.resume_command = session.resume_command
