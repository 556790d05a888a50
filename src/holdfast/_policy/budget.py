"""A retry budget: retries stop while most calls fail, so that they do not worsen an outage.

It follows gRPC (gRFC A6, "Throttling Retry Attempts"): a failure takes a token, a success returns
a tenth of one, retries need more than half of the tokens. One rule is added: tokens also return
with time, so that the budget of a client that calls seldom recovers. Tokens are counted in
thousandths, so that rounding errors do not accumulate.
"""

from __future__ import annotations

import math

from holdfast._model.settings import Policy, check_count, check_numbers

__all__ = ["BudgetPolicy", "RetryBudget"]

_THOUSANDTHS = 1000


class BudgetPolicy(Policy, frozen=True, kw_only=True, cache_hash=True):
    """Retry budget of an endpoint: transient failures to retry before retries stop.

    Retries are allowed while more than half of the tokens are left: with the defaults, after each
    of the first four consecutive failures.

    Attributes:
        tokens: Size of the budget, which starts full, 10 by default; at least 1.
        success_gives: Tokens that a success returns, 0.1 by default; 0 or more, and finite.
        seconds_per_token: Seconds after which a token returns, 10 by default; more than 0,
            infinity for never.

    Raises:
        ValueError: `tokens` or `seconds_per_token` is not positive, or `success_gives` is
            negative or infinite.
        TypeError: `tokens` is not an integer, or another value is not a number.
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
    """The retry budget of one endpoint."""

    __slots__ = ("_policy", "_since", "_thousandths")

    def __init__(self, policy: BudgetPolicy, *, now: float) -> None:
        self._policy = policy
        self._thousandths = policy.tokens * _THOUSANDTHS
        self._since = now

    @property
    def tokens(self) -> float:
        """The tokens left at the last change."""
        return self._thousandths / _THOUSANDTHS

    def succeeded(self) -> None:
        """Record a success."""
        self._add(round(self._policy.success_gives * _THOUSANDTHS))

    def failed(self, *, now: float) -> bool:
        """Charge a transient failure.

        Args:
            now: Monotonic time in seconds.

        Returns:
            Whether a retry is allowed.
        """
        per_token = self._policy.seconds_per_token
        returned = int((now - self._since) / per_token * _THOUSANDTHS)
        if returned > 0:
            self._add(returned)
            self._since += returned * per_token / _THOUSANDTHS
        self._add(-_THOUSANDTHS)
        return self._thousandths * 2 > self._policy.tokens * _THOUSANDTHS

    def _add(self, thousandths: int) -> None:
        full = self._policy.tokens * _THOUSANDTHS
        self._thousandths = min(full, max(0, self._thousandths + thousandths))
