"""Hooks of a client: interceptors, consumers and observers.

- An `Interceptor` may change a request, answer it early, and change its result or error.
- A `Consumer` receives the events of streams, `ask`, `send_message`, `wait` and confirmed cancels,
  in order; its exceptions propagate.
- An `Observer` receives frozen observations; its exceptions are logged, never raised.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict

import msgspec

from holdfast._model.operations import SUBSCRIBE_TO_TASK
from holdfast._pipeline.cards.verification import CardVerification
from holdfast._policy.breaker import BreakerState
from holdfast.errors import A2AError, TaskNotFoundError, UnsupportedOperationError
from holdfast.types import AgentCard, Event, Task

if TYPE_CHECKING:
    from holdfast._pipeline.transport import AnyCall, AnyReply, CallGroup
    from holdfast._policy.breaker import Breaker
    from holdfast.errors import Attempt, OutcomeUnknownError

__all__ = [
    "AttemptFailed",
    "AttemptStarted",
    "CallFinished",
    "CardChecked",
    "CircuitChanged",
    "Consumer",
    "Interceptor",
    "ListenerSet",
    "Observation",
    "Observer",
    "Observers",
    "ReconcileStarted",
    "Reconciled",
    "Reconnected",
    "RequestFinished",
    "RetryScheduled",
    "attempts_of",
]

logger = logging.getLogger("holdfast")
logger.addHandler(logging.NullHandler())  # no output unless the program configures logging

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


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the life of a call; the base class of all observations.

    Attributes:
        request_id: Id of the request.
        operation: Name of the operation.
        agent: Address of the agent, without credentials or query; None before it is known.
    """

    request_id: str
    operation: str
    agent: str | None


class AttemptStarted(Observation, frozen=True, kw_only=True):
    """An attempt begins.

    Attributes:
        number: Number of the attempt, from 1.
    """

    number: int


class AttemptFailed(Observation, frozen=True, kw_only=True):
    """An attempt failed.

    Attributes:
        number: Number of the attempt, from 1.
        duration: Duration of the attempt in seconds.
        error: The error.
    """

    number: int
    duration: float
    error: A2AError


class RetryScheduled(Observation, frozen=True, kw_only=True):
    """An attempt failed, and another one is scheduled; reported once for each attempt.

    Attributes:
        number: Number of the next attempt, from 2.
        wait: Seconds until the next attempt; it may begin later if the circuit is open then.
        error: The error of the previous attempt.
    """

    number: int
    wait: float
    error: A2AError


class Reconnected(Observation, frozen=True, kw_only=True):
    """A stream that was cut has resubscribed.

    Attributes:
        task_id: Id of the task.
        number: Number of resubscriptions of the stream, from 1.
        error: The error that broke a connection of the stream last; None if its connections ended
            without an error, or were cut off because they brought fewer events than the task has.
    """

    task_id: str
    number: int
    error: A2AError | None = None


class CircuitChanged(Observation, frozen=True, kw_only=True):
    """A circuit breaker has opened, lets one call probe (``"half_open"``), or has closed.

    ``request_id`` names the call that changed the state; changes by hand (`Circuit`) are not
    reported.

    Attributes:
        state: The new state (`BreakerState`).
        failures: Number of consecutive failures.
        retry_after: Seconds until the next call may pass.
    """

    state: BreakerState
    failures: int
    retry_after: float


class ReconcileStarted(Observation, frozen=True, kw_only=True):
    """The search for a message whose reply was lost begins.

    ``operation`` is the operation that sent the message, as in `Reconciled`, which follows.

    Attributes:
        message_id: Id of the message.
        timeout: Largest duration of the search in seconds; 0 if the call has no time left, and
            there is no search.
        error: The error that lost the reply.
    """

    message_id: str
    timeout: float
    error: A2AError


class Reconciled(Observation, frozen=True, kw_only=True):
    """The search for a message whose reply was lost has ended.

    ``operation`` is the operation that sent the message, ``"SendMessage"`` if the message comes
    from a journal.

    Attributes:
        message_id: Id of the message.
        searched: The locations that were searched, in order.
        task_id: Id of the task that the message created, which replaces the reply; None if no task
            was found.
        duration: Duration of the search in seconds.
    """

    message_id: str
    searched: tuple[str, ...]
    task_id: str | None
    duration: float


class CardChecked(Observation, frozen=True, kw_only=True):
    """A card was fetched, and its signatures were checked.

    ``request_id`` names the call that needed the card.

    Attributes:
        verification: The result of the check.
    """

    verification: CardVerification


class RequestFinished(Observation, frozen=True, kw_only=True):
    """One request of a call has ended; not reported if no attempt was made.

    There is no attempt for a card from the cache, a call that an open circuit refuses, or a reply
    of an `Interceptor`.

    A `Client.ask` makes several requests if its stream is cut or its task is polled. Each of them
    is reported; a stream that was cut has the error that cut it, even if the call continues.

    Attributes:
        attempts: Number of attempts of the request. If the request did not get past the agent
            card, the number of attempts to fetch the card.
        duration: Seconds; for a stream, until it was closed.
        error: The error that ended the request; an ``asyncio.CancelledError`` if the caller
            cancelled it; None if it succeeded.
    """

    attempts: int
    duration: float
    error: BaseException | None


class CallFinished(Observation, frozen=True, kw_only=True):
    """A call of the caller has ended; reported once for all requests of the call.

    A call is one method call on a client: `Client.ask` and `Client.stream_message` until the
    stream is closed, `Client.wait` and `Client.cancel_task` with all their polls, each message of
    `Client.run`, each turn of a conversation. ``operation`` and ``request_id`` belong to the
    request that sent the message, or to the first request if no message was sent. Fetching a card
    for a call is not a call.

    Attributes:
        attempts: Number of attempts of all requests of the call; 0 if nothing was requested, as
            for a result that was in the journal. If the call did not get past the agent card, the
            number of attempts to fetch the card.
        duration: Seconds; for a stream, until its last event, or until the caller left it.
        error: The error that the caller received, such as a `TaskFailedError`; an
            ``asyncio.CancelledError`` if the call was cancelled; None if the call succeeded (also
            after a cut), or if the caller left a stream before its end.
    """

    attempts: int
    duration: float
    error: BaseException | None


Observer = Callable[[Observation], None]
"""Function that receives each `Observation` of a call, in order; it must not block.

It is called in the event loop of the call, and must be a plain function. Its exceptions are
logged.
"""


class Observers:
    """Reports observations to the log and to the caller's observers; their errors are logged."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = (_log, *observers)
        self._has_callers_observers = len(self._observers) > 1
        self._has_warned = False

    def attempt_started(self, call: AnyCall) -> None:
        """Report that an attempt begins."""
        if self.are_active():
            self._notify(AttemptStarted(**_subject_of(call), number=call.attempt))

    def attempt_failed(self, call: AnyCall, error: A2AError, *, duration: float) -> None:
        """Report that an attempt failed after `duration` seconds."""
        self._notify(
            AttemptFailed(**_subject_of(call), number=call.attempt, duration=duration, error=error)
        )

    def retry_scheduled(self, call: AnyCall, error: A2AError, *, wait: float) -> None:
        """Report that the next attempt begins in `wait` seconds."""
        number = len(call.progress.attempts) + 1
        self._notify(RetryScheduled(**_subject_of(call), number=number, wait=wait, error=error))

    def circuit_changed(self, call: AnyCall, breaker: Breaker, *, now: float) -> None:
        """Report that a circuit breaker changed its state."""
        self._notify(
            CircuitChanged(
                **_subject_of(call),
                state=breaker.state(now=now),
                failures=breaker.failures,
                retry_after=breaker.retry_after(now=now),
            )
        )

    def reconnected(
        self,
        *,
        request_id: str,
        agent: str | None,
        task_id: str,
        number: int,
        error: A2AError | None,
    ) -> None:
        """Report that a stream has resubscribed."""
        self._notify(
            Reconnected(
                request_id=request_id,
                operation=SUBSCRIBE_TO_TASK.name,
                agent=agent,
                task_id=task_id,
                number=number,
                error=error,
            )
        )

    def reconcile_started(
        self, lost: OutcomeUnknownError, *, operation: str, seconds: float
    ) -> None:
        """Report that the search for a message begins."""
        self._notify(
            ReconcileStarted(
                request_id=lost.request_id or "",
                operation=operation,
                agent=lost.agent,
                message_id=lost.message_id,
                timeout=seconds,
                error=lost,
            )
        )

    def reconciled(
        self,
        lost: OutcomeUnknownError,
        *,
        operation: str,
        searched: tuple[str, ...],
        task_id: str | None,
        seconds: float,
    ) -> None:
        """Report that the search for a message has ended."""
        self._notify(
            Reconciled(
                request_id=lost.request_id or "",
                operation=operation,
                agent=lost.agent,
                message_id=lost.message_id,
                searched=searched,
                task_id=task_id,
                duration=seconds,
            )
        )

    def card_checked(self, call: AnyCall, verification: CardVerification) -> None:
        """Report that the signature of a card was checked."""
        checked = CardChecked(**_subject_of(call), verification=verification)
        _log_card(checked)
        self._notify(checked)

    def request_finished(self, call: AnyCall, error: BaseException | None) -> None:
        """Report the end of a request if one was made, and of the call if it ends with it."""
        if not self.are_active():
            return
        now, call_group = asyncio.get_running_loop().time(), call.progress.call_group
        attempts = attempts_of(call)
        agent = attempts[-1].agent if attempts else None
        duration = now - call.progress.began
        call_group.attempts += len(attempts)
        call_group.agent = agent or call_group.agent
        if attempts:
            self._notify(
                RequestFinished(
                    request_id=call.request_id,
                    operation=call.operation.name,
                    agent=agent,
                    attempts=len(attempts),
                    duration=duration,
                    error=error,
                )
            )
        if call_group.ends_with_request:
            call_group.request_id = call_group.request_id or call.request_id
            self.call_finished(call_group, call.operation.name, duration, error)

    def call_finished(
        self, call_group: CallGroup, operation: str, duration: float, error: BaseException | None
    ) -> None:
        """Report the end of a call.

        Args:
            call_group: The state that its requests share.
            operation: Name of the operation, used if no request was made.
            duration: Seconds.
            error: The error that the caller receives.
        """
        if not self.are_active():
            return
        failure = error if isinstance(error, A2AError) else None
        card_attempts = () if failure is None else failure.attempts  # if no request was made
        request_id, agent = call_group.request_id, call_group.agent
        if failure is not None:
            request_id, agent = request_id or failure.request_id, agent or failure.agent
        self._notify(
            CallFinished(
                request_id=request_id or "",
                operation=call_group.operation or operation,
                agent=agent,
                attempts=call_group.attempts or len(card_attempts),
                duration=duration,
                error=error,
            )
        )

    def are_active(self) -> bool:
        """Return whether observations of successful steps are used."""
        return self._has_callers_observers or logger.isEnabledFor(logging.DEBUG)

    def _notify(self, observation: Observation) -> None:
        for observer in self._observers:
            try:
                observer(observation)
            except Exception as error:
                text = f"an observer failed on {type(observation).__name__}"
                logger.exception(text)
                self._warn(f"{text}: {type(error).__name__}: {error}")

    def _warn(self, text: str) -> None:
        """Warn of an observer's first failure; the log may not be configured."""
        if not self._has_warned:
            self._has_warned = True
            with contextlib.suppress(Warning):  # if warnings are errors, the call must not fail
                warnings.warn(
                    f"{text} (later failures are only logged)", RuntimeWarning, stacklevel=2
                )


def attempts_of(call: AnyCall) -> Sequence[Attempt]:
    """Return the finished attempts of a call; those of its card if it did not get further."""
    progress = call.progress
    if progress.attempts or progress.card is None:
        return progress.attempts
    return progress.card.attempts


class _Subject(TypedDict):
    request_id: str
    operation: str
    agent: str | None


def _subject_of(call: AnyCall) -> _Subject:
    endpoint = call.endpoint or call.progress.endpoint
    return {
        "request_id": call.request_id,
        "operation": call.operation.name,
        "agent": None if endpoint is None else endpoint.agent,
    }


def _log(observation: Observation) -> None:
    """Log an observation under ``holdfast``; bodies and headers are never logged."""
    match observation:
        case AttemptStarted() if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s attempt %d started", _describe(observation), observation.number)
        case AttemptFailed():
            # A refused subscription means that the task is over: the stream fetches it.
            is_answer = observation.operation == SUBSCRIBE_TO_TASK.name and isinstance(
                observation.error, UnsupportedOperationError | TaskNotFoundError
            )
            logger.log(
                logging.INFO if is_answer else logging.WARNING,
                "%s attempt %d failed after %.3f s: %s: %s",
                _describe(observation),
                observation.number,
                observation.duration,
                type(observation.error).__name__,
                observation.error,
            )
        case RetryScheduled():
            logger.info(
                "%s attempt %d follows in %.3f s",
                _describe(observation),
                observation.number,
                observation.wait,
            )
        case CircuitChanged():
            _log_circuit(observation)
        case Reconnected():
            logger.info(
                "%s reconnected to task %s (reconnect %d)",
                _describe(observation),
                observation.task_id,
                observation.number,
            )
        case ReconcileStarted() if not observation.timeout:
            logger.warning(
                "%s the reply to message %s was lost, and no time is left to search for its task",
                _describe(observation),
                observation.message_id,
            )
        case ReconcileStarted():
            logger.warning(
                "%s the reply to message %s was lost: searching for its task for up to %g s",
                _describe(observation),
                observation.message_id,
                observation.timeout,
            )
        case Reconciled():
            logger.warning(
                "%s message %s, whose reply was lost, %s after %.3f s",
                _describe(observation),
                observation.message_id,
                "was not found"
                if observation.task_id is None
                else f"was found as task {observation.task_id}",
                observation.duration,
            )
        case RequestFinished() | CallFinished() if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "%s %s %s after %.3f s (attempts: %d)",
                _describe(observation),
                "call" if isinstance(observation, CallFinished) else "request",
                "succeeded"
                if observation.error is None
                else f"failed with {type(observation.error).__name__}",
                observation.duration,
                observation.attempts,
            )
        case _:
            pass


_OUTCOMES = {
    "verified": "verified",
    "absent": "not signed",
    "invalid": "signed wrongly",
    "unverifiable": "not verified",
}


def _log_card(checked: CardChecked) -> None:
    verification = checked.verification
    is_doubtful = verification.outcome in {"invalid", "unverifiable"}
    logger.log(
        logging.WARNING if is_doubtful else logging.DEBUG,
        "%s the card is %s: %s",
        _describe(checked),
        _OUTCOMES[verification.outcome],
        verification.reason or f"key {verification.key_id!r}",
    )


def _log_circuit(changed: CircuitChanged) -> None:
    match changed.state:
        case "open":
            logger.warning(
                "%s circuit open for %.3g s after %d consecutive failures",
                _describe(changed),
                changed.retry_after,
                changed.failures,
            )
        case "half_open":
            logger.info("%s circuit half-open: one call probes the agent", _describe(changed))
        case _:
            logger.info("%s circuit closed", _describe(changed))


def _describe(observation: Observation) -> str:
    agent = "an unknown agent" if observation.agent is None else observation.agent
    return f"{observation.operation} {observation.request_id} to {agent}:"
