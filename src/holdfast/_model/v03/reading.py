"""Conversion of 0.3's types to the model."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from msgspec import UnsetType

from holdfast import types as model
from holdfast._model.codec import as_object
from holdfast._model.dicts import WRAPPED_DATA
from holdfast._model.v03 import types as v03
from holdfast.types import (
    AuthenticationInfo,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Role,
    SendMessageResponse,
    StreamResponse,
    TaskPushNotificationConfig,
    TaskState,
)

__all__ = [
    "LastResponse",
    "event",
    "is_v03",
    "push_config",
    "push_configs",
    "sent",
    "task",
    "tasks",
]

E = TypeVar("E", bound=Enum)

_STATES = {
    "submitted": TaskState.SUBMITTED,
    "working": TaskState.WORKING,
    "input-required": TaskState.INPUT_REQUIRED,
    "completed": TaskState.COMPLETED,
    "canceled": TaskState.CANCELED,
    "failed": TaskState.FAILED,
    "rejected": TaskState.REJECTED,
    "auth-required": TaskState.AUTH_REQUIRED,
    "unknown": TaskState.UNSPECIFIED,
    "TASK_STATE_CANCELLED": TaskState.CANCELED,
}
_ROLES = {"user": Role.USER, "agent": Role.AGENT}


class LastResponse(StreamResponse, frozen=True, kw_only=True):
    """The last event of a stream, with a task that is terminal or interrupted."""


def event(source: v03.Event) -> StreamResponse:
    """Convert an event of a stream."""
    match source.payload:
        case v03.Task() as payload:
            return StreamResponse(task=task(payload))
        case v03.Message() as payload:
            return StreamResponse(message=_message(payload))
        case v03.ArtifactUpdate() as payload:
            return StreamResponse(artifact_update=_artifact_update(payload))
        case v03.StatusUpdate() as payload:
            update = _status_update(payload)
            state = update.status.state
            is_last = payload.final and (state.is_terminal or state.is_interrupted)
            return (LastResponse if is_last else StreamResponse)(status_update=update)
        case None:
            return StreamResponse()  # of an unknown kind


def is_v03(source: v03.Event) -> bool:
    """Return whether a JSON object is an event of 0.3, and not of 1.0.

    The ProtoJSON of both versions puts events into the same members. Such an event is of 0.3 if it
    has a member or a name that only 0.3 has.
    """
    member = source.task or source.message or source.status_update or source.artifact_update
    return source.payload is not None if member is None else _is_v03(member)


def _is_v03(source: object) -> bool:
    match source:
        case v03.Task():
            return any(map(_is_v03, (source.status, *source.history, *source.artifacts)))
        case v03.StatusUpdate():
            return _is_v03(source.status)
        case v03.ArtifactUpdate():
            return _is_v03(source.artifact)
        case v03.TaskStatus():
            return _is_named(source.state, _STATES) or _is_v03(source.message)
        case v03.Message():
            if (source.content and not source.parts) or _is_named(source.role, _ROLES):
                return True
            return any(map(_is_v03, source.parts))
        case v03.Artifact():
            return any(map(_is_v03, source.parts))
        case v03.Part():
            return source.file is not None or WRAPPED_DATA in (source.metadata or ())
        case _:
            return False


def _is_named(source: object, names: Mapping[str, Enum]) -> bool:
    return isinstance(source, str) and source in names


def sent(source: v03.Event) -> SendMessageResponse:
    """Convert the response to a message.

    Raises:
        ValueError: It is neither a task nor a message.
    """
    response = event(source)
    return SendMessageResponse(task=response.task, message=response.message)


def task(source: v03.Task) -> model.Task:
    """Convert a task."""
    return model.Task(
        id=source.id,
        context_id=source.context_id or None,
        status=_status(source.status),
        artifacts=tuple(map(_artifact, source.artifacts)),
        history=tuple(map(_message, source.history)),
        metadata=source.metadata,
    )


def tasks(source: v03.Tasks) -> ListTasksResponse:
    """Convert a page of tasks."""
    return ListTasksResponse(
        tasks=tuple(map(task, source.tasks)),
        next_page_token=source.next_cursor or source.next_page_token or "",
        page_size=source.page_size,
        total_size=source.total_size,
    )


def push_config(source: v03.TaskPushConfig) -> TaskPushNotificationConfig:
    """Convert a push configuration."""
    config, task_id, config_id = source.push_notification_config, source.task_id, None
    if source.name is not None:  # tasks/{task}/pushNotificationConfigs/{config}
        task_id, _, config_id = source.name.removeprefix("tasks/").partition("/")
        config_id = config_id.rpartition("/")[2]
    authentication = config.authentication
    return TaskPushNotificationConfig(
        id=config.id or config_id or None,
        task_id=task_id,
        url=config.url,
        token=config.token or None,
        authentication=None
        if authentication is None
        else AuthenticationInfo(
            scheme=next(iter(authentication.schemes), ""),
            credentials=authentication.credentials or None,
        ),
    )


def push_configs(source: v03.PushConfigs) -> ListTaskPushNotificationConfigsResponse:
    """Convert a task's push configurations."""
    return ListTaskPushNotificationConfigsResponse(
        configs=tuple(map(push_config, source.configs)), next_page_token=source.next_page_token
    )


def _status_update(source: v03.StatusUpdate) -> model.TaskStatusUpdateEvent:
    return model.TaskStatusUpdateEvent(
        task_id=source.task_id,
        context_id=source.context_id or None,
        status=_status(source.status),
        metadata=source.metadata,
    )


def _artifact_update(source: v03.ArtifactUpdate) -> model.TaskArtifactUpdateEvent:
    return model.TaskArtifactUpdateEvent(
        task_id=source.task_id,
        context_id=source.context_id or None,
        artifact=_artifact(source.artifact),
        append=source.append,
        last_chunk=source.last_chunk,
        metadata=source.metadata,
    )


def _status(source: v03.TaskStatus) -> model.TaskStatus:
    message = source.message
    return model.TaskStatus(
        state=_state(source.state),
        message=None if message is None else _message(message),
        timestamp=source.timestamp,
    )


def _artifact(source: v03.Artifact) -> model.Artifact:
    return model.Artifact(
        artifact_id=source.artifact_id,
        name=source.name or None,
        description=source.description or None,
        parts=tuple(map(_part, source.parts)),
        metadata=source.metadata,
        extensions=source.extensions,
    )


def _message(source: v03.Message) -> model.Message:
    return model.Message(
        message_id=source.message_id,
        role=_role(source.role),
        parts=tuple(map(_part, source.parts or source.content)),
        context_id=source.context_id or None,
        task_id=source.task_id or None,
        metadata=source.metadata,
        extensions=source.extensions,
        reference_task_ids=source.reference_task_ids,
    )


def _part(source: v03.Part) -> model.Part:
    if source.text is not None:
        return model.Part(text=source.text, metadata=source.metadata)
    if source.file is not None:
        return _file(source.file, source.metadata)
    return _data(source)


def _file(file: v03.File, metadata: dict[str, Any] | None) -> model.Part:
    raw = file.file_with_bytes if file.content is None else file.content
    return model.Part(
        raw=raw,
        url=None if raw is not None else file.file_with_uri if file.uri is None else file.uri,
        metadata=metadata,
        filename=file.name or None,
        media_type=file.mime_type or None,
    )


def _data(source: v03.Part) -> model.Part:
    data, metadata = source.data, source.metadata
    inner = as_object(data)
    if source.kind is None and inner is not None and inner.keys() == {"data"}:
        data, inner = inner["data"], as_object(inner["data"])
    if isinstance(data, UnsetType):
        return model.Part(metadata=metadata)
    if metadata and metadata.get(WRAPPED_DATA) and inner is not None and "value" in inner:
        data = inner["value"]
        metadata = {
            name: value for name, value in metadata.items() if name != WRAPPED_DATA
        } or None
    return model.Part(data=data, metadata=metadata)


def _state(source: object) -> TaskState:
    """Convert a state from its name in either form, or its number."""
    return _enum_member(source, _STATES, TaskState)


def _role(source: object) -> Role:
    return _enum_member(source, _ROLES, Role)


def _enum_member(source: object, names: Mapping[str, E], kind: type[E]) -> E:
    if isinstance(source, str) and source:
        return names.get(source) or kind(source)
    members = list(kind)
    if not isinstance(source, int | float) or isinstance(source, bool):
        return members[0]  # UNSPECIFIED
    return members[int(source)] if 0 <= source < len(members) else kind(str(source))
