"""The output of a command as events: each output shows them in its own form.

They are structs: a dataclass would compile its methods at each start of the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeAlias, Union

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast._cli.agent.download import Saved
    from holdfast._cli.errors import Failure
    from holdfast._cli.options.configuration import Configuration
    from holdfast._cli.options.settings import ResolvedSetting
    from holdfast._pipeline.cards.verification import CardVerification
    from holdfast.doctor import Diagnosis
    from holdfast.types import AgentCard, AgentInterface, Event, Message, Task, WireValue

__all__ = [
    "CardShown",
    "ConfigDeleted",
    "DiagnosisShown",
    "Failed",
    "FilesSaved",
    "Measurement",
    "MessageSending",
    "Notice",
    "OutputEvent",
    "ProgressLine",
    "Record",
    "Result",
    "RunEnded",
    "SettingsShown",
    "StreamEnded",
    "StreamEvent",
    "TaskBegan",
    "WaitEnded",
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
    """How far a command has come, for a terminal; an empty line takes the last one away."""

    line: str


class Failed(msgspec.Struct, frozen=True):
    """The command could not do its job."""

    failure: Failure


class MessageSending(msgspec.Struct, frozen=True):
    """A message is about to be sent."""

    message: Message


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


class FilesSaved(msgspec.Struct, frozen=True):
    """Files of a task were saved; `is_whole` says whether these are all."""

    task: Task
    files: Sequence[Saved]
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
    """How far a run of many messages has come: as members of a document, and in words."""

    counts: Mapping[str, Any]
    summary: str


class DiagnosisShown(msgspec.Struct, frozen=True):
    """The findings of an examination; `is_last` says whether no failure follows."""

    diagnosis: Diagnosis
    is_last: bool


OutputEvent: TypeAlias = Union[  # noqa: UP007  a type alias is evaluated
    Notice,
    ProgressLine,
    Failed,
    MessageSending,
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
