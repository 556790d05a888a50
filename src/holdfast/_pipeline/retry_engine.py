"""The retry engine: what follows a failed attempt, for calls of the client and of the SDK.

Rules, besides the decision, which `holdfast._policy.retry` makes:

- A failure that could be retried charges the budget before the decision, so that the charge does
  not depend on the decision. A refusal by this client cost the agent nothing, and neither did a
  failure after which the call waits in the agent's queue: neither is charged.
- The wait counts from the failure: the time that a listener takes is part of it.
- The caller gets the error of the last attempt, with the reason why retrying stopped.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast._pipeline.retry_after_gate import RetryAfterGate
from holdfast._policy.retry import GiveUp, Retry, RetryPolicy, RetryState, decide
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from holdfast._aio.env import Env
    from holdfast._model.operations import Safety

__all__ = ["FailedAttempt", "RetriedCall", "RetryEngine"]


class FailedAttempt(msgspec.Struct, kw_only=True):
    """A failure, as far as another attempt depends on it.

    Attributes:
        error: The facts.
        raised: The exception of the attempt, which the caller may get.
        was_attempted: Whether an attempt was made; False for a refusal by this client.
        answered: How many calls of any caller the endpoint has answered; None where unknown.
        gate: The queue in which the next attempt waits for its turn; None for none.
        stop: A reason for making no further attempt, whatever the policy says.
    """

    error: A2AError
    raised: Exception
    was_attempted: bool = True
    answered: int | None = None
    gate: RetryAfterGate | None = None
    stop: str | None = None


class RetriedCall(Protocol):
    """The interface of one call to the engine.

    Attributes:
        state: The failures so far.
        safety: The effect of a second execution.
    """

    state: RetryState

    @property
    def safety(self) -> Safety: ...

    def time_left(self, now: float) -> float:
        """Seconds until the deadline."""
        ...

    def charge(self, now: float) -> bool:
        """Charge a failure to the budget; return whether it allows a retry."""
        ...

    def final_error(self, failed: FailedAttempt, reason: str) -> Exception:
        """Return the error to raise, with the attempts and the reason for stopping."""
        ...

    async def before_wait(self, wait: float) -> None:
        """Notify observers and hooks of the next attempt, `wait` seconds after the failure."""
        ...

    def waiting(self, failed: FailedAttempt, seconds: float) -> AbstractContextManager[None]:
        """Return a block in which the engine waits, for as many seconds."""
        ...


class RetryEngine:
    """Decides after each failed attempt, and waits until the next one.

    Args:
        policy: The caller's retry policy.
        env: The source of random numbers.
    """

    def __init__(self, policy: RetryPolicy, env: Env) -> None:
        self.policy = policy
        self._env = env

    async def after_failure(self, call: RetriedCall, failed: FailedAttempt) -> None:
        """Wait until the next attempt.

        Raises:
            Exception: `final_error`, where there is no further attempt.
        """
        loop, state, gate = asyncio.get_running_loop(), call.state, failed.gate
        failed_at = loop.time()
        state.failed(
            failed.error,
            was_attempted=failed.was_attempted,
            is_in_line=gate is not None,
            answered=failed.answered,
        )
        if state.last is None:
            raise failed.raised
        decision = self._decide(call, failed, failed_at)
        if isinstance(decision, GiveUp):
            raise call.final_error(failed, decision.reason)
        wait = decision.delay if gate is None else gate.wait_ahead()
        await call.before_wait(wait)
        if gate is not None:  # the gate itself waits for the call's turn
            await asyncio.sleep(0)
            return
        seconds = max(0.0, failed_at + wait - loop.time())
        with call.waiting(failed, seconds):
            await asyncio.sleep(seconds)

    def _decide(self, call: RetriedCall, failed: FailedAttempt, now: float) -> Retry | GiveUp:
        error = failed.error
        is_charged = failed.was_attempted and error.transient and failed.gate is None
        within_budget = not is_charged or call.charge(now)
        if failed.stop is not None:
            return GiveUp(failed.stop)
        return decide(
            self.policy,
            error,
            safety=call.safety,
            attempt=call.state.failures,
            time_left=call.time_left(now),
            draw=self._env.random(),
            within_budget=within_budget,
        )
