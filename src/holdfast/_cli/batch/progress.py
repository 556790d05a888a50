"""The progress of a ``holdfast run``: counts, and a line for people."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

from holdfast._cli.batch.session import answer_of, was_not_sent
from holdfast._cli.options.values import shown_duration
from holdfast._cli.output.events import Notice, ProgressLine
from holdfast._cli.output.sanitizer import shortened
from holdfast._client.answer import Answer
from holdfast.types import Task

if TYPE_CHECKING:
    from holdfast._cli.batch.availability import Outage
    from holdfast._cli.batch.input import Lines
    from holdfast._cli.output.base import Output
    from holdfast._client.batch import BulkRun

__all__ = ["Counts", "Progress"]

_REDRAW_INTERVAL_S = 0.2
"""Seconds between two updates of the progress line on a terminal."""

_REPORT_INTERVAL_S = 30.0
"""Seconds between two progress reports if standard error is not a terminal."""

_MAX_COLUMNS = 80
"""Maximum columns of the progress line, and the assumed width of an unknown terminal."""


class Counts:
    """Counts of lines by outcome.

    Attributes:
        completed: Lines whose task was completed, or that were answered by a message.
        failed: Lines whose task failed.
        waiting: Lines whose task waits for a person.
        errors: Lines without an answer, in this run or in an earlier one.
        not_sent: Lines without an answer that certainly were not executed.
        earlier: Lines with an answer of an earlier run.
        skipped: Lines that are not messages.
        written: Lines whose result was written by this run.
        unwritten: Lines whose answer could not be written to the results; the journal has it.
    """

    def __init__(self) -> None:
        self.completed = self.failed = self.waiting = self.errors = self.not_sent = 0
        self.earlier = self.skipped = self.written = self.unwritten = 0

    @property
    def unanswered(self) -> int:
        """The number of lines whose result is an error."""
        return self.errors + self.not_sent

    @property
    def results(self) -> int:
        """The number of lines that have a result."""
        return self.completed + self.failed + self.waiting + self.unanswered + self.earlier

    def add(self, outcome: Answer | Exception) -> None:
        """Count the outcome of a line."""
        self.written += 1
        answer = answer_of(outcome)
        if answer is None:
            if was_not_sent(outcome):
                self.not_sent += 1
            else:
                self.errors += 1
        elif isinstance(answer, Task) and answer.state.is_interrupted:
            self.waiting += 1
        elif isinstance(outcome, Answer):
            self.completed += 1
        else:
            self.failed += 1

    def members(self, remaining: int | None) -> dict[str, Any]:
        """Return all counts as members of a document."""
        return {
            "completed": self.completed,
            "failed": self.failed,
            "waiting": self.waiting,
            "errors": self.errors,
            "notSent": self.not_sent,
            "earlier": self.earlier,
            "skipped": self.skipped,
            "left": remaining,
        }

    def text(self, remaining: int | None) -> str:
        """Return all counts in words."""
        parts = [
            f"{self.completed} completed",
            *_counted(self.failed, "failed"),
            *_counted(self.waiting, "waiting for input or authorization"),
            *_counted(self.unwritten, "answered, but not written to the results"),
            *_counted(self.errors, "without an answer"),
            *_counted(self.not_sent, "not sent"),
            *_counted(self.earlier, "done by an earlier run"),
            *_counted(self.skipped, "skipped"),
            *(["an unknown number left"] if remaining is None else _counted(remaining, "left")),
        ]
        return ", ".join(parts)


def _counted(count: int, label: str) -> list[str]:
    return [f"{count} {label}"] if count else []


class Progress:
    """Shows the progress of a run: a redrawn line on a terminal, else lines now and then."""

    def __init__(self, counts: Counts, outage: Outage, output: Output) -> None:
        self._counts = counts
        self._outage = outage
        self._output = output
        self._drawing: asyncio.Task[None] | None = None

    def begin(self, lines: Lines, run: BulkRun) -> None:
        """Begin to report."""
        is_seen = sys.stderr is not None and sys.stderr.isatty()
        report = self._draw if is_seen else self._report
        self._drawing = asyncio.create_task(report(lines, run))

    def end(self) -> None:
        """Remove the progress line, if there is one."""
        if self._drawing is not None:
            self._drawing.cancel()
            self._output.emit(ProgressLine(""))

    async def _draw(self, lines: Lines, run: BulkRun) -> None:
        began, total = asyncio.get_running_loop().time(), _total(lines)
        while True:
            self._output.emit(ProgressLine(_fitted(self._line(run, began, total))))
            await asyncio.sleep(_REDRAW_INTERVAL_S)

    async def _report(self, lines: Lines, run: BulkRun) -> None:
        began, total = asyncio.get_running_loop().time(), _total(lines)
        while True:
            await asyncio.sleep(_REPORT_INTERVAL_S)
            self._output.emit(Notice("Progress", self._line(run, began, total)))

    def _line(self, run: BulkRun, began: float, total: str) -> str:
        counts, clock = self._counts, asyncio.get_running_loop().time
        progress = f"{counts.results + counts.skipped}{total}"
        rate = f"{counts.written / max(clock() - began, _REDRAW_INTERVAL_S):.1f}/s"
        if outage_s := int(self._outage.seconds):
            rate = f"agent away for {shown_duration(outage_s)}"
        return f"{progress}, {run.in_flight} in flight, {rate}: {counts.text(0)}"


def _fitted(line: str) -> str:
    """Return as much of a line as fits into one row: a second row could not be erased."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or _MAX_COLUMNS
    except (OSError, ValueError):
        columns = _MAX_COLUMNS
    width = max(min(columns, _MAX_COLUMNS) - 1, 1)  # a full row may move the cursor
    return shortened(line, width)


def _total(lines: Lines) -> str:
    try:
        return f" of {lines.count()}" if lines.is_file else " done"
    except OSError:
        return " done"
