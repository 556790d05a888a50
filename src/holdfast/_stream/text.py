"""The text of a stream as it grows: what is new of it, and what was taken back.

Rules: text comes once; a whole artifact that continues where its text stopped only adds to it; one
whose text became another comes anew, after a reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast.types import Message, Task, TaskArtifactUpdateEvent, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.types import Artifact, Event, TaskStatus

__all__ = ["TextChange", "TextDelta", "TextFold", "TextReset"]


class TextDelta(msgspec.Struct, frozen=True):
    """New text.

    Attributes:
        text: What is new; never empty.
        artifact_id: The artifact that it is at the end of; None for a message.
    """

    text: str
    artifact_id: str | None = None


class TextReset(msgspec.Struct, frozen=True):
    """The text of an artifact so far no longer counts; what it says instead follows.

    Attributes:
        artifact_id: The artifact.
    """

    artifact_id: str


TextChange: TypeAlias = TextDelta | TextReset


class TextFold:
    """Tells what each event of a stream does to the text of its answer.

    Put together, the deltas of an artifact since its last reset are its text. It is the text that
    `Answer.text` is made of: the artifacts, or the one message that the agent answers with, or
    what it says at the end where a completed task has no artifact with text.

    Args:
        task: The task whose text is known already.
    """

    def __init__(self, task: Task | None = None) -> None:
        self._texts: dict[str, list[str]] = {}  # pieces of each artifact
        self._has_task = False
        if task is not None:
            self.changes(task)

    def changes(self, event: Event) -> list[TextChange]:
        """What an event does, in order."""
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
