"""The layer that keeps calls from an agent that is away, or has asked for time.

Rules: who is told to wait is waited for, with all others in line, and never longer than the call
has time; who is refused is refused at once, with nothing sent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import A2AError, CircuitOpenError, QueueFullError, RateLimitedError
from holdfast.model.operations import CANCEL_TASK
from holdfast.policy.breaker import BreakerPolicy, Verdict, judge
from holdfast.policy.limiter import asks_to_wait
from holdfast.runtime.transport import AnyCall, Call, Onward, PassThrough, Reply, Transport

if TYPE_CHECKING:
    from holdfast.policy.breaker import Breaker
    from holdfast.policy.resilience import Resilience
    from holdfast.runtime.endpoints import Endpoint
    from holdfast.runtime.env import Env
    from holdfast.runtime.gate import Gate
    from holdfast.runtime.listeners import Observers

__all__ = ["GuardLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

_SHOWN = "turn, as the agent has asked others to come later"


class GuardLayer(PassThrough):
    """Holds back what an agent has asked to come later, and refuses what it cannot answer now."""

    def __init__(
        self, inner: Transport, resilience: Resilience, env: Env, observers: Observers
    ) -> None:
        super().__init__(inner)
        self._resilience = resilience
        self._env = env
        self._observers = observers

    async def through(self, call: Call[P, R], onward: Onward[P, R, T], /) -> Reply[T]:
        endpoint, resilience = call.endpoint, self._resilience
        if endpoint is None:
            return await onward(call)
        if resilience.rate_limit is not None and call.operation.name != CANCEL_TASK.name:
            gate = endpoint.gate(sends=call.operation.safety == "conditional")
            if gate is not None and not gate.is_open:
                await _pass(gate, call, queue=resilience.rate_limit.queue)
        started = asyncio.get_running_loop().time()
        try:
            if resilience.breaker is None:
                return await onward(call)
            return await self._permitted(call, onward, endpoint, resilience.breaker)
        except A2AError as error:
            if resilience.rate_limit is not None and asks_to_wait(error):
                endpoint.told_to_wait(
                    min(error.retry_after or 0.0, resilience.retry.max_retry_after),
                    sends=call.operation.safety == "conditional",
                    started=started,
                    draw=self._env.random(),
                )
            raise

    async def _permitted(
        self, call: Call[P, R], onward: Onward[P, R, T], endpoint: Endpoint, policy: BreakerPolicy
    ) -> Reply[T]:
        breaker, clock = endpoint.breaker(policy), asyncio.get_running_loop().time
        started = clock()
        permit = breaker.acquire(now=started)
        if permit is None:
            raise _refused(call, breaker, now=started)
        verdict: Verdict | None = None
        try:
            reply = await onward(call)
            verdict = "well"
        except A2AError as error:
            verdict = None if call.progress.lacks_credentials else judge(error)
            if verdict == "away":
                breaker.cause = error.message
            raise
        except asyncio.CancelledError:
            waited = clock() - started
            if _is_in_vain(call, waited, policy):
                verdict, breaker.cause = "away", f"no reply began for {waited:.3g} s"
            raise
        else:
            return reply
        finally:
            now = clock()
            draw = self._env.random() if verdict == "away" else 0.0
            if breaker.settle(permit, verdict, duration=now - started, now=now, draw=draw):
                self._observers.circuit_changed(call, breaker, now=now)


async def _pass(gate: Gate, call: AnyCall, *, queue: int) -> None:
    """Waits for this call's turn.

    Raises:
        QueueFullError: Too many wait.
        RateLimitedError: The agent's wait ends after the call's deadline.
    """
    now = asyncio.get_running_loop().time()
    ahead, waits = gate.wait_ahead(), gate.waiting
    if ahead >= call.deadline.left(now):
        raise RateLimitedError(
            f"the agent has asked to wait for {ahead:.3g} s more, which would exceed the "
            "deadline; nothing was sent",
            executed=False,
            transient=True,
            retry_after=ahead,
            agent=call.agent,
        )
    if waits >= queue:
        raise QueueFullError(
            f"{waits} calls wait already until the agent takes more; nothing was sent",
            executed=False,
            transient=True,
            retry_after=ahead,
            agent=call.agent,
        )
    call.progress.awaits = _SHOWN
    await gate.enter(first=bool(call.progress.attempts))
    call.progress.awaits = None


def _refused(call: AnyCall, breaker: Breaker, *, now: float) -> CircuitOpenError:
    why = f"the last call to it failed: {breaker.cause}" if breaker.cause else "as asked for"
    return CircuitOpenError(
        f"nothing was sent, and the agent is left alone for now; {why}",
        executed=False,
        transient=True,
        retry_after=breaker.retry_after(now=now),
        agent=call.agent,
    )


def _is_in_vain(call: AnyCall, seconds: float, policy: BreakerPolicy) -> bool:
    """Whether a call that was given up shows that the agent is away.

    It has to be a read, which is quick, and its own deadline that was over. What its caller gives
    up says nothing; nor does a message, which agents may work on for minutes.
    """
    is_late = asyncio.get_running_loop().time() >= call.deadline.at
    is_read = call.operation.safety == "read"
    return is_late and is_read and call.progress.sent and seconds >= policy.patience
