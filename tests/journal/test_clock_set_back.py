"""Journals while the wall clock is set back: leases, labels and runs keep their meaning."""

import asyncio
import contextlib

import pytest
from tests.kit.batch_runs import collected
from tests.kit.virtual_env import advance_wall, set_wall

from holdfast import connect
from holdfast.errors import JournalError
from holdfast.extend import CallRecord, RecordUpdate, SqliteJournal
from holdfast.testing import FakeAgent, FakeNetwork, Refuse, completes


@pytest.fixture
def path(tmp_path):
    return tmp_path / "calls.db"


async def test_a_released_call_can_be_claimed_after_the_clock_is_set_back(path):
    agent = FakeAgent(completes("42", after=60))
    journal = f"sqlite:///{path}"
    async with connect(agent.url, journal=journal, engine=FakeNetwork(agent)) as client:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await client.ask("How far?")
        advance_wall(-3600.0)

        (call,) = await client.pending()

        assert not call.is_held
        assert (await call.resume(timeout=100)).text == "42"


async def test_a_call_in_flight_is_still_held_after_the_clock_is_set_back(path):
    agent = FakeAgent(completes("42", after=1000))
    journal = SqliteJournal(path)
    async with (
        connect(agent.url, engine=FakeNetwork(agent), journal=journal) as live_client,
        connect(agent.url, engine=FakeNetwork(agent), journal=journal) as client,
    ):
        asking = asyncio.create_task(live_client.ask("How far?"))
        await asyncio.sleep(1)
        advance_wall(-3600.0)
        (call,) = await client.pending()

        with pytest.raises(JournalError, match="renewed"):
            await call.resume(timeout=60)

        asking.cancel()
        await asyncio.wait([asking])
    await journal.close()


async def test_find_label_finds_the_call_that_may_have_been_sent_after_the_clock_is_set_back(path):
    journal = SqliteJournal(path)
    set_wall(9.0)
    await journal.begin(CallRecord(message_id="later", agent="a", label="l"))
    await journal.update("later", 1, RecordUpdate(outcome="not_sent"))
    set_wall(3.0)
    await journal.begin(CallRecord(message_id="sent", agent="a", label="l"))

    record = await journal.find_label("l")

    assert record.message_id == "sent"
    await journal.close()


async def test_a_run_finds_its_answers_after_the_clock_is_set_back(path):
    agent, journal = FakeAgent(completes("42")), f"sqlite:///{path}"

    async def run():
        async with connect(agent.url, journal=journal, engine=FakeNetwork(agent)) as client:
            return [*(await collected(client.run(["How far?"], run_id="r"))).values()]

    agent.inject(Refuse(), on="SendStreamingMessage", times=4)
    (first,) = await run()
    assert first.error is not None
    advance_wall(-3600.0)
    (second,) = await run()
    assert second.answer is not None

    (third,) = await run()

    assert third.error is None
    assert third.answer.text == "42"
