"""Observations: the events in the life of an operation, which observers receive.

An operation is what the caller calls, such as `Client.ask`. It makes requests, and each request
makes attempts. Whatever happens, each observation that reports a start has one that reports the
end, and the ids make a tree of them: operations, their requests, the attempts of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from holdfast._pipeline.cards.verification import CardVerification
from holdfast._policy.breaker import BreakerState
from holdfast.errors import A2AError
from holdfast.types import TaskState

if TYPE_CHECKING:
    from holdfast._pipeline.transport import Transport

__all__ = [
    "AttemptFinished",
    "AttemptStarted",
    "CardChecked",
    "CircuitChanged",
    "EventReceived",
    "GapDetected",
    "HedgeStarted",
    "JournalStep",
    "JournalWritten",
    "Observation",
    "Observer",
    "OperationFinished",
    "OperationStarted",
    "Outcome",
    "ReconcileStarted",
    "Reconciled",
    "Reconnected",
    "RequestFinished",
    "RequestStarted",
    "RetryScheduled",
    "RetryStopped",
    "StreamInterrupted",
    "TelemetrySource",
    "WaitFinished",
    "WaitReason",
    "WaitStarted",
]

Outcome = Literal["succeeded", "failed", "cancelled", "left"]
"""The end of an operation; ``"left"`` if its caller left a stream or an iteration before its end,
or if another client has the call."""

WaitReason = Literal["backoff", "retry_after", "circuit", "concurrency", "reconnect", "lease"]
"""The reason of a wait: the backoff of the retry policy, the agent's Retry-After,
an open circuit, the limit of concurrent calls, the backoff of a stream that was cut, or a call
whose lease in the journal another process holds.
"""


JournalStep = Literal["begin", "claim", "state", "outcome", "release"]
"""A step of a call that a journal records: ``"begin"`` before the message is sent, ``"claim"``
when a client takes the call over from another one, ``"state"`` for its task and the task's state,
``"outcome"`` at its end, ``"release"`` when the client ends its work without an outcome.
"""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the life of an operation; the base class of all observations.

    Attributes:
        operation_id: Id of the operation; its requests have this id, a point and a number.
        parent_id: Id of the node that the observation is below: of the request for its attempts,
            waits and other events; of the operation for requests and for events outside of
            requests; of another operation for an operation that continues its work; None for an
            operation of its own.
        request_id: Id of the request. For the end of an operation, the request that sent the
            message, or the first one if no message was sent. None before there is one.
        operation: Name of the operation: the method that was called, such as ``"ask"``.
        method: A2A method of the request, such as ``"SendMessage"``. For the end of an operation,
            that of the request named by ``request_id``. None before there is one.
        agent: The agent as the caller named it: its address, without credentials or query, or its
            name in a `Coordinator`; the same in all observations of a client.
        endpoint: Address that is called, without credentials or query; None before it is known.
        message_id: Id of the message that the operation sends; None for none.
        task_id: Id of the task, as far as known.
        context_id: Id of the conversation (context), as far as known.
    """

    operation_id: str
    parent_id: str | None
    request_id: str | None
    operation: str
    method: str | None
    agent: str
    endpoint: str | None
    message_id: str | None
    task_id: str | None
    context_id: str | None


class OperationStarted(Observation, frozen=True, kw_only=True):
    """The caller has called a method of a client; reported once for each operation.

    An operation is one method call on a client: `Client.ask` and `Client.stream_message` until the
    stream is closed, `Client.wait` and `Client.cancel_task` with all their polls, each message of
    `Client.run`, each agent of `Coordinator.fan_out`, each call of `Client.resume_pending`, each
    turn of a conversation. A stream begins when it is entered.
    """


class OperationFinished(Observation, frozen=True, kw_only=True):
    """An operation has ended; reported once for each `OperationStarted`, whatever happened.

    Attributes:
        outcome: How it has ended (`Outcome`).
        error: The error that the caller received, such as a `TaskFailedError`; an
            ``asyncio.CancelledError`` if the operation was cancelled; None if it succeeded, also
            after a cut, or if the caller left a stream before its end.
        duration: Seconds; for a stream, until its last event, or until the caller left it.
        requests: Number of requests.
        attempts: Number of attempts of all its requests, including those that fetch the agent's
            card; 0 if nothing was requested, as for a result that was in the journal.
        retries: Number of attempts that repeat a failed one of the same request.
        reconnects: Number of resubscriptions after a cut.
        has_gap: Whether status messages may be missing because of a cut.
        executed: Whether the agent executed the operation: True, False, or None if unknown.
        state: State of the task as last seen; None if there is no task.
        events: Number of events of the stream; 0 without one.
        time_to_first_event: Seconds until the first event of the stream; None without one.
    """

    outcome: Outcome
    error: BaseException | None
    duration: float
    requests: int
    attempts: int
    retries: int
    reconnects: int
    has_gap: bool
    executed: bool | None
    state: TaskState | None
    events: int
    time_to_first_event: float | None


class RequestStarted(Observation, frozen=True, kw_only=True):
    """A request of an operation begins: one A2A method, with all its attempts."""


class RequestFinished(Observation, frozen=True, kw_only=True):
    """A request has ended; reported once for each `RequestStarted`.

    An `OperationFinished` follows if the operation ends with it. A stream that was cut has the
    error that cut it, even if the operation continues. A request may outlive its operation: one
    for the agent's card, while other operations wait for the card, and one in flight when its
    caller abandons the operation (``cancel_on_abandon``).

    Attributes:
        attempts: Number of attempts; 0 if an open circuit refused the request, or an `Interceptor`
            answered it.
        duration: Seconds; for a stream, until it was closed.
        error: The error that ended the request; an ``asyncio.CancelledError`` if the caller
            cancelled it; None if it succeeded.
        retry_tokens: Tokens left in the retry budget of the endpoint at its last change; None
            without a budget, or before an endpoint was chosen.
    """

    attempts: int
    duration: float
    error: BaseException | None
    retry_tokens: float | None = None


class AttemptStarted(Observation, frozen=True, kw_only=True):
    """An attempt of a request begins.

    Attributes:
        attempt_id: Id of the attempt, unique in its operation.
        number: Number of the attempt, from 1; a hedge has the number of the attempt beside it.
    """

    attempt_id: str
    number: int


class AttemptFinished(Observation, frozen=True, kw_only=True):
    """An attempt has ended; reported once for each `AttemptStarted`.

    The attempt of a stream ends when the stream is open.

    Attributes:
        attempt_id: Id of the attempt, unique in its operation.
        number: Number of the attempt, from 1; a hedge has the number of the attempt beside it.
        duration: Duration of the attempt in seconds.
        error: The error; an ``asyncio.CancelledError`` if it was cancelled; None if it succeeded.
    """

    attempt_id: str
    number: int
    duration: float
    error: BaseException | None


class RetryScheduled(Observation, frozen=True, kw_only=True):
    """An attempt failed, and another one is scheduled; reported once for each attempt.

    Attributes:
        number: Number of the next attempt, from 2.
        wait: Seconds until the next attempt; it may begin later if the circuit is open then.
        reason: What decided the wait: ``"backoff"`` or ``"retry_after"``.
        error: The error of the previous attempt.
        retry_tokens: Tokens left in the retry budget of the endpoint; None without a budget.
    """

    number: int
    wait: float
    reason: WaitReason
    error: A2AError
    retry_tokens: float | None = None


class RetryStopped(Observation, frozen=True, kw_only=True):
    """An attempt failed with a transient error, and no other one follows.

    Attributes:
        reason: The reason, such as an exhausted retry budget, in one line.
        error: The error of the last attempt.
    """

    reason: str
    error: A2AError


class HedgeStarted(Observation, frozen=True, kw_only=True):
    """A read takes longer than most, and a second attempt is made beside it.

    Attributes:
        delay: Seconds from the start of the first attempt.
    """

    delay: float


class WaitStarted(Observation, frozen=True, kw_only=True):
    """Nothing is requested for a while.

    Attributes:
        reason: The reason (`WaitReason`).
        seconds: Expected duration in seconds; None if it depends on other calls.
    """

    reason: WaitReason
    seconds: float | None


class WaitFinished(Observation, frozen=True, kw_only=True):
    """A wait has ended, or was cancelled; reported once for each `WaitStarted`.

    Attributes:
        reason: The reason (`WaitReason`).
        duration: Duration of the wait in seconds.
    """

    reason: WaitReason
    duration: float


class EventReceived(Observation, frozen=True, kw_only=True):
    """A stream has delivered an event to the caller; reported to observers, and not logged.

    Attributes:
        kind: Name of the event's class: ``"Task"``, ``"TaskStatusUpdateEvent"``,
            ``"TaskArtifactUpdateEvent"`` or ``"Message"``.
        state: State of the task after the event; None if there is no task.
    """

    kind: str
    state: TaskState | None


class StreamInterrupted(Observation, frozen=True, kw_only=True):
    """A stream was cut, or cannot be resumed yet; it is resumed after a wait.

    Attributes:
        error: The error; None if the connection ended without one.
    """

    error: A2AError | None


class Reconnected(Observation, frozen=True, kw_only=True):
    """A stream that was cut has resubscribed.

    Attributes:
        number: Number of resubscriptions of the stream, from 1.
        error: The error that broke a connection of the stream last; None if its connections ended
            without an error, or were cut off because they brought fewer events than the task has.
    """

    number: int
    error: A2AError | None = None


class GapDetected(Observation, frozen=True, kw_only=True):
    """Status messages may be missing, because agents need not keep those sent during a cut.

    The task itself, with its artifacts and its state, is complete.
    """


class CircuitChanged(Observation, frozen=True, kw_only=True):
    """A circuit breaker has opened, lets one call probe (``"half_open"``), or has closed.

    ``request_id`` names the request that changed the state; changes by hand (`Circuit`) are not
    reported.

    Attributes:
        state: The new state (`BreakerState`).
        failures: Number of consecutive failures.
        retry_after: Seconds until the next call may pass; 0 if the circuit is closed.
    """

    state: BreakerState
    failures: int
    retry_after: float


class ReconcileStarted(Observation, frozen=True, kw_only=True):
    """The search for a message whose reply was lost begins.

    ``request_id`` and ``method`` name the request that sent the message.

    Attributes:
        timeout: Largest duration of the search in seconds; 0 if the operation has no time left,
            and there is no search.
        error: The error that lost the reply.
    """

    timeout: float
    error: A2AError


class Reconciled(Observation, frozen=True, kw_only=True):
    """The search for a message whose reply was lost has ended; once for each `ReconcileStarted`.

    ``request_id`` and ``method`` name the request that sent the message; ``method`` is
    ``"SendMessage"`` if the message comes from a journal. ``task_id`` is the task that the message
    created, which replaces the reply; None if no task was found.

    Attributes:
        searched: The locations that were searched, in order.
        duration: Duration of the search in seconds.
        error: The error that ended the search early; an ``asyncio.CancelledError`` if it was
            cancelled; None otherwise.
    """

    searched: tuple[str, ...]
    duration: float
    error: BaseException | None


class JournalWritten(Observation, frozen=True, kw_only=True):
    """The journal has recorded a step of a call, or has failed to.

    It may follow the end of an operation that was cancelled, or that its caller left.

    Attributes:
        step: The step (`JournalStep`).
        duration: Duration of the step in seconds.
        error: The error if it was not recorded; an ``asyncio.CancelledError`` if the operation was
            cancelled meanwhile; None otherwise.
        traceparent: For the step ``"claim"``, the trace context (W3C Trace Context) in which the
            call was recorded at its beginning; None if none was recorded, and for other steps.
    """

    step: JournalStep
    duration: float
    error: BaseException | None
    traceparent: str | None = None


class CardChecked(Observation, frozen=True, kw_only=True):
    """A card was fetched, and its signatures were checked.

    ``request_id`` names the request that needed the card.

    Attributes:
        verification: The result of the check.
    """

    verification: CardVerification


class TelemetrySource(Protocol):
    """Makes spans or metrics of what a client does: an observer, and a layer around each attempt.

    A source may have a method ``traceparent(operation_id) -> str | None`` as well, which returns
    the trace context of an operation. A journal records it with the call, for the process that
    resumes the call (`JournalWritten`).
    """

    def observe(self, observation: Observation, /) -> None:
        """Receive an observation, as an `Observer`; any of them but `EventReceived`.

        Args:
            observation: The observation.
        """
        ...

    def layer(self, inner: Transport, /) -> Transport:
        """Return the layer around each attempt, as a `Layer`.

        Args:
            inner: The transport below.
        """
        ...


Observer = Callable[[Observation], None]
"""Function that receives each `Observation` of an operation, in order; it must not block.

It is called in the event loop of the operation, and must be a plain function. Its exceptions are
logged.
"""
