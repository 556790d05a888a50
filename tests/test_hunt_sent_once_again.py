"""Sending once where clocks are set, threads are short, and others cancel what is waited for."""

import asyncio

import pytest
from tests.test_bulk import ended
from tests.test_hunt_sent_once import connected

from holdfast.testing import FakeAgent, completes

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_source_that_is_cancelled_has_not_come_to_its_end(is_async):
    agent = FakeAgent(completes("42"))

    async def messages():
        yield "one"
        lost = asyncio.get_running_loop().create_future()
        lost.cancel()
        await lost

    def plain():
        yield "one"
        raise asyncio.CancelledError

    async with connected(agent) as client:
        results, error = await ended(client.run(messages() if is_async else plain()))

    assert [result.answer.text for result in results] == ["42"]
    assert isinstance(error, RuntimeError)
    assert "cancelled" in str(error)


async def test_a_message_whose_hook_is_cancelled_is_not_passed_over():
    agent = FakeAgent(completes("42"))

    class Hook:
        async def before(self, call):
            raise asyncio.CancelledError

        async def after(self, call):
            pass

    async with connected(agent, interceptors=[Hook()]) as client:
        results, error = await ended(client.run(["one"]))

    assert results == []
    assert isinstance(error, RuntimeError)
    assert "cancelled" in str(error)
