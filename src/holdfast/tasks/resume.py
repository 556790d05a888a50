"""A stream that survives its connections: what to do next, and what is news for the caller.

`Resume` is told what happened, and says what to do (`Resume.step`); it does nothing itself. Events
for the caller come out of `Resume.take`, each once, whatever the connections did.

Rules (A2A 3.1.2, 3.1.6, 7):
- A stream ends when its first event is a `Message`, at a terminal state, or when its connection
  ends in good order after INPUT_REQUIRED. Every other end of a connection is a cut.
- After a cut the task is subscribed to again. Then the task is asked for, which tells what was
  missed; and what the new connection brings may be in the task already (`holdfast.tasks.overlap`).
- What the caller has is never taken back because somebody tells less: only a task that is over is
  believed in everything. Until then what is shorter is older.
- A task that is over, or that the agent no longer has subscriptions for, is asked for.
- Where subscriptions lead to nothing, the task is asked for again and again.
- Each reconnect that brings nothing new counts; what is new sets the count to zero.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    A2ATimeoutError,
    Facts,
    MethodNotFoundError,
    ReconnectError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from holdfast.model.types import (
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from holdfast.tasks.difference import difference
from holdfast.tasks.fold import TaskFold, fold
from holdfast.tasks.overlap import CatchUp, Writing

if TYPE_CHECKING:
    from holdfast.model.types import Artifact
    from holdfast.tasks.fold import StreamEvent
    from holdfast.wire.limits import Limits

__all__ = ["Resume", "Step", "Wait"]


class Step(Enum):
    """What to do next."""

    READ = auto()
    """Read the next event of the connection, and say `received`, `ended` or `cut`."""
    SUBSCRIBE = auto()
    """Subscribe to the task, and say `subscribed` or `refused`."""
    LOOK = auto()
    """Ask for the task, and say `found` or `not_found`."""
    DONE = auto()
    """Nothing: all is said."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Wait before a further try, and say `waited`.

    Attributes:
        attempt: Number of the try, from 1: what the backoff grows with. 0 for a look at a task
            that is polled.
        at_least: Seconds that the agent asked to wait.
        error: Why.
    """

    attempt: int
    at_least: float = 0.0
    error: A2AError | None = None


class _Why(Enum):
    """Why the task is asked for."""

    MISSED = auto()  # what came while nobody listened
    DOUBT = auto()  # whether what the connection brings is new
    OVER = auto()  # the stream says that the task is over
    REFUSED = auto()  # it cannot be subscribed to
    RESTING = auto()  # the connection ended while the task waits for input
    POLLING = auto()


_Found: TypeAlias = "StreamEvent | _Truth"


class _Truth(msgspec.Struct, frozen=True):
    """The task as the agent has it, which says no more than the events before."""

    task: Task


_QUIET = 60
"""Looks at a polled task that count as much as one reconnect: each without anything new."""

_DISBELIEF = 4
"""Looks at a task that is not over where its stream says so, until the stream is believed."""

_LAG = 0.5
"""Seconds, at least, from the first of these looks to the second; it doubles each time. A store
may be behind its stream, and what it lacks may be what the caller has missed."""

_IN_VAIN = 2
"""Subscriptions in a row that end without an event, until the task is polled instead."""


class Resume:
    """The life of one stream over any number of connections.

    It begins with a connection that is open, or where the task is known by subscribing to it; or
    by being polled, which `polled` says.

    Args:
        limits: How large the task may become.
        max_reconnects: Reconnects without anything new until it fails.
        patient: Whether it goes on in spite of that: for waits that have a deadline.
        has_deadline: Whether there is an end to looks that find nothing new.
        task_id: The task, where it is known from the beginning.
        task: The same, as the caller has it already; it is subscribed to first.

    Attributes:
        step: What to do next.
        task_id: The task; None until it is known.
        reconnects: How often the task was subscribed to again after a cut.
        gap: Whether status messages may be missing: those between a cut and a reconnect, which
            no agent keeps for certain.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        max_reconnects: int,
        patient: bool = False,
        has_deadline: bool = False,
        task_id: str | None = None,
        task: Task | None = None,
    ) -> None:
        self.task_id = task_id if task is None else task.id
        self.step: Step | Wait = Step.READ if self.task_id is None else Step.SUBSCRIBE
        self.reconnects = 0
        self.gap = False
        self._max_reconnects = max_reconnects
        self._patient = patient
        self._has_deadline = has_deadline
        self._fold = TaskFold(task, limits=limits)
        self._queue: deque[_Found] = deque()
        self._status = None if task is None else task.status  # as last told
        self._is_whole = task is not None
        self._fruitless = 0
        self._quiet = 0
        self._in_vain = 0
        self._disbelief = 0
        self._why = _Why.MISSED
        self._after_wait = Step.LOOK
        self._over: TaskStatusUpdateEvent | None = None  # told by the stream, and not yet believed
        # Of a connection that is not the first:
        self._is_cut = False  # and not yet subscribed to again
        self._is_first = True
        self._snapshot: Task | None = None
        self._ahead: StreamEvent | None = None  # what it brought before the task was asked for
        self._catch_up: CatchUp | None = None

    # ── For the caller ───────────────────────────────────────────────────────────────────────

    @property
    def task(self) -> Task | None:
        """The task as the events taken so far make it."""
        return self._fold.task

    @property
    def state(self) -> TaskState | None:
        """Where the task stands, as last told; None for no task."""
        return None if self._status is None else self._status.state

    @property
    def has_news(self) -> bool:
        """Whether something waits to be taken."""
        return bool(self._queue)

    def take(self) -> StreamEvent | None:
        """The next event for the caller; None if something has to be done first.

        Raises:
            InvalidAgentResponseError: The event is of another task.
            LimitExceededError: The task becomes too large.
        """
        event: StreamEvent | None = None
        while self._queue:
            found = self._queue[0]
            if isinstance(found, _Truth):  # which goes with the event before
                self._fold = TaskFold(found.task, limits=self._fold.limits)
            elif event is None:
                self._fold.add(found)
                event = found
            else:
                break
            self._queue.popleft()
        return event

    def explain(self, error: A2AError) -> None:
        """Adds what is known of the task to an error that ends the stream.

        It is a later call that failed: where the task was seen, what the caller asked for did run.
        """
        if self._status is not None:
            error.executed = True
            if self.task_id and f"task {self.task_id}" not in error.message:
                seen = f"task {self.task_id} was last seen {self._status.state.name}"
                error.message = f"{error.message}; {seen}"

    @property
    def is_whole(self) -> bool:
        """Whether the task is the agent's own to the last word, and not made of updates."""
        return self._is_whole

    def retold(self, task: Task) -> None:
        """The agent told the whole task once more, at its end; what it says otherwise is kept."""
        if task.id == self.task_id and task.state is self.state and not self._queue:
            self._fold = TaskFold(task, limits=self._fold.limits)
            self._is_whole = True

    # ── What happened: connections ───────────────────────────────────────────────────────────

    def subscribed(self) -> None:
        """A connection is there that the task was subscribed to with."""
        self._is_first = False
        self.reconnects += self._is_cut
        self._is_cut = False
        self._snapshot, self._ahead, self._catch_up = None, None, None
        self.step = Step.READ

    def received(self, event: StreamEvent) -> None:
        """The connection brought an event."""
        if self._is_first:
            self._put(event)
            if (isinstance(event, Message) and self._status is None) or self._is_over:
                self.step = Step.DONE
        elif isinstance(event, Task):
            self._snapshot_came(event)
        elif self._catch_up is None:
            self._ahead = event
            self._look(_Why.MISSED)
        else:
            self._in_vain = 0
            self._follow(event, self._catch_up)

    def passed_on(self, chunk: TaskArtifactUpdateEvent) -> bool:
        """Does what `received` and `take` do, in one, with one more chunk: what most events are.

        Returns:
            Whether it could: if not, nothing was done.

        Raises:
            LimitExceededError: The task becomes too large.
        """
        if not self._is_first or self._queue or self._status is None:
            return False
        if chunk.task_id != self.task_id:
            return False
        self._fold.add(chunk)
        self._fruitless = self._quiet = 0
        self._is_whole = False
        return True

    def ended(self) -> None:
        """The connection came to its end in good order."""
        if self.state is TaskState.INPUT_REQUIRED:
            if self._is_first:
                self.step = Step.DONE
            else:
                self._look(_Why.RESTING)
            return
        self.cut(None)

    def cut(self, error: A2AError | None) -> None:
        """The connection broke, for a reason or for none.

        Raises:
            A2AError: Nothing can be done about it: no task is known, or the client was closed.
        """
        if self.task_id is None:
            message = "the stream ended before it named its task"
            raise error or A2AConnectionError(message, failure="truncated")
        if isinstance(error, A2AConnectionError) and error.failure == "closed":
            raise error
        if self.state is TaskState.INPUT_REQUIRED:
            self._look(_Why.RESTING)
            return
        if not isinstance(error, A2ATimeoutError):  # which is quiet, and works
            self._in_vain += 1
        if self._in_vain > _IN_VAIN and not self._is_first:
            self._poll()
            return
        self._again(Step.SUBSCRIBE, error)

    def refused(self, error: A2AError) -> None:
        """The task could not be subscribed to.

        Raises:
            A2AError: It will not be possible either.
        """
        if isinstance(error, UnsupportedOperationError | TaskNotFoundError):
            self._look(_Why.REFUSED)
        elif _is_unknown_there(error):
            self._poll()
        elif error.transient:
            self._again(Step.SUBSCRIBE, error)
        else:
            raise error

    # ── What happened: looks ─────────────────────────────────────────────────────────────────

    def polled(self) -> None:
        """There are no connections: a task that is not at rest is asked for again and again."""
        if self.state is TaskState.INPUT_REQUIRED:
            self.step = Step.DONE
        elif self.step is not Step.DONE:
            self._poll()

    def waited(self) -> None:
        """The wait is over."""
        self.step = self._after_wait

    def found(self, task: Task) -> None:
        """The agent's task, as it was asked for."""
        if task.state.is_terminal:
            self._believe(task)
            return
        match self._why:
            case _Why.MISSED:
                self._begin_from(task)
            case _Why.DOUBT:
                self._look_again_at(task)
            case _Why.OVER:
                self._doubt_the_end(task)
            case why:
                self._adopt(task)
                if task.state is TaskState.INPUT_REQUIRED:
                    self.step = Step.DONE
                elif why is _Why.RESTING:
                    self._again(Step.SUBSCRIBE, None)
                else:
                    self._poll()

    def not_found(self, error: A2AError) -> None:
        """The agent did not give the task.

        Raises:
            A2AError: It will not give it either.
        """
        match self._why:
            case _Why.MISSED:
                # Not all who stream have a store: the connection is all there is.
                self._begin_from(self._snapshot or self._have())
            case _Why.DOUBT:
                self.step = Step.READ
            case _Why.OVER if not error.transient:
                self._doubt_the_end(None)
            case _ if error.transient:
                self._again(Step.LOOK, error)
            case _:
                raise error

    # ── Within: a connection that is not the first ───────────────────────────────────────────

    def _snapshot_came(self, task: Task) -> None:
        if task.state.is_terminal:
            self._believe(task)
        elif self._catch_up is None:
            self._snapshot = task
            self._look(_Why.MISSED)
        else:
            self._look_again_at(task)

    def _begin_from(self, base: Task | None) -> None:
        """Lays what the connection brings over the task."""
        self.step = Step.READ
        if base is not None:
            self._adopt(base)
        self._catch_up = CatchUp(self._have())
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._follow(ahead, self._catch_up)

    def _follow(self, event: StreamEvent, catch_up: CatchUp) -> None:
        """Puts what is new of an event, as far as that is known."""
        if isinstance(event, TaskStatusUpdateEvent) and event.status.state.is_terminal:
            self._over = event
            self._look(_Why.OVER)
            return
        for new in catch_up.follow(event):
            self._put(new)
        if catch_up.wants_look:
            self._look(_Why.DOUBT)

    def _look_again_at(self, task: Task) -> None:
        """Tells what of the events that are held back is new, from what the task holds by now."""
        self.step = Step.READ
        before = self._have()
        self._adopt(task)
        after = self._have()
        if self._catch_up is not None and before is not None and after is not None:
            for new in self._catch_up.look(before, after):
                self._put(new)

    def _doubt_the_end(self, task: Task | None) -> None:
        """The stream says that the task is over, and the agent's task does not."""
        if task is not None:
            self._look_again_at(task)
        self._disbelief += 1
        if self._disbelief < _DISBELIEF:
            at_least = _LAG * 2 ** (self._disbelief - 1)
            self._after_wait = Step.LOOK
            self.step = Wait(attempt=self._disbelief, at_least=at_least)
            return
        if self._catch_up is not None:
            for new in self._catch_up.give_up():
                self._put(new)
        if self._over is not None:
            self._put(self._over)
        self.step = Step.DONE

    # ── Within: what is told ─────────────────────────────────────────────────────────────────

    def _put(self, event: StreamEvent) -> None:
        self._queue.append(event)
        self._is_whole = isinstance(event, Task)
        self._fruitless = self._quiet = 0
        if isinstance(event, Task):
            self._status = event.status
            self.task_id = event.id
        elif isinstance(event, TaskStatusUpdateEvent):
            self._status = event.status
            self.task_id = event.task_id or self.task_id
        elif isinstance(event, TaskArtifactUpdateEvent):
            self._status = self._status or TaskStatus()
            self.task_id = event.task_id or self.task_id

    @property
    def _is_over(self) -> bool:
        return self._status is not None and self._status.state.is_terminal

    def _have(self) -> Task | None:
        """The task as the caller will have it with everything that waits to be taken."""
        task = self._fold.task
        for found in self._queue:
            task = found.task if isinstance(found, _Truth) else fold(task, found)
        return task

    def _adopt(self, task: Task) -> None:
        """Puts what the caller lacks of a task that may be older than what the caller has."""
        have = self._have()
        if have is not None:
            task = _not_older(have, task)
        self._tell(have, task)

    def _believe(self, task: Task) -> None:
        """Puts what the caller lacks of a task that is over."""
        self._tell(self._have(), task)
        self.step = Step.DONE

    def _tell(self, have: Task | None, task: Task) -> None:
        for event in difference(have, task):
            self._put(event)
        if have is not None and have != task:
            self._queue.append(_Truth(task))
        self._is_whole = True

    # ── Within: what to do ───────────────────────────────────────────────────────────────────

    def _look(self, why: _Why) -> None:
        self._why, self.step = why, Step.LOOK

    def _poll(self) -> None:
        self.gap = True
        self._quiet += 1
        too_quiet = self._quiet > max(1, self._max_reconnects) * _QUIET
        if too_quiet and not (self._patient or self._has_deadline):
            raise self._hopeless(f"{self._quiet - 1} looks at it")
        self._why, self._after_wait, self.step = _Why.POLLING, Step.LOOK, Wait(attempt=0)

    def _again(self, step: Step, error: A2AError | None) -> None:
        """Tries a step again after a wait, if that was not in vain too often."""
        self._fruitless += 1
        if self._fruitless > self._max_reconnects:
            if not self._patient and (step is Step.LOOK or not self._max_reconnects):
                tries = f"{self._max_reconnects} tries to go on with its stream"
                raise self._hopeless(tries, error) from error
            if step is Step.SUBSCRIBE:
                self._fruitless = 0
                self._poll()
                return
        if step is Step.SUBSCRIBE and self._status is not None:
            self.gap = self._is_cut = True
        self._after_wait = step
        at_least = 0.0 if error is None else error.retry_after or 0.0
        self.step = Wait(attempt=self._fruitless, at_least=at_least, error=error)

    def _hopeless(self, tries: str, error: A2AError | None = None) -> ReconnectError:
        facts = Facts() if error is None else error.facts()
        failed = "" if error is None else f"; the last one failed: {error.message}"
        message = f"task {self.task_id} brought nothing new in {tries}{failed}"
        return ReconnectError(message, task=self._have(), **facts)


def _is_unknown_there(error: A2AError) -> bool:
    """Whether an agent does not have the operation at all."""
    if isinstance(error, MethodNotFoundError):
        return True
    return isinstance(error, A2AHTTPError) and error.http_status in {404, 405, 501}


def _not_older(have: Task, task: Task) -> Task:
    """A task without what it holds less of than the caller has."""
    status = task.status
    then, at = status.time, have.status.time
    if then is not None and at is not None:
        if then > at:
            return task
        if then < at:
            status = have.status
    found = {artifact.artifact_id: artifact for artifact in task.artifacts}
    artifacts = [_longer(a, found.pop(a.artifact_id, a)) for a in have.artifacts]
    return msgspec.structs.replace(task, status=status, artifacts=(*artifacts, *found.values()))


def _longer(have: Artifact, found: Artifact) -> Artifact:
    if have == found:
        return found
    writing = Writing()  # which remembers what it wrote
    known, text = writing.text(have.parts), writing.text(found.parts)
    return have if len(text) < len(known) and known.startswith(text) else found
