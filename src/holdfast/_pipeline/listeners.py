"""Hooks of a client: interceptors, consumers and observers.

- An `Interceptor` may change a request, answer it early, and change its result or error.
- A `Consumer` receives the events of streams, `ask`, `send_message`, `wait` and confirmed cancels,
  in order; its exceptions propagate.
- An `Observer` receives frozen observations; its exceptions are logged, never raised.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import warnings
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast._model.installed_telemetry import installed_telemetry
from holdfast._pipeline import observations as event
from holdfast._pipeline.caller_operation import CallerOperation
from holdfast._pipeline.observation_log import log_observation, log_record, subject_fields
from holdfast._policy.attempts import attempts_within
from holdfast.types import AgentCard, Event, Task

if TYPE_CHECKING:
    from collections.abc import Generator

    from holdfast._pipeline.cards.verification import CardVerification
    from holdfast._pipeline.observations import Observation, Observer, TelemetrySource, WaitReason
    from holdfast._pipeline.transport import AnyCall, AnyReply
    from holdfast._policy.breaker import Breaker
    from holdfast._policy.budget import BudgetPolicy
    from holdfast.errors import A2AError, Attempt, OutcomeUnknownError

__all__ = [
    "Consumer",
    "Interceptor",
    "ListenerSet",
    "Observers",
    "attempts_of",
]

logger = logging.getLogger("holdfast")

Consumer = Callable[[Event, Task | None, AgentCard], Awaitable[None] | None]
"""Function or coroutine function that gets each event, the task after the event, and the agent's
card.

The task is None for a message without a task. An exception of a consumer is raised to the caller.
"""


class Interceptor:
    """Base class of interceptors, which see each call once: before and after all its attempts.

    Override the methods that you need. With several interceptors, `before` runs in order and
    `after` in the reverse order; after an early reply, only the interceptors whose `before` ran
    see it. `after` receives the call as the caller made it, without the changes of any `before`.
    A return value of a wrong type is a ``TypeError`` that names the interceptor.
    """

    async def before(self, call: AnyCall) -> AnyCall | AnyReply:
        """Return the call to make, changed or not, or a reply that answers it early.

        The value of an early `Reply` has the type that ``call.operation.response`` names:
        ``SendMessageResponse(task=…)`` or ``SendMessageResponse(message=…)`` for ``SendMessage``;
        ``StreamResponse(task=…)`` or ``StreamResponse(message=…)``, the only event of the stream,
        for ``SendStreamingMessage`` and ``SubscribeToTask``; a `Task` for ``GetTask`` and
        ``CancelTask``; a ``ListTasksResponse``, a ``TaskPushNotificationConfig``, a
        ``ListTaskPushNotificationConfigsResponse`` or an `AgentCard` for the operations that
        return one; ``Empty()`` for ``DeleteTaskPushNotificationConfig``. All of these types are in
        `holdfast.types`. `Client.ask` streams if the agent does, so answer both operations.

        Args:
            call: The call.
        """
        return call

    async def after(
        self,
        call: AnyCall,  # noqa: ARG002  for overriding methods
        outcome: AnyReply | A2AError,
    ) -> AnyReply | A2AError:
        """Return the outcome, changed or not; a returned error is raised.

        For a stream it is called with each event, as the value of a reply.

        Args:
            call: The call, as the caller made it.
            outcome: The reply or the error.
        """
        return outcome


class ListenerSet:
    """The interceptors and consumers of a client; more can be added later.

    A call uses those that are set when it begins.

    Attributes:
        interceptors: The interceptors, in order.
        consumers: The consumers, in order.
    """

    def __init__(
        self, interceptors: Sequence[Interceptor] = (), consumers: Sequence[Consumer] = ()
    ) -> None:
        self.interceptors = tuple(interceptors)
        self.consumers = tuple(consumers)


class Observers:
    """Reports observations to the log and to the caller's observers; their errors are logged.

    Args:
        observers: The caller's observers.
        agent: The agent as the caller named it; empty where each request names its own.
        telemetry: The telemetry; None for that of ``HoldfastInstrumentor``, or none.
        budget: The policy of the retry budgets whose tokens are reported; None for none.

    Attributes:
        agent: The agent as the caller named it; a coordinator sets its own name for the agent.
        telemetry: The telemetry in use; None for none.
    """

    def __init__(
        self,
        observers: Iterable[Observer],
        agent: str = "",
        *,
        telemetry: TelemetrySource | None = None,
        budget: BudgetPolicy | None = None,
    ) -> None:
        self.agent = agent
        self.telemetry = installed_telemetry() if telemetry is None else telemetry
        self._budget = budget
        sources = () if self.telemetry is None else (self.telemetry.observe,)
        own = tuple(observers)
        self._observers = (log_observation, *own, *sources)
        self._takes_events = bool(own)  # neither the log nor a telemetry does
        self._takes_steps = len(self._observers) > 1
        self._failures: set[tuple[int, type[Observation], type[Exception]]] = set()
        self._has_warned = False

    def are_active(self) -> bool:
        """Return whether observations of successful steps are used."""
        return self._takes_steps or logger.isEnabledFor(logging.DEBUG)

    # ── Operations ───────────────────────────────────────────────────────────────────────────

    def operation_started(self, operation: CallerOperation) -> None:
        """Report that an operation begins."""
        self._notify(event.OperationStarted(**self._of_operation(operation)))

    def operation_finished(
        self,
        operation: CallerOperation,
        *,
        outcome: event.Outcome,
        duration: float,
        error: BaseException | None,
        executed: bool | None,
    ) -> None:
        """Report the end of an operation."""
        self._notify(
            event.OperationFinished(
                **self._of_operation(operation),
                outcome=outcome,
                error=error,
                duration=duration,
                requests=operation.requests,
                attempts=operation.attempts,
                retries=operation.retries,
                reconnects=operation.reconnects,
                has_gap=operation.has_gap,
                executed=executed,
                state=operation.state,
                events=operation.events,
                time_to_first_event=operation.time_to_first_event,
            )
        )

    def event_received(self, operation: CallerOperation, kind: str) -> None:
        """Report that a stream delivers an event."""
        if self._takes_events:
            subject = self._of_latest_request(operation)
            self._notify(event.EventReceived(**subject, kind=kind, state=operation.state))

    def stream_interrupted(self, operation: CallerOperation, error: A2AError | None) -> None:
        """Report that a stream was cut, or cannot be resumed yet."""
        self._notify(event.StreamInterrupted(**self._of_latest_request(operation), error=error))

    def reconnected(
        self, operation: CallerOperation, *, number: int, error: A2AError | None
    ) -> None:
        """Report that a stream has resubscribed."""
        operation.reconnects += 1
        subject = self._of_latest_request(operation)
        self._notify(event.Reconnected(**subject, number=number, error=error))

    def gap_detected(self, operation: CallerOperation) -> None:
        """Report that status messages may be missing."""
        operation.has_gap = True
        self._notify(event.GapDetected(**self._of_latest_request(operation)))

    def reconcile_started(
        self, operation: CallerOperation, lost: OutcomeUnknownError, *, method: str, seconds: float
    ) -> None:
        """Report that the search for a message begins."""
        subject = self._of_lost_message(operation, lost, method)
        self._notify(event.ReconcileStarted(**subject, timeout=seconds, error=lost))

    def reconciled(
        self,
        operation: CallerOperation,
        lost: OutcomeUnknownError,
        *,
        method: str,
        searched: tuple[str, ...],
        task_id: str | None,
        seconds: float,
        failure: BaseException | None,
    ) -> None:
        """Report that the search for a message has ended."""
        subject = self._of_lost_message(operation, lost, method)
        subject["task_id"] = task_id
        self._notify(
            event.Reconciled(**subject, searched=searched, duration=seconds, error=failure)
        )

    def log(
        self,
        operation: CallerOperation,
        level: int,
        text: str,
        *arguments: object,
        error: BaseException | None = None,
        exc_info: bool = False,
    ) -> None:
        """Log a text about an operation; observers do not get it.

        Args:
            operation: The operation.
            level: Level of the record.
            text: The text, with placeholders for ``arguments``.
            arguments: Values of the placeholders.
            error: The error that the record is about, if any.
            exc_info: Whether the record has the traceback of the exception that is handled now.
        """
        if logger.isEnabledFor(level):
            subject = event.Observation(**self._of_latest_request(operation))
            log_record(subject, level, text, *arguments, error=error, exc_info=exc_info)

    # ── Requests and attempts ────────────────────────────────────────────────────────────────

    def request_started(self, call: AnyCall) -> None:
        """Report that a request begins."""
        self._notify(event.RequestStarted(**self._of_request(call)))

    def request_finished(
        self, call: AnyCall, error: BaseException | None, *, attempts: int, duration: float
    ) -> None:
        """Report the end of a request."""
        self._notify(
            event.RequestFinished(
                **self._of_request(call),
                attempts=attempts,
                duration=duration,
                error=error,
                retry_tokens=self._retry_tokens(call),
            )
        )

    def attempt_started(self, call: AnyCall, attempt_id: str) -> None:
        """Report that an attempt begins."""
        subject = self._of_call(call)
        self._notify(event.AttemptStarted(**subject, attempt_id=attempt_id, number=call.attempt))

    def attempt_finished(
        self, call: AnyCall, attempt_id: str, *, duration: float, error: BaseException | None
    ) -> None:
        """Report that an attempt has ended after `duration` seconds."""
        self._notify(
            event.AttemptFinished(
                **self._of_call(call),
                attempt_id=attempt_id,
                number=call.attempt,
                duration=duration,
                error=error,
            )
        )

    def retry_scheduled(self, call: AnyCall, error: A2AError, *, wait: float) -> None:
        """Report that the next attempt begins in `wait` seconds."""
        self.operation_of(call).retries += 1
        self._notify(
            event.RetryScheduled(
                **self._of_call(call),
                number=len(call.progress.attempts) + 1,
                wait=wait,
                reason="backoff" if error.retry_after is None else "retry_after",
                error=error,
                retry_tokens=self._retry_tokens(call),
            )
        )

    def retry_stopped(self, call: AnyCall, error: A2AError, reason: str) -> None:
        """Report that no attempt follows a failed one."""
        self._notify(event.RetryStopped(**self._of_call(call), reason=reason, error=error))

    def hedge_started(self, call: AnyCall, delay: float) -> None:
        """Report that a second attempt is made beside the first."""
        self._notify(event.HedgeStarted(**self._of_call(call), delay=delay))

    def journal_written(
        self,
        operation: CallerOperation,
        step: event.JournalStep,
        *,
        duration: float,
        error: BaseException | None,
        traceparent: str | None,
    ) -> None:
        """Report that the journal has recorded a step of a call, or has failed to."""
        subject = self._subject(operation, operation.id, operation.request_id, operation.method)
        self._notify(
            event.JournalWritten(
                **subject, step=step, duration=duration, error=error, traceparent=traceparent
            )
        )

    def traceparent(self, operation: CallerOperation) -> str | None:
        """Return the ``traceparent`` of an operation for its record; None if it is in no trace."""
        source = getattr(self.telemetry, "traceparent", None)
        if source is None:
            return None
        try:
            value: str | None = source(operation.id)
        except Exception as error:
            text = "the telemetry failed to return a traceparent"
            logger.exception(text)
            self._warn(f"{text}: {type(error).__name__}: {error}")
            return None
        return value

    @contextlib.contextmanager
    def waiting(
        self, waiter: AnyCall | CallerOperation, reason: WaitReason, seconds: float | None
    ) -> Generator[None]:
        """Report a wait, which lasts as long as the block.

        Args:
            waiter: The call that waits, or the operation that waits between its requests.
            reason: The reason.
            seconds: How long, as far as it is known; a wait of 0 seconds is not reported.
        """
        operation = waiter if isinstance(waiter, CallerOperation) else self.operation_of(waiter)
        is_shown = operation.is_observed or reason == "lease"  # a long wait, logged at INFO
        if not is_shown or seconds == 0:
            yield
            return
        if isinstance(waiter, CallerOperation):
            subject = self._of_latest_request(waiter)
        else:
            subject = self._of_call(waiter)
        began = operation.now()
        self._notify(event.WaitStarted(**subject, reason=reason, seconds=seconds))
        try:
            yield
        finally:
            duration = operation.now() - began
            self._notify(event.WaitFinished(**subject, reason=reason, duration=duration))

    def circuit_changed(self, call: AnyCall, breaker: Breaker, *, now: float) -> None:
        """Report that a circuit breaker changed its state."""
        self._notify(
            event.CircuitChanged(
                **self._of_call(call),
                state=breaker.state(now=now),
                failures=breaker.failures,
                retry_after=breaker.retry_after(now=now),
            )
        )

    def card_checked(self, call: AnyCall, verification: CardVerification) -> None:
        """Report that the signature of a card was checked."""
        self._notify(event.CardChecked(**self._of_call(call), verification=verification))

    def _retry_tokens(self, call: AnyCall) -> float | None:
        endpoint = call.endpoint or call.progress.endpoint
        return None if endpoint is None else endpoint.tokens(self._budget)

    # ── The fields that all observations have ────────────────────────────────────────────────

    def _of_operation(self, operation: CallerOperation) -> dict[str, Any]:
        return self._subject(
            operation, operation.parent_id, operation.request_id, operation.method
        )

    def _of_request(self, call: AnyCall) -> dict[str, Any]:
        operation = self.operation_of(call)
        return self._subject(
            operation, operation.id, call.request_id, call.operation.name, call=call
        )

    def _of_call(self, call: AnyCall) -> dict[str, Any]:
        return self._subject(
            self.operation_of(call),
            call.request_id,
            call.request_id,
            call.operation.name,
            call=call,
        )

    def operation_of(self, call: AnyCall, *, is_observed: bool = False) -> CallerOperation:
        """Return the operation of a call; a new one for a call outside of an operation.

        Args:
            call: The call.
            is_observed: Whether the start and the end of a new operation are reported. Those of a
                call that a custom layer makes are not.
        """
        progress = call.progress
        if progress.operation is None:
            progress.operation = CallerOperation(
                self, call.operation.name, call.request_id, is_observed=is_observed
            )
        return progress.operation

    def _of_latest_request(self, operation: CallerOperation) -> dict[str, Any]:
        request_id, method = operation.latest_request
        return self._subject(operation, request_id or operation.id, request_id, method)

    def _of_lost_message(
        self, operation: CallerOperation, lost: OutcomeUnknownError, method: str
    ) -> dict[str, Any]:
        subject = self._subject(operation, operation.id, lost.request_id, method)
        return {**subject, "message_id": lost.message_id}

    def _subject(
        self,
        operation: CallerOperation,
        parent_id: str | None,
        request_id: str | None,
        method: str | None,
        *,
        call: AnyCall | None = None,
    ) -> dict[str, Any]:
        operation.note_unread()
        endpoint = operation.endpoint
        if call is not None:
            called = call.endpoint or call.progress.endpoint
            endpoint = None if called is None else called.agent
            operation.endpoint = endpoint or operation.endpoint
        return {
            "operation_id": operation.id,
            "parent_id": parent_id,
            "request_id": request_id,
            "operation": operation.name,
            "method": method,
            "agent": self.agent or endpoint or "",
            "endpoint": endpoint,
            "message_id": operation.message_id,
            "task_id": operation.task_id,
            "context_id": operation.context_id,
        }

    def _notify(self, observation: Observation) -> None:
        for observer in self._observers:
            try:
                if (result := observer(observation)) is not None:
                    _check_result(result)
            except Exception as error:  # noqa: BLE001  an observer must not end calls
                self._report_failure(observer, observation, error)

    def _report_failure(
        self, observer: Observer, observation: Observation, error: Exception
    ) -> None:
        """Log the failure of an observer; repetitions, as for each event, are details."""
        name = getattr(observer, "__qualname__", type(observer).__qualname__)
        text = f"the observer {name} failed on {type(observation).__name__}"
        failure = id(observer), type(observation), type(error)
        level = logging.DEBUG if failure in self._failures else logging.ERROR
        self._failures.add(failure)
        logger.log(level, text, exc_info=error, extra=subject_fields(observation))
        self._warn(f"{text}: {type(error).__name__}: {error}")

    def _warn(self, text: str) -> None:
        """Warn of an observer's first failure; the log may not be configured."""
        if not self._has_warned:
            self._has_warned = True
            with contextlib.suppress(Warning):  # if warnings are errors, the call must not fail
                warnings.warn(
                    f"{text} (later failures are only logged)", RuntimeWarning, stacklevel=2
                )


def _check_result(result: object) -> None:
    """Raise a TypeError if an observer has returned a coroutine, which nothing would await."""
    if inspect.iscoroutine(result):
        result.close()
        text = "it returned a coroutine; an observer must be a plain function"
        raise TypeError(text)


def attempts_of(call: AnyCall) -> Sequence[Attempt]:
    """Return the finished attempts of a call; those of its card if it did not get further."""
    progress = call.progress
    if progress.attempts or progress.card is None:
        return progress.attempts
    card = progress.card
    return attempts_within(card.attempts, after=card.began - progress.began)
