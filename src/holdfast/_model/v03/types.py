"""The data structures of protocol 0.3 (its specification, sections 6 and 7), in both forms.

They are named as they are there. A member that only one form has says so.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.types import WireValue

__all__ = [
    "Artifact",
    "AuthenticationInfo",
    "CancelTask",
    "Configuration",
    "CreatePushConfig",
    "Event",
    "File",
    "ListTasks",
    "Message",
    "NamedPushConfig",
    "NamedTask",
    "Nothing",
    "Part",
    "PushConfig",
    "PushConfigId",
    "PushConfigs",
    "PushConfigsOf",
    "Request",
    "SendMessage",
    "SetPushConfig",
    "StatusUpdate",
    "Task",
    "TaskId",
    "TaskPushConfig",
    "TaskQuery",
    "TaskStatus",
    "Tasks",
]


class File(WireValue, frozen=True, kw_only=True):
    """A file, by content or by address.

    Attributes:
        name: For people.
        mime_type: What it is.
        content: Its bytes.
        uri: Where it is.
        file_with_bytes: ProtoJSON: its bytes, as the proto says; at some servers the bytes of the
            base64 text of its bytes (see `holdfast._pipeline.older_files`).
        file_with_uri: ProtoJSON: where it is.
    """

    name: str | None = None
    mime_type: str | None = None
    content: bytes | None = msgspec.field(default=None, name="bytes")
    uri: str | None = None
    file_with_bytes: bytes | None = None
    file_with_uri: str | None = None


class Part(WireValue, frozen=True, kw_only=True):
    """A piece of content; in ProtoJSON it has no kind, and its data is in one more object."""

    kind: str | None = None
    text: str | None = None
    file: File | None = None
    data: Any | UnsetType = UNSET
    metadata: dict[str, Any] | None = None


class Message(WireValue, frozen=True, kw_only=True):
    """One turn; ProtoJSON calls its parts `content`."""

    kind: str | None = None
    message_id: str = ""
    role: Any = None
    parts: tuple[Part, ...] = ()
    content: tuple[Part, ...] = ()
    context_id: str | None = None
    task_id: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class Artifact(WireValue, frozen=True, kw_only=True):
    """A result of a task."""

    artifact_id: str = ""
    name: str | None = None
    description: str | None = None
    parts: tuple[Part, ...] = ()
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()


class TaskStatus(WireValue, frozen=True, kw_only=True):
    """Where a task stands; the state is a name, or a number of ProtoJSON."""

    state: Any = None
    message: Message | None = None
    timestamp: str | None = None


class Task(WireValue, frozen=True, kw_only=True):
    """A unit of work."""

    id: str
    context_id: str | None = None
    status: TaskStatus = TaskStatus()
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: dict[str, Any] | None = None


class StatusUpdate(WireValue, frozen=True, kw_only=True):
    """A task has a new status; `final` says that nothing follows."""

    task_id: str = ""
    context_id: str | None = None
    status: TaskStatus = TaskStatus()
    final: bool = False
    metadata: dict[str, Any] | None = None


class ArtifactUpdate(WireValue, frozen=True, kw_only=True):
    """A task has a new artifact, or more of one."""

    task_id: str = ""
    context_id: str | None = None
    artifact: Artifact = Artifact()
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] | None = None


class Event(WireValue, frozen=True, kw_only=True):
    """What a message is answered by, and what a stream tells: all that it may be, in one.

    In JSON-RPC it is the thing itself, which has `kind` or is known by its members; ProtoJSON puts
    it into a member that is named after it.
    """

    kind: str | None = None
    id: str | None = None
    context_id: str | None = None
    status: TaskStatus | None = None
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: dict[str, Any] | None = None
    message_id: str | None = None
    role: Any = None
    parts: tuple[Part, ...] = ()
    content: tuple[Part, ...] = ()
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()
    task_id: str | None = None
    final: bool = False
    artifact: Artifact | None = None
    append: bool = False
    last_chunk: bool = False
    task: Task | None = None
    message: Message | None = None
    msg: Message | None = None
    status_update: StatusUpdate | None = None
    artifact_update: ArtifactUpdate | None = None

    @property
    def what(self) -> Task | Message | StatusUpdate | ArtifactUpdate | None:
        """The thing itself; None if it is none."""
        if self.artifact is not None:
            return ArtifactUpdate(
                task_id=self.task_id or "",
                context_id=self.context_id,
                artifact=self.artifact,
                append=self.append,
                last_chunk=self.last_chunk,
                metadata=self.metadata,
            )
        if self.status is not None and (self.kind == "status-update" or self.id is None):
            return StatusUpdate(
                task_id=self.task_id or "",
                context_id=self.context_id,
                status=self.status,
                final=self.final,
                metadata=self.metadata,
            )
        if self.id is not None:
            return Task(
                id=self.id,
                context_id=self.context_id,
                status=self.status or TaskStatus(),
                artifacts=self.artifacts,
                history=self.history,
                metadata=self.metadata,
            )
        if self.kind == "message" or self.message_id is not None or self.role is not None:
            return Message(
                message_id=self.message_id or "",
                role=self.role,
                parts=self.parts,
                content=self.content,
                context_id=self.context_id,
                task_id=self.task_id,
                metadata=self.metadata,
                extensions=self.extensions,
                reference_task_ids=self.reference_task_ids,
            )
        return self.task or self.message or self.msg or self.status_update or self.artifact_update


class AuthenticationInfo(WireValue, frozen=True, kw_only=True):
    """How the agent authenticates to a receiver of push notifications."""

    schemes: tuple[str, ...] = ()
    credentials: str | None = None


class PushConfig(WireValue, frozen=True, kw_only=True):
    """Where the agent sends news of a task."""

    id: str | None = None
    url: str = ""
    token: str | None = None
    authentication: AuthenticationInfo | None = None


class TaskPushConfig(WireValue, frozen=True, kw_only=True):
    """A `PushConfig` and its task, which ProtoJSON says in a name."""

    task_id: str | None = None
    name: str | None = None
    push_notification_config: PushConfig = PushConfig()


class PushConfigs(WireValue, frozen=True, kw_only=True):
    """The configurations of a task; in JSON-RPC they come as a list alone."""

    configs: tuple[TaskPushConfig, ...] = ()
    next_page_token: str = ""


class Tasks(WireValue, frozen=True, kw_only=True):
    """A page of tasks, where an agent lists them; 0.3 itself has no such thing."""

    tasks: tuple[Task, ...] = ()
    next_cursor: str | None = None
    next_page_token: str | None = None
    page_size: int = 0
    total_size: int = 0


# ── What is asked ────────────────────────────────────────────────────────────────────────────


class Request(WireValue, frozen=True, kw_only=True):
    """0.3 knows no tenants."""

    tenant: ClassVar[None] = None


class Configuration(WireValue, frozen=True, kw_only=True):
    """How to treat a message; `push_notification` is ProtoJSON's."""

    blocking: bool
    accepted_output_modes: tuple[str, ...] = ()
    history_length: int | None = None
    push_notification_config: PushConfig | None = None
    push_notification: PushConfig | None = None


class SendMessage(Request, frozen=True, kw_only=True):
    """For message/send and message/stream."""

    message: Message
    configuration: Configuration
    metadata: dict[str, Any] | None = None


class TaskQuery(Request, frozen=True, kw_only=True):
    """For tasks/get."""

    id: str
    history_length: int | None = None


class ListTasks(Request, frozen=True, kw_only=True):
    """For tasks/list, as those agents have it that do."""

    context_id: str | None = None
    status: str | None = None
    limit: int | None = None
    cursor: str | None = None
    history_length: int | None = None
    include_artifacts: bool | None = None


class TaskId(Request, frozen=True, kw_only=True):
    """For tasks/resubscribe and tasks/pushNotificationConfig/list."""

    id: str


class CancelTask(Request, frozen=True, kw_only=True):
    """For tasks/cancel."""

    id: str
    metadata: dict[str, Any] | None = None


class SetPushConfig(Request, frozen=True, kw_only=True):
    """For tasks/pushNotificationConfig/set."""

    task_id: str
    push_notification_config: PushConfig


class CreatePushConfig(Request, frozen=True, kw_only=True):
    """ProtoJSON: for the same; `id` is the task's, for the path."""

    id: str
    parent: str
    config: TaskPushConfig
    config_id: str | None = None


class PushConfigId(Request, frozen=True, kw_only=True):
    """For tasks/pushNotificationConfig/get and delete; `id` is the task's."""

    id: str
    push_notification_config_id: str


class Nothing(Request, frozen=True, kw_only=True):
    """For agent/getAuthenticatedExtendedCard."""


class NamedTask(Request, frozen=True, kw_only=True):
    """gRPC: a task by its name, ``tasks/ID``."""

    name: str
    history_length: int | None = None


class NamedPushConfig(Request, frozen=True, kw_only=True):
    """gRPC: a configuration by its name, ``tasks/ID/pushNotificationConfigs/ID``."""

    name: str


class PushConfigsOf(Request, frozen=True, kw_only=True):
    """gRPC: the configurations of a task, ``tasks/ID``."""

    parent: str
