"""Sending once, in the seams: what is given up, closed or refused at a bad moment."""

import asyncio
import contextlib
import gc

import pytest

from holdfast import A2AError, Message, OutcomeUnknownError, Part, Role, RunItem, connect
from holdfast._aio.env import SystemEnv
from holdfast.errors import InvalidParamsError, JournalError
from holdfast.extend import SqliteJournal
from holdfast.testing import Fail, FakeAgent, FakeNetwork, Refuse, Reset, completes

SENDS = {True: "SendStreamingMessage", False: "SendMessage"}

pytestmark = pytest.mark.filterwarnings("error")


class VirtualWall(SystemEnv):
    """Wall time that goes with the event loop's clock."""

    def wall(self):
        return 1_700_000_000.0 + asyncio.get_running_loop().time()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "calls.db"


def connected(agent, journal=None, **options):
    options.setdefault("engine", FakeNetwork(agent))
    return connect(agent.url, journal=journal, env=VirtualWall(), **options)


def message(message_id):
    return Message(message_id=message_id, role=Role.USER, parts=(Part(text="How far?"),))


class SlowDisk(SqliteJournal):
    """Answers late."""

    is_slow = False

    async def begin(self, record):
        try:
            await super().begin(record)
        finally:
            if self.is_slow:
                await asyncio.sleep(10)

    async def claim(self, message_id, *, now, lease_until):
        record = await super().claim(message_id, now=now, lease_until=lease_until)
        if self.is_slow:
            await asyncio.sleep(10)
        return record


async def cancelled_after(seconds, awaitable):
    task = asyncio.ensure_future(awaitable)
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_who_gives_up_a_message_that_is_on_its_way_already_says_nothing_of_that(path):
    agent, journal = FakeAgent(completes("42", after=100)), SlowDisk(path)
    async with connected(agent, journal) as client:
        asking = asyncio.create_task(client.ask(message("m")))
        await asyncio.sleep(5)
        journal.is_slow = True
        await cancelled_after(5, client.ask(message("m")))
        await asyncio.sleep(20)
        journal.is_slow = False

        (pending,) = await client.pending()

        assert pending.message_id == "m"
        with pytest.raises(JournalError, match="already"):
            await client.ask(message("m"))
        assert (await asking).text == "42"
        assert await client.pending() == []
    assert [len(made) for made in agent.executions.values()] == [1]
    await journal.close()


async def test_who_gives_up_while_it_takes_a_call_over_leaves_it_to_others_at_once(path):
    agent, journal = FakeAgent(completes("42", after=100)), SlowDisk(path)
    async with connected(agent, journal) as client:
        await cancelled_after(5, client.ask("How far?"))
        (pending,) = await client.pending()
        journal.is_slow = True
        await cancelled_after(5, pending.resume())
        await asyncio.sleep(6)
        journal.is_slow = False

        assert (await pending.resume()).text == "42"
    await journal.close()


def test_a_key_that_no_journal_can_hold_is_refused_before_a_run_begins():
    with pytest.raises(ValueError, match="key has an unpaired surrogate"):
        RunItem(key="\ud800", content="a")


async def test_a_key_is_not_another_ones_place():
    items = [RunItem(key="1", content="a"), "b"]
    agent = FakeAgent()

    async with connected(agent).run(items) as run:
        with pytest.raises(ValueError, match="'1' was given to more than one"):
            _ = [result async for result in run]


async def test_a_search_that_the_close_of_the_client_ends_is_gone_on_with_by_the_next(path):
    agent, journal = FakeAgent(completes("42"), streaming=False), SqliteJournal(path)
    agent.inject(Reset(), on="SendMessage")
    async with connected(agent, journal) as client:
        asking = asyncio.create_task(client.ask("How far?"))
        await asyncio.sleep(6)

    with pytest.raises(OutcomeUnknownError):
        await asking
    async with connected(agent, journal) as client:
        assert len(await client.pending()) == 1
    await journal.close()


async def test_what_was_not_begun_when_its_lease_was_looked_at_is_not_left_behind(path):
    class SlowRenewal(SqliteJournal):
        async def renew(self, held, lease_until):
            await asyncio.sleep(1000)

    agent, journal = FakeAgent(completes("42", after=300)), SlowRenewal(path)
    async with connected(agent, journal) as client:
        asking = asyncio.create_task(client.ask("How far?"))
        await asyncio.sleep(50)
        await cancelled_after(5, client.ask("How far?"))
        gc.collect()
        await cancelled_after(0, asking)
    await journal.close()


async def test_results_that_nobody_takes_are_let_go_of_in_silence():
    told, go = [], asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    async def breaks(*_):
        await go.wait()
        raise RuntimeError

    client = connected(FakeAgent(completes("42")))
    await client.add_event_consumer(breaks)
    async with client.run(["a", "b", "c"]) as run:
        asyncio.get_running_loop().call_later(10, go.set)
        with pytest.raises(RuntimeError):
            await anext(run)
    del run
    gc.collect()
    await asyncio.sleep(1)

    assert told == []


async def test_a_context_that_the_agent_ran_in_otherwise_is_not_refused():
    agent = FakeAgent(completes("42"), contexts="ignored")
    wrong = Fail(code=-32602, message="the context window is exceeded", after_execution=True)
    agent.inject(wrong, on="SendMessage")

    with pytest.raises(InvalidParamsError):
        await connected(agent, context_ids="client").send_message("How far?")

    assert [len(made) for made in agent.executions.values()] == [1]


@pytest.mark.parametrize("streaming", [True, False], ids=["streams", "polls"])
async def test_what_could_not_be_looked_for_stays_to_be_resumed(path, streaming):
    agent, journal = FakeAgent(completes("42"), streaming=streaming), SqliteJournal(path)
    agent.inject(Reset(after_execution=True), on=SENDS[streaming])
    agent.inject(Refuse(), on="ListTasks", times=200)
    async with connected(agent, journal) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.ask("How far?")
    async with connected(agent, journal) as client:
        while agent.pending_faults:
            with contextlib.suppress(A2AError):
                await client.list_tasks()
            await asyncio.sleep(1)  # the agent is left alone in between
        (pending,) = await client.pending()

        assert (await pending.resume()).text == "42"
    assert [len(made) for made in agent.executions.values()] == [1]
    await journal.close()


@pytest.mark.parametrize("trouble", [Refuse(), Fail(code=-32601, message="Method not found")])
async def test_what_could_not_be_looked_for_is_not_known_to_be_absent(trouble):
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(after_execution=True), on="SendMessage")
    agent.inject(trouble, on="ListTasks", times=200)

    with pytest.raises(OutcomeUnknownError):
        await connected(agent, on_unknown="resend_if_absent").send_message("How far?")

    assert len(agent.calls("SendMessage")) == 1
