"""The layer of circuit breakers and rate limiting: it keeps calls from an agent that is down.

Rules: an open circuit refuses a call; then the call waits for the end of a Retry-After in a queue,
until its deadline at the latest; then the breaker gives it a permit. A call that is refused fails
at once, with nothing sent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from holdfast._pipeline.transport import AnyCall, BaseLayer, Call, CallNext, Reply, Transport
from holdfast._policy.breaker import CallResult, classify
from holdfast._policy.retry_after import asks_to_wait
from holdfast.errors import A2AError, CircuitOpenError, QueueFullError, RateLimitedError

if TYPE_CHECKING:
    from holdfast._aio.env import Env
    from holdfast._pipeline.endpoints import Endpoint
    from holdfast._pipeline.listeners import Observers
    from holdfast._policy.breaker import Breaker, ManualOverride, Permit
    from holdfast._policy.resilience import Resilience

__all__ = ["OPEN_CIRCUIT", "GuardLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

OPEN_CIRCUIT = "the circuit to the agent is open"
"""Why a call, or a further attempt of one, is refused."""

_TURN = "turn (the agent is rate limiting: Retry-After)"


class GuardLayer(BaseLayer):
    """Queues calls while a Retry-After runs, and refuses calls while a circuit is open."""

    def __init__(
        self,
        inner: Transport,
        resilience: Resilience,
        env: Env,
        observers: Observers,
        override: ManualOverride,
    ) -> None:
        super().__init__(inner)
        self._resilience = resilience
        self._env = env
        self._observers = observers
        self._override = override

    async def handle(self, call: Call[P, R], call_next: CallNext[P, R, T], /) -> Reply[T]:
        endpoint = call.endpoint
        if endpoint is None:
            return await call_next(call)
        clock = (call.progress.call_group.loop or asyncio.get_running_loop()).time
        policy = self._resilience.retry_after
        if endpoint.has_sent_retry_after and policy is not None:
            # Before the permit: a half-open probe would keep it while it waits.
            await self._take_turn(endpoint, call, queue=policy.queue)
        breaker = self._breaker(call, endpoint)
        started = clock()
        permit = None if breaker is None else self._permit(call, breaker, now=started)
        result: CallResult | None = None
        cause = ""
        try:
            reply = await call_next(call)
            result = "success"
        except A2AError as error:
            result, cause = self._classify(call, error, endpoint, started), error.message
            raise
        except asyncio.CancelledError:
            if self._shows_agent_down(call, clock() - started):
                result, cause = "failure", f"no reply began for {clock() - started:.3g} s"
            raise
        else:
            return reply
        finally:
            if breaker is not None and permit is not None:
                now = clock()
                has_changed = breaker.settle(
                    permit,
                    result,
                    duration=now - started,
                    now=now,
                    draw=self._env.random,
                    cause=cause,
                )
                if has_changed:
                    self._observers.circuit_changed(call, breaker, now=now)

    async def _take_turn(self, endpoint: Endpoint, call: AnyCall, *, queue: int) -> None:
        """Wait for this call's turn, if calls like it have to wait in the queue.

        Raises:
            CircuitOpenError: Calls do not queue for an agent whose circuit is open.
            QueueFullError: Too many calls wait.
            RateLimitedError: The agent's Retry-After ends after the call's deadline.
        """
        breaker = self._breaker(call, endpoint)
        gate = endpoint.retry_after_gate(call.operation)
        if gate is None or gate.is_open:
            return
        now = asyncio.get_running_loop().time()
        if breaker is not None and breaker.retry_after(now=now):
            raise _refused(call, breaker, now=now)
        ahead, waits = gate.wait_ahead(), gate.waiting
        if ahead >= call.deadline.remaining(now):
            raise RateLimitedError(
                "the agent is rate limiting (Retry-After): the next turn is in "
                f"{ahead:.3g} s, after this call's deadline; nothing was sent",
                executed=False,
                transient=True,
                retry_after=ahead,
                agent=call.agent,
            )
        if waits >= queue:
            raise QueueFullError(
                f"the queue is full: {waits} calls already wait for the agent's Retry-After; "
                "nothing was sent",
                executed=False,
                transient=True,
                retry_after=ahead,
                agent=call.agent,
            )
        call.progress.awaits = _TURN
        # Its turn may be due, and other calls wait for theirs.
        seconds = None if ahead <= 0 < waits else max(0.0, ahead)
        with self._observers.waiting(call, "retry_after", seconds):
            await gate.enter(first=bool(call.progress.attempts))
        call.progress.awaits = None

    def _breaker(self, call: AnyCall, endpoint: Endpoint) -> Breaker | None:
        """Return the breaker of a call; None where the call is not subject to one.

        Raises:
            CircuitOpenError: The circuit was opened manually.
        """
        policy, forced_state = self._resilience.breaker, self._override.state
        if forced_state == "open":
            raise CircuitOpenError(
                "the circuit to the agent was opened manually; nothing was sent",
                executed=False,
                transient=True,
                agent=call.agent,
            )
        return None if policy is None or forced_state is not None else endpoint.breaker(policy)

    def _permit(self, call: AnyCall, breaker: Breaker, *, now: float) -> Permit:
        """Take the breaker's permit for a call.

        Raises:
            CircuitOpenError: The breaker refuses it.
        """
        permit = breaker.acquire(now=now)
        if permit is None:
            raise _refused(call, breaker, now=now)
        if permit.is_probe:
            self._observers.circuit_changed(call, breaker, now=now)
        return permit

    def _classify(
        self, call: AnyCall, error: A2AError, endpoint: Endpoint, started: float
    ) -> CallResult | None:
        """Return what an error shows about the agent; note a Retry-After."""
        resilience = self._resilience
        if call.progress.lacks_credentials:
            return None
        if resilience.retry_after is not None and asks_to_wait(error):
            endpoint.on_retry_after(
                call.operation,
                min(error.retry_after or 0.0, resilience.retry.max_retry_after),
                started=started,
                draw=self._env.random(),
            )
        return classify(error)

    def _shows_agent_down(self, call: AnyCall, seconds: float) -> bool:
        """Return whether a call that was abandoned shows that the agent is down.

        It has to be a read, which is quick, and its own deadline has to have expired. A
        cancellation by the caller shows nothing; nor does a message, on which agents may work for
        minutes.
        """
        policy = self._resilience.breaker
        is_late = asyncio.get_running_loop().time() >= call.deadline.at
        is_read = call.operation.safety == "read"
        has_waited = policy is not None and seconds >= policy.min_wait_to_count
        return is_late and is_read and has_waited and call.progress.request.sent


def _refused(call: AnyCall, breaker: Breaker, *, now: float) -> CircuitOpenError:
    last = breaker.last_failure
    reason = "" if last is None else f"; last failure: {last.cause}"
    is_probing = breaker.state(now=now) == "half_open"
    probe = " until the probe in progress, another call, has succeeded" if is_probing else ""
    return CircuitOpenError(
        f"{OPEN_CIRCUIT}{probe}; nothing was sent{reason}",
        executed=False,
        transient=True,
        retry_after=breaker.retry_after(now=now),
        agent=call.agent,
    )
