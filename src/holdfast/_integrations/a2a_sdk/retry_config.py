"""What a caller says about trying again: checked once, and never changed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdfast._aio.per_loop import PerLoop
from holdfast._arguments import check_hook, check_kind, check_seconds
from holdfast._integrations.a2a_sdk.failures import default_retry_predicate
from holdfast._policy.budget import BudgetPolicy, RetryBudget
from holdfast._policy.retry import RetryPolicy

if TYPE_CHECKING:
    from typing import TypeAlias

__all__ = ["OnRetry", "RetryConfig", "RetryPredicate", "SharedBudget"]

RetryPredicate: TypeAlias = Callable[[Exception], bool]
OnRetry: TypeAlias = Callable[[int, Exception, float], Awaitable[None] | None]


class SharedBudget:
    """A retry budget for several transports that lead to the same agent.

    Each event loop has its own.

    Args:
        policy: How large it is, and how it recovers.

    Raises:
        TypeError: `policy` is none.
    """

    def __init__(self, policy: BudgetPolicy | None = None) -> None:
        policy = BudgetPolicy() if policy is None else policy
        check_kind("policy", policy, BudgetPolicy)
        self.policy = policy
        self._budgets = PerLoop(lambda: RetryBudget(policy, now=_now()))

    @property
    def tokens(self) -> float:
        """What is left of it on the running event loop."""
        return self._budgets.here().tokens

    def succeeded(self) -> None:
        """Notes a success."""
        self._budgets.here().succeeded()

    def failed(self) -> bool:
        """Charges a failure that was worth another try; whether there may be one."""
        return self._budgets.here().failed(now=_now())


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryConfig:
    """How often, how patiently, and what to try again.

    Attributes:
        max_retries: Tries after the first one; 0 turns retrying off.
        base_delay: Upper bound of the first wait, in seconds; it doubles with each further one.
        max_delay: Where the bound stops growing, in seconds. The wait is drawn evenly from zero
            to the bound ("full jitter").
        retry_predicate: Called with the SDK's error; whether another try may help. None stands
            for `default_retry_predicate`.
        on_retry: Called before each wait with the number of the retry (from 1), the error, and
            the wait in seconds; may be a coroutine function. It only listens: what it raises is
            logged, and one that takes longer than 10 s is given up; the wait goes on meanwhile.
        resend_ambiguous: Whether an operation that must not run twice (SendMessage,
            SendStreamingMessage, CreateTaskPushNotificationConfig) is sent again even if the
            agent may have run it. By default it is only where the failure shows that it did not
            run, whatever the predicate says.
        max_retry_after: Longest hint of a server (Retry-After and its like) to follow, in
            seconds. A hint is a lower bound of the wait, also beyond `max_delay`; a longer one
            ends the call at once.
        timeout: Seconds for a call with all its tries and waits, a stream up to its first event;
            None leaves it to the limits of the transport below.
        budget: What stops retrying while most calls fail. ``"standard"`` is one for the
            transport, which allows a single call all its retries; a `BudgetPolicy` makes it
            another one, a `SharedBudget` is for several transports, None is for none.

    Raises:
        ValueError: A number is negative, infinite or not a number (`max_retry_after` may be
            infinite), or `timeout` is not positive.
        TypeError: One of them is of another kind, or `retry_predicate` a coroutine function.
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
        self.policy()  # which checks its numbers
        check_kind("resend_ambiguous", self.resend_ambiguous, bool)
        for name in ("retry_predicate", "on_retry"):
            hook: object = getattr(self, name)
            if hook is not None:
                check_hook(name, hook)
        called = getattr(type(self.retry_predicate), "__call__", None)  # noqa: B004  it is callable
        if any(map(inspect.iscoroutinefunction, (self.retry_predicate, called))):
            text = "retry_predicate must be an ordinary function, not a coroutine function"
            raise TypeError(text)
        if self.timeout is not None:
            check_seconds("timeout", self.timeout)
        if self.budget not in ("standard", None):
            kinds = (BudgetPolicy, SharedBudget)
            check_kind("budget", self.budget, kinds, or_else=', SharedBudget, "standard" or None')

    @property
    def predicate(self) -> RetryPredicate:
        """Whether another try may help."""
        return self.retry_predicate or default_retry_predicate

    def policy(self) -> RetryPolicy:
        """The numbers, as the core decides by them."""
        return RetryPolicy(
            max_retries=self.max_retries,
            base_delay=self.base_delay,
            max_delay=self.max_delay,
            max_retry_after=self.max_retry_after,
        )

    def shared_budget(self) -> SharedBudget | None:
        """The budget that was passed, or a new one."""
        match self.budget:
            case SharedBudget() | None:
                return self.budget
            case BudgetPolicy():
                return SharedBudget(self.budget)
            case _:
                # More than half is left of it after as many failures as one call has retries.
                least = BudgetPolicy().tokens
                return SharedBudget(BudgetPolicy(tokens=max(least, 2 * self.max_retries + 1)))


def _now() -> float:
    return asyncio.get_running_loop().time()
