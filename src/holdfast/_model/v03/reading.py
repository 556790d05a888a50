"""What a 0.3 agent says, as values of the model."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from msgspec import UnsetType

from holdfast import types as model
from holdfast._model.codec import as_object
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
    "WRAPPED",
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

WRAPPED = "data_part_compat"
"""In the metadata of a part: its data is no object, which 0.3 asks for, and so was put into one,
as ``{"value": …}``. Official agents read and write it so."""

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
    """An event after which the agent says nothing more, and the task is over or waits."""


def event(found: v03.Event) -> StreamResponse:
    """An event of a stream."""
    match found.what:
        case v03.Task() as it:
            return StreamResponse(task=task(it))
        case v03.Message() as it:
            return StreamResponse(message=_message(it))
        case v03.ArtifactUpdate() as it:
            return StreamResponse(artifact_update=_artifact_update(it))
        case v03.StatusUpdate() as it:
            update = _status_update(it)
            state = update.status.state
            is_last = it.final and (state.is_terminal or state.is_interrupted)
            return (LastResponse if is_last else StreamResponse)(status_update=update)
        case None:
            return StreamResponse()  # of a kind that nobody knows here


def is_v03(found: v03.Event) -> bool:
    """Whether a JSON object is an event of 0.3, and none of 1.0.

    In ProtoJSON it may be either, which puts its events into the same members; one of 0.3 it is
    if it holds what only 0.3 has a name for.
    """
    named = found.task or found.message or found.status_update or found.artifact_update
    return found.what is not None if named is None else _is_v03(named)


def _is_v03(found: object) -> bool:
    match found:
        case v03.Task():
            return any(map(_is_v03, (found.status, *found.history, *found.artifacts)))
        case v03.StatusUpdate():
            return _is_v03(found.status)
        case v03.ArtifactUpdate():
            return _is_v03(found.artifact)
        case v03.TaskStatus():
            return _is_named(found.state, _STATES) or _is_v03(found.message)
        case v03.Message():
            if (found.content and not found.parts) or _is_named(found.role, _ROLES):
                return True
            return any(map(_is_v03, found.parts))
        case v03.Artifact():
            return any(map(_is_v03, found.parts))
        case v03.Part():
            return found.file is not None or WRAPPED in (found.metadata or ())
        case _:
            return False


def _is_named(found: object, names: Mapping[str, Enum]) -> bool:
    return isinstance(found, str) and found in names


def sent(found: v03.Event) -> SendMessageResponse:
    """What a message is answered by.

    Raises:
        ValueError: It is neither a task nor a message.
    """
    response = event(found)
    return SendMessageResponse(task=response.task, message=response.message)


def task(found: v03.Task) -> model.Task:
    """A task."""
    return model.Task(
        id=found.id,
        context_id=found.context_id or None,
        status=_status(found.status),
        artifacts=tuple(map(_artifact, found.artifacts)),
        history=tuple(map(_message, found.history)),
        metadata=found.metadata,
    )


def tasks(found: v03.Tasks) -> ListTasksResponse:
    """A page of tasks."""
    return ListTasksResponse(
        tasks=tuple(map(task, found.tasks)),
        next_page_token=found.next_cursor or found.next_page_token or "",
        page_size=found.page_size,
        total_size=found.total_size,
    )


def push_config(found: v03.TaskPushConfig) -> TaskPushNotificationConfig:
    """A configuration of push notifications."""
    config, task_id, config_id = found.push_notification_config, found.task_id, None
    if found.name is not None:  # tasks/{task}/pushNotificationConfigs/{config}
        task_id, _, config_id = found.name.removeprefix("tasks/").partition("/")
        config_id = config_id.rpartition("/")[2]
    how = config.authentication
    return TaskPushNotificationConfig(
        id=config.id or config_id or None,
        task_id=task_id,
        url=config.url,
        token=config.token or None,
        authentication=None
        if how is None
        else AuthenticationInfo(
            scheme=next(iter(how.schemes), ""), credentials=how.credentials or None
        ),
    )


def push_configs(found: v03.PushConfigs) -> ListTaskPushNotificationConfigsResponse:
    """The configurations of a task."""
    return ListTaskPushNotificationConfigsResponse(
        configs=tuple(map(push_config, found.configs)), next_page_token=found.next_page_token
    )


def _status_update(found: v03.StatusUpdate) -> model.TaskStatusUpdateEvent:
    return model.TaskStatusUpdateEvent(
        task_id=found.task_id,
        context_id=found.context_id or None,
        status=_status(found.status),
        metadata=found.metadata,
    )


def _artifact_update(found: v03.ArtifactUpdate) -> model.TaskArtifactUpdateEvent:
    return model.TaskArtifactUpdateEvent(
        task_id=found.task_id,
        context_id=found.context_id or None,
        artifact=_artifact(found.artifact),
        append=found.append,
        last_chunk=found.last_chunk,
        metadata=found.metadata,
    )


def _status(found: v03.TaskStatus) -> model.TaskStatus:
    message = found.message
    return model.TaskStatus(
        state=_state(found.state),
        message=None if message is None else _message(message),
        timestamp=found.timestamp,
    )


def _artifact(found: v03.Artifact) -> model.Artifact:
    return model.Artifact(
        artifact_id=found.artifact_id,
        name=found.name or None,
        description=found.description or None,
        parts=tuple(map(_part, found.parts)),
        metadata=found.metadata,
        extensions=found.extensions,
    )


def _message(found: v03.Message) -> model.Message:
    return model.Message(
        message_id=found.message_id,
        role=_role(found.role),
        parts=tuple(map(_part, found.parts or found.content)),
        context_id=found.context_id or None,
        task_id=found.task_id or None,
        metadata=found.metadata,
        extensions=found.extensions,
        reference_task_ids=found.reference_task_ids,
    )


def _part(found: v03.Part) -> model.Part:
    if found.text is not None:
        return model.Part(text=found.text, metadata=found.metadata)
    if found.file is not None:
        return _file(found.file, found.metadata)
    return _data(found)


def _file(file: v03.File, metadata: dict[str, Any] | None) -> model.Part:
    raw = file.file_with_bytes if file.content is None else file.content
    return model.Part(
        raw=raw,
        url=None if raw is not None else file.file_with_uri if file.uri is None else file.uri,
        metadata=metadata,
        filename=file.name or None,
        media_type=file.mime_type or None,
    )


def _data(found: v03.Part) -> model.Part:
    data, metadata = found.data, found.metadata
    inner = as_object(data)
    if found.kind is None and inner is not None and inner.keys() == {"data"}:
        data, inner = inner["data"], as_object(inner["data"])
    if isinstance(data, UnsetType):
        return model.Part(metadata=metadata)
    if metadata and metadata.get(WRAPPED) and inner is not None and "value" in inner:
        data = inner["value"]
        metadata = {name: value for name, value in metadata.items() if name != WRAPPED} or None
    return model.Part(data=data, metadata=metadata)


def _state(found: object) -> TaskState:
    """A state by its name in either form, or its number."""
    return _known(found, _STATES, TaskState)


def _role(found: object) -> Role:
    return _known(found, _ROLES, Role)


def _known(found: object, names: Mapping[str, E], kind: type[E]) -> E:
    if isinstance(found, str) and found:
        return names.get(found) or kind(found)
    members = list(kind)
    if not isinstance(found, int | float) or isinstance(found, bool):
        return members[0]  # UNSPECIFIED
    return members[int(found)] if 0 <= found < len(members) else kind(str(found))
