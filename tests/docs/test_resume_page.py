"""The code in docs/howto/resume-after-crash.md runs as it stands, and does what the page says."""

import contextlib
import functools
import sqlite3

import pytest
from tests.kit.pages import Page, execute

import holdfast
from holdfast import errors
from holdfast.testing import FakeAgent, FakeNetwork, Stall, asks, completes, fails

PAGE = Page("docs/howto/resume-after-crash.md")
HERE = "http://localhost:9999"


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Runs blocks in an empty directory against fake agents."""
    monkeypatch.chdir(tmp_path)
    return World(monkeypatch)


class World:
    def __init__(self, monkeypatch):
        self.plans = {}
        ordered = completes("Ordered.", after=60)
        self.agent = FakeAgent(lambda turn: self.plans.get(turn.message.text, ordered), url=HERE)
        self.other = FakeAgent("Mars.", url="http://localhost:9998")
        network = FakeNetwork(self.agent, self.other)
        self.connect = functools.partial(holdfast.connect, engine=network)
        coordinator = functools.partial(holdfast.Coordinator, engine=network)
        monkeypatch.setattr(holdfast, "connect", self.connect)
        monkeypatch.setattr(holdfast, "Coordinator", coordinator)

    async def leave(self, message, *, journal="calls.db", url=HERE):
        """Begins a call, and leaves it pending."""
        async with self.connect(url, journal=journal) as agent:
            with pytest.raises((holdfast.DeadlineExceededError, holdfast.OutcomeUnknownError)):
                await agent.ask(message, timeout=5)

    async def run(self, text, **names):
        """Runs a block, and returns its names and what it printed."""
        printed = []
        names = await execute(
            PAGE.block(text), print=lambda *words: printed.append(words), **names
        )
        return names, printed


async def test_pending_calls_are_resumed_before_new_ones(world):
    await world.leave("Order one pizza.")

    _, printed = await world.run("({call.remaining} left)")

    assert [words[1:] for words in printed] == [("Ordered.", "(0 left)"), ()]
    assert len(world.agent.executions) == 2
    assert all(len(made) == 1 for made in world.agent.executions.values())


async def test_each_outcome_has_its_case(world):
    names, _ = await world.run("match call.error")
    world.plans = {"b": fails("no dough", after=60), "c": asks("Which one?", after=60)}
    for text in "abc":
        await world.leave({"messageId": text, "parts": [{"text": text}]})
    world.agent.inject(Stall(), on="SendStreamingMessage")
    await world.leave({"messageId": "never arrived", "parts": [{"text": "d"}]})
    seen = {}

    async def note(message_id, outcome):
        seen[message_id] = outcome

    async with world.connect(HERE, journal="calls.db") as agent:
        await names["resume"](agent, note, note)
        assert await agent.pending() == []

    assert seen["a"].text == "Ordered."
    assert "no dough" in seen["b"]
    assert seen["c"].needs_input
    assert seen["never arrived"] == "perhaps executed: decide by hand"


async def test_a_step_is_resumed_or_sent_once(world):
    await world.leave({"messageId": "order-17", "parts": [{"text": "Order one pizza."}]})

    _, printed = await world.run("agent.ask(message)")
    with pytest.raises(errors.JournalError) as caught:
        await world.run("agent.ask(message)")

    assert printed == [("Ordered.",)]
    assert caught.value.reason == "exists"
    assert list(map(len, world.agent.executions.values())) == [1]


async def test_an_idempotent_call_is_sent_once_and_answered_each_time(world):
    for _ in range(2):
        _, printed = await world.run('key="order-17"')
        assert printed == [("Ordered.",)]
    assert list(map(len, world.agent.executions.values())) == [1]

    changed = PAGE.block('key="order-17"').replace("one pizza", "two pizzas")
    with pytest.raises(errors.KeyConflictError):
        await execute(changed)


async def test_a_coordinator_resumes_agent_by_agent(world):
    await world.leave("hello")

    _, printed = await world.run("holdfast.Coordinator")

    assert [(name, text) for name, _, text in printed] == [("moon", "Ordered.")]


async def test_a_call_is_resumed_by_one_of_two_processes(world):
    await world.leave("hello")
    results = []
    async with (
        world.connect(HERE, journal="calls.db") as first,
        world.connect(HERE, journal="calls.db") as second,
    ):
        [mine] = await first.pending()
        [yours] = await second.pending()
        async with mine.stream() as events:
            with pytest.raises(errors.JournalError) as caught:
                await yours.resume()
            results.append((await events.result()).text)

    assert (results, caught.value.reason) == (["Ordered."], "held")


async def test_the_options_are_those_of_the_journal(world):
    names, printed = await world.run("store_messages=True,")

    assert printed == [([],)]
    defaults = holdfast.SqliteJournal("calls.db")
    assert (names["journal"].lease, defaults.lease) == (10, 30)
    assert not defaults.stores_messages


async def test_a_backup_by_sqlite_has_the_pending_calls(world):
    await world.leave("hello")
    with (
        contextlib.closing(sqlite3.connect("calls.db")) as source,
        contextlib.closing(sqlite3.connect("backup.db")) as target,
    ):
        source.backup(target)

    async with world.connect(HERE, journal="backup.db") as agent:
        assert len(await agent.pending()) == 1


def test_every_block_is_run():
    PAGE.check_complete(
        "({call.remaining} left)",
        "match call.error",
        "agent.ask(message)",
        'key="order-17"',
        "holdfast.Coordinator",
        "store_messages=True,",
        "order-18/how-many",
    )


def test_every_block_can_be_pasted():
    PAGE.check_pastes()


async def test_a_question_is_not_pending_and_an_idempotent_call_shows_it_again(world):
    world.plans = {"Order one pizza.": asks("Which one?")}
    for _ in range(2):
        names, _ = await world.run('key="order-17"')
        assert names["answer"].needs_input

    async with world.connect(HERE, journal="calls.db") as agent:
        assert await agent.pending() == []
        listed = await agent.list_tasks(status=holdfast.TaskState.INPUT_REQUIRED)
    assert [task.id for task in listed.tasks] == [names["answer"].task_id]


def test_every_link_leads_somewhere():
    PAGE.check_links()


def test_the_commands_exist():
    PAGE.check_commands(at_least=3)


async def test_keyed_conversation_run_again_returns_the_recorded_results(world):
    world.plans = {"ask How many pizzas?": asks("How many pizzas?")}
    for _ in range(2):
        _, printed = await world.run("order-18/how-many")
        assert printed == [("Ordered.",)]

    assert len(world.agent.tasks) == 1
    assert len(world.agent.executions) == 2
