"""Hedging: a read that takes longer than most is sent once more, and the first answer wins.

Dean and Barroso, "The Tail at Scale" (CACM 56, 2013). Only operations that may run twice are
hedged. Each read adds to a budget from which hedges are taken, so that an agent that has become
slow altogether does not get twice the load.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque

from holdfast._model.settings import Policy, check_count, check_numbers

__all__ = ["HedgeBudget", "HedgePolicy", "Hedging", "Latencies", "hedge_delay"]

_THOUSANDTHS = 1000

_MAX_SAVED_HEDGES = 10
"""Largest budget, in hedges."""


class HedgePolicy(Policy, frozen=True, kw_only=True):
    """Policy of hedging: when a slow read is sent a second time.

    Attributes:
        quantile: Share of the reads that are faster than the wait before a hedge, 0.95 by default;
            above 0 and below 1.
        max_extra: Largest number of hedges per read, on average, 0.05 by default; above 0 and
            below 1.
        min_samples: Completed reads of an operation that are needed to hedge one, 20 by default;
            at least 1.
        min_delay: Shortest wait before a hedge, in seconds, 0.01 by default; 0 or more, and
            finite.

    Raises:
        ValueError: A number is out of its bounds.
        TypeError: A value is not a number, or `min_samples` is not an integer.
    """

    quantile: float = 0.95
    max_extra: float = 0.05
    min_samples: int = 20
    min_delay: float = 0.01

    def __post_init__(self) -> None:
        check_numbers(self, ("quantile", "max_extra", "min_delay"))
        check_count("min_samples", self.min_samples, least=1)
        for name in ("quantile", "max_extra"):
            if not 0 < getattr(self, name) < 1:
                message = f"{name} must be between 0 and 1"
                raise ValueError(message)
        if not 0 <= self.min_delay < math.inf:
            message = "min_delay must be a finite number of seconds, and not negative"
            raise ValueError(message)


class Latencies:
    """Durations of the last calls of one operation.

    Args:
        size: Number of durations to keep.
    """

    __slots__ = ("_in_order", "_size", "_sorted")

    def __init__(self, size: int = 200) -> None:
        self._size = size
        self._in_order: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, seconds: float) -> None:
        """Record the duration of a call, or the wait for a call that was cancelled."""
        if len(self._in_order) == self._size:
            del self._sorted[bisect_left(self._sorted, self._in_order.popleft())]
        self._in_order.append(seconds)
        insort(self._sorted, seconds)

    def quantile(self, share: float) -> float:
        """Return the seconds that this share of the calls did not exceed; 0 without calls."""
        if not self._sorted:
            return 0.0
        return self._sorted[min(len(self._sorted) - 1, math.ceil(share * len(self._sorted)) - 1)]

    def __len__(self) -> int:
        return len(self._in_order)


class HedgeBudget:
    """The budget of hedges; counted in thousandths, so that rounding errors do not accumulate."""

    __slots__ = ("_per_read", "_thousandths")

    def __init__(self, policy: HedgePolicy) -> None:
        self._per_read = math.floor(policy.max_extra * _THOUSANDTHS)
        self._thousandths = 0

    def record_read(self) -> None:
        """Record a read, which adds to the budget."""
        self._thousandths = min(
            _MAX_SAVED_HEDGES * _THOUSANDTHS, self._thousandths + self._per_read
        )

    def take(self) -> bool:
        """Take a hedge from the budget; False if too little is left."""
        if self._thousandths < _THOUSANDTHS:
            return False
        self._thousandths -= _THOUSANDTHS
        return True


class Hedging:
    """Latencies and hedge budget of the reads at one endpoint.

    Args:
        policy: When to hedge.

    Attributes:
        budget: The budget of hedges.
    """

    __slots__ = ("_latencies", "budget")

    def __init__(self, policy: HedgePolicy) -> None:
        self.budget = HedgeBudget(policy)
        self._latencies: dict[str, Latencies] = {}

    def latencies(self, operation: str) -> Latencies:
        """Return the latencies of an operation."""
        return self._latencies.setdefault(operation, Latencies())


def hedge_delay(policy: HedgePolicy, latencies: Latencies) -> float | None:
    """Return the seconds to wait before a hedge; None if there are too few samples."""
    if len(latencies) < policy.min_samples:
        return None
    return max(policy.min_delay, latencies.quantile(policy.quantile))
