"""The layer that tries a call again; whether and when is decided by `holdfast.policy.retry`."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.errors import A2AError
from holdfast.policy.retry import GiveUp, Retry, RetryPolicy, decide
from holdfast.runtime.transport import AnyCall, Call, Onward, PassThrough, Reply, Transport

if TYPE_CHECKING:
    from holdfast.policy.budget import BudgetPolicy
    from holdfast.runtime.env import Env
    from holdfast.runtime.listeners import Observers

__all__ = ["RetryLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class RetryLayer(PassThrough):
    """Tries again where `holdfast.policy.retry` says so and the endpoint's budget allows it.

    Each time it is chosen anew below where the call goes. What fails before anything was tried is
    not tried again: those below have done what they could.
    """

    def __init__(
        self,
        inner: Transport,
        policy: RetryPolicy,
        budget: BudgetPolicy | None,
        env: Env,
        observers: Observers,
    ) -> None:
        super().__init__(inner)
        self._policy = policy
        self._budget = budget
        self._env = env
        self._observers = observers

    async def through(self, call: Call[P, R], onward: Onward[P, R, T], /) -> Reply[T]:
        progress = call.progress
        failures = 0
        last: A2AError | None = None
        while True:
            tried = len(progress.attempts)
            try:
                reply = await onward(call)
            except A2AError as error:
                if len(progress.attempts) == tried:
                    if last is None:
                        raise
                    last.gave_up = error.message  # what failed before says more
                    raise last from last.__cause__
                failures, last = failures + 1, error
                await asyncio.sleep(await self._after_failure(call, error, failures))
            else:
                if progress.endpoint is not None:
                    progress.endpoint.succeeded(self._budget)
                return reply

    async def _after_failure(self, call: AnyCall, error: A2AError, failures: int) -> float:
        """Returns the wait before the next try, or raises the error with its attempts."""
        now, progress = asyncio.get_running_loop().time(), call.progress
        within_budget = (
            not error.transient
            or progress.endpoint is None
            or progress.endpoint.charge(self._budget, now=now)
        )
        decision: Retry | GiveUp = decide(
            self._policy,
            error,
            safety=call.operation.safety,
            attempt=failures,
            time_left=call.deadline.left(now),
            draw=self._env.random(),
        )
        if not call.is_retried:
            decision = GiveUp("who made the call goes on by other means")
        if isinstance(decision, Retry) and not within_budget:
            decision = GiveUp("the retry budget of this agent is spent")
        if isinstance(decision, GiveUp):
            if error.transient and call.is_retried:
                error.gave_up = decision.reason
            error.attempts = tuple(progress.attempts)
            raise error
        wait = decision.delay
        progress.attempts[-1] = msgspec.structs.replace(progress.attempts[-1], wait=wait)
        error.attempts = tuple(progress.attempts)
        self._observers.retry_scheduled(call, error, wait=wait)
        if self._policy.on_retry is not None:
            told = self._policy.on_retry(failures, error, wait)
            if inspect.isawaitable(told):
                await told
        return wait
