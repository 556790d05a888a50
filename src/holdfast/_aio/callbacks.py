"""Running what callers have written, hooks and tools, so that it holds nothing up."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from holdfast._aio.cancel_scope import pending_cancellations

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterable
    from typing import Any

__all__ = ["gather_bounded", "reject_self_cancellation"]

T = TypeVar("T")

logger = logging.getLogger("holdfast")

_CANCEL_GRACE_S = 1.0
"""Seconds that cancelled coroutines have to end."""


async def gather_bounded(named: Iterable[tuple[str, Coroutine[Any, Any, T]]]) -> list[T]:
    """Runs coroutines, each in a task of its own, and gives what they return in their order.

    Each has a name for the log. The first exception, or a cancellation, cancels those that still
    run, and gives them a second to end. One that goes on in spite of that is no longer waited
    for, which is logged.
    """
    running = [asyncio.create_task(coroutine, name=name) for name, coroutine in named]
    for task in running:
        task.add_done_callback(_has_ended)
    try:
        # Unlike `gather`, this lets go at once where it is cancelled itself.
        await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        for task in running:
            if task.done():
                task.result()
        return [task.result() for task in running]
    finally:
        await _end([task for task in running if not task.done()])


async def _end(running: list[asyncio.Task[T]]) -> None:
    for task in running:
        task.cancel()
    if not running:
        return
    _, left = await asyncio.wait(running, timeout=_CANCEL_GRACE_S)
    for task in left:
        logger.warning("%s continues although it was cancelled", task.get_name())


def _has_ended(task: asyncio.Task[T]) -> None:
    """Looks at how a task ended that nobody may wait for any more.

    The event loop would log an exception that nobody has looked at.
    """
    if not task.cancelled():
        task.exception()


async def reject_self_cancellation(awaitable: Awaitable[T]) -> T:
    """Return the result of something, and take it for failed where it cancels itself.

    A cancellation of the running task is passed on as it is.

    Raises:
        RuntimeError: It ended as cancelled, and the task was not cancelled meanwhile.
    """
    before = pending_cancellations()
    try:
        return await awaitable
    except asyncio.CancelledError:
        if pending_cancellations() > before:
            raise
        text = "it was cancelled from within"
        raise RuntimeError(text) from None
