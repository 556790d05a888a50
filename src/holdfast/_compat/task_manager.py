"""The task manager of the official SDK's client, on Holdfast's fold of events.

It is for programs that fold events themselves; `EventStream.task` does the same during a stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast._model.settings import check_kind, explains_unknown_options
from holdfast._stream.fold import TaskFold, check_same_task
from holdfast.errors import InvalidAgentResponseError
from holdfast.types import Message, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from holdfast._stream.fold import TaskUpdate
    from holdfast._wire.limits import Limits
    from holdfast.types import Event

__all__ = ["ClientTaskManager"]

E = TypeVar("E", bound="Event")


_EVENTS = (Task, TaskStatusUpdateEvent, TaskArtifactUpdateEvent)


class ClientTaskManager:
    """Accumulator of the events of one task into the task.

    The rules are those of Holdfast's streams: a second `Task` with the same id is a newer
    snapshot, the message of a status moves into the history with the next status, and returned
    tasks are never changed afterwards.

    Args:
        limits: Bounds on the size of the task; None for the defaults.
    """

    @explains_unknown_options()
    def __init__(self, *, limits: Limits | None = None) -> None:
        self._fold = TaskFold(limits=limits)
        self._context_id: str | None = None

    def get_task(self) -> Task | None:
        """Return the current task; None before its first event."""
        return self._fold.task

    def get_task_or_raise(self) -> Task:
        """Return the current task.

        Raises:
            InvalidAgentResponseError: There was no event of a task yet.
        """
        task = self._fold.task
        if task is None:
            text = "there is no task yet: no task event was received"
            raise InvalidAgentResponseError(text)
        return task

    async def process(self, event: E) -> E:
        """Fold an event into the task, and return the event; a `Message` is ignored.

        Args:
            event: The event.

        Raises:
            InvalidAgentResponseError: The event is of another task or context; the task is
                unchanged.
            LimitExceededError: The task becomes too large; the task is unchanged.
        """
        if not isinstance(event, Message):
            self._add(event)
        return event

    async def save_task_event(self, event: TaskUpdate) -> Task:
        """Fold an event into the task, and return the task.

        Args:
            event: The event.

        Raises:
            InvalidAgentResponseError: The event is of another task or context; the task is
                unchanged.
            LimitExceededError: The task becomes too large; the task is unchanged.
        """
        self._add(event)
        return self.get_task_or_raise()

    def update_with_message(self, message: Message, task: Task) -> Task:
        """Append the status message of a task, and then a message, to the task's history.

        Args:
            message: The next message, usually of the user.
            task: The task; it replaces the current one. This object is not changed.

        Returns:
            The task with both in its history, and without a status message.

        Raises:
            InvalidAgentResponseError: The task or the message is of another task than the current
                one; the current task is unchanged.
            LimitExceededError: The task becomes too large; the current task is unchanged.
        """
        current = self._fold.task
        if current is not None:
            check_same_task(current.id, task.id)
            self._check_same_context(task.context_id)
        status = msgspec.structs.replace(task.status, message=None)
        updated = TaskFold(task, limits=self._fold.limits)
        updated.add(TaskStatusUpdateEvent(task_id=task.id, status=status))
        updated.add(message)
        self._fold = updated
        self._context_id = self._context_id or task.context_id
        return self.get_task_or_raise()

    def _add(self, event: TaskUpdate) -> None:
        """Fold an event into the task."""
        check_kind("event", event, _EVENTS, or_else=" or another event")
        self._check_same_context(event.context_id)
        self._fold.add(event)
        self._context_id = self._context_id or event.context_id

    def _check_same_context(self, context_id: str | None) -> None:
        """Check the context id of an event, which may have none."""
        current = self._context_id
        if context_id and current and context_id != current:
            text = f"the agent sent an event of context {context_id}, not of context {current}"
            raise InvalidAgentResponseError(text, executed=True)
