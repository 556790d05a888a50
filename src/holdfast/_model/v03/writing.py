"""Conversion of the model's requests to 0.3's.

Each function takes a request of 1.0. Functions that differ between the forms of 0.3 are methods of
the form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UnsetType

from holdfast import types as model
from holdfast._model.codec import as_object
from holdfast._model.dicts import WRAPPED_DATA
from holdfast._model.v03 import types as v03
from holdfast.errors import UnsupportedOperationError
from holdfast.types import Message, Part, Role, TaskState

__all__ = [
    "Form",
    "GrpcForm",
    "ProtoJsonForm",
    "RpcForm",
    "get_task",
    "nothing",
    "push_config_id",
    "task_id",
]

_WHOLE_HISTORY = 10_000
"""Messages to request without a limit of the caller: agents of 0.3 may send none unless asked, and
some drop those beyond the requested number."""

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
    Role.UNSPECIFIED: "user",  # the sender is a client
    Role.USER: "user",
    Role.AGENT: "agent",
}


# ── Equal in both forms ──────────────────────────────────────────────────────────────────────


def get_task(request: model.GetTaskRequest) -> v03.TaskQuery:
    """Convert a request of tasks/get."""
    return v03.TaskQuery(id=request.id, history_length=_history(request.history_length))


def task_id(
    request: model.SubscribeToTaskRequest | model.ListTaskPushNotificationConfigsRequest,
) -> v03.TaskId:
    """Convert a request of tasks/resubscribe, or of tasks/pushNotificationConfig/list."""
    if isinstance(request, model.SubscribeToTaskRequest):
        return v03.TaskId(id=request.id)
    return v03.TaskId(id=request.task_id)


def push_config_id(
    request: model.GetTaskPushNotificationConfigRequest
    | model.DeleteTaskPushNotificationConfigRequest,
) -> v03.PushConfigId:
    """Convert a request of tasks/pushNotificationConfig/get or delete."""
    return v03.PushConfigId(id=request.task_id, push_notification_config_id=request.id)


def nothing(_request: model.GetExtendedAgentCardRequest) -> v03.Nothing:
    """Convert a request of agent/getAuthenticatedExtendedCard."""
    return v03.Nothing()


# ── Different in the forms ───────────────────────────────────────────────────────────────────


class Form(ABC):
    """One of the two forms of 0.3's JSON."""

    def send_message(self, request: model.SendMessageRequest) -> v03.SendMessage:
        """Convert a request of message/send or message/stream, always with ``blocking``.

        Raises:
            UnsupportedOperationError: 0.3 cannot express the message.
        """
        options = request.configuration or model.SendMessageConfiguration()
        push = options.task_push_notification_config
        configuration = v03.Configuration(
            blocking=not options.return_immediately,
            accepted_output_modes=options.accepted_output_modes,
            history_length=_history(options.history_length),
        )
        if push is not None:
            configuration = self._pushed(configuration, _push_config(push))
        return v03.SendMessage(
            message=self._message(request.message),
            configuration=configuration,
            metadata=request.metadata,
        )

    def list_tasks(self, request: model.ListTasksRequest) -> v03.ListTasks:
        """Convert a request of tasks/list.

        Raises:
            UnsupportedOperationError: The request filters by time.
        """
        if request.status_timestamp_after:
            raise _unsupported("ListTasks by time (status_timestamp_after)")
        return v03.ListTasks(
            context_id=request.context_id,
            status=None if request.status is None else self._state(request.status),
            limit=request.page_size,
            cursor=request.page_token,
            history_length=request.history_length,
            include_artifacts=request.include_artifacts,
        )

    def cancel_task(self, request: model.CancelTaskRequest) -> v03.Request:
        """Convert a request of tasks/cancel.

        Raises:
            UnsupportedOperationError: ProtoJSON has no member for the metadata.
        """
        return v03.CancelTask(id=request.id, metadata=request.metadata)

    @abstractmethod
    def create_push_config(self, request: model.TaskPushNotificationConfig) -> v03.Request:
        """Convert a request of tasks/pushNotificationConfig/set."""

    def _message(self, source: Message) -> v03.Message:
        message = v03.Message(
            message_id=source.message_id,
            role=_ROLES.get(source.role, str(source.role)),
            context_id=source.context_id,
            task_id=source.task_id,
            metadata=source.metadata,
            extensions=source.extensions,
            reference_task_ids=source.reference_task_ids,
        )
        return self._holding(message, tuple(map(self._part, source.parts)))

    def _part(self, source: Part) -> v03.Part:
        if source.raw is not None or source.url is not None:
            part = v03.Part(file=self._file(source), metadata=source.metadata)
            return self._of_kind("file", part)
        if isinstance(source.data, UnsetType):
            part = v03.Part(text=source.text or "", metadata=source.metadata)
            return self._of_kind("text", part)
        data, metadata = as_object(source.data), source.metadata
        if data is None:
            data, metadata = {"value": source.data}, {**(metadata or {}), WRAPPED_DATA: True}
        part = v03.Part(data=self._data(data), metadata=metadata)
        return self._of_kind("data", part)

    @abstractmethod
    def _pushed(
        self, configuration: v03.Configuration, push: v03.PushConfig
    ) -> v03.Configuration: ...

    @abstractmethod
    def _state(self, state: TaskState) -> str: ...

    @abstractmethod
    def _holding(self, message: v03.Message, parts: tuple[v03.Part, ...]) -> v03.Message: ...

    @abstractmethod
    def _of_kind(self, kind: str, part: v03.Part, /) -> v03.Part: ...

    @abstractmethod
    def _data(self, data: dict[str, Any]) -> dict[str, Any]: ...

    @abstractmethod
    def _file(self, source: Part) -> v03.File: ...


class RpcForm(Form):
    """Form of JSON-RPC."""

    def create_push_config(self, request: model.TaskPushNotificationConfig) -> v03.SetPushConfig:
        """Convert a request of tasks/pushNotificationConfig/set."""
        return v03.SetPushConfig(
            task_id=request.task_id or "", push_notification_config=_push_config(request)
        )

    def _pushed(self, configuration: v03.Configuration, push: v03.PushConfig) -> v03.Configuration:
        return msgspec.structs.replace(configuration, push_notification_config=push)

    def _state(self, state: TaskState) -> str:
        return _STATES.get(state, str(state))

    def _holding(self, message: v03.Message, parts: tuple[v03.Part, ...]) -> v03.Message:
        return msgspec.structs.replace(message, kind="message", parts=parts)

    def _of_kind(self, kind: str, part: v03.Part, /) -> v03.Part:
        return msgspec.structs.replace(part, kind=kind)

    def _data(self, data: dict[str, Any]) -> dict[str, Any]:
        return data

    def _file(self, source: Part) -> v03.File:
        return v03.File(
            name=source.filename,
            mime_type=source.media_type,
            content=source.raw,
            uri=source.url if source.raw is None else None,
        )


class ProtoJsonForm(Form):
    """ProtoJSON, the form of HTTP+JSON."""

    binding = "HTTP+JSON"

    def cancel_task(self, request: model.CancelTaskRequest) -> v03.Request:
        """Convert a request of tasks/cancel; see `Form.cancel_task`."""
        if request.metadata:
            raise _unsupported(f"the metadata of CancelTask over {self.binding}")
        return super().cancel_task(request)

    def create_push_config(
        self, request: model.TaskPushNotificationConfig
    ) -> v03.CreatePushConfig:
        """Convert a request of tasks/pushNotificationConfig/set."""
        task = request.task_id or ""
        parent = f"tasks/{task}"
        name = f"{parent}/pushNotificationConfigs/{request.id or ''}"
        return v03.CreatePushConfig(
            id=task,
            parent=parent,
            config_id=request.id,
            config=v03.TaskPushConfig(name=name, push_notification_config=_push_config(request)),
        )

    def _pushed(self, configuration: v03.Configuration, push: v03.PushConfig) -> v03.Configuration:
        return msgspec.structs.replace(configuration, push_notification=push)

    def _state(self, state: TaskState) -> str:
        return str(state)

    def _holding(self, message: v03.Message, parts: tuple[v03.Part, ...]) -> v03.Message:
        if message.reference_task_ids:
            raise _unsupported(f"the reference_task_ids of a message over {self.binding}")
        role = message.role
        role = f"ROLE_{role.upper()}" if role in {"user", "agent"} else role
        return msgspec.structs.replace(message, role=role, content=parts)

    def _of_kind(self, _kind: str, part: v03.Part, /) -> v03.Part:
        return part

    def _data(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"data": data}

    def _file(self, source: Part) -> v03.File:
        return v03.File(
            name=source.filename,
            mime_type=source.media_type,
            file_with_bytes=source.raw,
            file_with_uri=source.url if source.raw is None else None,
        )


class GrpcForm(ProtoJsonForm):
    """Protocol buffers, the form of gRPC: resource names in place of ProtoJSON's paths.

    Agents parse a name up to the next slash, so an id with a slash would denote another task.
    """

    binding = "gRPC"

    def get_task(self, request: model.GetTaskRequest) -> v03.NamedTask:
        """Convert a request of GetTask."""
        return v03.NamedTask(
            name=_name(request.id), history_length=_history(request.history_length)
        )

    def cancel_task(self, request: model.CancelTaskRequest) -> v03.NamedTask:
        """Convert a request of CancelTask; see `ProtoJsonForm.cancel_task`."""
        super().cancel_task(request)
        return v03.NamedTask(name=_name(request.id))

    def subscribe(self, request: model.SubscribeToTaskRequest) -> v03.NamedTask:
        """Convert a request of TaskSubscription."""
        return v03.NamedTask(name=_name(request.id))

    def create_push_config(
        self, request: model.TaskPushNotificationConfig
    ) -> v03.CreatePushConfig:
        """Convert a request of CreateTaskPushNotificationConfig."""
        _name(request.task_id or "", request.id or "")
        return super().create_push_config(request)

    def push_config(
        self,
        request: model.GetTaskPushNotificationConfigRequest
        | model.DeleteTaskPushNotificationConfigRequest,
    ) -> v03.NamedPushConfig:
        """Convert a request of Get- or DeleteTaskPushNotificationConfig."""
        return v03.NamedPushConfig(name=_name(request.task_id, request.id))

    def push_configs(
        self, request: model.ListTaskPushNotificationConfigsRequest
    ) -> v03.PushConfigsOf:
        """Convert a request of ListTaskPushNotificationConfig; its pages are not used."""
        return v03.PushConfigsOf(parent=_name(request.task_id))


def _name(task: str, config: str | None = None) -> str:
    """Return the resource name of a task, or of one of its push configurations."""
    if "/" in task or "/" in (config or ""):
        raise _unsupported("an id with a slash in it, over gRPC")
    return f"tasks/{task}" + ("" if config is None else f"/pushNotificationConfigs/{config}")


def _push_config(source: model.TaskPushNotificationConfig) -> v03.PushConfig:
    authentication = source.authentication
    return v03.PushConfig(
        id=source.id,
        url=source.url,
        token=source.token,
        authentication=None
        if authentication is None
        else v03.AuthenticationInfo(
            schemes=(authentication.scheme,) if authentication.scheme else (),
            credentials=authentication.credentials,
        ),
    )


def _history(length: int | None) -> int:
    return _WHOLE_HISTORY if length is None else length


def _unsupported(feature: str) -> UnsupportedOperationError:
    return UnsupportedOperationError(
        f"protocol 0.3 does not support {feature}; nothing was sent", executed=False
    )
