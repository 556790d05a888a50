"""Single flight: concurrent callers that need the same result share one piece of work.

Rules, for one event loop:
- Callers that arrive while the work runs wait for its result.
- A cancelled caller leaves the work; `lasts` says when that cancels the work as well:
  ``"waited"`` cancels it when the last caller leaves, ``"led"`` when the caller that started it
  leaves, ``"finished"`` never. The last caller to leave waits until cancelled work has ended.
- The remaining callers of work that was cancelled that way do not fail: the caller that arrived
  last, which has the most time left, starts its own work, and the others wait for that.
- Each caller gets its own copy of an error, since callers add facts to it.
"""

from __future__ import annotations

import asyncio
import copy
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

__all__ = ["SingleFlight"]

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs work once for all concurrent callers with the same key.

    Args:
        cancelled: Creates the error of callers whose work was cancelled by `close` or from within.
        lasts: When the work is cancelled because callers have left: see the rules above.
        is_leaders_own: Returns whether an error of the work concerns only the caller that started
            it; the others then continue as if that caller had left.
    """

    def __init__(
        self,
        cancelled: Callable[[], Exception],
        *,
        lasts: Literal["waited", "led", "finished"] = "waited",
        is_leaders_own: Callable[[BaseException], bool] = lambda _: False,
    ) -> None:
        self._cancelled = cancelled
        self._lasts = lasts
        self._is_leaders_own = is_leaders_own
        self._running: dict[Hashable, _Work[T]] = {}

    def is_running(self, key: Hashable = None) -> bool:
        """Return whether work for a key runs."""
        return key in self._running

    def shield(self, key: Hashable = None) -> None:
        """Let the running work finish without callers, as it uses a one-time credential."""
        if key in self._running:
            self._running[key].is_shielded = True

    async def run(self, begin: Callable[[], Coroutine[Any, Any, T]], key: Hashable = None) -> T:
        """Return the result of the running work, or of new work.

        Args:
            begin: Starts the work; called at once if none runs, otherwise perhaps later.
            key: Identifies the work.

        Raises:
            Exception: The error of the work, or that of `cancelled` if it was cancelled.
        """
        caller = _Caller(begin)
        work = self._running.get(key)
        if work is None:
            work = self._running[key] = _Work()
            self._begin(key, work, caller)
        work.callers[caller] = None
        cancelled_task: asyncio.Task[T] | None = None
        try:
            return await caller.result
        except asyncio.CancelledError:
            cancelled_task = self._leave(work, caller)
            raise
        finally:
            self._leave(work, caller)
            if cancelled_task is not None:
                await asyncio.wait({cancelled_task})

    async def close(self) -> None:
        """Cancel all work and wait for its end; callers get the error of `cancelled`."""
        tasks: set[asyncio.Task[T]] = set()
        for work in self._running.values():
            work.is_closed = True
            work.task.cancel()
            tasks.add(work.task)
        if tasks:
            await asyncio.wait(tasks)

    def _begin(self, key: Hashable, work: _Work[T], caller: _Caller[T]) -> None:
        work.leader, work.is_shielded, work.is_abandoned = caller, False, False
        work.task = asyncio.get_running_loop().create_task(caller.begin(), context=caller.context)
        work.task.add_done_callback(lambda task: self._end(key, work, task))

    def _leave(self, work: _Work[T], caller: _Caller[T]) -> asyncio.Task[T] | None:
        """Remove a caller without a result; return a cancelled task that has no callers."""
        if caller not in work.callers:
            return None
        del work.callers[caller]
        leader_left = self._lasts == "led" and caller is work.leader
        is_kept = self._lasts == "finished" or work.is_shielded or work.task.done()
        if (leader_left or not work.callers) and not is_kept and not work.is_abandoned:
            work.is_abandoned = True
            work.task.cancel()
        return work.task if work.is_abandoned and not work.callers else None

    def _end(self, key: Hashable, work: _Work[T], task: asyncio.Task[T]) -> None:
        """Give the result to all callers, or start new work for the remaining callers."""
        error = self._cancelled() if task.cancelled() else task.exception()
        if error is not None and not work.is_closed and self._concerns_leader(work, error):
            if work.leader in work.callers:
                del work.callers[work.leader]
                work.leader.fail(error)
            if work.callers:
                self._begin(key, work, next(reversed(work.callers)))
                return
        del self._running[key]
        callers, work.callers = work.callers, {}
        for caller in callers:
            if error is None:
                caller.succeed(task.result())
            elif caller is work.leader or not isinstance(error, A2AError):
                caller.fail(error)
            else:
                caller.fail(copy.copy(error))

    def _concerns_leader(self, work: _Work[T], error: BaseException) -> bool:
        return work.is_abandoned or self._is_leaders_own(error)


class _Caller(Generic[T]):
    """A waiting caller, and the work that it would start itself."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.begin = begin
        self.context: Context = copy_context()
        self.result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def succeed(self, result: T) -> None:
        if not self.result.done():  # otherwise it is being cancelled
            self.result.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.result.done():
            self.result.set_exception(error)
            self.result.exception()  # retrieved, so that asyncio does not log it


class _Work(Generic[T]):
    """The work for one key, and its waiting callers in order of arrival."""

    task: asyncio.Task[T]
    leader: _Caller[T]

    def __init__(self) -> None:
        self.callers: dict[_Caller[T], None] = {}
        self.is_shielded = False
        self.is_abandoned = False
        self.is_closed = False
