"""What `Client.ask` gives: an agent's answer, whatever it took to get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    InvalidAgentResponseError,
    TaskCanceledError,
    TaskFailedError,
    TaskRejectedError,
    TaskTerminalError,
)
from holdfast.types import Message, Task, TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.errors import Attempt

__all__ = ["Answer", "raise_for_outcome"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's answer: a task that is completed or waits for input, or a message.

    Attributes:
        task: The task, if the agent made one.
        message: The message, if the agent answered with one.
        extensions: URIs of the extensions that the agent has activated, as its reply says.
    """

    task: Task | None = None
    message: Message | None = None
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What the agent has to say.

        The text of the message or of the task's artifacts; of the closing status message where
        a completed task has no artifact with text. A question is never part of it: see
        `question`.
        """
        if self.message is not None:
            return self.message.text
        if self.task is None:
            return ""
        if self.task.text or self.task.state is not TaskState.COMPLETED:
            return self.task.text
        closing = self.task.status.message
        return "" if closing is None else closing.text

    @property
    def needs_input(self) -> bool:
        """Whether the task waits for another message."""
        return self.task is not None and self.task.state is TaskState.INPUT_REQUIRED

    @property
    def question(self) -> str:
        """What the agent asks, where `needs_input`."""
        if self.task is None or not self.needs_input or self.task.status.message is None:
            return ""
        return self.task.status.message.text

    @property
    def task_id(self) -> str | None:
        """Id of the task."""
        if self.task is not None:
            return self.task.id
        return None if self.message is None else self.message.task_id

    @property
    def context_id(self) -> str | None:
        """Id of the conversation, to go on with."""
        whole = self.task or self.message
        return None if whole is None else whole.context_id


_FAILURES: dict[TaskState, type[TaskTerminalError]] = {
    TaskState.FAILED: TaskFailedError,
    TaskState.REJECTED: TaskRejectedError,
    TaskState.CANCELED: TaskCanceledError,
}


def raise_for_outcome(
    task: Task,
    *,
    agent: str | None = None,
    broke_with: A2AError | None = None,
    request_id: str | None = None,
    attempts: Sequence[Attempt] = (),
) -> None:
    """Raises if a task is over and not completed.

    Args:
        task: The task.
        agent: Who worked on it.
        broke_with: What its stream broke with; where the agent said so itself, it is the cause.
        request_id: Names the call that the task answers.
        attempts: Each try that was made of that call, in order.

    Raises:
        TaskFailedError: It failed.
        TaskRejectedError: The agent refused it.
        TaskCanceledError: It was canceled.
    """
    kind = _FAILURES.get(task.state)
    if kind is None:
        return
    cause = None if isinstance(broke_with, A2AConnectionError | TimeoutError) else broke_with
    if isinstance(cause, InvalidAgentResponseError) and cause.code is None:
        cause = None  # what it said could not be read
    if cause is None:
        cause = _told_in(task.status.message)
    reason = "" if task.status.message is None else task.status.message.text
    if not reason and cause is not None:
        reason = cause.message
    message = f"task {task.id} ended in {task.state.name}{': ' if reason else ''}{reason}"
    raise kind(
        message, task=task, executed=True, agent=agent, request_id=request_id, attempts=attempts
    ) from cause


def _told_in(message: Message | None) -> A2AError | None:
    """The error that an agent put beside its words, as `holdfast.server` does; None for none."""
    told = None if message is None or message.metadata is None else message.metadata.get("error")
    if not isinstance(told, dict):
        return None
    error = A2AError.from_jsonrpc(cast("dict[str, Any]", told))
    return error if error.code is not None else None  # others call something else an error
