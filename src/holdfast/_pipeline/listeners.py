"""Those who listen to calls: interceptors, consumers and observers, each with one job.

- An `Interceptor` may change a request, answer it early, and change a result or a failure.
- A `Consumer` gets what streams, `ask`, `send_message`, `wait` and the confirmation of a cancel
  receive, in order; its exceptions propagate.
- An `Observer` gets frozen details of what happens; its exceptions are logged, never raised.
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
from holdfast.errors import A2AError
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
logger.addHandler(logging.NullHandler())  # without logging set up, a library is silent

Consumer = Callable[[Event, Task | None, AgentCard], Awaitable[None] | None]
"""Called with the event, the task as it stands after it (None for a message without one), and
the agent's card; may be a coroutine function."""


class Interceptor:
    """Sees every call of a client from outside: once, whatever is tried again inside.

    Override what you need. With several interceptors, `before` runs in order and `after` in the
    reverse order; after an early answer, only those that were asked see it. `after` gets the call
    as its caller made it, without what any `before` changed. What is returned by mistake is a
    `TypeError` that names the interceptor.
    """

    async def before(self, call: AnyCall) -> AnyCall | AnyReply:
        """Returns the call to make, changed or not, or a reply to answer it early."""
        return call

    async def after(
        self,
        call: AnyCall,  # noqa: ARG002  for those who override this
        outcome: AnyReply | A2AError,
    ) -> AnyReply | A2AError:
        """Returns the outcome, changed or not; an error that is returned is raised.

        Of a stream it is asked for each event, as the value of a reply of its own.
        """
        return outcome


class ListenerSet:
    """A client's interceptors and consumers; others may come later.

    A call goes by those that there are when it begins.

    Attributes:
        interceptors: In order.
        consumers: In order.
    """

    def __init__(
        self, interceptors: Sequence[Interceptor] = (), consumers: Sequence[Consumer] = ()
    ) -> None:
        self.interceptors = tuple(interceptors)
        self.consumers = tuple(consumers)


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a call.

    Attributes:
        request_id: Names the call.
        operation: Name of the operation.
        agent: The address, without credentials or query; None before it is known.
    """

    request_id: str
    operation: str
    agent: str | None


class AttemptStarted(Observation, frozen=True, kw_only=True):
    """A try begins; `number` counts from 1."""

    number: int


class AttemptFailed(Observation, frozen=True, kw_only=True):
    """A try failed after `duration` seconds."""

    number: int
    duration: float
    error: A2AError


class RetryScheduled(Observation, frozen=True, kw_only=True):
    """Try `number` begins in `wait` seconds, because of `error`."""

    number: int
    wait: float
    error: A2AError


class Reconnected(Observation, frozen=True, kw_only=True):
    """A stream that was cut was subscribed to again, for the time number `number`.

    `error` is what a connection of it broke with last; None if they merely ended.
    """

    task_id: str
    number: int
    error: A2AError | None = None


class CircuitChanged(Observation, frozen=True, kw_only=True):
    """A circuit breaker has opened, is trying a call (``"half_open"``), or has closed.

    `failures` is how many calls have failed in a row by now; `retry_after` is how many seconds
    pass before the next call may go through. The call that is named is the one that changed it;
    what is done by hand is not told.
    """

    state: BreakerState
    failures: int
    retry_after: float


class ReconcileStarted(Observation, frozen=True, kw_only=True):
    """The search for a message begins whose reply was lost with `error`.

    `operation` is the one that sent it, as in `Reconciled`, which follows. The search takes
    `timeout` seconds at most; zero if the call has no time left, and then no search is made.
    """

    message_id: str
    timeout: float
    error: A2AError


class Reconciled(Observation, frozen=True, kw_only=True):
    """The search for a message whose reply was lost has ended, after `duration` seconds.

    `operation` is the one that sent it, ``"SendMessage"`` if it comes from a journal, and
    `searched` the places that were searched, in order. `task_id` is the task that it made, and
    that stands for the reply; None if none was found.
    """

    message_id: str
    searched: tuple[str, ...]
    task_id: str | None
    duration: float


class CardChecked(Observation, frozen=True, kw_only=True):
    """A card has come, and somebody was to verify it: see `CardVerification`.

    The call that is named is the one that needed it.
    """

    verification: CardVerification


class RequestFinished(Observation, frozen=True, kw_only=True):
    """One request of a call is over after `attempts` attempts and `duration` seconds.

    An `ask` takes several requests where its stream is cut or its task is polled: each of them is
    reported, and a stream that was cut has the error that cut it, though the call goes on. Where
    a request got no further than the agent's card, the attempts are those of fetching the card; a
    card from the cache took none.

    Attributes:
        attempts: How many attempts the request took.
        duration: Seconds; of a stream, until it was closed.
        error: The error that ended the request; an `asyncio.CancelledError` where the caller
            cancelled it; None if it succeeded.
    """

    attempts: int
    duration: float
    error: BaseException | None


class CallFinished(Observation, frozen=True, kw_only=True):
    """A call that the caller made has ended; reported once, whatever requests the call took.

    A call is one method of a client: `ask` and `stream_message` until the stream is closed,
    `wait` and `cancel_task` with all their polls, each message of `run`, each turn of a
    conversation. `operation` and `request_id` are those of the request that sent the message, of
    the first request where no message was sent. A card that is fetched on the way is no call.

    Attributes:
        attempts: How many attempts the requests of the call took. Where the call got no further
            than the agent's card, those of fetching the card.
        duration: Seconds; of a stream, until its last event, or until it was left.
        error: The error that the caller got, which may be a `TaskFailedError`; an
            `asyncio.CancelledError` where the call was cancelled; None if the call succeeded,
            after a cut too, and where a stream was left before its end.
    """

    attempts: int
    duration: float
    error: BaseException | None


Observer = Callable[[Observation], None]


class Observers:
    """Tells the log and the caller's observers what happens to calls, and survives them."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = (_log, *observers)
        self._has_own = len(self._observers) > 1
        self._has_warned = False

    def attempt_started(self, call: AnyCall) -> None:
        """A try begins."""
        if self.are_active():
            self._tell(AttemptStarted(**_named(call), number=call.attempt))

    def attempt_failed(self, call: AnyCall, error: A2AError, *, duration: float) -> None:
        """A try failed after `duration` seconds."""
        self._tell(
            AttemptFailed(**_named(call), number=call.attempt, duration=duration, error=error)
        )

    def retry_scheduled(self, call: AnyCall, error: A2AError, *, wait: float) -> None:
        """After a failed try, the next one begins in `wait` seconds."""
        number = len(call.progress.attempts) + 1
        self._tell(RetryScheduled(**_named(call), number=number, wait=wait, error=error))

    def circuit_changed(self, call: AnyCall, breaker: Breaker, *, now: float) -> None:
        """An agent is left alone, or no longer."""
        self._tell(
            CircuitChanged(
                **_named(call),
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
        """A stream goes on."""
        self._tell(
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
        self._tell(
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
        """A message was looked for."""
        self._tell(
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
        """A card has come."""
        checked = CardChecked(**_named(call), verification=verification)
        _log_card(checked)
        self._tell(checked)

    def request_finished(self, call: AnyCall, error: BaseException | None) -> None:
        """A request is over, and with it the caller's call, unless that may take several."""
        if not self.are_active():
            return
        now, call_group = asyncio.get_running_loop().time(), call.progress.call_group
        attempts = attempts_of(call)
        agent = attempts[-1].agent if attempts else None
        duration = now - call.progress.began
        call_group.attempts += len(attempts)
        call_group.agent = agent or call_group.agent
        self._tell(
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
        """A call of the caller's is over.

        Args:
            call_group: What its requests shared.
            operation: Name of the operation, where no request was made.
            duration: Seconds.
            error: The error that the caller gets.
        """
        if not self.are_active():
            return
        failure = error if isinstance(error, A2AError) else None
        tried = () if failure is None else failure.attempts  # to fetch the card, where no request
        request_id, agent = call_group.request_id, call_group.agent
        if failure is not None:
            request_id, agent = request_id or failure.request_id, agent or failure.agent
        self._tell(
            CallFinished(
                request_id=request_id or "",
                operation=call_group.operation or operation,
                agent=agent,
                attempts=call_group.attempts or len(tried),
                duration=duration,
                error=error,
            )
        )

    def are_active(self) -> bool:
        """Whether an observer, or the log, takes what goes well."""
        return self._has_own or logger.isEnabledFor(logging.DEBUG)

    def _tell(self, observation: Observation) -> None:
        for observer in self._observers:
            try:
                observer(observation)
            except Exception as error:
                text = f"an observer failed on {type(observation).__name__}"
                logger.exception(text)
                self._warn(f"{text}: {type(error).__name__}: {error}")

    def _warn(self, text: str) -> None:
        """Warn of the first failure of an observer, for those who have not set up logging."""
        if not self._has_warned:
            self._has_warned = True
            with contextlib.suppress(Warning):  # where warnings are errors: no call fails of it
                warnings.warn(f"{text} (later ones are only logged)", RuntimeWarning, stacklevel=2)


def attempts_of(call: AnyCall) -> Sequence[Attempt]:
    """The attempts that are over; those of the card where a call got no further."""
    progress = call.progress
    if progress.attempts or progress.card is None:
        return progress.attempts
    return progress.card.attempts


class _Named(TypedDict):
    request_id: str
    operation: str
    agent: str | None


def _named(call: AnyCall) -> _Named:
    endpoint = call.endpoint or call.progress.endpoint
    return {
        "request_id": call.request_id,
        "operation": call.operation.name,
        "agent": None if endpoint is None else endpoint.agent,
    }


def _log(observation: Observation) -> None:
    """Logs under ``holdfast``, never a body or a header."""
    match observation:
        case AttemptStarted() if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s attempt %d started", _subject(observation), observation.number)
        case AttemptFailed():
            logger.warning(
                "%s attempt %d failed after %.3f s: %s: %s",
                _subject(observation),
                observation.number,
                observation.duration,
                type(observation.error).__name__,
                observation.error,
            )
        case RetryScheduled():
            logger.info(
                "%s attempt %d follows in %.3f s",
                _subject(observation),
                observation.number,
                observation.wait,
            )
        case CircuitChanged():
            _log_circuit(observation)
        case Reconnected():
            logger.info(
                "%s reconnected to task %s, %d times by now",
                _subject(observation),
                observation.task_id,
                observation.number,
            )
        case ReconcileStarted() if not observation.timeout:
            logger.warning(
                "%s the reply to message %s was lost, and no time is left to search for its task",
                _subject(observation),
                observation.message_id,
            )
        case ReconcileStarted():
            logger.warning(
                "%s the reply to message %s was lost: searching for its task for up to %g s",
                _subject(observation),
                observation.message_id,
                observation.timeout,
            )
        case Reconciled():
            logger.warning(
                "%s message %s, whose reply was lost, %s after %.3f s",
                _subject(observation),
                observation.message_id,
                "was not found"
                if observation.task_id is None
                else f"was found as task {observation.task_id}",
                observation.duration,
            )
        case RequestFinished() | CallFinished() if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "%s %s finished after %d attempts and %.3f s: %s",
                _subject(observation),
                "call" if isinstance(observation, CallFinished) else "request",
                observation.attempts,
                observation.duration,
                "well" if observation.error is None else type(observation.error).__name__,
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
    found = checked.verification
    is_doubtful = found.outcome in {"invalid", "unverifiable"}
    logger.log(
        logging.WARNING if is_doubtful else logging.DEBUG,
        "%s the card is %s: %s",
        _subject(checked),
        _OUTCOMES[found.outcome],
        found.reason or f"key {found.key_id!r}",
    )


def _log_circuit(changed: CircuitChanged) -> None:
    match changed.state:
        case "open":
            logger.warning(
                "%s circuit open for %.3g s after %d failures in a row",
                _subject(changed),
                changed.retry_after,
                changed.failures,
            )
        case "half_open":
            logger.info("%s circuit half-open: one call probes the agent", _subject(changed))
        case _:
            logger.info("%s circuit closed", _subject(changed))


def _subject(observation: Observation) -> str:
    where = "an agent not yet known" if observation.agent is None else observation.agent
    return f"{observation.operation} {observation.request_id} to {where}:"
