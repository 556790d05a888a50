r"""The agent's text in a chat, as it arrives: plain text, wrapped at words.

Rules:
- The text of artifacts is written as it grows, one artifact after the other. What the agent says
  about a task at work stands in brackets, and so does what it says at the end beside an answer in
  artifacts; a question, and an answer that is a status message, do not. What is no text is shown
  in fields, as everywhere.
- Nothing is shown twice, however often the agent sends it: as an artifact and as a status message,
  in a snapshot with another time, or in artifacts of other ids. So an artifact that begins as the
  last status message is held back until it differs from the message.
- A word that no longer fits on its line moves to the next one. The part of it that is already on
  the screen is taken back: ``\b`` moves over it, spaces hide it.
- A word longer than a line, such as an address, is left to the terminal, and can be copied.
- Between wide characters (Chinese, Japanese, Korean) a line may break anywhere.
- The last column stays free: a terminal that shows a character there may be on the next line.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from typing import TYPE_CHECKING

from holdfast._cli.output.base import MessageSending, has_colours, write
from holdfast._cli.output.sanitizer import TerminalSanitizer, clean, clean_line, shortened
from holdfast._cli.output.text import View, artifact_head, contents, field, render_status
from holdfast._cli.output.text_output import TextOutput
from holdfast._stream.text import TextDelta, TextFold, TextReset
from holdfast.types import Message, Task, TaskArtifactUpdateEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from holdfast._cli.options.settings import Settings
    from holdfast._cli.output.base import OutputEvent
    from holdfast._stream.text import TextChange
    from holdfast.types import AgentCard, Artifact, Event, Part, TaskStatus, TaskStatusUpdateEvent

__all__ = ["ChatOutput", "ChatText", "Wrapping"]

_TAKEN_BACK = "[the agent replaced this]"
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_COLOURS: Mapping[str, str] = {
    "Error": "\x1b[1;31m",
    "Warning": "\x1b[33m",
    "Hint": "\x1b[36m",
}
"""The colours of labels on standard error."""


class ChatText:
    """The events of a chat, as text to write in their order.

    Args:
        view: The settings of the view.
        columns: Returns the columns of the terminal; None if lines are not to be broken.
        dims: Whether to dim what the agent says about a task at work.

    Attributes:
        is_within_line: Whether the last written line has no end yet.
    """

    def __init__(
        self,
        view: View,
        columns: Callable[[], int | None] = lambda: None,
        *,
        dims: bool = False,
    ) -> None:
        self.is_within_line = False
        self._dims = dims
        self._columns = columns
        self._view = view
        self._said_before: set[str] = set()  # artifacts with text of an earlier turn
        self._begin(None)

    def turn(self) -> None:
        """Begin a turn: text after it replaces nothing from before."""
        self._said_before = {*self._other_parts}
        self._answer: list[str] = []
        self._last_status_text = ""
        self._held_texts.clear()

    def _begin(self, task_id: str | None) -> None:
        """Reset the state of a task."""
        self._task_id = task_id
        self._text = TextFold()
        self._other_parts: dict[str, tuple[Part, ...]] = {}  # shown parts that are not text
        self._artifact_texts: dict[str, list[str]] = {}  # text of artifacts
        self._answer = []  # the same, since the last message to the agent
        self._status: object = None  # last seen, without its time
        self._messages: set[tuple[str, str]] = set()  # of statuses, by id and text
        self._last_status_text = ""  # the last text of a status
        self._growing: str | None = None  # the artifact of the open line
        self._held_texts: dict[str, tuple[str, str]] = {}  # by artifact: text, repeated text
        self._plain, self._wrapping = TerminalSanitizer(), Wrapping(self._columns)

    def event(self, event: Event, task: Task | None) -> Iterator[str]:
        """Yield the text to write for an event.

        Args:
            event: The event.
            task: The task after the event; None without a task.
        """
        if isinstance(event, Message):
            yield from self._message(event)
            return
        if task is not None and task.id != self._task_id:
            self._begin(task.id)
        changes = list(self._text.changes(event))
        if not self._is_only_renamed(changes):
            for change in changes:
                yield from self._change(change)
        if isinstance(event, TaskArtifactUpdateEvent):
            yield from self._rest(event.artifact, append=event.append)
            return
        if isinstance(event, Task):
            self._rename({artifact.artifact_id for artifact in event.artifacts})
            for artifact in event.artifacts:
                yield from self._rest(artifact, append=False)
        if event.status.state.is_terminal:
            yield from self._release()
        if (status := _without_time(event.status)) != self._status:
            self._status = status
            yield from self._status_text(event, "" if task is None else task.text)

    def last_seen(self, task: Task) -> Iterator[str]:  # noqa: ARG002  it is shown elsewhere
        """Yield nothing: the state of the task is shown beside the text."""
        return self.close()

    def close(self) -> Iterator[str]:
        """Show what was held back, and end the line that has no end yet, if there is one."""
        yield from self._release()
        yield from self.end_line()

    def end_line(self) -> Iterator[str]:
        """End the line that has no end yet, if there is one."""
        self._growing = None
        if self.is_within_line:
            self.is_within_line = False
            yield "\n"

    def _lines(self, lines: Iterable[str]) -> Iterator[str]:
        yield from self.end_line()
        yield from (f"{line}\n" for line in lines)

    def _wrapped(self, text: str, *, is_dim: bool = False) -> Iterator[str]:
        wrapped = Wrapping(self._columns).feed(text)
        yield from self._lines([f"{_DIM}{wrapped}{_PLAIN}" if is_dim else wrapped])

    def _message(self, message: Message) -> Iterator[str]:
        if message.text and not self._is_shown(message.message_id, message.text):
            yield from self._wrapped(clean(message.text))
        yield from self._parts(message.parts)

    def _parts(self, parts: Iterable[Part]) -> Iterator[str]:
        """Yield the parts that are not text."""
        if other_parts := [part for part in parts if part.text is None]:
            yield from self._lines(contents(other_parts, self._view))

    # ── Events of a task ─────────────────────────────────────────────────────────────────────

    def _is_only_renamed(self, changes: Sequence[TextChange]) -> bool:
        """Return whether text only moved to artifacts of other ids, or was divided differently."""
        removed_ids = {change.artifact_id for change in changes if isinstance(change, TextReset)}
        old_texts = [
            text
            for artifact_id, texts in self._artifact_texts.items()
            if artifact_id in removed_ids
            for text in texts
        ]
        new = [change for change in changes if isinstance(change, TextDelta)]
        if not old_texts or _bare(*old_texts) != _bare(*(change.text for change in new)):
            return False
        for artifact_id in removed_ids:
            self._artifact_texts.pop(artifact_id, None)
            self._held_texts.pop(artifact_id, None)
        for change in new:
            self._artifact_texts.setdefault(change.artifact_id or "", []).append(change.text)
        return True

    def _change(self, change: TextChange) -> Iterator[str]:
        if isinstance(change, TextReset):
            texts = self._artifact_texts.pop(change.artifact_id, [])
            self._answer.clear()
            held_text, _ = self._held_texts.pop(change.artifact_id, ("", ""))
            is_shown = held_text == "" or held_text != "".join(texts)
            if is_shown and change.artifact_id not in self._said_before:
                yield from self._lines([_TAKEN_BACK])
        elif change.artifact_id is not None:  # otherwise it is the text of the status
            texts = self._artifact_texts.setdefault(change.artifact_id, [])
            begins = not texts
            texts.append(change.text)
            self._answer.append(change.text)
            held_text, repeats = self._held_texts.pop(
                change.artifact_id, ("", self._last_status_text * begins)
            )
            text = held_text + change.text
            if repeats and repeats.startswith(_bare(text)):
                if _bare(text) != repeats:
                    self._held_texts[change.artifact_id] = text, repeats
                return
            yield from self._grow(change.artifact_id, text)

    def _grow(self, artifact_id: str, text: str) -> Iterator[str]:
        """Show more of the text of an artifact."""
        if self._growing != artifact_id:
            yield from self.end_line()
            self._growing = artifact_id
            self._plain, self._wrapping = TerminalSanitizer(), Wrapping(self._columns)
            self._said_before.discard(artifact_id)
        if output := self._wrapping.feed(self._plain.feed(text)):
            self.is_within_line = not output.endswith("\n")
            yield output

    def _release(self) -> Iterator[str]:
        """Show the text that is held back, which the agent leaves shorter than its message."""
        held_texts, self._held_texts = self._held_texts, {}
        for artifact_id, (text, _) in held_texts.items():
            yield from self._grow(artifact_id, text)

    def _rename(self, artifact_ids: set[str]) -> None:
        """Move the parts of removed artifacts to the new one."""
        removed_ids = [key for key in self._other_parts if key not in artifact_ids]
        parts = tuple(part for key in removed_ids for part in self._other_parts.pop(key))
        new = [artifact_id for artifact_id in artifact_ids if artifact_id not in self._other_parts]
        if parts and len(new) == 1:
            self._other_parts[new[0]] = parts

    def _rest(self, artifact: Artifact, *, append: bool) -> Iterator[str]:
        """Yield the new parts of an artifact that are not text."""
        is_known = artifact.artifact_id in self._other_parts
        shown_parts = self._other_parts.get(artifact.artifact_id, ())
        other_parts = tuple(part for part in artifact.parts if part.text is None)
        if self._view.verbose and not is_known:
            yield from self._lines([field("Artifact", artifact.name or artifact.artifact_id)])
            yield from self._lines(artifact_head(artifact, self._view))
        if append:
            self._other_parts[artifact.artifact_id] = (*shown_parts, *other_parts)
            yield from self._parts(other_parts)
            return
        self._other_parts[artifact.artifact_id] = other_parts
        extends_shown = other_parts[: len(shown_parts)] == shown_parts
        yield from self._parts(other_parts[len(shown_parts) :] if extends_shown else other_parts)

    def _status_text(self, event: Task | TaskStatusUpdateEvent, text: str) -> Iterator[str]:
        """Yield the text of a status, unless it repeats the text of the task."""
        status = event.status
        if self._view.verbose:
            yield from self._lines(render_status(status, event.metadata, self._view))
            return
        if status.message is None:
            return
        message, status_text = status.message, clean(status.message.text)
        rests = status.state.is_terminal or status.state.is_interrupted
        is_repeated = rests and _bare(status_text) == self._last_status_text
        if self._is_shown(message.message_id, message.text):
            return
        if status_text and not is_repeated and not self._is_in_artifacts(status_text, text):
            is_aside = self._answer if status.state.is_terminal else not rests
            if is_aside:
                yield from self._wrapped(f"[{status_text}]", is_dim=self._dims)
            else:
                yield from self._wrapped(status_text)
            self._last_status_text = _bare(status_text)
        yield from self._parts(message.parts)

    def _is_in_artifacts(self, status_text: str, text: str) -> bool:
        """Return whether a status message repeats the text of artifacts in this turn."""
        if not self._answer:
            return False
        artifact_texts = [
            text,
            "".join(self._answer),
            *("".join(texts) for texts in self._artifact_texts.values()),
        ]
        return _bare(status_text) in {
            _bare(clean(artifact_text)) for artifact_text in artifact_texts
        }

    def _is_shown(self, message_id: str, text: str) -> bool:
        """Return whether a message was shown before, and record that it is shown."""
        messages, key = self._messages, (message_id, text)
        if not message_id or key in messages:
            return bool(message_id)
        messages.add(key)
        return False


def _bare(*texts: str) -> str:
    """Return text without white space, which agents vary when they repeat text."""
    return "".join("".join(texts).split())


def _without_time(status: TaskStatus) -> object:
    message = status.message
    return status.state, None if message is None else (message.message_id, message.parts)


_MAX_DESCRIPTION = 200
"""Characters of the agent's description to show."""
_KEYS = "Type a message and press Enter. /help lists the commands; Ctrl-D ends the chat."


class ChatOutput(TextOutput):
    """The output of a chat at a terminal."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        view = View(verbose=settings.verbose)
        self._chat = ChatText(view, _columns, dims=has_colours(sys.stdout))
        self._live = self._chat

    def emit(self, event: OutputEvent) -> None:
        """Show an event."""
        if isinstance(event, MessageSending):
            self._chat.turn()
        super().emit(event)

    def interrupted(self) -> None:
        """End the line, on which the terminal shows that Ctrl-C was pressed."""
        write("\n")
        for _ in self._chat.end_line():
            pass
        self._is_within_line = False

    def _broken(self, line: str) -> str:
        is_copied = line.startswith("Hint: ")  # it contains a command
        broken = line if is_copied else Wrapping(_columns).feed(line)
        label, colon, rest = broken.partition(":")
        if label in _COLOURS and has_colours(sys.stderr):
            return f"{_COLOURS[label]}{label}{colon}{_PLAIN}{rest}"
        return broken

    def greet(self, card: AgentCard | None, address: str) -> None:
        """Show on a terminal which agent answers, and the most important keys.

        Args:
            card: The agent's card; None if it is not known.
            address: The address of the agent.
        """
        if sys.stdout is None or not sys.stdout.isatty():
            return
        name = clean_line(card.name) if card is not None and card.name else "the agent"
        bold, plain = (_BOLD, _PLAIN) if has_colours(sys.stdout) else ("", "")
        lines = [f"Connected to {bold}{name}{plain} at {clean_line(address)}"]
        if card is not None and card.description:
            description = shortened(clean_line(card.description), _MAX_DESCRIPTION)
            lines.append(Wrapping(_columns).feed(description))
        lines.append(_KEYS)
        write("\n".join([*lines, "", ""]))

    def note(self, text: str) -> None:
        """Show a text of the chat itself, such as its help."""
        write(Wrapping(_columns).feed(text))


def _columns() -> int | None:
    """Return the columns of the terminal of standard output; None where it is not a terminal."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


_MIN_COLUMNS = 10
"""Columns below which lines are left to the terminal's own breaks."""

_TAB, _WIDEST = 8, 2
"""Columns of a tab stop, and of a wide character."""

_WIDE = frozenset({"W", "F"})
_NO_WIDTH = frozenset({"Mn", "Me", "Cf"})


class Wrapping:
    """Breaks the lines of a text that arrives in pieces.

    Args:
        columns: Returns the columns of the terminal; None if there is none, and lines are not
            broken. Called before each piece, since a window may be resized.
    """

    def __init__(self, columns: Callable[[], int | None]) -> None:
        self._columns = columns
        self._column = 0  # of the next character
        self._word = ""  # the beginning of a word that may continue
        self._word_width = 0

    def feed(self, text: str) -> str:
        """Return what to write for the next piece of the text.

        Args:
            text: The piece, which has no control characters but line ends and tabs.
        """
        columns = self._columns()
        if columns is None or columns < _MIN_COLUMNS:
            return text
        limit, shown = columns - 1, list[str]()
        sent, sent_width, word_at = self._word, self._word_width, 0
        for character in text:
            width = _width(character)
            if character in "\n\t ":
                shown.append(self._space(character, limit))
            elif width == _WIDEST:
                shown.append(self._wide(character, limit))
            else:
                if self._moves(width, limit):
                    shown.insert(word_at, f"{chr(8) * sent_width}{' ' * sent_width}\n{sent}")
                    self._column = self._word_width
                shown.append(character)
                self._word += character
                self._word_width += width
                self._column += width
                continue
            self._word, self._word_width = "", 0
            sent, sent_width, word_at = "", 0, len(shown)
        return "".join(shown)

    def _space(self, character: str, limit: int) -> str:
        width = _TAB - self._column % _TAB if character == "\t" else 1
        if character == "\n" or self._column + width > limit:
            self._column = 0
            return "\n"
        self._column += width
        return character

    def _wide(self, character: str, limit: int) -> str:
        fits = self._column + _WIDEST <= limit
        self._column = self._column + _WIDEST if fits else _WIDEST
        return character if fits else f"\n{character}"

    def _moves(self, width: int, limit: int) -> bool:
        """Return whether the word does not fit here, and would fit on a line of its own."""
        fits = self._column + width <= limit
        begins_line = self._column <= self._word_width
        return not (fits or begins_line or self._word_width + width > limit)


def _width(character: str) -> int:
    """Return the columns that a character takes."""
    if character.isascii():
        return 1
    if unicodedata.category(character) in _NO_WIDTH:
        return 0
    return _WIDEST if unicodedata.east_asian_width(character) in _WIDE else 1
