"""The lives of a fake agent's tasks: where each stands at a moment of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.testing.plans import Plan, Step

__all__ = ["Life", "timestamp"]

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Wall time of a fake agent when the event loop's clock shows zero."""


class Life:
    """What happens to one task, and when."""

    def __init__(self, task_id: str, context_id: str) -> None:
        self.task_id = task_id
        self._context_id = context_id
        self._events: list[tuple[float, Step]] = []
        self._history: list[Message] = []

    def begin(self, plan: Plan, message: Message | None, now: float) -> None:
        """Starts a plan; what an earlier one would still have done does not happen.

        Args:
            plan: What happens from now on.
            message: The message that caused it, to be recorded; None for none.
            now: The event loop's time in seconds.
        """
        self._events = [event for event in self._events if event[0] <= now]
        if message is not None:
            recorded = msgspec.structs.replace(
                message, task_id=self.task_id, context_id=self._context_id
            )
            self._history.append(recorded)
        at = now
        for step in plan.steps:
            at += step.after
            self._events.append((at, step))

    def task(self, now: float) -> Task:
        """The task as it stands."""
        status = TaskStatus(state=TaskState.SUBMITTED)
        artifacts: dict[str, Artifact] = {}
        for number, (at, step) in enumerate(self._events):
            if at > now:
                break
            status = TaskStatus(
                state=step.state, message=self._says(step, number), timestamp=timestamp(at)
            )
            artifacts.update({artifact.artifact_id: artifact for artifact in step.artifacts})
        return Task(
            id=self.task_id,
            context_id=self._context_id,
            status=status,
            artifacts=tuple(artifacts.values()),
            history=tuple(self._history),
        )

    def settles_at(self, now: float) -> float | None:
        """When the task is over or waits for somebody; None for never."""
        for at, state in self._states():
            if at >= now and (state.is_terminal or state.is_interrupted):
                return at
        return None

    def _states(self) -> Iterator[tuple[float, TaskState]]:
        return ((at, step.state) for at, step in self._events)

    def _says(self, step: Step, number: int) -> Message | None:
        if step.says is None:
            return None
        return Message(
            message_id=f"{self.task_id}-status-{number}",
            role=Role.AGENT,
            parts=(Part(text=step.says),),
            task_id=self.task_id,
            context_id=self._context_id,
        )


def timestamp(at: float) -> str:
    """The wall time at a moment of the event loop's clock, as A2A writes it (5.6.1)."""
    wall = _EPOCH + timedelta(seconds=at)
    return wall.isoformat(timespec="milliseconds").replace("+00:00", "Z")
