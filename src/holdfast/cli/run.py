"""``holdfast run``: many messages to one agent, a few at a time, each sent once.

Rules: what is in the results is over; what is not, the journal may know, and is gone on with; the
rest is sent. So the same command goes on wherever the one before ended. A journal that cannot be
used and a line that is no message end the sending; what is under way comes to its end first, and
is written. Where results cannot be written, nothing is waited for.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.answer import Answer
from holdfast.bulk import RunItem
from holdfast.cli.errors import CommandError, Failure
from holdfast.cli.journaled import answer_of, check_journal, failed, members_of
from holdfast.cli.lines import BadLine, Line, Lines
from holdfast.cli.results import Results, unusable
from holdfast.cli.values import shown_duration
from holdfast.errors import JournalError
from holdfast.model.types import Task

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sized
    from contextlib import AbstractContextManager

    from holdfast.bulk import BulkRun
    from holdfast.cli.journaled import JournaledSession
    from holdfast.cli.output import Output

__all__ = ["STANDARD", "Plan", "Run"]

STANDARD = "-"
"""What names standard input or output."""

_DRAWN = 0.2
"""Seconds between two looks of the progress."""

_COLUMNS = 79


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run is told.

    Attributes:
        input: Where messages come from, as written.
        output: Where results go, as written.
        journal: The journal, as written.
        run_id: Names the run in the journal; None for the input's own name.
        concurrency: How many are under way at once.
        rate: How many are begun in a second at most; None for no bound.
        skips_bad_lines: Whether a line that is no message is left out, and does not end the run.
        grace: Seconds to wait after Ctrl-C for what is under way.
        retries_errors: Whether lines whose result is an error have their turn once more.
        more: The words that say the same of the options that have a default.
    """

    input: str
    output: str
    journal: str
    run_id: str | None
    concurrency: int
    rate: float | None
    skips_bad_lines: bool
    grace: float
    retries_errors: bool
    more: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the journal calls the run."""
        if self.run_id is not None:
            return self.run_id
        path = str(_path(self.input)).encode(errors="surrogateescape")
        return hashlib.blake2b(path, digest_size=8).hexdigest()

    @property
    def words(self) -> list[str]:
        """The words of the command that goes on."""
        given = {"--input": self.input, "--output": self.output, "--journal": self.journal}
        return ["run", *(word for pair in given.items() for word in pair), *self.more]


class Run:
    """Many messages on their way.

    Args:
        session: The agent and the journal.
        output: Where things are said.
        plan: What to do.
        interrupts: Calls at each Ctrl-C, as long as the context is open.
    """

    def __init__(
        self,
        session: JournaledSession,
        output: Output,
        plan: Plan,
        interrupts: Callable[[Callable[[], None]], AbstractContextManager[None]],
    ) -> None:
        self._session = session
        self._output = output
        self._plan = plan
        self._interrupts = interrupts
        self._counts = _Counts()
        self._on_the_way: dict[str, Line] = {}
        self._fault: CommandError | None = None
        self._interruptions = 0
        self._stop: Callable[[], None] = lambda: None
        self._progress = _Progress(self._counts, self._on_the_way, output)

    async def run(self) -> None:
        """Sends what is to be sent, and writes what comes.

        Raises:
            CommandError: A file cannot be used, or lines have no answer.
            KeyboardInterrupt: Ctrl-C ended it.
            A2AError: The agent cannot be talked to at all.
        """
        plan, session = self._plan, self._session
        _check_apart(plan)
        lines = _open(plan)
        try:
            await check_journal(session.journal)
            path = _file(plan.output)
            results = Results(path, without_errors=plan.retries_errors)
            try:
                self._counts.earlier = len(results.known)
                await session.prepare()
                await self._work(lines, results)
            finally:
                results.close()
            self._tell(lines)
        finally:
            lines.close()

    # ── The work ─────────────────────────────────────────────────────────────────────────────

    async def _work(self, lines: Lines, results: Results) -> None:
        plan, session = self._plan, self._session
        self._progress.begin(lines)
        run = session.client.run(
            self._items(lines, results),
            run_id=plan.name,
            concurrency=plan.concurrency,
            rate=plan.rate,
            poll_interval=session.settings.poll_interval,
            timeout=session.settings.timeout,
            headers=session.svc_params,
        )
        writing = asyncio.create_task(self._write(run, results))
        self._stop = run.stop

        def interrupted() -> None:
            self._interruptions += 1
            if self._interruptions > 1:
                writing.cancel()
                return
            run.stop()
            asyncio.get_running_loop().call_later(plan.grace, writing.cancel)
            if self._on_the_way:
                self._output.warn(
                    f"no more is sent; waiting up to {shown_duration(plan.grace)} for "
                    f"{len(self._on_the_way)} under way; Ctrl-C again stops at once"
                )

        try:
            with self._interrupts(interrupted):
                await writing
        except asyncio.CancelledError:
            if not self._interruptions:
                raise
        finally:
            writing.cancel()
            await run.close()
            self._progress.end()

    async def _items(self, lines: Lines, results: Results) -> AsyncGenerator[RunItem]:
        """What is to be sent."""
        try:
            async for line in lines:
                if isinstance(line, BadLine):
                    if not self._skips(line):
                        return
                elif line.key not in results.known:
                    name = line.name
                    self._on_the_way[name] = line
                    yield RunItem(key=name, content=line.message)
        except OSError as error:
            told = f"{self._plan.input} cannot be read on: {error.strerror or error}"
            self._fault = CommandError(Failure(code="HOLDFAST_ERR_FILE", message=told))

    def _skips(self, line: BadLine) -> bool:
        told = f"line {line.number} of {self._plan.input} {line.reason}"
        if self._plan.skips_bad_lines:
            self._counts.skipped += 1
            self._output.warn(f"{told}; it is skipped")
            return True
        self._fault = CommandError(
            Failure(
                code="HOLDFAST_ERR_INPUT",
                message=f"{told}; nothing behind it was sent",
                hint="mend it and start again, or leave such lines out with --on-bad-line skip",
            )
        )
        return False

    async def _write(self, run: BulkRun, results: Results) -> None:
        async for result in run:
            line = self._on_the_way.pop(result.key)
            if isinstance(result.error, JournalError):
                self._give_up(CommandError(failed(result.error)))
                continue
            outcome = result.answer if result.answer is not None else result.error
            if outcome is None:
                continue
            named = {} if line.id is None else {"id": line.id}
            members = members_of(outcome, self._session, self._output)
            try:
                results.write({**named, "line": line.number, **members})
            except BrokenPipeError:
                raise
            except OSError as error:  # the journal has it
                raise self._unwritable(error) from None
            self._counts.add(outcome)

    def _unwritable(self, error: OSError) -> CommandError:
        return CommandError(
            Failure(
                code="HOLDFAST_ERR_FILE",
                message=f"{self._plan.output} cannot be written: {error.strerror or error}",
                hint=f"to go on: {self._session.command(*self._plan.words)}",
            )
        )

    def _give_up(self, fault: CommandError) -> None:
        """Sends no more; what is under way comes to its end."""
        self._fault = self._fault or fault
        self._stop()

    # ── What is said at the end ──────────────────────────────────────────────────────────────

    def _tell(self, lines: Lines) -> None:
        """Says how it went.

        Raises:
            CommandError: Not as it should.
            KeyboardInterrupt: Ctrl-C ended it.
        """
        counts, session = self._counts, self._session
        is_whole = not self._interruptions and self._fault is None
        left = 0 if is_whole else _left(lines, counts)
        summary = counts.told(left)
        fault = self._fault
        if fault is None and not self._interruptions and counts.errors:
            again = [*self._plan.words, "--retry-errors"]
            fault = CommandError(
                Failure(
                    code="HOLDFAST_ERR_RUN",
                    message=f"{counts.errors} of {counts.results} lines have no answer",
                    hint=f"to try these once more: {session.command(*again)}",
                )
            )
        if fault is None and self._plan.output != STANDARD:
            self._output.run({"runId": self._plan.name, **counts.members(left)}, summary)
        else:
            self._output.tell("Summary", summary)
        if fault is not None:
            raise fault
        if self._interruptions:
            self._output.hint(f"to go on: {session.command(*self._plan.words)}")
            raise KeyboardInterrupt


class _Counts:
    """How many of what there are."""

    def __init__(self) -> None:
        self.earlier = self.completed = self.failed = self.waiting = self.errors = 0
        self.skipped = 0

    @property
    def results(self) -> int:
        """Lines whose result was written by this run."""
        return self.completed + self.failed + self.waiting + self.errors

    def add(self, outcome: Answer | Exception) -> None:
        answer = answer_of(outcome)
        if answer is None:
            self.errors += 1
        elif isinstance(answer, Task) and answer.state.is_interrupted:
            self.waiting += 1
        elif isinstance(outcome, Answer):
            self.completed += 1
        else:
            self.failed += 1

    def members(self, left: int | None) -> dict[str, Any]:
        return {
            "completed": self.completed,
            "failed": self.failed,
            "waiting": self.waiting,
            "errors": self.errors,
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
            *_some(self.earlier, "done by an earlier run"),
            *_some(self.skipped, "skipped"),
            *(["an unknown number left"] if left is None else _some(left, "left")),
        ]
        return ", ".join(parts)


def _some(count: int, what: str) -> list[str]:
    return [f"{count} {what}"] if count else []


class _Progress:
    """A line that tells somebody at a terminal how far it has come."""

    def __init__(self, counts: _Counts, on_the_way: Sized, output: Output) -> None:
        self._counts = counts
        self._on_the_way = on_the_way
        self._output = output
        self._drawing: asyncio.Task[None] | None = None

    def begin(self, lines: Lines) -> None:
        """Begins to draw, if somebody looks on."""
        if sys.stderr is not None and sys.stderr.isatty():
            self._drawing = asyncio.create_task(self._draw(lines))

    def end(self) -> None:
        """Takes the line away, if there is one."""
        if self._drawing is not None:
            self._drawing.cancel()
            self._output.progress("")

    async def _draw(self, lines: Lines) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        while True:
            read = f"{100 * lines.read // lines.size}% read, " if lines.size else ""
            rate = self._counts.results / max(clock() - began, _DRAWN)
            told = f"{len(self._on_the_way)} under way, {rate:.1f}/s, {self._counts.told(0)}"
            self._output.progress(f"{read}{told}"[:_COLUMNS])
            await asyncio.sleep(_DRAWN)


def _left(lines: Lines, counts: _Counts) -> int | None:
    """How many lines have no result yet; None where nobody knows."""
    try:
        count = lines.count()
    except OSError:
        return None
    done = counts.earlier + counts.results + counts.skipped
    return None if count is None else max(0, count - done)


def _open(plan: Plan) -> Lines:
    path = _file(plan.input)
    name = path or Path("standard input")
    try:
        lines = Lines(path)
    except OSError as error:
        raise unusable(name, f"cannot be read: {error.strerror or error}") from None
    if plan.run_id is None and not lines.is_file:
        lines.close()
        hint = "name the run with --run-id, so that a later one can go on with it"
        raise unusable(name, "is no file, whose path could name the run", hint)
    return lines


def _check_apart(plan: Plan) -> None:
    """Checks that no file is meant to be two things."""
    names = {"--input": plan.input, "--output": plan.output, "--journal": plan.journal}
    seen: dict[Path, str] = {}
    for flag, name in names.items():
        if flag != "--journal" and name == STANDARD:
            continue
        path = _path(name)
        if path in seen:
            raise unusable(path, f"is named by {seen[path]} and by {flag}")
        seen[path] = flag


def _file(name: str) -> Path | None:
    return None if name == STANDARD else Path(name).expanduser()


def _path(name: str) -> Path:
    return Path(name).expanduser().resolve()
