"""One piece of work at a time for all callers who need the same result, in one event loop.

Rules:
- Callers who come while the work runs wait for its result, whoever began it.
- A caller who is cancelled leaves alone; `lasts` says when that cancels the work as well:
  ``"waited"`` cancels it when the last caller leaves, ``"led"`` when the caller who began it
  leaves, ``"finished"`` never. The last caller to leave waits until cancelled work has ended.
- Callers who are left when work was cancelled that way are not failed: the one who came last, who
  has the most time left, begins its own work, and the others wait for that.
- Of an error each caller gets a copy, since callers add facts of their own to it.
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
    """Runs work once for all who ask for it under one key meanwhile.

    Args:
        cancelled: Makes the error of callers whose work was cancelled by something else: by
            `close`, or from within.
        lasts: When callers who leave cancel the work: see above.
        is_leaders_own: Says of an error of the work whether it concerns only the caller who began
            it; the others go on as if that caller had left.
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
        """Whether somebody would be waited for."""
        return key in self._running

    def shield(self, key: Hashable = None) -> None:
        """Lets the running work finish whoever leaves: it spends what can be spent only once."""
        if key in self._running:
            self._running[key].is_shielded = True

    async def run(self, begin: Callable[[], Coroutine[Any, Any, T]], key: Hashable = None) -> T:
        """Return the result of the running work, or of new work.

        Args:
            begin: Makes the work; called at once where none runs, and perhaps later otherwise.
            key: What the work is for.

        Raises:
            Exception: What the work raised; what `cancelled` makes where it was cancelled.
        """
        caller = _Caller(begin)
        work = self._running.get(key)
        if work is None:
            work = self._running[key] = _Work()
            self._begin(key, work, caller)
        work.callers[caller] = None
        ended: asyncio.Task[T] | None = None
        try:
            return await caller.result
        except asyncio.CancelledError:
            ended = self._leave(work, caller)
            raise
        finally:
            self._leave(work, caller)
            if ended is not None:
                await asyncio.wait({ended})

    async def close(self) -> None:
        """Cancels all work, and waits for its end; callers get what `cancelled` makes."""
        tasks: set[asyncio.Task[T]] = set()
        for work in self._running.values():
            work.is_closed = True
            work.task.cancel()
            tasks.add(work.task)
        if tasks:
            await asyncio.wait(tasks)

    def _begin(self, key: Hashable, work: _Work[T], caller: _Caller[T]) -> None:
        work.leader, work.is_shielded, work.was_left = caller, False, False
        work.task = asyncio.get_running_loop().create_task(caller.begin(), context=caller.context)
        work.task.add_done_callback(lambda task: self._end(key, work, task))

    def _leave(self, work: _Work[T], caller: _Caller[T]) -> asyncio.Task[T] | None:
        """Takes a caller out who has no result; gives the work if it was cancelled for nobody."""
        if caller not in work.callers:
            return None
        del work.callers[caller]
        leads = self._lasts == "led" and caller is work.leader
        is_kept = self._lasts == "finished" or work.is_shielded or work.task.done()
        if (leads or not work.callers) and not is_kept and not work.was_left:
            work.was_left = True
            work.task.cancel()
        return work.task if work.was_left and not work.callers else None

    def _end(self, key: Hashable, work: _Work[T], task: asyncio.Task[T]) -> None:
        """Gives the result to all callers, or begins anew for those who are left."""
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
                caller.give(task.result())
            elif caller is work.leader or not isinstance(error, A2AError):
                caller.fail(error)
            else:
                caller.fail(copy.copy(error))

    def _concerns_leader(self, work: _Work[T], error: BaseException) -> bool:
        return work.was_left or self._is_leaders_own(error)


class _Caller(Generic[T]):
    """A caller who waits, and the work that it would begin itself."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.begin = begin
        self.context: Context = copy_context()
        self.result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def give(self, result: T) -> None:
        if not self.result.done():  # or it is leaving just now
            self.result.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.result.done():
            self.result.set_exception(error)
            self.result.exception()  # asyncio logs errors that nobody has looked at


class _Work(Generic[T]):
    """The work for one key, and the callers who wait for it, in order."""

    task: asyncio.Task[T]
    leader: _Caller[T]

    def __init__(self) -> None:
        self.callers: dict[_Caller[T], None] = {}
        self.is_shielded = False
        self.was_left = False
        self.is_closed = False
