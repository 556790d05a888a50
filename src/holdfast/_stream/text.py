"""The text of a stream as it grows: its changes, its deltas, and iterations over them.

Rules: text is delivered once; a whole artifact that starts with its previous text only adds to it;
an artifact whose text was replaced is delivered again, after a reset.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

import msgspec

from holdfast._aio.async_only import AsyncOnly
from holdfast.types import Message, Task, TaskArtifactUpdateEvent, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.types import Artifact, Event, TaskStatus

__all__ = ["TextChange", "TextChanges", "TextDelta", "TextDeltas", "TextFold", "TextReset"]


class TextDelta(msgspec.Struct, frozen=True):
    """New text of an answer.

    Attributes:
        text: The new text; never empty.
        artifact_id: Id of the artifact that the text is appended to; None for a message.
    """

    text: str
    artifact_id: str | None = None


class TextReset(msgspec.Struct, frozen=True):
    """The text of an artifact so far is void: the agent replaces it, and new text follows.

    Attributes:
        artifact_id: Id of the artifact.
    """

    artifact_id: str


TextChange: TypeAlias = TextDelta | TextReset
"""A change of the text of a stream: `TextDelta` or `TextReset`."""


class TextFold:
    """Computes how each event of a stream changes the text of its answer.

    The deltas of an artifact since its last reset, joined, are its text, as in `Answer.text`: that
    of the artifacts, or of the one message that the agent answers with, or of the final status
    message of a completed task that has no artifact with text.

    Args:
        task: The task whose text was delivered before.
    """

    def __init__(self, task: Task | None = None) -> None:
        self._texts: dict[str, list[str]] = {}  # pieces of each artifact
        self._has_task = False
        if task is not None:
            self.changes(task)

    def changes(self, event: Event) -> list[TextChange]:
        """Return the changes that an event makes, in order."""
        if isinstance(event, Message):
            is_answer = not self._has_task and bool(event.text)
            return [TextDelta(event.text)] if is_answer else []
        self._has_task = True
        if isinstance(event, TaskArtifactUpdateEvent):
            artifact = event.artifact
            parts = artifact.parts
            text = parts[0].text or "" if len(parts) == 1 else artifact.text
            if not event.append:
                return self._replace(artifact.artifact_id, text)
            self._texts.setdefault(artifact.artifact_id, []).append(text)
            return [TextDelta(text, artifact.artifact_id)] if text else []
        changes = self._replace_all(event.artifacts) if isinstance(event, Task) else []
        return changes + self._close(event.status)

    def _replace_all(self, artifacts: Iterable[Artifact]) -> list[TextChange]:
        texts: dict[str, str] = {}
        for artifact in artifacts:  # whose ids are not always unique
            both = texts.get(artifact.artifact_id, ""), artifact.text
            texts[artifact.artifact_id] = "\n".join(filter(None, both))
        gone = sorted(self._texts.keys() - texts.keys())
        changes: list[TextChange] = [TextReset(name) for name in gone if any(self._texts[name])]
        for name in gone:
            del self._texts[name]
        for name, text in texts.items():
            changes += self._replace(name, text)
        return changes

    def _replace(self, artifact_id: str, text: str) -> list[TextChange]:
        changes: list[TextChange] = []
        before = "".join(self._texts.get(artifact_id, ()))
        self._texts[artifact_id] = [text]
        if not text.startswith(before):
            changes.append(TextReset(artifact_id))
            before = ""
        if new := text[len(before) :]:
            changes.append(TextDelta(new, artifact_id))
        return changes

    def _close(self, status: TaskStatus) -> list[TextChange]:
        is_silent = not any(any(pieces) for pieces in self._texts.values())
        closing = status.message
        if status.state is TaskState.COMPLETED and is_silent and closing is not None:
            return [TextDelta(closing.text)] if closing.text else []
        return []


class EventIteration(Protocol):
    """An iteration over the events of a task: an `EventStream`."""

    @property
    def task(self) -> Task | None:
        """The task according to the events so far."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Event: ...


class TextChanges(AsyncOnly):
    """The changes of a stream's text; a cancelled iteration can be resumed.

    Args:
        events: The events of the stream.
        check_outcome: Called at the end; may raise the error of a task that failed.

    Attributes:
        pending: Changes that were not yielded yet.
        last: The last delta that was yielded; None before the first.
    """

    def __init__(self, events: EventIteration, check_outcome: Callable[[], None]) -> None:
        self.events = events
        self.text = TextFold(events.task)
        self.pending: deque[TextChange] = deque()
        self.last: TextDelta | None = None
        self._check_outcome = check_outcome

    def __aiter__(self) -> Self:
        aiter(self.events)  # raises if the stream is closed
        return self

    async def __anext__(self) -> TextChange:
        while not self.pending:
            try:
                self.pending += self.text.changes(await self.events.__anext__())
            except StopAsyncIteration:
                self.finish()
        change = self.pending.popleft()
        if isinstance(change, TextDelta):
            self.last = change
        return change

    def finish(self) -> None:
        """Add the changes that the final task makes: its text may differ from what was sent.

        Raises:
            StopAsyncIteration: There are none.
            A2AError: There are none, and the task has failed.
        """
        task = self.events.task
        if task is not None and task.text:
            self.pending += self.text.changes(task)
        if not self.pending:
            self._check_outcome()
            raise StopAsyncIteration


class TextDeltas(AsyncOnly):
    """The new text of a stream, with a line feed between two artifacts.

    Args:
        changes: The changes of the text.
    """

    def __init__(self, changes: TextChanges) -> None:
        self._changes = changes

    def __aiter__(self) -> Self:
        aiter(self._changes)
        return self

    async def __anext__(self) -> str:
        changes = self._changes
        pending = changes.pending
        while True:
            while not pending:
                try:
                    pending += changes.text.changes(await changes.events.__anext__())
                except StopAsyncIteration:
                    changes.finish()
            change = pending.popleft()
            if not isinstance(change, TextDelta):
                continue
            last, changes.last = changes.last, change
            if last is not None and last.artifact_id != change.artifact_id:
                pending.appendleft(change)
                return "\n"
            return change.text
