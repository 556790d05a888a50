"""One agent at several places: they share the work, and stand in for each other."""

import asyncio
import math
import random

import pytest
from hypothesis import strategies as st
from tests.kit.effort import rounds
from tests.kit.strategies import given
from tests.kit.virtual_env import FixedDraws, SeededDraws

from holdfast import (
    A2AConnectionError,
    A2AError,
    AgentCard,
    BudgetPolicy,
    CircuitOpenError,
    Message,
    OutcomeUnknownError,
    Part,
    Resilience,
    RetryPolicy,
    Role,
    TaskNotFoundError,
    TaskState,
    connect,
)
from holdfast.errors import InternalError, TaskNotCancelableError
from holdfast.extend import Endpoints
from holdfast.protocol import GET_TASK
from holdfast.testing import (
    Cut,
    Delay,
    Fail,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    Respond,
    Stall,
    asks,
    bad_gateway,
    completes,
    run,
    streams,
    works_forever,
)
from holdfast.types import AgentCapabilities, AgentInterface, GetTaskRequest

ONCE = Resilience(retry=RetryPolicy(max_retries=0))
QUICK = Resilience(retry=RetryPolicy(max_retries=2))
SPENT = Resilience(budget=BudgetPolicy(tokens=1, seconds_per_token=math.inf))


def now():
    return asyncio.get_running_loop().time()


def several(count=2, behaviour=None, **options):
    agents = [
        FakeAgent(
            behaviour or completes(str(n)), url=f"http://agent{n}.test", id_suffix=f"-of-{n}"
        )
        for n in range(count)
    ]
    options.setdefault("env", SeededDraws())
    client = connect([agent.url for agent in agents], engine=FakeNetwork(*agents), **options)
    return agents, client


def ran(agents):
    return [len(agent.executions) for agent in agents]


async def test_places_that_are_alike_share_the_work():
    agents, client = several(3)

    for _ in range(300):
        await client.ask("hello")

    assert sum(ran(agents)) == 300
    assert min(ran(agents)) > 60


async def test_one_that_is_busy_gets_less():
    agents, client = several(2, streaming=False)
    agents[0].inject(Delay(seconds=100), on="SendMessage", times=3)
    slow = [asyncio.create_task(client.send_message("slow")) for _ in range(6)]
    await asyncio.sleep(1)
    before = ran(agents)

    for _ in range(10):
        await client.send_message("quick")

    assert ran(agents)[1] - before[1] == 10
    await asyncio.gather(*slow)


async def test_a_call_that_one_does_not_take_goes_to_the_other():
    met = 0
    for seed in range(8):
        agents, client = several(env=SeededDraws(seed))
        agents[0].inject(Refuse(), on="SendStreamingMessage")

        assert (await client.ask("hello")).task.state is TaskState.COMPLETED

        assert ran(agents) == [0, 1]
        met += not agents[0].pending_faults
    assert met


async def test_a_retry_goes_where_the_call_has_not_failed_yet():
    for seed in range(6):
        agents, client = several(3, env=SeededDraws(seed), resilience=QUICK)
        for agent in agents:
            # It says that the agent is there, so that no other call avoids it.
            agent.inject(Fail(code=-32603, retry_after=0), on="ListTasks")

        with pytest.raises(InternalError):
            await client.list_tasks()

        assert [len(agent.pending_faults) for agent in agents] == [0, 0, 0]


async def test_a_spent_budget_lets_a_call_go_to_each_place_once():
    agents, client = several(3, resilience=SPENT)
    for agent in agents:
        agent.inject(Refuse(), on="ListTasks", times=9)

    with pytest.raises(A2AConnectionError) as caught:
        await client.list_tasks()

    assert [len(agent.pending_faults) for agent in agents] == [8, 8, 8]
    assert "budget" in caught.value.retry_stopped_reason


async def test_one_that_fails_at_once_does_not_draw_the_calls_to_itself():
    agents, client = several(2, resilience=Resilience(breaker=None, budget=None))
    agents[0].inject(Refuse(), on="SendStreamingMessage", times=100_000)
    before = len(agents[0].pending_faults)

    for _ in range(200):
        await client.ask("hello")
        await asyncio.sleep(0.05)

    assert ran(agents) == [0, 200]
    assert before - len(agents[0].pending_faults) <= 15


async def test_one_that_is_back_gets_its_share_again():
    agents, client = several()
    agents[0].inject(Refuse(), on="SendStreamingMessage")
    for _ in range(100):
        await client.ask("hello")
        await asyncio.sleep(0.05)
    assert ran(agents)[0] < 10

    await asyncio.sleep(60)
    before = ran(agents)
    for _ in range(100):
        await client.ask("hello")

    assert ran(agents)[0] - before[0] > 25


async def test_while_one_is_dead_no_call_is_lost():
    agents, client = several(3)
    for fault in (Refuse(), Refuse(), Refuse()):
        agents[0].inject(fault, times=10_000)

    answers = await asyncio.gather(*(client.ask("hello") for _ in range(300)))

    assert len(answers) == 300
    assert ran(agents)[0] == 0


async def test_what_belongs_to_a_task_goes_where_it_was_made():
    _, client = several(4, behaviour=works_forever())
    tasks = [await client.send_message("hello", return_immediately=True) for _ in range(20)]

    for task in tasks:
        assert (await client.get_task(task.id)).id == task.id
        assert (await client.cancel_task(task.id)).state is TaskState.CANCELED


async def test_a_conversation_stays_where_it_began():
    agents, client = several(4)
    task = await client.send_message("hello")

    for _ in range(10):
        message = Message(
            message_id=f"m-{random.random()}",
            role=Role.USER,
            parts=(Part(text="more"),),
            context_id=task.context_id,
        )
        await client.send_message(message)

    assert sorted(ran(agents)) == [0, 0, 0, 11]


async def test_a_question_is_answered_where_it_was_asked():
    agents, client = several(3, behaviour=lambda turn: asks("how many?"))
    talk = client.conversation(on_input=lambda asked: "two", max_turns=3)
    with pytest.raises(A2AError):
        await talk.ask("pizza")

    assert sorted(ran(agents))[:2] == [0, 0]


async def test_task_of_another_program_is_searched_at_every_replica():
    agents, client = several(3, behaviour=works_forever())
    task = await client.send_message("hello", return_immediately=True)

    other = connect(
        [agent.url for agent in agents], engine=FakeNetwork(*agents), env=SeededDraws(2)
    )
    assert (await other.get_task(task.id)).id == task.id
    assert (await other.cancel_task(task.id)).state is TaskState.CANCELED


async def test_a_task_that_is_unknown_is_not_found():
    _, client = several(3)

    with pytest.raises(TaskNotFoundError):
        await client.get_task("task-77")


async def test_not_found_is_not_said_while_one_cannot_be_asked():
    agents, client = several(2, resilience=ONCE)
    agents[1].inject(Refuse(), on="GetTask", times=100)

    with pytest.raises(A2AConnectionError) as caught:
        await client.cancel_task("task-77")

    assert caught.value.executed is False
    assert {attempt.agent for attempt in caught.value.attempts} >= {f"{agents[1].url}/rpc"}


async def test_a_search_that_fails_for_a_moment_is_made_again():
    agents, client = several(2, behaviour=works_forever())
    task = await client.send_message("hello", return_immediately=True)
    for agent in agents:
        agent.inject(Refuse(), on="GetTask")

    other = connect(
        [agent.url for agent in agents], engine=FakeNetwork(*agents), env=SeededDraws(2)
    )

    assert (await other.cancel_task(task.id)).state is TaskState.CANCELED


async def test_a_search_that_is_made_again_is_no_second_cancel():
    agents, client = several(2, behaviour=works_forever())
    task = await client.send_message("hello", return_immediately=True)
    await client.cancel_task(task.id)
    for agent in agents:
        agent.inject(Reset(after_execution=True), on="GetTask")

    other = connect(
        [agent.url for agent in agents], engine=FakeNetwork(*agents), env=SeededDraws(2)
    )

    with pytest.raises(TaskNotCancelableError):
        await other.cancel_task(task.id)


async def test_lost_reply_is_searched_at_the_replica_that_got_the_message():
    for seed in range(6):
        agents, client = several(3, streaming=False, env=SeededDraws(seed))
        for agent in agents:
            agent.inject(Reset(after_execution=True), on="SendMessage")

        task = await client.send_message("hello")

        assert task.state is TaskState.COMPLETED
        assert sorted(ran(agents)) == [0, 0, 1]


async def test_what_may_have_run_is_never_sent_to_another():
    agents, client = several(3, resilience=ONCE, on_unknown="raise")
    for agent in agents:
        agent.inject(Stall(after_execution=True), on="SendMessage")

    with pytest.raises(OutcomeUnknownError):
        await client.send_message("hello", timeout=20)

    assert sum(ran(agents)) == 1


async def test_a_stream_continues_where_it_began():
    agents, client = several(3, behaviour=streams("a", "b", "c", every=1))
    for agent in agents:
        agent.inject(Cut(after_events=2), on="SendStreamingMessage")

    assert (await client.ask("hello")).text == "abc"
    assert sorted(ran(agents)) == [0, 0, 1]


async def test_the_place_of_a_task_is_known_from_its_stream():
    for seed in range(4):
        agents, client = several(3, behaviour=streams("a", "b", every=1), env=SeededDraws(seed))
        async with client.stream_message("hello") as stream:
            task = await anext(stream)

            assert (await client.get_task(task.id)).id == task.id

        assert sum(len(agent.calls("GetTask")) for agent in agents) == 1


async def test_pages_of_a_list_come_from_one_place():
    agents, client = several(3)
    for _ in range(30):
        await client.send_message("hello")
    page = await client.list_tasks(limit=3)
    home = {task.id for task in page.tasks}

    while page.next_page_token:
        page = await client.list_tasks(limit=3, page_token=page.next_page_token)
        home |= {task.id for task in page.tasks}

    assert len(home) in ran(agents)


async def test_lists_of_two_replicas_walked_at_once_are_not_mixed():
    agents, client = several(2)
    for n in range(28):
        await client.send_message(f"hello {n}")
    tasks = [set(agent.tasks) for agent in agents]
    assert all(tasks)

    async def walk():
        found = []
        async for task in client.iter_tasks(limit=3):
            found.append(task.id)
            await asyncio.sleep(0.1)
        return found

    walks = await asyncio.gather(*(walk() for _ in range(10)))

    assert all(len(walk) == len(set(walk)) and set(walk) in tasks for walk in walks)
    assert {frozenset(walk) for walk in walks} == set(map(frozenset, tasks))


async def test_a_page_token_leads_to_its_replica_from_another_program():
    agents, client = several(2)
    for n in range(20):
        await client.send_message(f"hello {n}")
    page = await client.list_tasks(limit=2)
    home = next(agent for agent in agents if agent.calls("ListTasks"))
    urls = [agent.url for agent in reversed(agents)]
    other = connect(urls, engine=FakeNetwork(*agents), env=SeededDraws(2))

    for _ in range(4):
        page = await other.list_tasks(limit=2, page_token=page.next_page_token)

    assert len(home.calls("ListTasks")) == 5


async def test_a_page_token_of_a_program_without_replicas_is_passed_on_as_it_is():
    agents, client = several(2)
    for agent in agents:
        alone = connect(agent.url, engine=FakeNetwork(agent))
        for _ in range(3):
            await alone.send_message("hello")
    token = (await alone.list_tasks(limit=2)).next_page_token

    assert len((await client.list_tasks(limit=2, page_token=token)).tasks) == 1


async def test_when_all_are_away_the_first_to_come_back_says_when():
    agents, client = several(2, resilience=ONCE)
    for agent in agents:
        agent.inject(Refuse(), on="ListTasks", times=5)
    for _ in range(10):
        with pytest.raises(A2AConnectionError):
            await client.list_tasks()
        await asyncio.sleep(0.1)

    with pytest.raises(CircuitOpenError) as caught:
        await client.list_tasks()

    assert 0 < caught.value.retry_after <= 6


async def test_one_whose_card_cannot_be_had_is_passed_over():
    agents, client = several(2)
    agents[0].inject(Refuse(), on="GetAgentCard", times=1000)

    for _ in range(10):
        await client.ask("hello")

    assert ran(agents) == [0, 10]
    assert (await client.agent_card()).name


@pytest.mark.parametrize("dead", [0, 1])
@pytest.mark.parametrize("fault", [Refuse(), Stall()], ids=["refuses", "silent"])
async def test_one_that_is_dead_from_the_start_costs_a_second_at_most(fault, dead):
    for seed in range(5):
        agents, client = several(2, env=SeededDraws(seed))
        for operation in ("GetAgentCard", "SendStreamingMessage"):
            agents[dead].inject(fault, on=operation, times=1000)
        began = now()

        await asyncio.gather(*(client.ask("hello") for _ in range(3)))
        await client.ask("hello")

        assert now() - began <= 1
        assert ran(agents)[dead] == 0


async def test_one_whose_card_is_slow_is_used_where_the_other_one_is_dead_by_then():
    agents, client = several(2)
    agents[1].inject(Delay(seconds=5), on="GetAgentCard", times=1000)
    await client.ask("hello")
    for operation in ("GetAgentCard", "SendStreamingMessage", "GetTask"):
        agents[0].inject(Refuse(), on=operation, times=1000)

    await client.ask("hello")

    assert ran(agents) == [1, 1]


async def test_without_any_card_the_error_is_that_of_the_first():
    agents, client = several(2)
    for agent, fault in zip(agents, (bad_gateway(), Refuse()), strict=True):
        agent.inject(fault, on="GetAgentCard", times=1000)

    with pytest.raises(A2AError) as caught:
        await client.agent_card()

    assert caught.value.http_status == 502


async def test_an_open_stream_counts_as_work():
    agents, client = several(2, behaviour=streams("a", "b", every=1))
    opened = []
    for _ in range(10):
        stream = client.stream_message("hello")
        await stream.__aenter__()
        await anext(stream)
        opened.append(stream)

    assert ran(agents) == [5, 5]
    for stream in opened:
        await stream.__aexit__(None, None, None)


@pytest.mark.parametrize("agents", [[], ()])
def test_a_list_of_none_is_refused(agents):
    with pytest.raises(ValueError, match="the list of agents must not be empty; pass a URL"):
        connect(agents)


def test_one_address_for_several_is_refused():
    with pytest.raises(ValueError, match="several"):
        connect(["http://a.test", "http://b.test"], url="http://c.test/rpc")


@pytest.mark.rule("D01")
@given(seed=st.integers(0, 2**32), max_examples=60)
def test_no_message_runs_twice_and_none_is_lost_without_a_word(seed):
    dice = random.Random(seed)

    async def main():
        agents, client = several(3, streaming=dice.random() < 0.5, env=SeededDraws(seed))
        faults = [Refuse(), Reset(), Reset(after_execution=True), Cut(), Delay(seconds=2)]
        for agent in agents:
            for _ in range(dice.randrange(6)):
                agent.inject(dice.choice(faults), times=dice.randrange(1, 4))

        async def one(n):
            message = Message(
                message_id=f"m-{seed}-{n}", role=Role.USER, parts=(Part(text="hello"),)
            )
            try:
                await client.ask(message, timeout=120)
            except A2AError as error:
                return message.message_id, error
            return message.message_id, None

        outcomes = dict(await asyncio.gather(*(one(n) for n in range(20))))

        for message_id, error in outcomes.items():
            times = sum(len(agent.executions.get(message_id, ())) for agent in agents)
            assert times <= 1
            if error is None:
                assert times == 1
            elif error.executed is False:
                assert times == 0
        await client.close()

    run(main())


class Killable(FakeNetwork):
    """Agents that can be killed: from then on they refuse, and what they had in hand is cut."""

    def __init__(self, *agents):
        super().__init__(*agents)
        self.agents = {agent.url: agent for agent in agents}
        self.dead = set()

    def kill(self, agent, dice):
        self.dead.add(agent.url)
        for _ in range(dice.randrange(4)):
            agent.inject(Reset(after_execution=dice.random() < 0.5))

    def revive(self, agent):
        self.dead.discard(agent.url)
        agent._faults.clear()

    def stream(self, request):
        origin = "/".join(request.url.split("/")[:3])
        if origin in self.dead and not self.agents[origin].pending_faults:
            self.agents[origin].inject(
                Refuse(), on="GetAgentCard" if "well-known" in request.url else None
            )
        return super().stream(request)


@pytest.mark.parametrize("seed", range(rounds(3, 8)))
def test_killing_agents_under_load_loses_no_call_that_could_have_succeeded(seed):
    dice = random.Random(seed)

    async def main():
        agents = [
            FakeAgent(
                completes("done", after=0.5), url=f"http://agent{n}.test", id_suffix=f"-of-{n}"
            )
            for n in range(3)
        ]
        network = Killable(*agents)
        client = connect(
            [agent.url for agent in agents],
            engine=network,
            env=SeededDraws(seed),
            streaming=dice.random() < 0.5,
        )
        failed, done = [], 0

        async def caller(n):
            nonlocal done
            for k in range(20):
                message = Message(
                    message_id=f"m-{n}-{k}", role=Role.USER, parts=(Part(text="hello"),)
                )
                try:
                    await client.ask(message)
                except A2AError as error:
                    failed.append((message.message_id, error))
                else:
                    done += 1
                await asyncio.sleep(dice.random())

        async def killer():
            while True:
                await asyncio.sleep(3 + 4 * dice.random())
                victim = dice.choice(agents)
                network.kill(victim, dice)
                await asyncio.sleep(5 * dice.random())
                network.revive(victim)

        killing = asyncio.create_task(killer())
        await asyncio.gather(*(caller(n) for n in range(30)))
        killing.cancel()

        assert done + len(failed) == 600
        for message_id, error in failed:
            # Its connection broke before the agent had it, which nobody can know.
            assert isinstance(error, OutcomeUnknownError), error
            assert not any(message_id in agent.executions for agent in agents)
        await client.close()

    run(main())


# ── Replicas that fail ───────────────────────────────────────────────────────────────────────────


def fake(name, behaviour="done", **options):
    return FakeAgent(behaviour, url=f"http://{name}.test", **options)


def card_of(*agents):
    return AgentCard(
        name="several",
        description="one agent at several addresses",
        version="1",
        supported_interfaces=tuple(
            AgentInterface(
                url=f"{agent.url}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
            )
            for agent in agents
        ),
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
    )


def replicas_by_card(count=2, *, away=(), **options):
    """One agent at several addresses whose cards are known; none resolves of those away."""
    agents = [fake(f"agent{n}", completes(str(n)), id_suffix=f"-of-{n}") for n in range(count)]
    network = FakeNetwork(*(agent for n, agent in enumerate(agents) if n not in away))
    options.setdefault("env", SeededDraws())
    return agents, connect([card_of(agent) for agent in agents], engine=network, **options)


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_replica_whose_name_does_not_resolve_is_passed_over(streaming):
    agents, client = replicas_by_card(2, away={0}, streaming=streaming)

    answers = [await client.ask("hello") for _ in range(20)]

    assert {answer.text for answer in answers} == {"1"}
    assert len(agents[1].executions) == 20


async def test_a_task_is_searched_again_at_a_replica_that_failed_once():
    agents, client = replicas_by_card()
    task = (await client.ask("hello")).task
    for agent in agents:
        agent.inject(Respond(status=502), on="GetTask")
    later = connect(
        [card_of(agent) for agent in agents], engine=FakeNetwork(*agents), env=SeededDraws()
    )

    reply = await later.call(GET_TASK, GetTaskRequest(id=task.id))

    assert reply.value.id == task.id
    told = [(one.number, one.executed) for one in reply.attempts]
    assert told == [(1, False), (2, False), (3, True)]


async def test_a_replica_whose_circuit_is_open_is_not_taken_for_the_one_that_was_called():
    agents = [fake(f"agent{n}", works_forever(), id_suffix=f"-of-{n}") for n in range(2)]
    first, second = map(card_of, agents)
    policy = RetryPolicy(max_retries=2, jitter=False, base_delay=1, backoff_factor=30)
    common = {"engine": FakeNetwork(*agents), "shared": Endpoints(), "env": FixedDraws()}
    client = connect([first, second], resilience=Resilience(retry=policy), **common)
    async with client.stream_message("hello") as one, client.stream_message("hello") as other:
        assert [agent.open_streams for agent in agents] == [1, 1]
        is_one = (await anext(one)).id in agents[0].tasks
        await (one if is_one else other).close()  # the second has work
        agents[1].inject(Refuse(), times=5)
        alone = connect(second, resilience=ONCE, **common)
        for _ in range(5):
            with pytest.raises(A2AConnectionError):
                await alone.list_tasks()
        agents[0].inject(Respond(status=502), times=2)
        before = [len(agent.calls("ListTasks")) for agent in agents]

        await client.list_tasks()  # fails at the first, is refused by the second, fails again

    assert not agents[0].pending_faults
    assert [len(agent.calls("ListTasks")) for agent in agents] == [before[0], before[1] + 1]


PAGE = {"content-type": "text/html"}


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_replica_that_answers_not_found_is_passed_over(streaming):
    agents, client = replicas_by_card(2, streaming=streaming)
    agents[0].inject(Respond(status=404, headers=PAGE, body=b"<html>"), times=1000)

    answers = [await client.ask("hello") for _ in range(30)]

    assert {answer.text for answer in answers} == {"1"}
    assert len(agents[0].pending_faults) > 995


async def test_a_replica_that_answers_with_a_web_page_is_avoided_for_a_while():
    agents, client = replicas_by_card(2)
    agents[0].inject(Respond(status=200, headers=PAGE, body=b"<html>"), times=1000)

    outcomes = [
        outcome
        for _ in range(30)
        for outcome in await asyncio.gather(client.ask("hello"), return_exceptions=True)
    ]

    assert [isinstance(one, A2AError) for one in outcomes].count(True) <= 1
    assert len(agents[1].executions) >= 29


async def test_a_replica_that_never_answers_does_not_keep_a_task_from_being_found():
    agents, client = replicas_by_card(3)
    task = (await client.ask("hello")).task
    for agent in agents:
        if task.id not in agent.tasks:
            agent.inject(Stall(), on="GetTask", times=1000)
    network = FakeNetwork(*agents)

    for seed in range(10):
        cards = [card_of(agent) for agent in agents]
        later = connect(cards, engine=network, env=SeededDraws(seed))
        assert (await later.get_task(task.id)).id == task.id
        assert {one.circuit for one in later.stats().endpoints} == {"closed"}

    assert now() == 0
    assert network.in_flight == 0


class Lingering(FakeNetwork):
    """A network whose requests take some seconds to end after they were cancelled."""

    def __init__(self, *agents, cleanup):
        super().__init__(*agents)
        self.cleanup = cleanup
        self.ended = []

    async def request(self, request):
        try:
            return await super().request(request)
        except asyncio.CancelledError:
            await asyncio.sleep(self.cleanup)
            self.ended.append(now())
            raise


lingering = pytest.mark.parametrize(("cleanup", "waited"), [(0.5, 0.5), (3, 1)])


@lingering
async def test_a_search_waits_up_to_a_second_for_the_reads_that_it_cancels(cleanup, waited):
    agents, client = several(behaviour=works_forever())
    task = await client.send_message("hello", return_immediately=True)
    for agent in agents:
        if task.id not in agent.tasks:
            agent.inject(Stall(), on="GetTask")
    network = Lingering(*agents, cleanup=cleanup)
    later = connect([agent.url for agent in agents], engine=network)

    assert (await later.cancel_task(task.id)).state is TaskState.CANCELED

    assert now() == waited
    await asyncio.sleep(3)
    assert network.ended == [cleanup]


@lingering
async def test_the_first_card_waits_up_to_a_second_for_the_fetches_that_it_cancels(
    cleanup, waited
):
    agents, _ = several()
    agents[1].inject(Stall(), on="GetAgentCard")
    network = Lingering(*agents, cleanup=cleanup)
    client = connect([agent.url for agent in agents], engine=network)

    assert (await client.agent_card()).name

    assert now() == waited
    await asyncio.sleep(3)
    assert network.ended == [cleanup]
