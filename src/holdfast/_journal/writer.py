"""What a client writes down of its calls.

Rules:
- A call is written down, durably, before a byte of it leaves; where that fails, nothing is sent.
- Who works on a call holds it: see `holdfast._journal.leases`.
- Whether a call is held by a program that died is clear when its lease is over, or is renewed.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._aio.cancel_scope import wait_until
from holdfast._aio.per_loop import PerLoop
from holdfast._journal.guard import journal_timeout, wrap_journal_errors
from holdfast._journal.leases import HeldCall, Leases
from holdfast._journal.protocol import (
    CallRecord,
    Journal,
    RecordUpdate,
    RepairableJournal,
    damaged,
    lease_end,
    shown,
    utc,
)
from holdfast.errors import A2AConnectionError, DeadlineExceededError, JournalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from holdfast._aio.env import Env
    from holdfast._policy.deadline import Deadline
    from holdfast._policy.origin import Origin
    from holdfast.types import SendMessageRequest, Task

__all__ = ["HeldCall", "Journaling"]

T = TypeVar("T")

_LOOK = 1.0
"""Seconds between two looks at a call that somebody else holds."""

_LOOKUPS = 8
"""Messages of a history to look up in the journal, at most."""


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
        self._leases = PerLoop(lambda: Leases(journal, env))
        self._is_closed = False

    async def begin(
        self,
        request: SendMessageRequest,
        deadline: Deadline,
        *,
        is_own_context: bool = False,
        label: str | None = None,
        digest: str | None = None,
    ) -> HeldCall:
        """Writes a call down that begins, and holds it.

        Who is cancelled meanwhile, as by the deadline, has begun nothing.

        Args:
            request: The message with what goes along, as it is about to be sent.
            deadline: When the time of the call is over.
            is_own_context: Whether its context was made for this call.
            label: What the caller calls it; None for nothing.
            digest: See `message_digest`, of the message as the caller passed it; set with a label.

        Raises:
            JournalError: It cannot be written; nothing was sent.
            RuntimeError: The client is closed.
        """
        self._check_open()
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
            digest=digest,
            lease_until=lease_end(now, self.journal.lease),
        )

        async def begin() -> CallRecord:
            await wrap_journal_errors(self.journal.begin, record)
            return record

        given_up = RecordUpdate(
            outcome="not_sent", detail="it was cancelled while it was recorded"
        )
        leases = self._leases.here()
        try:
            record = await journal_timeout(leases.taken(begin(), lambda: given_up))
        except JournalError as error:
            error.executed = False
            raise
        return HeldCall(record, leases, deadline)

    async def claim(self, record: CallRecord, deadline: Deadline) -> HeldCall:
        """Takes over a call.

        Args:
            record: As it was when nobody held it: see `free` and `until_free`.
            deadline: When the time of the call is over.

        Raises:
            JournalError: Somebody was quicker, or it is over.
            DeadlineExceededError: It was not taken over in time.
        """
        message_id, now = record.message_id, self._env.wall()
        lease_until = lease_end(now, self.journal.lease)
        claim = wrap_journal_errors(
            self.journal.claim, message_id, now=now, lease_until=lease_until
        )
        leases = self._leases.here()
        taking = leases.taken(claim, lambda: RecordUpdate(lease_until=0.0))
        call = f"the call of message {message_id}"
        try:
            taken = await self._until(deadline, taking, f"{call} was not taken over")
        except JournalError:
            found = await self._found(message_id, deadline)
            if self._is_held(found):
                self._check_not_here(found)
                _check_not_elsewhere(record, found, self._env.wall())
            raise
        return HeldCall(taken, leases, deadline)

    async def free(self, message_id: str, deadline: Deadline) -> CallRecord:
        """The record of a call that nobody holds; it may be over.

        Raises:
            JournalError: Somebody holds it, or did and died less than a lease ago.
            DeadlineExceededError: The journal has not told in time.
        """
        self._check_open()
        record = await self._found(message_id, deadline)
        if self._is_held(record):
            self._check_not_here(record)
            raise _held(
                "by another client, or was by one that died: that is clear at "
                f"{shown(record.lease_until)}",
                record,
            )
        return record

    async def until_free(
        self, message_id: str, deadline: Deadline, *, outlasts: bool = False
    ) -> CallRecord:
        """Waits until nobody holds a call, and gives its record as it is then; it may be over.

        What was held by a program that died is free when its last lease is over; one that lives
        renews it.

        Args:
            message_id: Whose call.
            deadline: When the time is over.
            outlasts: Whether to wait for somebody alive, too, until that one is done with it.

        Raises:
            JournalError: Somebody holds it, it is not there, or the journal cannot be read.
            DeadlineExceededError: The time is over.
            A2AConnectionError: The client was closed meanwhile.
        """
        self._check_open()
        clock = asyncio.get_running_loop().time
        first = record = await self._found(message_id, deadline)
        while self._is_held(record):
            if not outlasts:
                self._check_not_here(record)
                _check_not_elsewhere(first, record, self._env.wall())
            held = record.lease_until - self._env.wall()
            await asyncio.sleep(max(0.0, min(held, deadline.left(clock()), _LOOK)))
            if deadline.left(clock()) <= 0:
                call = (
                    f"the call of message {message_id} is held until {shown(record.lease_until)}"
                )
                raise _overdue(f"{call}, and was not free", deadline, record)
            record = await self._found(message_id, deadline)
        return record

    def _is_held(self, record: CallRecord) -> bool:
        return record.outcome is None and record.lease_until > self._env.wall()

    def _check_not_here(self, record: CallRecord) -> None:
        """Raises a `JournalError` where this client holds a call."""
        if self._leases.here().has(record.message_id):
            raise _held("by this client, which works on it already", record)

    async def unfinished(self, message_id: str | None = None) -> list[CallRecord]:
        """The calls to this agent that have no outcome, oldest first; of one message, or all.

        Raises:
            JournalError: The journal cannot be read.
            RuntimeError: The client is closed.
        """
        self._check_open()
        await self._leases.here().settled()
        if message_id is None:
            return await journal_timeout(wrap_journal_errors(self.journal.unfinished, self.agent))
        try:
            record = await journal_timeout(wrap_journal_errors(self.journal.find, message_id))
        except JournalError as error:
            if error.reason != "damaged":
                raise
            records = await journal_timeout(
                wrap_journal_errors(self.journal.unfinished, self.agent)
            )
            found = [one for one in records if one.message_id == message_id]
            if not found:
                raise
            return found
        if record is None or record.agent != self.agent or record.outcome is not None:
            return []
        return [record]

    async def find_label(self, label: str) -> CallRecord | None:
        """The call of a label, open or over, to whichever agent: see `Journal.find_label`.

        Raises:
            JournalError: The journal cannot be read.
            RuntimeError: The client is closed.
        """
        self._check_open()
        return await journal_timeout(wrap_journal_errors(self.journal.find_label, label))

    async def note_later(self, origin: Origin, task: Task) -> None:
        """Note which messages of a task's history are calls made after its origin.

        Where the journal does not tell, nothing is noted.
        """
        if origin.began is None:
            return
        later: set[str] = set()
        with contextlib.suppress(JournalError):
            for message in origin.strangers(task)[:_LOOKUPS]:
                record = await journal_timeout(
                    wrap_journal_errors(self.journal.find, message.message_id)
                )
                if record is None or record.began <= origin.began:
                    break
                later.add(message.message_id)
        origin.later = frozenset(later)

    async def forget_damaged(self, record: CallRecord, deadline: Deadline) -> None:
        """Ends a call whose record is damaged.

        Raises:
            JournalError: Somebody works on it, or the journal cannot forget it.
        """
        self._check_open()
        if self._is_held(record):
            raise _held("by another client, as far as its record can be read", record)
        journal, message_id = self.journal, record.message_id
        if not isinstance(journal, RepairableJournal):
            raise damaged(message_id, record.damage)
        forgetting = wrap_journal_errors(journal.forget_damaged, message_id)
        call = f"the damaged call of message {message_id}"
        if not await self._until(deadline, forgetting, f"{call} was not forgotten"):
            text = f"{call} is not in the journal"
            raise JournalError(text, reason="missing", message_id=message_id)

    def settle(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something that `unfinished` and `close` wait for: see `Leases.settle`."""
        return self._leases.here().settle(work)

    async def close(self) -> None:
        """Lets go of all calls that are still held, and takes no more."""
        self._is_closed = True
        await self._leases.here().close()

    def _check_open(self) -> None:
        if self._is_closed:
            text = "the client is closed"
            raise RuntimeError(text)

    async def _found(self, message_id: str, deadline: Deadline) -> CallRecord:
        if self._is_closed:
            text = f"the client was closed before message {message_id} was looked after"
            raise A2AConnectionError(text, failure="closed")
        finding = wrap_journal_errors(self.journal.find, message_id)
        call = f"the call of message {message_id}"
        record = await self._until(deadline, finding, f"{call} was not looked up")
        if record is None:
            text = f"{call} is not in the journal"
            raise JournalError(text, reason="missing", message_id=message_id)
        return record

    async def _until(self, deadline: Deadline, work: Awaitable[T], what: str) -> T:
        """Waits for the journal; ``what`` has not come about when the time of the call is over."""
        return await wait_until(
            deadline.at, journal_timeout(work), lambda: _overdue(what, deadline)
        )


def _check_not_elsewhere(first: CallRecord, record: CallRecord, now: float) -> None:
    """Raises a `JournalError` where it is clear that whoever holds a call is alive."""
    if record.generation != first.generation:
        raise _held(f"by another client, which took it over at {shown(now)}", record)
    if record.lease_until != first.lease_until:  # less where a clock was set back
        raise _held(f"by another client, which renewed it at {shown(now)}", record)


def _held(by: str, record: CallRecord) -> JournalError:
    return JournalError(
        f"the call of message {record.message_id} is held {by}",
        reason="held",
        message_id=record.message_id,
        held_until=utc(record.lease_until),
    )


def _overdue(
    what: str, deadline: Deadline, record: CallRecord | None = None
) -> DeadlineExceededError:
    return DeadlineExceededError(
        f"{what} within the {deadline.name} timeout of {deadline.shown}",
        deadline=deadline.name,
        timeout=deadline.timeout,
        executed=None if record is None or record.state is None else True,
    )
