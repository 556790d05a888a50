"""Connections that are refused, and calls that are cancelled, over real sockets."""

import asyncio
import random

import pytest
from tests.kit.contract import open_engine
from tests.kit.effort import rounds
from tests.kit.messages import message_of
from tests.kit.real_agents import LIMIT

from holdfast import Resilience, RetryPolicy, TaskNotFoundError, connect
from holdfast.protocol import SEND_MESSAGE
from holdfast.testing import FakeAgent, LoopbackServer, completes, works_forever
from holdfast.types import SendMessageRequest

pytestmark = pytest.mark.real_time

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


@pytest.mark.rule("S06")
@both_bindings
async def test_s06_refused_connections_are_retried_until_one_message_arrives(binding):
    agent = FakeAgent()
    async with asyncio.timeout(LIMIT), LoopbackServer(agent) as server:
        async with connect(server.url) as client:
            card = await client.agent_card()
        await server.refuse()
        waits = []

        async def on_retry(number, error, wait):
            waits.append((number, error.failure, error.executed))
            if number == 2:
                await server.listen()

        policy = RetryPolicy(base_delay=0.01, on_retry=on_retry)
        async with connect(
            card, bindings=[binding], resilience=Resilience(retry=policy)
        ) as client:
            message = message_of("hello", "m-1")
            reply = await client.call(SEND_MESSAGE, SendMessageRequest(message=message))

        assert waits == [(1, "refused", False), (2, "refused", False)]
        assert reply.value.task.text == "hello"
        assert [attempt.number for attempt in reply.attempts] == [1, 2, 3]
        assert ["refused" in (attempt.error or "") for attempt in reply.attempts] == [
            True,
            True,
            False,
        ]
        assert {name: len(made) for name, made in agent.executions.items()} == {"m-1": 1}
        assert len(agent.tasks) == 1


async def executed(agent, count):
    """Waits until an agent has executed so many messages."""
    while True:
        if len(agent.executions) >= count:
            return
        await asyncio.sleep(0.01)


@pytest.mark.rule("S28")
async def test_s28_calls_cancelled_at_random_leave_every_slot_free():
    dice, slots, wanted = random.Random(28), 10, rounds(1000, 3000)
    plans = [completes("done")]
    agent = FakeAgent(lambda turn: plans[-1], latency=0.001)
    async with (
        asyncio.timeout(LIMIT),
        LoopbackServer(agent) as server,
        open_engine(max_connections=slots) as engine,
    ):
        client = connect(server.url, engine=engine)
        cancelled = 0
        while cancelled < wanted:
            calls = [
                asyncio.create_task(
                    client.get_task("x") if number % 2 else client.send_message("hello")
                )
                for number in range(25)
            ]
            for call in calls:
                asyncio.get_running_loop().call_later(dice.uniform(0, 0.01), call.cancel)
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            cancelled += sum(isinstance(o, asyncio.CancelledError) for o in outcomes)
            unexpected = [
                outcome
                for outcome in outcomes
                if isinstance(outcome, BaseException)
                and not isinstance(outcome, asyncio.CancelledError | TaskNotFoundError)
            ]
            assert unexpected == []

        plans.append(works_forever())
        for _ in range(2):  # they take all the slots there are, and leave them again
            before = len(agent.executions)
            calls = [asyncio.create_task(client.send_message("hello")) for _ in range(slots)]
            await executed(agent, before + slots)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
    assert max(len(made) for made in agent.executions.values()) == 1
