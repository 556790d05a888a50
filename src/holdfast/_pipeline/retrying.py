"""The layer that retries a call.

The engine decides whether and when to retry; the layers below choose an endpoint per attempt.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, TypeVar

from holdfast._model.operations import SEND_NAMES
from holdfast._pipeline.guard import OPEN_CIRCUIT
from holdfast._pipeline.retry_engine import FailedAttempt, RetryEngine
from holdfast._pipeline.transport import AnyCall, BaseLayer, Call, CallNext, Reply, Transport
from holdfast._policy.retry import RetryState
from holdfast._policy.retry_after import asks_to_wait
from holdfast.errors import A2AError, CircuitOpenError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from holdfast._aio.env import Env
    from holdfast._model.operations import Safety
    from holdfast._pipeline.listeners import Observers
    from holdfast._pipeline.observations import WaitReason
    from holdfast._pipeline.retry_after_gate import RetryAfterGate
    from holdfast._policy.resilience import Resilience

__all__ = ["RetryLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class RetryLayer(BaseLayer):
    """Retries where `holdfast._policy.retry` says so and the endpoint's budget allows it.

    Attributes:
        budget: The size of each endpoint's retry budget.
        observers: Notified of retries.
    """

    def __init__(
        self,
        inner: Transport,
        resilience: Resilience,
        env: Env,
        observers: Observers,
    ) -> None:
        super().__init__(inner)
        self.budget = resilience.budget
        self.observers = observers
        self.engine = RetryEngine(resilience.retry, env)
        self._limits_rate = resilience.retry_after is not None

    async def handle(self, call: Call[P, R], call_next: CallNext[P, R, T], /) -> Reply[T]:
        progress = call.progress
        retried: _ClientCall | None = None
        while True:
            attempts_before = len(progress.attempts)
            try:
                reply = await call_next(call)
            except A2AError as error:
                retried = retried or _ClientCall(self, call)
                failed = self._failed(
                    call, error, was_attempted=len(progress.attempts) > attempts_before
                )
            else:
                if reply.endpoint is not None:
                    reply.endpoint.succeeded(self.budget)
                return reply
            await self.engine.after_failure(retried, failed)

    def _failed(self, call: AnyCall, error: A2AError, *, was_attempted: bool) -> FailedAttempt:
        endpoint = call.progress.endpoint
        return FailedAttempt(
            error=error,
            raised=error,
            was_attempted=was_attempted,
            answered=None if endpoint is None else endpoint.answered,
            gate=self._gate(call, error) if was_attempted else None,
            stop=self._stop(call),
        )

    def _stop(self, call: AnyCall) -> str | None:
        """Return the reason why the call must not be retried, whatever the policy says."""
        if not call.is_retried:
            return "the caller handles this failure differently"
        if call.progress.call_group.is_abandoned and call.operation.name in SEND_NAMES:
            return "the caller has abandoned it"
        return None

    def _gate(self, call: AnyCall, error: A2AError) -> RetryAfterGate | None:
        """Return the queue of the endpoint's calls, if the next attempt waits in it."""
        endpoint = call.progress.endpoint
        if not self._limits_rate or endpoint is None or not asks_to_wait(error):
            return None
        # A Retry-After of an authorization server does not delay calls to the agent.
        return (
            None if call.progress.lacks_credentials else endpoint.retry_after_gate(call.operation)
        )


def _refusal(error: A2AError) -> str:
    """Return why this client refused another attempt; the earlier ones may have been sent."""
    return OPEN_CIRCUIT if isinstance(error, CircuitOpenError) else error.message


class _ClientCall:
    """One call of the client, for the engine."""

    def __init__(self, layer: RetryLayer, call: AnyCall) -> None:
        self.state = RetryState()
        self._layer = layer
        self._call = call
        self._reported = 0  # attempts that had failed when a retry was last reported
        self._retries = 0

    @property
    def safety(self) -> Safety:
        return self._call.operation.safety

    def time_left(self, now: float) -> float:
        return self._call.deadline.remaining(now)

    def charge(self, now: float) -> bool:
        progress = self._call.progress
        if progress.endpoint is None:
            return True
        return progress.endpoint.charge(self._layer.budget, now=now) or progress.has_others

    def final_error(self, failed: FailedAttempt, reason: str) -> A2AError:
        last = self._last()
        if failed.error.transient and self._call.is_retried:
            stopped = reason if failed.error is last else _refusal(failed.error)
            last.retry_stopped_reason = stopped
            self._layer.observers.retry_stopped(self._call, last, stopped)
        if last.retry_after is None:
            last.retry_after = failed.error.retry_after  # of a later refusal by this client
        last.__suppress_context__ = True  # the context may quote a secret
        return last

    async def before_wait(self, wait: float) -> None:
        call, on_retry = self._call, self._layer.engine.policy.on_retry
        call.progress.note_start(asyncio.get_running_loop().time() + wait)
        last = self._last()
        failed = len(call.progress.attempts)
        if failed == self._reported:  # the same attempt waits longer, for an open circuit
            return
        self._reported = failed
        self._retries += 1
        self._layer.observers.retry_scheduled(call, last, wait=wait)
        operation = call.progress.operation
        is_asked = operation is None or operation.method in {None, call.operation.name}
        if on_retry is not None and is_asked:
            hook = on_retry(self._retries, last, wait)
            if inspect.isawaitable(hook):
                await hook

    def waiting(self, failed: FailedAttempt, seconds: float) -> AbstractContextManager[None]:
        reason: WaitReason = "backoff"
        if isinstance(failed.error, CircuitOpenError):
            reason = "circuit"
        elif self._last().retry_after is not None:
            reason = "retry_after"
        return self._layer.observers.waiting(self._call, reason, seconds)

    def _last(self) -> A2AError:
        """Return the error of the last attempt, with all attempts."""
        last = self.state.last
        assert last is not None  # noqa: S101  the engine runs after an attempt only
        last.attempts = tuple(self._call.progress.attempts)
        return last
