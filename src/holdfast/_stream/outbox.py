"""The events for the caller of a stream, delivered and pending: each thing once.

Rules:
- What the caller has is never taken back for a task that holds less, or what was there before
  (`Past`): only a task that is over is believed in everything, or that waits for
  input and did not when the caller had it last. Until then what is shorter is older.
- Only events are delivered; a task that says no more than the events before goes with the last.

Earlier texts of the artifacts of a task: whether a text in a lagging store may be an old one.

A store may lag behind its streams. While an artifact only grows, a shorter text is older, and a
text that continues the caller's is newer. An artifact that was replaced may have had any text
before: the store may show a text that the caller saw and that was replaced, and "ab" may be older
than "abc", or its replacement. So replaced texts are remembered until the store shows a later
state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast._stream.difference import difference
from holdfast._stream.fold import TaskFold, fold
from holdfast._stream.overlap import FlattenedText
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

__all__ = ["EventOutbox", "Past"]

_SIZE = 1 << 20
"""Characters of texts to remember; each text counts as one more."""


class Past:
    """What is remembered of the artifacts of one task, by their ids.

    Rules:
    - A look at the store that was taken for newer is where the memory of an artifact begins: no
      later look is older than that.
    - What was not seen, or is too much to remember, may have been anything. But an artifact of an
      agent that was never seen to replace a text is assumed only to grow.
    """

    def __init__(self) -> None:
        self._replaced: dict[str, list[str]] = {}
        self._size = 0
        self._replaces = False  # the agent has replaced something
        # In place of sets, whose empty ones are larger.
        self._skipped: dict[str, None] = {}  # since the last look
        self._partial: dict[str, None] = {}  # since the beginning

    def forget(self) -> None:
        """There is no store that could show what was before."""
        self._replaced.clear()
        self._skipped.clear()
        self._size = 0

    def looked_up(self, artifact_id: str) -> None:
        """The caller has an artifact as the store shows it."""
        self._drop(artifact_id)
        self._skipped.pop(artifact_id, None)
        self._partial[artifact_id] = None

    def replaced(self, artifact_id: str, text: str) -> None:
        """A text was replaced by one that does not begin with it."""
        self._replaces = True
        self._replaced.setdefault(artifact_id, []).append(text)
        self._size += len(text) + 1
        if self._size > _SIZE:
            self._drop(artifact_id)
            self.skipped(artifact_id)

    def skipped(self, artifact_id: str) -> None:
        """An artifact may have had texts that the caller did not get."""
        self._skipped[artifact_id] = None
        self._partial[artifact_id] = None

    def _drop(self, artifact_id: str) -> None:
        self._size -= sum(len(text) + 1 for text in self._replaced.pop(artifact_id, ()))

    def is_partial(self, artifact_id: str) -> bool:
        """Whether an artifact may have had texts that are not remembered."""
        return artifact_id in self._partial

    def may_hold(self, artifact_id: str, text: str, now: str) -> bool:
        """Whether a text may have been an artifact's since the last look, before what it is now.

        Args:
            artifact_id: The artifact.
            text: The text.
            now: What it is now; a beginning of it may always have been before.
        """
        if now.startswith(text):
            return True
        if artifact_id in self._skipped and (self._replaces or not text.startswith(now)):
            return True
        return any(old.startswith(text) for old in self._replaced.get(artifact_id, ()))


class _Truth(msgspec.Struct, frozen=True):
    """The task as the agent has it, which says no more than the events before."""

    task: Task


_Found: TypeAlias = "Event | _Truth"


class EventOutbox:
    """The events of one task on their way to the caller: put in at one end, taken at the other.

    `task` and `message` are as the caller knows them, after the events that were taken. What else
    there is goes by the events that were put, and is ahead of them while it `has_news`.

    Args:
        limits: How large the task may become.
        task_id: The task, where it is known from the beginning.
        task: The same, as the caller has it already.
        known: A task that the caller has, and that the first event may be of.

    Attributes:
        task_id: The task; None until it is known.
        status: The last one that was put; None for no task.
        message: The last message that was taken.
        count: How many events were put.
        is_whole: Whether the task is the agent's own to the last word, and not made of updates.
        queue: What waits to be taken; see `take`.
        past: What its artifacts were before.
        writing: How their parts are compared.
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
        self.past = Past()
        self.writing = FlattenedText()
        self._has_waited = False  # for input, as far as the caller knows
        self._known = known
        self._fold = TaskFold(task, limits=limits)
        self._remember(task)
        self.queue: list[_Found] = []

    @property
    def task(self) -> Task | None:
        """The task as the events taken so far make it."""
        return self._fold.task

    @property
    def state(self) -> TaskState | None:
        """Where the task stands, as last put; None for no task."""
        return None if self.status is None else self.status.state

    @property
    def has_news(self) -> bool:
        """Whether something waits to be taken."""
        return bool(self.queue)

    def take(self) -> Event | None:
        """The next event for the caller, if there is one.

        Raises:
            InvalidAgentResponseError: The event is of another task.
            LimitExceededError: The task becomes too large.
        """
        event: Event | None = None
        while self.queue:
            found = self.queue[0]
            if isinstance(found, _Truth):  # which goes with the event before
                self._fold = TaskFold(found.task, limits=self._fold.limits)
            elif event is None:
                self._fold.add(found)
                event = found
                if isinstance(event, Message):
                    self.message = event
            else:
                break
            del self.queue[0]
        return event

    def put(self, event: Event) -> None:
        """Adds an event that is new."""
        self._recognize(event)
        if isinstance(event, TaskArtifactUpdateEvent):
            if not event.append:
                self._replace(event.artifact)
        elif isinstance(event, Task):
            for artifact in event.artifacts:
                self._replace(artifact)
        self._add(event)

    def _recognize(self, event: Event) -> None:
        """Takes up the task that the caller has where the first event is of it."""
        known, self._known = self._known, None
        if known is None or known.id != (event.id if isinstance(event, Task) else event.task_id):
            return
        self._fold = TaskFold(known, limits=self._fold.limits)
        self.task_id, self.status = known.id, known.status
        self._remember(known)

    def _add(self, event: Event) -> None:
        self.queue.append(event)
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

    def put_and_take(self, chunk: TaskArtifactUpdateEvent) -> Event | None:
        """Adds a chunk that is new, and takes the next event, which is the chunk if none waits.

        It is `put`, and then `take`; a chunk that is appended, which is what most are, needs no
        queue for that.

        Raises:
            A2AError: See `take`.
        """
        is_plain = chunk.append and chunk.task_id == self.task_id
        if self.queue or self.status is None or not is_plain:
            self.put(chunk)
            return self.take()
        self._fold.add(chunk)
        self.count += 1
        self.is_whole = False
        return chunk

    def whole(self) -> Task | None:
        """The task as the caller will have it with everything that waits to be taken."""
        task, limits = self._fold.task, self._fold.limits
        for found in self.queue:
            task = found.task if isinstance(found, _Truth) else fold(task, found, limits=limits)
        return task

    def text_of(self, artifact_id: str) -> str | None:
        """The text of an artifact with everything that waits to be taken; None for no artifact."""
        artifact = self._artifact(artifact_id)
        return None if artifact is None else self.writing.text(artifact.parts)

    def adopt(self, task: Task, *, but: AbstractSet[str] = frozenset()) -> None:
        """Puts what the caller lacks of a task that may be older than what the caller has.

        Args:
            task: The task.
            but: Artifacts of which the caller has something better.
        """
        have = self.whole()
        if have is None or (not but and self._waits_now(task, have)):
            self.believe(task)
            return
        taken = self._not_older(have, task, but)
        self._put_difference(have, taken)
        self.is_whole = taken == task
        known = {artifact.artifact_id: artifact for artifact in have.artifacts}
        for artifact in taken.artifacts:
            if artifact is not known.get(artifact.artifact_id):
                self._look_up(artifact, known.get(artifact.artifact_id))

    def lacks(self, task: Task) -> bool:
        """Whether a task, which may be older than what the caller has, has more to tell."""
        have = self.whole()
        return have is None or bool(difference(have, self._not_older(have, task)))

    def believe(self, task: Task) -> None:
        """Puts what the caller lacks of a task, and takes back what the task has not."""
        self._put_difference(self.whole(), task)
        self._remember(task)

    def correct(self, task: Task) -> None:
        """Takes a task that was delivered at its end once more, where it says the same."""
        if task.id != self.task_id or task.state is not self.state or self.queue:
            return
        have = self.task
        if have is None or task.state.is_terminal or self._is_as_far(task, have):
            self._fold = TaskFold(task, limits=self._fold.limits)
            self.is_whole = True

    def _put_difference(self, have: Task | None, task: Task) -> None:
        for event in difference(have, task):
            self._recognize(event)
            self._add(event)
        if have is not None and have != task:
            self.queue.append(_Truth(task))
        self.is_whole = True

    # ── What is older ────────────────────────────────────────────────────────────────────────

    def _not_older(self, have: Task, task: Task, but: AbstractSet[str] = frozenset()) -> Task:
        """A task without what it holds less of than the caller has, or what was before."""
        is_older = is_newer(task.status, have.status) is False
        status = have.status if is_older else task.status
        found = {artifact.artifact_id: artifact for artifact in task.artifacts}
        if len(found) < len(task.artifacts):  # nobody knows which of them is which
            return msgspec.structs.replace(task, status=status)
        artifacts = [
            a if a.artifact_id in but else self._later(a, found.get(a.artifact_id, a))
            for a in have.artifacts
        ]
        known = {artifact.artifact_id for artifact in have.artifacts}
        new = [artifact for artifact in task.artifacts if artifact.artifact_id not in known]
        return msgspec.structs.replace(task, status=status, artifacts=(*artifacts, *new))

    def _later(self, have: Artifact, found: Artifact) -> Artifact:
        if have == found:
            return have
        known, text = self.writing.text(have.parts), self.writing.text(found.parts)
        if known == text:
            return found
        return have if self.past.may_hold(found.artifact_id, text, known) else found

    def _waits_now(self, task: Task, have: Task) -> bool:
        """Whether a task waits for input that did not when the caller had it: so it is newer."""
        waits = TaskState.INPUT_REQUIRED
        if task.state is not waits or have.state is waits:
            return False
        newer = is_newer(task.status, have.status)
        return not self._has_waited if newer is None else newer

    def _is_as_far(self, task: Task, have: Task) -> bool:
        """Whether a task that rests, as it did before, is no older: a store may be behind.

        One of the very same status holds all that came before that; what it lacks was taken back.
        """
        status, known = task.status, have.status
        is_dated = status.time is not None and known.time is not None
        is_same = status.message == known.message
        if is_same and is_dated and status.time == known.time:
            return True
        return (is_dated or is_same) and self._not_older(have, task) == task

    # ── What was before ──────────────────────────────────────────────────────────────────────

    def _artifact(self, artifact_id: str) -> Artifact | None:
        if not self.queue:
            return self._fold.artifact(artifact_id)
        task = self.whole()
        artifacts = () if task is None else task.artifacts
        return next((a for a in artifacts if a.artifact_id == artifact_id), None)

    def _replace(self, artifact: Artifact) -> None:
        """Remembers what an artifact takes the place of, unless it only goes on."""
        text = self.text_of(artifact.artifact_id)
        if text and not self.writing.text(artifact.parts).startswith(text):
            self.past.replaced(artifact.artifact_id, text)

    def _look_up(self, artifact: Artifact, known: Artifact | None) -> None:
        """Remembers that an artifact is the store's, if that made it another one."""
        writing = self.writing
        if known is None or writing.text(known.parts) != writing.text(artifact.parts):
            self.past.looked_up(artifact.artifact_id)

    def _remember(self, task: Task | None) -> None:
        """Remembers a task that came from elsewhere."""
        for artifact in () if task is None else task.artifacts:
            self.past.looked_up(artifact.artifact_id)
        self._has_waited |= task is not None and task.state is TaskState.INPUT_REQUIRED
