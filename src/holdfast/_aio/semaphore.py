"""A FIFO semaphore, and the queue of callers below it.

Rules: first come, first served; a slot is handed over to the caller who waits, so that no caller
who comes later takes it; to be cancelled costs the same wherever a caller stands in the queue.

`asyncio.Semaphore` takes nearly twice the time where a slot is free, and looks at every caller
who waits when one of them is cancelled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FifoSemaphore", "WaitingQueue"]

_KEPT_ENTRIES = 64
"""Entries of callers who have left that are not worth being cleared away."""


class WaitingQueue:
    """Callers who wait for their turn, in order, for those who decide themselves when it comes.

    Args:
        unused: Called when a caller leaves after its turn was given, and before it ran.
    """

    __slots__ = ("_queue", "_unused", "_waiting")

    def __init__(self, unused: Callable[[], None]) -> None:
        self._unused = unused
        self._queue: deque[asyncio.Future[None]] = deque()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    async def wait(self, *, first: bool = False) -> None:
        """Waits for a turn.

        Args:
            first: Whether to stand at the head of the queue, not at its end.
        """
        turn = asyncio.get_running_loop().create_future()
        (self._queue.appendleft if first else self._queue.append)(turn)
        self._waiting += 1
        try:
            await turn
        except BaseException:  # a cancellation, or the end of an abandoned coroutine
            if turn.cancelled() or turn.cancel():
                self._waiting -= 1
                if len(self._queue) > 2 * self._waiting + _KEPT_ENTRIES:
                    self._queue = deque(entry for entry in self._queue if not entry.done())
            else:
                self._unused()
            raise

    def wake_next(self) -> bool:
        """Gives a turn to the caller at the head of the queue; False if nobody waits."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                self._waiting -= 1
                turn.set_result(None)
                return True
        return False


class FifoSemaphore:
    """A number of slots of one event loop.

    Args:
        limit: How many there are.
    """

    __slots__ = ("_free", "_queue")

    def __init__(self, limit: int) -> None:
        self._free = limit  # none, as long as somebody waits
        self._queue = WaitingQueue(self.release)

    @property
    def is_full(self) -> bool:
        """Whether every slot is taken, so that the next caller waits."""
        return not self._free

    async def acquire(self) -> None:
        """Takes a slot, and waits for it if need be; a caller who is cancelled has none."""
        if self._free:
            self._free -= 1
        else:
            await self._queue.wait()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Gives a slot back that was taken, to the caller who waits longest if there is one."""
        if not self._queue.wake_next():
            self._free += 1
