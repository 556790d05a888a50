"""The text of a stream as it grows: what is new of it, and what was taken back.

Rules: text is told once; a whole artifact that goes on where its text stopped only adds to it; one
whose text became another is told anew, after a reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast.types import Message, Task, TaskArtifactUpdateEvent, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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

    Put together, the deltas of an artifact since its last reset are its text. What is told is what
    `Answer.text` is made of: the artifacts, or the one message that the agent answers with, or
    what it says at the end where a completed task has no artifact with text.

    Args:
        task: The task whose text was told already.
    """

    def __init__(self, task: Task | None = None) -> None:
        self._told: dict[str, list[str]] = {}
        self._has_task = False
        for _ in () if task is None else self.changes(task):
            pass

    def changes(self, event: Event) -> Iterator[TextChange]:
        """What an event does, in order."""
        match event:
            case Message():
                if not self._has_task and event.text:
                    yield TextDelta(event.text)
                return
            case TaskArtifactUpdateEvent():
                self._has_task = True
                artifact = event.artifact
                yield from self._update(artifact.artifact_id, artifact.text, append=event.append)
                return
            case Task():
                self._has_task = True
                yield from self._replace_all(event.artifacts)
            case _:
                self._has_task = True
        yield from self._close(event.status)

    def _replace_all(self, artifacts: Iterable[Artifact]) -> Iterator[TextChange]:
        texts: dict[str, str] = {}
        for artifact in artifacts:  # whose ids are not always unique
            both = texts.get(artifact.artifact_id, ""), artifact.text
            texts[artifact.artifact_id] = "\n".join(filter(None, both))
        for artifact_id in sorted(self._told.keys() - texts.keys()):
            if any(self._told.pop(artifact_id)):
                yield TextReset(artifact_id)
        for artifact_id, text in texts.items():
            yield from self._update(artifact_id, text, append=False)

    def _update(self, artifact_id: str, text: str, *, append: bool) -> Iterator[TextChange]:
        told = self._told.setdefault(artifact_id, [])
        if not append:
            before = "".join(told)
            if text.startswith(before):
                text = text[len(before) :]
            else:
                told.clear()
                yield TextReset(artifact_id)
        if text:
            told.append(text)
            yield TextDelta(text, artifact_id)

    def _close(self, status: TaskStatus) -> Iterator[TextChange]:
        silent = not any(any(told) for told in self._told.values())
        closing = status.message
        if status.state is TaskState.COMPLETED and silent and closing is not None and closing.text:
            yield TextDelta(closing.text)
