"""The seam of journals: what is written down of a call, so that no crash loses it.

A `CallRecord` is there, and durable, before the first byte of its message leaves; it is finished
when the call has an outcome. Whoever works on a call holds a lease of it, which has to be renewed:
what a process leaves behind that died is free when its lease is over. The generation of a record
tells one lease from the next, and whoever writes with an older one is refused.

Times are wall times in seconds since the epoch: they have to mean the same in another process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["NOT_SENT", "CallRecord", "Journal", "Note"]

NOT_SENT = "not sent"
"""How the outcome of a call begins that certainly did not reach the agent."""


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as it is written down.

    Attributes:
        message_id: Of the message that the call sends.
        agent: Where it is sent, as `holdfast.connect` was told.
        began: When the call began.
        context_id: The conversation, where one is known.
        task_id: The task that the message is for or has made, where one is known.
        state: The task's state as last seen, as the protocol writes it; None where none was.
        is_own_context: Whether the context was made for this call, and nobody else has used it.
        request: The message with what goes along, as JSON; None where messages are not stored.
        label: What the caller calls it; None for nothing. To each agent there is at most one call
            of a label that may have been sent.
        outcome: What became of it, in a word or a line; None while that is open.
        result: The task or message that answers it, as JSON; None where it is not stored.
        generation: Number of the lease.
        lease_until: When the lease is over.
    """

    message_id: str
    agent: str
    began: float
    context_id: str | None = None
    task_id: str | None = None
    state: str | None = None
    is_own_context: bool = False
    request: str | None = None
    label: str | None = None
    outcome: str | None = None
    result: str | None = None
    generation: int = 1
    lease_until: float = 0.0


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What is new about a call; None for what is not.

    Attributes:
        context_id: The conversation.
        task_id: The task.
        state: The task's state, as the protocol writes it.
        outcome: What became of the call; it is over with that.
        result: The answer, as JSON.
        lease_until: When the lease is over; the present time lets go of the call.
    """

    context_id: str | None = None
    task_id: str | None = None
    state: str | None = None
    outcome: str | None = None
    result: str | None = None
    lease_until: float | None = None


class Journal(Protocol):
    """Keeps the records of calls. What a method has returned from survives a crash."""

    @property
    def stores_messages(self) -> bool:
        """Whether records get a `CallRecord.request` and a `CallRecord.result`."""
        ...

    @property
    def lease(self) -> float:
        """Seconds for which a call is held; it is renewed after a third of that."""
        ...

    async def begin(self, record: CallRecord, /) -> None:
        """Writes a call down that begins, in place of one of that message that was `NOT_SENT`.

        Raises:
            JournalError: It cannot be written; or a call of that message, or to that agent with
                that label, is written down already that may have been sent.
        """
        ...

    async def note(self, message_id: str, generation: int, note: Note, /) -> bool:
        """Adds to a record; False if the lease has gone to somebody else, or the call is over.

        Raises:
            JournalError: It cannot be written.
        """
        ...

    async def renew(self, held: Sequence[tuple[str, int]], lease_until: float, /) -> set[str]:
        """Renews leases, by message id and generation; gives the message ids of those that hold.

        Raises:
            JournalError: It cannot be written.
        """
        ...

    async def claim(self, message_id: str, /, *, now: float, lease_until: float) -> CallRecord:
        """Takes a lease of a call that nobody holds.

        Raises:
            JournalError: Somebody holds it, it is over, or it is not there.
        """
        ...

    async def unfinished(self, agent: str | None = None, /) -> list[CallRecord]:
        """The calls without an outcome, oldest first; of one agent, or of all.

        Raises:
            JournalError: It cannot be read.
        """
        ...

    async def labelled(self, agent: str, labels: Iterable[str], /) -> dict[str, CallRecord]:
        """The newest record to this agent of each of these labels that has one.

        Raises:
            JournalError: It cannot be read.
        """
        ...

    async def close(self) -> None:
        """Writes what is still to be written, and lets go of everything."""
        ...
