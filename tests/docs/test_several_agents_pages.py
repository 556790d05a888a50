"""The code in docs/howto/replicas.md and many-agents.md runs as it stands."""

import functools

import pytest
from tests.kit.pages import Page, execute

import holdfast
from holdfast.observe import WaitFinished, WaitStarted
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

    printed = await run(REPLICAS.block('agent.ask("How far'), *agents)

    assert printed == ["384,400 km"]
    assert len(agents[1].executions) == 1


async def test_stores_are_declared_shared_or_separate(run):
    assert await run(REPLICAS.block("shared_store=False")) == []


async def test_a_call_with_a_key_is_found_at_the_new_address_of_its_agent(
    run, tmp_path, monkeypatch
):
    """The page: the new address alone conflicts; both addresses find the call."""
    monkeypatch.chdir(tmp_path)
    new, old = (
        FakeAgent(completes("done"), url=f"https://{n}.example.com") for n in ("new", "old")
    )
    block = REPLICAS.block("order-17")
    both = 'urls = ["https://new.example.com", "https://old.example.com"]'
    assert both in block
    before = block.replace(both, "urls = 'https://old.example.com'")
    after = block.replace(both, "urls = 'https://new.example.com'")

    assert await run(before, old) == ["done"]
    with pytest.raises(holdfast.errors.KeyConflictError, match=r"to another agent"):
        await run(after, new)
    assert await run(block, new, old) == ["done"]
    assert (len(old.executions), len(new.executions)) == (1, 0)


async def test_a_renamed_agent_gets_its_jobs_again_and_a_moved_one_gets_none(
    run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    weather, news = FakeAgent("Rain.", url=HERE), FakeAgent("Elections.", url=OTHER)
    moved = FakeAgent("Rain.", url="http://localhost:9997")
    agents, block = (weather, news, moved), MANY_AGENTS.block("rome-1")
    await run(block, *agents)

    with_moved = block.replace(HERE, moved.url)
    printed = await run(with_moved, *agents)
    assert [line.partition(" (")[0] for line in printed][1] == "news Elections."
    assert printed[0].startswith("weather the key 'rome-1/weather' was used")
    with_both = block.replace(f'"{HERE}"', f'["{moved.url}", "{HERE}"]')
    assert await run(with_both, *agents) == ["weather Rain.", "news Elections."]
    assert [len(agent.executions) for agent in agents] == [1, 1, 0]

    await run(block.replace('"weather"', '"forecast"'), *agents)
    assert [len(agent.executions) for agent in agents] == [2, 1, 0]


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


async def test_fan_out_with_a_key_is_repeated_without_a_second_message(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    weather, news = FakeAgent("Rain.", url=HERE), FakeAgent("Elections.", url=OTHER)
    block = MANY_AGENTS.block("rome-1")

    assert await run(block, weather, news) == ["weather Rain.", "news Elections."]
    assert await run(block, weather, news) == ["weather Rain.", "news Elections."]
    assert [len(agent.calls("SendStreamingMessage")) for agent in (weather, news)] == [1, 1]


async def test_a_wait_for_a_slot_of_the_coordinator_is_observed(run):
    """The table "What to put on a dashboard"."""
    waits, agent = [], FakeAgent(completes("done", after=5), url=HERE)

    def observe(observation):
        if isinstance(observation, WaitStarted | WaitFinished):
            waits.append((type(observation), observation.reason))
            waited.append(getattr(observation, "duration", None))

    waited = []
    async with holdfast.Coordinator(
        {"a": HERE}, concurrency=1, engine=FakeNetwork(agent), observers=[observe]
    ) as coordinator:
        await coordinator.fan_out([("a", "one"), ("a", "two")])

    assert waits == [(WaitStarted, "concurrency"), (WaitFinished, "concurrency")]
    assert waited[0] is None
    assert waited[1] >= 5


async def test_credentials_of_one_agent_stay_with_its_client(run):
    agent = FakeAgent("Snow.", url=HERE)

    assert await run(MANY_AGENTS.block("Bearer t0ken"), agent) == ["Snow."]
    assert agent.calls("SendStreamingMessage")[0].headers["authorization"] == "Bearer t0ken"


def test_every_block_is_run():
    REPLICAS.check_complete('agent.ask("How far', "shared_store=False", "order-17")
    MANY_AGENTS.check_complete(
        "coordinator.health()", "isinstance", "coordinator.add(", "rome-1", "Bearer t0ken"
    )


def test_every_block_can_be_pasted():
    REPLICAS.check_pastes()
    MANY_AGENTS.check_pastes()


def test_every_link_leads_somewhere():
    REPLICAS.check_links()
    MANY_AGENTS.check_links()
