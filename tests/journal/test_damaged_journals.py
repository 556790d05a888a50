"""Damaged and invalid journals: each error is a `JournalError`."""

import asyncio
import contextlib
import shutil
import sqlite3

import pytest
from tests.kit.cli_harness import holdfast as cli
from tests.kit.virtual_env import set_wall

from holdfast import A2AError, DeadlineExceededError, RunItem, SqliteJournal, connect
from holdfast.errors import JournalError
from holdfast.extend import CallRecord
from holdfast.testing import FakeAgent, FakeNetwork, completes, works_forever

TIMES = (float("inf"), -float("inf"), 1e18, -1e18, 10**18, "soon", b"\xff")
TEXTS = ("{", '"\\ud800"', "[]", 5, b"\xff", "\x00")
DAMAGES = {
    "began": TIMES,
    "lease_until": TIMES,
    "generation": ("many", -1, 1e300, b"\xff"),
    "is_own_context": (7, "perhaps", b"\xff"),
    "state": ("x", 5, b"\xff", ""),
    "task_id": ("", 5, b"\xff"),
    "context_id": ("", 5, b"\xff"),
    "request": TEXTS,
    "result": TEXTS,
    "outcome": ("answered", "whatever", 5, b"\xff"),
    "message_id": ("", b"\xff"),
}


def connected(agent, journal):
    return connect(agent.url, engine=FakeNetwork(agent), journal=journal, timeout=90.0)


async def use(client):
    """Read the records by every method; each error has to be one of this library."""
    with contextlib.suppress(JournalError):
        for call in await client.pending():
            assert str(call.began.year) in repr(call)
            assert call.is_held == (call.held_until is not None)
            assert isinstance(call.state, str | None)
            with contextlib.suppress(JournalError):
                assert call.message is not None
            with contextlib.suppress(A2AError):
                await call.resume(timeout=40.0)
            with contextlib.suppress(JournalError):
                await call.dismiss()
    (result,) = await run(client)
    assert result.error is None or isinstance(result.error, A2AError)


async def run(client):
    items = [RunItem(content="hello", key="a")]
    async with client.run(items, run_id="r", timeout=5.0) as results:
        return [result async for result in results]


@pytest.mark.parametrize("column", DAMAGES)
async def test_a_damaged_row_raises_a_journal_error_from_every_method(column, tmp_path):
    agent = FakeAgent(works_forever())
    journal = SqliteJournal(tmp_path / "calls.db", store_messages=True)
    async with connected(agent, journal) as client:
        assert [result.error is None for result in await run(client)] == [False]
    await journal.close()
    for number, value in enumerate(DAMAGES[column]):
        path = shutil.copy(tmp_path / "calls.db", tmp_path / f"{number}.db")
        damage(path, column, value)
        journal = SqliteJournal(path, store_messages=True)
        async with connected(agent, journal) as client:
            await use(client)
        await journal.close()


def damage(path, column, value):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as damaged:
        damaged.execute(f"UPDATE calls SET {column} = ?", (value,))
        if column == "result":
            damaged.execute("UPDATE calls SET outcome = 'answered'")


@pytest.mark.parametrize("column", ["began", "lease_until"])
async def test_a_damaged_time_raises_a_damaged_error(column, tmp_path):
    path = tmp_path / "calls.db"
    journal = SqliteJournal(path)
    set_wall(1000.0)
    await journal.begin(CallRecord(message_id="m", agent="http://agent.test"))
    await journal.close()
    damage(path, column, 1e18)

    with pytest.raises(JournalError, match=r"1e\+18 is not a time") as caught:
        await journal.find("m")
    (record,) = await journal.unfinished()

    assert caught.value.reason == "damaged"
    assert "1e+18 is not a time" in record.damage
    assert record.message_id == "m"
    assert (record.began, record.lease_until, record.lease_left) == (
        (0.0, 1030.0, 30.0) if column == "began" else (1000.0, 0.0, 0.0)
    )
    await journal.close()


@pytest.mark.parametrize("value", ["1e18", "x'ff'", "CAST(x'ff' AS TEXT)"])
async def test_a_damaged_row_hides_no_other_call(value, tmp_path):
    journal, agent = SqliteJournal(tmp_path / "calls.db"), FakeAgent(completes("done", after=60))
    async with connected(agent, journal) as client:
        for key in "abc":
            with pytest.raises(DeadlineExceededError):
                await client.ask(key, timeout=5)
    await journal.close()
    with contextlib.closing(sqlite3.connect(journal.path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE calls SET began = {value} WHERE rowid = 2")
    journal = SqliteJournal(journal.path)

    async with connected(agent, journal) as client:
        pending = {call.message_id: call for call in await client.pending()}
        outcomes = {outcome.message_id: outcome async for outcome in client.resume_pending()}
        (remaining_call,) = await client.pending()
    await journal.close()

    (damaged,) = [name for name, call in pending.items() if call.damage is not None]
    assert remaining_call.message_id == damaged
    assert outcomes.keys() == pending.keys()
    error = outcomes.pop(damaged).error
    assert type(error) is JournalError
    assert (error.reason, error.message_id) == ("damaged", damaged)
    assert damaged in str(error)
    assert [outcome.answer.text for outcome in outcomes.values()] == ["done", "done"]


async def damaged_journal(path, value, column="began"):
    """Create a journal with three calls of a run, of which the second one is damaged."""
    journal, agent = SqliteJournal(path), FakeAgent(completes("done", after=60))
    items = [RunItem(content=key, key=key) for key in "abc"]
    async with (
        connected(agent, journal) as client,
        client.run(items, run_id="r", timeout=5.0) as results,
    ):
        assert len([result async for result in results]) == 3
    await journal.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE calls SET {column} = {value} WHERE rowid = 2")
    return SqliteJournal(path), agent


@pytest.mark.parametrize("column", ["began", "generation", "state", "lease_until", "message_id"])
async def test_a_damaged_call_can_be_dismissed_and_is_not_sent_again(column, tmp_path):
    journal, agent = await damaged_journal(tmp_path / "calls.db", "x'ff'", column)
    async with connected(agent, journal) as client:
        (call,) = [call for call in await client.pending() if call.damage is not None]
        if column != "message_id":
            (call,) = await client.pending(message_id=call.message_id)
        await call.dismiss()
        damages = [call.damage for call in await client.pending()]
        with pytest.raises(JournalError) as caught:
            await call.dismiss()
        items = [RunItem(content=key, key=key) for key in "abc"]
        async with client.run(items, run_id="r") as results:
            results_by_key = {result.key: result async for result in results}

    await journal.close()
    assert (damages, caught.value.reason) == ([None, None], "missing")
    assert [results_by_key[key].answer.text for key in "ac"] == ["done", "done"]
    assert results_by_key["b"].error is not None
    assert len(agent.executions) == 3


async def test_the_command_line_dismisses_a_damaged_call(tmp_path):
    journal, agent = await damaged_journal(tmp_path / "calls.db", "1e18")
    (damaged,) = [record for record in await journal.unfinished() if record.damage is not None]
    await journal.close()
    words = ("resume", "--journal", str(journal.path), "--dismiss", damaged.message_id)

    done = await asyncio.to_thread(cli, *words, agent=agent)
    again = await asyncio.to_thread(cli, *words, agent=agent)

    assert (done.exit, "Dismissed: yes" in done.out, done.err) == (0, True, "")
    assert "is pending in" in again.err


async def test_damaged_messages_raise_a_damaged_error(tmp_path):
    journal = SqliteJournal(tmp_path / "calls.db", store_messages=True)
    agent = FakeAgent(works_forever())
    async with connected(agent, journal) as client:
        await run(client)
        damage(journal.path, "request", "{")
        (call,) = await client.pending()
        with pytest.raises(JournalError, match="damaged: not JSON") as caught:
            _ = call.message
    await journal.close()

    assert (caught.value.reason, caught.value.message_id) == ("damaged", call.message_id)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("name", ["n" * 300 + ".db", "no\0name.db", "no\ud800name.db"])
async def test_an_invalid_file_name_is_a_journal_error(name, read_only, tmp_path):
    journal = SqliteJournal(tmp_path / name, read_only=read_only)

    with pytest.raises(JournalError, match="cannot be used") as caught:
        await journal.unfinished()

    assert caught.value.reason == "unusable"
    await journal.close()


async def test_a_journal_with_an_invalid_file_name_sends_nothing(tmp_path):
    agent = FakeAgent()
    async with connected(agent, f"{tmp_path}/{'n' * 300}.db") as client:
        with pytest.raises(JournalError, match="cannot be used: File name too long") as caught:
            await client.ask("hello")

    assert caught.value.executed is False
    assert not agent.executions


def test_a_deleted_working_directory_is_a_journal_error(tmp_path, monkeypatch):
    deleted_directory = tmp_path / "gone"
    deleted_directory.mkdir()
    monkeypatch.chdir(deleted_directory)
    deleted_directory.rmdir()

    with pytest.raises(JournalError, match="no working directory"):
        SqliteJournal("calls.db")


async def test_a_lease_may_extend_beyond_the_last_date(tmp_path):
    journal = SqliteJournal(tmp_path / "calls.db", lease=1e300)
    async with connected(FakeAgent(works_forever()), journal) as client:
        await run(client)
        (call,) = await client.pending()
        assert call.held_until is None
    await journal.close()


async def test_an_integer_too_large_for_sqlite_fails_no_other_record(tmp_path):
    journal = SqliteJournal(tmp_path / "calls.db")
    good, huge = (
        CallRecord(message_id=name, agent="http://agent.test", generation=generation)
        for name, generation in (("good", 1), ("huge", 2**70))
    )

    results = await asyncio.gather(
        journal.begin(good), journal.begin(huge), return_exceptions=True
    )

    assert [type(result) for result in results] == [CallRecord, JournalError]
    assert [record.message_id for record in await journal.unfinished()] == ["good"]
    await journal.close()
