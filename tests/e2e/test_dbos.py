"""Workflows of DBOS ask agents; their processes are killed, and DBOS repeats their steps."""

import asyncio
import sys

import pytest
from tests.kit.effort import rounds
from tests.kit.killed_steps import one_round
from tests.kit.killing import LIMIT, processes
from tests.kit.postgres_server import Postgres

from holdfast.testing import FakeAgent, LoopbackServer


@pytest.fixture(scope="module")
def postgres():
    server = Postgres()
    yield server
    server.close()


@pytest.mark.real_time
async def test_killed_processes_execute_no_message_twice_and_every_workflow_ends(
    tmp_path, postgres
):
    async with processes("killed_dbos.py") as forks:
        servers = [None, postgres] * rounds(1, 6)
        ends = await asyncio.gather(
            *(
                one_round(seed, tmp_path / str(seed), forks, server)
                for seed, server in enumerate(servers)
            )
        )

    assert {seed: problems for seed, (_, problems) in enumerate(ends) if problems} == {}
    assert sum(counted["killed"] for counted, _ in ends) >= len(servers)


CHANGED = """
import asyncio
import sys

from dbos import DBOS, SetWorkflowID

import holdfast
from holdfast.integrations.dbos import ask_agent

agent = holdfast.connect(sys.argv[1], journal="calls.db")


@DBOS.workflow()
async def order(text):
    try:
        await ask_agent(agent, text)
    except holdfast.errors.KeyConflictError as error:
        return error.message


async def main():
    DBOS(config={"name": "orders", "system_database_url": "sqlite:///orders.db"})
    DBOS.launch()
    async with agent:
        await agent.ask("One pizza.", key="dbos/order-17/1")  # as the step did, in earlier code
        with SetWorkflowID("order-17"):
            print(await (await DBOS.start_workflow_async(order, "Two pizzas.")).get_result())
    DBOS.destroy()


asyncio.run(main())
"""


@pytest.mark.real_time
async def test_a_step_with_another_message_says_that_the_workflow_has_changed(tmp_path):
    agent = FakeAgent("Ordered.")
    async with asyncio.timeout(LIMIT), LoopbackServer(agent) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CHANGED, server.url, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()

    (message,) = out.decode().splitlines()
    assert "the code or the arguments of workflow order-17 have changed: the key" in message
    assert message.endswith("was not sent: start the workflow under another id")
    assert len(agent.executions) == 1
