"""The turns in flight, as executors of the official SDK; every turn is ended.

Rules: every turn ends with an event, as long as a client can receive it: because the executor
ended it, raised an exception or timed out, because the client cancelled the task, or because the
server stops. Clients see the text of an `A2AError` and of no other exception; all are logged.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from a2a.server.agent_execution import AgentExecutor
from a2a.server.events import EventQueue
from a2a.types import a2a_pb2

from holdfast._aio.cancel_scope import CancelScope, pending_cancellations
from holdfast._server.agent_turns import AgentTurn, Requester
from holdfast._server.answers import error_of_failure
from holdfast._server.outcomes import TurnOutcome
from holdfast._server.safe_handler import sdk_error
from holdfast._server.tracing import span_of
from holdfast.errors import A2AError, InternalError
from holdfast.integrations.a2a_sdk import to_proto, to_value
from holdfast.types import Event, Message, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from a2a.server.agent_execution import RequestContext

    from holdfast._server.executors import Executor
    from holdfast._server.tracing import TurnSpans
    from holdfast.extend import Env
    from holdfast.observe import ServerSpan

__all__ = ["SdkTurnRegistry", "StoppedTurns", "TurnRegistry"]

logger = logging.getLogger("holdfast.server")

_MESSAGES: dict[type, Any] = {
    Task: a2a_pb2.Task,
    Message: a2a_pb2.Message,
    TaskStatusUpdateEvent: a2a_pb2.TaskStatusUpdateEvent,
    TaskArtifactUpdateEvent: a2a_pb2.TaskArtifactUpdateEvent,
}

_CANCEL_TIMEOUT_S = 5.0
"""Seconds that an executor has to end after it was cancelled."""

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


class StoppedTurns(NamedTuple):
    """The turns that a shutdown has stopped.

    Attributes:
        number: Number of the turns.
        emitted: The turns whose final state has been emitted, and may have to be stored yet.
    """

    number: int
    emitted: tuple[RequestContext, ...] = ()


class _RunningTurn(ABC):
    """A turn in flight.

    Args:
        context: Its request.

    Attributes:
        context: Its request.
        task: The task that runs it.
        is_stopped: Whether the server has stopped it.
    """

    task: asyncio.Task[None]

    def __init__(self, context: RequestContext) -> None:
        self.context = context
        self.is_stopped = False

    @property
    def task_id(self) -> str:
        """The id of the agent's task."""
        return self.context.task_id or ""

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether the final state of the turn has been emitted."""

    @abstractmethod
    async def fail(self, error: A2AError) -> None:
        """End the turn as FAILED, unless it is over."""

    async def cancel(self) -> None:
        """Cancel the turn, and wait until it has ended, at most 5 s."""
        self.task.cancel()
        await asyncio.wait([self.task], timeout=_CANCEL_TIMEOUT_S)

    async def stop(self) -> None:
        """Cancel the turn; if its executor ignores the cancellation, end its task here."""
        await self.cancel()
        if not self.task.done():
            async with CancelScope.within(_CANCEL_TIMEOUT_S):
                await self.fail(_stopped())


R = TypeVar("R", bound=_RunningTurn)


class _Registry(AgentExecutor, Generic[R]):
    """An SDK executor that runs each turn in a task of its own, until the server stops.

    Attributes:
        spans: Gets the span of each turn; None if there are no spans of pushes.
    """

    def __init__(self) -> None:
        self.spans: TurnSpans | None = None
        self._running: dict[str, R] = {}
        self._is_stopping = False
        self._grace = CancelScope()

    @abstractmethod
    def _new_turn(self, context: RequestContext, queue: EventQueue) -> R:
        """Return the turn of a request."""

    @abstractmethod
    async def _run(self, running: R) -> None:
        """Run a turn to its end."""

    async def _wait(self, running: R) -> None:
        """Wait for the end of a turn; a cancellation by the SDK reaches the executor."""
        await running.task

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Run one turn."""
        running = self._new_turn(context, event_queue)
        if self._is_stopping:
            await running.fail(InternalError("the agent is stopping", transient=True))
            return
        task_id = running.task_id
        span = span_of(context.call_context)
        if span is not None and self.spans is not None:
            self.spans.add(task_id, span)
        run = self._run(running) if span is None else self._run_in(span, running)
        running.task = asyncio.create_task(run, name=f"turn of task {task_id}")
        self._running[task_id] = running
        try:
            await self._wait(running)
        finally:
            if self._running.get(task_id) is running:
                del self._running[task_id]

    async def _run_in(self, span: ServerSpan, running: R) -> None:
        """Run a turn below the span of its request, which may end earlier."""
        with span.attached():
            await self._run(running)

    async def stop(self, grace: float) -> StoppedTurns:
        """Refuse new turns, and stop those that are in flight after a grace.

        Args:
            grace: Seconds that turns in flight get to finish.

        Returns:
            The turns that were stopped. Each has ended as FAILED, unless its executor ended it
            otherwise when it was cancelled.
        """
        self._is_stopping = True
        turns = [*self._running.values()]
        if tasks := [turn.task for turn in turns if not turn.task.done()]:
            self._grace.at = asyncio.get_running_loop().time() + grace
            await self._grace.wait(asyncio.wait(tasks))
        unfinished = [turn for turn in turns if not turn.task.done()]
        for turn in unfinished:
            turn.is_stopped = True
        await asyncio.gather(*(turn.stop() for turn in unfinished))
        emitted = tuple(turn.context for turn in unfinished if turn.is_over)
        return StoppedTurns(len(unfinished), emitted)

    def end_grace(self) -> None:
        """End the grace of a `stop` in progress at once."""
        self._grace.cancel()


# ── Executors of Holdfast ────────────────────────────────────────────────────────────────────────


class _RunningAgentTurn(_RunningTurn):
    """A turn of an `Executor` in flight."""

    def __init__(self, context: RequestContext, turn: AgentTurn) -> None:
        super().__init__(context)
        self.turn = turn
        self.is_cancelled = False  # by the client

    @property
    def is_over(self) -> bool:
        return self.turn.is_over

    async def fail(self, error: A2AError) -> None:
        if not self.turn.is_over:
            await self.turn.fail(error)


class TurnRegistry(_Registry[_RunningAgentTurn]):
    """An SDK executor that runs the turns of an `Executor`.

    Args:
        executor: The executor.
        agent: The name of the agent, for the log and for the hops of a chain.
        timeout: Seconds that a turn may take; None for no limit.
        env: Source of wall time and ids.
    """

    def __init__(self, executor: Executor, *, agent: str, timeout: float | None, env: Env) -> None:
        super().__init__()
        self._executor = executor
        self._agent = agent
        self._timeout = timeout
        self._env = env

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancel a task at the client's request."""
        running = self._running.get(context.task_id or "")
        if running is not None:
            running.is_cancelled = True
            await running.cancel()
        turn = self._turn(context, event_queue)
        try:
            await self._executor.cancel(turn)
        except Exception as failure:
            error = self._safe_error(failure, turn)
            raise sdk_error(error) from failure
        if (running is None or not running.is_over) and not turn.is_over:
            await turn.cancel()
            if running is not None:
                running.turn.close()

    def _new_turn(self, context: RequestContext, queue: EventQueue) -> _RunningAgentTurn:
        return _RunningAgentTurn(context, self._turn(context, queue))

    async def _wait(self, running: _RunningAgentTurn) -> None:
        """Wait for the end of a turn, also if the SDK cancels it.

        Some versions of the SDK do so before they call `cancel`, some after.
        """
        try:
            await asyncio.shield(running.task)
        except asyncio.CancelledError:
            if not running.task.done():
                await running.cancel()
            raise

    async def _run(self, running: _RunningAgentTurn) -> None:
        """Run a turn, and end it also if it is cancelled by the client or the server."""
        try:
            await self._execute_in_time(running)
        except asyncio.CancelledError:
            if not pending_cancellations():  # the executor raised it by itself
                failure = RuntimeError("the executor was cancelled by itself")
                await running.fail(self._safe_error(failure, running.turn))
            elif running.is_stopped:
                await running.fail(_stopped())
            elif not running.is_cancelled:
                raise

    async def _execute_in_time(self, running: _RunningAgentTurn) -> None:
        """Run the executor within the timeout, and end the turn as the executor has ended."""
        turn = running.turn
        scope = CancelScope() if self._timeout is None else CancelScope.within(self._timeout)
        try:
            async with scope:
                await self._executor.execute(turn)
            if scope.expired:
                logger.warning("task %s of %s exceeded its time limit", turn.task_id, self._agent)
                await running.fail(InternalError("the agent took too long", transient=True))
        except TurnOutcome as ending:
            if not turn.is_over:
                await turn.end(ending)
        except Exception as failure:  # noqa: BLE001  it is logged; the client gets no detail
            await running.fail(self._safe_error(failure, turn))
        else:
            if not turn.has_end:
                logger.error(
                    "the executor of %s returned without ending the turn of task %s",
                    self._agent,
                    turn.task_id,
                )
                await turn.fail(InternalError("internal error"))

    def _safe_error(self, failure: Exception, turn: AgentTurn) -> A2AError:
        """Log a failure, and return the error that the client gets."""
        _log_failure(failure, self._agent, turn.task_id)
        return error_of_failure(failure, self._agent)

    def _turn(self, context: RequestContext, queue: EventQueue) -> AgentTurn:
        return _agent_turn(context, queue.enqueue_event, self._env)


# ── Executors of the official SDK ────────────────────────────────────────────────────────────────


class _RunningSdkTurn(_RunningTurn):
    """A turn of an SDK executor in flight.

    Attributes:
        queue: The queue for the events of the turn.
        is_closed: Whether the server has ended the turn, so that further events are dropped.
    """

    def __init__(self, context: RequestContext, queue: EventQueue, env: Env) -> None:
        super().__init__(context)
        self.queue = queue
        self.is_closed = False
        self._env = env
        self._is_announced = context.current_task is not None  # to the client
        self._is_over = False

    @property
    def is_over(self) -> bool:
        return self._is_over

    def record(self, event: object) -> None:
        """Record an event that was emitted."""
        if isinstance(event, a2a_pb2.Message):
            self._is_over = True
            return
        self._is_announced = True
        if isinstance(event, a2a_pb2.Task | a2a_pb2.TaskStatusUpdateEvent):
            self._is_over = event.status.state in _SETTLED

    async def fail(self, error: A2AError) -> None:
        """End the turn as FAILED, unless it is over; drop what its executor emits later."""
        if self._is_over or self.is_closed:
            return
        self.is_closed = True

        async def emit(event: Any) -> None:
            if isinstance(event, a2a_pb2.Task) and self._is_announced:
                return
            await self.queue.enqueue_event(event)
            self.record(event)

        await _agent_turn(self.context, emit, self._env).fail(error)


class _SdkTurnQueue(EventQueue):
    """The event queue of an SDK executor, which also records what the turn has emitted."""

    def __init__(self, queue: EventQueue, turn: _RunningSdkTurn) -> None:
        self._queue = queue
        self._turn = turn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)  # what the SDK's queues have besides

    async def enqueue_event(self, event: Any) -> None:
        """Emit an event, unless the server has ended the turn."""
        if self._turn.is_closed:
            logger.debug("an event after the end of its turn was dropped")
            return
        await self._queue.enqueue_event(event)
        self._turn.record(event)


class SdkTurnRegistry(_Registry[_RunningSdkTurn]):
    """An SDK executor that runs the turns of another one.

    What the executor emits and raises is left to the SDK, except for turns that the server stops.

    Args:
        executor: The executor.
        agent: The name of the agent, for the log.
        env: Source of wall time and ids.
    """

    def __init__(self, executor: AgentExecutor, *, agent: str, env: Env) -> None:
        super().__init__()
        self._executor = executor
        self._agent = agent
        self._env = env

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancel a task at the client's request."""
        running = self._running.get(context.task_id or "")
        if running is not None:
            event_queue = _SdkTurnQueue(event_queue, running)
        await self._executor.cancel(context, event_queue)

    def _new_turn(self, context: RequestContext, queue: EventQueue) -> _RunningSdkTurn:
        return _RunningSdkTurn(context, queue, self._env)

    async def _run(self, running: _RunningSdkTurn) -> None:
        """Run a turn, and end it if the server stops it."""
        queue = _SdkTurnQueue(running.queue, running)
        try:
            await self._executor.execute(running.context, queue)
        except asyncio.CancelledError:
            if not running.is_stopped:
                raise
        except Exception as failure:
            if not running.is_stopped:
                raise
            _log_failure(failure, self._agent, running.task_id)
        if running.is_stopped:
            await running.fail(_stopped())


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
