"""The code in docs/explanation/retries.md runs as it stands, and does what the page says."""

import asyncio
import functools

import pytest
from tests.kit.pages import Page, execute

import holdfast
from holdfast.testing import FakeAgent, FakeNetwork, Refuse, Respond

PAGE = Page("docs/explanation/retries.md")

SEND = "SendStreamingMessage"
ONCE = holdfast.Resilience(retry=holdfast.RetryPolicy(max_retries=0))


def agent_at(url="https://agent.example.com", behaviour="384,400 km"):
    return FakeAgent(behaviour, url=url)


@pytest.fixture
def reach(monkeypatch):
    """Has the page connect to fake agents."""

    def reach(*agents):
        connect = functools.partial(holdfast.connect, engine=FakeNetwork(*agents))
        monkeypatch.setattr(holdfast, "connect", connect)

    return reach


async def open_circuit(client, agent):
    """Opens the circuit to an agent."""
    agent.inject(Refuse(), times=5)
    for _ in range(5):
        with pytest.raises(holdfast.A2AConnectionError):
            await client.ask("Are you there?")


async def test_all_policies_are_one_value(reach):
    reach(agent_at())

    names = await execute(PAGE.block("ConcurrencyPolicy"))

    stats = names["agent"].stats()
    assert (await names["agent"].ask("How far?")).text == "384,400 km"
    assert (stats.in_flight, stats.waiting) == (0, 0)


def test_defaults_on_the_page_are_those_of_the_policies():
    standard = holdfast.Resilience.standard()
    assert standard == holdfast.Resilience(
        retry=holdfast.RetryPolicy(max_retries=3),
        budget=holdfast.BudgetPolicy(tokens=10, success_gives=0.1, seconds_per_token=10),
        breaker=holdfast.BreakerPolicy(
            failures=5,
            failure_rate=0.5,
            min_calls=10,
            window=10,
            min_wait_to_count=5,
            open_for=5,
            backoff_factor=1.2,
            max_open_for=60,
        ),
        retry_after=holdfast.RetryAfterPolicy(queue=1000),
        concurrency=None,
        hedge=None,
    )
    assert holdfast.HedgePolicy() == holdfast.HedgePolicy(
        quantile=0.95, max_extra=1 / 20, min_samples=20, min_delay=0.01
    )
    assert holdfast.ConcurrencyPolicy(limit=32).queue == 1000
    assert standard.timeouts.first_byte == 120


async def test_open_circuit_says_when_to_call_again():
    agent, lines = agent_at(), []
    client = holdfast.connect(agent.url, engine=FakeNetwork(agent), resilience=ONCE)
    await open_circuit(client, agent)

    await execute(
        PAGE.block("except holdfast.Circuit"),
        agent=client,
        print=lambda *words: lines.extend(words),
    )

    assert str(lines[0]).startswith("the circuit to the agent is open; nothing was sent")


async def test_a_circuit_is_opened_and_reset_by_hand():
    agent, printed = agent_at(), []
    client = holdfast.connect(agent.url, engine=FakeNetwork(agent), resilience=ONCE)
    await open_circuit(client, agent)

    await execute(
        PAGE.block("circuit.open()"), agent=client, print=lambda *words: printed.extend(words)
    )

    state, failures, last = printed
    assert (state, failures) == ("closed", 0)
    assert "refused" in last.cause
    await open_circuit(client, agent)
    assert client.circuit.state == "open"


async def test_observer_is_notified_when_a_circuit_opens(reach):
    agent, lines = agent_at(), []
    reach(agent)

    names = await execute(PAGE.block("CircuitChanged"), print=lambda *words: lines.append(words))
    client = names["agent"]
    agent.inject(Refuse(), times=100)
    for _ in range(2):
        with pytest.raises(holdfast.A2AConnectionError):
            await client.ask("Are you there?")

    address, state, failures = lines[0]
    assert address.startswith("https://agent.example.com")
    assert (state, failures) == ("open", 5)


async def test_stats_show_each_endpoint():
    agent, printed = agent_at(), []
    client = holdfast.connect(agent.url, engine=FakeNetwork(agent))
    await client.ask("How far?")

    await execute(PAGE.block("to_dict"), agent=client, print=lambda *words: printed.append(words))

    card, calls, everything = printed
    assert card[1:] == calls[1:] == ("closed", 10.0, 0)
    assert everything == (client.stats().to_dict(),)


def test_every_block_is_run():
    PAGE.check_complete(
        "ConcurrencyPolicy",
        "except holdfast.Circuit",
        "circuit.open()",
        "CircuitChanged",
        "to_dict",
    )


def test_every_block_can_be_pasted():
    PAGE.check_pastes()


@pytest.mark.parametrize(("failures", "retries"), [(3, 3), (3, 8), (1, 1)])
async def test_a_call_that_opens_the_circuit_waits_while_it_has_retries(failures, retries):
    """The page: each attempt counts, and meeting the open circuit uses up a retry."""
    agent, clock = agent_at(behaviour="42"), asyncio.get_running_loop().time
    agent.inject(Refuse(), times=failures)
    policy = holdfast.Resilience(
        retry=holdfast.RetryPolicy(max_retries=retries),
        breaker=holdfast.BreakerPolicy(failures=failures),
    )
    began = clock()
    async with holdfast.connect(agent.url, engine=FakeNetwork(agent), resilience=policy) as client:
        if retries > failures:
            assert (await client.ask("How far?", timeout=120)).text == "42"
            assert clock() - began > 4
        else:
            with pytest.raises(holdfast.A2AConnectionError) as caught:
                await client.ask("How far?", timeout=120)
            assert caught.value.retry_stopped_reason == "the circuit to the agent is open"
            assert len(caught.value.attempts) == failures
            assert caught.value.executed is False


@pytest.mark.parametrize("status", [429, 503])
async def test_a_retry_after_that_is_too_long_is_an_http_error(status):
    agent = agent_at()
    agent.inject(Respond(status=status, headers={"retry-after": "600"}), on=SEND)
    async with holdfast.connect(agent.url, engine=FakeNetwork(agent)) as client:
        with pytest.raises(holdfast.A2AHTTPError) as caught:
            await client.ask("How far?")
        with pytest.raises(holdfast.RateLimitedError) as waiting:
            await client.ask("How far?", timeout=20)

    assert isinstance(caught.value, holdfast.RateLimitedError) is (status == 429)
    assert (caught.value.http_status, caught.value.retry_after) == (status, 600)
    assert waiting.value.executed is False
