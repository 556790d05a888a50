"""The layer that keeps calls from an agent that is away, or has asked for time.

Rules: who is told to wait is waited for, with all others in line, and never longer than the call
has time; who is refused is refused at once, with nothing sent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import A2AError, CircuitOpenError, QueueFullError, RateLimitedError
from holdfast.model.operations import CANCEL_TASK
from holdfast.policy.breaker import Verdict, judge
from holdfast.policy.limiter import asks_to_wait
from holdfast.runtime.transport import AnyCall, Call, Onward, PassThrough, Reply, Transport

if TYPE_CHECKING:
    from holdfast.policy.breaker import Breaker
    from holdfast.policy.resilience import Resilience
    from holdfast.runtime.endpoints import Endpoint
    from holdfast.runtime.env import Env
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
        if endpoint.has_gates and resilience.rate_limit is not None:
            await _take_turn(endpoint, call, queue=resilience.rate_limit.queue)
        loop = asyncio.get_running_loop()
        started = loop.time()
        policy = resilience.breaker
        breaker = None if policy is None else endpoint.breaker(policy)
        permit = None if breaker is None else breaker.acquire(now=started)
        if breaker is not None and permit is None:
            raise _refused(call, breaker, now=started)
        verdict: Verdict | None = None
        try:
            reply = await onward(call)
            verdict = "well"
        except A2AError as error:
            verdict = self._verdict_on(call, error, endpoint, started)
            raise
        except asyncio.CancelledError:
            verdict = self._verdict_on_silence(call, endpoint, loop.time() - started)
            raise
        else:
            return reply
        finally:
            if breaker is not None and permit is not None:
                now = loop.time()
                duration = now - started
                if verdict == "well" and duration > breaker.policy.slow_after:
                    verdict, endpoint.last_failure = "away", f"the reply took {duration:.3g} s"
                draw = self._env.random() if verdict == "away" else 0.0
                if breaker.settle(permit, verdict, duration=duration, now=now, draw=draw):
                    self._observers.circuit_changed(call, breaker, now=now)

    def _verdict_on(
        self, call: AnyCall, error: A2AError, endpoint: Endpoint, started: float
    ) -> Verdict | None:
        """What an error shows of the agent; notes whether it asks to be called later."""
        resilience = self._resilience
        if resilience.rate_limit is not None and asks_to_wait(error):
            endpoint.told_to_wait(
                min(error.retry_after or 0.0, resilience.retry.max_retry_after),
                sends=call.operation.safety == "conditional",
                started=started,
                draw=self._env.random(),
            )
        if call.progress.lacks_credentials:
            return None
        verdict = judge(error)
        if verdict == "away":
            endpoint.last_failure = error.message
        return verdict

    def _verdict_on_silence(
        self, call: AnyCall, endpoint: Endpoint, seconds: float
    ) -> Verdict | None:
        """What a call that was given up shows of the agent.

        It has to be a read, which is quick, and its own deadline that was over. What its caller
        gives up says nothing; nor does a message, which agents may work on for minutes.
        """
        policy = self._resilience.breaker
        is_late = asyncio.get_running_loop().time() >= call.deadline.at
        is_read = call.operation.safety == "read"
        has_waited = policy is not None and call.progress.sent and seconds >= policy.patience
        if not (is_late and is_read and has_waited):
            return None
        endpoint.last_failure = f"no reply began for {seconds:.3g} s"
        return "away"


async def _take_turn(endpoint: Endpoint, call: AnyCall, *, queue: int) -> None:
    """Waits for this call's turn, if calls like it have to wait there.

    Raises:
        QueueFullError: Too many wait.
        RateLimitedError: The agent's wait ends after the call's deadline.
    """
    gate = endpoint.gate(sends=call.operation.safety == "conditional")
    if gate is None or gate.is_open or call.operation.name == CANCEL_TASK.name:
        return
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
    known = call.endpoint.last_failure if call.endpoint is not None and breaker.failures else None
    why = "as asked for" if known is None else f"the last call to it failed: {known}"
    return CircuitOpenError(
        f"nothing was sent, and the agent is left alone for now; {why}",
        executed=False,
        transient=True,
        retry_after=breaker.retry_after(now=now),
        agent=call.agent,
    )
