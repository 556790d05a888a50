"""A request for the task that ends after its cancellation does not change the stream.

A stream cancels such a request once the connection brings something, and waits a second for its
end.
"""

import asyncio
import contextlib

import pytest

from holdfast import connect
from holdfast.testing import Cut, FakeAgent, FakeNetwork, run, streams


class Finishing:
    """Finishes GetTask although it was cancelled, as a login may have to."""

    def __init__(self, seconds, per_event):
        self._seconds, self._per_event = seconds, per_event

    async def before(self, call):
        if call.operation.name == "GetTask":
            clock = asyncio.get_running_loop().time
            ends = clock() + self._seconds
            while (left := ends - clock()) > 0:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(left)
        return call

    async def after(self, call, outcome):
        if call.operation.name == "SendStreamingMessage":
            await asyncio.sleep(self._per_event)
        return outcome


def followed(agent, seconds, *, per_event=0.0):
    async def main():
        interceptors = [Finishing(seconds, per_event)]
        async with (
            connect(agent.url, engine=FakeNetwork(agent), interceptors=interceptors) as client,
            client.stream_message("hi") as events,
        ):
            text = "".join([piece async for piece in events.text_deltas()])
            return text, events.gap

    return run(main(), allow_orphans=True)


def test_first_connection_after_a_late_request_has_no_gap():
    agent = FakeAgent(streams("a", "b", "c", "d", every=40.0))
    assert followed(agent, 12.0) == ("abcd", False)


@pytest.mark.parametrize("per_event", [4.0, 9.0])
def test_slow_events_after_a_late_request_are_not_repeated(per_event):
    agent = FakeAgent(streams("a", "b", "c", "d", "e", every=35.0))
    text, _gap = followed(agent, 33.0, per_event=per_event)
    assert text == "abcde"


@pytest.mark.parametrize("seconds", [11.0, 14.0, 22.0, 33.0])
def test_subscription_after_a_late_request_continues(seconds):
    agent = FakeAgent(streams("a", "b", "c", "d", "e", every=45.0))
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    assert followed(agent, seconds) == ("abcde", True)
