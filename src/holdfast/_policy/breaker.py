"""A circuit breaker: it stops calls for a time after an agent has failed repeatedly.

While closed, it permits calls and counts failures. While open, it permits none. After its time it
is half-open: it permits one call, the probe, whose outcome decides. It follows Nygard, "Release
It!" (2007), chapter "Stability Patterns", with these rules:

- There is exactly one probe, however many callers ask at once. A probe that is cancelled, or takes
  longer than the breaker was open, makes room for the next one.
- The outcome of a call that was permitted before a change of state does not count after it.
- No call waits here: a refused call goes to another endpoint, or its error has the time to retry.
- An agent that answers is reachable: an internal error (-32603) is mostly about one message, and
  429 is rate limiting. Such an answer closes an open circuit, and does not count otherwise.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from holdfast._model.settings import Policy, check_count, check_numbers
from holdfast._policy.retry_after import asks_to_wait
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2ATimeoutError,
    CircuitOpenError,
    InternalError,
    QueueFullError,
    RateLimitedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Breaker",
    "BreakerFailure",
    "BreakerPolicy",
    "BreakerState",
    "CallResult",
    "ManualOverride",
    "Permit",
    "classify",
]

BreakerState = Literal["closed", "open", "half_open"]
"""State of a circuit breaker: calls pass, calls are refused, or one probe passes."""

CallResult = Literal["success", "reachable", "failure"]
"""Health of the agent by the outcome of a call; ``"reachable"`` closes an open circuit, and is not
counted while the circuit is closed."""

_BUCKETS = 10
"""Number of steps in which the window of the failure rate slides."""

_PROBE_POLL_S = 1.0
"""Seconds after which to try again at most, while a probe is in progress."""

_JITTER_SHARE = 0.2
"""Largest random deviation of the open time, as a share of it, in both directions."""


class BreakerPolicy(Policy, frozen=True, kw_only=True, cache_hash=True):
    """Policy of a circuit breaker: when it opens, and for how long.

    Attributes:
        failures: Consecutive failures after which it opens; at least 1, 5 by default. None ignores
            consecutive failures.
        failure_rate: Share of failed calls within ``window`` from which on it opens; above 0 and
            at most 1, 0.5 by default. None ignores the share.
        min_calls: Calls within `window` that are needed for `failure_rate` to apply, 10 by
            default; at least 1.
        window: Seconds over which the share is counted; more than 0, and finite; 10 by default.
        slow_after: Seconds after which an answered call counts as failed; 0 or more, infinity for
            never.
        min_wait_to_count: Seconds, 0 or more, 5 by default. A read that was sent and reaches its
            own deadline counts as failed only if it has waited at least this long. A message never
            counts.
        open_for: Seconds that it is open the first time, varied at random by up to a fifth, 5 by
            default; more than 0, and finite.
        backoff_factor: Factor of that time for each failed probe, 1.2 by default; at least 1, and
            finite. With the default, a recovered agent is noticed after a fifth of the time of its
            outage, plus some seconds.
        max_open_for: Longest time that it is open, in seconds, 60 by default; not less than
            `open_for`, and finite.

    Raises:
        ValueError: A number is out of its bounds.
        TypeError: A value is not a number, or `failures` or `min_calls` is not an integer.

    Example:
        Open after three consecutive failures, for half a minute::

            resilience = holdfast.Resilience(
                breaker=holdfast.policies.BreakerPolicy.simple(failures=3, open_for=30)
            )
            async with holdfast.connect("http://localhost:9999", resilience=resilience) as agent:
                print((await agent.ask("How far is the moon?")).text)
    """

    failures: int | None = 5
    failure_rate: float | None = 0.5
    min_calls: int = 10
    window: float = 10.0
    slow_after: float = math.inf
    min_wait_to_count: float = 5.0
    open_for: float = 5.0
    backoff_factor: float = 1.2
    max_open_for: float = 60.0

    def __post_init__(self) -> None:
        if self.failures is not None:
            check_count("failures", self.failures, least=1)
        check_count("min_calls", self.min_calls, least=1)
        seconds = ("window", "slow_after", "min_wait_to_count", "open_for", "max_open_for")
        check_numbers(self, seconds)
        for name in ("window", "open_for", "max_open_for"):
            if not 0 < getattr(self, name) < math.inf:
                message = f"{name} must be a positive number of seconds"
                raise ValueError(message)
        for name in ("slow_after", "min_wait_to_count"):
            if not getattr(self, name) >= 0:
                message = f"{name} must not be negative"
                raise ValueError(message)
        if self.max_open_for < self.open_for:
            message = f"max_open_for ({self.max_open_for:g} s) must not be less than open_for"
            raise ValueError(f"{message} ({self.open_for:g} s)")
        check_numbers(self, ("backoff_factor",))
        if not 1 <= self.backoff_factor < math.inf:
            message = "backoff_factor must be a finite number of at least 1"
            raise ValueError(message)
        if self.failure_rate is not None:
            check_numbers(self, ("failure_rate",))
            if not 0 < self.failure_rate <= 1:
                message = "failure_rate must be above 0, and at most 1"
                raise ValueError(message)

    @classmethod
    def simple(cls, failures: int = 3, open_for: float = 30.0) -> Self:
        """Return a policy of consecutive failures alone, with the same open time each time.

        Args:
            failures: Consecutive failures after which it opens, 3 by default; at least 1.
            open_for: Seconds that it is open, varied at random by up to a fifth, 30 by default;
                more than 0.
        """
        longest = open_for * (1 + _JITTER_SHARE)
        return cls(failures=failures, failure_rate=None, open_for=open_for, max_open_for=longest)


class Permit(msgspec.Struct, frozen=True, eq=False):
    """Permission for one call; the outcome of the call is reported with it."""

    generation: int
    is_probe: bool = False


class BreakerFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that counted towards opening a circuit.

    Attributes:
        at: Time of the report, in seconds on the event loop's clock.
        cause: Description of the failure, in one line.
    """

    at: float
    cause: str


class ManualOverride:
    """The manual override of all circuit breakers of a client.

    Attributes:
        state: ``"open"`` permits no call, ``"closed"`` permits all; None leaves the decision to
            the breakers.
    """

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: Literal["open", "closed"] | None = None


class Breaker:
    """The breaker of one endpoint.

    Attributes:
        last_failure: The last failure that counted, also after later successes; None if there was
            none.
        policy: When it opens, and for how long.
    """

    __slots__ = (
        "_closed_at",
        "_failed_probes",
        "_failures",
        "_next_probe_at",
        "_permit",
        "_probe",
        "_state",
        "_window",
        "last_failure",
        "policy",
    )

    def __init__(self, policy: BreakerPolicy) -> None:
        self.policy = policy
        self._window = _Window(policy.window)
        self.last_failure: BreakerFailure | None = None
        self._state: BreakerState = "closed"
        self._permit = Permit(0)  # of all calls while closed; its generation names the state
        self._probe: Permit | None = None
        self._failures = 0  # consecutive
        self._failed_probes = 0  # since the last recovery
        self._closed_at = -math.inf  # when it last closed
        self._next_probe_at = 0.0

    def state(self, *, now: float) -> BreakerState:
        """Return the state.

        Args:
            now: Monotonic time in seconds.
        """
        if self._state == "open" and now >= self._next_probe_at:
            return "half_open"
        return self._state

    @property
    def failures(self) -> int:
        """The number of consecutive failures."""
        return self._failures

    def retry_after(self, *, now: float) -> float:
        """Return the seconds until a call may be permitted, or until a probe may have decided.

        Args:
            now: Monotonic time in seconds.
        """
        if self._state == "closed":
            return 0.0
        left = max(0.0, self._next_probe_at - now)
        # A probe mostly ends long before its time limit.
        return min(left, _PROBE_POLL_S) if self._state == "half_open" else left

    def acquire(self, *, now: float) -> Permit | None:
        """Return a permit for a call, or None; the holder must call `settle` in any case.

        Args:
            now: Monotonic time in seconds.
        """
        if self._state == "closed":
            return self._permit
        if now < self._next_probe_at:
            return None
        if self._state == "open":
            self._enter("half_open")
        self._next_probe_at = now + self._open_for()  # time limit of this probe
        self._probe = Permit(self._permit.generation, is_probe=True)
        return self._probe

    def settle(
        self,
        permit: Permit,
        result: CallResult | None,
        *,
        duration: float,
        now: float,
        draw: Callable[[], float],
        cause: str = "",
    ) -> bool:
        """Report the outcome of a call.

        Args:
            permit: The permit of the call.
            result: Health of the agent by the outcome; None if it shows nothing, which only
                returns the permit.
            duration: Duration of the call in seconds.
            now: Monotonic time in seconds.
            draw: Returns a random number from 0 up to 1; called only if one is needed.
            cause: Description of a failure, in one line.

        Returns:
            Whether the state of the breaker has changed.
        """
        if permit.generation != self._permit.generation:
            return False  # permitted in an earlier state
        if result == "success" and duration > self.policy.slow_after:
            result, cause = "failure", f"the reply took {duration:.3g} s"
        if result == "failure":
            self.last_failure = BreakerFailure(at=now, cause=cause)
        if permit.is_probe:
            self._settle_probe(permit, result, now, draw)
        elif result == "success":
            self._failures = 0
            self._window.add(now, failed=False)
        elif result == "failure":
            self._failures += 1
            self._window.add(now, failed=True)
            if self._should_open():
                # An agent whose circuit opens again so soon has not recovered.
                is_relapse = now - self._closed_at < self.policy.window
                self._open(self._failed_probes + 1 if is_relapse else 0, now, draw)
        return permit.generation != self._permit.generation

    def _settle_probe(
        self, probe: Permit, result: CallResult | None, now: float, draw: Callable[[], float]
    ) -> None:
        if result == "failure":
            self._failures += 1
            self._open(self._failed_probes + 1, now, draw)
        elif result is not None:
            self._enter("closed")
            self._closed_at = now
        elif probe is self._probe:
            self._next_probe_at = now
            self._probe = None

    def reset(self) -> None:
        """Close the breaker and reset its counters."""
        self._enter("closed")
        self._failed_probes = 0

    # ── States ───────────────────────────────────────────────────────────────────────────────

    def _enter(self, state: BreakerState) -> None:
        self._state = state
        self._permit = Permit(self._permit.generation + 1)
        self._probe = None
        if state == "closed":
            self._failures = 0
            self._next_probe_at = 0.0
            self._window.clear()

    def _open(self, failed_probes: int, now: float, draw: Callable[[], float]) -> None:
        self._failed_probes = failed_probes
        self._enter("open")
        self._next_probe_at = now + self._open_for() * (
            1 - _JITTER_SHARE + 2 * _JITTER_SHARE * draw()
        )

    def _should_open(self) -> bool:
        policy = self.policy
        if policy.failures is not None and self._failures >= policy.failures:
            return True
        calls, failed = self._window.counted()
        return (
            policy.failure_rate is not None
            and calls >= policy.min_calls
            and failed >= policy.failure_rate * calls
        )

    def _open_for(self) -> float:
        """Return the open time in seconds, before its random variation."""
        policy = self.policy
        longest = policy.max_open_for / (1 + _JITTER_SHARE)
        try:
            growth = float(policy.backoff_factor) ** self._failed_probes
        except OverflowError:
            return longest
        return min(longest, policy.open_for * growth)


class _Window:
    """Counts the calls of a sliding window, and the failed ones among them.

    Running totals are kept; those of calls before the window are subtracted when it is read.

    Args:
        seconds: Length of the window.
    """

    __slots__ = ("_before", "_calls", "_failed", "_moves_at", "_newest", "_width")

    def __init__(self, seconds: float) -> None:
        self._width = seconds / _BUCKETS
        self.clear()

    def clear(self) -> None:
        """Forget all calls."""
        self._calls = self._failed = 0
        self._before = deque([(0, 0)], _BUCKETS)  # totals at the start of each bucket
        self._newest = self._moves_at = -math.inf

    def add(self, now: float, *, failed: bool) -> None:
        """Count a call."""
        if now >= self._moves_at:
            self._move(now)
        self._calls += 1
        self._failed += failed

    def _move(self, now: float) -> None:
        """Start a new bucket, after empty ones for the time without calls."""
        newest = math.floor(now / self._width)
        begun = min(newest - self._newest, _BUCKETS)
        self._before.extend([(self._calls, self._failed)] * int(begun))
        self._newest, self._moves_at = newest, (newest + 1) * self._width

    def counted(self) -> tuple[int, int]:
        """Return the numbers of calls and of failed calls in the window up to the last call."""
        calls, failed = self._before[0]
        return self._calls - calls, self._failed - failed


def classify(error: A2AError) -> CallResult | None:
    """Return the agent's health by a failed call; None if it was refused here or rate-limited."""
    is_refusal = isinstance(error, CircuitOpenError | QueueFullError | RateLimitedError)
    if is_refusal or asks_to_wait(error):
        return None
    if isinstance(error, A2AConnectionError):
        is_local = error.failure == "closed" or (error.failure == "proxy" and not error.transient)
        return None if is_local else "failure"
    if isinstance(error, A2ATimeoutError) and error.phase == "pool":
        return None
    if isinstance(error, InternalError):
        return "reachable"
    if error.transient:
        return "failure"
    if error.code is not None:
        return "success"
    return "reachable" if error.http_status or error.grpc_status else None
