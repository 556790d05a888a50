"""The operations of a fake agent: its tasks and push notification configurations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast import protocol as op
from holdfast._arguments import check_kind
from holdfast._testing.parsed_request import Refusal
from holdfast._testing.plans import Behaviour, Plan, ReceivedMessage, Step, completes
from holdfast._testing.streaming import Events, Streaming
from holdfast._testing.timeline import EPOCH, Store, TaskTimeline
from holdfast.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    Empty,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ContextHandling", "Operations", "Result"]

ContextHandling = Literal["taken", "refused", "ignored"]
"""Handling of an unknown context id by a fake agent."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an operation.

    Attributes:
        value: Returns the result at a time of the event loop's clock; may raise a `Refusal`.
        after: The timeline that must settle before the reply; None to reply at once.
        events: The stream, if the result is one; `value` is not used then.
    """

    value: Callable[[float], object] = lambda _now: None
    after: TaskTimeline | None = None
    events: Events | None = None


class Operations:
    """The tasks of a fake agent, and the operations on them.

    Args:
        behaviour: Decides on the outcome of each message.
        cancel_takes: Seconds from a cancel request until the task is CANCELED; None for never.
        records_messages: Whether messages appear in a task's history.
        lists_tasks: Whether it has a list of tasks.
        contexts: What it does with an unknown context id.
        streaming: How it streams; None if it does not.
        store_lag: Seconds until stored tasks show an event.
        reply_lag: Seconds for which a task stays unchanged after a message that continues it.
        id_suffix: The end of the ids that it makes.
        store: Keeps its tasks and configurations.

    Attributes:
        timelines: The tasks' timelines, by id.
        executions: By message id: the ids of the tasks or reply messages that it created.
        epoch: Wall time when the event loop's clock shows zero, in seconds since 1970.
    """

    def __init__(
        self,
        behaviour: Behaviour,
        *,
        cancel_takes: float | None,
        records_messages: bool,
        lists_tasks: bool,
        contexts: ContextHandling,
        streaming: Streaming | None,
        store_lag: float,
        reply_lag: float,
        id_suffix: str,
        store: Store,
    ) -> None:
        self.timelines = store.timelines
        self.executions: dict[str, list[str]] = {}
        self._behaviour = behaviour
        self._cancel_takes = cancel_takes
        self._records_messages = records_messages
        self._contexts = contexts
        self._streaming = streaming
        self._store_lag = store_lag
        self._reply_lag = reply_lag
        self._configs = store.configs
        self._numbers = store.numbers
        self._id_suffix = id_suffix
        self.epoch = EPOCH
        self._by_name: dict[str, Callable[[Any, float], Result]] = {
            op.SEND_MESSAGE.name: self._send,
            op.SEND_STREAMING_MESSAGE.name: self._stream,
            op.SUBSCRIBE_TO_TASK.name: self._subscribe,
            op.GET_TASK.name: self._get,
            op.LIST_TASKS.name: self._list,
            op.CANCEL_TASK.name: self._cancel,
            op.CREATE_PUSH_CONFIG.name: self._create_config,
            op.GET_PUSH_CONFIG.name: self._get_config,
            op.LIST_PUSH_CONFIGS.name: self._list_configs,
            op.DELETE_PUSH_CONFIG.name: self._delete_config,
        }
        if not lists_tasks:
            del self._by_name[op.LIST_TASKS.name]

    def execute(self, operation: str, params: object, now: float) -> Result:
        """Execute an operation.

        Args:
            operation: The operation's name.
            params: Its parameters.
            now: The event loop's time in seconds.

        Raises:
            Refusal: The agent answers with an error.
        """
        method = self._by_name.get(operation)
        if method is None:
            raise Refusal(-32601, f"Method not found: {operation}")
        return method(params, now)

    # ── Messages and tasks ───────────────────────────────────────────────────────────────────

    def _send(self, request: SendMessageRequest, now: float) -> Result:
        outcome = self._take(request, now)
        if isinstance(outcome, Message):
            return _at_once(SendMessageResponse(message=outcome))
        configuration = request.configuration or SendMessageConfiguration()
        immediately, length = configuration.return_immediately, configuration.history_length
        timeline = outcome

        def value(then: float) -> SendMessageResponse:
            crash = None if immediately else timeline.crash(then)
            if crash is not None:
                raise Refusal(-32603, crash)
            return SendMessageResponse(task=_with_history(timeline.task(then), length))

        return Result(value=value, after=None if immediately else timeline)

    def _stream(self, request: SendMessageRequest, now: float) -> Result:
        streaming = self._checked_streaming()
        is_new = not request.message.task_id
        outcome = self._take(request, now)
        if isinstance(outcome, Message):
            return Result(events=Events(streaming, StreamResponse(message=outcome)))
        length = None if request.configuration is None else request.configuration.history_length
        task = _with_history(outcome.task_at(outcome.opening_end), length)
        if is_new:
            return Result(events=Events.for_new_task(streaming, outcome, task))
        return Result(
            events=Events.for_existing_task(streaming, outcome, outcome.opening_end, task)
        )

    def _subscribe(self, request: SubscribeToTaskRequest, now: float) -> Result:
        streaming = self._checked_streaming()
        timeline = self._timeline(request.id)
        task = self._stored(timeline, now)
        if task.state.is_terminal:
            raise Refusal(-32004, f"Task {timeline.task_id} is in terminal state: {task.state}")
        return Result(
            events=Events.for_existing_task(streaming, timeline, timeline.position(now), task)
        )

    def _take(self, request: SendMessageRequest, now: float) -> TaskTimeline | Message:
        """Execute a message; return the timeline that it started or continued, or the reply."""
        message, configuration = request.message, request.configuration
        if not message.message_id or not message.parts:
            raise Refusal(-32602, "Validation failed: a message needs messageId and parts")
        if message.role is not Role.USER:  # as the official SDK's servers answer
            raise Refusal(-32603, "Message must be from a user")
        timeline = self._continued(message, now)
        if timeline is None:
            message = self._with_accepted_context(message)
        task = None if timeline is None else timeline.task(now)
        outcome = self._behaviour(ReceivedMessage(message=message, task=task))
        check_kind(
            "the result of behaviour", outcome, (Message, Plan, str), or_else=", a Plan or text"
        )
        created_ids = self.executions.setdefault(message.message_id, [])
        if isinstance(outcome, Message):
            reply = msgspec.structs.replace(
                outcome,
                message_id=outcome.message_id or self._new_id("message"),
                context_id=message.context_id or self._new_id("context"),
            )
            created_ids.append(reply.message_id)
            return reply
        if timeline is None:
            timeline = TaskTimeline(
                self._new_id("task"),
                message.context_id or self._new_id("context"),
                keeps_history=self._records_messages,
                epoch=self.epoch,
            )
            self.timelines[timeline.task_id] = timeline
        created_ids.append(timeline.task_id)
        plan = completes(outcome) if isinstance(outcome, str) else outcome
        lag = 0.0 if task is None else self._reply_lag
        if lag:  # such a server does not publish the task again
            steps = (step for step in plan.steps if step.state is not TaskState.SUBMITTED)
            plan = Plan(tuple(steps), plan.crash)
        timeline.begin(plan, message, now, lag=lag)
        push = None if configuration is None else configuration.task_push_notification_config
        if push is not None:
            self._create_config(msgspec.structs.replace(push, task_id=timeline.task_id), now)
        return timeline

    def _with_accepted_context(self, message: Message) -> Message:
        """Return a message that starts a task, with a context id that the agent accepts."""
        context_ids = {timeline.context_id for timeline in self.timelines.values()}
        is_known = not message.context_id or message.context_id in context_ids
        if self._contexts == "taken" or is_known:
            return message
        if self._contexts == "refused":
            raise Refusal(-32602, f"Context {message.context_id} is unknown")
        return msgspec.structs.replace(message, context_id=None)

    def _continued(self, message: Message, now: float) -> TaskTimeline | None:
        """Return the timeline that a message continues (A2A 3.4.3); None if it starts one."""
        if not message.task_id:
            return None
        timeline = self._timeline(message.task_id)
        if message.context_id and message.context_id != timeline.context_id:
            raise Refusal(
                -32602,
                f"Context {message.context_id} does not match context {timeline.context_id} of "
                f"task {timeline.task_id}",
            )
        state = timeline.task(now).state
        if state.is_terminal:
            raise Refusal(-32004, f"Task {timeline.task_id} is in terminal state: {state}")
        return timeline

    def _get(self, request: GetTaskRequest, now: float) -> Result:
        task = self._stored(self._timeline(request.id), now)
        return _at_once(_with_history(task, request.history_length))

    def _list(self, request: ListTasksRequest, now: float) -> Result:
        size = 50 if request.page_size is None else request.page_size
        if not 1 <= size <= 100:
            raise Refusal(-32602, "a page holds 1 to 100 tasks")
        start = _page_start(request.page_token)
        tasks = sorted(self._matching(request, now), key=_updated, reverse=True)
        end = start + size
        page = (
            task if request.include_artifacts else msgspec.structs.replace(task, artifacts=())
            for task in tasks[start:end]
        )
        return _at_once(
            ListTasksResponse(
                tasks=tuple(_with_history(task, request.history_length) for task in page),
                next_page_token=f"from-{end}" if end < len(tasks) else "",
                page_size=size,
                total_size=len(tasks),
            )
        )

    def _matching(self, request: ListTasksRequest, now: float) -> Iterator[Task]:
        after = _time(request.status_timestamp_after)
        for timeline in reversed(self.timelines.values()):
            task = self._stored(timeline, now)
            if (
                (not request.context_id or task.context_id == request.context_id)
                and (not request.status or task.state is request.status)
                and (after is None or _updated(task) >= after)
            ):
                yield task

    def _cancel(self, request: CancelTaskRequest, now: float) -> Result:
        timeline = self._timeline(request.id)
        state = timeline.task(now).state
        if state.is_terminal:
            metadata = {"taskId": request.id, "state": str(state)}
            raise Refusal(-32002, "Task cannot be canceled", metadata=metadata)
        if self._cancel_takes is not None:
            canceled = Step(state=TaskState.CANCELED, after=self._cancel_takes)
            timeline.begin(Plan((canceled,)), None, now)
        return _at_once(timeline.task(now))

    # ── Push notifications ───────────────────────────────────────────────────────────────────

    def _create_config(self, config: TaskPushNotificationConfig, _now: float) -> Result:
        if not config.url:
            raise Refusal(-32602, "Validation failed: url is required")
        timeline = self._timeline(config.task_id or "")
        stored = msgspec.structs.replace(config, id=config.id or timeline.task_id, tenant=None)
        self._configs[timeline.task_id, config.id or timeline.task_id] = stored
        return _at_once(stored)

    def _get_config(self, request: GetTaskPushNotificationConfigRequest, _now: float) -> Result:
        config = self._configs.get((request.task_id, request.id))
        if config is None:
            raise _not_found(request.task_id)
        return _at_once(config)

    def _list_configs(
        self, request: ListTaskPushNotificationConfigsRequest, _now: float
    ) -> Result:
        self._timeline(request.task_id)
        configs = tuple(
            config for (task_id, _), config in self._configs.items() if task_id == request.task_id
        )
        return _at_once(ListTaskPushNotificationConfigsResponse(configs=configs))

    def _delete_config(
        self, request: DeleteTaskPushNotificationConfigRequest, _now: float
    ) -> Result:
        if self._configs.pop((request.task_id, request.id), None) is None:
            raise _not_found(request.task_id)
        return _at_once(Empty())

    # ── Internal ─────────────────────────────────────────────────────────────────────────────

    def _timeline(self, task_id: str) -> TaskTimeline:
        timeline = self.timelines.get(task_id)
        if timeline is None:
            raise _not_found(task_id)
        return timeline

    def _stored(self, timeline: TaskTimeline, now: float) -> Task:
        """Return a task as GetTask and ListTasks show it."""
        return timeline.task(now - self._store_lag)

    def _checked_streaming(self) -> Streaming:
        if self._streaming is None:
            raise Refusal(-32004, "Streaming is not supported by the agent")
        return self._streaming

    def _new_id(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}{self._id_suffix}"


def _at_once(value: object) -> Result:
    return Result(value=lambda _now: value)


def _not_found(task_id: str) -> Refusal:
    return Refusal(-32001, "Task not found", metadata={"taskId": task_id})


def _with_history(task: Task, length: int | None) -> Task:
    if length is None:
        return task
    if length < 0:
        raise Refusal(-32602, "history length must be non-negative")
    return msgspec.structs.replace(task, history=task.history[-length:] if length else ())


def _page_start(token: str | None) -> int:
    if not token:
        return 0
    start = token.removeprefix("from-")
    if not start.isdecimal():
        raise Refusal(-32602, "unknown page token")
    return int(start)


def _updated(task: Task) -> datetime:
    return task.status.time or datetime.min.replace(tzinfo=UTC)


def _time(timestamp: str | None) -> datetime | None:
    if not timestamp:
        return None
    try:
        time = datetime.fromisoformat(timestamp)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise Refusal(-32602, "statusTimestampAfter must be a time with a zone")
    return time
