"""The timelines of a fake agent's tasks: the state of each task at any time.

A timeline is a list of events, each with its time; future events are known in advance. A task is
the fold of the events that have happened, and a stream emits them at their times.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import count, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from holdfast._testing.virtual_time import EPOCH
from holdfast.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast._testing.plans import Plan, Step
    from holdfast.types import TaskPushNotificationConfig

__all__ = [
    "EPOCH",
    "Event",
    "Store",
    "TaskTimeline",
    "Update",
    "fold_events",
    "http_date",
    "timestamp",
]

Update: TypeAlias = TaskStatusUpdateEvent | TaskArtifactUpdateEvent


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event of a timeline.

    Attributes:
        at: Its time, on the event loop's clock.
        content: A new status or artifact, or a message.
        is_stored: Whether the stored task shows it.
        is_streamed: Whether streams emit it; a client's message is not emitted.
    """

    at: float
    content: Update | Message
    is_stored: bool = True
    is_streamed: bool = True

    @property
    def state(self) -> TaskState | None:
        """The new state of the task; None if its status does not change."""
        return (
            self.content.status.state if isinstance(self.content, TaskStatusUpdateEvent) else None
        )


class TaskTimeline:
    """The events of one task, with their times.

    Args:
        task_id: Id of the task.
        context_id: Id of its conversation.
        keeps_history: Whether the task has a history.
        epoch: Wall time when the event loop's clock shows zero.

    Attributes:
        task_id: Id of the task.
        context_id: Id of its conversation.
        plan_start: The position of the first event of the newest plan.
        opening_end: The position after the first step of the newest plan, if that happens at once.
    """

    def __init__(
        self,
        task_id: str,
        context_id: str,
        *,
        keeps_history: bool = True,
        epoch: float = EPOCH,
    ) -> None:
        self.task_id = task_id
        self.context_id = context_id
        self.plan_start = 0
        self.opening_end = 0
        self._keeps_history = keeps_history
        self._epoch = epoch
        self._events: list[Event] = []
        self._crash: str | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    def begin(self, plan: Plan, message: Message | None, now: float, *, lag: float = 0.0) -> None:
        """Start a plan; future events of an earlier plan are dropped.

        Args:
            plan: The plan.
            message: The message that caused it; None for none.
            now: The event loop's time in seconds.
            lag: Seconds for which the task stays unchanged first, without the message.
        """
        del self._events[self.position(now) :]
        self.plan_start = self.opening_end = len(self._events)
        now += lag
        if message is not None:
            message = msgspec.structs.replace(
                message, task_id=self.task_id, context_id=self.context_id
            )
            self._events.append(Event(now, message, is_streamed=False))
        if not lag:
            self.plan_start = self.opening_end = len(self._events)
        self._crash = plan.crash
        at = now
        for number, step in enumerate(plan.steps):
            at += step.after
            for update in self._updates(step, at):
                self._events.append(Event(at, update, step.is_stored))
            if number == 0 and step.after == 0 and not lag:
                self.opening_end = len(self._events)
        self.notify()

    # ── States ───────────────────────────────────────────────────────────────────────────────

    def position(self, now: float) -> int:
        """Return the number of events that have happened."""
        return bisect_right(self._events, now, key=attrgetter("at"))

    def event(self, position: int) -> Event | None:
        """Return the event at a position; None if there is none."""
        return self._events[position] if position < len(self._events) else None

    def task(self, now: float) -> Task:
        """Return the task at a time."""
        return self.task_at(self.position(now))

    def task_at(self, position: int) -> Task:
        """Return the task after a number of events."""
        task = Task(
            id=self.task_id,
            context_id=self.context_id,
            status=TaskStatus(state=TaskState.SUBMITTED),
        )
        stored = (event.content for event in islice(self._events, position) if event.is_stored)
        task = fold_events(task, stored)
        return task if self._keeps_history else msgspec.structs.replace(task, history=())

    def plan_state(self, position: int) -> TaskState | None:
        """Return the state from the newest plan after a number of events; None for none yet."""
        for event in reversed(self._events[self.plan_start : position]):
            if event.state is not None:
                return event.state
        return None

    def crash(self, now: float) -> str | None:
        """Return the text of the agent's crash; None if it has not crashed."""
        return self._crash if self.plan_state(self.position(now)) is TaskState.FAILED else None

    # ── Waiting ──────────────────────────────────────────────────────────────────────────────

    async def wait_settled(self) -> None:
        """Wait until the task is terminal or interrupted by the newest plan."""
        loop = asyncio.get_running_loop()
        while True:
            settles_at = self._settle_time()
            if settles_at is not None and settles_at <= loop.time():
                return
            await self.wait(settles_at)

    async def wait(self, until: float | None) -> None:
        """Wait for a time, for a change of the timeline, or for `notify`.

        Args:
            until: The event loop's time in seconds; None for none.
        """
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.add(waiter)
        timer = None if until is None else loop.call_at(until, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)
            if timer is not None:
                timer.cancel()

    def notify(self) -> None:
        """Wake all waiters."""
        for waiter in self._waiting:
            _wake(waiter)

    def _settle_time(self) -> float | None:
        for event in islice(self._events, self.plan_start, None):
            if event.state is not None and (event.state.is_terminal or event.state.is_interrupted):
                return event.at
        return None

    def _updates(self, step: Step, at: float) -> Iterator[Update | Message]:
        if step.message is not None:
            yield self._message(step.message)
        for artifact in step.artifacts:
            yield TaskArtifactUpdateEvent(
                task_id=self.task_id,
                context_id=self.context_id,
                artifact=artifact,
                append=step.append,
                last_chunk=step.last_chunk,
            )
        if step.state is not None:
            yield TaskStatusUpdateEvent(
                task_id=self.task_id,
                context_id=self.context_id,
                status=TaskStatus(
                    state=step.state,
                    message=None if step.says is None else self._message(step.says),
                    timestamp=timestamp(at, self._epoch),
                ),
            )

    def _message(self, text: str) -> Message:
        return Message(
            message_id=f"{self.task_id}-message-{len(self._events)}",
            role=Role.AGENT,
            parts=(Part(text=text),),
            task_id=self.task_id,
            context_id=self.context_id,
        )


def fold_events(task: Task, events: Iterable[Update | Message]) -> Task:
    """Return a task after some events, as the official server would store it.

    With ``append``, parts are appended to the artifact with that id, and metadata is merged. A
    status message moves into the history when another status or a client's message follows; every
    message goes into the history.
    """
    status, history = task.status, list(task.history)
    artifacts = {artifact.artifact_id: _Pieces(artifact) for artifact in task.artifacts}
    for event in events:
        if isinstance(event, TaskArtifactUpdateEvent):
            pieces = artifacts.get(event.artifact.artifact_id)
            if pieces is not None and event.append:
                pieces.append(event.artifact)
            else:
                artifacts[event.artifact.artifact_id] = _Pieces(event.artifact)
            continue
        status_message = status.message
        if isinstance(event, Message):
            if status_message is not None and event.role is not Role.AGENT:
                history.append(status_message)
                status = msgspec.structs.replace(status, message=None)
            history.append(event)
            continue
        if status_message is not None:
            history.append(status_message)
        status = event.status
    return msgspec.structs.replace(
        task,
        status=status,
        artifacts=tuple(pieces.joined() for pieces in artifacts.values()),
        history=tuple(history),
    )


class _Pieces:
    """An artifact that may grow."""

    __slots__ = ("_first", "_metadata", "_parts")

    def __init__(self, first: Artifact) -> None:
        self._first = first
        self._parts: list[Part] = []
        self._metadata: dict[str, Any] = {}

    def append(self, piece: Artifact) -> None:
        self._parts += piece.parts
        self._metadata.update(piece.metadata or {})

    def joined(self) -> Artifact:
        first = self._first
        if self._parts:
            first = msgspec.structs.replace(first, parts=(*first.parts, *self._parts))
        if self._metadata:
            metadata = {**(first.metadata or {}), **self._metadata}
            first = msgspec.structs.replace(first, metadata=metadata)
        return first


class Store:
    """The tasks of a fake agent, or of several that share them.

    Attributes:
        timelines: The tasks' timelines, by id.
        configs: Push notification configurations, by the ids of task and configuration.
        numbers: Numbers for the ids of tasks, contexts and messages.
    """

    def __init__(self) -> None:
        self.timelines: dict[str, TaskTimeline] = {}
        self.configs: dict[tuple[str, str], TaskPushNotificationConfig] = {}
        self.numbers = count(1)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def timestamp(at: float, epoch: float = EPOCH) -> str:
    """Return the wall time at a time of the event loop's clock, in A2A's format (5.6.1)."""
    return _wall(at, epoch).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def http_date(at: float, epoch: float = EPOCH) -> str:
    """Return the same in the format of HTTP (RFC 9110, 5.6.7)."""
    return format_datetime(_wall(at, epoch), usegmt=True)


def _wall(at: float, epoch: float) -> datetime:
    return datetime.fromtimestamp(epoch + at, UTC)
