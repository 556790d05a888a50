"""Data structures of protocol 0.3 (its specification, sections 6 and 7), in both forms.

Names are those of the specification. Members of only one form are marked.
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
    """File, by content or by URI.

    Attributes:
        name: Name for display.
        mime_type: Media type.
        content: The bytes.
        uri: Location of the file.
        file_with_bytes: ProtoJSON: the bytes, as the proto defines; some servers send the base64
            text of the bytes (see `holdfast._pipeline.older_files`).
        file_with_uri: ProtoJSON: location of the file.
    """

    name: str | None = None
    mime_type: str | None = None
    content: bytes | None = msgspec.field(default=None, name="bytes")
    uri: str | None = None
    file_with_bytes: bytes | None = None
    file_with_uri: str | None = None


class Part(WireValue, frozen=True, kw_only=True):
    """Piece of content; in ProtoJSON it has no kind, and its data is wrapped in another object."""

    kind: str | None = None
    text: str | None = None
    file: File | None = None
    data: Any | UnsetType = UNSET
    metadata: dict[str, Any] | None = None


class Message(WireValue, frozen=True, kw_only=True):
    """Message; ProtoJSON calls its parts `content`."""

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
    """Result of a task."""

    artifact_id: str = ""
    name: str | None = None
    description: str | None = None
    parts: tuple[Part, ...] = ()
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()


class TaskStatus(WireValue, frozen=True, kw_only=True):
    """Status of a task; the state is a name, or a number of ProtoJSON."""

    state: Any = None
    message: Message | None = None
    timestamp: str | None = None


class Task(WireValue, frozen=True, kw_only=True):
    """Unit of work."""

    id: str
    context_id: str | None = None
    status: TaskStatus = TaskStatus()
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: dict[str, Any] | None = None


class StatusUpdate(WireValue, frozen=True, kw_only=True):
    """Event: new status of a task; `final` means that no event follows."""

    task_id: str = ""
    context_id: str | None = None
    status: TaskStatus = TaskStatus()
    final: bool = False
    metadata: dict[str, Any] | None = None


class ArtifactUpdate(WireValue, frozen=True, kw_only=True):
    """Event: a new artifact of a task, or a chunk of one."""

    task_id: str = ""
    context_id: str | None = None
    artifact: Artifact = Artifact()
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] | None = None


class Event(WireValue, frozen=True, kw_only=True):
    """Response to a message, or event of a stream: the members of all kinds together.

    In JSON-RPC the object itself is the payload, identified by `kind` or its members; ProtoJSON
    puts the payload into a member named after its kind.
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
    def payload(self) -> Task | Message | StatusUpdate | ArtifactUpdate | None:
        """The payload; None if its kind is unknown."""
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
    """Authentication of the agent at a push receiver."""

    schemes: tuple[str, ...] = ()
    credentials: str | None = None


class PushConfig(WireValue, frozen=True, kw_only=True):
    """Push configuration: where the agent sends events of a task."""

    id: str | None = None
    url: str = ""
    token: str | None = None
    authentication: AuthenticationInfo | None = None


class TaskPushConfig(WireValue, frozen=True, kw_only=True):
    """Push configuration with its task, which ProtoJSON encodes in `name`."""

    task_id: str | None = None
    name: str | None = None
    push_notification_config: PushConfig = PushConfig()


class PushConfigs(WireValue, frozen=True, kw_only=True):
    """Push configurations of a task; JSON-RPC sends them as a bare list."""

    configs: tuple[TaskPushConfig, ...] = ()
    next_page_token: str = ""


class Tasks(WireValue, frozen=True, kw_only=True):
    """Page of tasks, from agents that list them; 0.3 itself has no such operation."""

    tasks: tuple[Task, ...] = ()
    next_cursor: str | None = None
    next_page_token: str | None = None
    page_size: int = 0
    total_size: int = 0


# ── Requests ─────────────────────────────────────────────────────────────────────────────────


class Request(WireValue, frozen=True, kw_only=True):
    """Base class of requests; 0.3 has no tenants."""

    tenant: ClassVar[None] = None


class Configuration(WireValue, frozen=True, kw_only=True):
    """Options for a message; `push_notification` is ProtoJSON's."""

    blocking: bool
    accepted_output_modes: tuple[str, ...] = ()
    history_length: int | None = None
    push_notification_config: PushConfig | None = None
    push_notification: PushConfig | None = None


class SendMessage(Request, frozen=True, kw_only=True):
    """Request of message/send and message/stream."""

    message: Message
    configuration: Configuration
    metadata: dict[str, Any] | None = None


class TaskQuery(Request, frozen=True, kw_only=True):
    """Request of tasks/get."""

    id: str
    history_length: int | None = None


class ListTasks(Request, frozen=True, kw_only=True):
    """Request of tasks/list, in the agents that have it."""

    context_id: str | None = None
    status: str | None = None
    limit: int | None = None
    cursor: str | None = None
    history_length: int | None = None
    include_artifacts: bool | None = None


class TaskId(Request, frozen=True, kw_only=True):
    """Request of tasks/resubscribe and tasks/pushNotificationConfig/list."""

    id: str


class CancelTask(Request, frozen=True, kw_only=True):
    """Request of tasks/cancel."""

    id: str
    metadata: dict[str, Any] | None = None


class SetPushConfig(Request, frozen=True, kw_only=True):
    """Request of tasks/pushNotificationConfig/set."""

    task_id: str
    push_notification_config: PushConfig


class CreatePushConfig(Request, frozen=True, kw_only=True):
    """ProtoJSON: request to set a push configuration; `id` is the task's, for the path."""

    id: str
    parent: str
    config: TaskPushConfig
    config_id: str | None = None


class PushConfigId(Request, frozen=True, kw_only=True):
    """Request of tasks/pushNotificationConfig/get and delete; `id` is the task's."""

    id: str
    push_notification_config_id: str


class Nothing(Request, frozen=True, kw_only=True):
    """Request of agent/getAuthenticatedExtendedCard."""


class NamedTask(Request, frozen=True, kw_only=True):
    """gRPC: task by its resource name, ``tasks/ID``."""

    name: str
    history_length: int | None = None


class NamedPushConfig(Request, frozen=True, kw_only=True):
    """gRPC: push configuration by its name, ``tasks/ID/pushNotificationConfigs/ID``."""

    name: str


class PushConfigsOf(Request, frozen=True, kw_only=True):
    """gRPC: push configurations of a task, ``tasks/ID``."""

    parent: str
