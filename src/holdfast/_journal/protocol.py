"""The journal protocol: the durable record of a call, which survives a crash.

A `CallRecord` is durable before the first byte of its message is sent, and has a `CallOutcome`
when the call has ended. A call with the outcome ``"unknown"`` is still pending: a client may claim
it, to search once more. A client that works on a call holds its lease, and renews it: a call of a
crashed process is free when its lease ends. The generation of a record identifies the lease; a
write with an older generation is refused.

The clock of a journal's store decides when a lease ends, because the clocks of several machines
differ: methods take no times, and return what is left of a lease.
"""

from __future__ import annotations

import re
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
    "already_recorded",
    "damaged",
    "lease_end",
    "refused_claim",
    "shown",
    "stored",
    "utc",
    "valid_traceparent",
]

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_TIME_S = (datetime.min.replace(tzinfo=UTC) - _EPOCH).total_seconds()
_MAX_TIME_S = (datetime.max.replace(tzinfo=UTC, microsecond=0) - _EPOCH).total_seconds()

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII
)
"""A ``traceparent`` of W3C Trace Context, as version 00 defines it."""


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one call; times are the store's, in seconds since the epoch.

    Attributes:
        message_id: Id of the message that the call sends; each message has one record.
        agent: The agent's name, the same for all spellings of its address; for replicas, the names
            of all of them, sorted and separated by spaces. A client finds the calls whose name has
            an address in common with its own. The name omits the parts of an address that may be
            secret, so it is not always a usable address.
        began: When `Journal.begin` recorded the call, by the store's clock, which may have been
            set since. It is set by the journal.
        context_id: The context of the conversation; None if unknown.
        task_id: The task that the message belongs to or has created; None if unknown.
        state: The last known state of the task, as the protocol writes it; None if unknown.
        is_own_context: Whether the context was created for this call and used by no other.
        request: The `SendMessageRequest`, as the JSON of protocol 1.0; None if messages are not
            stored.
        label: The caller's name for the call; None if it has none. At most one call of a label
            may have been sent, to any agent. A run labels its messages with its own name and
            their keys, and recognizes by the labels which ones it has sent.
        digest: Digest of the caller's message without its id, in 16 hexadecimal digits; set with
            a label.
        outcome: The outcome of the call, one of `CallOutcome`; None while the call is open.
        detail: Details of the outcome, in one line for people; without content of messages if
            messages are not stored.
        result: The `Task` or `Message` that answers the call, as the JSON of protocol 1.0: a
            message if there is no ``state``. None if it is not stored.
        generation: Number of the lease, from 1.
        lease_until: End of the lease, by the store's clock. It is set by the journal, and moves
            whenever the holder renews the lease.
        lease_left: Seconds that were left of the lease when the record was read; 0 if the call has
            no holder. It is not stored.
        damage: Reason why the record could not be read completely; None if it could. Only
            `Journal.unfinished` returns such records: unreadable members have their defaults,
            ``began`` is 0, and texts without a default are empty. It is not stored.
        traceparent: The span in which the call was recorded, as the ``traceparent`` of W3C Trace
            Context, so that a resume is linked to it; None if the client had no telemetry, or no
            span was current. A journal that does not store it returns None.

    Raises:
        ValueError: A time is outside the years 1 to 9999, as in a damaged record.
    """

    message_id: str
    agent: str
    began: float = 0.0
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
    lease_left: float = 0.0
    damage: str | None = None
    traceparent: str | None = None

    def __post_init__(self) -> None:
        for seconds in (self.began, self.lease_until):
            if not _MIN_TIME_S <= seconds <= _MAX_TIME_S:
                text = f"{seconds} is not a time in the years 1 to 9999"
                raise ValueError(text)


class RecordUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """An update of a record; members that are None stay unchanged.

    Attributes:
        context_id: The context of the conversation.
        task_id: The task that the message has created.
        state: The task's state, as the protocol writes it.
        outcome: The outcome of the call, one of `CallOutcome`; it finishes the record.
        detail: Details of the outcome, in one line for people.
        result: The answer, as in `CallRecord.result`.
        releases: Whether the lease ends now, so that another client may claim the call; False by
            default.
    """

    context_id: str | None = None
    task_id: str | None = None
    state: str | None = None
    outcome: CallOutcome | None = None
    detail: str | None = None
    result: str | None = None
    releases: bool = False


class Journal(Protocol):
    """Stores the records of calls, for all processes that use it concurrently.

    An implementation other than `SqliteJournal` must follow these rules, which
    `holdfast.testing.check_journal` checks:

    - When a method returns, its effect survives a crash of the program and of the machine.
    - Each method is atomic: of two concurrent calls by different processes, one takes effect
      first, and the other finds its result.
    - A record is open as long as its ``outcome`` is None. Only `begin` replaces a record with an
      outcome, and only one whose outcome is ``"not_sent"``; only `claim` opens one again, and only
      one whose outcome is ``"unknown"``.
    - A write must name the record's generation, which `claim` increases by one.
    - Open records, those whose outcome is ``"unknown"``, and those with a label are kept. Others
      may be deleted.
    - A method may be cancelled; its effect may occur nevertheless, but only as a whole.
    - An error is a `JournalError` whose ``reason`` is its kind. Another exception counts as
      ``"unusable"``, and so does a journal that does not answer within the time of a call.
    - One clock, that of the store, measures the leases of all processes that share the journal.

    A journal may be used in several event loops and shared by several clients.
    """

    @property
    def stores_messages(self) -> bool:
        """True if records have a `CallRecord.request` and a `CallRecord.result`."""
        ...

    @property
    def lease(self) -> float:
        """Duration of a lease in seconds, more than 0; it is renewed after a third of it."""
        ...

    async def begin(self, record: CallRecord, /) -> CallRecord:
        """Record a new call, replacing a call of the same message that was not sent.

        Args:
            record: The record of the new call; its times are ignored.

        Returns:
            The record as stored, which begins now and has a new lease. If it replaces another one,
            its generation is greater, so that a late write of the earlier holder has no effect.

        Raises:
            JournalError: The record cannot be written (``"unusable"``); or a call of that message,
                or with that label to any agent, is recorded already, with an outcome other than
                ``"not_sent"`` (``"exists"``; ``message_id`` is that call's).
        """
        ...

    async def update(self, message_id: str, generation: int, update: RecordUpdate, /) -> bool:
        """Update an open record of that generation; members that are None stay unchanged.

        Args:
            message_id: The message of the call.
            generation: The generation that the record must have.
            update: The members to change.

        Returns:
            True if there is such a record. If not, the call has ended, or has another holder.

        Raises:
            JournalError: The journal cannot be written.
        """
        ...

    async def renew(self, held: Sequence[tuple[str, int]], /) -> set[str]:
        """Renew leases: they begin again, with their whole duration.

        Args:
            held: Message ids, each with its generation.

        Returns:
            The ids of the messages whose records are open and of that generation.

        Raises:
            JournalError: The journal cannot be written.
        """
        ...

    async def claim(self, message_id: str, /) -> CallRecord:
        """Take the lease of an open call whose lease has ended, or of one with an unknown outcome.

        Args:
            message_id: The message of the call.

        Returns:
            The record, with a new lease, its generation increased by one, and without an unknown
            outcome and its details.

        Raises:
            JournalError: Another holder has the call (``"held"``, with ``held_until``), the call
                has ended (``"finished"``) or is not recorded (``"missing"``); or the record cannot
                be written (``"unusable"``).
        """
        ...

    async def find(self, message_id: str, /) -> CallRecord | None:
        """Return the record of a call, open or finished; None if there is none.

        Args:
            message_id: The message of the call.

        Raises:
            JournalError: The journal cannot be read.
        """
        ...

    async def unfinished(self, agent: str | None = None, /) -> list[CallRecord]:
        """Return the calls without an outcome, or with an unknown one, oldest first.

        Damaged records are included, and marked by `CallRecord.damage`.

        Args:
            agent: Name of an agent, as in `CallRecord.agent`, for the calls whose name has an
                address in common with it: see `is_same_agent`. None, the default, for all agents.

        Raises:
            JournalError: The journal cannot be read.
        """
        ...

    async def find_label(self, label: str, /) -> CallRecord | None:
        """Return the record of a label, open or finished, to any agent; None if there is none.

        Of several records, the record whose message may have been sent; otherwise the newest.

        Args:
            label: The label.

        Raises:
            JournalError: The journal cannot be read.
        """
        ...

    async def close(self) -> None:
        """Write pending updates and free all resources. Can be called twice."""
        ...


@runtime_checkable
class RepairableJournal(Protocol):
    """A journal that can dismiss damaged records: see `PendingCall.dismiss`."""

    async def dismiss_damaged(self, message_id: str, /) -> bool:
        """Record that the outcome of a damaged call is not needed: it is ``"dismissed"``.

        Args:
            message_id: The message of the call; "" for records whose message id cannot be read.

        Returns:
            Whether there was such a record.

        Raises:
            JournalError: The journal cannot be written.
        """
        ...


class TokenUse(NamedTuple):
    """The use of a signed token.

    Attributes:
        body: Digest of the body that it authenticated.
        receiver: Id of the receiver that accepted it.
    """

    body: bytes
    receiver: str


class TokenJournal(Protocol):
    """Records the use of signed tokens, for all `PushReceiver` objects that share it.

    A returned result survives a crash, and each method is atomic.
    """

    async def use_token(
        self, name: bytes, use: TokenUse, /, *, expires_in: float, most: int
    ) -> TokenUse | None:
        """Record the use of a token, unless a use is recorded already.

        Args:
            name: Identifies the token.
            use: Its use.
            expires_in: Seconds until the token expires; uses of expired tokens are deleted.
            most: Largest number of uses to store.

        Returns:
            The recorded use, this one or the earlier one; None if there are too many.

        Raises:
            JournalError: The journal cannot be written.
        """
        ...

    async def close(self) -> None:
        """Write pending updates and free all resources. Can be called twice."""
        ...


def utc(seconds: float) -> datetime:
    """Return a time of a record, in seconds since the epoch, as a `datetime` in UTC."""
    return _EPOCH + timedelta(seconds=seconds)


def shown(seconds: float) -> str:
    """Return a time of a record as text for people, to the second."""
    return f"{utc(seconds):%Y-%m-%dT%H:%M:%SZ}"


def valid_traceparent(value: object) -> str | None:
    """Return a stored ``traceparent``; None if it is malformed, as others may have written it."""
    return value if isinstance(value, str) and _TRACEPARENT.fullmatch(value) else None


def lease_end(now: float, lease: float) -> float:
    """Return when a lease that starts now ends; at the latest at the end of the year 9999."""
    return min(now + lease, _MAX_TIME_S)


def damaged(message_id: str, cause: object) -> JournalError:
    """Return the error of a record that cannot be read."""
    text = f"the journal's record of message {message_id} is damaged: {cause}"
    return JournalError(text, reason="damaged", message_id=message_id)


def already_recorded(
    message_id: str, outcome: object, *, journal: str, label: str | None = None
) -> JournalError:
    """Return the error of a message or label that is recorded already.

    Args:
        message_id: The recorded message.
        outcome: Its outcome; None while it is open.
        journal: The journal, as errors name it.
        label: The label, if that is recorded.
    """
    named = "" if label is None else f"{label}: "
    if outcome is None:
        state = "its call is pending: resume it with Client.resume_pending or holdfast resume"
    elif outcome == "unknown":
        state = (
            "its outcome is unknown: search for its task again with Client.resume_pending or "
            "holdfast resume"
        )
    else:
        state = (
            f"its call is finished ({str(outcome).replace('_', ' ')}): pass another message "
            "id to send it again; Client.run with a run_id returns the answer again"
        )
    text = f"{named}message {message_id} is in the journal {journal} already, and {state}"
    return JournalError(text, reason="exists", message_id=message_id, executed=False)


def refused_claim(message_id: str, record: CallRecord | None, journal: str) -> JournalError:
    """Return the error of a call that cannot be claimed.

    Args:
        message_id: The message of the call.
        record: Its record; None if there is none.
        journal: The journal, as errors name it.
    """
    if record is None:
        text = f"message {message_id} is not in the journal {journal}"
        return JournalError(text, reason="missing", message_id=message_id)
    call = f"the call of message {message_id}"
    if record.outcome is not None:
        detail = f" ({record.detail})" if record.detail else ""
        text = f"{call} has already ended: {record.outcome.replace('_', ' ')}{detail}"
        return JournalError(text, reason="finished", message_id=message_id)
    return JournalError(
        f"{call} is held: its lease ends in {record.lease_left:.3g} s, unless it is renewed",
        reason="held",
        message_id=message_id,
        held_until=utc(record.lease_until),
    )


def stored(text: str, kind: type[T], message_id: str) -> T:
    """Decode the stored message or answer of a record.

    Raises:
        JournalError: The text cannot be decoded (``"damaged"``).
    """
    try:
        return codec.decode(text.encode(), kind)
    except (codec.MalformedError, UnicodeEncodeError) as error:
        raise damaged(message_id, error) from error
