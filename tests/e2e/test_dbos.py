"""Workflows of DBOS ask agents; their processes are killed, and DBOS repeats their steps."""

import asyncio
import contextlib
import json
import os
import random
import signal
from collections import Counter

import pytest
from tests.kit.effort import rounds
from tests.kit.killing import LIMIT, Network, agent_behind, processes
from tests.kit.postgres_server import Postgres

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
