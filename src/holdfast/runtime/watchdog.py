"""Time limits that cost little: one timer of the event loop for all of them.

`asyncio.timeout` makes a timer for each limit. Making one, sorting it in and cancelling it takes
longer than everything else that happens to a call that goes well, and nearly every limit of a
call is never reached. Here the timer stands at the earliest limit that was ever entered; whoever
is done in time only leaves a set. So it may wake up for nobody, and is set anew then.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["TimeLimit", "Watchdog"]


class Watchdog:
    """Ends what takes too long in one event loop, the running one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits: set[TimeLimit] = set()
        self._timer: asyncio.Handle | None = None
        self._wakes_at = math.inf

    def until(self, at: float) -> TimeLimit:
        """A scope that raises `TimeoutError` at a moment on the event loop's clock.

        Args:
            at: The moment; one that has passed counts as soon as the scope waits for something.
                Infinity is never.
        """
        return TimeLimit(self, at)

    def within(self, seconds: float) -> TimeLimit:
        """A scope that raises `TimeoutError` some seconds from now."""
        return TimeLimit(self, self.now + seconds)

    @property
    def now(self) -> float:
        """The moment, on the event loop's clock."""
        return self._loop.time()

    @property
    def idle(self) -> bool:
        """Whether nobody is in a scope, not even to clean up after its end."""
        return not self._limits

    def end_all(self) -> None:
        """Moves all limits to this moment."""
        now = self.now
        for limit in list(self._limits):
            if limit.at > now:
                limit.at = now
                limit.ended = True
        self._wake_at(now)

    def watch(self, limit: TimeLimit) -> None:
        """Begins to watch a limit, or notices that it was moved."""
        self._limits.add(limit)
        if limit.at < self._wakes_at:
            self._wake_at(limit.at)

    def leave(self, limit: TimeLimit) -> None:
        """Watches a limit no longer."""
        self._limits.discard(limit)

    def _wake_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = at
        if at == math.inf:
            self._timer = None
        elif at <= self.now:
            self._timer = self._loop.call_soon(self._wake)
            self._wakes_at = -math.inf  # nothing is sooner
        else:
            self._timer = self._loop.call_at(at, self._wake)

    def _wake(self) -> None:
        # A timer may fire a little early, by the resolution of the clock.
        now = max(self._wakes_at, self.now)
        ahead = [limit for limit in list(self._limits) if not limit.expired]
        self._wake_at(min((limit.at for limit in ahead if limit.at > now), default=math.inf))
        for limit in ahead:
            if limit.at <= now:
                limit.expire()


class TimeLimit:
    """A scope that ends at a moment, as `asyncio.Timeout` does; made by a `Watchdog`.

    Attributes:
        at: The moment.
        expired: Whether it has come while the scope was open.
        ended: Whether `Watchdog.end_all` brought it forward.
    """

    __slots__ = ("_cancelling", "_task", "_watchdog", "at", "ended", "expired")

    def __init__(self, watchdog: Watchdog, at: float) -> None:
        self._watchdog = watchdog
        self.at = at
        self.expired = False
        self.ended = False

    def restart(self, seconds: float) -> None:
        """Gives an open scope some seconds from now; too late once it has expired."""
        if not self.expired:
            self.at = self._watchdog.now + seconds
            self._watchdog.watch(self)

    def expire(self) -> None:
        """Ends what runs in the scope."""
        self.expired = True
        self._task.cancel()

    def __enter__(self) -> Self:
        """Begins, in the running task."""
        task = asyncio.current_task()
        if task is None:
            message = "a time limit needs a task to end"
            raise RuntimeError(message)
        self._task = task
        self._cancelling = task.cancelling()
        self._watchdog.watch(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends; raises `TimeoutError` if it was the limit, and nobody else, that ended it."""
        self._watchdog.leave(self)
        if (
            self.expired
            and self._task.uncancel() <= self._cancelling
            and kind is not None
            and issubclass(kind, asyncio.CancelledError)
        ):
            raise TimeoutError from error
