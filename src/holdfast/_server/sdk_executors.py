"""The turns of an executor of the official SDK's, which leads its tasks as it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from a2a.server.agent_execution import AgentExecutor

from holdfast._server.turn_registry import ShutdownTimer

if TYPE_CHECKING:
    from a2a.server.agent_execution import RequestContext
    from a2a.server.events import EventQueue

__all__ = ["ForeignRuns"]


class ForeignRuns(AgentExecutor):
    """An executor of the SDK's, as it is, whose turns are counted.

    Args:
        executor: What does the work.
    """

    def __init__(self, executor: AgentExecutor) -> None:
        self._executor = executor
        self._running: set[asyncio.Task[Any]] = set()
        self._grace = ShutdownTimer()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Runs one turn."""
        if (task := asyncio.current_task()) is None:
            raise RuntimeError("a turn needs a task to run in")
        self._running.add(task)
        try:
            await self._executor.execute(context, event_queue)
        finally:
            self._running.discard(task)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Ends a task because the client says so."""
        await self._executor.cancel(context, event_queue)

    async def stop(self, grace: float) -> int:
        """Lets what runs end; what does not is ended by the SDK.

        Args:
            grace: Seconds that it has.

        Returns:
            How many have not ended.
        """
        await self._grace.wait(self._running, grace)
        return len(self._running)

    def hurry(self) -> None:
        """Takes away what is left of the grace."""
        self._grace.end()
