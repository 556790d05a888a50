"""What a client writes down of its calls.

Rules:
- A call is written down, durably, before a byte of it leaves; where that fails, nothing is sent.
- From then on the journal costs nobody an answer, whatever it raises and however long it is
  silent: what cannot be written is logged, and the call stays without an outcome, to be looked
  after later.
- Who works on a call holds it, and renews that in time. One that was held up for so long that
  somebody else has taken it over stops. A call that is dropped is renewed no more.
- Whether a lease is a dead program's is clear when it is over, or is renewed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

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
from holdfast.runtime.waiting import Endable, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from holdfast.model.requests import SendMessageRequest
    from holdfast.model.types import TaskState
    from holdfast.policy.deadline import Deadline
    from holdfast.runtime.env import Env

__all__ = ["HeldCall", "Journaling", "digest_of", "outcome_of"]

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("holdfast")

_RENEWALS = 3
"""How often a lease is renewed while it lasts."""

_LOOK = 1.0
"""Seconds between two looks at a call that somebody else holds."""

_TAKING = 60.0
"""Seconds that a journal has to write a call down, or to tell of calls, if nobody says less."""

_NOTING = 5.0
"""Seconds that it has to take in what is new about a call, at most."""

_SHARE = 4
"""Which part of the time that a call has left may go into that."""

_LAST = 1.0
"""Seconds that it has for that in any case, though the time of the call is over."""

_HANGING = 0.25
"""Seconds that it has where it did not answer the last time."""

_GIVING_UP = 8.0
"""Seconds that a client which is closed waits for what was given up before."""

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
        self._is_closed = False

    async def begin(
        self,
        request: SendMessageRequest,
        deadline: Deadline,
        *,
        is_own_context: bool = False,
        label: str | None = None,
    ) -> HeldCall:
        """Writes a call down that begins, and holds it.

        Who is cancelled meanwhile, as by the deadline, has begun nothing.

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
            digest=None if label is None else digest_of(message),
            lease_until=now + self.journal.lease,
        )

        async def begin() -> CallRecord:
            await _said(self.journal.begin, record)
            return record

        given_up = RecordUpdate(
            outcome="not_sent", detail="it was given up while it was written down"
        )
        leases = self._leases.here()
        try:
            record = await _in_time(leases.taken(begin(), lambda: given_up))
        except JournalError as error:
            error.executed = False
            raise
        return HeldCall(record, self._env, leases, deadline)

    async def claim(self, message_id: str, deadline: Deadline) -> HeldCall:
        """Takes over a call that nobody holds: see `check_free` and `until_free`.

        Raises:
            JournalError: Somebody holds it, or it is over.
            DeadlineExceededError: It was not taken over in time.
        """
        now = self._env.wall()
        lease_until = now + self.journal.lease
        claim = _said(self.journal.claim, message_id, now=now, lease_until=lease_until)
        leases = self._leases.here()
        record = await self._until(
            deadline,
            leases.taken(claim, lambda: RecordUpdate(lease_until=self._env.wall())),
            f"the call of message {message_id} was not taken over",
        )
        return HeldCall(record, self._env, leases, deadline)

    async def check_free(self, message_id: str, deadline: Deadline) -> None:
        """Raises a `JournalError` if somebody holds a call, or may: see `until_free`."""
        self._check_open()
        record = await self._found(message_id, deadline)
        if record.outcome is None and record.lease_until > self._env.wall():
            self._check_holder(record, record)
            text = (
                f"the call of message {message_id} is held by another client, or was by one that "
                f"died: that is clear at {_utc(record.lease_until)}"
            )
            raise JournalError(text)

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
        while record.outcome is None and record.lease_until > self._env.wall():
            if not outlasts:
                self._check_holder(first, record)
            held = record.lease_until - self._env.wall()
            await asyncio.sleep(max(0.0, min(held, deadline.left(clock()), _LOOK)))
            if deadline.left(clock()) <= 0:
                call = f"the call of message {message_id} is held until {_utc(record.lease_until)}"
                raise _overdue(f"{call}, and was not free", deadline, record)
            record = await self._found(message_id, deadline)
        return record

    def _check_holder(self, first: CallRecord, record: CallRecord) -> None:
        """Raises a `JournalError` where it is clear that who holds a call is alive."""
        call, now = f"the call of message {record.message_id} is held by", self._env.wall()
        if self._leases.here().has(record.message_id):
            text = f"{call} this client, which works on it already"
        elif record.generation != first.generation:
            text = f"{call} another client, which took it over at {_utc(now)}"
        elif record.lease_until > first.lease_until:
            text = f"{call} another client, which renewed it at {_utc(now)}"
        else:
            return
        raise JournalError(text)

    async def unfinished(self) -> list[CallRecord]:
        """The calls to this agent that have no outcome, oldest first.

        Raises:
            JournalError: The journal cannot be read.
            RuntimeError: The client is closed.
        """
        self._check_open()
        return await _in_time(_said(self.journal.unfinished, self.agent))

    async def labelled(self, labels: Iterable[str]) -> dict[str, CallRecord]:
        """The newest call to this agent of each of these labels that has one, open or over.

        Raises:
            JournalError: The journal cannot be read.
            RuntimeError: The client is closed.
        """
        self._check_open()
        return await _in_time(_said(self.journal.labelled, self.agent, labels))

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
        finding = _said(self.journal.find, message_id)
        call = f"the call of message {message_id}"
        record = await self._until(deadline, finding, f"{call} was not looked up")
        if record is None:
            text = f"{call} is not in the journal"
            raise JournalError(text)
        return record

    async def _until(self, deadline: Deadline, work: Awaitable[T], what: str) -> T:
        """Waits for the journal; ``what`` has not come about when the time of the call is over."""
        return await until(deadline.at, _in_time(work), lambda: _overdue(what, deadline))


class HeldCall:
    """A call that is written down, and that nobody else works on.

    Its lease is renewed as long as there is this object.

    Attributes:
        record: As it was written down.
    """

    def __init__(self, record: CallRecord, env: Env, leases: _Leases, deadline: Deadline) -> None:
        self.record = record
        self._env = env
        self._leases = leases
        self._deadline = deadline
        self._working = Endable()
        self._taken_by = ""
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
            f"the call of message {self.record.message_id} was taken over by {self._taken_by}, "
            "after its lease had not been renewed in time; it goes on there"
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

    def take_away(self, by: str) -> None:
        """Ends the work on it, as somebody else holds it now."""
        self._is_over = True
        self._taken_by = by
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
        record, leases = self.record, self._leases
        try:
            is_ours = await leases.update(record, update, self._deadline.at)
        except JournalError as error:
            logger.warning("message %s: %s", record.message_id, error)
        else:
            if not is_ours:
                self.take_away("another client")


class _Leases:
    """The calls that are held in one event loop, and the task that renews their leases.

    A call that nobody else knows any more, as of a stream that was dropped, is not among them.
    """

    def __init__(self, journal: Journal, env: Env) -> None:
        self.journal = journal
        self._env = env
        self._calls: WeakValueDictionary[str, HeldCall] = WeakValueDictionary()
        self._renewing: asyncio.Task[None] | None = None
        self._looked = 0.0
        self._hangs = False
        self._giving_up: set[asyncio.Task[None]] = set()

    @property
    def is_stale(self) -> bool:
        """Whether the leases may be over: the program was held up."""
        return asyncio.get_running_loop().time() - self._looked >= self.journal.lease

    def has(self, message_id: str) -> bool:
        """Whether a call is held here."""
        return message_id in self._calls

    def add(self, call: HeldCall) -> None:
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
                await self.update(record, give_up(), math.inf)

        updating = asyncio.get_running_loop().create_task(
            update(), name="holdfast: gives a call up"
        )
        self._giving_up.add(updating)
        updating.add_done_callback(self._giving_up.discard)

    async def close(self) -> None:
        released = [call.release() for call in list(self._calls.values())]
        await asyncio.gather(*released)
        if self._giving_up:
            _, late = await asyncio.wait(self._giving_up, timeout=_GIVING_UP)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def update(self, record: CallRecord, update: RecordUpdate, at: float) -> bool:
        """Adds to a record, unless the journal is silent for longer than an answer can wait.

        Args:
            record: The call.
            update: What is new about it.
            at: When the time of the call is over.

        Raises:
            JournalError: It cannot be written, or was not in time.
        """
        now = asyncio.get_running_loop().time()
        seconds = _HANGING if self._hangs else min(_NOTING, max(_LAST, (at - now) / _SHARE))

        def too_late() -> JournalError:
            self._hangs = True
            return _silent(seconds)

        updating = _said(self.journal.update, record.message_id, record.generation, update)
        is_ours = await until(now + seconds, updating, too_late)
        self._hangs = False
        return is_ours

    async def renew(self) -> None:
        """Renews all leases, and tells the calls whose lease was taken."""
        loop, lease = asyncio.get_running_loop(), self.journal.lease
        held = {name: call.record.generation for name, call in self._calls.items()}
        began = loop.time()
        renewal = _said(self.journal.renew, [*held.items()], self._env.wall() + lease)
        try:
            ours = await _in_time(renewal, lease / _RENEWALS)
        except JournalError as error:
            logger.warning("the leases of %d calls were not renewed: %s", len(held), error)
            self._looked = loop.time()  # not to be asked again by each of them
            return
        self._looked = began
        for name in held.keys() - ours:
            if (call := self._calls.get(name)) is not None:
                call.take_away("another client")

    async def _renew_in_time(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while self._calls:
                await asyncio.sleep(self.journal.lease / _RENEWALS)
                if self._calls:
                    await self.renew()
            self._renewing = None


async def _said(method: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a journal says; whatever it raises is a `JournalError`."""
    try:
        return await method(*args, **kwargs)
    except JournalError:
        raise
    except Exception as error:
        text = f"the journal has failed: {type(error).__name__}: {error}"
        raise JournalError(text) from error


async def _in_time(work: Awaitable[T], seconds: float = _TAKING) -> T:
    """Waits for a journal no longer than some seconds."""
    at = asyncio.get_running_loop().time() + seconds
    return await until(at, work, lambda: _silent(seconds))


def _silent(seconds: float) -> JournalError:
    return JournalError(f"the journal has not answered within {seconds:.3g} s")


def _overdue(
    what: str, deadline: Deadline, record: CallRecord | None = None
) -> DeadlineExceededError:
    return DeadlineExceededError(
        f"{what} within the {deadline.name} timeout of {deadline.timeout:g} s",
        deadline=deadline.name,
        timeout=deadline.timeout,
        executed=None if record is None or record.state is None else True,
    )


def _utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


async def _nothing() -> None:
    """Does nothing."""
