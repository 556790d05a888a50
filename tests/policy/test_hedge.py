"""Hedging: after a wait that most reads do not need, and paid for by reads."""

import asyncio
import gc
import random

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given
from tests.kit.virtual_env import SeededDraws

from holdfast import (
    A2AConnectionError,
    DeadlineExceededError,
    RateLimitedError,
    Resilience,
    RetryPolicy,
    connect,
)
from holdfast._policy.hedge import HedgeBudget, Latencies, hedge_delay
from holdfast.errors import InternalError
from holdfast.extend import BaseLayer
from holdfast.observe import RequestFinished
from holdfast.policies import HedgePolicy
from holdfast.protocol import GET_TASK
from holdfast.testing import Delay, Fail, FakeAgent, FakeNetwork, Refuse, rate_limited
from holdfast.types import GetTaskRequest


@given(durations=st.lists(st.floats(0, 1000), min_size=1), size=st.integers(1, 30))
def test_a_quantile_is_that_of_the_last_ones(durations, size):
    latencies = Latencies(size)
    for seconds in durations:
        latencies.add(seconds)

    last = sorted(durations[-size:])

    assert len(latencies) == len(last)
    assert latencies.quantile(1.0) == last[-1]
    for share in (0.01, 0.5, 0.95):
        found = latencies.quantile(share)
        assert sum(seconds <= found for seconds in last) >= share * len(last)
        assert sum(seconds < found for seconds in last) < share * len(last)


def test_of_nothing_there_is_no_quantile():
    assert Latencies().quantile(0.5) == 0.0


def test_nothing_is_hedged_before_enough_was_seen():
    latencies, policy = Latencies(), HedgePolicy()
    for _ in range(19):
        latencies.add(0.1)
    assert hedge_delay(policy, latencies) is None

    latencies.add(5.0)

    assert hedge_delay(policy, latencies) == 0.1


def test_a_hedge_is_never_made_at_once():
    latencies = Latencies()
    for _ in range(100):
        latencies.add(0.0001)

    assert hedge_delay(HedgePolicy(), latencies) == 0.01


@given(reads=st.lists(st.booleans(), max_size=400), extra=st.sampled_from([0.01, 0.05, 0.3]))
def test_hedges_never_exceed_their_share_of_the_reads(reads, extra):
    budget, hedges = HedgeBudget(HedgePolicy(max_extra=extra)), 0

    for done, is_slow in enumerate(reads, 1):
        budget.record_read()
        if is_slow:
            hedges += budget.take()
        assert hedges <= extra * done


def test_what_is_saved_is_bounded():
    budget = HedgeBudget(HedgePolicy())
    for _ in range(100_000):
        budget.record_read()

    assert sum(budget.take() for _ in range(100)) == 10


@pytest.mark.parametrize(
    "policy",
    [
        {"quantile": 0.0},
        {"quantile": 1.0},
        {"max_extra": 0},
        {"max_extra": 1.5},
        {"min_samples": 0},
        {"min_delay": -1.0},
        {"min_delay": float("nan")},
    ],
)
def test_numbers_out_of_bounds_are_refused(policy):
    with pytest.raises(ValueError, match=next(iter(policy))):
        HedgePolicy(**policy)


# ── On the wire ──────────────────────────────────────────────────────────────────────────────

HEDGED = Resilience(hedge=HedgePolicy(), retry=RetryPolicy(max_retries=0))


class Latent(FakeNetwork):
    """Answers after as long as it is told, whichever agent it is."""

    def __init__(self, *agents, latency):
        super().__init__(*agents)
        self.latency, self.asked, self.given_up = latency, [], 0

    async def request(self, request):
        self.asked.append(request.url)
        try:
            await asyncio.sleep(self.latency(request))
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return await super().request(request)


def now():
    return asyncio.get_running_loop().time()


def ever_quicker(count):
    """Latencies of which none is longer than the ones before it."""
    return [0.1 - n / 10_000 for n in range(count)]


async def client_of(*agents, latency, resilience=HEDGED, env=None):
    network = Latent(*agents, latency=lambda request: 0.0)
    addresses = [agent.url for agent in agents]
    client = connect(
        addresses[0] if len(addresses) == 1 else addresses,
        engine=network,
        resilience=resilience,
        env=env,
    )
    task = await client.send_message("hello", return_immediately=True)
    network.latency = latency
    network.asked.clear()
    return network, client, task.id


async def took(client, task_id):
    began = now()
    await client.get_task(task_id)
    return now() - began


async def test_a_read_that_takes_long_is_asked_for_once_more():
    seconds = [*ever_quicker(40), 60.0, *ever_quicker(40)]
    network, client, task_id = await client_of(FakeAgent(), latency=lambda _: seconds.pop(0))

    durations = [await took(client, task_id) for _ in range(41)]

    assert durations[40] == pytest.approx(0.2, abs=0.01)
    assert len(network.asked) == 42
    assert network.given_up == 1


async def test_one_in_fifty_slow_costs_five_percent_and_no_more_than_150_ms():
    dice = random.Random(7)

    def latency(_):
        return dice.uniform(0.9, 1.3) if dice.random() < 0.02 else dice.uniform(0.02, 0.06)

    network, client, task_id = await client_of(FakeAgent(), latency=latency)

    durations = sorted([await took(client, task_id) for _ in range(2000)])

    assert durations[int(0.99 * len(durations))] <= 0.15
    assert len(network.asked) <= 2000 * 1.05 + 10


async def test_how_long_the_loser_was_waited_for_counts():
    eager = HedgePolicy(min_samples=1, max_extra=0.9)
    seconds = [0.1, 0.09, 60.0, 0.1, 60.0, 0.1]
    _, client, task_id = await client_of(
        FakeAgent(), latency=lambda _: seconds.pop(0), resilience=Resilience(hedge=eager)
    )

    durations = [await took(client, task_id) for _ in range(4)]

    # The first hedge is made after 0.1 s, and answers after 0.2 s; so long waits the second one.
    assert durations == pytest.approx([0.1, 0.09, 0.2, 0.3])


async def test_how_long_one_place_takes_says_nothing_of_another():
    slow, quick = (FakeAgent(url=f"http://a{n}.test", id_suffix=f"-{n}") for n in range(2))
    network, client, _ = await client_of(slow, quick, latency=lambda _: 0.0)
    tasks = {}
    while len(tasks) < 2:
        task = await client.send_message("hello", return_immediately=True)
        tasks[task.id[-1]] = task.id
    for seconds in ever_quicker(30):
        network.latency = lambda _, seconds=seconds: seconds
        await took(client, tasks["1"])
        network.latency = lambda _, seconds=seconds: 100 * seconds
        await took(client, tasks["0"])
    seconds = [60.0, 0.0]
    network.latency = lambda _: seconds.pop(0)

    assert await took(client, tasks["1"]) == pytest.approx(0.1, abs=0.001)


async def test_an_agent_that_asks_for_time_is_not_asked_twice():
    agent = FakeAgent()
    quicker = ever_quicker(40)
    network, client, task_id = await client_of(agent, latency=lambda _: quicker.pop(0))
    for _ in range(40):
        await took(client, task_id)
    seconds = [30.0, 0.05, 0.0]
    network.latency = lambda _: seconds.pop(0)
    slow = asyncio.create_task(took(client, task_id))
    await asyncio.sleep(0)
    agent.inject(rate_limited(5), on="GetTask")
    with pytest.raises(RateLimitedError):
        await client.get_task(task_id)

    assert await slow == pytest.approx(30.0)


async def test_an_agent_that_has_become_slow_gets_no_double_load():
    state = {"slow": 1.0}
    network, client, task_id = await client_of(FakeAgent(), latency=lambda _: 0.1 * state["slow"])
    for _ in range(100):
        await took(client, task_id)
    state["slow"] = 3.0
    before = len(network.asked)

    for _ in range(400):
        await took(client, task_id)

    assert len(network.asked) - before <= 400 * 1.05 + 10


@pytest.mark.rule("P31")
async def test_messages_are_never_asked_for_twice():
    agent = FakeAgent()
    network, client, _ = await client_of(agent, latency=lambda _: 0.01)
    for _ in range(40):
        await client.send_message("hello")
    network.latency = lambda _: 30.0
    before = len(network.asked)

    await client.send_message("slow")

    assert len(network.asked) == before + 1


async def test_the_hedge_goes_to_another_place_even_if_that_has_more_to_do():
    agents = [FakeAgent(url=f"http://a{n}.test", id_suffix=f"-{n}") for n in range(2)]
    quicker = ever_quicker(140)
    network, client, task_id = await client_of(*agents, latency=lambda _: quicker.pop(0))
    for _ in range(100):
        await client.list_tasks()
    context = (await client.get_task(task_id)).context_id
    network.latency = lambda _: 60.0
    sent = [asyncio.create_task(client.send_message("more", context_id=context)) for _ in range(5)]
    await asyncio.sleep(1)
    seconds = [60.0, 0.1]
    network.latency = lambda _: seconds.pop(0)
    network.asked.clear()

    await client.list_tasks()

    assert len({url.split("/")[2] for url in network.asked}) == 2
    await asyncio.gather(*sent)


async def test_what_has_hardly_any_time_left_is_not_asked_for_twice():
    seconds = [*ever_quicker(40), 60.0, 0.0]
    network, client, task_id = await client_of(FakeAgent(), latency=lambda _: seconds.pop(0))
    for _ in range(40):
        await took(client, task_id)

    with pytest.raises(DeadlineExceededError):
        await client.get_task(task_id, timeout=0.15)

    assert len(network.asked) == 41


async def test_after_both_have_failed_the_retry_goes_to_the_place_that_neither_asked():
    for seed in range(6):
        agents = [FakeAgent(url=f"http://a{n}.test", id_suffix=f"-{n}") for n in range(3)]
        quicker = ever_quicker(140)
        network, client, _ = await client_of(
            *agents,
            latency=lambda _, quicker=quicker: quicker.pop(0),
            resilience=Resilience(hedge=HedgePolicy(), retry=RetryPolicy(max_retries=1)),
            env=SeededDraws(seed),
        )
        for _ in range(120):
            await client.list_tasks()
        seconds = [0.5, 0.3, 0.0]
        network.latency = lambda _, seconds=seconds: seconds.pop(0)
        for agent in agents:
            # It says that the agent is there, so that no other call avoids it.
            agent.inject(Fail(code=-32603, retry_after=0), on="ListTasks")
        network.asked.clear()

        with pytest.raises(InternalError) as caught:
            await client.list_tasks()

        assert len({url.split("/")[2] for url in network.asked}) == len(network.asked) == 3
        assert [attempt.number for attempt in caught.value.attempts] == [1, 2, 3]


async def test_a_hedge_that_fails_is_no_answer():
    agent = FakeAgent()
    seconds = [*ever_quicker(40), 5.0, 0.1]
    _, client, task_id = await client_of(agent, latency=lambda _: seconds.pop(0))
    for _ in range(40):
        await took(client, task_id)
    agent.inject(Refuse(), on="GetTask")  # met by whichever arrives first

    assert await took(client, task_id) == pytest.approx(5.0)


async def test_both_attempts_are_reported():
    agent = FakeAgent()
    seconds = [*ever_quicker(40), 60.0, 0.1]
    _, client, task_id = await client_of(agent, latency=lambda _: seconds.pop(0))
    for _ in range(40):
        await took(client, task_id)

    reply = await client.call(GET_TASK, GetTaskRequest(id=task_id))

    assert [attempt.number for attempt in reply.attempts] == [1, 2]
    assert [attempt.error is None for attempt in reply.attempts] == [False, True]


@pytest.mark.parametrize("moment", [0.05, 0.15, 0.25])
async def test_a_caller_who_leaves_ends_both(moment):
    agent = FakeAgent()
    seconds = [*ever_quicker(40), 60.0, 60.0]
    network, client, task_id = await client_of(agent, latency=lambda _: seconds.pop(0))
    for _ in range(40):
        await took(client, task_id)
    before = len(asyncio.all_tasks())
    call = asyncio.create_task(client.get_task(task_id))
    await asyncio.sleep(moment)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert network.given_up == (1 if moment < 0.1 else 2)
    assert len(asyncio.all_tasks()) == before


class EndsSlowly(BaseLayer):
    """An attempt layer that takes half a second to end after a cancellation."""

    async def handle(self, call, call_next, /):
        try:
            return await call_next(call)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
            raise


async def test_a_hedge_that_is_cancelled_twice_counts_both_of_its_attempts():
    agent, ends = FakeAgent(), []

    def observe(observation):
        if isinstance(observation, RequestFinished):
            ends.append(observation)

    seconds = [0.0, 0.0, *ever_quicker(40), 60.0, 0.0]
    client = connect(
        agent.url,
        engine=Latent(agent, latency=lambda _: seconds.pop(0)),
        resilience=HEDGED,
        attempt_layers=[EndsSlowly],
        observers=[observe],
    )
    task = await client.send_message("hello", return_immediately=True)
    for _ in range(40):
        await client.get_task(task.id)
    agent.inject(Refuse(), on="GetTask")  # met by the hedge, while the first attempt waits
    reading = asyncio.create_task(client.get_task(task.id))
    await asyncio.sleep(0.3)

    reading.cancel()
    await asyncio.sleep(0.1)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    assert seconds == []
    assert ends[-1].attempts == 2
    await client.close()


def fake(name, behaviour="done", **options):
    return FakeAgent(behaviour, url=f"http://{name}.test", **options)


class BreaksWhenCancelled(BaseLayer):
    """An attempt layer that cleans up badly."""

    async def handle(self, call, call_next, /):
        try:
            return await call_next(call)
        except asyncio.CancelledError:
            raise A2AConnectionError("it broke on the way out", failure="disconnected") from None


async def test_an_error_of_the_losing_attempt_is_not_reported():
    agent, told = fake("agent"), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    client = connect(
        agent.url,
        engine=FakeNetwork(agent),
        resilience=Resilience(hedge=HedgePolicy(min_samples=1)),
        attempt_layers=[BreaksWhenCancelled],
    )
    task = (await client.ask("hello")).task
    for _ in range(40):
        await client.get_task(task.id)
    agent.inject(Delay(seconds=50), on="GetTask")

    await client.get_task(task.id)
    await client.close()
    del client
    gc.collect()

    assert told == []
