"""How streams begin: before its first event, a stream fails and is tried again like any call."""

import asyncio
import json

import pytest

from holdfast import A2AError, A2AHTTPError, AuthenticationError, OutcomeUnknownError, connect
from holdfast.auth import Credentials
from holdfast.errors import (
    InvalidAgentResponseError,
    InvalidParamsError,
    PermissionDeniedError,
)
from holdfast.extend import Endpoints
from holdfast.observe import AttemptStarted
from holdfast.testing import (
    Cut,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    Respond,
    Stall,
    Streaming,
    bad_gateway,
    rate_limited,
    streams,
    unavailable,
)

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])

STREAMED = "SendStreamingMessage"
EVENTS = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}
HTML = {"content-type": "text/html"}
PAGE = b"<html><body>go away</body></html>"


def connected(agent, binding="JSONRPC", *, network=None, **options):
    options.setdefault("on_unknown", "raise")  # what is known then; see test_lost_replies
    return connect(agent.url, engine=network or FakeNetwork(agent), bindings=(binding,), **options)


def now():
    return asyncio.get_running_loop().time()


def operations(agent):
    return [each.operation for each in agent.received if each.operation != "GetAgentCard"]


def message_ids(agent):
    bodies = [json.loads(each.body) for each in agent.calls(STREAMED)]
    return [body.get("params", body)["message"]["messageId"] for body in bodies]


async def answer_of(client, **options):
    async with client.stream_message("hi", **options) as events:
        return await events.result()


# ── What an agent may answer in place of a stream ────────────────────────────────────────────

RPC = {"code": -32602, "message": "no such skill"}
STATUS = {"code": 400, "status": "INVALID_ARGUMENT", "message": "no such skill"}
PROBLEM = {"type": "https://a2a-protocol.org/errors/invalid-params", "title": "no such skill"}


def body(document):
    return document if isinstance(document, bytes) else json.dumps(document).encode()


def error_event(document):
    return b"event: error\r\ndata: " + body(document) + b"\r\n\r\n"


def event(document):
    return b"data: " + body(document) + b"\n\n"


ANSWERS = {
    "RPC error, 200": (200, JSON, {"jsonrpc": "2.0", "id": None, "error": RPC}),
    "RPC error, 400": (400, JSON, {"jsonrpc": "2.0", "id": None, "error": RPC}),
    "RPC error, event": (200, EVENTS, event({"jsonrpc": "2.0", "id": None, "error": RPC})),
    "RPC error, error event": (
        200,
        EVENTS,
        error_event({"jsonrpc": "2.0", "id": None, "error": RPC}),
    ),
    "bare RPC error, error event": (200, EVENTS, error_event(RPC)),
    "status, error event": (200, EVENTS, error_event({"error": STATUS})),
    "problem, error event": (200, EVENTS, error_event(PROBLEM)),
}


@pytest.mark.rule("S09")
@both_bindings
@pytest.mark.parametrize("answer", ANSWERS)
async def test_s09_an_error_in_place_of_a_stream_is_that_error(answer, binding):
    code, headers, document = ANSWERS[answer]
    agent = FakeAgent()
    agent.inject(Respond(status=code, headers=headers, body=body(document)), on=STREAMED)
    network = FakeNetwork(agent)

    with pytest.raises(InvalidParamsError, match="no such skill") as caught:
        await answer_of(connected(agent, binding, network=network))

    error = caught.value
    assert (error.code, error.http_status, error.executed) == (-32602, code, None)
    assert (network.in_flight, agent.pending_faults, now()) == (0, (), 0)


@pytest.mark.rule("S09")
@both_bindings
async def test_s09_an_error_event_of_plain_text_is_shown(binding):
    agent = FakeAgent()
    agent.inject(
        Respond(status=200, headers=EVENTS, body=error_event(b"out of paper")), on=STREAMED
    )

    with pytest.raises(A2AError, match="out of paper") as caught:
        await answer_of(connected(agent, binding))

    assert caught.value.executed is None


@pytest.mark.rule("S08")
@both_bindings
@pytest.mark.parametrize("shape", ["json", "html", "event stream"])
@pytest.mark.parametrize(
    ("code", "kind", "executed"),
    [
        (401, AuthenticationError, False),
        (403, PermissionDeniedError, False),
        (404, A2AHTTPError, False),
        (503, OutcomeUnknownError, None),
        (502, OutcomeUnknownError, None),
    ],
)
async def test_s08_a_refused_stream_is_an_error_with_status_and_body(
    code, kind, executed, shape, binding
):
    headers = {"json": JSON, "html": HTML, "event stream": EVENTS}[shape]
    content = b'{"detail": "go away"}' if shape == "json" else PAGE
    agent = FakeAgent()
    agent.inject(Respond(status=code, headers=headers, body=content), on=STREAMED)
    network = FakeNetwork(agent)

    with pytest.raises(kind, match="go away") as caught:
        await answer_of(connected(agent, binding, network=network))

    error = caught.value
    assert (error.http_status, error.executed) == (code, executed)
    assert "go away" in error.excerpt
    assert (operations(agent), network.in_flight, now()) == ([], 0, 0)


@both_bindings
@pytest.mark.parametrize("code", [200, 201, 202])
@pytest.mark.parametrize("state", ["WORKING", "COMPLETED"])
async def test_a_task_in_place_of_a_stream_is_its_first_event(state, code, binding):
    agent = FakeAgent(streams("a", "b", every=1))
    network = OneDocument(agent, binding, code, state)
    await connected(agent, binding).send_message("hi", return_immediately=True)  # as task-1

    async with connected(agent, binding, network=network).stream_message("hi") as events:
        first = await anext(events)
        answer = await events.result()

    assert (first.id, first.state.name) == ("task-1", state)
    assert answer.text == ("ab" if state == "WORKING" else "")
    assert len(agent.tasks) == 1


class OneDocument(FakeNetwork):
    """Answers a message that asks for a stream with a task."""

    def __init__(self, agent, binding, code, state):
        super().__init__(agent)
        self.agent, self.binding, self.code, self.state = agent, binding, code, state

    def stream(self, request):
        if b"SendStreaming" in request.body or request.url.endswith("message:stream"):
            status = {"state": f"TASK_STATE_{self.state}"}
            context_id = self.agent.tasks["task-1"].context_id
            document = {"task": {"id": "task-1", "contextId": context_id, "status": status}}
            if self.binding == "JSONRPC":
                call_id = json.loads(request.body)["id"]
                document = {"jsonrpc": "2.0", "id": call_id, "result": document}
            answer = Respond(status=self.code, headers=JSON, body=body(document))
            self.agent.inject(answer, on=STREAMED)
        return super().stream(request)


@pytest.mark.rule("S09")
@both_bindings
@pytest.mark.parametrize(
    ("code", "headers", "content"),
    [
        (200, EVENTS, b""),
        (200, EVENTS, b": welcome\n\n"),
        (200, EVENTS, b'data: {"jsonrpc"'),
        (200, JSON, b""),
        (201, {}, b""),
        (202, {}, b""),
        (204, {}, b""),
    ],
)
async def test_s09_nothing_in_place_of_a_stream_leaves_the_outcome_open(
    code, headers, content, binding
):
    agent = FakeAgent()
    answer = Respond(status=code, headers=headers, body=content, after_execution=True)
    agent.inject(answer, on=STREAMED)

    with pytest.raises(OutcomeUnknownError) as caught:
        await answer_of(connected(agent, binding))

    error = caught.value
    assert (error.executed, [error.message_id]) == (None, message_ids(agent))
    assert error.message_id in str(error)
    assert len(agent.tasks) == 1  # and not a second one


@both_bindings
async def test_a_page_in_place_of_a_stream_is_no_answer(binding):
    agent = FakeAgent()
    agent.inject(Respond(status=200, headers=HTML, body=PAGE, after_execution=True), on=STREAMED)

    with pytest.raises(InvalidAgentResponseError, match="may have been executed") as caught:
        await answer_of(connected(agent, binding))

    assert (caught.value.executed, "go away" in caught.value.excerpt) == (None, True)
    assert message_ids(agent)[0] in str(caught.value)
    assert len(agent.tasks) == 1


# ── Before the first event the rules of sending apply ────────────────────────────────────────


@pytest.mark.rule("S06")
@both_bindings
@pytest.mark.parametrize(
    "fault",
    [Refuse(), Stall(phase="connect"), unavailable(retry_after=5), rate_limited(retry_after=5)],
    ids=["refused", "connect", "503", "429"],
)
async def test_s06_what_was_not_executed_is_sent_again_as_the_same_message(fault, binding):
    agent = FakeAgent(streams("a", "b"))
    agent.inject(fault, on=STREAMED, times=2)
    seen = []
    client = connected(agent, binding, observers=[seen.append])

    answer = await answer_of(client)

    assert answer.text == "ab"
    assert len(agent.tasks) == 1
    assert len(agent.executions) == len(message_ids(agent)) == 1
    started = [e.number for e in seen if isinstance(e, AttemptStarted) and e.method == STREAMED]
    assert started == [1, 2, 3]
    if isinstance(fault, Respond):
        assert now() >= 10


@pytest.mark.rule("S05")
@both_bindings
@pytest.mark.parametrize(
    "fault",
    [
        Cut(after_events=0),
        Cut(after_events=0, clean=True),
        Cut(after_events=0, after_bytes=20),
        Reset(after_events=0),
        Reset(after_execution=True),
        Stall(phase="idle"),
        Stall(after_execution=True),
        bad_gateway(after_execution=True),
    ],
    ids=["cut", "clean", "inside", "reset", "no head", "idle", "first byte", "502"],
)
async def test_s05_a_stream_that_is_lost_before_its_first_event_is_not_sent_again(fault, binding):
    agent = FakeAgent(streams("a", "b"))
    agent.inject(fault, on=STREAMED)
    network = FakeNetwork(agent)

    with pytest.raises(OutcomeUnknownError) as caught:
        await answer_of(connected(agent, binding, network=network))

    assert [caught.value.message_id] == message_ids(agent)
    assert caught.value.executed is None
    assert (len(agent.tasks), operations(agent)) == (1, [STREAMED])
    assert (network.in_flight, agent.open_streams) == (0, 0)


class Tokens:
    """Gives a new token each time, and hears of those that were refused."""

    def __init__(self, *, again=True):
        self.given = 0
        self.refused = []
        self.again = again

    async def credentials(self, call):
        if call.card is None:
            return Credentials()
        self.given += 1
        return Credentials(headers={"authorization": f"Bearer {self.given}"})

    async def on_unauthorized(self, call, _error):
        self.refused.append(call.headers["authorization"])
        return self.again


def tokens_of(agent):
    return [
        each.headers["authorization"]
        for each in agent.received
        if each.operation in {STREAMED, "SubscribeToTask", "GetTask"}
    ]


@both_bindings
async def test_credentials_are_asked_for_anew_after_a_401_and_for_each_connection(binding):
    agent = FakeAgent(streams(*"abcdef", every=10))
    agent.inject(Respond(status=401), on=STREAMED)
    agent.inject(Cut(after_events=3), on=STREAMED)
    agent.inject(Respond(status=401), on="SubscribeToTask")
    agent.inject(Cut(after_events=2), on="SubscribeToTask")
    tokens = Tokens()

    answer = await answer_of(connected(agent, binding, auth=tokens))

    assert answer.text == "abcdef"
    assert tokens.refused == ["Bearer 1", "Bearer 3"]
    assert len(set(tokens_of(agent))) == len(tokens_of(agent)) == tokens.given - 2
    assert len(agent.executions) == 1


@both_bindings
async def test_a_reconnect_that_is_not_authorized_ends_the_stream_and_says_of_what(binding):
    agent = FakeAgent(streams(*"abcdef", every=10))
    agent.inject(Cut(after_events=3), on=STREAMED)
    agent.inject(Respond(status=401, body=b"expired"), on="SubscribeToTask", times=2)

    with pytest.raises(AuthenticationError, match="task task-1 was last seen WORKING") as caught:
        await answer_of(connected(agent, binding, auth=Tokens()))

    assert (caught.value.http_status, caught.value.excerpt) == (401, "expired")
    assert caught.value.executed is True


# ── The HTTP method of a subscription ────────────────────────────────────────────────────────


@pytest.mark.parametrize("verb", ["GET", "POST"])
@pytest.mark.parametrize("other", [404, 405])
async def test_the_method_that_an_agent_takes_is_learned_and_remembered(other, verb):
    agent = FakeAgent(
        streams(*"abcdef", every=10), streaming=Streaming(verbs=(verb,), other_verb=other)
    )
    agent.inject(Cut(after_events=3), on=STREAMED)
    shared = Endpoints()
    client = connected(agent, "HTTP+JSON", shared=shared)

    assert (await answer_of(client)).text == "abcdef"
    first = [each.method for each in agent.calls("SubscribeToTask")]
    agent.received.clear()
    sent = await connected(agent, "HTTP+JSON", shared=shared).send_message(
        "hi", return_immediately=True
    )
    async with connected(agent, "HTTP+JSON", shared=shared).subscribe_to_task(sent.id) as events:
        await anext(events)

    assert first[-1] == verb
    assert len(first) <= 2
    assert [each.method for each in agent.calls("SubscribeToTask")] == [verb]
