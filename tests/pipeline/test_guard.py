"""Agents that are away are left alone, and those that ask for time get it, from everybody."""

import asyncio
import contextlib
import itertools

import pytest
from tests.kit.virtual_env import FixedDraws, SystemEnv

from holdfast import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    BreakerPolicy,
    CircuitOpenError,
    ConcurrencyPolicy,
    DeadlineExceededError,
    RateLimitedError,
    Resilience,
    RetryAfterPolicy,
    RetryPolicy,
    TaskState,
    Timeouts,
    connect,
)
from holdfast.auth import Credentials
from holdfast.errors import InternalError, QueueFullError
from holdfast.extend import BaseLayer, Endpoints
from holdfast.observe import CircuitChanged, RetryScheduled
from holdfast.testing import (
    Cut,
    Delay,
    Fail,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    Stall,
    completes,
    rate_limited,
    run,
    streams,
    unavailable,
    works_forever,
)

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
ONCE = Resilience(retry=RetryPolicy(max_retries=0))


class Recorded(FakeNetwork):
    """Notes when each request came, but those for a card."""

    def __init__(self, *agents):
        super().__init__(*agents)
        self.times = []

    def stream(self, request):
        if "/.well-known/" not in request.url:
            self.times.append(now())
        return super().stream(request)


class Limited(Recorded):
    """Lets some requests a second through, and asks the others to come later."""

    def __init__(self, agent, *, rate, hint):
        super().__init__(agent)
        self.agent, self.rate, self.hint = agent, rate, hint
        self.tokens, self.since, self.refused = 0.0, 0.0, 0

    def stream(self, request):
        if "/.well-known/" not in request.url:
            self.tokens = min(self.rate, self.tokens + (now() - self.since) * self.rate)
            self.since = now()
            if self.tokens < 1:
                self.refused += 1
                self.agent.inject(rate_limited(self.hint))
            else:
                self.tokens -= 1
        return super().stream(request)


class Busy(FakeNetwork):
    """Works on so many requests at once, each for some seconds, and asks others to come later."""

    def __init__(self, agent, *, most, seconds):
        super().__init__(agent)
        self.agent, self.most, self.seconds, self.until = agent, most, seconds, []

    def stream(self, request):
        if "/.well-known/" not in request.url:
            self.until = [end for end in self.until if end > now()]
            if len(self.until) >= self.most:
                self.agent.inject(rate_limited(1))
            else:
                self.until.append(now() + self.seconds)
        return super().stream(request)


def now():
    return asyncio.get_running_loop().time()


def connected(agent, binding="JSONRPC", *, network=None, **options):
    options.setdefault("env", FixedDraws())
    engine = network or FakeNetwork(agent)
    return connect(agent.url, engine=engine, bindings=(binding,), **options)


async def with_a_task(agent, binding="JSONRPC", **options):
    client = connected(agent, binding, **options)
    await client.send_message("first", return_immediately=True)
    return client


async def fails(client, times, error=A2AConnectionError):
    for _ in range(times):
        with pytest.raises(error):
            await client.get_task("task-1")


# ── Away ─────────────────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_agent_that_fails_five_times_opens_the_circuit(binding):
    agent, seen = FakeAgent(), []
    network = Recorded(agent)
    client = await with_a_task(
        agent, binding, network=network, resilience=ONCE, observers=(seen.append,)
    )
    agent.inject(Refuse(), on="GetTask", times=5)
    await fails(client, 5)
    before = len(network.times)

    with pytest.raises(CircuitOpenError) as caught:
        await client.get_task("task-1")

    error = caught.value
    assert len(network.times) == before
    assert (error.executed, error.transient, error.retry_after) == (False, True, 5.0)
    assert error.agent.startswith(agent.url)
    assert "refused" in str(error)
    (opened,) = [one for one in seen if isinstance(one, CircuitChanged)]
    assert (opened.state, opened.failures, opened.retry_after) == ("open", 5, 5.0)

    await asyncio.sleep(5)
    assert (await client.get_task("task-1")).id == "task-1"
    changes = [one.state for one in seen if isinstance(one, CircuitChanged)]
    assert changes == ["open", "half_open", "closed"]
    assert (await client.get_task("task-1")).id == "task-1"


async def test_of_500_callers_one_finds_out_whether_it_is_back():
    agent = FakeAgent()
    network = Recorded(agent)
    client = await with_a_task(agent, network=network, resilience=ONCE)
    agent.inject(Refuse(), on="GetTask", times=5)
    await fails(client, 5)
    await asyncio.sleep(5)
    before = len(network.times)
    agent.inject(Delay(seconds=0.2), on="GetTask")

    outcomes = await asyncio.gather(
        *(client.get_task("task-1") for _ in range(500)), return_exceptions=True
    )

    assert len(network.times) == before + 1
    assert [isinstance(one, CircuitOpenError) for one in outcomes].count(True) == 499
    refused = next(one for one in outcomes if isinstance(one, CircuitOpenError))
    assert "until the probe in progress, another call, has succeeded" in str(refused)
    assert 0 < refused.retry_after <= 1


async def test_messages_are_not_sent_to_an_agent_that_is_away():
    agent = FakeAgent()
    client = connected(agent, resilience=ONCE)
    agent.inject(Refuse(), times=6)

    for _ in range(5):
        with pytest.raises(A2AConnectionError):
            await client.send_message("hello")
    with pytest.raises(CircuitOpenError) as caught:
        await client.send_message("hello")

    assert caught.value.executed is False
    assert not agent.executions


async def test_a_call_that_was_tried_waits_until_the_agent_may_be_back():
    agent = FakeAgent()
    resilience = Resilience(retry=RetryPolicy(base_delay=0.1), budget=None)
    client = await with_a_task(agent, resilience=resilience)
    agent.inject(Refuse(), on="GetTask", times=5)

    tasks = await asyncio.gather(*(client.get_task("task-1") for _ in range(5)))

    assert [task.id for task in tasks] == ["task-1"] * 5
    assert now() >= 5


async def test_each_retry_is_reported_once_though_the_circuit_delays_it():
    seen, hooked = [], []
    agent = FakeAgent()
    retry = RetryPolicy(on_retry=lambda failures, error, wait: hooked.append((failures, error)))
    client = await with_a_task(
        agent, observers=[seen.append], resilience=Resilience(budget=None, retry=retry)
    )
    agent.inject(Refuse(), on="GetTask", times=100)

    for _ in range(6):  # the circuit opens
        with pytest.raises(A2AError):
            await client.get_task("task-1")

    scheduled = [each for each in seen if type(each) is RetryScheduled]
    retries = [(each.request_id, each.number) for each in scheduled]
    assert len(retries) == len({*retries}) > 3
    assert hooked == [(each.number - 1, each.error) for each in scheduled]


async def test_failed_call_names_its_failure_and_not_only_the_refusal():
    agent = FakeAgent()
    client = await with_a_task(agent, resilience=Resilience(budget=None))
    agent.inject(Refuse(), on="GetTask", times=100)

    with pytest.raises(A2AConnectionError) as caught:
        await asyncio.gather(*(client.get_task("task-1", timeout=4) for _ in range(5)))

    assert caught.value.retry_stopped_reason == "the circuit to the agent is open"
    assert caught.value.attempts
    assert "nothing was sent" not in str(caught.value)  # attempts were made


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fail(code=-32603), InternalError),
        (Fail(code=-32001), A2AError),
        (rate_limited(), RateLimitedError),
    ],
)
async def test_an_agent_that_answers_is_not_away(fault, error):
    agent = FakeAgent()
    client = await with_a_task(agent, resilience=ONCE)
    agent.inject(fault, on="GetTask", times=30)

    await fails(client, 30, error)


async def test_who_gives_no_credentials_says_nothing_of_the_agent():
    class Broken:
        async def credentials(self, call):
            raise A2AConnectionError("the token endpoint is down", transient=True, failure="dns")

        async def on_unauthorized(self, call, error):
            return False

    agent = FakeAgent()
    client = connected(agent, auth=Broken(), resilience=ONCE)

    for _ in range(20):
        with pytest.raises(A2AConnectionError, match="token endpoint") as caught:
            await client.get_task("task-1")
        assert caught.value.executed is False


async def test_after_the_credentials_come_again_so_does_what_the_agent_shows():
    class Once:
        is_down = True

        async def credentials(self, call):
            if self.is_down and call.card is not None:
                raise A2AConnectionError("down", transient=True, failure="dns")
            return Credentials()

        async def on_unauthorized(self, call, error):
            return False

    agent, auth = FakeAgent(), Once()
    client = connected(agent, auth=auth, resilience=ONCE)
    await fails(client, 1)
    auth.is_down = False
    agent.inject(Refuse(), on="GetTask", times=5)

    await fails(client, 5)

    await fails(client, 1, CircuitOpenError)


async def test_agent_that_hangs_opens_the_circuit_for_reads_after_timeouts():
    agent = FakeAgent()
    client = await with_a_task(agent)
    agent.inject(Stall(), on="GetTask", times=100)

    for _ in range(5):
        with pytest.raises(DeadlineExceededError):
            await client.get_task("task-1", timeout=6)

    await fails(client, 1, CircuitOpenError)


@pytest.mark.parametrize("timeout", [4.9, 6.0])
async def test_call_abandoned_by_its_caller_says_nothing_about_the_agent(timeout):
    agent = FakeAgent()
    client = await with_a_task(agent)
    agent.inject(Stall(), times=100)

    for _ in range(10):
        if timeout < 5:
            with pytest.raises(DeadlineExceededError):
                await client.get_task("task-1", timeout=timeout)
        else:
            call = asyncio.create_task(client.get_task("task-1"))
            await asyncio.sleep(timeout)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        with pytest.raises(A2AError) as caught:
            await client.send_message("takes long", timeout=timeout, on_unknown="raise")
        assert not isinstance(caught.value, CircuitOpenError)


async def test_probe_abandoned_by_its_caller_frees_its_slot():
    agent = FakeAgent()
    client = await with_a_task(agent, resilience=ONCE)
    agent.inject(Refuse(), on="GetTask", times=5)
    await fails(client, 5)
    await asyncio.sleep(5)
    agent.inject(Stall(), on="GetTask")
    probe = asyncio.create_task(client.get_task("task-1"))
    await asyncio.sleep(0.1)
    await fails(client, 1, CircuitOpenError)

    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)

    assert (await client.get_task("task-1")).id == "task-1"


async def test_a_wait_continues_when_the_agent_is_back():
    agent = FakeAgent(completes("done", after=20))
    client = connected(agent, streaming=False)
    task = await client.send_message("hello", return_immediately=True)
    agent.inject(Refuse(), on="GetTask", times=7)

    done = await client.wait(task.id)

    assert done.state is TaskState.COMPLETED


async def test_clients_that_share_what_they_learn_share_the_breaker():
    agent, shared = FakeAgent(), Endpoints()
    first = await with_a_task(agent, resilience=ONCE, shared=shared)
    second = connected(agent, resilience=ONCE, shared=shared)
    agent.inject(Refuse(), on="GetTask", times=5)

    await fails(first, 5)

    await fails(second, 1, CircuitOpenError)


async def test_clients_with_other_policies_judge_for_themselves():
    agent, shared = FakeAgent(), Endpoints()
    first = await with_a_task(agent, resilience=ONCE, shared=shared)
    patient = Resilience(retry=RetryPolicy(max_retries=0), breaker=BreakerPolicy(failures=50))
    second = connected(agent, resilience=patient, shared=shared)
    agent.inject(Refuse(), on="GetTask", times=6)

    await fails(first, 5)

    await fails(second, 1)
    await second.get_task("task-1")


def test_another_event_loop_finds_out_for_itself():
    agent, shared = FakeAgent(), Endpoints()

    async def first():
        client = await with_a_task(agent, resilience=ONCE, shared=shared)
        agent.inject(Refuse(), on="GetTask", times=5)
        await fails(client, 5)
        await fails(client, 1, CircuitOpenError)

    async def second():
        await connected(agent, resilience=ONCE, shared=shared).get_task("task-1")

    run(first())
    run(second())


async def test_the_bare_wire_has_no_breaker():
    agent = FakeAgent()
    client = await with_a_task(agent, resilience=Resilience.off())
    agent.inject(Refuse(), on="GetTask", times=20)

    await fails(client, 20)


async def test_a_server_that_hangs_is_found_out_though_callers_of_its_card_keep_coming():
    agent = FakeAgent()
    agent.inject(Stall(), on="GetAgentCard", times=1000)
    policies = Resilience(timeouts=Timeouts(first_byte=2))
    client = connected(agent, resilience=policies)

    async def ask(number):
        await asyncio.sleep(number / 5)
        with contextlib.suppress(A2AError):
            await client.ask("hello", timeout=10)

    await asyncio.gather(*(ask(number) for number in range(150)))

    assert client.circuit.failures >= 5
    assert client.stats().endpoints[0].attempts < 12


async def test_a_card_that_cannot_be_had_is_asked_for_ever_less_often():
    agent = FakeAgent()
    agent.inject(Refuse(), on="GetAgentCard", times=1000)
    client = connected(agent, resilience=ONCE)

    for _ in range(5):
        with pytest.raises(A2AConnectionError):
            await client.get_task("task-1")
    with pytest.raises(CircuitOpenError) as caught:
        await client.get_task("task-1")

    assert caught.value.executed is False


# ── Asked to come later ──────────────────────────────────────────────────────────────────────


@both_bindings
async def test_where_one_is_asked_to_wait_all_wait(binding):
    agent = FakeAgent()
    network = Recorded(agent)
    client = await with_a_task(agent, binding, network=network)
    agent.inject(rate_limited(10), on="GetTask")
    first = asyncio.create_task(client.get_task("task-1"))
    await asyncio.sleep(1)

    others = [asyncio.create_task(client.get_task("task-1")) for _ in range(20)]

    assert [task.id for task in await asyncio.gather(first, *others)] == ["task-1"] * 21
    assert not [moment for moment in network.times if 0 < moment < 10]


async def test_hundreds_that_come_too_fast_all_get_through():
    agent = FakeAgent()
    client = await with_a_task(agent)
    network = Limited(agent, rate=20, hint=10)
    client = connected(agent, network=network)

    tasks = await asyncio.gather(*(client.get_task("task-1") for _ in range(200)))

    assert {task.id for task in tasks} == {"task-1"}
    assert network.refused <= 215  # the first 200, which all came at once, and a few
    assert now() < 60


async def test_sends_are_held_and_reads_are_not():
    agent = FakeAgent()
    client = await with_a_task(agent)
    agent.inject(rate_limited(30), on="SendMessage")
    sending = asyncio.create_task(client.send_message("hello"))
    await asyncio.sleep(1)

    await client.get_task("task-1")

    assert now() == 1
    await sending
    assert now() >= 30


async def test_a_cancel_never_waits():
    agent = FakeAgent(works_forever())
    client = connected(agent)
    task = await client.send_message("hello", return_immediately=True)
    agent.inject(rate_limited(30), on="GetTask")
    looking = asyncio.create_task(client.get_task(task.id))
    await asyncio.sleep(1)

    canceled = await client.cancel_task(task.id)

    assert canceled.state is TaskState.CANCELED
    assert now() < 2
    looking.cancel()


async def test_retry_after_of_zero_delays_no_call():
    agent = FakeAgent()
    client = await with_a_task(agent)
    agent.inject(rate_limited(0), on="GetTask", times=3)

    await asyncio.gather(*(client.get_task("task-1") for _ in range(50)))

    assert now() == 0.5  # the backoff of those who were refused


async def test_a_cancel_that_is_refused_comes_again_when_it_was_asked_to():
    agent = FakeAgent(works_forever())
    client = connected(agent)
    task = await client.send_message("hello", return_immediately=True)
    agent.inject(rate_limited(30), on="CancelTask")

    await client.cancel_task(task.id)

    assert now() >= 30


async def test_wait_in_the_queue_is_as_long_as_reported():
    seen, agent = [], FakeAgent()
    client = await with_a_task(agent, observers=[seen.append], env=SystemEnv())
    agent.inject(rate_limited(30), on="GetTask")

    await client.get_task("task-1")

    (told,) = (each.wait for each in seen if isinstance(each, RetryScheduled))
    assert now() == told > 30


async def test_caller_without_time_to_wait_fails_at_once():
    agent = FakeAgent()
    client = await with_a_task(agent)
    agent.inject(rate_limited(30), on="GetTask")
    looking = asyncio.create_task(client.get_task("task-1"))
    await asyncio.sleep(1)

    with pytest.raises(RateLimitedError) as caught:
        await client.get_task("task-1", timeout=10)

    assert now() == 1
    assert (caught.value.executed, caught.value.transient) == (False, True)
    assert 29 <= caught.value.retry_after <= 30
    await looking


async def test_the_line_has_an_end():
    agent = FakeAgent()
    client = await with_a_task(agent, resilience=Resilience(retry_after=RetryAfterPolicy(queue=3)))
    agent.inject(rate_limited(30), on="GetTask")
    waiting = [asyncio.create_task(client.get_task("task-1"))]
    await asyncio.sleep(1)
    waiting += [asyncio.create_task(client.get_task("task-1")) for _ in range(2)]
    await asyncio.sleep(1)

    with pytest.raises(QueueFullError) as caught:
        await client.get_task("task-1")

    assert caught.value.executed is False
    await asyncio.gather(*waiting)


async def test_a_deadline_in_the_line_says_what_was_waited_for():
    agent = FakeAgent()
    client = await with_a_task(agent)
    agent.inject(rate_limited(10), on="GetTask")
    others = [asyncio.create_task(client.get_task("task-1"))]
    await asyncio.sleep(1)
    others += [asyncio.create_task(client.get_task("task-1")) for _ in range(30)]
    await asyncio.sleep(1)

    with pytest.raises(DeadlineExceededError, match="turn") as caught:
        await client.get_task("task-1", timeout=11)

    assert caught.value.executed is False
    await asyncio.gather(*others)


async def test_who_waits_in_the_line_is_not_let_through_once_the_circuit_is_opened():
    agent = FakeAgent()
    client = await with_a_task(agent, resilience=ONCE)
    agent.inject(rate_limited(10), on="GetTask")
    await fails(client, 1, A2AHTTPError)
    waiting = [asyncio.create_task(client.get_task("task-1")) for _ in range(3)]
    await asyncio.sleep(1)
    asked = len(agent.calls("GetTask"))

    client.circuit.open()
    ends = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(end) for end in ends] == [CircuitOpenError] * 3
    assert [end.executed for end in ends] == [False] * 3
    assert len(agent.calls("GetTask")) == asked


async def test_an_agent_that_never_takes_more_costs_three_retries():
    agent = FakeAgent()
    client = await with_a_task(agent)
    agent.inject(rate_limited(5), on="GetTask", times=1000)

    with pytest.raises(RateLimitedError) as caught:
        await client.get_task("task-1")

    assert len(caught.value.attempts) == 4


async def test_where_an_agent_takes_two_at_once_all_have_their_turn():
    agent = FakeAgent()
    client = await with_a_task(agent, network=Busy(agent, most=2, seconds=3))

    await asyncio.gather(*(client.get_task("task-1") for _ in range(40)))


async def test_the_waits_of_attempts_are_those_that_there_were():
    replies = []

    class Recording(BaseLayer):
        async def handle(self, call, call_next):
            replies.append(await call_next(call))
            return replies[-1]

    agent = FakeAgent()
    client = await with_a_task(agent, call_layers=[Recording])
    agent.inject(rate_limited(10), on="GetTask", times=30)

    await asyncio.gather(*(client.get_task("task-1") for _ in range(30)))

    waits = []
    for reply in replies[1:]:
        for one, following in itertools.pairwise(reply.attempts):
            assert following.started == pytest.approx(one.started + one.duration + one.wait)
            waits.append(one.wait)
        assert reply.attempts[-1].wait is None
    assert len(waits) == 30
    assert 10 < min(waits) < 11  # and then they came one by one
    assert max(waits) > 14


async def test_a_gateway_that_says_when_it_is_back_is_believed_and_not_judged():
    agent = FakeAgent()
    network = Recorded(agent)
    client = await with_a_task(agent, network=network)
    agent.inject(unavailable(20), on="GetTask", times=6)

    outcomes = await asyncio.gather(
        *(client.get_task("task-1") for _ in range(6)), return_exceptions=True
    )

    assert not [one for one in outcomes if isinstance(one, A2AError)]
    assert not [moment for moment in network.times if 0 < moment < 20]


async def test_without_the_policy_each_call_waits_for_itself():
    agent = FakeAgent()
    client = await with_a_task(agent, resilience=Resilience(retry_after=None))
    agent.inject(rate_limited(30), on="GetTask")
    first = asyncio.create_task(client.get_task("task-1"))
    await asyncio.sleep(1)

    await client.get_task("task-1")

    assert now() == 1
    await first


async def test_a_hint_too_long_for_others_is_not_held_against_them():
    agent = FakeAgent()
    client = await with_a_task(agent)
    agent.inject(rate_limited(3600), on="GetTask")
    with pytest.raises(RateLimitedError):
        await client.get_task("task-1")

    assert (await client.get_task("task-1", timeout=100)).id == "task-1"
    assert now() >= 60


async def test_a_reply_that_is_no_success_and_no_outage_leaves_all_as_it_is():
    agent = FakeAgent()
    client = await with_a_task(agent, resilience=ONCE)

    for turn in itertools.islice(itertools.cycle([Reset(), Fail(code=-32603)]), 8):
        agent.inject(turn, on="GetTask")
        with pytest.raises((A2AConnectionError, A2AHTTPError, InternalError)):
            await client.get_task("task-1")

    agent.inject(Reset(), on="GetTask")
    await fails(client, 1)
    await fails(client, 1, CircuitOpenError)


# ── So many at once ──────────────────────────────────────────────────────────────────────────


def at_once(limit, **more):
    return Resilience(concurrency=ConcurrencyPolicy(limit=limit, **more))


async def test_calls_in_flight_never_exceed_the_concurrency():
    class Counted(FakeNetwork):
        running = most = 0

        async def request(self, request):
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                return await super().request(request)
            finally:
                self.running -= 1

    agent = FakeAgent()
    network = Counted(agent)
    client = await with_a_task(agent, network=network, resilience=at_once(7))
    agent.inject(Delay(seconds=1), on="GetTask", times=50)

    await asyncio.gather(*(client.get_task("task-1") for _ in range(50)))

    assert network.most == 7
    assert now() == 8


async def test_an_open_stream_keeps_its_place():
    agent = FakeAgent(streams("a", "b", "c", every=1))
    client = connected(agent, resilience=at_once(1))

    async with client.stream_message("hello") as events:
        await anext(events)
        other = asyncio.create_task(client.get_task("task-1"))
        await asyncio.sleep(1)
        assert not other.done()
        assert (await events.result()).text == "abc"

    await other


async def test_what_belongs_to_an_open_stream_needs_no_place_of_its_own():
    agent = FakeAgent(streams("a", "b", "c", every=1))
    client = connected(agent, resilience=at_once(1))
    agent.inject(Cut(after_events=2), on="SendStreamingMessage")

    async with client.stream_message("hello") as events:
        assert (await events.result()).text == "abc"


async def test_one_place_is_enough_for_everything_that_asks_for_it():
    agent = FakeAgent(completes("done", after=5))
    client = connected(agent, resilience=at_once(1), streaming=False)

    answers = await asyncio.gather(*(client.ask(f"hello {n}") for n in range(5)))

    assert [answer.text for answer in answers] == ["done"] * 5


async def test_who_waits_for_a_place_has_no_longer_than_its_deadline():
    agent = FakeAgent()
    client = await with_a_task(agent, resilience=at_once(1))
    agent.inject(Delay(seconds=60), on="GetTask")
    first = asyncio.create_task(client.get_task("task-1"))
    await asyncio.sleep(1)

    with pytest.raises(DeadlineExceededError, match="concurrency slot") as caught:
        await client.get_task("task-1", timeout=5)

    assert caught.value.executed is False
    await first


@pytest.mark.parametrize(
    ("limit", "queue", "told"),
    [
        (1, 1, r"\(1 call in flight\), and the queue is full \(1 waiting\); nothing"),
        (2, 2, r"\(2 calls in flight\), and the queue is full \(2 waiting\); nothing"),
    ],
)
async def test_caller_beyond_the_queue_limit_fails_at_once(limit, queue, told):
    agent = FakeAgent()
    client = await with_a_task(agent, resilience=at_once(limit, queue=queue))
    agent.inject(Delay(seconds=10), on="GetTask", times=limit)
    calls = [asyncio.create_task(client.get_task("task-1")) for _ in range(limit + queue)]
    await asyncio.sleep(1)

    with pytest.raises(QueueFullError, match=told) as caught:
        await client.get_task("task-1")

    assert caught.value.executed is False
    assert now() == 1
    await asyncio.gather(*calls)


@pytest.mark.parametrize("moment", range(12))
async def test_no_place_is_lost_when_callers_leave_at_any_moment(moment):
    agent = FakeAgent(streams("a", "b"))
    client = connected(agent, resilience=at_once(1))

    async def reads():
        async with client.stream_message("hello") as events:
            return await events.result()

    for _ in range(3):
        tasks = [asyncio.create_task(reads()) for _ in range(3)]
        for _ in range(moment):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async with asyncio.timeout(60):
        assert (await reads()).text == "ab"


# ── What is remembered ───────────────────────────────────────────────────────────────────────


async def test_agent_without_calls_for_an_hour_is_forgotten():
    shared = Endpoints()
    used, unused = (FakeAgent(url=f"http://{name}.test") for name in ("used", "unused"))
    first, second = (
        connect(agent.url, engine=FakeNetwork(agent), shared=shared) for agent in (used, unused)
    )
    await first.list_tasks()
    await second.list_tasks()
    known = len(shared)
    for _ in range(5):
        await asyncio.sleep(1000)
        await first.list_tasks()

    late = FakeAgent(url="http://late.test")
    await connect(late.url, engine=FakeNetwork(late), shared=shared).list_tasks()

    assert known == 4  # each agent's own address, and its card's
    assert len(shared) < 6
    again = connect(used.url, engine=FakeNetwork(used), shared=shared)
    before = len(shared)
    await again.list_tasks()
    assert len(shared) == before
