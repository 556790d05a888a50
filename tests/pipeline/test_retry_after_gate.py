"""Lines of callers whom an agent has asked to come later."""

import asyncio
import random

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given
from tests.kit.virtual_env import FixedDraws

from holdfast import (
    AgentCard,
    Message,
    Part,
    RateLimitedError,
    Resilience,
    RetryPolicy,
    Role,
    connect,
)
from holdfast._pipeline.retry_after_gate import RetryAfterGate
from holdfast.extend import Endpoints
from holdfast.testing import FakeAgent, FakeNetwork, completes, rate_limited, run
from holdfast.types import AgentCapabilities, AgentInterface


async def settled():
    """Lets everybody go on who can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def passes(gate, moments, name, **how):
    await gate.enter(**how)
    moments.append((name, asyncio.get_running_loop().time()))


def test_open_gate_holds_no_caller():
    async def main():
        gate, moments = RetryAfterGate(), []

        for n in range(100):
            await passes(gate, moments, n)

        assert gate.is_open
        assert len({moment for _, moment in moments}) == 1

    run(main())


def test_callers_wait_for_the_rate_limit_and_are_admitted_in_order():
    async def main():
        gate, moments = RetryAfterGate(), []
        begin = asyncio.get_running_loop().time()
        gate.on_retry_after(10.0, started=begin, draw=0.0)

        await asyncio.gather(*(passes(gate, moments, n) for n in range(200)))

        assert [name for name, _ in moments] == list(range(200))
        assert moments[0][1] - begin == 10.0
        assert moments[-1][1] - begin < 20.0

    run(main())


def test_one_that_was_refused_stands_before_the_others():
    async def main():
        gate, moments = RetryAfterGate(), []
        begin = asyncio.get_running_loop().time()
        gate.on_retry_after(10.0, started=begin, draw=0.0)
        others = [asyncio.create_task(passes(gate, moments, n)) for n in range(3)]
        await settled()

        await passes(gate, moments, "refused", first=True)

        await asyncio.gather(*others)
        assert [name for name, _ in moments] == ["refused", 0, 1, 2]

    run(main())


def test_a_longer_wait_holds_those_who_wait_already():
    async def main():
        gate, moments = RetryAfterGate(), []
        begin = asyncio.get_running_loop().time()
        gate.on_retry_after(10.0, started=begin, draw=0.0)
        others = [asyncio.create_task(passes(gate, moments, n)) for n in range(3)]
        await asyncio.sleep(5)

        gate.on_retry_after(30.0, started=begin, draw=0.0)

        await asyncio.gather(*others)
        assert moments[0][1] - begin == 35.0

    run(main())


@given(seed=st.integers(0, 2**32), max_examples=100)
def test_no_call_passes_while_the_agent_limits_the_rate(seed):
    dice = random.Random(seed)

    async def main():
        gate, loop = RetryAfterGate(), asyncio.get_running_loop()
        until, passed = 0.0, 0

        async def call():
            nonlocal passed
            await gate.enter(first=dice.random() < 0.2)
            assert loop.time() >= until
            passed += 1

        tasks = []
        for _ in range(60):
            tasks.append(asyncio.create_task(call()))
            if dice.random() < 0.3:
                await asyncio.sleep(dice.random() * 3)
            if dice.random() < 0.2:
                seconds = dice.random() * 5
                until = max(until, loop.time() + seconds)
                gate.on_retry_after(seconds, started=loop.time(), draw=dice.random())
            if dice.random() < 0.2:
                dice.choice(tasks).cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)

        left = sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        assert passed + left == 60
        assert gate.waiting == 0

    run(main())


class Slow(FakeNetwork):
    """Takes its time with some requests."""

    def __init__(self, agent):
        super().__init__(agent)
        self.seconds = []

    async def request(self, request):
        await asyncio.sleep(self.seconds.pop(0) if self.seconds else 0.0)
        return await super().request(request)


async def test_who_was_refused_last_is_let_in_before_those_who_have_come_since():
    agent = FakeAgent(completes("done"))
    network = Slow(agent)
    client = connect(agent.url, engine=network, streaming=False)
    await client.agent_card()
    agent.inject(rate_limited(10), on="SendMessage", times=2)
    network.seconds = [1.0, 0.0]

    async def send(name):
        await client.send_message(
            Message(message_id=name, role=Role.USER, parts=(Part(text="hello"),))
        )

    async with asyncio.TaskGroup() as group:
        group.create_task(send("refused late"))
        group.create_task(send("refused at once"))
        await asyncio.sleep(0.5)
        group.create_task(send("new"))

    assert list(agent.executions) == ["refused late", "refused at once", "new"]


# ── Credentials that are rate limited ────────────────────────────────────────────────────────────


ONCE = Resilience(retry=RetryPolicy(max_retries=0))


def now():
    return asyncio.get_running_loop().time()


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


class NoTokens:
    """Credentials from a server that asks to come later."""

    def __init__(self):
        self.asked = []

    async def credentials(self, call, /):
        self.asked.append(now())
        raise RateLimitedError("no", http_status=429, retry_after=60, transient=True)

    async def on_unauthorized(self, call, error, /):
        return False


async def test_a_rate_limited_token_server_holds_back_no_other_client():
    agent = fake("agent")
    common = {"engine": FakeNetwork(agent), "shared": Endpoints(), "resilience": ONCE}
    without = connect(card_of(agent), auth=NoTokens(), **common)
    for _ in range(3):
        with pytest.raises(RateLimitedError):
            await without.list_tasks()

    await connect(card_of(agent), **common).list_tasks()

    assert now() == 0


async def test_a_call_whose_token_server_is_rate_limited_waits_for_it():
    agent, tokens = fake("agent"), NoTokens()
    common = {"engine": FakeNetwork(agent), "shared": Endpoints(), "env": FixedDraws()}
    agent.inject(rate_limited(1), on="ListTasks")
    await connect(card_of(agent), **common).list_tasks()
    await asyncio.sleep(300)  # by now nobody is held back
    began = now()

    with pytest.raises(RateLimitedError):
        await connect(card_of(agent), auth=tokens, **common).list_tasks()

    assert [at - began for at in tokens.asked] == pytest.approx([0.0, 60.5, 121.0, 181.5])
