"""The layer that tries a call again.

Whether and when is decided by `holdfast._policy.retry`, and where by the layers below, anew each
time. This one tells them the facts, and waits.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, TypeVar

from holdfast._pipeline.transport import AnyCall, Call, CallNext, PassThrough, Reply, Transport
from holdfast._policy.limiter import asks_to_wait
from holdfast._policy.retry import GiveUp, Retry, RetryState, decide
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from holdfast._aio.env import Env
    from holdfast._pipeline.listeners import Observers
    from holdfast._pipeline.retry_after_gate import RetryAfterGate
    from holdfast._policy.resilience import Resilience

__all__ = ["RetryLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class RetryLayer(PassThrough):
    """Tries again where `holdfast._policy.retry` says so and the endpoint's budget allows it."""

    def __init__(
        self,
        inner: Transport,
        resilience: Resilience,
        env: Env,
        observers: Observers,
    ) -> None:
        super().__init__(inner)
        self._policy = resilience.retry
        self._budget = resilience.budget
        self._waits_in_line = resilience.rate_limit is not None
        self._env = env
        self._observers = observers

    async def through(self, call: Call[P, R], onward: CallNext[P, R, T], /) -> Reply[T]:
        progress = call.progress
        tries: RetryState | None = None
        while True:
            tried = len(progress.attempts)
            try:
                reply = await onward(call)
            except A2AError as error:
                tries = tries or RetryState()
                was_attempted = len(progress.attempts) > tried
                await self._after_failure(call, error, tries, was_attempted=was_attempted)
            else:
                if progress.endpoint is not None:
                    progress.endpoint.succeeded(self._budget)
                return reply

    async def _after_failure(
        self, call: AnyCall, error: A2AError, tries: RetryState, *, was_attempted: bool
    ) -> None:
        """Waits until the next try.

        Raises:
            A2AError: What the last attempt came to, with all of them: there is no other try.
        """
        gate = self._gate(call, error) if was_attempted else None
        endpoint = call.progress.endpoint
        tries.failed(
            error,
            was_attempted=was_attempted,
            is_in_line=gate is not None,
            answered=None if endpoint is None else endpoint.answered,
        )
        last = tries.last
        if last is None:
            raise error
        # A refusal on this side cost the agent nothing, and nor does who waits in line.
        is_charged = was_attempted and error.transient and gate is None
        decision = self._decide(call, error, tries.failures, is_charged=is_charged)
        if isinstance(decision, GiveUp):
            if error.transient and call.is_retried:
                last.retry_stopped_reason = decision.reason if error is last else error.message
            if last.retry_after is None:
                last.retry_after = error.retry_after  # of who was refused here after that
            last.attempts = tuple(call.progress.attempts)
            raise last from last.__cause__
        wait = decision.delay if gate is None else gate.wait_ahead()
        call.progress.goes_on(asyncio.get_running_loop().time() + wait)
        last.attempts = tuple(call.progress.attempts)
        self._observers.retry_scheduled(call, last, wait=wait)
        asked = call.progress.call_group.operation
        if self._policy.on_retry is not None and asked in (None, call.operation.name):
            told = self._policy.on_retry(tries.failures, last, wait)
            if inspect.isawaitable(told):
                await told
        await asyncio.sleep(wait if gate is None else 0.0)  # in line it is waited below

    def _gate(self, call: AnyCall, error: A2AError) -> RetryAfterGate | None:
        """Where the next try waits, in line with all others that call there, if it does."""
        endpoint = call.progress.endpoint
        if not self._waits_in_line or endpoint is None or not asks_to_wait(error):
            return None
        # What is asked by others than the agent holds nobody back below.
        return None if call.progress.lacks_credentials else endpoint.gate(call.operation)

    def _decide(
        self, call: AnyCall, error: A2AError, failures: int, *, is_charged: bool
    ) -> Retry | GiveUp:
        now, progress = asyncio.get_running_loop().time(), call.progress
        within_budget = True
        if is_charged and progress.endpoint is not None:
            within_budget = progress.endpoint.charge(self._budget, now=now)
        if not call.is_retried:
            return GiveUp("the caller handles this failure in another way")
        return decide(
            self._policy,
            error,
            safety=call.operation.safety,
            attempt=failures,
            time_left=call.deadline.left(now),
            draw=self._env.random(),
            within_budget=within_budget or progress.has_others,
        )
