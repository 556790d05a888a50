"""Statistics of a client, and its circuit, which can be opened and closed manually."""

import asyncio
import contextlib
import json

import pytest

from holdfast import (
    A2AConnectionError,
    A2AError,
    BreakerPolicy,
    CircuitOpenError,
    ConcurrencyPolicy,
    Resilience,
    RetryPolicy,
    connect,
)
from holdfast.extend import Endpoints
from holdfast.testing import (
    Delay,
    FakeAgent,
    FakeNetwork,
    Refuse,
    completes,
    rate_limited,
    run,
    works_forever,
)

ONCE = Resilience(retry=RetryPolicy(max_retries=0))


def connected(agent, **options):
    options.setdefault("engine", FakeNetwork(agent))
    return connect(agent.url, **options)


async def fails(client, times, error=A2AConnectionError):
    for _ in range(times):
        with pytest.raises(error):
            await client.ask("hello")


# ── Statistics ───────────────────────────────────────────────────────────────────────────────


async def test_stats_of_an_unused_client_are_empty():
    stats = connected(FakeAgent()).stats()

    assert (stats.url, stats.endpoints, stats.in_flight, stats.waiting) == (None, (), None, 0)


async def test_stats_contain_each_endpoint():
    agent = FakeAgent(streaming=False)
    client = connected(agent)
    await client.ask("hello")
    agent.inject(Refuse(), times=2)
    await client.ask("hello")

    stats = client.stats()

    card, calls = stats.endpoints
    assert (card.url, card.binding, card.answered) == ("http://agent.test:80", "card", 1)
    assert (calls.url, calls.binding, calls.version) == (stats.url, "JSONRPC", "1.0")
    assert (calls.answered, calls.attempts) == (2, 4)
    assert 8 < calls.retry_tokens < 8.5
    assert (calls.circuit, calls.failures, calls.retry_after) == ("closed", 0, 0.0)


async def test_stats_contain_an_open_circuit():
    agent = FakeAgent()
    client = connected(agent, resilience=ONCE)
    await client.ask("hello")
    agent.inject(Refuse(), times=5)
    await fails(client, 5)

    calls = client.stats().endpoints[-1]

    assert (calls.circuit, calls.failures) == ("open", 5)
    assert 4 <= calls.retry_after <= 6


async def test_stats_contain_waiting_calls():
    agent = FakeAgent(lambda turn: works_forever() if turn.message.text == "long" else "done")
    limited = Resilience(concurrency=ConcurrencyPolicy(limit=2))
    client = connected(agent, resilience=limited)
    assert (client.stats().in_flight, client.stats().waiting) == (0, 0)
    tasks = [asyncio.create_task(client.ask("long")) for _ in range(5)]
    await asyncio.sleep(1)

    stats = client.stats()

    assert (stats.in_flight, stats.waiting) == (2, 3)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert (client.stats().in_flight, client.stats().waiting) == (0, 0)


async def test_stats_contain_a_rate_limit():
    agent = FakeAgent(completes("done"))
    client = connected(agent)
    await client.ask("hello")
    agent.inject(rate_limited(10), times=1)
    tasks = [asyncio.create_task(client.ask("hello"))]
    await asyncio.sleep(1)
    tasks.append(asyncio.create_task(client.ask("hello")))
    await asyncio.sleep(1)

    calls = client.stats().endpoints[-1]

    assert (calls.is_rate_limited, calls.waiting) == (True, 2)
    await asyncio.gather(*tasks)
    assert (
        client.stats().endpoints[-1].is_rate_limited,
        client.stats().endpoints[-1].waiting,
    ) == (
        False,
        0,
    )


def test_stats_are_json_work_without_a_loop_and_hold_no_secret():
    agent = FakeAgent(token="s3cret-token")
    client = connected(
        agent,
        auth="Bearer s3cret-token",
        headers={"x-key": "s3cret-key"},
        resilience=Resilience(concurrency=ConcurrencyPolicy(limit=2)),
    )
    run(client.ask("hello"))

    stats = client.stats()  # where no event loop runs

    written = json.dumps(stats.to_dict())
    assert json.loads(written)["endpoints"][1]["answered"] > 0
    assert "s3cret" not in written + repr(stats)
    assert (stats.in_flight, stats.endpoints[1].circuit) == (0, "closed")


# ── Manual overrides ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("called_before", [False, True])
async def test_an_opened_circuit_lets_nothing_pass_until_reset(called_before):
    agent = FakeAgent()
    client = connected(agent)
    if called_before:
        await client.ask("hello")
    before = len(agent.received)

    client.circuit.open()

    with pytest.raises(CircuitOpenError, match="was opened manually") as caught:
        await client.ask("hello")
    assert (caught.value.executed, caught.value.retry_after) == (False, None)
    assert (client.circuit.state, client.circuit.retry_after) == ("open", None)
    await asyncio.sleep(1000)
    await fails(client, 1, CircuitOpenError)
    assert len(agent.received) == before

    client.circuit.reset()
    assert client.circuit.state == "closed"
    await client.ask("hello")


async def test_a_circuit_shows_its_state():
    agent = FakeAgent()
    client = connected(agent, resilience=ONCE)
    agent.inject(Refuse(), times=5)

    await fails(client, 5)

    assert repr(client.circuit) == "Circuit(state='open', failures=5)"


async def test_a_closed_circuit_lets_all_calls_pass():
    agent = FakeAgent()
    client = connected(agent, resilience=ONCE)
    client.circuit.close()
    agent.inject(Refuse(), times=20)

    await fails(client, 20)

    assert client.circuit.state == "closed"
    client.circuit.reset()
    agent.inject(Refuse(), times=20)
    await fails(client, 5)
    await fails(client, 15, CircuitOpenError)
    assert client.circuit.state == "open"


async def test_reset_closes_a_circuit_that_failures_have_opened():
    agent = FakeAgent()
    client = connected(agent, resilience=ONCE)
    agent.inject(Refuse(), times=5)
    await fails(client, 5)
    await fails(client, 1, CircuitOpenError)
    assert client.circuit.failures == 5
    assert "refused" in client.circuit.last_failure.cause

    client.circuit.reset()

    assert (client.circuit.failures, client.circuit.state) == (0, "closed")
    await client.ask("hello")


async def test_of_several_endpoints_the_best_one_that_has_answered_counts():
    agents = [FakeAgent(url=f"http://{name}.test", bindings=("JSONRPC",)) for name in "ab"]
    long = BreakerPolicy(failures=2, open_for=10_000, max_open_for=12_000)
    policy = Resilience(retry=RetryPolicy(max_retries=0), breaker=long)
    urls = [agent.url for agent in agents]
    client = connect(urls, engine=FakeNetwork(*agents), resilience=policy)

    async def many():
        for _ in range(300):
            await asyncio.sleep(1)
            with contextlib.suppress(A2AError):
                await client.send_message("hello")

    await many()
    assert all(agent.calls("SendMessage") for agent in agents)
    agents[0].inject(Refuse(), times=1000)
    await many()
    states = [
        endpoint.circuit for endpoint in client.stats().endpoints if endpoint.binding == "JSONRPC"
    ]
    assert sorted(states) == ["closed", "open"]
    assert client.circuit.state == "closed"

    agents[1].inject(Refuse(), times=1000)
    await many()
    assert client.circuit.state == "open"


async def test_clients_that_share_endpoints_share_the_circuit():
    agent, shared = FakeAgent(), Endpoints()
    first, second = (connected(agent, shared=shared, resilience=ONCE) for _ in range(2))
    await first.ask("hello")
    await second.ask("hello")
    agent.inject(Refuse(), times=5)

    await fails(first, 5)

    assert second.circuit.state == "open"
    await fails(second, 1, CircuitOpenError)


async def test_a_manual_override_applies_to_one_client():
    agent, shared = FakeAgent(), Endpoints()
    first, second = (connected(agent, shared=shared) for _ in range(2))
    await first.ask("hello")

    first.circuit.open()

    assert (first.circuit.state, second.circuit.state) == ("open", "closed")
    assert {endpoint.circuit for endpoint in first.stats().endpoints} == {"open"}
    await second.ask("hello")


def test_a_manual_override_applies_in_every_event_loop():
    client = connected(FakeAgent())
    run(client.ask("hello"))

    client.circuit.open()

    assert client.circuit.state == "open"
    with pytest.raises(CircuitOpenError, match="opened manually"):
        run(client.ask("hello"))
    client.circuit.reset()
    run(client.ask("hello"))


async def test_a_client_without_a_breaker_can_be_closed_to_calls():
    client = connected(FakeAgent(), resilience=Resilience.off())
    assert (client.circuit.state, client.circuit.retry_after) == ("closed", 0.0)

    client.circuit.open()

    await fails(client, 1, CircuitOpenError)
    client.circuit.reset()
    await client.ask("hello")


async def test_a_manual_opening_does_not_report_an_old_failure_as_cause():
    agent = FakeAgent()
    client = connected(agent, resilience=ONCE)
    agent.inject(Refuse())
    await fails(client, 1)

    client.circuit.open()

    with pytest.raises(CircuitOpenError) as caught:
        await client.ask("hello")
    assert "refused" not in str(caught.value)


async def test_clients_with_different_policies_show_their_own_failures():
    agent, shared = FakeAgent(), Endpoints()
    hasty = Resilience(breaker=BreakerPolicy(slow_after=1))
    first = connected(agent, shared=shared, resilience=ONCE)
    second = connected(agent, shared=shared, resilience=hasty)
    await first.agent_card()
    await second.agent_card()
    agent.inject(Refuse())
    await fails(first, 1)
    agent.inject(Delay(seconds=2))

    await second.send_message("hello")

    assert "refused" in first.circuit.last_failure.cause
    assert second.circuit.last_failure.cause == "the reply took 2 s"


async def test_a_slow_reply_is_the_last_failure():
    agent = FakeAgent(latency=2)
    policy = Resilience(breaker=BreakerPolicy(slow_after=1))
    client = connected(agent, resilience=policy)
    await client.agent_card()
    await client.send_message("hello")

    last = client.circuit.last_failure

    assert (last.cause, last.at) == ("the reply took 2 s", asyncio.get_running_loop().time())
