"""The failures of commands, as they are reported, and the progress of a command at its failure."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast._cli.options.values import shown_duration

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from holdfast._cli.options.settings import Settings
    from holdfast._pipeline.transport import AuthProvider
    from holdfast._policy.reconcile import OnUnknown
    from holdfast.errors import A2AError
    from holdfast.types import AgentCard, Task

__all__ = [
    "AUTH",
    "CLOSED_PIPE",
    "FAILURE",
    "INTERRUPTED",
    "KEY_CONFLICT",
    "TIMEOUT",
    "UNREACHABLE",
    "USAGE",
    "CommandError",
    "CommandState",
    "Failure",
    "internal",
    "one_line",
    "out_of_time",
    "unreachable_reason",
    "unusable",
    "unwritable",
    "usage",
]

FAILURE, USAGE, UNREACHABLE, AUTH, TIMEOUT = 1, 2, 3, 4, 5
"""Exit codes (a2a-cli 11.6)."""

KEY_CONFLICT = 6
"""Exit code if the key was used for another message or agent; no code of the specification."""

INTERRUPTED, CLOSED_PIPE = 130, 141
"""Exit codes of shells for a program that SIGINT or SIGPIPE ended."""


_NO_IDS: Mapping[str, str] = {}


class Failure(NamedTuple):
    """The failure of a command.

    Attributes:
        code: The name of the error in the protocol, or a code of the command line.
        message: What happened.
        hint: What to do about it; None if there is nothing useful to say.
        a2a_code: The code of the transport: the number of JSON-RPC, or the status of HTTP or gRPC.
        exit: The exit code.
        instead: The whole help, for outputs with room for it.
        ids: The ids of the task, the context and the message that it is about, by the names of
            their members; only those that are known.
    """

    code: str
    message: str
    hint: str | None = None
    a2a_code: int | str | None = None
    exit: int = FAILURE
    instead: str | None = None
    ids: Mapping[str, str] = _NO_IDS


class CommandError(Exception):
    """A failure of a command for a reason of its own.

    Args:
        failure: What to report.

    Attributes:
        failure: As given.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class CommandState(Protocol):
    """The progress of a command."""

    @property
    def settings(self) -> Settings: ...

    @property
    def reference(self) -> str | Path: ...

    @property
    def card(self) -> AgentCard | None: ...

    @property
    def auth(self) -> AuthProvider | None: ...

    @property
    def task(self) -> Task | None: ...

    @property
    def binding(self) -> str | None: ...

    @property
    def journal_name(self) -> str | None: ...

    @property
    def message_id(self) -> str | None: ...

    @property
    def may_have_been_sent(self) -> bool: ...

    @property
    def continues(self) -> bool: ...

    @property
    def key(self) -> str | None: ...

    @property
    def on_unknown(self) -> OnUnknown: ...

    @property
    def asks_for_config(self) -> bool: ...

    def command(self, *words: str) -> str: ...

    def resume_command(self, task_id: str) -> str: ...


def usage(message: str, command: str, *, instead: str | None = None) -> Failure:
    """Return the failure of an invalid command line."""
    return Failure(
        code="A2ACLI_ERR_USAGE",
        message=message,
        hint=f"{command} --help",
        exit=USAGE,
        instead=instead,
    )


def internal(error: BaseException) -> Failure:
    """Return the failure of an unexpected exception."""
    return Failure(
        code="A2ACLI_ERR_INTERNAL",
        message=f"{type(error).__name__}{f': {error}' if str(error) else ''}",
        hint="run the same command with --debug to see more",
    )


def unwritable(error: OSError, state: CommandState | None = None) -> Failure:
    """Return the failure of a result that cannot be shown; what led to it has taken effect.

    Args:
        error: The error of the output.
        state: The progress of the command; None if it had not begun.
    """
    message = f"the output cannot be written: {error.strerror or error}"
    hint = None
    if state is not None:
        effects = ["the message was sent"] if state.may_have_been_sent else []
        task = state.task
        if task is not None:
            effects.append(f"task {task.id} was last seen {task.state}")
            look = state.command("task", "get", task.id)
            hint = look if task.state.is_terminal else state.resume_command(task.id)
        elif effects:
            hint = "sending it again would execute it again"
        message = "; ".join((message, *effects))
    return Failure(code="HOLDFAST_ERR_FILE", message=message, hint=hint)


def out_of_time(seconds: float) -> Failure:
    """The failure of a command whose timeout expires while no call is in flight."""
    return Failure(
        code="A2ACLI_ERR_TIMEOUT",
        message=f"the timeout of {shown_duration(seconds)} expired",
        hint="allow more time with --timeout",
        exit=TIMEOUT,
    )


def unusable(path: Path | str, problem: str, hint: str | None = None) -> CommandError:
    """Return the error of a file that a command requires and cannot use."""
    return CommandError(
        Failure(code="HOLDFAST_ERR_FILE", message=f"{path} {problem}; nothing was sent", hint=hint)
    )


def unreachable_reason(error: A2AError) -> str:
    """Return why the agent cannot be reached, in one line, without the attempts."""
    copied = copy.copy(error)
    copied.excerpt = copied.retry_stopped_reason = None
    return one_line(copied)


def one_line(error: A2AError) -> str:
    """Return an error in one line, without its attempts, which the caller describes."""
    copied = copy.copy(error)
    copied.attempts, copied.retry_after, copied.retry_stopped_reason = (), None, None
    return str(copied)
