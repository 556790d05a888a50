"""Streams as a caller has them, whatever the agent and what lies between do, in virtual time."""

import asyncio

import pytest

from holdfast import Message, Task, connect
from holdfast.testing import FakeAgent, FakeNetwork, asks, replies

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


def connected(agent, binding="JSONRPC", *, network=None, **options):
    return connect(agent.url, engine=network or FakeNetwork(agent), bindings=(binding,), **options)


def now():
    return asyncio.get_running_loop().time()


def operations(agent):
    """What the agent was asked, but for its card."""
    return [each.operation for each in agent.received if each.operation != "GetAgentCard"]


def told(event):
    """An event in short."""
    if isinstance(event, Message):
        return f"message {event.text}"
    if isinstance(event, Task):
        return f"task {event.state.name} {event.text}".rstrip()
    if hasattr(event, "status"):
        return f"status {event.status.state.name}"
    return f"{'append' if event.append else 'artifact'} {event.artifact.text}"


async def all_of(stream):
    """Every event of a stream, in short."""
    async with stream as events:
        return [told(event) async for event in events]


# ── Without streams ──────────────────────────────────────────────────────────────────────────


@both_bindings
@pytest.mark.parametrize(
    ("behaviour", "events"),
    [
        (replies("hello"), ["message hello"]),
        ("hello", ["task COMPLETED hello"]),
        (asks("which one?"), ["task INPUT_REQUIRED"]),
    ],
    ids=["message", "completed", "asks"],
)
async def test_what_a_polled_agent_answers_at_once_is_not_asked_for_again(
    behaviour, events, binding
):
    agent = FakeAgent(behaviour, streaming=False)
    client = connected(agent, binding)

    assert await all_of(client.stream_message("hi")) == events

    assert operations(agent) == ["SendMessage"]
    assert now() == 0
