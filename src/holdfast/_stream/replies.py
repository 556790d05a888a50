"""Replies to tasks that wait: whether a task that still waits has seen its reply.

A server may show a task as it waited for some time after it has taken the reply: at the beginning
of the reply's stream, in the answer to SendMessage, and to GetTask. That state is stale, and no
answer.

Rules: the question is the status that the task had before the reply. A status is stale if it is in
the same state, unless one of these says that it is newer (A2A 4.1.2, 4.1.4):
- its timestamp is later;
- where a timestamp is missing, or both are equal: its message has another id; or, without ids,
  another content. A message that is gone may have moved to the history;
- the history has a message of the agent behind the reply;
- where timestamps do not tell, the task was seen in another state in between.
A newer status is stale all the same if the history shows that it answers another client: behind
the question it has a message of a user that is not the reply, and it does not have the reply.
Where the question is unknown, the first state that a reply is answered with is taken for it as
long as nothing says otherwise; a status update is an event, and so no question of before.
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

_UNDECIDED = 60.0
"""Seconds that an agent has to go on with a task where the same question may be asked anew."""

_TASKS = 256
"""Tasks to remember; of one that was forgotten, the agent is asked."""


class PendingReply:
    """A reply to a task that waited for it, until the task has moved on.

    Args:
        task_id: The task.
        message_id: Id of the reply.
        question: What the task waited for; None where that is not known.
        said: The reply itself, as a server may store it under another id.

    Attributes:
        is_over: Whether what the task waits for from now on is no question of before.
    """

    __slots__ = ("_is_guess", "_left", "_message_id", "_question", "_said", "_task_id", "is_over")

    def __init__(
        self,
        task_id: str,
        message_id: str,
        question: TaskStatus | None,
        said: Message | None = None,
    ) -> None:
        self._task_id = task_id
        self._message_id = message_id
        self._question = question
        self._said = said
        self._is_guess = question is None
        self._left: set[type] = set()  # kinds of events that showed the task in another state
        self.is_over = False

    def saw(self, event: Event) -> None:
        """Learns from an event, or from the task as it was asked for."""
        if not isinstance(event, Task | TaskStatusUpdateEvent) or self.is_over:
            return
        question, status, kind = self._question, event.status, type(event)
        named = event.id if isinstance(event, Task) else event.task_id
        if named and named != self._task_id:
            self.is_over = True  # the agent answers with another task
        elif isinstance(event, Task) and self._is_answered_in(event.history):
            self.is_over = True
        elif question is None:
            if isinstance(event, Task) and status.state.is_interrupted:
                self._question = status
            else:
                self.is_over = True
        elif isinstance(event, Task) and self._answers_another(event):
            self._question, self._is_guess = status, True
        elif status.state is not question.state:
            self._left.add(kind)
        elif kind in self._left and _may_hide_a_change(status, question):
            self.is_over = True  # a store may be behind its stream, but neither behind itself

    def is_stale(self, status: TaskStatus) -> bool:
        """Whether a status is that of before the reply, as far as is known."""
        if self.is_over or self._question is None or not status.state.is_interrupted:
            return False
        return still_waits(status, self._question)

    def max_silence(self, status: TaskStatus, longest: float) -> float:
        """Seconds after which a stale status is the agent's answer all the same.

        Args:
            status: The status.
            longest: The same where nothing but a newer status can be the answer.
        """
        question = self._question
        if question is None or self._is_guess or _may_hide_a_change(status, question):
            return min(longest, _UNDECIDED)
        return longest

    def _is_answered_in(self, history: tuple[Message, ...]) -> bool:
        """Whether the agent has said something in a history after the reply."""
        ids = [message.message_id for message in history]
        if self._message_id not in ids:
            return False
        asked = None if self._question is None else self._question.message
        known = "" if asked is None else asked.message_id
        later = history[ids.index(self._message_id) + 1 :]
        return any(one.role is Role.AGENT and one.message_id != known for one in later)

    def _answers_another(self, task: Task) -> bool:
        """Whether a task waits for input again because another client has replied to it."""
        asked = None if self._question is None else self._question.message
        ids = [message.message_id for message in task.history]
        is_stored = asked is not None and bool(asked.message_id) and asked.message_id in ids
        if asked is None or not is_stored or not task.status.state.is_interrupted:
            return False
        later = task.history[ids.index(asked.message_id) + 1 :]
        users = [message for message in later if message.role is Role.USER]
        return bool(users) and not any(map(self._is_reply, users))

    def _is_reply(self, message: Message) -> bool:
        """Whether a message of the history is the reply, as far as its server shows it."""
        said = self._said
        if said is None or message.message_id == self._message_id:
            return message.message_id == self._message_id
        return message.parts == said.parts or (bool(said.text) and message.text == said.text)


def _may_hide_a_change(status: TaskStatus, question: TaskStatus) -> bool:
    """Whether a status that looks like the question may be a later one.

    Without a timestamp it may be; and, if no message id is the same, within the second of one that
    has no fraction.
    """
    if status.time is None or question.time is None:
        return True
    said, asked = status.message, question.message
    is_same = said is not None and asked is not None and said.message_id == asked.message_id != ""
    is_whole_second = "." not in (status.timestamp or "")
    return status.time == question.time and is_whole_second and not is_same


class _Waiting(msgspec.Struct, frozen=True):
    """A task that waits, or did when it was replied to."""

    question: TaskStatus | None
    reply: PendingReply | None = None


class Replies:
    """What the tasks of an agent waited for when they were last seen, and replies to them.

    The latest 256 tasks are remembered.
    """

    def __init__(self) -> None:
        self._tasks: BoundedDict[str, _Waiting] = BoundedDict(_TASKS)

    def saw(self, task_id: str, status: TaskStatus) -> None:
        """Notes how a task stands, unless a store tells what was before the question."""
        known = self._tasks.get(task_id)
        asked = None if known is None else known.question
        if asked is not None and _is_of_before(status, asked):
            return
        if not status.state.is_interrupted:
            if known is not None and (known.reply is None or status.state.is_terminal):
                del self._tasks[task_id]  # else a store may be behind, and show the question again
        elif known is None or known.reply is None or not known.reply.is_stale(status):
            self._tasks[task_id] = _Waiting(status)

    def question(self, task_id: str) -> TaskStatus | None:
        """What a task waits for, as last seen; None where that is not known."""
        known = self._tasks.get(task_id)
        return None if known is None else known.question

    def sent(self, task_id: str, reply: PendingReply) -> None:
        """Notes a reply that the agent has taken."""
        self._tasks[task_id] = _Waiting(self.question(task_id), reply)

    def pending(self, task_id: str) -> PendingReply | None:
        """The reply that was sent to a task last; None where it is known to be answered."""
        known = self._tasks.get(task_id)
        reply = None if known is None else known.reply
        return None if reply is None or reply.is_over else reply


def _is_of_before(status: TaskStatus, question: TaskStatus) -> bool:
    """Whether a status was there before a question; one that has no later time may have been."""
    newer = is_newer(status, question)
    if newer is None:
        return question.time is not None and not status.state.is_interrupted
    return not newer
