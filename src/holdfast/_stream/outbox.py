"""The events of a task for the caller, delivered and pending, each once.

Rules:
- What the caller has is not taken back for a task that has less, or that shows an earlier text
  (`holdfast._stream.artifact_texts`). Two kinds of tasks are taken over entirely: those in a
  terminal state, and those that wait for input while the caller's version does not.
- Only events are delivered. A task that adds nothing to the events before it replaces the folded
  task when the last of these events is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast._stream.artifact_texts import ArtifactTexts
from holdfast._stream.difference import difference
from holdfast._stream.fold import TaskFold
from holdfast._stream.status_order import is_newer
from holdfast.types import (
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from holdfast._wire.limits import Limits
    from holdfast.types import Artifact, Event

__all__ = ["EventOutbox"]


class _Replacement(msgspec.Struct, frozen=True):
    """The agent's version of the task, which adds no event to those before it."""

    task: Task


_Pending: TypeAlias = "Event | _Replacement"


class EventOutbox:
    """A queue of the events of one task for the caller.

    `task` and `message` are the caller's view, after the events that were taken. All else includes
    the pending events.

    Args:
        limits: How large the task may become.
        task_id: The task, if it is known before the first event.
        task: The task, if the caller has it already.
        known: A task that the caller has, and that the first event may belong to.

    Attributes:
        task_id: The task; None until it is known.
        status: The latest status, also of pending events; None without a task.
        message: The last message that was taken.
        count: The number of events that were put.
        is_whole: Whether the task is one that the agent sent, and not made of updates.
        pending: Events that were not taken yet; see `take`.
        texts: Earlier texts of the artifacts.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        task_id: str | None = None,
        task: Task | None = None,
        known: Task | None = None,
    ) -> None:
        self.task_id = task_id if task is None else task.id
        self.status = None if task is None else task.status
        self.message: Message | None = None
        self.count = 0
        self.is_whole = task is not None
        self.texts = ArtifactTexts()
        self._has_waited = False  # for input, in any event that was put
        self._known = known
        self._fold = TaskFold(task, limits=limits)
        self._note_stored(task)
        self.pending: list[_Pending] = []

    @property
    def task(self) -> Task | None:
        """The task according to the events taken so far."""
        return self._fold.task

    @property
    def state(self) -> TaskState | None:
        """The state of the task, also of pending events; None without a task."""
        return None if self.status is None else self.status.state

    @property
    def has_news(self) -> bool:
        """Whether events are pending."""
        return bool(self.pending)

    # ── Taking events ────────────────────────────────────────────────────────────────────────

    def take(self) -> Event | None:
        """Take the next event for the caller; None if none is pending.

        Raises:
            InvalidAgentResponseError: The event is of another task.
            LimitExceededError: The task becomes too large.
        """
        event: Event | None = None
        while self.pending:
            item = self.pending[0]
            if isinstance(item, _Replacement):  # belongs to the event before it
                self._fold = TaskFold(item.task, limits=self._fold.limits)
            elif event is None:
                self._fold.add(item)
                event = item
                if isinstance(event, Message):
                    self.message = event
            else:
                break
            del self.pending[0]
        return event

    def whole(self) -> Task | None:
        """Return the task according to all events, pending ones included."""
        if not self.pending:
            return self._fold.task
        folded = TaskFold(self._fold.task, limits=self._fold.limits)
        for item in self.pending:
            if isinstance(item, _Replacement):
                folded = TaskFold(item.task, limits=folded.limits)
            else:
                folded.add(item)
        return folded.task

    def text_of(self, artifact_id: str) -> str | None:
        """Return the text of an artifact, pending events included; None without the artifact."""
        artifact = self._artifact(artifact_id)
        return None if artifact is None else self.texts.text(artifact.parts)

    def _artifact(self, artifact_id: str) -> Artifact | None:
        if not self.pending:
            return self._fold.artifact(artifact_id)
        task = self.whole()
        artifacts = () if task is None else task.artifacts
        return next((a for a in artifacts if a.artifact_id == artifact_id), None)

    # ── Putting events ───────────────────────────────────────────────────────────────────────

    def put_event(self, event: Event) -> None:
        """Add a new event."""
        self._recognize(event)
        if isinstance(event, TaskArtifactUpdateEvent):
            if not event.append:
                self._note_replaced(event.artifact)
        elif isinstance(event, Task):
            for artifact in event.artifacts:
                self._note_replaced(artifact)
        self._add(event)

    def pass_chunk(self, chunk: TaskArtifactUpdateEvent) -> Event | None:
        """Add a new chunk, and take the next event, which is the chunk if no other is pending.

        The result is that of `put_event` followed by `take`. An appended chunk, as most are, does
        not enter the queue.

        Raises:
            A2AError: See `take`.
        """
        is_plain = chunk.append and chunk.task_id == self.task_id
        if self.pending or self.status is None or not is_plain:
            self.put_event(chunk)
            return self.take()
        self._fold.add(chunk)
        self.count += 1
        self.is_whole = False
        return chunk

    def _recognize(self, event: Event) -> None:
        """Start from the caller's known task if the first event belongs to it."""
        known, self._known = self._known, None
        if known is None or known.id != (event.id if isinstance(event, Task) else event.task_id):
            return
        self._fold = TaskFold(known, limits=self._fold.limits)
        self.task_id, self.status = known.id, known.status
        self._note_stored(known)

    def _add(self, event: Event) -> None:
        self.pending.append(event)
        self.count += 1
        self.is_whole = isinstance(event, Task)
        if isinstance(event, Task):
            self.status = event.status
            self.task_id = event.id
            self._has_waited |= event.state is TaskState.INPUT_REQUIRED
        elif isinstance(event, TaskStatusUpdateEvent):
            self.status = event.status
            self._has_waited |= event.status.state is TaskState.INPUT_REQUIRED
            self.task_id = event.task_id or self.task_id
        elif isinstance(event, TaskArtifactUpdateEvent):
            self.status = self.status or TaskStatus()
            self.task_id = event.task_id or self.task_id

    # ── Merging versions of the task ─────────────────────────────────────────────────────────

    def merge_older(self, task: Task, *, except_for: AbstractSet[str] = frozenset()) -> None:
        """Add what the caller lacks of a task that may be older than the caller's version.

        Args:
            task: The task.
            except_for: Ids of artifacts of which the caller has a better version.
        """
        current = self.whole()
        if current is None or (not except_for and self._has_come_to_wait(task, current)):
            self.replace_by(task)
            return
        merged = self._without_older(current, task, except_for)
        self._add_difference(current, merged)
        self.is_whole = merged == task
        before = {artifact.artifact_id: artifact for artifact in current.artifacts}
        for artifact in merged.artifacts:
            known = before.get(artifact.artifact_id)
            if artifact is not known and (
                known is None or self.texts.text(known.parts) != self.texts.text(artifact.parts)
            ):
                self.texts.note_stored(artifact.artifact_id)

    def lacks(self, task: Task) -> bool:
        """Return whether the caller lacks anything of a task that may be older."""
        current = self.whole()
        return current is None or bool(difference(current, self._without_older(current, task)))

    def replace_by(self, task: Task) -> None:
        """Add the events that make the caller's task this one, also where it has less."""
        self._add_difference(self.whole(), task)
        self._note_stored(task)

    def refresh_final(self, task: Task) -> None:
        """Replace the finished task by another version of it, unless that may be older."""
        if task.id != self.task_id or task.state is not self.state or self.pending:
            return
        current = self.task
        if current is None or task.state.is_terminal or self._is_no_older(task, current):
            self._fold = TaskFold(task, limits=self._fold.limits)
            self.is_whole = True

    def _add_difference(self, current: Task | None, task: Task) -> None:
        for event in difference(current, task):
            self._recognize(event)
            self._add(event)
        if current is not None and current != task:
            self.pending.append(_Replacement(task))
        self.is_whole = True

    def _without_older(
        self, current: Task, task: Task, except_for: AbstractSet[str] = frozenset()
    ) -> Task:
        """Return a task in which everything older than the caller's version is the caller's."""
        is_older = is_newer(task.status, current.status) is False
        status = current.status if is_older else task.status
        by_id = {artifact.artifact_id: artifact for artifact in task.artifacts}
        if len(by_id) < len(task.artifacts):  # ambiguous ids: they cannot be compared
            return msgspec.structs.replace(task, status=status)
        artifacts = [
            a if a.artifact_id in except_for else self._later(a, by_id.get(a.artifact_id, a))
            for a in current.artifacts
        ]
        known = {artifact.artifact_id for artifact in current.artifacts}
        new = [artifact for artifact in task.artifacts if artifact.artifact_id not in known]
        return msgspec.structs.replace(task, status=status, artifacts=(*artifacts, *new))

    def _later(self, current: Artifact, other: Artifact) -> Artifact:
        if current == other:
            return current
        known, text = self.texts.text(current.parts), self.texts.text(other.parts)
        if known == text:
            return other
        return current if self.texts.may_be_old(other.artifact_id, text, known) else other

    def _has_come_to_wait(self, task: Task, current: Task) -> bool:
        """Return whether a task waits for input that did not before, which makes it newer."""
        waits = TaskState.INPUT_REQUIRED
        if task.state is not waits or current.state is waits:
            return False
        newer = is_newer(task.status, current.status)
        return not self._has_waited if newer is None else newer

    def _is_no_older(self, task: Task, current: Task) -> bool:
        """Return whether another version of a task in the same state is no older.

        If the status is the very same, the task holds everything before it; what it lacks was
        taken back.
        """
        status, known = task.status, current.status
        is_dated = status.time is not None and known.time is not None
        is_same = status.message == known.message
        if is_same and is_dated and status.time == known.time:
            return True
        return (is_dated or is_same) and self._without_older(current, task) == task

    def _note_replaced(self, artifact: Artifact) -> None:
        """Remember the text that an artifact replaces, unless it only continues that text."""
        text = self.text_of(artifact.artifact_id)
        if text and not self.texts.text(artifact.parts).startswith(text):
            self.texts.note_replaced(artifact.artifact_id, text)

    def _note_stored(self, task: Task | None) -> None:
        """Note a task that did not arrive as events."""
        for artifact in () if task is None else task.artifacts:
            self.texts.note_stored(artifact.artifact_id)
        self._has_waited |= task is not None and task.state is TaskState.INPUT_REQUIRED
