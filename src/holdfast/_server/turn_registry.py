"""The turns under way on the official SDK's server parts: each led to its end, whatever happens.

Rules: every turn ends in an event that says so, where anybody can still hear it: by what the
executor told, by what it raised, by the time that it had, by the client's cancel, or by the end of
the server. Nothing but an `A2AError` says anything of itself; all others are logged.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from a2a.server.agent_execution import AgentExecutor
from a2a.types import a2a_pb2

from holdfast._aio.cancel_scope import CancelScope, pending_cancellations
from holdfast._integrations.a2a_sdk.messages import to_proto, to_value
from holdfast._server.agent_turns import AgentTurn, Requester
from holdfast._server.answers import error_of_failure
from holdfast._server.outcomes import Ending
from holdfast._server.safe_handler import sdk_error
from holdfast.errors import A2AError, InternalError
from holdfast.types import Event, Message, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from a2a.server.agent_execution import RequestContext
    from a2a.server.events import EventQueue

    from holdfast._aio.env import Env
    from holdfast._server.executors import Executor

__all__ = ["ShutdownTimer", "TurnRegistry"]


class ShutdownTimer:
    """A time for turns to end, which can be taken away."""

    def __init__(self) -> None:
        self._scope = CancelScope()

    async def wait(self, running: Iterable[asyncio.Task[Any]], seconds: float) -> None:
        """Waits until all have ended, or the time is over."""
        tasks = [task for task in running if not task.done()]
        if tasks:
            self._scope.at = asyncio.get_running_loop().time() + seconds
            await self._scope.wait(asyncio.wait(tasks))

    def end(self) -> None:
        """Takes away what is left."""
        self._scope.cancel()


logger = logging.getLogger("holdfast.server")

_MESSAGES: dict[type, Any] = {
    Task: a2a_pb2.Task,
    Message: a2a_pb2.Message,
    TaskStatusUpdateEvent: a2a_pb2.TaskStatusUpdateEvent,
    TaskArtifactUpdateEvent: a2a_pb2.TaskArtifactUpdateEvent,
}

_STOPPING = 5.0
"""Seconds that an executor has to end once it was cancelled."""


class _Run:
    """One turn under way."""

    def __init__(self, turn: AgentTurn, task: asyncio.Task[None]) -> None:
        self.turn = turn
        self.task = task
        self.is_cancelled = False  # by the client
        self.is_stopped = False  # by the server

    async def end(self) -> None:
        """Cancels it, and waits until it has ended, but not for ever."""
        self.task.cancel()
        await asyncio.wait([self.task], timeout=_STOPPING)


class TurnRegistry(AgentExecutor):
    """An executor of the SDK's that leads the turns of one of Holdfast's.

    Args:
        executor: What does the work.
        agent: The name of the agent, for the log and for the hops of a chain.
        timeout: Seconds that a turn may take; None for no limit.
        env: Where wall time and ids come from.
    """

    def __init__(self, executor: Executor, *, agent: str, timeout: float | None, env: Env) -> None:
        self._executor = executor
        self._agent = agent
        self._timeout = timeout
        self._env = env
        self._runs: dict[str, _Run] = {}
        self._is_stopping = False
        self._grace = ShutdownTimer()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Runs one turn."""
        turn = self._turn(context, event_queue)
        if self._is_stopping:
            await turn.fail(InternalError("the agent is stopping", transient=True))
            return
        task = asyncio.create_task(self._lead(turn), name=f"turn of task {turn.task_id}")
        run = self._runs[turn.task_id] = _Run(turn, task)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            # The SDK ends what ran: some versions before they call `cancel`, some after.
            if not task.done():
                await run.end()
            raise
        finally:
            if self._runs.get(turn.task_id) is run:
                del self._runs[turn.task_id]

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Ends a task because the client says so."""
        run = self._runs.get(context.task_id or "")
        if run is not None:
            run.is_cancelled = True
            await run.end()
        turn = self._turn(context, event_queue)
        try:
            await self._executor.cancel(turn)
        except Exception as failure:
            error = self._told(failure, turn)
            raise sdk_error(error) from failure
        if (run is None or not run.turn.is_over) and not turn.is_over:
            await turn.cancel()
            if run is not None:
                run.turn.close()

    async def stop(self, grace: float) -> int:
        """Lets what runs end, and ends what does not.

        Args:
            grace: Seconds that it has.

        Returns:
            How many were ended.
        """
        self._is_stopping = True
        await self._grace.wait([run.task for run in self._runs.values()], grace)
        late = [run for run in self._runs.values() if not run.task.done()]
        for run in late:
            run.is_stopped = True
        await asyncio.gather(*(self._end(run) for run in late))
        return len(late)

    async def _end(self, run: _Run) -> None:
        """Ends a turn, and says so where it holds on to its cancellation."""
        await run.end()
        if not run.task.done():
            async with CancelScope.within(_STOPPING):
                await self._unless_over(run.turn, run.turn.fail, _stopped())

    def hurry(self) -> None:
        """Takes away what is left of the grace."""
        self._grace.end()

    async def _lead(self, turn: AgentTurn) -> None:
        try:
            await self._to_its_end(turn)
        except asyncio.CancelledError:
            run = self._runs.get(turn.task_id)
            if not pending_cancellations():  # something within was cancelled
                failure = RuntimeError("the executor was cancelled by itself")
                await self._unless_over(turn, turn.fail, self._told(failure, turn))
            elif run is None or not (run.is_stopped or run.is_cancelled):
                raise
            elif run.is_stopped:
                await self._unless_over(turn, turn.fail, _stopped())

    async def _to_its_end(self, turn: AgentTurn) -> None:
        scope = CancelScope()
        if self._timeout is not None:
            scope = CancelScope.within(self._timeout)
        try:
            async with scope:
                await self._executor.execute(turn)
            if scope.expired:
                logger.warning("task %s of %s took too long", turn.task_id, self._agent)
                error = InternalError("the agent took too long", transient=True)
                await self._unless_over(turn, turn.fail, error)
        except Ending as ending:
            await self._unless_over(turn, turn.end, ending)
        except Exception as failure:  # noqa: BLE001  anything may go wrong, and little of it is told
            await self._unless_over(turn, turn.fail, self._told(failure, turn))
        else:
            if not turn.has_end:
                logger.error(
                    "the executor of %s left the turn of task %s without an end",
                    self._agent,
                    turn.task_id,
                )
                await turn.fail(InternalError("internal error"))

    async def _unless_over(self, turn: AgentTurn, end: Any, how: Any) -> None:
        if not turn.is_over:
            await end(how)

    def _told(self, failure: Exception, turn: AgentTurn) -> A2AError:
        """What the client is told of a failure, which is logged."""
        is_meant = isinstance(failure, A2AError)
        logger.log(
            logging.WARNING if is_meant else logging.ERROR,
            "task %s of %s failed: %s: %s",
            turn.task_id,
            self._agent,
            type(failure).__name__,
            failure,
            exc_info=failure,
            extra={"agent": self._agent, "task_id": turn.task_id},
        )
        return error_of_failure(failure, self._agent)

    def _turn(self, context: RequestContext, queue: EventQueue) -> AgentTurn:
        async def emit(event: Event) -> None:
            await queue.enqueue_event(to_proto(event, _MESSAGES[type(event)]))

        said, task = context.message, context.current_task
        return AgentTurn(
            Message() if said is None else to_value(said, Message),
            task=None if task is None else to_value(task, Task),
            task_id=context.task_id or "",
            context_id=context.context_id or "",
            requester=_requester(context),
            emit=emit,
            env=self._env,
        )


def _stopped() -> InternalError:
    return InternalError("the agent was stopped", transient=True)


def _requester(context: RequestContext) -> Requester:
    call = context.call_context
    state = call.state
    headers: Any = state.get("headers")
    if headers is None and "grpc_context" in state:
        headers = state["grpc_context"].invocation_metadata()
    configuration = context.configuration
    return Requester(
        user=call.user.user_name if call.user.is_authenticated else None,
        tenant=call.tenant or None,
        extensions=frozenset(call.requested_extensions),
        headers={str(name).lower(): str(value) for name, value in dict(headers or {}).items()},
        accepts=() if configuration is None else tuple(configuration.accepted_output_modes),
        metadata=dict(context.metadata),
    )
