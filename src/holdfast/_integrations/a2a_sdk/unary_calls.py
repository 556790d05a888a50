"""Unary calls of the SDK, made with Holdfast's client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec
from a2a.types import a2a_pb2 as pb

from holdfast import protocol as op
from holdfast._model.codec import MalformedError

if TYPE_CHECKING:
    from google.protobuf.message import Message as ProtoMessage

    from holdfast.client import CallOptions, Client
    from holdfast.protocol import Operation
    from holdfast.types import (
        CancelTaskRequest,
        DeleteTaskPushNotificationConfigRequest,
        Request,
        Task,
    )

__all__ = [
    "CANCEL_TASK",
    "CREATE_PUSH_CONFIG",
    "CREATE_PUSH_CONFIG_AGAIN",
    "GET_EXTENDED_AGENT_CARD",
    "GET_PUSH_CONFIG",
    "GET_TASK",
    "LIST_PUSH_CONFIGS",
    "LIST_TASKS",
    "SEND_MESSAGE",
    "Ask",
    "UnaryCall",
    "delete_push_config",
    "required",
]

P = TypeVar("P", bound="Request")
R = TypeVar("R")
M = TypeVar("M", bound="ProtoMessage")

Ask = Callable[["Client", P, "CallOptions"], Awaitable[R]]


class UnaryCall(NamedTuple, Generic[P, R, M]):
    """A call with one reply.

    Attributes:
        ask: Makes the call.
        answer: The SDK's type of the reply.
    """

    ask: Ask[P, R]
    answer: type[M]


def _as_is(operation: Operation[P, R]) -> Ask[P, R]:
    """Return a call that makes the operation as it is."""

    async def ask(client: Client, params: P, options: CallOptions) -> R:
        return (await client.call(operation, params, **options)).value

    return ask


async def _cancel(client: Client, params: CancelTaskRequest, options: CallOptions) -> Task:
    """Cancel a task; it is not an error if an earlier attempt canceled it."""
    task_id = required("id", params.id)
    return await client.cancel_task(task_id, confirm=False, metadata=params.metadata, **options)


async def delete_push_config(
    client: Client, params: DeleteTaskPushNotificationConfigRequest, options: CallOptions
) -> None:
    """Delete a configuration; it is not an error if an earlier attempt deleted it."""
    await client.delete_task_push_notification_config(
        required("task_id", params.task_id), required("id", params.id), **options
    )


def required(member: str, value: str) -> str:
    """Return a required member of a request.

    Raises:
        MalformedError: It is empty.
    """
    if not value:
        message = f"the request lacks {member}"
        raise MalformedError(message)
    return value


SEND_MESSAGE = UnaryCall(_as_is(op.SEND_MESSAGE), pb.SendMessageResponse)
GET_TASK = UnaryCall(_as_is(op.GET_TASK), pb.Task)
LIST_TASKS = UnaryCall(_as_is(op.LIST_TASKS), pb.ListTasksResponse)
CANCEL_TASK = UnaryCall(_cancel, pb.Task)
CREATE_PUSH_CONFIG = UnaryCall(_as_is(op.CREATE_PUSH_CONFIG), pb.TaskPushNotificationConfig)
CREATE_PUSH_CONFIG_AGAIN = UnaryCall(
    _as_is(msgspec.structs.replace(op.CREATE_PUSH_CONFIG, safety="idempotent")),
    pb.TaskPushNotificationConfig,
)
"""Creates a configuration, and retries as if a second one did no harm."""
GET_PUSH_CONFIG = UnaryCall(_as_is(op.GET_PUSH_CONFIG), pb.TaskPushNotificationConfig)
LIST_PUSH_CONFIGS = UnaryCall(
    _as_is(op.LIST_PUSH_CONFIGS), pb.ListTaskPushNotificationConfigsResponse
)
GET_EXTENDED_AGENT_CARD = UnaryCall(_as_is(op.GET_EXTENDED_AGENT_CARD), pb.AgentCard)
