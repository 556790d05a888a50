"""What an agent says in a chat, while it says it: plain text for somebody who reads along.

Rules: the text of artifacts is written as it grows, one artifact after the other; what the agent
says about a task at work stands in brackets, what it says where the task rests does not. What is
no text is told in fields, as everywhere. Nothing is told twice, however often the agent tells it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.plain import Plain, clean
from holdfast.cli.text import artifact_head, contents, field, render_status
from holdfast.model.types import Message, Task, TaskArtifactUpdateEvent
from holdfast.tasks.text import TextDelta, TextFold, TextReset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast.cli.text import View
    from holdfast.model.types import Artifact, Event, Part, TaskStatus, TaskStatusUpdateEvent

__all__ = ["ChatText"]

_TAKEN_BACK = "[the agent takes this back]"


class ChatText:
    """The events of a chat, as text to write in their order.

    Args:
        view: What to show.

    Attributes:
        is_within_line: Whether what was written last is a line that has no end yet.
    """

    def __init__(self, view: View) -> None:
        self.is_within_line = False
        self._view = view
        self._said_before: set[str] = set()  # artifacts whose text is of an earlier turn
        self._begin(None)

    def turn(self) -> None:
        """Something was said to the agent: what it says anew from here on takes nothing back."""
        self._said_before = {*self._others}

    def _begin(self, task_id: str | None) -> None:
        """Knows nothing of a task yet."""
        self._task_id = task_id
        self._text = TextFold()
        self._others: dict[str, tuple[Part, ...]] = {}  # told parts that are no text
        self._status: TaskStatus | None = None  # told last
        self._growing: str | None = None  # the artifact that the open line belongs to
        self._plain = Plain()

    def event(self, event: Event, task: Task | None) -> Iterator[str]:
        """What there is to write for an event.

        Args:
            event: The event.
            task: The task as it stands after it; None for none.
        """
        if isinstance(event, Message):
            yield from self._message(event)
            return
        if task is not None and task.id != self._task_id:
            self._begin(task.id)
        for change in self._text.changes(event):
            yield from self._change(change)
        if isinstance(event, TaskArtifactUpdateEvent):
            yield from self._rest(event.artifact, append=event.append)
            return
        for artifact in event.artifacts if isinstance(event, Task) else ():
            yield from self._rest(artifact, append=False)
        if event.status != self._status:
            self._status = event.status
            yield from self._say(event, "" if task is None else task.text)

    def last_seen(self, task: Task) -> Iterator[str]:  # noqa: ARG002  it is said elsewhere
        """Nothing more: how a task stands is said beside the text."""
        return self.close()

    def close(self) -> Iterator[str]:
        """Ends the line that has no end yet, if there is one."""
        self._growing = None
        if self.is_within_line:
            self.is_within_line = False
            yield "\n"

    def _lines(self, lines: Iterable[str]) -> Iterator[str]:
        yield from self.close()
        yield from (f"{line}\n" for line in lines)

    def _message(self, message: Message) -> Iterator[str]:
        if message.text:
            yield from self._lines([clean(message.text)])
        yield from self._parts(message.parts)

    def _parts(self, parts: Iterable[Part]) -> Iterator[str]:
        """What is no text."""
        if others := [part for part in parts if part.text is None]:
            yield from self._lines(contents(others, self._view))

    # ── Events of a task ─────────────────────────────────────────────────────────────────────

    def _change(self, change: TextDelta | TextReset) -> Iterator[str]:
        if isinstance(change, TextReset):
            if change.artifact_id not in self._said_before:
                yield from self._lines([_TAKEN_BACK])
        elif change.artifact_id is not None:  # else it is what the status says
            if self._growing != change.artifact_id:
                yield from self.close()
                self._growing, self._plain = change.artifact_id, Plain()
                self._said_before.discard(change.artifact_id)
            if shown := self._plain.feed(change.text):
                self.is_within_line = not shown.endswith("\n")
                yield shown

    def _rest(self, artifact: Artifact, *, append: bool) -> Iterator[str]:
        """What an artifact has besides text, as far as it is new."""
        known = artifact.artifact_id in self._others
        told = self._others.get(artifact.artifact_id, ())
        others = tuple(part for part in artifact.parts if part.text is None)
        if self._view.verbose and not known:
            yield from self._lines([field("Artifact", artifact.name or artifact.artifact_id)])
            yield from self._lines(artifact_head(artifact, self._view))
        if append:
            self._others[artifact.artifact_id] = (*told, *others)
            yield from self._parts(others)
            return
        self._others[artifact.artifact_id] = others
        goes_on = others[: len(told)] == told
        yield from self._parts(others[len(told) :] if goes_on else others)

    def _say(self, event: Task | TaskStatusUpdateEvent, text: str) -> Iterator[str]:
        """What the agent says about the state, unless that is the text of the task once more."""
        status = event.status
        if self._view.verbose:
            yield from self._lines(render_status(status, event.metadata, self._view))
            return
        if status.message is None:
            return
        said = clean(status.message.text)
        if said and said.strip() != clean(text).strip():
            rests = status.state.is_terminal or status.state.is_interrupted
            yield from self._lines([said if rests else f"[{said}]"])
        yield from self._parts(status.message.parts)
