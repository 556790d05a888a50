"""Runs callers' code, such as hooks, tools and layers, without letting it block a client."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from holdfast._aio.cancel_scope import pending_cancellations

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterable
    from typing import Any

__all__ = ["cancel_and_wait", "gather_bounded", "reject_self_cancellation"]

T = TypeVar("T")

logger = logging.getLogger("holdfast")

_CANCEL_GRACE_S = 1.0
"""Seconds within which cancelled coroutines must end."""


async def gather_bounded(named: Iterable[tuple[str, Coroutine[Any, Any, T]]]) -> list[T]:
    """Run coroutines, each in its own task, and return their results in order.

    Each coroutine has a name for the log. The first exception, or a cancellation, cancels the
    pending coroutines and waits up to a second for their end. A coroutine that continues after
    that is logged, and no longer waited for.
    """
    running = [asyncio.create_task(coroutine, name=name) for name, coroutine in named]
    try:
        # Unlike `gather`, this returns at once if it is cancelled itself.
        await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        for task in running:
            if task.done():
                task.result()
        return [task.result() for task in running]
    finally:
        await cancel_and_wait(*running)


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks that are not done, and wait up to a second for their end.

    A task that continues after that is logged, and no longer waited for. Results and exceptions of
    the tasks are not needed.
    """
    for task in tasks:
        task.add_done_callback(_retrieve_exception)
    running = [task for task in tasks if task.cancel()]
    if not running:
        return
    _, pending = await asyncio.wait(running, timeout=_CANCEL_GRACE_S)
    for task in pending:
        logger.warning("%s continues although it was cancelled", task.get_name())


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a task that may have no waiter.

    The event loop would log an exception that is never retrieved.
    """
    if not task.cancelled():
        task.exception()


async def reject_self_cancellation(awaitable: Awaitable[T]) -> T:
    """Return the result of an awaitable, and convert a cancellation from within to an error.

    A cancellation of the running task passes unchanged.

    Raises:
        RuntimeError: The awaitable was cancelled although the running task was not.
    """
    before = pending_cancellations()
    try:
        return await awaitable
    except asyncio.CancelledError:
        if pending_cancellations() > before:
            raise
        text = "it cancelled itself"
        raise RuntimeError(text) from None
