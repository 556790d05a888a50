"""Cheap time limits: one timer of the event loop for all of them.

`asyncio.timeout` creates a timer of the loop for each limit, which takes longer than all other
work of a successful call; and most limits of a call are never reached. Here one timer is set to
the earliest limit. When the last scope exits, the timer stays for the rest of that iteration of
the event loop: consecutive calls share it, and no timer remains.

How an expired limit is distinguished from other errors: a `TimeoutError` that leaves the scope is
the limit's own if the limit has `fired`; otherwise it came from inside, as from a socket or one of
this library's own timeouts. A cancellation of the task by other code is never converted, and a
block that finishes at the moment of its limit has finished.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
from itertools import count
from typing import TYPE_CHECKING, Self

import msgspec

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["TimeLimit", "Watchdog"]

_MAX_STALE_ENTRIES = 256
"""Entries beyond twice the open scopes that the heap may hold before it is cleaned up."""


class Watchdog:
    """Enforces the time limits of one event loop, the running one.

    A limit is new until the timer next fires; open limits then move to a heap, ordered by their
    moment. So a scope that exits before, as most do, costs little more than an entry in a dict. A
    scope that exits, or whose limit is postponed, after that leaves its entry in the heap until
    the entry is due, or until most entries are stale.

    Attributes:
        loop: The event loop.
        open_scopes: The number of scopes that are open.
        new_limits: Limits that are not in the heap yet; the scopes themselves add and remove them.
        wakes_at: When the timer fires; infinity for no timer.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.open_scopes = 0
        self.new_limits: dict[TimeLimit, None] = {}  # in order, so that equal limits fire in order
        self._heap: list[tuple[float, int, TimeLimit]] = []
        self._order = count()
        self._timer: asyncio.Handle | None = None
        self.wakes_at = math.inf
        self._is_rest_scheduled = False
        self._context = contextvars.Context()  # so that a timer keeps no caller's variables alive

    def until(self, at: float) -> TimeLimit:
        """Return a scope that raises `TimeoutError` at a moment.

        Args:
            at: The moment, in seconds on the event loop's clock; infinity for never. If it has
                passed, the scope ends at its first wait.
        """
        return TimeLimit(self, at)

    def within(self, seconds: float) -> TimeLimit:
        """Return a scope that raises `TimeoutError` in `seconds` seconds."""
        return TimeLimit(self, self.loop.time() + seconds)

    @property
    def idle(self) -> bool:
        """Whether no scope is open, not even for cleanup after its limit."""
        return self.open_scopes == 0

    def end_all(self) -> None:
        """Move all limits to the present moment."""
        now = self.loop.time()
        self._queue_new()
        for _, _, limit in self._heap:
            if limit.at > now and limit.is_open and not limit.expired:
                limit.at = now
                limit.ended = True
                self.new_limits[limit] = None
        self.wake_at(now)

    def move(self, limit: TimeLimit, seconds: float) -> None:
        """Move an open limit to `seconds` seconds from now."""
        limit.at = self.loop.time() + seconds
        if limit.at < limit.queued_at:
            self.new_limits[limit] = None
            if limit.at < self.wakes_at:
                self.wake_at(limit.at)

    def rest(self) -> None:
        """Forget the limits of closed scopes, and cancel the timer soon."""
        self._heap.clear()
        # The next call mostly starts at once; to cancel a timer and create one would cost it
        # more than this. Garbage collection may exit a scope after its loop is closed.
        if not self._is_rest_scheduled and not self.loop.is_closed():
            self._is_rest_scheduled = True
            self.loop.call_soon(self._cancel_idle_timer, context=self._context)

    def _cancel_idle_timer(self) -> None:
        """Cancel the timer, unless a scope was entered meanwhile."""
        self._is_rest_scheduled = False
        if not self.open_scopes:
            self.wake_at(math.inf)

    def _queue_new(self) -> None:
        if len(self._heap) > 2 * self.open_scopes + _MAX_STALE_ENTRIES:
            self._heap = [entry for entry in self._heap if _is_current(entry)]
            heapq.heapify(self._heap)
        for limit in self.new_limits:
            limit.queued_at = limit.at
            heapq.heappush(self._heap, (limit.at, next(self._order), limit))
        self.new_limits.clear()

    def wake_at(self, at: float) -> None:
        """Set the timer to a moment; infinity for no timer."""
        if self._timer is not None:
            self._timer.cancel()
        self.wakes_at = at
        if at == math.inf:
            self._timer = None
        elif at <= self.loop.time():
            self._timer = self.loop.call_soon(self._wake, context=self._context)
            self.wakes_at = -math.inf  # earlier than any limit
        else:
            self._timer = self.loop.call_at(at, self._wake, context=self._context)

    def _wake(self) -> None:
        # A timer may fire early by the resolution of the clock.
        now = max(self.wakes_at, self.loop.time())
        self._queue_new()
        due: list[TimeLimit] = []
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            limit = entry[2]
            if not _is_current(entry):
                continue
            if limit.at <= now:
                limit.expired = True
                due.append(limit)
            else:  # postponed
                limit.queued_at = limit.at
                heapq.heappush(self._heap, (limit.at, next(self._order), limit))
        self.wake_at(self._heap[0][0] if self._heap else math.inf)
        for limit in due:
            limit.end()


def _is_current(entry: tuple[float, int, TimeLimit]) -> bool:
    """Return whether an entry of the heap is that of an open limit that has not expired."""
    at, _, limit = entry
    return at == limit.queued_at and limit.is_open and not limit.expired


class TimeLimit(msgspec.Struct, eq=False):
    """A scope that ends at a moment, like `asyncio.Timeout`; created by a `Watchdog`.

    Attributes:
        at: The moment, in seconds on the event loop's clock.
        expired: Whether the moment came while the scope was open.
        fired: Whether the limit ended the scope, and is the `TimeoutError` that left it.
        ended: Whether `Watchdog.end_all` moved the limit forward.
        queued_at: The moment of its entry in the watchdog's heap; infinity without an entry.
    """

    _watchdog: Watchdog
    at: float
    expired: bool = False
    fired: bool = False
    ended: bool = False
    queued_at: float = math.inf
    _task: asyncio.Task[object] | None = None
    _cancelling: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the scope is entered."""
        return self._task is not None

    def restart(self, seconds: float) -> None:
        """Give an open scope `seconds` seconds from now; no effect once it has expired."""
        if not self.expired:
            self._watchdog.move(self, seconds)

    def end(self) -> None:
        """Cancel the task in the scope."""
        task = self._task
        if task is None:
            return
        try:
            task.cancel()
        except Exception as error:  # noqa: BLE001  of a custom future; other limits follow
            context = {
                "message": "a task could not be cancelled",
                "exception": error,
                "task": task,
            }
            task.get_loop().call_exception_handler(context)

    def __enter__(self) -> Self:
        """Enter the scope in the running task."""
        watchdog = self._watchdog
        task = asyncio.current_task(watchdog.loop)
        if task is None:
            message = "a time limit can only be set inside a task"
            raise RuntimeError(message)
        watchdog.open_scopes += 1
        watchdog.new_limits[self] = None
        if self.at < watchdog.wakes_at:
            watchdog.wake_at(self.at)
        self._task = task
        self._cancelling = task.cancelling()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Exit the scope; raise `TimeoutError` if the limit alone ended it."""
        task, self._task = self._task, None  # an entry in the heap keeps no task alive
        watchdog = self._watchdog
        watchdog.open_scopes -= 1
        watchdog.new_limits.pop(self, None)
        if not watchdog.open_scopes:
            watchdog.rest()
        if (
            self.expired
            and task is not None
            and task.uncancel() <= self._cancelling
            and kind is not None
            and issubclass(kind, asyncio.CancelledError)
        ):
            self.fired = True
            raise TimeoutError from error
