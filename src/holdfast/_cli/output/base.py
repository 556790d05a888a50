"""The interface between commands and outputs: the events of a command, and what shows them.

Rules: standard output carries the result and nothing else, in ``json`` as one document or, with
``--stream``, as lines; everything about it goes to standard error (a2a-cli 11). Neither shows a
credential of the caller. Characters that would steer a terminal or hide in it are written as
escapes (`holdfast._cli.output.sanitizer`), and so are those that an encoding lacks; none is left
out. Events are structs: a dataclass would compile its methods at each start of the command.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeAlias, Union
from urllib.parse import quote

import click
import msgspec

from holdfast._cli.options.masking import secrets_in_params, secrets_in_reference
from holdfast._cli.output.sanitizer import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from holdfast._cli.errors import Failure
    from holdfast._cli.options.configuration import Configuration
    from holdfast._cli.options.settings import ResolvedSetting, Settings
    from holdfast._pipeline.cards.verification import CardVerification
    from holdfast.doctor import Diagnosis
    from holdfast.types import AgentCard, AgentInterface, Artifact, Event, Message, Task, WireValue

__all__ = [
    "CardShown",
    "ConfigDeleted",
    "DiagnosisShown",
    "Failed",
    "FilesSaved",
    "Measurement",
    "MessageSending",
    "MessageSent",
    "Notice",
    "Output",
    "OutputError",
    "OutputEvent",
    "ProgressLine",
    "Record",
    "Result",
    "RunEnded",
    "SavedFile",
    "SettingsShown",
    "StreamEnded",
    "StreamEvent",
    "TaskBegan",
    "WaitEnded",
    "encoding_of",
    "has_colours",
    "write",
]


class Notice(msgspec.Struct, frozen=True):
    """One line on standard error.

    Attributes:
        label: What the line begins with, such as ``Warning``.
        text: What it says.
    """

    label: str
    text: str

    @classmethod
    def warning(cls, text: str) -> Self:
        """Return something that the caller must know about."""
        return cls("Warning", text)

    @classmethod
    def hint(cls, text: str) -> Self:
        """Return what the caller can do next."""
        return cls("Hint", text)


class ProgressLine(msgspec.Struct, frozen=True):
    """How far a command has come, for a terminal; an empty line erases it."""

    line: str


class Failed(msgspec.Struct, frozen=True):
    """The command could not do its job."""

    failure: Failure


class MessageSending(msgspec.Struct, frozen=True):
    """A message is about to be sent."""

    message: Message


class MessageSent(msgspec.Struct, frozen=True):
    """The call of a key has an answer; `is_new` says whether this command sent the message."""

    is_new: bool


class TaskBegan(msgspec.Struct, frozen=True):
    """A task is known, and will be waited for."""

    task: Task


class WaitEnded(msgspec.Struct, frozen=True):
    """The wait for a task ended before the task did; the task is as last seen."""

    task: Task


class StreamEvent(msgspec.Struct, frozen=True):
    """An event of a stream that is followed, and the task after it; None without a task."""

    event: Event
    task: Task | None


class StreamEnded(msgspec.Struct, frozen=True):
    """The stream has ended."""


class Result(msgspec.Struct, frozen=True):
    """The result of the command.

    Attributes:
        value: The agent's answer.
        history: Whether to show the messages of tasks.
    """

    value: WireValue
    history: bool = False


class SavedFile(msgspec.Struct, frozen=True):
    """A saved file.

    Attributes:
        artifact: The artifact that the file belongs to.
        parts: The indexes of its parts in the artifact.
        media_type: The media type that the agent states; None if it states none.
        path: The path of the file.
        size: Its size in bytes.
    """

    artifact: Artifact
    parts: tuple[int, ...]
    media_type: str | None
    path: Path
    size: int


class FilesSaved(msgspec.Struct, frozen=True):
    """Files of a task were saved; `is_whole` says whether these are all."""

    task: Task
    files: Sequence[SavedFile]
    is_whole: bool


class ConfigDeleted(msgspec.Struct, frozen=True):
    """A push configuration of a task is deleted."""

    task_id: str
    config_id: str


class CardShown(msgspec.Struct, frozen=True):
    """An agent's card.

    Attributes:
        card: The card.
        interface: The interface that calls would use; None if there is none.
        verification: The outcome of the check of its signatures; None if there was no check.
    """

    card: AgentCard
    interface: AgentInterface | None
    verification: CardVerification | None


class SettingsShown(msgspec.Struct, frozen=True):
    """The settings in effect, the files that were read for them, and those of logins by agent."""

    settings: Iterable[ResolvedSetting]
    configuration: Configuration
    logins: Mapping[str, str]


class Record(msgspec.Struct, frozen=True):
    """A call of a journal or a login: as members of a document, and as lines."""

    members: Mapping[str, Any]
    lines: Iterable[str]


class Measurement(msgspec.Struct, frozen=True):
    """A measurement: as members of a document, and as lines.

    Attributes:
        members: The members.
        lines: The lines.
        is_last: Whether no failure follows, whose document would have the members.
    """

    members: Mapping[str, Any]
    lines: Iterable[str]
    is_last: bool


class RunEnded(msgspec.Struct, frozen=True):
    """How far a run of many messages has come.

    Attributes:
        counts: The counts, as members of a document.
        summary: The counts in words.
        is_last: Whether no failure follows, whose document would have the members.
    """

    counts: Mapping[str, Any]
    summary: str
    is_last: bool


class DiagnosisShown(msgspec.Struct, frozen=True):
    """The findings of an examination, perhaps without those that need no attention.

    `is_last` says whether no failure follows.
    """

    diagnosis: Diagnosis
    only_problems: bool
    is_last: bool


OutputEvent: TypeAlias = Union[  # noqa: UP007  a type alias is evaluated
    Notice,
    ProgressLine,
    Failed,
    MessageSending,
    MessageSent,
    TaskBegan,
    WaitEnded,
    StreamEvent,
    StreamEnded,
    Result,
    FilesSaved,
    ConfigDeleted,
    CardShown,
    SettingsShown,
    Record,
    Measurement,
    RunEnded,
    DiagnosisShown,
]


# ── Outputs ──────────────────────────────────────────────────────────────────────────────────


_ERASE_LINE = "\r\x1b[K"


class Output:
    """The output of a command; a subclass for each form.

    Args:
        settings: The settings of the command, once parsed.

    Attributes:
        has_named_task: Whether the id of the task was written.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.has_named_task = False
        self._is_within_line = False
        """Whether the last line on the terminal of standard output has no end yet."""
        self._progress = ""
        self._secrets = [] if settings is None else _secrets(settings)

    def emit(self, event: OutputEvent) -> None:
        """Show an event.

        Raises:
            BrokenPipeError: The output has no reader.
            OutputError: The output cannot be written.
        """
        match event:
            case Notice(label, text):
                self._diagnostic(label, text)
            case ProgressLine(line):
                self._draw(line)
            case Failed(failure):
                self._fail(failure)
            case _:
                if isinstance(event, MessageSending):
                    for part in event.message.parts:
                        self.hide(secrets_in_reference(part.url or ""))
                self._show(event)

    def hide(self, secrets: Iterable[str]) -> None:
        """Show these texts nowhere from now on."""
        self._secrets += secrets

    def error_members(self, failure: Failure) -> dict[str, Any]:
        """Return a failure as members of a document."""
        return {
            "code": failure.code,
            "message": clean_line(self._redacted(failure.message)),
            "hint": None if failure.hint is None else self._redacted(failure.hint),
            "a2aCode": failure.a2a_code,
            **failure.ids,
        }

    def _show(self, event: OutputEvent) -> None:
        """Show an event that each form shows in its own way."""
        raise NotImplementedError

    def _fail(self, failure: Failure) -> None:
        """Show the failure of the command."""
        raise NotImplementedError

    def _draw(self, line: str) -> None:
        if line != self._progress:
            self._progress = line
            write(f"{_ERASE_LINE}{clean(line)}", err=True)

    def _diagnostic(self, label: str, message: str) -> None:
        before, self._is_within_line = "\n" if self._is_within_line else "", False
        if self._progress:
            before, self._progress = _ERASE_LINE, ""
        line = self._broken(f"{label}: {clean_line(self._redacted(message))}")
        write(f"{before}{line}\n", err=True)

    def _broken(self, line: str) -> str:
        """Break a line for its reader; a line stays whole where it may be copied or parsed."""
        return line

    def _redacted(self, message: str) -> str:
        if not self._secrets:
            return message
        from holdfast._wire.redaction import redact
        from holdfast.errors import A2AError

        error = A2AError(message)
        redact(error, self._secrets)
        return error.message


def _secrets(settings: Settings) -> list[str]:
    """Return the secrets that no diagnostic shows, also as a query encodes them."""
    stated = (
        settings.bearer,
        settings.api_key,
        settings.client_secret,
        settings.client_key_password,
    )
    secrets = [secret for secret in stated if secret is not None]
    secrets += secrets_in_params(settings.svc_params)
    secrets += secrets_in_reference(settings.agent_card)
    return [*secrets, *(quote(secret, safe="") for secret in secrets)]


class OutputError(OSError):
    """An output cannot be written; that says nothing about the agent."""


def write(content: str, *, err: bool = False) -> None:
    """Write to standard output or standard error, in any encoding.

    Raises:
        BrokenPipeError: The output has no reader.
        OutputError: It cannot be written.
    """
    encoding = encoding_of(sys.stderr if err else sys.stdout)
    try:
        click.echo(content.encode(encoding, "backslashreplace"), nl=False, err=err)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(*error.args) from None


def has_colours(stream: TextIO | None) -> bool:
    """Return whether to use colours: on a terminal, unless NO_COLOR or TERM=dumb is set."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream is not None and stream.isatty() and not is_plain


def encoding_of(stream: TextIO | None) -> str:
    """Return the encoding of an output."""
    return getattr(stream, "encoding", None) or "utf-8"
