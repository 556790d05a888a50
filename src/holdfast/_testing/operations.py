"""What a fake agent does for each operation of the protocol: its tasks and configurations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast._model import operations as op
from holdfast._testing.plans import Behaviour, Plan, Step, Turn, completes
from holdfast._testing.serverwire import Refusal
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

__all__ = ["Contexts", "Operations", "Result"]

Contexts = Literal["taken", "refused", "ignored"]
"""What an agent does with a context that it does not know."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation answers.

    Attributes:
        value: Makes the answer at a moment of the event loop's clock; may raise a `Refusal`.
        after: The life that has to settle before; None to answer at once.
        events: The answer in place of `value`, if it is a stream.
    """

    value: Callable[[float], object] = lambda _now: None
    after: TaskTimeline | None = None
    events: Events | None = None


class Operations:
    """The tasks of a fake agent, and what may be done with them.

    Args:
        behaviour: What it does with a message.
        cancel_takes: Seconds from a request to cancel until the task is CANCELED; None for never.
        records_messages: Whether messages appear in a task's history.
        lists_tasks: Whether it has a list of tasks.
        contexts: What it does with a context that it does not know.
        streaming: How it streams; None if it does not.
        store_lag: Seconds until what is stored shows what happened.
        reply_lag: Seconds for which a task stays as it is after a reply.
        id_suffix: What the ids that it makes end with.
        store: Where its tasks and configurations are kept.

    Attributes:
        lives: The tasks' lives, by id.
        executions: The ids of the tasks, or of the reply messages, that each message id made.
        epoch: Wall time when the event loop's clock shows zero, in seconds since 1970.
    """

    def __init__(
        self,
        behaviour: Behaviour,
        *,
        cancel_takes: float | None,
        records_messages: bool,
        lists_tasks: bool,
        contexts: Contexts,
        streaming: Streaming | None,
        store_lag: float,
        reply_lag: float,
        id_suffix: str,
        store: Store,
    ) -> None:
        self.lives = store.lives
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
        """Does an operation, by its name.

        Raises:
            Refusal: The agent says no.
        """
        do = self._by_name.get(operation)
        if do is None:
            raise Refusal(-32601, f"Method not found: {operation}")
        return do(params, now)

    # ── Messages and tasks ───────────────────────────────────────────────────────────────────

    def _send(self, request: SendMessageRequest, now: float) -> Result:
        outcome = self._take(request, now)
        if isinstance(outcome, Message):
            return _at_once(SendMessageResponse(message=outcome))
        configuration = request.configuration or SendMessageConfiguration()
        immediately, length = configuration.return_immediately, configuration.history_length
        life = outcome

        def value(then: float) -> SendMessageResponse:
            crash = None if immediately else life.crash(then)
            if crash is not None:
                raise Refusal(-32603, crash)
            return SendMessageResponse(task=_with_history(life.task(then), length))

        return Result(value=value, after=None if immediately else life)

    def _stream(self, request: SendMessageRequest, now: float) -> Result:
        streaming = self._checked_streaming()
        is_new = not request.message.task_id
        outcome = self._take(request, now)
        if isinstance(outcome, Message):
            return Result(events=Events(streaming, StreamResponse(message=outcome)))
        length = None if request.configuration is None else request.configuration.history_length
        task = _with_history(outcome.task_at(outcome.opening), length)
        if is_new:
            return Result(events=Events.of_new(streaming, outcome, task))
        return Result(events=Events.of_known(streaming, outcome, outcome.opening, task))

    def _subscribe(self, request: SubscribeToTaskRequest, now: float) -> Result:
        streaming = self._checked_streaming()
        life = self._life(request.id)
        task = self._stored(life, now)
        if task.state.is_terminal:
            raise Refusal(-32004, f"Task {life.task_id} is in terminal state: {task.state}")
        return Result(events=Events.of_known(streaming, life, life.place(now), task))

    def _take(self, request: SendMessageRequest, now: float) -> TaskTimeline | Message:
        """Does what a message asks for: a life that it made or goes on with, or a reply."""
        message, configuration = request.message, request.configuration
        if not message.message_id or not message.parts:
            raise Refusal(-32602, "Validation failed: a message needs messageId and parts")
        life = self._continued(message, now)
        if life is None:
            message = self._in_context(message)
        present = None if life is None else life.task(now)
        outcome = self._behaviour(Turn(message=message, task=present))
        made = self.executions.setdefault(message.message_id, [])
        if isinstance(outcome, Message):
            reply = msgspec.structs.replace(
                outcome,
                message_id=outcome.message_id or self._new_id("message"),
                context_id=message.context_id or self._new_id("context"),
            )
            made.append(reply.message_id)
            return reply
        if life is None:
            life = TaskTimeline(
                self._new_id("task"),
                message.context_id or self._new_id("context"),
                keeps_history=self._records_messages,
                epoch=self.epoch,
            )
            self.lives[life.task_id] = life
        made.append(life.task_id)
        plan = completes(outcome) if isinstance(outcome, str) else outcome
        lag = 0.0 if present is None else self._reply_lag
        if lag:  # such a server does not publish the task anew
            steps = (step for step in plan.steps if step.state is not TaskState.SUBMITTED)
            plan = Plan(tuple(steps), plan.crash)
        life.begin(plan, message, now, lag=lag)
        push = None if configuration is None else configuration.task_push_notification_config
        if push is not None:
            self._create_config(msgspec.structs.replace(push, task_id=life.task_id), now)
        return life

    def _in_context(self, message: Message) -> Message:
        """A message that begins a task, in a context that the agent is content with."""
        known = {life.context_id for life in self.lives.values()}
        if self._contexts == "taken" or not message.context_id or message.context_id in known:
            return message
        if self._contexts == "refused":
            raise Refusal(-32602, f"Context {message.context_id} is unknown")
        return msgspec.structs.replace(message, context_id=None)

    def _continued(self, message: Message, now: float) -> TaskTimeline | None:
        """The life that a message continues (A2A 3.4.3); None if it begins one."""
        if not message.task_id:
            return None
        life = self._life(message.task_id)
        if message.context_id and message.context_id != life.context_id:
            raise Refusal(
                -32602,
                f"Context {message.context_id} does not match context {life.context_id} of task "
                f"{life.task_id}",
            )
        state = life.task(now).state
        if state.is_terminal:
            raise Refusal(-32004, f"Task {life.task_id} is in terminal state: {state}")
        return life

    def _get(self, request: GetTaskRequest, now: float) -> Result:
        task = self._stored(self._life(request.id), now)
        return _at_once(_with_history(task, request.history_length))

    def _list(self, request: ListTasksRequest, now: float) -> Result:
        size = 50 if request.page_size is None else request.page_size
        if not 1 <= size <= 100:
            raise Refusal(-32602, "a page holds 1 to 100 tasks")
        start = _page_start(request.page_token)
        found = sorted(self._matching(request, now), key=_updated, reverse=True)
        end = start + size
        page = (
            task if request.include_artifacts else msgspec.structs.replace(task, artifacts=())
            for task in found[start:end]
        )
        return _at_once(
            ListTasksResponse(
                tasks=tuple(_with_history(task, request.history_length) for task in page),
                next_page_token=f"from-{end}" if end < len(found) else "",
                page_size=size,
                total_size=len(found),
            )
        )

    def _matching(self, request: ListTasksRequest, now: float) -> Iterator[Task]:
        after = _time(request.status_timestamp_after)
        for life in reversed(self.lives.values()):
            task = self._stored(life, now)
            if (
                (not request.context_id or task.context_id == request.context_id)
                and (not request.status or task.state is request.status)
                and (after is None or _updated(task) >= after)
            ):
                yield task

    def _cancel(self, request: CancelTaskRequest, now: float) -> Result:
        life = self._life(request.id)
        state = life.task(now).state
        if state.is_terminal:
            metadata = {"taskId": request.id, "state": str(state)}
            raise Refusal(-32002, "Task cannot be canceled", metadata=metadata)
        if self._cancel_takes is not None:
            canceled = Step(state=TaskState.CANCELED, after=self._cancel_takes)
            life.begin(Plan((canceled,)), None, now)
        return _at_once(life.task(now))

    # ── Push notifications ───────────────────────────────────────────────────────────────────

    def _create_config(self, config: TaskPushNotificationConfig, _now: float) -> Result:
        if not config.url:
            raise Refusal(-32602, "Validation failed: url is required")
        life = self._life(config.task_id or "")
        stored = msgspec.structs.replace(config, id=config.id or life.task_id, tenant=None)
        self._configs[life.task_id, config.id or life.task_id] = stored
        return _at_once(stored)

    def _get_config(self, request: GetTaskPushNotificationConfigRequest, _now: float) -> Result:
        config = self._configs.get((request.task_id, request.id))
        if config is None:
            raise _not_found(request.task_id)
        return _at_once(config)

    def _list_configs(
        self, request: ListTaskPushNotificationConfigsRequest, _now: float
    ) -> Result:
        self._life(request.task_id)
        found = tuple(c for (task_id, _), c in self._configs.items() if task_id == request.task_id)
        return _at_once(ListTaskPushNotificationConfigsResponse(configs=found))

    def _delete_config(
        self, request: DeleteTaskPushNotificationConfigRequest, _now: float
    ) -> Result:
        if self._configs.pop((request.task_id, request.id), None) is None:
            raise _not_found(request.task_id)
        return _at_once(Empty())

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    def _life(self, task_id: str) -> TaskTimeline:
        life = self.lives.get(task_id)
        if life is None:
            raise _not_found(task_id)
        return life

    def _stored(self, life: TaskTimeline, now: float) -> Task:
        """A task as those see it who only read."""
        return life.task(now - self._store_lag)

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
        raise Refusal(-32602, "the page token is none of this agent's")
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
        raise Refusal(-32602, "statusTimestampAfter is no time with a zone")
    return time
