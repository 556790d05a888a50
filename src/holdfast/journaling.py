"""What a client writes down of its calls.

Rules:
- A call is written down, durably, before a byte of it leaves; where that fails, nothing is sent.
- From then on the journal costs nobody an answer: what cannot be written is logged, and the call
  stays without an outcome, to be looked after later.
- Who works on a call holds it, and renews that in time. One that was held up for so long that
  somebody else has taken it over stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2ATimeoutError,
    DeadlineExceededError,
    DuplicateTasksError,
    JournalError,
    OutcomeUnknownError,
    ReconnectError,
    TaskInterruptedError,
)
from holdfast.model.types import Task
from holdfast.runtime.journal import NOT_SENT, CallRecord, Journal, Note
from holdfast.runtime.perloop import PerLoop
from holdfast.runtime.waiting import Endable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from holdfast.model.requests import SendMessageRequest
    from holdfast.model.types import Message, TaskState
    from holdfast.runtime.env import Env

__all__ = ["UNKNOWN", "HeldCall", "Journaling"]

T = TypeVar("T")

logger = logging.getLogger("holdfast")

_RENEWALS = 3
"""How often a lease is renewed while it lasts."""

UNKNOWN = "unknown"
"""The outcome of a call of which its caller was told that nobody knows it."""

_GOES_ON = (
    A2AConnectionError,
    A2ATimeoutError,
    DeadlineExceededError,
    ReconnectError,
    TaskInterruptedError,
)
"""Errors that end the caller's waiting, and not what the agent does."""


class Journaling:
    """One client's part in a journal.

    Args:
        journal: Where calls are written down.
        agent: Where they go, as `holdfast.connect` was told.
        env: Wall time.
    """

    def __init__(self, journal: Journal, agent: str, env: Env) -> None:
        self.journal = journal
        self.agent = agent
        self._env = env
        self._holding = PerLoop(lambda: _Holding(journal, env))

    async def begin(
        self,
        request: SendMessageRequest,
        *,
        is_own_context: bool = False,
        label: str | None = None,
    ) -> HeldCall:
        """Writes a call down that begins, and holds it.

        Raises:
            JournalError: It cannot be written; nothing was sent.
        """
        message, now = request.message, self._env.wall()
        record = CallRecord(
            message_id=message.message_id,
            agent=self.agent,
            began=now,
            context_id=message.context_id,
            task_id=message.task_id,
            is_own_context=is_own_context,
            request=request.to_json() if self.journal.stores_messages else None,
            label=label,
            lease_until=now + self.journal.lease,
        )

        async def begin() -> CallRecord:
            await self.journal.begin(record)
            return record

        not_sent = f"{NOT_SENT}: it was given up while it was written down"
        return await self._held(begin(), lambda: Note(outcome=not_sent))

    async def claim(self, message_id: str) -> HeldCall:
        """Takes over a call that nobody holds.

        Raises:
            JournalError: Somebody holds it, or it is over.
        """
        now = self._env.wall()
        lease_until = now + self.journal.lease
        claim = self.journal.claim(message_id, now=now, lease_until=lease_until)
        return await self._held(claim, lambda: Note(lease_until=self._env.wall()))

    async def unfinished(self) -> list[CallRecord]:
        """The calls to this agent that have no outcome, oldest first.

        Raises:
            JournalError: The journal cannot be read.
        """
        return await self.journal.unfinished(self.agent)

    async def close(self) -> None:
        """Lets go of all calls that are still held."""
        await self._holding.here().close()

    async def _held(
        self, taking: Coroutine[Any, Any, CallRecord], give_up: Callable[[], Note]
    ) -> HeldCall:
        """The call once its lease is taken; ``give_up``: what is noted if nobody waits so long."""
        holding = self._holding.here()
        return HeldCall(await holding.taken(taking, give_up), self._env, holding)


class HeldCall:
    """A call that is written down, and that nobody else works on.

    Attributes:
        record: As it was written down.
    """

    def __init__(self, record: CallRecord, env: Env, holding: _Holding) -> None:
        self.record = record
        self._env = env
        self._holding = holding
        self._working = Endable()
        self._seen: tuple[str | None, TaskState | None] = (None, None)
        self._is_over = False
        holding.add(self)

    async def work(self, work: Awaitable[T]) -> T:
        """Does something for the call, for as long as it is held.

        Raises:
            JournalError: Somebody else has taken it over; ``executed`` is None.
        """
        try:
            if self._holding.is_stale:
                await self._holding.renew()
            done = None if self._working.is_ended else await self._working.wait(work)
        finally:
            if asyncio.iscoroutine(work):
                work.close()  # of one that was not begun
        if not self._working.is_ended:
            return done  # type: ignore[return-value]
        text = (
            f"the call of message {self.record.message_id} was taken over by another process, "
            "after this one had not renewed its lease in time; it goes on there"
        )
        raise JournalError(text)

    def has_seen(self, task_id: str | None, state: TaskState | None) -> bool:
        """Whether that is noted already, or is nothing."""
        return state is None or (task_id, state) == self._seen

    async def saw(self, task: Task) -> None:
        """Notes where the task stands."""
        if self._is_over or self.has_seen(task.id, task.state):
            return
        self._seen = (task.id, task.state)
        await self._note(Note(task_id=task.id, context_id=task.context_id, state=str(task.state)))

    async def answered(self, result: Task | Message) -> None:
        """Notes what answers the call, which is over with that."""
        stored = result.to_json() if self._holding.journal.stores_messages else None
        if isinstance(result, Task):
            note = Note(
                task_id=result.id,
                context_id=result.context_id,
                state=str(result.state),
                outcome=result.state.name,
                result=stored,
            )
        else:
            note = Note(context_id=result.context_id, outcome="message", result=stored)
        await self.finish(note)

    async def failed(self, error: BaseException) -> None:
        """Notes what ended the call; what only ended its caller's waiting leaves it open.

        So does all that happens to somebody who looks after a message that was sent: that a look
        was refused says nothing of the message. Where the call was taken over, ``error.executed``
        is put right accordingly.
        """
        is_claimed = self.record.generation > 1
        was_sent = is_claimed or self._seen[1] is not None
        if is_claimed and isinstance(error, A2AError) and error.executed is False:
            error.executed = None if self.record.state is None else True
        if isinstance(error, OutcomeUnknownError) and error.unfinished is None:
            await self.finish(Note(outcome=UNKNOWN))
        elif not isinstance(error, A2AError) or isinstance(
            error, OutcomeUnknownError | JournalError
        ):
            await self.let_go()
        elif isinstance(error, DuplicateTasksError):
            await self.finish(Note(outcome=self._told(error)))
        elif was_sent or error.executed:
            await self.let_go()
        elif error.executed is False:
            await self.finish(Note(outcome=f"{NOT_SENT}: {self._told(error)}"))
        elif isinstance(error, _GOES_ON):
            await self.let_go()
        else:
            await self.finish(Note(outcome=self._told(error)))

    def _told(self, error: A2AError) -> str:
        """An error in a line, without what was said where that is not stored."""
        kind = type(error).__name__
        if self._holding.journal.stores_messages:
            return f"{kind}: {error}"
        return kind if error.code is None else f"{kind} ({error.code})"

    async def let_go(self) -> None:
        """Leaves the call, without an outcome, to whoever wants to go on with it."""
        await self.finish(Note(lease_until=self._env.wall()))

    def leave(self) -> Awaitable[None]:
        """Lets go of it at once: what ends its work from now on says nothing of the call."""
        self._is_over = True
        self._holding.remove(self)
        return self._note(Note(lease_until=self._env.wall()))

    def take_away(self) -> None:
        """Ends the work on it, as somebody else holds it now."""
        self._is_over = True
        self._holding.remove(self)
        self._working.end()

    async def finish(self, note: Note) -> None:
        """Notes the last thing about the call, and lets go of it; later ones are ignored."""
        if self._is_over:
            return
        self._is_over = True
        self._holding.remove(self)
        await self._note(note)

    async def _note(self, note: Note) -> None:
        record, journal = self.record, self._holding.journal
        try:
            is_ours = await journal.note(record.message_id, record.generation, note)
        except JournalError as error:
            logger.warning("message %s: %s", record.message_id, error)
        else:
            if not is_ours:
                self.take_away()


class _Holding:
    """The calls that are held in one event loop, and the task that renews their leases."""

    def __init__(self, journal: Journal, env: Env) -> None:
        self.journal = journal
        self._env = env
        self._calls: dict[str, HeldCall] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._renewed = 0.0
        self._giving_up: set[asyncio.Task[None]] = set()

    @property
    def is_stale(self) -> bool:
        """Whether the leases may be over: the program was held up."""
        return asyncio.get_running_loop().time() - self._renewed >= self.journal.lease

    def add(self, call: HeldCall) -> None:
        loop = asyncio.get_running_loop()
        if self._renewing is None:
            self._renewed = loop.time()
            self._renewing = loop.create_task(
                self._renew_in_time(), name="holdfast: renews leases"
            )
        before = self._calls.get(call.record.message_id)
        self._calls[call.record.message_id] = call
        if before is not None:
            before.take_away()

    def remove(self, call: HeldCall) -> None:
        if self._calls.get(call.record.message_id) is call:
            del self._calls[call.record.message_id]
        if not self._calls and self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None

    async def taken(
        self, taking: Coroutine[Any, Any, CallRecord], give_up: Callable[[], Note]
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

    def _give_up(self, taking: asyncio.Task[CallRecord], give_up: Callable[[], Note]) -> None:

        async def note() -> None:
            with contextlib.suppress(JournalError):  # the next who looks will not find it
                record = await taking
                await self.journal.note(record.message_id, record.generation, give_up())

        noting = asyncio.get_running_loop().create_task(note(), name="holdfast: gives a call up")
        self._giving_up.add(noting)
        noting.add_done_callback(self._giving_up.discard)

    async def close(self) -> None:
        leaving = [call.leave() for call in list(self._calls.values())]
        await asyncio.gather(*leaving, *self._giving_up)

    async def renew(self) -> None:
        """Renews all leases, and tells the calls whose lease was taken."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        held = {name: call.record.generation for name, call in self._calls.items()}
        try:
            ours = await self.journal.renew([*held.items()], self._env.wall() + self.journal.lease)
        except JournalError as error:
            logger.warning("the leases of %d calls were not renewed: %s", len(held), error)
            return
        self._renewed = began
        for name in held.keys() - ours:
            if (call := self._calls.get(name)) is not None:
                call.take_away()

    async def _renew_in_time(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(self.journal.lease / _RENEWALS)
                await self.renew()
