"""The lives of a fake agent's tasks: where each stands at a moment of the clock.

A life is a list of events, each with its time; those to come are known in advance. What a task
is follows from those that have happened, and a stream is read off them as they happen.
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

__all__ = ["EPOCH", "Event", "Store", "TaskTimeline", "Update", "folded", "http_date", "timestamp"]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
"""Wall time of a fake agent when the event loop's clock shows zero, in seconds since 1970."""

Update: TypeAlias = TaskStatusUpdateEvent | TaskArtifactUpdateEvent


class Event(msgspec.Struct, frozen=True, gc=False):
    """One thing that happens in a life.

    Attributes:
        at: When, on the event loop's clock.
        what: A new status or artifact, or a message.
        is_stored: Whether the task shows it.
        is_streamed: Whether streams tell it: not what a client said.
    """

    at: float
    what: Update | Message
    is_stored: bool = True
    is_streamed: bool = True

    @property
    def state(self) -> TaskState | None:
        """The state that the task takes; None if its status stays as it is."""
        return self.what.status.state if isinstance(self.what, TaskStatusUpdateEvent) else None


class TaskTimeline:
    """What happens to one task, and when.

    Args:
        task_id: Id of the task.
        context_id: The conversation that it belongs to.
        keeps_history: Whether the task has a history.
        epoch: Wall time when the event loop's clock shows zero.

    Attributes:
        task_id: Id of the task.
        context_id: The conversation that it belongs to.
        newest: The place among the events where the newest plan begins.
        opening: The place behind the first step of the newest plan, if that happens at once.
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
        self.newest = 0
        self.opening = 0
        self._keeps_history = keeps_history
        self._epoch = epoch
        self._events: list[Event] = []
        self._crash: str | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    def begin(self, plan: Plan, message: Message | None, now: float, *, lag: float = 0.0) -> None:
        """Starts a plan; what an earlier one would still have done does not happen.

        Args:
            plan: What happens from now on.
            message: The message that caused it; None for none.
            now: The event loop's time in seconds.
            lag: Seconds for which the task stays as it is first, the message included.
        """
        del self._events[self.place(now) :]
        self.newest = self.opening = len(self._events)
        now += lag
        if message is not None:
            message = msgspec.structs.replace(
                message, task_id=self.task_id, context_id=self.context_id
            )
            self._events.append(Event(now, message, is_streamed=False))
        if not lag:
            self.newest = self.opening = len(self._events)
        self._crash = plan.crash
        at = now
        for number, step in enumerate(plan.steps):
            at += step.after
            for update in self._updates(step, at):
                self._events.append(Event(at, update, step.is_stored))
            if number == 0 and step.after == 0 and not lag:
                self.opening = len(self._events)
        self.stir()

    # ── Where it stands ──────────────────────────────────────────────────────────────────────

    def place(self, now: float) -> int:
        """How many of the events have happened."""
        return bisect_right(self._events, now, key=attrgetter("at"))

    def event(self, place: int) -> Event | None:
        """The event at a place; None if nothing is to come there."""
        return self._events[place] if place < len(self._events) else None

    def task(self, now: float) -> Task:
        """The task as it stands."""
        return self.task_at(self.place(now))

    def task_at(self, place: int) -> Task:
        """The task as it is after so many events."""
        task = Task(
            id=self.task_id,
            context_id=self.context_id,
            status=TaskStatus(state=TaskState.SUBMITTED),
        )
        stored = (event.what for event in islice(self._events, place) if event.is_stored)
        task = folded(task, stored)
        return task if self._keeps_history else msgspec.structs.replace(task, history=())

    def state_of_plan(self, place: int) -> TaskState | None:
        """What the newest plan has made of the task after so many events; None for nothing yet."""
        for event in reversed(self._events[self.newest : place]):
            if event.state is not None:
                return event.state
        return None

    def crash(self, now: float) -> str | None:
        """Why the agent crashed over this task; None if it did not, or not yet."""
        return self._crash if self.state_of_plan(self.place(now)) is TaskState.FAILED else None

    # ── Waiting ──────────────────────────────────────────────────────────────────────────────

    async def settled(self) -> None:
        """Waits until the newest plan has the task over, or waiting for somebody."""
        loop = asyncio.get_running_loop()
        while True:
            at = self._settles_at()
            if at is not None and at <= loop.time():
                return
            await self.wait(at)

    async def wait(self, until: float | None) -> None:
        """Waits for a moment, for a change of what is to come, or to be stirred.

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

    def stir(self) -> None:
        """Has everybody who waits look again."""
        for waiter in self._waiting:
            _wake(waiter)

    def _settles_at(self) -> float | None:
        for event in islice(self._events, self.newest, None):
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


def folded(task: Task, events: Iterable[Update | Message]) -> Task:
    """A task after some events, as the official server would store it.

    With ``append`` parts go behind those of the artifact with that id, and metadata is merged. A
    status message goes into the history when another status follows, or what a client says; each
    message does.
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
        said = status.message
        if isinstance(event, Message):
            if said is not None and event.role is not Role.AGENT:
                history.append(said)
                status = msgspec.structs.replace(status, message=None)
            history.append(event)
            continue
        if said is not None:
            history.append(said)
        status = event.status
    return msgspec.structs.replace(
        task,
        status=status,
        artifacts=tuple(pieces.together() for pieces in artifacts.values()),
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

    def together(self) -> Artifact:
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
        lives: The tasks' lives, by id.
        configs: Push notification configs, by the ids of task and config.
        numbers: What tells the ids of tasks, contexts and messages apart.
    """

    def __init__(self) -> None:
        self.lives: dict[str, TaskTimeline] = {}
        self.configs: dict[tuple[str, str], TaskPushNotificationConfig] = {}
        self.numbers = count(1)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def timestamp(at: float, epoch: float = EPOCH) -> str:
    """The wall time at a moment of the event loop's clock, as A2A writes it (5.6.1)."""
    return _wall(at, epoch).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def http_date(at: float, epoch: float = EPOCH) -> str:
    """The same as HTTP writes it (RFC 9110, 5.6.7)."""
    return format_datetime(_wall(at, epoch), usegmt=True)


def _wall(at: float, epoch: float) -> datetime:
    return datetime.fromtimestamp(epoch + at, UTC)
