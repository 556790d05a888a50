"""A stream that survives its connections: what to do next.

`Resume` is told what happened, and says what to do (`Resume.step`); it does nothing itself. What
the caller is to be told goes into `Resume.told`, each event once, whatever the connections did.

Rules (A2A 3.1.2, 3.1.6, 7):
- A stream ends when its first event is a `Message`, at a terminal state, or when its connection
  ends in good order after INPUT_REQUIRED. Every other end of a connection is a cut.
- After a cut the task is subscribed to again. Then the task is asked for, which tells what was
  missed; and what the new connection brings may be in the task already (`holdfast.tasks.overlap`).
- A store may be behind its stream. So what follows a cut is held until the task shows where it
  belongs, and the end of a stream is believed when the task says so; but not for ever.
- A task that is over, or that the agent no longer has subscriptions for, is asked for.
- Where subscriptions lead to nothing, the task is asked for again and again. So it is where a
  subscription does not leave the task as it is: its text weighs more than to have it at once.
- Each reconnect that brings nothing new counts; what is new sets the count to zero.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2ATimeoutError,
    Facts,
    ReconnectError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from holdfast.model.types import (
    Message,
    Task,
    TaskState,
    TaskStatusUpdateEvent,
)
from holdfast.tasks.overlap import CatchUp
from holdfast.tasks.told import Told
from holdfast.wire.status import is_unknown_there

if TYPE_CHECKING:
    from holdfast.model.types import Event, TaskStatus
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
    OVER = auto()  # the stream says that the task is over, or waits for input
    REFUSED = auto()  # it cannot be subscribed to
    RESTING = auto()  # the connection ended while the task waits for input
    POLLING = auto()


_LAG = 0.5
"""Seconds, at least, from the first look at a store that may be behind to the second; it doubles
each time."""

_LOOKS = 4
"""Such looks, until the store is taken for one that does not tell what the stream tells."""

_STALE = 8
"""Looks at a task that still waits for what it was just given, until that is believed."""

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
        task_id: The task, where it is known from the beginning.
        task: The same, as the caller has it already; it is subscribed to first.
        known: A task that the caller has, and that the first event may be of.
        resubscribes: Whether a task that was cut off may be subscribed to.

    Attributes:
        step: What to do next.
        told: What the caller is told.
        reconnects: How often the task was subscribed to again after a cut.
        gap: Whether status messages may be missing: those between a cut and a reconnect, which
            no agent keeps for certain.
        error: What a connection broke with last; None if none broke, or they merely ended.
        cause: At the end, what a connection broke with, unless the agent went on after that: why
            a task is over that does not say so itself.
        may_repeat: Whether the connection may tell what was told before. If not, its chunks can go
            to the caller at once: `received` and `Told.take` come to `Told.pass_on` for them.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        max_reconnects: int,
        patient: bool = False,
        task_id: str | None = None,
        task: Task | None = None,
        known: Task | None = None,
        resubscribes: bool = True,
    ) -> None:
        self.told = Told(limits, task_id=task_id, task=task, known=known)
        self._stale = None if known is None else known.status  # until the agent has gone on
        self._stale_looks = 0
        self.step: Step | Wait = Step.READ if self.told.task_id is None else Step.SUBSCRIBE
        self.reconnects = 0
        self.gap = False
        self.error: A2AError | None = None
        self.cause: A2AError | None = None
        self._caused_at = 0  # events told
        self._max_reconnects = max_reconnects
        self._patient = patient
        self._resubscribes = resubscribes
        self._fruitless = 0
        self._counted = 0  # events told when the last reconnect was counted
        self._in_vain = 0
        self._doubts = 0  # looks at a task that is not over where its stream says so
        self._why = _Why.MISSED
        self._after_wait = Step.LOOK
        self._over: TaskStatusUpdateEvent | None = None  # told by the stream, and not yet believed
        self._is_cut = False  # and not yet subscribed to again
        # Of a connection that was subscribed with:
        self.may_repeat = False
        self._snapshot: Task | None = None
        self._ahead: Event | None = None  # what it brought before the task was asked for
        self._catch_up: CatchUp | None = None
        self._lags = 0  # looks at a task that lacks what the connection brought

    # ── What happened: connections ───────────────────────────────────────────────────────────

    def subscribed(self, *, resubscribes: bool = True) -> None:
        """A connection is there that the task was subscribed to with.

        Args:
            resubscribes: Whether the task may be subscribed to once more when it is cut.
        """
        self._resubscribes = resubscribes
        self.reconnects += self._is_cut
        self._is_cut = False
        self.may_repeat = True
        self._snapshot, self._ahead, self._catch_up = None, None, None
        self._lags = 0
        self.step = Step.READ

    def received(self, event: Event) -> None:
        """The connection brought an event."""
        if not self.may_repeat:
            self.told.put(event)
            self._check_end(event)
        elif isinstance(event, Task):
            self._snapshot_came(event)
        elif self._catch_up is None:
            self._ahead = event
            self._look(_Why.MISSED)
        else:
            self._in_vain = 0
            self._follow(event, self._catch_up)

    def ended(self) -> None:
        """The connection came to its end in good order."""
        if self.told.state is not TaskState.INPUT_REQUIRED:
            self.cut(None)
        elif self.may_repeat or self.told.status == self._stale:
            self._look(_Why.RESTING)
        else:
            self.step = Step.DONE

    def cut(self, error: A2AError | None) -> None:
        """The connection broke, for a reason or for none.

        Raises:
            A2AError: Nothing can be done about it: no task is known, or the client was closed.
        """
        self.error = error or self.error
        self.cause, self._caused_at = error or self.cause, self.told.count
        if self.told.task_id is None:
            message = "the stream ended before it named its task"
            raise error or A2AConnectionError(message, failure="truncated")
        if isinstance(error, A2AConnectionError) and error.failure == "closed":
            raise error
        if self.told.state is TaskState.INPUT_REQUIRED:
            self._look(_Why.RESTING)
            return
        if not isinstance(error, A2ATimeoutError):  # which is quiet, and works
            self._in_vain += 1
        if self._in_vain > _IN_VAIN and self.may_repeat:
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
        elif is_unknown_there(error):
            self._poll()
        elif error.transient:
            self._again(Step.SUBSCRIBE, error)
        else:
            raise error

    # ── What happened: looks ─────────────────────────────────────────────────────────────────

    def polled(self) -> None:
        """There are no connections: a task that is not at rest is asked for again and again."""
        if self.told.status is not None and self._rests_at(self.told.status):
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
                self._compare_with(task)
                self._wait_for_the_store()
            case _Why.OVER:
                self._compare_with(task)
                if self._over is None or not _holds(task.status, self._over.status):
                    self._doubt_the_end()
            case why:
                self.told.adopt(task)  # which may be older
                if self.told.status is not None and self._rests_at(self.told.status):
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
                self._begin_from(self._snapshot or self.told.whole())
            case _Why.DOUBT:
                self._do_without_the_store()
            case _Why.OVER if not error.transient:
                self._doubt_the_end()
            case _ if error.transient:
                self._again(Step.LOOK, error)
            case _:
                raise error

    # ── Within: a connection that may repeat what was told ───────────────────────────────────

    def _snapshot_came(self, task: Task) -> None:
        if task.state.is_terminal:
            self._believe(task)
        elif self._catch_up is None:
            self._snapshot = task
            self._look(_Why.MISSED)
        else:
            self._compare_with(task)

    def _begin_from(self, base: Task | None) -> None:
        """Lays what the connection brings over the task."""
        self.step = Step.READ
        if base is not None:
            self.told.adopt(base)
        self._catch_up = CatchUp(self.told.whole())
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._follow(ahead, self._catch_up)

    def _follow(self, event: Event, catch_up: CatchUp) -> None:
        """Puts what is new of an event, as far as that is known."""
        if isinstance(event, TaskStatusUpdateEvent) and event.status.state.is_terminal:
            self._over = event
            self._look(_Why.OVER)
            return
        for new in catch_up.follow(event):
            if isinstance(new, TaskStatusUpdateEvent) and new.status.state.is_settled:
                self._over, self._doubts = new, 0  # what came before it may be missing
                self._look(_Why.OVER)
                return
            self.told.put(new)
        if catch_up.wants_look:
            self._look(_Why.DOUBT)

    def _compare_with(self, task: Task) -> None:
        """Puts what of the events that are held back is new, by what the task holds by now."""
        self.step = Step.READ
        before = self.told.whole()
        self.told.adopt(task)
        after = self.told.whole()
        if self._catch_up is not None and before is not None and after is not None:
            for new in self._catch_up.look(before, after):
                self.told.put(new)

    def _wait_for_the_store(self) -> None:
        """Looks again if the task lacks what the connection brought, some times."""
        if self._catch_up is None or not self._catch_up.is_ahead:
            return
        self._lags += 1
        if self._lags < _LOOKS:
            self._look_later(self._lags)
        else:
            self._do_without_the_store()

    def _do_without_the_store(self) -> None:
        """Takes what the connection brings for what follows: nobody knows better."""
        self.step = Step.READ
        if self._catch_up is not None:
            for new in self._catch_up.trust():
                self.told.put(new)

    def _doubt_the_end(self) -> None:
        """The stream says that the task is at rest, and the agent's task does not."""
        self._doubts += 1
        if self._doubts < _LOOKS:
            self._look_later(self._doubts)
            return
        if self._catch_up is not None:
            for new in self._catch_up.give_up():
                self.told.put(new)
        if self._over is not None:
            self._check_cause()
            self.told.put(self._over)
        is_over = self.told.state is not None and self.told.state.is_terminal
        self.step = Step.DONE if is_over else Step.READ

    # ── Within: what to do ───────────────────────────────────────────────────────────────────

    def _check_end(self, event: Event) -> None:
        """Ends with an event that nothing comes after."""
        state = self.told.state
        if isinstance(event, Message) if state is None else state.is_terminal:
            self.step = Step.DONE

    def _rests_at(self, status: TaskStatus) -> bool:
        """Whether the task waits for input, and for other than what it was just given."""
        if status.state is not TaskState.INPUT_REQUIRED:
            return False
        if status == self._stale and self._stale_looks < _STALE:
            self._stale_looks += 1
            return False
        return True

    def _believe(self, task: Task) -> None:
        self._check_cause()
        self.told.believe(task)
        self.step = Step.DONE

    def _check_cause(self) -> None:
        """Blames the end on nothing that the agent has gone on after."""
        if self.told.count > self._caused_at:
            self.cause = None

    def _look(self, why: _Why) -> None:
        self._why, self.step = why, Step.LOOK

    def _look_later(self, attempt: int) -> None:
        self._after_wait = Step.LOOK
        self.step = Wait(attempt=attempt, at_least=_LAG * 2 ** (attempt - 1))

    def _poll(self, error: A2AError | None = None) -> None:
        self.gap = True
        self._fruitless = 0
        self._why, self._after_wait = _Why.POLLING, Step.LOOK
        self.step = Wait(attempt=0, at_least=_asked(error), error=error)

    def _again(self, step: Step, error: A2AError | None) -> None:
        """Tries a step again after a wait, if that was not in vain too often."""
        if self._counted < self.told.count:
            self._fruitless = 0
        self._fruitless, self._counted = self._fruitless + 1, self.told.count
        if self._fruitless > self._max_reconnects:
            if not self._patient and (step is Step.LOOK or not self._max_reconnects):
                raise self._hopeless(error) from error
            if step is Step.SUBSCRIBE:
                self._poll()
                return
        if step is Step.SUBSCRIBE and not self._resubscribes:
            self._poll(error)
            return
        if step is Step.SUBSCRIBE and self.told.status is not None:
            self.gap = self._is_cut = True
        self._after_wait = step
        self.step = Wait(attempt=self._fruitless, at_least=_asked(error), error=error)

    def _hopeless(self, error: A2AError | None) -> ReconnectError:
        name = f"task {self.told.task_id}"
        match self._max_reconnects:
            case 0:
                what = f"the stream of {name} was cut, and reconnecting is switched off"
            case 1:
                what = f"{name} brought nothing new in one try to go on with its stream"
            case tries:
                what = f"{name} brought nothing new in {tries} tries to go on with its stream"
        failure = "" if error is None else f"; what failed last: {error.message}"
        facts = Facts() if error is None else error.facts()
        return ReconnectError(f"{what}{failure}", task=self.told.whole(), **facts)


def _holds(status: TaskStatus, said: TaskStatus) -> bool:
    """Whether a task that is not over is as far as its stream said, or further."""
    if said.state.is_terminal:
        return False
    then, at = said.time, status.time
    if then is None or at is None or then == at:
        return status.state is said.state
    return then < at


def _asked(error: A2AError | None) -> float:
    """Seconds that an agent asked to wait."""
    return 0.0 if error is None else error.retry_after or 0.0
