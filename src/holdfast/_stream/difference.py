"""Compute the events that change the caller's task into another version of it.

Rules: artifacts first, in the agent's order, the status last, so that a caller who stops at a
terminal state has seen everything. Folded onto the caller's task, the events result in the other
version's artifacts, status and metadata. If no updates can do that, since an artifact or a member
of the metadata is missing or the order differs, the difference is the `Task` itself. The history
is not part of it: no event adds a message at a certain place of the history.

An artifact that is new or has more parts than before has one event for each part, as agents stream
them: a program may join the parts of one event with a separator, as the SDK's helper does. For any
other change, also for text that grew within a part, the whole artifact is sent again, since an
appended chunk would be a separate part. Whether its text only grew is found by comparing the
texts. If the task is over, the last of these events is the last chunk of the artifact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._stream.fold import check_same_task
from holdfast.types import Artifact, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._stream.fold import TaskUpdate

__all__ = ["difference"]


def difference(have: Task | None, truth: Task) -> tuple[TaskUpdate, ...]:
    """Return the events that change one version of a task into another.

    Args:
        have: The caller's version; None if the caller has no task.
        truth: The other version.

    Returns:
        The events in order; none if nothing differs but the history.

    Raises:
        InvalidAgentResponseError: They are two tasks.
    """
    if have is None:
        return (truth,)
    check_same_task(have.id, truth.id)
    metadata = _added(have.metadata, truth.metadata)
    if metadata is None or not _leads_to(have.artifacts, truth.artifacts):
        return (truth,)
    events: list[TaskUpdate] = list(_artifact_updates(have, truth))
    if metadata or have.status != truth.status:
        status = TaskStatusUpdateEvent(
            task_id=truth.id,
            context_id=truth.context_id,
            status=truth.status,
            metadata=metadata or None,
        )
        events.append(status)
    return tuple(events)


def _leads_to(have: tuple[Artifact, ...], truth: tuple[Artifact, ...]) -> bool:
    """Return whether updates can change the artifacts into the others."""
    if have == truth:
        return True
    ids = [artifact.artifact_id for artifact in truth]
    known = [artifact.artifact_id for artifact in have]
    return ids[: len(known)] == known and len(set(ids)) == len(ids)


def _artifact_updates(have: Task, truth: Task) -> Iterator[TaskArtifactUpdateEvent]:
    for place, artifact in enumerate(truth.artifacts):
        known = have.artifacts[place] if place < len(have.artifacts) else None
        if known == artifact:
            continue
        appended = artifact if known is None else _appended(known, artifact)
        pieces = [artifact] if appended is None else _divided(appended)
        for number, piece in enumerate(pieces):
            yield TaskArtifactUpdateEvent(
                task_id=truth.id,
                context_id=truth.context_id,
                artifact=piece,
                append=number > 0 or (known is not None and appended is not None),
                last_chunk=truth.status.state.is_terminal and number == len(pieces) - 1,
            )


def _appended(have: Artifact, truth: Artifact) -> Artifact | None:
    """Return what to append to an artifact to make it the other; None if that is impossible."""
    parts, metadata = truth.parts[len(have.parts) :], _added(have.metadata, truth.metadata)
    if metadata is None or have.parts + parts != truth.parts:
        return None
    merged = have.metadata if not metadata else truth.metadata
    if msgspec.structs.replace(have, parts=truth.parts, metadata=merged) != truth:
        return None
    return Artifact(artifact_id=truth.artifact_id, parts=parts, metadata=metadata or None)


def _divided(artifact: Artifact) -> list[Artifact]:
    """Return an artifact as one chunk for each part; the first chunk has all other members."""
    return [
        msgspec.structs.replace(artifact, parts=artifact.parts[:1]),
        *(
            Artifact(artifact_id=artifact.artifact_id, parts=(part,))
            for part in artifact.parts[1:]
        ),
    ]


def _added(have: dict[str, Any] | None, truth: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what to merge into metadata to make it the other; None if that is impossible."""
    before, after = have or {}, truth or {}
    if not before.keys() <= after.keys():
        return None
    return {name: value for name, value in after.items() if before.get(name, _NONE) != value}


_NONE = object()
