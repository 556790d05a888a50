"""The options of ``holdfast run``, its files, and the check for other runs with its lines.

Rule: a line that is pending in a run of another name is not sent once more, unless this run is
given a name: only the caller knows whether it is the same line, or one with the same content.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast._cli.batch.input import Line, Lines
from holdfast._cli.batch.output import Results
from holdfast._cli.batch.session import unusable_journal
from holdfast._cli.errors import CommandError, Failure, unusable, usage
from holdfast._journal.agent_name import agent_name, is_same_agent
from holdfast._journal.records import run_and_key
from holdfast.errors import JournalError

if TYPE_CHECKING:
    from holdfast._cli.batch.session import JournaledSession
    from holdfast._policy.reconcile import OnUnknown

__all__ = ["STANDARD", "Plan", "check_not_already_running", "open_input", "run_name"]

STANDARD = "-"
"""The name of standard input or output."""


class Plan(NamedTuple):
    """The options of a run.

    Attributes:
        input: The source of messages, as written.
        output: The destination of results, as written.
        journal: The journal, as written.
        run_id: The name of the run in the journal; None for that of the input.
        concurrency: Maximum number of messages in flight.
        rate: Maximum number of messages sent per second; None for no bound.
        on_unknown: The reaction to an unknown outcome.
        skips_bad_lines: Whether a line that is not a message is skipped, and does not end the run.
        grace: Seconds to wait after Ctrl-C for messages in flight.
        retries_errors: Whether lines whose result is an error are sent again.
        is_shared: Whether other processes send lines of the same run.
        more: The words of the options that are not defaults.
    """

    input: str
    output: str
    journal: str
    run_id: str | None
    concurrency: int
    rate: float | None
    on_unknown: OnUnknown
    skips_bad_lines: bool
    grace: float
    retries_errors: bool
    is_shared: bool = False
    more: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the run in the journal."""
        return run_name(self.input, self.run_id)

    @property
    def next_name(self) -> str:
        """A name for a run that sends lines of this one as new messages."""
        match = re.search(r"-resent(?:-(\d+))?$", self.name)
        if match is None:
            return f"{self.name}-resent"
        return f"{self.name[: match.start()]}-resent-{int(match[1] or 1) + 1}"

    def words(
        self, *, run_id: str | None = None, on_unknown: OnUnknown | None = None
    ) -> list[str]:
        """Return the words of the command that resumes the run.

        Args:
            run_id: Another name of the run; None for its own.
            on_unknown: Another reaction to unknown outcomes; None for that of the run.
        """
        options = {"--input": self.input, "--results": self.output, "--journal": self.journal}
        name_in_journal = run_id or self.run_id
        if name_in_journal is not None:
            options["--run-id"] = name_in_journal
        more = list(self.more)
        if on_unknown is not None:
            if "--on-unknown" in more:
                given = more.index("--on-unknown")
                del more[given : given + 2]
            more += ["--on-unknown", on_unknown]
        return ["run", *(word for pair in options.items() for word in pair), *more]

    def check_apart(self, journal: Path) -> None:
        """Check that no file has two purposes.

        Args:
            journal: The journal's file.

        Raises:
            CommandError: A file has two purposes.
        """
        names = {"--input": self.input, "--results": self.output, "--journal": str(journal)}
        flags: dict[Path, str] = {}
        for flag, name in names.items():
            if flag != "--journal" and name == STANDARD:
                continue
            path = _path(name)
            if path in flags:
                raise unusable(path, f"is named by {flags[path]} and by {flag}")
            flags[path] = flag

    def open_input(self) -> Lines:
        """Return the lines of the input.

        Raises:
            CommandError: The input cannot be read, or the run has no name.
        """
        return open_input(self.input, self.run_id)

    def open_output(self) -> Results:
        """Return the existing results, and the destination of new ones.

        Raises:
            CommandError: The file cannot be used.
        """
        return Results(_file(self.output), without_errors=self.retries_errors)


def run_name(source: str, run_id: str | None) -> str:
    """Return the name of a run in the journal: its id, or a name made from its input."""
    if run_id is not None:
        return run_id
    path = str(_path(source)).encode(errors="surrogateescape")
    return hashlib.blake2b(path, digest_size=8).hexdigest()


def open_input(source: str, run_id: str | None) -> Lines:
    """Return the lines of the input of a run.

    Raises:
        CommandError: The input cannot be read, or the run has no name.
    """
    path = _file(source)
    try:
        lines = Lines(path)
    except OSError as error:
        raise _unusable_input(path, f"cannot be read: {error.strerror or error}") from None
    if run_id is None and not lines.is_file:
        lines.close()
        hint = "name the run with --run-id, so that a later run can resume it"
        problem = "is not a regular file, whose path could name the run"
        raise _unusable_input(path, problem, hint)
    return lines


def _unusable_input(path: Path | None, problem: str, hint: str | None = None) -> CommandError:
    """Return the usage error of an input that cannot be used; a path of None is standard input."""
    failure = usage(f"--input {path or 'standard input'} {problem}", "holdfast run")
    return CommandError(failure if hint is None else failure._replace(hint=hint))


def _file(name: str) -> Path | None:
    return None if name == STANDARD else Path(name).expanduser()


def _path(name: str) -> Path:
    return Path(name).expanduser().resolve()


async def check_not_already_running(
    plan: Plan, session: JournaledSession, lines: Lines, results: Results
) -> None:
    """Check, for a run without a given name, that none of its lines is pending in another run.

    Args:
        plan: The options of the run.
        session: The agent and the journal.
        lines: The input, a file.
        results: The existing results.

    Raises:
        CommandError: A line is pending, or the journal or the input cannot be read.
    """
    if plan.run_id is not None:
        return
    names = await _pending_elsewhere(plan, session)
    if not names:
        return
    try:
        for line in lines.again():
            if isinstance(line, Line) and line.key not in results.known:
                name = names.get((line.key, line.digest))
                if name is not None:
                    raise CommandError(_pending_line(line, name, plan, session))
    except OSError as error:
        raise unusable(plan.input, f"cannot be read: {error.strerror or error}") from None


async def _pending_elsewhere(
    plan: Plan, session: JournaledSession
) -> dict[tuple[str, str | None], str]:
    """Return the names of other runs, by the keys and digests of their pending lines."""
    try:
        records = await session.journal.unfinished()
    except JournalError as error:
        raise CommandError(unusable_journal(error)) from None
    agent, names = agent_name(session.reference), dict[tuple[str, str | None], str]()
    for record in records:
        if record.label is not None and is_same_agent(agent, record.agent):
            name, key = run_and_key(record.label)
            if name != plan.name:
                names[key, record.digest] = name
    return names


def _pending_line(line: Line, name: str, plan: Plan, session: JournaledSession) -> Failure:
    resuming = session.command(*plan.words(run_id=name))
    return Failure(
        code="HOLDFAST_ERR_INPUT",
        message=f"line {line.number} of {plan.input} is pending in the run {name}, according "
        f"to {plan.journal}; nothing was sent",
        hint=f"if that run had this input before it was moved, resume it: {resuming}; otherwise "
        "give this run a name of its own with --run-id",
    )
