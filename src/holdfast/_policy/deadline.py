"""Deadlines, and how often to look while waiting for something to happen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NEVER", "Deadline", "poll_delays"]


class Deadline(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A moment at which waiting ends.

    Attributes:
        name: Whose deadline, as errors name it: ``"call"``, ``"wait"``, ``"cancel"``,
            ``"stream"``, ``"fan-out"``; or ``"quiet"``, of a stream that brings nothing new.
        timeout: Seconds from its beginning to its end.
        at: The moment, on the event loop's clock.
        ends_at_first_event: Whether it is over with the first event of a stream, which may then go
            on for as long as it likes.
    """

    name: str
    timeout: float
    at: float
    ends_at_first_event: bool = False

    @property
    def shown(self) -> str:
        """The timeout for error messages: rounded, with its unit."""
        return f"{self.timeout:.2g} s" if self.timeout < 0.1 else f"{round(self.timeout, 2):g} s"

    def left(self, now: float) -> float:
        """Seconds left, not below zero."""
        return max(0.0, self.at - now)


NEVER = Deadline(name="stream", timeout=math.inf, at=math.inf)
"""That of a stream that may go on for as long as it likes."""


def poll_delays(interval: float) -> Iterator[float]:
    """The waits between looks, in seconds: short at first, then `interval`.

    Quick tasks are noticed quickly, and long ones are not asked after more often than agreed.
    """
    delay = interval / 16
    while True:
        yield delay
        delay = min(interval, delay * 2)
