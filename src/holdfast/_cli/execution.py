"""The execution of a command: from its options to its output and exit code.

Rules: every failure is reported in one form; a task that was begun is named before the command
ends, however it ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from holdfast._cli.agent.credentials import bind
from holdfast._cli.agent.reference import find_agent
from holdfast._cli.agent.session import Session
from holdfast._cli.errors import (
    CLOSED_PIPE,
    INTERRUPTED,
    CommandError,
    Failure,
    internal,
    unwritable,
)
from holdfast._cli.options.masking import masked_reference
from holdfast._cli.options.parameters import loaded_configuration, notices
from holdfast._cli.options.settings import read_settings
from holdfast._cli.output import output_for
from holdfast._cli.output.base import Failed, Notice, OutputError, WaitEnded
from holdfast._wire.origins import SECURITY_LOGGER
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from types import TracebackType

    from holdfast._cli.environment import CliEnvironment
    from holdfast._cli.options.settings import Settings
    from holdfast._cli.output.base import Output
    from holdfast.types import Task

__all__ = [
    "Action",
    "Diagnostics",
    "announce",
    "cannot_write",
    "discard",
    "execute",
    "exit_for_closed_pipe",
    "fail",
    "perform",
    "reference_of",
]


class Diagnostics(logging.Handler):
    """Shows the library's log records, while the context is open.

    Args:
        output: Where records are shown.
        enabled: Whether to show all records.
    """

    def __init__(self, output: Output, *, enabled: bool) -> None:
        super().__init__(logging.DEBUG)
        self._output = output
        self._enabled = enabled
        self._logger = logging.getLogger("holdfast" if enabled else SECURITY_LOGGER)
        self._level = self._logger.level

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record."""
        try:
            if record.name == SECURITY_LOGGER:
                self._output.emit(
                    Notice.warning(record.getMessage().partition("; pass ")[0])
                )  # a warning of Python
            else:
                self._output.emit(Notice("Debug", record.getMessage()))
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        """Ignore that standard error has no reader: nothing can be reported there."""

    def __enter__(self) -> None:
        self._level = self._logger.level
        self._logger.setLevel(logging.DEBUG if self._enabled else logging.WARNING)
        self._logger.addHandler(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)


logger = logging.getLogger("holdfast.cli")

_NOTHING_TO_FOLLOW = (
    "--stream is not supported by this command, except with -o json, where it writes each "
    "object on one line. To follow a task: holdfast task subscribe --stream TASK_ID"
)

_ANNOUNCED = "holdfast._cli.execution.announced"
_NEEDS_CARD = "This command needs the agent's card, which --endpoint skips: use --agent-card."

Action = Callable[["Session", "Output"], Awaitable[None]]


def execute(
    ctx: click.Context,
    action: Action,
    *,
    can_follow: bool = False,
    needs_card: bool = False,
    output: Output | None = None,
    journal: str | None = None,
    key: str | None = None,
) -> int:
    """Run an action against the agent, and report its failure, if it fails.

    Args:
        ctx: The command's context.
        action: The action.
        can_follow: Whether ``--stream`` has an effect.
        needs_card: Whether it requires the agent's card, and not only an interface.
        output: Where results are shown; that of the options if left out.
        journal: The journal that records the message; None for none.
        key: The key of the message in the journal; None for none.

    Raises:
        click.UsageError: The options are invalid.
        CommandError: The agent is in a catalog, and cannot be found there.
    """
    environment: CliEnvironment = ctx.obj
    settings = read_settings(ctx)
    if settings.stream and not can_follow and settings.output != "json":
        raise click.UsageError(_NOTHING_TO_FOLLOW, ctx)
    if settings.is_endpoint and needs_card:
        raise click.UsageError(_NEEDS_CARD, ctx)
    output = output or output_for(settings.output, settings)
    announce(ctx, output, settings)
    # The journal names the agent by it, whatever the working directory is.
    reference = reference_of(ctx, settings, absolute=journal is not None)
    settings = bind(ctx, settings, reference, output)
    records = None
    if journal is not None:
        from holdfast._cli.batch.session import journal_at  # most commands have none

        records = journal_at(journal)
    with Diagnostics(output, enabled=settings.debug):
        session = Session(environment, settings, reference, output, journal=records, key=key)
        return perform(environment, session, output, action)


def announce(ctx: click.Context, output: Output, settings: Settings | None = None) -> None:
    """Report once the likely mistakes of the configuration, and the weakening settings.

    Args:
        ctx: The command's context.
        output: Where they are reported.
        settings: The settings, if they are known.
    """
    configuration = loaded_configuration(ctx)
    if configuration is not None and not ctx.meta.get(_ANNOUNCED):
        ctx.meta[_ANNOUNCED] = True
        for notice in notices(ctx, configuration):
            output.emit(Notice.warning(notice))
    for weakness in () if settings is None else settings.weaknesses:
        output.emit(Notice.warning(weakness))


def reference_of(ctx: click.Context, settings: Settings, *, absolute: bool = False) -> str | Path:
    """Return the address or file of the card.

    Raises:
        click.UsageError: The reference is invalid.
        CommandError: It is in a catalog, and cannot be found there.
    """
    try:
        reference = find_agent(ctx.obj, settings)
    except ValueError as error:
        raise click.UsageError(f"--agent-card: {error}", ctx) from None
    return reference.absolute() if absolute and isinstance(reference, Path) else reference


def perform(environment: CliEnvironment, session: Session, output: Output, action: Action) -> int:
    """Run an action, and return the exit code."""

    async def act() -> None:
        async with session:
            await action(session, output)

    try:
        environment.run(act())
    except KeyboardInterrupt:
        _interrupted(session, output)
        return INTERRUPTED
    except OutputError as error:
        return cannot_write(error, session)
    except BrokenPipeError:
        _hint_after_closed_pipe(session, output)
        raise
    except click.UsageError:
        raise
    except Exception as error:  # noqa: BLE001  every failure is reported in one form
        failure = _failure(error, session)
    else:
        return 0
    try:
        if session.task is not None:
            _complete_output(session.task, output)
        output.emit(Failed(failure))
    except OutputError as error:
        cannot_write(error, session)  # the exit code stays that of the failure
    return failure.exit


def _failure(error: Exception, session: Session) -> Failure:
    if isinstance(error, A2AError):
        from holdfast._cli.error_table import describe  # most commands do not need it

        return describe(error, session)
    if isinstance(error, CommandError):
        return error.failure
    logger.debug("%s", "".join(traceback.format_exception(error)))
    return internal(error)


def _complete_output(task: Task, output: Output) -> None:
    """Complete the output that was begun, for its readers."""
    try:
        output.emit(WaitEnded(task))
    except BrokenPipeError:  # standard error still gets its text
        discard()


def _hint_after_closed_pipe(session: Session, output: Output) -> None:
    """Show how to resume, unless the output ends with the task and its reader has gone."""
    task, is_named = session.task, output.has_named_task
    if (
        task is not None
        and not task.state.is_terminal
        and (not is_named or _is_terminal(sys.stderr))
    ):
        output.emit(Notice.hint(session.resume_command(task.id)))
    elif task is not None and not is_named:
        output.emit(Notice.hint(session.command("task", "get", task.id)))


def _is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal."""
    return stream is not None and stream.isatty()


def _interrupted(session: Session, output: Output) -> None:
    """Show how to resume after Ctrl-C: the agent is not informed of it."""
    if session.task is not None:
        _complete_output(session.task, output)
        if session.key is None:
            output.emit(Notice.hint(session.resume_command(session.task.id)))
            if session.journal_name is not None and not session.has_many_calls:
                from holdfast._cli.error_hints import search_in_journal

                output.emit(Notice.hint(search_in_journal(session.journal_name)))
    elif session.key is not None and not session.awaits_card and not session.may_have_been_sent:
        output.emit(
            Notice.warning(
                f"interrupted while waiting for the earlier call of the key {session.key!r}; "
                "nothing was sent"
            )
        )
    elif session.message_id is not None:
        output.emit(
            Notice.warning(
                f"message {session.message_id} was in flight; the agent may have received it"
            )
        )
        if session.key is None and session.may_have_been_sent:
            from holdfast._cli.error_hints import search_for_message

            output.emit(Notice.hint(search_for_message(None, session) or ""))
    elif session.awaits_card and not session.has_many_calls:
        reference = masked_reference(str(session.reference))
        output.emit(
            Notice.warning(
                f"interrupted while waiting for the agent card of {reference}; nothing was sent"
            )
        )
    if session.key is not None:
        from holdfast._cli.error_hints import SAME_COMMAND  # most commands do not need it

        output.emit(Notice.hint(SAME_COMMAND))


def fail(form: str, failure: Failure, *, in_lines: bool, ctx: click.Context | None = None) -> int:
    """Report a failure before the options were parsed, with likely causes in a file."""
    output = output_for(form, in_lines=in_lines)
    try:
        if ctx is not None:
            announce(ctx, output)
        output.emit(Failed(failure))
    except BrokenPipeError:
        return exit_for_closed_pipe()
    except OSError as error:
        return cannot_write(error)
    return failure.exit


def cannot_write(error: OSError, session: Session | None = None) -> int:
    """Report an output that cannot be written, if that is still possible."""
    settings = None if session is None else session.settings
    with contextlib.suppress(OSError):
        output_for("text", settings).emit(Failed(unwritable(error, session)))
    discard()
    return 1


def exit_for_closed_pipe() -> int:
    """Exit quietly when the reader of an output has gone, as with ``| head``."""
    discard()
    return CLOSED_PIPE


def discard() -> None:
    """Discard the buffered output."""
    streams: tuple[TextIO | None, ...] = sys.stdout, sys.stderr
    for stream in filter(None, streams):
        try:
            stream.flush()
        except OSError:
            # Otherwise Python writes the buffer, and fails, once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
