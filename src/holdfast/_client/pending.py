"""Recorded calls without a known outcome: after a crash, a deadline, or a stream left early."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NoReturn, Unpack

import msgspec

from holdfast._arguments import check_seconds
from holdfast._client.answer import Answer
from holdfast._client.event_stream import EventStream
from holdfast._client.reconcile import LostMessage, search_for
from holdfast._client.resend import found_task, outcome_unknown, wants_resend
from holdfast._client.streams import StreamCalls
from holdfast._journal.protocol import damaged, shown, stored, utc, valid_traceparent
from holdfast._journal.records import (
    missing_replicas,
    owner_of,
    run_and_key,
    shown_agent,
    unknown_here,
)
from holdfast._model.operations import SEND_MESSAGE
from holdfast.errors import A2AError, JournalError, OutcomeUnknownError
from holdfast.types import Message, Role, SendMessageRequest, TaskState

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
    from datetime import datetime

    from holdfast._client.call_scope import CallScope
    from holdfast._client.core import ClientCore
    from holdfast._client.event_stream import EventSource
    from holdfast._client.options import CallOptions
    from holdfast._client.reconcile_search import SearchReport
    from holdfast._journal.protocol import CallRecord
    from holdfast._journal.writer import HeldCall, Journaling
    from holdfast._pipeline.caller_operation import CallerOperation
    from holdfast._stream.resumable import ResumableStream

    Resend = Callable[[HeldCall, OutcomeUnknownError, SearchReport], Awaitable[ResumableStream]]

__all__ = ["PendingCall", "ResumedCall", "resume_all", "resumed_stream"]


class ResumedCall(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one pending call: either `answer` or `error` is set.

    Attributes:
        message_id: Id of the message of the call, for `Client.pending`.
        answer: The answer, which may be a question (`Answer.needs_input`).
        error: The reason why there is no answer: an `OutcomeUnknownError` if the search found no
            task of the message, a `TaskFailedError` if the task failed, a `JournalError` if
            another client works on the call or its record is ``"damaged"``, an
            `A2AConnectionError` if the client was closed before the outcome was yielded.
        duration: Seconds since the call was resumed.
        remaining: Number of pending calls whose outcome was not yielded yet.
    """

    message_id: str
    answer: Answer | None = None
    error: A2AError | None = None
    duration: float = 0.0
    remaining: int = 0


class PendingCall:
    """A call that has no outcome in the journal, or an unknown one; returned by `Client.pending`.

    Resuming it never sends its message again: if the task's id is known, the client waits for the
    task; otherwise it searches for the task of the message.
    """

    def __init__(self, record: CallRecord, core: ClientCore, journaling: Journaling) -> None:
        self._record = record
        self._core = core
        self._journaling = journaling

    def __repr__(self) -> str:
        return (
            f"PendingCall(message_id={self.message_id!r}, run_id={self.run_id!r}, "
            f"key={self.key!r}, task_id={self.task_id!r}, "
            f"context_id={self.context_id!r}, began={shown(self._record.began)}, "
            f"state={self.state}, is_held={self.is_held})"
        )

    @property
    def message_id(self) -> str:
        """Id of the message of the call, which may not have been sent."""
        return self._record.message_id

    @property
    def key(self) -> str | None:
        """The ``key`` of the call, or in a run the key of its message; None if it has none.

        In a fan-out with a key, it is ``key/name``, with the name of the agent.
        """
        return None if self._record.label is None else run_and_key(self._record.label)[1]

    @property
    def run_id(self) -> str | None:
        """The ``run_id`` of the run that the message belongs to; None if it belongs to none."""
        return None if self._record.label is None else run_and_key(self._record.label)[0] or None

    @property
    def damage(self) -> JournalError | None:
        """The error of reading the journal's record of the call; None if it is readable.

        A damaged call cannot be resumed, only dismissed: `resume` and `stream` raise this error.
        Other unreadable parts of the record are missing here, and `began` is 1970-01-01.
        """
        record = self._record
        return None if record.damage is None else damaged(record.message_id, record.damage)

    @property
    def task_id(self) -> str | None:
        """Id of the task; None if unknown."""
        return self._record.task_id

    @property
    def context_id(self) -> str | None:
        """Id of the conversation; None if unknown."""
        return self._record.context_id

    @property
    def agent(self) -> str:
        """Name of the agent that the call was sent to, as in `CallRecord.agent`."""
        return self._record.agent

    @property
    def began(self) -> datetime:
        """Start of the call, in UTC."""
        return utc(self._record.began)

    @property
    def state(self) -> TaskState | None:
        """State of the task as last seen; None if no reply was seen."""
        return None if self._record.state is None else TaskState(self._record.state)

    @property
    def is_unknown(self) -> bool:
        """True if an earlier search found no task of the message (`OutcomeUnknownError`).

        The call stays pending: `resume` searches once more, and `dismiss` ends it.
        """
        return self._record.outcome == "unknown"

    @property
    def is_held(self) -> bool:
        """True if a process holds the lease of the call, or crashed less than a lease ago.

        The process may be this client's. The value is as of the time when the journal was read.
        """
        return self._record.lease_left > 0

    @property
    def held_until(self) -> datetime | None:
        """End of the lease unless its holder renews it, in UTC; None if there is no lease.

        It is by the clock of the journal's store: on another machine, clocks may differ.
        """
        return utc(self._record.lease_until) if self.is_held else None

    @property
    def message(self) -> Message | None:
        """The message, to be sent again manually; None unless the journal stores messages.

        Raises:
            JournalError: The stored message is ``"damaged"``.
        """
        if self.damage is not None:
            raise self.damage
        if self._record.request is None:
            return None
        return stored(self._record.request, SendMessageRequest, self.message_id).message

    async def resume(
        self, *, poll_interval: float = 2.0, **options: Unpack[CallOptions]
    ) -> Answer:
        """Wait for the answer as `Client.wait` does, and return it as `Client.ask` does.

        If another process holds the call, this method waits until that lease is renewed or ends: a
        process that crashed does not renew its lease.

        Args:
            poll_interval: Seconds between two polls of a task that has to be polled; more than 0,
                2 by default.
            options: Any of `CallOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default).

        Returns:
            The answer, which is a completed task, a task that waits for input
            (`Answer.needs_input`), or a message.

        Raises:
            OutcomeUnknownError: No task of the message was found; if the search was not possible
                or not complete, ``search_error`` has the reason. The call stays pending: it can be
                resumed again, or dismissed.
            DuplicateTasksError: More than one task was found, which ends the call.
            TaskNotFoundError: The agent no longer has the task, or has given its id to the task of
                another message, as after a restart that lost its tasks; the call stays pending.
            JournalError: Another client works on the call, or the call has ended.
            TaskFailedError: The task failed; also `TaskRejectedError`, `TaskCanceledError`.
            DeadlineExceededError: The timeout expired; the call can be resumed again.
            ValueError: An argument is out of range.
            TypeError: An argument of another type.
        """
        async with self.stream(poll_interval=poll_interval, **options) as events:
            return await events.result()

    def stream(self, *, poll_interval: float = 2.0, **options: Unpack[CallOptions]) -> EventStream:
        """Stream the outcome: the current state of the task, and then its events.

        The call is taken over when the stream is entered, which raises the errors that `resume`
        lists.

        Args:
            poll_interval: Seconds between two polls of a task that has to be polled; more than 0,
                2 by default.
            options: Any of `CallOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default).

        Returns:
            The stream; nothing is requested before it is entered.

        Raises:
            ValueError: An argument is out of range.
            TypeError: An argument of another type.
        """
        check_seconds("poll_interval", poll_interval)
        scope = self._core.begin(
            "wait", options, method=PendingCall.stream, operation_name="resume"
        )
        return resumed_stream(
            self._record,
            self._core,
            self._journaling,
            scope=scope,
            poll_interval=poll_interval,
        )

    async def dismiss(self) -> None:
        """End the call without an answer; the agent is not notified, and continues.

        A call whose record is damaged can be dismissed too, if the journal is a `SqliteJournal` or
        another journal with a method ``dismiss_damaged``.

        Raises:
            JournalError: Another client works on the call, or may work on it (`is_held`); the call
                has ended; or the journal cannot be written.
        """
        deadline = self._core.deadline("call", None)
        if self._record.damage is not None:
            await self._journaling.dismiss_damaged(self._record, deadline)
            return
        record = await self._journaling.find_free(self.message_id, deadline)
        call = await self._journaling.claim(record, deadline)
        await call.dismiss()


async def resume_all(
    core: ClientCore,
    journaling: Journaling,
    *,
    concurrency: int,
    poll_interval: float,
    options: CallOptions,
) -> AsyncGenerator[ResumedCall]:
    """Resume pending calls, several at once, and yield the outcome of each as it arrives.

    An outcome is recorded in the journal when it is yielded: a call whose outcome was not yielded
    is released, and stays pending.

    Args:
        core: Makes the requests.
        journaling: The journal of the calls.
        concurrency: How many calls are resumed, wait to be yielded, or are being recorded at the
            same time, at most.
        poll_interval: Seconds between two polls where a task has to be polled.
        options: The options of each call.

    Raises:
        JournalError: The journal cannot be read.
        Exception: An exception of a consumer or another hook.
    """
    records = await journaling.unfinished()
    # Calls that an earlier search did not find come last.
    waiting = deque(sorted(records, key=lambda record: record.outcome == "unknown"))
    running: dict[asyncio.Task[Answer | A2AError], _Resumption] = {}
    recording: set[asyncio.Task[None]] = set()
    try:
        while waiting or running or recording:
            while waiting and len(running) + len(recording) < concurrency:
                scope = core.begin("wait", options, method=PendingCall.resume)
                resumption = _Resumption(waiting.popleft(), scope.operation)
                events = resumed_stream(
                    resumption.record,
                    core,
                    journaling,
                    scope=scope,
                    poll_interval=poll_interval,
                    on_claim=resumption.on_claim,
                )
                running[asyncio.create_task(resumption.outcome(events))] = resumption
            done, _ = await asyncio.wait(
                {*running, *recording}, return_when=asyncio.FIRST_COMPLETED
            )
            recording -= done
            for task in [task for task in running if task in done]:
                outcome, resumption = task.result(), running[task]
                if resumption.call is not None:
                    try:
                        await resumption.call.check_withheld()
                    except A2AError as error:
                        outcome = error
                del running[task]
                resumption.deliver(outcome, recording)
                yield ResumedCall(
                    message_id=resumption.record.message_id,
                    answer=None if isinstance(outcome, A2AError) else outcome,
                    error=outcome if isinstance(outcome, A2AError) else None,
                    duration=resumption.duration,
                    remaining=len(waiting) + len(running),
                )
    finally:
        # Shielded from another cancellation: calls would be held until their leases end.
        ending = _abandon_all(running, recording)
        await asyncio.wait({journaling.settle(ending)})


class _Resumption:
    """One call that is resumed by `resume_all`.

    Attributes:
        record: The record of the call.
        call: The call, once it is claimed.
        duration: Seconds that it took.
    """

    def __init__(self, record: CallRecord, operation: CallerOperation) -> None:
        self.record = record
        self.call: HeldCall | None = None
        self.duration = 0.0
        self._operation = operation  # which ends when its outcome is recorded
        self._has_begun = False
        self._failure: BaseException | None = None

    async def outcome(self, events: EventStream) -> Answer | A2AError:
        """Resume the call; its outcome is left for `HeldCall.deliver` to record."""
        clock = asyncio.get_running_loop().time
        began = clock()
        self._operation.begin()
        self._has_begun = True
        try:
            async with events:
                return await events.result()
        except A2AError as error:
            self._failure = error
            return error
        except BaseException as failure:
            self._failure = failure
            raise
        finally:
            self.duration = clock() - began
            self._operation.end()

    def deliver(self, outcome: Answer | A2AError, recording: set[asyncio.Task[None]]) -> None:
        """Record the outcome, which the caller gets now, and end the operation after that.

        Args:
            outcome: The outcome.
            recording: The tasks that record outcomes; one is added if there is one to record.
        """
        self._failure = outcome if isinstance(outcome, A2AError) else None
        recorded = None if self.call is None else self.call.deliver()
        if recorded is None:
            self.finish()
            return
        if self._failure is not None:
            self._operation.complete(self._failure)
        recording.add(recorded)
        recorded.add_done_callback(lambda _: self.finish())

    def finish(self, *, is_left: bool = False) -> None:
        """End the operation, if it has begun.

        Args:
            is_left: Whether the caller did not wait for the outcome.
        """
        if self._has_begun:
            self._has_begun = False
            self._operation.finish(self._failure, is_left=is_left)
            self._failure = None  # its traceback refers to this object

    def on_claim(self, call: HeldCall) -> None:
        """Note the claimed call, and leave its outcome to `HeldCall.deliver`."""
        self.call = call
        call.withhold()


async def _abandon_all(
    running: Mapping[asyncio.Task[Answer | A2AError], _Resumption],
    recording: Iterable[asyncio.Task[None]],
) -> None:
    """End resumptions whose outcomes are not yielded; their calls stay pending."""
    for task in running:
        task.cancel()
    await asyncio.gather(*running, *recording, return_exceptions=True)
    calls = [resumption.call for resumption in running.values() if resumption.call is not None]
    await asyncio.gather(*(call.release(drops_outcome=True) for call in calls))
    for resumption in running.values():
        resumption.finish(is_left=True)


def resumed_stream(
    record: CallRecord,
    core: ClientCore,
    journaling: Journaling,
    *,
    scope: CallScope,
    poll_interval: float,
    on_claim: Callable[[HeldCall], None] | None = None,
) -> EventStream:
    """Return the events of a pending call once the stream is entered: see `PendingCall.stream`.

    Args:
        record: The call.
        core: Makes the requests.
        journaling: The journal of the call.
        scope: The deadline of the stream, and what each of its requests carries.
        poll_interval: Seconds between two polls where the task has to be polled.
        on_claim: Receives the call once this client holds it.
    """
    streams = StreamCalls(core, scope, poll_interval=poll_interval, until_deadline=True)

    async def begin() -> EventSource:
        if record.damage is not None:
            raise damaged(record.message_id, record.damage)
        scope.operation.note_sent_before()
        free = await journaling.wait_until_free(
            record.message_id, scope.deadline, waiting=scope.operation.waiting
        )
        return await resume(free, journaling, streams, on_claim=on_claim)

    return EventStream(streams, begin)


async def resume(
    record: CallRecord,
    journaling: Journaling,
    streams: StreamCalls,
    *,
    on_claim: Callable[[HeldCall], None] | None = None,
    message: Message | None = None,
    resend: Resend | None = None,
) -> ResumableStream:
    """Take over a call that no client holds, and begin the events of its task.

    Args:
        record: The call.
        journaling: The journal of the call.
        streams: Makes the requests of the stream, within its deadline.
        on_claim: Receives the call once this client holds it.
        message: The message as its caller passed it; None where that is not known.
        resend: Sends the message again, where ``on_unknown`` of the stream's scope allows it; None
            if the message must not be sent again.

    Raises:
        JournalError: Another client has taken the call over first, or the call has ended.
        OutcomeUnknownError: No task of the message was found.
        A2AError: Another failure of the search, or of the first request.
    """
    operation = streams.scope.operation
    claiming = journaling.claim(record, streams.deadline)
    call = streams.call = await operation.journaled(
        "claim", claiming, traceparent=valid_traceparent(record.traceparent)
    )
    call.operation = operation
    if on_claim is not None:
        on_claim(call)
    try:
        task_id = _known_task(call.record, journaling)
        if task_id is None:
            lost = _lost_reply(record)  # the claim reopens the call
            is_repeated = record.outcome == "unknown"
            search = await call.while_held(_search(call, lost, streams, is_repeated=is_repeated))
            task = found_task(lost, search)
            if task is None:
                may_resend = wants_resend(streams.scope.on_unknown, search)
                if resend is None or not may_resend or _may_be_elsewhere(call.record, journaling):
                    _raise_unknown(
                        call.record, journaling, lost, search, has_key=resend is not None
                    )
                return await call.while_held(resend(call, lost, search))
            task_id = task.id
        owner = owner_of(call.record, message)
        return await call.while_held(streams.subscribe_to(task_id, owner=owner)())
    except BaseException as error:
        await call.record_error(error)
        raise


def _known_task(record: CallRecord, journaling: Journaling) -> str | None:
    """Return the task of a call if it is known; None to search for it.

    If the call was sent to an agent of other addresses, which may be the same agent, the task has
    to prove that it belongs to the message: another agent may use the same id for another task.
    """
    return record.task_id if journaling.is_own(record) and record.state is not None else None


def _lost_reply(record: CallRecord) -> OutcomeUnknownError:
    reason = "it may have been sent, and the journal has no reply to it"
    if record.outcome == "unknown":
        reason = "an earlier call reported this"
        detail = record.detail or OutcomeUnknownError.__name__
        if not detail.startswith(OutcomeUnknownError.__name__):  # an error of the agent
            reason = f"an earlier call ended with {detail}"
    return OutcomeUnknownError(
        f"the outcome of message {record.message_id} is unknown: {reason}",
        message_id=record.message_id,
        context_id=record.context_id,
        agent=shown_agent(record.agent),
    )


async def _search(
    call: HeldCall, lost: OutcomeUnknownError, streams: StreamCalls, *, is_repeated: bool
) -> SearchReport:
    """Search for the task of a call's message; only one round if an earlier search ended."""
    record = call.record
    message = Message(
        message_id=record.message_id,
        role=Role.USER,
        task_id=record.task_id,
        context_id=record.context_id,
    )
    return await search_for(
        LostMessage(
            message=message,
            operation=SEND_MESSAGE.name,
            sent_at=record.began,
            is_own_context=record.is_own_context,
        ),
        lost,
        streams.client,
        streams.scope,
        call=call,
        rounds="one" if is_repeated else "at least one",
    )


def _may_be_elsewhere(record: CallRecord, journaling: Journaling) -> bool:
    """Return whether the task of a call may be at a replica that the client does not have."""
    return bool(missing_replicas(record, journaling.agent))


def _raise_unknown(
    record: CallRecord,
    journaling: Journaling,
    lost: OutcomeUnknownError,
    search: SearchReport,
    *,
    has_key: bool,
) -> NoReturn:
    """Raise the error of a message that is not sent again after no task of it was found."""
    error = outcome_unknown(lost, search, has_key=has_key)
    if error.search_error is None and _may_be_elsewhere(record, journaling):
        error.search_error = unknown_here(record, journaling.agent)  # keeps the call pending
        error.message = f"{error.search_error.message}. {error.message}"
    raise error from error.search_error
