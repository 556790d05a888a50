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
import json
import logging
from hashlib import blake2b
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
from holdfast.model.types import Message, Task
from holdfast.runtime.journal import CallRecord, Journal, Outcome, RecordUpdate
from holdfast.runtime.perloop import PerLoop
from holdfast.runtime.waiting import Endable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from holdfast.model.requests import SendMessageRequest
    from holdfast.model.types import TaskState
    from holdfast.runtime.env import Env

__all__ = ["HeldCall", "Journaling", "digest_of", "outcome_of"]

T = TypeVar("T")

logger = logging.getLogger("holdfast")

_RENEWALS = 3
"""How often a lease is renewed while it lasts."""

_GOES_ON = (
    A2AConnectionError,
    A2ATimeoutError,
    DeadlineExceededError,
    ReconnectError,
    TaskInterruptedError,
)
"""Errors that end the caller's waiting, and not what the agent does."""


def outcome_of(error: BaseException, *, was_sent: bool) -> Outcome | None:
    """What an error says of the call that it ends; None for nothing, and it stays open.

    Args:
        error: What was raised to the caller.
        was_sent: Whether the message had been sent before, for all that is known: what befalls
            somebody who looks after it says nothing of the message.
    """
    match error:
        case OutcomeUnknownError():
            return "unknown"
        case DuplicateTasksError():
            return "failed"
        case JournalError():
            return None
        case A2AError(executed=False) if not was_sent:
            return "not_sent"
        case A2AError(executed=None) if not (was_sent or isinstance(error, _GOES_ON)):
            return "failed"
        case _:
            return None


def digest_of(message: Message) -> str:
    """A digest of what a message says, in hexadecimal: of all of it but its ids and its place."""
    said = Message(
        parts=message.parts,
        metadata=message.metadata or None,
        extensions=message.extensions,
        reference_task_ids=message.reference_task_ids,
    )
    text = json.dumps(said.to_dict(), sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()


class Journaling:
    """One client's part in a journal.

    Args:
        journal: Where calls are written down.
        agent: The name of where they go; see `agent_name`.
        env: Wall time.
    """

    def __init__(self, journal: Journal, agent: str, env: Env) -> None:
        self.journal = journal
        self.agent = agent
        self._env = env
        self._leases = PerLoop(lambda: _Leases(journal, env))

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
            digest=None if label is None else digest_of(message),
            lease_until=now + self.journal.lease,
        )

        async def begin() -> CallRecord:
            await self.journal.begin(record)
            return record

        given_up = RecordUpdate(
            outcome="not_sent", detail="it was given up while it was written down"
        )
        return await self._held(begin(), lambda: given_up)

    async def claim(self, message_id: str) -> HeldCall:
        """Takes over a call that nobody holds.

        Raises:
            JournalError: Somebody holds it, or it is over.
        """
        now = self._env.wall()
        lease_until = now + self.journal.lease
        claim = self.journal.claim(message_id, now=now, lease_until=lease_until)
        return await self._held(claim, lambda: RecordUpdate(lease_until=self._env.wall()))

    async def unfinished(self) -> list[CallRecord]:
        """The calls to this agent that have no outcome, oldest first.

        Raises:
            JournalError: The journal cannot be read.
        """
        return await self.journal.unfinished(self.agent)

    async def close(self) -> None:
        """Lets go of all calls that are still held."""
        await self._leases.here().close()

    async def _held(
        self, taking: Coroutine[Any, Any, CallRecord], give_up: Callable[[], RecordUpdate]
    ) -> HeldCall:
        """The call once its lease is taken; ``give_up``: what is noted if nobody waits so long."""
        leases = self._leases.here()
        return HeldCall(await leases.taken(taking, give_up), self._env, leases)


class HeldCall:
    """A call that is written down, and that nobody else works on.

    Attributes:
        record: As it was written down.
    """

    def __init__(self, record: CallRecord, env: Env, leases: _Leases) -> None:
        self.record = record
        self._env = env
        self._leases = leases
        self._working = Endable()
        self._seen: tuple[str | None, TaskState | None] = (None, None)
        self._is_over = False
        leases.add(self)

    async def while_held(self, work: Awaitable[T]) -> T:
        """Does something for the call, for as long as it is held.

        Raises:
            JournalError: Somebody else has taken it over; ``executed`` is None.
        """
        try:
            if self._leases.is_stale:
                await self._leases.renew()
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
        return self.finish(RecordUpdate(lease_until=self._env.wall()))

    def take_away(self) -> None:
        """Ends the work on it, as somebody else holds it now."""
        self._is_over = True
        self._leases.remove(self)
        self._working.end()

    def finish(self, update: RecordUpdate) -> Awaitable[None]:
        """Notes the last thing about the call, and lets go of it; later ones are ignored."""
        if self._is_over:
            return _nothing()
        self._is_over = True
        self._leases.remove(self)
        return self._update(update)

    async def _update(self, update: RecordUpdate) -> None:
        record, journal = self.record, self._leases.journal
        try:
            is_ours = await journal.update(record.message_id, record.generation, update)
        except JournalError as error:
            logger.warning("message %s: %s", record.message_id, error)
        else:
            if not is_ours:
                self.take_away()


async def _nothing() -> None:
    """Does nothing."""


class _Leases:
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
                await self.journal.update(record.message_id, record.generation, give_up())

        noting = asyncio.get_running_loop().create_task(update(), name="holdfast: gives a call up")
        self._giving_up.add(noting)
        noting.add_done_callback(self._giving_up.discard)

    async def close(self) -> None:
        released = [call.release() for call in list(self._calls.values())]
        await asyncio.gather(*released, *self._giving_up)

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
