"""Replicas of one agent that share a store of tasks: each stands in for one that is away."""

import asyncio
import random

import pytest
from tests.kit.effort import rounds
from tests.kit.messages import message_of
from tests.kit.virtual_env import FixedDraws, SeededDraws

from holdfast import (
    A2AConnectionError,
    A2AError,
    CircuitOpenError,
    DeadlineExceededError,
    Message,
    OutcomeUnknownError,
    Part,
    ReconcilePolicy,
    Resilience,
    RetryPolicy,
    Role,
    Task,
    TaskNotFoundError,
    TaskState,
    connect,
)
from holdfast.extend import Endpoints
from holdfast.testing import (
    Cut,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    asks,
    completes,
    streams,
    works_forever,
)
from holdfast.types import TaskPushNotificationConfig

BINDINGS = ["JSONRPC", "HTTP+JSON"]

each_binding = pytest.mark.parametrize("binding", BINDINGS)
each_knowledge = pytest.mark.parametrize("shared_store", [None, True])


ONCE = Resilience(retry=RetryPolicy(max_retries=0))


class World:
    """Two replicas, `home` being the one that took the first message."""

    def __init__(
        self, behaviour, *, shared=True, said=None, env=None, shared_endpoints=None, **options
    ):
        first = FakeAgent(behaviour, url="http://agent0.test", id_suffix="-of-0")
        second = FakeAgent(
            behaviour,
            url="http://agent1.test",
            id_suffix="-of-1",
            store=first.store if shared else None,
        )
        self.agents = [first, second]
        self.network = FakeNetwork(*self.agents)
        self.client = connect(
            [agent.url for agent in self.agents],
            engine=self.network,
            shared=shared_endpoints,
            env=env or SeededDraws(),
            shared_store=said,
            **options,
        )

    @property
    def home(self):
        return next(agent for agent in self.agents if agent.executions)

    @property
    def other(self):
        return next(agent for agent in self.agents if agent is not self.home)

    async def begin(self):
        return await self.client.send_message("hello", return_immediately=True)

    def kill(self, agent=None):
        (agent or self.home).inject(Refuse(), times=100_000)

    def revive(self, agent=None):
        (agent or self.home)._faults.clear()

    def ran(self):
        return {
            message: times for agent in self.agents for message, times in agent.executions.items()
        }


def calls(agent, *operations):
    return sum(len(agent.calls(operation)) for operation in operations)


@each_binding
@each_knowledge
async def test_a_task_is_read_subscribed_to_and_canceled_at_another_replica(binding, shared_store):
    world = World(works_forever(), said=shared_store, bindings=[binding])
    task = await world.begin()
    world.kill()

    assert (await world.client.get_task(task.id)).id == task.id
    async with world.client.subscribe_to_task(task.id) as events:
        assert (await anext(events)).id == task.id
    assert (await world.client.cancel_task(task.id)).state is TaskState.CANCELED
    assert calls(world.other, "GetTask", "SubscribeToTask", "CancelTask") >= 3


async def test_a_subscription_alone_learns_that_the_store_is_shared():
    world = World(streams("a", "b", "c", every=1))
    task = await world.begin()
    world.kill()

    async with world.client.subscribe_to_task(task.id) as events:
        assert (await events.result()).text == "abc"


async def test_a_stream_cut_by_its_replicas_death_resumes_at_another_with_exact_text():
    for seed in range(4):
        world = World(streams(*"abcdef", every=1), env=SeededDraws(seed))
        for agent in world.agents:
            agent.inject(Cut(after_events=3), on="SendStreamingMessage")
        async with world.client.stream_message("hello") as events:
            await anext(events)
            world.kill()
            text = [piece async for piece in events.text_deltas()]

        assert "".join(text) == "abcdef"
        assert list(world.ran().values()) == [[events.task.id]]
        assert calls(world.other, "SubscribeToTask")


async def test_while_the_home_is_away_reads_go_to_the_others_at_once():
    world = World(works_forever())
    task = await world.begin()
    world.kill()
    await world.client.get_task(task.id)
    before = len(world.home.pending_faults), asyncio.get_running_loop().time()

    for _ in range(20):
        await world.client.get_task(task.id)

    assert (len(world.home.pending_faults), asyncio.get_running_loop().time()) == before


async def test_when_another_replica_crashes_reads_go_to_a_home_that_is_back():
    world = World(works_forever())
    task = await world.begin()
    world.kill()
    await world.client.get_task(task.id)
    await asyncio.sleep(3)
    world.revive()
    world.kill(world.other)

    for _ in range(5):
        await world.client.get_task(task.id)

    assert len(world.other.pending_faults) == 100_000 - 1


async def test_when_the_home_is_back_reads_go_there_again():
    world = World(works_forever())
    task = await world.begin()
    world.kill()
    await world.client.get_task(task.id)
    world.revive()
    await asyncio.sleep(60)
    before = calls(world.other, "GetTask")

    await world.client.get_task(task.id)

    assert calls(world.other, "GetTask") == before


async def test_an_open_circuit_at_the_home_is_passed_over_before_anything_is_known():
    endpoints = Endpoints()
    world = World(works_forever(), resilience=ONCE, shared_endpoints=endpoints)
    task = await world.begin()
    world.kill()
    beside = connect(
        world.home.url, engine=world.network, resilience=ONCE, shared=endpoints, streaming=False
    )
    for _ in range(5):
        with pytest.raises(A2AConnectionError):
            await beside.get_task(task.id)
    with pytest.raises(CircuitOpenError):
        await beside.get_task(task.id)

    assert (await world.client.get_task(task.id)).id == task.id


async def test_not_found_elsewhere_is_the_homes_failure():
    world = World(works_forever(), shared=False)
    task = await world.begin()
    world.kill()

    for call in (world.client.get_task, world.client.cancel_task):
        with pytest.raises(A2AConnectionError) as caught:
            await call(task.id)

        assert caught.value.agent.startswith(world.home.url)


@each_binding
async def test_not_found_in_a_store_said_to_be_shared_is_the_homes_failure(binding):
    world = World(works_forever(), shared=False, said=True, bindings=[binding])
    task = await world.begin()
    world.kill()

    with pytest.raises(A2AConnectionError) as caught:
        await world.client.get_task(task.id)

    assert caught.value.agent.startswith(world.home.url)
    assert calls(world.other, "GetTask")

    world.revive()
    assert (await world.client.get_task(task.id)).id == task.id


async def test_replicas_with_stores_of_their_own_are_asked_once_a_minute():
    world = World(works_forever(), shared=False)
    task = await world.begin()
    world.kill()
    for _ in range(5):
        with pytest.raises((A2AConnectionError, CircuitOpenError)):
            await world.client.get_task(task.id)

    assert calls(world.other, "GetTask") == 1

    await asyncio.sleep(60)
    with pytest.raises((A2AConnectionError, CircuitOpenError)):
        await world.client.get_task(task.id)
    assert calls(world.other, "GetTask") == 2


async def test_stores_said_to_be_separate_are_not_searched():
    world = World(works_forever(), said=False)
    task = await world.begin()
    world.kill()

    with pytest.raises(A2AConnectionError):
        await world.client.get_task(task.id)

    assert not calls(world.other, "GetTask")


@each_knowledge
async def test_a_reply_goes_to_another_replica_where_the_home_certainly_did_not_run_it(
    shared_store,
):
    for seed in range(3):
        world = World(asks_twice, said=shared_store, env=SeededDraws(seed))
        question = await world.client.send_message("hello")
        home, other = world.home, world.other
        world.kill(home)

        answer = await world.client.send_message("two", task_id=question.id)

        assert answer.state is TaskState.COMPLETED
        assert len(other.executions) == 1
        world.revive(home)
        assert (await world.client.get_task(question.id)).id == question.id


def asks_twice(turn):
    return asks("how many?") if turn.task is None else completes("done")


async def test_a_reply_stays_at_its_home_while_that_is_only_said_to_be_away():
    world = World(asks_twice)
    question = await world.client.send_message("hello")
    world.home.inject(Refuse(), on="GetTask")
    await world.client.get_task(question.id)

    await world.client.send_message("two", task_id=question.id)

    assert not world.other.executions


async def test_a_reply_that_may_have_run_at_its_home_goes_nowhere_else():
    resilience = Resilience(reconcile=ReconcilePolicy(timeout=5))
    world = World(asks_twice, said=True, resilience=resilience, streaming=False)
    question = await world.client.send_message("hello")
    world.home.inject(Reset(), on="SendMessage")
    world.kill()

    with pytest.raises(OutcomeUnknownError):
        await world.client.send_message("two", task_id=question.id)

    assert not world.other.executions


@pytest.mark.parametrize("shared", [True, False])
async def test_a_message_that_may_have_run_somewhere_is_sent_again_only_there(shared):
    world = World(
        completes("done"),
        shared=shared,
        said=shared,
        env=FixedDraws(),
        on_unknown="resend",
        streaming=False,
    )
    first, second = world.agents
    first.inject(Reset(), on="SendMessage")
    world.kill(first)

    with pytest.raises(OutcomeUnknownError):
        await world.client.send_message("hello")

    assert not second.executions


async def test_a_reply_is_not_sent_to_a_replica_that_does_not_show_its_task():
    world = World(asks_twice, shared=False, said=True)
    question = await world.client.send_message("hello")
    world.kill()

    with pytest.raises(A2AConnectionError) as caught:
        await world.client.send_message("two", task_id=question.id)

    assert caught.value.executed is False
    assert not world.other.executions


@each_knowledge
async def test_a_lost_reply_is_found_in_the_store_by_another_replica(shared_store):
    for seed in range(3):
        world = World(
            completes("done", after=1), said=shared_store, env=SeededDraws(seed), streaming=False
        )
        if shared_store is None:  # then it takes a task of the home to find out
            for _ in range(6):
                await world.client.send_message("before")
        before = {agent: len(agent.executions) for agent in world.agents}
        for agent in world.agents:
            agent.inject(Reset(after_execution=True), on="SendMessage")
        sending = asyncio.create_task(world.client.send_message("hello"))
        await asyncio.sleep(0.01)
        home = next(agent for agent in world.agents if len(agent.executions) > before[agent])
        world.kill(home)

        assert (await sending).state is TaskState.COMPLETED
        assert sum(len(agent.executions) for agent in world.agents) == sum(before.values()) + 1


async def test_a_conversation_continues_at_another_replica():
    world = World(completes("done"))
    task = await world.client.send_message("hello")
    world.kill()
    more = Message(
        message_id="more",
        role=Role.USER,
        parts=(Part(text="more"),),
        context_id=task.context_id,
    )

    assert (await world.client.send_message(more)).context_id == task.context_id
    assert list(world.other.executions) == ["more"]


async def test_a_second_page_comes_from_another_replica_where_the_store_is_shared():
    world = World(completes("done"), said=True)
    for _ in range(4):
        await world.client.send_message("hello")
    page = await world.client.list_tasks(limit=2)
    first = next(agent for agent in world.agents if agent.calls("ListTasks"))
    world.kill(first)

    rest = await world.client.list_tasks(limit=2, page_token=page.next_page_token)

    assert len({task.id for task in (*page.tasks, *rest.tasks)}) == 4


@each_knowledge
async def test_a_push_configuration_goes_to_another_replica(shared_store):
    world = World(works_forever(), said=shared_store)
    task = await world.begin()
    world.kill()

    await world.client.create_task_push_notification_config(
        TaskPushNotificationConfig(task_id=task.id, url="https://hook.example")
    )

    assert calls(world.other, "CreateTaskPushNotificationConfig") == 1


async def test_read_in_flight_survives_a_crash_of_its_replica_under_load():
    world = World(works_forever())
    tasks = [await world.begin() for _ in range(30)]
    victim = world.agents[0]
    victim.inject(Reset(), on="GetTask", times=15)
    world.kill(victim)

    shown = await asyncio.gather(*(world.client.get_task(task.id) for task in tasks))

    assert [task.id for task in shown] == [task.id for task in tasks]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("seed", range(rounds(2, 50)))
async def test_replicas_that_crash_in_turn_run_no_message_twice_and_lose_no_task(seed, shared):
    dice = random.Random(seed)
    world = World(asks_twice, shared=shared, env=SeededDraws(seed), streaming=dice.random() < 0.5)
    sent, shown = {}, []

    async def result_of(call):
        try:
            return await call
        except A2AError as error:
            return error

    async def say(text, task_id=None):
        message = message_of(text, f"m-{len(sent)}", task_id=task_id)
        sent[message.message_id] = None
        result = await result_of(world.client.send_message(message, timeout=100))
        sent[message.message_id] = result
        return result

    async def caller():
        for _ in range(6):
            task = await say("hello")
            await asyncio.sleep(5 * dice.random())
            if isinstance(task, Task):
                shown.append(await result_of(world.client.get_task(task.id)))
                await say("two", task.id)

    killing = asyncio.create_task(_kill_in_turn(world, dice))
    await asyncio.gather(*(caller() for _ in range(6)))
    killing.cancel()

    failed = [result for result in shown if isinstance(result, A2AError)]
    assert not (shared and failed)
    errors = [result for result in sent.values() if isinstance(result, A2AError)]
    assert not shared or all(isinstance(error, OutcomeUnknownError) for error in errors), errors
    assert not any(isinstance(error, TaskNotFoundError) for error in failed)
    for message_id, result in sent.items():
        times = sum(len(agent.executions.get(message_id, ())) for agent in world.agents)
        assert times <= 1
        if isinstance(result, Task) or result.executed is not None:
            assert times == (isinstance(result, Task) or result.executed)


async def _kill_in_turn(world, dice):
    """Kills one replica after the other, and revives it well before the next."""
    while True:
        for victim in world.agents:
            for _ in range(dice.randrange(3)):
                victim.inject(Reset(after_execution=dice.random() < 0.5))
            world.kill(victim)
            await asyncio.sleep(4 * dice.random())
            world.revive(victim)
            await asyncio.sleep(8 + 2 * dice.random())


async def test_a_task_that_no_replica_knows_is_not_found():
    world = World(works_forever(), said=True)

    with pytest.raises(TaskNotFoundError):
        await world.client.get_task("task-77")


def test_anything_else_than_a_bool_is_refused():
    with pytest.raises(TypeError, match="shared_store"):
        connect(["http://a.test", "http://b.test"], shared_store="yes")


async def test_a_call_in_the_journal_resumes_at_another_replica(tmp_path):
    world = World(completes("done", after=30), env=FixedDraws(), journal=tmp_path / "calls.db")
    with pytest.raises(DeadlineExceededError):
        await world.client.ask("hello", timeout=2)
    await world.client.close()
    world.kill(world.agents[0])
    after = connect(
        [agent.url for agent in world.agents],
        engine=world.network,
        journal=tmp_path / "calls.db",
    )

    answers = [await call.resume() for call in await after.pending()]

    assert [answer.text for answer in answers] == ["done"]
    assert list(map(len, world.ran().values())) == [1]
    await after.close()
