"""Observations: the events in the life of a call, which observers receive."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast._pipeline.cards.verification import CardVerification
from holdfast._policy.breaker import BreakerState
from holdfast.errors import A2AError

__all__ = [
    "AttemptFailed",
    "AttemptStarted",
    "CallFinished",
    "CardChecked",
    "CircuitChanged",
    "Observation",
    "Observer",
    "ReconcileStarted",
    "Reconciled",
    "Reconnected",
    "RequestFinished",
    "RetryScheduled",
]


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
