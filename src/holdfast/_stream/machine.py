"""A stream over any number of connections: what to do next.

`StreamMachine` takes what happens (`on_event`, `on_cut` and so on), and says what to do next
(`StreamMachine.action`); it does nothing itself. Events for the caller go into
`StreamMachine.outbox`, each once. The states and their transitions are in
`holdfast._stream.states`; what a connection brings that was subscribed with is merged by
`holdfast._stream.merging`.

Rules (A2A 3.1.2, 3.1.6, 7):
- A stream ends if its first event is a `Message`, at a terminal state, and if its connection ends
  normally after INPUT_REQUIRED. Any other end of a connection is a cut.
- INPUT_REQUIRED as it was before the reply that the stream answers is not an end
  (`holdfast._stream.replies`).
- After a cut, the task is subscribed to again.
- If a subscription is refused because the task is over or cannot be subscribed to, the task is
  fetched. So it is if the agent itself fails at the first subscription: some agents fail if there
  is no such task.
- Comments prove that a connection is alive, but not that it brings events. So the task is fetched
  after 30 s without an event, then after 60 s, and so on up to five minutes. The first connection
  is cut off if two such requests in a row show events that it has not brought: 90 s after its last
  event at the earliest, or sooner while the task is known to change. A later connection is not cut
  off: what the request shows is merged.
- The task is polled if subscriptions repeatedly lead to nothing, and if a subscription is not safe
  because it may change the stored task. An agent that stores no task has none to change.
- Reconnects without a new event are counted; a new event resets the count.
- An agent that restarts may give the task's id to another message's task. If that is certain
  (`holdfast._policy.task_ownership`), the agent no longer has the task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._stream.counters import MAX_EVENTLESS, StreamCounters
from holdfast._stream.merging import (
    CHANGED_SILENCE_S,
    LONGEST_SILENCE_S,
    STALE_SILENCE_S,
    Subscription,
)
from holdfast._stream.outbox import EventOutbox
from holdfast._stream.states import TRANSITIONS, Action, Input, State, Wait
from holdfast._wire.status import is_agents_own, is_unknown_operation
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2ATimeoutError,
    Facts,
    ReconnectError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from holdfast.types import Event, Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._policy.task_ownership import TaskOwner
    from holdfast._stream.replies import PendingReply
    from holdfast._wire.limits import Limits

__all__ = ["StreamMachine"]

_SILENCE_S = 30.0
"""Seconds without an event after which the task is first fetched beside the first connection;
`STALE_SILENCE_S` if the task may have changed meanwhile. Doubles each time."""


class StreamMachine:
    """The state machine of one stream.

    It begins with an open connection; or, if the task is known, by subscribing to it; or by
    polling the task, after `on_poll_only`.

    Args:
        limits: How large the task may become.
        max_reconnects: Consecutive reconnects without a new event until the task is polled; 0
            fails at the first cut.
        until_deadline: Whether only the deadline of the stream ends it during an outage.
        task_id: The task, if it is known from the beginning.
        task: The same, if the caller has it already; it is subscribed to first.
        known: A task that the caller has, and that the first event may belong to.
        reply: The reply to an interrupted task that the stream answers; None without one.
        subscribing_is_safe: Whether a subscription leaves the task unchanged.
        has_progressed: Returns whether the agent has acted on the reply to the known task, though
            the task's status is the same.
        owner: The message that the task answers; None if it is unknown.

    Attributes:
        state: The current state.
        wait: What to wait for before the action of the state; None for nothing.
        action: What to do next: the wait or, without one, the action of the state.
        may_repeat: Whether the connection was subscribed with, and may repeat events.
        outbox: The events for the caller.
        reconnects: How often the task was subscribed to again after a cut.
        is_polled: Whether the task is polled, or was at the end, in place of a subscription.
        gap: Whether status messages may be missing: agents need not keep those of a cut.
        error: The error that broke a connection last; None if none broke, or they merely ended.
        cause: At the end, the error that broke a connection, unless the agent continued after it:
            the reason why a task ended that states none itself.
        reply: The reply to an interrupted task that the stream answers; None without one.
        until_deadline: Whether only the deadline of the stream ends it during an outage.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        max_reconnects: int,
        until_deadline: bool = False,
        task_id: str | None = None,
        task: Task | None = None,
        known: Task | None = None,
        reply: PendingReply | None = None,
        subscribing_is_safe: bool = True,
        has_progressed: Callable[[Task], bool] | None = None,
        owner: TaskOwner | None = None,
    ) -> None:
        self.outbox = EventOutbox(limits, task_id=task_id, task=task, known=known)
        self.state = State.FOLLOWING if self.outbox.task_id is None else State.SUBSCRIBING
        self.wait: Wait | None = None
        self.action: Action | Wait = self.state.action
        self.may_repeat = False
        self.reply = reply
        self.reconnects = 0
        self.is_polled = False
        self.gap = False
        self.error: A2AError | None = None
        self.cause: A2AError | None = None
        self._has_progressed = has_progressed
        self._owner = owner
        self._max_reconnects = max_reconnects
        self.until_deadline = until_deadline
        self._subscribing_is_safe = subscribing_is_safe
        self._has_store = True  # the agent, as far as it did not say otherwise
        self._counters = StreamCounters()
        self._silence: float | None = STALE_SILENCE_S  # of the first connection
        self._is_changing = False
        self._refusal: A2AError | None = None  # of the subscription before DOUBTED
        self._is_cut = False  # and not subscribed to again yet
        self._subscription: Subscription | None = None  # None for the first connection

    @property
    def is_stale(self) -> bool:
        """Whether the task's latest status is the one before the reply that was just sent."""
        status = self.outbox.status
        return self.reply is not None and status is not None and self.reply.is_stale(status)

    @property
    def silence(self) -> float | None:
        """Seconds without an event after which `on_look_due` is to be called; None for never."""
        subscription, state = self._subscription, self.outbox.state
        if state is None or (state.is_settled and not self.is_stale):
            return None
        if subscription is not None:
            return subscription.silence
        if self._silence is None or self.is_stale or self._is_changing:
            return self._silence
        return max(self._silence, _SILENCE_S)

    @property
    def compare_after(self) -> float | None:
        """Seconds after the last request for the task to call `on_look_due`, events or not."""
        subscription = self._subscription
        return None if subscription is None or self.silence is None else subscription.compare_after

    def expects(self, happened: Input) -> bool:
        """Return whether something may happen in the current state."""
        return happened in TRANSITIONS[self.state]

    # ── Connections ──────────────────────────────────────────────────────────────────────────

    def accept(self, event: Event) -> Event | None:
        """Take an event of the connection, and return the next one for the caller.

        The result is that of `on_event` followed by `EventOutbox.take`. A chunk of the first
        connection, as most events are, passes without a queue.

        Raises:
            TaskNotFoundError: See `on_event`.
            A2AError: See `EventOutbox.take`.
        """
        if self.state is State.FOLLOWING and isinstance(event, TaskArtifactUpdateEvent):
            return self.outbox.pass_chunk(event)
        self.on_event(event)
        return self.outbox.take()

    def on_event(self, event: Event) -> None:
        """Take an event of the connection.

        Raises:
            TaskNotFoundError: The connection was subscribed with, and brings another message's
                task.
        """
        subscription = self._subscription
        if subscription is not None and isinstance(event, Task):
            self.check_origin(event)
        if self.reply is not None:
            self.reply.record(event)
        if subscription is None:
            self.outbox.put_event(event)
            self.wait = None
            state = State.DONE if self._is_final(event) else State.FOLLOWING
        elif isinstance(event, Task) and event.state.is_terminal:
            state = self._end_with(event)
        else:
            state = self._after_merging(subscription, subscription.on_event(event))
        self._enter(Input.EVENT, state)

    def on_look_due(self) -> None:
        """Fetch the task: nothing came for `silence`, or `compare_after` has passed."""
        subscription, state = self._subscription, self.state
        if subscription is not None:
            state = subscription.on_look_due()
        elif (silence := self.silence) is not None:
            self._silence = min(2 * silence, LONGEST_SILENCE_S)
            state = State.CHECKING
        self._enter(Input.LOOK_DUE, state)

    def expect_change(self) -> None:
        """Shorten `silence`: the task is known to change."""
        self._is_changing, self._silence = True, self._silence and CHANGED_SILENCE_S
        subscription = self._subscription
        if subscription is not None and subscription.silence is not None:
            subscription.silence = min(subscription.silence, CHANGED_SILENCE_S)

    def on_end(self) -> None:
        """Note that the connection ended normally."""
        if self.outbox.state is not TaskState.INPUT_REQUIRED:
            state = self._reconnect(None)
        elif self.may_repeat or (self.is_stale and (self._max_reconnects or self.until_deadline)):
            state = State.RESTING
        else:
            state = State.DONE
        self._enter(Input.END, state)

    def on_cut(self, error: A2AError | None) -> None:
        """Note that the connection broke; without an error, it ended too early.

        Raises:
            A2AError: The stream cannot continue: the client was closed, or the agent answered with
                an error before a task was known.
        """
        self._enter(Input.CUT, self._reconnect(error))

    def on_subscribed(self, *, subscribing_is_safe: bool = True) -> None:
        """Note that the task was subscribed to.

        Args:
            subscribing_is_safe: Whether a further subscription leaves the task unchanged.
        """
        self._subscribing_is_safe = subscribing_is_safe or not self._has_store
        self.reconnects += self._is_cut
        self._is_cut = self.is_polled = False
        self._subscription, self.may_repeat = Subscription(self.outbox), True
        self._enter(Input.SUBSCRIBED, State.JOINED)

    def on_refused(self, error: A2AError) -> None:
        """Note that the task could not be subscribed to.

        Raises:
            A2AError: Later subscriptions would fail, too.
        """
        if isinstance(error, UnsupportedOperationError | TaskNotFoundError):
            state = State.UNSUBSCRIBABLE
        elif is_unknown_operation(error):
            state = self._poll(error)
        elif isinstance(error, A2ATimeoutError) and error.phase in {"first_byte", "idle"}:
            self._counters.failure = error
            state = State.RESTING  # no event arrived: the task may have none to come
        elif error.transient and is_agents_own(error) and not self._counters.tries:
            self._refusal = error
            state = State.DOUBTED
        elif error.transient:
            state = self._try_again(State.SUBSCRIBING, error)
        else:
            raise error
        self._enter(Input.REFUSED, state)

    def on_found(self, task: Task) -> None:
        """Take the task of the message, found by a search after no event had named it."""
        if self.reply is not None:
            self.reply.record(task)
        self.outbox.put_event(task)
        # Only the connection was lost; the agent continues with the task.
        state = State.DONE if self._is_final(task) else self._reconnect(None)
        self._enter(Input.FOUND, state)

    # ── The task ─────────────────────────────────────────────────────────────────────────────

    def on_poll_only(self) -> None:
        """Poll the task: the agent offers no streams, or subscribing is not safe."""
        status = self.outbox.status
        is_done = self.state is State.DONE or (status is not None and self._rests_at(status))
        self._enter(Input.POLL_ONLY, State.DONE if is_done else self._poll())

    def on_waited(self) -> None:
        """Note that the wait is over."""
        self.wait = None
        self._enter(Input.WAITED, self.state)

    def lost(self, what: str) -> ReconnectError:
        """Return the error of a stream that cannot be resumed, with the facts of its last failure.

        Args:
            what: What happened; the last failure's text follows.
        """
        failure, task_id = self._counters.failure, self.outbox.task_id
        facts = Facts() if failure is None else failure.facts()
        if failure is not None:
            what += f"; last error: {failure.message}"
            facts["retry_stopped_reason"] = None  # of one request; the stream continued after it
            facts["transient"] = False  # calling again would send the message again
        lost = ReconnectError(what, task=self.outbox.whole(), task_id=task_id, **facts)
        lost.__cause__ = failure
        return lost

    def close_reply(self) -> None:
        """Take the status that the task has, or will have, for the answer to the reply."""
        if self.reply is not None:
            self.reply.is_answered = True

    def on_expired(self) -> None:
        """Note that the agent had enough time to act on the reply: the status is its answer."""
        self.close_reply()
        if self.action is Action.READ:
            self._enter(Input.EXPIRED, State.DONE)

    def on_task(self, task: Task) -> None:
        """Take the agent's task, as it was fetched.

        Raises:
            TaskNotFoundError: It is another message's task.
            ReconnectError: The task does not show its end, long after the connection brought it;
                or requests bring nothing new too often.
        """
        self.check_origin(task)
        if self.reply is not None:
            self.reply.record(task)
        if task.state.is_terminal:
            self.gap = self.gap or self.state is State.CHECKING
            state = self._end_with(task)
        elif self.state is State.CHECKING:
            state = self._cut_off_if_behind(task)
        elif self._subscription is not None and self.state in _MERGING_STATES:
            state = self._subscription.on_task(task, self.state)
            state = self._after_merging(self._subscription, state)
        else:
            state = self._continue_from(task)
        self._enter(Input.TASK, state)

    def on_no_task(self, error: A2AError) -> None:
        """Note that the agent did not return the task.

        Raises:
            A2AError: It will not return it later either.
            ReconnectError: See `on_task`.
        """
        is_merging = self.state in _MERGING_STATES
        if is_merging and self.state is State.CONFIRMING and error.transient:
            state = self._try_again(State.CONFIRMING, error)
        elif self._subscription is not None and is_merging:
            state = self._subscription.on_no_task(error, self.state)
            state = self._after_merging(self._subscription, state)
        elif self.state is State.CHECKING:
            self._silence = self._silence if error.transient else None
            state = State.FOLLOWING
        elif error.transient:
            state = self._try_again(self.state, error)
        elif self._subscribing_is_safe or not _has_no_task(error):
            raise error
        else:
            self._has_store, self._subscribing_is_safe = False, True
            state = self._try_again(State.SUBSCRIBING, error)
        self._enter(Input.NO_TASK, state)

    def check_origin(self, task: Task) -> None:
        """Check that a task is not another message's, which got its id after a restart.

        Raises:
            TaskNotFoundError: It is.
        """
        if self._owner is not None:
            known = self.outbox.whole()
            self._owner.check(task, None if known is None else known.context_id)

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    def _enter(self, happened: Input, state: State) -> None:
        """Enter a state that may follow."""
        if state not in TRANSITIONS[self.state].get(happened, ()):
            text = f"{happened.name} leads from {self.state.name} to {state.name}"
            raise RuntimeError(text)
        self.state, self.action = state, self.wait or state.action

    def _is_final(self, event: Event) -> bool:
        """Return whether no event follows one that was put."""
        state = self.outbox.state
        return isinstance(event, Message) if state is None else state.is_terminal

    def _rests_at(self, status: TaskStatus) -> bool:
        """Return whether the task waits for input, and not for the reply that was just sent."""
        if status.state is not TaskState.INPUT_REQUIRED:
            return False
        if self.is_stale:
            task = self.outbox.whole()
            if self._has_progressed is None or task is None or not self._has_progressed(task):
                return False
            self.close_reply()
        return True

    def _end_with(self, task: Task) -> State:
        """End with a task in a terminal state."""
        self._check_cause()
        self.outbox.replace_by(task)
        return State.DONE

    def _check_cause(self) -> None:
        """Drop the cause of the end if the agent has continued after it."""
        if self.outbox.count > self._counters.cut_at_count:
            self.cause = None

    def _after_merging(self, subscription: Subscription, state: State) -> State:
        """Take over what a subscription decided beside the next state."""
        if subscription.wait is not None:
            self.wait, subscription.wait = subscription.wait, None
        if subscription.is_at_rest and subscription.rest is not None:
            subscription.is_at_rest = False
            self._check_cause()
            self.outbox.put_event(subscription.rest)
        return state

    def _reconnect(self, error: A2AError | None) -> State:
        """Subscribe again after a cut, or do what is possible instead."""
        counters = self._counters
        self.error = error or self.error
        self.cause, counters.cut_at_count = error or self.cause, self.outbox.count
        if isinstance(error, A2AConnectionError) and error.failure == "closed":
            raise error
        if self.outbox.task_id is None:
            if error is None:
                message = "the stream ended before it named its task"
                error = A2AConnectionError(message, failure="truncated")
            elif not isinstance(error, A2AConnectionError | A2ATimeoutError):
                raise error
            self.error = error
            return State.SEARCHING
        if self.outbox.state is TaskState.INPUT_REQUIRED:
            return State.RESTING
        if (subscription := self._subscription) is not None:
            counters.note_subscription_end(subscription, error)
        if counters.eventless >= MAX_EVENTLESS and self.may_repeat:
            return self._poll(error)
        return self._try_again(State.SUBSCRIBING, error)

    def _continue_from(self, task: Task) -> State:
        """Continue from a task, perhaps an older one, that was fetched without a connection."""
        self.outbox.merge_older(task)
        if self.outbox.status is not None and self._rests_at(self.outbox.status):
            return State.DONE
        if self.state is State.RESTING:
            return self._try_again(State.SUBSCRIBING, None)
        if self.state is State.DOUBTED:
            return self._try_again(State.SUBSCRIBING, self._refusal)
        return self._poll()

    def _cut_off_if_behind(self, task: Task) -> State:
        """Cut the first connection off at the second request that shows more than it brought."""
        counters = self._counters
        if self.outbox.lacks(task):
            if counters.behind_at_count == self.outbox.count:
                return self._reconnect(None)
            counters.behind_at_count = self.outbox.count
        return State.FOLLOWING

    def _poll(self, error: A2AError | None = None) -> State:
        self.gap = self.is_polled = True
        self._counters.tries = 0
        self.wait = Wait(attempt=0, at_least=_requested_wait(error), error=error)
        return State.POLLING

    def _try_again(self, state: State, error: A2AError | None) -> State:
        """Try again after a wait; poll after too many reconnects without a new event."""
        counters = self._counters
        counters.note_try(self.outbox.count, error)
        is_exhausted = counters.tries > self._max_reconnects
        reconnects = state is State.SUBSCRIBING
        if not (self._max_reconnects or self.until_deadline):
            task_id = self.outbox.task_id
            what = f"the stream of task {task_id} was cut, and reconnecting is switched off"
            raise self.lost(what)
        if reconnects and (is_exhausted or not self._subscribing_is_safe):
            return self._poll(error)
        if reconnects and self.outbox.status is not None:
            self.gap = self._is_cut = True
        self.wait = Wait(
            attempt=counters.tries, at_least=_requested_wait(error), error=counters.failure
        )
        return state


_MERGING_STATES = frozenset(
    {State.CATCHING_UP, State.COMPARING, State.RECHECKING, State.CONFIRMING}
)
"""States in which the task is fetched beside a connection that was subscribed with."""


def _has_no_task(error: A2AError) -> bool:
    """Return whether an error of GetTask says that the agent has no such task."""
    return isinstance(error, TaskNotFoundError) or is_unknown_operation(error)


def _requested_wait(error: A2AError | None) -> float:
    """Return the seconds that an agent asked to wait."""
    return 0.0 if error is None else error.retry_after or 0.0
