"""``-o text``: labelled lines, and text while it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast._cli.output import text
from holdfast._cli.output.base import Output, write
from holdfast._cli.output.events import (
    CardShown,
    ConfigDeleted,
    DiagnosisShown,
    FilesSaved,
    Measurement,
    MessageSending,
    Record,
    Result,
    RunEnded,
    SettingsShown,
    StreamEnded,
    StreamEvent,
    TaskBegan,
    WaitEnded,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast._cli.errors import Failure
    from holdfast._cli.output.events import OutputEvent
    from holdfast._cli.settings import Settings
    from holdfast.doctor import Diagnosis
    from holdfast.types import Event, Task

__all__ = ["TextOutput"]


class _Live(Protocol):
    """Text while it comes."""

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
            case TaskBegan(task):  # named at once, so that an interruption does not lose it
                self._identifiers = list(text.identifiers(task))
                self._lines(self._identifiers)
                self.has_named_task = True
            case WaitEnded(task):  # no output about a task is without its state
                if self._live is not None:
                    self._pieces(self._live, self._live.last_seen(task))
                elif self._identifiers:
                    self._lines([text.state(task)])
            case StreamEvent(of_stream, task):
                live = self._live = self._live or _live_text(view)
                self._pieces(live, live.event(of_stream, task))
                self.has_named_task = task is not None
            case StreamEnded():
                if self._live is not None:
                    self._pieces(self._live, self._live.close())
            case Result(value, history):
                view = text.View(verbose=self._verbose, history=history)
                self._lines(text.render(value, view, told=self._identifiers))
            case FilesSaved(task, files):
                self._lines(text.render_saved(task, files))
            case ConfigDeleted(task_id, config_id):
                self._lines(text.render_deleted(task_id, config_id))
            case CardShown(card, interface, verification):
                self._lines(text.render_card(card, interface, view, verification))
            case SettingsShown(settings, configuration, logins):
                self._lines(text.render_settings(settings, configuration, logins))
            case Record(_, lines):
                self._lines(lines)
            case Measurement(_, lines):
                self._lines(self._hidden(line) for line in lines)
            case RunEnded(_, summary):
                self._say("Summary", summary)
            case DiagnosisShown(diagnosis):
                self._show_diagnosis(diagnosis)
            case _:
                raise TypeError(event)

    def _show_diagnosis(self, diagnosis: Diagnosis) -> None:
        from holdfast._cli.output.doctor_text import paper, render_diagnosis

        shown = diagnosis.hiding(self._hidden)
        lines = render_diagnosis(shown, paper(), verbose=self._verbose)  # with colours
        write("".join(f"{line}\n" for line in lines))

    def _fail(self, failure: Failure) -> None:
        if failure.instead is not None:
            write(f"{text.clean(failure.instead)}\n", err=True)
            return
        self._say("Error", failure.message)
        self._say("Code", failure.code)
        if failure.hint:
            self._say("Hint", failure.hint)

    def _lines(self, lines: Iterable[str]) -> None:
        write("".join(f"{text.clean(line)}\n" for line in lines))

    def _pieces(self, live: _Live, pieces: Iterable[str]) -> None:
        if written := "".join(pieces):
            self._is_within_line = False  # if nobody reads it
            write(written)
            self._is_within_line = live.is_within_line


def _live_text(view: text.View) -> _Live:
    from holdfast._cli.output.live import LiveText

    return LiveText(view)
