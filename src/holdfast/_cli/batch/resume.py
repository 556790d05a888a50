"""``holdfast resume``: resumes the pending calls of a journal.

Rules: nothing is sent again; a call of another running program is left to that program; each
call is reported as soon as it has an outcome, and none delays another.
"""

from __future__ import annotations

import asyncio
import shlex
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._aio.semaphore import FifoSemaphore
from holdfast._cli.batch.session import (
    answer_of,
    failure_of,
    journal_at,
    journal_failure,
    members_of,
    unusable_journal,
)
from holdfast._cli.errors import CommandError, Failure
from holdfast._cli.options.masking import masked_reference
from holdfast._cli.output import text
from holdfast._cli.output.base import Notice, Record
from holdfast._journal.agent_name import addresses_in, is_same_agent
from holdfast._journal.protocol import RepairableJournal, shown
from holdfast._journal.records import run_and_key
from holdfast.errors import A2AError, JournalError, OutcomeUnknownError, TaskNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast._cli.batch.session import JournaledSession
    from holdfast._cli.output.base import Output
    from holdfast._client.answer import Answer
    from holdfast._client.pending import PendingCall
    from holdfast._journal.protocol import CallRecord
    from holdfast.errors import JournalFailure
    from holdfast.types import Message, Task

__all__ = ["dismiss", "dismiss_damaged", "find_pending", "list_calls", "resume", "shown_agent"]

_MAX_CONCURRENCY = 32
"""Maximum number of calls resumed at the same time."""

_MAX_SHOWN_AGENTS = 5
"""Maximum number of other agents with pending calls to name."""

_LEFT: Mapping[JournalFailure, tuple[str, str]] = {
    "held": ("held", "another process is working on it"),
    "taken_over": ("held", "another process is working on it"),
    "finished": ("ended", "another process has finished it"),
}
"""The status of a call of another program, by the reason of the journal: in a
document, and in a line."""


class PendingCalls(NamedTuple):
    """The pending calls of a journal.

    Attributes:
        calls: The requested ones, by agent, oldest first.
        agent: The agent that they are limited to; None for all.
        others: The same for the other agents.
    """

    calls: dict[str, list[CallRecord]]
    agent: str | None
    others: dict[str, list[CallRecord]]


async def find_pending(name: str, agent: str | None, message_id: str | None) -> PendingCalls:
    """Return the pending calls.

    Args:
        name: The file of the journal.
        agent: The agent of the calls, as a journal names it; None for all.
        message_id: The message of the requested call; None for all.

    Raises:
        CommandError: The journal cannot be used, or the requested call is not among them.
    """
    journal = journal_at(name, is_there=True, read_only=True)
    try:
        await journal.check()  # a lost page may be the one with the calls
        records = await journal.unfinished()  # includes the readable members of a damaged record
        if message_id is not None:
            records = [record for record in records if record.message_id == message_id]
    except JournalError as error:
        raise CommandError(unusable_journal(error)) from None
    finally:
        await journal.close()
    pending = PendingCalls({}, agent, {})
    for record in records:
        is_requested = agent is None or is_same_agent(agent, record.agent)
        by_agent = pending.calls if is_requested else pending.others
        by_agent.setdefault(record.agent, []).append(record)
    if message_id is not None and not pending.calls:
        to, others = _limits(pending)
        message = f"no call of message {message_id}{to} is pending in {journal.name}"
        hint = f"holdfast resume --list --journal {shlex.quote(journal.name)}"
        raise CommandError(
            Failure(code="HOLDFAST_ERR_JOURNAL", message=f"{message}{others}", hint=hint)
        )
    return pending


def list_calls(pending: PendingCalls, output: Output) -> None:
    """Show calls, and change nothing.

    Args:
        pending: The calls.
        output: Where they are shown.
    """
    records = sorted(chain(*pending.calls.values()), key=lambda record: record.began)
    for place, record in enumerate(records):
        until = record.lease_until if record.lease_left > 0 else None
        lease = {} if until is None else {"heldUntil": shown(until)}
        lines = [] if until is None else [text.field("Held until", shown(until))]
        between = [""] if place else []
        output.emit(Record({**_members(record), **lease}, [*between, *_lines(record), *lines]))
    if not pending.calls:
        to, others = _limits(pending)
        output.emit(Notice("Calls", f"no call{to} is pending{others}"))


def _limits(pending: PendingCalls) -> tuple[str, str]:
    """Return the agent that a search was limited to, and the other agents' calls, in words.

    Both are empty if all calls are included.
    """
    agents = [shown_agent(agent) for agent in pending.others]
    if not agents:
        return "", ""
    count = sum(map(len, pending.others.values()))
    calls = "1 call" if count == 1 else f"{count} calls"
    owners = "another agent" if len(agents) == 1 else "other agents"
    more = len(agents) - _MAX_SHOWN_AGENTS
    shown_agents = ", ".join(agents[:_MAX_SHOWN_AGENTS]) + (
        f" and {more} more" if more > 0 else ""
    )
    are = "is" if count == 1 else "are"
    to = f" to {masked_reference(pending.agent or '')}"
    return to, f"; {calls} to {owners} {are} pending: {shown_agents}"


async def dismiss(session: JournaledSession, output: Output, *, record: CallRecord) -> None:
    """Mark a call as dismissed: its outcome is not needed.

    Raises:
        CommandError: A program works on it, it is over, or the journal cannot be used.
    """
    try:
        calls = await session.client.pending(message_id=record.message_id)
    except JournalError as error:
        raise CommandError(unusable_journal(error)) from None
    if not calls:
        message = f"the call of message {record.message_id} has finished in the meantime"
        raise CommandError(Failure(code="HOLDFAST_ERR_JOURNAL", message=message))
    try:
        await calls[0].dismiss()
    except JournalError as error:
        raise CommandError(journal_failure(error)) from None
    output.emit(
        Record({**_members(record), "dismissed": True}, [*_lines(record), "Dismissed: yes"])
    )


async def dismiss_damaged(name: str, record: CallRecord, output: Output) -> None:
    """Dismiss a call whose record cannot be read.

    Raises:
        CommandError: The journal cannot be used.
    """
    journal = journal_at(name, is_there=True)
    try:
        if isinstance(journal, RepairableJournal):  # as the one that it was read from
            await journal.dismiss_damaged(record.message_id)
    except JournalError as error:
        raise CommandError(unusable_journal(error)) from None
    finally:
        await journal.close()
    output.emit(
        Record({**_members(record), "dismissed": True}, [*_lines(record), "Dismissed: yes"])
    )


async def resume(
    session: JournaledSession, output: Output, *, records: Sequence[CallRecord]
) -> None:
    """Resume calls to one agent, and show the outcome of each.

    Raises:
        CommandError: Not all of them have an answer, or the journal cannot be used.
        A2AError: The agent cannot be called at all.
    """
    await session.prepare()
    try:
        calls = {call.message_id: call for call in await session.client.pending()}
    except JournalError as error:
        raise CommandError(unusable_journal(error)) from None
    slots = FifoSemaphore(_MAX_CONCURRENCY)

    async def resume_call(record: CallRecord) -> bool:
        async with slots:
            return await _resume_call(session, output, record, calls[record.message_id])

    pending = [record for record in records if record.message_id in calls]
    pending.sort(key=lambda record: record.outcome == "unknown")  # searched for before
    ends = (calls[record.message_id].held_until for record in pending)
    lease_ends = [end for end in ends if end is not None]
    if lease_ends:
        until = shown(max(lease_ends).timestamp())
        output.emit(
            Notice.warning(
                f"{len(lease_ends)} of {len(pending)} calls are leased by another process, which "
                f"may have crashed: waiting until the leases expire, at {until}"
            )
        )
    resuming = [asyncio.create_task(resume_call(record)) for record in pending]
    try:
        went_well = await asyncio.gather(*resuming)
    finally:
        for task in resuming:
            task.cancel()
        await asyncio.gather(*resuming, return_exceptions=True)
    if not all(went_well):
        count = went_well.count(False)
        message = f"{count} of {len(went_well)} calls to {_shown(records[0])} have no answer"
        raise CommandError(Failure(code="HOLDFAST_ERR_RESUME", message=message))


async def _resume_call(
    session: JournaledSession, output: Output, record: CallRecord, call: PendingCall
) -> bool:
    """Resume a call; return False if it has no answer."""
    settings = session.settings
    outcome: Answer | Exception
    try:
        outcome = await call.resume(
            poll_interval=settings.poll_interval,
            timeout=settings.timeout,
            headers=session.svc_params,
        )
    except A2AError as error:
        outcome = error
    if isinstance(outcome, JournalError) and (left := _LEFT.get(outcome.reason)):
        status, reason = left
        members = {**_members(record), "status": status}
        output.emit(Record(members, [*_lines(record), text.field("Left", reason)]))
        return await _was_answered(session, record)
    answer = answer_of(outcome)
    if answer is None:
        envelope = output.error_members(_failure_of(outcome, session, record))
        members, lines = {"error": envelope}, _failure_lines(record, envelope)
    else:
        members = members_of(outcome, session, output)
        lines = _answer_lines(record, answer, session)
    output.emit(Record({**_named(record), **members}, lines))
    return answer is not None


def _failure_of(
    outcome: Answer | Exception, session: JournaledSession, record: CallRecord
) -> Failure:
    """Return the failure of a call without an answer."""
    failure = failure_of(outcome, session)
    if not isinstance(outcome, TaskNotFoundError | OutcomeUnknownError):
        return failure
    command = session.command(
        "resume", "--journal", str(session.journal.name), "--dismiss", record.message_id
    )
    if isinstance(outcome, TaskNotFoundError):
        reason = "the agent no longer knows the task, so no answer can arrive, and the call"
    elif outcome.search_error is not None:
        return failure
    else:
        reason = "the next resume searches for the task again, as the call"
    return failure._replace(hint=f"{reason} stays pending; to end it: {command}")


async def _was_answered(session: JournaledSession, record: CallRecord) -> bool:
    """Return whether another program has finished a call with an answer."""
    try:
        record_now = await session.journal.find(record.message_id)
    except JournalError:
        return False
    return record_now is not None and record_now.outcome == "answered"


def _named(record: CallRecord) -> dict[str, Any]:
    return {"messageId": record.message_id, "agent": _shown(record)}


def _members(record: CallRecord) -> dict[str, Any]:
    """Return a call as members of a document."""
    members = {
        **_named(record),
        "taskId": record.task_id,
        "contextId": record.context_id,
        "state": record.state,
        **_key_of(record),
        "outcome": record.outcome,
        "began": shown(record.began),
        "damage": record.damage,
    }
    return {name: member for name, member in members.items() if member is not None}


def _key_of(record: CallRecord) -> dict[str, str]:
    """Return the key of a call, and the run that it belongs to, if it belongs to one."""
    if record.label is None:
        return {}
    run_id, key = run_and_key(record.label)
    return {"runId": run_id, "key": key} if run_id else {"key": key}


def _lines(record: CallRecord) -> Iterator[str]:
    """Return a call as lines."""
    yield text.field("Message ID", record.message_id)
    yield text.field("Agent", _shown(record))
    yield text.field("Task ID", record.task_id)
    yield text.field("Context ID", record.context_id)
    yield text.field("Last known state", record.state)
    for name, value in _key_of(record).items():
        yield text.field({"runId": "Run ID", "key": "Key"}[name], value)
    if record.outcome is not None:
        yield text.field("Outcome", record.outcome)
    yield text.field("Began", shown(record.began))
    if record.damage is not None:
        yield text.field("Damage", record.damage)


def _answer_lines(
    record: CallRecord, answer: Task | Message, session: JournaledSession
) -> Iterator[str]:
    """Return a call with an answer, as lines."""
    message_id = text.field("Message ID", record.message_id)
    yield message_id
    yield from text.render(
        answer, text.View(verbose=session.settings.verbose), shown_lines=[message_id]
    )


def _failure_lines(record: CallRecord, envelope: Mapping[str, Any]) -> Iterator[str]:
    """Return a call without an answer, as lines."""
    yield text.field("Message ID", record.message_id)
    yield text.field("Error", envelope["message"])
    yield text.field("Code", envelope["code"])
    if envelope["hint"]:
        yield text.field("Hint", envelope["hint"])


def _shown(record: CallRecord) -> str:
    return shown_agent(record.agent)


def shown_agent(agent: str) -> str:
    """Return the name of an agent in a journal for people, without possible secrets."""
    return " ".join(map(masked_reference, addresses_in(agent)))
