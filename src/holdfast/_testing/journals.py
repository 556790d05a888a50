"""The rules of `Journal`, one by one, for every implementation."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

from msgspec.structs import replace

from holdfast.errors import CallOutcome, JournalError
from holdfast.extend import CallRecord, RecordUpdate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from holdfast.errors import JournalFailure
    from holdfast.extend import Journal

__all__ = ["check_journal"]

_TICK_S = 0.02
"""Seconds after which each clock shows a later time; some count in steps of 16 ms."""

_TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

_OUTCOMES: tuple[CallOutcome, ...] = get_args(CallOutcome)


async def check_journal(make: Callable[[], Journal]) -> None:
    """Check that a journal follows the rules of `Journal`.

    That records survive a crash of the process or of the machine is checked only in part: a second
    journal must immediately read the records of the first.

    The check waits for leases to end: use a short `Journal.lease`, such as 0.5 seconds.

    Args:
        make: Function that returns a journal of the same records each time; there must be no
            records at first.

    Raises:
        AssertionError: The journal breaks a rule; the message names it.
    """
    ours, theirs = make(), make()
    try:
        _holds(ours.stores_messages in {True, False}, "stores_messages is True or False")
        _holds(ours.lease > 0, "lease is a positive number of seconds")
        for name, check in _CHECKS.items():
            try:
                await check(ours, theirs, f"http://{name}.test")
            except AssertionError:
                raise
            except Exception as error:
                text = f"the journal raised where nothing was wrong, in {name}: {error!r}"
                raise AssertionError(text) from error
    finally:
        for journal in (ours, theirs, ours, theirs):  # closing twice must work
            await journal.close()


async def _check_begin(ours: Journal, theirs: Journal, agent: str) -> None:
    whole = CallRecord(
        message_id="begin-1",
        agent=agent,
        context_id="c",
        task_id="t",
        state="TASK_STATE_WORKING",
        is_own_context=True,
        request='{"message": {}}',
        label="begin:1",
        digest="00ff",
        traceparent=_TRACEPARENT,
    )
    begun = await ours.begin(whole)
    rule = "begin returns every field of a record"
    _holds(_timeless(begun) == whole, rule)
    found = await theirs.find("begin-1")
    _holds(
        found is not None and _unread(found) == _unread(begun),
        "begin stores every field of a record",
    )
    rule = "begin sets the time of the record, and the end of its lease"
    _holds(begun.began > 0 and begun.lease_until > begun.began, rule)
    _holds(0 < begun.lease_left <= ours.lease, f"{rule}; lease_left is what is left of it")
    rule = "begin refuses a message that is recorded already"
    await _refuses(theirs.begin(replace(whole, label=None)), "exists", "begin-1", rule)
    rule = "begin refuses a label that is recorded already, for any name of the agent"
    for to in (agent, f"{agent}/other"):
        other = replace(whole, message_id="begin-2", agent=to)
        await _refuses(theirs.begin(other), "exists", "begin-1", rule)
        _holds(await ours.find("begin-2") is None, "begin does not store a record that it refuses")
    for number in (3, 4):  # records without a label do not conflict
        await ours.begin(_record(f"begin-{number}", agent))


async def _check_begin_again(ours: Journal, theirs: Journal, agent: str) -> None:
    for outcome in _OUTCOMES:
        first = replace(_record(f"again-{outcome}", agent), label=f"again:{outcome}")
        second = replace(first, message_id=f"again-{outcome}-2")
        await ours.begin(first)
        await ours.update(first.message_id, 1, RecordUpdate(outcome=outcome))
        if outcome == "not_sent":
            anew = await theirs.begin(replace(first, context_id="c"))
            rule = "begin replaces a record that was not sent"
            found = await ours.find(first.message_id)
            _holds(found is not None and _unread(found) == _unread(anew), rule)
            late = RecordUpdate(outcome=outcome)
            rule = "begin gives a record that replaces another one a greater generation"
            _holds(anew.generation > 1, rule)
            rule = "update returns whether there is a record of that generation"
            _holds(not await ours.update(first.message_id, 1, late), rule)
            await ours.update(first.message_id, anew.generation, late)
            await theirs.begin(second)
        else:
            for record in (first, second):
                rule = f"begin refuses a call with the outcome {outcome}, by message and by label"
                await _refuses(theirs.begin(record), "exists", first.message_id, rule)


async def _check_begin_at_once(ours: Journal, theirs: Journal, agent: str) -> None:
    record = _record("once-1", agent)
    labelled = [replace(_record(f"once-{n}", agent), label="once:1") for n in (2, 3)]
    for first, second in ((record, record), labelled):
        outcomes = await _both(ours.begin(first), theirs.begin(second))
        rule = "if two begin the same call at once, one is refused"
        _holds(_count(outcomes, JournalError) == 1 and _count(outcomes, CallRecord) == 1, rule)


async def _check_update(ours: Journal, theirs: Journal, agent: str) -> None:
    record = _record("update-1", agent)
    await ours.begin(record)
    news: dict[str, Any] = {
        "context_id": "c",
        "task_id": "t",
        "state": "TASK_STATE_WORKING",
        "detail": "why",
        "result": "{}",
    }
    whole, updated = RecordUpdate(**news), replace(record, **news)

    async def is_updated() -> bool:
        found = await theirs.find("update-1")
        return found is not None and _timeless(found) == updated

    _holds(
        await ours.update("update-1", 1, whole), "update returns whether there is such a record"
    )
    _holds(await is_updated(), "update stores every field of an update")
    await ours.update("update-1", 1, RecordUpdate(state="TASK_STATE_COMPLETED"))
    updated = replace(updated, state="TASK_STATE_COMPLETED")
    _holds(await is_updated(), "a field that is None in an update is unchanged")
    for name, generation in (("update-1", 2), ("update-1", 0), ("update-2", 1)):
        rule = "update returns whether there is a record of that generation"
        _holds(not await theirs.update(name, generation, RecordUpdate(state="x")), rule)
    await ours.update("update-1", 1, RecordUpdate(outcome="answered"))
    updated = replace(updated, outcome="answered")
    rule = "update does not change a record with an outcome"
    _holds(not await ours.update("update-1", 1, RecordUpdate(outcome="unknown")), rule)
    _holds(await is_updated(), rule)
    found = await theirs.find("update-1")
    rule = "lease_left is 0 for a call with an outcome, which has no holder"
    _holds(found is not None and found.lease_left == 0, rule)


async def _check_renew(ours: Journal, theirs: Journal, agent: str) -> None:
    names = ("renew-1", "renew-2", "renew-3")
    begun = [await ours.begin(_record(name, agent)) for name in names]
    await ours.update("renew-2", 1, RecordUpdate(outcome="answered"))
    await asyncio.sleep(ours.lease / 10)
    held = [("renew-1", 1), ("renew-2", 1), ("renew-3", 2), ("renew-4", 1)]
    rule = "renew returns the ids of open records of that generation, and renews these only"
    _holds(await ours.renew(held) == {"renew-1"}, rule)
    records = [await theirs.find(name) for name in names]
    renewed = [
        record is not None and record.lease_until > before.lease_until
        for record, before in zip(records, begun, strict=True)
    ]
    _holds(renewed == [True, False, False], rule)
    _holds(await ours.renew([]) == set(), "renew takes an empty list")


async def _check_claim(ours: Journal, theirs: Journal, agent: str) -> None:
    record = _record("claim-1", agent)
    await ours.begin(record)
    await ours.update("claim-1", 1, RecordUpdate(releases=True))
    released = await theirs.find("claim-1")
    _holds(released is not None and released.lease_left == 0, "an update can release a call")
    taken = await theirs.claim("claim-1")
    rule = "claim returns the record with a new lease, and the next generation"
    _holds(_timeless(taken) == replace(record, generation=2), rule)
    _holds(0 < taken.lease_left <= theirs.lease, rule)
    found = await ours.find("claim-1")
    rule = "claim stores the record that it returns"
    _holds(found is not None and _unread(found) == _unread(taken), rule)
    rule = "after a claim, the earlier holder can neither update nor renew the call"
    _holds(not await ours.update("claim-1", 1, RecordUpdate(outcome="answered")), rule)
    _holds(await ours.renew([("claim-1", 1)]) == set(), rule)
    _holds(await theirs.update("claim-1", 2, RecordUpdate(outcome="answered")), rule)
    unknown = RecordUpdate(outcome="unknown", detail="why", task_id="t")
    await ours.begin(replace(_record("claim-3", agent), traceparent=_TRACEPARENT))
    await ours.update("claim-3", 1, unknown)
    opened = await theirs.claim("claim-3")
    rule = "claim opens a call with an unknown outcome again, without outcome and detail"
    expected = replace(
        _record("claim-3", agent), task_id="t", generation=2, traceparent=_TRACEPARENT
    )
    _holds(_timeless(opened) == expected and opened.lease_left > 0, rule)
    held = ours.claim("claim-3")
    await _refuses(held, "held", "claim-3", "claim refuses a call whose lease lasts, also then")
    _holds(await theirs.update("claim-3", 2, unknown), rule)
    late = ours.claim("claim-1")
    await _refuses(late, "finished", "claim-1", "claim refuses a call with an outcome")
    missing = ours.claim("claim-2")
    await _refuses(missing, "missing", "claim-2", "claim refuses a call that is not recorded")


async def _check_lease(ours: Journal, theirs: Journal, agent: str) -> None:
    clock, lease = asyncio.get_running_loop().time, ours.lease

    async def is_held(message_id: str, since: float, rule: str) -> None:
        try:
            await theirs.claim(message_id)
        except JournalError as error:
            is_known = (error.reason, error.message_id) == ("held", message_id)
            facts = 'with reason="held", message_id and held_until'
            _holds(is_known and isinstance(error.held_until, datetime), f"{rule}, {facts}")
        else:  # on a busy machine, the lease may have ended meanwhile
            _holds(clock() - since > lease, rule)

    began = clock()
    await ours.begin(_record("lease-1", agent))
    await ours.begin(_record("lease-2", agent))
    await is_held("lease-1", began, "claim refuses a call whose lease lasts")
    await asyncio.sleep(lease * 0.6)
    renewed = clock()
    await ours.renew([("lease-2", 1)])
    await asyncio.sleep(lease * 0.6)
    await is_held("lease-2", renewed, "claim refuses a call whose lease was renewed")
    rule = "claim takes a call whose lease has ended, which another client held"
    try:
        _holds((await theirs.claim("lease-1")).generation > 1, rule)
    except JournalError as error:
        text = f"the journal breaks a rule: {rule}: {error}"
        raise AssertionError(text) from error


async def _check_claim_at_once(ours: Journal, theirs: Journal, agent: str) -> None:
    await ours.begin(_record("claims", agent))
    rule = "if two claim a call at once, one is refused"
    free = (RecordUpdate(releases=True), RecordUpdate(outcome="unknown"))
    for generation, update in enumerate(free, 1):
        await ours.update("claims", generation, update)
        outcomes = await _both(*(journal.claim("claims") for journal in (ours, theirs)))
        _holds(_count(outcomes, CallRecord) == 1 and _count(outcomes, JournalError) == 1, rule)


async def _check_lists(ours: Journal, theirs: Journal, agent: str) -> None:
    other = f"{agent}/other"
    replicas = " ".join((agent, f"{agent}/replica"))
    named = (("a", agent), ("over", agent), ("c", other), ("b", replicas), ("d", other))
    for name, to in named:
        await ours.begin(replace(_record(f"lists-{name}", to), label=f"lists:{name}"))
        await asyncio.sleep(_TICK_S)
    await ours.update("lists-over", 1, RecordUpdate(outcome="answered"))
    await ours.update("lists-c", 1, RecordUpdate(outcome="unknown"))
    unfinished = [
        record.message_id
        for record in await theirs.unfinished()
        if record.agent in {agent, other, replicas}
    ]
    rule = "unfinished returns the calls without an outcome or with an unknown one, oldest first"
    _holds(unfinished == ["lists-a", "lists-c", "lists-b", "lists-d"], rule)
    unfinished = [record.message_id for record in await theirs.unfinished(agent)]
    _holds(
        unfinished == ["lists-a", "lists-b"],
        "unfinished returns only the calls of an agent, if one is named, with any of its replicas",
    )
    names = (f"{agent}/replica", f"{agent}/new {agent}/replica", f"{agent}/rep", "replica")
    counts = [len(await theirs.unfinished(name)) for name in names]
    rule = "unfinished finds a call by each address of its name, and by nothing less"
    _holds(counts == [1, 1, 0, 0], rule)
    _holds(await theirs.find("lists-e") is None, "find returns None if there is no such call")


async def _check_labels(ours: Journal, theirs: Journal, agent: str) -> None:
    for name in ("1", "2"):
        record = replace(_record(f"label-{name}", agent), label="label:1")
        await ours.begin(record)
        await asyncio.sleep(_TICK_S)
        await ours.update(record.message_id, 1, RecordUpdate(outcome="not_sent"))
    labelled = await theirs.find_label("label:1")
    rule = "find_label returns the newest record if none may have been sent"
    _holds(labelled is not None and labelled.message_id == "label-2", rule)
    other = f"{agent}/other"
    await ours.begin(replace(_record("label-3", other), label="label:1"))
    labelled = await theirs.find_label("label:1")
    rule = "find_label returns the record that may have been sent"
    _holds(labelled is not None and labelled.message_id == "label-3", rule)
    rule = "find_label returns None if there is no record of that label"
    _holds(await theirs.find_label("label:2") is None, rule)


async def _check_cancelled(ours: Journal, theirs: Journal, agent: str) -> None:
    record = _record("cancelled", agent)
    beginning = asyncio.ensure_future(ours.begin(record))
    await asyncio.sleep(0)
    beginning.cancel()
    await asyncio.gather(beginning, return_exceptions=True)
    await ours.begin(_record("cancelled-2", agent))
    rule = "a cancelled method does all of its work, or nothing"
    found = await theirs.find("cancelled")
    _holds(found is None or _timeless(found) == record, rule)


async def _check_loops(ours: Journal, theirs: Journal, agent: str) -> None:
    record = _record("loops", agent)

    async def elsewhere() -> CallRecord | None:
        await ours.begin(record)
        return await theirs.find("loops")

    rule = "a journal serves several event loops"
    there = await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
    here = await ours.find("loops")
    _holds(there is not None and _timeless(there) == record, rule)
    _holds(here is not None and _timeless(here) == record, rule)


_CHECKS = {
    "begin": _check_begin,
    "begin-again": _check_begin_again,
    "begin-at-once": _check_begin_at_once,
    "update": _check_update,
    "renew": _check_renew,
    "claim": _check_claim,
    "lease": _check_lease,
    "claim-at-once": _check_claim_at_once,
    "lists": _check_lists,
    "labels": _check_labels,
    "cancelled": _check_cancelled,
    "loops": _check_loops,
}


def _record(message_id: str, agent: str) -> CallRecord:
    return CallRecord(message_id=message_id, agent=agent)


def _timeless(record: CallRecord | None) -> CallRecord | None:
    """Return a record without the times that a journal sets."""
    return record and replace(record, began=0.0, lease_until=0.0, lease_left=0.0)


def _unread(record: CallRecord) -> CallRecord:
    """Return a record without the time that was left when it was read."""
    return replace(record, lease_left=0.0)


def _holds(condition: bool, rule: str) -> None:  # noqa: FBT001  the condition is the subject
    if not condition:
        text = f"the journal breaks a rule: {rule}"
        raise AssertionError(text)


async def _refuses(
    work: Awaitable[Any], reason: JournalFailure, message_id: str, rule: str
) -> JournalError:
    try:
        await work
    except JournalError as error:
        facts = f"{rule}, with reason={reason!r} and message_id={message_id!r}"
        _holds((error.reason, error.message_id) == (reason, message_id), facts)
        return error
    except Exception as error:
        text = f"the journal breaks a rule: {rule}, by a JournalError"
        raise AssertionError(text) from error
    text = f"the journal breaks a rule: {rule}"
    raise AssertionError(text)


async def _both(*works: Awaitable[Any]) -> list[Any]:
    return await asyncio.gather(*works, return_exceptions=True)


def _count(outcomes: Iterable[Any], kind: type[Any]) -> int:
    return sum(isinstance(outcome, kind) for outcome in outcomes)
