"""Streams of the fake agent: what they tell, when, and how they end."""

import asyncio
import json
import math

import pytest
from tests.kit.event_streams import RPC_ID, event_summary, frames_of, results_of

from holdfast import A2AConnectionError, A2ATimeoutError, Artifact, Part, TaskState, connect
from holdfast._testing.timeline import fold_events
from holdfast.extend import HttpRequest
from holdfast.policies import Timeouts
from holdfast.testing import (
    Cut,
    Delay,
    Duplicate,
    Fail,
    FakeAgent,
    FakeNetwork,
    Plan,
    Reset,
    Respond,
    Stall,
    Step,
    Streaming,
    asks,
    bad_gateway,
    completes,
    crashes,
    fails,
    needs_auth,
    replies,
    streams,
    works_forever,
)
from holdfast.types import StreamResponse, Task

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])

LIMITS = Timeouts(pool=1, connect=2, write=3, first_byte=4, idle=50)


def now():
    return asyncio.get_running_loop().time()


def message(text="hello", **members):
    user = {"role": "ROLE_USER", "parts": [{"text": text}], "messageId": f"m-{text}"}
    return {"message": {**user, **members}}


def call(method, params, url="http://agent.test", **members):
    body = {"jsonrpc": "2.0", "id": RPC_ID, "method": method, "params": params}
    return post("/rpc", body, url, **members)


def post(path, body=None, url="http://agent.test", method="POST", **members):
    return HttpRequest(
        method=method,
        url=f"{url}{path}",
        headers={"a2a-version": "1.0"},
        body=b"" if body is None else json.dumps(body).encode(),
        **({"timeouts": LIMITS} | members),
    )


def sending(binding="JSONRPC", text="hello", *, url="http://agent.test", task_id="", **members):
    params = message(text, taskId=task_id)
    if binding == "JSONRPC":
        return call("SendStreamingMessage", params, url, **members)
    return post("/rest/message:stream", params, url, **members)


def subscribing(task_id, binding="JSONRPC", *, url="http://agent.test", **members):
    if binding == "JSONRPC":
        return call("SubscribeToTask", {"id": task_id}, url, **members)
    return post(f"/rest/tasks/{task_id}:subscribe", None, url, **members)


class Seen:
    """What a client has of a stream."""

    def __init__(self, binding):
        self._binding = binding
        self.body = b""
        self.times = []
        self.status = None
        self.headers = {}
        self.error = None
        self.ended = None

    @property
    def results(self):
        return results_of(self.body, self._binding)

    @property
    def story(self):
        return [event_summary(result) for result in self.results]

    @property
    def task(self):
        """The task that its events add up to."""
        task = None
        for result in self.results:
            event = StreamResponse.from_dict(result).event
            task = event if isinstance(event, Task) else fold_events(task, [event])
        return task


async def read(engine, request, binding="JSONRPC", seen=None):
    """Reads a stream to its end, whatever that is."""
    seen = seen or Seen(binding)
    try:
        async with engine.stream(request) as reply:
            seen.status, seen.headers = reply.status, reply.headers
            async for chunk in reply.chunks():
                seen.body += chunk
                seen.times.append(now())
    except (A2AConnectionError, A2ATimeoutError) as error:
        seen.error = error
    seen.ended = now()
    return seen


async def streamed(agent, request=None, binding="JSONRPC"):
    network = FakeNetwork(agent)
    seen = await read(network, request or sending(binding), binding)
    assert (network.in_flight, agent.open_streams) == (0, 0)
    return seen


async def begun(agent, *, after=0.0, text="hello"):
    """A task that the agent works on."""
    client = connect(agent.url, engine=FakeNetwork(agent))
    task = await client.send_message(text, return_immediately=True)
    await asyncio.sleep(after)
    return client, task.id


async def subscribed(agent, *, after=0.0, binding="JSONRPC"):
    _, task_id = await begun(agent, after=after)
    return await streamed(agent, subscribing(task_id, binding), binding)


THREE = streams("Hel", "lo, ", "world", every=10)
STORY = [
    "task SUBMITTED",
    "status WORKING",
    "artifact Hel",
    "append lo, ",
    "append world last",
    "status COMPLETED",
]


# ── What a stream tells ──────────────────────────────────────────────────────────────────────


@both_bindings
async def test_a_stream_tells_events_as_they_happen(binding):
    seen = await streamed(FakeAgent(THREE), binding=binding)

    assert seen.status == 200
    assert seen.headers["content-type"] == "text/event-stream"
    assert seen.story == STORY
    assert seen.times == [0, 0, 10, 20, 30, 40]
    assert (seen.ended, seen.error) == (40, None)


async def test_a_stream_as_the_official_server_writes_it():
    seen = await streamed(FakeAgent(streams("a", "b")))

    ids = {"taskId": "task-1", "contextId": "context-2"}
    at = "2026-01-01T00:00:00.000Z"
    user = {"role": "ROLE_USER", "parts": [{"text": "hello"}], "messageId": "m-hello"}
    assert seen.results == [
        {
            "task": {
                "id": "task-1",
                "contextId": "context-2",
                "status": {"state": "TASK_STATE_SUBMITTED", "timestamp": at},
                "history": [{**user, **ids}],
            }
        },
        {"statusUpdate": {**ids, "status": {"state": "TASK_STATE_WORKING", "timestamp": at}}},
        {
            "artifactUpdate": {
                **ids,
                "artifact": {"artifactId": "artifact-1", "parts": [{"text": "a"}]},
            }
        },
        {
            "artifactUpdate": {
                **ids,
                "artifact": {"artifactId": "artifact-1", "parts": [{"text": "b"}]},
                "append": True,
                "lastChunk": True,
            }
        },
        {"statusUpdate": {**ids, "status": {"state": "TASK_STATE_COMPLETED", "timestamp": at}}},
    ]
    assert seen.body.startswith(b'data: {"jsonrpc":"2.0"')
    assert seen.body.endswith(b"}\r\n\r\n")


@both_bindings
@pytest.mark.parametrize(
    "plan",
    [
        THREE,
        completes("one", "two", after=9, works=2),
        fails("no luck", after=3),
        asks("which one?", after=3),
        needs_auth("log in", cleared_after=5),
        streams("draft", then=completes("final", after=2)),
        Plan((Step(state=TaskState.COMPLETED, says="done"),)),
        Plan((Step(state=TaskState.WORKING, says="one"), Step(state=TaskState.FAILED, says="2"))),
    ],
    ids=lambda plan: plan.steps[-1].state.name,
)
async def test_the_events_add_up_to_the_task(plan, binding):
    agent = FakeAgent(plan)

    seen = await streamed(agent, binding=binding)

    assert seen.task == agent.tasks[seen.task.id]


async def test_a_whole_artifact_replaces():
    seen = await streamed(FakeAgent(streams("dr", "aft", then=completes("final"))))

    assert seen.story[2:] == ["artifact dr", "append aft last", "artifact final", STORY[-1]]
    assert seen.task.text == "final"


@both_bindings
async def test_a_message_is_the_whole_stream(binding):
    agent = FakeAgent(replies("hi"))

    assert (await streamed(agent, binding=binding)).story == ["message hi"]
    assert agent.executions == {"m-hello": ["message-1"]}


async def test_a_task_that_is_over_at_once_can_come_whole():
    whole = Artifact(artifact_id="a", parts=(Part(text="all"),))
    plan = Plan((Step(state=TaskState.COMPLETED, artifacts=(whole,)),))

    seen = await streamed(FakeAgent(plan))

    assert seen.story == ["task COMPLETED all"]
    assert (seen.ended, seen.error) == (0, None)


async def test_what_does_not_happen_at_once_follows_the_task():
    plan = Plan((Step(state=TaskState.WORKING, after=2), Step(state=TaskState.COMPLETED)))

    seen = await streamed(FakeAgent(plan))

    assert seen.story == ["task SUBMITTED", "status WORKING", "status COMPLETED"]
    assert seen.times == [0, 2, 2]


async def test_a_stream_ends_where_the_agent_asks():
    seen = await streamed(FakeAgent(asks("which one?", after=5)))

    assert seen.story == ["task SUBMITTED", "status INPUT_REQUIRED"]
    assert (seen.ended, seen.error) == (5, None)


async def test_a_stream_continues_after_an_authorization():
    seen = await streamed(FakeAgent(needs_auth("log in", cleared_after=30)))

    assert seen.story[1:] == [
        "status AUTH_REQUIRED",
        "status WORKING",
        "artifact authorized",
        "status COMPLETED",
    ]


@both_bindings
async def test_an_agent_that_crashes_ends_its_stream_with_an_error(binding):
    agent = FakeAgent(crashes("boom", after=5))

    seen = await streamed(agent, binding=binding)

    code = -32603 if binding == "JSONRPC" else 500
    assert seen.story == ["task SUBMITTED", "status WORKING", f"error {code} boom"]
    assert [kind for kind, _ in frames_of(seen.body)] == ["message", "message", "error"]
    assert agent.tasks["task-1"].state is TaskState.FAILED


async def test_the_first_task_has_so_much_history():
    params = message() | {"configuration": {"historyLength": 0}}

    seen = await streamed(FakeAgent(), call("SendStreamingMessage", params))

    assert "history" not in seen.results[0]["task"]


async def test_a_stream_begins_after_the_latency():
    agent = FakeAgent(streams("a", every=1), latency=3)

    assert (await streamed(agent)).times == [3, 3, 3, 3]


# ── A task that goes on ──────────────────────────────────────────────────────────────────────


def conversation(turn):
    return streams("blue", every=1) if turn.task else asks("which one?")


@both_bindings
async def test_a_reply_is_streamed_too(binding):
    agent = FakeAgent(conversation)
    await streamed(agent, binding=binding)

    seen = await streamed(agent, sending(binding, "this", task_id="task-1"), binding)

    assert seen.story == ["task SUBMITTED", *STORY[1:2], "artifact blue last", STORY[-1]]
    assert [entry["parts"][0]["text"] for entry in seen.results[0]["task"]["history"]] == [
        "hello",
        "which one?",
        "this",
    ]


async def test_a_stream_that_stays_open_continues_with_the_reply():
    agent = FakeAgent(conversation, streaming=Streaming(stays_open=True))
    network = FakeNetwork(agent)
    first = asyncio.create_task(read(network, sending()))
    await asyncio.sleep(40)

    second = await streamed_beside(agent, sending(text="this", task_id="task-1"))

    assert (await first).story == [
        "task SUBMITTED",
        "status INPUT_REQUIRED",
        "status SUBMITTED",
        *second.story[1:],
    ]
    assert (await first).ended == 42


async def streamed_beside(agent, request):
    return await read(FakeNetwork(agent), request)


@pytest.mark.parametrize("answer", ["reply", "cancel"])
async def test_a_question_that_was_answered_before_it_is_read_ends_no_stream(answer):
    agent = FakeAgent(conversation)
    network = FakeNetwork(agent)
    seen = Seen("JSONRPC")
    async with network.stream(sending()) as late:
        await asyncio.sleep(5)
        if answer == "reply":
            await streamed_beside(agent, sending(text="this", task_id="task-1"))
        else:
            await connect(agent.url, engine=network).cancel_task("task-1")
        async for chunk in late.chunks():
            seen.body += chunk

    rest = (
        ["SUBMITTED", "WORKING", "blue last", "COMPLETED"] if answer == "reply" else ["CANCELED"]
    )
    told_rest = [event.partition(" ")[2] for event in seen.story[2:]]
    assert seen.story[:2] == ["task SUBMITTED", "status INPUT_REQUIRED"]
    assert told_rest == rest


async def test_without_a_snapshot_a_reply_is_answered_by_updates_alone():
    agent = FakeAgent(conversation, streaming=Streaming(snapshot=False))
    await streamed(agent)

    seen = await streamed(agent, sending(text="this", task_id="task-1"))

    assert seen.story == ["status WORKING", "artifact blue last", "status COMPLETED"]


async def test_a_cancel_ends_a_stream():
    agent = FakeAgent(works_forever(), cancel_takes=5)
    client = connect(agent.url, engine=FakeNetwork(agent))
    streaming = asyncio.create_task(streamed(agent))
    await asyncio.sleep(20)

    await client.cancel_task("task-1", confirm=False)

    seen = await streaming
    assert seen.story == ["task SUBMITTED", "status WORKING", "status CANCELED"]
    assert seen.ended == 25


async def test_a_message_to_a_working_task_changes_what_its_streams_tell():
    agent = FakeAgent(lambda turn: streams("new", every=1) if turn.task else THREE)
    streaming = asyncio.create_task(read(FakeNetwork(agent), sending()))
    await asyncio.sleep(15)

    await streamed_beside(agent, sending(text="other", task_id="task-1"))

    seen = await streaming
    assert seen.story == [
        *STORY[:3],
        "status SUBMITTED",
        "status WORKING",
        "artifact new last",
        "status COMPLETED",
    ]
    assert (seen.task.state, seen.task.text) == (TaskState.COMPLETED, "new")


# ── Subscribing ──────────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_a_subscription_begins_with_the_task_and_continues(binding):
    agent = FakeAgent(THREE)

    seen = await subscribed(agent, after=25, binding=binding)

    assert seen.story == ["task WORKING Hello,", "append world last", "status COMPLETED"]
    assert seen.times == [25, 30, 40]
    assert seen.task == agent.tasks["task-1"]


@pytest.mark.parametrize("moment", [0, 10, 20, 30])
async def test_event_is_emitted_exactly_once_even_when_it_happens_now(moment):
    agent = FakeAgent(THREE)

    seen = await subscribed(agent, after=moment)

    assert seen.task.text == "Hello, world"
    assert len(seen.story) == 1 + 4 - moment / 10


REFUSED = [
    ("nope", 404, "error {} Task not found"),
    ("task-1", 400, "error {} Task task-1 is in terminal state: TASK_STATE_COMPLETED"),
]


@both_bindings
@pytest.mark.parametrize(("task_id", "status", "says"), REFUSED)
async def test_what_cannot_be_subscribed_to_is_refused_as_by_the_official_server(
    task_id, status, says, binding
):
    agent = FakeAgent("done")
    await streamed(agent)

    network = FakeNetwork(agent)
    reply = await network.request(subscribing(task_id, binding))

    rpc_code = {404: -32001, 400: -32004}[status]
    is_rpc = binding == "JSONRPC"
    assert (reply.status, reply.headers["content-type"]) == (
        200 if is_rpc else status,
        "application/json",
    )
    assert event_summary(json.loads(reply.body)) == says.format(rpc_code if is_rpc else status)


async def test_two_subscribers_are_told_the_same():
    agent = FakeAgent(THREE)
    _, task_id = await begun(agent, after=5)

    one, other = await asyncio.gather(
        *(read(FakeNetwork(agent), subscribing(task_id)) for _ in range(2))
    )

    assert one.story == other.story
    assert len(one.story) == 5


async def test_a_subscription_ends_at_once_where_the_agent_asks():
    seen = await subscribed(FakeAgent(asks("which one?")), after=5)

    assert seen.story == ["task INPUT_REQUIRED"]
    assert seen.ended == 5


async def test_a_subscription_that_stays_open_waits_for_the_reply():
    agent = FakeAgent(conversation, streaming=Streaming(stays_open=True))
    _, task_id = await begun(agent)
    streaming = asyncio.create_task(read(FakeNetwork(agent), subscribing(task_id)))
    await asyncio.sleep(40)

    await streamed_beside(agent, sending(text="this", task_id=task_id))

    assert (await streaming).story == [
        "task INPUT_REQUIRED",
        "status SUBMITTED",
        "status WORKING",
        "artifact blue last",
        "status COMPLETED",
    ]


@pytest.mark.parametrize(
    ("verbs", "other", "statuses"),
    [
        (("GET", "POST"), 405, {"GET": 200, "POST": 200, "DELETE": 405}),
        (("GET",), 405, {"GET": 200, "POST": 405}),
        (("POST",), 404, {"GET": 404, "POST": 200}),
    ],
)
async def test_a_subscription_is_taken_by_some_methods(verbs, other, statuses):
    agent = FakeAgent(THREE, streaming=Streaming(verbs=verbs, other_verb=other))
    _, task_id = await begun(agent)

    for method, status in statuses.items():
        request = post(f"/rest/tasks/{task_id}:subscribe", method=method)
        async with FakeNetwork(agent).stream(request) as reply:
            assert reply.status == status


# ── As real servers do ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("overlap", [1, 2, 3, 100])
async def test_a_snapshot_may_hold_events_that_follow_it(overlap):
    agent = FakeAgent(THREE, streaming=Streaming(overlap=overlap))

    seen = await subscribed(agent, after=25)

    earlier = ["status SUBMITTED", *STORY[1:4]][-overlap:]
    assert seen.story == ["task WORKING Hello,", *earlier, *STORY[4:]]


async def test_an_overlap_can_end_with_the_question():
    agent = FakeAgent(asks("which one?"), streaming=Streaming(overlap=1))

    assert (await subscribed(agent)).story == ["task INPUT_REQUIRED", "status INPUT_REQUIRED"]


async def test_older_servers_send_no_snapshot():
    seen = await subscribed(FakeAgent(THREE, streaming=Streaming(snapshot=False)), after=15)

    assert seen.story == STORY[3:]


async def test_a_new_task_comes_first_even_without_snapshots():
    agent = FakeAgent(THREE, streaming=Streaming(snapshot=False))

    assert (await streamed(agent)).story == STORY


async def test_a_store_may_lag_behind_the_stream():
    agent = FakeAgent(THREE, store_lag=15)

    seen = await subscribed(agent, after=25)

    assert seen.story == ["task WORKING Hel", "append world last", "status COMPLETED"]
    client = connect(agent.url, engine=FakeNetwork(agent))
    stale = await client.get_task("task-1")
    assert (stale.state, stale.text) == (TaskState.WORKING, "Hello, ")
    assert [t.state for t in (await client.list_tasks()).tasks] == [TaskState.WORKING]
    assert agent.tasks["task-1"].text == "Hello, world"
    await asyncio.sleep(15)
    assert await client.get_task("task-1") == agent.tasks["task-1"]


async def test_a_lagging_store_may_say_that_a_task_works_which_is_over():
    agent = FakeAgent(THREE, store_lag=15)

    seen = await subscribed(agent, after=42)

    assert seen.story == ["task WORKING Hello,"]
    assert seen.ended == 42


async def test_a_stream_may_say_failed_and_get_task_working():
    crash = Step(state=TaskState.FAILED, after=5, is_stored=False)
    agent = FakeAgent(Plan((Step(state=TaskState.WORKING), crash)))

    seen = await streamed(agent)

    assert seen.story == ["task WORKING", "status FAILED"]
    await asyncio.sleep(1000)
    assert agent.tasks["task-1"].state is TaskState.WORKING
    assert (await streamed(agent, subscribing("task-1"))).story == ["task WORKING"]


@pytest.mark.parametrize("plan", [THREE, asks("which one?")])
async def test_the_whole_task_may_come_last(plan):
    agent = FakeAgent(plan, streaming=Streaming(final_task=True))

    seen = await streamed(agent)

    assert [next(iter(result)) for result in seen.results[-2:]] == ["statusUpdate", "task"]
    assert seen.task == agent.tasks["task-1"]


async def test_comments_keep_a_stream_alive():
    agent = FakeAgent(streams("a", every=50), streaming=Streaming(keep_alive=20))

    seen = await streamed(agent)

    kinds = [kind for kind, _ in frames_of(seen.body)]
    assert kinds == ["message", "message", ":", ":", "message", ":", ":", "message"]
    assert seen.times == [0, 0, 20, 40, 50, 70, 90, 100]


async def test_comments_keep_a_stream_alive_that_has_nothing_to_tell():
    agent = FakeAgent(works_forever(), streaming=Streaming(keep_alive=20))
    seen = Seen("JSONRPC")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(90):
            await read(FakeNetwork(agent), sending(), seen=seen)

    assert [kind for kind, _ in frames_of(seen.body)] == ["message", "message", *"::::"]
    assert agent.open_streams == 0


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("pretty", [False, True])
@both_bindings
async def test_lines_may_end_in_each_way_and_json_may_take_many(line_end, pretty, binding):
    agent = FakeAgent(THREE, streaming=Streaming(line_end=line_end, pretty=pretty))

    seen = await streamed(agent, binding=binding)

    assert seen.story == STORY
    others = {"\n", "\r\n", "\r"} - {line_end}
    text = seen.body.decode().replace(line_end, "")
    assert not [end for end in others if end in text]
    assert (seen.body.count(b"data: ") > len(STORY)) == pretty


async def test_text_comes_as_it_is():
    text = "a\u2028b\u0085c\rd\ne\u00e4\U0001f600"

    seen = await streamed(FakeAgent(streams(text)))

    assert seen.results[2]["artifactUpdate"]["artifact"]["parts"][0]["text"] == text
    assert "\u2028".encode() in seen.body


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
async def test_events_and_characters_may_come_in_parts(size):
    agent = FakeAgent(streams("\u00e4\U0001f600"), streaming=Streaming(piece=size))
    network, chunks = FakeNetwork(agent), []

    async with network.stream(sending()) as reply:
        chunks = [chunk async for chunk in reply.chunks()]

    whole = (await streamed(FakeAgent(streams("\u00e4\U0001f600")))).body
    assert b"".join(chunks) == whole
    assert max(map(len, chunks)) == min(size, max(map(len, whole.split(b"\r\n\r\n"))) + 4)


@pytest.mark.parametrize("fault", [Cut(after_events=2, after_bytes=10), Duplicate(event=2)])
async def test_a_fault_is_the_same_in_parts(fault):
    at_once = streams("a", "b")  # so that both have the same times
    one, other = (failing(fault, at_once, streaming=Streaming(piece=n)) for n in (None, 7))

    assert (await streamed(one)).body == (await streamed(other)).body


@both_bindings
async def test_a_message_may_follow_a_task(binding):
    steps = (
        Step(state=TaskState.WORKING, says="busy"),
        Step(message="by the way"),
        Step(state=TaskState.COMPLETED, says="done", after=1),
    )
    agent = FakeAgent(Plan(steps))

    seen = await streamed(agent, binding=binding)

    assert seen.story == ["task WORKING", "message by the way", "status COMPLETED"]
    assert seen.task == agent.tasks["task-1"]
    history = [message.text for message in seen.task.history]
    assert history == ["hello", "by the way", "busy"]


@pytest.mark.parametrize(
    ("streaming", "declared"),
    [(True, True), (False, False), (Streaming(), True), (Streaming(declared=False), False)],
)
async def test_the_card_says_whether_it_streams(streaming, declared):
    agent = FakeAgent(streaming=streaming)

    card = await connect(agent.url, engine=FakeNetwork(agent)).agent_card()

    assert card.capabilities.streaming is declared


async def test_an_agent_may_stream_without_saying_so():
    agent = FakeAgent(THREE, streaming=Streaming(declared=False))

    assert (await streamed(agent)).story == STORY


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"overlap": -1}, "overlap must not be negative, not -1"),
        ({"piece": 0}, "piece must be at least 1, not 0"),
        ({"keep_alive": 0}, "keep_alive must be a positive number of seconds, not 0"),
        ({"keep_alive": math.nan}, "keep_alive must be a positive number of seconds, not nan"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        Streaming(**options)


# ── Faults ───────────────────────────────────────────────────────────────────────────────────


def failing(fault, plan=THREE, **options):
    agent = FakeAgent(plan, **options)
    agent.inject(fault)
    return agent


@pytest.mark.parametrize("count", [0, 1, 4, 6])
async def test_a_stream_is_cut_after_some_events(count):
    seen = await streamed(failing(Cut(after_events=count)))

    assert seen.story == STORY[:count]
    assert (seen.error.failure, seen.error.executed) == ("truncated", None)
    assert seen.ended == [0, 0, 0, 10, 20, 30, 40][count]


async def test_a_stream_that_is_over_before_the_cut_comes_whole():
    seen = await streamed(failing(Cut(after_events=7)))

    assert (seen.story, seen.error) == (STORY, None)


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_a_stream_is_cut_inside_an_event(count):
    seen = await streamed(failing(Cut(after_events=count, after_bytes=40)))

    *whole, rest = seen.body.split(b"\r\n\r\n")
    assert (len(whole), len(rest)) == (count, 40)
    assert seen.error.failure == "truncated"


async def test_a_stream_is_cut_after_some_bytes_of_many_events():
    seen = await streamed(failing(Cut(after_bytes=600)))

    assert len(seen.body) == 600
    assert len(seen.times) == 3


@pytest.mark.parametrize("count", [0, 1, 4, 6])
async def test_a_proxy_may_end_a_stream_properly(count):
    seen = await streamed(failing(Cut(after_events=count, clean=True)))

    assert (seen.story, seen.error) == (STORY[:count], None)


@pytest.mark.parametrize("count", [0, 1, 4, 6])
async def test_a_stream_is_reset_after_some_events(count):
    seen = await streamed(failing(Reset(after_events=count)))

    assert seen.story == STORY[:count]
    assert (seen.error.failure, seen.error.executed) == ("truncated", None)


@pytest.mark.parametrize("count", [0, 1, 4, 6])
async def test_a_stream_stops_after_some_events(count):
    seen = await streamed(failing(Stall(phase="idle", after_events=count)))

    assert seen.story == STORY[:count]
    assert seen.error.phase == "idle"
    assert seen.ended == [0, 0, 0, 10, 20, 30, 40][count] + LIMITS.idle


async def test_a_stream_stops_inside_an_event():
    seen = await streamed(failing(Stall(phase="idle", after_events=1, after_bytes=5)))

    assert seen.body.endswith(b"\r\n\r\ndata:")
    assert seen.error.phase == "idle"


@pytest.mark.parametrize("event", [1, 3, 6])
async def test_an_event_comes_twice(event):
    seen = await streamed(failing(Duplicate(event=event)))

    assert seen.story == STORY[:event] + STORY[event - 1 :]


@both_bindings
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("count", [0, 2, 6])
async def test_a_stream_ends_with_an_error(count, named, binding):
    fault = Fail(after_events=count, message="out of memory", named=named)

    seen = await streamed(failing(fault), binding=binding)

    code = -32603 if binding == "JSONRPC" else 500
    assert seen.story == [*STORY[:count], f"error {code} out of memory"]
    assert frames_of(seen.body)[-1][0] == ("error" if named else "message")
    assert seen.error is None


@pytest.mark.parametrize(
    "fault",
    [
        Fail(),
        Fail(code=-32001, after_execution=True),
        Respond(status=200, headers={"content-type": "text/event-stream"}),
        Respond(status=201, headers={"content-type": "application/json"}, body=b"{}"),
        Respond(status=401, headers={"content-type": "application/json"}, body=b'{"detail":"no"}'),
        bad_gateway(after_execution=True),
    ],
)
async def test_something_else_may_come_instead_of_a_stream(fault):
    agent = failing(fault)

    seen = await streamed(agent)

    is_respond = isinstance(fault, Respond)
    assert (seen.status, seen.body.startswith(b"data:")) == (
        fault.status if is_respond else 200,
        False,
    )
    assert (seen.body == fault.body) if is_respond else (b'"error"' in seen.body)
    assert len(agent.executions) == fault.after_execution


@pytest.mark.parametrize("after_execution", [False, True])
async def test_a_reset_instead_of_a_stream_is_one_before_it_begins(after_execution):
    agent = failing(Reset(after_execution=after_execution))

    seen = await streamed(agent)

    assert (seen.status, seen.error.failure) == (None, "disconnected")
    assert len(agent.executions) == after_execution


@pytest.mark.parametrize(
    ("after_execution", "times"), [(True, [15, 15, 15, 20, 30, 40]), (False, [15, 15, 25])]
)
async def test_a_stream_may_begin_late(after_execution, times):
    agent = failing(Delay(seconds=15, after_execution=after_execution))
    request = sending(timeouts=Timeouts(first_byte=60))

    assert (await streamed(agent, request)).times[: len(times)] == times


async def test_a_fault_is_for_one_stream():
    agent = failing(Cut(after_events=3))

    first = await streamed(agent)
    second = await streamed(agent, subscribing("task-1"))

    assert first.story + second.story == [*STORY[:3], "task WORKING Hel", *STORY[3:]]


async def test_comments_do_not_count_as_events():
    agent = failing(Cut(after_events=3), streaming=Streaming(keep_alive=4))

    seen = await streamed(agent)

    assert seen.story == STORY[:3]
    assert len(seen.times) == 5


@pytest.mark.parametrize(
    "fault", [Cut(after_events=1), Reset(after_events=1), Fail(after_events=1), Duplicate()]
)
async def test_a_reply_that_is_no_stream_counts_as_one_event(fault):
    agent = failing(fault)

    reply = await FakeNetwork(agent).request(call("GetTask", {"id": "x"}))

    assert event_summary(json.loads(reply.body)) == "error -32001 Task not found"


@pytest.mark.parametrize("fault", [Cut(after_events=0), Reset(after_events=0)])
async def test_a_reply_that_is_no_stream_may_be_lost_whole(fault):
    seen = await streamed(failing(fault, "done"), call("SendMessage", message()))

    assert (seen.status, seen.body, seen.error.failure) == (200, b"", "truncated")


async def test_a_reply_that_is_no_stream_may_be_an_error_after_all():
    agent = failing(Fail(after_events=0), completes("done", after=3))

    reply = await FakeNetwork(agent).request(call("SendMessage", message()))

    assert event_summary(json.loads(reply.body)) == "error -32603 internal error"
    assert (now(), len(agent.executions)) == (3, 1)


async def test_a_proxy_may_shorten_a_reply():
    agent = failing(Cut(after_bytes=9, clean=True), "done")

    reply = await FakeNetwork(agent).request(call("SendMessage", message()))

    assert reply.body == b'{"jsonrpc'


# ── Clients that leave ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("moment", [0, 5, 10, 35])
@pytest.mark.parametrize("fault", [None, Stall(phase="idle", after_events=2), Delay(seconds=8)])
async def test_a_client_that_leaves_frees_everything_and_the_work_continues(moment, fault):
    agent = FakeAgent(THREE)
    if fault is not None:
        agent.inject(fault)
    network = FakeNetwork(agent)
    reading = asyncio.create_task(read(network, sending(timeouts=Timeouts())))
    await asyncio.sleep(0)
    await asyncio.sleep(moment)

    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    assert (network.in_flight, agent.open_streams) == (0, 0)
    timeline = agent._operations.timelines["task-1"]
    assert not timeline._waiting
    await asyncio.sleep(50)
    assert agent.tasks["task-1"].text == "Hello, world"


async def test_a_client_that_breaks_out_frees_everything():
    agent = FakeAgent(THREE)
    network = FakeNetwork(agent)

    async with network.stream(sending()) as reply:
        async for _ in reply.chunks():
            assert agent.open_streams == 1
            break

    assert (network.in_flight, agent.open_streams) == (0, 0)


async def test_a_stream_that_tells_nothing_is_idle():
    agent = FakeAgent(works_forever())

    seen = await streamed(agent)

    assert (seen.error.phase, seen.ended) == ("idle", LIMITS.idle)


async def test_a_chunk_that_was_appended_to_nothing_is_an_artifact():
    piece = Artifact(artifact_id="a", parts=(Part(text="late"),))
    done = Step(state=TaskState.COMPLETED, artifacts=(piece,), append=True)
    agent = FakeAgent(Plan((Step(state=TaskState.WORKING), done)))

    seen = await streamed(agent)

    assert seen.story[1] == "append late"
    assert agent.tasks["task-1"].text == "late"
