"""``-o text``: labelled lines, and each event of a stream in fields and blocks (a2a-cli 11.2).

Rules: text that grows is one block that grows; a field closes it. The first event with a task, and
the one with which the task comes to rest, name the task, its context and its state. Text that the
agent replaces was written already: a field says so, and the new text follows. Each part
is shown once, however often the agent sends it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from holdfast._cli.output import text
from holdfast._cli.output.base import (
    CardShown,
    ConfigDeleted,
    DiagnosisShown,
    FilesSaved,
    Measurement,
    MessageSending,
    MessageSent,
    Output,
    Record,
    Result,
    RunEnded,
    SettingsShown,
    StreamEnded,
    StreamEvent,
    TaskBegan,
    WaitEnded,
    write,
)
from holdfast._cli.output.card_text import render_card
from holdfast._cli.output.sanitizer import TerminalSanitizer
from holdfast._cli.output.text import (
    View,
    artifact_head,
    contents,
    field,
    identifiers,
    is_same_kind,
    part_tail,
    render,
    render_status,
    state,
)
from holdfast._stream.text import TextDelta, TextFold, TextReset
from holdfast.types import Message, Task, TaskArtifactUpdateEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast._cli.errors import Failure
    from holdfast._cli.options.settings import Settings
    from holdfast._cli.output.base import OutputEvent
    from holdfast._stream.fold import TaskUpdate
    from holdfast.doctor import Diagnosis
    from holdfast.types import Artifact, Event, Part, TaskStatus

__all__ = ["LiveText", "TextOutput"]


class _Live(Protocol):
    """Text as it arrives."""

    @property
    def is_within_line(self) -> bool: ...

    def event(self, event: Event, task: Task | None) -> Iterable[str]: ...

    def last_seen(self, task: Task) -> Iterable[str]: ...

    def close(self) -> Iterable[str]: ...


class TextOutput(Output):
    """``-o text``: labelled lines."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self._verbose = settings is not None and settings.verbose
        self._identifiers: list[str] = []
        """Lines that name the task, once they are written."""
        self._live: _Live | None = None

    def _show(self, event: OutputEvent) -> None:  # noqa: C901, PLR0912  a case for each event
        view = text.View(verbose=self._verbose)
        match event:
            case MessageSending(message):
                if self._verbose:
                    self._lines(text.render_sent(message))
            case MessageSent(is_new):
                sent = "yes" if is_new else "no, the journal has a call of the key"
                self._lines([field("Sent", sent)])
            case TaskBegan(task):  # named at once: an interruption must not lose it
                self._identifiers = list(text.identifiers(task))
                self._lines(self._identifiers)
                self.has_named_task = True
            case WaitEnded(task):  # each output about a task includes its state
                if self._live is not None:
                    self._pieces(self._live, self._live.last_seen(task))
                elif self._identifiers:
                    self._lines([text.state(task)])
            case StreamEvent(of_stream, task):
                live = self._live = self._live or LiveText(view)
                self._pieces(live, live.event(of_stream, task))
                self.has_named_task = task is not None
            case StreamEnded():
                if self._live is not None:
                    self._pieces(self._live, self._live.close())
            case Result(value, history):
                view = text.View(verbose=self._verbose, history=history)
                self._lines(text.render(value, view, shown_lines=self._identifiers))
            case FilesSaved(task, files):
                self._lines(text.render_saved(task, files))
            case ConfigDeleted(task_id, config_id):
                self._lines(text.render_deleted(task_id, config_id))
            case CardShown(card, interface, verification):
                self._lines(render_card(card, interface, view, verification))
            case SettingsShown(settings, configuration, logins):
                self._lines(text.render_settings(settings, configuration, logins))
            case Record(_, lines):
                self._lines(lines)
            case Measurement(_, lines):
                self._lines(self._redacted(line) for line in lines)
            case RunEnded(_, summary, _):
                self._diagnostic("Summary", summary)
            case DiagnosisShown(diagnosis, only_problems):
                self._show_diagnosis(diagnosis, only_problems=only_problems)
            case _:
                raise TypeError(event)

    def _show_diagnosis(self, diagnosis: Diagnosis, *, only_problems: bool) -> None:
        from holdfast._cli.output.doctor_text import paper, render_diagnosis

        redacted = diagnosis.hiding(self._redacted)
        lines = render_diagnosis(  # with colours
            redacted, paper(), verbose=self._verbose, only_problems=only_problems
        )
        write("".join(f"{line}\n" for line in lines))

    def _fail(self, failure: Failure) -> None:
        if failure.instead is not None:
            write(f"{text.clean(failure.instead)}\n", err=True)
            return
        self._diagnostic("Error", failure.message)
        self._diagnostic("Code", failure.code)
        if failure.hint:
            self._diagnostic("Hint", failure.hint)

    def _lines(self, lines: Iterable[str]) -> None:
        write("".join(f"{text.clean(line)}\n" for line in lines))

    def _pieces(self, live: _Live, pieces: Iterable[str]) -> None:
        if content := "".join(pieces):
            self._is_within_line = False  # even if the write fails
            write(content)
            self._is_within_line = live.is_within_line


class LiveText:
    """The events of one stream, as text in their order.

    Args:
        view: What to show.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._text = TextFold()
        self._names: dict[str, str] = {}
        self._other_parts: dict[str, tuple[Part, ...]] = {}  # shown parts that are not text
        self._last_artifact_id: str | None = None  # the artifact of the last output
        self._block: _Block | None = None
        self._began = False

    @property
    def is_within_line(self) -> bool:
        """Return whether the last written line has no end yet."""
        return self._block is not None and not self._block.is_at_line_start

    def event(self, event: Event, task: Task | None) -> Iterator[str]:
        """Yield the text to write for an event.

        Args:
            event: The event.
            task: The task after the event; None without a task.
        """
        if isinstance(event, Message):
            yield from self._fields(render(event, self._view))
        else:
            yield from self._update(event, task)

    def last_seen(self, task: Task) -> Iterator[str]:
        """Yield the state of a task that continues, at the end of its output."""
        yield from self._fields((*identifiers(task), state(task)))

    def close(self) -> Iterator[str]:
        """Close the open block, if there is one."""
        block, self._block = self._block, None
        if block is not None:
            yield block.end()
            yield from (f"{line}\n" for line in part_tail(block.part, self._view))

    def _fields(self, lines: Iterable[str]) -> Iterator[str]:
        yield from self.close()
        self._last_artifact_id = None
        yield from (f"{line}\n" for line in lines)

    # ── Events of a task ─────────────────────────────────────────────────────────────────────

    def _update(self, event: TaskUpdate, task: Task | None) -> Iterator[str]:
        status = None if isinstance(event, TaskArtifactUpdateEvent) else event.status
        began, self._began = self._began, True
        if task is not None and (not began or (status is not None and _is_rest(status))):
            yield from self._fields(identifiers(task))
            if status is None:
                yield from self._fields([state(task)])
        if status is not None:
            yield from self._fields(render_status(status, event.metadata, self._view))
        changes = list(self._text.changes(event))
        if isinstance(event, TaskArtifactUpdateEvent):
            yield from self._news(event.artifact, changes, append=event.append)
        elif isinstance(event, Task):
            yield from self._removed({artifact.artifact_id for artifact in event.artifacts})
            for artifact in event.artifacts:
                artifact_changes = [
                    change for change in changes if change.artifact_id == artifact.artifact_id
                ]
                yield from self._news(artifact, artifact_changes, append=False)

    def _removed(self, remaining_ids: set[str]) -> Iterator[str]:
        """Report the artifacts that the task no longer has."""
        for artifact_id in [key for key in self._names if key not in remaining_ids]:
            yield from self._fields([field("Artifact removed", self._names.pop(artifact_id))])
            self._other_parts.pop(artifact_id, None)

    def _news(
        self, artifact: Artifact, changes: list[TextDelta | TextReset], *, append: bool
    ) -> Iterator[str]:
        """Yield the news of an artifact, from the changes of its text."""
        artifact_id = artifact.artifact_id
        other_parts = tuple(part for part in artifact.parts if part.text is None)
        shown_parts = self._other_parts.get(artifact_id, ())
        kept_parts = () if append else shown_parts
        is_new = artifact_id not in self._names
        text = sum(len(change.text) for change in changes if isinstance(change, TextDelta))
        skipped = 0 if append else len(artifact.text) - text
        is_replaced = other_parts[: len(kept_parts)] != kept_parts or any(
            isinstance(change, TextReset) for change in changes
        )
        if is_replaced:
            kept_parts, skipped = (), 0
        self._other_parts[artifact_id] = (*shown_parts, *other_parts) if append else other_parts
        if is_new or artifact.name:
            self._names[artifact_id] = artifact.name or artifact_id
        if is_replaced:
            yield from self._fields([field("Artifact replaced", self._names[artifact_id])])
            self._last_artifact_id = artifact_id
        elif is_new:
            yield from self._head(artifact_id)
            yield from (f"{line}\n" for line in artifact_head(artifact, self._view))
        yield from self._parts(artifact, skipped, len(kept_parts))

    def _parts(self, artifact: Artifact, characters: int, other_count: int) -> Iterator[str]:
        """Yield the parts after so many characters of text and so many other parts."""
        for part in artifact.parts:
            if part.text is None:
                if other_count:
                    other_count -= 1
                    continue
                yield from self._head(artifact.artifact_id)
                yield from self.close()
                yield from (f"{line}\n" for line in contents((part,), self._view))
            elif new := part.text[characters:]:
                characters = 0
                yield from self._grow(artifact.artifact_id, part, new)
            else:
                characters -= len(part.text)

    def _head(self, artifact_id: str) -> Iterator[str]:
        """Name the artifact, unless the last output belongs to it."""
        if self._last_artifact_id != artifact_id:
            yield from self._fields([field("Artifact", self._names[artifact_id])])
            self._last_artifact_id = artifact_id

    def _grow(self, artifact_id: str, part: Part, text: str) -> Iterator[str]:
        yield from self._head(artifact_id)
        block = self._block
        if block is not None and self._view.verbose and not is_same_kind(block.part, part):
            yield from self.close()
        if self._block is None:
            if self._view.verbose and part.media_type:
                yield f"{field('Media type', part.media_type)}\n"
            yield "Text:\n"
            self._block = _Block(part)
        yield self._block.grow(text)


def _is_rest(status: TaskStatus) -> bool:
    """Return whether the task waits for an action of the caller, or is over."""
    return status.state.is_terminal or status.state.is_interrupted


class _Block:
    """A block of text that is not yet closed.

    Args:
        part: The first part of the text.

    Attributes:
        part: As given.
        is_at_line_start: Whether the line that is written has no character yet.
    """

    def __init__(self, part: Part) -> None:
        self.part = part
        self.is_at_line_start = True
        self._is_empty = True
        self._plain = TerminalSanitizer()

    def grow(self, text: str) -> str:
        """Return more of the text; an empty line becomes one space: only the end is empty."""
        output = self._plain.feed(text)
        if not output:
            return ""
        before = "\n" if self.is_at_line_start else ""
        self._is_empty, self.is_at_line_start = False, output.endswith("\n")
        return _EMPTY_LINE.sub("\n ", before + output)[len(before) :]

    def end(self) -> str:
        """Return the empty line that ends the block."""
        if self._is_empty:
            return " \n\n"
        return "\n" if self.is_at_line_start else "\n\n"


_EMPTY_LINE = re.compile(r"\n(?=\n)")
