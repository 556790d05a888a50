"""The layer that hedges slow reads; `holdfast._policy.hedge` decides when.

Rules: the first reply wins, and a failure is not a reply while the other attempt may succeed; the
losing attempt is cancelled, and only its minimum duration counts for the agent; cancelling the
call ends both. The latencies of reads, and the budget for hedges, are kept per endpoint.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast._aio.per_loop import PerLoop
from holdfast._pipeline.transport import (
    AnyCall,
    BaseLayer,
    Call,
    CallNext,
    CallProgress,
    Reply,
    Stream,
    Transport,
)
from holdfast._policy.hedge import HedgePolicy, hedge_delay
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from holdfast._pipeline.listeners import Observers

__all__ = ["HedgeLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

_END_TIMEOUT_S = 1.0
"""Seconds that a cancelled attempt has to end before the other one's reply is returned."""


class HedgeLayer(BaseLayer):
    """Makes a second attempt of a read that takes longer than most at its endpoint."""

    def __init__(self, inner: Transport, policy: HedgePolicy, observers: Observers) -> None:
        super().__init__(inner)
        self._observers = observers
        self._policy = policy
        self._ending = PerLoop[set[asyncio.Task[Any]]](set)

    def stream(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[Stream[R]]]:
        return self._inner.stream(call)

    def handle(
        self, call: Call[P, R], call_next: CallNext[P, R, T], /
    ) -> Coroutine[Any, Any, Reply[T]]:
        return (
            self._hedged(call, call_next) if call.operation.safety == "read" else call_next(call)
        )

    async def _hedged(self, call: Call[P, R], call_next: CallNext[P, R, T]) -> Reply[T]:
        progress = call.progress
        tries = [asyncio.create_task(self._attempt(call, call_next))]
        twin: Call[P, R] | None = None
        try:
            if not await self._takes_long(call, tries[0]):
                return await tries[0]
            twin = _twin(call)
            delay = asyncio.get_running_loop().time() - progress.began
            self._observers.hedge_started(call, delay)
            tries.append(asyncio.create_task(self._attempt(twin, call_next)))
            reply = await _first_answer(*tries)
        finally:
            try:
                await self._end(tries)
            finally:  # also if the call is cancelled once more meanwhile
                if twin is not None:
                    progress.join(twin.progress)
        return msgspec.structs.replace(reply, attempts=tuple(progress.attempts))

    async def _attempt(self, call: Call[P, R], call_next: CallNext[P, R, T]) -> Reply[T]:
        """Make one of the attempts, and note its latency, which is a minimum if it lost."""
        attempts_before = len(call.progress.attempts)
        try:
            reply = await call_next(call)
        except asyncio.CancelledError:
            self._note(call, attempts_before)
            raise
        self._note(call, attempts_before)
        return reply

    def _note(self, call: AnyCall, attempts_before: int) -> None:
        attempts, endpoint = call.progress.attempts, call.progress.endpoint
        if endpoint is not None and len(attempts) > attempts_before:
            latencies = endpoint.hedging(self._policy).latencies(call.operation.name)
            latencies.add(attempts[-1].duration)

    async def _takes_long(self, call: AnyCall, attempt: asyncio.Task[Any]) -> bool:
        """Wait for an attempt as long as most take; return whether to make another one."""
        policy = self._policy
        await asyncio.wait({attempt}, timeout=policy.min_delay)
        endpoint = call.progress.endpoint
        if endpoint is None:
            return False
        hedging = endpoint.hedging(policy)
        hedging.budget.record_read()
        delay = hedge_delay(policy, hedging.latencies(call.operation.name))
        left = call.deadline.remaining(asyncio.get_running_loop().time())
        if attempt.done() or delay is None or left < 2 * delay:
            return False
        await asyncio.wait({attempt}, timeout=delay - policy.min_delay)
        gate = endpoint.retry_after_gate(call.operation)
        is_welcome = gate is None or gate.is_open  # no Retry-After is running
        return not attempt.done() and is_welcome and hedging.budget.take()

    async def _end(self, tries: list[asyncio.Task[Any]]) -> None:
        """Cancel the attempts in flight, and wait briefly for their end."""
        left = {attempt for attempt in tries if not attempt.done()}
        ending = self._ending.here()
        for attempt in tries:
            attempt.add_done_callback(_retrieve_exception)
        for attempt in left:
            attempt.cancel()
            ending.add(attempt)
            attempt.add_done_callback(ending.discard)
        if left:
            await asyncio.wait(left, timeout=_END_TIMEOUT_S)

    async def close(self) -> None:
        """Wait briefly for attempts that are ending, and close the transport below."""
        if ending := self._ending.here():
            await asyncio.wait(ending, timeout=_END_TIMEOUT_S)
        await super().close()


async def _first_answer(first: asyncio.Task[Reply[T]], second: asyncio.Task[Reply[T]]) -> Reply[T]:
    """Return the first reply of two; if both fail, raise the first attempt's error.

    Raises:
        A2AError: Both failed; or the first one, with an error that a second reply cannot repair.
    """
    pending = {first, second}
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for attempt in sorted(done, key=lambda attempt: attempt is not first):
            failure = attempt.exception()
            if failure is None:
                return attempt.result()
            is_final = not (isinstance(failure, A2AError) and failure.transient)
            if attempt is first and is_final:
                raise failure
    return first.result()


def _retrieve_exception(attempt: asyncio.Task[Any]) -> None:
    """Retrieve the exception of an attempt, which the event loop would report otherwise."""
    if not attempt.cancelled():
        attempt.exception()


def _twin(call: Call[P, R]) -> Call[P, R]:
    """Return the same call with its own progress, to go to another endpoint if possible."""
    mine = call.progress
    progress = CallProgress(
        began=mine.began, call_group=mine.call_group, candidates=dict(mine.candidates)
    )
    return msgspec.structs.replace(call, progress=progress)
