"""The queue of calls to an agent whose Retry-After runs, and its `SlowStart` afterwards."""

from __future__ import annotations

import asyncio

from holdfast._aio.semaphore import WaitingQueue
from holdfast._policy.retry_after import SlowStart

__all__ = ["RetryAfterGate"]


class RetryAfterGate:
    """The queue of one endpoint, for one kind of calls in one event loop."""

    def __init__(self) -> None:
        self._pace = SlowStart()
        self._queue = WaitingQueue(self._pass_on)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls pass without a wait."""
        return self._pace.is_free

    @property
    def waiting(self) -> int:
        """The number of waiting calls."""
        return len(self._queue)

    @property
    def is_held(self) -> bool:
        """Whether no call may start now."""
        return self._pace.is_held(now=asyncio.get_running_loop().time())

    def wait_ahead(self) -> float:
        """Return the seconds until the next call may start."""
        now = asyncio.get_running_loop().time()
        return self._pace.next_start(now=now) - now

    async def enter(self, *, first: bool = False) -> None:
        """Wait for this call's turn, if it has to.

        Args:
            first: Whether to wait at the head of the queue, as a call that was refused does.
        """
        now = asyncio.get_running_loop().time()
        if not len(self._queue) and self._pace.next_start(now=now) <= now:
            self._pace.started(now=now)
            return
        self._set_timer()
        await self._queue.wait(first=first)
        while self._pace.is_held(now=asyncio.get_running_loop().time()):
            # Another call was refused after this turn was given, and before it was taken.
            self._set_timer()
            await self._queue.wait(first=True)

    def on_retry_after(self, seconds: float, *, started: float, draw: float) -> None:
        """Let no call start for some seconds.

        Args:
            seconds: The agent's Retry-After.
            started: When the refused call started, on the event loop's clock.
            draw: A random number from 0 up to 1.
        """
        now = asyncio.get_running_loop().time()
        self._pace.on_retry_after(seconds, started=started, now=now, draw=draw)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            at = self._pace.next_start(now=loop.time())
            self._timer = loop.call_at(at, self._open)

    def _open(self) -> None:
        """Give the next call its turn."""
        self._timer = None
        if self._queue.wake_next():
            self._pace.started(now=asyncio.get_running_loop().time())
        if len(self._queue):
            self._set_timer()

    def _pass_on(self) -> None:
        """Give the turn of a cancelled call to the next one."""
        self._queue.wake_next()
