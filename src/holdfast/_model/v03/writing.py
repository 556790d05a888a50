"""What the model asks for, as a 0.3 agent is asked.

Each function takes a request of 1.0. Where the forms of 0.3 differ, it is a method of the form
that is wanted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UnsetType

from holdfast import types as model
from holdfast._model.codec import as_object
from holdfast._model.v03 import types as v03
from holdfast._model.v03.reading import WRAPPED
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
"""Messages to ask for where the caller sets no limit: 0.3 agents may show none unless asked, and
some forget what goes beyond the number that was asked for."""

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


# ── The same in both forms ───────────────────────────────────────────────────────────────────


def get_task(request: model.GetTaskRequest) -> v03.TaskQuery:
    """For tasks/get."""
    return v03.TaskQuery(id=request.id, history_length=_history(request.history_length))


def task_id(
    request: model.SubscribeToTaskRequest | model.ListTaskPushNotificationConfigsRequest,
) -> v03.TaskId:
    """For tasks/resubscribe and tasks/pushNotificationConfig/list, which has no pages."""
    if isinstance(request, model.SubscribeToTaskRequest):
        return v03.TaskId(id=request.id)
    return v03.TaskId(id=request.task_id)


def push_config_id(
    request: model.GetTaskPushNotificationConfigRequest
    | model.DeleteTaskPushNotificationConfigRequest,
) -> v03.PushConfigId:
    """For tasks/pushNotificationConfig/get and delete."""
    return v03.PushConfigId(id=request.task_id, push_notification_config_id=request.id)


def nothing(_request: model.GetExtendedAgentCardRequest) -> v03.Nothing:
    """For agent/getAuthenticatedExtendedCard."""
    return v03.Nothing()


# ── The forms ────────────────────────────────────────────────────────────────────────────────


class Form(ABC):
    """One of the two forms of its JSON: what is written in a form of its own."""

    def send_message(self, request: model.SendMessageRequest) -> v03.SendMessage:
        """For message/send and message/stream; whether to block is always said.

        Raises:
            UnsupportedOperationError: The message says what 0.3 cannot say.
        """
        asked = request.configuration or model.SendMessageConfiguration()
        push = asked.task_push_notification_config
        configuration = v03.Configuration(
            blocking=not asked.return_immediately,
            accepted_output_modes=asked.accepted_output_modes,
            history_length=_history(asked.history_length),
        )
        if push is not None:
            configuration = self._pushed(configuration, _push_config(push))
        return v03.SendMessage(
            message=self._message(request.message),
            configuration=configuration,
            metadata=request.metadata,
        )

    def list_tasks(self, request: model.ListTasksRequest) -> v03.ListTasks:
        """For tasks/list.

        Raises:
            UnsupportedOperationError: The list is to begin at a time.
        """
        if request.status_timestamp_after:
            raise _lacks("ListTasks by time (status_timestamp_after)")
        return v03.ListTasks(
            context_id=request.context_id,
            status=None if request.status is None else self._state(request.status),
            limit=request.page_size,
            cursor=request.page_token,
            history_length=request.history_length,
            include_artifacts=request.include_artifacts,
        )

    def cancel_task(self, request: model.CancelTaskRequest) -> v03.Request:
        """For tasks/cancel.

        Raises:
            UnsupportedOperationError: ProtoJSON has no place for its metadata.
        """
        return v03.CancelTask(id=request.id, metadata=request.metadata)

    @abstractmethod
    def create_push_config(self, request: model.TaskPushNotificationConfig) -> v03.Request:
        """For tasks/pushNotificationConfig/set."""

    def _message(self, told: Message) -> v03.Message:
        message = v03.Message(
            message_id=told.message_id,
            role=_ROLES.get(told.role, str(told.role)),
            context_id=told.context_id,
            task_id=told.task_id,
            metadata=told.metadata,
            extensions=told.extensions,
            reference_task_ids=told.reference_task_ids,
        )
        return self._holding(message, tuple(map(self._part, told.parts)))

    def _part(self, told: Part) -> v03.Part:
        if told.raw is not None or told.url is not None:
            part = v03.Part(file=self._file(told), metadata=told.metadata)
            return self._of_kind("file", part)
        if isinstance(told.data, UnsetType):
            part = v03.Part(text=told.text or "", metadata=told.metadata)
            return self._of_kind("text", part)
        data, metadata = as_object(told.data), told.metadata
        if data is None:
            data, metadata = {"value": told.data}, {**(metadata or {}), WRAPPED: True}
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
    def _file(self, told: Part) -> v03.File: ...


class RpcForm(Form):
    """For JSON-RPC."""

    def create_push_config(self, request: model.TaskPushNotificationConfig) -> v03.SetPushConfig:
        """For tasks/pushNotificationConfig/set."""
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

    def _file(self, told: Part) -> v03.File:
        return v03.File(
            name=told.filename,
            mime_type=told.media_type,
            content=told.raw,
            uri=told.url if told.raw is None else None,
        )


class ProtoJsonForm(Form):
    """ProtoJSON, for HTTP+JSON."""

    binding = "HTTP+JSON"

    def cancel_task(self, request: model.CancelTaskRequest) -> v03.Request:
        """For tasks/cancel; see `Form.cancel_task`."""
        if request.metadata:
            raise _lacks(f"the metadata of CancelTask over {self.binding}")
        return super().cancel_task(request)

    def create_push_config(
        self, request: model.TaskPushNotificationConfig
    ) -> v03.CreatePushConfig:
        """For tasks/pushNotificationConfig/set."""
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
            raise _lacks(f"the reference_task_ids of a message over {self.binding}")
        role = message.role
        role = f"ROLE_{role.upper()}" if role in {"user", "agent"} else role
        return msgspec.structs.replace(message, role=role, content=parts)

    def _of_kind(self, _kind: str, part: v03.Part, /) -> v03.Part:
        return part

    def _data(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"data": data}

    def _file(self, told: Part) -> v03.File:
        return v03.File(
            name=told.filename,
            mime_type=told.media_type,
            file_with_bytes=told.raw,
            file_with_uri=told.url if told.raw is None else None,
        )


class GrpcForm(ProtoJsonForm):
    """Protocol buffers, for gRPC: what ProtoJSON says in paths stands in names of resources.

    Agents read of a name what is before the next slash, so that an id with a slash in it would
    mean another task.
    """

    binding = "gRPC"

    def get_task(self, request: model.GetTaskRequest) -> v03.NamedTask:
        """For GetTask."""
        return v03.NamedTask(
            name=_name(request.id), history_length=_history(request.history_length)
        )

    def cancel_task(self, request: model.CancelTaskRequest) -> v03.NamedTask:
        """For CancelTask; see `ProtoJsonForm.cancel_task`."""
        super().cancel_task(request)
        return v03.NamedTask(name=_name(request.id))

    def subscribe(self, request: model.SubscribeToTaskRequest) -> v03.NamedTask:
        """For TaskSubscription."""
        return v03.NamedTask(name=_name(request.id))

    def create_push_config(
        self, request: model.TaskPushNotificationConfig
    ) -> v03.CreatePushConfig:
        """For CreateTaskPushNotificationConfig."""
        _name(request.task_id or "", request.id or "")
        return super().create_push_config(request)

    def push_config(
        self,
        request: model.GetTaskPushNotificationConfigRequest
        | model.DeleteTaskPushNotificationConfigRequest,
    ) -> v03.NamedPushConfig:
        """For GetTaskPushNotificationConfig and DeleteTaskPushNotificationConfig."""
        return v03.NamedPushConfig(name=_name(request.task_id, request.id))

    def push_configs(
        self, request: model.ListTaskPushNotificationConfigsRequest
    ) -> v03.PushConfigsOf:
        """For ListTaskPushNotificationConfig, whose pages nobody has seen."""
        return v03.PushConfigsOf(parent=_name(request.task_id))


def _name(task: str, config: str | None = None) -> str:
    """The name of a task, or of one of its configurations."""
    if "/" in task or "/" in (config or ""):
        raise _lacks("an id with a slash in it, over gRPC")
    return f"tasks/{task}" + ("" if config is None else f"/pushNotificationConfigs/{config}")


def _push_config(told: model.TaskPushNotificationConfig) -> v03.PushConfig:
    how = told.authentication
    return v03.PushConfig(
        id=told.id,
        url=told.url,
        token=told.token,
        authentication=None
        if how is None
        else v03.AuthenticationInfo(
            schemes=(how.scheme,) if how.scheme else (), credentials=how.credentials
        ),
    )


def _history(length: int | None) -> int:
    return _WHOLE_HISTORY if length is None else length


def _lacks(what: str) -> UnsupportedOperationError:
    return UnsupportedOperationError(
        f"protocol 0.3 has no word for {what}; nothing was sent", executed=False
    )
