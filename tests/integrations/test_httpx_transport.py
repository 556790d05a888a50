"""Holdfast below the clients of httpx and httpx2, on the wire and in virtual time."""

import asyncio
import gc
import gzip
import importlib
import json
import random
import subprocess
import sys
import weakref
from contextlib import asynccontextmanager
from types import SimpleNamespace

import httpx
import httpx2
import pytest
from a2a.client import A2ACardResolver, A2AClientTimeoutError, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    TaskState,
)
from a2a.utils.errors import TaskNotFoundError as SdkTaskNotFoundError
from tests.kit.effort import rounds
from tests.kit.raw_server import chunk, head, header, reply, serve, serve_in_thread

import holdfast.integrations.httpx
import holdfast.integrations.httpx2
from holdfast import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    AiohttpEngine,
    BreakerPolicy,
    CircuitOpenError,
    ConcurrencyPolicy,
    DeadlineExceededError,
    HedgePolicy,
    Limits,
    Resilience,
    RetryPolicy,
    connect,
)
from holdfast._integrations.httpx_base import BaseTransport
from holdfast.errors import LimitExceededError, QueueFullError
from holdfast.extend import Endpoints
from holdfast.observe import AttemptFinished, OperationFinished, RetryScheduled
from holdfast.testing import (
    Cut,
    Delay,
    Fail,
    FakeAgent,
    FakeNetwork,
    Garbage,
    Refuse,
    Reset,
    Respond,
    Stall,
    bad_gateway,
    rate_limited,
    run,
    unavailable,
)

HTTPX = SimpleNamespace(library=httpx, Transport=holdfast.integrations.httpx.Transport)
HTTPX2 = SimpleNamespace(library=httpx2, Transport=holdfast.integrations.httpx2.Transport)
both = pytest.mark.parametrize("kind", [HTTPX, HTTPX2], ids=["httpx", "httpx2"])

RPC = "http://agent.test/rpc"
REST = "http://agent.test/rest"
VERSION = {"a2a-version": "1.0"}
EVENTS = {**VERSION, "accept": "text/event-stream"}
PATIENT = Resilience(budget=None, breaker=None)
PATIENCE = 60.0
CHUNKED = "Transfer-Encoding: chunked"
SSE = "Content-Type: text/event-stream"


@asynccontextmanager
async def client_of(
    kind, *agents, network=None, headers=VERSION, timeout=60, total=900.0, **options
):
    network = FakeNetwork(*agents) if network is None else network
    transport = kind.Transport(engine=network, timeout=total, **options)
    async with kind.library.AsyncClient(
        transport=transport, headers=headers, timeout=timeout
    ) as client:
        yield client
    if isinstance(network, FakeNetwork):
        assert network.in_flight == 0


def call(method, **params):
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def message(message_id="m-1", text="hello"):
    return {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}


def send(message_id="m-1", method="SendMessage"):
    return call(method, message=message(message_id))


async def task_of(client):
    answer = await client.post(RPC, json=send("first"))
    return answer.json()["result"]["task"]["id"]


# ── What comes back ──────────────────────────────────────────────────────────────────────────


@both
async def test_a_reply_is_the_callers_as_it_came(kind):
    agent = FakeAgent()

    async with client_of(kind, agent) as client:
        answer = await client.post(RPC, json=send())

    assert answer.status_code == 200
    assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert answer.headers["content-type"] == "application/json"
    assert answer.http_version == "HTTP/1.1"
    assert answer.elapsed.total_seconds() >= 0
    assert isinstance(answer, kind.library.Response)
    [received] = agent.received
    assert json.loads(received.body) == send()
    assert received.headers["a2a-version"] == "1.0"


@both
async def test_an_error_of_the_protocol_with_status_200_is_a_reply(kind):
    agent = FakeAgent()
    agent.inject(Fail(code=-32603, message="boom", after_execution=True), on="GetTask")

    async with client_of(kind, agent) as client:
        answer = await client.post(RPC, json=call("GetTask", id="nobody"))

    assert answer.status_code == 200
    assert answer.json()["error"]["code"] == -32603
    assert len(agent.calls("GetTask")) == 1


@both
@pytest.mark.parametrize(("status", "tries"), [(400, 1), (401, 1), (404, 1), (500, 4), (502, 4)])
@pytest.mark.parametrize("method", ["GetTask", "SubscribeToTask"])
async def test_a_refusal_is_returned_when_no_try_is_left(kind, status, tries, method):
    agent = FakeAgent()
    body = b"<h1>no</h1>"
    headers = {"content-type": "text/html", "x-own": "yes"}
    agent.inject(Respond(status=status, headers=headers, body=body), on=method, times=9)
    seen = []

    async with client_of(kind, agent, resilience=PATIENT, observers=[seen.append]) as client:
        answer = await client.post(RPC, json=call(method, id="1"))

    assert (answer.status_code, answer.content) == (status, body)
    assert answer.headers["x-own"] == "yes"
    with pytest.raises(kind.library.HTTPStatusError):
        answer.raise_for_status()
    assert sum(isinstance(one, AttemptFinished) for one in seen) == tries


@both
async def test_a_redirect_is_handed_back(kind):
    agent = FakeAgent()
    agent.inject(Respond(status=307, headers={"location": "http://elsewhere.test/"}))

    async with client_of(kind, agent) as client:
        answer = await client.post(RPC, json=send())

    assert answer.status_code == 307
    assert answer.has_redirect_location


# ── What is tried again ──────────────────────────────────────────────────────────────────────

PASSING = [
    Refuse(),
    Stall(phase="connect"),
    Stall(phase="first_byte"),
    Reset(),
    Reset(after_execution=True),
    Reset(after_events=0),
    Cut(after_bytes=5),
    Stall(phase="idle"),
    bad_gateway(),
    unavailable(),
    unavailable(2),
    rate_limited(),
    rate_limited(2),
    Respond(status=504),
]


@both
@pytest.mark.parametrize("fault", PASSING, ids=repr)
async def test_a_read_is_tried_again_after_whatever_may_pass(kind, fault):
    agent = FakeAgent()

    async with client_of(kind, agent) as client:
        task_id = await task_of(client)
        agent.inject(fault, on="GetTask")
        answer = await client.post(RPC, json=call("GetTask", id=task_id))
        by_path = await client.get(f"{REST}/tasks/{task_id}")

    assert answer.json()["result"]["id"] == task_id
    assert by_path.json()["id"] == task_id
    assert not agent.pending_faults


@both
@pytest.mark.parametrize("fault", PASSING, ids=repr)
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_message_is_sent_again_only_where_it_did_not_run(kind, fault, binding, streams):
    agent = FakeAgent()
    method = "SendStreamingMessage" if streams else "SendMessage"
    path = "message:stream" if streams else "message:send"
    url, body = (
        (RPC, send(method=method))
        if binding == "JSONRPC"
        else (f"{REST}/{path}", {"message": message()})
    )
    is_safe = isinstance(fault, Refuse) or fault in (
        Stall(phase="connect"),
        unavailable(2),
        rate_limited(),
        rate_limited(2),
    )
    agent.inject(fault, on=method)
    headers = EVENTS if streams else VERSION

    async with client_of(kind, agent, headers=headers) as client:
        outcome, _ = await asyncio.gather(
            client.post(url, json=body), asyncio.sleep(0), return_exceptions=True
        )

    if isinstance(outcome, Exception):
        assert isinstance(outcome, kind.library.TransportError)
        assert isinstance(outcome.__cause__, A2AError)
        assert outcome.__cause__.executed is None
        assert outcome.request.url == url
        succeeded = False
    else:
        succeeded = outcome.is_success
    assert succeeded is is_safe
    assert len(agent.executions.get("m-1", [])) <= 1
    assert len(agent.calls(method)) <= 1


@both
@pytest.mark.parametrize("status", [429, 503])
async def test_a_refusal_in_the_protocols_terms_does_not_say_that_nothing_ran(kind, status):
    agent = FakeAgent()
    body = b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 7, "message": "busy"}}'
    headers = {"retry-after": "1", "content-type": "application/json"}
    agent.inject(Respond(status=status, headers=headers, body=body, after_execution=True))

    async with client_of(kind, agent) as client:
        answer = await client.post(RPC, json=send())

    assert (answer.status_code, answer.content) == (status, body)
    assert len(agent.executions["m-1"]) == 1


@both
@pytest.mark.parametrize(
    "body",
    [
        b'[{"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "busy"}}]',
        b'{"task": {"id": "1", "status": {"state": "TASK_STATE_WORKING"}}}',
        b'{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "busy"}}',
        b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
        b"[" * 200,
    ],
)
async def test_nor_does_one_around_what_an_agent_said(kind, body):
    agent = FakeAgent()
    agent.inject(Respond(status=429, headers={"retry-after": "1"}, body=body))

    async with client_of(kind, agent) as client:
        answer = await client.post(RPC, json=send())

    assert answer.status_code == 429
    assert agent.executions == {}


@both
async def test_what_is_not_known_is_not_sent_twice(kind):
    agent = FakeAgent()
    agent.inject(bad_gateway(), times=2)

    async with client_of(kind, agent) as client:
        unknown = await client.post("http://agent.test/else", content=b"x")
        batch = await client.post(RPC, json=[call("GetTask", id="1")])
        looked = await client.get("http://agent.test/else")

    assert (unknown.status_code, batch.status_code) == (502, 502)
    assert looked.status_code != 502


@both
async def test_retry_after_is_waited_for(kind):
    agent = FakeAgent()
    agent.inject(rate_limited(20), on="SendMessage")
    loop = asyncio.get_running_loop()

    async with client_of(kind, agent) as client:
        began = loop.time()
        answer = await client.post(RPC, json=send())

    assert answer.is_success
    assert loop.time() - began >= 20


@both
async def test_a_hint_beyond_what_is_waited_for_is_the_callers(kind):
    agent = FakeAgent()
    agent.inject(rate_limited(3600), on="SendMessage")

    async with client_of(kind, agent) as client:
        answer = await client.post(RPC, json=send())

    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "3600"


@both
async def test_a_whole_answer_belongs_to_the_try_even_where_events_were_asked_for(kind):
    agent = FakeAgent()

    async with client_of(kind, agent, headers=EVENTS) as client:
        task_id = await task_of(client)
        agent.inject(Cut(after_bytes=3), on="GetTask")
        answer = await client.post(RPC, json=call("GetTask", id=task_id))

    assert answer.json()["result"]["id"] == task_id


# ── What is raised ───────────────────────────────────────────────────────────────────────────


@both
@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (Refuse(), "ConnectError"),
        (Stall(phase="connect"), "ConnectTimeout"),
        (Stall(phase="first_byte"), "ReadTimeout"),
        (Stall(phase="idle"), "ReadTimeout"),
        (Reset(), "RemoteProtocolError"),
        (Cut(after_bytes=5), "RemoteProtocolError"),
        (Garbage(), "RemoteProtocolError"),
    ],
    ids=repr,
)
async def test_a_failure_is_of_the_librarys_own_class(kind, fault, name):
    agent = FakeAgent()
    agent.inject(fault, on="SendMessage", times=9)

    async with client_of(kind, agent, resilience=Resilience.off()) as client:
        with pytest.raises(kind.library.TransportError) as raised:
            await client.post(RPC, json=send())

    assert type(raised.value) is getattr(kind.library, name)
    assert raised.value.request.method == "POST"
    assert isinstance(raised.value.__cause__, A2AError)
    assert str(raised.value) == str(raised.value.__cause__)


@both
@pytest.mark.parametrize(
    ("last", "name"), [(Refuse(), "ReadError"), (Stall(phase="connect"), "ReadTimeout")]
)
async def test_what_an_earlier_try_has_sent_was_sent(kind, last, name):
    agent = FakeAgent()
    resilience = Resilience(retry=RetryPolicy(max_retries=1))

    async with client_of(kind, agent, resilience=resilience) as client:
        task_id = await task_of(client)
        agent.inject(Reset(after_execution=True), on="CancelTask")
        agent.inject(last, on="CancelTask")
        with pytest.raises(kind.library.TransportError) as raised:
            await client.post(RPC, json=call("CancelTask", id=task_id))

    assert type(raised.value) is getattr(kind.library, name)
    assert raised.value.__cause__.executed is None


@both
async def test_missing_server_is_a_connect_error(kind):
    async with client_of(kind) as client:
        with pytest.raises(kind.library.ConnectError) as raised:
            await client.post(RPC, json=send())

    assert raised.value.__cause__.failure == "dns"


@both
async def test_a_connection_that_was_gone_before_anything_left_is_a_connect_error(kind):
    class Gone(FakeNetwork):
        async def request(self, request):
            raise A2AConnectionError("gone", failure="disconnected", executed=False)

    async with client_of(kind, network=Gone()) as client:
        with pytest.raises(kind.library.ConnectError):
            await client.post(RPC, json=send())


@both
async def test_an_open_circuit_is_a_connect_error_for_that_agent_alone(kind):
    agent, other = FakeAgent(), FakeAgent(url="http://other.test")
    resilience = Resilience(retry=RetryPolicy(max_retries=0), breaker=BreakerPolicy(failures=2))
    agent.inject(Reset(), on="SendMessage", times=2)

    async with client_of(kind, agent, other, resilience=resilience) as client:
        for number in range(2):
            with pytest.raises(kind.library.RemoteProtocolError):
                await client.post(RPC, json=send(f"m-{number}"))
        with pytest.raises(kind.library.ConnectError) as raised:
            await client.post(RPC, json=send())
        elsewhere = await client.post("http://other.test/rpc", json=send())
        by_path = await client.post(f"{REST}/message:send", json={"message": message("m-9")})

    assert isinstance(raised.value.__cause__, CircuitOpenError)
    assert raised.value.__cause__.executed is False
    assert elsewhere.is_success
    assert by_path.is_success
    assert "m-1" not in agent.executions


@both
async def test_a_deadline_that_ends_a_try_is_a_read_timeout(kind):
    agent = FakeAgent()
    agent.inject(Delay(seconds=50), on="SendMessage")

    async with client_of(kind, agent, timeout=None, total=10) as client:
        with pytest.raises(kind.library.ReadTimeout) as raised:
            await client.post(RPC, json=send())

    assert isinstance(raised.value.__cause__, DeadlineExceededError)
    assert raised.value.__cause__.executed is None


@both
async def test_who_waits_in_line_was_never_sent(kind):
    agent = FakeAgent()
    resilience = Resilience(concurrency=ConcurrencyPolicy(limit=1, queue=1))
    agent.inject(Delay(seconds=50), on="SendMessage")
    transport = kind.Transport(engine=FakeNetwork(agent), resilience=resilience)

    async with (
        kind.library.AsyncClient(transport=transport, headers=VERSION, timeout=None) as client,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(client.post(RPC, json=send("a")))
        await asyncio.sleep(1)
        group.create_task(client.post(RPC, json=send("b")))
        await asyncio.sleep(1)
        with pytest.raises(kind.library.PoolTimeout) as raised:
            await client.post(RPC, json=send("c"))

    assert isinstance(raised.value.__cause__, QueueFullError)
    assert "c" not in agent.executions


@both
async def test_what_ends_in_the_line_is_a_pool_timeout(kind):
    agent = FakeAgent()
    resilience = Resilience(concurrency=ConcurrencyPolicy(limit=1))

    async with client_of(kind, agent, headers=EVENTS, resilience=resilience, total=10) as client:
        body = send("a", "SendStreamingMessage")
        async with client.stream("POST", RPC, json=body):  # which keeps the place
            with pytest.raises(kind.library.PoolTimeout) as raised:
                await client.post(RPC, json=send("b"))

    assert isinstance(raised.value.__cause__, DeadlineExceededError)
    assert raised.value.__cause__.executed is False
    assert list(agent.executions) == ["a"]


@both
async def test_the_callers_secrets_are_in_no_error_and_no_log(kind, caplog):
    agent = FakeAgent()
    secret = "very-secret-token-of-the-caller"
    echo = f"you said Bearer {secret} and key={secret}".encode()
    agent.inject(Respond(status=502, body=echo), on="GetTask", times=9)
    agent.inject(Garbage(data=echo), on="SendMessage", times=9)
    seen = []
    caplog.set_level("DEBUG")

    async with client_of(kind, agent, observers=[seen.append], resilience=PATIENT) as client:
        headers = {"authorization": f"Bearer {secret}", "x-api-key": secret}
        answer = await client.post(
            f"{RPC}?key={secret}", json=call("GetTask", id="1"), headers=headers
        )
        with pytest.raises(kind.library.TransportError) as raised:
            await client.post(f"{RPC}?key={secret}", json=send(), headers=headers)

    assert answer.content == echo
    cause = raised.value.__cause__
    texts = [str(raised.value), repr(cause), str(vars(cause)), *map(repr, seen)]
    own = [record.getMessage() for record in caplog.records if record.name == "holdfast"]
    assert own
    assert secret not in "".join([*texts, *own])


# ── Timeouts ─────────────────────────────────────────────────────────────────────────────────


@both
@pytest.mark.parametrize(
    ("theirs", "lasts"), [(5.0, 5.0), (None, 120.0), (500.0, 500.0), (5000.0, 900.0)]
)
async def test_the_clients_timeout_counts_for_each_try(kind, theirs, lasts):
    agent = FakeAgent()
    agent.inject(Stall(phase="first_byte"), on="SendMessage")
    loop = asyncio.get_running_loop()

    async with client_of(kind, agent, timeout=theirs) as client:
        began = loop.time()
        with pytest.raises(kind.library.ReadTimeout) as raised:
            await client.post(RPC, json=send())

    assert raised.value.__cause__.timeout == lasts
    assert loop.time() - began == pytest.approx(lasts)


@both
async def test_each_phase_has_the_clients_own(kind):
    seen = []

    class Engine(FakeNetwork):
        async def request(self, request):
            seen.append(request.timeouts)
            return await super().request(request)

    agent = FakeAgent()
    theirs = kind.library.Timeout(connect=1, read=2, write=3, pool=0)
    async with client_of(kind, network=Engine(agent), timeout=theirs) as client:
        await client.post(RPC, json=send())

    [found] = seen
    assert (found.connect, found.first_byte, found.idle, found.write) == (1, 2, 2, 3)
    assert 0 < found.pool < 0.01


# ── Streams ──────────────────────────────────────────────────────────────────────────────────


@both
@pytest.mark.parametrize("method", ["SendStreamingMessage", "message/stream"])
async def test_events_come_as_they_happen(kind, method):
    agent = FakeAgent("one two three", versions=("1.0", "0.3"))
    params = {"message": message()}
    headers = EVENTS
    if method == "message/stream":
        params = {"message": {"messageId": "m-1", "role": "user", "kind": "message",
                              "parts": [{"kind": "text", "text": "hi"}]}}  # fmt: skip
        headers = {"accept": "text/event-stream"}

    async with (
        client_of(kind, agent, headers=headers) as client,
        client.stream("POST", RPC, json=call(method, **params)) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        pieces = [piece async for piece in answer.aiter_bytes()]

    assert len(pieces) > 1
    assert b"".join(pieces).count(b"data:") > 1


@both
@pytest.mark.parametrize("fault", [Cut(after_events=1), Reset(after_events=1)], ids=repr)
async def test_a_cut_is_never_a_silent_end(kind, fault):
    agent = FakeAgent()
    agent.inject(fault, on="SendStreamingMessage")
    pieces = []

    async with client_of(kind, agent, headers=EVENTS) as client:
        with pytest.raises(kind.library.RemoteProtocolError) as raised:
            async with client.stream(
                "POST", RPC, json=send(method="SendStreamingMessage")
            ) as answer:
                pieces.extend([piece async for piece in answer.aiter_bytes()])

    assert raised.value.__cause__.failure == "truncated"
    assert raised.value.request.url == RPC
    assert len(agent.calls("SendStreamingMessage")) == 1
    assert agent.open_streams == 0


@both
async def test_nor_is_a_clean_end_within_an_event(kind):
    agent = FakeAgent()
    agent.inject(Cut(after_events=1, after_bytes=9, clean=True), on="SendStreamingMessage")

    async with client_of(kind, agent, headers=EVENTS) as client:
        with pytest.raises(kind.library.RemoteProtocolError, match="in the middle of an event"):
            await client.post(RPC, json=send(method="SendStreamingMessage"))


@both
async def test_silence_in_a_stream_is_a_read_timeout(kind):
    agent = FakeAgent()
    agent.inject(Stall(phase="idle", after_events=1), on="SendStreamingMessage")

    async with client_of(kind, agent, headers=EVENTS) as client:
        with pytest.raises(kind.library.ReadTimeout):
            await client.post(RPC, json=send(method="SendStreamingMessage"))

    assert agent.open_streams == 0


@both
async def test_a_subscription_is_opened_again_until_it_is_open(kind):
    agent = FakeAgent()
    agent.inject(bad_gateway(), on="SubscribeToTask")
    agent.inject(Refuse(), on="SubscribeToTask")

    async with client_of(kind, agent, headers=EVENTS) as client:
        task_id = await task_of(client)
        await client.post(RPC, json=call("SubscribeToTask", id=task_id))

    assert not agent.pending_faults
    assert len(agent.calls("SubscribeToTask")) == 1


@both
async def test_a_stream_continues_beyond_the_timeout_of_requests(kind):
    engine = Drip(seconds=60, times=30)

    async with client_of(kind, network=engine, headers=EVENTS, timeout=None, total=100) as client:
        answer = await client.post(RPC, json=send(method="SendStreamingMessage"))
        assert answer.content.count(b"data") == 30
        with pytest.raises(kind.library.ReadTimeout) as raised:
            await client.get("http://agent.test/file")

    assert isinstance(raised.value.__cause__, DeadlineExceededError)
    assert engine.open == 0


class Drip:
    """An engine whose replies come drop by drop."""

    def __init__(self, *, seconds, times, drop=b"data: 1\n\n"):
        self.seconds, self.times, self.drop = seconds, times, drop
        self.open = 0

    async def request(self, request):
        raise NotImplementedError

    @asynccontextmanager
    async def stream(self, request):
        self.open += 1
        kind = "text/event-stream" if request.method == "POST" else "text/plain"
        try:
            request.progress.sent = True
            yield SimpleNamespace(
                status=200, headers={"content-type": kind}, chunks=lambda: self.chunks(request)
            )
        finally:
            self.open -= 1

    async def chunks(self, request):
        for _ in range(self.times):
            await asyncio.sleep(self.seconds)
            yield self.drop

    async def close(self):
        pass


@both
async def test_what_streams_has_bounds(kind):
    limits = Limits(body=100, event=50)
    events = Drip(seconds=0, times=100, drop=b"data: and so on\n")
    async with client_of(kind, network=events, headers=EVENTS, limits=limits) as client:
        with pytest.raises(kind.library.DecodingError) as raised:
            await client.post(RPC, json=send(method="SendStreamingMessage"))
        assert raised.value.__cause__.which == "event"
        with pytest.raises(kind.library.DecodingError) as raised:
            await client.get("http://agent.test/file")
        assert raised.value.__cause__.which == "body"

    assert events.open == 0


@both
async def test_leaving_a_stream_frees_everything(kind):
    agent = FakeAgent()
    network = FakeNetwork(agent)
    resilience = Resilience(concurrency=ConcurrencyPolicy(limit=1))

    async with client_of(kind, network=network, headers=EVENTS, resilience=resilience) as client:
        for number in range(3):
            body = send(f"m-{number}", method="SendStreamingMessage")
            async with client.stream("POST", RPC, json=body) as answer:
                async for _ in answer.aiter_bytes():
                    break
            assert network.in_flight == 0
            assert agent.open_streams == 0
        await asyncio.sleep(0)  # until the library's own generators are gone


@both
async def test_a_response_that_is_forgotten_frees_its_place(kind):
    agent = FakeAgent()
    network = FakeNetwork(agent)

    async with client_of(kind, network=network, headers=EVENTS) as client:
        request = client.build_request("POST", RPC, json=send(method="SendStreamingMessage"))
        answer = await client.send(request, stream=True)
        assert network.in_flight == 1
        gone = weakref.ref(answer)
        del answer
        gc.collect()
        assert gone() is None
        await asyncio.sleep(0.1)
        assert network.in_flight == 0


class Slow(FakeNetwork):
    """An engine that takes its time to let go of a reply."""

    @asynccontextmanager
    async def stream(self, request, /):
        async with super().stream(request) as opened:
            try:
                yield opened
            finally:
                await asyncio.sleep(1)


@both
@pytest.mark.parametrize("pause", [None, 0, 0.5])
async def test_a_response_that_is_forgotten_is_let_go_of_before_closing_is_over(kind, pause):
    network = Slow(FakeAgent())

    async with client_of(kind, network=network, headers=EVENTS) as client:
        request = client.build_request("POST", RPC, json=send(method="SendStreamingMessage"))
        answer = await client.send(request, stream=True)
        del answer
        gc.collect()
        if pause is not None:
            await asyncio.sleep(pause)
        assert network.in_flight == 1

    assert network.in_flight == 0  # with the client


@both
async def test_cancelled_reader_frees_the_stream_without_a_close(kind):
    agent = FakeAgent()
    agent.inject(Stall(phase="idle", after_events=1), on="SendStreamingMessage")
    network = FakeNetwork(agent)

    async with client_of(kind, network=network, headers=EVENTS) as client:
        request = client.build_request("POST", RPC, json=send(method="SendStreamingMessage"))
        answer = await client.send(request, stream=True)

        async def reading():
            return [piece async for piece in answer.stream]

        task = asyncio.create_task(reading())
        await asyncio.sleep(1)
        assert network.in_flight == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

        assert task.cancelled()
        assert network.in_flight == 0


# ── Bodies and headers of requests ───────────────────────────────────────────────────────────


@both
async def test_a_body_that_is_a_stream_can_be_sent_again(kind):
    agent = FakeAgent()
    agent.inject(Refuse())
    made = []

    async def pieces():
        made.append(1)
        body = json.dumps(send()).encode()
        yield body[:10]
        await asyncio.sleep(1)
        yield body[10:]

    async with client_of(kind, agent) as client:
        answer = await client.post(RPC, content=pieces())

    assert answer.is_success
    assert len(made) == 1
    assert list(agent.executions) == ["m-1"]
    assert "transfer-encoding" not in agent.received[0].headers


@both
async def test_a_stream_of_a_body_has_bounds(kind):
    agent = FakeAgent()

    async def pieces():
        while True:
            yield b"x" * 1000

    async def late():
        await asyncio.sleep(10_000)
        yield b""

    async with client_of(kind, agent, limits=Limits(body=5000)) as client:
        with pytest.raises(kind.library.WriteError) as raised:
            await client.post(RPC, content=pieces())
        with pytest.raises(kind.library.WriteTimeout):
            await client.post(RPC, content=late())
        large = await client.post(RPC, content=b"x" * 10_000)  # which was in memory already

    assert isinstance(raised.value.__cause__, LimitExceededError)
    assert raised.value.__cause__.executed is False
    assert len(agent.received) == 1
    assert large is not None


@both
async def test_the_callers_own_failure_is_the_callers(kind):
    async def pieces():
        yield b"{"
        raise KeyError

    async with client_of(kind, FakeAgent()) as client:
        with pytest.raises(KeyError):
            await client.post(RPC, content=pieces())


@both
@pytest.mark.parametrize("url", ["ftp://agent.test/x", "agent.test/x"])
async def test_other_addresses_are_refused(kind, url):
    async with client_of(kind, FakeAgent()) as client:
        with pytest.raises(kind.library.UnsupportedProtocol):
            await client.get(url)


# ── Observers, sharing, hedging ──────────────────────────────────────────────────────────────


@both
async def test_observers_hear_the_operations_name(kind):
    agent = FakeAgent()
    agent.inject(bad_gateway(), on="GetTask")
    seen = []

    async with client_of(kind, agent, observers=[seen.append]) as client:
        await client.post(RPC, json=call("GetTask", id="1"))
        await client.post(f"{REST}/message:stream", json={"message": message()}, headers=EVENTS)
        await client.get("http://agent.test/.well-known/agent-card.json")
        await client.put("http://agent.test/else")

    over = [one.method for one in seen if isinstance(one, OperationFinished)]
    assert over == ["GetTask", "SendStreamingMessage", "GetAgentCard", "HTTP PUT"]
    [again] = [one for one in seen if isinstance(one, RetryScheduled)]
    assert (again.method, again.endpoint) == ("GetTask", RPC)
    assert isinstance(again.error, A2AHTTPError)


@both
async def test_what_is_known_of_an_agent_is_shared_with_clients(kind):
    agent = FakeAgent()
    shared = Endpoints()
    resilience = Resilience(retry=RetryPolicy(max_retries=0), breaker=BreakerPolicy(failures=1))
    network = FakeNetwork(agent)
    agent.inject(Reset(), on="SendMessage")

    async with (
        client_of(kind, network=network, resilience=resilience, shared=shared) as client,
        connect(agent.url, engine=network, resilience=resilience, shared=shared) as own,
    ):
        with pytest.raises(kind.library.RemoteProtocolError):
            await client.post(RPC, json=send())
        with pytest.raises(CircuitOpenError):
            await own.get_task("1")


@both
async def test_a_read_may_be_asked_twice(kind):
    agent = FakeAgent()
    resilience = Resilience(hedge=HedgePolicy(min_delay=1.0))

    async with client_of(kind, agent, resilience=resilience) as client:
        task_id = await task_of(client)
        for _ in range(30):
            await client.post(RPC, json=call("GetTask", id=task_id))
        agent.inject(Delay(seconds=40), on="GetTask")
        answer = await client.post(RPC, json=call("GetTask", id=task_id))

    assert answer.json()["result"]["id"] == task_id


# ── Arguments ────────────────────────────────────────────────────────────────────────────────


@both
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"resilience": 3}, TypeError),
        ({"timeout": 0}, ValueError),
        ({"timeout": "5"}, TypeError),
        ({"limits": 3}, TypeError),
        ({"engine": 3}, TypeError),
        ({"shared": {}}, TypeError),
        ({"env": 3}, TypeError),
        ({"observers": [3]}, TypeError),
    ],
    ids=repr,
)
def test_a_wrong_argument_is_reported_at_once(kind, wrong, error):
    with pytest.raises(error, match=next(iter(wrong))):
        kind.Transport(**wrong)


@both
def test_it_is_a_transport_of_the_library(kind):
    assert issubclass(kind.Transport, kind.library.AsyncBaseTransport)
    assert issubclass(kind.Transport, BaseTransport)


@pytest.mark.parametrize("name", ["httpx", "httpx2"])
def test_a_missing_library_is_reported_with_its_extra(name):
    script = (
        f"import sys; sys.modules[{name!r}] = None\n"
        f"try:\n    import holdfast.integrations.{name}\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert f'pip install ".[{name}]"' in done.stdout


def test_the_one_library_does_not_need_the_other():
    for name, other in (("httpx", "httpx2"), ("httpx2", "httpx")):
        script = f"import sys; sys.modules[{other!r}] = None; import holdfast.integrations.{name}"
        subprocess.run([sys.executable, "-c", script], check=True)
        assert importlib.import_module(f"holdfast.integrations.{name}").__all__ == ["Transport"]


# ── The official SDK above it ────────────────────────────────────────────────────────────────


@asynccontextmanager
async def sdk_of(agent, binding="JSONRPC", *, streaming=False, timeout=5.0, network=None):
    network = FakeNetwork(agent) if network is None else network
    transport = HTTPX.Transport(engine=network)
    async with httpx.AsyncClient(transport=transport, timeout=timeout) as client:
        card = await A2ACardResolver(client, agent.url).get_agent_card()
        config = ClientConfig(
            httpx_client=client,
            streaming=streaming,
            supported_protocol_bindings=[binding],
            use_client_preference=True,
        )
        async with ClientFactory(config).create(card) as sdk:
            yield sdk
    assert network.in_flight == 0


def sdk_message(message_id="m-1", text="hello"):
    return SendMessageRequest(
        message=Message(message_id=message_id, role=Role.ROLE_USER, parts=[Part(text=text)])
    )


async def events_of(sdk, request):
    return [event async for event in sdk.send_message(request)]


bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


@bindings
@pytest.mark.parametrize("streaming", [False, True])
async def test_the_sdk_works_through_what_would_stop_it(binding, streaming):
    agent = FakeAgent()
    agent.inject(Respond(status=503), on="GetAgentCard")

    async with sdk_of(agent, binding, streaming=streaming) as sdk:
        name = "SendStreamingMessage" if streaming else "SendMessage"
        agent.inject(rate_limited(1), on=name)
        agent.inject(Refuse(), on=name)
        events = await events_of(sdk, sdk_message())
        task_id = events[0].task.id
        for fault in (Reset(), bad_gateway(), Stall(phase="first_byte")):
            agent.inject(fault, on="GetTask")
        task = await sdk.get_task(GetTaskRequest(id=task_id))
        agent.inject(Reset(after_execution=True), on="CancelTask")

    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert task.artifacts[0].parts[0].text == "hello"
    assert list(map(len, agent.executions.values())) == [1]


@bindings
@pytest.mark.parametrize("streaming", [False, True])
async def test_the_sdk_does_not_send_a_message_twice(binding, streaming):
    agent = FakeAgent()
    name = "SendStreamingMessage" if streaming else "SendMessage"

    async with sdk_of(agent, binding, streaming=streaming) as sdk:
        agent.inject(Stall(phase="first_byte", after_execution=True), on=name)
        with pytest.raises(A2AClientTimeoutError) as raised:
            await events_of(sdk, sdk_message())

    assert isinstance(raised.value.__cause__, httpx.ReadTimeout)
    assert isinstance(raised.value.__cause__.__cause__, A2AError)
    assert len(agent.calls(name)) == 1
    assert len(agent.executions["m-1"]) == 1


@bindings
async def test_the_sdk_reads_the_agents_own_errors(binding):
    agent = FakeAgent()

    async with sdk_of(agent, binding) as sdk:
        with pytest.raises(SdkTaskNotFoundError):
            await sdk.get_task(GetTaskRequest(id="nobody"))
        with pytest.raises(SdkTaskNotFoundError):
            await sdk.cancel_task(CancelTaskRequest(id="nobody"))


@pytest.fixture(params=["sdk_url", "sdk03_url"], ids=["1.0", "0.3"])
def real_agent(request):
    return request.getfixturevalue(request.param)


@pytest.mark.sdk
@pytest.mark.real_time
@bindings
@pytest.mark.parametrize("streaming", [False, True])
async def test_the_sdk_talks_to_real_agents_through_it(real_agent, binding, streaming):
    async with (
        asyncio.timeout(PATIENCE),
        httpx.AsyncClient(transport=HTTPX.Transport(), timeout=PATIENCE) as client,
    ):
        card = await A2ACardResolver(client, real_agent).get_agent_card()
        config = ClientConfig(
            httpx_client=client,
            streaming=streaming,
            supported_protocol_bindings=[binding],
            use_client_preference=True,
        )
        async with ClientFactory(config).create(card) as sdk:
            first, *others = await events_of(sdk, sdk_message("m-real", "echo hello"))
            task = await sdk.get_task(GetTaskRequest(id=first.task.id))

    assert bool(others) is streaming
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert "hello" in str(task.artifacts)


# ── Cancellation ─────────────────────────────────────────────────────────────────────────────


class Rough(FakeNetwork):
    """A network where everything takes some time, and much goes wrong."""

    def __init__(self, agent, dice):
        super().__init__(agent, latency=0.01)
        self.dice = dice
        self.agent = agent
        self.is_calm = False

    def stream(self, request):
        if not self.is_calm and self.dice.random() < 0.3:
            fault = self.dice.choice([bad_gateway(), rate_limited(0.2), Reset(), Refuse()])
            self.agent.inject(fault)
        return super().stream(request)


@pytest.mark.parametrize("seed", range(rounds(2, 4)))
@both
def test_a_storm_of_cancellations_leaves_nothing_behind(kind, seed):
    dice = random.Random(seed)

    async def main():
        agent = FakeAgent(latency=0.05)
        network = Rough(agent, dice)
        resilience = Resilience(
            concurrency=ConcurrencyPolicy(limit=20, queue=10_000), budget=None, breaker=None
        )
        transport = kind.Transport(engine=network, resilience=resilience)
        async with kind.library.AsyncClient(
            transport=transport, headers=EVENTS, timeout=30
        ) as client:

            async def one(number):
                method = dice.choice(["SendMessage", "SendStreamingMessage", "GetTask"])
                body = call("GetTask", id="1") if method == "GetTask" else send(
                    f"m-{number}", method
                )  # fmt: skip
                async with client.stream("POST", RPC, json=body) as answer:
                    async for _ in answer.aiter_bytes():
                        await asyncio.sleep(dice.uniform(0, 0.1))

            tasks = [asyncio.create_task(one(number)) for number in range(300)]
            for _ in tasks:
                await asyncio.sleep(dice.uniform(0, 0.02))
                dice.choice(tasks).cancel()
            await asyncio.sleep(dice.uniform(0, 2))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

            assert network.in_flight == 0
            assert agent.open_streams == 0
            network.is_calm = True  # and every place is free for as many as there are
            agent._faults.clear()
            async with asyncio.TaskGroup() as group:
                for _ in range(20):
                    group.create_task(client.post(RPC, json=call("ListTasks")))
        assert all(len(made) <= 1 for made in agent.executions.values())

    run(main(), seed=seed)


# ── On sockets ───────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def on_sockets(kind, script=None, *, engine=None, **options):
    async with asyncio.timeout(PATIENCE), serve(script) as server:
        retry = RetryPolicy(base_delay=0.001, max_delay=0.001)
        options.setdefault("resilience", Resilience(retry=retry, breaker=None))
        transport = kind.Transport(engine=engine, **options)
        async with kind.library.AsyncClient(transport=transport, timeout=PATIENCE) as client:
            yield server, client


def answers(*scripts):
    """The first connections get a script of their own each, all others an answer."""
    left = list(scripts)

    async def script(connection):
        if left:
            await left.pop(0)(connection)
            return
        while await connection.request() is not None:
            await connection.send(reply(b'{"done": true}'))

    return script


async def resets_unread(connection):
    await connection.first_bytes()
    connection.reset()


async def resets_after_reading(connection):
    await connection.request()
    connection.reset()


async def cuts_short(connection):
    await connection.request()
    await connection.send(head("Content-Length: 100"), b"half")


FAULTS = [resets_unread, resets_after_reading, cuts_short]


@both
@pytest.mark.real_time
@pytest.mark.parametrize("fault", FAULTS)
async def test_on_sockets_a_read_is_tried_again(kind, fault):
    async with on_sockets(kind, answers(fault, fault)) as (server, client):
        answer = await client.post(server.url, json=call("GetTask", id="1"))

        assert answer.json() == {"done": True}
        assert len(server.connections) == 3


@both
@pytest.mark.real_time
@pytest.mark.parametrize("fault", FAULTS)
async def test_on_sockets_a_message_that_left_is_not(kind, fault):
    async with on_sockets(kind, answers(fault)) as (server, client):
        with pytest.raises(kind.library.RemoteProtocolError) as raised:
            await client.post(server.url, json=send())

        assert raised.value.__cause__.executed is None
        assert len(server.connections) == 1


@both
@pytest.mark.real_time
@pytest.mark.parametrize(
    "refusal",
    [
        reply(b"packed", "Content-Encoding: br", status="429 Too Many Requests"),
        reply(b" " * 2000, status="429 Too Many Requests"),
        head(CHUNKED, status="429 Too Many Requests") + chunk(b" " * 2000) + chunk(b""),
    ],
    ids=["unreadable", "large", "large, in chunks"],
)
@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_on_sockets_an_unreadable_refusal_may_come_from_an_agent(kind, refusal, method):
    async def script(connection):
        while await connection.request() is not None:
            await connection.send(refusal)

    async with on_sockets(kind, script, limits=Limits(body=1000)) as (server, client):
        answer = await client.post(server.url, json=send(method=method))

        assert answer.status_code == 429
        assert len(server.requests) == 1


@both
@pytest.mark.real_time
async def test_on_sockets_a_refused_connection_is_a_connect_error(kind):
    async with serve() as server:
        url = server.url
    async with on_sockets(kind) as (_, client):
        with pytest.raises(kind.library.ConnectError) as raised:
            await client.post(url, json=send())

    assert isinstance(raised.value.__cause__, A2AConnectionError)
    assert (raised.value.__cause__.failure, len(raised.value.__cause__.attempts)) == ("refused", 4)


@both
@pytest.mark.real_time
async def test_on_sockets_what_cannot_be_sent_is_reported_without_its_secret(kind):
    async with on_sockets(kind) as (server, client):
        with pytest.raises(kind.library.LocalProtocolError) as raised:
            await client.post(server.url, json=send(), headers={"X-Token": "hidden-\r\nvalue"})

        assert "hidden" not in str(raised.value)
        assert raised.value.__cause__.executed is False
        assert server.requests == []


@both
@pytest.mark.real_time
async def test_on_sockets_headers_are_carried_as_they_are(kind):
    answer_head = head(
        "Content-Length: 2",
        "Set-Cookie: a=1",
        "Set-Cookie: b=2",
        "X-Name: gr\u00fc\u00df",
        status="200 OK",
    )

    async def script(connection):
        while await connection.request() is not None:
            await connection.send(answer_head + b"{}")

    async with on_sockets(kind, script) as (server, client):
        client.cookies.set("seen", "1")
        answer = await client.post(
            server.url,
            json=send(),
            headers=[("X-Own", "one"), ("X-Own", "two"), ("Host", "other.test"), ("TE", "x")],
        )
        client.cookies.clear()
        twice = [("Accept-Encoding", "br"), ("Cookie", "a=1"), ("Cookie", "b=2")]
        await client.get(server.url, headers=twice)
        first, second = server.requests

    assert header(first, "x-own") == "one, two"
    assert header(first, "host") == "other.test"
    assert header(first, "cookie") == "seen=1"
    assert header(first, "te") is None
    assert header(first, "user-agent").startswith("python-httpx")
    assert header(first, "content-type") == "application/json"
    assert first.count(b"\r\ncontent-length:") + first.count(b"\r\nContent-Length:") == 1
    assert header(second, "accept-encoding") == "identity"
    assert header(second, "cookie") == "a=1; b=2"
    assert header(second, "content-type") is None
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert answer.cookies["b"] == "2"
    assert answer.headers["x-name"] == "gr\u00fc\u00df"


@both
@pytest.mark.real_time
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "GET"])
@pytest.mark.parametrize("content", [None, b'{"a": 1}'])
async def test_on_sockets_what_a_body_is_only_its_writer_says(kind, method, content):
    async with on_sockets(kind) as (server, client):
        await client.request(method, server.url, content=content)
        typed = {"Content-Type": "text/plain"}
        await client.request(method, server.url, content=content, headers=typed)

        said = [header(request, "content-type") for request in server.requests]
        assert said == [None, "text/plain"]


@both
@pytest.mark.real_time
async def test_on_sockets_what_is_compressed_is_unpacked_once(kind):
    packed = gzip.compress(b'{"text": "hello"}')
    whole = reply(packed, "Content-Encoding: gzip")

    async def script(connection):
        while await connection.request() is not None:
            await connection.send(whole)

    async with on_sockets(kind, script) as (server, client):
        known = await client.post(server.url, json=call("GetTask", id="1"))
        foreign = await client.get(f"{server.url}file")

    assert known.json() == foreign.json() == {"text": "hello"}
    for answer in (known, foreign):
        assert "content-encoding" not in answer.headers
        assert "content-length" not in answer.headers


@both
@pytest.mark.real_time
async def test_on_sockets_a_bomb_is_not_unpacked(kind):
    packed = gzip.compress(b" " * 50_000_000)

    async def script(connection):
        while await connection.request() is not None:
            await connection.send(reply(packed, "Content-Encoding: gzip"))

    async with on_sockets(kind, script) as (server, client):
        for request in (
            client.post(server.url, json=call("GetTask", id="1")),
            client.get(f"{server.url}file"),
        ):
            with pytest.raises(kind.library.DecodingError) as raised:
                await request
            assert isinstance(raised.value.__cause__, LimitExceededError)


@both
@pytest.mark.real_time
async def test_on_sockets_pieces_come_as_they_arrive_and_a_cut_raises(kind):
    go_on = asyncio.Event()

    async def script(connection):
        await connection.request()
        await connection.send(head(SSE, CHUNKED), chunk(b"data: 1\n\n"))
        await go_on.wait()
        await connection.send(chunk(b"data: 2\n\n"))
        connection.reset()

    async with on_sockets(kind, script) as (server, client):
        pieces = []
        with pytest.raises(kind.library.RemoteProtocolError):  # noqa: PT012
            async with client.stream("GET", server.url) as answer:
                async for piece in answer.aiter_bytes():
                    pieces.append(piece)
                    go_on.set()

    assert pieces[0] == b"data: 1\n\n"


@both
@pytest.mark.real_time
async def test_on_sockets_an_abandoned_response_lets_go_of_its_connection(kind):
    async def script(connection):
        if await connection.request() is None:
            return
        await connection.send(head(SSE, CHUNKED), chunk(b"data: 1\n\n"))
        await connection.until_gone()

    async with (
        AiohttpEngine(max_streams=1) as engine,
        on_sockets(kind, script, engine=engine) as (server, client),
    ):
        for _ in range(3):
            async with client.stream("GET", server.url) as answer:
                async for _ in answer.aiter_bytes():
                    break
        await server.until(lambda: len(server.connections) == 3)
        for connection in server.connections:
            await connection.gone.wait()


@both
@pytest.mark.real_time
async def test_on_sockets_a_head_has_no_body_and_a_204_neither(kind):
    async def script(connection):
        while (request := await connection.request()) is not None:
            if request.startswith(b"HEAD"):
                await connection.send(head("Content-Length: 10"))
            else:
                await connection.send(head(status="204 No Content"))

    async with on_sockets(kind, script) as (server, client):
        looked = await client.head(server.url)
        deleted = await client.delete(f"{server.url}tasks/1/pushNotificationConfigs/2")

    assert (looked.content, looked.headers["content-length"]) == (b"", "10")
    assert (deleted.status_code, deleted.content) == (204, b"")


@both
@pytest.mark.real_time
async def test_on_sockets_the_password_of_an_address_is_not_in_it(kind):
    async with on_sockets(kind) as (server, client):
        url = server.url.replace("http://", "http://user:pass-word@")
        await client.get(f"{url}x?a=%2Fb#there")
        [request] = server.requests

    assert request.startswith(b"GET /x?a=%2Fb HTTP/1.1\r\n")
    assert header(request, "host") == f"127.0.0.1:{server.port}"
    assert header(request, "authorization").startswith("Basic ")


@both
def test_it_works_in_a_second_event_loop(kind):
    transport = kind.Transport()

    async def once(url):
        async with kind.library.AsyncClient(transport=transport) as client:
            return (await client.post(url, json=call("GetTask", id="1"))).status_code

    with serve_in_thread() as server:
        assert [asyncio.run(once(server.url)) for _ in range(2)] == [200, 200]


@both
@pytest.mark.real_time
async def test_closing_ends_calls_in_flight(kind):
    async def script(connection):
        await connection.request()
        await connection.stall()

    async with asyncio.timeout(PATIENCE), serve(script) as server:
        transport = kind.Transport()
        client = kind.library.AsyncClient(transport=transport, timeout=PATIENCE)
        request = asyncio.create_task(client.post(server.url, json=send()))
        await server.until(lambda: server.requests)
        await client.aclose()
        with pytest.raises(kind.library.ReadError) as raised:
            await request
        assert raised.value.__cause__.failure == "closed"


@both
@pytest.mark.real_time
async def test_who_is_cancelled_while_closing_leaves_no_connection_behind(kind):
    all_gone = asyncio.Barrier(3)

    async def script(connection):
        await connection.request()
        is_stream = len(server.requests) == 1
        await connection.send(
            *([head(SSE, CHUNKED), chunk(b"data: 1\n\n")] if is_stream else [reply()])
        )
        await connection.until_gone()
        await all_gone.wait()

    async with on_sockets(kind, script) as (server, client):
        request = client.build_request(
            "POST", server.url, json=send(method="SendStreamingMessage")
        )
        request.headers["accept"] = "text/event-stream"
        forgotten = await client.send(request, stream=True)
        await client.post(server.url, json=send())  # leaves a connection in the pool
        del forgotten
        gc.collect()  # what is forgotten is let go of in the background, and waited for
        closing = asyncio.create_task(client.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)

        assert closing.cancelled()
        await all_gone.wait()


@both
@pytest.mark.real_time
@pytest.mark.parametrize("framing", [CHUNKED, "Connection: close"])
@pytest.mark.parametrize("method", ["GetTask", "SendStreamingMessage"])
async def test_closing_never_looks_like_the_end_of_a_response(kind, framing, method):
    piece = b"data: 1\n\n"

    async def script(connection):
        await connection.request()
        await connection.send(head(SSE, framing), chunk(piece) if framing == CHUNKED else piece)
        await connection.until_gone()

    async with on_sockets(kind, script) as (server, client):
        request = client.build_request("POST", server.url, json=send(method=method))
        request.headers["accept"] = "text/event-stream"
        answer = await client.send(request, stream=True)
        pieces = answer.aiter_raw()
        assert await anext(pieces) == piece
        await client.aclose()

        with pytest.raises(kind.library.ReadError) as raised:
            await anext(pieces)
        assert raised.value.__cause__.failure == "closed"
        await answer.aclose()
