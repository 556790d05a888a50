"""The message that a task answers: detects a task id that the agent has reused.

An agent that loses its tasks in a restart may give their ids to other tasks. These functions are
pure.

Rules: a task belongs to another message only if that is certain; otherwise it belongs to the
message:
- A task whose history or status contains the message's id belongs to the message. So does a task
  in a context that was created for this message alone.
- A task in a context other than the one in which the message's task was seen belongs to another
  message.
- A task whose history starts with a user message belongs to another message if each user message
  in it is certainly a different one: its text differs from that of the message that started the
  task (agents may store other ids), or the journal has it as a later call. A reply may be missing
  if a store lags behind, and the start of a history if the agent truncates it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import TaskNotFoundError
from holdfast.types import Message, Role

if TYPE_CHECKING:
    from holdfast.types import Task

__all__ = ["TaskOwner", "has_message"]


class TaskOwner(msgspec.Struct, kw_only=True):
    """The message that a task answers, with the facts known about it.

    Attributes:
        message_id: Id of the message.
        context_id: The context in which its task was seen; None if there is none.
        own_context_id: The context created for the message alone; None if there is none.
        message: The message, if it is known and started its task; None otherwise.
        began: When its recorded call started, in seconds since the epoch; None without a record.
        later: Ids of messages that are known to belong to later calls.
    """

    message_id: str
    context_id: str | None = None
    own_context_id: str | None = None
    message: Message | None = None
    began: float | None = None
    later: frozenset[str] = frozenset()

    def strangers(self, task: Task) -> tuple[Message, ...]:
        """Return the user messages of a complete history that lacks this message's id."""
        history = task.history
        is_whole = bool(history) and history[0].role is Role.USER
        if not is_whole or has_message(task, self.message_id):
            return ()
        return tuple(message for message in history if message.role is Role.USER)

    def check(self, task: Task, context_id: str | None = None) -> None:
        """Check that a task returned for an id does not belong to another message.

        Args:
            task: The task.
            context_id: The context in which the task was last seen; None for the owner's
                `context_id`.

        Raises:
            TaskNotFoundError: The task belongs to another message: the agent no longer has the
                task of this message.
        """
        expected_context_id = context_id or self.context_id
        strangers = self.strangers(task)
        message = None if _is_in(task, self.own_context_id) else self.message
        is_reused = bool(strangers) and all(
            stranger.message_id in self.later or _has_other_text(stranger, message)
            for stranger in strangers
        )
        if expected_context_id and task.context_id and task.context_id != expected_context_id:
            is_reused = not has_message(task, self.message_id)
        if is_reused:
            text = (
                f"task {task.id} no longer belongs to message {self.message_id}: the agent reused "
                "its id for another message, for example after a restart that lost its tasks"
            )
            raise TaskNotFoundError(text, task_id=task.id, executed=True)


def has_message(task: Task, message_id: str) -> bool:
    """Return whether the history or the status of a task contains a message id."""
    messages = (*task.history, task.status.message)
    return any(message is not None and message.message_id == message_id for message in messages)


def _is_in(task: Task, context_id: str | None) -> bool:
    return bool(context_id) and task.context_id == context_id


def _has_other_text(message: Message, other: Message | None) -> bool:
    """Return whether both messages have text and neither contains the other, by whole words."""
    text, other_text = _words(message), _words(other)
    return bool(text and other_text) and text not in other_text and other_text not in text


def _words(message: Message | None) -> str:
    """Return the text of a message for comparison by whole words; empty if it has none."""
    words = [] if message is None else message.text.split()
    return f" {' '.join(words)} " if words else ""
