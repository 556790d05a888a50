"""The answer of an agent, as `Client.ask` returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

from holdfast._model.codec import MalformedError
from holdfast._model.error_values import one_line
from holdfast._model.redacted_repr import RedactedRepr, short_repr
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    InvalidAgentResponseError,
    TaskCanceledError,
    TaskFailedError,
    TaskInputRequiredError,
    TaskRejectedError,
    TaskTerminalError,
)
from holdfast.types import Message, Task, TaskState, WireValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.errors import Attempt

__all__ = ["Answer", "input_required", "raise_for_outcome"]

_MAX_QUESTION_CHARS = 500
"""Characters of a task's question that an error quotes; the task has all of it."""


class Answer(RedactedRepr, WireValue, frozen=True, kw_only=True):
    """The answer of an agent: a task that is completed or waits for input, or a message.

    `to_dict` returns the answer as a JSON object: the protocol's ``task`` or ``message``, and
    ``extensions`` if there are any.

    Attributes:
        task: The task, if the agent created one.
        message: The message, if the agent replied with one.
        extensions: URIs of the extensions that the agent activated, according to its reply.
    """

    task: Task | None = None
    message: Message | None = None
    extensions: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Convert the JSON object that `to_dict` returns to an answer.

        Args:
            data: The JSON object; unknown members are ignored.

        Raises:
            ValueError: It has neither a task nor a message, or a member is missing or has the
                wrong type; the message of the error names the member.
        """
        answer = super().from_dict(data)
        if answer.task is None and answer.message is None:
            text = "Object missing required field `task` or `message`"
            raise MalformedError(text)
        message = answer.message
        if message is not None and not (message.message_id or message.parts):
            text = "Object missing required fields `messageId` and `parts`"
            raise MalformedError(text, "message")
        return answer

    @property
    def text(self) -> str:
        """The text of the answer; empty if there is none.

        It is the text of the message or of the task's artifacts. If a completed task has no
        artifact with text, it is the text of the final status message. It never includes the
        agent's question (`question`).
        """
        if self.message is not None:
            return self.message.text
        if self.task is None:
            return ""
        if self.task.text or self.task.state is not TaskState.COMPLETED:
            return self.task.text
        final = self.task.status.message
        return "" if final is None else final.text

    @property
    def state(self) -> TaskState | None:
        """State of the task, COMPLETED or INPUT_REQUIRED; None for a message."""
        return None if self.task is None else self.task.state

    @property
    def needs_input(self) -> bool:
        """True if the task waits for another message (state INPUT_REQUIRED)."""
        return self.state is TaskState.INPUT_REQUIRED

    @property
    def question(self) -> str:
        """The agent's question if `needs_input` is true; otherwise empty."""
        if self.task is None or not self.needs_input or self.task.status.message is None:
            return ""
        return self.task.status.message.text

    @property
    def task_id(self) -> str | None:
        """Id of the task, or of the task that the message names; None if there is neither."""
        if self.task is not None:
            return self.task.id
        return None if self.message is None else self.message.task_id

    @property
    def context_id(self) -> str | None:
        """Id of the conversation (``contextId``); pass it to continue the conversation."""
        reply = self.task or self.message
        return None if reply is None else reply.context_id

    def __repr__(self) -> str:
        if self.message is not None:
            return short_repr(self, message=self.message)
        return short_repr(
            self, task_id=self.task_id, state=self.state, text=self.text, question=self.question
        )


_ERROR_TYPES: dict[TaskState, type[TaskTerminalError]] = {
    TaskState.FAILED: TaskFailedError,
    TaskState.REJECTED: TaskRejectedError,
    TaskState.CANCELED: TaskCanceledError,
}


def input_required(
    task: Task, question: str, *, client: str = "client", agent: str | None = None
) -> TaskInputRequiredError:
    """Return the error of a task that waits for input, where only a completed one is a result.

    Args:
        task: The task.
        question: The agent's question.
        client: The expression that returns the client of the agent.
        agent: Address of the agent.
    """
    quoted = one_line(question, _MAX_QUESTION_CHARS)
    advice = f"answer with {client}.ask(…, task_id={task.id!r})"
    message = f"task {task.id} needs input: {f'{quoted}; ' if quoted else ''}{advice}"
    return TaskInputRequiredError(message, task=task, executed=True, agent=agent)


def raise_for_outcome(
    task: Task,
    *,
    agent: str | None = None,
    stream_error: A2AError | None = None,
    request_id: str | None = None,
    attempts: Sequence[Attempt] = (),
) -> None:
    """Raise an error if a task ended in any state but COMPLETED.

    Args:
        task: The task.
        agent: Address of the agent that worked on it.
        stream_error: The error that broke the task's stream. It becomes the cause if the agent
            reported it.
        request_id: Id of the call that the task answers.
        attempts: The attempts of that call, in order.

    Raises:
        TaskFailedError: The task failed.
        TaskRejectedError: The agent rejected the task.
        TaskCanceledError: The task was canceled.
    """
    error_type = _ERROR_TYPES.get(task.state)
    if error_type is None:
        return
    cause = None if isinstance(stream_error, A2AConnectionError | TimeoutError) else stream_error
    if isinstance(cause, InvalidAgentResponseError) and cause.code is None:
        cause = None  # the client could not read the agent's error
    if cause is None:
        cause = _reported_error(task.status.message)
    reason = "" if task.status.message is None else task.status.message.text
    if not reason and cause is not None:
        reason = cause.message
    message = f"task {task.id} ended in {task.state.name}{': ' if reason else ''}{reason}"
    raise error_type(
        message, task=task, executed=True, agent=agent, request_id=request_id, attempts=attempts
    ) from cause


def _reported_error(message: Message | None) -> A2AError | None:
    """Return the error in the metadata of a status message, where `holdfast.server` puts it."""
    metadata = None if message is None else message.metadata
    document = None if metadata is None else metadata.get("error")
    if not isinstance(document, dict):
        return None
    error = A2AError.from_jsonrpc(cast("dict[str, Any]", document))
    return error if error.code is not None else None  # not a JSON-RPC error
