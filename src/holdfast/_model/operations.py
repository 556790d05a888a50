"""The table of operations, one row each, for every binding (A2A specification 5.3).

No other module contains method names or paths.

The safety of an operation is the cost of executing it twice:
    ``read``         none: it changes nothing.
    ``idempotent``   none: twice has the effect of once.
    ``conditional``  possibly a second task; resent only if the first was not executed.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from holdfast.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    Empty,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CANCEL_TASK",
    "CARD_BINDING",
    "CARD_PATHS",
    "CREATE_PUSH_CONFIG",
    "DELETE_PUSH_CONFIG",
    "GET_AGENT_CARD",
    "GET_EXTENDED_AGENT_CARD",
    "GET_PUSH_CONFIG",
    "GET_TASK",
    "LIST_PUSH_CONFIGS",
    "LIST_TASKS",
    "OPERATIONS",
    "SEND_MESSAGE",
    "SEND_NAMES",
    "SEND_OPERATIONS",
    "SEND_STREAMING_MESSAGE",
    "SUBSCRIBE_TO_TASK",
    "Capability",
    "Operation",
    "Safety",
    "Verb",
]

P = TypeVar("P")
R = TypeVar("R")

Safety = Literal["read", "idempotent", "conditional"]
"""The effect of a second execution: ``read`` changes nothing, ``idempotent`` adds nothing,
``conditional`` may create a second task."""
Verb = Literal["GET", "POST", "DELETE"]
"""An HTTP method of the HTTP+JSON binding."""
Capability = Literal["streaming", "push_notifications", "extended_agent_card"]
"""A member of `AgentCapabilities` that a card declares."""


class Operation(msgspec.Struct, Generic[P, R], frozen=True, kw_only=True, cache_hash=True):
    """One operation of the protocol: a row of the table `OPERATIONS`.

    Attributes:
        name: Name in the protocol: the JSON-RPC and gRPC method of protocol 1.0.
        request: Type of the parameters.
        response: Type of the response, or of each event if `streaming`.
        safety: Cost of a second execution.
        verb: HTTP method of the REST binding.
        other_verb: HTTP method that some agents expect instead: the text of the specification and
            its protocol buffers differ.
        path: Path of the REST binding; ``{name}`` is replaced by that member of the request.
        streaming: Whether the response is a stream of events; False by default.
        capability: Member of `AgentCapabilities` that the card must declare; None for none.
        method_v03: JSON-RPC method of protocol 0.3; empty if there is none.
        path_v03: Path of the REST binding in 0.3; ``{name}`` is replaced by that member of its
            request. Empty if there is none.
        method_grpc_v03: gRPC method in 0.3; empty if there is none.
    """

    name: str
    request: type[P]
    response: type[R]
    safety: Safety
    verb: Verb
    path: str
    other_verb: Verb | None = None
    streaming: bool = False
    capability: Capability | None = None
    method_v03: str = ""
    path_v03: str = ""
    method_grpc_v03: str = ""


SEND_MESSAGE = Operation(
    name="SendMessage",
    request=SendMessageRequest,
    response=SendMessageResponse,
    safety="conditional",
    verb="POST",
    path="/message:send",
    method_v03="message/send",
    path_v03="/v1/message:send",
    method_grpc_v03="SendMessage",
)
SEND_STREAMING_MESSAGE = Operation(
    name="SendStreamingMessage",
    request=SendMessageRequest,
    response=StreamResponse,
    safety="conditional",
    verb="POST",
    path="/message:stream",
    method_v03="message/stream",
    path_v03="/v1/message:stream",
    method_grpc_v03="SendStreamingMessage",
    streaming=True,
    capability="streaming",
)
SEND_OPERATIONS = frozenset({SEND_MESSAGE, SEND_STREAMING_MESSAGE})
"""Operations that send a message."""

SEND_NAMES = frozenset({SEND_MESSAGE.name, SEND_STREAMING_MESSAGE.name})
"""Names of the operations that send a message."""

GET_TASK = Operation(
    name="GetTask",
    request=GetTaskRequest,
    response=Task,
    safety="read",
    verb="GET",
    path="/tasks/{id}",
    method_v03="tasks/get",
    path_v03="/v1/tasks/{id}",
    method_grpc_v03="GetTask",
)
LIST_TASKS = Operation(
    name="ListTasks",
    request=ListTasksRequest,
    response=ListTasksResponse,
    safety="read",
    verb="GET",
    path="/tasks",
    method_v03="tasks/list",
    path_v03="/v1/tasks",
)
CANCEL_TASK = Operation(
    name="CancelTask",
    request=CancelTaskRequest,
    response=Task,
    safety="idempotent",
    verb="POST",
    path="/tasks/{id}:cancel",
    method_v03="tasks/cancel",
    path_v03="/v1/tasks/{id}:cancel",
    method_grpc_v03="CancelTask",
)
SUBSCRIBE_TO_TASK = Operation(
    name="SubscribeToTask",
    request=SubscribeToTaskRequest,
    response=StreamResponse,
    safety="read",
    verb="POST",
    other_verb="GET",
    path="/tasks/{id}:subscribe",
    method_v03="tasks/resubscribe",
    path_v03="/v1/tasks/{id}:subscribe",
    method_grpc_v03="TaskSubscription",
    streaming=True,
    capability="streaming",
)
CREATE_PUSH_CONFIG = Operation(
    name="CreateTaskPushNotificationConfig",
    request=TaskPushNotificationConfig,
    response=TaskPushNotificationConfig,
    safety="conditional",
    verb="POST",
    path="/tasks/{task_id}/pushNotificationConfigs",
    method_v03="tasks/pushNotificationConfig/set",
    path_v03="/v1/tasks/{id}/pushNotificationConfigs",
    method_grpc_v03="CreateTaskPushNotificationConfig",
    capability="push_notifications",
)
GET_PUSH_CONFIG = Operation(
    name="GetTaskPushNotificationConfig",
    request=GetTaskPushNotificationConfigRequest,
    response=TaskPushNotificationConfig,
    safety="read",
    verb="GET",
    path="/tasks/{task_id}/pushNotificationConfigs/{id}",
    method_v03="tasks/pushNotificationConfig/get",
    path_v03="/v1/tasks/{id}/pushNotificationConfigs/{push_notification_config_id}",
    method_grpc_v03="GetTaskPushNotificationConfig",
    capability="push_notifications",
)
LIST_PUSH_CONFIGS = Operation(
    name="ListTaskPushNotificationConfigs",
    request=ListTaskPushNotificationConfigsRequest,
    response=ListTaskPushNotificationConfigsResponse,
    safety="read",
    verb="GET",
    path="/tasks/{task_id}/pushNotificationConfigs",
    method_v03="tasks/pushNotificationConfig/list",
    path_v03="/v1/tasks/{id}/pushNotificationConfigs",
    method_grpc_v03="ListTaskPushNotificationConfig",
    capability="push_notifications",
)
DELETE_PUSH_CONFIG = Operation(
    name="DeleteTaskPushNotificationConfig",
    request=DeleteTaskPushNotificationConfigRequest,
    response=Empty,
    safety="idempotent",
    verb="DELETE",
    path="/tasks/{task_id}/pushNotificationConfigs/{id}",
    method_v03="tasks/pushNotificationConfig/delete",
    path_v03="/v1/tasks/{id}/pushNotificationConfigs/{push_notification_config_id}",
    method_grpc_v03="DeleteTaskPushNotificationConfig",
    capability="push_notifications",
)
GET_EXTENDED_AGENT_CARD = Operation(
    name="GetExtendedAgentCard",
    request=GetExtendedAgentCardRequest,
    response=AgentCard,
    safety="read",
    verb="GET",
    path="/extendedAgentCard",
    method_v03="agent/getAuthenticatedExtendedCard",
    path_v03="/v1/card",
    method_grpc_v03="GetAgentCard",
    capability="extended_agent_card",
)

OPERATIONS: Mapping[str, Operation[Any, Any]] = MappingProxyType(
    {
        operation.name: operation
        for operation in (
            SEND_MESSAGE,
            SEND_STREAMING_MESSAGE,
            GET_TASK,
            LIST_TASKS,
            CANCEL_TASK,
            SUBSCRIBE_TO_TASK,
            CREATE_PUSH_CONFIG,
            GET_PUSH_CONFIG,
            LIST_PUSH_CONFIGS,
            DELETE_PUSH_CONFIG,
            GET_EXTENDED_AGENT_CARD,
        )
    }
)
"""The operations of the protocol (A2A 5.3), by their names."""

GET_AGENT_CARD: Operation[Any, AgentCard] = Operation(
    name="GetAgentCard", request=Empty, response=AgentCard, safety="read", verb="GET", path=""
)
"""Fetching the public card: plain HTTP, not an operation of a binding."""

CARD_BINDING = "card"
"""Reported as the binding of a card request."""

CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Paths of agent cards (RFC 8615; A2A 8.2), the second for agents older than protocol 0.3."""
