"""What the model asks for, as a 0.3 agent is asked: for JSON-RPC, and as ProtoJSON.

Each function takes a request of 1.0 and the form that is wanted.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from enum import Enum, auto

from msgspec import UnsetType

from holdfast.errors import UnsupportedOperationError
from holdfast.model import requests as new
from holdfast.model.types import Message, Part, Role, TaskState
from holdfast.model.v03 import types as old
from holdfast.model.v03.reading import WRAPPED

__all__ = [
    "Form",
    "cancel_task",
    "create_push_config",
    "get_task",
    "list_tasks",
    "message",
    "nothing",
    "push_config_id",
    "send_message",
    "task_id",
]

WHOLE_HISTORY = 10_000
"""Messages to ask for where the caller sets no limit: 0.3 agents may show none unless asked, and
some forget what is beyond of what was asked."""


class Form(Enum):
    """The two forms of its JSON."""

    RPC = auto()
    PROTO = auto()


_STATES: Mapping[str, str] = {
    TaskState.UNSPECIFIED: "unknown",
    TaskState.SUBMITTED: "submitted",
    TaskState.WORKING: "working",
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELED: "canceled",
    TaskState.INPUT_REQUIRED: "input-required",
    TaskState.REJECTED: "rejected",
    TaskState.AUTH_REQUIRED: "auth-required",
}
_ROLES: Mapping[str, str] = {
    Role.UNSPECIFIED: "user",  # who sends is a client
    Role.USER: "user",
    Role.AGENT: "agent",
}


def send_message(request: new.SendMessageRequest, form: Form) -> old.SendMessage:
    """For message/send and message/stream; whether to block is always said.

    Raises:
        UnsupportedOperationError: The message says what 0.3 cannot say.
    """
    asked = request.configuration or new.SendMessageConfiguration()
    push = asked.task_push_notification_config
    config = None if push is None else _push_config(push)
    return old.SendMessage(
        message=message(request.message, form),
        configuration=old.Configuration(
            blocking=not asked.return_immediately,
            accepted_output_modes=asked.accepted_output_modes,
            history_length=_history(asked.history_length),
            push_notification_config=None if form is Form.PROTO else config,
            push_notification=config if form is Form.PROTO else None,
        ),
        metadata=request.metadata,
    )


def get_task(request: new.GetTaskRequest, _form: Form) -> old.TaskQuery:
    """For tasks/get."""
    return old.TaskQuery(id=request.id, history_length=_history(request.history_length))


def list_tasks(request: new.ListTasksRequest, form: Form) -> old.ListTasks:
    """For tasks/list.

    Raises:
        UnsupportedOperationError: The list is to begin at a time.
    """
    if request.status_timestamp_after:
        raise _lacks("ListTasks by time (status_timestamp_after)")
    state = None if request.status is None else str(request.status)
    if state is not None and form is not Form.PROTO:
        state = _STATES.get(state, state)
    return old.ListTasks(
        context_id=request.context_id,
        status=state,
        limit=request.page_size,
        cursor=request.page_token,
        history_length=request.history_length,
        include_artifacts=request.include_artifacts,
    )


def cancel_task(request: new.CancelTaskRequest, form: Form) -> old.CancelTask:
    """For tasks/cancel.

    Raises:
        UnsupportedOperationError: ProtoJSON has no place for its metadata.
    """
    if form is Form.PROTO and request.metadata:
        raise _lacks("the metadata of CancelTask over HTTP+JSON")
    return old.CancelTask(id=request.id, metadata=request.metadata)


def task_id(
    request: new.SubscribeToTaskRequest | new.ListTaskPushNotificationConfigsRequest,
    _form: Form,
) -> old.TaskId:
    """For tasks/resubscribe and tasks/pushNotificationConfig/list, which has no pages."""
    if isinstance(request, new.SubscribeToTaskRequest):
        return old.TaskId(id=request.id)
    return old.TaskId(id=request.task_id)


def create_push_config(
    request: new.TaskPushNotificationConfig,
    form: Form,
) -> old.SetPushConfig | old.CreatePushConfig:
    """For tasks/pushNotificationConfig/set."""
    task, config = request.task_id or "", _push_config(request)
    if form is not Form.PROTO:
        return old.SetPushConfig(task_id=task, push_notification_config=config)
    parent = f"tasks/{task}"
    name = f"{parent}/pushNotificationConfigs/{request.id or ''}"
    return old.CreatePushConfig(
        id=task,
        parent=parent,
        config_id=request.id,
        config=old.TaskPushConfig(name=name, push_notification_config=config),
    )


def push_config_id(
    request: new.GetTaskPushNotificationConfigRequest
    | new.DeleteTaskPushNotificationConfigRequest,
    _form: Form,
) -> old.PushConfigId:
    """For tasks/pushNotificationConfig/get and delete."""
    return old.PushConfigId(id=request.task_id, push_notification_config_id=request.id)


def nothing(_request: new.GetExtendedAgentCardRequest, _form: Form) -> old.Nothing:
    """For agent/getAuthenticatedExtendedCard."""
    return old.Nothing()


def message(told: Message, form: Form) -> old.Message:
    """A message.

    Raises:
        UnsupportedOperationError: It refers to tasks, which ProtoJSON has no place for.
    """
    if form is Form.PROTO and told.reference_task_ids:
        raise _lacks("the reference_task_ids of a message over HTTP+JSON")
    parts = tuple(_part(part, form) for part in told.parts)
    role = _ROLES.get(told.role, str(told.role))
    if form is Form.PROTO:
        role = f"ROLE_{role.upper()}" if role in {"user", "agent"} else role
    return old.Message(
        kind=None if form is Form.PROTO else "message",
        message_id=told.message_id,
        role=role,
        parts=() if form is Form.PROTO else parts,
        content=parts if form is Form.PROTO else (),
        context_id=told.context_id,
        task_id=told.task_id,
        metadata=told.metadata,
        extensions=told.extensions,
        reference_task_ids=told.reference_task_ids,
    )


def _part(told: Part, form: Form) -> old.Part:
    if told.raw is not None or told.url is not None:
        return old.Part(
            kind=None if form is Form.PROTO else "file",
            file=_file(told, form),
            metadata=told.metadata,
        )
    if isinstance(told.data, UnsetType):
        return old.Part(
            kind=None if form is Form.PROTO else "text",
            text=told.text or "",
            metadata=told.metadata,
        )
    data, metadata = told.data, told.metadata
    if not isinstance(told.data, dict):
        data, metadata = {"value": data}, {**(metadata or {}), WRAPPED: True}
    return old.Part(
        kind=None if form is Form.PROTO else "data",
        data={"data": data} if form is Form.PROTO else data,
        metadata=metadata,
    )


def _file(told: Part, form: Form) -> old.File:
    raw = told.raw
    return old.File(
        name=told.filename,
        mime_type=told.media_type,
        content=None if form is Form.PROTO else raw,
        uri=None if form is Form.PROTO or raw is not None else told.url,
        file_with_bytes=base64.b64encode(raw) if form is Form.PROTO and raw is not None else None,
        file_with_uri=told.url if form is Form.PROTO and raw is None else None,
    )


def _push_config(told: new.TaskPushNotificationConfig) -> old.PushConfig:
    how = told.authentication
    return old.PushConfig(
        id=told.id,
        url=told.url,
        token=told.token,
        authentication=None
        if how is None
        else old.AuthenticationInfo(
            schemes=(how.scheme,) if how.scheme else (), credentials=how.credentials
        ),
    )


def _history(length: int | None) -> int:
    return WHOLE_HISTORY if length is None else length


def _lacks(what: str) -> UnsupportedOperationError:
    return UnsupportedOperationError(
        f"protocol 0.3 has no word for {what}; nothing was sent", executed=False
    )
