"""Calls cancelled at random moments, by the ten thousand: nothing leaks, nothing is charged.

Every wait of a call is long enough to be hit: the card, interceptors, credentials, a slot of
the pool, the connection, the reply, a retry, consumers, polls of a task. Seeds decide the
moments, the faults, and the order in which tasks run.
"""

import asyncio
import logging
import random
from contextlib import asynccontextmanager

import pytest
from tests.kit.effort import rounds

from holdfast import (
    A2AConnectionError,
    A2AError,
    BreakerPolicy,
    BudgetPolicy,
    Resilience,
    RetryPolicy,
    connect,
)
from holdfast._policy.retry_after import asks_to_wait
from holdfast.auth import Credentials
from holdfast.extend import Endpoints, Interceptor
from holdfast.observe import AttemptFinished
from holdfast.testing import FakeAgent, FakeNetwork, completes, run

CANCELLATIONS = rounds(10_000, 100_000)
SEEDS = range(rounds(5, 10))
BINDINGS = ("JSONRPC", "HTTP+JSON")
EACH = CANCELLATIONS // len(SEEDS) // len(BINDINGS)
SLOTS = 40
BATCH = 100
TOKENS = 10**6


class Storm(FakeNetwork):
    """A network with few slots, slow connections and many faults; without faults at the end."""

    def __init__(self, agent, dice):
        super().__init__(agent)
        self.dice = dice
        self.slots = asyncio.Semaphore(SLOTS)
        self.stormy = True

    @asynccontextmanager
    async def stream(self, request):  # which every request goes through
        async with self.slots:
            fate = 1.0
            if self.stormy:
                await asyncio.sleep(self.dice.uniform(0, 0.4))
                fate = self.dice.random()
            if fate < 0.1:
                raise A2AConnectionError("no", failure="refused", executed=False, transient=True)
            if fate < 0.15:
                request.progress.sent = True
                yield Empty(429, {"retry-after": "0.2"})
            elif fate < 0.2:
                request.progress.sent = True
                yield Empty(401, {})
            else:
                async with super().stream(request) as reply:
                    if self.stormy:
                        await asyncio.sleep(self.dice.uniform(0, 0.4))
                    yield Torn(reply) if fate < 0.3 else reply


class Empty:
    """Return a reply without a body."""

    def __init__(self, status, headers):
        self.status = status
        self.headers = headers

    async def read(self):
        return b""


class Torn:
    """Return a truncated reply: a stream after its first chunk."""

    def __init__(self, reply):
        self.status = reply.status
        self.headers = reply.headers
        self._pieces = reply.chunks()
        self._first = True

    def chunks(self):
        return self

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self._first:
            self._first = False
            return await anext(self._pieces)
        raise A2AConnectionError("cut", failure="truncated", transient=True)

    async def read(self):
        async for _ in self:
            pass


class Slow(Interceptor):
    """A slow interceptor and provider of credentials."""

    def __init__(self, dice):
        self.dice = dice

    async def pause(self):
        if self.dice.random() < 0.2:
            await asyncio.sleep(self.dice.choice([0, 0.1]))

    async def before(self, call):
        await self.pause()
        return call

    async def after(self, call, outcome):
        await self.pause()
        return outcome

    async def credentials(self, _call):
        await self.pause()
        return Credentials(headers={"authorization": "Bearer t0ken"})

    async def on_unauthorized(self, _call, _error):
        await self.pause()
        return self.dice.random() < 0.5

    async def on_retry(self, _number, _error, _wait):
        await self.pause()

    async def consumer(self, _event, _task, _card):
        await self.pause()


def one_call(client, dice):
    timeout = dice.choice([None, None, 0.3, 2])
    return dice.choice(
        [
            lambda: client.ask("hello", timeout=timeout, poll_interval=0.2),
            lambda: client.send_message("hello", timeout=timeout),
            lambda: client.wait("task-1", timeout=timeout, poll_interval=0.2),
            lambda: client.get_task("task-1", timeout=timeout),
            lambda: client.agent_card(timeout=timeout),
        ]
    )()


async def cancel_many(client, dice, count):
    """Cancel that many calls, in concurrent batches; return the results of the others."""
    loop = asyncio.get_running_loop()
    cancelled, well = 0, 0
    while cancelled < count:
        batch = [asyncio.create_task(one_call(client, dice)) for _ in range(BATCH)]
        for task in batch:
            loop.call_later(dice.uniform(0, 0.8), task.cancel)
        for task in batch:
            try:
                await task
            except asyncio.CancelledError:
                assert task.cancelled()  # and not this test
                cancelled += 1
            except A2AError:
                pass
            else:
                well += 1
    return well


@pytest.mark.rule("D05")
@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("seed", SEEDS)
def test_cancelled_calls_leak_nothing(binding, seed, caplog):
    caplog.set_level(logging.CRITICAL, "holdfast")  # to write down every failure takes its time

    async def main():
        dice = random.Random(seed)
        slow = Slow(dice)
        agent = FakeAgent(lambda _turn: completes("done", after=dice.uniform(0, 1)))
        network = Storm(agent, dice)
        shared = Endpoints()
        charges = []
        client = connect(
            agent.url,
            engine=network,
            bindings=[binding],
            # Not kept, all wait for one fetch; kept, all but one go on with the old one.
            card_ttl=0 if seed % 2 else 0.5,
            auth=slow,
            shared=shared,
            interceptors=[slow],
            consumers=[slow.consumer],
            observers=[
                lambda observation: charges.append(observation) if charged(observation) else None
            ],
            resilience=Resilience(
                retry=RetryPolicy(base_delay=0.2, on_retry=slow.on_retry),
                budget=BudgetPolicy(tokens=TOKENS, success_gives=0, seconds_per_token=10**12),
                breaker=BreakerPolicy() if seed % 3 else None,  # open, it refuses most
            ),
        )

        well = await cancel_many(client, dice, EACH)

        assert well > 0  # some were done before it was their turn
        assert (network.in_flight, agent.open_streams) == (0, 0)
        assert network.peak <= SLOTS
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert tokens_spent(shared) == len(charges) > 0
        assert {len(attempts) for attempts in agent.executions.values()} == {1}

        network.stormy = False
        await asyncio.sleep(60)  # the card is too old by now, if it was kept at all
        await client.ask("again")  # where a circuit was open, by one call
        answers = await asyncio.gather(*(client.ask("again") for _ in range(SLOTS)))
        assert [answer.text for answer in answers] == ["done"] * SLOTS
        for _ in range(SLOTS):
            await asyncio.wait_for(network.slots.acquire(), 1)

    run(main(), seed=seed)


def charged(observation):
    if not isinstance(observation, AttemptFinished) or asks_to_wait(observation.error):
        return False  # who waits in line with all others pays nothing
    return observation.error.transient


def tokens_spent(endpoints):
    endpoints_used = endpoints._endpoints.values()
    return sum(
        TOKENS - budget.tokens
        for endpoint in endpoints_used
        for budget in endpoint._budgets.values()
    )


@pytest.mark.rule("D07")
@pytest.mark.parametrize("binding", BINDINGS)
def test_without_failures_cancellations_cost_no_retry_tokens(binding):
    async def main():
        dice = random.Random(binding)
        agent = FakeAgent(latency=0.5)
        network = FakeNetwork(agent)
        shared = Endpoints()
        client = connect(agent.url, engine=network, bindings=[binding], shared=shared)
        calls = [asyncio.create_task(client.ask("hello")) for _ in range(200)]
        for call in calls:
            asyncio.get_running_loop().call_later(dice.uniform(0, 1), call.cancel)

        await asyncio.wait(calls)

        assert sum(call.cancelled() for call in calls) > 100
        assert (network.in_flight, tokens_spent(shared)) == (0, 0)

    run(main())


@pytest.mark.rule("D05")
@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("after", [0, 0.25, 0.75, 1.5, 2.5])
async def test_a_cancellation_is_raised_unchanged_at_every_step(binding, after):
    agent = FakeAgent(lambda _turn: completes("done", after=3), latency=0.5)
    network = FakeNetwork(agent)
    client = connect(agent.url, engine=network, bindings=[binding])
    call = asyncio.create_task(client.ask("hello"))
    await asyncio.sleep(after)

    call.cancel("enough")

    with pytest.raises(asyncio.CancelledError):
        await call
    assert network.in_flight == 0
    assert agent.calls("CancelTask") == []
    assert asyncio.get_running_loop().time() == after


async def test_a_timeout_of_the_caller_is_not_reported_as_the_clients():
    agent = FakeAgent(latency=10)
    client = connect(agent.url, engine=FakeNetwork(agent), timeout=5)

    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(3):
            await client.ask("hello")

    assert not isinstance(caught.value, A2AError)
    assert asyncio.get_running_loop().time() == 3
