"""The registry of endpoints: bounded, and shared by clients; what is in use stays in it."""

import asyncio

import pytest

from holdfast import A2AConnectionError, CircuitOpenError, Resilience, RetryPolicy, connect
from holdfast.extend import Endpoints
from holdfast.testing import FakeAgent, FakeNetwork, Refuse

ONCE = Resilience(retry=RetryPolicy(max_retries=0))


def fake(name, behaviour="done", **options):
    return FakeAgent(behaviour, url=f"http://{name}.test", **options)


async def test_a_new_endpoint_is_remembered_when_the_registry_is_full():
    agents = [fake(f"agent{n}") for n in range(501)]
    shared, network = Endpoints(), FakeNetwork(*agents)
    for agent in agents:
        await connect(agent.url, engine=network, shared=shared).list_tasks()
        await asyncio.sleep(0.1)
    late = fake("late")
    network = FakeNetwork(late)
    late.inject(Refuse(), times=100, on="ListTasks")
    first, second = (
        connect(late.url, engine=network, shared=shared, resilience=ONCE) for _ in range(2)
    )
    for _ in range(5):
        with pytest.raises(A2AConnectionError):
            await first.list_tasks()

    with pytest.raises(CircuitOpenError):
        await second.list_tasks()


def connected(agent, network=None, **options):
    return connect(agent.url, engine=network or FakeNetwork(agent), **options)


def card_at(url, **members):
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0", **members}
    return {"name": "Found", "supportedInterfaces": [interface]}


async def test_the_registry_of_endpoints_is_bounded():
    agent, shared = FakeAgent(), Endpoints()
    client = connected(agent, shared=shared, card_ttl=0)
    for number in range(1100):
        agent.card = card_at("http://agent.test/rpc", tenant=f"t{number}")
        await client.list_tasks()

    assert len(shared) == 1000
