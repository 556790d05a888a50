"""Replies to interrupted tasks: whether a status that still waits is older than the reply.

For some time after a server has taken a reply, it may show the task as it waited before: at the
beginning of the reply's stream, in the response to SendMessage, and to GetTask. That status is
stale, and does not answer the reply.

Rules: the question is the status that the task had before the reply. A status is stale if it is in
the same state, unless one of these says that it is newer (A2A 4.1.2, 4.1.4):
- its timestamp is later;
- where a timestamp is missing, or both are equal: its message has another id; or, without ids,
  another content. A message that is gone may have moved to the history;
- the history has a message of the agent after the reply;
- where timestamps do not tell, the task was seen in another state in between.
A newer status is stale all the same if the history shows that it answers another client: after
the question it has a message of a user that is not the reply, and it does not have the reply.
If the question is unknown, the first interrupted task after the reply is taken for it until
something contradicts that. A status update is a new event, so it cannot be the old question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._model.bounded_dict import BoundedDict
from holdfast._stream.status_order import is_newer, still_waits
from holdfast.types import Role, Task, TaskStatus, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from holdfast.types import Event, Message

__all__ = ["PendingReply", "Replies"]

_ANSWER_TIMEOUT_S = 60.0
"""Seconds after which a status counts that may be the old question, or the same one once more."""

_MAX_TASKS = 256
"""Tasks to remember; for others, GetTask is called."""


class PendingReply:
    """A reply to an interrupted task, until the task has continued.

    Args:
        task_id: The task.
        message_id: Id of the reply.
        question: The status of the task before the reply; None if it is unknown.
        message: The reply itself, as a server may store it under another id.

    Attributes:
        is_answered: Whether the task has continued, so that a later question is new.
    """

    __slots__ = (
        "_is_guess",
        "_left",
        "_message",
        "_message_id",
        "_question",
        "_task_id",
        "is_answered",
    )

    def __init__(
        self,
        task_id: str,
        message_id: str,
        question: TaskStatus | None,
        message: Message | None = None,
    ) -> None:
        self._task_id = task_id
        self._message_id = message_id
        self._question = question
        self._message = message
        self._is_guess = question is None
        self._left: set[type] = set()  # kinds of events that showed the task in another state
        self.is_answered = False

    def record(self, event: Event) -> None:
        """Learn from an event, or from the task as it was fetched."""
        if not isinstance(event, Task | TaskStatusUpdateEvent) or self.is_answered:
            return
        question, status, kind = self._question, event.status, type(event)
        named = event.id if isinstance(event, Task) else event.task_id
        if named and named != self._task_id:
            self.is_answered = True  # the agent answers with another task
        elif isinstance(event, Task) and self._is_answered_in(event.history):
            self.is_answered = True
        elif question is None:
            if isinstance(event, Task) and status.state.is_interrupted:
                self._question = status
            else:
                self.is_answered = True
        elif isinstance(event, Task) and self._answers_another(event):
            self._question, self._is_guess = status, True
        elif status.state is not question.state:
            self._left.add(kind)
        elif kind in self._left and _may_hide_a_change(status, question):
            self.is_answered = True  # a store may be behind its stream, but neither behind itself

    def is_stale(self, status: TaskStatus) -> bool:
        """Return whether a status is older than the reply, as far as is known."""
        if self.is_answered or self._question is None or not status.state.is_interrupted:
            return False
        return still_waits(status, self._question)

    def max_silence(self, status: TaskStatus, longest: float) -> float:
        """Return the seconds after which a stale status counts as the agent's answer.

        Args:
            status: The status.
            longest: The seconds for a status that only a newer one can follow.
        """
        question = self._question
        if question is None or self._is_guess or _may_hide_a_change(status, question):
            return min(longest, _ANSWER_TIMEOUT_S)
        return longest

    def _is_answered_in(self, history: tuple[Message, ...]) -> bool:
        """Return whether a history has a message of the agent after the reply."""
        ids = [message.message_id for message in history]
        if self._message_id not in ids:
            return False
        asked = None if self._question is None else self._question.message
        asked_id = "" if asked is None else asked.message_id
        later = history[ids.index(self._message_id) + 1 :]
        return any(
            message.role is Role.AGENT and message.message_id != asked_id for message in later
        )

    def _answers_another(self, task: Task) -> bool:
        """Return whether a task waits again because another client has replied to it."""
        asked = None if self._question is None else self._question.message
        ids = [message.message_id for message in task.history]
        is_stored = asked is not None and bool(asked.message_id) and asked.message_id in ids
        if asked is None or not is_stored or not task.status.state.is_interrupted:
            return False
        later = task.history[ids.index(asked.message_id) + 1 :]
        users = [message for message in later if message.role is Role.USER]
        return bool(users) and not any(map(self._is_reply, users))

    def _is_reply(self, message: Message) -> bool:
        """Return whether a message of the history is the reply, as its server shows it."""
        reply = self._message
        if reply is None or message.message_id == self._message_id:
            return message.message_id == self._message_id
        return message.parts == reply.parts or (bool(reply.text) and message.text == reply.text)


def _may_hide_a_change(status: TaskStatus, question: TaskStatus) -> bool:
    """Return whether a status that looks like the question may be a later one.

    It may be without a timestamp; and if the message ids differ, within the second of a timestamp
    that has no fraction.
    """
    if status.time is None or question.time is None:
        return True
    new, asked = status.message, question.message
    is_same = new is not None and asked is not None and new.message_id == asked.message_id != ""
    is_whole_second = "." not in (status.timestamp or "")
    return status.time == question.time and is_whole_second and not is_same


class _Waiting(msgspec.Struct, frozen=True):
    """A task that is interrupted, or was when a reply was sent to it."""

    question: TaskStatus | None
    reply: PendingReply | None = None


class Replies:
    """The questions of an agent's tasks as last seen, and the replies to them.

    The latest 256 tasks are remembered.
    """

    def __init__(self) -> None:
        self._tasks: BoundedDict[str, _Waiting] = BoundedDict(_MAX_TASKS)

    def record_status(self, task_id: str, status: TaskStatus) -> None:
        """Record a status of a task, unless it is older than the question."""
        known = self._tasks.get(task_id)
        asked = None if known is None else known.question
        if asked is not None and _may_precede(status, asked):
            return
        if not status.state.is_interrupted:
            if known is not None and (known.reply is None or status.state.is_terminal):
                del self._tasks[task_id]  # else a store may be behind, and show the question again
        elif known is None or known.reply is None or not known.reply.is_stale(status):
            self._tasks[task_id] = _Waiting(status)

    def question(self, task_id: str) -> TaskStatus | None:
        """Return the status in which a task waits, as last seen; None if it is unknown."""
        known = self._tasks.get(task_id)
        return None if known is None else known.question

    def record_reply(self, task_id: str, reply: PendingReply) -> None:
        """Record a reply that the agent has taken."""
        self._tasks[task_id] = _Waiting(self.question(task_id), reply)

    def pending(self, task_id: str) -> PendingReply | None:
        """Return the last reply that was sent to a task; None if it is known to be answered."""
        known = self._tasks.get(task_id)
        reply = None if known is None else known.reply
        return None if reply is None or reply.is_answered else reply


def _may_precede(status: TaskStatus, question: TaskStatus) -> bool:
    """Return whether a status is older than a question, or may be: its time is not later."""
    newer = is_newer(status, question)
    if newer is None:
        return question.time is not None and not status.state.is_interrupted
    return not newer
