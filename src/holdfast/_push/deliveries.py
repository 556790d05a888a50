"""A task from push deliveries: late, repeated, out of order, or lost (A2A 4.3.3).

Rules, in place of the order that a stream has from its connection:

- A terminal task does not change any more.
- Of two statuses the newer one counts (`holdfast._stream.fold`); if that is undecidable, the one
  that arrived last.
- A whole `Task` replaces the stored one if its status is newer; if that is undecidable, only if it
  removes no artifact. After a terminal `Task`, artifacts and messages are ignored.
- A repeated delivery counts once. Events have no ids, so a chunk that an agent repeats on purpose
  counts once too, and the loss of a chunk is not detected: artifacts that were appended to are
  certain only after the task was fetched from the agent.

Everything else is done by `holdfast._stream.fold`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._model import codec
from holdfast._model.bounded_dict import BoundedDict
from holdfast._stream.fold import TaskFold
from holdfast._stream.status_order import is_newer
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

_MAX_DIGESTS = 256
"""Number of deliveries that are recognized if they are repeated."""


class Deliveries:
    """Deliveries of one task.

    Args:
        limits: Bounds of the task.

    Attributes:
        per_delivery: Approximate bytes to recognize a delivery.
    """

    per_delivery = 128

    __slots__ = ("_fold", "_is_complete", "_seen", "_status")

    def __init__(self, limits: Limits) -> None:
        self._fold = TaskFold(limits=limits)
        self._seen: BoundedDict[bytes, None] = BoundedDict(_MAX_DIGESTS)
        self._status: TaskStatus | None = None
        self._is_complete = False

    @property
    def task(self) -> Task | None:
        """The task in its latest state; None before the first delivery of one."""
        return self._fold.task

    @property
    def status(self) -> TaskStatus | None:
        """Latest status of the task; None if unknown."""
        return self._status

    @property
    def is_terminal(self) -> bool:
        """Return whether the task is terminal."""
        return self._status is not None and self._status.state.is_terminal

    @property
    def size(self) -> int:
        """Approximate size of all data in bytes; measured on each access."""
        task = self._fold.task
        digests_size = self.per_delivery * len(self._seen)
        return digests_size if task is None else digests_size + len(codec.encode(task))

    def has(self, digest: bytes) -> bool:
        """Return whether this delivery is among the latest ones."""
        return digest in self._seen

    def add(self, event: Event, digest: bytes) -> bool:
        """Add a delivery.

        Args:
            event: The event.
            digest: Digest of the body; the same one counts once.

        Returns:
            Whether the task has changed.

        Raises:
            InvalidAgentResponseError: The event is of another task; nothing has changed.
            LimitExceededError: The task becomes too large; nothing has changed.
        """
        if digest in self._seen:
            return False
        has_changed = self._add(event)
        self._seen[digest] = None
        return has_changed

    def add_polled(self, task: Task) -> bool:
        """Add the agent's response to a poll; return whether the task has changed.

        Raises:
            InvalidAgentResponseError: The response is another task; nothing has changed.
            LimitExceededError: The task is too large; nothing has changed.
        """
        return self._add(task)

    def confirm(self, task: Task) -> None:
        """Replace the task by the agent's final response.

        Raises:
            InvalidAgentResponseError: The response is another task; nothing has changed.
            LimitExceededError: The task is too large; nothing has changed.
        """
        self._replace(task)

    def _add(self, event: Event) -> bool:
        match event:
            case Task():
                return self._add_snapshot(event)
            case TaskStatusUpdateEvent():
                status = self._status
                is_old = status is not None and is_newer(event.status, status) is False
                if is_old or self.is_terminal:
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

    def _add_snapshot(self, snapshot: Task) -> bool:
        current = self._fold.task
        if current is None:
            self._replace(snapshot)
            return True
        newer = is_newer(snapshot.status, self._status or TaskStatus())
        if newer or (newer is None and _has_all_artifacts(current, snapshot)):
            self._replace(snapshot)
            return True
        if self._status is None:  # there were only artifacts, of an earlier state
            return self._add(TaskStatusUpdateEvent(task_id=snapshot.id, status=snapshot.status))
        return False

    def _replace(self, task: Task) -> None:
        self._fold.add(task)
        self._status = task.status
        self._is_complete = task.state.is_terminal


def _has_all_artifacts(current: Task, snapshot: Task) -> bool:
    """Return whether a snapshot has every current artifact, with no fewer parts."""
    part_counts = {artifact.artifact_id: len(artifact.parts) for artifact in snapshot.artifacts}
    return all(
        part_counts.get(artifact.artifact_id, -1) >= len(artifact.parts)
        for artifact in current.artifacts
    )
