"""Spans of the requests that a served agent answers, and of the push notifications that it sends.

Rules: the span of a request begins when its method is called, over whichever binding, and ends
with its reply or its stream. Its context is never attached while a stream waits to be read: a
stream may be read by one task and closed by another. A turn runs in a task of its own, in which
the context of its request is attached, also after the request has ended.
"""

from __future__ import annotations

import functools
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from a2a.types import a2a_pb2

from holdfast._asgi import header_map, metadata_map
from holdfast.observe import ServerActivity
from holdfast.protocol import (
    CANCEL_TASK,
    CREATE_PUSH_CONFIG,
    DELETE_PUSH_CONFIG,
    GET_EXTENDED_AGENT_CARD,
    GET_PUSH_CONFIG,
    GET_TASK,
    LIST_PUSH_CONFIGS,
    LIST_TASKS,
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    SUBSCRIBE_TO_TASK,
    Operation,
)
from holdfast.types import TaskState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from a2a.server.context import ServerCallContext
    from starlette.requests import Request

    from holdfast.observe import ServerSpan, ServerTelemetry
    from holdfast.types import AgentCard

__all__ = ["TracedRequestHandler", "TurnSpans", "keep_headers", "span_of"]

_SPAN = "holdfast.span"
_HEADERS = "holdfast.headers"
"""Keys in the state of the SDK's call context."""

_MAX_TURNS = 1_000
"""Largest number of tasks whose pushes have a parent; the oldest turn is forgotten."""

_END = object()

_STATES = {number: TaskState(name) for name, number in a2a_pb2.TaskState.items()}

_OPERATIONS: dict[str, Operation[Any, Any]] = {
    "on_message_send": SEND_MESSAGE,
    "on_message_send_stream": SEND_STREAMING_MESSAGE,
    "on_get_task": GET_TASK,
    "on_list_tasks": LIST_TASKS,
    "on_cancel_task": CANCEL_TASK,
    "on_subscribe_to_task": SUBSCRIBE_TO_TASK,
    "on_create_task_push_notification_config": CREATE_PUSH_CONFIG,
    "on_get_task_push_notification_config": GET_PUSH_CONFIG,
    "on_list_task_push_notification_configs": LIST_PUSH_CONFIGS,
    "on_delete_task_push_notification_config": DELETE_PUSH_CONFIG,
    "on_get_extended_agent_card": GET_EXTENDED_AGENT_CARD,
}
"""The operations, by the SDK's names of the methods of a request handler."""


def keep_headers(context: ServerCallContext, request: Request) -> None:
    """Keep the headers of a request for its span; repeated ones are joined.

    The SDK keeps only the first of them, which would accept a ``traceparent`` that is sent twice.

    Args:
        context: The call context of the SDK.
        request: The request.
    """
    context.state[_HEADERS] = header_map(request.scope.get("headers") or ())


def span_of(context: ServerCallContext | None) -> ServerSpan | None:
    """Return the span of a request; None if it has none.

    Args:
        context: The call context of the SDK.
    """
    span: ServerSpan | None = None if context is None else context.state.get(_SPAN)
    return span


class TracedRequestHandler:
    """The operations of a request handler, under the same names, each in a span.

    Args:
        handler: The handler.
        telemetry: Makes the spans.
        card: The public card, with the addresses of the agent.
    """

    def __init__(self, handler: object, telemetry: ServerTelemetry, card: AgentCard) -> None:
        self._telemetry = telemetry
        self._http_address: str | None = None
        self._grpc_address: str | None = None
        for interface in reversed(card.supported_interfaces):
            if interface.protocol_binding == "GRPC":
                self._grpc_address = f"grpc://{urlsplit(f'//{interface.url}').netloc}"
            else:
                self._http_address = interface.url
        for name in dir(handler):
            if name.startswith("on_"):
                method = getattr(handler, name)
                if (operation := _OPERATIONS.get(name)) is not None:
                    wrap = self._stream if operation.streaming else self._unary
                    method = wrap(method)
                setattr(self, name, method)

    def _unary(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(params: Any, context: ServerCallContext) -> Any:
            activity = self._activity(method.__name__, params, context)
            span = context.state[_SPAN] = self._telemetry.start_span(activity)
            error: BaseException | None = None
            try:
                with span.attached():
                    result = await method(params, context)
                activity = _learn(activity, result)
            except BaseException as failure:
                error = failure
                raise
            else:
                return result
            finally:
                span.end(activity, error)

        return call

    def _stream(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(params: Any, context: ServerCallContext) -> AsyncIterator[Any]:
            activity = self._activity(method.__name__, params, context)
            span = context.state[_SPAN] = self._telemetry.start_span(activity)
            error: BaseException | None = None
            try:
                async with aclosing(method(params, context)) as events:
                    while True:
                        with span.attached():
                            event = await anext(events, _END)
                        if event is _END:
                            break
                        activity = _learn(activity, event)
                        yield event
            except GeneratorExit:  # the client has left
                raise
            except BaseException as failure:
                error = failure
                raise
            finally:
                span.end(activity, error)

        return call

    def _activity(self, name: str, params: Any, context: ServerCallContext) -> ServerActivity:
        headers = context.state.get(_HEADERS)
        address = self._http_address
        if headers is None:
            headers, address = _metadata(context), self._grpc_address
        activity = ServerActivity(
            kind="request",
            method=_OPERATIONS[name].name,
            endpoint=address,
            version=headers.get("a2a-version") or "0.3",  # as A2A 3.6.2 has it
            tenant=getattr(params, "tenant", "") or context.tenant or None,
            headers=headers,
        )
        return _learn(activity, params)


class TurnSpans:
    """The spans of the turns whose events are pushed, and the spans of those pushes.

    Args:
        telemetry: Makes the spans.
    """

    def __init__(self, telemetry: ServerTelemetry) -> None:
        self._telemetry = telemetry
        self._by_task: dict[str, ServerSpan] = {}

    def add(self, task_id: str, span: ServerSpan) -> None:
        """Add the latest turn of a task.

        Args:
            task_id: Id of the task.
            span: The span of the request that began the turn.
        """
        self._by_task.pop(task_id, None)
        self._by_task[task_id] = span
        if len(self._by_task) > _MAX_TURNS:
            del self._by_task[next(iter(self._by_task))]

    def start_push(
        self, task_id: str, event: Any, address: str
    ) -> tuple[ServerActivity, ServerSpan]:
        """Start the span of a push.

        Args:
            task_id: Id of the task.
            event: The event to push.
            address: The valid URL of the receiver.
        """
        activity = ServerActivity(kind="push", endpoint=address, task_id=task_id)
        activity = _learn(activity, event)
        return activity, self._telemetry.start_span(activity, self._by_task.get(task_id))

    def forget(self, task_id: str, event: Any) -> None:
        """Forget a task after its last event.

        Args:
            task_id: Id of the task.
            event: The event that was pushed.
        """
        status = getattr(event, "status", None)
        if status is not None and _state(status).is_terminal:
            self._by_task.pop(task_id, None)


def _metadata(context: ServerCallContext) -> Mapping[str, str]:
    """Return the metadata of a gRPC call; empty for another binding."""
    grpc_context = context.state.get("grpc_context")
    return {} if grpc_context is None else metadata_map(grpc_context.invocation_metadata())


def _learn(activity: ServerActivity, value: Any) -> ServerActivity:
    """Return an activity with the ids and the state in a request, a result or an event."""
    facts: dict[str, Any] = {}
    match value:
        case a2a_pb2.SendMessageRequest(message=message):
            facts = {"message_id": message.message_id, "task_id": message.task_id}
            facts["context_id"] = message.context_id
        case a2a_pb2.Task():
            facts = {"task_id": value.id, "context_id": value.context_id}
            facts["state"] = _state(value.status)
        case a2a_pb2.TaskStatusUpdateEvent():
            facts = {"task_id": value.task_id, "context_id": value.context_id}
            facts["state"] = _state(value.status)
        case a2a_pb2.TaskArtifactUpdateEvent() | a2a_pb2.Message():
            if activity.context_id is None or activity.task_id is None:
                facts = {"task_id": value.task_id, "context_id": value.context_id}
        case a2a_pb2.GetTaskRequest() | a2a_pb2.CancelTaskRequest():
            facts = {"task_id": value.id}
        case a2a_pb2.SubscribeToTaskRequest():
            facts = {"task_id": value.id}
        case _:
            facts = {name: getattr(value, name, None) for name in ("task_id", "context_id")}
    facts = {name: fact for name, fact in facts.items() if fact}
    return msgspec.structs.replace(activity, **facts) if facts else activity


def _state(status: a2a_pb2.TaskStatus) -> TaskState:
    return _STATES.get(status.state, TaskState.UNSPECIFIED)
