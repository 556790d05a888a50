"""Many agents on their worst days: what must hold when all that can go wrong does."""

import asyncio
import gc
import json
import random

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given

from holdfast import (
    A2AConnectionError,
    A2AError,
    AgentCard,
    BreakerPolicy,
    CircuitOpenError,
    ConcurrencyPolicy,
    Coordinator,
    HedgePolicy,
    NotEnoughResultsError,
    RateLimitedError,
    Resilience,
    RetryPolicy,
    connect,
)
from holdfast._aio.env import SystemEnv
from holdfast._model.operations import GET_TASK
from holdfast._pipeline.admission import Admission, AdmissionQueue
from holdfast.errors import QueueFullError
from holdfast.extend import Endpoints, PassThrough
from holdfast.server import ProtocolErrors
from holdfast.testing import (
    Delay,
    FakeAgent,
    FakeNetwork,
    Garbage,
    Refuse,
    Respond,
    Stall,
    completes,
    rate_limited,
    run,
    works_forever,
)
from holdfast.types import AgentCapabilities, AgentInterface, GetTaskRequest

pytestmark = pytest.mark.filterwarnings("error")

ONCE = Resilience(retry=RetryPolicy(max_retries=0))


class Dice(SystemEnv):
    """Draws that a seed decides."""

    def __init__(self, seed=1):
        super().__init__()
        self._random = random.Random(seed)


class Middle(SystemEnv):
    """Draws that change nothing."""

    def random(self):
        return 0.5


def now():
    return asyncio.get_running_loop().time()


def fake(name, behaviour="done", **options):
    return FakeAgent(behaviour, url=f"http://{name}.test", **options)


def coordinating(*agents, **options):
    options.setdefault("engine", FakeNetwork(*agents))
    options.setdefault("env", Middle())
    names = [agent.url.removeprefix("http://").removesuffix(".test") for agent in agents]
    return Coordinator(
        {name: agent.url for name, agent in zip(names, agents, strict=True)}, **options
    )


def card_of(*agents):
    return AgentCard(
        name="several",
        description="one agent at several addresses",
        version="1",
        supported_interfaces=tuple(
            AgentInterface(
                url=f"{agent.url}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
            )
            for agent in agents
        ),
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
    )


def several(count=2, *, away=(), **options):
    """One agent at several places, whose cards are in hand; some of them are nowhere."""
    agents = [fake(f"agent{n}", completes(str(n)), id_suffix=f"-of-{n}") for n in range(count)]
    network = FakeNetwork(*(agent for n, agent in enumerate(agents) if n not in away))
    options.setdefault("env", Dice())
    return agents, connect([card_of(agent) for agent in agents], engine=network, **options)


# ── What was executed ────────────────────────────────────────────────────────────────────────


async def test_where_some_have_answered_too_few_answers_do_not_say_that_nothing_ran():
    well, away = fake("well"), fake("away")
    away.inject(Refuse(), times=100)

    async with coordinating(well, away, resilience=ONCE) as coordinator:
        with pytest.raises(NotEnoughResultsError) as caught:
            await coordinator.fan_out("hello", min_results=2)

    assert len(well.executions) == 1
    assert caught.value.executed is not False


async def test_who_was_given_up_before_anything_was_sent_says_so():
    slow, waiting = fake("slow", works_forever()), fake("waiting")

    async with coordinating(slow, waiting, concurrency=1) as coordinator:
        fan_out = coordinator.fan_out("hello")
        async with fan_out:
            await asyncio.sleep(1)
        come = aiter(fan_out)
        results = {one.agent: one for one in [await anext(come), await anext(come)]}

    assert waiting.received == []
    assert results["waiting"].error.executed is False
    assert results["slow"].error.executed is not False


# ── Another place ────────────────────────────────────────────────────────────────────────────


async def test_two_calls_that_find_the_same_interface_to_be_none_fail_like_one():
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
        env=Middle(),
    )

    outcomes = await asyncio.gather(
        *(client.ask("hello", timeout=20) for _ in range(3)), return_exceptions=True
    )

    assert {isinstance(outcome, A2AError) for outcome in outcomes} == {True}, outcomes


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_place_that_has_lost_its_name_is_passed_over(streaming):
    agents, client = several(2, away={0}, streaming=streaming)

    answers = [await client.ask("hello") for _ in range(20)]

    assert {answer.text for answer in answers} == {"1"}
    assert len(agents[1].executions) == 20


async def test_a_task_is_looked_for_again_where_one_place_had_a_bad_moment():
    agents, client = several()
    task = (await client.ask("hello")).task
    for agent in agents:
        agent.inject(Respond(status=502), on="GetTask")
    later = connect([card_of(agent) for agent in agents], engine=FakeNetwork(*agents), env=Dice())

    reply = await later.call(GET_TASK, GetTaskRequest(id=task.id))

    assert reply.value.id == task.id
    told = [(one.number, one.executed) for one in reply.attempts]
    assert told == [(1, False), (2, False), (3, True)]


async def test_a_place_that_was_refused_is_not_taken_for_the_one_that_was_called():
    agents = [fake(f"agent{n}", works_forever(), id_suffix=f"-of-{n}") for n in range(2)]
    first, second = map(card_of, agents)
    policy = RetryPolicy(max_retries=2, jitter=False, base_delay=1, backoff_factor=30)
    common = {"engine": FakeNetwork(*agents), "shared": Endpoints(), "env": Middle()}
    client = connect([first, second], resilience=Resilience(retry=policy), **common)
    async with client.stream_message("hello") as one, client.stream_message("hello") as other:
        assert [agent.open_streams for agent in agents] == [1, 1]
        is_one = (await anext(one)).id in agents[0].tasks
        await (one if is_one else other).close()  # the second has work
        agents[1].inject(Refuse(), times=5)
        alone = connect(second, resilience=ONCE, **common)
        for _ in range(5):
            with pytest.raises(A2AConnectionError):
                await alone.list_tasks()
        agents[0].inject(Respond(status=502), times=2)
        before = [len(agent.calls("ListTasks")) for agent in agents]

        await client.list_tasks()  # fails at the first, is refused by the second, fails again

    assert not agents[0].pending_faults
    assert [len(agent.calls("ListTasks")) for agent in agents] == [before[0], before[1] + 1]


# ── What is left behind ──────────────────────────────────────────────────────────────────────


async def test_who_waits_and_leaves_leaves_nothing_behind():
    agent = fake("agent", works_forever())
    client = connect(
        agent.url,
        engine=FakeNetwork(agent),
        resilience=Resilience(concurrency=ConcurrencyPolicy(limit=1)),
    )
    async with client.stream_message("hello") as events:
        await anext(events)
        gc.collect()
        for _ in range(2000):
            with pytest.raises(A2AError):
                await client.ask("hello", timeout=0.1)
        gc.collect()
        turns = [one for one in gc.get_objects() if isinstance(one, asyncio.Future)]

    assert len(turns) < 500
    await client.close()


class BreaksWhenCancelled(PassThrough):
    """An attempt layer that cleans up badly."""

    async def through(self, call, onward, /):
        try:
            return await onward(call)
        except asyncio.CancelledError:
            raise A2AConnectionError("it broke on the way out", failure="disconnected") from None


async def test_what_becomes_of_the_loser_of_two_tries_is_nobodys_concern():
    agent, told = fake("agent"), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    client = connect(
        agent.url,
        engine=FakeNetwork(agent),
        resilience=Resilience(hedge=HedgePolicy(min_samples=1)),
        attempt_layers=[BreaksWhenCancelled],
    )
    task = (await client.ask("hello")).task
    for _ in range(40):
        await client.get_task(task.id)
    agent.inject(Delay(seconds=50), on="GetTask")

    await client.get_task(task.id)
    await client.close()
    del client
    gc.collect()

    assert told == []


async def test_an_agent_that_comes_new_to_a_thousand_is_remembered():
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


# ── Bounds ───────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_that_is_away_is_not_waited_for_in_the_line_either():
    agent = fake("agent")
    client = connect(agent.url, engine=FakeNetwork(agent), resilience=ONCE, env=Middle())
    await client.list_tasks()
    agent.inject(rate_limited(60), on="ListTasks")
    slow = asyncio.create_task(client.list_tasks())
    for _ in range(5):
        pass
    await asyncio.gather(slow, return_exceptions=True)
    client.circuit.open()
    began = now()

    with pytest.raises(CircuitOpenError):
        await client.list_tasks()

    assert now() == began


# ── Who is away ──────────────────────────────────────────────────────────────────────────────


async def test_an_agent_whose_name_leads_nowhere_is_not_well():
    gone = fake("gone")
    async with Coordinator(
        {"gone": card_of(gone)}, engine=FakeNetwork(), resilience=ONCE, env=Middle()
    ) as coordinator:
        results = [await coordinator.delegate("gone", "hello") for _ in range(6)]
        health = coordinator.health()["gone"]

    assert isinstance(results[4].error, A2AConnectionError)
    assert isinstance(results[5].error, CircuitOpenError)
    assert "resolved" in str(results[5].error)
    assert (health.healthy, health.consecutive_failures) == (False, 5)


async def test_while_the_first_interface_has_no_name_calls_go_to_the_other():
    first, second = fake("first"), fake("second", "here")
    client = connect(card_of(first, second), engine=FakeNetwork(second), env=Middle())

    answers = [await client.ask("hello") for _ in range(3)]

    assert [answer.text for answer in answers] == ["here"] * 3


@pytest.mark.parametrize("kind", ["proxy", "closed"])
async def test_what_lies_at_the_callers_end_says_nothing_of_the_agent(kind):
    agent = fake("agent")

    class Broken(FakeNetwork):
        async def request(self, request):
            raise A2AConnectionError("no", failure=kind, executed=False)

    client = connect(card_of(agent), engine=Broken(agent), resilience=ONCE)
    for _ in range(20):
        with pytest.raises(A2AConnectionError):
            await client.list_tasks()

    assert client.circuit.state == "closed"


def test_where_no_event_loop_runs_nothing_is_known_to_be_away():
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


# ── One does not wait for another ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("silent", [1, 2])
async def test_agents_that_never_answer_take_no_place_from_the_others(silent):
    agents = [fake(f"agent{n}", completes("done", after=1)) for n in range(6)]
    for agent in agents[:silent]:
        agent.inject(Stall(), on="SendStreamingMessage", times=1000)

    async with coordinating(*agents, concurrency=12) as coordinator:
        healthy = set(coordinator.agents[silent:])
        answered = []

        async def ask():
            began = now()
            async with coordinator.fan_out("hello") as fan_out:
                async for result in fan_out:
                    if result.agent in healthy:
                        answered.append(result.answer.text)
                        assert now() == pytest.approx(began + 1, abs=0.01)

        asking = []
        for _ in range(60):
            asking.append(asyncio.create_task(ask()))
            await asyncio.sleep(1)
        await asyncio.sleep(2)
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    assert answered == ["done"] * 60 * len(healthy)


async def test_an_agent_that_is_alone_has_all_places():
    agent = fake("agent", completes("done", after=1))

    async with coordinating(agent, concurrency=10) as coordinator:
        await coordinator.fan_out([("agent", "hello")] * 10)

    assert now() == pytest.approx(1)


@given(seed=st.integers(0, 2**32), places=st.integers(1, 6))
def test_whoever_leaves_a_line_and_when_no_place_is_lost(seed, places):
    dice = random.Random(seed)

    async def main():
        admission = Admission(places, lambda: True)
        lines = [AdmissionQueue() for _ in range(3)]
        inside = []

        async def comes():
            name = dice.choice("abcd")
            await admission.enter(dice.choice(lines), name)
            inside.append(name)
            try:
                assert len(inside) <= places
                for _ in range(dice.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                inside.remove(name)
                admission.leave(name)

        tasks = []
        for _ in range(60):
            tasks.append(asyncio.create_task(comes()))
            for _ in range(dice.randrange(3)):
                await asyncio.sleep(0)
            if dice.random() < 0.4:
                dice.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        async with asyncio.timeout(1):  # as many others as there are places
            for n in range(places):
                await admission.enter(lines[0], f"other{n}")

    run(main(), seed=seed)


class NoTokens:
    """Credentials from a server that asks to come later."""

    def __init__(self):
        self.asked = []

    async def credentials(self, call, /):
        self.asked.append(now())
        raise RateLimitedError("no", http_status=429, retry_after=60, transient=True)

    async def on_unauthorized(self, call, error, /):
        return False


async def test_who_gets_no_credentials_in_time_holds_back_nobody_else():
    agent = fake("agent")
    common = {"engine": FakeNetwork(agent), "shared": Endpoints(), "resilience": ONCE}
    without = connect(card_of(agent), auth=NoTokens(), **common)
    for _ in range(3):
        with pytest.raises(RateLimitedError):
            await without.list_tasks()

    await connect(card_of(agent), **common).list_tasks()

    assert now() == 0


async def test_who_gets_no_credentials_in_time_waits_for_those():
    agent, tokens = fake("agent"), NoTokens()
    common = {"engine": FakeNetwork(agent), "shared": Endpoints(), "env": Middle()}
    agent.inject(rate_limited(1), on="ListTasks")
    await connect(card_of(agent), **common).list_tasks()
    await asyncio.sleep(300)  # by now nobody is held back
    began = now()

    with pytest.raises(RateLimitedError):
        await connect(card_of(agent), auth=tokens, **common).list_tasks()

    assert [at - began for at in tokens.asked] == pytest.approx([0.0, 60.5, 121.0, 181.5])


async def test_a_stream_without_a_deadline_waits_for_no_place_for_ever():
    agent = fake("agent", works_forever())
    client = connect(
        agent.url,
        engine=FakeNetwork(agent),
        resilience=Resilience(concurrency=ConcurrencyPolicy(limit=1)),
    )
    async with client.stream_message("first") as events:
        await anext(events)
        async with asyncio.timeout(10_000):
            with pytest.raises(QueueFullError, match="for 900 s") as caught:
                await client.stream_message("second").__aenter__()

    assert (caught.value.executed, caught.value.transient) == (False, True)
    assert client.stats().waiting == 0
    assert len(agent.executions) == 1


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
async def test_who_gets_no_credentials_does_not_ask_for_them_at_every_place(is_one_card):
    agents, tokens = [fake(f"agent{n}") for n in range(3)], NowhereToAsk()
    place = card_of(*agents) if is_one_card else [card_of(agent) for agent in agents]
    origins = tuple(agent.url for agent in agents)
    client = connect(
        place, engine=FakeNetwork(*agents), auth=tokens, env=Middle(), credential_origins=origins
    )

    with pytest.raises(A2AConnectionError, match="no such server"):
        await client.list_tasks()

    assert tokens.asked == 1


@pytest.mark.parametrize("place", ["http://other.test", ""])
@pytest.mark.parametrize("fault", [Refuse(), Garbage()])
async def test_a_card_that_is_said_to_be_where_the_token_leads_gives_nothing_away(place, fault):
    token, seen, agent = "s3cr3t-token-value", [], fake("agent")
    moved = Respond(status=302, headers={"location": f"{place}/{token}/card.json"})
    agent.inject(moved, on="GetAgentCard")
    agent.inject(fault)
    client = connect(
        agent.url,
        engine=FakeNetwork(agent),
        auth=token,
        resilience=ONCE,
        observers=[lambda event: seen.append(repr(event))],
    )

    with pytest.raises(A2AError) as caught:
        await client.list_tasks()

    told = [str(caught.value), repr(vars(caught.value)), *seen]
    told += [repr(client.stats()), repr(client.circuit.last_failure)]
    assert not any(token in one for one in told)


# ── What others are told ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [422, 500, 503])
@pytest.mark.parametrize(
    "page",
    [
        b"<html>" + b"Traceback (most recent call last)<br>" * 3000,
        b'{"detail": "' + b"Traceback (most recent call last), " * 3000 + b'"}',
        b'{"detail": "' + b"Traceback (most recent call last), " * 50_000 + b'"}',
    ],
    ids=["html", "json", "more json"],
)
async def test_however_long_a_page_is_and_whatever_it_calls_itself_it_is_not_told(status, page):
    sent = []

    async def app(_scope, _receive, send):
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for at in range(0, len(page), 10_000):
            piece, rest = page[at : at + 10_000], at + 10_000 < len(page)
            await send({"type": "http.response.body", "body": piece, "more_body": rest})

    async def receive():
        body = b'{"jsonrpc": "2.0", "id": 7, "method": "GetTask"}'
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/rpc", "headers": []}
    await ProtocolErrors(app, agent="agent")(scope, receive, send)

    told = b"".join(message.get("body", b"") for message in sent)
    assert b"Traceback" not in told
    reply = json.loads(told)
    assert (sent[0]["status"], reply["id"]) == (status, 7)
    assert A2AError.from_jsonrpc(reply["error"]).code is not None


PAGE = {"content-type": "text/html"}


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_place_where_there_is_no_agent_any_more_is_passed_over(streaming):
    agents, client = several(2, streaming=streaming)
    agents[0].inject(Respond(status=404, headers=PAGE, body=b"<html>"), times=1000)

    answers = [await client.ask("hello") for _ in range(30)]

    assert {answer.text for answer in answers} == {"1"}
    assert len(agents[0].pending_faults) > 995


async def test_a_place_that_answers_with_something_else_is_avoided_for_a_while():
    agents, client = several(2)
    agents[0].inject(Respond(status=200, headers=PAGE, body=b"<html>"), times=1000)

    outcomes = [
        outcome
        for _ in range(30)
        for outcome in await asyncio.gather(client.ask("hello"), return_exceptions=True)
    ]

    assert [isinstance(one, A2AError) for one in outcomes].count(True) <= 1
    assert len(agents[1].executions) >= 29


async def test_a_place_that_never_answers_keeps_no_task_from_being_found():
    agents, client = several(3)
    task = (await client.ask("hello")).task
    for agent in agents:
        if task.id not in agent.tasks:
            agent.inject(Stall(), on="GetTask", times=1000)
    network = FakeNetwork(*agents)

    for seed in range(10):
        cards = [card_of(agent) for agent in agents]
        later = connect(cards, engine=network, env=Dice(seed))
        assert (await later.get_task(task.id)).id == task.id
        assert {one.circuit for one in later.stats().endpoints} == {"closed"}

    assert now() == 0
    assert network.in_flight == 0


@pytest.mark.parametrize("status", [401, 413])
async def test_what_one_message_meets_at_another_interface_is_not_held_against_it(status):
    first, second = fake("first"), fake("second", "here")
    first.inject(Refuse(), times=1000)
    client = connect(
        card_of(first, second), engine=FakeNetwork(first, second), env=Middle(), streaming=False
    )
    for _ in range(8):
        second.inject(Respond(status=status), on="SendMessage")
    with pytest.raises(A2AError):
        await client.ask("too much", timeout=20)
    second._faults.clear()

    assert (await client.ask("hello")).text == "here"


class Unhurried(FakeNetwork):
    """Connections of streams that do not close."""

    def stream(self, request):
        inner = super().stream(request)

        class Connection:
            async def __aenter__(self):
                return await inner.__aenter__()

            async def __aexit__(self, *error):
                await inner.__aexit__(*error)
                await asyncio.sleep(1_000_000)

        return Connection() if b"Stream" in (request.body or b"") else inner


async def test_a_coordinator_closes_all_its_fan_outs_at_once():
    agents = [fake(f"agent{n}", works_forever()) for n in range(3)]
    coordinator = coordinating(*agents, engine=Unhurried(*agents))
    asking = [asyncio.create_task(coordinator.fan_out("hello").results()) for _ in range(20)]
    await asyncio.sleep(1)

    await coordinator.close()

    assert now() <= 12
    await asyncio.gather(*asking, return_exceptions=True)


async def test_while_somebody_finds_out_whether_it_is_back_nobody_is_sent_away_for_long():
    agent = fake("agent")
    client = connect(
        card_of(agent), engine=FakeNetwork(agent), resilience=ONCE, env=Middle(), streaming=False
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


@pytest.mark.parametrize("ends", ["close", "remove"])
async def test_who_waits_for_an_agent_that_is_removed_waits_no_longer(ends):
    busy, other = fake("busy", works_forever()), fake("other")
    network = FakeNetwork(busy, other)
    lent = connect(busy.url, engine=network)
    coordinator = Coordinator(
        {"busy": lent, "other": other.url}, engine=network, concurrency=1, env=Middle()
    )
    in_flight = asyncio.create_task(coordinator.delegate("busy", "hello"))
    await asyncio.sleep(1)
    waiting = [asyncio.create_task(coordinator.delegate("other", "hello")) for _ in range(3)]
    await asyncio.sleep(1)

    await (coordinator.close() if ends == "close" else coordinator.remove("other"))
    results = await asyncio.gather(*waiting)

    assert now() == 2
    assert {(one.error.failure, one.error.executed) for one in results} == {("closed", False)}
    assert other.received == []
    in_flight.cancel()
    await asyncio.gather(in_flight, return_exceptions=True)
    if ends == "remove":
        coordinator.add("other", other.url)
        assert (await coordinator.delegate("other", "hello", timeout=5)).error is None
        await coordinator.close()
    await lent.close()
