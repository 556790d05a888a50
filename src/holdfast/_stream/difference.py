"""The events that lead from the task that a caller has to the task as it is.

Rules: artifacts first, in the agent's order, the status last, so that a caller who stops at a
terminal state has seen everything. Folded onto what the caller has, the events give artifacts,
status and metadata as they are. Where no updates can do that, because an artifact or a member of
the metadata is gone or the order is another, the difference is the `Task` itself. The history is
not part of it: no event gives a message its place there.

An artifact that has more parts than before is appended to. Anything else, text that grew within a
part included, is the whole artifact anew, since an appended chunk would be a part of its own where
the agent has none. Whether its text only went on is seen by comparing the texts. It is the last
chunk of the artifact if the task is over.
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
    """Gives the events that make one task the other.

    Args:
        have: The task as the caller knows it; None for not at all.
        truth: The task as it is.

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
    """Whether updates of artifacts can make the ones the others."""
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
        piece = None if known is None else _appended(known, artifact)
        yield TaskArtifactUpdateEvent(
            task_id=truth.id,
            context_id=truth.context_id,
            artifact=artifact if piece is None else piece,
            append=piece is not None,
            last_chunk=truth.status.state.is_terminal,
        )


def _appended(have: Artifact, truth: Artifact) -> Artifact | None:
    """What has to be appended to one artifact to make it the other; None if that cannot be."""
    parts, metadata = truth.parts[len(have.parts) :], _added(have.metadata, truth.metadata)
    if metadata is None or have.parts + parts != truth.parts:
        return None
    merged = have.metadata if not metadata else truth.metadata
    if msgspec.structs.replace(have, parts=truth.parts, metadata=merged) != truth:
        return None
    return Artifact(artifact_id=truth.artifact_id, parts=parts, metadata=metadata or None)


def _added(have: dict[str, Any] | None, truth: dict[str, Any] | None) -> dict[str, Any] | None:
    """What has to be merged into metadata to make it the other; None if that cannot be."""
    before, after = have or {}, truth or {}
    if not before.keys() <= after.keys():
        return None
    return {name: value for name, value in after.items() if before.get(name, _NONE) != value}


_NONE = object()
