"""An iteration that is cancelled, at whichever step of the loop, resumes with the next event.

The reader is cancelled at every step of the loop in turn, in each state that a stream can be in.
"""

import asyncio

import pytest

from holdfast import ReconnectPolicy, Resilience, Task, connect
from holdfast.extend import Interceptor
from holdfast.testing import (
    Cut,
    Fail,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Stall,
    Streaming,
    asks,
    run,
    streams,
)

TEXT = "abcdef"
QUICK = Resilience(reconnect=ReconnectPolicy(backoff=0.001, max_backoff=0.01))
PERIOD = 11
"""Steps from one cancellation to the next; each step is the first of them once."""


def told(event):
    """An event in short: what it is, and its text."""
    if isinstance(event, Task):
        return f"task {event.state.name}", event.text
    if hasattr(event, "status"):
        return f"status {event.status.state.name}", ""
    return "artifact", event.artifact.text


class Steps:
    """Cancels a reader at some steps of the event loop; it counts only while there is one."""

    def __init__(self, first):
        self._left = first
        self._loop = asyncio.get_running_loop()
        self._step = self._loop._run_once
        self._loop._run_once = self._run_once
        self.reader = None
        self.cancelled = 0

    def _run_once(self):
        if self.reader is not None and not self.reader.done():
            if self._left == 0:
                self.reader.cancel()
                self.cancelled += 1
                self._left = PERIOD
            self._left -= 1
        self._step()

    async def read(self, coroutine):
        self.reader = asyncio.ensure_future(coroutine)
        try:
            await asyncio.wait({self.reader})
        finally:
            reader, self.reader = self.reader, None
        return reader


async def read_all(events, steps):
    """Every event, in short, of a stream whose reader is cancelled again and again."""
    seen = []
    while True:
        reader = await steps.read(anext(events, None))
        if reader.cancelled():
            continue
        if (event := reader.result()) is None:
            return seen
        seen.append(told(event))


def a_message(agent):
    """The stream of a message, of which nothing goes wrong."""


def a_cut(agent):
    """It is cut, subscribed to again after refusals, and cut again."""
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    agent.inject(Refuse(), on="SubscribeToTask", times=2)
    agent.inject(Cut(after_events=2), on="SubscribeToTask")


def a_lost_reply(agent):
    """A look at the task fails after a cut, and so does a subscription that is stalled."""
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    agent.inject(Stall(phase="idle", after_events=1), on="SubscribeToTask")
    agent.inject(Fail(code=-32603, message="not now"), on="GetTask", times=2)


def no_subscriptions(agent):
    """It is cut, and the task is polled."""
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    agent.inject(Fail(code=-32004, message="no"), on="SubscribeToTask", times=9)


class Slow(Interceptor):
    async def after(self, call, outcome):
        await asyncio.sleep(0)
        return outcome


# What goes wrong, the agent, the client, and whether each event is the agent's own: behind a cut
# the text is read from the task, and what a repeated request finds comes as one.
STREAMS = {
    "message": (a_message, {}, {}, True),
    "cut": (a_cut, {}, {}, False),
    "cut, HTTP+JSON": (a_cut, {}, {"bindings": ("HTTP+JSON",)}, False),
    "cut, overlapping": (a_cut, {"streaming": Streaming(overlap=2)}, {}, False),
    "cut, no snapshot": (a_cut, {"streaming": Streaming(snapshot=False)}, {}, False),
    "cut, in pieces": (a_cut, {"streaming": Streaming(piece=99)}, {}, False),
    "cut, intercepted": (a_cut, {}, {"interceptors": [Slow()]}, False),
    "cut, consumed": (a_cut, {}, {"consumers": [lambda *_: asyncio.sleep(0)]}, False),
    "cut, journaled": (a_cut, {}, {"journal": True}, False),
    "cut, waits for input": (a_cut, {"then": asks("well?")}, {}, False),
    "failing looks": (a_lost_reply, {}, {}, False),
    "polled after a cut": (no_subscriptions, {}, {}, False),
    "polled": (a_message, {"streaming": False}, {}, True),
    "subscribed": (a_message, {"subscribes": True}, {}, True),
    "subscribed, overlapping": (
        a_message,
        {"subscribes": True, "streaming": Streaming(overlap=2)},
        {},
        True,
    ),
    "subscribed, silent": (
        a_message,
        {"subscribes": True, "streaming": Streaming(snapshot=False)},
        {},
        False,
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_an_iteration_that_is_cancelled_at_any_step_resumes_with_the_next_event(name, tmp_path):
    harm, agents, options, is_exact = STREAMS[name]
    agents = dict(agents)
    subscribes, then = agents.pop("subscribes", False), agents.pop("then", None)

    async def walk(first):
        agent = FakeAgent(streams(*TEXT, every=1, then=then), **agents)
        harm(agent)
        network = FakeNetwork(agent)
        more = {"bindings": ("JSONRPC",), **options, "engine": network, "resilience": QUICK}
        if more.pop("journal", False):
            more["journal"] = f"sqlite:///{tmp_path}/{first}.db"
        async with connect(agent.url, **more) as client:
            if subscribes:
                task = await client.send_message("hi", return_immediately=True)
                stream = client.subscribe_to_task(task.id)
            else:
                stream = client.stream_message("hi")
            async with stream as events:
                steps = Steps(first)
                seen = await read_all(events, steps)
                assert events.task.text == TEXT
        assert network.in_flight == 0
        return seen, steps.cancelled

    wanted, _ = run(walk(10**9))
    for first in range(PERIOD):
        seen, cancelled = run(walk(first))
        assert cancelled
        if is_exact:
            assert seen == wanted
        else:
            assert "".join(text for _, text in seen) == TEXT
            assert (seen[0][0], seen[-1]) == (wanted[0][0], wanted[-1])
