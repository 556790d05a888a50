"""The pages about a journal in PostgreSQL: their code runs as it stands, on a real server."""

import functools
import re

import pytest
from tests.kit.pages import Page, execute
from tests.kit.postgres_server import Postgres

import holdfast
from holdfast import errors
from holdfast.testing import FakeAgent, FakeNetwork, completes

PAGE = Page("docs/howto/another-machine.md")
OPERATIONS = Page("docs/howto/operate-a-journal.md")
HERE = "http://localhost:9999"


@pytest.fixture(scope="module")
def server():
    server = Postgres()
    for statement in statements("CREATE ROLE agents"):
        server.execute(statement)
    yield server
    server.close()


def statements(text):
    blocks = re.findall(r"```sql\n(.*?)```", OPERATIONS.text, flags=re.DOTALL)
    [block] = [block for block in blocks if text in block]
    return [statement for statement in block.split(";") if statement.strip()]


@pytest.fixture
def dsn(server):
    yield server.dsn.replace("user=postgres", "user=agents")
    server.execute("DROP SCHEMA IF EXISTS holdfast, orders CASCADE")
    server.execute("CREATE SCHEMA holdfast AUTHORIZATION agents")
    server.execute("GRANT CREATE ON DATABASE postgres TO agents")


@pytest.fixture
def run(dsn, monkeypatch):
    """Run a block against a fake agent, with the journal of the test."""
    agent = FakeAgent(completes("384,400 km", after=60), url=HERE)
    connect = functools.partial(holdfast.connect, engine=FakeNetwork(agent))
    monkeypatch.setattr(holdfast, "connect", connect)

    async def run(text):
        printed = []
        block = PAGE.block(text).replace("/agents?", "/agents&")
        code = block.replace("postgresql://agents@db.example/agents", dsn)
        await execute(code, print=lambda *words: printed.append(words))
        return printed

    run.agent = agent
    return run


async def test_machines_share_a_journal_and_resume_the_calls_of_each_other(run, dsn):
    assert await run('Order one pizza.")\n') == [("384,400 km",)]
    async with holdfast.connect(HERE, journal=dsn) as crashed:
        with pytest.raises(holdfast.DeadlineExceededError):
            await crashed.ask("Order one pizza.", timeout=5)

    [(_, text)] = await run("resume_pending")

    assert text == "384,400 km"
    assert {len(tasks) for tasks in run.agent.executions.values()} == {1}


async def test_a_key_is_executed_once(run):
    for _ in range(2):
        assert await run('key="order-17"') == [("384,400 km",)]
    assert len(run.agent.executions) == 1


async def test_a_run_is_shared(run):
    *results, others = await run("shared=True")
    assert sorted(results) == [(str(number), "384,400 km") for number in range(3)]
    assert others == (0, "elsewhere")
    assert await run("shared=True") == [(3, "elsewhere")]


async def test_a_journal_has_options(run, server):
    server.execute("GRANT CREATE ON DATABASE postgres TO agents")
    assert await run("pool_size=8") == [([],)]


async def test_the_rights_are_sufficient_and_necessary(server, dsn):
    journal = holdfast.PostgresJournal(dsn)
    await journal.check()
    await journal.close()
    grants = statements("CREATE ROLE worker")
    server.execute(grants[0])
    worker = holdfast.PostgresJournal(dsn.replace("user=agents", "user=worker"))
    network = FakeNetwork(FakeAgent("42", url=HERE))
    async with holdfast.connect(HERE, journal=worker, engine=network) as agent:
        with pytest.raises(errors.JournalError) as caught:
            await agent.ask("How far?")
        assert (caught.value.reason, caught.value.executed) == ("forbidden", False)
        for grant in grants[1:]:
            server.execute(grant)
        assert (await agent.ask("How far?")).text == "42"
    await worker.close()


async def test_only_old_and_finished_calls_of_a_run_are_deleted(run, server, dsn):
    async with holdfast.connect(HERE, journal=dsn) as agent:
        for run_id in ("monday", "mondays"):
            async for _ in agent.run(["a", "b"], run_id=run_id):
                pass
    [count] = statements("count(*)")
    [delete] = statements("DELETE FROM")
    delete = delete.replace("%", "%%")
    server.execute(delete)
    assert [row[2] for row in server.execute(count)] == [4]
    server.execute("UPDATE holdfast.calls SET began = began - interval '91 days'")
    server.execute("UPDATE holdfast.calls SET outcome = 'unknown' WHERE label = 'monday:1'")
    server.execute(delete)

    left = server.execute("SELECT label FROM holdfast.calls ORDER BY label")
    assert [label for (label,) in left] == ["monday:1", "mondays:0", "mondays:1"]


def test_the_pages_are_complete():
    texts = (
        'Order one pizza.")\n',
        "pool_size=8",
        "resume_pending",
        'key="order-17"',
        "shared=True",
    )
    PAGE.check_complete(*texts)
    PAGE.check_pastes()
    PAGE.check_commands(at_least=2)
    assert OPERATIONS.blocks == []
    for page in (PAGE, OPERATIONS):
        page.check_links()
