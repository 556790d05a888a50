"""Workflows of DBOS ask agents; their processes are killed, and DBOS repeats their steps."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections import Counter

import pytest
from tests.kit.effort import rounds
from tests.kit.killing import LIMIT, Network, agent_behind, processes
from tests.kit.postgres_server import Postgres

from holdfast.testing import FakeAgent, LoopbackServer

KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def postgres():
    server = Postgres()
    yield server
    server.close()


async def one_round(seed, path, forks, postgres=None):
    """Kill processes as the seed decides; give what does not hold."""
    dice = random.Random(seed)
    names = [f"{dice.choice(['ask', 'stream'])}-{number}-{seed}" for number in range(3)]
    path.mkdir()
    database, journal = f"sqlite:///{path}/dbos.db", str(path / "calls.db")
    if postgres is not None:
        database = f"postgresql://postgres@/orders_{seed}?host={postgres.directory}"
        journal = f"{postgres.dsn}&schema=journal_{seed}"
    report = path / "report"
    pids, fatal_message = [], dice.randint(1, 3)

    def kill_at_message():
        if network.messages == fatal_message:
            kill()

    def kill():
        while pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids.pop(), signal.SIGKILL)

    async with (
        asyncio.timeout(LIMIT),
        agent_behind(lambda to: Network(to, random.Random(seed), kill_at_message)) as (
            (agent,),
            network,
            url,
        ),
    ):

        async def process():
            pid, ended = await forks.start(
                database=database, journal=journal, agent=url, names=names, report=str(report)
            )
            pids.append(pid)
            return ended

        assert await (await process()) == KILLED
        ended = await process()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(dice.uniform(0.5, 2.0)):
                await asyncio.shield(ended)
        kill()
        await ended
        assert await (await process()) == 0
        await network.settle()
    results = json.loads(report.read_text())
    executed = Counter(task.history[0].text for task in agent.tasks.values())
    problems = [f"{name} was executed twice" for name in executed if executed[name] > 1]
    problems += [
        f"asked {wrong}"
        for wrong in ("in a step", "with an empty key")
        if not str(results.pop(wrong)).startswith("ValueError")
    ]
    for name in names:
        is_answered = results[name] == name and name in executed
        if not is_answered and results[name] != "unknown":
            problems.append((name, results[name]))
    return problems


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

    assert {seed: problems for seed, problems in enumerate(ends) if problems} == {}


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
