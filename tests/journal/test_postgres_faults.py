"""The journal in PostgreSQL through faults: nothing is executed twice, and no call is lost."""

import asyncio
import contextlib
import itertools
import socket

import psycopg
import pytest
from tests.kit.postgres_proxy import PostgresPooler, PostgresProxy
from tests.kit.postgres_server import Postgres

from holdfast import PostgresJournal, connect
from holdfast._journal import postgres_server
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


def journal_at(dsn, **options):
    """Return a journal of the test's own."""
    return PostgresJournal(f"{dsn}&schema=faults_{next(_numbers)}", **options)


def record(message_id="m-1", **more):
    return CallRecord(message_id=message_id, agent=AGENT, **more)


# ── Calls through faults ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "at"),
    [(Postgres.end_some, range(0, 12, 3)), (Postgres.crash, [7]), (None, [])],
    ids=["terminated", "restarted", "cut and delayed"],
)
async def test_two_machines_send_each_message_of_a_run_once_through_faults(server, fault, at):
    """The faults come while messages are on their way, and their outcomes are to be recorded."""
    arrived = itertools.count()

    def behave(turn):
        if next(arrived) in at:
            fault(server)
        return completes(turn.message.text, after=1)

    agent = FakeAgent(behave)
    texts = [f"Question {number}" for number in range(12)]
    schema = f"faults_{next(_numbers)}"

    async def machine(journal):
        async with connect(agent.url, journal=journal, engine=FakeNetwork(agent)) as client:
            results = [result async for result in client.run(texts, run_id="night", concurrency=8)]
            pending = await client.pending()
        await journal.close()
        return {result.key: result.error or result.answer.text for result in results}, pending

    with contextlib.ExitStack() as stack:
        proxy = None if fault else stack.enter_context(PostgresProxy(server))
        dsn = f"{(proxy or server).dsn}&schema={schema}"
        journals = [PostgresJournal(dsn), PostgresJournal(dsn)]
        for journal in journals:
            await journal.check()  # a first connection that fails is not repeated
        if proxy:
            proxy.cuts, proxy.delay = 0.06, 0.002
        ended = await asyncio.gather(*map(machine, journals))

    expected = {str(number): text for number, text in enumerate(texts)}
    assert ended == [(expected, []), (expected, [])]
    assert {len(tasks) for tasks in agent.executions.values()} == {1}
    assert len(agent.executions) == len(texts)
    assert proxy is None or proxy.cut_count > 0


async def test_an_operation_is_repeated_after_a_conflict_of_serializable_transactions(server):
    """PostgreSQL refuses to change a row that another transaction has changed meanwhile."""
    server.execute("CREATE ROLE careful LOGIN SUPERUSER")
    server.execute("ALTER ROLE careful SET default_transaction_isolation = 'serializable'")
    journal = journal_at(server.dsn.replace("user=postgres", "user=careful"))
    await journal.begin(record())
    with psycopg.connect(server.dsn) as other:
        table = f"{journal._server._address.schema}.calls"
        other.execute(f"UPDATE {table} SET detail = 'changed'")
        renewing = asyncio.ensure_future(journal.renew([("m-1", 1)]))
        while not waits_for_lock(server, "transactionid"):  # noqa: ASYNC110  only the server knows
            await asyncio.sleep(0)
        other.commit()

        assert await renewing == {"m-1"}
    await journal.close()


async def test_a_connection_that_a_failure_left_in_the_middle_of_a_statement_is_replaced(
    server, monkeypatch
):
    """The kernel may report the error of a socket a moment before its end: psycopg stops there."""
    journal = journal_at(f"{server.dsn}&pool_size=1")
    await journal.begin(record())
    wait, failures = psycopg.waiting.wait, iter(["connection socket closed"])

    def failing_wait(generator, *args, **options):
        if failure := next(failures, None):
            next(generator)  # the statement is sent
            raise psycopg.OperationalError(failure)
        return wait(generator, *args, **options)

    monkeypatch.setattr(psycopg.waiting, "wait", failing_wait)

    assert await journal.renew([("m-1", 1)]) == {"m-1"}
    assert next(failures, "used") == "used"
    await journal.close()


# ── Durability ───────────────────────────────────────────────────────────────────────────────


async def test_a_server_that_confirms_early_is_made_to_wait_for_its_disk(server):
    server.execute("ALTER SYSTEM SET synchronous_commit = off")
    server.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
    server.execute("SELECT pg_reload_conf()")
    journal = journal_at(server.dsn)
    try:
        for number in range(3):
            await journal.begin(record(f"m-{number}"))
        server.stop(is_crash=True)
        server.start()
        assert len(await journal.unfinished()) == 3

        with PostgresPooler(server) as pooler:
            behind = journal_at(pooler.dsn)
            with pytest.raises(JournalError, match=r"ALTER ROLE … SET synchronous_commit = on"):
                await behind.begin(record())
            await behind.close()
    finally:
        server.execute("ALTER SYSTEM RESET ALL")
        server.execute("SELECT pg_reload_conf()")
        await journal.close()


# ── A server that hangs ──────────────────────────────────────────────────────────────────────


async def test_closing_ends_the_operations_of_a_server_that_hangs(server, monkeypatch):
    monkeypatch.setattr(postgres_server, "_CLOSING_S", 0.05)
    with PostgresProxy(server) as proxy:
        journal = journal_at(f"{proxy.dsn}&pool_size=1")
        await journal.begin(record())
        proxy.hold()
        working = [
            asyncio.ensure_future(journal.update("m-1", 1, RecordUpdate(state="x")))
            for _ in range(10)  # more than there are connections
        ]
        await asyncio.sleep(0)
        await journal.close()
        errors = await asyncio.gather(*working, return_exceptions=True)

    assert {getattr(error, "reason", error) for error in errors} == {"unreachable"}


async def test_closing_ends_an_operation_that_waits_for_the_migration_of_another_process(
    server, monkeypatch
):
    monkeypatch.setattr(postgres_server, "_CLOSING_S", 0.05)
    with psycopg.connect(server.dsn, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (postgres_server._LOCK,))
        journal = journal_at(f"{server.dsn}&schema=migrated_elsewhere")
        working = asyncio.ensure_future(journal.begin(record()))
        while not waits_for_lock(server):  # noqa: ASYNC110  only the server knows
            await asyncio.sleep(0)
        await journal.close()

        with pytest.raises(JournalError) as caught:
            await working
    assert caught.value.reason == "unreachable"


def waits_for_lock(server, kind="advisory"):
    with psycopg.connect(server.dsn, autocommit=True) as looking:
        query = "SELECT count(*) FROM pg_locks WHERE locktype = %s AND NOT granted"
        return looking.execute(query, (kind,)).fetchone() != (0,)


# ── Poolers and addresses ────────────────────────────────────────────────────────────────────


@pytest.mark.real_time
async def test_the_journal_works_behind_a_pooler_that_assigns_connections_by_transaction(server):
    with PostgresPooler(server) as pooler:
        dsn = f"{pooler.dsn}&schema=pooled"
        await check_journal(lambda: PostgresJournal(dsn, lease=0.3))


async def test_what_a_pooler_or_a_server_refuses_at_once_is_named_in_one_line(server):
    server.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
    rules = server.directory / "data" / "pg_hba.conf"
    rules.write_text(f"local all locked scram-sha-256\n{rules.read_text()}")
    server.execute("SELECT pg_reload_conf()")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = taken.getsockname()[1]
    with PostgresPooler(server) as pooler:
        refused = {
            f"{pooler.dsn}&options=-csearch_path%3Dmine": (
                "unsupported startup parameter: options"
            ),
            f"postgresql://127.0.0.1:{nobody}/db": "Connection refused",
            server.dsn.replace("user=postgres", "user=locked&password=wrong-secret"): (
                'password authentication failed for user "locked"'
            ),
        }
        agent = FakeAgent(completes("42"))
        for dsn, why in refused.items():
            async with connect(agent.url, journal=dsn, engine=FakeNetwork(agent)) as client:
                with pytest.raises(JournalError) as caught:
                    await client.ask("How far?")
            assert (caught.value.reason, caught.value.executed) == ("unreachable", False)
            assert why in caught.value.message
            assert "\n" not in caught.value.message
            assert "secret" not in caught.value.message
        assert agent.calls("SendStreamingMessage") == []
