"""Workflows of DBOS ask agents; their processes are killed, and DBOS repeats their steps."""

import asyncio

import pytest
from tests.kit.effort import rounds
from tests.kit.killed_steps import one_round
from tests.kit.killing import processes
from tests.kit.postgres_server import Postgres


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
