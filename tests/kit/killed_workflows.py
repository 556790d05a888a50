"""Workers of Temporal are killed: no message is executed twice, and every workflow ends."""

import asyncio
import contextlib
import json
import random
import signal
from datetime import timedelta

from temporalio.client import Client
from tests.kit.killing import LIMIT, Network, agent_behind, kill_all
from tests.kit.killing import behave as echo
from tests.kit.temporal_workflows import Ask
from tests.kit.workflow_rounds import UNKNOWN, draw_names, judge

from holdfast.integrations.temporal import HoldfastPlugin

__all__ = [
    "heartbeat_with_task",
    "killed_at_message",
    "one_round",
    "queue_and_agent",
    "started",
]


async def started(client, queue, workflow, *args):
    """Start a workflow; its tasks of a killed worker are repeated soon."""
    return await client.start_workflow(
        workflow,
        args=args,
        id=f"workflow-{random.randbytes(8).hex()}",
        task_queue=queue,
        task_timeout=timedelta(seconds=1),
    )


class Queue:
    """A task queue whose workers are processes of their own.

    Attributes:
        pids: The processes.
    """

    def __init__(self, address, forks, url, client, path):
        self._forks = forks
        self._job = {"address": address, "agent": url}
        self._client = client
        self._path = path
        self._name = f"queue-{random.randbytes(8).hex()}"
        self.pids = []

    async def worker(self, journal=None, **job):
        """Start a worker; give what its exit code will be known by.

        Args:
            journal: The name of a file, or an address of PostgreSQL; None for no journal.
            job: Further members of the worker's job.
        """
        if journal is not None and "://" not in journal:
            journal = str(self._path / journal)
        pid, ended = await self._forks.start(**self._job, queue=self._name, journal=journal, **job)
        self.pids.append(pid)
        return ended

    def kill(self):
        """Kill every worker."""
        kill_all(self.pids)

    async def ask(self, text):
        """Start a workflow that asks."""
        return await started(self._client, self._name, Ask.run, "agent", text, None)


@contextlib.asynccontextmanager
async def queue_and_agent(address, forks, path, behaviour=echo, dice=None, **options):
    """Start an agent behind a network; give the agent, and a queue with no worker yet."""
    client = await Client.connect(address, plugins=[HoldfastPlugin()])
    async with agent_behind(lambda to: Network(to, dice, **options), 1, behaviour) as (
        (agent,),
        network,
        url,
    ):
        path.mkdir()
        queue = Queue(address, forks, url, client, path)
        try:
            yield agent, queue
        finally:
            queue.kill()
            await network.settle()


async def heartbeat_with_task(workflow):
    """Wait until the server knows the task of the workflow's activity."""
    while True:
        described = await workflow.describe()
        for pending in described.raw_description.pending_activities:
            for details in pending.heartbeat_details.payloads:
                if json.loads(details.data)["task_id"] is not None:
                    return
        await asyncio.sleep(0.02)


async def killed_at_message(address, forks, path, journal):
    """Kill a worker when its message has come; give the agent, and the result by another worker.

    Args:
        address: Where Temporal is.
        forks: What starts processes: `killing.processes` of ``killed_worker.py``.
        path: A directory for the workers, which does not exist yet.
        journal: The journal of both workers, as `Queue.worker` takes it.
    """

    def kill_once():
        nonlocal kill
        kill()
        kill = lambda: None  # noqa: E731

    async with queue_and_agent(address, forks, path, on_message=kill_once) as (agent, queue):
        kill = queue.kill
        ended = await queue.worker(journal)
        workflow = await queue.ask("a")
        assert await ended == -signal.SIGKILL
        await queue.worker(journal)
        return agent, await workflow.result()


async def one_round(address, seed, path, started_by):
    """Kill workers as the seed decides; give what was counted, and what does not hold.

    Args:
        address: Where Temporal is.
        seed: The seed.
        path: A directory of the round's own, which does not exist yet.
        started_by: What starts processes: `killing.processes` of ``killed_worker.py``.
    """
    dice = random.Random(seed)
    journal = dice.choice(["calls.db", "calls.db", None])
    names = draw_names(dice, seed)
    async with (
        asyncio.timeout(LIMIT),
        queue_and_agent(address, started_by, path, echo, random.Random(seed)) as (agent, queue),
    ):
        workflows = [await queue.ask(name) for name in names]
        for _ in range(2):
            await queue.worker(journal)
            await asyncio.sleep(dice.uniform(0.2, 1.5))
            queue.kill()
        await queue.worker(journal)
        ends = await asyncio.gather(*(workflow.result() for workflow in workflows))
    results = {name: _result(end) for name, end in zip(names, ends, strict=True)}
    return judge(results, agent, killed=2)


def _result(end):
    """What a workflow ended with, as `judge` takes it."""
    if end.get("type") == "OutcomeUnknownError":
        return UNKNOWN
    return end.get("text", end)
