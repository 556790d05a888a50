"""The task manager of the official SDK's client, as a thin face of the fold.

For programs that fold events themselves; `EventStream.task` does the same while it streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast._stream.fold import TaskFold, check_same_task
from holdfast.errors import InvalidAgentResponseError
from holdfast.types import Message, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from holdfast._stream.fold import TaskUpdate
    from holdfast._wire.limits import Limits
    from holdfast.types import Event, Task

__all__ = ["ClientTaskManager"]

E = TypeVar("E", bound="Event")


class ClientTaskManager:
    """Keeps one task up to date with the events that are told to it.

    The rules are those of Holdfast's streams: a second `Task` of the same id is a newer picture of
    it, the message of a status moves to the history when the next status comes, and nothing that
    was given is changed afterwards.

    Args:
        limits: How large the task may become; the defaults if left out.
    """

    def __init__(self, *, limits: Limits | None = None) -> None:
        self._fold = TaskFold(limits=limits)
        self._context_id: str | None = None

    def get_task(self) -> Task | None:
        """The task as it stands; None before the first event of one."""
        return self._fold.task

    def get_task_or_raise(self) -> Task:
        """The task as it stands.

        Raises:
            InvalidAgentResponseError: There was no event of a task yet.
        """
        task = self._fold.task
        if task is None:
            text = "there is no task yet: no event of a task has arrived"
            raise InvalidAgentResponseError(text)
        return task

    async def process(self, event: E) -> E:
        """Folds an event in, if it is of a task, and gives it back; a `Message` is of none.

        Raises:
            InvalidAgentResponseError: It is of another task, or context; nothing has changed.
            LimitExceededError: The task becomes too large; nothing has changed.
        """
        if not isinstance(event, Message):
            self._add(event)
        return event

    async def save_task_event(self, event: TaskUpdate) -> Task:
        """Folds an event of the task in, and gives the task as it is then.

        Raises:
            InvalidAgentResponseError: It is of another task, or context; nothing has changed.
            LimitExceededError: The task becomes too large; nothing has changed.
        """
        self._add(event)
        return self.get_task_or_raise()

    def update_with_message(self, message: Message, task: Task) -> Task:
        """Puts a message behind a task's history, and what its status said before that.

        Args:
            message: What is said next, mostly by the user.
            task: The task, which becomes the one that is kept; it is not changed itself.

        Returns:
            The task with both in its history, and a status that says nothing.

        Raises:
            InvalidAgentResponseError: The task, or that of the message, is another one than is
                kept; nothing has changed.
            LimitExceededError: The task becomes too large; nothing has changed.
        """
        known = self._fold.task
        if known is not None:
            check_same_task(known.id, task.id)
            self._check_same_context(task.context_id)
        silent = msgspec.structs.replace(task.status, message=None)
        updated = TaskFold(task, limits=self._fold.limits)
        updated.add(TaskStatusUpdateEvent(task_id=task.id, status=silent))
        updated.add(message)
        self._fold = updated
        self._context_id = self._context_id or task.context_id
        return self.get_task_or_raise()

    def _add(self, event: TaskUpdate) -> None:
        """Folds in what is of the task; the task is not put together for that."""
        self._check_same_context(event.context_id)
        self._fold.add(event)
        self._context_id = self._context_id or event.context_id

    def _check_same_context(self, named: str | None) -> None:
        """Checks what an event names as its context; it may name none."""
        known = self._context_id
        if named and known and named != known:
            text = f"what the agent sent is of context {named}, not of context {known}"
            raise InvalidAgentResponseError(text, executed=True)
