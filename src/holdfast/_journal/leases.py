"""Calls that are held: what becomes of each is noted, and their leases are renewed in time.

Rules:
- From its beginning on, a call's journal costs nobody an answer, whatever it raises and however
  long it is silent: what cannot be written is logged, and the call stays without an outcome, to be
  looked after later.
- Who was held up for so long that somebody else has taken a call over stops.
- A call is held as long as there is its `HeldCall`: a stream that is dropped is renewed no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from holdfast._aio.cancel_scope import CancelScope, ScopeCancelled
from holdfast._journal.guard import journal_timeout, wrap_journal_errors
from holdfast._journal.outcome import outcome_of
from holdfast._journal.protocol import CallRecord, Journal, RecordUpdate, lease_end
from holdfast.errors import A2AConnectionError, A2AError, JournalError
from holdfast.types import Task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from holdfast._aio.env import Env
    from holdfast._policy.deadline import Deadline
    from holdfast.types import Message, TaskState

__all__ = ["HeldCall", "Leases"]

T = TypeVar("T")

logger = logging.getLogger("holdfast")

_RENEWALS = 3
"""How often a lease is renewed while it lasts."""

_NOTING = 5.0
"""Seconds that a journal has to take in what is new about a call, at most."""

_SHARE = 4
"""Which part of the time that a call has left may go into that."""

_LAST = 1.0
"""Seconds that it has for that in any case, though the time of the call is over."""

_HANGING = 0.25
"""Seconds that it has where it failed the last time."""

_SETTLING = 8.0
"""Seconds that `Leases.settled` waits, at most."""

_SETTLING_ROUNDS = 2
"""Settling a call may cancel the acquisition of a lease, which then starts work of its own."""

_CLOSING_STEPS = 3
"""Steps of the event loop after which it has begun to close a generator that was dropped."""


class HeldCall:
    """A call that is written down, and that nobody else works on.

    Its lease is renewed as long as there is this object.

    Attributes:
        record: As it was written down.
    """

    def __init__(self, record: CallRecord, leases: Leases, deadline: Deadline) -> None:
        self.record = record
        self._leases = leases
        self._deadline = deadline
        self._working = CancelScope()
        self._taken_by = ""
        self._has_failed = False  # what was to be noted last
        self._seen: tuple[str | None, TaskState | None] = (None, None)
        self._is_over = False
        self._withholds = False
        self._withheld: RecordUpdate | None = None
        leases.add(self)

    async def while_held(self, work: Awaitable[T]) -> T:
        """Does something for the call, for as long as it is held.

        Raises:
            JournalError: Somebody else has taken it over; ``executed`` is None.
        """
        try:
            if self._leases.is_stale:
                await self._leases.renew()
            return await self._working.result(work)
        except ScopeCancelled:
            raise self._taken_over() from None
        finally:
            if asyncio.iscoroutine(work):
                work.close()  # of one that was not begun

    def _taken_over(self) -> JournalError:
        message_id = self.record.message_id
        text = (
            f"the call of message {message_id} was taken over by {self._taken_by}, after its "
            "lease was not renewed in time; it continues there"
        )
        return JournalError(text, reason="taken_over", message_id=message_id)

    def has_seen(self, task_id: str | None, state: TaskState | None) -> bool:
        """Whether that is noted already, or is nothing."""
        return state is None or (task_id, state) == self._seen

    async def saw(self, task: Task) -> None:
        """Notes where the task stands."""
        if self._is_over or self.has_seen(task.id, task.state):
            return
        self._seen = (task.id, task.state)
        await self._update(
            RecordUpdate(task_id=task.id, context_id=task.context_id, state=str(task.state))
        )

    async def answered(self, result: Task | Message) -> None:
        """Notes what answers the call, which is over with that."""
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
        await self.finish(update)

    async def failed(self, error: BaseException) -> None:
        """Notes what ended the call; what only ended its caller's waiting leaves it open.

        Where the call was taken over, ``error.executed`` is put right: the message may have been
        sent before.
        """
        is_claimed = self.record.generation > 1
        was_sent = is_claimed or self._seen[1] is not None
        if is_claimed and isinstance(error, A2AError) and error.executed is False:
            error.executed = None if self.record.state is None else True
        outcome = outcome_of(error, was_sent=was_sent)
        if outcome is None:
            await self.release()
        else:
            await self.finish(RecordUpdate(outcome=outcome, detail=self._told(error)))

    def _told(self, error: BaseException) -> str:
        """An error in a line, without what was said where that is not stored."""
        kind = type(error).__name__
        if self._leases.journal.stores_messages:
            return f"{kind}: {error}"
        code = getattr(error, "code", None)
        return kind if code is None else f"{kind} ({code})"

    def release(self) -> Awaitable[None]:
        """Leaves the call, without an outcome, to whoever wants to go on with it.

        That holds at once, before it is written: what ends the work from now on says nothing of
        the call.
        """
        return self.finish(RecordUpdate(lease_until=0.0))

    def take_away(self, by: str) -> None:
        """Ends the work on it, as somebody else holds it now."""
        self._is_over = True
        self._taken_by = by
        self._leases.remove(self)
        self._working.cancel()

    def finish(self, update: RecordUpdate) -> Awaitable[None]:
        """Notes the last thing about the call, and lets go of it; later ones are ignored."""
        if self._withholds and update.outcome is not None:
            self._withheld = self._withheld or update  # also for a call that is lost
        if self._is_over or self._withheld is not None:
            return _nothing()
        return self._end(update)

    def withhold(self) -> None:
        """Keep the outcome out of the journal until `deliver`; until then the call is held."""
        self._withholds = True

    async def check_withheld(self) -> None:
        """Check that a withheld outcome is still this client's to deliver.

        Raises:
            JournalError: Another client has taken the call over.
            A2AConnectionError: The client was closed, which has left the call pending.
        """
        if self._withheld is None:
            return
        if not self._is_over and self._leases.is_stale:
            await self._leases.renew()
        if self._taken_by:
            raise self._taken_over()
        if self._is_over:
            message_id = self.record.message_id
            text = f"the client was closed before the outcome of message {message_id} was yielded"
            raise A2AConnectionError(f"{text}; the call stays pending", failure="closed")

    def deliver(self) -> asyncio.Task[None] | None:
        """Record the withheld outcome, which the caller gets now; None if there is none.

        The task goes on if the caller is cancelled; `Leases.close` waits for it.
        """
        if self._is_over or self._withheld is None:
            return None
        return self._leases.settle(self._end(self._withheld))

    def abandon(self) -> Awaitable[None]:
        """Leave the call pending, for all clients; a withheld outcome is dropped."""
        return _nothing() if self._is_over else self._end(RecordUpdate(lease_until=0.0))

    def _end(self, update: RecordUpdate) -> Coroutine[Any, Any, None]:
        self._is_over = True
        self._leases.remove(self)
        return self._update(update)

    async def _update(self, update: RecordUpdate) -> None:
        record, journal = self.record, self._leases.journal
        updating = wrap_journal_errors(
            journal.update, record.message_id, record.generation, update
        )
        try:
            is_ours = await journal_timeout(updating, self._patience())
        except JournalError as error:
            self._has_failed = True
            logger.warning("message %s: %s", record.message_id, error)
        else:
            self._has_failed = False
            if not is_ours:
                self.take_away("another client")

    def _patience(self) -> float:
        """Seconds that the journal has: silent again and again, it must not use up the time."""
        left = self._deadline.left(asyncio.get_running_loop().time())
        return _HANGING if self._has_failed else min(_NOTING, max(_LAST, left / _SHARE))


class Leases:
    """The calls that are held in one event loop, and the task that renews their leases.

    A call that nobody else knows any more, as of a stream that was dropped, is not among them.

    Args:
        journal: Where they are written down.
        env: Wall time.
    """

    def __init__(self, journal: Journal, env: Env) -> None:
        self.journal = journal
        self._env = env
        self._calls: WeakValueDictionary[str, HeldCall] = WeakValueDictionary()
        self._renewing: asyncio.Task[None] | None = None
        self._looked = 0.0
        self._settling: set[asyncio.Task[None]] = set()

    @property
    def is_stale(self) -> bool:
        """Whether the leases may be over: the program was held up."""
        return asyncio.get_running_loop().time() - self._looked >= self.journal.lease

    def has(self, message_id: str) -> bool:
        """Whether a call is held here."""
        return message_id in self._calls

    def add(self, call: HeldCall) -> None:
        """Renews the lease of a call from now on, in place of an earlier one of that message."""
        loop = asyncio.get_running_loop()
        if self._renewing is None:
            self._looked = loop.time()
            self._renewing = loop.create_task(
                self._renew_in_time(), name="holdfast: renews leases"
            )
        before = self._calls.get(call.record.message_id)
        self._calls[call.record.message_id] = call
        if before is not None:
            before.take_away("this client itself")

    def remove(self, call: HeldCall) -> None:
        """Renews the lease of a call no more."""
        if self._calls.get(call.record.message_id) is call:
            del self._calls[call.record.message_id]
        if not self._calls and self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None

    async def taken(
        self, taking: Coroutine[Any, Any, CallRecord], give_up: Callable[[], RecordUpdate]
    ) -> CallRecord:
        """The record once its lease is taken.

        Who is cancelled meanwhile is not kept waiting: the lease may be taken all the same, and
        only then it is noted that it was given up. A record that was refused is somebody else's.
        """
        task = asyncio.get_running_loop().create_task(taking, name="holdfast: takes a lease")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._give_up(task, give_up)
            raise

    def _give_up(
        self, taking: asyncio.Task[CallRecord], give_up: Callable[[], RecordUpdate]
    ) -> None:

        async def update() -> None:
            with contextlib.suppress(JournalError):  # the next who looks will not find it
                record = await taking
                given_up = wrap_journal_errors(
                    self.journal.update, record.message_id, record.generation, give_up()
                )
                await journal_timeout(given_up, _NOTING)

        self.settle(update())

    def settle(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Record outcomes, or release calls, in a task that no caller's cancellation ends."""
        task = asyncio.get_running_loop().create_task(work, name="holdfast: settles calls")
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        return task

    async def settled(self) -> None:
        """Wait until what callers have got is recorded, and what they left early is released."""
        clock = asyncio.get_running_loop().time
        end = clock() + _SETTLING
        for _ in range(_CLOSING_STEPS):
            await asyncio.sleep(0)
        for _ in range(_SETTLING_ROUNDS):
            if self._settling:
                await asyncio.wait(self._settling, timeout=max(0.0, end - clock()))

    async def close(self) -> None:
        """Lets go of all calls, and sees to those that were given up."""
        released = [call.abandon() for call in list(self._calls.values())]
        await asyncio.gather(*released)
        await self.settled()
        late = list(self._settling)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        if self._renewing is not None:  # where calls were dropped
            self._renewing.cancel()
            self._renewing = None

    async def renew(self) -> None:
        """Renews all leases, and tells the calls whose lease was taken."""
        loop, lease = asyncio.get_running_loop(), self.journal.lease
        calls = dict(self._calls)
        held = {name: call.record.generation for name, call in calls.items()}
        began = loop.time()
        lease_until = lease_end(self._env.wall(), lease)
        renewal = wrap_journal_errors(self.journal.renew, [*held.items()], lease_until)
        try:
            ours = await journal_timeout(renewal, lease / _RENEWALS)
        except JournalError as error:
            logger.warning("the leases of %d calls were not renewed: %s", len(held), error)
            self._looked = loop.time()  # not to be asked again by each of them
            return
        self._looked = began
        for name in calls.keys() - ours:
            if self._calls.get(name) is calls[name]:  # and not one that was taken over meanwhile
                calls[name].take_away("another client")

    async def _renew_in_time(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while self._calls:
                await asyncio.sleep(self.journal.lease / _RENEWALS)
                if self._calls:
                    await self.renew()
            self._renewing = None


async def _nothing() -> None:
    """Does nothing."""
