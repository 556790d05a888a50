"""The turns in flight, as executors of the official SDK; every turn is ended.

Rules: every turn ends with an event, as long as a client can receive it: because the executor
ended it, raised an exception or timed out, because the client cancelled the task, or because the
server stops. Clients see the text of an `A2AError` and of no other exception; all are logged.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from a2a.server.agent_execution import AgentExecutor
from a2a.server.events import EventQueue
from a2a.types import a2a_pb2

from holdfast._aio.cancel_scope import CancelScope, pending_cancellations
from holdfast._server.agent_turns import AgentTurn, Requester
from holdfast._server.answers import error_of_failure
from holdfast._server.outcomes import TurnOutcome
from holdfast._server.safe_handler import sdk_error
from holdfast.errors import A2AError, InternalError
from holdfast.integrations.a2a_sdk import to_proto, to_value
from holdfast.types import Event, Message, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from a2a.server.agent_execution import RequestContext

    from holdfast._server.executors import Executor
    from holdfast.extend import Env

__all__ = ["SdkTurnRegistry", "StoppedTurns", "TurnRegistry"]


class StoppedTurns(NamedTuple):
    """The turns that a shutdown has stopped.

    Attributes:
        number: Number of the turns.
        emitted: The turns whose final state has been emitted, and may have to be stored yet.
    """

    number: int
    emitted: tuple[RequestContext, ...] = ()


class ShutdownTimer:
    """The grace of a shutdown, which can be ended early."""

    def __init__(self) -> None:
        self._scope = CancelScope()

    async def wait(self, running: Iterable[asyncio.Task[Any]], seconds: float) -> None:
        """Wait until all tasks have ended, or the grace is over."""
        tasks = [task for task in running if not task.done()]
        if tasks:
            self._scope.at = asyncio.get_running_loop().time() + seconds
            await self._scope.wait(asyncio.wait(tasks))

    def end(self) -> None:
        """End the grace at once."""
        self._scope.cancel()


logger = logging.getLogger("holdfast.server")

_MESSAGES: dict[type, Any] = {
    Task: a2a_pb2.Task,
    Message: a2a_pb2.Message,
    TaskStatusUpdateEvent: a2a_pb2.TaskStatusUpdateEvent,
    TaskArtifactUpdateEvent: a2a_pb2.TaskArtifactUpdateEvent,
}

_CANCEL_TIMEOUT_S = 5.0
"""Seconds that an executor has to end after it was cancelled."""


class _RunningTurn:
    """A turn in flight, its request, and the task that runs it."""

    def __init__(self, turn: AgentTurn, context: RequestContext, task: asyncio.Task[None]) -> None:
        self.turn = turn
        self.context = context
        self.task = task
        self.is_cancelled = False  # by the client
        self.is_stopped = False  # by the server

    async def end(self) -> None:
        """Cancel the turn, and wait until it has ended, at most 5 s."""
        self.task.cancel()
        await asyncio.wait([self.task], timeout=_CANCEL_TIMEOUT_S)


class TurnRegistry(AgentExecutor):
    """An SDK executor that runs the turns of an `Executor`.

    Args:
        executor: The executor.
        agent: The name of the agent, for the log and for the hops of a chain.
        timeout: Seconds that a turn may take; None for no limit.
        env: Source of wall time and ids.
    """

    def __init__(self, executor: Executor, *, agent: str, timeout: float | None, env: Env) -> None:
        self._executor = executor
        self._agent = agent
        self._timeout = timeout
        self._env = env
        self._running: dict[str, _RunningTurn] = {}
        self._is_stopping = False
        self._grace = ShutdownTimer()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Run one turn."""
        turn = self._turn(context, event_queue)
        if self._is_stopping:
            await turn.fail(InternalError("the agent is stopping", transient=True))
            return
        task = asyncio.create_task(self._run(turn), name=f"turn of task {turn.task_id}")
        running = self._running[turn.task_id] = _RunningTurn(turn, context, task)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            # The SDK cancels the turn: some versions before they call `cancel`, some after.
            if not task.done():
                await running.end()
            raise
        finally:
            if self._running.get(turn.task_id) is running:
                del self._running[turn.task_id]

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancel a task at the client's request."""
        running = self._running.get(context.task_id or "")
        if running is not None:
            running.is_cancelled = True
            await running.end()
        turn = self._turn(context, event_queue)
        try:
            await self._executor.cancel(turn)
        except Exception as failure:
            error = self._safe_error(failure, turn)
            raise sdk_error(error) from failure
        if (running is None or not running.turn.is_over) and not turn.is_over:
            await turn.cancel()
            if running is not None:
                running.turn.close()

    async def stop(self, grace: float) -> StoppedTurns:
        """Refuse new turns, and stop those that are in flight after a grace.

        Args:
            grace: Seconds that turns in flight get to finish.

        Returns:
            The turns that were stopped; each has ended as FAILED.
        """
        self._is_stopping = True
        await self._grace.wait([running.task for running in self._running.values()], grace)
        unfinished = [running for running in self._running.values() if not running.task.done()]
        for running in unfinished:
            running.is_stopped = True
        await asyncio.gather(*(self._stop_turn(running) for running in unfinished))
        emitted = tuple(running.context for running in unfinished if running.turn.is_over)
        return StoppedTurns(len(unfinished), emitted)

    async def _stop_turn(self, running: _RunningTurn) -> None:
        """Cancel a turn; if its executor ignores the cancellation, end its task here."""
        await running.end()
        if not running.task.done():
            async with CancelScope.within(_CANCEL_TIMEOUT_S):
                await self._fail(running.turn, _stopped())

    def end_grace(self) -> None:
        """End the grace of a `stop` in progress at once."""
        self._grace.end()

    async def _run(self, turn: AgentTurn) -> None:
        """Run a turn, and end it also if it is cancelled by the client or the server."""
        try:
            await self._run_uncancelled(turn)
        except asyncio.CancelledError:
            running = self._running.get(turn.task_id)
            if not pending_cancellations():  # the executor raised it by itself
                failure = RuntimeError("the executor was cancelled by itself")
                await self._fail(turn, self._safe_error(failure, turn))
            elif running is None or not (running.is_stopped or running.is_cancelled):
                raise
            elif running.is_stopped:
                await self._fail(turn, _stopped())

    async def _run_uncancelled(self, turn: AgentTurn) -> None:
        scope = CancelScope() if self._timeout is None else CancelScope.within(self._timeout)
        try:
            async with scope:
                await self._executor.execute(turn)
            if scope.expired:
                logger.warning("task %s of %s exceeded its time limit", turn.task_id, self._agent)
                await self._fail(turn, InternalError("the agent took too long", transient=True))
        except TurnOutcome as ending:
            if not turn.is_over:
                await turn.end(ending)
        except Exception as failure:  # noqa: BLE001  it is logged; the client gets no detail
            await self._fail(turn, self._safe_error(failure, turn))
        else:
            if not turn.has_end:
                logger.error(
                    "the executor of %s returned without ending the turn of task %s",
                    self._agent,
                    turn.task_id,
                )
                await turn.fail(InternalError("internal error"))

    async def _fail(self, turn: AgentTurn, error: A2AError) -> None:
        if not turn.is_over:
            await turn.fail(error)

    def _safe_error(self, failure: Exception, turn: AgentTurn) -> A2AError:
        """Log a failure, and return the error that the client gets."""
        _log_failure(failure, self._agent, turn.task_id)
        return error_of_failure(failure, self._agent)

    def _turn(self, context: RequestContext, queue: EventQueue) -> AgentTurn:
        return _agent_turn(context, queue.enqueue_event, self._env)


class _SdkTurnState:
    """What an SDK executor has emitted in one turn.

    Attributes:
        is_announced: Whether the client has the task.
        is_over: Whether the client has the final state of the turn.
        is_closed: Whether further events are dropped, because the server has ended the turn.
    """

    def __init__(self, *, is_announced: bool) -> None:
        self.is_announced = is_announced
        self.is_over = False
        self.is_closed = False

    def record(self, event: object) -> None:
        """Record an event that was emitted."""
        if isinstance(event, a2a_pb2.Message):
            self.is_over = True
            return
        self.is_announced = True
        if isinstance(event, a2a_pb2.Task | a2a_pb2.TaskStatusUpdateEvent):
            self.is_over = event.status.state in _SETTLED


_SETTLED = frozenset(
    {
        a2a_pb2.TASK_STATE_COMPLETED,
        a2a_pb2.TASK_STATE_CANCELED,
        a2a_pb2.TASK_STATE_FAILED,
        a2a_pb2.TASK_STATE_REJECTED,
        a2a_pb2.TASK_STATE_INPUT_REQUIRED,
    }
)
"""States that end a turn."""


class _SdkTurnQueue(EventQueue):
    """The event queue of an SDK executor, which also records the state of the turn."""

    def __init__(self, queue: EventQueue, state: _SdkTurnState) -> None:
        self._queue = queue
        self._state = state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)  # what the SDK's queues have besides

    async def enqueue_event(self, event: Any) -> None:
        """Emit an event, unless the server has ended the turn."""
        if self._state.is_closed:
            logger.debug("an event after the end of its turn was dropped")
            return
        await self._queue.enqueue_event(event)
        self._state.record(event)


class _RunningSdkTurn:
    """A turn of an SDK executor in flight, and the task that runs it."""

    def __init__(self, context: RequestContext, queue: EventQueue) -> None:
        self.context = context
        self.queue = queue
        self.state = _SdkTurnState(is_announced=context.current_task is not None)
        self.is_stopped = False  # by the server
        self.task: asyncio.Task[None] | None = None


class SdkTurnRegistry(AgentExecutor):
    """An SDK executor that runs the turns of another one, each in a task of its own.

    What the executor emits and raises is left to the SDK, except for turns that the server stops.

    Args:
        executor: The executor.
        agent: The name of the agent, for the log.
        env: Source of wall time and ids.
    """

    def __init__(self, executor: AgentExecutor, *, agent: str, env: Env) -> None:
        self._executor = executor
        self._agent = agent
        self._env = env
        self._running: dict[str, _RunningSdkTurn] = {}
        self._is_stopping = False
        self._grace = ShutdownTimer()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Run one turn."""
        task_id = context.task_id or ""
        running = _RunningSdkTurn(context, event_queue)
        if self._is_stopping:
            await self._fail(running, InternalError("the agent is stopping", transient=True))
            return
        running.task = asyncio.create_task(self._run(running), name=f"turn of task {task_id}")
        self._running[task_id] = running
        try:
            await running.task  # a cancellation by the SDK reaches the executor
        finally:
            if self._running.get(task_id) is running:
                del self._running[task_id]

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancel a task at the client's request."""
        running = self._running.get(context.task_id or "")
        if running is not None:
            event_queue = _SdkTurnQueue(event_queue, running.state)
        await self._executor.cancel(context, event_queue)

    async def stop(self, grace: float) -> StoppedTurns:
        """Refuse new turns, and stop those that are in flight after a grace.

        Args:
            grace: Seconds that turns in flight get to finish.

        Returns:
            The turns that were stopped. Each has ended as FAILED, unless its executor ended it
            otherwise when it was cancelled.
        """
        self._is_stopping = True
        turns = [(turn, turn.task) for turn in self._running.values() if turn.task is not None]
        await self._grace.wait([task for _, task in turns], grace)
        unfinished = [(turn, task) for turn, task in turns if not task.done()]
        await asyncio.gather(*(self._stop_turn(turn, task) for turn, task in unfinished))
        emitted = tuple(turn.context for turn, _ in unfinished if turn.state.is_over)
        return StoppedTurns(len(unfinished), emitted)

    def end_grace(self) -> None:
        """End the grace of a `stop` in progress at once."""
        self._grace.end()

    async def _stop_turn(self, running: _RunningSdkTurn, task: asyncio.Task[None]) -> None:
        """Cancel a turn; if its executor ignores the cancellation, end its task here."""
        running.is_stopped = True
        task.cancel()
        await asyncio.wait([task], timeout=_CANCEL_TIMEOUT_S)
        if not task.done():
            async with CancelScope.within(_CANCEL_TIMEOUT_S):
                await self._fail(running, _stopped())

    async def _run(self, running: _RunningSdkTurn) -> None:
        """Run a turn, and end it if the server stops it."""
        queue = _SdkTurnQueue(running.queue, running.state)
        try:
            await self._executor.execute(running.context, queue)
        except asyncio.CancelledError:
            if not running.is_stopped:
                raise
        except Exception as failure:
            if not running.is_stopped:
                raise
            _log_failure(failure, self._agent, running.context.task_id or "")
        if running.is_stopped:
            await self._fail(running, _stopped())

    async def _fail(self, running: _RunningSdkTurn, error: A2AError) -> None:
        """End a turn as FAILED, unless it has ended, and drop what its executor emits later."""
        state = running.state
        if state.is_over or state.is_closed:
            return
        state.is_closed = True

        async def emit(event: Any) -> None:
            if isinstance(event, a2a_pb2.Task) and state.is_announced:
                return
            await running.queue.enqueue_event(event)
            state.record(event)

        await _agent_turn(running.context, emit, self._env).fail(error)


def _log_failure(failure: Exception, agent: str, task_id: str) -> None:
    logger.log(
        logging.WARNING if isinstance(failure, A2AError) else logging.ERROR,
        "task %s of %s failed: %s: %s",
        task_id,
        agent,
        type(failure).__name__,
        failure,
        exc_info=failure,
        extra={"agent": agent, "task_id": task_id},
    )


def _agent_turn(
    context: RequestContext, emit: Callable[[Any], Awaitable[None]], env: Env
) -> AgentTurn:
    """Return the turn of a request of the SDK.

    Args:
        context: The request.
        emit: Gets the events of the turn, as the SDK's messages.
        env: Source of wall time and ids.
    """

    async def emit_value(event: Event) -> None:
        await emit(to_proto(event, _MESSAGES[type(event)]))

    message, task = context.message, context.current_task
    return AgentTurn(
        Message() if message is None else to_value(message, Message),
        task=None if task is None else to_value(task, Task),
        task_id=context.task_id or "",
        context_id=context.context_id or "",
        requester=_requester(context),
        emit=emit_value,
        env=env,
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
