"""Closing a client during calls: nothing is sent afterwards, and nothing leaks."""

import asyncio

import pytest
from tests.kit.foreign_journal import Foreign

from holdfast import A2AConnectionError, DeadlineExceededError, connect
from holdfast.extend import BaseLayer
from holdfast.testing import DeadlockError, FakeAgent, FakeNetwork, Stall, rate_limited, run


def now():
    return asyncio.get_running_loop().time()


def connected(agent, network=None, **options):
    return connect(agent.url, engine=network or FakeNetwork(agent), **options)


async def test_nothing_is_sent_after_the_client_was_closed():
    agent = FakeAgent()
    agent.inject(rate_limited(retry_after=5), on="SendMessage")
    async with connected(agent) as client:
        sending = asyncio.ensure_future(client.send_message("hello"))
        await asyncio.sleep(1)

    with pytest.raises(A2AConnectionError, match="closed"):
        await sending
    assert agent.executions == {}


async def test_a_deadline_that_expires_during_close_is_named():
    agent = FakeAgent()
    agent.inject(Stall(), on="GetTask")
    client = connected(agent)
    loop, closing = asyncio.get_running_loop(), []
    loop.call_at(5, lambda: closing.append(loop.create_task(client.close())))

    with pytest.raises(DeadlineExceededError):
        await client.get_task("task", timeout=5)

    assert now() == 5
    await closing[0]


def test_a_finished_call_leaves_no_timer():
    agent = FakeAgent()

    async def main():
        await connected(agent).send_message("hello")
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match="at virtual time 0:"):
        run(main())


async def test_close_waits_for_the_last_call_and_no_longer():
    class Tidies(BaseLayer):
        async def unary(self, call):
            try:
                return await super().unary(call)
            finally:
                await asyncio.sleep(0.25)

    agent = FakeAgent()
    agent.inject(rate_limited(retry_after=5), on="SendMessage")
    client = connected(agent, call_layers=[Tidies])
    sending = asyncio.ensure_future(client.send_message("hello"))
    await asyncio.sleep(1)
    closed_at = []

    async def close():
        await client.close()
        closed_at.append(now())

    began = now()
    await asyncio.gather(close(), close())

    assert closed_at == [began + 0.25] * 2
    with pytest.raises(A2AConnectionError, match="closed"):
        await sending


async def test_a_close_that_is_cancelled_at_the_journal_closes_the_layers():
    closed = []

    class Notes(BaseLayer):
        async def close(self):
            closed.append(self)
            await super().close()

    client = connected(FakeAgent(), journal=Foreign(), call_layers=[Notes])
    closing = asyncio.ensure_future(client.close())
    await asyncio.sleep(0)
    closing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await closing
    assert len(closed) == 1
