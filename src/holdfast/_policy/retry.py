"""The decision whether, and when, a failed call is retried.

Rules, in this order:
1. Only a transient failure is retried.
2. An operation that must not run twice (safety ``conditional``) is retried only if it was
   certainly not executed: `executed` is False.
3. The caller's predicate can prevent a retry, never allow one that the other rules prevent.
4. Retry-After is a lower bound of the wait. A hint beyond `max_retry_after`, or a wait that would
   reach the deadline, ends the retries at once; the error has the hint.
5. The wait is drawn evenly from zero to the backoff ("full jitter": Brooker, "Exponential
   Backoff And Jitter", AWS Architecture Blog, 2015).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from holdfast._model.settings import Policy, check_count, check_kinds, check_numbers
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    A2ATimeoutError,
    DeadlineExceededError,
)

if TYPE_CHECKING:
    from holdfast._model.operations import Safety

__all__ = [
    "TOO_LATE",
    "GiveUp",
    "Retry",
    "RetryPolicy",
    "RetryState",
    "backoff",
    "decide",
    "is_outcome_unknown",
    "is_permanent_connect_failure",
]


TOO_LATE = "would exceed the deadline"
"""End of the reason of a `GiveUp` that is only due to the deadline."""


class RetryPolicy(Policy, frozen=True, kw_only=True):
    """Retries of a failed call: their number, and the wait before each (backoff with jitter).

    Attributes:
        max_retries: Attempts after the first one; 0 or more, 3 by default. 0 turns retries off.
        base_delay: Upper bound of the first wait, in seconds, 1 by default; 0 or more, and finite.
        backoff_factor: Factor of the bound for each further wait, 2 by default; at least 1, and
            finite.
        max_delay: Largest value of the bound, in seconds, 30 by default; 0 or more, and finite.
        jitter: Whether to draw the wait evenly between zero and the bound; if False, the wait is
            the bound. True by default.
        max_retry_after: Longest Retry-After to wait for, in seconds, 60 by default; 0 or more.
        retry_predicate: Function that gets the error; False stops the retries. None, the default,
            retries whatever is safe to retry.
        on_retry: Function or coroutine function that is called before each wait with the number of
            the retry (from 1), the error, and the wait in seconds. An exception from it ends the
            call. It is called only for the caller's own operation: observers receive the retries
            of the client's further requests, such as those that reconcile a lost reply or resume a
            stream.

    Raises:
        ValueError: A number is negative, a delay or the factor is infinite, or the factor is
            below 1.
        TypeError: `max_retries` is not an integer, another number is not a number, `jitter` is not
            a bool, or `retry_predicate` or `on_retry` is not callable.

    Example:
        Retry once, after one second::

            policy = holdfast.RetryPolicy(max_retries=1, base_delay=1, jitter=False)
            resilience = holdfast.Resilience(retry=policy)
            async with holdfast.connect("http://localhost:9999", resilience=resilience) as agent:
                print((await agent.ask("How far is the moon?")).text)
    """

    max_retries: int = 3
    base_delay: float = 1.0
    backoff_factor: float = 2.0
    max_delay: float = 30.0
    jitter: bool = True
    max_retry_after: float = 60.0
    retry_predicate: Callable[[A2AError], bool] | None = None
    on_retry: Callable[[int, A2AError, float], Awaitable[None] | None] | None = None

    def __post_init__(self) -> None:
        check_count("max_retries", self.max_retries)
        numbers = ("max_retry_after", "base_delay", "max_delay", "backoff_factor")
        check_numbers(self, numbers)
        check_kinds(self, jitter=bool)
        for name in ("retry_predicate", "on_retry"):
            callback: object = getattr(self, name)
            if callback is not None and not callable(callback):
                message = f"{name} must be callable; {type(callback).__name__} is not"
                raise TypeError(message)
        if not self.max_retry_after >= 0:
            message = "max_retry_after must not be negative"
            raise ValueError(message)
        for name in ("base_delay", "max_delay"):
            if not 0 <= getattr(self, name) < math.inf:
                message = f"{name} must be a finite number of seconds, and not negative"
                raise ValueError(message)
        if not 1 <= self.backoff_factor < math.inf:
            message = "backoff_factor must be a finite number of at least 1"
            raise ValueError(message)


class Retry(msgspec.Struct, frozen=True):
    """The decision to retry after `delay` seconds."""

    delay: float


class GiveUp(msgspec.Struct, frozen=True):
    """The decision not to retry, with the reason for the error."""

    reason: str


class RetryState:
    """The failures of one call that decide about its next retry.

    - A refusal by this client's open circuit counts as a failure after the first attempt: the call
      waits and retries.
    - During rate limiting, a refusal counts only if no call of any caller succeeded since the one
      before: otherwise the calls that have waited longest would fail first.

    Attributes:
        last: Error of the last attempt; None before the first, where nothing is retried, since the
            choice of the endpoint has already tried all alternatives.
        failures: Number of failures that count.
    """

    __slots__ = ("_answered", "failures", "last")

    def __init__(self) -> None:
        self.last: A2AError | None = None
        self.failures = 0
        self._answered: int | None = None

    def failed(
        self, error: A2AError, *, was_attempted: bool, is_in_line: bool, answered: int | None
    ) -> None:
        """Record a failure.

        Args:
            error: The failure.
            was_attempted: Whether an attempt failed; False for a refusal by this client.
            is_in_line: Whether the next attempt is queued with all other calls to the endpoint.
            answered: How many calls of all callers the endpoint has answered; None if unknown.
        """
        if was_attempted:
            self.last = error
        others_got_through = self._answered is not None and self._answered != answered
        if not (is_in_line and others_got_through):
            self.failures += 1
        self._answered = answered


def decide(
    policy: RetryPolicy,
    error: A2AError,
    *,
    safety: Safety,
    attempt: int,
    time_left: float,
    draw: float,
    within_budget: bool = True,
) -> Retry | GiveUp:
    """Decide whether to retry after one failure.

    Args:
        policy: The caller's retry policy.
        error: The failure.
        safety: Whether the operation may be executed twice.
        attempt: Number of the failed attempt, from 1.
        time_left: Seconds until the deadline.
        draw: A random number from 0 up to 1.
        within_budget: Whether the agent's retry budget allows a retry.
    """
    if not error.transient:
        return GiveUp("the failure is not transient")
    if safety == "conditional" and error.executed is not False:
        return GiveUp("the agent may have executed it")
    if attempt > policy.max_retries:
        allowed = policy.max_retries
        retries = "1 retry" if allowed == 1 else f"{allowed} retries"
        return GiveUp(f"the limit of {retries} is reached" if allowed else "retries are disabled")
    if policy.retry_predicate is not None and not policy.retry_predicate(error):
        return GiveUp("retry_predicate returned False")
    delay = backoff(policy, attempt, draw)
    if error.retry_after is not None:
        if error.retry_after > policy.max_retry_after:
            asked, most = f"{error.retry_after:g} s", f"{policy.max_retry_after:g} s"
            return GiveUp(f"the agent asked to wait {asked}, and max_retry_after is {most}")
        # Calls that were given the same Retry-After would otherwise all return at once.
        jitter = draw * min(policy.base_delay, policy.max_delay) if policy.jitter else 0.0
        delay = max(delay, error.retry_after + jitter)
    if delay >= time_left:
        return GiveUp(f"waiting {delay:.3g} s {TOO_LATE}")
    if not within_budget:
        return GiveUp("the agent's retry budget is exhausted")
    return Retry(delay)


def backoff(policy: RetryPolicy, attempt: int, draw: float) -> float:
    """Return the wait in seconds after attempt number `attempt` (from 1), without Retry-After."""
    try:
        growth = float(policy.backoff_factor) ** (attempt - 1)  # an int would grow without bound
        bound = min(policy.max_delay, policy.base_delay * growth)
    except OverflowError:
        bound = policy.max_delay
    return bound * draw if policy.jitter else bound


def is_outcome_unknown(error: A2AError) -> bool:
    """Return whether execution is unknown because no answer arrived.

    An A2A error is an answer, so its outcome is never unknown, even if `executed` is None.
    """
    if error.executed is not None:
        return False
    if isinstance(error, A2AConnectionError | A2ATimeoutError | DeadlineExceededError):
        return True
    return type(error) is A2AHTTPError and error.transient


def is_permanent_connect_failure(error: A2AError) -> bool:
    """Return whether a connection failed for good, so that only another endpoint can help."""
    if not isinstance(error, A2AConnectionError) or error.failure == "closed":
        return False
    return error.executed is False and not error.transient
