"""The calls that this process holds: records their outcomes and renews their leases in time.

Rules:
- Once a call has started, a failing or silent journal never costs the caller the answer: a failed
  write is logged. An outcome is recorded again later, until the client is closed; if that fails,
  too, the call stays pending.
- A process that was suspended so long that another one took a call over stops work on the call.
- A message is not sent if the lease of its call may have ended: another client may have the call.
- A call is held as long as its `HeldCall` exists: the lease of a dropped stream is not renewed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from holdfast._aio.cancel_scope import CancelScope, ScopeCancelled
from holdfast._aio.env import wall_time
from holdfast._journal.guard import journal_timeout, wrap_journal_errors
from holdfast._journal.outcome import outcome_of
from holdfast._journal.protocol import CallRecord, Journal, RecordUpdate
from holdfast._journal.records import executed_of, explain_missing_task
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    JournalError,
    OutcomeUnknownError,
    TaskNotFoundError,
    note_task,
)
from holdfast.types import Task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from holdfast._pipeline.caller_operation import CallerOperation
    from holdfast._pipeline.observations import JournalStep
    from holdfast._policy.deadline import Deadline
    from holdfast.types import Message, TaskState

__all__ = ["HeldCall", "Leases", "Moment"]

T = TypeVar("T")

logger = logging.getLogger("holdfast")

_RENEWALS_PER_LEASE = 3
"""Renewals during the time of one lease."""

_UPDATE_TIMEOUT_S = 5.0
"""Longest time limit of an update of a call, in seconds."""

_UPDATE_TIME_DIVISOR = 4
"""Divisor of the time left to a call that gives the time limit of an update."""

_MIN_UPDATE_TIMEOUT_S = 1.0
"""Shortest time limit of an update or renewal, in seconds, also after a call's deadline."""

_FAILING_TIMEOUT_S = 0.25
"""Time limit of an update after a failed one, in seconds."""

_FIRST_RETRY_INTERVAL_S = 0.5
"""Seconds until outcomes are recorded again: doubled up to the interval of renewals."""

_MAX_UNRECORDED = 10_000
"""Outcomes that are kept to be recorded again, at most."""

_SETTLE_TIMEOUT_S = 8.0
"""Longest wait of `Leases.settled`, in seconds."""

_SETTLE_ROUNDS = 2
"""Rounds of waiting: to settle a call may cancel an acquisition, which then starts new work."""

_CLOSING_STEPS = 3
"""Iterations of the event loop within which it starts to close a dropped generator."""


class Moment:
    """A moment, by the clocks of the event loop and of the system.

    The event loop's clock may stop while the machine is suspended; the system's may be set.
    """

    __slots__ = ("_at", "_wall")

    def __init__(self) -> None:
        self._at = asyncio.get_running_loop().time()
        self._wall = wall_time()

    def seconds_ago(self) -> float:
        """Return the seconds since then, by the clock that shows more."""
        return max(asyncio.get_running_loop().time() - self._at, wall_time() - self._wall)


class _State(Enum):
    HELD = "held"
    ENDED = "ended"
    LOST = "lost"


class HeldCall:
    """A recorded call whose lease this process holds.

    The lease is renewed as long as this object exists and the call is held:

    | State | Meaning | Next |
    |---|---|---|
    | held | the lease is renewed | ended by its last update; lost if a renewal is refused |
    | ended | its outcome is recorded, or its lease released | lost if that update is refused |
    | lost | another holder has the call, and work on it ends | none |

    The last update is the outcome, as soon as it is known, or a release without one. After
    `withhold`, an outcome is kept, and the call stays held, until `deliver` records it or
    `release` drops it.

    Args:
        record: The record of the call.
        leases: The calls that this process holds.
        deadline: The deadline of the call.
        leased_at: When the lease was requested.
        was_sent: Whether the message may have been sent before, by an earlier holder of the call.

    Attributes:
        record: The record of the call.
        leased_at: When the latest lease was requested: the lease began then or later.
        operation: The operation of the caller, which reports and logs what the journal records;
            None where no operation has the call.
    """

    def __init__(
        self,
        record: CallRecord,
        leases: Leases,
        deadline: Deadline,
        *,
        leased_at: Moment,
        was_sent: bool = False,
    ) -> None:
        self.record = record
        self.leased_at = leased_at
        self.operation: CallerOperation | None = None
        self._leases = leases
        self._deadline = deadline
        self._was_sent = was_sent
        self._working = CancelScope()
        self._new_holder = ""
        self._has_failed = False  # of the last update
        self._recorded_state: tuple[str | None, TaskState | None] = (None, None)
        self._state = _State.HELD
        self._is_released_by_errors = True
        self._withholds = False
        self._withheld: RecordUpdate | None = None  # the outcome for `deliver`
        leases.add(self)

    async def while_held(self, work: Awaitable[T]) -> T:
        """Return the result of work for the call, which ends when the call is no longer held.

        Raises:
            JournalError: Another client has taken the call over; ``executed`` is None.
        """
        try:
            await self._renew_if_due()
            return await self._working.result(work)
        except ScopeCancelled:
            raise self._taken_over() from None
        finally:
            if asyncio.iscoroutine(work):
                work.close()  # no effect unless it was not started

    def _taken_over(self) -> JournalError:
        message_id = self.record.message_id
        text = (
            f"the call of message {message_id} was taken over by {self._new_holder}, after its "
            "lease was not renewed in time; the call continues there"
        )
        return JournalError(text, reason="taken_over", message_id=message_id)

    def is_recorded(self, task_id: str | None, state: TaskState | None) -> bool:
        """Return whether the journal has a state of the task already; True for no state."""
        return state is None or (task_id, state) == self._recorded_state

    async def record_state(self, task: Task) -> None:
        """Record the state of the task."""
        if self._state is not _State.HELD or self.is_recorded(task.id, task.state):
            return
        self._recorded_state = (task.id, task.state)
        await self._update(
            RecordUpdate(task_id=task.id, context_id=task.context_id, state=str(task.state))
        )

    async def record_answer(self, result: Task | Message) -> None:
        """Record the answer of the call, which ends it."""
        stored = result.to_json() if self._leases.journal.stores_messages else None
        if isinstance(result, Task):
            update = RecordUpdate(
                task_id=result.id,
                context_id=result.context_id,
                state=str(result.state),
                outcome="answered",
                result=stored,
            )
        else:
            update = RecordUpdate(context_id=result.context_id, outcome="answered", result=stored)
        await self._finish(update)

    async def record_error(self, error: BaseException) -> None:
        """Record the error that ended the call; after an error of the wait alone it stays pending.

        If the call was taken over, the error is corrected: the message may have been sent before,
        and was executed if the record has a state of its task, which may be at a replica that the
        client no longer has. An unknown outcome remains unknown: `OutcomeUnknownError`.
        """
        was_sent = self._was_sent or self._recorded_state[1] is not None
        if self._was_sent and isinstance(error, A2AError):
            if executed_of(self.record) and not isinstance(error, OutcomeUnknownError):
                error.executed = True
                note_task(error, None, self.record.task_id)
            elif error.executed is False:
                error.executed = None
        if self._was_sent and isinstance(error, TaskNotFoundError):
            explain_missing_task(error, self.record, self._leases.agent)
        outcome = outcome_of(error, was_sent=was_sent)
        if outcome is None:
            if self._is_released_by_errors:
                await self.release()
        else:
            await self._finish(RecordUpdate(outcome=outcome, detail=self._detail(error)))

    async def record_not_sent(self, error: BaseException) -> None:
        """Record that the call ended before its message was sent."""
        detail = f"{type(error).__name__} before the message was sent"
        await self._finish(RecordUpdate(outcome="not_sent", detail=detail))

    def _detail(self, error: BaseException) -> str:
        """Return an error in one line, without its message if messages are not stored."""
        kind = type(error).__name__
        if self._leases.journal.stores_messages:
            return f"{kind}: {error}"
        code = getattr(error, "code", None)
        return kind if code is None else f"{kind} ({code})"

    def hold_after_errors(self) -> None:
        """Hold the call also after an error that shows no outcome, until `release`."""
        self._is_released_by_errors = False

    def release(self, *, drops_outcome: bool = False) -> Awaitable[None]:
        """Release the call without an outcome, so that any client may resume it.

        It takes effect at once, before it is recorded: an error that ends the work from now on is
        not an outcome of the call.

        Args:
            drops_outcome: Whether to release the call also if it has a withheld outcome.
        """
        if drops_outcome:
            return self._end(RecordUpdate(releases=True))
        return self._finish(RecordUpdate(releases=True))

    def lose(self, new_holder: str) -> None:
        """End the work on the call, which another holder has taken over."""
        self._new_holder = new_holder
        self._leave(_State.LOST)
        self._working.cancel()

    def _finish(self, update: RecordUpdate) -> Awaitable[None]:
        """Make the last update of the call, unless an outcome is withheld."""
        if self._withholds and update.outcome is not None:
            self._withheld = self._withheld or update  # also for a lost call
        return self._end(update) if self._withheld is None else _nothing()

    def _end(self, update: RecordUpdate) -> Coroutine[Any, Any, None]:
        """Make the last update of the call, if it is held; later updates are ignored."""
        if self._state is not _State.HELD:
            return _nothing()
        self._leave(_State.ENDED)
        return self._update(update)

    def _leave(self, state: _State) -> None:
        """Stop renewing the lease."""
        self._state = state
        self._leases.remove(self)

    def withhold(self) -> None:
        """Keep the outcome out of the journal until `deliver`; until then the call is held."""
        self._withholds = True

    async def check_not_taken_over(self) -> None:
        """Check that no other client has taken the call over.

        Raises:
            JournalError: Another client has.
        """
        await self._renew_if_due()
        if self._state is _State.LOST:
            raise self._taken_over()

    async def _renew_if_due(self) -> None:
        """Renew the lease if it may have ended, unless that has just failed."""
        is_due = self._state is _State.HELD and self.may_have_ended
        if is_due and not self._leases.has_just_failed:
            await self._leases.renew_for(self)

    async def check_held(self) -> None:
        """Check, before the message is sent, that no other client may have the call.

        Raises:
            JournalError: Another client has the call (``"taken_over"``), or its lease may have
                ended and cannot be renewed; then ``executed`` is False.
            A2AConnectionError: The client was closed, which has left the call pending.
        """
        failure: JournalError | None = None
        if self._state is _State.HELD and self.may_have_ended:
            failure = await self._leases.renew_for(self)
        if self._state is _State.LOST:
            raise self._taken_over()
        message_id = self.record.message_id
        if self._state is _State.ENDED:
            text = f"the client was closed before message {message_id} was sent"
            raise A2AConnectionError(text, failure="closed", executed=False)
        if failure is not None:
            text = (
                f"message {message_id} was not sent, because another client may have its call: "
                f"its lease has ended, and could not be renewed: {failure.message}"
            )
            raise JournalError(
                text, reason=failure.reason, message_id=message_id, executed=False
            ) from failure

    @property
    def may_have_ended(self) -> bool:
        """Whether the lease may have ended, as after a suspension of the process."""
        return self.leased_at.seconds_ago() >= self._leases.journal.lease

    async def check_withheld(self) -> None:
        """Check that a withheld outcome is still this client's to deliver.

        Raises:
            JournalError: Another client has taken the call over.
            A2AConnectionError: The client was closed, which has left the call pending.
        """
        if self._withheld is None:
            return
        await self.check_not_taken_over()
        if self._state is _State.ENDED:
            message_id = self.record.message_id
            text = f"the client was closed before the outcome of message {message_id} was yielded"
            raise A2AConnectionError(f"{text}; the call stays pending", failure="closed")

    def deliver(self) -> asyncio.Task[None] | None:
        """Record the withheld outcome, which the caller gets now; None if there is none.

        The task continues if the caller is cancelled; `Leases.close` waits for it.
        """
        if self._state is not _State.HELD or self._withheld is None:
            return None
        return self._leases.settle(self._end(self._withheld))

    async def dismiss(self) -> None:
        """End the call without an answer.

        Raises:
            JournalError: That was not recorded: the journal failed, or another client has taken
                the call over.
        """
        self._leave(_State.ENDED)
        if not await self._write(RecordUpdate(outcome="dismissed")):
            self.lose("another client")
            raise self._taken_over()

    async def _write(self, update: RecordUpdate) -> bool:
        """Update the record, and return whether the call is still this client's."""
        record, journal = self.record, self._leases.journal
        updating = wrap_journal_errors(
            journal.update, record.message_id, record.generation, update
        )
        writing = journal_timeout(updating, self._update_timeout())
        if self.operation is None:
            return await writing
        return await self.operation.journaled(_step(update), writing)

    async def _update(self, update: RecordUpdate) -> None:
        try:
            is_ours = await self._write(update)
        except JournalError as error:
            self._has_failed = True
            _log(logging.WARNING, self.operation, self.record, str(error), error)
            if update.outcome is not None:
                self._leases.record_later(self.record, update, self.operation)
        else:
            self._has_failed = False
            if not is_ours:
                self.lose("another client")

    def _update_timeout(self) -> float:
        """Return the seconds for an update: a silent journal must not use up the call's time."""
        remaining = self._deadline.remaining(asyncio.get_running_loop().time())
        return (
            _FAILING_TIMEOUT_S
            if self._has_failed
            else min(
                _UPDATE_TIMEOUT_S, max(_MIN_UPDATE_TIMEOUT_S, remaining / _UPDATE_TIME_DIVISOR)
            )
        )


class Leases:
    """The calls that are held in one event loop, and the task that renews their leases.

    Calls are referenced weakly: the call of a dropped stream is no longer held.

    Args:
        journal: Stores the calls.
        agent: The name of the client's agent; see `name_of_replicas`.
    """

    def __init__(self, journal: Journal, agent: str) -> None:
        self.journal = journal
        self.agent = agent
        self._calls: WeakValueDictionary[str, HeldCall] = WeakValueDictionary()
        self._renewing: asyncio.Task[None] | None = None
        self._failure: JournalError | None = None  # of the latest renewal
        self._failed_at = 0.0
        self._renewal = asyncio.Lock()  # of `renew_for`
        self._settling: set[asyncio.Task[None]] = set()
        self._unrecorded: deque[tuple[CallRecord, RecordUpdate, CallerOperation | None]] = deque()
        self._recording: asyncio.Task[None] | None = None

    @property
    def has_just_failed(self) -> bool:
        """Whether a renewal has failed so recently that not every call should try again."""
        return self._has_failed_within(self.journal.lease)

    def _has_failed_within(self, seconds: float) -> bool:
        now = asyncio.get_running_loop().time()
        return self._failure is not None and now - self._failed_at < seconds

    def has(self, message_id: str) -> bool:
        """Return whether this process holds a call."""
        return message_id in self._calls

    def add(self, call: HeldCall) -> None:
        """Renew the lease of a call from now on, instead of an earlier call of that message."""
        if self._renewing is None:
            self._renewing = asyncio.get_running_loop().create_task(
                self._renew_in_time(), name="holdfast: renews leases"
            )
        previous = self._calls.get(call.record.message_id)
        self._calls[call.record.message_id] = call
        if previous is not None:
            previous.lose("this client itself")

    def remove(self, call: HeldCall) -> None:
        """Stop renewing the lease of a call."""
        if self._calls.get(call.record.message_id) is call:
            del self._calls[call.record.message_id]
        if not self._calls and self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None

    async def acquire(
        self, acquiring: Coroutine[Any, Any, CallRecord], release: Callable[[], RecordUpdate]
    ) -> CallRecord:
        """Return the record once its lease is acquired.

        A caller that is cancelled meanwhile does not wait: the lease may be acquired nevertheless,
        and is then released. A refused record belongs to another holder.

        Args:
            acquiring: Acquires the lease.
            release: Creates the update that releases it.
        """
        task = asyncio.get_running_loop().create_task(acquiring, name="holdfast: takes a lease")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._release_acquired(task, release)
            raise

    def _release_acquired(
        self, acquiring: asyncio.Task[CallRecord], release: Callable[[], RecordUpdate]
    ) -> None:

        async def update() -> None:
            # Otherwise the lease was not acquired, or will end by itself.
            with contextlib.suppress(JournalError):
                record = await acquiring
                updating = wrap_journal_errors(
                    self.journal.update, record.message_id, record.generation, release()
                )
                await journal_timeout(updating, _UPDATE_TIMEOUT_S)

        self.settle(update())

    def settle(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Record outcomes, or release calls, in a task that no caller's cancellation ends."""
        task = asyncio.get_running_loop().create_task(work, name="holdfast: settles calls")
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        return task

    async def settled(self) -> None:
        """Wait until delivered outcomes are recorded and abandoned calls are released."""
        clock = asyncio.get_running_loop().time
        end = clock() + _SETTLE_TIMEOUT_S
        for _ in range(_CLOSING_STEPS):
            await asyncio.sleep(0)
        for _ in range(_SETTLE_ROUNDS):
            if self._settling:
                await asyncio.wait(self._settling, timeout=max(0.0, end - clock()))

    def record_later(
        self, record: CallRecord, update: RecordUpdate, operation: CallerOperation | None
    ) -> None:
        """Record the outcome of a call again, after the journal has failed to record it.

        Args:
            record: The record of the call.
            update: The outcome.
            operation: The operation of the call, for the log.
        """
        if len(self._unrecorded) >= _MAX_UNRECORDED:
            return
        self._unrecorded.append((record, update, operation))
        if self._recording is None:
            self._recording = asyncio.get_running_loop().create_task(
                self._record_again(), name="holdfast: records outcomes again"
            )

    async def _record_again(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            interval = _FIRST_RETRY_INTERVAL_S
            while self._unrecorded:
                await asyncio.sleep(interval)
                interval = min(2 * interval, self.journal.lease / _RENEWALS_PER_LEASE)
                await self._record_unrecorded()
            self._recording = None

    async def _record_unrecorded(self) -> None:
        """Record outcomes until one of them fails, which comes last the next time."""
        while self._unrecorded:
            record, update, operation = self._unrecorded[0]
            updating = wrap_journal_errors(
                self.journal.update, record.message_id, record.generation, update
            )
            try:
                await journal_timeout(updating, _UPDATE_TIMEOUT_S)
            except JournalError:
                self._unrecorded.rotate(-1)
                return
            self._unrecorded.popleft()
            _log(logging.INFO, operation, record, "the outcome has been recorded")

    async def _end_recording(self) -> None:
        """Record outcomes for the last time; calls whose outcome is not recorded stay pending."""
        if self._recording is not None:
            self._recording.cancel()
            await asyncio.wait([self._recording])
            self._recording = None
        await self._record_unrecorded()
        if self._unrecorded:
            logger.warning(
                "the journal did not record the outcomes of %d calls, which stay pending",
                len(self._unrecorded),
            )
            self._unrecorded.clear()

    async def close(self) -> None:
        """Release all calls, and wait for pending updates."""
        releases = [call.release(drops_outcome=True) for call in list(self._calls.values())]
        await asyncio.gather(*releases)
        await self.settled()
        await self._end_recording()
        unsettled = list(self._settling)
        for task in unsettled:
            task.cancel()
        await asyncio.gather(*unsettled, return_exceptions=True)
        if self._renewing is not None:  # if calls were dropped
            self._renewing.cancel()
            self._renewing = None

    async def renew_for(self, call: HeldCall) -> JournalError | None:
        """Renew all leases if that of a call may have ended: once for all calls that need it.

        Returns:
            Why the leases could not be renewed; None if they were.
        """
        async with self._renewal:
            if not call.may_have_ended:
                return None
            if self._has_failed_within(self.journal.lease / _RENEWALS_PER_LEASE):
                return self._failure
            return await self.renew()

    async def renew(self) -> JournalError | None:
        """Renew all leases; calls whose lease another holder has taken are lost.

        Returns:
            Why the leases could not be renewed; None if they were.
        """
        lease = self.journal.lease
        calls = dict(self._calls)
        held = {message_id: call.record.generation for message_id, call in calls.items()}
        began = Moment()
        renewal = wrap_journal_errors(self.journal.renew, [*held.items()])
        try:
            seconds = max(_MIN_UPDATE_TIMEOUT_S, lease / _RENEWALS_PER_LEASE)
            renewed = await journal_timeout(renewal, seconds)
        except JournalError as error:
            text = "the leases of %d calls were not renewed: %s"
            logger.warning(text, len(held), error, extra={"error_type": type(error).__name__})
            self._failure, self._failed_at = error, asyncio.get_running_loop().time()
            return error
        self._failure = None
        for message_id, call in calls.items():
            if message_id in renewed:
                call.leased_at = began
            elif self._calls.get(message_id) is call:  # not replaced meanwhile
                call.lose("another client")
        return None

    async def _renew_in_time(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while self._calls:
                await asyncio.sleep(self.journal.lease / _RENEWALS_PER_LEASE)
                if self._calls:
                    await self.renew()
            self._renewing = None


def _log(
    level: int,
    operation: CallerOperation | None,
    record: CallRecord,
    text: str,
    error: BaseException | None = None,
) -> None:
    """Log what becomes of the record of a call, as a record about its operation."""
    template, arguments = "message %s: %s", (record.message_id, text)
    if operation is None:
        logger.log(level, template, *arguments, extra={"message_id": record.message_id})
    else:
        operation.log(level, template, *arguments, error=error)


def _step(update: RecordUpdate) -> JournalStep:
    """Return the step that an update records."""
    if update.outcome is not None:
        return "outcome"
    return "release" if update.releases else "state"


async def _nothing() -> None:
    """Do nothing."""
