"""The limit of calls in flight: the slots, and the queues of callers that wait for one.

Rules: first come, first served: a released slot goes to the next caller in a queue, so that no
later caller takes it; an open stream keeps its slot; a request that belongs to a call with a slot
needs none, so that no call waits for itself.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from holdfast._aio.cancel_scope import wait_within
from holdfast._aio.semaphore import WaitingQueue
from holdfast._pipeline.layer_streams import with_stream
from holdfast._pipeline.transport import (
    AnyCall,
    BaseLayer,
    Call,
    CallNext,
    Reply,
    Stream,
    StreamWrapper,
    Transport,
)
from holdfast.errors import QueueFullError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._aio.per_loop import PerLoop
    from holdfast._pipeline.listeners import Observers
    from holdfast._policy.concurrency import ConcurrencyPolicy

__all__ = ["Admission", "AdmissionLayer", "AdmissionQueue"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


_MAX_QUEUE_S = 900.0
"""Seconds that a call without a deadline waits for a slot."""


class AdmissionQueue:
    """A queue of callers, by the agent to call."""

    def __init__(self) -> None:
        self.waiting: dict[str, WaitingQueue] = {}  # in order of turns, and none of them empty

    def __len__(self) -> int:
        return sum(map(len, self.waiting.values()))


class Admission:
    """A number of slots, and queues of callers that wait for one.

    Within a queue, first come, first served; the queues take turns, however long one of them is.
    An agent leaves as many slots free as its calls hold, so that one that never answers cannot
    take all of them: the dynamic threshold of shared buffers (Choudhury and Hahne, IEEE/ACM
    Transactions on Networking 6, 1998).

    Args:
        slots: The number of slots.
        are_shared: Returns whether calls to several agents share the slots.
    """

    def __init__(self, slots: int, are_shared: Callable[[], bool] = lambda: False) -> None:
        self._slots = self._free = slots
        self._are_shared = are_shared
        self._taken = Counter[str]()
        self._queue = AdmissionQueue()
        self._queues: dict[AdmissionQueue, None] = {}  # those with callers, in order of turns
        self._wanted = Counter[str]()  # in how many queues callers wait to call each agent

    @property
    def taken(self) -> int:
        """The number of slots that calls hold."""
        return self._slots - self._free

    @property
    def slots(self) -> int:
        """The number of slots."""
        return self._slots

    @property
    def holders(self) -> tuple[str, ...]:
        """The agents whose calls hold slots, the one with the most of them first."""
        return tuple(name for name, _ in self._taken.most_common())

    @property
    def waiting(self) -> int:
        """The number of callers in all queues."""
        return sum(map(len, self._queues))

    def enter_at_once(self, name: str = "") -> bool:
        """Take a slot to call an agent if one is free for it; return whether it did."""
        if not self._is_free_for(name):
            return False
        self._take(name)
        return True

    async def enter(self, queue: AdmissionQueue | None = None, name: str = "") -> None:
        """Take a slot to call an agent, waiting if necessary.

        Args:
            queue: The queue to wait in; the common one if left out.
            name: The agent to call.
        """
        if self.enter_at_once(name):
            return
        queue = self._queue if queue is None else queue
        waiting = queue.waiting.get(name)
        if waiting is None:
            waiting = queue.waiting[name] = WaitingQueue(partial(self.leave, name))
            self._wanted[name] += 1
        self._queues.setdefault(queue)
        try:
            await waiting.wait()
        finally:
            if not len(waiting) and queue.waiting.get(name) is waiting:
                self._drop(queue, name)

    def leave(self, name: str = "") -> None:
        """Release a slot, to the next caller that may have it if there is one."""
        self._free += 1
        _count_down(self._taken, name)
        while self._free > 0 and any(map(self._is_free_for, self._wanted)):
            self._hand_over_slot()

    def dismiss(self, name: str) -> None:
        """End the waits for an agent that was removed; these callers release slots at once."""
        for queue in [queue for queue in self._queues if name in queue.waiting]:
            waiting = queue.waiting[name]
            self._drop(queue, name)
            while waiting.wake_next():
                self._take(name)  # until they do, more slots may be taken than there are

    def _is_free_for(self, name: str) -> bool:
        return self._free > (self._taken[name] if self._are_shared() else 0)

    def _take(self, name: str) -> None:
        self._free -= 1
        self._taken[name] += 1

    def _hand_over_slot(self) -> None:
        """Give a free slot to the first caller that may have it, of the next queue with one."""
        queue, name = next(
            (queue, name)
            for queue in self._queues
            for name in queue.waiting
            if self._is_free_for(name)
        )
        waiting = queue.waiting[name]
        self._drop(queue, name)
        if waiting.wake_next():  # else all of them are about to leave
            self._take(name)
            if len(waiting):
                queue.waiting[name] = waiting
                self._wanted[name] += 1
        if queue.waiting:
            self._queues.pop(queue, None)
            self._queues[queue] = None  # its next turn is after those of the others

    def _drop(self, queue: AdmissionQueue, name: str) -> None:
        """Remove the waiting callers of an agent from a queue."""
        del queue.waiting[name]
        _count_down(self._wanted, name)
        if not queue.waiting:
            self._queues.pop(queue, None)


def _count_down(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]


class AdmissionLayer(BaseLayer):
    """Limits the calls in flight; the others wait for a slot."""

    def __init__(
        self,
        inner: Transport,
        policy: ConcurrencyPolicy,
        admissions: PerLoop[Admission],
        observers: Observers,
    ) -> None:
        super().__init__(inner)
        self._observers = observers
        self._policy = policy
        self._admissions = admissions

    async def handle(self, call: Call[P, R], call_next: CallNext[P, R, T], /) -> Reply[T]:
        leave = await self._acquire_slot(call)
        try:
            return await call_next(call)
        finally:
            leave()

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        leave = await self._acquire_slot(call)
        try:
            reply = await self._inner.stream(call)
        except BaseException:
            leave()
            raise
        return with_stream(reply, _Admitted(reply.value, leave))

    async def _acquire_slot(self, call: AnyCall) -> Callable[[], None]:
        """Take a slot for a call, unless it has one; return the function that releases it.

        Raises:
            QueueFullError: The queue is full, or the call has waited for too long.
        """
        admission, call_group = self._admissions.here(), call.progress.call_group
        needs_slot = not call_group.slots
        if needs_slot and not admission.enter_at_once():
            if admission.waiting >= self._policy.queue:
                waiting = admission.waiting
                raise self._full(call, f"the queue is full ({waiting} waiting)")
            call.progress.awaits = "concurrency slot"
            with self._observers.waiting(call, "concurrency", None):
                await self._enter(admission, call)
            call.progress.awaits = None
        call_group.slots += 1

        def leave() -> None:
            call_group.slots -= 1
            if needs_slot:
                admission.leave()

        return leave

    async def _enter(self, admission: Admission, call: AnyCall) -> None:
        """Wait for a slot: until the call's deadline, or for a fixed time without one.

        Raises:
            QueueFullError: No slot was free in that time.
        """
        if call.deadline.at < math.inf:
            await admission.enter()  # `DeadlineLayer` ends it
            return

        def too_late() -> QueueFullError:
            return self._full(call, f"no slot was free for {_MAX_QUEUE_S:g} s")

        await wait_within(_MAX_QUEUE_S, admission.enter(), too_late)

    def _full(self, call: AnyCall, reason: str) -> QueueFullError:
        limit = self._policy.limit
        calls = "1 call" if limit == 1 else f"{limit} calls"
        return QueueFullError(
            f"concurrency limit reached ({calls} in flight), and {reason}; nothing was sent",
            executed=False,
            transient=True,
            request_id=call.request_id,
        )


class _Admitted(StreamWrapper[T]):
    """Keeps the slot of a stream until it is closed."""

    def __init__(self, inner: Stream[T], leave: Callable[[], None]) -> None:
        super().__init__(inner)
        self.next_nowait = inner.next_nowait
        self._leave: Callable[[], None] | None = leave

    async def close(self) -> None:
        leave, self._leave = self._leave, None
        try:
            await super().close()
        finally:
            if leave is not None:
                leave()
