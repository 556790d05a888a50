"""What ``holdfast run`` does about an input that was moved, whose path had named the run.

Rule: a line that is under way in a run of another name is not sent once more, unless this run is
given a name: nobody but the caller knows whether it is the same line, or one that says the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._cli.batch.input import Line
from holdfast._cli.batch.session import unusable_journal
from holdfast._cli.errors import CommandError, Failure, unusable
from holdfast._journal.agent_name import agent_name
from holdfast._journal.records import run_and_key
from holdfast.errors import JournalError

if TYPE_CHECKING:
    from holdfast._cli.batch.input import Lines
    from holdfast._cli.batch.options import Plan
    from holdfast._cli.batch.output import Results
    from holdfast._cli.batch.session import JournaledSession

__all__ = ["check_not_already_running"]


async def check_not_already_running(
    plan: Plan, session: JournaledSession, lines: Lines, results: Results
) -> None:
    """Checks, for a run without a given name, that no other one has a line of it under way.

    Args:
        plan: What the run is told.
        session: The agent and the journal.
        lines: The input, a file.
        results: What is over.

    Raises:
        CommandError: Another one has; or the journal or the input cannot be read.
    """
    if plan.run_id is not None:
        return
    names = await _under_way_elsewhere(plan, session)
    if not names:
        return
    try:
        for line in lines.again():
            if isinstance(line, Line) and line.key not in results.known:
                name = names.get((line.key, line.digest))
                if name is not None:
                    raise CommandError(_in_flight(line, name, plan, session))
    except OSError as error:
        raise unusable(plan.input, f"cannot be read: {error.strerror or error}") from None


async def _under_way_elsewhere(
    plan: Plan, session: JournaledSession
) -> dict[tuple[str, str | None], str]:
    """The names of other runs, by the keys and digests of the lines that each has under way."""
    try:
        records = await session.journal.unfinished(agent_name(session.reference))
    except JournalError as error:
        raise CommandError(unusable_journal(error)) from None
    names: dict[tuple[str, str | None], str] = {}
    for record in records:
        if record.label is not None:
            name, key = run_and_key(record.label)
            if name != plan.name:
                names[key, record.digest] = name
    return names


def _in_flight(line: Line, name: str, plan: Plan, session: JournaledSession) -> Failure:
    go_on = session.command(*plan.words(run_id=name))
    return Failure(
        code="HOLDFAST_ERR_INPUT",
        message=f"line {line.number} of {plan.input} is in flight in the run {name}, according "
        f"to {plan.journal}; nothing was sent",
        hint=f"if that run had this input before it was moved, resume it: {go_on}; otherwise "
        "give this run a name of its own with --run-id",
    )
