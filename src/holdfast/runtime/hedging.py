"""The layer that asks once more where a read takes long; `holdfast.policy.hedge` decides when.

Rules: the first answer wins, and a failure is no answer while the other one may come; whoever lost
is cancelled, and says nothing of the agent; a caller who leaves ends both.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.errors import A2AError
from holdfast.policy.hedge import HedgeBudget, HedgePolicy, Latencies, hedge_delay
from holdfast.runtime.perloop import PerLoop
from holdfast.runtime.transport import (
    AnyCall,
    Call,
    CallProgress,
    Onward,
    PassThrough,
    Reply,
    Stream,
    Transport,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine


__all__ = ["HedgeLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

_ENDING = 1.0
"""Seconds that a cancelled attempt has to end before the answer of the other one is given."""


class HedgeLayer(PassThrough):
    """Asks a second time for what takes longer than most, if it is a read."""

    def __init__(self, inner: Transport, policy: HedgePolicy) -> None:
        super().__init__(inner)
        self._policy = policy
        self._budget = HedgeBudget(policy)
        self._latencies: dict[str, Latencies] = {}
        self._ending = PerLoop[set[asyncio.Task[Any]]](set)

    def stream(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[Stream[R]]]:
        return self._inner.stream(call)

    def through(
        self, call: Call[P, R], onward: Onward[P, R, T], /
    ) -> Coroutine[Any, Any, Reply[T]]:
        return self._hedged(call, onward) if call.operation.safety == "read" else onward(call)

    async def _hedged(self, call: Call[P, R], onward: Onward[P, R, T]) -> Reply[T]:
        latencies = self._latencies.setdefault(call.operation.name, Latencies())
        self._budget.read()
        delay = hedge_delay(self._policy, latencies)
        clock = asyncio.get_running_loop().time
        began = clock()
        if delay is None or call.deadline.left(began) < 2 * delay:
            reply = await onward(call)
            latencies.add(clock() - began)
            return reply
        first = asyncio.create_task(onward(call))
        tries = {first: began}
        hedge: CallProgress | None = None
        try:
            await asyncio.wait({first}, timeout=delay)
            if first.done() or not _may_hedge(call) or not self._budget.take():
                return await first
            twin, hedge = _twin(call)
            second = asyncio.create_task(onward(twin))
            tries[second] = clock()
            reply = await _first_answer(first, second)
            if reply.endpoint is not None:
                call.progress.endpoint = reply.endpoint
        finally:
            for one, since in tries.items():
                if not (one.done() and (one.cancelled() or one.exception() is not None)):
                    latencies.add(clock() - since)  # of who lost: so long at least
            await self._end(tries)
            if hedge is not None:
                call.progress.join(hedge)
        return msgspec.structs.replace(reply, attempts=tuple(call.progress.attempts))

    async def _end(self, tries: dict[asyncio.Task[Any], float]) -> None:
        """Ends what is still under way, and waits a moment for that."""
        left = {one for one in tries if not one.done()}
        ending = self._ending.here()
        for one in left:
            one.cancel()
            ending.add(one)
            one.add_done_callback(ending.discard)
            one.add_done_callback(_is_nobodys_concern)
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
    """Takes note of how one that lost has failed, which the event loop reports otherwise."""
    if not lost.cancelled():
        lost.exception()


def _may_hedge(call: AnyCall) -> bool:
    """Whether the agent has not asked to be called less."""
    endpoint = call.progress.endpoint
    gate = None if endpoint is None else endpoint.gate(call.operation)
    return gate is None or gate.is_open


def _twin(call: Call[P, R]) -> tuple[Call[P, R], CallProgress]:
    """The same call with a progress of its own, which goes elsewhere if it can."""
    mine = call.progress
    progress = CallProgress(began=mine.began, errand=mine.errand, ways=dict(mine.ways))
    return msgspec.structs.replace(call, progress=progress), progress
