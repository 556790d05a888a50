"""The consistency checker: no problem for a correct run, and one line for each problem."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.kit.event_streams import results_of

from holdfast import Artifact, Part, Task, TaskState, connect
from holdfast.extend import HttpRequest
from holdfast.testing import (
    ConsistencyChecker,
    FakeAgent,
    FakeNetwork,
    Reset,
    Streaming,
    completes,
    fails,
    replies,
    streams,
)
from holdfast.types import StreamResponse, TaskStatus


async def checked_client(agent, **options):
    """A client of the agent, and the checker of what the client receives."""
    checker = ConsistencyChecker(agent)
    client = connect(agent.url, engine=FakeNetwork(agent), consumers=[checker.consumer], **options)
    return client, checker


async def checked_task(agent):
    """A task that a client has sent and received to its end, and the checker."""
    client, checker = await checked_client(agent)
    task = await client.send_message("hello")
    checker.check()
    return task, checker


async def test_a_correct_run_has_no_problems():
    agent = FakeAgent(lambda turn: completes("done", after=7, works=2))
    client, checker = await checked_client(agent)

    await client.ask("hello", poll_interval=1)

    assert checker.problems() == []
    checker.check()


async def test_a_checker_without_records_has_no_problems():
    assert ConsistencyChecker(FakeAgent()).problems() == []


async def test_a_message_reply_and_a_failure_have_no_problems():
    for behaviour in (lambda turn: replies("hi"), lambda turn: fails("no")):
        client, checker = await checked_client(FakeAgent(behaviour))
        await client.send_message("hello")
        assert checker.problems() == []


async def test_a_message_that_was_executed_twice_is_found():
    agent = FakeAgent()
    client, checker = await checked_client(agent)
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "pay"}]}

    await client.send_message(message)
    await client.send_message(message)

    first, second = agent.tasks
    assert checker.problems() == [f"message m-1 was executed 2 times: {first}, {second}"]
    with pytest.raises(AssertionError, match="m-1 was executed 2 times"):
        checker.check()


async def test_a_lost_reply_is_no_second_execution():
    agent = FakeAgent()
    client, checker = await checked_client(agent)
    agent.inject(Reset(after_execution=True), on="GetTask")
    task = await client.send_message("hello")

    await client.get_task(task.id)

    assert checker.problems() == []


async def test_a_task_that_the_agent_does_not_have_is_found():
    checker = ConsistencyChecker(FakeAgent())

    checker.record_task(Task(id="ghost"))

    assert checker.problems() == ["task ghost was seen, but the agent has none"]


async def test_an_end_that_the_agent_does_not_know_is_found():
    task, checker = await checked_task(FakeAgent(lambda turn: fails("no")))

    other = ConsistencyChecker(checker._agent)
    other.record_task(replace(task, status=TaskStatus(state=TaskState.COMPLETED)))

    assert other.problems() == [f"task {task.id} was seen COMPLETED, but is FAILED"]


@pytest.mark.parametrize("state", [TaskState.WORKING, TaskState.FAILED])
async def test_a_task_that_leaves_its_end_is_found(state):
    task, checker = await checked_task(FakeAgent())

    checker.record_task(replace(task, status=TaskStatus(state=state)))

    assert checker.problems() == [f"task {task.id} was seen to leave its end, COMPLETED"]


async def test_lost_artifacts_are_found():
    task, checker = await checked_task(FakeAgent())

    checker.record_task(replace(task, artifacts=()))

    assert checker.problems() == [f"task {task.id} was seen with other artifacts than the agent's"]


async def test_repeated_text_is_found():
    task, checker = await checked_task(FakeAgent())
    (artifact,) = task.artifacts

    twice = Artifact(artifact_id=artifact.artifact_id, parts=(*artifact.parts, Part(text="hello")))
    checker.record_task(replace(task, artifacts=(twice,)))

    assert len(checker.problems()) == 1


async def test_an_early_snapshot_is_no_problem():
    agent = FakeAgent(lambda turn: completes("done", after=10, works=1))
    client, checker = await checked_client(agent)
    early = await client.send_message("hello", return_immediately=True)

    await client.wait(early.id)

    assert early.artifacts == ()
    assert checker.problems() == []


async def test_a_task_whose_end_the_client_did_not_receive_is_no_problem():
    agent = FakeAgent(lambda turn: completes("done", after=10, works=1))
    client, checker = await checked_client(agent)

    await client.send_message("hello", return_immediately=True)
    await asyncio.sleep(60)

    assert checker.problems() == []


# ── Streams ──────────────────────────────────────────────────────────────────────────────────


async def events_of(agent):
    """The events of a stream, from its beginning to its end."""
    body = b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}]}}'
    request = HttpRequest(
        method="POST",
        url=f"{agent.url}/rest/message:stream",
        headers={"a2a-version": "1.0"},
        body=body,
    )
    reply = await FakeNetwork(agent).request(request)
    results = results_of(reply.body, "HTTP+JSON")
    return [StreamResponse.from_dict(result).event for result in results]


CHUNKS = streams("Hel", "lo, ", "world", every=1)


async def problems_of(plan, change, **options):
    """What the checker says of a client that was given the events of a stream, changed."""
    agent = FakeAgent(plan, **options)
    checker = ConsistencyChecker(agent)
    for event in change(await events_of(agent)):
        checker.record_event(event)
    return checker.problems()


@pytest.mark.parametrize("plan", [CHUNKS, completes("a", "b"), fails("no"), replies("hi")])
async def test_the_events_of_a_stream_have_no_problems(plan):
    assert await problems_of(plan, lambda events: events) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda events: [*events[:3], *events[4:]], "with other artifacts than the agent's"),
        (lambda events: [*events[:4], *events[3:]], "with other artifacts than the agent's"),
        (lambda events: [events[i] for i in (0, 1, 2, 4, 3, 5)], "with other artifacts"),
        (lambda events: [*events, events[-1]], "was emitted 2 times"),
        (lambda events: [*events, events[1]], "to leave its end, COMPLETED"),
        (lambda events: events[1:2] + events[3:], "with other artifacts than the agent's"),
    ],
)
async def test_a_lost_or_repeated_event_is_found(change, problem):
    (found,) = await problems_of(CHUNKS, change)

    assert problem in found


async def test_a_task_that_left_its_end_and_came_back_is_found():
    problems = await problems_of(CHUNKS, lambda events: [*events, events[1], events[-1]])

    assert problems == [
        "task task-1 was seen to leave its end, COMPLETED",
        "the end of task task-1 was emitted 2 times",
    ]


@pytest.mark.parametrize("change", [lambda events: events[:-1], lambda events: events[1:]])
async def test_a_stream_without_its_end_is_no_problem(change):
    assert await problems_of(CHUNKS, change) == []


async def test_an_end_in_a_status_and_in_a_task_is_emitted_twice():
    options = {"streaming": Streaming(final_task=True)}

    (found,) = await problems_of(CHUNKS, lambda events: events, **options)

    assert found == "the end of task task-1 was emitted 2 times"


async def test_a_snapshot_replaces_lost_events():
    agent = FakeAgent(CHUNKS)
    checker = ConsistencyChecker(agent)
    first, working, chunk, *_, done = await events_of(agent)
    snapshot = replace(agent.tasks["task-1"], status=working.status)
    for event in (first, working, chunk, snapshot, done):
        checker.record_event(event)

    assert checker.problems() == []


async def test_a_consumer_records_updates():
    agent = FakeAgent(CHUNKS)
    checker = ConsistencyChecker(agent)
    first, *events = await events_of(agent)
    for event in [first, *events, agent.tasks["task-1"], agent.tasks["task-1"]]:
        checker.consumer(event, event if isinstance(event, Task) else first, None)
    assert checker.problems() == []

    checker.consumer(events[-1], first, None)

    assert checker.problems() == ["the end of task task-1 was emitted 2 times"]


async def test_every_problem_is_in_the_error():
    task, checker = await checked_task(FakeAgent())

    checker.record_task(Task(id="ghost"))
    checker.record_task(replace(task, status=TaskStatus(state=TaskState.WORKING), artifacts=()))

    with pytest.raises(AssertionError) as caught:
        checker.check()
    assert len(str(caught.value).splitlines()) == 3
