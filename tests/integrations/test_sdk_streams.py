"""Streams as the SDK's user puts them together: whatever happens, it is what the agent holds.

Each seed makes an agent that streams in its own way, a task whose artifacts grow and are written
anew, and faults at any moment.
"""

import asyncio
import random

import pytest
from a2a.client.errors import A2AClientError
from a2a.helpers import get_stream_response_text
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InternalError as SdkInternalError
from tests.kit.sdk_clients import card_of, client_of, collected, said, tasks_made

from holdfast.errors import InternalError
from holdfast.testing import (
    Cut,
    FakeAgent,
    Plan,
    Refuse,
    Reset,
    Stall,
    Step,
    Streaming,
    crashes,
    fails,
    rate_limited,
    streams,
    unavailable,
)
from holdfast.types import Artifact, Part, TaskState

ENDS = [TaskState.COMPLETED, TaskState.FAILED, TaskState.INPUT_REQUIRED]


def texts_of(artifacts):
    return {one.artifact_id: "".join(part.text for part in one.parts) for one in artifacts}


def put_together(events):
    """The texts of the artifacts, as ``append`` says."""
    texts = {}
    for event in events:
        if event.HasField("task"):
            texts = texts_of(event.task.artifacts)
        elif event.HasField("artifact_update"):
            [(name, text)] = texts_of([event.artifact_update.artifact]).items()
            texts[name] = texts.get(name, "") + text if event.artifact_update.append else text
    return texts


def a_plan(dice):
    steps = [Step(state=TaskState.SUBMITTED), Step(state=TaskState.WORKING)]
    known = 0
    for number in range(dice.randint(1, 10)):
        after, kind = dice.choice([0, 0.01, 0.3, 2]), dice.random()
        if kind < 0.15:
            steps.append(Step(after=after, state=TaskState.WORKING, says=f"step {number}"))
            continue
        append = known > 0 and kind < 0.7
        is_new = not append and (not known or kind > 0.8)
        known += is_new
        name = f"a-{known if is_new else dice.randint(1, known)}"
        part = Part(text=dice.choice(["x", "same", "a b ", f"{number}"]))
        artifact = Artifact(artifact_id=name, parts=(part,))
        steps.append(Step(after=after, artifacts=(artifact,), append=append))
    return Plan((*steps, Step(after=dice.choice([0, 1]), state=dice.choice(ENDS))))


def an_agent(dice, version):
    plan = a_plan(dice)
    streaming = Streaming(
        snapshot=dice.random() < 0.6,
        overlap=dice.choice([0, 0, 1, 2]),
        final_task=dice.random() < 0.3,
        piece=dice.choice([None, None, 7]),
    )
    agent = FakeAgent(
        plan,
        streaming=streaming,
        latency=dice.choice([0, 0.2]),
        store_lag=dice.choice([0, 0, 0.5]),
        versions=(version,),
    )
    for _ in range(dice.randint(0, 5)):
        on = dice.choice(["SendStreamingMessage", "SubscribeToTask", "SubscribeToTask"])
        fault = dice.choice([Cut, Reset])(after_events=dice.randint(1, len(plan.steps) + 1))
        if on == "SubscribeToTask" and dice.random() < 0.3:
            fault = dice.choice([rate_limited(1), unavailable(1), Refuse(), Reset()])
        agent.inject(fault, on=on)
    return agent


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("seed", range(40))
async def test_what_the_events_make_is_what_the_agent_holds(seed, version, binding):
    agent = an_agent(random.Random(seed), version)
    client = client_of(agent, binding, card=card_of(agent, binding, version=version))

    events = await collected(client.send_message(said()))
    await asyncio.sleep(5)  # until its store has all of it
    task = await client.get_task(pb.GetTaskRequest(id="task-1"))

    assert put_together(events) == texts_of(task.artifacts)
    told = [event.task if event.HasField("task") else event.status_update for event in events]
    states = [one.status.state for one in told if one.HasField("status")]
    assert states[-1] == task.status.state
    assert tasks_made(agent) == {"m-1": 1}
    assert agent.open_streams == 0
    await client.close()


@pytest.mark.parametrize(
    ("binding", "kind"), [("JSONRPC", SdkInternalError), ("HTTP+JSON", A2AClientError)]
)
async def test_send_message_agent_ends_stream_with_error_raises_as_the_sdk_does(binding, kind):
    agent, payloads = FakeAgent(crashes("kitchen on fire")), []

    async def read():
        async for event in client.send_message(said()):
            payloads.append(event.WhichOneof("payload"))  # noqa: PERF401  it raises at the end

    async with client_of(agent, binding) as client:
        with pytest.raises(kind, match="kitchen on fire") as raised:
            await read()
    assert isinstance(raised.value.__cause__, InternalError)
    assert payloads[-1] == "status_update"
    assert tasks_made(agent) == {"m-1": 1}


async def test_send_message_task_failed_with_a_message_raises_nothing():
    async with client_of(FakeAgent(fails("no eggs"))) as client:
        events = await collected(client.send_message(said()))
    assert events[-1].status_update.status.message.parts[0].text == "no eggs"


@pytest.mark.parametrize("after_events", [2, 3])
async def test_send_message_missed_chunks_after_a_stall_arrive_as_one_event_each(after_events):
    agent = FakeAgent(streams("a", "b", "c", "d", every=10))
    agent.inject(Stall(phase="idle", after_events=after_events), on="SendStreamingMessage")
    async with client_of(agent) as client:
        events = await collected(client.send_message(said()))
    texts = [get_stream_response_text(e) for e in events if e.HasField("artifact_update")]
    assert "".join(texts) == "abcd"
