"""How often and how patiently a stream that was cut is picked up again."""

from __future__ import annotations

import math

import msgspec

from holdfast._model.settings import check_count, check_numbers

__all__ = ["ReconnectPolicy", "growing_wait"]


_SECONDS = ("backoff", "max_backoff", "max_quiet")


class ReconnectPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When to give a stream up.

    Attributes:
        max_reconnects: Reconnects without anything new; what is new sets the count to zero. After
            as many, the task is asked for again and again instead. After as many failures of
            that in a row, the stream fails with `ReconnectError`; `Client.ask` and `Client.wait`
            go on to their deadline. 0 fails at the first cut.
        backoff: Upper bound of the first wait, in seconds; it doubles each time, and the wait is
            drawn between zero and the bound.
        max_backoff: Where the bound stops growing, in seconds.
        max_quiet: Seconds for which a task that has to be polled may bring nothing new, where no
            deadline was named; then the stream fails with `DeadlineExceededError`, whose
            ``deadline`` is ``"quiet"``.

    Raises:
        ValueError: A number is negative, or a wait is infinite.
        TypeError: `max_reconnects` is no whole number, or another one no number.
    """

    max_reconnects: int = 8
    backoff: float = 0.5
    max_backoff: float = 15.0
    max_quiet: float = 3600.0

    def __post_init__(self) -> None:
        check_count("max_reconnects", self.max_reconnects)
        check_numbers(self, _SECONDS)
        for name in _SECONDS:
            if not 0 <= getattr(self, name) < math.inf:
                message = f"{name} must be a finite number of seconds, and not negative"
                raise ValueError(message)


def growing_wait(attempt: int, draw: float, *, first: float, most: float) -> float:
    """A wait in seconds: drawn between zero and a bound that doubles.

    Args:
        attempt: Number of the try, from 1.
        draw: A random number from 0 up to 1.
        first: The bound of the first wait.
        most: Where the bound stops growing.
    """
    growth = 2.0 ** min(attempt - 1, 64)  # beyond that, any bound is reached
    return min(most, first * growth) * draw
