"""A task from news that is delivered: late, twice, out of order, or never (A2A 4.3.3).

Rules, where a stream has the order of its connection:

- A task that is over stays as it ended, whatever comes behind.
- Of two statuses the newer one counts (`holdfast._stream.fold`); where nobody can say which that
  is, the one that came last.
- A whole `Task` takes the place of what is known if its status is newer; where nobody can say, if
  it takes no artifact back. After one that is over, artifacts and messages add nothing.
- The same delivery counts once. The protocol gives events no names, so that a chunk which an agent
  sends twice on purpose counts once as well, and a chunk that is lost leaves no trace: artifacts
  that were appended to are certain only when the agent was asked for the task.

For the rest it is `holdfast._stream.fold`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._model import codec
from holdfast._model.bounded_dict import BoundedDict
from holdfast._stream.fold import TaskFold, is_newer
from holdfast.types import (
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from holdfast._wire.limits import Limits
    from holdfast.types import Event

__all__ = ["Deliveries"]

_REMEMBERED = 256
"""Deliveries that are known again when they come twice."""


class Deliveries:
    """What was delivered of one task.

    Args:
        limits: How large the task may become.

    Attributes:
        per_delivery: Bytes that it takes to know one again, about.
    """

    per_delivery = 128

    __slots__ = ("_fold", "_is_complete", "_seen", "_status")

    def __init__(self, limits: Limits) -> None:
        self._fold = TaskFold(limits=limits)
        self._seen: BoundedDict[bytes, None] = BoundedDict(_REMEMBERED)
        self._status: TaskStatus | None = None
        self._is_complete = False

    @property
    def task(self) -> Task | None:
        """The task as it stands; None as long as there is none."""
        return self._fold.task

    @property
    def status(self) -> TaskStatus | None:
        """How the task stands; None as long as nobody said."""
        return self._status

    @property
    def is_over(self) -> bool:
        """Whether the task has ended."""
        return self._status is not None and self._status.state.is_terminal

    @property
    def size(self) -> int:
        """Bytes that all of it takes, about; counted when it is asked for."""
        task = self._fold.task
        known = self.per_delivery * len(self._seen)
        return known if task is None else known + len(codec.encode(task))

    def has(self, digest: bytes) -> bool:
        """Whether this delivery was among the last ones already."""
        return digest in self._seen

    def add(self, event: Event, digest: bytes) -> bool:
        """Takes what was delivered.

        Args:
            event: The event.
            digest: Of the delivery; the same one counts once.

        Returns:
            Whether it changed anything.

        Raises:
            InvalidAgentResponseError: It is of another task; nothing has changed.
            LimitExceededError: The task becomes too large; nothing has changed.
        """
        if digest in self._seen:
            return False
        is_news = self._add(event)
        self._seen[digest] = None
        return is_news

    def learn(self, task: Task) -> bool:
        """Takes what the agent answered when it was asked; says whether it changed anything.

        Raises:
            InvalidAgentResponseError: It is another task; nothing has changed.
            LimitExceededError: It is too large; nothing has changed.
        """
        return self._add(task)

    def confirm(self, task: Task) -> None:
        """Takes what the agent says of a task that is settled as the truth.

        Raises:
            InvalidAgentResponseError: It is another task; nothing has changed.
            LimitExceededError: It is too large; nothing has changed.
        """
        self._replace(task)

    def _add(self, event: Event) -> bool:
        match event:
            case Task():
                return self._add_picture(event)
            case TaskStatusUpdateEvent():
                known = self._status
                is_old = known is not None and is_newer(event.status, known) is False
                if is_old or self.is_over:
                    return False
                self._fold.add(event)
                self._status = event.status
                return True
            case Message() if self._is_complete or self._fold.task is None:
                return False
            case TaskArtifactUpdateEvent() if self._is_complete:
                return False
            case _:
                self._fold.add(event)
                return True

    def _add_picture(self, picture: Task) -> bool:
        known = self._fold.task
        if known is None:
            self._replace(picture)
            return True
        newer = is_newer(picture.status, self._status or TaskStatus())
        if newer or (newer is None and _takes_nothing_back(known, picture)):
            self._replace(picture)
            return True
        if self._status is None:  # there were artifacts only, which came before this
            return self._add(TaskStatusUpdateEvent(task_id=picture.id, status=picture.status))
        return False

    def _replace(self, task: Task) -> None:
        self._fold.add(task)
        self._status = task.status
        self._is_complete = task.state.is_terminal


def _takes_nothing_back(known: Task, picture: Task) -> bool:
    """Whether a picture has every artifact that is known, and no less of it."""
    there = {artifact.artifact_id: len(artifact.parts) for artifact in picture.artifacts}
    return all(
        there.get(artifact.artifact_id, -1) >= len(artifact.parts) for artifact in known.artifacts
    )
