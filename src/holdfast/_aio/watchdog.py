"""Time limits that cost little: one timer of the event loop for all of them.

`asyncio.timeout` makes a timer of the loop for each limit, which takes longer than everything else
that happens to a call that goes well; and nearly every limit of a call is never reached. Here one
timer stands at the earliest of them. When the last scope is left, the timer stays for the rest of
that turn of the event loop: calls one after the other share it, and none is left behind.

How "my deadline" is told apart from everything else: a `TimeoutError` that leaves the scope is the
limit's own where the limit has `fired`, and came from inside otherwise, as those of sockets and of
this library's own timeouts do. A cancellation of the task by anything else is never converted, and
a scope whose block finishes in the moment of its limit has finished.
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

_FEW = 256
"""Entries that no longer count, and are not worth being cleared away."""


class Watchdog:
    """Ends what takes too long in one event loop, the running one.

    A limit is new until the timer comes up for the first time; what is open then goes into a heap
    by its moment. So a scope that is left before, as most are, costs little more than a set. One
    that is left, or whose limit is put off, later than that leaves its entry in the heap until it
    comes up, or until most entries are of that kind.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open = 0
        self._new: dict[TimeLimit, None] = {}  # in order, so that what comes at once does, too
        self._heap: list[tuple[float, int, TimeLimit]] = []
        self._order = count()
        self._timer: asyncio.Handle | None = None
        self._wakes_at = math.inf
        self._is_resting = False
        self._context = contextvars.Context()  # so that a timer keeps nobody's variables alive

    def until(self, at: float) -> TimeLimit:
        """A scope that raises `TimeoutError` at a moment on the event loop's clock.

        Args:
            at: The moment; one that has passed counts as soon as the scope waits for something.
                Infinity is never.
        """
        return TimeLimit(self, at)

    def within(self, seconds: float) -> TimeLimit:
        """A scope that raises `TimeoutError` some seconds from now."""
        return TimeLimit(self, self._loop.time() + seconds)

    @property
    def idle(self) -> bool:
        """Whether nobody is in a scope, not even to clean up after its end."""
        return self._open == 0

    def end_all(self) -> None:
        """Moves all limits to this moment."""
        now = self._loop.time()
        self._queue_new()
        for _, _, limit in self._heap:
            if limit.at > now and limit.is_open and not limit.expired:
                limit.at = now
                limit.ended = True
                self._new[limit] = None
        self._wake_at(now)

    def enter(self, limit: TimeLimit) -> asyncio.Task[object]:
        """Begins to watch a limit, and tells whose."""
        task = asyncio.current_task(self._loop)
        if task is None:
            message = "a time limit needs a task to end"
            raise RuntimeError(message)
        self._open += 1
        self._new[limit] = None
        if limit.at < self._wakes_at:
            self._wake_at(limit.at)
        return task

    def move(self, limit: TimeLimit, seconds: float) -> None:
        """Puts an open limit some seconds from now."""
        limit.at = self._loop.time() + seconds
        if limit.at < limit.queued_at:
            self._new[limit] = None
            if limit.at < self._wakes_at:
                self._wake_at(limit.at)

    def leave(self, limit: TimeLimit) -> None:
        """Watches a limit no longer."""
        self._open -= 1
        self._new.pop(limit, None)
        if not self._open:
            self._heap.clear()
            # The next call mostly begins at once; to cancel a timer and to make one would cost it
            # more than this does. A scope may be left when its loop is closed, by a collection.
            if not self._is_resting and not self._loop.is_closed():
                self._is_resting = True
                self._loop.call_soon(self._rest, context=self._context)

    def _rest(self) -> None:
        """Cancel the timer, unless a scope was entered meanwhile."""
        self._is_resting = False
        if not self._open:
            self._wake_at(math.inf)

    def _queue_new(self) -> None:
        if len(self._heap) > 2 * self._open + _FEW:
            self._heap = [entry for entry in self._heap if _counts(entry)]
            heapq.heapify(self._heap)
        for limit in self._new:
            limit.queued_at = limit.at
            heapq.heappush(self._heap, (limit.at, next(self._order), limit))
        self._new.clear()

    def _wake_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = at
        if at == math.inf:
            self._timer = None
        elif at <= self._loop.time():
            self._timer = self._loop.call_soon(self._wake, context=self._context)
            self._wakes_at = -math.inf  # nothing is sooner
        else:
            self._timer = self._loop.call_at(at, self._wake, context=self._context)

    def _wake(self) -> None:
        # A timer may fire a little early, by the resolution of the clock.
        now = max(self._wakes_at, self._loop.time())
        self._queue_new()
        due: list[TimeLimit] = []
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            limit = entry[2]
            if not _counts(entry):
                continue
            if limit.at <= now:
                limit.expired = True
                due.append(limit)
            else:  # it was put off
                limit.queued_at = limit.at
                heapq.heappush(self._heap, (limit.at, next(self._order), limit))
        self._wake_at(self._heap[0][0] if self._heap else math.inf)
        for limit in due:
            limit.end()


def _counts(entry: tuple[float, int, TimeLimit]) -> bool:
    """Whether an entry of the heap leads to a limit, which strikes once."""
    at, _, limit = entry
    return at == limit.queued_at and limit.is_open and not limit.expired


class TimeLimit(msgspec.Struct, eq=False):
    """A scope that ends at a moment, as `asyncio.Timeout` does; made by a `Watchdog`.

    Attributes:
        at: The moment.
        expired: Whether it has come while the scope was open.
        fired: Whether it has ended the scope, and is the `TimeoutError` that left it.
        ended: Whether `Watchdog.end_all` brought it forward.
        queued_at: The moment of its entry in the watchdog's heap; infinity without one.
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
        """Whether somebody is in the scope."""
        return self._task is not None

    def restart(self, seconds: float) -> None:
        """Gives an open scope some seconds from now; too late once it has expired."""
        if not self.expired:
            self._watchdog.move(self, seconds)

    def end(self) -> None:
        """Ends what runs in the scope."""
        task = self._task
        if task is None:
            return
        try:
            task.cancel()
        except Exception as error:  # noqa: BLE001  of somebody's own future; others wait too
            context = {"message": "a task cannot be ended", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)

    def __enter__(self) -> Self:
        """Begins, in the running task."""
        self._task = task = self._watchdog.enter(self)
        self._cancelling = task.cancelling()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends; raises `TimeoutError` if it was the limit, and nobody else, that ended it."""
        task, self._task = self._task, None  # an entry in the heap keeps no task alive
        self._watchdog.leave(self)
        if (
            self.expired
            and task is not None
            and task.uncancel() <= self._cancelling
            and kind is not None
            and issubclass(kind, asyncio.CancelledError)
        ):
            self.fired = True
            raise TimeoutError from error
