"""The code in docs/howto/replicas.md and many-agents.md runs as it stands."""

import functools

import pytest
from tests.kit.pages import Page, execute

import holdfast
from holdfast.testing import FakeAgent, FakeNetwork, Refuse, asks, completes, fails

REPLICAS = Page("docs/howto/replicas.md")
MANY_AGENTS = Page("docs/howto/many-agents.md")
HERE, OTHER = "http://localhost:9999", "http://localhost:9998"


@pytest.fixture
def run(monkeypatch):
    """Runs a block with fake agents as the network, and returns what it printed."""

    async def run(block, *agents):
        printed, network = [], FakeNetwork(*agents)
        for name in ("connect", "Coordinator"):
            real = getattr(holdfast, name)
            monkeypatch.setattr(holdfast, name, functools.partial(real, engine=network))
        await execute(block, print=lambda *words: printed.append(" ".join(map(str, words))))
        return printed

    return run


async def test_a_replica_takes_over(run):
    agents = [FakeAgent("384,400 km", url=f"https://{name}.example.com") for name in "ab"]
    agents[0].inject(Refuse(), times=100)

    printed = await run(REPLICAS.block("answer = await agent.ask"), *agents)

    assert printed == ["384,400 km"]
    assert len(agents[1].executions) == 1


async def test_stores_are_declared_shared_or_separate(run):
    assert await run(REPLICAS.block("shared_store=False")) == []


async def test_each_agent_has_a_result_and_a_health(run):
    weather = FakeAgent(fails("no satellite"), url=HERE)
    news = FakeAgent(completes("Elections.", after=2), url=OTHER)

    printed = await run(MANY_AGENTS.block("coordinator.health()"), weather, news)

    assert printed[0].startswith("weather task")
    assert "no satellite" in printed[0]
    assert printed[1:] == ["news Elections.", "Elections.", "weather True None", "news True None"]


async def test_a_task_that_waits_for_input_gets_a_reply(run):
    def books(turn):
        return asks("When?") if turn.task is None else completes(f"Booked: {turn.message.text}")

    agent = FakeAgent(books, url=HERE)

    assert await run(MANY_AGENTS.block("isinstance"), agent) == ["Booked: Friday"]


async def test_agents_are_added_and_removed(run):
    assert await run(MANY_AGENTS.block("coordinator.add(")) == ["('weather', 'news')"]


async def test_pending_calls_of_a_fan_out_are_resumed_by_their_message_ids(
    run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    weather = FakeAgent(completes("Rain.", after=60), url=HERE)
    network = FakeNetwork(weather, FakeAgent("Elections.", url=OTHER))
    async with holdfast.connect(HERE, engine=network, journal="calls.db") as client:
        message = {"messageId": "rome-0:weather", "parts": [{"text": "x"}]}
        with pytest.raises(holdfast.DeadlineExceededError):
            await client.ask(message, timeout=5)
    block = MANY_AGENTS.block("rome-1")
    printed = await run(block, weather, FakeAgent("Elections.", url=OTHER))
    with pytest.raises(holdfast.NotEnoughResultsError) as caught:
        await run(block, weather, FakeAgent("Elections.", url=OTHER))

    assert printed == ["rome-0:weather Rain.", "weather Rain.", "news Elections."]
    assert [result.error.reason for result in caught.value.results] == ["exists", "exists"]


async def test_credentials_of_one_agent_stay_with_its_client(run):
    agent = FakeAgent("Snow.", url=HERE)

    assert await run(MANY_AGENTS.block("Bearer t0ken"), agent) == ["Snow."]
    assert agent.calls("SendStreamingMessage")[0].headers["authorization"] == "Bearer t0ken"


def test_every_block_is_run():
    REPLICAS.check_complete("answer = await agent.ask", "shared_store=False")
    MANY_AGENTS.check_complete(
        "coordinator.health()", "isinstance", "coordinator.add(", "rome-1", "Bearer t0ken"
    )


def test_every_block_can_be_pasted():
    REPLICAS.check_pastes()
    MANY_AGENTS.check_pastes()


def test_every_link_leads_somewhere():
    REPLICAS.check_links()
    MANY_AGENTS.check_links()
