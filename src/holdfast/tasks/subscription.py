"""One connection that a task was subscribed with: what it brings may have been told before.

It goes along with looks at the task, which tell what was missed, and show where in the task what
the connection brings belongs (`holdfast.tasks.overlap`). What is known to be new is told.

Rules:
- A store may be behind its stream. So what the connection brings is held until the task shows
  where it belongs, and that the task came to rest is believed when the task says so; but not for
  ever.
- What came before the connection may reach the store long after it. So the task is asked for again
  while the connection is quiet, each time after twice as long; what was the same before says
  nothing new.
- Each thing that happens is answered by what is to be done next.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from holdfast.model.types import Task, TaskStatusUpdateEvent
from holdfast.tasks.order import is_newer
from holdfast.tasks.overlap import CatchUp
from holdfast.tasks.steps import Step, Wait

if TYPE_CHECKING:
    from holdfast.errors import A2AError
    from holdfast.model.types import Event, TaskStatus
    from holdfast.tasks.told import Told

__all__ = ["Subscription"]


class _Why(Enum):
    """Why the task is asked for."""

    MISSED = auto()  # what came while nobody listened
    DOUBT = auto()  # whether what the connection brings is new
    REST = auto()  # the stream says that the task is over, or waits for input
    QUIET = auto()  # whether more was missed than the task said at first


_LAG = 0.5
"""Seconds, at least, from the first look at a store that may be behind to the second; it doubles
each time."""

_LOOKS = 4
"""Such looks, until the store is taken for one that does not tell what the stream tells."""

_QUIET = 2.0
"""Seconds without an event after which the task is asked for; twice as many each time."""

_LONGEST_QUIET = 300.0
"""The most of these seconds."""


class Subscription:
    """What one connection brings, on its way to the caller.

    What it is given is of a task that is not over; for one that is, nothing is in doubt.

    Args:
        told: What the caller is told.

    Attributes:
        rest: The status that the connection says the task came to rest with, to be told after all
            that came before; None if it says nothing of that.
        patience: Seconds without an event after which to say `quiet`; None for any number.
    """

    def __init__(self, told: Told) -> None:
        self.rest: TaskStatusUpdateEvent | None = None
        self.patience: float | None = _QUIET
        self._told = told
        self._why = _Why.MISSED
        self._snapshot: Task | None = None
        self._seen: Task | None = None  # the task, as it was asked for last
        self._ahead: Event | None = None  # what it brought before the task was asked for
        self._catch_up: CatchUp | None = None
        self._lags = 0  # looks at a task that lacks what it brought
        self._doubts = 0  # looks at a task that is not at rest where it says so

    @property
    def is_followed(self) -> bool:
        """Whether what it brings is laid over the task by now."""
        return self._catch_up is not None

    def received(self, event: Event) -> Step | Wait:
        """It brought an event."""
        if self._catch_up is not None:
            if not isinstance(event, Task):
                return self._follow(event, self._catch_up)
            self._compare_with(event)
            return Step.READ
        if isinstance(event, Task):
            self._snapshot = event
        else:
            self._ahead = event
        return self._look(_Why.MISSED)

    def quiet(self) -> Step:
        """It has brought nothing for as long as patience lasts."""
        if self.patience is not None:
            self.patience = min(2 * self.patience, _LONGEST_QUIET)
        return self._look(_Why.QUIET)

    def hurry(self, patience: float) -> None:
        """Has the task asked for soon, if it is asked for at all."""
        if self.patience is not None:
            self.patience = min(self.patience, patience)

    def found(self, task: Task) -> Step | Wait:
        """The task, as it was asked for; `Step.DONE` if `rest` is to be believed."""
        seen, self._seen = self._seen, task
        if self._why is _Why.MISSED:
            return self._begin_from(task)
        if self._why is _Why.QUIET:
            if task != seen:  # else it may be older than what was brought
                self._compare_with(task)
            return Step.READ
        self._compare_with(task)
        if self._why is _Why.DOUBT:
            return self._wait_for_the_store()
        if self.rest is None or _holds(task.status, self.rest.status):
            return Step.READ
        return self._doubt_the_rest()

    def not_found(self, error: A2AError) -> Step | Wait | None:
        """The agent did not give the task; None if nothing can be done without it."""
        if self._why is _Why.MISSED:
            # Not all who stream have a store: the connection is all there is.
            return self._begin_from(self._snapshot or self._told.whole())
        if self._why is _Why.DOUBT:
            return self._do_without_the_store()
        if self._why is _Why.QUIET:
            if not error.transient:
                self.patience = None
            return Step.READ
        return None if error.transient else self._doubt_the_rest()

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    def _begin_from(self, base: Task | None) -> Step | Wait:
        """Lays what it brings over the task."""
        if base is not None:
            self._told.adopt(base)
        self._catch_up = CatchUp(self._told.whole())
        ahead, self._ahead = self._ahead, None
        return Step.READ if ahead is None else self._follow(ahead, self._catch_up)

    def _follow(self, event: Event, catch_up: CatchUp) -> Step | Wait:
        """Puts what is new of an event, as far as that is known."""
        if isinstance(event, TaskStatusUpdateEvent) and event.status.state.is_terminal:
            return self._ask_whether_it_rests(event)
        for new in catch_up.follow(event):
            if isinstance(new, TaskStatusUpdateEvent) and new.status.state.is_settled:
                return self._ask_whether_it_rests(new)  # what came before it may be missing
            self._told.put(new)
        return self._look(_Why.DOUBT) if catch_up.wants_look else Step.READ

    def _compare_with(self, task: Task) -> None:
        """Puts what of the events that are held back is new, by what the task holds by now."""
        before = self._told.whole()
        self._told.adopt(task)
        after = self._told.whole()
        if self._catch_up is not None and before is not None and after is not None:
            self._put(self._catch_up.look(before, after))

    def _wait_for_the_store(self) -> Step | Wait:
        """Looks again if the task lacks what it brought, some times."""
        if self._catch_up is None or not self._catch_up.is_ahead:
            return Step.READ
        self._lags += 1
        return _later(self._lags) if self._lags < _LOOKS else self._do_without_the_store()

    def _do_without_the_store(self) -> Step:
        """Takes what it brings for what follows: nobody knows better."""
        if self._catch_up is not None:
            self._put(self._catch_up.trust())
        return Step.READ

    def _ask_whether_it_rests(self, rest: TaskStatusUpdateEvent) -> Step:
        self.rest, self._doubts = rest, 0
        return self._look(_Why.REST)

    def _doubt_the_rest(self) -> Step | Wait:
        """It says that the task is at rest, and the agent's task does not."""
        self._doubts += 1
        if self._doubts < _LOOKS:
            return _later(self._doubts)
        if self._catch_up is not None:
            self._put(self._catch_up.give_up())
        return Step.DONE

    def _look(self, why: _Why) -> Step:
        self._why = why
        return Step.LOOK

    def _put(self, events: list[Event]) -> None:
        for event in events:
            self._told.put(event)


def _later(attempt: int) -> Wait:
    return Wait(attempt=attempt, at_least=_LAG * 2 ** (attempt - 1))


def _holds(status: TaskStatus, said: TaskStatus) -> bool:
    """Whether a task that is not over is as far as its stream said, or further."""
    newer = is_newer(status, said)
    return status.state is said.state if newer is None else newer
