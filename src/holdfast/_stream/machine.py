"""A stream that survives its connections: what to do next.

`StreamMachine` learns what happens (`on_event`, `on_cut` and so on), and says what to do
(`StreamMachine.action`); it does nothing itself. What the caller gets goes into
`StreamMachine.outbox`, each event once, whatever the connections did. The states, and which of
them may follow which, are in `holdfast._stream.states`.

Rules (A2A 3.1.2, 3.1.6, 7):
- A stream ends when its first event is a `Message`, at a terminal state, or when its connection
  ends in good order after INPUT_REQUIRED. Every other end of a connection is a cut.
- INPUT_REQUIRED as it was before the reply that the stream answers is no end
  (`holdfast._stream.replies`).
- After a cut the task is subscribed to again.
- A task that is over, or that the agent no longer has subscriptions for, is asked for. So it is
  where the agent itself fails to give the first one: some do that where there is no such task.
- Comments prove that a connection is alive, and not that it brings what happens: without an event
  the task is asked for, ever less often, down to once in five minutes. A connection that has
  brought nothing between two of these looks, of which the first had more, is cut off.
- Where subscriptions lead to nothing, the task is asked for again and again. So it is where a
  subscription does not leave the task as it is: its text weighs more than to have it at once. But
  an agent that keeps no task has none that could come to harm.
- Each reconnect that brings nothing new counts; what is new sets the count to zero.
- An agent that restarts may give the task's id to another message's task. Where that is certain
  (`holdfast._policy.origin`), the agent no longer has the task.

What a connection brings that was subscribed with may have been delivered already, and where in the
text of the task its chunks belong is not known (`holdfast._stream.overlap`). So the task is asked
for, to learn what was missed and what is new:
- A store may be behind its stream, by any time. What the connection brings and the task does not
  show yet is waited for; the task is asked for again, at first soon and then at most as often as a
  task that is polled.
- What came before the connection may reach the store long after it. So the task is asked for again
  while the connection is silent, each time after twice as long; what was the same before says
  nothing new.
- That a task came to rest is believed when the task says so. If it does not in half a minute, the
  answer may lack what was missed: a task that completed is none then. One that failed, or waits
  for input and holds all that was brought, is taken for what it is.
- An agent that says that it has no task to give has no store: then the connection is believed. Any
  other failure to get it says nothing, and it is asked for again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._policy.attempts import more_informative
from holdfast._stream.outbox import EventOutbox
from holdfast._stream.overlap import OverlapResolver
from holdfast._stream.states import TRANSITIONS, Action, Input, State, Wait
from holdfast._stream.status_order import is_as_far, is_newer
from holdfast._stream.task_locations import is_own_word
from holdfast._wire.status import is_unknown_operation
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2ATimeoutError,
    AuthenticationError,
    Facts,
    PermissionDeniedError,
    ReconnectError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from holdfast.types import (
    Event,
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._policy.origin import Origin
    from holdfast._stream.replies import PendingReply
    from holdfast._wire.limits import Limits

__all__ = ["StreamMachine"]

_SILENCE_S = 30.0
"""Seconds without an event after which the task is asked for; twice as many each time."""

_STALE_SILENCE_S = 2.0
"""The same of a task that still waits for what it was given, and of one subscribed to anew."""

_CHANGED_SILENCE_S = 1.0
"""The same of a task that is known to change."""

_LONGEST_SILENCE_S = 300.0
"""The most of these seconds."""

_MAX_FRUITLESS = 2
"""Connections in a row that end without an event beside the task, until the task is polled.

An agent may answer each subscription with the task as it is, and end it: to poll costs it less.
"""

_CONFIRM_DELAYS_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds, at least, between looks at a task that is not at rest where its connection says so."""

_FIRST_COMPARE_S, _COMPARE_S, _LATEST_COMPARE_S = 0.25, 2.0, 30.0
"""Seconds from one look at a task that lacks what its connection brought to the next. They double,
up to the second number while looks bring something, else up to the third."""

_NO_STORE = (
    TaskNotFoundError,
    UnsupportedOperationError,
    AuthenticationError,
    PermissionDeniedError,
)


class _Subscription(msgspec.Struct):
    """What is known of a connection that the task was subscribed to with.

    Attributes:
        snapshot: The task that it began with; None for none.
        ahead: The last other event that it brought before the task was asked for.
        overlap: Which of its events are new; None until the task was asked for.
        seen: The task, as it was asked for last.
        has_store: Whether the agent has a task to give; None until it gave or refused one.
        rest: The status that it says the task came to rest with, to be delivered after all that
            came before.
        confirmations: Looks at a task that is not at rest where the connection says so.
        silence: Seconds without an event after which the task is asked for; None for never.
        compare_after: Seconds from one look at a task that lacks what it brought to the next.
        has_compared: Whether it was asked for so.
        has_news: Whether it brought something after the last look that found anything.
    """

    snapshot: Task | None = None
    ahead: Event | None = None
    overlap: OverlapResolver | None = None
    seen: Task | None = None
    has_store: bool | None = None
    rest: TaskStatusUpdateEvent | None = None
    confirmations: int = 0
    silence: float | None = _STALE_SILENCE_S
    compare_after: float = _FIRST_COMPARE_S
    has_compared: bool = False
    has_news: bool = False


class StreamMachine:
    """The life of one stream over any number of connections.

    It begins with a connection that is open, or where the task is known by subscribing to it; or
    by polling, after `on_no_streams`.

    Args:
        limits: How large the task may become.
        max_reconnects: Reconnects without anything new until it fails.
        until_deadline: Whether it continues in spite of that: for waits that have a deadline.
        task_id: The task, where it is known from the beginning.
        task: The same, as the caller has it already; it is subscribed to first.
        known: A task that the caller has, and that the first event may be of.
        reply: The reply to an interrupted task that the stream answers; None for none.
        resubscribes: Whether a task that was cut off may be subscribed to.
        has_progressed: Says of the known task, whose status is the same, whether the agent has
            done something about what it was given.
        origin: The message that the task answers; None where that is not known.

    Attributes:
        state: Where it stands.
        wait: What to wait for before the action of the state; None for nothing.
        action: What to do next: the wait or, without one, the action of the state.
        may_repeat: Whether the connection may bring what the caller has, or is one of a task that
            was subscribed to.
        outbox: What the caller gets.
        reconnects: How often the task was subscribed to again after a cut.
        is_polled: Whether the task is polled, or was at the end, in place of a subscription.
        gap: Whether status messages may be missing: those between a cut and a reconnect, which
            no agent keeps for certain.
        error: What a connection broke with last; None if none broke, or they merely ended.
        cause: At the end, what a connection broke with, unless the agent continued after that: why
            a task is over that does not say so itself.
        reply: The reply to an interrupted task that the stream answers; None for none.
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
        resubscribes: bool = True,
        has_progressed: Callable[[Task], bool] | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.outbox = EventOutbox(limits, task_id=task_id, task=task, known=known)
        self.state = State.FOLLOWING if self.outbox.task_id is None else State.RECONNECTING
        self.wait: Wait | None = None
        self.action: Action | Wait = self.state.action
        self.may_repeat = False
        self.reply = reply
        self.reconnects = 0
        self.is_polled = False
        self.gap = False
        self.error: A2AError | None = None
        self.cause: A2AError | None = None
        self._caused_at = 0  # events in the outbox
        self._has_progressed = has_progressed
        self._origin = origin
        self._max_reconnects = max_reconnects
        self._until_deadline = until_deadline
        self._resubscribes = resubscribes
        self._is_kept = True  # the task, by its agent, unless it has said otherwise
        self._tries = 0  # reconnects, and looks, without anything new
        self._failure: A2AError | None = None  # what failed last of those tries
        self._counted = 0  # events in the outbox when the last of them was counted
        self._fruitless = 0  # subscriptions in a row that ended without an event
        self._silence: float | None = _STALE_SILENCE_S  # of the first connection
        self._is_changing = False
        self._refusal: A2AError | None = None  # of a subscription, before the task was asked for
        self._behind: int | None = None  # events in the outbox when the task had more than them
        self._is_cut = False  # and not yet subscribed to again
        self._subscription: _Subscription | None = None  # None for the first connection

    @property
    def is_stale(self) -> bool:
        """Whether the task, as last seen, still waits for what it was just given."""
        status = self.outbox.status
        return self.reply is not None and status is not None and self.reply.is_stale(status)

    @property
    def silence(self) -> float | None:
        """Seconds without an event after which to call `on_silence`; None for never."""
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
        """Seconds from the last look at the task to when to call `on_silence`, whatever comes."""
        return None if self.silence is None else self._compare_due()

    def expects(self, happened: Input) -> bool:
        """Whether something may happen where the stream stands."""
        return happened in TRANSITIONS[self.state]

    # ── Connections ──────────────────────────────────────────────────────────────────────────

    def accept(self, event: Event) -> Event | None:
        """Takes an event of the connection, and gives the next one for the caller.

        It is `on_event`, and then `EventOutbox.take`, but for a chunk of the first connection,
        which is what most events are, without a queue.

        Raises:
            TaskNotFoundError: See `on_event`.
            A2AError: See `EventOutbox.take`.
        """
        if self.state is State.FOLLOWING and isinstance(event, TaskArtifactUpdateEvent):
            return self.outbox.pass_chunk(event)
        self.on_event(event)
        return self.outbox.take()

    def on_event(self, event: Event) -> None:
        """The connection brought an event.

        Raises:
            TaskNotFoundError: It was subscribed to, and shows that the task is another message's.
        """
        subscription = self._subscription
        if subscription is not None and isinstance(event, Task):
            self.check_origin(event)
        if self.reply is not None:
            self.reply.saw(event)
        if subscription is None:
            self.outbox.put_event(event)
            self.wait = None
            state = State.DONE if self._is_final(event) else State.FOLLOWING
        elif isinstance(event, Task) and event.state.is_terminal:
            state = self._believe(event)
        elif subscription.overlap is None:
            state = State.CATCHING_UP
            if isinstance(event, Task):
                subscription.snapshot = event
            else:
                subscription.ahead = event
        elif isinstance(event, Task):
            self._adopt(event, subscription.overlap)
            state = State.MERGING
        else:
            self._fruitless = 0
            state = self._merge(event, subscription, subscription.overlap)
        self._enter(Input.EVENT, state)

    def on_silence(self) -> None:
        """The connection has brought nothing for `silence`, or a look at the task is due."""
        subscription, state = self._subscription, self.state
        if subscription is None:
            if (silence := self.silence) is not None:
                self._silence = min(2 * silence, _LONGEST_SILENCE_S)
                state = State.CHECKING
        elif subscription.overlap is None:
            state = State.CATCHING_UP
        elif self._compare_due() is not None:
            state = State.COMPARING
        else:
            if subscription.silence is not None:
                subscription.silence = min(2 * subscription.silence, _LONGEST_SILENCE_S)
            state = State.RECHECKING
        self._enter(Input.SILENCE, state)

    def expect_change(self) -> None:
        """Has the task asked for soon: something else says that it changes."""
        self._is_changing, self._silence = True, self._silence and _CHANGED_SILENCE_S
        subscription = self._subscription
        if subscription is not None and subscription.silence is not None:
            subscription.silence = min(subscription.silence, _CHANGED_SILENCE_S)

    def on_end(self) -> None:
        """The connection ended in good order."""
        if self.outbox.state is not TaskState.INPUT_REQUIRED:
            state = self._reconnect(None)
        elif self.may_repeat or (self.is_stale and (self._max_reconnects or self._until_deadline)):
            state = State.RESTING
        else:
            state = State.DONE
        self._enter(Input.END, state)

    def on_cut(self, error: A2AError | None) -> None:
        """The connection broke, for a reason or for none.

        Raises:
            A2AError: Nothing can be done about it: the client was closed, or no task is known and
                the agent has answered with an error.
        """
        self._enter(Input.CUT, self._reconnect(error))

    def on_subscribed(self, *, resubscribes: bool = True) -> None:
        """The task was subscribed to.

        Args:
            resubscribes: Whether the task may be subscribed to once more when it is cut.
        """
        self._resubscribes = resubscribes or not self._is_kept
        self.reconnects += self._is_cut
        self._is_cut = self.is_polled = False
        self._subscription, self.may_repeat = _Subscription(), True
        self._enter(Input.SUBSCRIBED, State.JOINED)

    def on_refused(self, error: A2AError) -> None:
        """The task could not be subscribed to.

        Raises:
            A2AError: It will not be possible either.
        """
        if isinstance(error, UnsupportedOperationError | TaskNotFoundError):
            state = State.REFUSED
        elif is_unknown_operation(error):
            state = self._poll(error)
        elif isinstance(error, A2ATimeoutError) and error.phase == "idle":
            state = State.RESTING  # it began without the task, which may have no more to say
        elif error.transient and is_own_word(error) and not self._tries:
            self._refusal = error
            state = State.DOUBTED  # which may be its way to say that there is no such task
        elif error.transient:
            state = self._try_again(State.RECONNECTING, error)
        else:
            raise error
        self._enter(Input.REFUSED, state)

    def on_found(self, task: Task) -> None:
        """The task was found that the message made, and that no event of a connection named."""
        if self.reply is not None:
            self.reply.saw(task)
        self.outbox.put_event(task)
        # What was lost was the connection; the agent continues with the task.
        state = State.DONE if self._is_final(task) else self._reconnect(None)
        self._enter(Input.FOUND, state)

    # ── The task ─────────────────────────────────────────────────────────────────────────────

    def on_no_streams(self) -> None:
        """There are no connections: a task that does not rest is asked for again and again."""
        if self.outbox.status is not None and self._rests_at(self.outbox.status):
            state = State.DONE
        else:
            state = State.DONE if self.state is State.DONE else self._poll()
        self._enter(Input.NO_STREAMS, state)

    def on_waited(self) -> None:
        """The wait is over."""
        self.wait = None
        self._enter(Input.WAITED, self.state)

    def on_expired(self) -> None:
        """The agent had enough time to answer a reply: what its task waits for is its answer."""
        if self.reply is not None:
            self.reply.is_over = True
        is_reading = self.action is Action.READ
        self._enter(Input.EXPIRED, State.DONE if is_reading else self.state)

    def on_task(self, task: Task) -> None:
        """The agent's task, as it was asked for.

        Raises:
            TaskNotFoundError: It is another message's.
            ReconnectError: It is not over, long after the connection said that it completed; or
                it says nothing new for too long.
        """
        self.check_origin(task)
        if self.reply is not None:
            self.reply.saw(task)
        if task.state.is_terminal:
            self.gap = self.gap or self.state is State.CHECKING
            state = self._believe(task)
        elif self.state is State.CHECKING:
            state = self._check(task)
        elif (subscription := self._merging) is not None:
            state = self._merge_task(task, subscription)
        else:
            state = self._continue_from(task)
        self._enter(Input.TASK, state)

    def on_no_task(self, error: A2AError) -> None:
        """The agent did not give the task.

        Raises:
            A2AError: It will not give it either.
            ReconnectError: See `on_task`.
        """
        if (subscription := self._merging) is not None:
            state = self._merge_without_task(error, subscription)
        elif self.state is State.CHECKING:
            self._silence = self._silence if error.transient else None
            state = State.FOLLOWING
        elif error.transient:
            state = self._try_again(self.state, error)
        elif self._resubscribes or not _is_not_kept(error):
            raise error
        else:
            self._is_kept, self._resubscribes = False, True
            state = self._try_again(State.RECONNECTING, error)
        self._enter(Input.NO_TASK, state)

    def check_origin(self, task: Task) -> None:
        """Check that a task that was given for the id is not another message's.

        Raises:
            TaskNotFoundError: It is.
        """
        if self._origin is not None:
            seen = self.outbox.whole()
            self._origin.check(task, None if seen is None else seen.context_id)

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    def _enter(self, happened: Input, state: State) -> None:
        """Enters a state that may follow."""
        if state not in TRANSITIONS[self.state].get(happened, ()):
            text = f"{happened.name} leads from {self.state.name} to {state.name}"
            raise RuntimeError(text)
        self.state, self.action = state, self.wait or state.action

    def _is_final(self, event: Event) -> bool:
        """Whether nothing comes after an event."""
        state = self.outbox.state
        return isinstance(event, Message) if state is None else state.is_terminal

    def _rests_at(self, status: TaskStatus) -> bool:
        """Whether the task waits for input, and for other than what it was just given."""
        if status.state is not TaskState.INPUT_REQUIRED:
            return False
        if self.is_stale and self.reply is not None:
            task = self.outbox.whole()
            if self._has_progressed is None or task is None or not self._has_progressed(task):
                return False
            self.reply.is_over = True
        return True

    def _believe(self, task: Task) -> State:
        """Ends with a task that is over."""
        self._check_cause()
        self.outbox.replace_by(task)
        return State.DONE

    def _check_cause(self) -> None:
        """Blames the end on nothing that the agent has continued after."""
        if self.outbox.count > self._caused_at:
            self.cause = None

    def _reconnect(self, error: A2AError | None) -> State:
        """Reconnects after a cut, or does what can be done instead."""
        self.error = error or self.error
        self.cause, self._caused_at = error or self.cause, self.outbox.count
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
        if not isinstance(error, A2ATimeoutError):  # which is silent, and works
            self._fruitless += 1
        if self._fruitless > _MAX_FRUITLESS and self.may_repeat:
            return self._poll(error)
        return self._try_again(State.RECONNECTING, error)

    def _continue_from(self, task: Task) -> State:
        """What follows a task that was asked for without a connection; it may be an older one."""
        self.outbox.merge_older(task)
        if self.outbox.status is not None and self._rests_at(self.outbox.status):
            return State.DONE
        if self.state is State.RESTING:
            return self._try_again(State.RECONNECTING, None)
        if self.state is State.DOUBTED:
            return self._try_again(State.RECONNECTING, self._refusal)
        return self._poll()

    def _check(self, task: Task) -> State:
        """Cuts a connection off that has had time to bring what the task shows, and has not."""
        if self.outbox.lacks(task):
            if self._behind == self.outbox.count:
                return self._reconnect(None)
            self._behind = self.outbox.count
        return State.FOLLOWING

    def _poll(self, error: A2AError | None = None) -> State:
        self.gap = self.is_polled = True
        self._tries = 0
        self.wait = Wait(attempt=0, at_least=_requested_wait(error), error=error)
        return State.POLLING

    def _try_again(self, state: State, error: A2AError | None) -> State:
        """Tries again after a wait, unless that brought nothing new too often."""
        if self._counted < self.outbox.count:
            self._tries, self._failure = 0, None
        self._failure = None if error is None else more_informative(error, self._failure)
        self._tries, self._counted = self._tries + 1, self.outbox.count
        is_exhausted = self._tries > self._max_reconnects
        reconnects = state is State.RECONNECTING
        is_final = not (reconnects and self._max_reconnects)
        if is_exhausted and is_final and not self._until_deadline:
            raise self._exhausted(self._failure) from self._failure
        if reconnects and (is_exhausted or not self._resubscribes):
            return self._poll(error)
        if reconnects and self.outbox.status is not None:
            self.gap = self._is_cut = True
        self.wait = Wait(attempt=self._tries, at_least=_requested_wait(error), error=self._failure)
        return state

    def _exhausted(self, error: A2AError | None) -> ReconnectError:
        name = f"task {self.outbox.task_id}"
        match self._max_reconnects:
            case 0:
                what = f"the stream of {name} was cut, and reconnecting is switched off"
            case 1:
                what = f"one attempt to resume the stream of {name} brought nothing new"
            case tries:
                what = f"{tries} attempts to resume the stream of {name} brought nothing new"
        failure = "" if error is None else f"; what failed last: {error.message}"
        facts = Facts() if error is None else error.facts()
        return ReconnectError(f"{what}{failure}", task=self.outbox.whole(), **facts)

    # ── Within: a connection that the task was subscribed to with ────────────────────────────

    @property
    def _merging(self) -> _Subscription | None:
        """The connection that asks for the task; None where it is asked for without one."""
        return self._subscription if self.state in _MERGING_STATES else None

    def _compare_due(self) -> float | None:
        """Seconds from one look at a task that lacks what the connection brought to the next."""
        subscription = self._subscription
        if subscription is None or subscription.overlap is None:
            return None
        if subscription.has_store is False:
            return None
        is_behind = subscription.has_news and subscription.overlap.is_behind
        is_due = subscription.has_store is None or is_behind
        return subscription.compare_after if is_due else None

    def _merge_task(self, task: Task, subscription: _Subscription) -> State:
        """What follows a task that was asked for beside a connection."""
        seen, subscription.seen, subscription.has_store = subscription.seen, task, True
        overlap = subscription.overlap
        if overlap is None:
            return self._catch_up(task, subscription)
        if self.state is State.CONFIRMING and subscription.rest is not None:
            return self._confirm(task, subscription.rest, subscription, overlap)
        before = self.outbox.count
        # The same task once more may be older than the connection.
        if self.state is State.COMPARING or task != seen:
            self._adopt(task, overlap)
        if self.state is State.COMPARING:
            self._compare_later(subscription, has_news=self.outbox.count > before)
        return State.MERGING

    def _merge_without_task(self, error: A2AError, subscription: _Subscription) -> State:
        overlap = subscription.overlap
        if not error.transient and (isinstance(error, _NO_STORE) or is_unknown_operation(error)):
            return self._merge_without_store(subscription)
        if overlap is None:
            base = subscription.snapshot if self.outbox.status is None else None
            return self._catch_up(base, subscription)
        if self.state is not State.CONFIRMING:
            self._compare_later(subscription, has_news=False)
            return State.MERGING
        if error.transient:
            return self._try_again(State.CONFIRMING, error)
        return self._doubt(subscription, overlap)

    def _catch_up(self, base: Task | None, subscription: _Subscription) -> State:
        """Lays what the connection brings over the task."""
        if base is not None:
            self.outbox.merge_older(base)
        overlap = subscription.overlap = OverlapResolver(self.outbox)
        if subscription.has_store is False:
            overlap.drop_store()
        ahead, subscription.ahead = subscription.ahead, None
        return State.MERGING if ahead is None else self._merge(ahead, subscription, overlap)

    def _merge(self, event: Event, subscription: _Subscription, overlap: OverlapResolver) -> State:
        """Puts what is new of an event, as far as that is known."""
        is_rest = isinstance(event, TaskStatusUpdateEvent) and event.status.state.is_terminal
        for new in (event,) if is_rest else overlap.filter(event):
            if isinstance(new, TaskStatusUpdateEvent) and new.status.state.is_settled:
                # What came before it may be missing.
                subscription.rest, subscription.confirmations = new, 0
                return State.CONFIRMING
            self.outbox.put_event(new)
        subscription.has_news = True
        has_store = subscription.has_store is not False
        if subscription.has_compared or not (has_store and overlap.is_behind):
            return State.MERGING
        subscription.has_compared = True
        return State.COMPARING

    def _adopt(self, task: Task, overlap: OverlapResolver) -> None:
        """Puts what is new of the task, but for what the connection itself brings.

        Of one that waits for input all is put: it may be the last that the caller reads.
        """
        waits = task.state is TaskState.INPUT_REQUIRED
        self.outbox.merge_older(task, except_for=frozenset() if waits else overlap.followed)
        overlap.merged(task, is_ahead=waits)

    def _compare_later(self, subscription: _Subscription, *, has_news: bool) -> None:
        """Asks again later, where the store lags and where it would be asked too often."""
        longest = _COMPARE_S if has_news else _LATEST_COMPARE_S
        subscription.compare_after = min(2 * subscription.compare_after, longest)
        subscription.has_news = subscription.has_news and not has_news

    def _merge_without_store(self, subscription: _Subscription) -> State:
        """Takes what the connection brings for what follows: nothing else tells better."""
        subscription.has_store, subscription.silence = False, None
        overlap = subscription.overlap
        self.outbox.texts.forget()
        if overlap is None:
            # Its snapshot is the task as it stands (A2A 3.1.6).
            snapshot, status = subscription.snapshot, self.outbox.status
            if snapshot is not None and (
                status is None or is_newer(snapshot.status, status) is not False
            ):
                self.outbox.replace_by(snapshot)
            return self._catch_up(None, subscription)
        self._put(overlap.drop_store())
        if self.state is not State.CONFIRMING:
            return State.MERGING
        self._put(overlap.finish())
        return self._rest(subscription)

    def _confirm(
        self,
        task: Task,
        rest: TaskStatusUpdateEvent,
        subscription: _Subscription,
        overlap: OverlapResolver,
    ) -> State:
        """Believes a task that is as far as its stream said, and all of it if it is no further."""
        if not is_as_far(task.status, rest.status):
            self._adopt(task, overlap)
            return self._doubt(subscription, overlap)
        if task.status == rest.status and (task.status.timestamp or task.status.message):
            self.outbox.replace_by(task)
        else:
            self.outbox.merge_older(task)
        overlap.merged(task, is_ahead=True)
        return State.MERGING

    def _doubt(self, subscription: _Subscription, overlap: OverlapResolver) -> State:
        """The connection says that the task is at rest, and the agent's task does not."""
        if subscription.confirmations < len(_CONFIRM_DELAYS_S):
            delay = _CONFIRM_DELAYS_S[subscription.confirmations]
            subscription.confirmations += 1
            self.wait = Wait(attempt=subscription.confirmations, at_least=delay)
            return State.CONFIRMING
        rest = subscription.rest
        state = TaskState.UNSPECIFIED if rest is None else rest.status.state
        if state is TaskState.COMPLETED or (not state.is_terminal and overlap.is_behind):
            waited = sum(_CONFIRM_DELAYS_S)
            what = f"the stream of task {self.outbox.task_id} ended with {state.name} after a cut,"
            what += f" but GetTask does not show it {waited:g} s later: text may be missing"
            raise ReconnectError(what, task=self.outbox.whole(), executed=True)
        return self._rest(subscription)

    def _rest(self, subscription: _Subscription) -> State:
        """Believes the connection that the task is at rest."""
        rest = subscription.rest
        if rest is None:
            return State.MERGING
        self._check_cause()
        self.outbox.put_event(rest)
        return State.DONE if rest.status.state.is_terminal else State.MERGING

    def _put(self, events: list[Event]) -> None:
        for event in events:
            self.outbox.put_event(event)


_MERGING_STATES = frozenset(
    {State.CATCHING_UP, State.COMPARING, State.RECHECKING, State.CONFIRMING}
)
"""States in which a task is asked for that a connection was subscribed to with."""


def _is_not_kept(error: A2AError) -> bool:
    """Whether an agent that was asked for a task has it not to give, now or ever."""
    return isinstance(error, TaskNotFoundError) or is_unknown_operation(error)


def _requested_wait(error: A2AError | None) -> float:
    """Seconds that an agent asked to wait."""
    return 0.0 if error is None else error.retry_after or 0.0
