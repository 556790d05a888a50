"""A client's use of a journal: it records calls, takes them over, and looks them up.

Rules:
- A call is recorded, durably, before a byte of it leaves; if that fails, nothing is sent.
- A client that works on a call holds its lease: see `holdfast._journal.leases`.
- Whether the holder of a call has crashed is known when the lease ends, or is renewed.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._aio.cancel_scope import wait_until
from holdfast._aio.per_loop import PerLoop
from holdfast._journal.agent_name import is_same_agent
from holdfast._journal.guard import journal_timeout, wrap_journal_errors
from holdfast._journal.leases import HeldCall, Leases, Moment
from holdfast._journal.protocol import (
    CallRecord,
    Journal,
    RecordUpdate,
    RepairableJournal,
    damaged,
    shown,
    utc,
    valid_traceparent,
)
from holdfast._policy.deadline import deadline_error
from holdfast.errors import A2AConnectionError, JournalError, note_task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from contextlib import AbstractContextManager

    from holdfast._pipeline.observations import WaitReason
    from holdfast._policy.deadline import Deadline
    from holdfast._policy.task_ownership import TaskOwner
    from holdfast.errors import DeadlineExceededError
    from holdfast.types import SendMessageRequest, Task

__all__ = ["HeldCall", "Journaling", "is_held"]

T = TypeVar("T")

_FIRST_POLL_INTERVAL_S = 0.05
_MAX_POLL_INTERVAL_S = 1.0
"""Seconds between two lookups of a call that another client holds: doubled up to the second."""

_MAX_LOOKUPS = 8
"""Messages of a history to look up in the journal, at most."""


class Journaling:
    """The journal as one client uses it.

    Args:
        journal: Stores the calls.
        agent: The name of the agent; see `name_of_replicas`.
    """

    def __init__(self, journal: Journal, agent: str) -> None:
        self.journal = journal
        self.agent = agent
        self._leases = PerLoop(lambda: Leases(journal, agent))
        self._is_closed = False

    async def begin(
        self,
        request: SendMessageRequest,
        deadline: Deadline,
        *,
        is_own_context: bool = False,
        label: str | None = None,
        digest: str | None = None,
        traceparent: str | None = None,
    ) -> HeldCall:
        """Record a new call, and hold it.

        If this is cancelled, as by the deadline, the call has not started.

        Args:
            request: The request, as it is about to be sent.
            deadline: The deadline of the call.
            is_own_context: Whether its context was created for this call.
            label: The caller's name for the call; None for none.
            digest: See `message_digest`, of the message as the caller passed it; set with a label.
            traceparent: The trace context of the call; None for none.

        Raises:
            JournalError: It cannot be recorded; nothing was sent.
            RuntimeError: The client is closed.
        """
        self._check_open()
        message = request.message
        record = CallRecord(
            message_id=message.message_id,
            agent=self.agent,
            context_id=message.context_id,
            task_id=message.task_id,
            is_own_context=is_own_context,
            request=request.to_json() if self.journal.stores_messages else None,
            label=label,
            digest=digest,
            traceparent=valid_traceparent(traceparent),
        )
        not_sent = RecordUpdate(
            outcome="not_sent", detail="it was cancelled while it was recorded"
        )
        leases = self._leases.here()
        leased_at = Moment()
        beginning = wrap_journal_errors(self.journal.begin, record)
        try:
            record = await journal_timeout(leases.acquire(beginning, lambda: not_sent))
        except JournalError as error:
            error.executed = False
            raise
        return HeldCall(record, leases, deadline, leased_at=leased_at)

    async def claim(self, record: CallRecord, deadline: Deadline) -> HeldCall:
        """Take over a call.

        Args:
            record: The record while the call was free: see `find_free` and `wait_until_free`.
            deadline: The deadline of the call.

        Raises:
            JournalError: Another client has taken it over first, or the call has ended.
            DeadlineExceededError: It was not taken over in time.
        """
        message_id, leased_at = record.message_id, Moment()
        claim = wrap_journal_errors(self.journal.claim, message_id)
        leases = self._leases.here()
        acquiring = leases.acquire(claim, lambda: RecordUpdate(releases=True))
        call = f"the call of message {message_id}"
        try:
            claimed = await self._within(deadline, acquiring, f"{call} was not taken over")
        except JournalError:
            latest = await self._find(message_id, deadline)
            if is_held(latest):
                self._check_not_here(latest)
                _check_holder_not_alive(record, latest)
            raise
        return HeldCall(claimed, leases, deadline, leased_at=leased_at, was_sent=True)

    async def find_free(self, message_id: str, deadline: Deadline) -> CallRecord:
        """Return the record of a call that no client holds; the call may have ended.

        Raises:
            JournalError: A client holds it, or did and crashed less than a lease ago.
            DeadlineExceededError: The journal did not answer in time.
        """
        self._check_open()
        record = await self._find(message_id, deadline)
        if is_held(record):
            self._check_not_here(record)
            raise _held_error(
                "by another client, or by one that crashed: its lease expires at "
                f"{shown(record.lease_until)}",
                record,
            )
        return record

    async def wait_until_free(
        self,
        message_id: str,
        deadline: Deadline,
        *,
        waiting: Callable[[WaitReason, float | None], AbstractContextManager[None]],
        waits_for_holder: bool = False,
    ) -> CallRecord:
        """Wait until no client holds a call, and return its record then; the call may have ended.

        A call of a crashed process is free when its last lease ends; a live process renews it.

        Args:
            message_id: The message of the call.
            deadline: When to stop waiting.
            waiting: Reports a wait for the end of a lease, with the seconds that are left of it.
            waits_for_holder: Wait until a live holder has finished, instead of raising an error.

        Raises:
            JournalError: A client holds it, it is not recorded, or the journal cannot be read.
            DeadlineExceededError: The deadline has expired.
            A2AConnectionError: The client was closed meanwhile.
        """
        self._check_open()
        first = await self._find(message_id, deadline)
        if not is_held(first):
            return first
        if not waits_for_holder:
            self._check_not_here(first)
        with waiting("lease", first.lease_left):
            return await self._wait_until_free(first, deadline, waits_for_holder=waits_for_holder)

    async def _wait_until_free(
        self, first: CallRecord, deadline: Deadline, *, waits_for_holder: bool
    ) -> CallRecord:
        clock, record = asyncio.get_running_loop().time, first
        interval = _FIRST_POLL_INTERVAL_S
        while is_held(record):
            if not waits_for_holder:
                self._check_not_here(record)
                _check_holder_not_alive(first, record)
            remaining = deadline.remaining(clock())
            await asyncio.sleep(max(0.0, min(record.lease_left, remaining, interval)))
            interval = min(_MAX_POLL_INTERVAL_S, 2 * interval)
            if deadline.remaining(clock()) <= 0:
                raise _not_free_error(deadline, record)
            record = await self._find(record.message_id, deadline)
        return record

    def _check_not_here(self, record: CallRecord) -> None:
        """Raise a `JournalError` if this client holds a call."""
        if self._leases.here().has(record.message_id):
            raise _held_error("by this client, in another call", record)

    async def unfinished(self, message_id: str | None = None) -> list[CallRecord]:
        """Return the pending calls to this agent, oldest first; that of one message, or all.

        Raises:
            JournalError: The journal cannot be read.
            RuntimeError: The client is closed.
        """
        self._check_open()
        await self._leases.here().settled()
        if message_id is None:
            return await self._all_unfinished()
        try:
            record = await journal_timeout(wrap_journal_errors(self.journal.find, message_id))
        except JournalError as error:
            if error.reason != "damaged":
                raise
            records = await self._all_unfinished()
            own = [record for record in records if record.message_id == message_id]
            if not own:
                raise
            return own
        is_pending = record is not None and record.outcome in {None, "unknown"}
        if record is None or not is_pending or not self.is_own(record):
            return []
        return [record]

    async def _all_unfinished(self) -> list[CallRecord]:
        finding = wrap_journal_errors(self.journal.unfinished, self.agent)
        return await journal_timeout(finding)

    def is_own(self, record: CallRecord) -> bool:
        """Return whether a call was recorded for this agent, perhaps with other replicas."""
        return is_same_agent(record.agent, self.agent)

    async def find_label(self, label: str) -> CallRecord | None:
        """Return the call of a label, to any agent: see `Journal.find_label`.

        Raises:
            JournalError: The journal cannot be read.
            RuntimeError: The client is closed.
        """
        self._check_open()
        return await journal_timeout(wrap_journal_errors(self.journal.find_label, label))

    async def find(self, message_id: str) -> CallRecord | None:
        """Return the call of a message, to any agent; None if there is none.

        Raises:
            JournalError: The journal cannot be read.
            RuntimeError: The client is closed.
        """
        self._check_open()
        return await journal_timeout(wrap_journal_errors(self.journal.find, message_id))

    async def note_later(self, owner: TaskOwner, task: Task) -> None:
        """Note which messages of a task's history are calls made after its owner.

        If the journal cannot be read, nothing is noted.
        """
        if owner.began is None:
            return
        later: set[str] = set()
        with contextlib.suppress(JournalError):
            for message in owner.strangers(task)[:_MAX_LOOKUPS]:
                record = await journal_timeout(
                    wrap_journal_errors(self.journal.find, message.message_id)
                )
                if record is None or record.began <= owner.began:
                    break
                later.add(message.message_id)
        owner.later = frozenset(later)

    async def dismiss_damaged(self, record: CallRecord, deadline: Deadline) -> None:
        """End a call whose record is damaged.

        Raises:
            JournalError: A client works on it, or the journal cannot dismiss it.
        """
        self._check_open()
        if is_held(record):
            raise _held_error("by another client, as far as its record can be read", record)
        journal, message_id = self.journal, record.message_id
        if not isinstance(journal, RepairableJournal):
            raise damaged(message_id, record.damage)
        dismissing = wrap_journal_errors(journal.dismiss_damaged, message_id)
        call = f"the damaged call of message {message_id}"
        if not await self._within(deadline, dismissing, f"{call} was not dismissed"):
            text = f"{call} is not in the journal"
            raise JournalError(text, reason="missing", message_id=message_id)

    def settle(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work that `unfinished` and `close` wait for: see `Leases.settle`."""
        return self._leases.here().settle(work)

    def refuse_calls(self) -> None:
        """Accept no more calls."""
        self._is_closed = True

    async def close(self) -> None:
        """Release all held calls, and accept no more."""
        self.refuse_calls()
        await self._leases.here().close()

    def _check_open(self) -> None:
        if self._is_closed:
            text = "the client is closed"
            raise RuntimeError(text)

    async def _find(self, message_id: str, deadline: Deadline) -> CallRecord:
        if self._is_closed:
            text = f"the client was closed before message {message_id} was resumed"
            raise A2AConnectionError(text, failure="closed")
        finding = wrap_journal_errors(self.journal.find, message_id)
        call = f"the call of message {message_id}"
        record = await self._within(deadline, finding, f"{call} was not looked up")
        if record is None:
            text = f"{call} is not in the journal"
            raise JournalError(text, reason="missing", message_id=message_id)
        return record

    async def _within(self, deadline: Deadline, work: Awaitable[T], failure: str) -> T:
        """Wait for the journal within a call's deadline; ``failure`` begins the error's text."""
        return await wait_until(
            deadline.at, journal_timeout(work), lambda: deadline_error(failure, deadline)
        )


def is_held(record: CallRecord) -> bool:
    """Return whether a process held a call when its record was read."""
    return record.outcome is None and record.lease_left > 0


def _check_holder_not_alive(first: CallRecord, record: CallRecord) -> None:
    """Raise a `JournalError` if the holder of a call is certainly alive."""
    if record.generation != first.generation:
        raise _held_error("by another client, which has just taken it over", record)
    if record.lease_until != first.lease_until:  # less if a clock was set back
        raise _held_error("by another client, which has just renewed its lease", record)


def _held_error(holder: str, record: CallRecord) -> JournalError:
    return JournalError(
        f"the call of message {record.message_id} is held {holder}",
        reason="held",
        message_id=record.message_id,
        held_until=utc(record.lease_until),
    )


def _not_free_error(deadline: Deadline, record: CallRecord) -> DeadlineExceededError:
    call = f"the call of message {record.message_id} is held until {shown(record.lease_until)}"
    error = deadline_error(f"{call}, and was not free", deadline)
    if record.state is not None:
        error.executed = True
        note_task(error, None, record.task_id)
    return error
