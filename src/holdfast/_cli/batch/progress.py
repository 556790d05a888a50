"""The progress of a ``holdfast run``, on a line for people, and the summary at its end."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._cli.agent.outcomes import described_ending, named_outcome
from holdfast._cli.batch.plan import STANDARD, Plan
from holdfast._cli.batch.session import (
    JournaledSession,
    answer_of,
    failure_of,
    is_of_other_agent,
    was_not_sent,
)
from holdfast._cli.errors import CommandError, Failure
from holdfast._cli.options.values import shown_duration
from holdfast._cli.output.base import Notice, ProgressLine, RunEnded
from holdfast._cli.output.sanitizer import shortened
from holdfast._client.answer import Answer
from holdfast.errors import (
    CallEndedError,
    JournalError,
    KeyConflictError,
    OutcomeUnknownError,
    TaskNotFoundError,
)
from holdfast.types import Task

if TYPE_CHECKING:
    from holdfast._cli.batch.availability import Outage
    from holdfast._cli.batch.input import Line, Lines
    from holdfast._cli.batch.output import Known
    from holdfast._cli.output.base import Output
    from holdfast._client.batch import BulkRun

__all__ = ["Counts", "Progress", "Remaining", "Summary"]

_REDRAW_INTERVAL_S = 0.2
"""Seconds between two updates of the progress line on a terminal."""

_REPORT_INTERVAL_S = 30.0
"""Seconds between two progress reports if standard error is not a terminal."""

_MAX_COLUMNS = 80
"""Maximum columns of the progress line, and the assumed width of an unknown terminal."""


class Counts:
    """Counts of lines by outcome.

    Attributes:
        completed: Lines whose task was completed, or that were answered by a message, in this run.
        failed: Lines whose task failed.
        waiting: Lines whose task waits for input or authorization, in this run or since an
            earlier one.
        errors: Lines without an answer, in this run or in an earlier one.
        not_sent: Lines without an answer that certainly were not executed.
        earlier: Lines with an answer of an earlier run, in the results or in the journal.
        earlier_failed: Those of them whose task failed.
        elsewhere: Lines whose result another process of a shared run has.
        skipped: Lines that are not messages.
        written: Lines whose result was written by this run.
        unwritten: Lines whose answer could not be written to the results; the journal has it.
    """

    def __init__(self) -> None:
        self.completed = self.failed = self.waiting = self.errors = self.not_sent = 0
        self.earlier = self.earlier_failed = self.elsewhere = self.skipped = 0
        self.written = self.unwritten = 0

    @property
    def unanswered(self) -> int:
        """The number of lines whose result is an error."""
        return self.errors + self.not_sent

    @property
    def results(self) -> int:
        """The number of lines that have a result."""
        ended = self.completed + self.failed + self.waiting + self.unanswered
        return ended + self.earlier + self.elsewhere

    def add(self, outcome: Answer | Exception, *, is_earlier: bool) -> None:
        """Count the outcome of a line.

        Args:
            outcome: Its answer or error.
            is_earlier: Whether the journal had the answer before this run.
        """
        self.written += 1
        answer = answer_of(outcome)
        if is_earlier and answer is not None:
            self.earlier += 1
            self.earlier_failed += not isinstance(outcome, Answer)
        elif answer is None:
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

    def members(self, remaining: Remaining) -> dict[str, Any]:
        """Return all counts as members of a document."""
        return {
            "completed": self.completed,
            "failed": self.failed,
            "waiting": self.waiting,
            "errors": self.errors,
            "notSent": self.not_sent,
            "earlier": self.earlier,
            "earlierFailed": self.earlier_failed,
            "elsewhere": self.elsewhere,
            "skipped": self.skipped,
            "left": remaining.lines,
            "pending": remaining.pending,
        }

    def text(self, remaining: Remaining) -> str:
        """Return all counts in words."""
        parts = [
            f"{self.completed} completed",
            *_counted(self.failed, "failed"),
            *_counted(self.waiting, "waiting for input or authorization"),
            *_counted(self.unwritten, "answered, but not written to the results"),
            *_counted(self.errors, "without an answer"),
            *_counted(self.not_sent, "not sent"),
            *_counted(self.earlier, "done by an earlier run", self.earlier_failed, "failed"),
            *_counted(self.elsewhere, "done by other processes of the run"),
            *_counted(self.skipped, "skipped"),
            *remaining.words(),
        ]
        return ", ".join(parts)


class Remaining(NamedTuple):
    """The lines without a result.

    Attributes:
        lines: Their number; None if it is unknown.
        pending: The number of them whose call is pending in the journal; None if it is unknown.
    """

    lines: int | None = 0
    pending: int | None = 0

    def words(self) -> list[str]:
        """Return the numbers in words."""
        if self.lines is None:
            return ["an unknown number left"]
        return _counted(self.lines, "left", self.pending or 0, "pending")


def _counted(count: int, label: str, some: int = 0, some_label: str = "") -> list[str]:
    """Return a count in words, with that of some of them, if there are any."""
    of_them = f", {some} of them {some_label}" if some else ""
    return [f"{count} {label}{of_them}"] if count else []


class Summary:
    """The counts of a run, its first problem of each kind, and the command that continues.

    Args:
        session: The agent and the journal.
        output: Where the summary goes.
        plan: The options of the run.

    Attributes:
        counts: The counts.
        has_open: Whether an answer may still come to a line whose result is an error.
        ended: The number of lines without an answer that no run of this name will send again.
    """

    def __init__(self, session: JournaledSession, output: Output, plan: Plan) -> None:
        self._session = session
        self._output = output
        self._plan = plan
        self.counts = Counts()
        self.has_open = False
        self.ended = 0
        self._changed: list[int] = []
        self._failed = _Problem("failed")
        self._waiting = _Problem("wait for input or authorization")
        self._reply = ""
        self._unanswered = _Problem("have no answer")
        self._other_agents = _Problem("were answered by another agent")
        self._unsendable = 0

    def add(self, line: Line, outcome: Answer | Exception, *, is_earlier: bool = False) -> None:
        """Count a line whose result is written, and keep the first problem of each kind.

        Args:
            line: The line.
            outcome: Its answer or error.
            is_earlier: Whether the journal had the answer before this run.
        """
        self.counts.add(outcome, is_earlier=is_earlier)
        answer = answer_of(outcome)
        if isinstance(outcome, KeyConflictError) and outcome.other_agent is not None:
            self._other_agents.add(line.number, outcome.message)
        elif isinstance(outcome, KeyConflictError):
            self._changed.append(line.number)
        elif answer is None:
            reason = failure_of(outcome, self._session).message
            self._unanswered.add(line.number, reason)
        elif isinstance(answer, Task) and answer.state.is_interrupted:
            self._waiting.add(line.number, named_outcome(answer))
            self._reply = self._reply or self._session.command(
                "send", "--task-id", answer.id, "<reply>"
            )
        elif isinstance(answer, Task) and (ending := described_ending(answer)):
            self._failed.add(line.number, ending)
        if _is_permanently_unsent(outcome):
            self._unsendable += 1
        if _is_never_resent(outcome):
            self.ended += 1
        elif getattr(outcome, "executed", None) and answer is None:
            self.has_open = True

    def add_earlier(self, earlier: Known) -> None:
        """Count a line that has a result of an earlier run."""
        if earlier.is_error:
            self.counts.errors += 1
            lost = earlier.executed and earlier.error_code in _LOST_CODES
            if lost or earlier.error_code == "HOLDFAST_ERR_CALL_ENDED":
                self.ended += 1
            else:
                self.has_open = True  # as far as this run knows
        elif earlier.is_waiting:
            self.counts.waiting += 1
        else:
            self.counts.earlier += 1
            self.counts.earlier_failed += earlier.is_failed

    def report(
        self, remaining: Remaining, fault: CommandError | None, *, is_interrupted: bool
    ) -> None:
        """Report the outcome of the run.

        Args:
            remaining: The lines without an answer or error.
            fault: What ended the run; None for nothing.
            is_interrupted: Whether Ctrl-C ended it.

        Raises:
            CommandError: The run failed, or lines have no answer.
            KeyboardInterrupt: Ctrl-C ended the run.
        """
        counts, session = self.counts, self._session
        summary = counts.text(remaining)
        if self._changed:
            self._output.emit(Notice.warning(_changed_lines_message(self._changed)))
        for problem in (self._failed, self._waiting, self._other_agents, self._unanswered):
            if problem.numbers:
                self._output.emit(Notice.warning(problem.text()))
        if self._reply:
            again = session.command(*self._plan.words())
            then = f"; then, to write the answer to the results: {again}"
            # The results of a shared run keep the question: see `Client.run`.
            self._output.emit(Notice.hint(f"{self._reply}{'' if self._plan.is_shared else then}"))
        if fault is None and not is_interrupted and counts.unanswered:
            verb = "has" if counts.unanswered == 1 else "have"
            message = f"{counts.unanswered} of {counts.results} lines {verb} no answer"
            failure = Failure(code="HOLDFAST_ERR_RUN", message=message, hint=self._retry_hint())
            fault = CommandError(failure)
        if self._plan.output != STANDARD:
            members = {"runId": self._plan.name, **counts.members(remaining)}
            self._output.emit(RunEnded(members, summary, is_last=fault is None))
        else:
            self._output.emit(Notice("Summary", summary))
        if fault is not None:
            raise fault
        if is_interrupted:
            if remaining.lines != 0 or counts.unanswered or counts.unwritten:
                resuming = session.command(*self._plan.words())
                self._output.emit(Notice.hint(f"to resume: {resuming}"))
            raise KeyboardInterrupt

    def _search_hint(self) -> str:
        """Return the hint about lines whose answer may still be found."""
        retry = self._session.command(*self._plan.words(), "--retry-errors")
        if self._plan.on_unknown == "resend":
            return f"to retry these: {retry}"
        return (
            f"to wait or search for the answers again: {retry}; to send messages again that are "
            "not found, although the agent may have executed them, add --on-unknown resend"
        )

    def _retry_hint(self) -> str:
        """Return the hint about lines without an answer."""
        plan, command = self._plan, self._session.command
        resend = command(*plan.words(run_id=plan.next_name), "--retry-errors")
        if self.has_open:
            retry = command(*plan.words(), "--retry-errors")
            if self.ended:
                return (
                    f"to wait or search for the answers again: {retry}; if lines remain whose "
                    f"task the agent has lost, send these as new messages: {resend}"
                )
            return self._search_hint()
        if self.ended:
            return (
                "no run of this name sends these again; to send all lines without an answer as "
                f"new messages, which may execute them twice, give the run another name: {resend}"
            )
        if self.counts.not_sent > self._unsendable:
            return f"to retry what was not sent: {command(*plan.words())}"
        if self._other_agents.numbers:
            fresh = command(*plan.words(run_id=f"{plan.name}-other-agent"))
            return (
                f"to send them to this agent as well: {fresh}; for the answers of the other "
                "agent: holdfast run results, or name that agent with --agent-card"
            )
        if self._changed:
            give = "give each changed message an id of its own, otherwise it is not sent"
            return f"{give}; then, to resume: {command(*plan.words())}"
        if self.counts.not_sent:
            return "the results say why"
        return self._search_hint()


_LOST_CODES = frozenset({"TaskNotFoundError", "HOLDFAST_ERR_OUTCOME_UNKNOWN"})
"""The codes, in the results, of errors about a task that is not found."""

_MAX_LINE_NUMBERS = 20
"""Line numbers to show in a warning about many lines."""


class _Problem:
    """The lines with a problem of one kind, and the reason of the first.

    Args:
        label: The problem, after a number of lines.

    Attributes:
        numbers: The numbers of the lines.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._reason = ""
        self.numbers: list[int] = []

    def add(self, number: int, reason: str) -> None:
        """Add a line."""
        self._reason = self._reason or reason
        self.numbers.append(number)

    def text(self) -> str:
        """Return the first line with its reason, and the numbers of the others."""
        first, *others = self.numbers
        more = f"; {len(others)} more {self._label}: {_lines(others)}" if others else ""
        return f"line {first}: {self._reason}{more}"


def _lines(numbers: list[int]) -> str:
    """Return the numbers of lines, the first ones if there are many."""
    shown = ", ".join(map(str, sorted(numbers)[:_MAX_LINE_NUMBERS]))
    rest = len(numbers) - _MAX_LINE_NUMBERS
    return f"line{'s' if numbers[1:] else ''} {shown}{f' and {rest} others' if rest > 0 else ''}"


def _is_permanently_unsent(outcome: Answer | Exception) -> bool:
    """Return whether the same command would not send the message, either."""
    if isinstance(outcome, JournalError):
        return outcome.reason == "exists" and was_not_sent(outcome)
    return isinstance(outcome, KeyConflictError)


def _is_never_resent(outcome: Answer | Exception) -> bool:
    """Return whether no run of the same name can get an answer, or sends the message again.

    Its task is lost, its call was ended, or it was recorded for another agent.
    """
    if isinstance(outcome, OutcomeUnknownError) and is_of_other_agent(outcome):
        return True
    if isinstance(outcome, CallEndedError):
        return not was_not_sent(outcome)
    return isinstance(outcome, TaskNotFoundError | OutcomeUnknownError) and bool(outcome.executed)


def _changed_lines_message(numbers: list[int]) -> str:
    verb = "lines have" if len(numbers) > 1 else "line has"
    return f"{len(numbers)} {verb} the id of another message: {_lines(numbers)}"


class Progress:
    """Shows the progress of a run: a redrawn line on a terminal, else lines now and then.

    Args:
        counts: The counts of lines by outcome.
        outage: The outages of the agent.
        output: Where progress is shown.
    """

    def __init__(self, counts: Counts, outage: Outage, output: Output) -> None:
        self._counts = counts
        self._outage = outage
        self._output = output
        self._drawing: asyncio.Task[None] | None = None

    def begin(self, lines: Lines, run: BulkRun) -> None:
        """Begin to report."""
        is_shown = sys.stderr is not None and sys.stderr.isatty()
        report = self._draw if is_shown else self._report
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

    def _line(self, run: BulkRun, began: float, total: int | None) -> str:
        """Return the progress: lines, elapsed time, rate, time left or why the run waits."""
        counts = self._counts
        done = counts.results + counts.skipped
        elapsed = asyncio.get_running_loop().time() - began
        pace = counts.written / max(elapsed, _REDRAW_INTERVAL_S)
        parts = [
            f"{done} done" if total is None else f"{done} of {total}",
            f"{run.in_flight} in flight",
            shown_duration(int(elapsed)),
            _shown_pace(pace),
        ]
        if (reason := self._wait_reason(run)) is not None:
            parts.append(reason)
        elif total is not None and pace:
            parts.append(f"about {shown_duration(math.ceil((total - done) / pace))} left")
        return f"{', '.join(parts)}: {counts.text(Remaining())}"

    def _wait_reason(self, run: BulkRun) -> str | None:
        """Return why messages wait: for the agent, for its rate limit, or for leases."""
        if outage_s := int(self._outage.seconds):
            return f"agent unreachable for {shown_duration(outage_s)}"
        if limited_s := math.ceil(self._outage.limited_seconds):
            return f"rate limited by the agent, for {shown_duration(limited_s)} more"
        if run.held:
            return f"{run.held} held by another process, which may have crashed"
        return None


def _shown_pace(pace: float) -> str:
    """Return messages per second in a unit in which the figure is not 0."""
    for seconds, unit in ((1, "s"), (60, "min")):
        if pace * seconds >= 1:
            return f"{pace * seconds:.1f}/{unit}"
    return f"{pace * 3600:.1f}/h"


def _fitted(line: str) -> str:
    """Return as much of a line as fits into one row: a second row could not be erased."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or _MAX_COLUMNS
    except (OSError, ValueError):
        columns = _MAX_COLUMNS
    width = max(min(columns, _MAX_COLUMNS) - 1, 1)  # a full row may move the cursor
    return shortened(line, width)


def _total(lines: Lines) -> int | None:
    """Return the number of lines of the input; None if it is not a file."""
    try:
        return lines.count() if lines.is_file else None
    except OSError:
        return None
