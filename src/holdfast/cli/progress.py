"""How far a ``holdfast run`` has come, in numbers and for somebody who looks on."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from holdfast.answer import Answer
from holdfast.cli.journaled import answer_of, was_not_sent
from holdfast.cli.values import shown_duration
from holdfast.model.types import Task

if TYPE_CHECKING:
    from holdfast.bulk import BulkRun
    from holdfast.cli.lines import Lines
    from holdfast.cli.outage import Outage
    from holdfast.cli.output import Output

__all__ = ["Counts", "Progress"]

_DRAWN = 0.2
"""Seconds between two looks of the progress."""

_COLUMNS = 79


class Counts:
    """How many lines of what there are.

    Attributes:
        completed: Whose task was completed, or that were answered by a message.
        failed: Whose task failed.
        waiting: Whose task waits for somebody.
        errors: Without an answer, in this run or in an earlier one.
        not_sent: Without one, and certainly not executed.
        earlier: Whose answer was there before.
        skipped: That are no messages.
        written: Whose result was written by this run.
    """

    def __init__(self) -> None:
        self.completed = self.failed = self.waiting = self.errors = self.not_sent = 0
        self.earlier = self.skipped = self.written = 0

    @property
    def unanswered(self) -> int:
        """Lines whose result is an error."""
        return self.errors + self.not_sent

    @property
    def results(self) -> int:
        """Lines that have a result."""
        return self.completed + self.failed + self.waiting + self.unanswered + self.earlier

    def add(self, outcome: Answer | Exception) -> None:
        """Counts what came of a line."""
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

    def members(self, left: int | None) -> dict[str, Any]:
        """All of them as members of a document."""
        return {
            "completed": self.completed,
            "failed": self.failed,
            "waiting": self.waiting,
            "errors": self.errors,
            "notSent": self.not_sent,
            "earlier": self.earlier,
            "skipped": self.skipped,
            "left": left,
        }

    def told(self, left: int | None) -> str:
        """All of them in words."""
        parts = [
            f"{self.completed} completed",
            *_some(self.failed, "failed"),
            *_some(self.waiting, "waiting for somebody to act"),
            *_some(self.errors, "without an answer"),
            *_some(self.not_sent, "not sent"),
            *_some(self.earlier, "done by an earlier run"),
            *_some(self.skipped, "skipped"),
            *(["an unknown number left"] if left is None else _some(left, "left")),
        ]
        return ", ".join(parts)


def _some(count: int, what: str) -> list[str]:
    return [f"{count} {what}"] if count else []


class Progress:
    """A line that tells somebody at a terminal how far it has come."""

    def __init__(self, counts: Counts, outage: Outage, output: Output) -> None:
        self._counts = counts
        self._outage = outage
        self._output = output
        self._drawing: asyncio.Task[None] | None = None

    def begin(self, lines: Lines, run: BulkRun) -> None:
        """Begins to draw, if somebody looks on."""
        if sys.stderr is not None and sys.stderr.isatty():
            self._drawing = asyncio.create_task(self._draw(lines, run))

    def end(self) -> None:
        """Takes the line away, if there is one."""
        if self._drawing is not None:
            self._drawing.cancel()
            self._output.progress("")

    async def _draw(self, lines: Lines, run: BulkRun) -> None:
        counts, clock = self._counts, asyncio.get_running_loop().time
        began, total = clock(), _total(lines)
        while True:
            done = f"{counts.results + counts.skipped}{total}"
            rate = f"{counts.written / max(clock() - began, _DRAWN):.1f}/s"
            if away := int(self._outage.seconds):
                rate = f"agent away for {shown_duration(away)}"
            told = f"{done}, {run.under_way} under way, {rate}: {counts.told(0)}"
            self._output.progress(told[:_COLUMNS])
            await asyncio.sleep(_DRAWN)


def _total(lines: Lines) -> str:
    try:
        return f" of {lines.count()}" if lines.is_file else " done"
    except OSError:
        return " done"
