"""Streams that break again and again: what the caller has came once, whole and in order."""

import functools
import random

import pytest
from tests.kit.effort import THOROUGH, crossed, some
from tests.kit.virtual_env import FixedDraws

from holdfast import Resilience, Task, Timeouts, connect
from holdfast._stream.text import TextFold
from holdfast.client import TextDelta
from holdfast.errors import ReconnectError
from holdfast.testing import (
    ConsistencyChecker,
    Cut,
    Duplicate,
    Fail,
    FakeAgent,
    FakeNetwork,
    Reset,
    Stall,
    Streaming,
    bad_gateway,
    run,
    streams,
    unavailable,
)
from holdfast.types import TaskStatusUpdateEvent


@pytest.fixture(autouse=True, params=["1.0", "0.3"])
def version(request, monkeypatch):
    """Has every agent here speak one version of the protocol, and then the other."""
    agent = functools.partial(FakeAgent, versions=(request.param,))
    monkeypatch.setitem(globals(), "FakeAgent", agent)
    return request.param


both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])

CHUNKS = [f"{number} " for number in range(500)]
PATIENT = Resilience(timeouts=Timeouts(idle=5), budget=None)

BREAKS = [
    lambda dice: Cut(after_events=dice.randint(2, 15)),
    lambda dice: Cut(after_events=dice.randint(2, 15), clean=True),
    lambda dice: Cut(after_events=dice.randint(2, 15), after_bytes=dice.randint(1, 60)),
    lambda dice: Reset(after_events=dice.randint(2, 15)),
    lambda dice: Stall(phase="idle", after_events=dice.randint(2, 15)),
    lambda dice: Fail(after_events=dice.randint(2, 15), named=dice.random() < 0.5),
]

AGENTS = {
    "plain": {},
    "overlap": {"streaming": Streaming(overlap=4)},
    "store lags": {"store_lag": 0.5},
    "store lags, overlap": {"store_lag": 0.25, "streaming": Streaming(overlap=7)},
    "no snapshot": {"streaming": Streaming(snapshot=False)},
    "no snapshot, overlap": {"streaming": Streaming(snapshot=False, overlap=4)},
    "stays open": {"streaming": Streaming(stays_open=True)},
    "final task": {"streaming": Streaming(final_task=True)},
    "keep-alive": {"streaming": Streaming(keep_alive=0.05)},
    "LF": {"streaming": Streaming(line_end="\n", overlap=2)},
    "CR": {"streaming": Streaming(line_end="\r", pretty=True, overlap=2)},
    "pretty": {"streaming": Streaming(pretty=True)},
    "a few bytes at a time": {"streaming": Streaming(piece=7)},
    "GET only": {"streaming": Streaming(verbs=("GET",))},
    "POST only": {"streaming": Streaming(verbs=("POST",), other_verb=404)},
    "no history": {"records_messages": False},
}


def connected(agent, binding, **options):
    options.setdefault("resilience", PATIENT)
    return connect(agent.url, bindings=(binding,), **options)


def break_often(agent, dice, times):
    agent.inject(dice.choice(BREAKS)(dice), on="SendStreamingMessage")
    for _ in range(times - 1):
        agent.inject(dice.choice(BREAKS)(dice), on="SubscribeToTask")


def check_events(checker, seen):
    """Nothing twice, nothing out of order, one end."""
    for event in seen:
        checker.record_event(event)
    checker.check()
    states = [event.status for event in seen if isinstance(event, Task | TaskStatusUpdateEvent)]
    assert [status.state.is_terminal for status in states] == [*[False] * (len(states) - 1), True]
    stamps = [status.timestamp for status in states]
    assert stamps == sorted(stamps)


def text_of(changes):
    """What a caller has who takes back what was reset."""
    text = ""
    for change in changes:
        text = text + change.text if isinstance(change, TextDelta) else ""
    return text


WAYS = [(binding, version) for binding in ("JSONRPC", "HTTP+JSON") for version in ("1.0", "0.3")]
OFTEN = [
    (how, *way)
    # Every other agent in one way each, and all agents in all four ways where there is time.
    for number, how in enumerate(some(AGENTS, of=2))
    for way in (WAYS if THOROUGH else [WAYS[number % 4]])
]


@pytest.mark.rule("D03")
@pytest.mark.parametrize(("how", "binding", "version"), OFTEN, indirect=["version"])
def test_five_hundred_chunks_over_fifty_breaks_come_once(how, binding, version):
    async def main():
        dice = random.Random(f"{how} {binding}")
        agent = FakeAgent(streams(*CHUNKS, every=1), **AGENTS[how])
        break_often(agent, dice, 50)
        network = FakeNetwork(agent)
        checker = ConsistencyChecker(agent)
        client = connected(agent, binding, engine=network, consumers=[checker.consumer])
        seen = []

        async with client.stream_message("hi") as events:
            text = TextFold()
            deltas = []
            async for event in events:
                seen.append(event)
                deltas += text.changes(event)
            task = events.task

        check_events(ConsistencyChecker(agent), seen)
        checker.check()
        assert text_of(deltas) == "".join(CHUNKS)
        assert all(isinstance(delta, TextDelta) for delta in deltas)
        assert task == agent.tasks[task.id]
        assert len(agent.executions) == 1
        if version == "1.0":
            assert events.reconnects >= 40
        else:  # after the first break its task is looked at
            assert (events.gap, agent.calls("SubscribeToTask")) == (True, [])
        assert (network.in_flight, agent.open_streams) == (0, 0)
        assert agent.calls("CancelTask") == []

    run(main())


@both_bindings
@pytest.mark.parametrize("seed", range(5))
async def test_the_text_of_a_broken_stream_is_the_text_of_its_answer(seed, binding):
    dice = random.Random(seed)
    agent = FakeAgent(streams(*CHUNKS[:100], every=1), streaming=Streaming(overlap=3))
    break_often(agent, dice, 20)
    client = connected(agent, binding, engine=FakeNetwork(agent))

    async with client.stream_message("hi") as events:
        joined = "".join([text async for text in events.text_deltas()])
        answer = await events.result()

    assert joined == answer.text == "".join(CHUNKS[:100])


@both_bindings
@pytest.mark.parametrize("snapshot", [True, False])
@pytest.mark.parametrize("draw", [0.0, 0.5])
async def test_what_was_missed_is_there_at_the_end_however_late_the_store_is(
    draw, snapshot, binding
):
    agent = FakeAgent(
        streams(*"abcdef", every=0.25), store_lag=1.0, streaming=Streaming(snapshot=snapshot)
    )
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    agent.inject(unavailable(retry_after=0.6), on="SubscribeToTask")
    client = connected(agent, binding, engine=FakeNetwork(agent), env=FixedDraws(draw))

    async with client.stream_message("hi") as events:
        answer = await events.result()

    assert answer.text == "abcdef"


@both_bindings
@pytest.mark.parametrize("streaming", [Streaming(), Streaming(snapshot=False)])
async def test_a_task_that_cannot_be_asked_for_at_its_end_is_asked_for_again(streaming, binding):
    agent = FakeAgent(streams(*"abcdef", every=5), streaming=streaming)
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    agent.inject(unavailable(retry_after=11), on="SubscribeToTask")
    agent.inject(bad_gateway(), on="GetTask", times=12)
    client = connected(agent, binding, engine=FakeNetwork(agent))

    async with client.stream_message("hi") as events:
        answer = await events.result()

    assert answer.text == "abcdef"


@both_bindings
@pytest.mark.parametrize("streaming", [Streaming(), Streaming(snapshot=False)])
async def test_what_may_lack_something_is_no_answer(streaming, binding):
    agent = FakeAgent(streams(*"abcdef", every=5), streaming=streaming)
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    agent.inject(unavailable(retry_after=11), on="SubscribeToTask")
    agent.inject(bad_gateway(), on="GetTask", times=1000)
    client = connected(agent, binding, engine=FakeNetwork(agent))

    with pytest.raises(ReconnectError, match="502") as caught:
        async with client.stream_message("hi") as events:
            await events.result()

    assert (caught.value.task.id, caught.value.executed) == ("task-1", True)


@pytest.mark.rule("D03")
@crossed("lag, seed, binding", [0.3, 0.7, 1.5], range(8), ["JSONRPC", "HTTP+JSON"], turns=2)
async def test_no_text_comes_twice_from_a_store_that_is_late(lag, seed, binding):
    agent = FakeAgent(streams(*"abcdefgh", every=1), store_lag=lag)
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    agent.inject(Cut(after_events=1), on="SubscribeToTask")
    dice = FixedDraws(random.Random(seed).random())
    client = connected(agent, binding, engine=FakeNetwork(agent), env=dice)

    async with client.stream_message("hi") as events:
        changes = [change async for change in events.text_changes()]

    assert "".join(change.text for change in changes) == "abcdefgh"


@both_bindings
async def test_a_chunk_that_came_twice_is_taken_back_at_the_end(binding):
    agent = FakeAgent(streams("a", "b", every=1))
    agent.inject(Duplicate(event=4), on="SendStreamingMessage")
    client = connected(agent, binding, engine=FakeNetwork(agent))

    async with client.stream_message("hi") as events:
        changes = [change async for change in events.text_changes()]

    assert [getattr(change, "text", None) for change in changes] == ["a", "b", "b", None, "ab"]
    assert events.task.text == "ab"
