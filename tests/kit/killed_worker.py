"""Workers of Temporal to be killed: see `killed_client`, which forks them.

A job has the members of `Job` besides ``id``.
"""

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import Worker
from tests.kit.killed_client import RESILIENCE, main
from tests.kit.temporal_workflows import Ask

import holdfast
from holdfast._integrations.temporal.attempt import Attempt
from holdfast._journal.resolve import open_journal
from holdfast.integrations.temporal import HoldfastPlugin


@dataclass(frozen=True)
class Job:
    """What a worker works on.

    Attributes:
        address: Where Temporal is.
        queue: The task queue.
        agent: The agent's address.
        journal: A path, or an address of PostgreSQL; None for no journal.
        dies: ``recorded``: once the server knows that the message may be sent; None for never.
    """

    id: int
    address: str
    queue: str
    agent: str
    journal: str | None = None
    dies: str | None = None


async def run(job):
    journal = job.journal and open_journal("journal", job.journal, lease=0.5)
    plugin = HoldfastPlugin(
        {
            "agent": holdfast.connect(
                job.agent, url=f"{job.agent}rpc", journal=journal, resilience=RESILIENCE
            )
        }
    )
    client = await Client.connect(job.address, plugins=[plugin])
    # A workflow waits for no cache of a worker that was killed.
    await Worker(
        client,
        task_queue=job.queue,
        workflows=[Ask],
        max_cached_workflows=0,
        max_heartbeat_throttle_interval=timedelta(seconds=1),
    ).run()


def work(job):
    os.dup2(2, 1)  # Temporal logs to standard output, which is for the parent
    job = Job(**job)
    if job.dies == "recorded":
        record = Attempt.record_sending

        async def recorded(self, journal):
            await record(self, journal)
            os.kill(os.getpid(), signal.SIGKILL)

        Attempt.record_sending = recorded
    asyncio.run(run(job))


if __name__ == "__main__":
    sys.exit(main(work))
