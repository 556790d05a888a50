"""Ending a part of a task: at a moment, or when another task says so.

How "my deadline" is told apart from everything else, here and nowhere else:

- A `CancelScope` ends its block quietly, and its attributes say afterwards whether it did. So any
  exception that leaves the block came from inside; a `TimeoutError` too, which this library's own
  timeouts raise, and sockets, and callers' code.
- A cancellation of the task is never swallowed, not even in the moment in which the scope ends.
- A block that finishes in that moment has finished: its result may be a connection, and nothing
  else could close that.
- `pending_cancellations` tells a cancellation of the running task from one of something within.

For limits that every call sets, and that cost less, see `holdfast._aio.watchdog`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

__all__ = ["CancelScope", "ScopeCancelled", "pending_cancellations", "wait_until", "wait_within"]

T = TypeVar("T")


class ScopeCancelled(Exception):  # noqa: N818  control flow, not an error
    """A wait was ended by another task."""


class CancelScope:
    """An async context manager whose block ends at a moment, or at a call of `cancel`.

    It may be entered again, but not while it is entered.

    Args:
        at: The moment, on the event loop's clock; infinity for none.

    Attributes:
        at: The same; may be changed until the scope is entered.
        expired: Whether the moment has come, and has ended the block.
        is_cancelled: Whether `cancel` was called; the block may have finished all the same.
    """

    def __init__(self, at: float = math.inf) -> None:
        self.at = at
        self.expired = False
        self.is_cancelled = False
        self._timeout: asyncio.Timeout | None = None

    @classmethod
    def within(cls, seconds: float) -> Self:
        """A scope that ends some seconds from now."""
        return cls(asyncio.get_running_loop().time() + seconds)

    def cancel(self) -> None:
        """Ends the block, or the next one as soon as it waits for something."""
        if not self.is_cancelled and self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())
        self.is_cancelled = True

    async def result(self, awaitable: Awaitable[T]) -> T:
        """Return the result of something, unless the scope ends first, which cancels it.

        Raises:
            ScopeCancelled: There is no result. In a scope that was cancelled before, nothing is
                begun.
        """
        if self.is_cancelled:
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            raise ScopeCancelled
        async with self:
            return await awaitable
        raise ScopeCancelled

    async def wait(self, awaitable: Awaitable[object]) -> None:
        """Waits for something in the scope, and ignores its result."""
        with contextlib.suppress(ScopeCancelled):
            await self.result(awaitable)

    async def __aenter__(self) -> Self:
        at = asyncio.get_running_loop().time() if self.is_cancelled else self.at
        self.expired = False
        self._timeout = asyncio.timeout_at(None if at == math.inf else at)
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        timeout, self._timeout = self._timeout, None
        if timeout is not None:
            try:
                # It raises only an error of its own, in place of the cancellation that it caused.
                await timeout.__aexit__(kind, error, trace)
            except TimeoutError:
                self.expired = not self.is_cancelled
                return True
        return False


async def wait_until(at: float, awaitable: Awaitable[T], too_late: Callable[[], Exception]) -> T:
    """Return the result of something, within a time limit.

    Args:
        at: The limit, on the event loop's clock; infinity for none.
        awaitable: What to wait for.
        too_late: Makes the error to raise at that moment.
    """
    async with CancelScope(at):
        return await awaitable
    raise too_late()


async def wait_within(
    seconds: float, awaitable: Awaitable[T], too_late: Callable[[], Exception]
) -> T:
    """The same for a number of seconds from now."""
    return await wait_until(asyncio.get_running_loop().time() + seconds, awaitable, too_late)


def pending_cancellations() -> int:
    """How often the running task was cancelled, without those that a scope has taken back.

    Where it has not grown since an await began, a `CancelledError` of that await came from within.
    """
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
