"""How fast calls may start at an endpoint that has said that they come too fast.

One caller's wait helps nobody when hundreds go on: a hint (Retry-After) holds back all of them,
and afterwards they do not come all at once. Rules:

- Nothing is held back before the first hint; the price of a quick agent is nothing.
- A hint is a lower bound, and never shortened; the moment is drawn a little later, once for all,
  so that separate programs do not meet.
- When the wait is over, one call may start: the agent has said so.
- It goes on with one call a second, and twice as many each second. When the agent complains again,
  the rate is halved, once for each wait: what was already under way has no part in it. From then
  on it grows by a tenth each second.
- As many calls are always allowed as would come if each waited for as long as was asked for.
- What counts is how many start, and never how many end: agents work for minutes.
- A while without a complaint and without a queue, and all is as before.

So does TCP: a quick start, and a careful growth after the first loss (RFC 5681).
"""

from __future__ import annotations

import math

__all__ = ["SlowStart"]

_FIRST = 1.0
"""Calls a second after the first hint, at least."""

_QUICK = 2.0
"""How the rate grows in a second until the agent complains again."""

_CAREFUL = 1.1
"""How it grows from then on."""

_FREE = 256.0
"""Calls a second from which on nobody is held back."""

_QUIET = 60.0
"""Seconds without a complaint, after which nobody is held back who does not have to wait."""

_SPREAD = 0.1
"""How far a wait is drawn beyond the hint, as a share of it; a second at most."""


class SlowStart:
    """How fast calls may start at one endpoint."""

    __slots__ = ("_complained", "_growth", "_held_at", "_next", "_rate", "_until")

    def __init__(self) -> None:
        self._rate: float | None = None  # calls a second at the end of the last wait
        self._growth = _QUICK  # what that is multiplied by each second since then
        self._held_at = -math.inf  # when the last wait began
        self._until = -math.inf  # when it ends
        self._next = -math.inf  # when the next call may start
        self._complained = -math.inf  # when the last complaint came

    @property
    def is_free(self) -> bool:
        """Whether nobody is held back."""
        return self._rate is None

    def is_held(self, *, now: float) -> bool:
        """Whether the agent has asked to wait until later.

        Args:
            now: Monotonic time in seconds.
        """
        return now < self._until

    def next_start(self, *, now: float) -> float:
        """When the next call may start; now, or later.

        Args:
            now: Monotonic time in seconds.
        """
        return max(now, self._next)

    def started(self, *, now: float) -> None:
        """Notes that a call starts, no sooner than it may.

        Args:
            now: Monotonic time in seconds.
        """
        if self._rate is None:
            return
        rate = self._rate_at(now)
        has_been_quiet = now - max(self._until, self._complained) >= _QUIET and now > self._next
        if rate >= _FREE or has_been_quiet:
            self._rate = None
            self._next = -math.inf
        else:
            self._next = max(now, self._next) + 1 / rate

    def on_retry_after(self, seconds: float, *, started: float, now: float, draw: float) -> None:
        """Notes a hint.

        Args:
            seconds: How long the agent asks to wait.
            started: When the call started that was refused.
            now: Monotonic time in seconds.
            draw: A random number from 0 up to 1.
        """
        self._complained = now
        is_new = now >= self._until and started >= self._held_at
        if is_new:
            self._slow_down(now, least=1 / max(seconds, 1 / _FREE))
            self._held_at = now
            seconds += draw * min(1.0, _SPREAD * seconds)
        self._until = max(self._until, now + seconds)
        self._next = self._until if is_new else max(self._next, self._until)

    def _slow_down(self, now: float, *, least: float) -> None:
        if self._rate is None:
            self._rate, self._growth = max(_FIRST, least), _QUICK
        else:
            self._rate, self._growth = max(least, self._rate_at(now) / 2), _CAREFUL

    def _rate_at(self, now: float) -> float:
        """Calls a second that may start by now."""
        if self._rate is None:
            return math.inf
        since = min(_QUIET, max(0.0, now - self._until))
        return self._rate * math.pow(self._growth, since)
