"""What goes to standard output and what to standard error, and in which form (a2a-cli 11).

Rules: standard output carries the result and nothing else, in ``json`` as one document or, with
``--stream``, as lines; everything said about it goes to standard error; no credential is on either
of them because of us; what an encoding cannot write is written as an escape, never left out.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Protocol

from holdfast._cli.output.json_output import JsonOutput
from holdfast._cli.output.text_output import TextOutput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast._cli.configuration import Configuration
    from holdfast._cli.errors import Failure
    from holdfast._cli.saving import Saved
    from holdfast._cli.settings import ResolvedSetting, Settings
    from holdfast._pipeline.cards.verification import CardVerification
    from holdfast.doctor import Diagnosis
    from holdfast.types import AgentCard, AgentInterface, Event, Message, Task, WireValue

__all__ = ["Output", "command_line", "output_for"]


class Output(Protocol):
    """Where a command says what it has to say."""

    @property
    def has_named_task(self) -> bool:
        """Whether the task that was begun could be named."""
        ...

    def sending(self, message: Message) -> None:
        """A message is about to be sent."""
        ...

    def hide(self, secrets: Iterable[str]) -> None:
        """What no diagnostic may show."""
        ...

    def began(self, task: Task) -> None:
        """A task is known, and will be waited for."""
        ...

    def stopped_waiting(self, task: Task) -> None:
        """The wait for that task ends here, and the task goes on."""
        ...

    def event(self, event: Event, task: Task | None) -> None:
        """An event of a stream that is followed, and the task as it stands after it."""
        ...

    def over(self) -> None:
        """That was the last event."""
        ...

    def result(self, value: WireValue, *, history: bool = False) -> None:
        """The result of the command."""
        ...

    def saved(self, task: Task, saved: Sequence[Saved], *, is_whole: bool) -> None:
        """The files of a task that were saved, and whether these are all."""
        ...

    def deleted(self, task_id: str, config_id: str) -> None:
        """A push configuration of a task is deleted."""
        ...

    def card(
        self,
        card: AgentCard,
        chosen: AgentInterface | None,
        verification: CardVerification | None,
    ) -> None:
        """A card, the interface that calls would use, and what its signatures are worth."""
        ...

    def settings(
        self,
        settings: Iterable[ResolvedSetting],
        configuration: Configuration,
        logins: Mapping[str, str],
    ) -> None:
        """The settings in effect, the files that were read for them, and the logins' by agent."""
        ...

    def failure(self, failure: Failure) -> None:
        """The command could not do its job."""
        ...

    def warn(self, message: str) -> None:
        """Something that the caller must know about."""
        ...

    def run(self, counts: Mapping[str, Any], summary: str) -> None:
        """How far many messages have come, as members of a document and in words."""
        ...

    def tell(self, label: str, message: str) -> None:
        """Something that belongs to the result, and is no part of it."""
        ...

    def progress(self, line: str) -> None:
        """How far it has come so far, for somebody who looks on; empty to take that away."""
        ...

    def call(self, members: Mapping[str, Any], lines: Iterable[str]) -> None:
        """One call of a journal, as members of a document and as lines."""
        ...

    def report(self, members: Mapping[str, Any], lines: Iterable[str], *, is_last: bool) -> None:
        """What was measured, as members of a document and as lines; whether that is all."""
        ...

    def diagnosis(self, diagnosis: Diagnosis, *, is_last: bool) -> None:
        """What was found of an agent, and whether nothing else is said of it."""
        ...

    def envelope(self, failure: Failure) -> dict[str, Any]:
        """The members of a failure in documents."""
        ...

    def hint(self, message: str) -> None:
        """What the caller can do next."""
        ...


def output_for(
    form: str, settings: Settings | None = None, *, in_lines: bool = False
) -> TextOutput | JsonOutput:
    """The output of a form, ``text`` or ``json``.

    Args:
        form: The form.
        settings: What the command was told, once that is understood.
        in_lines: Whether documents are lines; what the settings say, where there are some.
    """
    if form == "json":
        return JsonOutput(settings, in_lines=in_lines)
    return TextOutput(settings)


def command_line(words: Sequence[str]) -> str:
    """A command that can be copied into a shell."""
    return shlex.join(["holdfast", *words])
