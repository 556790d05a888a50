"""A caller's place in a distributed trace goes with each attempt, and is no secret (W3C)."""

import msgspec
import pytest

from holdfast import A2AError, Resilience, connect
from holdfast._wire.http import check_headers
from holdfast.errors import wrap_downstream
from holdfast.extend import Interceptor
from holdfast.testing import (
    Fail,
    FakeAgent,
    FakeNetwork,
    Reset,
    Respond,
    Stall,
    streams,
)

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HEADERS = {"traceparent": TRACE, "tracestate": "vendor=0123456789abcdef0123456789abcdef"}


class Traces(Interceptor):
    """What somebody writes who has a tracer: it puts its headers into each call."""

    async def before(self, call):
        return msgspec.structs.replace(call, headers={**call.headers, **HEADERS})


def client_of(agent, **options):
    return connect(agent.url, engine=FakeNetwork(agent), **options)


WAYS = pytest.mark.parametrize(
    ("options", "per_call"),
    [({}, {"headers": HEADERS}), ({"headers": HEADERS}, {}), ({"interceptors": [Traces()]}, {})],
    ids=["call", "client", "interceptor"],
)


@WAYS
async def test_it_goes_along_with_each_attempt(options, per_call):
    agent = FakeAgent()
    agent.inject(Respond(status=429, after_execution=True), times=2)

    await client_of(agent, **options).send_message("hello", **per_call)

    sent = agent.calls("SendMessage")
    assert len(sent) == 3
    assert {(call.headers["traceparent"], call.headers["tracestate"]) for call in sent} == {
        (TRACE, HEADERS["tracestate"])
    }


async def test_a_card_that_many_calls_share_is_fetched_once_and_for_none_of_them():
    agent = FakeAgent()
    client = client_of(agent)

    for _ in range(3):
        await client.send_message("hello", headers=HEADERS)

    [card] = agent.calls("GetAgentCard")
    assert "traceparent" not in card.headers


@WAYS
@pytest.mark.parametrize(
    "fault", [Fail(message=f"no, {TRACE}"), Stall(), Reset(after_execution=True)], ids=repr
)
async def test_an_error_keeps_it_and_what_an_agent_says_of_it(options, per_call, fault):
    agent = FakeAgent()
    agent.inject(fault)
    client = client_of(agent, resilience=Resilience.off(), on_unknown="raise", **options)

    with pytest.raises(A2AError) as caught:
        await client.send_message("hello", timeout=5, **per_call)

    assert caught.value.traceparent == TRACE
    assert "***" not in str(caught.value)
    if isinstance(fault, Fail):
        assert TRACE in str(caught.value)
    assert wrap_downstream(caught.value, current="A").traceparent == TRACE


@pytest.mark.parametrize(
    ("options", "per_call"),
    [({}, {"headers": HEADERS}), ({"headers": HEADERS}, {})],
    ids=["call", "client"],
)
async def test_the_error_of_a_stream_keeps_it(options, per_call):
    agent = FakeAgent(streams("a", "b", "c", every=1))
    agent.inject(Fail(after_events=2, message=f"no, {TRACE}"))
    client = client_of(agent, resilience=Resilience.off(), **options)

    async with client.stream_message("hello", **per_call) as events:
        with pytest.raises(A2AError) as caught:
            await events.result()

    assert caught.value.traceparent == TRACE
    assert TRACE in str(caught.value)


async def test_without_one_there_is_none():
    agent = FakeAgent()
    agent.inject(Fail())

    with pytest.raises(A2AError) as caught:
        await client_of(agent, resilience=Resilience.off()).send_message("hello")

    assert caught.value.traceparent is None


@pytest.mark.parametrize("value", [TRACE, "cc-" + TRACE[3:] + "-later", "01-" + TRACE[3:]])
def test_what_the_specification_allows_is_taken(value):
    assert check_headers({"TraceParent": value}) == {"traceparent": value}


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00-1-2-01",
        TRACE.upper(),
        TRACE[:-3],
        f"{TRACE}-more",
        "ff" + TRACE[2:],
        "00-" + "0" * 32 + TRACE[35:],
        TRACE[:36] + "0" * 16 + TRACE[52:],
        f" {TRACE}",
    ],
)
def test_what_would_end_the_trace_is_refused_before_anything_is_sent(value):
    with pytest.raises(ValueError, match="traceparent is not one of W3C Trace Context"):
        connect("http://agent.test", headers={"traceparent": value})
