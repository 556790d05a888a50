"""Processes with workflows of DBOS to be killed: see `killed_client`, which forks them.

A job has the members of `Job` besides ``id``.
"""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from dbos import DBOS, SetWorkflowID
from tests.kit.killed_client import RESILIENCE, DyingJournal, main
from tests.kit.workflow_rounds import UNKNOWN

import holdfast
from holdfast._journal.resolve import open_journal
from holdfast.integrations.dbos import ask_agent


@dataclass(frozen=True)
class Job:
    """What a process works on.

    Attributes:
        database: Where DBOS keeps its workflows.
        journal: A path, or an address of PostgreSQL.
        agent: The agent's address.
        names: The ids of the workflows, and what they ask.
        report: The file for the results, as a JSON object by name.
        dies: The call of the journal at which the process kills itself, as `killed_client.Job`
            has it; None for none.
    """

    id: int
    database: str
    journal: str
    agent: str
    names: list
    report: str
    dies: list | None = None


class Agent:
    """The client of this process."""

    client = None


@DBOS.workflow()
async def order(name):
    try:
        return (await ask_agent(Agent.client, name, step={"interval_seconds": 0.1})).text
    except holdfast.OutcomeUnknownError:
        return UNKNOWN


@DBOS.workflow()
async def order_in_a_step():
    try:
        await DBOS.run_step_async({"name": "outer"}, ask_agent, Agent.client, "in a step")
    except ValueError as error:
        return f"ValueError: {error}"


@DBOS.workflow()
async def order_with_an_empty_key():
    try:
        await ask_agent(Agent.client, "with an empty key", key="")
    except ValueError as error:
        return f"ValueError: {error}"


async def run(job):
    journal = open_journal("journal", job.journal, lease=0.5)
    if job.dies is not None:
        journal = DyingJournal(journal, *job.dies)
    Agent.client = holdfast.connect(
        job.agent,
        url=f"{job.agent}rpc",
        journal=journal,
        resilience=RESILIENCE,
    )
    DBOS(config={"name": "orders", "system_database_url": job.database, "log_level": "ERROR"})
    DBOS.launch()  # which continues the workflows of a killed process
    results = {}
    for name in job.names:
        with SetWorkflowID(name):
            results[name] = await DBOS.start_workflow_async(order, name)
    with SetWorkflowID("in a step"):
        results["in a step"] = await DBOS.start_workflow_async(order_in_a_step)
    with SetWorkflowID("with an empty key"):
        results["with an empty key"] = await DBOS.start_workflow_async(order_with_an_empty_key)
    return {name: await handle.get_result() for name, handle in results.items()}


def work(job):
    os.dup2(2, 1)  # standard output is for the parent
    job = Job(**job)
    Path(job.report).write_text(json.dumps(asyncio.run(run(job))))


if __name__ == "__main__":
    sys.exit(main(work))
