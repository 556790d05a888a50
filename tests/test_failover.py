"""Where else a call goes while an agent's first interface is away."""

import asyncio

import pytest

from holdfast import (
    A2AConnectionError,
    A2AHTTPError,
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    CircuitOpenError,
    InternalError,
    Resilience,
    RetryPolicy,
    connect,
)
from holdfast.runtime.env import SystemEnv
from holdfast.testing import (
    Fail,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    Respond,
    Stall,
    completes,
    rate_limited,
)

ONCE = Resilience(retry=RetryPolicy(max_retries=0))


class Middle(SystemEnv):
    def random(self):
        return 0.5


def now():
    return asyncio.get_running_loop().time()


def card_of(*agents, **more):
    interfaces = tuple(
        AgentInterface(url=f"{agent.url}/rpc", protocol_binding="JSONRPC", protocol_version="1.0")
        for agent in agents
    )
    return AgentCard(
        name="several",
        description="one agent at several addresses",
        version="1",
        supported_interfaces=interfaces,
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        **more,
    )


def two(**options):
    first, second = FakeAgent(completes("1")), FakeAgent(completes("2"), url="http://other.test")
    options.setdefault("env", Middle())
    client = connect(
        card_of(first, second), engine=FakeNetwork(first, second), streaming=False, **options
    )
    return first, second, client


async def text(client, **options):
    return (await client.ask("hello", **options)).text


async def test_a_retry_goes_to_the_other_interface():
    first, second, client = two()
    first.inject(Refuse(), on="SendMessage")

    assert await text(client) == "2"
    assert (len(first.executions), len(second.executions)) == (0, 1)


async def test_while_the_first_one_is_away_calls_go_to_the_other_at_once():
    first, second, client = two(resilience=ONCE)
    first.inject(Refuse(), times=5)
    for _ in range(5):
        with pytest.raises(A2AConnectionError):
            await client.send_message("hello")
    before = now()

    for _ in range(3):
        await client.send_message("hello")

    assert now() == before
    assert (len(first.executions), len(second.executions)) == (0, 3)


async def test_when_the_first_one_is_back_calls_go_there_again():
    first, second, client = two(resilience=ONCE)
    first.inject(Refuse(), times=5)
    for _ in range(5):
        with pytest.raises(A2AConnectionError):
            await client.send_message("hello")
    await client.send_message("hello")

    await asyncio.sleep(10)
    await client.send_message("hello")

    assert (len(first.executions), len(second.executions)) == (1, 1)


async def test_when_all_are_away_the_error_says_when_the_first_may_be_back():
    first, second, client = two(resilience=ONCE)
    first.inject(Refuse(), times=5)
    second.inject(Refuse(), times=5)
    for _ in range(5):
        with pytest.raises(A2AConnectionError):
            await client.send_message("hello")
    await asyncio.sleep(2)
    for _ in range(5):
        with pytest.raises(A2AConnectionError):
            await client.send_message("hello")

    with pytest.raises(CircuitOpenError) as caught:
        await client.send_message("hello")

    assert caught.value.retry_after == 3.0
    assert caught.value.executed is False


@pytest.mark.parametrize(
    "fault", [Reset(after_execution=True), Fail(code=-32603, after_execution=True), Stall()]
)
async def test_a_message_that_may_have_run_goes_nowhere_else(fault):
    first, second, client = two(on_unknown="raise")
    first.inject(fault, on="SendMessage")

    with pytest.raises((InternalError, Exception)):
        await client.send_message("hello", timeout=30)

    assert not second.executions


async def test_an_agent_that_is_busy_is_waited_for():
    first, second, client = two()
    first.inject(rate_limited(5), on="SendMessage")

    assert await text(client) == "1"
    assert now() >= 5
    assert not second.executions


async def test_an_interface_that_is_none_is_asked_once():
    first, second, client = two()
    second.inject(Respond(status=404), times=100)
    first.inject(Refuse(), on="SendMessage", times=2)

    assert await text(client) == "1"

    first.inject(Refuse(), on="SendMessage")
    assert await text(client) == "1"
    assert len(second.pending_faults) == 99


async def test_credentials_go_nowhere_else():
    first, second, client = two(headers={"authorization": "Bearer secret"})
    first.inject(Refuse(), on="SendMessage")

    assert await text(client) == "1"
    assert not second.executions


async def test_an_address_of_the_callers_own_stands_alone():
    first, second = FakeAgent(completes("1")), FakeAgent(url="http://other.test")
    client = connect(
        card_of(first, second),
        url=f"{first.url}/rpc",
        engine=FakeNetwork(first, second),
        streaming=False,
        resilience=ONCE,
    )
    first.inject(Refuse(), on="SendMessage")

    with pytest.raises(A2AConnectionError):
        await client.send_message("hello")
    assert not second.executions


async def test_another_interface_that_cannot_be_meant_is_passed_over():
    first = FakeAgent(completes("1"))
    card = card_of(first, FakeAgent(url="http://127.0.0.1:1"))
    client = connect(card, engine=FakeNetwork(first), streaming=False, env=Middle())
    first.inject(Refuse(), on="SendMessage")

    assert await text(client) == "1"


async def test_a_refusal_of_the_only_interface_is_its_own_error():
    first, _, client = two(resilience=ONCE)
    first.inject(Respond(status=400), on="SendMessage")

    with pytest.raises(A2AHTTPError):
        await client.send_message("hello")
