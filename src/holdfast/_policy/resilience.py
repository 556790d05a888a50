"""All policies of a client in one value."""

from __future__ import annotations

from typing import Self

import msgspec

from holdfast._model.settings import check_count, check_kind, check_kinds
from holdfast._policy.breaker import BreakerPolicy
from holdfast._policy.budget import BudgetPolicy
from holdfast._policy.hedge import HedgePolicy
from holdfast._policy.limiter import ConcurrencyPolicy, RateLimitPolicy
from holdfast._policy.reconcile import ReconcilePolicy
from holdfast._policy.reconnect import ReconnectPolicy
from holdfast._policy.retry import RetryPolicy
from holdfast._wire.http import Timeouts
from holdfast._wire.status import REFUSALS

__all__ = ["Resilience"]

_OPTIONAL = {
    "budget": BudgetPolicy,
    "breaker": BreakerPolicy,
    "rate_limit": RateLimitPolicy,
    "concurrency": ConcurrencyPolicy,
    "hedge": HedgePolicy,
}
"""What a client can be without."""


class Resilience(msgspec.Struct, frozen=True, kw_only=True):
    """How a client behaves when things go wrong.

    Attributes:
        timeouts: Limits of one attempt.
        retry: When to try again.
        budget: When to stop trying again because too much fails; None never stops.
        breaker: When to leave an agent alone that fails; None never does.
        rate_limit: How calls wait once the agent has asked one of them to; None makes only that
            one wait.
        hedge: When to ask a second time for what takes long, if it may be asked twice; None never.
        concurrency: How many calls are under way at once; None for as many as there are.
        reconnect: How to pick up a stream that was cut.
        reconcile: How to look for a message whose reply was lost.
        refusals: HTTP statuses that, without an A2A error in the body, are taken to mean that
            the message was not executed, and may be sent again. Take out those that agents behind
            your gateways answer themselves.

    Raises:
        ValueError: A status is negative.
        TypeError: One of them is of another class, or a status is no whole number.
    """

    timeouts: Timeouts = Timeouts()
    retry: RetryPolicy = RetryPolicy()
    budget: BudgetPolicy | None = BudgetPolicy()
    breaker: BreakerPolicy | None = BreakerPolicy()
    rate_limit: RateLimitPolicy | None = RateLimitPolicy()
    concurrency: ConcurrencyPolicy | None = None
    hedge: HedgePolicy | None = None
    reconnect: ReconnectPolicy = ReconnectPolicy()
    reconcile: ReconcilePolicy = ReconcilePolicy()
    refusals: frozenset[int] = REFUSALS

    def __post_init__(self) -> None:
        check_kinds(
            self,
            timeouts=Timeouts,
            retry=RetryPolicy,
            reconnect=ReconnectPolicy,
            reconcile=ReconcilePolicy,
            refusals=frozenset,
        )
        for name, kind in _OPTIONAL.items():
            policy = getattr(self, name)
            check_kind(name, policy, (kind, type(None)), or_else=", or None to switch it off")
        for status in self.refusals:
            check_count("each of refusals", status)

    @classmethod
    def standard(cls) -> Self:
        """The defaults."""
        return cls()

    @classmethod
    def off(cls) -> Self:
        """The bare wire: each call is tried once; the timeouts of an attempt stay."""
        return cls(
            retry=RetryPolicy(max_retries=0),
            budget=None,
            breaker=None,
            rate_limit=None,
            reconnect=ReconnectPolicy(max_reconnects=0),
            reconcile=ReconcilePolicy(timeout=0),
        )
