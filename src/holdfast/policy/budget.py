"""A retry budget: retries stop while most calls fail, so that an outage is not made worse.

The shape is gRPC's (gRFC A6, "Throttling Retry Attempts"): a failure takes a token, a success
gives a tenth back, retries need more than half. One rule is added: tokens also come back with
time, so that a client that calls seldom recovers. Counted in thousandths, so that no rounding
adds up.
"""

from __future__ import annotations

import msgspec

__all__ = ["BudgetPolicy", "RetryBudget"]

_THOUSANDTHS = 1000


class BudgetPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How many failures in a row an endpoint may answer with retries.

    Attributes:
        tokens: Size of the budget, and what it starts with.
        success_gives: Tokens for each success.
        seconds_per_token: A token comes back each time this many seconds pass.

    Raises:
        ValueError: A number is not positive.
    """

    tokens: int = 10
    success_gives: float = 0.1
    seconds_per_token: float = 10.0

    def __post_init__(self) -> None:
        if not (self.tokens > 0 and self.success_gives >= 0 and self.seconds_per_token > 0):
            message = "a retry budget needs positive numbers"
            raise ValueError(message)


class RetryBudget:
    """What is left of the budget of one endpoint."""

    __slots__ = ("_policy", "_since", "_thousandths")

    def __init__(self, policy: BudgetPolicy, *, now: float) -> None:
        self._policy = policy
        self._thousandths = policy.tokens * _THOUSANDTHS
        self._since = now

    @property
    def tokens(self) -> float:
        """What was left at the last change."""
        return self._thousandths / _THOUSANDTHS

    def succeeded(self) -> None:
        """Notes a success."""
        self._add(round(self._policy.success_gives * _THOUSANDTHS))

    def failed(self, *, now: float) -> bool:
        """Charges a transient failure.

        Args:
            now: Monotonic time in seconds.

        Returns:
            Whether a retry is allowed.
        """
        per_token = self._policy.seconds_per_token
        back = int((now - self._since) / per_token * _THOUSANDTHS)
        if back > 0:
            self._add(back)
            self._since += back * per_token / _THOUSANDTHS
        self._add(-_THOUSANDTHS)
        return self._thousandths * 2 > self._policy.tokens * _THOUSANDTHS

    def _add(self, thousandths: int) -> None:
        full = self._policy.tokens * _THOUSANDTHS
        self._thousandths = min(full, max(0, self._thousandths + thousandths))
