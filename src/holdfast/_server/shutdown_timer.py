"""The time that turns under way have at the end; it can be taken away."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Grace"]


class Grace:
    """A time that can be taken away."""

    def __init__(self) -> None:
        self._scope: asyncio.Timeout | None = None
        self._is_over = False

    async def wait(self, running: Iterable[asyncio.Task[Any]], seconds: float) -> None:
        """Waits until all have ended, or the time is over."""
        tasks = [task for task in running if not task.done()]
        if not tasks or self._is_over:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds) as self._scope:
                await asyncio.wait(tasks)

    def end(self) -> None:
        """Takes away what is left."""
        self._is_over = True
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())
