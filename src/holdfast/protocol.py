"""The protocol as data: its operations, versions and bindings, and the paths of agent cards.

Make a call by its operation::

    reply = await client.call(protocol.GET_TASK, GetTaskRequest(id="task-1"))
    task = reply.value  # a Task

Each `Operation` is a row of one table, `OPERATIONS`, for every binding (A2A 5.3).
"""

from __future__ import annotations

from holdfast._model.operations import (
    CANCEL_TASK,
    CARD_BINDING,
    CARD_PATHS,
    CREATE_PUSH_CONFIG,
    DELETE_PUSH_CONFIG,
    GET_AGENT_CARD,
    GET_EXTENDED_AGENT_CARD,
    GET_PUSH_CONFIG,
    GET_TASK,
    LIST_PUSH_CONFIGS,
    LIST_TASKS,
    OPERATIONS,
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    SUBSCRIBE_TO_TASK,
    Capability,
    Operation,
    Safety,
    Verb,
)
from holdfast._public import publish
from holdfast._wire.sse import EVENT_STREAM
from holdfast._wire.versions import (
    BINDINGS,
    GRPC_BINDING,
    HTTP_BINDINGS,
    OLDER_VERSION,
    PROTOCOL_VERSION,
    PROTOCOL_VERSIONS,
    ProtocolVersion,
    spoken_version,
)

__all__ = [
    "BINDINGS",
    "CANCEL_TASK",
    "CARD_BINDING",
    "CARD_PATHS",
    "CREATE_PUSH_CONFIG",
    "DELETE_PUSH_CONFIG",
    "EVENT_STREAM",
    "GET_AGENT_CARD",
    "GET_EXTENDED_AGENT_CARD",
    "GET_PUSH_CONFIG",
    "GET_TASK",
    "GRPC_BINDING",
    "HTTP_BINDINGS",
    "LIST_PUSH_CONFIGS",
    "LIST_TASKS",
    "OLDER_VERSION",
    "OPERATIONS",
    "PROTOCOL_VERSION",
    "PROTOCOL_VERSIONS",
    "SEND_MESSAGE",
    "SEND_STREAMING_MESSAGE",
    "SUBSCRIBE_TO_TASK",
    "Capability",
    "Operation",
    "ProtocolVersion",
    "Safety",
    "Verb",
    "spoken_version",
]

__getattr__, __dir__ = publish(__name__)
