"""Sending once where clocks are set, threads are short, and others cancel what is waited for."""

import asyncio
import contextlib
import sys
import threading
import uuid

import pytest
from tests.kit.batch_runs import collected, ended
from tests.kit.cli_runs import Runs
from tests.test_hunt_sent_once import connected, message

from holdfast import DeadlineExceededError, RunItem, connect
from holdfast._aio.env import SystemEnv
from holdfast._cli.batch.input import read_line
from holdfast._cli.batch.output import Results
from holdfast.errors import JournalError
from holdfast.extend import CallRecord, RecordUpdate, SqliteJournal
from holdfast.testing import FakeAgent, FakeNetwork, Refuse, asks, completes

if sys.platform != "win32":
    import fcntl
    import resource

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "calls.db"


class SetClock(SystemEnv):
    """Wall time that goes with the event loop's clock, and can be set."""

    ahead = 0.0

    def wall(self):
        return 1_700_000_000.0 + self.ahead + asyncio.get_running_loop().time()


async def test_a_call_that_was_let_go_is_free_though_the_clock_is_set_back(path):
    agent, env = FakeAgent(completes("42", after=60)), SetClock()
    async with connect(
        agent.url, journal=f"sqlite:///{path}", env=env, engine=FakeNetwork(agent)
    ) as client:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await client.ask("How far?")
        env.ahead = -3600.0

        (call,) = await client.pending()

        assert not call.is_held
        assert (await call.resume(timeout=100)).text == "42"


async def test_who_is_alive_is_noticed_though_the_clock_is_set_back(path):
    agent, env = FakeAgent(completes("42", after=1000)), SetClock()
    journal = SqliteJournal(path)
    options = {"journal": journal, "env": env}
    async with (
        connect(agent.url, engine=FakeNetwork(agent), **options) as alive,
        connect(agent.url, engine=FakeNetwork(agent), **options) as client,
    ):
        asking = asyncio.create_task(alive.ask("How far?"))
        await asyncio.sleep(1)
        env.ahead = -3600.0
        (call,) = await client.pending()

        with pytest.raises(JournalError, match="renewed"):
            await call.resume(timeout=60)

        asking.cancel()
        await asyncio.wait([asking])
    await journal.close()


async def test_who_waits_for_another_run_and_then_goes_on_has_its_time_once(path):
    agent, journal = FakeAgent(completes("42", after=1000)), SqliteJournal(path)
    clock = asyncio.get_running_loop().time
    async with connected(agent, journal) as one, connected(agent, journal) as other:
        first, began = one.run(["How far?"], run_id="r"), clock()
        taking = asyncio.create_task(anext(first, None))
        await asyncio.sleep(5)
        waiting = asyncio.create_task(anext(other.run(["How far?"], run_id="r", timeout=60)))
        await asyncio.sleep(55)
        await first.close()

        result = await waiting

        assert isinstance(result.error, DeadlineExceededError)
        assert clock() == pytest.approx(began + 65)
        assert await taking is None
    await journal.close()


async def test_a_label_leads_to_what_may_have_been_sent_though_the_clock_was_set_back(path):
    journal = SqliteJournal(path)
    await journal.begin(CallRecord(message_id="later", agent="a", began=9.0, label="l"))
    await journal.update("later", 1, RecordUpdate(outcome="not_sent"))
    await journal.begin(CallRecord(message_id="sent", agent="a", began=3.0, label="l"))

    found = await journal.find_label("l")

    assert found.message_id == "sent"
    await journal.close()


async def test_a_run_finds_its_answers_though_the_clock_was_set_back(path):
    agent, env = FakeAgent(completes("42")), SetClock()

    async def run():
        async with connect(
            agent.url, journal=f"sqlite:///{path}", env=env, engine=FakeNetwork(agent)
        ) as client:
            return [*(await collected(client.run(["How far?"], run_id="r"))).values()]

    agent.inject(Refuse(), on="SendStreamingMessage", times=4)
    (first,) = await run()
    assert first.error is not None
    env.ahead = -3600.0
    (second,) = await run()
    assert second.answer is not None

    (third,) = await run()

    assert third.error is None
    assert third.answer.text == "42"


class SlowToRenew(SqliteJournal):
    """Renews late, as one does that is far away."""

    async def renew(self, held, lease_until):
        await asyncio.sleep(5)
        return await super().renew(held, lease_until)


async def test_a_renewal_under_way_takes_nothing_from_who_goes_on_with_the_call(path):
    agent, journal = FakeAgent(completes("42", after=60)), SlowToRenew(path)
    async with connected(agent, journal) as client:
        asking, other = (asyncio.create_task(client.ask(message(name))) for name in "ab")
        await asyncio.sleep(12)  # a renewal has begun
        asking.cancel()
        await asyncio.wait([asking])
        call = {call.message_id: call for call in await client.pending()}["a"]

        assert (await call.resume()).text == "42"
        assert (await other).text == "42"
    await journal.close()


async def test_a_thread_that_cannot_be_had_now_may_be_had_later(path, monkeypatch):
    journal = SqliteJournal(path)

    def refuse(_thread):
        text = "can't start new thread"
        raise RuntimeError(text)

    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", refuse)
        with pytest.raises((JournalError, RuntimeError), match="thread"):
            await journal.find("m")

    async with asyncio.timeout(5):
        assert await journal.find("m") is None
    await journal.close()


def test_what_comes_while_a_journal_is_closed_is_written_as_ever(path):
    journal, asked = SqliteJournal(path), []

    async def ask_until_closed():
        closing = asyncio.create_task(journal.close())
        while not closing.done():
            record = CallRecord(message_id=f"m-{len(asked)}", agent="a", began=1.0)
            asked.append(asyncio.create_task(journal.begin(record)))
            await asyncio.sleep(0)
        await asyncio.gather(*asked)

    async def work():
        for _ in range(20):
            await journal.find("m")
            await ask_until_closed()
        assert len(await journal.unfinished("a")) == len(asked)
        await journal.close()

    asyncio.run(work())


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


@pytest.mark.parametrize("way", ["close", "stop", "fault"])
async def test_a_generator_of_messages_is_closed_with_the_run(way):
    agent, closed = FakeAgent(completes("42")), []

    async def messages():
        try:
            while True:
                yield RunItem(key="same" if way == "fault" else str(uuid.uuid4()), content="one")
        finally:
            await asyncio.sleep(0)
            closed.append(way)

    source = messages()
    async with connected(agent) as client:
        run = client.run(source, concurrency=1)
        await anext(run)
        if way == "close":
            await run.close()
        elif way == "stop":
            run.stop()
            assert await anext(run, None) is None
        else:
            await ended(run)

        assert closed == [way]


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


@pytest.mark.parametrize("stores", [True, False])
async def test_an_answer_with_half_a_character_is_known_to_the_next_run(path, stores):
    agent = FakeAgent(completes("a\ud800b"))
    texts = []
    for _ in range(2):
        journal = SqliteJournal(path, store_messages=stores)
        async with connected(agent, journal) as client:
            (result,) = (await collected(client.run(["hi"], run_id="r"))).values()
            assert result.error is None
            texts.append(result.answer.text)
        await journal.close()

    assert texts[0] == texts[1]


async def test_a_message_with_half_a_character_is_not_recorded(path):
    agent, journal = FakeAgent(completes("42")), SqliteJournal(path, store_messages=True)
    async with connected(agent, journal) as client:
        with pytest.raises(ValueError, match="unpaired surrogate"):
            await client.ask("c\udfffd")
        (result,) = (await collected(client.run(["c\udfffd"], run_id="r"))).values()

        assert isinstance(result.error, ValueError)
        assert await client.pending() == []
    await journal.close()
    assert agent.received == []


@pytest.mark.parametrize("streaming", [True, False])
async def test_what_a_reply_on_the_way_has_made_is_written_down_before_anybody_hears_of_it(
    path, streaming
):
    agent = FakeAgent(
        lambda turn: asks("For how many?") if turn.task is None else completes("Booked.", after=9)
    )
    journal, states = SqliteJournal(path), []
    async with connected(agent, journal, streaming=streaming) as client:
        talk = client.conversation(on_input=lambda _asked: "Two.")
        async with talk.stream_message("Book.") as events:
            async for _ in events:
                record = await journal.find(list(agent.executions)[-1])
                states.append((record.state, str(events.task.state)))
    await journal.close()

    assert len(agent.executions) == 2
    assert all(written == told for written, told in states)


@pytest.mark.parametrize("is_lost", [True, False])
def test_results_with_half_a_character_are_gone_on_with(tmp_path, is_lost):
    runs = Runs(tmp_path, FakeAgent(completes("a\ud800b")))
    runs(lines=["one", "other"])
    written = sorted(runs.output.read_text().splitlines())
    if is_lost:
        runs.output.unlink()

    done = runs()

    assert done.exit == 0
    assert sorted(runs.output.read_text().splitlines()) == written
    assert runs.sent == 2


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_a_file_of_results_that_was_replaced_before_it_was_locked_is_not_written_to(
    tmp_path, monkeypatch
):
    runs, lock = Runs(tmp_path), fcntl.flock
    runs(lines=["one"])
    whole = runs.output.read_text()

    def replaced(file, how):
        runs.output.unlink()
        runs.output.write_text(whole)  # another run has put a new one there
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", replaced)
    done = runs(lines=["one", "two"])

    assert "is being written by another run" in done.err
    assert runs.output.read_text() == whole
    assert runs.sent == 1


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_what_cannot_be_written_to_its_end_is_not_in_the_way_of_what_follows(tmp_path):
    path = tmp_path / "out.jsonl"
    results = Results(path, without_errors=False)
    one, two = (read_line(text, 1) for text in (b"one", b"two"))
    results.write(one, {"message": {"parts": []}})
    whole = path.read_bytes()

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 20, before[1]))
    try:
        with pytest.raises(OSError, match="large"):
            results.write(two, {"message": {"parts": []}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert path.read_bytes() == whole
    results.write(two, {"message": {"parts": []}})
    results.close()
    again = Results(path, without_errors=False)
    assert set(again.known) == {one.key, two.key}
    again.close()
