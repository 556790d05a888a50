"""Messages, tasks and their parts, as A2A 1.0 defines them (specification section 4).

Rules: values are frozen; names are Python's here and camelCase on the wire; absent and ``null``
are the same except in `Part.data`, where ``null`` is a value; what a server adds is ignored.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import Any, Self, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from holdfast._model import codec

__all__ = [
    "Artifact",
    "Event",
    "Message",
    "Part",
    "Role",
    "StreamResponse",
    "Task",
    "TaskArtifactUpdateEvent",
    "TaskState",
    "TaskStatus",
    "TaskStatusUpdateEvent",
    "WireValue",
]


class WireValue(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False
):
    """What every type of the data model can do.

    None of them can hold itself, so none is looked at by the collector of cyclic garbage: a long
    stream makes very many.
    """

    def to_dict(self) -> dict[str, Any]:
        """Returns the protocol's JSON object as a dict, members that are not set left out."""
        result: dict[str, Any] = codec.to_builtins(self)
        return result

    def to_json(self, *, indent: int = 0) -> str:
        """Returns the protocol's JSON text.

        Args:
            indent: Spaces per level; 0 gives one line.
        """
        text = codec.encode(self)
        return (codec.indented(text, indent) if indent else text).decode()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Reads the protocol's JSON object.

        Raises:
            ValueError: A member is missing or of the wrong type; the message names it.
        """
        return codec.from_builtins(data, cls)


class _OpenEnum(str, Enum):  # noqa: UP042  StrEnum's members cannot be made by hand
    """Names that the protocol may add to: an unknown one is kept as received."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = value
        member._value_ = value
        return member

    def __repr__(self) -> str:
        # A name that is kept as received may hold what cannot be shown, or encoded.
        return f"<{type(self).__name__}.{repr(self.name)[1:-1]}: {self.value!r}>"

    def __str__(self) -> str:
        return str(self.value)


class TaskState(_OpenEnum):
    """Where a task stands (A2A 4.1.3), in the order of the protocol's numbers."""

    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"
    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    REJECTED = "TASK_STATE_REJECTED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"

    @property
    def is_terminal(self) -> bool:
        """Whether the task is over for good."""
        return self in _TERMINAL

    @property
    def is_settled(self) -> bool:
        """Whether nothing happens to the task without another message, if at all."""
        return self in _TERMINAL or self is TaskState.INPUT_REQUIRED

    @property
    def is_interrupted(self) -> bool:
        """Whether the task waits for somebody to act."""
        return self in _INTERRUPTED


_TERMINAL = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}
)
_INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})


class Role(_OpenEnum):
    """Who speaks (A2A 4.1.5), in the order of the protocol's numbers."""

    UNSPECIFIED = "ROLE_UNSPECIFIED"
    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class Part(WireValue, frozen=True, kw_only=True):
    """One piece of content: exactly one of text, raw bytes, a URL or data (A2A 4.1.6).

    Attributes:
        text: Text.
        raw: The bytes of a file; base64 on the wire.
        url: Where the receiver can fetch a file.
        data: Any JSON value; ``None`` is JSON's null, `msgspec.UNSET` is "no data".
        metadata: A JSON object.
        filename: Name of the file, for raw bytes and URLs.
        media_type: MIME type of the content.
    """

    text: str | None = None
    raw: bytes | None = None
    url: str | None = None
    data: Any | UnsetType = UNSET
    metadata: dict[str, Any] | None = None
    filename: str | None = None
    media_type: str | None = None


class Message(WireValue, frozen=True, kw_only=True):
    """One turn (A2A 4.1.4).

    Attributes:
        message_id: Chosen by the sender, and kept when the message is sent again.
        role: Who speaks.
        parts: The content.
        context_id: The conversation that it belongs to.
        task_id: The task that it continues.
        metadata: A JSON object.
        extensions: URIs of the extensions that contributed to it.
        reference_task_ids: Tasks that it refers to.
    """

    message_id: str = ""
    role: Role = Role.UNSPECIFIED
    parts: tuple[Part, ...] = ()
    context_id: str | None = None
    task_id: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text parts, a line end between them."""
        return "\n".join(part.text for part in self.parts if part.text is not None)


class Artifact(WireValue, frozen=True, kw_only=True):
    """A result of a task (A2A 4.1.7).

    Attributes:
        artifact_id: Unique within the task.
        name: Name for people.
        description: Description for people.
        parts: The content.
        metadata: A JSON object.
        extensions: URIs of the extensions that contributed to it.
    """

    artifact_id: str = ""
    name: str | None = None
    description: str | None = None
    parts: tuple[Part, ...] = ()
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text parts, nothing between them: agents send one text in many parts."""
        return "".join(part.text for part in self.parts if part.text is not None)


class TaskStatus(WireValue, frozen=True, kw_only=True):
    """Where a task stands, since when, and what the agent says about it (A2A 4.1.2).

    Attributes:
        state: The state; UNSPECIFIED where the server sent none.
        message: What the agent says about it.
        timestamp: When, as received; see `time`.
    """

    state: TaskState = TaskState.UNSPECIFIED
    message: Message | None = None
    timestamp: str | None = None

    @property
    def time(self) -> datetime | None:
        """`timestamp` as a time with zone (UTC where it names none); None if unreadable."""
        try:
            time = datetime.fromisoformat(self.timestamp or "")
        except ValueError:
            return None
        return time if time.tzinfo else time.replace(tzinfo=UTC)


class Task(WireValue, frozen=True, kw_only=True):
    """A unit of work that the agent keeps (A2A 4.1.1).

    Attributes:
        id: Given by the agent.
        context_id: The conversation that it belongs to.
        status: Where it stands.
        artifacts: Its results so far.
        history: The messages so far; agents may keep few or none.
        metadata: A JSON object.
    """

    id: str
    context_id: str | None = None
    status: TaskStatus = TaskStatus()
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The text of the artifacts, a line end between them."""
        return "\n".join(text for artifact in self.artifacts if (text := artifact.text))

    @property
    def state(self) -> TaskState:
        """`status.state`."""
        return self.status.state


class TaskStatusUpdateEvent(WireValue, frozen=True, kw_only=True):
    """A task has a new status (A2A 4.2.1)."""

    task_id: str = ""
    context_id: str | None = None
    status: TaskStatus = TaskStatus()
    metadata: dict[str, Any] | None = None


class TaskArtifactUpdateEvent(WireValue, frozen=True, kw_only=True):
    """A task has a new artifact, or more of one (A2A 4.2.2).

    Attributes:
        task_id: The task.
        context_id: The conversation that it belongs to.
        artifact: The artifact, or the piece to add.
        append: Whether its parts go behind those of the artifact with the same id.
        last_chunk: Whether the artifact is complete.
        metadata: A JSON object.
    """

    task_id: str = ""
    context_id: str | None = None
    artifact: Artifact = Artifact()
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] | None = None


Event: TypeAlias = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
"""An event of a stream (A2A 3.2.3)."""


class StreamResponse(WireValue, frozen=True, kw_only=True):
    """One event of a stream or of a push notification: exactly one member is set (A2A 3.2.3)."""

    task: Task | None = None
    message: Message | None = None
    status_update: TaskStatusUpdateEvent | None = None
    artifact_update: TaskArtifactUpdateEvent | None = None

    @property
    def event(self) -> Event | None:
        """The member that is set."""
        return self.artifact_update or self.status_update or self.task or self.message
