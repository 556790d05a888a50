"""The layer that tries a call again; whether and when is decided by `holdfast.policy.retry`."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.errors import A2AError
from holdfast.policy.limiter import asks_to_wait
from holdfast.policy.retry import GiveUp, Retry, decide
from holdfast.runtime.transport import AnyCall, Call, Onward, PassThrough, Reply, Transport

if TYPE_CHECKING:
    from holdfast.policy.resilience import Resilience
    from holdfast.runtime.env import Env
    from holdfast.runtime.gate import Gate
    from holdfast.runtime.listeners import Observers

__all__ = ["RetryLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class RetryLayer(PassThrough):
    """Tries again where `holdfast.policy.retry` says so and the endpoint's budget allows it.

    Each time it is chosen anew below where the call goes. What fails before anything was tried is
    not tried again: those below have done what they could. Who was tried once, and is refused on
    this side then, waits like after any failure. Where an agent asks all to come later,
    a refusal counts only if nobody has got through since the one before: else those who have
    waited longest would be the first to give up.
    """

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

    async def through(self, call: Call[P, R], onward: Onward[P, R, T], /) -> Reply[T]:
        progress = call.progress
        tries: _Tries | None = None
        while True:
            try:
                reply = await onward(call)
            except A2AError as error:
                tries = tries or _Tries()
                tries.add(call, error, waits_in_line=self._waits_in_line)
                await self._after_failure(call, error, tries)
            else:
                if progress.endpoint is not None:
                    progress.endpoint.succeeded(self._budget)
                return reply

    async def _after_failure(self, call: AnyCall, error: A2AError, tries: _Tries) -> None:
        """Waits until the next try.

        Raises:
            A2AError: What the last attempt came to, with all of them: there is no other try.
        """
        last = tries.last
        if last is None:
            raise error  # those below have done what they could
        decision = self._decide(call, error, tries)
        if isinstance(decision, GiveUp):
            if error.transient and call.is_retried:
                last.gave_up = decision.reason if error is last else error.message
            if last.retry_after is None:
                last.retry_after = error.retry_after  # of who was refused here after that
            last.attempts = tuple(call.progress.attempts)
            raise last from last.__cause__
        # In a line the wait is the agent's, and everybody's; it is waited for below.
        wait = decision.delay if tries.gate is None else tries.gate.wait_ahead()
        attempts = call.progress.attempts
        attempts[-1] = msgspec.structs.replace(attempts[-1], wait=(attempts[-1].wait or 0) + wait)
        last.attempts = tuple(attempts)
        self._observers.retry_scheduled(call, last, wait=wait)
        if self._policy.on_retry is not None:
            told = self._policy.on_retry(tries.failures, last, wait)
            if inspect.isawaitable(told):
                await told
        await asyncio.sleep(wait if tries.gate is None else 0.0)

    def _decide(self, call: AnyCall, error: A2AError, tries: _Tries) -> Retry | GiveUp:
        now, endpoint = asyncio.get_running_loop().time(), call.progress.endpoint
        # What was refused on this side cost the agent nothing, and nor does who waits in line.
        is_paid = error is tries.last and error.transient and tries.gate is None
        within_budget = not is_paid or endpoint is None or endpoint.charge(self._budget, now=now)
        decision: Retry | GiveUp = decide(
            self._policy,
            error,
            safety=call.operation.safety,
            attempt=tries.failures,
            time_left=call.deadline.left(now),
            draw=self._env.random(),
        )
        if not call.is_retried:
            return GiveUp("who made the call goes on by other means")
        if isinstance(decision, Retry) and not (within_budget or call.progress.has_others):
            return GiveUp("the retry budget of this agent is spent")
        return decision


class _Tries:
    """What has been tried in one call.

    Attributes:
        last: What the last attempt came to; None before the first.
        failures: How many failures count.
        gate: Where the call waits below, in line with all others that call there, if it does.
    """

    __slots__ = ("_answered", "_attempts", "failures", "gate", "last")

    def __init__(self) -> None:
        self.last: A2AError | None = None
        self.failures = 0
        self.gate: Gate | None = None
        self._attempts = 0
        self._answered: int | None = None  # calls that had got through at the last failure

    def add(self, call: AnyCall, error: A2AError, *, waits_in_line: bool) -> None:
        """Notes a failure: of an attempt, or before one was made."""
        endpoint, attempts = call.progress.endpoint, len(call.progress.attempts)
        if attempts > self._attempts:
            self.last = error
        self._attempts = attempts
        self.gate = None
        # Whom the agent has not answered, the line below does not hold back.
        is_answer = error is self.last and not call.progress.lacks_credentials
        if waits_in_line and endpoint is not None and is_answer and asks_to_wait(error):
            self.gate = endpoint.gate(call.operation)
        answered = None if endpoint is None else endpoint.answered
        # Others have got through meanwhile: it is a question of time.
        is_only_slow = self.gate is not None and self._answered not in {None, answered}
        self.failures += not is_only_slow
        self._answered = answered
