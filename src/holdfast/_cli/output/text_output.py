"""``-o text``: labelled lines, and text while it comes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Protocol

from holdfast._cli.output import text
from holdfast._cli.output.base import BaseOutput, write
from holdfast._cli.output.chat_text import ChatText
from holdfast._cli.output.doctor_text import paper, render_diagnosis
from holdfast._cli.output.live import LiveText
from holdfast._cli.output.wrapping import Wrapping

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast._cli.configuration import Configuration
    from holdfast._cli.errors import Failure
    from holdfast._cli.saving import Saved
    from holdfast._cli.settings import ResolvedSetting, Settings
    from holdfast._pipeline.cards.verification import CardVerification
    from holdfast.doctor import Diagnosis
    from holdfast.types import AgentCard, AgentInterface, Event, Message, Task, WireValue

__all__ = ["ChatOutput", "TextOutput"]


class _Live(Protocol):
    """Text while it comes."""

    @property
    def is_within_line(self) -> bool: ...

    def event(self, event: Event, task: Task | None) -> Iterable[str]: ...

    def last_seen(self, task: Task) -> Iterable[str]: ...

    def close(self) -> Iterable[str]: ...


class TextOutput(BaseOutput):
    """``-o text``: labelled lines."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self._verbose = settings is not None and settings.verbose
        self._told: list[str] = []
        self._live: _Live | None = None

    def sending(self, message: Message) -> None:
        self._keep(message)
        if self._verbose:
            self._lines(text.render_sent(message))

    def began(self, task: Task) -> None:
        """Names the task at once, so that an interruption does not lose it."""
        self._told = list(text.identifiers(task))
        self._lines(self._told)
        self.has_named_task = True

    def stopped_waiting(self, task: Task) -> None:
        """Completes what was begun: no output about a task is without its state."""
        if self._live is not None:
            self._pieces(self._live, self._live.last_seen(task))
        elif self._told:
            self._lines([text.state(task)])

    def event(self, event: Event, task: Task | None) -> None:
        if self._live is None:
            self._live = LiveText(text.View(verbose=self._verbose))
        self._pieces(self._live, self._live.event(event, task))
        self.has_named_task = task is not None

    def over(self) -> None:
        if self._live is not None:
            self._pieces(self._live, self._live.close())

    def result(self, value: WireValue, *, history: bool = False) -> None:
        view = text.View(verbose=self._verbose, history=history)
        self._lines(text.render(value, view, told=self._told))

    def saved(self, task: Task, saved: Sequence[Saved], *, is_whole: bool) -> None:  # noqa: ARG002  it is told
        self._lines(text.render_saved(task, saved))

    def deleted(self, task_id: str, config_id: str) -> None:
        self._lines(text.render_deleted(task_id, config_id))

    def card(
        self,
        card: AgentCard,
        chosen: AgentInterface | None,
        verification: CardVerification | None,
    ) -> None:
        view = text.View(verbose=self._verbose)
        self._lines(text.render_card(card, chosen, view, verification))

    def settings(
        self,
        settings: Iterable[ResolvedSetting],
        configuration: Configuration,
        logins: Mapping[str, str],
    ) -> None:
        self._lines(text.render_settings(settings, configuration, logins))

    def failure(self, failure: Failure) -> None:
        if failure.instead is not None:
            write(f"{text.clean(failure.instead)}\n", err=True)
            return
        self._say("Error", failure.message)
        self._say("Code", failure.code)
        if failure.hint:
            self._say("Hint", failure.hint)

    def run(self, counts: Mapping[str, Any], summary: str) -> None:  # noqa: ARG002  it is in words
        self._say("Summary", summary)

    def call(self, members: Mapping[str, Any], lines: Iterable[str]) -> None:  # noqa: ARG002  same
        self._lines(lines)

    def report(
        self,
        members: Mapping[str, Any],  # noqa: ARG002  same
        lines: Iterable[str],
        *,
        is_last: bool,  # noqa: ARG002  same
    ) -> None:
        self._lines(self._hidden(line) for line in lines)

    def diagnosis(self, diagnosis: Diagnosis, *, is_last: bool) -> None:  # noqa: ARG002  same
        shown = diagnosis.hiding(self._hidden)
        lines = render_diagnosis(shown, paper(), verbose=self._verbose)  # with colours
        write("".join(f"{line}\n" for line in lines))

    def _lines(self, lines: Iterable[str]) -> None:
        write("".join(f"{text.clean(line)}\n" for line in lines))

    def _pieces(self, live: _Live, pieces: Iterable[str]) -> None:
        if written := "".join(pieces):
            self._is_within_line = False  # if nobody reads it
            write(written)
            self._is_within_line = live.is_within_line


class ChatOutput(TextOutput):
    """What somebody reads who sits at a terminal and talks to an agent."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._chat = ChatText(text.View(verbose=settings.verbose), _columns)
        self._live = self._chat

    def sending(self, message: Message) -> None:
        self._chat.turn()
        super().sending(message)

    def interrupted(self) -> None:
        """Ends the line, on which the terminal shows that Ctrl-C was pressed."""
        write("\n")
        for _ in self._chat.end_line():
            pass
        self._is_within_line = False

    def _broken(self, line: str) -> str:
        is_copied = line.startswith("Hint: ")  # it has a command in it
        return line if is_copied else Wrapping(_columns).feed(line)

    def note(self, text: str) -> None:
        """Show a text of the chat itself, such as its help."""
        write(Wrapping(_columns).feed(text))


def _columns() -> int | None:
    """Return the columns of the terminal of standard output; None where it is not a terminal."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None
