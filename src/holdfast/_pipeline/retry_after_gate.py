"""Holds back calls to an agent that asked for time, and lets them through at a `SlowStart`."""

from __future__ import annotations

import asyncio

from holdfast._aio.semaphore import WaitingQueue
from holdfast._policy.pace import SlowStart

__all__ = ["RetryAfterGate"]


class RetryAfterGate:
    """The gate of one endpoint, in one event loop."""

    def __init__(self) -> None:
        self._pace = SlowStart()
        self._queue = WaitingQueue(self._pass_on)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls pass without a word."""
        return self._pace.is_free

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._queue)

    @property
    def is_held(self) -> bool:
        """Whether nobody passes just now."""
        return self._pace.is_held(now=asyncio.get_running_loop().time())

    def wait_ahead(self) -> float:
        """Seconds until any call may pass."""
        now = asyncio.get_running_loop().time()
        return self._pace.next_start(now=now) - now

    async def enter(self, *, first: bool = False) -> None:
        """Passes, now or when it is this call's turn.

        Args:
            first: Whether the call was refused, and stands before those who came after it.
        """
        now = asyncio.get_running_loop().time()
        if not len(self._queue) and self._pace.next_start(now=now) <= now:
            self._pace.started(now=now)
            return
        self._set_timer()
        await self._queue.wait(first=first)
        while self._pace.is_held(now=asyncio.get_running_loop().time()):
            # Somebody was refused after this turn was given, and before it was taken.
            self._set_timer()
            await self._queue.wait(first=True)

    def on_retry_after(self, seconds: float, *, started: float, draw: float) -> None:
        """Holds everybody back, as an agent has asked.

        Args:
            seconds: For how long.
            started: When the call started that was refused, by the event loop's clock.
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
        """Lets the next one pass."""
        self._timer = None
        if self._queue.wake_next():
            self._pace.started(now=asyncio.get_running_loop().time())
        if len(self._queue):
            self._set_timer()

    def _pass_on(self) -> None:
        """Lets somebody else have a turn that was given, and not taken."""
        self._queue.wake_next()
