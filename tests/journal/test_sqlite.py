"""The journal in a SQLite file: a returned result survives a crash."""

import asyncio
import contextlib
import os
import shutil
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tests.kit.virtual_env import advance_wall, set_wall

from holdfast import SqliteJournal, connect
from holdfast._journal.protocol import TokenUse
from holdfast._net import private_files
from holdfast.errors import JournalError
from holdfast.extend import CallRecord, RecordUpdate
from holdfast.testing import FakeAgent, FakeNetwork, check_journal

AGENT = "http://agent.test"


posix = pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "calls.db"


@pytest.fixture
def other_user(monkeypatch):
    """Make a path seem to belong to another user: only root could change its owner."""
    foreign_paths, lstat = set(), Path.lstat

    def foreign_lstat(path):
        status = lstat(path)
        if path not in foreign_paths:
            return status
        return os.stat_result((*status[:4], OTHER_USER, *status[5:]))

    monkeypatch.setattr(Path, "lstat", foreign_lstat)
    return foreign_paths.add


def record(message_id="m-1", **more):
    return CallRecord(**{"message_id": message_id, "agent": AGENT, **more})


async def reread(path):
    journal = SqliteJournal(path)
    try:
        return await journal.unfinished()
    finally:
        await journal.close()


async def test_sqlite_journal_follows_the_rules_of_journals(path):
    await check_journal(lambda: SqliteJournal(path))


# ── Records ──────────────────────────────────────────────────────────────────────────────────


async def test_a_record_is_visible_to_the_next_process(path):
    journal = SqliteJournal(path)
    complete = record(
        context_id="c",
        task_id="t",
        state="WORKING",
        request="{}",
        label="l",
        is_own_context=True,
    )
    set_wall(1000.0)

    begun = await journal.begin(complete)

    assert begun == replace(complete, began=1000.0, lease_until=1030.0, lease_left=30.0)
    assert await reread(path) == [begun]  # though the journal was not closed
    await journal.close()


async def test_update_changes_only_the_given_members(path):
    journal = SqliteJournal(path)
    begun = await journal.begin(record(context_id="c"))

    assert await journal.update("m-1", 1, RecordUpdate(task_id="t", state="WORKING"))
    assert await journal.update("m-1", 1, RecordUpdate(state="COMPLETED", result="{}"))

    assert await reread(path) == [replace(begun, task_id="t", state="COMPLETED", result="{}")]
    await journal.close()


async def test_a_record_with_an_outcome_is_not_updated(path):
    journal = SqliteJournal(path)
    await journal.begin(record())

    assert await journal.update("m-1", 1, RecordUpdate(outcome="answered"))

    assert not await journal.update("m-1", 1, RecordUpdate(outcome="refused"))
    assert await journal.unfinished() == []
    with pytest.raises(JournalError, match="m-1 has already ended: answered") as caught:
        await journal.claim("m-1")
    assert (caught.value.reason, caught.value.message_id) == ("finished", "m-1")
    with pytest.raises(JournalError, match="m-2 is not in the journal") as caught:
        await journal.claim("m-2")
    assert (caught.value.reason, caught.value.message_id) == ("missing", "m-2")
    await journal.close()


async def test_begin_refuses_a_recorded_message(path):
    journal = SqliteJournal(path)
    outcomes = await asyncio.gather(
        journal.begin(record("a")),
        journal.begin(record("b")),
        journal.begin(record("a")),
        return_exceptions=True,
    )

    assert [outcome.message_id for outcome in outcomes[:2]] == ["a", "b"]
    assert isinstance(outcomes[2], JournalError)
    assert outcomes[2].executed is False
    assert (outcomes[2].reason, outcomes[2].message_id) == ("exists", "a")
    assert str(path) in str(outcomes[2])
    assert [record.message_id for record in await journal.unfinished()] == ["a", "b"]
    await journal.close()


@pytest.mark.parametrize(
    ("unwritable", "why"),
    [
        ({"generation": 2**63}, "a number is too large for the journal"),
        ({"context_id": "\ud800"}, "the journal cannot store this text"),
    ],
)
async def test_a_value_that_sqlite_cannot_store_is_refused_and_nothing_is_sent(
    path, unwritable, why
):
    journal = SqliteJournal(path)
    generation, context_id = unwritable.get("generation", 1), unwritable.get("context_id")
    outcomes = await asyncio.gather(
        journal.begin(record("a")),
        journal.begin(record("b", **unwritable)),
        journal.update("a", generation, RecordUpdate(context_id=context_id)),
        return_exceptions=True,
    )

    assert outcomes[0].message_id == "a"  # the others of a transaction are written
    for error in outcomes[1:]:
        assert isinstance(error, JournalError)
        assert (error.executed, error.message.startswith(why)) == (False, True)
    assert [one.message_id for one in await journal.unfinished()] == ["a"]
    await journal.close()


async def test_unfinished_lists_calls_by_agent_oldest_first(path):
    journal = SqliteJournal(path)
    for began, call in (
        (3.0, record("new")),
        (1.0, record("old")),
        (2.0, record("other", agent="http://other.test")),
    ):
        set_wall(began)
        await journal.begin(call)

    of_all = await journal.unfinished()
    of_one = await journal.unfinished(AGENT)

    assert [listed.message_id for listed in of_all] == ["old", "other", "new"]
    assert [listed.message_id for listed in of_one] == ["old", "new"]
    await journal.close()


async def test_no_operation_reads_the_finished_calls(path):
    statements = []
    journal = SqliteJournal(path)
    await journal.begin(record("a", label="1"))
    journal._file._connection.set_trace_callback(statements.append)
    await journal.renew([("a", 1)])
    await journal.update("a", 1, RecordUpdate(releases=True))
    await journal.claim("a")
    for found in (journal.find("a"), journal.find_label("1"), journal.find_labels("12")):
        await found
    assert len(await journal.unfinished()) == 1
    assert len(await journal.unfinished(f"{AGENT} http://other.test")) == 1
    await journal.begin(record("b"))
    await journal.close()

    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.create_function("is_wanted", 1, lambda _name: True)
        plans = {
            statement: [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
            for statement in statements
            if "calls" in statement
        }
    assert len(plans) > 6
    for statement, plan in plans.items():
        assert not [step for step in plan if step in {"SCAN calls", "SCAN TABLE calls"}], statement


async def test_find_label_returns_the_newest_record(path):
    journal = SqliteJournal(path)
    set_wall(1.0)
    await journal.begin(record("a", label="1"))
    await journal.update("a", 1, RecordUpdate(outcome="not_sent", detail="refused"))
    set_wall(2.0)
    await journal.begin(record("b", label="1"))
    await journal.begin(record("c", label="2"))
    await journal.update("c", 1, RecordUpdate(outcome="answered"))

    records = [await journal.find_label(label) for label in "123"]
    assert await journal.find_labels("123") == dict(zip("12", records, strict=False))

    assert [listed and listed.message_id for listed in records] == ["b", "c", None]
    await journal.close()


async def test_begin_replaces_a_call_that_was_not_sent(path):
    journal = SqliteJournal(path)
    await journal.begin(record("a"))
    await journal.update("a", 1, RecordUpdate(outcome="not_sent", detail="refused"))

    await journal.begin(record("a"))

    (again,) = await journal.unfinished()
    assert again.message_id == "a"
    with pytest.raises(JournalError, match="already"):
        await journal.begin(record("a"))
    await journal.close()


@pytest.mark.parametrize(
    "outcome", [None, "unknown", "answered", "refused", "duplicated", "dismissed"]
)
async def test_only_one_call_of_a_label_may_have_been_sent(path, outcome):
    first, second = SqliteJournal(path), SqliteJournal(path)
    await first.begin(record("a", label="night:1"))
    if outcome is not None:
        await first.update("a", 1, RecordUpdate(outcome=outcome))

    with pytest.raises(JournalError, match=r"night:1: message a is in the journal ") as caught:
        await second.begin(record("b", label="night:1"))

    if outcome in {None, "unknown"}:
        state = "outcome is unknown: search" if outcome else "call is pending: resume it"
        assert f"already, and its {state}" in str(caught.value)
    else:
        assert f"already, and its call is finished ({outcome}): pass another message id" in str(
            caught.value
        )
    assert caught.value.executed is False
    assert (caught.value.reason, caught.value.message_id) == ("exists", "a")
    await second.begin(record("c"))
    await second.begin(record("d"))  # calls of no label are many
    await first.close()
    await second.close()


HOUR = 3600.0


async def messages_after(path, *journals_and_times):
    """Return the ids of the calls that remain: one is open, one unknown, one over, one labelled.

    They began at 1.0. Each journal then records another call at its time.
    """
    first = SqliteJournal(path)
    set_wall(1.0)
    calls = {"open": None, "unknown": "unknown", "over": "answered", "of a run": "answered"}
    for message_id, outcome in calls.items():
        await first.begin(
            record(message_id, label="night:1" if message_id == "of a run" else None)
        )
        await first.update(message_id, 1, RecordUpdate(outcome=outcome))
    for journal, began in journals_and_times:
        set_wall(began)
        await journal.begin(record(f"at {began}"))
    messages = {message_id for message_id in calls if await first.find(message_id)}
    for journal in (first, *(journal for journal, _ in journals_and_times)):
        await journal.close()
    return messages


async def test_finished_calls_without_a_label_are_deleted_after_the_retention(path):
    messages = await messages_after(path, (SqliteJournal(path, retention=100), 102.0))

    assert messages == {"open", "unknown", "of a run"}


async def test_retention_none_keeps_all_calls(path):
    messages = await messages_after(path, (SqliteJournal(path, retention=None), 1e9))

    assert messages == {"open", "unknown", "over", "of a run"}


async def test_retention_is_applied_once_an_hour(path):
    journal = SqliteJournal(path, retention=100)
    early = (journal, 2.0), (journal, HOUR)
    assert "over" in await messages_after(path, *early)
    path.unlink()

    assert "over" not in await messages_after(path, *early, (journal, 2.0 + HOUR))


async def test_retention_is_applied_after_the_clock_is_set_back(path):
    journal = SqliteJournal(path, retention=100)
    set_wall(1e9)
    await journal.begin(record("of the future"))

    assert "over" not in await messages_after(path, (journal, 200.0))


# ── Leases ───────────────────────────────────────────────────────────────────────────────────


async def test_claim_is_refused_until_the_lease_ends(path):
    first, second = SqliteJournal(path), SqliteJournal(path)
    set_wall(1000.0)
    await first.begin(record())

    set_wall(1020.0)
    with pytest.raises(JournalError, match="is held: its lease ends in 10 s") as caught:
        await second.claim("m-1")
    assert (caught.value.reason, caught.value.message_id) == ("held", "m-1")
    assert caught.value.held_until == datetime.fromtimestamp(1030, UTC)
    set_wall(1030.0)
    claimed = await second.claim("m-1")

    assert (claimed.generation, claimed.lease_until, claimed.lease_left) == (2, 1060.0, 30.0)
    set_wall(1040.0)
    assert await first.renew([("m-1", 1)]) == set()
    assert not await first.update("m-1", 1, RecordUpdate(state="WORKING"))
    assert (await first.find("m-1")).lease_left == 20.0
    assert await second.renew([("m-1", 2)]) == {"m-1"}
    assert await first.find("m-1") == replace(claimed, lease_until=1070.0)
    for journal in (first, second):
        await journal.close()


async def test_claim_succeeds_for_one_of_many(path):
    journals = [SqliteJournal(path) for _ in range(8)]
    await journals[0].begin(record())
    advance_wall(30.0)

    outcomes = await asyncio.gather(
        *(journal.claim("m-1") for journal in journals), return_exceptions=True
    )

    assert sum(isinstance(record, CallRecord) for record in outcomes) == 1
    assert all(isinstance(record, CallRecord | JournalError) for record in outcomes)
    for journal in journals:
        await journal.close()


async def test_a_lease_begins_when_it_is_recorded_after_a_wait_for_another_process(path):
    journal = SqliteJournal(path, lease=10)
    set_wall(1000.0)
    await journal.begin(record())
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other_connection:
        other_connection.execute("BEGIN IMMEDIATE")
        claiming = asyncio.create_task(journal.claim("m-1"))
        await asyncio.sleep(0)
        set_wall(1020.0)
        other_connection.execute("ROLLBACK")

    claimed = await claiming

    assert (claimed.lease_until, claimed.lease_left) == (1030.0, 10.0)
    await journal.close()


async def test_a_released_lease_can_be_claimed(path):
    journal = SqliteJournal(path)
    await journal.begin(record())

    await journal.update("m-1", 1, RecordUpdate(releases=True))

    assert (await journal.find("m-1")).lease_left == 0.0
    assert (await journal.claim("m-1")).generation == 2
    await journal.close()


async def test_a_finished_call_has_no_holder(path):
    journal = SqliteJournal(path)
    await journal.begin(record())
    await journal.update("m-1", 1, RecordUpdate(outcome="answered"))

    assert (await journal.find("m-1")).lease_left == 0.0
    await journal.close()


# ── The disk ─────────────────────────────────────────────────────────────────────────────────


def commits(path):
    """Return the number of transactions in a write-ahead log (SQLite's file format, section 4)."""
    log = path.with_name(f"{path.name}-wal").read_bytes()
    (page,) = struct.unpack_from(">I", log, 8)
    frames = range(32, len(log) - page, 24 + page)
    return sum(struct.unpack_from(">I", log, offset + 4)[0] > 0 for offset in frames)


async def test_concurrent_calls_share_a_transaction(path):
    journal = SqliteJournal(path)
    await journal.begin(record("first"))
    before = commits(path)

    await asyncio.gather(*(journal.begin(record(f"m-{n}")) for n in range(100)))

    assert commits(path) - before == 2  # the first one went ahead
    assert len(await journal.unfinished()) == 101
    await journal.close()


async def test_a_cancelled_call_does_not_affect_others(path):
    journal = SqliteJournal(path)
    given_up = asyncio.create_task(journal.begin(record("a")))
    second_call = asyncio.create_task(journal.begin(record("b")))
    await asyncio.sleep(0)
    given_up.cancel()

    await second_call

    assert {record.message_id for record in await journal.unfinished()} == {"a", "b"}
    await journal.close()


def test_a_journal_works_in_several_event_loops(path):
    journal = SqliteJournal(path)

    asyncio.run(journal.begin(record("a")))
    asyncio.run(journal.begin(record("b")))

    assert len(asyncio.run(journal.unfinished())) == 2
    asyncio.run(journal.close())


async def test_close_works_twice_and_unused(path):
    journal = SqliteJournal(path)
    await journal.close()
    assert not path.exists()
    await journal.begin(record())
    await journal.close()
    await journal.close()
    await journal.begin(record("again"))  # opens it again
    await journal.close()


@pytest.mark.rule("P10")
@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
async def test_the_file_is_readable_only_by_its_owner(path):
    journal = SqliteJournal(path)
    await journal.begin(record())

    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    await journal.close()


SIDES = ["", "-wal", "-shm"]
OTHER_USER = 12345


def modes(path):
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}


async def left_open(path):
    """Return a journal with a record, whose files all exist."""
    journal = SqliteJournal(path)
    await journal.begin(record("a"))
    return journal


async def refusal(journal, record):
    with pytest.raises(JournalError) as caught:
        await journal.begin(record)
    assert (caught.value.reason, caught.value.executed) == ("untrusted", False)
    return str(caught.value)


@pytest.mark.rule("P10")
@posix
@pytest.mark.parametrize("side", SIDES)
async def test_a_mode_that_allows_others_is_reduced_with_a_warning(path, side, caplog):
    holder = await left_open(path)
    path.with_name(f"calls.db{side}").chmod(0o666)

    journal = SqliteJournal(path)
    await journal.begin(record("b"))

    assert set(modes(path).values()) == {0o600}
    assert f"calls.db{side} from 0666 to 0600" in caplog.text
    await journal.close()
    await holder.close()


@pytest.mark.rule("P10")
@posix
@pytest.mark.parametrize("side", SIDES)
async def test_a_file_of_another_user_is_refused_and_not_written(path, side, other_user):
    holder = await left_open(path)
    other_user(path.with_name(f"calls.db{side}"))

    message = await refusal(SqliteJournal(path), record("b"))

    assert f"belongs to user {OTHER_USER}" in message
    assert f"because of {path}{side}" in message or not side
    assert [record.message_id for record in await holder.unfinished()] == ["a"]
    await holder.close()


@posix
async def test_a_file_of_root_is_used_if_it_is_closed_to_others(path, monkeypatch):
    await (await left_open(path)).close()
    own = os.geteuid()
    monkeypatch.setattr(private_files, "_ROOT", own)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER_USER)

    journal = SqliteJournal(path)
    await journal.begin(record("b"))
    await journal.close()

    path.chmod(0o660)

    def denied(*_):
        raise PermissionError

    monkeypatch.setattr(Path, "chmod", denied)
    message = await refusal(SqliteJournal(path), record("c"))
    assert "chmod 600" in message
    assert "SqliteJournal(mode=0o660)" in message
    shared = SqliteJournal(path, mode=0o660)
    await shared.begin(record("c"))
    await shared.close()


@pytest.mark.rule("P10")
@posix
async def test_a_group_mode_shares_the_journal(path, other_user, caplog):
    journal = SqliteJournal(path, mode=0o660)
    await journal.begin(record("a"))
    assert set(modes(path).values()) == {0o660}
    await journal.close()
    other_user(path)

    journal = SqliteJournal(path, mode=0o660)
    await journal.begin(record("b"))
    await journal.close()

    assert caplog.text == ""


@pytest.mark.rule("P10")
@posix
@pytest.mark.parametrize("side", ["-wal", "-shm", "-journal"])
async def test_a_link_beside_a_journal_is_refused(path, tmp_path_factory, side):
    precious = tmp_path_factory.mktemp("mine") / "precious"
    precious.write_bytes(b"")
    path.with_name(f"calls.db{side}").symlink_to(precious)

    message = await refusal(SqliteJournal(path), record())

    assert "not a regular file" in message
    assert precious.read_bytes() == b""


@posix
async def test_a_link_of_the_user_is_followed(path, tmp_path_factory, other_user):
    target = tmp_path_factory.mktemp("data") / "calls.db"
    path.symlink_to(target)
    journal = SqliteJournal(path)
    await journal.begin(record())
    await journal.close()
    assert modes(target) == {"calls.db": 0o600}

    target.unlink()
    other_user(path)
    assert "symbolic link of user" in await refusal(SqliteJournal(path), record())
    assert not target.exists()


@posix
async def test_a_file_placed_beside_a_journal_while_it_opens_is_detected(
    path, monkeypatch, other_user
):
    await (await left_open(path)).close()
    opened = sqlite3.connect

    def planting(*words, **more):
        path.with_name("calls.db-wal").touch()
        other_user(path.with_name("calls.db-wal"))
        return opened(*words, **more)

    monkeypatch.setattr(sqlite3, "connect", planting)
    await refusal(SqliteJournal(path), record("b"))


@pytest.mark.rule("P10")
@posix
@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize(
    ("mode", "owner", "group", "is_warned"),
    [
        (0o777, None, None, True),
        (0o1777, None, None, False),
        (0o755, OTHER_USER, None, True),
        (0o1777, OTHER_USER, None, True),
        (0o775, None, None, False),
        (0o775, None, 4321, True),
        (0o1775, None, 4321, False),
    ],
)
async def test_a_directory_where_others_may_replace_files_is_warned_of(
    *, path, above, mode, owner, group, is_warned, caplog, monkeypatch
):
    stat, odd = Path.stat, path.parent

    def sticky_stat(path, **options):
        status = stat(path, **options)
        if path != odd:
            return status
        ids = (status[4] if owner is None else owner, status[5] if group is None else group)
        return os.stat_result((*status[:4], *ids, *status[6:]))

    monkeypatch.setattr(Path, "stat", sticky_stat)
    odd.chmod(mode)
    if above:
        path = odd / "mine" / "calls.db"
        path.parent.mkdir(mode=0o700)
    await (await left_open(path)).close()

    text = f"other users can replace the journal in {odd};"
    assert (text in caplog.text) == is_warned


@posix
async def test_a_read_only_journal_changes_no_mode_and_refuses_files_that_others_can_write(path):
    await (await left_open(path)).close()
    for mode in (0o644, 0o640):
        path.chmod(mode)
        reader = SqliteJournal(path, read_only=True)
        assert len(await reader.unfinished()) == 1
        await reader.close()
        assert modes(path) == {"calls.db": mode}
    path.chmod(0o622)
    with pytest.raises(
        JournalError, match="mode 0622 gives other users access; run chmod 600"
    ) as caught:
        await SqliteJournal(path, read_only=True).unfinished()
    assert caught.value.reason == "untrusted"
    assert modes(path) == {"calls.db": 0o622}


@pytest.mark.rule("P10")
@posix
async def test_an_untrusted_journal_sends_nothing(path, other_user):
    await (await left_open(path)).close()
    other_user(path)
    agent = FakeAgent("done")
    client = connect(agent.url, engine=FakeNetwork(agent), journal=path)

    with pytest.raises(JournalError) as caught:
        await client.ask("hello")

    assert (caught.value.reason, caught.value.executed) == ("untrusted", False)
    assert not [request for request in agent.received if request.operation.startswith("Send")]
    await client.close()


def spoil(path, how):
    connection = sqlite3.connect(path)
    connection.executescript(how)
    connection.close()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("CREATE TABLE recipes (name TEXT)", "is a SQLite database of another program"),
        ("PRAGMA application_id = 7", "is a SQLite database of another program"),
        ("PRAGMA application_id = 1213156420; PRAGMA user_version = 99", "newer Holdfast"),
    ],
)
async def test_a_database_of_another_program_is_refused_unchanged_with_its_mode(path, how, words):
    spoil(path, how)
    path.chmod(0o644)
    before, mode = path.read_bytes(), path.stat().st_mode

    with pytest.raises(JournalError, match=words) as caught:
        await SqliteJournal(path).begin(record())

    assert caught.value.executed is False
    assert (path.read_bytes(), path.stat().st_mode) == (before, mode)


async def test_an_unreadable_record_raises_an_error_for_its_call(path):
    journal = SqliteJournal(path)
    await journal.begin(record("a", label="1"))
    intact = await journal.begin(record("b", label="2"))
    spoil(path, "UPDATE calls SET outcome = 'COMPLETED' WHERE message_id = 'a'")

    lookups = (journal.find_label("1"), journal.find_label("2"), journal.find("b"))
    refused, *others_found = await asyncio.gather(*lookups, return_exceptions=True)

    assert isinstance(refused, JournalError)
    assert "an unreadable record: Invalid enum value 'COMPLETED'" in str(refused)
    assert others_found == [intact] * 2
    await journal.close()


@pytest.mark.rule("P10")
@pytest.mark.parametrize(
    "content", [b"no database at all " * 99, b"SQLite format 3\0" + b"x" * 999]
)
async def test_a_file_that_is_not_a_database_is_refused_and_keeps_its_mode(path, content):
    path.write_bytes(content)
    path.chmod(0o644)
    mode = path.stat().st_mode

    with pytest.raises(JournalError, match="is not a SQLite database; move") as caught:
        await SqliteJournal(path).begin(record())

    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    assert (caught.value.reason, caught.value.message_id) == ("unusable", None)
    assert (path.read_bytes(), path.stat().st_mode) == (content, mode)


def deleted(path):
    path.unlink()


def moved(path):
    path.rename(path.with_name("elsewhere.db"))


def replaced(path):
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE recipes (name TEXT)")
    database.close()


def without_its_directory(path):
    shutil.rmtree(path.parent)


LOSSES = [deleted, moved, replaced, without_its_directory]


@pytest.mark.skipif(os.name == "nt", reason="an open file can be deleted")
@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("is_reopened", [False, True], ids=["open", "opened anew"])
async def test_a_file_deleted_while_it_is_open_is_detected(tmp_path, lose, is_reopened):
    path = tmp_path / "own" / "calls.db"
    path.parent.mkdir()
    journal = SqliteJournal(path)
    await journal.begin(record("a"))
    lose(path)
    if is_reopened:
        journal._file._close_file()  # as a fork does

    for _ in range(2):
        with pytest.raises(
            JournalError, match=r"calls\.db was (deleted or moved|replaced by another file)"
        ) as caught:
            await journal.begin(record("b"))
        assert caught.value.executed is False
    with pytest.raises(JournalError, match=r"calls\.db"):
        await journal.unfinished()
    with pytest.raises(JournalError, match=r"calls\.db"):
        await journal.update("a", 1, RecordUpdate(outcome="answered"))
    assert path.exists() is (lose is replaced)
    await journal.close()


@pytest.mark.skipif(os.name == "nt", reason="an open file can be moved")
async def test_a_restored_file_is_used_again(path):
    journal = SqliteJournal(path)
    await journal.begin(record("a"))
    moved(path)
    with pytest.raises(JournalError, match="was deleted or moved"):
        await journal.begin(record("b"))
    path.with_name("elsewhere.db").rename(path)

    await journal.begin(record("c"))

    assert "a" in {record.message_id for record in await journal.unfinished()}
    await journal.close()


async def test_a_closed_journal_can_be_created_again(path):
    journal = SqliteJournal(path)
    await journal.begin(record("a"))
    await journal.close()
    path.unlink()

    await journal.begin(record("b"))

    assert [record.message_id for record in await journal.unfinished()] == ["b"]
    await journal.close()


async def test_a_relative_path_is_independent_of_a_later_chdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    journal = SqliteJournal("calls.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    await journal.begin(record())

    assert [record.message_id for record in await reread(tmp_path / "calls.db")] == ["m-1"]
    await journal.close()


async def test_find_returns_a_call_by_its_message(path):
    journal = SqliteJournal(path)
    begun = await journal.begin(record("a"))
    await journal.update("a", 1, RecordUpdate(outcome="refused", detail="no"))

    finished = replace(begun, outcome="refused", detail="no", lease_left=0.0)
    assert await journal.find("a") == finished
    assert await journal.find("b") is None
    await journal.close()


@pytest.mark.parametrize(
    ("path_template", "cause"),
    [
        (".", "{0} is a directory; pass the path of a file in it"),
        (
            "none/calls.db",
            "the directory {0}/none does not exist; create it, or pass another path",
        ),
        ("notes/calls.db", "{0}/notes is not a directory; pass another path"),
    ],
)
async def test_a_path_that_is_not_a_file_is_an_error(tmp_path, path_template, cause):
    (tmp_path / "notes").write_text("notes")
    path = tmp_path / path_template
    with pytest.raises(JournalError) as caught:
        await SqliteJournal(path).begin(record())

    message = f"the journal {path} cannot be used: {cause.format(tmp_path)}"
    assert (caught.value.message, caught.value.executed) == (message, False)
    reading = SqliteJournal(tmp_path / "no.db", read_only=True)
    with pytest.raises(JournalError, match=r"no.db does not exist"):
        await reading.unfinished()
    await reading.close()


@posix
@pytest.mark.parametrize(
    ("mode", "denied", "options"),
    [
        ((0o755, 0o000), "calls.db", ""),
        ((0o755, 0o444), "calls.db", ""),
        ((0o755, 0o000), "calls.db", ", read_only=True"),
        ((0o555, None), "", ""),
    ],
)
def test_a_journal_without_permission_names_the_denied_path(mode, denied, options):
    program = textwrap.dedent(
        f"""
        import asyncio, os, pathlib, sys
        from holdfast import SqliteJournal

        directory = pathlib.Path(sys.argv[1])
        if not os.getuid():  # root is denied nothing
            os.chown(directory, 65534, -1)
            if (directory / "calls.db").exists():
                os.chown(directory / "calls.db", 65534, -1)
            os.setuid(65534)
        async def main():
            try:
                await SqliteJournal(directory / "calls.db"{options}).unfinished()
            except Exception as error:
                print(error.reason, error)
        asyncio.run(main())
        """
    )
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if mode[1] is not None:
            (directory / "calls.db").touch(mode[1])
        directory.chmod(mode[0])
        done = subprocess.run(
            [sys.executable, "-c", program, name], timeout=60, check=True, capture_output=True
        )
        output = done.stdout.decode()
        directory.chmod(0o755)

    assert f"journal {name}/calls.db cannot be used: permission denied: " in output
    assert output.rstrip().endswith(f"permission denied: {directory / denied}")


async def test_a_lock_of_another_process_is_an_error_and_the_next_call_succeeds(path):
    journal = SqliteJournal(path, busy_timeout=0.01)
    await journal.begin(record("a"))
    other_connection = sqlite3.connect(path, isolation_level=None)
    other_connection.execute("BEGIN IMMEDIATE")

    with pytest.raises(JournalError, match=r"locked, by another process .* 0\.01 s"):
        await journal.begin(record("b"))

    other_connection.execute("ROLLBACK")
    other_connection.close()
    await journal.begin(record("c"))
    assert [record.message_id for record in await journal.unfinished()] == ["a", "c"]
    await journal.close()


def test_a_full_disk_is_an_error_and_committed_records_remain(path):
    program = textwrap.dedent(
        f"""
        import asyncio, resource
        from holdfast.errors import JournalError
        from holdfast._journal.sqlite import SqliteJournal
        from holdfast._journal.protocol import CallRecord

        async def main():
            journal = SqliteJournal({str(path)!r})
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
            taken = 0
            try:
                while taken < 10_000:
                    record = CallRecord(
                        message_id=str(taken), agent="a", request="x" * 2000
                    )
                    await journal.begin(record)
                    taken += 1
            except JournalError as error:
                print(taken, error.executed, error)

        asyncio.run(main())
        """
    )

    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    recorded, executed, *words = completed.stdout.split()
    assert executed == "False"
    assert "cannot be used" in " ".join(words)
    assert len(asyncio.run(reread(path))) == int(recorded) > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_parent_and_child_of_a_fork_both_write(path):
    program = textwrap.dedent(
        f"""
        import asyncio, os
        from holdfast._journal.sqlite import SqliteJournal
        from holdfast._journal.protocol import CallRecord

        journal = SqliteJournal({str(path)!r})
        told, closed = os.pipe(), os.pipe()

        def begin(name):
            asyncio.run(journal.begin(CallRecord(message_id=name, agent="a")))

        begin("before")
        if os.fork() == 0:
            begin("child")
            os.write(told[1], b".")
            os.read(closed[0], 1)
            begin("orphan")
            os.kill(os.getpid(), 9)
        os.read(told[0], 1)
        begin("parent")
        asyncio.run(journal.close())
        os.write(closed[1], b".")
        os.wait()
        """
    )

    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)

    there = {record.message_id for record in asyncio.run(reread(path))}
    assert there == {"before", "child", "parent", "orphan"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_forks_in_threads_while_journals_are_written_and_created_lose_nothing(path):
    program = textwrap.dedent(
        f"""
        import asyncio, multiprocessing, os, sys, threading, warnings
        from holdfast._journal.sqlite import SqliteJournal
        from holdfast._journal.protocol import CallRecord

        warnings.simplefilter("ignore")  # of forking beside threads
        sys.setswitchinterval(1e-4)
        asyncio.new_event_loop().close()  # the first one takes a lock that no fork knows of
        journal = SqliteJournal({str(path)!r})
        is_over = threading.Event()

        def begin(*names):
            async def write():
                for name in names:
                    await journal.begin(CallRecord(message_id=name, agent="a"))
            asyncio.run(write())

        def make():
            while not is_over.wait(0.001):
                made = [SqliteJournal({str(path)!r}) for _ in range(100)]

        def fork(thread):
            for number in range(4):
                if (child := os.fork()) == 0:
                    begin(f"child-{{thread}}-{{number}}")
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
            process = multiprocessing.get_context("fork").Process(
                target=begin, args=(f"process-{{thread}}",)
            )
            process.start()
            process.join()
            assert process.exitcode == 0

        makers = [threading.Thread(target=make)]
        writer = threading.Thread(target=begin, args=[f"parent-{{n}}" for n in range(100)])
        forkers = [threading.Thread(target=fork, args=(thread,)) for thread in range(3)]
        for thread in (*makers, writer, *forkers):
            thread.start()
        for thread in (*forkers, writer):
            thread.join()
        is_over.set()
        """
    )

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert ended.stderr == ""
    there = {record.message_id for record in asyncio.run(reread(path))}
    assert there == {
        *(f"parent-{number}" for number in range(100)),
        *(f"child-{thread}-{number}" for thread in range(3) for number in range(4)),
        *(f"process-{thread}" for thread in range(3)),
    }


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"lease": 0}, ValueError),
        ({"lease": "30"}, TypeError),
        ({"retention": float("inf")}, ValueError),
        ({"retention": 0}, ValueError),
        ({"busy_timeout": -1}, ValueError),
        ({"store_messages": 1}, TypeError),
        ({"read_only": "yes"}, TypeError),
        ({"mode": "0600"}, TypeError),
        ({"mode": 0o644}, ValueError),
        ({"mode": 600}, ValueError),
    ],
)
def test_invalid_options_are_refused(path, options, error):
    with pytest.raises(error, match=next(iter(options))):
        SqliteJournal(path, **options)


def test_an_invalid_path_is_refused():
    with pytest.raises(TypeError, match="path"):
        SqliteJournal(None)


def test_update_accepts_all_members():
    unchanged = {
        "message_id",
        "agent",
        "began",
        "is_own_context",
        "request",
        "label",
        "digest",
        "generation",
        "lease_until",
        "lease_left",
        "damage",
        "traceparent",
    }
    updated = set(RecordUpdate.__struct_fields__) - {"releases"}
    assert set(msgspec.structs.asdict(record())) - unchanged == updated


async def test_several_processes_may_create_the_file_at_once(tmp_path):
    for number in range(60):
        journals = [SqliteJournal(tmp_path / f"{number}.db") for _ in range(3)]
        await asyncio.gather(*(journal.unfinished() for journal in journals))
        for journal in journals:
            await journal.close()


async def reason_of(work):
    with pytest.raises(JournalError) as caught:
        await work
    return caught.value.reason


async def test_the_error_of_an_unwritable_file_says_why(path):
    journal = SqliteJournal(path, busy_timeout=0.01)
    begun = await journal.begin(record("a"))
    with sqlite3.connect(path, isolation_level=None) as other_connection:
        other_connection.execute("BEGIN IMMEDIATE")
        assert await reason_of(journal.begin(record("b"))) == "locked"
        other_connection.execute("ROLLBACK")
    other_connection.close()
    reader = SqliteJournal(path, read_only=True)
    assert await reader.find("a") == begun
    assert await reason_of(reader.begin(record("b"))) == "read_only"
    await reader.close()
    path.rename(path.with_name("elsewhere.db"))
    assert await reason_of(journal.begin(record("b"))) == "replaced"
    await journal.close()


async def test_a_full_disk_is_an_error(path, monkeypatch):
    journal = SqliteJournal(path)
    await journal.begin(record("a"))
    await journal.update("a", 1, RecordUpdate(outcome="answered"))
    pages = path.stat().st_size // 4096
    connect = sqlite3.connect

    def full(*args, **kwargs):
        connection = connect(*args, **kwargs)
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    await journal.close()
    monkeypatch.setattr(sqlite3, "connect", full)

    assert await reason_of(journal.begin(record("b", request="x" * 99_999))) == "full"
    await journal.close()


async def test_check_accepts_an_intact_file(path):
    journal = SqliteJournal(path)
    await journal.begin(record("a"))
    await journal.check()
    await journal.close()
    content = bytearray(path.read_bytes())
    content[4096 * 2 : 4096 * 5] = b"\xff" * 4096 * 3
    path.write_bytes(content)

    assert await reason_of(journal.check()) == "damaged"
    await journal.close()


FIRST_SCHEMA = """
    ALTER TABLE calls DROP COLUMN traceparent;
    DROP TABLE push_tokens;
    DROP INDEX calls_unfinished;
    DROP INDEX calls_finished;
    CREATE INDEX calls_unfinished ON calls (agent, began) WHERE outcome IS NULL;
    CREATE INDEX calls_finished ON calls (began) WHERE outcome IS NOT NULL AND label IS NULL;
    PRAGMA user_version = 1;
"""


async def test_a_journal_of_the_first_schema_is_read_and_migrated(path):
    journal = SqliteJournal(path)
    await journal.begin(record())
    await journal.close()
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.executescript(FIRST_SCHEMA)
        for message_id, outcome in (("lost", "unknown"), ("left", "forgotten")):
            file.execute(
                "INSERT INTO calls (message_id, agent, began, is_own_context, label, outcome, "
                "generation, lease_until) VALUES (?, ?, 1, 0, ?, ?, 1, 0)",
                (message_id, AGENT, message_id, outcome),
            )
        file.commit()
    reader = SqliteJournal(path, read_only=True)
    assert await reader.find(record().message_id)
    assert len(await reader.unfinished(AGENT)) == 2
    await reader.close()
    use = TokenUse(b"body", "receiver")

    assert await journal.use_token(b"name", use, expires_in=9.0, most=1) == use
    names = [pending.message_id for pending in await journal.unfinished(AGENT)]
    assert names == ["lost", record().message_id]
    assert (await journal.claim("lost")).outcome is None
    assert (await journal.find_label("left")).outcome == "dismissed"
    await journal.begin(record("new", traceparent=TRACEPARENT))
    assert (await journal.find("new")).traceparent == TRACEPARENT
    assert (await journal.find(record().message_id)).traceparent is None
    await journal.close()


TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MALFORMED = (
    "",
    "none",
    TRACEPARENT + "-00",
    TRACEPARENT + "\n",
    TRACEPARENT.upper(),
    "ff" + TRACEPARENT[2:],
    TRACEPARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
    TRACEPARENT.replace("00f067aa0ba902b7", "0" * 16),
    b"\xff\xfe",
    7,
)


@pytest.mark.parametrize("stored", MALFORMED)
async def test_a_malformed_traceparent_is_ignored(stored, path):
    journal = SqliteJournal(path)
    await journal.begin(record(traceparent=TRACEPARENT))
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE calls SET traceparent = ?", (stored,))
        file.commit()

    found, (pending,) = await journal.find(record().message_id), await journal.unfinished(AGENT)
    assert (found.traceparent, pending.traceparent, pending.damage) == (None, None, None)
    await journal.close()


# ── Threads, and records during close ────────────────────────────────────────────────────────────


async def test_a_thread_that_cannot_start_is_started_by_the_next_call(path, monkeypatch):
    journal = SqliteJournal(path)

    def refuse(_thread):
        text = "can't start new thread"
        raise RuntimeError(text)

    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", refuse)
        with pytest.raises((JournalError, RuntimeError), match="thread"):
            await journal.find("m")

    async with asyncio.timeout(5):
        assert await journal.find("m") is None
    await journal.close()


def test_records_written_while_the_journal_closes_are_stored(path):
    journal, pending_writes = SqliteJournal(path), []

    async def ask_until_closed():
        closing = asyncio.create_task(journal.close())
        while not closing.done():
            record = CallRecord(message_id=f"m-{len(pending_writes)}", agent="a")
            pending_writes.append(asyncio.create_task(journal.begin(record)))
            await asyncio.sleep(0)
        await asyncio.gather(*pending_writes)

    async def work():
        for _ in range(20):
            await journal.find("m")
            await ask_until_closed()
        assert len(await journal.unfinished("a")) == len(pending_writes)
        await journal.close()

    asyncio.run(work())
