"""The layer that tries a call again; whether and when is decided by `holdfast.policy.retry`."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.errors import A2AError, Attempt
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
    """Tries again where `holdfast.policy.retry` says so and the endpoint's budget allows it."""

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
        loop = asyncio.get_running_loop()
        progress = call.progress
        while True:
            started = loop.time()
            progress.sent = False
            self._observers.attempt_started(call)
            try:
                reply = await onward(call)
            except A2AError as error:
                delay = await self._after_failure(call, error, started, loop.time())
                await asyncio.sleep(delay)
                call = msgspec.structs.replace(call, attempt=call.attempt + 1)
            except asyncio.CancelledError:
                self._record(
                    call,
                    started,
                    loop.time(),
                    error="given up while it was under way",
                    executed=None if progress.sent else False,
                )
                raise
            else:
                self._record(call, started, loop.time(), executed=True)
                if call.endpoint is not None:
                    call.endpoint.succeeded(self._budget)
                return msgspec.structs.replace(reply, attempts=tuple(progress.attempts))

    async def _after_failure(
        self, call: AnyCall, error: A2AError, started: float, now: float
    ) -> float:
        """Returns the wait before the next try, or raises the error with its attempts."""
        call.progress.secrets.hide_in(error)  # before anybody is told of it
        error.request_id, error.traceparent = call.request_id, call.headers.get("traceparent")
        error.agent = error.agent or call.agent
        call.progress.failed(error)
        self._observers.attempt_failed(call, error, duration=now - started)
        within_budget = (
            not error.transient
            or call.endpoint is None
            or call.endpoint.charge(self._budget, now=now)
        )
        decision: Retry | GiveUp = decide(
            self._policy,
            error,
            safety=call.operation.safety,
            attempt=call.attempt,
            time_left=call.deadline.left(now),
            draw=self._env.random(),
        )
        if not call.is_retried:
            decision = GiveUp("who made the call goes on by other means")
        if isinstance(decision, Retry) and not within_budget:
            decision = GiveUp("the retry budget of this agent is spent")
        if isinstance(decision, GiveUp) and error.transient and call.is_retried:
            error.gave_up = decision.reason
        wait = decision.delay if isinstance(decision, Retry) else None
        self._record(
            call,
            started,
            now,
            error=f"{type(error).__name__}: {error}",
            executed=error.executed,
            wait=wait,
        )
        error.attempts = tuple(call.progress.attempts)
        if wait is None:
            raise error
        self._observers.retry_scheduled(call, error, wait=wait)
        if self._policy.on_retry is not None:
            told = self._policy.on_retry(call.attempt, error, wait)
            if inspect.isawaitable(told):
                await told
        return wait

    def _record(
        self,
        call: AnyCall,
        started: float,
        now: float,
        *,
        executed: bool | None,
        error: str | None = None,
        wait: float | None = None,
    ) -> None:
        call.progress.attempts.append(
            Attempt(
                number=call.attempt,
                agent=call.agent or "",
                started=started - call.progress.began,
                duration=now - started,
                error=error,
                executed=executed,
                wait=wait,
            )
        )
