"""Cancel scopes: end a part of a task at a moment, or when another task requests it.

How an expired scope is distinguished from other errors, here and nowhere else:

- A `CancelScope` ends its block without an exception, and its attributes say whether it did. So
  any exception that leaves the block came from inside, also a `TimeoutError`, which this library's
  own timeouts, sockets and caller-supplied code raise.
- A cancellation of the task is never swallowed, not even at the moment when the scope ends.
- A block that finishes at that moment has finished: its result may be a connection, which nothing
  else could close.
- `pending_cancellations` distinguishes a cancellation of the running task from one of an
  awaitable within it.

For the time limits of each call, which must be cheap, see `holdfast._aio.watchdog`.
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
    """The scope of a wait was cancelled, or its moment has come."""


class CancelScope:
    """An async context manager whose block ends at a moment, or when `cancel` is called.

    It may be entered again, but not while it is entered.

    Args:
        at: The moment, in seconds on the event loop's clock; infinity for none.

    Attributes:
        at: The moment; may be changed until the scope is entered.
        expired: Whether the moment has ended the block.
        is_cancelled: Whether `cancel` was called; the block may have finished nevertheless.
    """

    def __init__(self, at: float = math.inf) -> None:
        self.at = at
        self.expired = False
        self.is_cancelled = False
        self._timeout: asyncio.Timeout | None = None

    @classmethod
    def within(cls, seconds: float) -> Self:
        """Return a scope that ends in `seconds` seconds."""
        return cls(asyncio.get_running_loop().time() + seconds)

    def cancel(self) -> None:
        """End the block, or the next block at its first wait."""
        if not self.is_cancelled and self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())
        self.is_cancelled = True

    async def result(self, awaitable: Awaitable[T]) -> T:
        """Return the result of an awaitable, which is cancelled if the scope ends first.

        Raises:
            ScopeCancelled: The scope ended first. In a scope that was cancelled before, the
                awaitable is not started.
        """
        if self.is_cancelled:
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            raise ScopeCancelled
        async with self:
            return await awaitable
        raise ScopeCancelled

    async def wait(self, awaitable: Awaitable[object]) -> None:
        """Wait for an awaitable in the scope, and ignore its result."""
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
                # Raises only its own error, in place of the cancellation that it caused.
                await timeout.__aexit__(kind, error, trace)
            except TimeoutError:
                self.expired = not self.is_cancelled
                return True
        return False


async def wait_until(at: float, awaitable: Awaitable[T], too_late: Callable[[], Exception]) -> T:
    """Return the result of an awaitable within a time limit.

    Args:
        at: The limit, in seconds on the event loop's clock; infinity for none.
        awaitable: The awaitable.
        too_late: Creates the error to raise at the limit.
    """
    async with CancelScope(at):
        return await awaitable
    raise too_late()


async def wait_within(
    seconds: float, awaitable: Awaitable[T], too_late: Callable[[], Exception]
) -> T:
    """Return the result of an awaitable within `seconds` seconds; see `wait_until`."""
    return await wait_until(asyncio.get_running_loop().time() + seconds, awaitable, too_late)


def pending_cancellations() -> int:
    """Return the number of cancellations of the running task that no scope has taken back.

    If it has not grown since the start of an await, a `CancelledError` of that await came from
    within the awaitable.
    """
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
