"""Events of a stream for the SDK, which reads events alone and has no task of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._stream.artifact_texts import flattened
from holdfast._stream.difference import difference
from holdfast.types import (
    Message,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.types import Event

__all__ = ["late_artifacts", "to_response"]

_MEMBERS: Mapping[type[Event], str] = {
    Task: "task",
    Message: "message",
    TaskStatusUpdateEvent: "status_update",
    TaskArtifactUpdateEvent: "artifact_update",
}


def to_response(event: Event) -> StreamResponse:
    """Return the message of a stream that carries an event."""
    member: dict[str, Any] = {_MEMBERS[type(event)]: event}
    return StreamResponse(**member)


def late_artifacts(emitted: Task | None, final: Task | None) -> Iterable[Event]:
    """Return events of artifacts that changed after the last status of a stream.

    Holdfast's own stream has these changes in its task; a reader of events alone needs an event.
    An artifact that is only divided into other parts, or no longer in the task, was emitted.
    """
    if emitted is None or final is None or emitted is final:
        return ()
    stand_ins: dict[bytes, str] = {}
    texts = {a.artifact_id: flattened(a.parts, stand_ins) for a in emitted.artifacts}
    changed = {
        artifact.artifact_id
        for artifact in final.artifacts
        if texts.get(artifact.artifact_id) != flattened(artifact.parts, stand_ins)
    }
    return [
        event
        for event in (difference(emitted, final) if changed else ())
        if isinstance(event, Task)
        or (isinstance(event, TaskArtifactUpdateEvent) and event.artifact.artifact_id in changed)
    ]
