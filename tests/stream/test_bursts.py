"""Events that arrive all at once are told as if each had come alone, in virtual time."""

import asyncio

import pytest

from holdfast import A2AConnectionError, A2AError, Limits, Task, connect
from holdfast.errors import LimitExceededError
from holdfast.extend import BaseLayer, Reply, StreamWrapper
from holdfast.testing import Cut, Duplicate, Fail, FakeAgent, FakeNetwork, asks, streams

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])

QUESTION = {"messageId": "question", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
WORDS = [f"word {number}, " for number in range(20)]


class InOne:
    """A network that holds a stream back until it ends, and brings all of it in one piece."""

    def __init__(self, agent):
        self.inner = FakeNetwork(agent)
        self.request = self.inner.request
        self.close = self.inner.close

    def stream(self, request):
        return Held(self.inner.stream(request))


class Held:
    """One connection of it."""

    def __init__(self, connection):
        self.connection = connection
        self.failure = None

    async def __aenter__(self):
        self.stream = await self.connection.__aenter__()
        self.status, self.headers = self.stream.status, self.stream.headers
        return self

    async def __aexit__(self, *error):
        await self.connection.__aexit__(*error)

    def read(self):
        return self.stream.read()

    def chunks(self):
        self.pieces = self.stream.chunks()
        return self

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.failure is not None:
            raise self.failure
        held = b""
        try:
            async for piece in self.pieces:
                held += piece
        except A2AError as error:
            self.failure = error
        else:
            self.failure = StopAsyncIteration()
        if not held:
            raise self.failure
        return held


async def told(agent, engine, binding, *, card=None, **options):
    """All that a stream tells, its answer, and what ended it."""
    client = connect(card or agent.url, engine=engine, bindings=(binding,), **options)
    events = []
    note = events.append
    try:
        async with client.stream_message(QUESTION) as stream:
            async for event in stream:
                note((event, stream.task))
            return events, await stream.result(), None
    except A2AError as error:
        return events, None, error


def plain(events):
    """Events without the times that the agent stamps on them."""

    def without(event):
        text = event.to_json()
        parts = text.split('"timestamp":"')
        return parts[0] + "".join(part.partition('"')[2] for part in parts[1:])

    return [(without(event), without(task)) for event, task in events]


@pytest.mark.rule("D03")
@both_bindings
@pytest.mark.parametrize(
    "faults",
    [
        [],
        [Cut(after_events=7)],
        [Cut(after_events=9, after_bytes=40), Cut(after_events=4, clean=True)],
        [Duplicate(event=5)],
        [Fail(after_events=6)],
        [Fail(after_events=6, named=False)],
    ],
)
async def test_a_burst_tells_the_same_task_and_text(faults, binding):
    outcomes = []
    for engine in (FakeNetwork, InOne):
        agent = FakeAgent(streams(*WORDS, every=1))
        for fault in faults:
            agent.inject(fault)
        outcomes.append((*await told(agent, engine(agent), binding), agent))

    (singly, answer, error, _), (at_once, same_answer, same_error, agent) = outcomes
    assert error is same_error is None
    assert answer.text == same_answer.text
    assert at_once[-1][1].state == singly[-1][1].state
    if not faults:
        assert plain(at_once) == plain(singly)
        assert answer.text == "".join(WORDS)
    assert agent.open_streams == 0


@both_bindings
@pytest.mark.parametrize("limits", [Limits(parts=3), Limits(body=900)])
async def test_a_limit_counts_in_the_middle_of_a_burst(limits, binding):
    outcomes = []
    for engine in (FakeNetwork, InOne):
        agent = FakeAgent(streams("x" * 200, *"abcdefgh", "y" * 800, every=1))
        network = engine(agent)
        card = await connect(agent.url, engine=network, bindings=(binding,)).agent_card()
        events, _, error = await told(agent, network, binding, card=card, limits=limits)
        outcomes.append((len(events), error))
        assert isinstance(error, LimitExceededError)
        assert agent.open_streams == 0

    (number, error), (same_number, same_error) = outcomes
    assert number == same_number
    assert str(error) == str(same_error)
    of_call = {"operation_id": None, "attempts": ()}  # ids, and when each has begun
    assert error.facts() | of_call == same_error.facts() | of_call


@both_bindings
async def test_a_layer_that_looks_at_events_sees_each_of_a_burst(binding):
    seen = []

    class Looking(StreamWrapper):
        async def __anext__(self):
            event = await self._inner.__anext__()
            seen.append(event.event)
            return event

    class Layer(BaseLayer):
        async def stream(self, call, /):
            return Reply(value=Looking((await self._inner.stream(call)).value))

    for where in ("call_layers", "attempt_layers"):
        seen.clear()
        agent = FakeAgent(streams(*WORDS, every=1))
        events, _, error = await told(agent, InOne(agent), binding, **{where: [Layer]})
        assert error is None
        assert [event for event, _ in events] == seen


@both_bindings
async def test_consumers_hear_of_each_of_a_burst(binding):
    heard = []
    agent = FakeAgent(streams(*WORDS, every=1))

    events, _, _ = await told(
        agent,
        InOne(agent),
        binding,
        consumers=[lambda event, task, _: heard.append((event, task))],
    )

    assert heard == events


@both_bindings
async def test_a_closed_client_ends_a_stream_in_the_middle_of_a_burst(binding):
    agent = FakeAgent(streams(*WORDS, every=1))
    client = connect(agent.url, engine=InOne(agent), bindings=(binding,))

    async with client.stream_message("hi") as events:
        for _ in range(5):
            await anext(events)
        await client.close()
        with pytest.raises(A2AConnectionError, match="closed while task task-1 was"):
            await anext(events)


@both_bindings
async def test_a_burst_that_asks_for_input_ends_there(binding):
    agent = FakeAgent(asks("For when?"))
    events, answer, error = await told(agent, InOne(agent), binding)

    assert error is None
    assert (answer.needs_input, answer.question) == (True, "For when?")
    assert isinstance(events[0][0], Task)


async def test_buffered_read_can_be_cancelled_and_continued():
    agent = FakeAgent(streams(*WORDS, every=1))
    client = connect(agent.url, engine=InOne(agent))

    async with client.stream_message("hi") as events:
        text = []
        while True:
            waiting = asyncio.ensure_future(anext(events, None))
            await asyncio.sleep(0)
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])
                event = await anext(events, None)
            else:
                event = await waiting
            if event is None:
                break
            text.append(getattr(getattr(event, "artifact", None), "text", ""))
    assert "".join(text) == "".join(WORDS)
