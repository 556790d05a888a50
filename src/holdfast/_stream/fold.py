"""Fold the events of a stream into its task, as the agent does.

Rules; where the specification (A2A 4.2) is silent, those of the official server:

- A `Task` replaces everything that was folded before.
- A status replaces the previous one, whose message moves to the history.
- An artifact replaces the artifact with its id, or is added as the last one. With ``append``, its
  parts are added to those of the artifact with its id, each as a part of its own, and its metadata
  is merged; name, description and extensions stay those of the first chunk. A chunk that appends
  to no artifact starts one.
- Metadata of a status is merged into the task's, member by member.
- A `Message` is added to the history; a message before any task belongs to no task.
- The history has one message of each id, as last received; a message without an id replaces the
  last one without, if both are equal.
- An event that names another task is refused; an event that names none belongs to the task. The
  context stays the first one that was named.

So the same status, message or whole artifact may arrive twice. An appended chunk may not: two
chunks "ha" are "haha". ``lastChunk`` changes nothing, since a task has no member for it, nor does
a terminal state: events that follow are folded in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, overload

import msgspec

from holdfast._model import codec
from holdfast._wire.limits import Limits, check_value, limit_error
from holdfast.errors import InvalidAgentResponseError
from holdfast.types import (
    Artifact,
    Event,
    Message,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from holdfast.types import TaskStatus

__all__ = ["TaskFold", "TaskUpdate", "check_same_task", "fold"]


_MAX_BYTES_OF_CHARACTER = 6
"""The most that JSON takes for one: a control character, as an escape."""

_BYTES_OF_PART = 16
"""The most that JSON takes for a part of text, besides the text."""

_EXCERPT = 500
"""Characters of an agent's message that an error quotes."""

TaskUpdate: TypeAlias = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
"""An event that belongs to a task."""

_Metadata: TypeAlias = dict[str, Any]


@overload
def fold(task: Task, event: Event, *, limits: Limits | None = None) -> Task: ...
@overload
def fold(task: Task | None, event: TaskUpdate, *, limits: Limits | None = None) -> Task: ...
@overload
def fold(task: Task | None, event: Event, *, limits: Limits | None = None) -> Task | None: ...
def fold(task: Task | None, event: Event, *, limits: Limits | None = None) -> Task | None:
    """Fold one event onto a task; `TaskFold` does the same for many events, without copying.

    Args:
        task: The task before the event; None before the first event.
        event: The event.
        limits: How large the task may become; the defaults if left out.

    Returns:
        The task after the event; None if there is none yet.

    Raises:
        InvalidAgentResponseError: The event is of another task.
        LimitExceededError: The task becomes too large.
    """
    folded = TaskFold(task, limits=limits)
    folded.add(event)
    return folded.task


class TaskFold:
    """A task that events are added to; adding a chunk takes time that grows with the chunk alone.

    Events that were added are never modified, nor is a task that was returned.

    Args:
        task: The task to begin with; None before the first event.
        limits: How large the task may become; the defaults if left out. `Limits.artifacts`,
            `Limits.parts` and `Limits.history` bound the numbers of items, `Limits.body` the bytes
            of JSON of artifacts, history and metadata together.
    """

    __slots__ = (
        "_artifact_indexes",
        "_artifacts",
        "_context_id",
        "_history",
        "_history_indexes",
        "_id",
        "_is_estimated",
        "_is_open",
        "_metadata",
        "_size",
        "_status",
        "_task",
        "limits",
    )

    _id: str
    _context_id: str | None
    _status: TaskStatus
    _metadata: _Metadata | None
    _artifacts: list[Artifact | _OpenArtifact]
    _artifact_indexes: dict[str, int]
    _history: list[Message]
    _history_indexes: dict[str, int]
    _size: int  # in bytes of JSON, or an upper bound
    _is_estimated: bool

    def __init__(self, task: Task | None = None, *, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._task = task  # None while only the members below have every event
        self._is_open = False  # the members below are in use

    @property
    def task(self) -> Task | None:
        """The task after all events; None before the first event.

        It is made from its members when it is read, in time that grows with the number of its
        parts; the same object is returned until an event is added.
        """
        if self._task is None and self._is_open:
            self._task = self._closed()
        return self._task

    def artifact(self, artifact_id: str) -> Artifact | None:
        """Return one artifact of the task, in time that grows with its own size alone."""
        if not self._is_open:
            artifacts = () if self._task is None else self._task.artifacts
            return next((a for a in artifacts if a.artifact_id == artifact_id), None)
        index = self._artifact_indexes.get(artifact_id)
        if index is None:
            return None
        artifact = self._artifacts[index]
        return artifact.closed() if isinstance(artifact, _OpenArtifact) else artifact

    def add(self, event: Event) -> None:
        """Fold an event onto the task; if this raises, the task stays as it was.

        Raises:
            InvalidAgentResponseError: The event is of another task.
            LimitExceededError: The task becomes too large.
        """
        if isinstance(event, Task):
            self._replace_task(event)
            return
        if not self._is_open and not self._open(event):
            return
        if event.task_id != self._id:
            message = event.status.message if isinstance(event, TaskStatusUpdateEvent) else None
            check_same_task(self._id, event.task_id, message=message)
        if isinstance(event, TaskArtifactUpdateEvent):
            chunk = event.artifact
            index = self._artifact_indexes.get(chunk.artifact_id)
            if index is not None and event.append:
                self._append(index, chunk)
            else:
                self._put_artifact(index, chunk)
        elif isinstance(event, TaskStatusUpdateEvent):
            self._update_status(event)
        else:
            check_value(event, self.limits)
            self._record(event)
        self._task, self._is_open = None, True
        if not self._id or not self._context_id:  # which earlier events left out
            self._id, self._context_id = (
                self._id or event.task_id or "",
                self._context_id or event.context_id,
            )

    def _replace_task(self, task: Task) -> None:
        known_id = self._id if self._is_open else None if self._task is None else self._task.id
        if known_id is not None:
            check_same_task(known_id, task.id, message=task.status.message)
        check_value(task, self.limits)
        self._task, self._is_open = task, False

    def _open(self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent | Message) -> bool:
        """Copy the task's members, so that adding copies nothing; return whether it has any."""
        task = self._task
        if task is None:
            if isinstance(event, Message):
                return False
            task = Task(id=event.task_id, context_id=event.context_id)
        self._id, self._context_id = task.id, task.context_id
        self._status = task.status
        self._metadata = _copied(task.metadata)
        self._artifacts = list(task.artifacts)
        self._history = list(task.history)
        self._size, self._is_estimated = _size(task), True
        # Ids are not always unique: the first artifact counts, and the last message.
        self._artifact_indexes = {}
        for index, artifact in enumerate(task.artifacts):
            self._artifact_indexes.setdefault(artifact.artifact_id, index)
        self._history_indexes = {
            message.message_id: index for index, message in enumerate(task.history)
        }
        return True

    def _closed(self) -> Task:
        """Make the task from its members."""
        return Task(
            id=self._id,
            context_id=self._context_id,
            status=self._status,
            artifacts=tuple(
                artifact.closed() if isinstance(artifact, _OpenArtifact) else artifact
                for artifact in self._artifacts
            ),
            history=tuple(self._history),
            metadata=_copied(self._metadata),
        )

    def _update_status(self, event: TaskStatusUpdateEvent) -> None:
        before, message = self._status.message, event.status.message
        if message is not None:
            check_value(message, self.limits)
        growth = _growth(self._metadata, event.metadata) if event.metadata else 0
        if before is not None and not (message is not None and _are_same(before, message)):
            self._record(before, growth)
        else:
            self._grow(growth)
        self._status = event.status
        if event.metadata:
            self._metadata = _merged(self._metadata, event.metadata)

    def _append(self, index: int, chunk: Artifact) -> None:
        artifact, parts = self._artifacts[index], chunk.parts
        if not isinstance(artifact, _OpenArtifact):
            artifact = self._artifacts[index] = _OpenArtifact(artifact)
        if len(artifact.parts) + len(parts) > self.limits.parts:
            what = f"artifact {chunk.artifact_id} has more than {self.limits.parts} parts"
            raise limit_error("parts", self.limits, what, executed=True)
        text = parts[0].text if len(parts) == 1 and self._is_estimated else None
        if text is not None and parts[0] == Part(text=text):
            growth = _MAX_BYTES_OF_CHARACTER * len(text) + _BYTES_OF_PART
        else:
            growth = _size(parts) if parts else 0
        if chunk.metadata:
            growth += _growth(artifact.metadata, chunk.metadata)
        if self._size + growth > self.limits.body:
            growth = self._measured(artifact, chunk)
        self._size += growth
        artifact.parts += parts
        if chunk.metadata:
            artifact.metadata = _merged(artifact.metadata, chunk.metadata)
        artifact.size += growth
        artifact.is_closed = False

    def _put_artifact(self, index: int | None, artifact: Artifact) -> None:
        """Add an artifact, or replace the one at an index."""
        check_value(artifact, self.limits)
        size = _size(artifact)
        if index is not None:
            self._grow(size, replaced=self._artifacts[index])
            self._artifacts[index] = artifact
            return
        if len(self._artifacts) >= self.limits.artifacts:
            what = f"task {self._id} has more than {self.limits.artifacts} artifacts"
            raise limit_error("artifacts", self.limits, what, executed=True)
        self._grow(size)
        self._artifact_indexes[artifact.artifact_id] = len(self._artifacts)
        self._artifacts.append(artifact)

    def _record(self, message: Message, growth: int = 0) -> None:
        """Add a message to the history, or replace the one with its id."""
        index = self._history_indexes.get(message.message_id)
        if index is not None and _are_same(self._history[index], message):
            self._grow(growth + _size(message) - _size(self._history[index]))
            self._history[index] = message
            return
        if len(self._history) >= self.limits.history:
            what = f"task {self._id} has more than {self.limits.history} messages in its history"
            raise limit_error("history", self.limits, what, executed=True)
        self._grow(growth + _size(message))
        self._history_indexes[message.message_id] = len(self._history)
        self._history.append(message)

    def _grow(self, growth: int, *, replaced: Artifact | _OpenArtifact | None = None) -> None:
        """Count bytes that are added in place of an artifact, if any.

        Raises:
            LimitExceededError: The task becomes too large.
        """
        if self._is_estimated and self._size + growth > self.limits.body:
            self._measure()
        if replaced is not None:
            growth -= replaced.size if isinstance(replaced, _OpenArtifact) else _size(replaced)
        self._check_room(growth)
        self._size += growth

    def _check_room(self, growth: int) -> None:
        if growth > 0 and self._size + growth > self.limits.body:
            what = f"task {self._id} has become larger than {self.limits.body} bytes"
            raise limit_error("body", self.limits, what, executed=True)

    def _measured(self, artifact: _OpenArtifact, chunk: Artifact) -> int:
        """Return how many bytes a chunk adds, where an upper bound is too large.

        Raises:
            LimitExceededError: The task becomes too large.
        """
        if self._is_estimated:
            self._measure()
        growth = _size(chunk.parts) if chunk.parts else 0
        if chunk.metadata:
            growth += _growth(artifact.metadata, chunk.metadata)
        self._check_room(growth)
        return growth

    def _measure(self) -> None:
        """Count the bytes of the task, and of every chunk from here on.

        Until they may exceed the limit, an upper bound is sufficient, and takes less time.
        """
        self._is_estimated = False
        for artifact in self._artifacts:
            if isinstance(artifact, _OpenArtifact):
                size = _size(artifact.closed())
                self._size += size - artifact.size
                artifact.size = size


def check_same_task(known: str, named: str | None, *, message: Message | None = None) -> None:
    """Check that an event belongs to the task that it is folded into.

    Args:
        known: Id of that task; an empty one may be any.
        named: Id of the task that the event names; an empty one may be any.
        message: The message of the event, for the error: some servers report why a task failed
            under another id.

    Raises:
        InvalidAgentResponseError: The event belongs to another task.
    """
    if named and named != known and known:
        what = f"the agent sent an event of task {named} in the stream of task {known}"
        if message is not None and message.text:
            what = f"{what}; its status message: {message.text[:_EXCERPT]}"
        raise InvalidAgentResponseError(what, executed=True)


class _OpenArtifact:
    """An artifact that is being appended to."""

    __slots__ = ("_last", "is_closed", "metadata", "parts", "size")

    def __init__(self, first: Artifact) -> None:
        self._last = first  # the artifact when it was read last
        self.is_closed = True  # nothing was appended since
        self.parts = list(first.parts)
        self.metadata = _copied(first.metadata)
        self.size = _size(first)

    def closed(self) -> Artifact:
        """Return the artifact after all chunks."""
        if not self.is_closed:
            self._last = msgspec.structs.replace(
                self._last, parts=tuple(self.parts), metadata=_copied(self.metadata)
            )
            self.is_closed = True
        return self._last


def _copied(metadata: _Metadata | None) -> _Metadata | None:
    return None if metadata is None else dict(metadata)


def _merged(metadata: _Metadata | None, more: _Metadata) -> _Metadata:
    """Add members to metadata that belongs to the fold, and return it."""
    metadata = {} if metadata is None else metadata
    metadata.update(more)
    return metadata


def _growth(metadata: _Metadata | None, more: _Metadata) -> int:
    """Return how many bytes of JSON merging adds to metadata."""
    before = metadata or {}
    return _size(more) - sum(_size({name: before[name]}) for name in more if name in before)


def _size(value: object) -> int:
    """Return the size of the JSON of a value, in bytes."""
    return len(codec.encode(value))


def _are_same(one: Message, other: Message) -> bool:
    return one.message_id == other.message_id and (one.message_id != "" or one == other)
