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

from holdfast._model.operations import SUBSCRIBE_TO_TASK
from holdfast._pipeline.observation_log import log_observation
from holdfast._pipeline.observations import (
    AttemptFailed,
    AttemptStarted,
    CallFinished,
    CardChecked,
    CircuitChanged,
    Reconciled,
    ReconcileStarted,
    Reconnected,
    RequestFinished,
    RetryScheduled,
)
from holdfast.errors import A2AError
from holdfast.types import AgentCard, Event, Task

if TYPE_CHECKING:
    from holdfast._pipeline.cards.verification import CardVerification
    from holdfast._pipeline.observations import Observation, Observer
    from holdfast._pipeline.transport import AnyCall, AnyReply, CallGroup
    from holdfast._policy.breaker import Breaker
    from holdfast.errors import Attempt, OutcomeUnknownError

__all__ = [
    "Consumer",
    "Interceptor",
    "ListenerSet",
    "Observers",
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


class Observers:
    """Reports observations to the log and to the caller's observers; their errors are logged."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = (log_observation, *observers)
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
        self._notify(CardChecked(**_subject_of(call), verification=verification))

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
