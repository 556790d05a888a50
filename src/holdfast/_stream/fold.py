"""A task from the events of its stream: what the agent's own task is after the same events.

Rules, where the specification (A2A 4.2) is silent those of the official server:

- A `Task` is the truth, whatever was folded before.
- A status replaces the one before, whose message moves to the history.
- An artifact replaces the one with its id, or comes behind the others. With ``append`` its parts
  go behind those of the one with its id, each a part of its own, and its metadata is merged; name,
  description and extensions stay those of the first chunk. One that appends to nothing is new.
- Metadata of a status is merged into the task's, member by member.
- A `Message` goes into the history; one that comes before any task belongs to none.
- A message is in the history once by its id, as last received; one without an id counts as the
  last one without, if they are equal.
- What names another task is refused; what names none belongs to the task at hand. The context
  stays the first one named.

So the same status, message or whole artifact may come twice. An appended chunk may not: "ha" and
"ha" are two. ``lastChunk`` changes nothing, since a task has no place for it, nor does a terminal
state: events that follow are folded like those before.

Which of two statuses of a task is the newer one: one rule for all who hear of it twice.

- A status that ends the task is newer than any other. Of two that end it in different ways the
  one that is known stands, whichever that is: a task ends once.
- Of two others that of the later timestamp is newer (A2A 4.1.2).
- Where a timestamp is missing or cannot be read, or both name the same time, nobody can say. What
  counts then is for whoever asks, who knows how the two came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

import msgspec

from holdfast._model import codec
from holdfast._wire.limits import Limits, check_value, limit_error
from holdfast.errors import InvalidAgentResponseError
from holdfast.types import (
    Artifact,
    Event,
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.types import TaskStatus

__all__ = ["TaskFold", "TaskUpdate", "check_same_task", "fold", "is_newer"]


def is_newer(status: TaskStatus, known: TaskStatus) -> bool | None:
    """Whether a status is newer than the known one of the same task.

    Returns:
        True or False; None where nobody can say.
    """
    if known.state.is_terminal:
        return None if status.state is known.state else False
    if status.state.is_terminal:
        return True
    time, before = status.time, known.time
    if time is None or before is None or time == before:
        return None
    return time > before


_EXCERPT = 500
"""Characters of what an agent says that an error repeats."""

TaskUpdate: TypeAlias = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
"""An event that belongs to a task."""


@overload
def fold(task: Task, event: Event, *, limits: Limits | None = None) -> Task: ...
@overload
def fold(task: Task | None, event: TaskUpdate, *, limits: Limits | None = None) -> Task: ...
@overload
def fold(task: Task | None, event: Event, *, limits: Limits | None = None) -> Task | None: ...
def fold(task: Task | None, event: Event, *, limits: Limits | None = None) -> Task | None:
    """Folds one event onto a task; `TaskFold` does the same for many, without copying.

    Args:
        task: The task before it; None before the first event.
        event: The event.
        limits: How large the task may become; the defaults if left out.

    Returns:
        The task after it; None if there is none yet.

    Raises:
        InvalidAgentResponseError: The event is of another task.
        LimitExceededError: The task becomes too large.
    """
    folded = TaskFold(task, limits=limits)
    folded.add(event)
    return folded.task


class TaskFold:
    """A task that events are added to; what is appended costs what it is long, not what is there.

    What it is given it never changes, and what it gives never changes afterwards.

    Args:
        task: The task to begin with; None before the first event.
        limits: How large the task may become; the defaults if left out. `Limits.artifacts`,
            `Limits.parts` and `Limits.history` bound what is counted, `Limits.body` the bytes of
            JSON of artifacts, history and metadata together.
    """

    __slots__ = ("_open", "_task", "limits")

    def __init__(self, task: Task | None = None, *, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._task = task
        self._open: _OpenTask | None = None

    @property
    def task(self) -> Task | None:
        """The task as it stands; None as long as there is none.

        Put together when it is asked for, in time that grows with the number of its parts; the
        same object until something is added.
        """
        if self._task is None and self._open is not None:
            self._task = self._open.closed()
        return self._task

    def artifact(self, artifact_id: str) -> Artifact | None:
        """One artifact of the task as it stands, in time that grows with its own size alone."""
        if self._open is not None:
            return self._open.artifact(artifact_id)
        artifacts = () if self._task is None else self._task.artifacts
        return next((a for a in artifacts if a.artifact_id == artifact_id), None)

    def add(self, event: Event) -> None:
        """Folds an event onto the task; if it raises, the task stays as it was.

        Raises:
            InvalidAgentResponseError: The event is of another task.
            LimitExceededError: The task becomes too large.
        """
        if isinstance(event, Task):
            known = self._open or self._task
            if known is not None:
                check_same_task(known.id, event.id, said=event.status.message)
            check_value(event, self.limits)
            self._task, self._open = event, None
            return
        task = self._open or self._opened(event)
        if task is not None:
            if event.task_id != task.id:
                said = event.status.message if isinstance(event, TaskStatusUpdateEvent) else None
                check_same_task(task.id, event.task_id, said=said)
            _UPDATES[type(event)](task, event)
            self._task, self._open = None, task

    def _opened(
        self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent | Message
    ) -> _OpenTask | None:
        task = self._task
        if task is None:
            if isinstance(event, Message):
                return None
            task = Task(id=event.task_id, context_id=event.context_id)
        return _OpenTask(task, self.limits)


def check_same_task(known: str, named: str | None, *, said: Message | None = None) -> None:
    """Checks that what an agent sent is of the task that it is folded into.

    Args:
        known: Id of that task; an empty one may be any.
        named: Id of the task that it is of; an empty one may be any.
        said: What it says. Some servers report why a task failed under an id of its own.

    Raises:
        InvalidAgentResponseError: It is of another.
    """
    if named and named != known and known:
        what = f"what the agent sent is of task {named}, not of task {known}"
        if said is not None and said.text:
            what = f"{what}; it says: {said.text[:_EXCERPT]}"
        raise InvalidAgentResponseError(what, executed=True)


class _OpenTask:
    """A task taken apart, so that adding to it copies nothing."""

    __slots__ = (
        "_artifacts",
        "_context_id",
        "_heard",
        "_history",
        "_limits",
        "_metadata",
        "_places",
        "_size",
        "_status",
        "id",
    )

    def __init__(self, task: Task, limits: Limits) -> None:
        self.id = task.id
        self._context_id = task.context_id
        self._status = task.status
        self._metadata = _copied(task.metadata)
        self._artifacts: list[Artifact | _OpenArtifact] = list(task.artifacts)
        self._history = list(task.history)
        self._limits = limits
        self._size = _size(task)
        # Ids are not always unique: the first artifact counts, and the last message.
        self._places: dict[str, int] = {}
        for place, artifact in enumerate(task.artifacts):
            self._places.setdefault(artifact.artifact_id, place)
        self._heard = {message.message_id: place for place, message in enumerate(task.history)}

    def closed(self) -> Task:
        """The task as it stands."""
        return Task(
            id=self.id,
            context_id=self._context_id,
            status=self._status,
            artifacts=tuple(
                artifact.closed() if isinstance(artifact, _OpenArtifact) else artifact
                for artifact in self._artifacts
            ),
            history=tuple(self._history),
            metadata=_copied(self._metadata),
        )

    def artifact(self, artifact_id: str) -> Artifact | None:
        """One artifact as it stands."""
        place = self._places.get(artifact_id)
        if place is None:
            return None
        artifact = self._artifacts[place]
        return artifact.closed() if isinstance(artifact, _OpenArtifact) else artifact

    def update_status(self, event: TaskStatusUpdateEvent) -> None:
        said, says = self._status.message, event.status.message
        if says is not None:
            check_value(says, self._limits)
        growth = _growth(self._metadata, event.metadata) if event.metadata else 0
        if said is not None and not (says is not None and _are_same(said, says)):
            self._record(said, growth)
        else:
            self._grow(growth)
        self._status = event.status
        if event.metadata:
            self._metadata = _merged(self._metadata, event.metadata)
        self._identify(event)

    def update_artifact(self, event: TaskArtifactUpdateEvent) -> None:
        piece = event.artifact
        place = self._places.get(piece.artifact_id)
        if place is None:
            self._add(piece)
        elif event.append:
            self._append(place, piece)
        else:
            check_value(piece, self._limits)
            self._grow(_size(piece) - _size_of(self._artifacts[place]))
            self._artifacts[place] = piece
        if not self.id or not self._context_id:
            self._identify(event)

    def hear(self, message: Message) -> None:
        check_value(message, self._limits)
        self._record(message)
        self._identify(message)

    def _add(self, artifact: Artifact) -> None:
        check_value(artifact, self._limits)
        if len(self._artifacts) >= self._limits.artifacts:
            what = f"task {self.id} has more than {self._limits.artifacts} artifacts"
            raise limit_error("artifacts", self._limits, what, executed=True)
        self._grow(_size(artifact))
        self._places[artifact.artifact_id] = len(self._artifacts)
        self._artifacts.append(artifact)

    def _append(self, place: int, piece: Artifact) -> None:
        artifact, parts = self._artifacts[place], piece.parts
        if not isinstance(artifact, _OpenArtifact):
            artifact = self._artifacts[place] = _OpenArtifact(artifact)
        if len(artifact.parts) + len(parts) > self._limits.parts:
            what = f"artifact {piece.artifact_id} has more than {self._limits.parts} parts"
            raise limit_error("parts", self._limits, what, executed=True)
        growth = len(codec.encode(parts)) if parts else 0
        if piece.metadata:
            growth += _growth(artifact.metadata, piece.metadata)
        if self._size + growth > self._limits.body:
            self._grow(growth)  # which refuses
        self._size += growth
        artifact.parts += parts
        if piece.metadata:
            artifact.metadata = _merged(artifact.metadata, piece.metadata)
        artifact.size += growth
        artifact.is_closed = False

    def _record(self, message: Message, growth: int = 0) -> None:
        """Puts a message into the history, where it is not there yet."""
        place = self._heard.get(message.message_id)
        if place is not None and _are_same(self._history[place], message):
            self._grow(growth + _size(message) - _size(self._history[place]))
            self._history[place] = message
            return
        if len(self._history) >= self._limits.history:
            what = f"task {self.id} has more than {self._limits.history} messages in its history"
            raise limit_error("history", self._limits, what, executed=True)
        self._grow(growth + _size(message))
        self._heard[message.message_id] = len(self._history)
        self._history.append(message)

    def _grow(self, growth: int) -> None:
        if growth > 0 and self._size + growth > self._limits.body:
            what = f"task {self.id} has become larger than {self._limits.body} bytes"
            raise limit_error("body", self._limits, what, executed=True)
        self._size += growth

    def _identify(self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent | Message) -> None:
        """Learns ids that earlier events left out."""
        if not self.id:
            self.id = event.task_id or ""
        if not self._context_id:
            self._context_id = event.context_id


_UPDATES = cast(
    "Mapping[type, Callable[[_OpenTask, Event], None]]",
    {
        TaskStatusUpdateEvent: _OpenTask.update_status,
        TaskArtifactUpdateEvent: _OpenTask.update_artifact,
        Message: _OpenTask.hear,
    },
)


class _OpenArtifact:
    """An artifact that is being appended to."""

    __slots__ = ("_last", "is_closed", "metadata", "parts", "size")

    def __init__(self, first: Artifact) -> None:
        self._last = first  # as it was closed last
        self.is_closed = True  # and nothing came since
        self.parts = list(first.parts)
        self.metadata = _copied(first.metadata)
        self.size = _size(first)

    def closed(self) -> Artifact:
        if not self.is_closed:
            self._last = msgspec.structs.replace(
                self._last, parts=tuple(self.parts), metadata=_copied(self.metadata)
            )
            self.is_closed = True
        return self._last


_Metadata: TypeAlias = dict[str, Any]


def _copied(metadata: _Metadata | None) -> _Metadata | None:
    return None if metadata is None else dict(metadata)


def _merged(metadata: _Metadata | None, more: _Metadata) -> _Metadata:
    """The first, which is the fold's own, with the members of the second."""
    metadata = {} if metadata is None else metadata
    metadata.update(more)
    return metadata


def _growth(metadata: _Metadata | None, more: _Metadata) -> int:
    """By how many bytes of JSON metadata grows when more is merged into it."""
    before = metadata or {}
    return _size(more) - sum(_size({name: before[name]}) for name in more if name in before)


def _size(value: object) -> int:
    """How long the JSON of a value is, in bytes."""
    return len(codec.encode(value))


def _size_of(artifact: Artifact | _OpenArtifact) -> int:
    return artifact.size if isinstance(artifact, _OpenArtifact) else _size(artifact)


def _are_same(one: Message, other: Message) -> bool:
    return one.message_id == other.message_id and (one.message_id != "" or one == other)
