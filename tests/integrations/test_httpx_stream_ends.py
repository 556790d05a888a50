"""Where a stream may end that an SDK reads through Holdfast's transport for httpx and httpx2."""

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

import httpx
import httpx2
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.kit.effort import rounds

import holdfast.integrations.httpx
import holdfast.integrations.httpx2
from holdfast import (
    A2AConnectionError,
    Artifact,
    Limits,
    Message,
    Part,
    Resilience,
    Role,
    Task,
    TaskState,
)
from holdfast._integrations.recognition import recognize
from holdfast._integrations.stream_end import StreamEndDetector
from holdfast._stream.machine import StreamMachine
from holdfast._stream.states import Action
from holdfast._testing.parsed_request import ParsedRequest
from holdfast._testing.parsed_request_v03 import V03ParsedRequest
from holdfast._testing.streaming import frame
from holdfast._wire.sse import ServerSentEvent
from holdfast.testing import (
    Cut,
    Fail,
    FakeAgent,
    FakeNetwork,
    Streaming,
    asks,
    replies,
    run,
    streams,
)
from holdfast.types import (
    StreamResponse,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
)

HTTPX = SimpleNamespace(library=httpx, Transport=holdfast.integrations.httpx.Transport)
HTTPX2 = SimpleNamespace(library=httpx2, Transport=holdfast.integrations.httpx2.Transport)
both = pytest.mark.parametrize("kind", [HTTPX, HTTPX2], ids=["httpx", "httpx2"])

HOST = "http://agent.test"
OFF = Resilience.off()


class Asked(SimpleNamespace):
    """A request that an SDK makes."""

    async def of(self, client):
        """The pieces of the answer, and the error that ended it, if one did."""
        pieces = []
        try:
            async with client.stream(
                self.verb, HOST + self.path, json=self.body, headers=self.headers
            ) as answer:
                assert answer.is_success
                async for piece in answer.aiter_bytes():
                    pieces.append(piece)  # noqa: PERF401  those of a stream that is cut, too
        except (httpx.TransportError, httpx2.TransportError) as error:
            return pieces, error
        return pieces, None


def asked(binding, version, operation="SendStreamingMessage", *, task_id="t", rpc_id=7):
    """The request for a stream, in the words of a binding and a version."""
    sends = operation == "SendStreamingMessage"
    headers = {"accept": "text/event-stream"}
    if version == "1.0":
        headers["a2a-version"] = version
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        method, path = operation, ""
    else:
        part = {"kind": "text", "text": "hi"}
        message = {"kind": "message", "messageId": "m", "role": "user", "parts": [part]}
        method, path = "message/stream" if sends else "tasks/resubscribe", "/v1"
        if binding == "HTTP+JSON":
            message = {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]}
    params = {"message": message} if sends else {"id": task_id}
    if binding == "JSONRPC":
        body = {"jsonrpc": "2.0", "id": rpc_id, "method": method, "params": params}
        return Asked(verb="POST", path="/rpc", body=body, headers=headers)
    path += "/message:stream" if sends else f"/tasks/{task_id}:subscribe"
    return Asked(verb="POST", path=f"/rest{path}", body=params if sends else None, headers=headers)


ways = pytest.mark.parametrize(
    ("binding", "version"),
    [(binding, version) for binding in ("JSONRPC", "HTTP+JSON") for version in ("1.0", "0.3")],
)


@asynccontextmanager
async def client_of(kind, agent, **options):
    network = FakeNetwork(agent)
    transport = kind.Transport(engine=network, **options)
    async with kind.library.AsyncClient(transport=transport, timeout=60) as client:
        yield client
    assert network.in_flight == 0
    assert agent.open_streams == 0


def speaking(version, behaviour, **options):
    return FakeAgent(behaviour, versions=(version,), **options)


def is_streamed(error, kind):
    """Whether a cut is told as one is in the middle."""
    cause = error.__cause__
    assert type(error) is kind.library.RemoteProtocolError
    assert isinstance(cause, A2AConnectionError)
    assert (cause.failure, cause.executed, cause.transient) == ("truncated", None, True)
    assert str(error) == str(cause)
    return True


# ── A fake agent, and a proxy that ends its streams in good order ────────────────────────────

CHUNKS = streams("one ", "two ", "three", every=1.0)


@both
@ways
async def test_an_end_in_good_order_before_the_task_is_over_is_a_cut(kind, binding, version):
    agent = speaking(version, CHUNKS)
    agent.inject(Cut(after_events=3, clean=True), on="SendStreamingMessage")

    async with client_of(kind, agent) as client:
        pieces, error = await asked(binding, version).of(client)

    assert is_streamed(error, kind)
    assert "TASK_STATE_WORKING" in str(error)
    assert b"".join(pieces).count(b"data:") == 3
    assert len(agent.calls("SendStreamingMessage")) == 1


@both
@ways
@pytest.mark.parametrize(
    "behaviour",
    [CHUNKS, asks("which?", after=1.0), replies("hi")],
    ids=["completed", "input required", "message"],
)
async def test_an_end_that_the_protocol_knows_is_none(kind, binding, version, behaviour):
    agent = speaking(version, behaviour, streaming=Streaming(piece=7, keep_alive=0.4))

    async with client_of(kind, agent) as client:
        pieces, error = await asked(binding, version).of(client)

    assert error is None
    assert b"data:" in b"".join(pieces)


@both
@ways
@pytest.mark.parametrize("events", [0, 1, 2])
async def test_a_subscription_is_cut_as_a_message_is(kind, binding, version, events):
    agent = speaking(version, CHUNKS)

    async with client_of(kind, agent) as client:
        started = asyncio.create_task(asked(binding, version).of(client))
        await asyncio.sleep(0.5)
        [task] = agent.tasks.values()
        agent.inject(Cut(after_events=events, clean=True), on="SubscribeToTask")
        subscribing = asked(binding, version, "SubscribeToTask", task_id=task.id)
        _, error = await subscribing.of(client)
        assert is_streamed(error, kind)
        _, error = await started
        assert error is None


@both
@ways
async def test_a_stream_of_nothing_is_a_cut_and_not_sent_again(kind, binding, version):
    agent = speaking(version, CHUNKS)
    agent.inject(Cut(clean=True), on="SendStreamingMessage")

    async with client_of(kind, agent) as client:
        pieces, error = await asked(binding, version).of(client)

    assert is_streamed(error, kind)
    assert "without an event" in str(error)
    assert b"".join(pieces) == b""
    assert list(map(len, agent.executions.values())) == [1]


@both
@ways
@pytest.mark.parametrize("named", [True, False])
async def test_an_error_is_an_end_that_the_reader_finds(kind, binding, version, named):
    agent = speaking(version, CHUNKS)
    fault = Fail(after_events=2, after_execution=True, named=named)
    agent.inject(fault, on="SendStreamingMessage")

    async with client_of(kind, agent) as client:
        pieces, error = await asked(binding, version).of(client)

    assert error is None
    assert b"internal error" in b"".join(pieces)


# ── An agent that says whatever it likes ─────────────────────────────────────────────────────


class Says:
    """An engine whose every answer is a stream of these pieces, a second apart."""

    def __init__(self, *pieces):
        self.pieces = pieces

    async def request(self, request):
        raise NotImplementedError

    @asynccontextmanager
    async def stream(self, request):
        request.progress.sent = True
        headers = {"content-type": "text/event-stream"}
        yield SimpleNamespace(status=200, headers=headers, chunks=self.chunks)

    async def chunks(self):
        for piece in self.pieces:
            await asyncio.sleep(1)
            yield piece

    async def close(self):
        pass


async def ends_of(kind, request, *pieces, limits=None):
    transport = kind.Transport(engine=Says(*pieces), resilience=OFF, limits=limits)
    async with kind.library.AsyncClient(transport=transport, timeout=60) as client:
        passed, error = await request.of(client)
    assert b"".join(passed) == b"".join(pieces)
    return error


def event(document):
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def status(state, **more):
    return {"statusUpdate": {"taskId": "t", "status": {"state": state}, **more}}


def update(state, *, final):
    return {
        "kind": "status-update",
        "taskId": "t",
        "contextId": "c",
        "status": {"state": state},
        "final": final,
    }


def chunk(text="half"):
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    return {"artifactUpdate": {"taskId": "t", "artifact": artifact}}


WORKING = status("TASK_STATE_WORKING")


@pytest.mark.rule("D02")
@both
@pytest.mark.parametrize(
    ("documents", "is_cut"),
    [
        ([WORKING], True),
        ([chunk()], True),
        ([WORKING, {"message": {"messageId": "a", "role": "ROLE_AGENT", "parts": []}}], True),
        ([status("TASK_STATE_SUBMITTED")], True),
        ([status("TASK_STATE_INPUT_REQUIRED"), WORKING], True),
        ([status("TASK_STATE_INPUT_REQUIRED"), chunk()], False),
        ([status("TASK_STATE_AUTH_REQUIRED")], False),
        ([status("TASK_STATE_AUTH_REQUIRED"), WORKING], True),
        ([status("TASK_STATE_REJECTED"), WORKING], False),
        ([status("TASK_STATE_PAUSED")], False),
        ([status("TASK_STATE_PAUSED"), WORKING], True),
        ([{"statusUpdate": {"taskId": "t", "status": {}}}], False),
        ([WORKING, {"somethingNew": {}}], False),
        ([WORKING, {"task": 3}], False),
        ([WORKING, [WORKING]], False),
        ([WORKING, {"error": {"code": 500, "message": "no"}}], False),
    ],
    ids=str,
)
async def test_where_a_stream_may_end(kind, documents, is_cut):
    error = await ends_of(kind, asked("HTTP+JSON", "1.0"), *map(event, documents))

    assert is_streamed(error, kind) if is_cut else error is None


@both
async def test_what_is_called_an_error_is_one(kind):
    said = b"event: error\n" + event(WORKING)

    assert await ends_of(kind, asked("HTTP+JSON", "1.0"), said) is None


@both
@pytest.mark.parametrize(
    ("document", "is_cut"),
    [
        (update("working", final=False), True),
        (update("auth-required", final=True), False),
        (update("input-required", final=False), False),
        (update("canceled", final=False), False),
        (update("unknown", final=True), False),
        ({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}}, True),
        ({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "failed"}}, False),
        ({"kind": "something-new"}, False),
    ],
    ids=str,
)
async def test_where_one_of_0_3_may_end(kind, document, is_cut):
    said = event({"jsonrpc": "2.0", "id": 7, "result": document})

    error = await ends_of(kind, asked("JSONRPC", "0.3"), said)

    assert is_streamed(error, kind) if is_cut else error is None


@both
async def test_nothing_comes_after_the_last_one_of_0_3(kind):
    documents = [update("input-required", final=True), update("working", final=False)]
    pieces = [event({"jsonrpc": "2.0", "id": 7, "result": one}) for one in documents]

    assert await ends_of(kind, asked("JSONRPC", "0.3"), *pieces) is None


@both
@pytest.mark.parametrize("rpc_id", [7, "a", 1.5, None])
async def test_answers_are_known_by_the_requests_own_id(kind, rpc_id):
    request = asked("JSONRPC", "1.0", rpc_id=rpc_id)
    own = event({"jsonrpc": "2.0", "id": rpc_id, "result": WORKING})
    others = event({"jsonrpc": "2.0", "id": "other", "result": WORKING})

    assert is_streamed(await ends_of(kind, request, own), kind)
    assert await ends_of(kind, request, own, others) is None


@both
@pytest.mark.parametrize("said", [b"no JSON", b"\xff", b"[" * 5000, b"", b"{}"], ids=repr)
async def test_what_cannot_be_read_may_have_been_the_end(kind, said):
    for binding, version in (("JSONRPC", "1.0"), ("HTTP+JSON", "0.3")):
        error = await ends_of(kind, asked(binding, version), b"data: " + said + b"\n\n")

        assert error is None


@both
async def test_what_is_beyond_the_limits_of_json_is_passed_on(kind):
    said = event(chunk("x" * 100)) + event(WORKING)
    limits = Limits(json_depth=2)

    assert await ends_of(kind, asked("HTTP+JSON", "1.0"), said, limits=limits) is None


@both
async def test_a_version_in_the_path_may_be_the_interfaces_own(kind):
    request = asked("HTTP+JSON", "1.0")
    request.path = "/v1/message:stream"  # as 0.3 has it

    assert is_streamed(await ends_of(kind, request, event(WORKING)), kind)
    assert await ends_of(kind, request, event(status("TASK_STATE_COMPLETED"))) is None


@both
async def test_comments_are_no_event(kind):
    error = await ends_of(kind, asked("JSONRPC", "1.0"), b": ping\n\n", b": ping\n\n")

    assert is_streamed(error, kind)


@both
async def test_what_is_not_of_the_protocol_ends_where_it_ends(kind):
    request = Asked(verb="GET", path="/news", body=None, headers={"accept": "text/event-stream"})

    assert await ends_of(kind, request, event(WORKING)) is None
    assert await ends_of(kind, request) is None


@both
async def test_pieces_pass_as_they_come(kind):
    pieces = [b"data: {", json.dumps(WORKING).encode()[1:], b"\n", b"\n", b": ping\n\n"]
    loop = asyncio.get_running_loop()
    transport = kind.Transport(engine=Says(*pieces), resilience=OFF)
    request, came = asked("HTTP+JSON", "1.0"), []

    async with kind.library.AsyncClient(transport=transport, timeout=60) as client:
        began = loop.time()
        async with client.stream(
            "POST", HOST + request.path, json=request.body, headers=request.headers
        ) as answer:
            with pytest.raises(kind.library.RemoteProtocolError):  # noqa: PT012
                async for piece in answer.aiter_raw():
                    came.append((loop.time() - began, piece))  # noqa: PERF401

    assert came == [(pytest.approx(number), piece) for number, piece in enumerate(pieces, 1)]


# ── The machine that a client's own streams have ─────────────────────────────────────────────


def core_goes_on(script, version):
    """Whether a stream of a client's own would not be over with these events."""
    if not script:
        return True
    resume = StreamMachine(Limits(), max_reconnects=3)
    for response in script:
        resume.on_event(response.event)
        resume.outbox.take()
        update = response.status_update
        is_final = update is not None and update.status.state.is_settled
        if resume.action is not Action.READ or (version == "0.3" and is_final):
            break
    if resume.action is Action.READ:
        try:
            resume.on_end()
        except A2AConnectionError:  # no task is known to go on with
            return True
    # Here a task that waits for an authorization may be left.
    return resume.action is not Action.STOP and resume.outbox.state is not TaskState.AUTH_REQUIRED


STATES = [state for state in TaskState if state is not TaskState.UNSPECIFIED]
states = st.sampled_from(STATES).map(lambda state: TaskStatus(state=state))
said = st.one_of(
    states.map(lambda status: StreamResponse(task=Task(id="t", context_id="c", status=status))),
    states.map(
        lambda status: StreamResponse(
            status_update=TaskStatusUpdateEvent(task_id="t", context_id="c", status=status)
        )
    ),
    st.text(max_size=3).map(
        lambda text: StreamResponse(
            artifact_update=TaskArtifactUpdateEvent(
                task_id="t",
                context_id="c",
                artifact=Artifact(artifact_id="a", parts=(Part(text=text),)),
            )
        )
    ),
    st.just(
        StreamResponse(
            message=Message(message_id="said", role=Role.AGENT, parts=(Part(text="hi"),))
        )
    ),
)


ASKED_AND_WENT_ON = [
    StreamResponse(
        status_update=TaskStatusUpdateEvent(
            task_id="t", context_id="c", status=TaskStatus(state=state)
        )
    )
    for state in (TaskState.INPUT_REQUIRED, TaskState.WORKING)
]


@given(
    st.sampled_from(["JSONRPC", "HTTP+JSON"]),
    st.sampled_from([("1.0", ParsedRequest), ("0.3", V03ParsedRequest)]),
    st.sampled_from(["SendStreamingMessage", "SubscribeToTask"]),
    st.lists(said, max_size=6),
    st.integers(min_value=1, max_value=2000),
)
@example("JSONRPC", ("0.3", V03ParsedRequest), "SendStreamingMessage", ASKED_AND_WENT_ON, 99)
@example("JSONRPC", ("1.0", ParsedRequest), "SendStreamingMessage", ASKED_AND_WENT_ON, 99)
@settings(max_examples=rounds(75, 300))
def test_it_is_cut_where_the_clients_state_machine_resumes(
    binding, spoken, operation, script, size
):
    version, wire = spoken
    writing = wire(operation, None, rpc_id=7, is_rpc=binding == "JSONRPC")
    body = b"".join(frame(writing.answer(one).body, Streaming()) for one in script)
    pieces = [body[start : start + size] for start in range(0, len(body), size)]

    error = run(ends_of(HTTPX, asked(binding, version, operation), *pieces))

    assert is_streamed(error, HTTPX) if core_goes_on(script, version) else error is None


# ── Whatever comes ───────────────────────────────────────────────────────────────────────────

NAMES = [
    *("jsonrpc", "id", "result", "error", "kind", "task", "message", "statusUpdate", "status"),
    *("artifactUpdate", "state", "artifact", "parts", "final", "role", "data"),
]
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(NAMES),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
bodies = st.binary(max_size=50) | documents.map(lambda value: json.dumps(value).encode())


@given(
    st.sampled_from(["JSONRPC", "HTTP+JSON"]),
    st.sampled_from(["1.0", "0.3"]),
    documents,
    st.lists(st.tuples(bodies, st.sampled_from(["message", "error", ""])), max_size=4),
)
@example("JSONRPC", "0.3", 7, [(b'{"id": 7, "result": {"status": {"state": 1e400}}}', "message")])
def test_nothing_that_comes_breaks_it(binding, version, rpc_id, events):
    request = asked(binding, version, rpc_id=rpc_id)
    body = json.dumps(request.body).encode()
    recognized = recognize(request.verb, HOST + request.path, body)
    assume(recognized.is_known)  # no NaN for an id
    ending = StreamEndDetector(recognized, Limits())

    for data, name in events:
        ending.passed(ServerSentEvent(data, name))

    assert ending.missing is None or isinstance(ending.missing, str)
