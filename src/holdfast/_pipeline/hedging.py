"""The layer that asks once more where a read takes long; `holdfast._policy.hedge` decides when.

Rules: the first answer wins, and a failure is no answer while the other one may come; whoever lost
is cancelled, and says of the agent only that it would have taken longer; a caller who leaves ends
both. How long reads take is known of each endpoint, and so is what they have paid for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast._aio.per_loop import PerLoop
from holdfast._pipeline.transport import (
    AnyCall,
    Call,
    CallNext,
    CallProgress,
    PassThrough,
    Reply,
    Stream,
    Transport,
)
from holdfast._policy.hedge import HedgePolicy, hedge_delay
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Coroutine


__all__ = ["HedgeLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

_ENDING = 1.0
"""Seconds that a cancelled attempt has to end before the answer of the other one is given."""


class HedgeLayer(PassThrough):
    """Asks a second time for what takes longer than most at its place, if it is a read."""

    def __init__(self, inner: Transport, policy: HedgePolicy) -> None:
        super().__init__(inner)
        self._policy = policy
        self._ending = PerLoop[set[asyncio.Task[Any]]](set)

    def stream(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[Stream[R]]]:
        return self._inner.stream(call)

    def through(
        self, call: Call[P, R], onward: CallNext[P, R, T], /
    ) -> Coroutine[Any, Any, Reply[T]]:
        return self._hedged(call, onward) if call.operation.safety == "read" else onward(call)

    async def _hedged(self, call: Call[P, R], onward: CallNext[P, R, T]) -> Reply[T]:
        progress = call.progress
        tries = [asyncio.create_task(self._tried(call, onward))]
        twin: Call[P, R] | None = None
        try:
            if not await self._takes_long(call, tries[0]):
                return await tries[0]
            twin = _twin(call)
            tries.append(asyncio.create_task(self._tried(twin, onward)))
            reply = await _first_answer(*tries)
            progress.endpoint = reply.endpoint or progress.endpoint
        finally:
            await self._end(tries)
            if twin is not None:
                progress.join(twin.progress)
        return msgspec.structs.replace(reply, attempts=tuple(progress.attempts))

    async def _tried(self, call: Call[P, R], onward: CallNext[P, R, T]) -> Reply[T]:
        """Makes one of the attempts, and notes how long it took; or if it lost, at least took."""
        tried = len(call.progress.attempts)
        try:
            reply = await onward(call)
        except asyncio.CancelledError:
            self._note(call, tried)
            raise
        self._note(call, tried)
        return reply

    def _note(self, call: AnyCall, tried: int) -> None:
        attempts, endpoint = call.progress.attempts, call.progress.endpoint
        if endpoint is not None and len(attempts) > tried:
            latencies = endpoint.hedging(self._policy).latencies(call.operation.name)
            latencies.add(attempts[-1].duration)

    async def _takes_long(self, call: AnyCall, attempt: asyncio.Task[Any]) -> bool:
        """Waits for an attempt as long as most take; says whether another one is to be made."""
        policy = self._policy
        await asyncio.wait({attempt}, timeout=policy.min_delay)
        endpoint = call.progress.endpoint
        if endpoint is None:
            return False
        hedging = endpoint.hedging(policy)
        hedging.budget.read()
        delay = hedge_delay(policy, hedging.latencies(call.operation.name))
        left = call.deadline.left(asyncio.get_running_loop().time())
        if attempt.done() or delay is None or left < 2 * delay:
            return False
        await asyncio.wait({attempt}, timeout=delay - policy.min_delay)
        gate = endpoint.gate(call.operation)
        is_welcome = gate is None or gate.is_open  # it has not asked to be called less
        return not attempt.done() and is_welcome and hedging.budget.take()

    async def _end(self, tries: list[asyncio.Task[Any]]) -> None:
        """Ends what is still under way, and waits a moment for that."""
        left = {one for one in tries if not one.done()}
        ending = self._ending.here()
        for one in tries:
            one.add_done_callback(_is_nobodys_concern)
        for one in left:
            one.cancel()
            ending.add(one)
            one.add_done_callback(ending.discard)
        if left:
            await asyncio.wait(left, timeout=_ENDING)

    async def close(self) -> None:
        """Waits a moment for what is still to end, and frees what is below."""
        if ending := self._ending.here():
            await asyncio.wait(ending, timeout=_ENDING)
        await super().close()


async def _first_answer(first: asyncio.Task[Reply[T]], second: asyncio.Task[Reply[T]]) -> Reply[T]:
    """The first answer of two; where there is none, how the first one failed.

    Raises:
        A2AError: Both failed; or the first one, in a way that no second answer mends.
    """
    pending = {first, second}
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for one in sorted(done, key=lambda one: one is not first):
            failure = one.exception()
            if failure is None:
                return one.result()
            is_final = not (isinstance(failure, A2AError) and failure.transient)
            if one is first and is_final:
                raise failure
    return first.result()


def _is_nobodys_concern(lost: asyncio.Task[Any]) -> None:
    """Takes note of how a try has failed, which the event loop reports otherwise."""
    if not lost.cancelled():
        lost.exception()


def _twin(call: Call[P, R]) -> Call[P, R]:
    """The same call with a progress of its own, which goes elsewhere if it can."""
    mine = call.progress
    progress = CallProgress(began=mine.began, call_group=mine.call_group, ways=dict(mine.ways))
    return msgspec.structs.replace(call, progress=progress)
