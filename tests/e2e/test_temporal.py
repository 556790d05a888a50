"""Workflows of Temporal ask agents: on Temporal's development server, with real workers.

Temporal's time-skipping test server is a download, and has no heartbeats of its own time: time
here is real.
"""

import asyncio
import contextlib
import random
import signal

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import CancelledError
from temporalio.worker import Replayer, Worker
from tests.kit.effort import rounds
from tests.kit.killed_workflows import (
    heartbeat_with_task,
    killed_at_message,
    one_round,
    queue_and_agent,
    started,
)
from tests.kit.killing import LIMIT, processes
from tests.kit.ports import reserve_port
from tests.kit.postgres_server import Postgres
from tests.kit.temporal_server import temporal_server
from tests.kit.temporal_workflows import Ask, AskOtherwise, Canceled, Converse

import holdfast
from holdfast import TaskState
from holdfast.integrations.temporal import HoldfastPlugin
from holdfast.testing import (
    FakeAgent,
    LoopbackServer,
    Respond,
    asks,
    completes,
    fails,
    works_forever,
)

pytestmark = pytest.mark.real_time

KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with temporal_server(tmp_path_factory.mktemp("temporal") / "stderr") as address:
        yield address


@pytest.fixture(scope="module")
def postgres():
    server = Postgres()
    yield server
    server.close()


@contextlib.asynccontextmanager
async def worker(address, agents, *workflows, **options):
    """Run a worker of its own in this process; give the client, and its task queue."""
    resilience = holdfast.Resilience.off()
    plugin = HoldfastPlugin(agents, **{"resilience": resilience, **options})
    client = await Client.connect(address, plugins=[plugin])
    queue = f"queue-{random.randbytes(8).hex()}"
    async with Worker(client, task_queue=queue, workflows=workflows):
        yield client, queue


async def until(ask, wanted):
    """Ask until the answer is the wanted one."""
    while await ask() != wanted:  # noqa: ASYNC110  # another process changes it
        await asyncio.sleep(0.02)


def behave(turn):
    match turn.message.text.split():
        case ["question", *_]:
            return asks("Which one?")
        case ["fail", *_]:
            return fails("no dough")
        case ["never", *_]:
            return works_forever()
    return completes(f"Done: {turn.message.text}", after=0.05)


async def test_human_in_the_loop_by_signal_and_replay(address, tmp_path):
    async with asyncio.timeout(LIMIT), LoopbackServer(FakeAgent(behave)) as agent:
        agents = {"agent": agent.url}
        journal = tmp_path / "calls.db"
        async with worker(address, agents, Converse, journal=journal) as (client, queue):
            workflow = await started(client, queue, Converse.run, "question")
            await until(lambda: workflow.query(Converse.question), "Which one?")
            await workflow.signal(Converse.reply, "The large one.")

            assert await workflow.result() == "Done: The large one."
            history = await workflow.fetch_history()

    assert agent.url not in str(history.events)
    plugin = HoldfastPlugin()
    await Replayer(workflows=[Converse], plugins=[plugin]).replay_workflow(history)
    with pytest.raises(Exception, match="sends the agent 'agent' another message") as changed:
        await Replayer(workflows=[AskOtherwise], plugins=[plugin]).replay_workflow(history)
    assert "workflow.patched" in str(changed.value)


async def test_errors_have_facts_and_are_retried_only_where_that_helps(address, tmp_path):
    fake = FakeAgent(behave)
    away = {"Retry-After": "0"}
    async with asyncio.timeout(LIMIT), LoopbackServer(fake) as agent:
        without_journal = holdfast.connect(agent.url, resilience=holdfast.Resilience.off())
        agents = {"agent": agent.url, "without a journal": without_journal}
        journal = tmp_path / "calls.db"
        async with (
            without_journal,
            worker(address, agents, Ask, journal=journal) as (client, queue),
        ):

            async def ask(text, key=None, agent="agent"):
                workflow = await started(client, queue, Ask.run, agent, text, key)
                result = await workflow.result()
                attempts = [
                    event.activity_task_started_event_attributes.attempt
                    async for event in workflow.fetch_history_events()
                    if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
                ]
                return result, attempts

            failed, attempts = await ask("fail")
            assert attempts == [1]
            assert failed["type"] == "TaskFailedError"
            assert failed["executed"] is True
            assert failed["task_state"] == "TASK_STATE_FAILED"
            assert failed["task_id"] in fake.tasks
            assert "no dough" in failed["message"]

            fake.inject(Respond(status=429, headers=away), on="SendStreamingMessage", times=2)
            answered, attempts = await ask("a pizza", key="order-17")
            assert (answered, attempts) == ({"text": "Done: a pizza"}, [3])

            again, attempts = await ask("a pizza", key="order-17")
            assert (again, attempts) == (answered, [1])
            conflict, attempts = await ask("two pizzas", key="order-17")
            assert (conflict["type"], conflict["executed"]) == ("KeyConflictError", False)
            assert attempts == [1]
            with pytest.raises(WorkflowFailureError) as invalid:
                await ask("a pizza", key="")
            assert "key must not be empty" in str(invalid.value.cause.cause)

            fake.inject(Respond(status=429, headers=away), on="SendStreamingMessage")
            salad, attempts = await ask("a salad", agent="without a journal")
            assert (salad, attempts) == ({"text": "Done: a salad"}, [2])

            fake.inject(Respond(status=400), on="SendStreamingMessage")
            refused, attempts = await ask("another pizza")
            assert attempts == [1]
            assert (refused["details"]["http_status"], refused["transient"]) == (400, False)

    assert sorted(map(len, fake.executions.values())) == [1, 1, 1]


async def test_the_server_shows_the_reason_of_a_failure_that_is_retried(address):
    agents = {"agent": f"http://127.0.0.1:{reserve_port()}"}
    async with asyncio.timeout(LIMIT), worker(address, agents, Converse) as (client, queue):
        workflow = await started(client, queue, Converse.run, "hello")

        async def shown():
            description = (await workflow.describe()).raw_description
            return [attempt.last_failure.message for attempt in description.pending_activities]

        while not any(await shown()):  # noqa: ASYNC110  the worker reports it
            await asyncio.sleep(0.02)
        (message,) = await shown()
        await workflow.terminate()

    assert message.startswith("the connection was refused")


async def test_cancelling_a_workflow_cancels_the_task_where_asked(address, tmp_path):
    fake = FakeAgent(behave)
    async with asyncio.timeout(LIMIT), LoopbackServer(fake) as agent:
        agents = {"agent": agent.url}
        async with worker(address, agents, Canceled) as (client, queue):

            def asked(text):
                return [task for task in fake.tasks.values() if task.history[0].text == text]

            async def cancelled(text, *, cancel_task):
                workflow = await started(client, queue, Canceled.run, text, cancel_task)
                await until(lambda: asyncio.sleep(0, bool(asked(text))), True)
                [task] = asked(text)
                await workflow.cancel()
                with pytest.raises(WorkflowFailureError) as failure:
                    await workflow.result()
                assert isinstance(failure.value.cause, CancelledError)
                return fake.tasks[task.id].state

            states = await asyncio.gather(
                cancelled("never 1", cancel_task=True), cancelled("never 2", cancel_task=False)
            )
    assert states == [TaskState.CANCELED, TaskState.WORKING]


async def test_killed_workers_execute_no_message_twice_and_every_workflow_ends(address, tmp_path):
    async def recorded():
        async with queue_and_agent(address, forks, tmp_path / "recorded") as (agent, queue):
            ended = await queue.worker("calls.db", dies="recorded")
            workflow = await queue.ask("a")
            assert await ended == KILLED
            assert agent.executions == {}
            await queue.worker("calls.db")
            return agent, await workflow.result()

    async def task_known():
        def slow(turn):
            return completes(turn.message.text, after=0.5)

        async with queue_and_agent(address, forks, tmp_path / "known", slow) as (agent, queue):
            ended = await queue.worker("here.db")
            workflow = await queue.ask("a")
            await heartbeat_with_task(workflow)
            queue.kill()
            assert await ended == KILLED
            await queue.worker("there.db")
            return agent, await workflow.result()

    async with asyncio.timeout(LIMIT), processes("killed_worker.py") as forks:
        seeds = range(rounds(2, 12))
        at_random = (one_round(address, seed, tmp_path / str(seed), forks) for seed in seeds)
        *ends, rounds_ended = await asyncio.gather(
            recorded(),
            killed_at_message(address, forks, tmp_path / "journal", "calls.db"),
            killed_at_message(address, forks, tmp_path / "none", None),
            task_known(),
            asyncio.gather(*at_random),
        )

    assert [[len(made) for made in agent.executions.values()] for agent, _ in ends] == [[1]] * 4
    found, searched, unknown, resumed = (result for _, result in ends)
    assert found == searched == resumed == {"text": "a"}
    assert (unknown["type"], unknown["executed"]) == ("OutcomeUnknownError", None)
    assert "journal=" in unknown["message"]

    assert {seed: problems for seed, (_, problems) in enumerate(rounds_ended) if problems} == {}


async def test_call_of_a_killed_worker_continues_from_a_journal_in_postgres(
    address, postgres, tmp_path
):
    path = tmp_path / "workers"
    async with asyncio.timeout(LIMIT), processes("killed_worker.py") as forks:
        agent, result = await killed_at_message(address, forks, path, postgres.dsn)

    assert result == {"text": "a"}
    [[task_id]] = agent.executions.values()
    records = "SELECT task_id, outcome, generation FROM holdfast.calls"
    assert postgres.execute(records) == [(task_id, "answered", 2)]
    assert [*path.iterdir()] == []
