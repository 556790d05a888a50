"""A stream that survives its connections: what to do next.

`Resume` is told what happened, and says what to do (`Resume.step`); it does nothing itself. What
the caller is to be told goes into `Resume.told`, each event once, whatever the connections did.

Rules (A2A 3.1.2, 3.1.6, 7):
- A stream ends when its first event is a `Message`, at a terminal state, or when its connection
  ends in good order after INPUT_REQUIRED. Every other end of a connection is a cut.
- INPUT_REQUIRED as it was before the reply that the stream answers is no end
  (`holdfast._stream.replies`).
- After a cut the task is subscribed to again. What the new connection brings may have been told
  already, and the task is asked for (`holdfast._stream.subscription_merge`).
- A task that is over, or that the agent no longer has subscriptions for, is asked for. So it is
  where the agent itself fails to give one: some do that where there is no such task.
- Comments prove that a connection is alive, and not that it tells what happens: without an event
  the task is asked for, ever less often, down to once in five minutes. A connection that has told
  nothing between two of these looks, of which the first had more to tell, is cut off.
- Where subscriptions lead to nothing, the task is asked for again and again. So it is where a
  subscription does not leave the task as it is: its text weighs more than to have it at once. But
  an agent that keeps no task has none that could come to harm.
- Each reconnect that brings nothing new counts; what is new sets the count to zero.
- An agent that restarts may give the task's id to another message's task. Where that is certain
  (`holdfast._policy.origin`), the agent no longer has the task.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from holdfast._policy.attempts import more_informative
from holdfast._stream.outbox import EventOutbox
from holdfast._stream.steps import Step, Wait
from holdfast._stream.subscription_merge import Subscription
from holdfast._stream.task_locations import is_own_word
from holdfast._wire.status import is_unknown_operation
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2ATimeoutError,
    Facts,
    ReconnectError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from holdfast.types import Message, Task, TaskArtifactUpdateEvent, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._policy.origin import Origin
    from holdfast._stream.replies import PendingReply
    from holdfast._wire.limits import Limits
    from holdfast.types import Event, TaskStatus

__all__ = ["Resume", "Step", "Wait"]


class _Why(Enum):
    """Why the task is asked for."""

    CONNECTION = auto()  # the connection that was subscribed with has to know
    REFUSED = auto()  # it cannot be subscribed to
    SILENT = auto()  # the first connection says nothing, and may be behind the task
    DOUBTED = auto()  # the agent has failed to give a subscription, and says nothing of the task
    RESTING = auto()  # the connection ended, or said nothing, as if the task waited for input
    POLLING = auto()


_SILENCE = 30.0
"""Seconds without an event after which the task is asked for; twice as many each time."""

_STALE_SILENCE = 2.0
"""The same of a task that still waits for what it was given."""

_HURRIED_SILENCE = 1.0
"""The same of a task that is known to change."""

_LONGEST_SILENCE = 300.0
"""The most of these seconds."""

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
        reply: The reply to an interrupted task that the stream answers; None for none.
        resubscribes: Whether a task that was cut off may be subscribed to.
        has_gone_on: Says of the known task, whose status is the same, whether the agent has done
            something about what it was given.
        origin: The message that the task answers; None where that is not known.

    Attributes:
        step: What to do next.
        told: What the caller is told.
        reconnects: How often the task was subscribed to again after a cut.
        gap: Whether status messages may be missing: those between a cut and a reconnect, which
            no agent keeps for certain.
        error: What a connection broke with last; None if none broke, or they merely ended.
        cause: At the end, what a connection broke with, unless the agent went on after that: why
            a task is over that does not say so itself.
        reply: The reply to an interrupted task that the stream answers; None for none.
        may_repeat: Whether the connection may tell what was told before. If not, its chunks can go
            to the caller at once: `EventOutbox.pass_on` does for them what `received` and
            `EventOutbox.take` do.
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
        reply: PendingReply | None = None,
        resubscribes: bool = True,
        has_gone_on: Callable[[Task], bool] | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.told = EventOutbox(limits, task_id=task_id, task=task, known=known)
        self.reply = reply
        self._has_gone_on = has_gone_on
        self._origin = origin
        self.step: Step | Wait = Step.READ if self.told.task_id is None else Step.SUBSCRIBE
        self.reconnects = 0
        self.gap = False
        self.error: A2AError | None = None
        self.cause: A2AError | None = None
        self._caused_at = 0  # events told
        self._max_reconnects = max_reconnects
        self._patient = patient
        self._resubscribes = resubscribes
        self._is_kept = True  # as far as anybody knows
        self._fruitless = 0
        self._failure: A2AError | None = None  # what failed last of those tries
        self._counted = 0  # events told when the last reconnect was counted
        self._in_vain = 0
        self._why = _Why.POLLING
        self._silence: float | None = _STALE_SILENCE
        self._is_hurried = False
        self._refusal: A2AError | None = None  # of a subscription, before the task was asked for
        self._behind: int | None = None  # events told when the task had more to tell than them
        self._is_cut = False  # and not yet subscribed to again
        self.may_repeat = False
        self._subscription: Subscription | None = None  # which the connection came about with

    # ── What happened: connections ───────────────────────────────────────────────────────────

    def subscribed(self, *, resubscribes: bool = True) -> None:
        """A connection is there that the task was subscribed to with.

        Args:
            resubscribes: Whether the task may be subscribed to once more when it is cut.
        """
        self._resubscribes = resubscribes or not self._is_kept
        self.reconnects += self._is_cut
        self._is_cut = False
        self.may_repeat = True
        self._subscription = Subscription(self.told)
        self.step = Step.READ

    def received(self, event: Event) -> None:
        """The connection brought an event.

        Raises:
            TaskNotFoundError: It was subscribed to, and shows that the task is another message's.
        """
        if self._subscription is not None and isinstance(event, Task):
            self.check_origin(event)
        if self.reply is not None:
            self.reply.saw(event)
        subscription = self._subscription
        if subscription is None:
            if self.step is Step.LOOK:
                self.step = Step.READ  # it was silent, and is no more
            self.told.put(event)
            self._check_end(event)
        elif isinstance(event, Task) and event.state.is_terminal:
            self._believe(event)
        else:
            if subscription.is_followed and not isinstance(event, Task):
                self._in_vain = 0
            self._go_on(subscription.received(event), subscription)

    def accept(self, event: Event) -> Event | None:
        """Takes an event of the connection, and gives the next one for the caller.

        It is `received`, and then `EventOutbox.take`. For a chunk of a connection that brings
        nothing twice, which is what most events are, it is the same without a queue.

        Raises:
            TaskNotFoundError: See `received`.
            A2AError: See `EventOutbox.take`.
        """
        is_plain = self._subscription is None and self.step is Step.READ
        if is_plain and isinstance(event, TaskArtifactUpdateEvent):
            return self.told.pass_on(event)
        self.received(event)
        return self.told.take()

    @property
    def patience(self) -> float | None:
        """Seconds without an event after which to say `quiet`; None for any number."""
        subscription, state = self._subscription, self.told.state
        if state is None or (state.is_settled and not self.is_stale):
            return None
        if subscription is not None:
            return subscription.patience
        if self._silence is None or self.is_stale or self._is_hurried:
            return self._silence
        return max(self._silence, _SILENCE)

    @property
    def look_after(self) -> float | None:
        """Seconds from the last look to when to say `quiet`, whatever comes; None for never."""
        subscription = self._subscription
        return None if subscription is None or self.patience is None else subscription.look_after

    def quiet(self) -> None:
        """The connection has brought nothing for as long as patience lasts, or a look is due."""
        if self._subscription is not None:
            self._go_on(self._subscription.quiet(), self._subscription)
        elif (patience := self.patience) is not None:
            self._silence = min(2 * patience, _LONGEST_SILENCE)
            self._look(_Why.SILENT)

    def hurry(self) -> None:
        """Has the task asked for soon: something else says that it changes."""
        self._is_hurried, self._silence = True, self._silence and _HURRIED_SILENCE
        if self._subscription is not None:
            self._subscription.hurry(_HURRIED_SILENCE)

    def ended(self) -> None:
        """The connection came to its end in good order."""
        if self.told.state is not TaskState.INPUT_REQUIRED:
            self.cut(None)
        elif self.may_repeat or (self.is_stale and (self._max_reconnects or self._patient)):
            self._look(_Why.RESTING)
        else:
            self.step = Step.DONE

    def cut(self, error: A2AError | None) -> None:
        """The connection broke, for a reason or for none.

        Raises:
            A2AError: Nothing can be done about it: the client was closed, or no task is known and
                the agent has answered with an error.
        """
        self.error = error or self.error
        self.cause, self._caused_at = error or self.cause, self.told.count
        if isinstance(error, A2AConnectionError) and error.failure == "closed":
            raise error
        if self.told.task_id is None:
            if error is None:
                message = "the stream ended before it named its task"
                error = A2AConnectionError(message, failure="truncated")
            elif not isinstance(error, A2AConnectionError | A2ATimeoutError):
                raise error
            self.error, self.step = error, Step.SEARCH
            return
        if self.told.state is TaskState.INPUT_REQUIRED:
            self._look(_Why.RESTING)
            return
        if not isinstance(error, A2ATimeoutError):  # which is quiet, and works
            self._in_vain += 1
        if self._in_vain > _IN_VAIN and self.may_repeat:
            self._poll(error)
            return
        self._again(Step.SUBSCRIBE, error)

    def made(self, task: Task) -> None:
        """The task was found that the message made, and that no event of the connection named."""
        self.told.put(task)
        self._check_end(task)
        if self.step is not Step.DONE:
            self.cut(None)  # what was lost was the connection; the task goes on

    def refused(self, error: A2AError) -> None:
        """The task could not be subscribed to.

        Raises:
            A2AError: It will not be possible either.
        """
        if isinstance(error, UnsupportedOperationError | TaskNotFoundError):
            self._look(_Why.REFUSED)
        elif is_unknown_operation(error):
            self._poll(error)
        elif isinstance(error, A2ATimeoutError) and error.phase == "idle":
            self._look(_Why.RESTING)  # it began without the task, which may have no more to tell
        elif error.transient and is_own_word(error) and not self._fruitless:
            self._refusal = error
            self._look(_Why.DOUBTED)  # which may be its way to say that there is no such task
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
        if isinstance(self.step, Wait):
            self.step = self.step.then

    @property
    def is_stale(self) -> bool:
        """Whether the task, as last seen, still waits for what it was just given."""
        status = self.told.status
        return self.reply is not None and status is not None and self.reply.is_stale(status)

    def waited_enough(self) -> None:
        """The agent had all the time to go on: what its task waits for is what it says."""
        if self.reply is not None:
            self.reply.is_over = True
        if self.step is Step.READ:
            self.step = Step.DONE

    def found(self, task: Task) -> None:
        """The agent's task, as it was asked for.

        Raises:
            TaskNotFoundError: It is another message's.
        """
        self.check_origin(task)
        if self.reply is not None:
            self.reply.saw(task)
        if task.state.is_terminal:
            self.gap = self.gap or self._why is _Why.SILENT
            self._believe(task)
            return
        subscription = self._subscription
        if self._why is _Why.CONNECTION and subscription is not None:
            self._go_on(subscription.found(task), subscription)
            return
        if self._why is _Why.SILENT:
            self._compare_with(task)
            return
        self.told.adopt(task)  # which may be older
        if self.told.status is not None and self._rests_at(self.told.status):
            self.step = Step.DONE
        elif self._why is _Why.RESTING:
            self._again(Step.SUBSCRIBE, None)
        elif self._why is _Why.DOUBTED:
            self._again(Step.SUBSCRIBE, self._refusal)
        else:
            self._poll()

    def check_origin(self, task: Task) -> None:
        """Check that a task that was given for the id is not another message's.

        Raises:
            TaskNotFoundError: It is.
        """
        if self._origin is not None:
            seen = self.told.whole()
            self._origin.check(task, None if seen is None else seen.context_id)

    def not_found(self, error: A2AError) -> None:
        """The agent did not give the task.

        Raises:
            A2AError: It will not give it either.
        """
        subscription = self._subscription
        if self._why is _Why.CONNECTION and subscription is not None:
            step = subscription.not_found(error)
            if step is not None:
                self._go_on(step, subscription)
                return
        if self._why is _Why.SILENT:
            self._silence = self._silence if error.transient else None
            self.step = Step.READ
        elif error.transient:
            self._again(Step.LOOK, error)
        elif self._resubscribes or not _is_not_kept(error):
            raise error
        else:
            self._is_kept, self._resubscribes = False, True
            self._again(Step.SUBSCRIBE, error)

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    def _go_on(self, step: Step | Wait, subscription: Subscription) -> None:
        """Does as a subscription says; where that is to believe it, the task is at rest."""
        if step is Step.DONE and subscription.rest is not None:
            self._check_cause()
            self.told.put(subscription.rest)
            if not subscription.rest.status.state.is_terminal:
                step = Step.READ
        self._why, self.step = _Why.CONNECTION, step

    def _compare_with(self, task: Task) -> None:
        """Cuts a connection off that has had time to tell what the task shows, and has not."""
        if not self.told.lacks(task):
            self.step = Step.READ
        elif self._behind != self.told.count:
            self._behind, self.step = self.told.count, Step.READ
        else:
            self.cut(None)

    def _check_end(self, event: Event) -> None:
        """Ends with an event that nothing comes after."""
        state = self.told.state
        if isinstance(event, Message) if state is None else state.is_terminal:
            self.step = Step.DONE

    def _rests_at(self, status: TaskStatus) -> bool:
        """Whether the task waits for input, and for other than what it was just given."""
        if status.state is not TaskState.INPUT_REQUIRED:
            return False
        if not self.is_stale:
            return True
        task = self.told.whole()
        if self._has_gone_on is None or task is None or not self._has_gone_on(task):
            return False
        self.waited_enough()
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

    def _poll(self, error: A2AError | None = None) -> None:
        self.gap = True
        self._fruitless = 0
        self._why = _Why.POLLING
        self.step = Wait(attempt=0, at_least=_asked(error), error=error)

    def _again(self, step: Step, error: A2AError | None) -> None:
        """Tries a step again after a wait, if that was not in vain too often."""
        if self._counted < self.told.count:
            self._fruitless, self._failure = 0, None
        self._failure = None if error is None else more_informative(error, self._failure)
        self._fruitless, self._counted = self._fruitless + 1, self.told.count
        is_in_vain = self._fruitless > self._max_reconnects
        is_final = step is Step.LOOK or not self._max_reconnects
        if is_in_vain and is_final and not self._patient:
            raise self._hopeless(self._failure) from self._failure
        if step is Step.SUBSCRIBE and (is_in_vain or not self._resubscribes):
            self._poll(error)
            return
        if step is Step.SUBSCRIBE and self.told.status is not None:
            self.gap = self._is_cut = True
        asked, failure = _asked(error), self._failure
        self.step = Wait(attempt=self._fruitless, at_least=asked, error=failure, then=step)

    def _hopeless(self, error: A2AError | None) -> ReconnectError:
        name = f"task {self.told.task_id}"
        match self._max_reconnects:
            case 0:
                what = f"the stream of {name} was cut, and reconnecting is switched off"
            case 1:
                what = f"one attempt to resume the stream of {name} brought nothing new"
            case tries:
                what = f"{tries} attempts to resume the stream of {name} brought nothing new"
        failure = "" if error is None else f"; what failed last: {error.message}"
        facts = Facts() if error is None else error.facts()
        return ReconnectError(f"{what}{failure}", task=self.told.whole(), **facts)


def _is_not_kept(error: A2AError) -> bool:
    """Whether an agent that was asked for a task has it not to give, now or ever."""
    return isinstance(error, TaskNotFoundError) or is_unknown_operation(error)


def _asked(error: A2AError | None) -> float:
    """Seconds that an agent asked to wait."""
    return 0.0 if error is None else error.retry_after or 0.0
