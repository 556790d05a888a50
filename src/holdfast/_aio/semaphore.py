"""A FIFO semaphore, and the queue of callers below it.

Rules: first come, first served; a free slot goes to the first caller in the queue, so that no
later caller takes it; a cancellation costs the same at any position in the queue.

`asyncio.Semaphore` takes nearly twice the time if a slot is free, and examines every queued caller
when one of them is cancelled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FifoSemaphore", "WaitingQueue"]

_MAX_STALE_ENTRIES = 64
"""Entries beyond twice the waiting callers that the queue may hold before it is cleaned up."""


class WaitingQueue:
    """Callers that wait for their turn, in order; its owner decides when a turn comes.

    Args:
        unused: Called when a caller is cancelled after it was given a turn, and before it ran.
    """

    __slots__ = ("_queue", "_unused", "_waiting")

    def __init__(self, unused: Callable[[], None]) -> None:
        self._unused = unused
        self._queue: deque[asyncio.Future[None]] = deque()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    async def wait(self, *, first: bool = False) -> None:
        """Wait for a turn.

        Args:
            first: Whether to wait at the head of the queue instead of its end.
        """
        turn = asyncio.get_running_loop().create_future()
        (self._queue.appendleft if first else self._queue.append)(turn)
        self._waiting += 1
        try:
            await turn
        except BaseException:  # a cancellation, or the end of an abandoned coroutine
            if turn.cancelled() or turn.cancel():
                self._waiting -= 1
                if len(self._queue) > 2 * self._waiting + _MAX_STALE_ENTRIES:
                    self._queue = deque(entry for entry in self._queue if not entry.done())
            else:
                self._unused()
            raise

    def wake_next(self) -> bool:
        """Give a turn to the first caller in the queue; return False if the queue is empty."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                self._waiting -= 1
                turn.set_result(None)
                return True
        return False


class FifoSemaphore:
    """A semaphore of one event loop that serves callers in order.

    Args:
        limit: Number of slots.
    """

    __slots__ = ("_free", "_queue")

    def __init__(self, limit: int) -> None:
        self._free = limit  # 0 while a caller waits
        self._queue = WaitingQueue(self.release)

    @property
    def is_full(self) -> bool:
        """Whether every slot is taken, so that the next caller waits."""
        return not self._free

    async def acquire(self) -> None:
        """Take a slot, waiting if necessary; a cancelled caller has none."""
        if self._free:
            self._free -= 1
        else:
            await self._queue.wait()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release a slot, to the caller that has waited longest if there is one."""
        if not self._queue.wake_next():
            self._free += 1
