"""The operation that a caller calls, such as `Client.ask`: its facts, and its start and end."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec

from holdfast._model.operations import (
    CANCEL_TASK,
    GET_AGENT_CARD,
    GET_TASK,
    SEND_NAMES,
    SUBSCRIBE_TO_TASK,
)
from holdfast.errors import A2AError, OutcomeUnknownError
from holdfast.types import (
    Message,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from contextlib import AbstractContextManager
    from types import TracebackType

    from holdfast._pipeline.listeners import Observers
    from holdfast._pipeline.observations import JournalStep, Outcome, WaitReason
    from holdfast._pipeline.observed_request import ObservedRequest
    from holdfast._pipeline.transport import AnyCall, CallProgress
    from holdfast.errors import Attempt
    from holdfast.types import TaskState

__all__ = ["CallerOperation"]

T = TypeVar("T")

_OF_TASKS = SEND_NAMES | {SUBSCRIBE_TO_TASK.name, GET_TASK.name, CANCEL_TASK.name}
"""A2A methods of requests that send a message, or follow its task."""

_MAX_REQUESTS_KEPT = 50
"""Requests of messages whose attempts the error of an operation has, at most."""


_NO_REQUESTS: dict[str, ObservedRequest] = {}
"""The open requests of an operation that nothing observes: none is added."""


class CallerOperation:
    """One operation of a caller: its ids, its facts, and the reports of its start and end.

    As a context manager, the operation lasts as long as the block; blocks can be nested.

    Args:
        observers: The observers to notify.
        name: Name of the method that was called.
        operation_id: Id of the operation.
        parent_id: Id of the operation whose work it continues; None for none.
        is_observed: Whether observers, or the log, take the observations of successful steps.
        loop: The running event loop, if the caller has it.

    Attributes:
        observers: The observers to notify.
        name: Name of the method that was called.
        id: Id of the operation.
        parent_id: Id of the operation whose work it continues; None for none.
        is_observed: Whether observers, or the log, take the observations of successful steps.
        starts_with_request: Whether its start is reported with its first request, its record in
            the journal, or its end, and not at all if there is nothing to do, or another client
            does it.
        method: A2A method of the request that sends the message, else of the first one.
        request_id: Id of that request.
        latest_request: Id and A2A method of the latest request that sends the message, or that
            follows its task.
        endpoint: Address of the latest attempt.
        message_id: Id of the message that is sent.
        task_id: Id of the task, as far as known.
        context_id: Id of the conversation, as far as known.
        state: State of the task as last seen.
        requests: Number of requests that have started.
        attempts: Number of attempts of all requests.
        retries: Number of attempts that repeat a failed one.
        reconnects: Number of resubscriptions.
        has_gap: Whether status messages may be missing.
        events: Number of events that its stream has delivered.
        time_to_first_event: Seconds until the first of them.
        open_requests: The requests whose end is not reported yet, by their ids.
    """

    # Defaults of the class: one is made for each call, and few of them change.
    starts_with_request: bool = False
    method: str | None = None
    request_id: str | None = None
    latest_request: tuple[str | None, str | None] = (None, None)
    endpoint: str | None = None
    message_id: str | None = None
    task_id: str | None = None
    context_id: str | None = None
    state: TaskState | None = None
    requests: int = 0
    attempts: int = 0
    retries: int = 0
    reconnects: int = 0
    has_gap: bool = False
    events: int = 0
    time_to_first_event: float | None = None
    open_requests: dict[str, ObservedRequest] = _NO_REQUESTS
    _kept: list[CallProgress] | None = None  # those of requests that send the message
    _unread: object = None  # the last reply or event, whose ids are noted when they are needed
    _began: float = 0.0
    _ended: float | None = None
    _named_requests: int = 0
    _is_tried: bool = False  # whether more than the card was requested, here or by an earlier call
    _is_answered: bool = False  # whether the agent has replied to the caller's request
    _depth: int = 0
    _is_started: bool = False
    _is_finished: bool = False
    _is_handed_over: bool = False
    _failed: tuple[str, CallProgress] | None = None  # another request that failed last

    def __init__(
        self,
        observers: Observers,
        name: str,
        operation_id: str,
        *,
        parent_id: str | None = None,
        is_observed: bool,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.observers = observers
        self.name = name
        self.id = operation_id
        self.parent_id = parent_id
        self.is_observed = is_observed
        if is_observed:
            self.open_requests = {}
        self._loop = loop

    # ── Start and end ────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Report that the operation begins now, unless it has begun already."""
        self._depth += 1
        if self._depth == 1 and not self._is_finished:
            loop = self._loop = self._loop or asyncio.get_running_loop()
            self._began = loop.time()
            if self.is_observed and not self.starts_with_request:
                self._report_start()

    def _report_start(self) -> None:
        if self.is_observed and not self._is_started:
            self._is_started = True
            self.observers.operation_started(self)

    def end(self) -> None:
        """Note that the result is available now, though it may not be reported yet."""
        if self._ended is None:
            self._ended = self.now()

    def hand_over(self) -> None:
        """Note that another client has the call of the operation."""
        self._is_handed_over = True

    def finish(self, error: BaseException | None, *, is_left: bool = False) -> None:
        """Report the end of the operation, and complete its error.

        It has ended when `finish` was called as often as `begin`.

        Args:
            error: The error that the caller gets; None where there is none.
            is_left: Whether the caller has left a stream before its end.
        """
        self._depth -= 1
        if self._depth:
            self._ended = None  # a stream has ended; the operation continues
            return
        if self._is_finished:
            return
        self._is_finished = True
        if self._is_handed_over:
            error, is_left = None, True
        if isinstance(error, A2AError):
            self.complete(error)
        self._failed = None
        self._kept = None  # they refer to the call, whose lease ends when nothing refers to it
        if not self._is_started and (self._is_handed_over or self.parent_id is not None):
            return  # nothing was done, or nothing observes it
        if self.is_observed:
            self._report_start()
        if self.is_observed or isinstance(error, OutcomeUnknownError):
            duration = (self.now() if self._ended is None else self._ended) - self._began
            outcome = _outcome(error, is_left=is_left)
            executed = self._executed(outcome, error)
            self.observers.operation_finished(
                self, outcome=outcome, duration=duration, error=error, executed=executed
            )

    def complete(self, error: A2AError) -> None:
        """Give the error that the caller gets the id and the attempts of the operation."""
        error.operation_id = self.id
        if error.traceparent is None and self._kept:
            error.traceparent = self._kept[-1].traceparent  # of the message that it is about
        attempts = self._joined_attempts(error)
        if len(attempts) > len(error.attempts):
            error.attempts = attempts

    def drop(self) -> None:
        """Report the end of an operation whose stream was garbage-collected before its end.

        A collection may run in any thread, and after the event loop has ended.
        """
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._finish_dropped)
        elif not sys.is_finalizing():
            self._finish_dropped()

    def _finish_dropped(self) -> None:
        for request in tuple(self.open_requests.values()):
            request.finish(None)
        self.finish(None, is_left=True)

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish(error)

    def follow_up(self, name: str) -> CallerOperation:
        """Return the operation that continues the work of this one after its end."""
        operation = CallerOperation(
            self.observers,
            name,
            f"{self.id}-{name}",
            parent_id=self.id,
            is_observed=self.is_observed,
        )
        self.note_unread()
        operation.task_id, operation.context_id = self.task_id, self.context_id
        operation.starts_with_request = True
        return operation

    # ── Facts ────────────────────────────────────────────────────────────────────────────────

    def add_request(self, method: str, params: object, *, request_id: str | None = None) -> str:
        """Note a request that is about to start, and return its id.

        Args:
            method: Its A2A method.
            params: Its parameters.
            request_id: The id that it has already; None for the next one of the operation.
        """
        if self.is_observed:
            self._report_start()
        self._named_requests += 1
        request_id = request_id or f"{self.id}.{self._named_requests}"
        if method in _OF_TASKS or self.latest_request[0] is None:
            self.latest_request = request_id, method
        if isinstance(params, SendMessageRequest):
            message = params.message
            self.message_id = message.message_id
            self.task_id = message.task_id or self.task_id
            self.context_id = message.context_id or self.context_id
        is_message = method in SEND_NAMES and self.method not in SEND_NAMES
        if self.method in {None, GET_AGENT_CARD.name} or is_message:
            self.method, self.request_id = method, request_id
            if method in _OF_TASKS and not is_message:
                self.task_id = self.task_id or getattr(params, "id", None)
        return request_id

    def add_attempt(self, call: AnyCall) -> str | None:
        """Note an attempt, and return its id; None if it is not reported."""
        self.attempts += 1
        if not self._is_tried:
            self._is_tried = call.operation.name != GET_AGENT_CARD.name
        if not self.is_observed:
            return None
        if (request := self.open_requests.get(call.request_id)) is not None:
            request.attempts += 1
        return f"{call.request_id}#{self.attempts}"

    def note(self, value: object) -> None:
        """Note the ids and the state that a reply or an event shows."""
        if isinstance(value, SendMessageResponse):
            self.note_answered()
        if isinstance(value, SendMessageResponse | StreamResponse):
            value = (
                value.event if isinstance(value, StreamResponse) else value.task or value.message
            )
        if isinstance(value, Task):
            self.task_id, self.context_id = value.id, value.context_id or self.context_id
            self.state = value.status.state
        elif isinstance(value, TaskStatusUpdateEvent):
            self.task_id, self.context_id = value.task_id, value.context_id or self.context_id
            self.state = value.status.state
        elif isinstance(value, TaskArtifactUpdateEvent):
            self.task_id, self.context_id = value.task_id, value.context_id or self.context_id
        elif isinstance(value, Message):
            self.context_id = value.context_id or self.context_id

    def note_later(self, value: object) -> None:
        """Keep a reply or an event until an observation or a log record needs its ids."""
        if value is not None:
            self._unread = value

    def note_unread(self) -> None:
        """Note the ids of what `note_later` has kept."""
        if self._unread is not None:
            value, self._unread = self._unread, None
            self.note(value)

    def note_answered(self) -> None:
        """Note that the agent has replied, although the caller may not get the reply."""
        self._is_answered = True

    def note_sent_before(self) -> None:
        """Note that an earlier call, or another client, has sent the message, or may have."""
        self._is_tried = True

    def note_event(self, event: object) -> None:
        """Note an event that a stream delivers."""
        if not self.events:
            self.time_to_first_event = self.now() - self._began
        self.events += 1
        if self.is_observed:
            self.note(event)
            self.observers.event_received(self, type(event).__name__)
        else:
            self._unread = event

    def keep_attempts(self, call: AnyCall, error: BaseException | None) -> None:
        """Keep the attempts to send the message, for the error of the operation.

        Args:
            call: A request that has ended.
            error: Its error, which may become that of the operation; None where there is none.
        """
        if call.operation.name in SEND_NAMES:
            if self._kept is None:
                self._kept = []
            if len(self._kept) < _MAX_REQUESTS_KEPT:
                self._kept.append(call.progress)
        elif error is not None:
            self._failed = call.request_id, call.progress

    def _executed(self, outcome: Outcome, error: BaseException | None) -> bool | None:
        """Return whether the agent executed the operation; None if unknown."""
        if isinstance(error, A2AError):
            return error.executed
        if outcome == "succeeded" or self.events or self._is_answered:
            return True
        return None if self._is_tried else False

    def waiting(
        self, reason: WaitReason, seconds: float | None = None
    ) -> AbstractContextManager[None]:
        """Report a wait between requests, which lasts as long as the block."""
        self._report_start()
        return self.observers.waiting(self, reason, seconds)

    def log(
        self,
        level: int,
        text: str,
        *arguments: object,
        error: BaseException | None = None,
        exc_info: bool = False,
    ) -> None:
        """Log a text about the operation, with its ids; see `Observers.log`."""
        self.observers.log(self, level, text, *arguments, error=error, exc_info=exc_info)

    async def journaled(
        self, step: JournalStep, work: Awaitable[T], *, traceparent: str | None = None
    ) -> T:
        """Report a step that a journal records, when it is recorded or has failed.

        Args:
            step: The step.
            work: Records the step.
            traceparent: The trace context in which a claimed call began; None if unknown.
        """
        if not self.is_observed:
            return await work
        began, error = self.now(), None
        try:
            return await work
        except BaseException as failure:
            error = failure
            raise
        finally:
            if error is None:
                self._report_start()
            if self._is_started:
                duration = self.now() - began
                self.observers.journal_written(
                    self, step, duration=duration, error=error, traceparent=traceparent
                )

    def now(self) -> float:
        """Return the time of the event loop's clock."""
        return (self._loop or asyncio.get_running_loop()).time()

    def _joined_attempts(self, error: A2AError) -> tuple[Attempt, ...]:
        """Return the attempts to send the message, and those of the request with the error."""
        kept = self._kept or []
        if self._failed is not None and self._failed[0] == error.request_id:
            kept = [*kept, self._failed[1]]
        joined = [
            msgspec.structs.replace(
                attempt, started=attempt.started + progress.began - self._began
            )
            for progress in kept
            for attempt in progress.attempts
        ]
        joined.sort(key=lambda attempt: attempt.started)
        return tuple(
            msgspec.structs.replace(attempt, number=number)
            for number, attempt in enumerate(joined, start=1)
        )


def _outcome(error: BaseException | None, *, is_left: bool) -> Outcome:
    if error is None:
        return "left" if is_left else "succeeded"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
