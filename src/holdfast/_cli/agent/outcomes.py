"""How a task came out, in words, and the command that continues from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._cli.output.base import Notice
from holdfast._cli.output.sanitizer import shortened
from holdfast._wire.versions import OLDER_VERSION
from holdfast.errors import A2AError, TaskTerminalError
from holdfast.types import Task, TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._cli.agent.session import Session
    from holdfast._cli.output.base import Output
    from holdfast._client.event_stream import EventStream

__all__ = [
    "OUTCOMES",
    "described_ending",
    "named_outcome",
    "report_outcome",
    "stated_end_reason",
    "suggest_download",
    "warn_of_gap",
]

_MAX_REASON_CHARACTERS = 300
"""Characters of an agent's reason that a warning shows; the task has the whole reason."""


async def stated_end_reason(events: EventStream) -> str:
    """Return the agent's reason for ending a stream, if the ended task itself states none."""
    task = events.task
    message = None if task is None else task.status.message
    if task is None or not task.state.is_terminal or (message is not None and message.text):
        return ""
    try:
        await events.result()
    except TaskTerminalError as error:
        if isinstance(error.__cause__, A2AError):
            return f": {error.__cause__.message}"
    return ""


def warn_of_gap(session: Session, output: Output, events: EventStream) -> None:
    """Warn that status messages may be missing, unless a warning was shown already."""
    offers = session.card is not None and bool(session.card.capabilities.streaming)
    if offers and events.is_polled and session.protocol_version == OLDER_VERSION:
        output.emit(
            Notice.warning(
                "the task was polled instead of subscribed to, because servers of protocol 0.3 "
                "may store a task's text once more for each subscriber; status messages may be "
                "missing"
            )
        )
    elif offers and events.gap and not events.reconnects:
        output.emit(
            Notice.warning(
                "the stream was cut and not resumed: the task was polled instead; status messages "
                "may be missing"
            )
        )


def report_outcome(
    session: Session, output: Output, task: Task, *, suggests_wait: bool = False, reason: str = ""
) -> None:
    """Report an outcome other than success, and the command that continues from here."""
    if task.state in OUTCOMES:
        output.emit(Notice.warning(f"{named_outcome(task)}{reason or _stated_reason(task)}"))
    if task.state is TaskState.INPUT_REQUIRED:
        output.emit(Notice.hint(session.command("send", "--task-id", task.id, "<reply>")))
    elif task.state is TaskState.AUTH_REQUIRED:
        output.emit(
            Notice.hint(session.command("task", "get", "--wait", "--through-auth", task.id))
        )
        reply = session.command("send", "--task-id", task.id, "<reply>")
        output.emit(Notice.hint(f"or answer the agent: {reply}"))
    elif suggests_wait and not task.state.is_terminal:
        output.emit(Notice.hint(session.command("task", "get", "--wait", task.id)))


def suggest_download(session: Session, output: Output, task: Task) -> None:
    """Name the command that saves the files of a task, unless programs read the output."""
    has_files = any(
        part.raw is not None or part.url is not None
        for artifact in task.artifacts
        for part in artifact.parts
    )
    if has_files and session.settings.output == "text":
        command = session.command("task", "download", task.id)
        output.emit(Notice.hint(f"to save the files: {command}"))


def described_ending(task: Task) -> str:
    """Describe how a task ended without success, with the agent's reason.

    Returns:
        One line; an empty text for a completed or unfinished task.
    """
    if not task.state.is_terminal or task.state is TaskState.COMPLETED:
        return ""
    return f"{named_outcome(task)}{_stated_reason(task)}"


def named_outcome(task: Task) -> str:
    """Return the task's id and its state, in words and by name."""
    return f"task {task.id} {OUTCOMES[task.state]} ({task.state})"


def _stated_reason(task: Task) -> str:
    """Return the reason that the agent gives for a task's end, after a colon; empty if none."""
    message = task.status.message
    if message is None or not task.state.is_terminal:
        return ""
    reason = " ".join(message.text.split())
    return f": {shortened(reason, _MAX_REASON_CHARACTERS)}" if reason else ""


OUTCOMES: Mapping[TaskState, str] = {
    TaskState.FAILED: "failed",
    TaskState.REJECTED: "was rejected",
    TaskState.CANCELED: "was canceled",
    TaskState.INPUT_REQUIRED: "waits for your answer",
    TaskState.AUTH_REQUIRED: "waits for authorization",
}
"""The words for a task that did not succeed, after its name."""
