"""The fake network keeps the contract of an engine."""

import asyncio

import pytest

from holdfast import A2AConnectionError, A2ATimeoutError, connect
from holdfast.errors import InvalidAgentResponseError, LimitExceededError
from holdfast.extend import HttpRequest
from holdfast.policies import Limits, Timeouts
from holdfast.testing import (
    Cut,
    Delay,
    FakeAgent,
    FakeNetwork,
    Garbage,
    Refuse,
    Reset,
    Respond,
    Stall,
    completes,
    works_forever,
)

LIMITS = Timeouts(pool=1, connect=2, write=3, first_byte=4, idle=5)
BODY = (
    b'{"jsonrpc":"2.0","id":"1","method":"SendMessage","params":'
    b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}]}}}'
)


def send(url="http://agent.test/rpc", **members):
    members = {"timeouts": LIMITS, "headers": {"a2a-version": "1.0"}, "body": BODY} | members
    return HttpRequest(method="POST", url=url, **members)


def now():
    return asyncio.get_running_loop().time()


async def fails(network, request):
    """The error of a request, and when it came."""
    with pytest.raises((A2AConnectionError, A2ATimeoutError)) as caught:
        await network.request(request)
    assert network.in_flight == 0
    return caught.value, now()


# ── What arrives ─────────────────────────────────────────────────────────────────────────────


async def test_a_request_reaches_the_agent_at_its_origin():
    one, two = FakeAgent(url="http://one.test"), FakeAgent(url="http://two.test:8080")
    network = FakeNetwork(one, two)

    await network.request(send("http://two.test:8080/rpc"))

    assert (len(one.received), len(two.received)) == (0, 1)


async def test_the_reply_is_the_agents():
    request = send()

    reply = await FakeNetwork(FakeAgent()).request(request)

    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert b"hello" in reply.body
    assert request.progress.sent


async def test_it_can_be_closed_twice_and_used_again():
    network = FakeNetwork(FakeAgent())

    await network.close()
    await network.close()

    assert (await network.request(send())).status == 200


async def test_a_stream_gives_the_body_while_it_is_open():
    network = FakeNetwork(FakeAgent())

    async with network.stream(send()) as reply:
        assert (reply.status, network.in_flight) == (200, 1)
        assert [b"hello" in chunk async for chunk in reply.chunks()] == [True]

    assert network.in_flight == 0


# ── What does not ────────────────────────────────────────────────────────────────────────────


async def test_caller_has_no_name_that_was_not_given():
    request = send("http://nowhere.test/rpc?key=secret")

    error, _ = await fails(FakeNetwork(FakeAgent()), request)

    assert (error.failure, error.executed, error.transient) == ("dns", False, False)
    assert error.agent == "http://nowhere.test/rpc"
    assert not request.progress.sent


async def test_a_refused_connection_sends_nothing():
    agent, request = FakeAgent(), send()
    agent.inject(Refuse())

    error, _ = await fails(FakeNetwork(agent), request)

    assert (error.failure, error.executed, error.transient) == ("refused", False, True)
    assert not request.progress.sent
    assert agent.received == []


@pytest.mark.parametrize("after_execution", [False, True])
async def test_after_a_reset_execution_is_unknown(after_execution):
    agent, request = FakeAgent(), send()
    agent.inject(Reset(after_execution=after_execution))

    error, _ = await fails(FakeNetwork(agent), request)

    assert (error.failure, error.executed, error.transient) == ("disconnected", None, True)
    assert request.progress.sent
    assert len(agent.executions) == after_execution


@pytest.mark.parametrize("count", [0, 1, 20])
async def test_a_cut_reply_is_distinguished_from_a_whole_one(count):
    agent = FakeAgent()
    agent.inject(Cut(after_bytes=count))

    error, _ = await fails(FakeNetwork(agent), send())

    assert (error.failure, error.executed) == ("truncated", None)
    assert len(agent.executions) == 1


@pytest.mark.parametrize("fault", [Cut, lambda **how: Stall(phase="idle", **how)])
async def test_a_reply_that_ends_before_the_cut_comes_whole(fault):
    agent = FakeAgent()
    agent.inject(fault(after_bytes=10_000))

    reply = await FakeNetwork(agent).request(send())

    assert reply.body.endswith(b"}")


async def test_garbage_is_no_reply():
    agent, network = FakeAgent(), None
    network = FakeNetwork(agent)
    agent.inject(Garbage(data=b"SSH-2.0-OpenSSH_9.6\r\n"))

    with pytest.raises(InvalidAgentResponseError) as caught:
        await network.request(send())

    assert caught.value.executed is None
    assert caught.value.code is None
    assert caught.value.excerpt == "SSH-2.0-OpenSSH_9.6"
    assert network.in_flight == 0


# ── Timeouts ─────────────────────────────────────────────────────────────────────────────────


async def test_a_connection_that_takes_too_long_sends_nothing():
    agent, request = FakeAgent(), send()

    error, at = await fails(FakeNetwork(agent, latency=2.5), request)

    assert (error.phase, error.timeout, error.executed, at) == ("connect", 2, False, 2)
    assert not request.progress.sent
    assert agent.received == []


async def test_a_stalled_connection_sends_nothing():
    agent, request = FakeAgent(), send()
    agent.inject(Stall(phase="connect"))

    error, at = await fails(FakeNetwork(agent), request)

    assert (error.phase, error.executed, error.transient, at) == ("connect", False, True, 2)
    assert not request.progress.sent


@pytest.mark.parametrize("after_execution", [False, True])
async def test_a_reply_that_does_not_begin_is_waited_for_so_long(after_execution):
    agent = FakeAgent()
    agent.inject(Stall(after_execution=after_execution))

    error, at = await fails(FakeNetwork(agent, latency=1), send())

    assert (error.phase, error.timeout, error.executed, at) == ("first_byte", 4, None, 5)
    assert len(agent.executions) == after_execution


async def test_a_blocking_agent_that_works_too_long_is_a_reply_that_does_not_begin():
    agent = FakeAgent(lambda turn: works_forever())

    error, at = await fails(FakeNetwork(agent), send())

    assert (error.phase, at) == ("first_byte", 4)
    assert len(agent.executions) == 1


@pytest.mark.parametrize("count", [0, 7])
async def test_a_reply_that_stops_in_the_middle_is_idle(count):
    agent = FakeAgent()
    agent.inject(Stall(phase="idle", after_bytes=count))

    error, at = await fails(FakeNetwork(agent), send())

    assert (error.phase, error.timeout, error.executed, at) == ("idle", 5, None, 5)
    assert len(agent.executions) == 1


async def test_the_beginning_of_a_cut_stream_can_be_read():
    agent = FakeAgent()
    agent.inject(Cut(after_bytes=7))
    network = FakeNetwork(agent)

    async with network.stream(send()) as reply:
        chunks = aiter(reply.chunks())
        first = await anext(chunks)
        with pytest.raises(A2AConnectionError, match="ended too early"):
            await anext(chunks)

    assert len(first) == 7
    assert network.in_flight == 0


# ── Late delivery ────────────────────────────────────────────────────────────────────────────


async def test_a_late_reply_is_to_what_was_executed_at_once():
    agent = FakeAgent()
    agent.inject(Delay(seconds=3))

    await FakeNetwork(agent).request(send())

    assert (agent.received[0].at, now()) == (0, 3)


async def test_a_late_request_is_executed_late():
    agent = FakeAgent()
    agent.inject(Delay(seconds=3, after_execution=False))

    reply = await FakeNetwork(agent).request(send())

    assert reply.status == 200
    assert (agent.received[0].at, now()) == (3, 3)


async def test_late_request_is_executed_after_its_client_left():
    agent = FakeAgent()
    agent.inject(Delay(seconds=60, after_execution=False))

    error, at = await fails(FakeNetwork(agent), send())
    assert (error.phase, at, agent.executions) == ("first_byte", 4, {})

    await asyncio.sleep(56)
    assert list(agent.executions) == ["m"]


# ── Limits and slots ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("body", [b"x" * 11, b"x" * 100])
async def test_a_reply_that_is_too_large_is_refused(body):
    agent = FakeAgent()
    agent.inject(Respond(status=200, body=body))
    network = FakeNetwork(agent)

    with pytest.raises(LimitExceededError) as caught:
        await network.request(send(limits=Limits(body=10)))

    error = caught.value
    assert (error.which, error.bound, error.executed) == ("body", 10, None)
    assert error.agent == "http://agent.test/rpc"
    assert network.in_flight == 0


async def test_a_reply_that_just_fits_is_taken():
    agent = FakeAgent()
    agent.inject(Respond(status=200, body=b"x" * 10))

    assert (await FakeNetwork(agent).request(send(limits=Limits(body=10)))).body == b"x" * 10


async def test_what_is_in_flight_is_counted():
    agent = FakeAgent(lambda turn: completes("done", after=3))
    network = FakeNetwork(agent)

    await asyncio.gather(*(network.request(send()) for _ in range(5)))

    assert (network.peak, network.in_flight) == (5, 0)


@pytest.mark.parametrize(
    "fault",
    [None, Stall(phase="connect"), Stall(), Stall(phase="idle", after_bytes=1), Delay(seconds=3)],
)
@pytest.mark.parametrize("latency", [0, 1])
async def test_a_cancelled_request_frees_its_slot(fault, latency):
    agent = FakeAgent(lambda turn: completes("done", after=3))
    if fault:
        agent.inject(fault)
    network = FakeNetwork(agent, latency=latency)
    for patience in (0, 0.5, 1.5):
        request = asyncio.create_task(network.request(send()))
        await asyncio.sleep(patience)

        request.cancel()

        with pytest.raises(asyncio.CancelledError):
            await request
        assert network.in_flight == 0


async def test_an_abandoned_stream_frees_its_slot():
    network = FakeNetwork(FakeAgent())

    async with network.stream(send()) as reply:
        async for _ in reply.chunks():
            break

    assert network.in_flight == 0


async def test_the_timeout_of_the_caller_stays_the_callers():
    agent = FakeAgent(lambda turn: works_forever())

    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(1):
            await FakeNetwork(agent).request(send())

    assert not isinstance(caught.value, A2ATimeoutError)


async def test_a_timeout_that_the_behaviour_raises_stays_its_own():
    def behaviour(turn):
        raise TimeoutError

    with pytest.raises(TimeoutError) as caught:
        await FakeNetwork(FakeAgent(behaviour)).request(send())

    assert not isinstance(caught.value, A2ATimeoutError)


async def test_what_the_behaviour_raises_late_is_raised_too():
    def behaviour(turn):
        raise ZeroDivisionError

    agent = FakeAgent(behaviour)
    agent.inject(Delay(seconds=1, after_execution=False))

    with pytest.raises(ZeroDivisionError):
        await FakeNetwork(agent).request(send())


async def test_a_client_talks_over_it():
    agent = FakeAgent()
    network = FakeNetwork(agent, latency=0.1)

    async with connect(agent.url, engine=network) as client:
        assert (await client.send_message("hello")).text == "hello"

    assert now() == pytest.approx(0.2)  # the card and the message
