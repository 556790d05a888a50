"""Calls with keys: the message of a key is executed at most once, by all processes together.

A key is a name that the caller gives to a call, in a journal. What sending a message of a key does
depends on the call that the journal has for the key:

| The recorded call | What happens |
|---|---|
| none, or it was not sent | the message is sent |
| of another message, or to another agent | `KeyConflictError` |
| open, held by a live client | wait for the end of that call |
| open, of a crashed client | resume it, without sending its message again |
| answered | the recorded answer, or the task's present state |
| unknown | the same `OutcomeUnknownError` |
| refused, duplicated or forgotten | `CallEndedError` |

`Client.run` sends its messages in the same way, with keys that belong to a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from holdfast._aio.cancel_scope import wait_until
from holdfast._client.event_stream import EventStream
from holdfast._client.pending import resume
from holdfast._client.streams import StreamCalls
from holdfast._journal.protocol import stored
from holdfast._journal.records import explain_missing_task, label_of, owner_of
from holdfast._model.digest import message_digest
from holdfast.errors import (
    A2AError,
    CallEndedError,
    DeadlineExceededError,
    JournalError,
    KeyConflictError,
    OutcomeUnknownError,
    TaskNotFoundError,
)
from holdfast.types import Message, Task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._client.call_scope import CallScope
    from holdfast._client.core import ClientCore
    from holdfast._journal.protocol import CallRecord
    from holdfast._journal.writer import Journaling
    from holdfast._policy.deadline import Deadline
    from holdfast._stream.resumable import ResumableStream
    from holdfast.errors import CallOutcome

__all__ = ["KeySpace", "KeyedCall"]

T = TypeVar("T")

_CONTINUES_ELSEWHERE = frozenset({"exists", "held", "finished", "taken_over"})
"""Reasons of a `JournalError` if another client has, or had, the call of the key meanwhile."""


class KeySpace:
    """The keys of a journal, or those of one run.

    Args:
        core: Makes the requests.
        journaling: The journal.
        run_id: The run that the keys belong to; None for keys that the caller chose for the
            whole journal.

    Attributes:
        held: Number of messages that wait for another holder of their call, which may have
            crashed.
    """

    def __init__(self, core: ClientCore, journaling: Journaling, run_id: str | None) -> None:
        self.core = core
        self.journaling = journaling
        self._run_id = run_id
        self.held = 0

    def call(self, key: str) -> KeyedCall:
        """Return the call of a key."""
        return KeyedCall(self, key, label_of(self._run_id or "", key))

    def conflict(self, key: str, record: CallRecord, message: Message) -> KeyConflictError | None:
        """Return the error of a key that was used for another call; None if it was not.

        The messages of a run may continue at an agent of other addresses.
        """
        is_of_run = self._run_id is not None
        if record.digest not in {None, message_digest(message)}:
            used_for = f"another message ({record.message_id})"
        elif not is_of_run and not self.journaling.is_own(record):
            used_for = f"message {record.message_id} to another agent, {record.agent}"
        else:
            return None
        where, advice = " in this run", ", or another run_id"
        return KeyConflictError(
            f"the key {key!r} was used{where if is_of_run else ''} for {used_for}; this message "
            f"was not sent: pass another key{advice if is_of_run else ''}",
            key=key,
            message_id=record.message_id,
            executed=False,
        )


class KeyedCall:
    """The call of a key.

    Attributes:
        label: The label of the call in the journal.
        earlier: The call that the journal had for the key already; None if there was none.
    """

    def __init__(self, keys: KeySpace, key: str, label: str) -> None:
        self.label = label
        self.earlier: EarlierCall | None = None
        self._keys = keys
        self._key = key

    async def was_sent(self) -> bool:
        """Return whether the message was sent before, or may have been; False if unknown."""
        try:
            record = await self._keys.journaling.find_label(self.label)
        except JournalError:
            return False
        return record is not None and record.outcome != "not_sent"

    async def once(
        self,
        message: Message,
        deadline: Deadline,
        *,
        send: Callable[[], Awaitable[T]],
        earlier: Callable[[EarlierCall], Awaitable[T | None]],
    ) -> T:
        """Return the result of the earlier call of the key; if there is none, send the message.

        Args:
            message: The message.
            deadline: The deadline of the call.
            send: Sends the message.
            earlier: Returns the result of the earlier call; None if that was not sent.

        Raises:
            KeyConflictError: The key was used for another call, which may have been sent.
            JournalError: The journal cannot be used.
            DeadlineExceededError: The journal was not read in time, or the earlier call has not
                ended in time.
        """
        refusal: JournalError | None = None
        while True:
            self.earlier = await self._find(message, deadline)
            if refusal is not None and refusal.reason == "exists" and self.earlier is None:
                raise refusal  # of a message that was recorded without the key
            refusal = None
            try:
                if self.earlier is None:
                    return await send()
                result = await earlier(self.earlier)
            except JournalError as error:
                if error.reason not in _CONTINUES_ELSEWHERE:
                    raise
                refusal = error  # another client began, continued or finished the call
            else:
                if result is not None:
                    return result

    async def _find(self, message: Message, deadline: Deadline) -> EarlierCall | None:
        keys, key = self._keys, self._key

        def too_late() -> DeadlineExceededError:
            return DeadlineExceededError(
                f"the journal did not return the key {key!r} within the {deadline.name} timeout "
                f"of {deadline.shown}",
                deadline=deadline.name,
                timeout=deadline.timeout,
            )

        finding = keys.journaling.find_label(self.label)
        record = await wait_until(deadline.at, finding, too_late)
        if record is None or record.outcome == "not_sent":
            return None
        conflict = keys.conflict(key, record, message)
        if conflict is not None:
            raise conflict
        return EarlierCall(keys, record, message)


class EarlierCall:
    """A call whose message was sent before, or may have been sent."""

    def __init__(self, keys: KeySpace, record: CallRecord, message: Message) -> None:
        self._keys = keys
        self._core = keys.core
        self._journaling = keys.journaling
        self._record = record
        self._message = message

    @property
    def agent(self) -> str:
        """The name in the journal of the agent that it was sent to."""
        return self._record.agent

    async def events(self, streams: StreamCalls) -> ResumableStream | None:
        """Begin the events of the call, whichever client finishes it; None if it was not sent.

        Args:
            streams: Makes the requests of the stream, within its deadline.

        Raises:
            CallEndedError: The call has ended, and its answer is not stored.
            JournalError: Another client has continued the call meanwhile.
            A2AError: Another reason for no answer.
        """
        record = self._record
        if record.outcome is None:
            self._keys.held += 1
            try:
                record = await self._journaling.wait_until_free(
                    record.message_id, streams.deadline, waits_for_holder=True
                )
            finally:
                self._keys.held -= 1
            if record.outcome is None:
                return await resume(record, self._journaling, streams, message=self._message)
        if record.outcome == "not_sent":
            return None
        result = await self._result(record, record.outcome, streams.scope)
        if isinstance(result, Message) or result.state.is_settled:
            return streams.answered(result)
        # The task works again, because its question was answered.
        owner = owner_of(record, self._message)
        return await streams.subscribe_to(result.id, owner=owner)()

    async def result(self, scope: CallScope) -> Task | Message | None:
        """Return the result of the call as SendMessage does; None if it was not sent."""
        streams = StreamCalls(self._core, scope, poll_interval=_POLL_INTERVAL_S)
        source = await self.events(streams)
        if source is None:
            return None

        async def begin() -> ResumableStream:
            return source

        async with EventStream(streams, begin) as events:
            async for _ in events:
                pass
            return source.outbox.task or source.outbox.message

    async def _result(
        self, record: CallRecord, outcome: CallOutcome, scope: CallScope
    ) -> Task | Message:
        """Return the answer of a finished call; a question may have been answered since."""
        if outcome == "unknown":
            raise OutcomeUnknownError(
                f"the outcome of message {record.message_id} is unknown, as an earlier call of "
                "its key reported; it was not sent again",
                message_id=record.message_id,
                context_id=record.context_id,
            )
        was_answered = outcome == "answered"
        recorded: Message | Task | None = None
        if was_answered and record.result is not None:
            kind: type[Message | Task] = Message if record.state is None else Task
            recorded = stored(record.result, kind, record.message_id)
            if isinstance(recorded, Message) or recorded.state.is_terminal:
                return recorded
        if was_answered and record.state is not None and record.task_id is not None:
            try:
                task = await self._task(record, record.task_id, scope)
            except TaskNotFoundError:
                if recorded is None:
                    raise
                return recorded
            if task is not None:
                return task
        if recorded is not None:
            return recorded
        detail = "" if record.detail is None else f" ({record.detail})"
        target = "" if self._journaling.is_own(record) else f" to {record.agent}"
        raise CallEndedError(
            f"the call of message {record.message_id}{target} has already ended: "
            f"{outcome}{detail}, but its answer is not stored; it was not sent again",
            message_id=record.message_id,
            outcome=outcome,
            detail=record.detail,
            executed=True if was_answered else None,
        )

    async def _task(self, record: CallRecord, task_id: str, scope: CallScope) -> Task | None:
        """Return the task that answered a call; None if the call went to another agent."""
        is_here = self._journaling.is_own(record)
        try:
            task = await self._core.get_task(task_id, scope)
            owner = owner_of(record, self._message)
            await self._journaling.note_later(owner, task)
            owner.check(task)
        except A2AError as error:
            if isinstance(error, TaskNotFoundError):
                if not is_here:
                    return None
                explain_missing_task(error, record, self._journaling.agent)
            error.executed = True  # the message was executed, even if this request failed
            raise
        return task if is_here or task.context_id == record.context_id else None


_POLL_INTERVAL_S = 2.0
"""Seconds between two polls of a task for SendMessage."""
