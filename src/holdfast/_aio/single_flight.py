"""One fetch for all who ask for the same thing meanwhile, in one event loop.

Rules: a caller who is cancelled leaves the fetch to the others; the last one ends it, unless it
spends what can be spent once only, which then comes to its own end, and that has a bound. Each who
waits gets an error of its own, since callers write their own facts into it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["Flight"]

T = TypeVar("T")


class _Run(Generic[T]):
    """One fetch, and how many wait for it."""

    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task = task
        self.waiting = 0
        self.is_final = False


class Flight(Generic[T]):
    """The fetch that is under way, if there is one."""

    def __init__(self) -> None:
        self._run: _Run[T] | None = None

    @property
    def may_have_left(self) -> bool:
        """Whether somebody fetches."""
        return self._run is not None and not self._run.task.done()

    def must_land(self) -> None:
        """Says, from within the fetch, that it must not be ended any more."""
        if self._run is not None:
            self._run.is_final = True

    async def joined(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Waits for the fetch that is under way, or for a new one.

        Raises:
            Exception: What it raises, the same for all who wait.
        """
        run = self._run
        if run is None or run.task.done():
            run = self._run = _Run(asyncio.create_task(begin()))
            run.task.add_done_callback(_looked_at)
        run.waiting += 1
        try:
            await asyncio.wait({run.task})  # which being cancelled does not cancel it
        finally:
            run.waiting -= 1
            if not (run.waiting or run.is_final or run.task.done()):
                self._run = None  # whoever comes now begins anew
                run.task.cancel()
                await asyncio.wait({run.task})
        return run.task.result()


def _looked_at(task: asyncio.Task[Any]) -> None:
    """Keeps asyncio from telling of an error that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
