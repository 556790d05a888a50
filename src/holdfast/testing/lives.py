"""The lives of a fake agent's tasks: where each stands at a moment of the clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus

if TYPE_CHECKING:
    from holdfast.testing.plans import Plan, Step

__all__ = ["Life", "timestamp"]

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Wall time of a fake agent when the event loop's clock shows zero."""


class Life:
    """What happens to one task, and when.

    Attributes:
        task_id: Id of the task.
        context_id: The conversation that it belongs to.
    """

    def __init__(self, task_id: str, context_id: str) -> None:
        self.task_id = task_id
        self.context_id = context_id
        self._events: list[tuple[float, Step]] = []
        self._history: list[Message] = []
        self._crash: str | None = None
        self._newest = 0  # the index in the events where the newest plan begins
        self._waiting: set[asyncio.Future[None]] = set()

    def begin(self, plan: Plan, message: Message | None, now: float) -> None:
        """Starts a plan; what an earlier one would still have done does not happen.

        Args:
            plan: What happens from now on.
            message: The message that caused it, to be recorded; None for none.
            now: The event loop's time in seconds.
        """
        self._events = [event for event in self._events if event[0] <= now]
        if message is not None:
            self._record(message, now)
        self._newest = len(self._events)
        self._crash = plan.crash
        at = now
        for step in plan.steps:
            at += step.after
            self._events.append((at, step))
        for waiter in self._waiting:
            _wake(waiter)

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
            context_id=self.context_id,
            status=status,
            artifacts=tuple(artifacts.values()),
            history=tuple(self._history),
        )

    def crash(self, now: float) -> str | None:
        """Why the agent crashed over this task; None if it did not, or not yet."""
        return self._crash if self.task(now).state is TaskState.FAILED else None

    async def settled(self) -> None:
        """Waits until the newest plan has the task over, or waiting for somebody."""
        loop = asyncio.get_running_loop()
        while True:
            at = self._settles_at()
            if at is not None and at <= loop.time():
                return
            waiter = loop.create_future()
            self._waiting.add(waiter)
            timer = None if at is None else loop.call_at(at, _wake, waiter)
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)
                if timer is not None:
                    timer.cancel()

    def _settles_at(self) -> float | None:
        for at, step in self._events[self._newest :]:
            if step.state.is_terminal or step.state.is_interrupted:
                return at
        return None

    def _record(self, message: Message, now: float) -> None:
        """Puts a message into the history, behind what it may be the reply to."""
        question = self.task(now).status.message
        if question is not None:
            self._history.append(question)
        self._history.append(
            msgspec.structs.replace(message, task_id=self.task_id, context_id=self.context_id)
        )

    def _says(self, step: Step, number: int) -> Message | None:
        if step.says is None:
            return None
        return Message(
            message_id=f"{self.task_id}-status-{number}",
            role=Role.AGENT,
            parts=(Part(text=step.says),),
            task_id=self.task_id,
            context_id=self.context_id,
        )


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def timestamp(at: float) -> str:
    """The wall time at a moment of the event loop's clock, as A2A writes it (5.6.1)."""
    wall = _EPOCH + timedelta(seconds=at)
    return wall.isoformat(timespec="milliseconds").replace("+00:00", "Z")
