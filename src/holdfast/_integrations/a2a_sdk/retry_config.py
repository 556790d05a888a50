"""The caller's retry settings: checked once, and immutable."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdfast._aio.per_loop import PerLoop
from holdfast._arguments import check_hook, check_kind, check_seconds
from holdfast._integrations.a2a_sdk.failures import default_retry_predicate
from holdfast._policy.budget import RetryBudget
from holdfast.policies import BudgetPolicy, RetryPolicy

if TYPE_CHECKING:
    from typing import TypeAlias

__all__ = ["OnRetry", "RetryConfig", "RetryPredicate", "SharedBudget"]

RetryPredicate: TypeAlias = Callable[[Exception], bool]
"""Function that gets an exception, and returns whether a retry may help; a `RetryConfig` has one.
"""
OnRetry: TypeAlias = Callable[[int, Exception, float], Awaitable[None] | None]
"""Function that is called before the wait for a retry; a `RetryConfig` has one."""


class SharedBudget:
    """A retry budget for several transports that lead to the same agent.

    Each event loop has its own.

    Args:
        policy: Size and recovery of the budget; those of ``BudgetPolicy()`` by default.

    Raises:
        TypeError: ``policy`` is of another type.
    """

    def __init__(self, policy: BudgetPolicy | None = None) -> None:
        policy = BudgetPolicy() if policy is None else policy
        check_kind("policy", policy, BudgetPolicy)
        self.policy = policy
        self._budgets = PerLoop(lambda: RetryBudget(policy, now=_now()))

    @property
    def tokens(self) -> float:
        """The tokens left on the running event loop."""
        return self._budgets.here().tokens

    def succeeded(self) -> None:
        """Record a success."""
        self._budgets.here().succeeded()

    def failed(self) -> bool:
        """Charge a transient failure, and return whether a retry is allowed."""
        return self._budgets.here().failed(now=_now())


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryConfig:
    """Settings of retries: the calls to retry, their number, and the waits.

    Attributes:
        max_retries: Attempts after the first one, 3 by default; 0 turns retries off.
        base_delay: Upper bound of the first wait, in seconds, 1 by default; it doubles with each
            further one.
        max_delay: Largest value of the bound, in seconds, 30 by default. The wait is drawn evenly
            from zero to the bound ("full jitter").
        retry_predicate: Called with the SDK's error; returns whether a retry may help. None is
            `default_retry_predicate`.
        on_retry: Called before each wait with the number of the retry (from 1), the error, and
            the wait in seconds; may be a coroutine function. It only listens: its exceptions
            are logged, and it is cancelled after 10 s; the time of the wait passes meanwhile.
        resend_ambiguous: Whether an operation that must not run twice (SendMessage,
            SendStreamingMessage, CreateTaskPushNotificationConfig) is sent again even if the agent
            may have executed it; False by default. Then it is retried only if the failure shows
            that it was not executed, whatever the predicate returns.
        max_retry_after: Longest hint of a server (such as Retry-After) to wait for, in seconds, 60
            by default. A hint is a lower bound of the wait, also beyond `max_delay`; a longer one
            ends the call at once.
        timeout: Seconds for a call with all its attempts and waits, a stream up to its first
            event, more than 0; None leaves it to the limits of the transport below.
        budget: The retry budget, which stops retries while most calls fail. ``"standard"`` is one
            for the transport, which allows a single call all its retries; a `BudgetPolicy` sets
            its size, a `SharedBudget` serves several transports, None turns it off.

    Raises:
        ValueError: A number is negative, infinite or not a number (`max_retry_after` may be
            infinite), or `timeout` is not positive.
        TypeError: A value is of another type, or `retry_predicate` is a coroutine function.
    """

    max_retries: int = 3
    base_delay: float = 1.0
    max_delay: float = 30.0
    retry_predicate: RetryPredicate | None = None
    on_retry: OnRetry | None = None
    resend_ambiguous: bool = False
    max_retry_after: float = 60.0
    timeout: float | None = None
    budget: BudgetPolicy | SharedBudget | Literal["standard"] | None = "standard"

    def __post_init__(self) -> None:
        self.policy()  # checks the numbers
        check_kind("resend_ambiguous", self.resend_ambiguous, bool)
        for name in ("retry_predicate", "on_retry"):
            hook: object = getattr(self, name)
            if hook is not None:
                check_hook(name, hook)
        call_method = getattr(type(self.retry_predicate), "__call__", None)  # noqa: B004  it is callable
        if any(map(inspect.iscoroutinefunction, (self.retry_predicate, call_method))):
            text = "retry_predicate must be an ordinary function, not a coroutine function"
            raise TypeError(text)
        if self.timeout is not None:
            check_seconds("timeout", self.timeout)
        if self.budget not in ("standard", None):
            kinds = (BudgetPolicy, SharedBudget)
            check_kind("budget", self.budget, kinds, or_else=', SharedBudget, "standard" or None')

    @property
    def predicate(self) -> RetryPredicate:
        """The predicate of exceptions after which a retry may help."""
        return self.retry_predicate or default_retry_predicate

    def policy(self) -> RetryPolicy:
        """Return the numbers as a `RetryPolicy`."""
        return RetryPolicy(
            max_retries=self.max_retries,
            base_delay=self.base_delay,
            max_delay=self.max_delay,
            max_retry_after=self.max_retry_after,
        )

    def shared_budget(self) -> SharedBudget | None:
        """Return the budget that was passed, or a new one; None if it is off."""
        match self.budget:
            case SharedBudget() | None:
                return self.budget
            case BudgetPolicy():
                return SharedBudget(self.budget)
            case _:
                # More than half is left after as many failures as one call has retries.
                least = BudgetPolicy().tokens
                return SharedBudget(BudgetPolicy(tokens=max(least, 2 * self.max_retries + 1)))


def _now() -> float:
    return asyncio.get_running_loop().time()
