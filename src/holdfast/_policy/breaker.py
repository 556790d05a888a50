"""A circuit breaker: an agent that fails all the time is left alone for a while.

Closed, it lets calls through and counts. Open, it lets none through. When its time is over it is
half-open: one call, the probe, goes through, and decides. The shape is that of Nygard, "Release
It!" (2007), chapter "Stability Patterns"; the rules that others learned the hard way:

- Exactly one probe, however many ask at once. One that is given up makes room for the next; so
  does one that takes longer than the breaker was open.
- What was let through before the state changed says nothing about the state after it.
- Nobody waits here: who is refused goes elsewhere, or learns when to come back.
- What the agent answers is no outage: an internal error (-32603) is mostly about one message, and
  429 says that it is well and busy. Such an answer ends an outage, and counts for nothing else.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from holdfast._model.settings import check_count, check_numbers
from holdfast._policy.limiter import asks_to_wait
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
    "ManualOverride",
    "Permit",
    "Verdict",
    "judge",
]

BreakerState = Literal["closed", "open", "half_open"]
"""What a breaker does with calls: let them through, refuse them, or let one try."""

Verdict = Literal["success", "reachable", "failure"]
"""What the end of a call shows of the agent; ``"reachable"`` is enough to close its circuit again,
and counts for nothing while that is closed."""

_BUCKETS = 10
"""How finely the window of the failure rate slides."""

_SPREAD = 0.2
"""How far the time that a breaker is open is drawn around its middle."""


class BreakerPolicy(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """When to leave an agent alone, and for how long.

    Attributes:
        failures: Failures in a row after which it opens, at least 1; None never opens it for
            these.
        failure_rate: Share of the calls within `window` that have failed, from which on it opens:
            above 0, and at most 1; None never opens it for that.
        min_calls: Calls within `window` below which their share says nothing; at least 1.
        window: Seconds that the share is counted over.
        slow_after: Seconds after which a call counts as failed, though it was answered.
        min_wait_to_count: Seconds. A read that was sent, and that its own deadline ends, counts as
            failed only if it has waited for at least as long. A message never does.
        open_for: Seconds that it is open for the first time, drawn within a fifth around it.
        backoff_factor: What that time is multiplied by with each probe that fails. With the
            default, an agent that is back is noticed after a fifth of the time that it was away,
            and some seconds.
        max_open_for: Seconds that it is open at most; not less than `open_for`.

    Raises:
        ValueError: A number is out of its bounds.
        TypeError: One is no number, or `failures` or `min_calls` is no whole one.
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
        """One that opens after some failures in a row, always for the same time.

        Args:
            failures: Failures in a row.
            open_for: Seconds, drawn within a fifth around it.
        """
        most = open_for * (1 + _SPREAD)
        return cls(failures=failures, failure_rate=None, open_for=open_for, max_open_for=most)


class Permit(msgspec.Struct, frozen=True, eq=False):
    """Leave to make one call; what comes of that is reported with it."""

    generation: int
    is_probe: bool = False


class BreakerFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that showed an agent to be away.

    Attributes:
        at: When, on the event loop's clock.
        cause: What it was, in a line.
    """

    at: float
    cause: str


class ManualOverride:
    """The manual override of all circuit breakers of a client.

    Attributes:
        state: ``"open"`` lets no call pass, ``"closed"`` all of them; None leaves the decision to
            the breakers.
    """

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: Literal["open", "closed"] | None = None


class Breaker:
    """The breaker of one endpoint.

    Attributes:
        last_failure: The last failure that counted, however well all was since then.
        policy: When it opens, and for how long.
    """

    __slots__ = (
        "_closed",
        "_failures",
        "_permit",
        "_probe",
        "_reopened",
        "_state",
        "_until",
        "_window",
        "last_failure",
        "policy",
    )

    def __init__(self, policy: BreakerPolicy) -> None:
        self.policy = policy
        self._window = _Window(policy.window)
        self.last_failure: BreakerFailure | None = None
        self._state: BreakerState = "closed"
        self._permit = Permit(0)  # what all get while it is closed; tells its states apart
        self._probe: Permit | None = None
        self._failures = 0  # in a row
        self._reopened = 0  # probes that have failed since it was well for a while
        self._closed = -math.inf  # when it closed last
        self._until = 0.0  # when the next probe may be made

    def state(self, *, now: float) -> BreakerState:
        """What it does with calls.

        Args:
            now: Monotonic time in seconds.
        """
        if self._state == "open" and now >= self._until:
            return "half_open"
        return self._state

    @property
    def failures(self) -> int:
        """Failures in a row."""
        return self._failures

    def retry_after(self, *, now: float) -> float:
        """Seconds until a call may be let through, or may be known to.

        Args:
            now: Monotonic time in seconds.
        """
        if self._state == "closed":
            return 0.0
        left = max(0.0, self._until - now)
        # What a probe shows is mostly known long before its time is over.
        return min(left, self.policy.open_for) if self._state == "half_open" else left

    def acquire(self, *, now: float) -> Permit | None:
        """Leave to make a call, or None; who gets it says `settle`, whatever happens.

        Args:
            now: Monotonic time in seconds.
        """
        if self._state == "closed":
            return self._permit
        if now < self._until:
            return None
        if self._state == "open":
            self._enter("half_open")
        self._until = now + self._open_for()  # until then this probe has time
        self._probe = Permit(self._permit.generation, is_probe=True)
        return self._probe

    def settle(
        self,
        permit: Permit,
        verdict: Verdict | None,
        *,
        duration: float,
        now: float,
        draw: Callable[[], float],
        cause: str = "",
    ) -> bool:
        """Reports what came of a call.

        Args:
            permit: What it was let through with.
            verdict: What that shows of the agent; None for nothing, which gives the permit back.
            duration: Seconds that it took.
            now: Monotonic time in seconds.
            draw: Draws a random number from 0 up to 1, where one is needed.
            cause: Where it is a failure, what that was, in a line.

        Returns:
            Whether its state has changed.
        """
        if permit.generation != self._permit.generation:
            return False  # of a state that is over
        if verdict == "success" and duration > self.policy.slow_after:
            verdict, cause = "failure", f"the reply took {duration:.3g} s"
        if verdict == "failure":
            self.last_failure = BreakerFailure(at=now, cause=cause)
        if permit.is_probe:
            self._settle_probe(permit, verdict, now, draw)
        elif verdict == "success":
            self._failures = 0
            self._window.add(now, failed=False)
        elif verdict == "failure":
            self._failures += 1
            self._window.add(now, failed=True)
            if self._is_enough():
                # One that opens again so soon has not recovered.
                is_relapse = now - self._closed < self.policy.window
                self._open_again(self._reopened + 1 if is_relapse else 0, now, draw)
        return permit.generation != self._permit.generation

    def _settle_probe(
        self, probe: Permit, verdict: Verdict | None, now: float, draw: Callable[[], float]
    ) -> None:
        if verdict == "failure":
            self._failures += 1
            self._open_again(self._reopened + 1, now, draw)
        elif verdict is not None:
            self._enter("closed")
            self._closed = now
        elif probe is self._probe:
            self._until = now  # the next one may try
            self._probe = None

    def reset(self) -> None:
        """Closes it, and counts anew."""
        self._enter("closed")
        self._reopened = 0

    # ── States ───────────────────────────────────────────────────────────────────────────────

    def _enter(self, state: BreakerState) -> None:
        self._state = state
        self._permit = Permit(self._permit.generation + 1)
        self._probe = None
        if state == "closed":
            self._failures = 0
            self._until = 0.0
            self._window.clear()

    def _open_again(self, reopened: int, now: float, draw: Callable[[], float]) -> None:
        self._reopened = reopened
        self._enter("open")
        self._until = now + self._open_for() * (1 - _SPREAD + 2 * _SPREAD * draw())

    def _is_enough(self) -> bool:
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
        """Around which the time is drawn that it is open now."""
        policy = self.policy
        most = policy.max_open_for / (1 + _SPREAD)
        try:
            growth = float(policy.backoff_factor) ** self._reopened
        except OverflowError:
            return most
        return min(most, policy.open_for * growth)


class _Window:
    """Calls of the last seconds, and how many of them have failed.

    All are counted; those that are too old are taken off when somebody asks.

    Args:
        seconds: How far it reaches back.
    """

    __slots__ = ("_all", "_before", "_failed", "_moves_at", "_newest", "_width")

    def __init__(self, seconds: float) -> None:
        self._width = seconds / _BUCKETS
        self.clear()

    def clear(self) -> None:
        """Forgets all."""
        self._all = self._failed = 0
        self._before = deque([(0, 0)], _BUCKETS)  # what was counted when each bucket began
        self._newest = self._moves_at = -math.inf

    def add(self, now: float, *, failed: bool) -> None:
        """Counts a call."""
        if now >= self._moves_at:
            self._move(now)
        self._all += 1
        self._failed += failed

    def _move(self, now: float) -> None:
        """Begins a new bucket, after those in which nobody called."""
        newest = math.floor(now / self._width)
        begun = min(newest - self._newest, _BUCKETS)
        self._before.extend([(self._all, self._failed)] * int(begun))
        self._newest, self._moves_at = newest, (newest + 1) * self._width

    def counted(self) -> tuple[int, int]:
        """The calls, and the failures among them, of the last seconds until the last call."""
        calls, failed = self._before[0]
        return self._all - calls, self._failed - failed


def judge(error: A2AError) -> Verdict | None:
    """What a failed call shows of the agent; None for nothing: nobody was asked, or "later"."""
    refused = isinstance(error, CircuitOpenError | QueueFullError | RateLimitedError)
    if refused or asks_to_wait(error):
        return None
    if isinstance(error, A2AConnectionError):
        is_own = error.failure == "closed" or (error.failure == "proxy" and not error.transient)
        return None if is_own else "failure"
    if isinstance(error, A2ATimeoutError) and error.phase == "pool":
        return None
    if isinstance(error, InternalError):
        return "reachable"
    if error.transient:
        return "failure"
    if error.code is not None:
        return "success"
    return "reachable" if error.http_status or error.grpc_status else None
