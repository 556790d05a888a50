"""Deadlines, and how often to look while waiting for something to happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Deadline", "poll_delays"]


class Deadline(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A moment at which waiting ends.

    Attributes:
        name: Whose deadline, as errors name it: ``"call"``, ``"wait"``, ``"cancel"``,
            ``"stream"``, ``"fan-out"``; or ``"quiet"``, of a stream that brings nothing new.
        timeout: Seconds from its beginning to its end.
        at: The moment, on the event loop's clock.
    """

    name: str
    timeout: float
    at: float

    def left(self, now: float) -> float:
        """Seconds left, not below zero."""
        return max(0.0, self.at - now)


def poll_delays(interval: float) -> Iterator[float]:
    """The waits between looks, in seconds: short at first, then `interval`.

    Quick tasks are noticed quickly, and long ones are not asked after more often than agreed.
    """
    delay = interval / 16
    while True:
        yield delay
        delay = min(interval, delay * 2)
