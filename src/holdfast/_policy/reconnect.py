"""How often a cut stream reconnects, and how long it waits before each reconnect."""

from __future__ import annotations

import math

from holdfast._model.settings import Policy, check_count, check_numbers

__all__ = ["ReconnectPolicy", "growing_wait"]


_SECONDS = ("backoff", "max_backoff", "max_outage", "max_quiet")


class ReconnectPolicy(Policy, frozen=True, kw_only=True):
    """Policy for a stream that was cut: how it resumes, and when it fails.

    Attributes:
        max_reconnects: Consecutive reconnects without a new event, 0 or more, 8 by default; a new
            event resets the count. After that many, the stream polls the task instead; it also
            does so, independently of this number, after three consecutive subscriptions that bring
            no event besides the current task. 0 fails at the first cut.
        backoff: Upper bound of the first wait, in seconds, 0.5 by default; it doubles each time,
            and the wait is drawn evenly between zero and the bound.
        max_backoff: Largest value of the bound, in seconds, 15 by default.
        max_outage: Seconds for which every request may fail, because the agent is down or cannot
            be reached, 300 by default; finite. A stream then fails with `ReconnectError`. A
            restart that takes less time is survived. `Client.ask`, `Client.wait` and `Client.run`
            continue until their ``timeout`` instead, if they have one.
        max_quiet: Seconds without a change after which a polled stream without a deadline fails
            with `DeadlineExceededError`, whose ``deadline`` is ``"quiet"``, 3,600 by default;
            finite.

    Raises:
        ValueError: A number is negative, or a wait is infinite.
        TypeError: `max_reconnects` is not an integer, or another value is not a number.
    """

    max_reconnects: int = 8
    backoff: float = 0.5
    max_backoff: float = 15.0
    max_outage: float = 300.0
    max_quiet: float = 3600.0

    def __post_init__(self) -> None:
        check_count("max_reconnects", self.max_reconnects)
        check_numbers(self, _SECONDS)
        for name in _SECONDS:
            if not 0 <= getattr(self, name) < math.inf:
                message = f"{name} must be a finite number of seconds, and not negative"
                raise ValueError(message)


def growing_wait(attempt: int, draw: float, *, first: float, most: float) -> float:
    """Return a wait in seconds, drawn evenly between zero and a bound that doubles.

    Args:
        attempt: Number of the attempt, from 1.
        draw: A random number from 0 up to 1.
        first: The bound of the first wait, in seconds.
        most: Largest value of the bound, in seconds.
    """
    growth = 2.0 ** min(attempt - 1, 64)  # beyond that, any bound is reached
    return min(most, first * growth) * draw
