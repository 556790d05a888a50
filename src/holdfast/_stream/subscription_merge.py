"""One connection that a task was subscribed with: what it brings may have been told before.

It goes along with looks at the task, which tell what was missed and what of it is new: where in
the text of the task its chunks belong is not known otherwise (`holdfast._stream.overlap`).

Rules:
- A store may be behind its stream, by any time. What the connection brings and the task does not
  show yet is waited for; the task is asked for again, at first soon and then at most as often as a
  task that is polled.
- What came before the connection may reach the store long after it. So the task is asked for again
  while the connection is quiet, each time after twice as long; what was the same before says
  nothing new.
- That a task came to rest is believed when the task says so. If it does not in half a minute, the
  answer may lack what was missed: a task that completed is none then. One that failed, or waits
  for input and holds all that was brought, is taken for what it is.
- An agent that says that it has no task to give has no store: then the connection is believed. Any
  other failure to get it says nothing, and it is asked for again.
- Each thing that happens is answered by what is to be done next.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from holdfast._stream.fold import is_newer
from holdfast._stream.overlap import OverlapResolver
from holdfast._stream.steps import Step, Wait
from holdfast._wire.status import is_unknown_operation
from holdfast.errors import (
    AuthenticationError,
    PermissionDeniedError,
    ReconnectError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from holdfast.types import Task, TaskState, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from holdfast._stream.outbox import EventOutbox
    from holdfast.errors import A2AError
    from holdfast.types import Event, TaskStatus

__all__ = ["Subscription"]


class _Why(Enum):
    """Why the task is asked for."""

    MISSED = auto()  # what came while nobody listened
    HELD = auto()  # what of that which the connection brought is new
    REST = auto()  # the stream says that the task is over, or waits for input
    QUIET = auto()  # whether more was missed than the task said at first


_DOUBTS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds, at least, between looks at a task that is not at rest where its stream says so."""

_QUIET = 2.0
"""Seconds without an event after which the task is asked for; twice as many each time."""

_LONGEST_QUIET = 300.0
"""The most of these seconds."""

_SOON, _LATER, _LATEST = 0.25, 2.0, 30.0
"""Seconds from one look at a task that lacks what its connection brought to the next. They double,
up to the second number while looks bring something, else up to the third."""

_NO_STORE = (
    TaskNotFoundError,
    UnsupportedOperationError,
    AuthenticationError,
    PermissionDeniedError,
)


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

    def __init__(self, told: EventOutbox) -> None:
        self.rest: TaskStatusUpdateEvent | None = None
        self.patience: float | None = _QUIET
        self._told = told
        self._why = _Why.MISSED
        self._snapshot: Task | None = None
        self._seen: Task | None = None  # the task, as it was asked for last
        self._ahead: Event | None = None  # what it brought before the task was asked for
        self._catch_up: OverlapResolver | None = None
        self._has_store: bool | None = (
            None  # None as long as the task was neither seen nor refused
        )
        self._pace = _SOON
        self._has_held = False
        self._is_hasty = False  # it brought something after the last look that found anything
        self._doubts = 0  # looks at a task that is not at rest where it says so

    @property
    def is_followed(self) -> bool:
        """Whether the task was asked for after it had begun."""
        return self._catch_up is not None

    @property
    def look_after(self) -> float | None:
        """Seconds from the last look to when to say `quiet`, whatever comes; None for never."""
        if self._catch_up is None or self._has_store is False:
            return None
        is_held = self._is_hasty and self._catch_up.is_behind
        return self._pace if self._has_store is None or is_held else None

    def received(self, event: Event) -> Step | Wait:
        """It brought an event."""
        if self._catch_up is not None:
            if not isinstance(event, Task):
                return self._follow(event, self._catch_up)
            self._compare_with(event, self._catch_up)
            return Step.READ
        if isinstance(event, Task):
            self._snapshot = event
        else:
            self._ahead = event
        return self._look(_Why.MISSED)

    def quiet(self) -> Step:
        """It has brought nothing for as long as patience lasts, or it is time to look again."""
        if self._catch_up is None:
            return self._look(_Why.MISSED)
        if self.look_after is not None:
            return self._look(_Why.HELD)
        if self.patience is not None:
            self.patience = min(2 * self.patience, _LONGEST_QUIET)
        return self._look(_Why.QUIET)

    def hurry(self, patience: float) -> None:
        """Has the task asked for soon, if it is asked for at all."""
        if self.patience is not None:
            self.patience = min(self.patience, patience)

    def found(self, task: Task) -> Step | Wait:
        """The task, as it was asked for; `Step.DONE` if `rest` is to be believed.

        Raises:
            ReconnectError: The task is not over, long after the connection said that it completed.
        """
        seen, self._seen, self._has_store = self._seen, task, True
        catch_up = self._catch_up
        if catch_up is None:
            return self._begin_from(task)
        if self._why is _Why.REST and self.rest is not None:
            return self._compare_rest(task, self.rest, catch_up)
        before = self._told.count
        if self._why is not _Why.QUIET or task != seen:  # else it may be older than the connection
            self._compare_with(task, catch_up)
        if self._why is _Why.HELD:
            self._slow_down(has_news=self._told.count > before)
        return Step.READ

    def not_found(self, error: A2AError) -> Step | Wait | None:
        """The agent did not give the task; None if nothing can be done without it.

        Raises:
            ReconnectError: See `found`.
        """
        if not error.transient and (isinstance(error, _NO_STORE) or is_unknown_operation(error)):
            return self._do_without_the_store()
        if self._catch_up is None:
            return self._begin_from(self._snapshot if self._told.status is None else None)
        if self._why is _Why.REST:
            return None if error.transient else self._doubt_the_rest(self._catch_up)
        self._slow_down(has_news=False)
        return Step.READ

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    def _begin_from(self, base: Task | None) -> Step | Wait:
        """Lays what it brings over the task."""
        if base is not None:
            self._told.adopt(base)
        catch_up = self._catch_up = OverlapResolver(self._told)
        if self._has_store is False:
            catch_up.go_alone()
        ahead, self._ahead = self._ahead, None
        return Step.READ if ahead is None else self._follow(ahead, catch_up)

    def _begin_alone(self) -> Step | Wait:
        """Lays what it brings over its snapshot, which is the task as it stands (A2A 3.1.6)."""
        snapshot, status = self._snapshot, self._told.status
        if snapshot is not None and (
            status is None or is_newer(snapshot.status, status) is not False
        ):
            self._told.believe(snapshot)
        return self._begin_from(None)

    def _follow(self, event: Event, catch_up: OverlapResolver) -> Step | Wait:
        """Puts what is new of an event, as far as that is known."""
        if isinstance(event, TaskStatusUpdateEvent) and event.status.state.is_terminal:
            return self._ask_whether_it_rests(event)
        for new in catch_up.follow(event):
            if isinstance(new, TaskStatusUpdateEvent) and new.status.state.is_settled:
                return self._ask_whether_it_rests(new)  # what came before it may be missing
            self._told.put(new)
        self._is_hasty = True
        if self._has_held or self._has_store is False or not catch_up.is_behind:
            return Step.READ
        self._has_held = True
        return self._look(_Why.HELD)

    def _compare_with(self, task: Task, catch_up: OverlapResolver) -> None:
        """Puts what is new of the task, but for what the connection itself tells.

        Of one that waits for input all is put: it may be the last that the caller reads.
        """
        waits = task.state is TaskState.INPUT_REQUIRED
        self._told.adopt(task, but=frozenset() if waits else catch_up.followed)
        catch_up.looked(task, is_ahead=waits)

    def _slow_down(self, *, has_news: bool) -> None:
        """Asks again later, where the store lags and where it would be asked too often."""
        self._pace = min(2 * self._pace, _LATER if has_news else _LATEST)
        self._is_hasty = self._is_hasty and not has_news

    def _do_without_the_store(self) -> Step | Wait:
        """Takes what it brings for what follows: nobody knows better."""
        self._has_store, self.patience = False, None
        catch_up = self._catch_up
        self._told.past.forget()
        if catch_up is None:
            return self._begin_alone()
        self._put(catch_up.go_alone())
        if self._why is not _Why.REST:
            return Step.READ
        self._put(catch_up.finish())
        return Step.DONE

    def _ask_whether_it_rests(self, rest: TaskStatusUpdateEvent) -> Step:
        self.rest, self._doubts = rest, 0
        return self._look(_Why.REST)

    def _compare_rest(
        self, task: Task, rest: TaskStatusUpdateEvent, catch_up: OverlapResolver
    ) -> Step | Wait:
        """Believes a task that is as far as its stream said, and all of it if it is no further."""
        if not _holds(task.status, rest.status):
            self._compare_with(task, catch_up)
            return self._doubt_the_rest(catch_up)
        if task.status == rest.status and (task.status.timestamp or task.status.message):
            self._told.believe(task)
        else:
            self._told.adopt(task)
        catch_up.looked(task, is_ahead=True)
        return Step.READ

    def _doubt_the_rest(self, catch_up: OverlapResolver) -> Step | Wait:
        """It says that the task is at rest, and the agent's task does not."""
        if self._doubts < len(_DOUBTS):
            self._doubts += 1
            return Wait(attempt=self._doubts, at_least=_DOUBTS[self._doubts - 1])
        state = TaskState.UNSPECIFIED if self.rest is None else self.rest.status.state
        if state is TaskState.COMPLETED or (not state.is_terminal and catch_up.is_behind):
            what = f"the stream of task {self._told.task_id} ended with {state.name} after a cut,"
            what += f" but GetTask does not show it {sum(_DOUBTS):g} s later: text may be missing"
            raise ReconnectError(what, task=self._told.whole(), executed=True)
        return Step.DONE

    def _look(self, why: _Why) -> Step:
        self._why = why
        return Step.LOOK

    def _put(self, events: list[Event]) -> None:
        for event in events:
            self._told.put(event)


def _holds(status: TaskStatus, said: TaskStatus) -> bool:
    """Whether a task that is not over is as far as its stream said, or further."""
    newer = is_newer(status, said)
    return status.state is said.state if newer is None else newer
