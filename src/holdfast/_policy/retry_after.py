"""Rate limiting by the agent: the policy, its recognition, and the slow start after it.

It is not enough that one caller waits while hundreds continue: a Retry-After hint delays all calls
to the endpoint, and afterwards they do not all start at once. Rules:

- No call is delayed before the first hint; an agent without rate limiting costs nothing.
- A hint is a lower bound and never shortened; a random delay, the same for all calls, is added to
  it, so that separate processes do not start at the same moment.
- When the wait ends, one call may start, as the agent has allowed.
- The rate then starts at one call a second and doubles each second. At another hint the rate is
  halved, once per wait: hints to calls that were already in flight do not count. From then on it
  grows by a tenth each second.
- The rate is never lower than if each call waited for the hinted time.
- Starts are counted, never ends: agents work for minutes.
- After a time without hints and without a queue, calls are unrestricted again.

TCP does the same: slow start, and slower growth after the first loss (RFC 5681).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast._model.article_errors import ArticleErrorCode
from holdfast._model.settings import Policy, check_count

if TYPE_CHECKING:
    from holdfast.errors import A2AError

__all__ = ["RetryAfterPolicy", "SlowStart", "asks_to_wait"]

_BUSY: frozenset[int | str | None] = frozenset({429, 503, "RESOURCE_EXHAUSTED", "UNAVAILABLE"})
"""HTTP and gRPC statuses of rate limiting."""

_INITIAL_RATE_PER_S = 1.0
"""Calls a second after the first hint, at least."""

_FAST_GROWTH_PER_S = 2.0
"""Factor by which the rate grows each second until the next hint."""

_SLOW_GROWTH_PER_S = 1.1
"""Factor by which the rate grows each second after that."""

_UNLIMITED_RATE_PER_S = 256.0
"""Calls a second from which on calls are unrestricted."""

_QUIET_S = 60.0
"""Seconds without a hint after which calls are unrestricted, if none is queued."""

_JITTER_SHARE = 0.1
"""Largest random delay beyond the hint, as a share of the hint; at most one second."""


class RetryAfterPolicy(Policy, frozen=True, kw_only=True):
    """Rate limiting: the queue of calls while a Retry-After of the agent runs (RFC 9110, 10.2.3).

    After one call was rate-limited (429, 503), all calls of its kind (sends or reads) to that
    endpoint wait, and start at a growing rate afterwards; a cancel never waits.

    Attributes:
        queue: Calls that may be queued, 0 or more, 1,000 by default; the next one fails with
            `QueueFullError`.

    Raises:
        ValueError: `queue` is negative.
        TypeError: `queue` is not an integer.
    """

    queue: int = 1000

    def __post_init__(self) -> None:
        check_count("queue", self.queue)


def asks_to_wait(error: A2AError) -> bool:
    """Return whether an error is rate limiting with a Retry-After that applies to all callers."""
    if not error.retry_after:  # 0 concerns only the refused call
        return False
    is_busy = error.http_status in _BUSY or error.grpc_status in _BUSY
    return is_busy or error.code == ArticleErrorCode.RATE_LIMITED


class SlowStart:
    """The rate at which calls may start at one endpoint."""

    __slots__ = (
        "_growth",
        "_hinted_at",
        "_next_start_at",
        "_rate",
        "_wait_began_at",
        "_wait_ends_at",
    )

    def __init__(self) -> None:
        self._rate: float | None = None  # calls a second when the last wait ended
        self._growth = _FAST_GROWTH_PER_S  # factor of the rate for each second since then
        self._wait_began_at = -math.inf  # when the last wait began
        self._wait_ends_at = -math.inf  # when it ends
        self._next_start_at = -math.inf  # when the next call may start
        self._hinted_at = -math.inf  # when the last hint came

    @property
    def is_free(self) -> bool:
        """Whether calls are unrestricted."""
        return self._rate is None

    def is_held(self, *, now: float) -> bool:
        """Return whether the time of the last hint has not passed yet.

        Args:
            now: Monotonic time in seconds.
        """
        return now < self._wait_ends_at

    def next_start(self, *, now: float) -> float:
        """Return when the next call may start: now or later.

        Args:
            now: Monotonic time in seconds.
        """
        return max(now, self._next_start_at)

    def started(self, *, now: float) -> None:
        """Record the start of a call, which is not before `next_start`.

        Args:
            now: Monotonic time in seconds.
        """
        if self._rate is None:
            return
        rate = self._rate_at(now)
        is_quiet = (
            now - max(self._wait_ends_at, self._hinted_at) >= _QUIET_S
            and now > self._next_start_at
        )
        if rate >= _UNLIMITED_RATE_PER_S or is_quiet:
            self._rate = None
            self._next_start_at = -math.inf
        else:
            self._next_start_at = max(now, self._next_start_at) + 1 / rate

    def on_retry_after(self, seconds: float, *, started: float, now: float, draw: float) -> None:
        """Record a Retry-After hint.

        Args:
            seconds: The hint, in seconds.
            started: When the refused call started, as monotonic time in seconds.
            now: Monotonic time in seconds.
            draw: A random number from 0 up to 1.
        """
        self._hinted_at = now
        is_new = now >= self._wait_ends_at and started >= self._wait_began_at
        if is_new:
            self._slow_down(now, least=1 / max(seconds, 1 / _UNLIMITED_RATE_PER_S))
            self._wait_began_at = now
            seconds += draw * min(1.0, _JITTER_SHARE * seconds)
        self._wait_ends_at = max(self._wait_ends_at, now + seconds)
        self._next_start_at = (
            self._wait_ends_at if is_new else max(self._next_start_at, self._wait_ends_at)
        )

    def _slow_down(self, now: float, *, least: float) -> None:
        if self._rate is None:
            self._rate, self._growth = max(_INITIAL_RATE_PER_S, least), _FAST_GROWTH_PER_S
        else:
            self._rate, self._growth = max(least, self._rate_at(now) / 2), _SLOW_GROWTH_PER_S

    def _rate_at(self, now: float) -> float:
        """Return how many calls a second may start now."""
        if self._rate is None:
            return math.inf
        since = min(_QUIET_S, max(0.0, now - self._wait_ends_at))
        return self._rate * math.pow(self._growth, since)
