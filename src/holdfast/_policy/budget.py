"""A retry budget: retries stop while most calls fail, so that an outage is not made worse.

The shape is gRPC's (gRFC A6, "Throttling Retry Attempts"): a failure takes a token, a success
gives a tenth back, retries need more than half. One rule is added: tokens also come back with
time, so that a client that calls seldom recovers. Counted in thousandths, so that no rounding
adds up.
"""

from __future__ import annotations

import math

import msgspec

from holdfast._model.settings import check_count, check_numbers

__all__ = ["BudgetPolicy", "RetryBudget"]

_THOUSANDTHS = 1000


class BudgetPolicy(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """How many transient failures of an endpoint are tried again before retries stop.

    Retries go on while more than half of the tokens are left: with the defaults after each of the
    first four failures in a row.

    Attributes:
        tokens: Size of the budget, and what it starts with.
        success_gives: Tokens that a success gives back; 0 for none.
        seconds_per_token: Seconds after which a token comes back; infinity for never.

    Raises:
        ValueError: `tokens` or `seconds_per_token` is not positive, or `success_gives` is
            negative or infinite.
        TypeError: `tokens` is no whole number, or another one no number.
    """

    tokens: int = 10
    success_gives: float = 0.1
    seconds_per_token: float = 10.0

    def __post_init__(self) -> None:
        check_count("tokens", self.tokens, least=1)
        check_numbers(self, ("success_gives", "seconds_per_token"))
        if not 0 <= self.success_gives < math.inf:
            message = "success_gives must be a finite number, and not negative"
            raise ValueError(message)
        if not self.seconds_per_token > 0:
            message = "seconds_per_token must be positive"
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
