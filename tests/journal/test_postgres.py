"""The journal in PostgreSQL, on a real server: shared by machines, through its outages."""

import asyncio
import itertools
import os
import re
import signal

import pytest
from tests.kit.postgres_server import Postgres
from tests.kit.virtual_env import advance_wall

from holdfast import PostgresJournal, connect
from holdfast._journal.protocol import TokenUse
from holdfast.errors import JournalError
from holdfast.extend import CallRecord, RecordUpdate
from holdfast.testing import FakeAgent, FakeNetwork, check_journal, completes

AGENT = "http://agent.test"

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server():
    server = Postgres()
    yield server
    server.close()


@pytest.fixture
def dsn(server):
    """Return the address of a journal of the test's own."""
    return f"{server.dsn}&schema=journal_{next(_numbers)}"


TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def record(message_id="m-1", **more):
    return CallRecord(message_id=message_id, agent=AGENT, **more)


async def connections(server):
    """Return the processes of the server's connections to journals."""
    return [
        process
        for (process,) in server.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast'"
        )
    ]


# ── Calls ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.real_time
async def test_the_journal_follows_the_rules_of_journals(dsn):
    await check_journal(lambda: PostgresJournal(dsn, lease=0.3, store_messages=True))


async def test_a_pending_call_is_resumed_by_a_client_on_another_machine(dsn):
    agent = FakeAgent(completes("42", after=60))
    async with connect(agent.url, journal=dsn, engine=FakeNetwork(agent)) as client:
        asking = asyncio.create_task(client.ask("How far?"))
        await asyncio.sleep(1)
        asking.cancel()
        await asyncio.wait([asking])

    advance_wall(-7 * 3600)  # its clock differs by hours
    async with connect(agent.url, journal=dsn, engine=FakeNetwork(agent)) as client:
        (call,) = await client.pending()
        assert not call.is_held
        assert (await call.resume()).text == "42"
        assert await client.pending() == []

    assert len(agent.calls("SendStreamingMessage")) == 1


@pytest.mark.parametrize("ahead", [-5 * 3600, 5 * 3600])
async def test_a_call_is_held_whatever_the_clocks_of_the_machines_show(dsn, ahead):
    async with PostgresJournals(dsn, 2) as (ours, theirs):
        await ours.begin(record())
        advance_wall(ahead)

        with pytest.raises(JournalError, match="is held: its lease ends in") as caught:
            await theirs.claim("m-1")
        (found,) = await theirs.unfinished(AGENT)

    assert caught.value.reason == "held"
    assert 25 < found.lease_left <= 30


async def test_the_same_run_on_two_machines_sends_each_message_once(dsn):
    agent = FakeAgent(completes("42", after=5))
    messages = [f"Question {number}" for number in range(20)]

    async def machine():
        async with connect(agent.url, journal=dsn, engine=FakeNetwork(agent)) as client:
            results = [result async for result in client.run(messages, run_id="night")]
            return {result.key: result.error or result.answer.text for result in results}

    first, second = await asyncio.gather(machine(), machine())

    assert first == second == {str(number): "42" for number in range(20)}
    assert len(agent.calls("SendStreamingMessage")) == 20


async def test_texts_that_the_database_cannot_store_are_refused_and_nothing_is_sent(dsn):
    agent = FakeAgent(completes("42"))
    async with connect(agent.url, journal=dsn, engine=FakeNetwork(agent)) as client:
        for context_id in ("\x00", "\ud800"):
            with pytest.raises((JournalError, ValueError)) as caught:
                await client.ask("How far?", context_id=context_id)
            assert getattr(caught.value, "executed", False) is False

    assert agent.calls("SendStreamingMessage") == []


async def test_the_uses_of_tokens_are_shared_until_they_expire(dsn):
    mine, other = TokenUse(b"body", "me"), TokenUse(b"body", "you")
    async with PostgresJournals(dsn, 2) as (ours, theirs):
        assert await ours.use_token(b"a", mine, expires_in=60, most=2) == mine
        assert await theirs.use_token(b"a", other, expires_in=60, most=2) == mine
        assert await theirs.use_token(b"b", other, expires_in=-1, most=2) is None  # expired
        assert await theirs.use_token(b"c", other, expires_in=60, most=2) == other
        assert await ours.use_token(b"d", mine, expires_in=60, most=2) is None  # too many
        assert await ours.use_token(b"a", other, expires_in=60, most=2) == mine


async def test_finished_calls_are_deleted_after_the_retention(server, dsn):
    async with PostgresJournals(dsn, 1, retention=100) as (journal,):
        for message_id, label in (("open", None), ("over", None), ("of a run", "night:1")):
            await journal.begin(record(message_id, label=label))
        for message_id in ("over", "of a run"):
            await journal.update(message_id, 1, RecordUpdate(outcome="answered"))
        await journal.begin(record("unknown"))
        await journal.update("unknown", 1, RecordUpdate(outcome="unknown"))
        schema = dsn.rpartition("=")[2]
        server.execute(f"UPDATE {schema}.calls SET began = began - interval '101 s'")
    async with PostgresJournals(dsn, 1, retention=100) as (journal,):
        await journal.begin(record("new"))
        names = ("open", "over", "of a run", "unknown", "new")
        found = {name: await journal.find(name) for name in names}

    assert [name for name, one in found.items() if one] == ["open", "of a run", "unknown", "new"]


async def test_a_schema_of_the_first_version_is_migrated(server, dsn):
    schema = dsn.rpartition("=")[2]
    async with PostgresJournals(dsn, 1) as (journal,):
        for message_id in ("open", "unknown", "left"):
            await journal.begin(record(message_id, label=message_id))
        await journal.update("unknown", 1, RecordUpdate(outcome="unknown"))
    server.execute(
        f"DELETE FROM {schema}.version WHERE number > 1; "
        f"ALTER TABLE {schema}.calls DROP COLUMN traceparent; "
        f"UPDATE {schema}.calls SET outcome = 'forgotten' WHERE message_id = 'left'; "
        f"DROP INDEX {schema}.calls_unfinished, {schema}.calls_finished; "
        f"CREATE INDEX calls_unfinished ON {schema}.calls (agent, began) WHERE outcome IS NULL; "
        f"CREATE INDEX calls_finished ON {schema}.calls (began) WHERE outcome IS NOT NULL"
    )
    async with PostgresJournals(dsn, 2) as (ours, theirs):
        pending = await asyncio.gather(ours.unfinished(AGENT), theirs.unfinished())
        assert {one.message_id for one in pending[0] + pending[1]} == {"open", "unknown"}
        assert (await ours.claim("unknown")).outcome is None
        assert (await theirs.find_label("left")).outcome == "dismissed"
        await ours.begin(record("new", traceparent=TRACEPARENT))
        assert (await theirs.find("new")).traceparent == TRACEPARENT
        server.execute(f"UPDATE {schema}.calls SET traceparent = 'none'")
        assert (await theirs.find("new")).traceparent is None
    indexes = f"SELECT indexdef FROM pg_indexes WHERE schemaname = '{schema}'"
    assert sum("unknown" in text for (text,) in server.execute(indexes)) == 2


async def test_no_operation_reads_the_finished_calls(server, dsn):
    schema = dsn.rpartition("=")[2]
    async with PostgresJournals(dsn, 1) as (journal,):
        await journal.check()
    server.execute(
        f"INSERT INTO {schema}.calls (message_id, agent, began, is_own_context, label, outcome, "
        "generation, lease_until, written_by) SELECT 'old-' || number, 'http://agent.test/' || "
        "mod(number, 100), now(), false, CASE WHEN mod(number, 2) = 0 THEN 'run:' || number END, "
        "'answered', 1, 'epoch', gen_random_uuid() FROM generate_series(1, 20000) AS number"
    )
    server.execute(f"ANALYZE {schema}.calls")
    scans = (
        "SELECT relname, seq_scan FROM pg_stat_user_tables "
        f"WHERE schemaname = '{schema}' AND relname IN ('calls') ORDER BY relname"
    )
    before = server.execute(scans)

    async with PostgresJournals(dsn, 2) as (ours, theirs):
        for name in ("http://agent.test/7", "http://agent.test/7 http://agent.test/8"):
            await ours.begin(CallRecord(message_id=name, agent=name, label=name))
        await ours.renew([(name, 1)])
        assert await ours.update(name, 1, RecordUpdate(releases=True))
        assert (await theirs.claim(name)).generation == 2
        with pytest.raises(JournalError, match="already"):
            await theirs.begin(record("new", label="run:2"))
        assert (await theirs.find("old-1")).outcome == "answered"
        assert (await theirs.find_label("run:2")).message_id == "old-2"
        labels = await theirs.find_labels(["run:2", "run:3", "run:4"])
        assert {label: one.message_id for label, one in labels.items()} == {
            "run:2": "old-2",
            "run:4": "old-4",
        }
        assert len(await theirs.unfinished()) == 2
        assert [one.message_id for one in await theirs.unfinished("http://agent.test/8")] == [name]

    assert server.execute(scans) == before


# ── Outages of the server ────────────────────────────────────────────────────────────────────


async def test_connections_that_the_server_ends_are_replaced(server, dsn):
    async with PostgresJournals(dsn, 1) as (journal,):
        for number in range(20):
            await journal.begin(record(f"m-{number}"))
            for process in await connections(server):
                server.execute("SELECT pg_terminate_backend(%s)", process)
            assert await journal.update(f"m-{number}", 1, RecordUpdate(outcome="answered"))

        assert await journal.unfinished() == []


@pytest.mark.parametrize("is_crash", [False, True])
async def test_calls_continue_while_the_server_restarts(server, dsn, is_crash):
    async with PostgresJournals(dsn, 1) as (journal,):
        await journal.begin(record("before"))
        server.stop(is_crash=is_crash)
        work = asyncio.gather(
            journal.begin(record("during")),
            journal.update("before", 1, RecordUpdate(outcome="answered")),
            journal.renew([("before", 1)]),
        )
        await asyncio.to_thread(server.start)
        begun, was_updated, _ = await work

        assert begun.message_id == "during"
        assert was_updated
        assert [one.message_id for one in await journal.unfinished()] == ["during"]


async def test_a_server_that_stays_away_is_named_in_one_line_and_nothing_is_sent(server, dsn):
    agent = FakeAgent(completes("42"))
    journal = PostgresJournal(dsn, retry_for=0.2)
    async with connect(agent.url, journal=journal, engine=FakeNetwork(agent)) as client:
        assert (await client.ask("How far?")).text == "42"
        server.stop()
        try:
            with pytest.raises(JournalError) as caught:
                await client.ask("And back?")
        finally:
            server.start()
        assert (await client.ask("And back?")).text == "42"
    await journal.close()

    assert (caught.value.reason, caught.value.executed) == ("unreachable", False)
    assert caught.value.message.startswith("the journal postgresql://")
    assert "\n" not in caught.value.message
    assert len(agent.calls("SendStreamingMessage")) == 2


async def test_a_repeated_write_takes_effect_once(dsn):
    async with PostgresJournals(dsn, 1) as (journal,):
        cut_once = CutAfter(journal)
        cut_once.again()  # each takes effect, and its reply is lost
        await journal.begin(record())
        cut_once.again()
        assert await journal.update("m-1", 1, RecordUpdate(outcome="answered"))
        cut_once.again()
        await journal.begin(record("m-2"))
        await journal.update("m-2", 1, RecordUpdate(releases=True))
        cut_once.again()
        assert (await journal.claim("m-2")).generation == 2
        assert cut_once.count == 4


class CutAfter:
    """Loses the reply to one statement that writes, after it took effect."""

    def __init__(self, journal):
        self.count = 0
        self._server = journal._server
        run = self._server.run

        async def losing_run(work):
            def lost(connection):
                result = work(connection)
                if self._is_armed:
                    self._is_armed = False
                    self.count += 1
                    connection.close()
                    connection.execute("SELECT 1")
                return result

            return await run(lost)

        self._server.run = losing_run
        self._is_armed = False

    def again(self):
        self._is_armed = True


# ── Wrong addresses and rights ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("dsn", "why"),
    [
        ("postgresql://me:pa%zzssecret@host/db", "invalid percent-encoded"),
        ("postgresql://me:secret word@host:x/db?nonsense=1", "not a PostgreSQL connection string"),
        ("postgresql://me:secret@host/db?nonsense=1", 'invalid URI query parameter: "nonsense"'),
        ("host=db secret", "not a PostgreSQL connection string"),
        ("postgresql://host/db?pool_size=0", "pool_size must be a number from 1 to 100"),
        ("postgresql://host/db?schema=a-b", "schema must be lower-case letters"),
    ],
)
def test_a_wrong_address_is_refused_without_its_password(dsn, why):
    with pytest.raises(ValueError, match=re.escape(why)) as caught:
        PostgresJournal(dsn)

    assert "secret" not in str(caught.value)


def test_the_password_is_not_shown():
    journal = PostgresJournal("postgresql://me:secret@db.test:5433/agents?schema=mine")

    assert repr(journal) == "PostgresJournal('postgresql://me@db.test:5433/agents?schema=mine')"


async def reason_of(dsn, **options):
    agent = FakeAgent(completes("42"))
    journal = PostgresJournal(dsn, **options)
    async with connect(agent.url, journal=journal, engine=FakeNetwork(agent)) as client:
        with pytest.raises(JournalError) as caught:
            await client.ask("How far?")
    await journal.close()
    assert agent.calls("SendStreamingMessage") == []
    assert caught.value.executed is False
    assert "\n" not in caught.value.message
    return caught.value.reason, caught.value.message


async def test_a_server_that_is_not_there_is_unreachable_at_once():
    reason, message = await reason_of("postgresql:///db?host=/nowhere/at/all")

    assert reason == "unreachable"
    assert "No such file" in message


async def test_an_unknown_database_or_role_is_named(server):
    for changed, name in (("/postgres?", "nothing"), ("user=postgres", "nobody")):
        wrong = server.dsn.replace(changed, changed.replace("postgres", name))
        reason, message = await reason_of(wrong)
        assert reason == "unreachable"
        assert f'"{name}" does not exist' in message


async def test_a_role_without_rights_is_forbidden(server, dsn):
    server.execute("CREATE ROLE weak LOGIN")
    weak = dsn.replace("user=postgres", "user=weak")
    assert (await reason_of(weak))[0] == "forbidden"  # to create the schema

    async with PostgresJournals(dsn, 1) as (journal,):
        await journal.check()
    assert (await reason_of(weak))[0] == "forbidden"  # to use it

    schema = dsn.rpartition("=")[2]
    server.execute(f"GRANT USAGE ON SCHEMA {schema} TO weak")
    server.execute(
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO weak"
    )
    async with PostgresJournals(weak, 1) as (journal,):
        await journal.begin(record())


async def test_a_schema_of_a_newer_version_is_refused(server, dsn):
    async with PostgresJournals(dsn, 1) as (journal,):
        await journal.check()
    server.execute(f"INSERT INTO {dsn.rpartition('=')[2]}.version VALUES (1000)")

    reason, message = await reason_of(dsn)

    assert reason == "newer"
    assert "newer Holdfast" in message


async def test_processes_that_start_together_create_the_schema_once(dsn):
    async with PostgresJournals(dsn, 8) as journals:
        await asyncio.gather(*(journal.check() for journal in journals))


async def test_a_read_only_journal_writes_nothing(server, dsn):
    assert (await reason_of(dsn, read_only=True))[0] == "read_only"
    schema = dsn.rpartition("=")[2]
    assert server.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", schema) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_leaves_the_connections_of_its_parent_alone(dsn):
    journal = PostgresJournal(dsn)
    asyncio.run(journal.begin(record("parent")))
    child = os.fork()
    if child == 0:
        asyncio.run(journal.begin(record("child")))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)

    async def look():
        names = [one.message_id for one in await journal.unfinished()]
        await journal.close()
        return names

    assert asyncio.run(look()) == ["parent", "child"]


class PostgresJournals:
    """Several journals of one database, as several machines have them."""

    def __init__(self, dsn, count, **options):
        self._journals = [PostgresJournal(dsn, **options) for _ in range(count)]

    async def __aenter__(self):
        return self._journals

    async def __aexit__(self, *_error):
        for journal in self._journals:
            await journal.close()
