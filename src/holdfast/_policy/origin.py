"""The message that a task answers: whether a task of the same id is another message's by now.

An agent that loses its tasks in a restart may give their ids to other tasks. All of this is pure.

Rules: a task is another's only where that is certain; where nothing can be known, it is the
message's:
- A task whose history or status has the message's id is the message's. So is one in a context
  that was made for this one message.
- A task in another context than the message's task was seen in is another's.
- A task whose history has user messages, and begins with one of them, is another's if each of
  these is certainly another message: it says something else than a message that began its task
  (agents may keep other ids), or the journal has it as a later call. A reply may be missing
  where a store is behind, and the beginning of a history where an agent shortens it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import TaskNotFoundError
from holdfast.types import Message, Role

if TYPE_CHECKING:
    from holdfast.types import Task

__all__ = ["Origin", "has_message"]


class Origin(msgspec.Struct, kw_only=True):
    """The message that a task answers, as far as it is known.

    Attributes:
        message_id: Id of the message.
        context_id: The context that its task was seen in; None for none.
        own_context_id: The context that was made for the message alone; None for none.
        said: The message, if it is known and began its task; None otherwise.
        began: When its recorded call began, in seconds since the epoch; None without a record.
        later: Ids of messages that are known to be other calls, made later.
    """

    message_id: str
    context_id: str | None = None
    own_context_id: str | None = None
    said: Message | None = None
    began: float | None = None
    later: frozenset[str] = frozenset()

    def strangers(self, task: Task) -> tuple[Message, ...]:
        """Return the user messages of a whole history that does not have this one by its id."""
        history = task.history
        is_whole = bool(history) and history[0].role is Role.USER
        if not is_whole or has_message(task, self.message_id):
            return ()
        return tuple(message for message in history if message.role is Role.USER)

    def check(self, task: Task, context_id: str | None = None) -> None:
        """Check that a task that was given for an id is not another message's.

        Args:
            task: The task.
            context_id: The context that it was seen in last; None for `context_id` of the origin.

        Raises:
            TaskNotFoundError: It is: the agent no longer has the task of this message.
        """
        known = context_id or self.context_id
        strangers = self.strangers(task)
        said = None if _is_in(task, self.own_context_id) else self.said
        is_anothers = bool(strangers) and all(
            one.message_id in self.later or _says_other(one, said) for one in strangers
        )
        if known and task.context_id and task.context_id != known:
            is_anothers = not has_message(task, self.message_id)
        if is_anothers:
            what = (
                f"task {task.id} is not the one of message {self.message_id} any more: the agent "
                "has given its id to the task of another message, as after a restart that lost "
                "its tasks"
            )
            raise TaskNotFoundError(what, task_id=task.id, executed=True)


def has_message(task: Task, message_id: str) -> bool:
    """Whether a task shows a message by its id, in its history or its status."""
    said = (*task.history, task.status.message)
    return any(one is not None and one.message_id == message_id for one in said)


def _is_in(task: Task, context_id: str | None) -> bool:
    return bool(context_id) and task.context_id == context_id


def _says_other(message: Message, said: Message | None) -> bool:
    """Whether both have texts, and neither text contains the other, by whole words."""
    there, here = _words(message), _words(said)
    return bool(here and there) and here not in there and there not in here


def _words(message: Message | None) -> str:
    """The text of a message, to be compared by whole words; empty for none."""
    words = [] if message is None else message.text.split()
    return f" {' '.join(words)} " if words else ""
