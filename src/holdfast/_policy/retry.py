"""Whether a failed call is tried again, and when.

Rules, in this order:
1. Only a transient failure is tried again.
2. An operation that must not run twice (safety ``conditional``) is tried again only if it
   certainly did not run: `executed` is False.
3. A caller's predicate may say no to what is left, never yes to what is not.
4. A server's hint is a lower bound of the wait. A hint beyond `max_retry_after`, or a wait that
   would reach the deadline, ends it at once: the caller learns the hint from the error.
5. The wait is drawn evenly from zero to the backoff ("full jitter": Brooker, "Exponential
   Backoff And Jitter", AWS Architecture Blog, 2015).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from holdfast._model.settings import check_count, check_kinds, check_numbers
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
"""How the reason ends where it was only time that lacked."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how patiently to try again.

    Attributes:
        max_retries: Tries after the first one; 0 turns retrying off.
        base_delay: Upper bound of the first wait, in seconds.
        backoff_factor: What the bound is multiplied by each time.
        max_delay: Where the bound stops growing, in seconds.
        jitter: Whether to draw the wait between zero and the bound; without, it is the bound.
        max_retry_after: Longest hint of a server to follow, in seconds.
        retry_predicate: Called with the error; False stops retrying.
        on_retry: Called before each wait with the number of the retry (from 1), the error, and
            the wait in seconds; may be a coroutine function. An exception from it ends the call.
            Only of the operation that was asked for: what a client asks besides, as when it looks
            for a lost reply, or picks up a stream, is told to observers.

    Raises:
        ValueError: A number is negative, a delay or the factor is infinite, or the factor is
            below 1.
        TypeError: `max_retries` is no whole number, another one no number, `jitter` no bool, or
            what is to be called cannot be.
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
            called: object = getattr(self, name)
            if called is not None and not callable(called):
                message = f"{name} must be callable; {type(called).__name__} is not"
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
    """Try again after `delay` seconds."""

    delay: float


class GiveUp(msgspec.Struct, frozen=True):
    """Do not try again, for `reason`."""

    reason: str


class RetryState:
    """What has been tried in one call, as far as another try depends on it.

    - A refusal on this side, by a circuit that is open, counts like a failure once something was
      attempted: the call waits, and tries again.
    - Where an agent has asked all to come later, a refusal counts only if nobody has got through
      since the one before: else those who have waited longest would be the first to give up.

    Attributes:
        last: What the last attempt came to; None before the first, where nothing is tried again:
            whoever chooses where a call goes has done what could be done.
        failures: How many failures count.
    """

    __slots__ = ("_answered", "failures", "last")

    def __init__(self) -> None:
        self.last: A2AError | None = None
        self.failures = 0
        self._answered: int | None = None

    def failed(
        self, error: A2AError, *, was_attempted: bool, is_in_line: bool, answered: int | None
    ) -> None:
        """Notes a failure.

        Args:
            error: The failure.
            was_attempted: Whether it is of an attempt, and not of this side.
            is_in_line: Whether the next try waits its turn with all others that call there.
            answered: How many calls have got through there, of anybody; None where not known.
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
    """Decides about one failure.

    Args:
        policy: What the caller allows.
        error: The failure.
        safety: What a second execution would cost.
        attempt: Number of the try that failed, from 1.
        time_left: Seconds until the deadline.
        draw: A random number from 0 up to 1.
        within_budget: Whether the agent's retry budget allows another try.
    """
    if not error.transient:
        return GiveUp("the failure is not transient")
    if safety == "conditional" and error.executed is not False:
        return GiveUp("the agent may have run it")
    if attempt > policy.max_retries:
        allowed = policy.max_retries
        made = "1 retry was made" if allowed == 1 else f"{allowed} retries were made"
        return GiveUp(made if allowed else "retrying is turned off")
    if policy.retry_predicate is not None and not policy.retry_predicate(error):
        return GiveUp("retry_predicate returned False")
    delay = backoff(policy, attempt, draw)
    if error.retry_after is not None:
        if error.retry_after > policy.max_retry_after:
            return GiveUp(f"another try has to wait {error.retry_after:g} s")
        # All who were told the same moment would otherwise come back in the same moment.
        spread = draw * min(policy.base_delay, policy.max_delay) if policy.jitter else 0.0
        delay = max(delay, error.retry_after + spread)
    if delay >= time_left:
        return GiveUp(f"waiting {delay:.3g} s {TOO_LATE}")
    if not within_budget:
        return GiveUp("the retry budget of this agent is spent")
    return Retry(delay)


def backoff(policy: RetryPolicy, attempt: int, draw: float) -> float:
    """The wait in seconds after try number `attempt`, without a server's hint."""
    try:
        growth = float(policy.backoff_factor) ** (attempt - 1)  # an int would grow and grow
        bound = min(policy.max_delay, policy.base_delay * growth)
    except OverflowError:
        bound = policy.max_delay
    return bound * draw if policy.jitter else bound


def is_outcome_unknown(error: A2AError) -> bool:
    """Whether a failure leaves open if the agent ran the operation, because no answer came.

    An answer in the protocol's terms is never lost, whatever it says about execution.
    """
    if error.executed is not None:
        return False
    if isinstance(error, A2AConnectionError | A2ATimeoutError | DeadlineExceededError):
        return True
    return type(error) is A2AHTTPError and error.transient


def is_permanent_connect_failure(error: A2AError) -> bool:
    """Whether no connection came about, and none will: another place is all that may help."""
    if not isinstance(error, A2AConnectionError) or error.failure == "closed":
        return False
    return error.executed is False and not error.transient
