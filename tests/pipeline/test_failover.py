"""Where else a call goes while an agent's first interface is away."""

import asyncio
import math

import pytest
from tests.kit.client_tools import URI
from tests.kit.virtual_env import FixedDraws

from holdfast import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    AgentCard,
    AuthenticationError,
    BreakerPolicy,
    BudgetPolicy,
    CircuitOpenError,
    Coordinator,
    OutcomeUnknownError,
    RateLimitedError,
    Resilience,
    RetryPolicy,
    connect,
)
from holdfast.auth import Credentials
from holdfast.errors import ClientToolsNotSupportedError, InternalError
from holdfast.testing import (
    Delay,
    Fail,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    Respond,
    Stall,
    completes,
    rate_limited,
    run,
)
from holdfast.types import AgentCapabilities, AgentExtension, AgentInterface

ONCE = Resilience(retry=RetryPolicy(max_retries=0))
SPENT = Resilience(budget=BudgetPolicy(tokens=1, seconds_per_token=math.inf))


def now():
    return asyncio.get_running_loop().time()


def card_of(*agents, version="1.0", extensions=()):
    interfaces = tuple(
        AgentInterface(
            url=f"{agent.url}/rpc", protocol_binding="JSONRPC", protocol_version=version
        )
        for agent in agents
    )
    return AgentCard(
        name="several",
        description="one agent at several addresses",
        version="1",
        supported_interfaces=interfaces,
        capabilities=AgentCapabilities(streaming=True, extensions=extensions),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
    )


def two(latency=0.0, version="1.0", extensions=(), **options):
    first, second = (
        FakeAgent(completes(answer), url=url, versions=(version,))
        for answer, url in (("1", "http://agent.test"), ("2", "http://other.test"))
    )
    options.setdefault("env", FixedDraws())
    client = connect(
        card_of(first, second, version=version, extensions=extensions),
        engine=FakeNetwork(first, second, latency=latency),
        streaming=False,
        **options,
    )
    return first, second, client


class Nameless(FakeNetwork):
    """One of its hosts has no name."""

    nameless = "http://other.test"

    async def request(self, request):
        if self.nameless is not None and request.url.startswith(self.nameless):
            raise A2AConnectionError("no such name", failure="dns", executed=False)
        return await super().request(request)


class Tokens:
    """Fails in some ways, and then gives credentials."""

    def __init__(self, *failures):
        self.failures = list(failures)

    async def credentials(self, call, /):
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure
        return Credentials(headers={"authorization": "Bearer secret"})

    async def on_unauthorized(self, call, error, /):
        return False


def trusting(tokens):
    return two(auth=tokens, credential_origins=("http://agent.test", "http://other.test"))


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
    ("fault", "error"),
    [
        (Reset(after_execution=True), OutcomeUnknownError),
        (Fail(code=-32603, after_execution=True), InternalError),
        (Stall(), OutcomeUnknownError),
    ],
)
async def test_a_message_that_may_have_run_goes_nowhere_else(fault, error):
    first, second, client = two(on_unknown="raise")
    first.inject(fault, on="SendMessage")

    with pytest.raises(error):
        await client.send_message("hello", timeout=30)

    assert not second.executions


async def test_an_agent_that_is_busy_is_waited_for():
    first, second, client = two()
    first.inject(rate_limited(5), on="SendMessage")

    assert await text(client) == "1"
    assert now() >= 5
    assert not second.executions


async def test_who_cannot_wait_for_an_agent_that_is_busy_goes_elsewhere():
    first, _, client = two()
    first.inject(rate_limited(30), on="SendMessage")
    with pytest.raises(RateLimitedError):
        await client.send_message("hello", timeout=10)

    assert await text(client, timeout=10) == "2"
    assert now() < 1
    assert await text(client, timeout=100) == "1"
    assert now() >= 30


async def test_a_spent_budget_still_lets_a_call_go_elsewhere_once():
    first, second, client = two(resilience=SPENT)
    first.inject(Refuse(), on="SendMessage")

    assert await text(client) == "2"

    first.inject(Refuse(), on="SendMessage", times=9)
    second.inject(Refuse(), on="SendMessage", times=9)
    with pytest.raises(A2AConnectionError) as caught:
        await client.send_message("hello")

    assert len(caught.value.attempts) == 2
    assert "budget" in caught.value.retry_stopped_reason


async def test_one_that_refuses_is_no_way_out_of_a_spent_budget():
    first, second, client = two(resilience=SPENT)
    first.inject(Refuse(), on="SendMessage", times=5)
    for _ in range(5):
        assert await text(client) == "2"
    second.inject(Refuse(), on="SendMessage", times=9)

    with pytest.raises(A2AConnectionError) as caught:
        await client.send_message("hello")

    assert len(caught.value.attempts) == 1
    assert "budget" in caught.value.retry_stopped_reason


async def test_of_two_that_refuse_the_one_that_is_back_first_says_when():
    first, second, client = two()
    for agent, seconds in ((first, 50), (second, 30)):
        agent.inject(rate_limited(seconds), on="SendMessage")
        with pytest.raises(RateLimitedError):
            await client.send_message("hello", timeout=10)

    with pytest.raises(RateLimitedError) as caught:
        await client.send_message("hello", timeout=10)

    assert caught.value.retry_after == pytest.approx(30, abs=1)
    assert caught.value.executed is False


async def test_two_calls_may_find_at_once_that_an_interface_is_none():
    first, second, client = two(latency=0.1)
    second.inject(Respond(status=404), times=100)
    first.inject(Refuse(), on="SendMessage", times=2)

    assert await asyncio.gather(text(client), text(client)) == ["1", "1"]
    assert len(second.pending_faults) == 98


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
    first, inside = FakeAgent(completes("1")), FakeAgent(url="http://127.0.0.1:1")
    network = FakeNetwork(first, inside)
    client = connect(card_of(first, inside), engine=network, streaming=False, env=FixedDraws())
    first.inject(Refuse(), on="SendMessage")

    assert await text(client) == "1"
    assert not inside.received


async def test_another_interface_without_the_tls_of_the_card_gets_nothing():
    first, plain = FakeAgent(completes("1"), url="https://agent.test"), FakeAgent()
    first.card = card_of(first, plain)
    client = connect(
        first.url, engine=FakeNetwork(first, plain), streaming=False, env=FixedDraws()
    )
    first.inject(Refuse(), on="SendMessage")

    assert await text(client) == "1"
    assert not plain.received


async def test_what_no_interface_can_do_is_held_against_none():
    first, _, client = two(version="0.3", extensions=(AgentExtension(uri=URI),))
    with pytest.raises(ClientToolsNotSupportedError):
        await client.ask("hello", tools=[now])

    first.inject(Refuse(), on="SendMessage")

    assert await text(client) == "2"


async def test_an_interface_that_has_no_name_for_a_while_is_asked_again():
    first, second = FakeAgent(completes("1")), FakeAgent(completes("2"), url="http://other.test")
    network = Nameless(first, second)
    client = connect(card_of(first, second), engine=network, streaming=False, env=FixedDraws())
    first.inject(Refuse(), on="SendMessage")
    assert await text(client) == "1"

    network.nameless = None
    first.inject(Refuse(), on="SendMessage")

    assert await text(client) == "2"


async def test_where_credentials_fail_for_a_moment_the_call_stays_where_it_was():
    _, second, client = trusting(
        Tokens(A2AConnectionError("away", failure="refused", transient=True))
    )

    assert await text(client) == "1"
    assert not second.executions


async def test_lacking_credentials_cost_no_interface_its_place():
    first, _, client = trusting(Tokens(None, AuthenticationError("expired")))
    first.inject(Refuse(), on="SendMessage", times=2)
    with pytest.raises(AuthenticationError):
        await client.send_message("hello")

    assert await text(client) == "2"


async def test_a_refusal_of_the_only_interface_is_its_own_error():
    first, _, client = two(resilience=ONCE)
    first.inject(Respond(status=400), on="SendMessage")

    with pytest.raises(A2AHTTPError):
        await client.send_message("hello")


# ── Interfaces that fail together ────────────────────────────────────────────────────────────────


def fake(name, behaviour="done", **options):
    return FakeAgent(behaviour, url=f"http://{name}.test", **options)


async def test_calls_that_find_the_same_interface_missing_fail_alike():
    first, second = fake("first"), fake("second")
    first.inject(Refuse(), times=100)
    second.inject(Respond(status=404), times=100)
    second.inject(Delay(seconds=1, after_execution=False))
    resilience = Resilience(breaker=BreakerPolicy.simple(1))
    client = connect(
        card_of(first, second),
        engine=FakeNetwork(first, second, latency=0.1),
        streaming=False,
        resilience=resilience,
        env=FixedDraws(),
    )

    outcomes = await asyncio.gather(
        *(client.ask("hello", timeout=20) for _ in range(3)), return_exceptions=True
    )

    assert {isinstance(outcome, A2AError) for outcome in outcomes} == {True}, outcomes


async def test_calls_go_to_the_second_interface_while_the_first_does_not_resolve():
    first, second = fake("first"), fake("second", "here")
    client = connect(card_of(first, second), engine=FakeNetwork(second), env=FixedDraws())

    answers = [await client.ask("hello") for _ in range(3)]

    assert [answer.text for answer in answers] == ["here"] * 3


class NowhereToAsk:
    """Credentials from a server that has lost its name."""

    def __init__(self):
        self.asked = 0

    async def credentials(self, call, /):
        self.asked += 1
        raise A2AConnectionError("no such server", failure="dns")

    async def on_unauthorized(self, call, error, /):
        return False


@pytest.mark.parametrize("is_one_card", [True, False])
async def test_credentials_that_fail_are_not_requested_again_for_each_replica(is_one_card):
    agents, tokens = [fake(f"agent{n}") for n in range(3)], NowhereToAsk()
    place = card_of(*agents) if is_one_card else [card_of(agent) for agent in agents]
    origins = tuple(agent.url for agent in agents)
    client = connect(
        place,
        engine=FakeNetwork(*agents),
        auth=tokens,
        env=FixedDraws(),
        credential_origins=origins,
    )

    with pytest.raises(A2AConnectionError, match="no such server"):
        await client.list_tasks()

    assert tokens.asked == 1


@pytest.mark.parametrize("status", [401, 413])
async def test_a_refusal_of_one_message_is_not_held_against_the_second_interface(status):
    first, second = fake("first"), fake("second", "here")
    first.inject(Refuse(), times=1000)
    client = connect(
        card_of(first, second),
        engine=FakeNetwork(first, second),
        env=FixedDraws(),
        streaming=False,
    )
    for _ in range(8):
        second.inject(Respond(status=status), on="SendMessage")
    with pytest.raises(A2AError):
        await client.ask("too much", timeout=20)
    second._faults.clear()

    assert (await client.ask("hello")).text == "here"


# ── Circuits ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["proxy", "closed"])
async def test_a_failure_of_the_callers_own_network_does_not_open_the_circuit(kind):
    agent = fake("agent")

    class Broken(FakeNetwork):
        async def request(self, request):
            raise A2AConnectionError("no", failure=kind, executed=False)

    client = connect(card_of(agent), engine=Broken(agent), resilience=ONCE)
    for _ in range(20):
        with pytest.raises(A2AConnectionError):
            await client.list_tasks()

    assert client.circuit.state == "closed"


def test_a_circuit_outside_of_its_event_loop_is_closed():
    agent = fake("agent")
    agent.inject(Refuse(), on="ListTasks", times=5)
    client = connect(agent.url, engine=FakeNetwork(agent), resilience=ONCE)
    coordinator = Coordinator({"agent": client})

    async def use():
        for _ in range(5):
            with pytest.raises(A2AConnectionError):
                await client.list_tasks()
        assert client.circuit.state == "open"

    before = (client.circuit.state, client.circuit.failures, client.circuit.retry_after)
    run(use())

    assert (client.circuit.state, client.circuit.failures, client.circuit.retry_after) == before
    assert before == ("closed", 0, 0.0)
    assert coordinator.health()["agent"].healthy


async def test_calls_during_a_half_open_probe_are_refused_for_a_few_seconds_only():
    agent = fake("agent")
    client = connect(
        card_of(agent),
        engine=FakeNetwork(agent),
        resilience=ONCE,
        env=FixedDraws(),
        streaming=False,
    )
    agent.inject(Refuse(), times=1000)
    while now() < 600:  # by now it is left alone for most of a minute each time
        with pytest.raises(A2AError):
            await client.list_tasks()
        await asyncio.sleep(1)
    agent._faults.clear()
    agent.inject(Delay(seconds=1))
    await asyncio.sleep(client.circuit.retry_after)
    probe = asyncio.create_task(client.list_tasks())
    await asyncio.sleep(0.5)

    with pytest.raises(CircuitOpenError) as caught:
        await client.list_tasks()

    assert 0 < caught.value.retry_after <= 5
    await probe
