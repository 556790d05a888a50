"""All policies of a client in one value."""

from __future__ import annotations

from typing import Self

from holdfast._model.settings import Policy, check_count, check_kind, check_kinds
from holdfast._policy.breaker import BreakerPolicy
from holdfast._policy.budget import BudgetPolicy
from holdfast._policy.concurrency import ConcurrencyPolicy
from holdfast._policy.hedge import HedgePolicy
from holdfast._policy.reconcile import ReconcilePolicy
from holdfast._policy.reconnect import ReconnectPolicy
from holdfast._policy.retry import RetryPolicy
from holdfast._policy.retry_after import RetryAfterPolicy
from holdfast._wire.http import Timeouts
from holdfast._wire.status import REFUSALS

__all__ = ["Resilience"]

_OPTIONAL = {
    "budget": BudgetPolicy,
    "breaker": BreakerPolicy,
    "retry_after": RetryAfterPolicy,
    "concurrency": ConcurrencyPolicy,
    "hedge": HedgePolicy,
}
"""Policies that None switches off."""


class Resilience(Policy, frozen=True, kw_only=True):
    """Policies of a client: retries, timeouts, circuit breaker, rate limiting and the others.

    Attributes:
        timeouts: Time limits of one attempt, in seconds each.
        retry: Retries of a failed call.
        budget: Retry budget, which stops retries while too many calls fail; None for no budget.
        breaker: Circuit breaker of a failing agent; None for no circuit breaker.
        retry_after: Queue of all calls while a Retry-After of the agent runs; None delays only the
            call that was rate-limited.
        hedge: Hedging of slow reads; None, the default, for none.
        concurrency: Bulkhead that limits the calls in flight; None, the default, for no limit.
        reconnect: Reconnects of a stream that was cut.
        reconcile: Search for a message whose reply was lost.
        refusals: HTTP statuses that, without an A2A error in the body, mean that the message was
            not executed and may be sent again. Remove the statuses that agents behind your
            gateways return themselves.

    Raises:
        ValueError: A status is negative.
        TypeError: A policy is of another class, or a status is not an integer.

    Example:
        Retry twice at most, and wait at most ten seconds while the agent is rate-limiting::

            resilience = holdfast.Resilience(
                retry=holdfast.RetryPolicy(max_retries=2, max_retry_after=10),
                timeouts=holdfast.Timeouts(first_byte=30),
            )
            async with holdfast.connect("http://localhost:9999", resilience=resilience) as agent:
                print((await agent.ask("How far is the moon?")).text)
    """

    timeouts: Timeouts = Timeouts()
    retry: RetryPolicy = RetryPolicy()
    budget: BudgetPolicy | None = BudgetPolicy()
    breaker: BreakerPolicy | None = BreakerPolicy()
    retry_after: RetryAfterPolicy | None = RetryAfterPolicy()
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
        """Return the default policies."""
        return cls()

    @classmethod
    def off(cls) -> Self:
        """Return policies that attempt each call once; the time limits of an attempt stay."""
        return cls(
            retry=RetryPolicy(max_retries=0),
            budget=None,
            breaker=None,
            retry_after=None,
            reconnect=ReconnectPolicy(max_reconnects=0),
            reconcile=ReconcilePolicy(timeout=0),
        )
