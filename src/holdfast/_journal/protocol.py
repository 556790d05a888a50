"""The seam of journals: what is written down of a call, so that no crash loses it.

A `CallRecord` is there, and durable, before the first byte of its message leaves; it is finished
when the call has a `CallOutcome`. Whoever works on a call holds a lease of it, which has to be
renewed: what a process leaves behind that died is free when its lease is over. The generation of a
record tells one lease from the next, and whoever writes with an older one is refused.

Times are wall times in seconds since the epoch: they have to mean the same in another process.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec

from holdfast._model import codec
from holdfast.errors import CallOutcome, JournalError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CallRecord",
    "Journal",
    "RecordUpdate",
    "RepairableJournal",
    "TokenJournal",
    "TokenUse",
    "damaged",
    "lease_end",
    "shown",
    "stored",
    "utc",
]

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH).total_seconds()
_LAST = (datetime.max.replace(tzinfo=UTC, microsecond=0) - _EPOCH).total_seconds()


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as it is written down; times are wall times in seconds since the epoch.

    Attributes:
        message_id: Id of the message that the call sends; there is one record of it.
        agent: Where it is sent: one name for all that lead there. What may be secret in an address
            is not in it, so it is to be compared, and not always to be called.
        began: When the call began, as the clock was then, which may have been set since.
        context_id: The conversation, where one is known.
        task_id: The task that the message is for or has made, where one is known.
        state: The task's state as last seen, as the protocol writes it; None where none was.
        is_own_context: Whether the context was made for this call, and nobody else has used it.
        request: The `SendMessageRequest` that was to be sent, as the JSON of protocol 1.0; None
            where messages are not stored.
        label: What the caller calls it; None for nothing. There is at most one call of a label
            that may have been sent, whatever the agent is called. A run calls its messages by its
            own name and their keys, and knows by the labels what it has sent.
        digest: Of all that the caller's message says but its own id, in 16 hexadecimal digits;
            there where a label is.
        outcome: What became of it: see `CallOutcome`; None while that is open.
        detail: More of that, in a line for people; without what was said where messages are not
            stored.
        result: The `Task` or `Message` that answers it, as the JSON of protocol 1.0: a message
            where there is no ``state``. None where it is not stored.
        generation: Number of the lease, from 1 on.
        lease_until: When the lease is over; nobody holds the call from then on.
        damage: Why the record could not be read whole; None where it was. Only
            `Journal.unfinished` gives such a record: members that could not be read have their
            defaults, ``began`` is 0 then, and texts without a default are empty. Not stored.

    Raises:
        ValueError: A time is not within the years 1 to 9999, as in a damaged record.
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
    digest: str | None = None
    outcome: CallOutcome | None = None
    detail: str | None = None
    result: str | None = None
    generation: int = 1
    lease_until: float = 0.0
    damage: str | None = None

    def __post_init__(self) -> None:
        for seconds in (self.began, self.lease_until):
            if not _FIRST <= seconds <= _LAST:
                text = f"{seconds} is not a time in the years 1 to 9999"
                raise ValueError(text)


class RecordUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What is new about a call; None for what is not.

    Attributes:
        context_id: The conversation.
        task_id: The task that the message has made.
        state: The task's state, as the protocol writes it.
        outcome: What became of the call; it is over with that.
        detail: More of that, in a line for people.
        result: The answer: see `CallRecord.result`.
        lease_until: When the lease is over, in seconds since the epoch; 0 releases the call,
            wherever clocks are set to.
    """

    context_id: str | None = None
    task_id: str | None = None
    state: str | None = None
    outcome: CallOutcome | None = None
    detail: str | None = None
    result: str | None = None
    lease_until: float | None = None


class Journal(Protocol):
    """Keeps the records of calls, for all processes that use it at the same time.

    Whoever writes another one than `SqliteJournal` keeps these rules, which
    `holdfast.testing.check_journal` checks:

    - What a method has returned from survives a crash of the program, and of the machine.
    - Each method is one step: of two processes that do the same at once, one comes first, and the
      other finds what that one has left.
    - A record is open as long as its ``outcome`` is None. Only `begin` writes one that is over,
      and only in place of one that is ``"not_sent"``.
    - A record is written only by who names its generation, which `claim` makes one more of.
    - A record that is open stays, and so does one that has a label. Others may be forgotten.
    - A method may be cancelled, and what it was to do may come about all the same, as a whole.
    - What goes wrong is a `JournalError` whose ``reason`` says what. Whatever else is raised
      counts as one of ``"unusable"``, and so does silence that lasts longer than a call can wait.

    A journal may be used in several event loops, and may be shared by several clients. It is told
    the time, in seconds since the epoch, and looks at no clock.
    """

    @property
    def stores_messages(self) -> bool:
        """Whether records get a `CallRecord.request` and a `CallRecord.result`."""
        ...

    @property
    def lease(self) -> float:
        """Seconds for which a call is held, more than 0; it is renewed after a third of that."""
        ...

    async def begin(self, record: CallRecord, /) -> None:
        """Writes a call down that begins, in place of one of that message that was not sent.

        Raises:
            JournalError: It cannot be written (``"unusable"``); or a call of that message, or with
                that label to whichever agent, is written down already, with another outcome than
                ``"not_sent"`` (``"exists"``; ``message_id`` is that call's).
        """
        ...

    async def update(self, message_id: str, generation: int, update: RecordUpdate, /) -> bool:
        """Adds to a record that is open and of that generation; what is None stays as it was.

        Returns:
            Whether there is such a record. If not, the call is over, or somebody else's.

        Raises:
            JournalError: It cannot be written.
        """
        ...

    async def renew(self, held: Sequence[tuple[str, int]], lease_until: float, /) -> set[str]:
        """Puts off the end of leases.

        Args:
            held: Message ids, each with its generation.
            lease_until: When the leases are over, in seconds since the epoch.

        Returns:
            The ids of those whose records are open and of that generation.

        Raises:
            JournalError: It cannot be written.
        """
        ...

    async def claim(self, message_id: str, /, *, now: float, lease_until: float) -> CallRecord:
        """Takes a lease of a call that is open, and whose lease is over by ``now``.

        Args:
            message_id: Whose call.
            now: The present time, in seconds since the epoch.
            lease_until: When the new lease is over, likewise.

        Returns:
            The record, with a generation that is one more than it was.

        Raises:
            JournalError: Somebody holds it (``"held"``, with ``held_until``), it is ``"over"``, or
                it is not there (``"missing"``); or it cannot be written (``"unusable"``).
        """
        ...

    async def find(self, message_id: str, /) -> CallRecord | None:
        """The record of a call, open or over; None where there is none.

        Raises:
            JournalError: It cannot be read.
        """
        ...

    async def unfinished(self, agent: str | None = None, /) -> list[CallRecord]:
        """The calls without an outcome, oldest first; of one agent, or of all if None.

        A record that is damaged is among them, and says so: see `CallRecord.damage`.

        Raises:
            JournalError: It cannot be read.
        """
        ...

    async def find_label(self, label: str, /) -> CallRecord | None:
        """The record of a label, open or over, to whichever agent; None where there is none.

        Of several it is the one that may have been sent; where there is none, the newest.

        Raises:
            JournalError: It cannot be read.
        """
        ...

    async def close(self) -> None:
        """Writes what is still to be written, and lets go of everything. Can be called twice."""
        ...


@runtime_checkable
class RepairableJournal(Protocol):
    """A journal that can forget records which it cannot read: see `PendingCall.forget`."""

    async def forget_damaged(self, message_id: str, /) -> bool:
        """Record that the outcome of a damaged call is not needed: it is ``"forgotten"``.

        Args:
            message_id: The message of the call; of records whose message id cannot be read, "".

        Returns:
            Whether there was such a record.

        Raises:
            JournalError: It cannot be written.
        """
        ...


class TokenUse(NamedTuple):
    """What a signed token was used for.

    Attributes:
        body: Digest of the body that it vouched for.
        receiver: Id of the receiver that took it.
    """

    body: bytes
    receiver: str


class TokenJournal(Protocol):
    """Records which signed tokens were used, for all receivers that share it; see `PushReceiver`.

    What a method has returned survives a crash, and each method is one step.
    """

    async def use_token(
        self, name: bytes, use: TokenUse, /, *, now: float, ends: float, most: int
    ) -> TokenUse | None:
        """Records the use of a token, unless one is recorded already.

        Args:
            name: What the token is known by.
            use: What it is used for.
            now: The present time, in seconds since the epoch; what ended before is forgotten.
            ends: When the token counts no more, likewise.
            most: How many uses are kept at once.

        Returns:
            The use that is recorded, this one or the one before; None if there are too many.

        Raises:
            JournalError: It cannot be written.
        """
        ...

    async def close(self) -> None:
        """Writes what is still to be written, and lets go of everything. Can be called twice."""
        ...


def utc(seconds: float) -> datetime:
    """A time of a record, which is in seconds since the epoch."""
    return _EPOCH + timedelta(seconds=seconds)


def shown(seconds: float) -> str:
    """The same for people, to the second."""
    return f"{utc(seconds):%Y-%m-%dT%H:%M:%SZ}"


def lease_end(now: float, lease: float) -> float:
    """When a lease ends that begins now; a longer one than there are dates ends with the last."""
    return min(now + lease, _LAST)


def damaged(message_id: str, why: object) -> JournalError:
    """Return the error of a record that cannot be read."""
    text = f"the journal's record of message {message_id} is damaged: {why}"
    return JournalError(text, reason="damaged", message_id=message_id)


def stored(text: str, kind: type[T], message_id: str) -> T:
    """Decode what a record stores of a message or an answer.

    Raises:
        JournalError: It is ``"damaged"``.
    """
    try:
        return codec.decode(text.encode(), kind)
    except (codec.MalformedError, UnicodeEncodeError) as error:
        raise damaged(message_id, error) from error
