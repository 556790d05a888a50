"""Agents that lose their tasks in a restart, and reuse the ids.

The task of another message is never the answer of a call. Missing, truncated and delayed
histories, and histories with other message ids, are no reason to reject a task.
"""

import asyncio
import contextlib
import sqlite3

import msgspec
import pytest

from holdfast import (
    Message,
    Part,
    Role,
    RunItem,
    SqliteJournal,
    TaskNotFoundError,
    TaskState,
    connect,
)
from holdfast.extend import BaseLayer
from holdfast.testing import Cut, FakeAgent, FakeNetwork, asks, completes, streams

both_ways = pytest.mark.parametrize("streaming", [True, False], ids=["streams", "polls"])


class Network(FakeNetwork):
    """A network whose agent can be replaced, as by a restart that loses everything."""

    def start(self, agent):
        self._agents = FakeNetwork(agent)._agents


def repeats(turn):
    return completes(f"re: {turn.message.text}", after=60)


def connected(network, journal=None, **options):
    return connect("http://agent.test", engine=network, journal=journal, **options)


async def left_behind(network, path, text, *, store_messages=False, **options):
    """Leave a call pending whose task was seen and whose lease has ended."""
    journal = SqliteJournal(path, store_messages=store_messages)
    async with connected(network, journal, **options) as client:
        asking = asyncio.create_task(client.ask(text))
        await asyncio.sleep(10)
    await asyncio.gather(asking, return_exceptions=True)
    await journal.close()


async def check_resumed_as_unknown(network, path, **options):
    """Check that the one pending call gets no answer, and stays pending."""
    journal = SqliteJournal(path)
    async with connected(network, journal, **options) as client:
        call = (await client.pending())[0]
        assert call.task_id == "task-1"
        with pytest.raises(TaskNotFoundError, match="task task-1 no longer belongs to") as caught:
            await call.resume(timeout=600)
        assert (caught.value.executed, caught.value.task_id) == (True, "task-1")
        assert call.message_id in [call.message_id for call in await client.pending()]
    await journal.close()


# ── Tasks of other messages ──────────────────────────────────────────────────────────────────


@both_ways
async def test_a_task_of_a_later_call_in_the_journal_does_not_answer_an_earlier_one(
    tmp_path, streaming
):
    path = tmp_path / "calls.db"
    network = Network(FakeAgent(repeats, streaming=streaming))
    await left_behind(network, path, "one")

    network.start(FakeAgent(repeats, streaming=streaming))
    await left_behind(network, path, "another")  # the same task and context ids
    await check_resumed_as_unknown(network, path)


@both_ways
@pytest.mark.parametrize("is_over", [False, True])
async def test_a_task_of_another_clients_message_does_not_answer_a_stored_one(
    tmp_path, streaming, is_over
):
    path = tmp_path / "calls.db"
    network = Network(FakeAgent(repeats, streaming=streaming))
    await left_behind(network, path, "one", store_messages=True)

    network.start(FakeAgent(repeats, streaming=streaming))
    async with connected(network) as other_client:
        await other_client.send_message("another", return_immediately=True)
        await asyncio.sleep(100 if is_over else 0)
        await check_resumed_as_unknown(network, path)


async def test_a_task_in_another_context_does_not_answer_a_call(tmp_path):
    path = tmp_path / "calls.db"
    network = Network(FakeAgent(repeats, records_messages=False))
    await left_behind(network, path, "one", context_ids="client")

    network.start(FakeAgent(repeats, records_messages=False))
    async with connected(network) as other_client:
        await other_client.send_message("another", return_immediately=True)
        await check_resumed_as_unknown(network, path)


@both_ways
async def test_a_repeated_run_returns_each_messages_own_answer(tmp_path, streaming):
    path = tmp_path / "calls.db"
    network = Network(FakeAgent(repeats, streaming=streaming))
    items = [RunItem(key=str(n), content=f"slow 4 m{n}") for n in range(12)]
    journal = SqliteJournal(path)
    async with connected(network, journal) as client:
        run = client.run(items, run_id="r", concurrency=5)
        reading = asyncio.create_task(anext(run))
        await asyncio.sleep(10)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await run.close()

    network.start(FakeAgent(repeats, streaming=streaming))
    async with (
        connected(network, journal) as client,
        client.run(items, run_id="r", concurrency=12) as run,
    ):
        results = [result async for result in run]
    await journal.close()

    answered = {r.key: r.answer.text for r in results if r.answer is not None}
    assert answered == {str(n): f"re: slow 4 m{n}" for n in range(5, 12)}
    assert {type(r.error) for r in results if r.answer is None} == {TaskNotFoundError}


async def test_an_answer_that_was_not_stored_is_not_read_from_another_messages_task(tmp_path):
    path, network = tmp_path / "calls.db", Network(FakeAgent(repeats, streaming=False))
    journal = SqliteJournal(path)
    items = [RunItem(key="a", content="one")]
    async with connected(network, journal) as client:
        async with client.run(items, run_id="r") as run:
            assert [result.answer.text async for result in run] == ["re: one"]
        network.start(FakeAgent(repeats, streaming=False))
        async with connected(network) as other_client:
            await other_client.ask("another")
        async with client.run(items, run_id="r") as run:
            (result,) = [result async for result in run]
    await journal.close()

    assert isinstance(result.error, TaskNotFoundError)
    assert result.error.executed is True


@both_ways
async def test_a_cut_stream_does_not_continue_with_another_messages_task(streaming):
    first = FakeAgent(streams(*"abc", every=30), streaming=streaming)
    first.inject(Cut(after_events=1), on="SendStreamingMessage")
    network = Network(first)
    async with connected(network) as client, client.stream_message("one") as events:
        await anext(events)
        network.start(FakeAgent(repeats, streaming=streaming))
        async with connected(network) as other_client:
            await other_client.send_message("another", return_immediately=True)
            with pytest.raises(TaskNotFoundError, match="no longer belongs to message") as caught:
                await events.result()
    assert caught.value.executed is True


# ── Tasks that may be the message's ──────────────────────────────────────────────────────────


class Shows(BaseLayer):
    """A network that shows the history of each task in another way."""

    shown = None

    def handle(self, call, call_next):
        async def changed():
            reply = await call_next(call)
            if call.operation.name != "GetTask":
                return reply
            history = type(self).shown(reply.value.history)
            task = msgspec.structs.replace(reply.value, history=history)
            return msgspec.structs.replace(reply, value=task)

        return changed()


def with_other_ids(history):
    return tuple(msgspec.structs.replace(m, message_id=f"own-{m.message_id}") for m in history)


def in_other_words(history):
    """Return a history in which the agent has put a prompt around the user's text."""
    parts = tuple(Part(text=f"Conversation so far:\n{m.text}\n") for m in history)
    return tuple(
        msgspec.structs.replace(m, parts=(part,))
        for m, part in zip(with_other_ids(history), parts, strict=True)
    )


def shortened(history):
    """Return the end of a long history: the agent's messages alone, and a reply."""
    later = Message(message_id="later", role=Role.USER, parts=(Part(text="go on"),))
    agents = Message(message_id="said", role=Role.AGENT, parts=(Part(text="hm"),))
    return (agents, later, agents)


HISTORIES = {
    "none": lambda history: (),
    "other ids": with_other_ids,
    "other ids and words": in_other_words,
    "the end": shortened,
}


@pytest.mark.parametrize("store_messages", [True, False])
@pytest.mark.parametrize("shown_history", HISTORIES)
async def test_a_history_without_the_message_does_not_lose_its_answer(
    tmp_path, shown_history, store_messages
):
    path, network = tmp_path / "calls.db", Network(FakeAgent(repeats, streaming=False))
    layer = type("Layer", (Shows,), {"shown": staticmethod(HISTORIES[shown_history])})
    await left_behind(network, path, "one", store_messages=store_messages, attempt_layers=[layer])

    journal = SqliteJournal(path)
    async with connected(network, journal, attempt_layers=[layer]) as client:
        (call,) = await client.pending()
        assert (await call.resume()).text == "re: one"
    await journal.close()


@pytest.mark.parametrize("store_messages", [True, False])
async def test_a_reply_that_a_history_does_not_show_yet_gets_its_answer(tmp_path, store_messages):
    def plan(turn):
        return asks("where?") if turn.task is None else completes("there", after=60)

    path, network = tmp_path / "calls.db", Network(FakeAgent(plan, streaming=False))
    layer = type("Layer", (Shows,), {"shown": staticmethod(lambda history: history[:1])})
    journal = SqliteJournal(path, store_messages=store_messages)
    async with connected(network, journal, attempt_layers=[layer]) as client:
        question = await client.ask("go")
        assert question.task.state is TaskState.INPUT_REQUIRED
        replying = asyncio.create_task(client.ask("home", task_id=question.task.id))
        await asyncio.sleep(10)
    await asyncio.gather(replying, return_exceptions=True)

    async with connected(network, journal, attempt_layers=[layer]) as client:
        (call,) = await client.pending()
        assert (await call.resume()).text == "there"
    await journal.close()


async def test_a_damaged_stored_message_does_not_block_its_known_task(tmp_path):
    network, path = Network(FakeAgent(repeats)), tmp_path / "calls.db"
    await left_behind(network, path, "a", store_messages=True)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        assert database.execute("UPDATE calls SET request = '{'").rowcount == 1

    journal = SqliteJournal(path)
    async with connected(network, journal) as client:
        (call,) = await client.pending()
        assert (await call.resume(timeout=600)).text == "re: a"
    await journal.close()
