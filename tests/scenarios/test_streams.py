"""What hurt users of other clients where answers stream, by the names of the scenarios."""

import asyncio
import functools
import json
import re

import pytest

from holdfast import DeadlineExceededError, ReconnectPolicy, TaskState, connect
from holdfast.client import TextDelta, TextReset
from holdfast.errors import TaskAuthRequiredError
from holdfast.testing import (
    Cut,
    Fail,
    FakeAgent,
    FakeNetwork,
    Reset,
    Respond,
    Stall,
    Streaming,
    asks,
    needs_auth,
    streams,
    unavailable,
)


@pytest.fixture(autouse=True, params=["1.0", "0.3"])
def version(request, monkeypatch):
    """Has every agent here speak one version of the protocol, and then the other."""
    agent = functools.partial(FakeAgent, versions=(request.param,))
    monkeypatch.setitem(globals(), "FakeAgent", agent)
    return request.param


both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])

STREAMED = "SendStreamingMessage"
EVENTS = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}


def connected(agent, binding="JSONRPC", *, network=None, **options):
    return connect(agent.url, engine=network or FakeNetwork(agent), bindings=(binding,), **options)


def now():
    return asyncio.get_running_loop().time()


def operations(agent):
    return [each.operation for each in agent.received if each.operation != "GetAgentCard"]


def events_of(*documents):
    """The body of a stream."""
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in documents)


class Scripted(FakeNetwork):
    """Answers a message as told, whatever its id, and all else by the agent."""

    def __init__(self, agent, binding, *results, more=b""):
        super().__init__(agent)
        self.agent, self.binding, self.results, self.more = agent, binding, results, more

    def stream(self, request):
        opens = (b'"SendStreamingMessage"', b'"message/stream"')
        if any(name in request.body for name in opens) or request.url.endswith("message:stream"):
            documents = self.results
            if self.binding == "JSONRPC":
                if opens[1] in request.body:
                    documents = map(in_0_3, documents)
                call_id = json.loads(request.body)["id"]
                documents = [{"jsonrpc": "2.0", "id": call_id, "result": r} for r in documents]
            body = events_of(*documents) + self.more
            self.agent.inject(Respond(status=200, headers=EVENTS, body=body), on=STREAMED)
        return super().stream(request)


KINDS = {"task": "task", "statusUpdate": "status-update", "artifactUpdate": "artifact-update"}


def in_0_3(document):
    """An event as JSON-RPC has it in protocol 0.3; over HTTP+JSON it looks like one of 1.0."""
    ((name, thing),) = document.items()
    text = json.dumps({"kind": KINDS[name], **thing})
    text = re.sub(r"TASK_STATE_(\w+)", lambda found: found[1].lower().replace("_", "-"), text)
    return json.loads(text.replace("ROLE_AGENT", "agent"))


def chunk(text, *, append):
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    update = {"taskId": "task-1", "contextId": "c", "artifact": artifact, "append": append}
    return {"artifactUpdate": update}


def status(state, **more):
    told = {"state": f"TASK_STATE_{state}", **more}
    return {"statusUpdate": {"taskId": "task-1", "contextId": "c", "status": told}}


def task(state, **more):
    told = {"state": f"TASK_STATE_{state}"}
    return {"task": {"id": "task-1", "contextId": "c", "status": told, **more}}


# ── While it goes on ─────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S02")
@both_bindings
async def test_s02_ten_seconds_between_chunks_for_four_minutes_are_no_cut(binding):
    agent = FakeAgent(streams(*"abcdefghijklmnopqrstuvwx", every=10))
    client = connected(agent, binding, timeout=30)  # of other calls: a stream has none

    async with client.stream_message("hi") as events:
        answer = await events.result()

    assert answer.text == "abcdefghijklmnopqrstuvwx"
    assert (events.reconnects, events.gap, now()) == (0, False, 250)
    assert operations(agent) == [STREAMED, "GetTask"]


@pytest.mark.rule("S03", "D02")
@both_bindings
@pytest.mark.parametrize(
    "fault",
    [
        Cut(after_events=3, clean=True),
        Cut(after_events=3),
        Reset(after_events=3),
        Cut(after_events=3, after_bytes=40),
        Cut(after_events=3, after_bytes=40, clean=True),
        Stall(phase="idle", after_events=3),
        Fail(after_events=3),
        Fail(after_events=3, named=False),
    ],
    ids=["clean", "cut", "reset", "inside", "inside, clean", "stalled", "error", "unnamed error"],
)
async def test_s03_a_stream_that_ends_in_working_is_no_end(fault, binding, version):
    agent = FakeAgent(streams(*"abcdef", every=30))
    agent.inject(fault, on=STREAMED)
    client = connected(agent, binding)

    async with client.stream_message("hi") as events:
        texts = [text async for text in events.text_deltas()]
        assert events.task.state is TaskState.COMPLETED

    assert texts[0] == "a"
    assert "".join(texts) == "abcdef"
    assert events.gap
    # A subscription to an agent of 0.3 might not leave the task as it is.
    again = {"1.0": ("SubscribeToTask", 1), "0.3": ("GetTask", 0)}[version]
    first, *others = operations(agent)
    if isinstance(fault, Stall):  # where the task is asked for before the stream counts as cut
        others = others[others.index(again[0]) :]
    assert (first, others[0], events.reconnects) == (STREAMED, *again)


@pytest.mark.rule("S04")
@both_bindings
@pytest.mark.parametrize("code", [None, -32004, -32001], ids=["as it does", "-32004", "-32001"])
async def test_s04_a_task_that_ended_meanwhile_is_asked_for(code, binding, version):
    agent = FakeAgent(streams("a", "b", every=1))
    agent.inject(Cut(after_events=3), on=STREAMED)
    agent.inject(unavailable(retry_after=10), on="SubscribeToTask")
    if code is not None:
        agent.inject(Fail(code=code), on="SubscribeToTask")
    client = connected(agent, binding)

    if version == "1.0":
        async with client.stream_message("hi") as events:
            answer = await events.result()
    else:  # where only who asks for a subscription gets one
        await client.send_message("hi", return_immediately=True)
        async with client.subscribe_to_task("task-1", force_subscription=True) as events:
            answer = await events.result()

    assert (answer.text, answer.task) == ("ab", agent.tasks["task-1"])
    assert operations(agent)[-1] == "GetTask"
    assert len(agent.calls("GetTask")) == 1


@pytest.mark.rule("S11")
@both_bindings
async def test_s11_comments_alone_keep_a_stream_alive(binding):
    agent = FakeAgent(streams("a", "b", every=900), streaming=Streaming(keep_alive=100))
    client = connected(agent, binding)

    async with client.stream_message("hi") as events:
        answer = await events.result()

    assert (answer.text, events.reconnects, now()) == ("ab", 0, 2700)
    first, *others = operations(agent)
    assert (first, {*others}) == (STREAMED, {"GetTask"})  # which is asked ever less often
    assert len(others) <= 12


@pytest.mark.rule("S11")
@both_bindings
async def test_s11_a_stream_that_is_silent_for_too_long_is_cut(binding, version):
    agent = FakeAgent(streams("a", "b", every=300))
    client = connected(agent, binding)

    async with client.stream_message("hi") as events:
        answer = await events.result()

    assert answer.text == "ab"
    assert (events.gap, events.reconnects > 0) == (True, version == "1.0")
    assert now() <= 900 + ReconnectPolicy().max_backoff  # the longest pause between two polls


@pytest.mark.rule("S12")
@both_bindings
async def test_s12_a_full_task_at_the_end_is_no_second_end(binding, version):
    agent = FakeAgent(streams("a", "b"), streaming=Streaming(final_task=True))
    client = connected(agent, binding)

    async with client.stream_message("hi") as events:
        seen = [event async for event in events]

    ends = [event for event in seen if hasattr(event, "status") and event.status.state.is_terminal]
    assert len(ends) == 1
    assert events.task == agent.tasks["task-1"]
    # What 1.0 tells at the end is all; 0.3 has said before that nothing follows.
    assert operations(agent) == [STREAMED, *(["GetTask"] if version == "0.3" else [])]


@pytest.mark.rule("S13")
@both_bindings
async def test_s13_a_status_whose_message_is_null_is_one_without(binding):
    agent = FakeAgent()
    bare = {"state": "TASK_STATE_WORKING", "message": None}
    first = {"task": {"id": "task-1", "contextId": "c", "status": bare, "artifacts": None}}
    network = Scripted(
        agent, binding, first, status("COMPLETED", message={"role": "ROLE_AGENT", "parts": None})
    )

    async with connected(agent, binding, network=network).stream_message("hi") as events:
        seen = [event async for event in events]

    assert [event.status.state for event in seen] == [TaskState.WORKING, TaskState.COMPLETED]
    assert seen[0].status.message is None
    assert seen[1].status.message.parts == ()


@pytest.mark.rule("S14")
@both_bindings
async def test_s14_text_comes_once_and_is_replaced_after_that(binding):
    network = Scripted(
        agent := FakeAgent(),
        binding,
        task("WORKING"),
        chunk("Hello, ", append=False),
        chunk("world!", append=True),
        chunk("Hello, world! And all.", append=False),
        chunk("Goodbye.", append=False),
        status("COMPLETED"),
    )
    client = connected(agent, binding, network=network)

    async with client.stream_message("hi") as events:
        changes = [change async for change in events.text_changes()]
        assert events.task.text == "Goodbye."

    assert changes == [
        TextDelta("Hello, ", "a"),
        TextDelta("world!", "a"),
        TextDelta(" And all.", "a"),
        TextReset("a"),
        TextDelta("Goodbye.", "a"),
    ]


@pytest.mark.rule("S15")
@both_bindings
async def test_s15_a_question_is_answered_on_the_same_task(binding):
    def converse(turn):
        return asks("which one?") if turn.task is None else streams("the ", turn.message.text)

    agent = FakeAgent(converse, streaming=Streaming(stays_open=True))
    network = FakeNetwork(agent)
    client = connected(agent, binding, network=network)

    async with client.stream_message("hi") as events:
        answer = await events.result()  # without waiting for an end of file that never comes
        assert (answer.needs_input, answer.question, now()) == (True, "which one?", 0)

    async with client.stream_message(
        "red one", task_id=answer.task_id, context_id=answer.context_id
    ) as events:
        answer = await events.result()

    assert (answer.text, answer.task_id) == ("the red one", "task-1")
    assert list(agent.tasks) == ["task-1"]
    assert (network.in_flight, agent.open_streams) == (0, 0)


@pytest.mark.rule("S16")
@both_bindings
@pytest.mark.parametrize("broken", [False, True], ids=["open", "closed"])
async def test_s16_an_authorization_that_is_given_out_of_band_is_seen(broken, binding):
    agent = FakeAgent(needs_auth("log in", cleared_after=60, then=streams("done", every=5)))
    if broken:
        agent.inject(Cut(after_events=2, clean=True), on=STREAMED)
    client = connected(agent, binding)

    async with client.stream_message("hi") as events:
        states = [e.status.state async for e in events if hasattr(e, "status")]
        answer = await events.result()

    assert states[:2] == [TaskState.SUBMITTED, TaskState.AUTH_REQUIRED]
    assert states[2] is TaskState.WORKING
    assert states[-1] is TaskState.COMPLETED
    assert answer.text == "done"


@pytest.mark.rule("S27")
@both_bindings
@pytest.mark.parametrize("after", ["message", "task"])
async def test_s27_a_stream_that_is_out_of_time_names_its_deadline_and_the_task(after, binding):
    agent = FakeAgent(streams("a", "b", every=20))
    network = FakeNetwork(agent)
    client = connected(agent, binding, network=network)
    stream = client.stream_message("hi", timeout=30)
    if after == "task":
        sent = await client.send_message("hi", return_immediately=True)
        stream = client.subscribe_to_task(sent.id, timeout=30)
    began = now()

    with pytest.raises(DeadlineExceededError, match="stream timeout of 30 s") as caught:
        async with stream as events:
            await events.result()

    error = caught.value
    assert (error.deadline, error.timeout, error.executed) == ("stream", 30, True)
    assert (error.task.id, error.task.state, error.task.text) == ("task-1", TaskState.WORKING, "a")
    assert now() - began == 30
    assert (network.in_flight, agent.open_streams) == (0, 0)


@pytest.mark.rule("S27")
@both_bindings
async def test_s27_a_stream_that_waits_for_an_authorization_says_so_in_the_end(binding):
    agent = FakeAgent(needs_auth("log in at example.com"))
    client = connected(agent, binding)

    with pytest.raises(TaskAuthRequiredError, match="timeout of 30 s: log in at ex") as caught:
        async with client.stream_message("hi", timeout=30) as events:
            await events.result()

    assert caught.value.task.state is TaskState.AUTH_REQUIRED
    assert (caught.value.executed, now()) == (True, 30)
