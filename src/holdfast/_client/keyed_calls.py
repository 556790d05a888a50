"""Calls with keys: the message of a key is executed at most once, by all processes together.

A key is a name that the caller gives to a call, in a journal. What happens to a message of a key
depends on the call that the journal has for the key:

| The recorded call | The new call |
|---|---|
| none, or not sent | sends the message |
| of another message or agent | raises `KeyConflictError` |
| open, held by a live client | waits for the end of that call |
| open, of a crashed client | resumes it; if its task is not found, ``on_unknown`` decides |
| answered | returns the recorded answer, or the task as it is now |
| unknown | searches for its task again; if it is not found, ``on_unknown`` decides |
| refused, duplicated, dismissed | raises `CallEndedError` |

docs/pictures/key_states.py draws this table.

`Client.run` sends its messages in the same way, with keys that belong to a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from holdfast._aio.cancel_scope import wait_until
from holdfast._client.event_stream import EventStream
from holdfast._client.pending import resume
from holdfast._client.resend import AFTER_UNKNOWN, wants_search_again
from holdfast._client.sending import returns_immediately
from holdfast._client.streams import StreamCalls
from holdfast._journal.protocol import stored
from holdfast._journal.records import (
    executed_of,
    explain_missing_task,
    label_of,
    owner_of,
    shown_agent,
)
from holdfast._journal.writer import is_held
from holdfast._model.digest import message_digest
from holdfast._policy.deadline import deadline_error
from holdfast.errors import (
    A2AError,
    CallEndedError,
    JournalError,
    KeyConflictError,
    OutcomeUnknownError,
    TaskNotFoundError,
    note_task,
)
from holdfast.types import Message, Task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._client.call_scope import CallScope
    from holdfast._client.core import ClientCore
    from holdfast._client.pending import Resend
    from holdfast._journal.protocol import CallRecord
    from holdfast._journal.writer import Journaling
    from holdfast._policy.deadline import Deadline
    from holdfast._stream.resumable import ResumableStream
    from holdfast.errors import CallOutcome
    from holdfast.types import SendMessageRequest

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
        is_shared: Whether calls that other clients hold or have finished are left to them.

    Attributes:
        held: Number of messages that wait for another holder of their call, which may have
            crashed.
    """

    def __init__(
        self,
        core: ClientCore,
        journaling: Journaling,
        run_id: str | None,
        *,
        is_shared: bool = False,
    ) -> None:
        self.core = core
        self.journaling = journaling
        self.is_shared = is_shared
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
        where, run = (" in this run", ", or another run_id") if is_of_run else ("", "")
        advice, other_agent = f"pass another key{run}", None
        if record.digest not in {None, message_digest(message)}:
            used_for = f"another message ({record.message_id})"
            target = _recorded_target(record, message)
            if target is not None:
                used_for = f"the same content {target} (message {record.message_id})"
                advice = (
                    f"send it {target} to get its result, or pass another key{run} to have it "
                    "executed once more"
                )
        elif not is_of_run and not self.journaling.is_own(record):
            other_agent = record.agent
            used_for = f"message {record.message_id} to another agent, {other_agent}"
            advice = (
                "pass a key of its own for each agent; if the agent has moved, connect to both "
                "addresses"
            )
        else:
            return None
        return KeyConflictError(
            f"the key {key!r} was used{where} for {used_for}; this message was not sent: {advice}",
            key=key,
            message_id=record.message_id,
            other_agent=other_agent,
            executed=False,
        )


class KeyedCall:
    """The call of a key.

    Attributes:
        label: The label of the call in the journal.
        earlier: The call that the journal had for the key already; None if there was none.
        left_as: In a shared run, the state of the call if another client has it: then `once` has
            left it to that client, with a `JournalError`. None if it is this client's.
    """

    def __init__(self, keys: KeySpace, key: str, label: str) -> None:
        self.label = label
        self.earlier: EarlierCall | None = None
        self.left_as: Literal["held", "finished"] | None = None
        self._keys = keys
        self._key = key
        self._message_id: str | None = None  # of the call that this one sends or waits for

    async def was_sent(self) -> bool:
        """Return whether the message was sent before, or may have been; False if unknown."""
        try:
            record = await self._keys.journaling.find_label(self.label)
        except JournalError:
            return False
        return record is not None and record.outcome != "not_sent"

    async def was_message(self, message: Message, deadline: Deadline) -> bool:
        """Return whether the key's call was sent, with this content and these ids, or may be."""
        record = await self._within(deadline, self._keys.journaling.find_label(self.label))
        if record is None or record.outcome == "not_sent":
            return False
        return record.digest == message_digest(message)

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
            JournalError: The journal cannot be used, or the call of a shared run is another
                client's: see `left_as`.
            DeadlineExceededError: The journal was not read in time, or the earlier call has not
                ended in time.
        """
        while True:
            self.earlier = await self._find(message, deadline)
            call = message if self.earlier is None else self.earlier
            self._message_id = call.message_id
            try:
                if self.earlier is None:
                    return await send()
                result = await earlier(self.earlier)
            except JournalError as error:
                if error.reason not in _CONTINUES_ELSEWHERE or (
                    error.reason == "exists" and await self._is_of_another(error, deadline)
                ):
                    raise
                # Another client began, continued or finished the call meanwhile.
            else:
                if result is not None:
                    return result

    def is_taken_over(self, error: JournalError) -> bool:
        """Return whether an error says that another client has taken the call over.

        The messages that reply to an interruption of its task have calls of their own.
        """
        return error.reason == "taken_over" and error.message_id == self._message_id

    async def _is_of_another(self, refusal: JournalError, deadline: Deadline) -> bool:
        """Return whether the message that was refused is recorded without the key."""
        if refusal.message_id is None:
            return True
        finding = self._keys.journaling.find(refusal.message_id)
        record = await self._within(deadline, finding)
        is_free = record is None or record.outcome == "not_sent"  # since the refusal
        return not is_free and record is not None and record.label != self.label

    async def _within(self, deadline: Deadline, reading: Awaitable[T]) -> T:
        """Return what the journal has, within the deadline of the call."""
        failure = f"the journal did not return the key {self._key!r}"
        return await wait_until(deadline.at, reading, lambda: deadline_error(failure, deadline))

    async def _find(self, message: Message, deadline: Deadline) -> EarlierCall | None:
        keys, key = self._keys, self._key
        record = await self._within(deadline, keys.journaling.find_label(self.label))
        if record is None or record.outcome == "not_sent":
            return None
        conflict = keys.conflict(key, record, message)
        if conflict is not None:
            raise conflict
        if keys.is_shared and (record.outcome is not None or is_held(record)):
            reason = self.left_as = "held" if record.outcome is None else "finished"
            text = f"the call of the key {key!r} is {reason}, by another client of the run"
            raise JournalError(text, reason=reason, message_id=record.message_id, executed=False)
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
    def message_id(self) -> str:
        """The id of its message."""
        return self._record.message_id

    @property
    def agent(self) -> str:
        """The name in the journal of the agent that it was sent to."""
        return self._record.agent

    async def events(self, streams: StreamCalls, resend: Resend) -> ResumableStream | None:
        """Begin the events of the call, whichever client finishes it; None if it was not sent.

        Args:
            streams: Makes the requests of the stream, within its deadline.
            resend: Sends the message again, where ``on_unknown`` allows it.

        Raises:
            CallEndedError: The call has ended without an answer that can be returned.
            JournalError: Another client has continued the call meanwhile.
            A2AError: Another reason for no answer.
        """
        record = self._record
        streams.scope.operation.note_sent_before()
        if record.outcome is None:
            record = await self._free_record(streams.scope)
            if record.outcome is not None and self._keys.is_shared:
                return None  # `KeyedCall.once` looks it up again, and leaves it to its client
            may_resume = record.outcome is None
        else:  # the task of the message may have appeared since the last search
            may_resume = record.outcome == "unknown" and wants_search_again(
                streams.scope.on_unknown, self._core.resilience.reconcile
            )
        if may_resume:
            return await resume(
                record, self._journaling, streams, message=self._message, resend=resend
            )
        if record.outcome is None or record.outcome == "not_sent":
            return None
        result = await self._final_result(record, record.outcome, streams.scope)
        if isinstance(result, Message) or result.state.is_settled:
            return streams.answered(result)
        # The task works again, because its question was answered.
        owner = owner_of(record, self._message)
        return await streams.subscribe_to(result.id, owner=owner)()

    async def _free_record(self, scope: CallScope) -> CallRecord:
        """Return the record of an open call once no client holds it.

        The client waits for a live holder, unless other clients of the run do so.
        """
        message_id = self._record.message_id
        if self._keys.is_shared:
            return await self._journaling.find_free(message_id, scope.deadline)
        self._keys.held += 1
        try:
            return await self._journaling.wait_until_free(
                message_id,
                scope.deadline,
                waiting=scope.operation.waiting,
                waits_for_holder=True,
            )
        finally:
            self._keys.held -= 1

    async def result(self, request: SendMessageRequest, scope: CallScope) -> Task | Message | None:
        """Return the result of the call as SendMessage does; None if it was not sent.

        Args:
            request: The request of this call.
            scope: The deadline, and what each request carries.
        """
        at_once = returns_immediately(request)
        if at_once and self._record.outcome is None:
            task = await self._task(self._record, scope)
            if task is not None:
                return task
        streams = StreamCalls(self._core, scope, poll_interval=_POLL_INTERVAL_S)
        source = await self.events(streams, streams.resend(request))
        if source is None:
            return None

        async def begin() -> ResumableStream:
            return source

        async with EventStream(streams, begin) as events:
            async for _ in events:
                if at_once and source.outbox.task is not None:
                    if streams.call is not None:
                        await streams.call.record_answer(source.outbox.task)
                    break
            return source.outbox.task or source.outbox.message

    async def _final_result(
        self, record: CallRecord, outcome: CallOutcome, scope: CallScope
    ) -> Task | Message:
        """Return the answer of a finished call; a question may have been answered since."""
        if outcome == "unknown":
            raise OutcomeUnknownError(
                f"the outcome of message {record.message_id} is unknown, as an earlier call of "
                f"its key reported. It was not sent again. {AFTER_UNKNOWN}",
                message_id=record.message_id,
                context_id=record.context_id,
                agent=shown_agent(record.agent),
            )
        if outcome == "answered":
            answer = await self._answer(record, scope)
            if answer is not None:
                return answer
        raise self._ended_error(record, outcome)

    async def _answer(self, record: CallRecord, scope: CallScope) -> Task | Message | None:
        """Return the answer of an answered call, stored or as it is now; None if there is none."""
        recorded: Task | None = None
        if record.result is not None:
            if record.state is None:
                return stored(record.result, Message, record.message_id)
            recorded = stored(record.result, Task, record.message_id)
            if recorded.state.is_terminal:
                return recorded
        try:
            task = await self._task(record, scope)
        except TaskNotFoundError:
            if recorded is None or not recorded.state.is_interrupted:
                raise
            task = None
        return task or recorded

    def _ended_error(self, record: CallRecord, outcome: CallOutcome) -> CallEndedError:
        was_answered = outcome == "answered"
        detail = "" if record.detail is None else f" ({record.detail})"
        target = "" if self._journaling.is_own(record) else f" to {record.agent}"
        lack = "but its answer is not stored" if was_answered else "so it has no answer"
        return CallEndedError(
            f"the call of message {record.message_id}{target} has already ended: "
            f"{outcome}{detail}, {lack}; it was not sent again",
            message_id=record.message_id,
            outcome=outcome,
            detail=record.detail,
            executed=executed_of(record),
        )

    async def _task(self, record: CallRecord, scope: CallScope) -> Task | None:
        """Return the task of a call; None if it has none, or the call went to another agent."""
        task_id = record.task_id
        if record.state is None or task_id is None:
            return None
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
            note_task(error, None, task_id)
            # The message was executed, even if this request failed.
            error.executed, error.transient = True, False
            raise
        return task if is_here or task.context_id == record.context_id else None


def _recorded_target(record: CallRecord, message: Message) -> str | None:
    """Return where a call sent the content of a message to; None if its content was another."""
    for task_id in (None, record.task_id):
        for context_id in (None, record.context_id, message.context_id):
            same = msgspec.structs.replace(message, task_id=task_id, context_id=context_id)
            if record.digest == message_digest(same):
                task = "to a new task" if task_id is None else f"to the task {task_id}"
                context = "in a new context" if context_id is None else f"in context {context_id}"
                return f"{task} {context}"
    return None


_POLL_INTERVAL_S = 2.0
"""Seconds between two polls of a task for SendMessage."""
