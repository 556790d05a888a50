"""Merge what a subscription brings with what GetTask shows.

A connection that was subscribed with may bring events that the caller has, and where in the
task's text its chunks belong is unknown (`holdfast._stream.overlap`). So the task is fetched
beside the connection, to learn what was missed and what is new:

- The store may be behind its stream, by any time. Events of the connection that the task does not
  show yet wait for it. The task is fetched again: soon at first, then at most as often as a task
  that is polled.
- Events before the connection may reach the store long after it. So the task is also fetched while
  the connection is silent, each time after twice as long. A task equal to the previous one brings
  nothing new.
- A final or interrupted status from the connection counts once the task shows it. If the task
  does not show it within half a minute, text may be missing. If the task completed, that is an
  error. If it failed, or waits for input and shows every chunk, the connection is believed.
- An agent that says it has no such task has no store: then the connection alone counts. Any other
  failure of GetTask says nothing, and the task is fetched again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._stream.overlap import OverlapResolver
from holdfast._stream.states import State, Wait
from holdfast._stream.status_order import is_as_far, is_newer
from holdfast._wire.status import is_unknown_operation
from holdfast.errors import (
    A2AError,
    AuthenticationError,
    PermissionDeniedError,
    ReconnectError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from holdfast.types import Event, Task, TaskState, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from holdfast._stream.outbox import EventOutbox

__all__ = ["CHANGED_SILENCE_S", "LONGEST_SILENCE_S", "STALE_SILENCE_S", "Subscription"]

STALE_SILENCE_S = 2.0
"""Seconds without an event after which the task is fetched, if it may have changed meanwhile: it
still waits for a reply that was sent, or was just subscribed to. Doubles each time."""

CHANGED_SILENCE_S = 1.0
"""The same for a task that is known to change."""

LONGEST_SILENCE_S = 300.0
"""The largest value of these seconds."""

_CONFIRM_DELAYS_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds, at least, between requests for a task that does not show the status at which its
connection says it rests."""

_FIRST_COMPARE_S, _COMPARE_S, _LATEST_COMPARE_S = 0.25, 2.0, 30.0
"""Seconds between requests for a task that lacks events of its connection. They double, up to the
second number while requests bring news, else up to the third."""

_NO_STORE = (
    TaskNotFoundError,
    UnsupportedOperationError,
    AuthenticationError,
    PermissionDeniedError,
)
"""Errors of GetTask, if not transient, that say that the agent has no task to return."""


class Subscription:
    """One connection that the task was subscribed to with.

    Each method that reports what happened returns the state that follows. The owner then puts
    `rest`, if `is_at_rest`: it comes after all other events.

    Args:
        outbox: The caller's task and events.

    Attributes:
        silence: Seconds without an event after which the task is fetched; None for never.
        wait: What to wait for before CONFIRMING; None for nothing.
        rest: The final or interrupted status that the connection brought; None without one.
        is_at_rest: Whether `rest` is confirmed, and to be put.
        has_events: Whether it brought an event other than the task as it is.
    """

    def __init__(self, outbox: EventOutbox) -> None:
        self._outbox = outbox
        self.silence: float | None = STALE_SILENCE_S
        self.wait: Wait | None = None
        self.rest: TaskStatusUpdateEvent | None = None
        self.is_at_rest = False
        self.has_events = False
        self._snapshot: Task | None = None  # that the connection began with
        self._early: Event | None = None  # the last other event before the task was fetched
        self._overlap: OverlapResolver | None = None  # from when the task was fetched
        self._fetched: Task | None = None  # the task as it was fetched last
        self._has_store: bool | None = None  # None until GetTask succeeded or was refused
        self._confirmations = 0  # requests for a task that does not show `rest`
        self._compare_after = _FIRST_COMPARE_S
        self._has_compared = False  # the task was fetched because it lacked events
        self._has_news = False  # the connection brought an event since GetTask last did

    @property
    def compare_after(self) -> float | None:
        """Seconds from one request for the task to the next while it lacks events; else None."""
        overlap = self._overlap
        if overlap is None or self._has_store is False:
            return None
        is_due = self._has_store is None or (self._has_news and overlap.is_behind)
        return self._compare_after if is_due else None

    def on_event(self, event: Event) -> State:
        """Take an event other than a task in a terminal state."""
        overlap = self._overlap
        self.has_events = self.has_events or not isinstance(event, Task)
        if overlap is None:
            if isinstance(event, Task):
                self._snapshot = event
            else:
                self._early = event
            return State.CATCHING_UP
        if isinstance(event, Task):
            self._merge_older(event, overlap)
            return State.MERGING
        return self._merge(event, overlap)

    def on_look_due(self) -> State:
        """Fetch the task: the connection was silent, or the task lacks events."""
        if self._overlap is None:
            return State.CATCHING_UP
        if self.compare_after is not None:
            return State.COMPARING
        if self.silence is not None:
            self.silence = min(2 * self.silence, LONGEST_SILENCE_S)
        return State.RECHECKING

    def on_task(self, task: Task, state: State) -> State:
        """Take the task, fetched in a state; it is not in a terminal state.

        Raises:
            ReconnectError: See `on_no_task`.
        """
        fetched, self._fetched, self._has_store = self._fetched, task, True
        overlap = self._overlap
        if overlap is None:
            return self._start_merging(task)
        if state is State.CONFIRMING and self.rest is not None:
            return self._confirm(task, self.rest, overlap)
        before = self._outbox.count
        # A task equal to the previous one may be older than the connection.
        if state is State.COMPARING or task != fetched:
            self._merge_older(task, overlap)
        if state is State.COMPARING:
            self._compare_later(has_news=self._outbox.count > before)
        return State.MERGING

    def on_no_task(self, error: A2AError, state: State) -> State:
        """Continue without the task; not called for a transient error while CONFIRMING.

        Raises:
            ReconnectError: The connection says that the task completed, and the task does not show
                it after half a minute.
        """
        if not error.transient and (isinstance(error, _NO_STORE) or is_unknown_operation(error)):
            return self._merge_without_store(state)
        overlap = self._overlap
        if overlap is None:
            return self._start_merging(self._snapshot if self._outbox.status is None else None)
        if state is State.CONFIRMING:
            return self._doubt(overlap)
        self._compare_later(has_news=False)
        return State.MERGING

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    def _start_merging(self, base: Task | None) -> State:
        """Merge what the connection brought so far with the task."""
        if base is not None:
            self._outbox.merge_older(base)
        overlap = self._overlap = OverlapResolver(self._outbox)
        if self._has_store is False:
            overlap.drop_store()
        early, self._early = self._early, None
        return State.MERGING if early is None else self._merge(early, overlap)

    def _merge(self, event: Event, overlap: OverlapResolver) -> State:
        """Put what is new of an event, as far as that is known."""
        is_final = isinstance(event, TaskStatusUpdateEvent) and event.status.state.is_terminal
        for new in (event,) if is_final else overlap.filter(event):
            if isinstance(new, TaskStatusUpdateEvent) and new.status.state.is_settled:
                # Events before it may be missing.
                self.rest, self._confirmations = new, 0
                return State.CONFIRMING
            self._outbox.put_event(new)
        self._has_news = True
        if self._has_compared or self._has_store is False or not overlap.is_behind:
            return State.MERGING
        self._has_compared = True
        return State.COMPARING

    def _merge_older(self, task: Task, overlap: OverlapResolver) -> None:
        """Put what is new of a task, except for artifacts that the connection itself brings.

        Of a task that waits for input everything is put: it may be the last that the caller reads.
        """
        waits = task.state is TaskState.INPUT_REQUIRED
        followed = frozenset[str]() if waits else overlap.followed
        self._outbox.merge_older(task, except_for=followed)
        overlap.merged(task, is_ahead=waits)

    def _compare_later(self, *, has_news: bool) -> None:
        """Postpone the next request, since the store lags."""
        longest = _COMPARE_S if has_news else _LATEST_COMPARE_S
        self._compare_after = min(2 * self._compare_after, longest)
        self._has_news = self._has_news and not has_news

    def _merge_without_store(self, state: State) -> State:
        """Take what the connection brings as it is: there is no store to compare with."""
        self._has_store, self.silence = False, None
        outbox, overlap = self._outbox, self._overlap
        outbox.texts.forget()
        if overlap is None:
            # Its snapshot is the task as it stands (A2A 3.1.6).
            snapshot, status = self._snapshot, outbox.status
            if snapshot is not None and (
                status is None or is_newer(snapshot.status, status) is not False
            ):
                outbox.replace_by(snapshot)
            return self._start_merging(None)
        for event in overlap.drop_store():
            outbox.put_event(event)
        if state is not State.CONFIRMING:
            return State.MERGING
        for event in overlap.finish():
            outbox.put_event(event)
        return self._come_to_rest()

    def _confirm(self, task: Task, rest: TaskStatusUpdateEvent, overlap: OverlapResolver) -> State:
        """Take a task that shows the status at rest, or a later one."""
        if not is_as_far(task.status, rest.status):
            self._merge_older(task, overlap)
            return self._doubt(overlap)
        if task.status == rest.status and (task.status.timestamp or task.status.message):
            self._outbox.replace_by(task)
        else:
            self._outbox.merge_older(task)
        overlap.merged(task, is_ahead=True)
        return State.MERGING

    def _doubt(self, overlap: OverlapResolver) -> State:
        """Fetch the task again: the connection says that it rests, and the task does not."""
        if self._confirmations < len(_CONFIRM_DELAYS_S):
            delay = _CONFIRM_DELAYS_S[self._confirmations]
            self._confirmations += 1
            self.wait = Wait(attempt=self._confirmations, at_least=delay)
            return State.CONFIRMING
        state = TaskState.UNSPECIFIED if self.rest is None else self.rest.status.state
        if state is TaskState.COMPLETED or (not state.is_terminal and overlap.is_behind):
            waited = sum(_CONFIRM_DELAYS_S)
            what = (
                f"the stream of task {self._outbox.task_id} ended with {state.name} after a cut,"
            )
            what += f" but GetTask does not show it {waited:g} s later: text may be missing"
            raise ReconnectError(
                what, task=self._outbox.whole(), task_id=self._outbox.task_id, executed=True
            )
        return self._come_to_rest()

    def _come_to_rest(self) -> State:
        """Believe the connection that the task is at rest."""
        if self.rest is None:
            return State.MERGING
        self.is_at_rest = True
        return State.DONE if self.rest.status.state.is_terminal else State.MERGING
