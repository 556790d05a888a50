"""The fake agent behind a real socket: what it answers, how it fails, what it survives."""

import asyncio
import contextlib
import gc
import json
import re
import runpy
import socket
import sys

import pytest
from msgspec.structs import replace
from tests.kit.event_streams import frames_of
from tests.kit.paths import ROOT
from tests.kit.ports import reserve_port

from holdfast import A2AConnectionError, A2ATimeoutError, Resilience, TaskState, connect
from holdfast.errors import A2AError
from holdfast.extend import AiohttpEngine, HttpRequest
from holdfast.policies import Limits, Timeouts
from holdfast.testing import (
    Cut,
    Delay,
    Duplicate,
    Fail,
    FakeAgent,
    FakeNetwork,
    Garbage,
    LoopbackServer,
    Refuse,
    Reset,
    Respond,
    Stall,
    Streaming,
    bad_gateway,
    completes,
    crashes,
    rate_limited,
    streams,
    unavailable,
    works_forever,
)

pytestmark = pytest.mark.real_time

HANGING = 120
"""Seconds after which a wait hangs."""

LIMIT = 10
"""Seconds of each timeout of a client; nothing here should come near them."""

SEND = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": "1",
        "method": "SendMessage",
        "params": {
            "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        },
    }
).encode()


STREAM = SEND.replace(b"SendMessage", b"SendStreamingMessage")


def request_bytes(body=SEND, *headers, first="POST /rpc HTTP/1.1"):
    lines = [first, "Host: x", "A2A-Version: 1.0", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Client:
    """A raw connection to a server."""

    def __init__(self, reader, writer):
        self._reader = reader
        self._writer = writer

    @classmethod
    async def of(cls, server):
        port = int(server.url.rpartition(":")[2])
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self._writer.close()

    async def send(self, data):
        self._writer.write(data)
        await self._writer.drain()

    def leave(self):
        self._writer.transport.abort()

    async def reply(self):
        """Status, headers and body of the next reply."""
        async with asyncio.timeout(HANGING):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.split("\r\n")[:-2]
            headers = dict(line.split(": ", 1) for line in lines)
            body = await self._reader.readexactly(int(headers["content-length"]))
        return int(first.split(" ")[1]), headers, body

    async def head(self):
        """Status line and headers of the next reply."""
        async with asyncio.timeout(HANGING):
            first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        return first, dict(line.split(": ", 1) for line in lines)

    async def chunk(self):
        """The next chunk of a reply; empty at its end."""
        async with asyncio.timeout(HANGING):
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            data = await self._reader.readexactly(size + 2)
        assert data.endswith(b"\r\n")
        return data[:-2]

    async def rest(self):
        """Everything until the server closes."""
        async with asyncio.timeout(HANGING):
            return await self._reader.read()


async def something(look):
    """Looks until there is something."""
    while True:
        if look():
            return
        await asyncio.sleep(0.01)


# ── What it serves ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a_client_talks_to_the_agent_behind_it(binding):
    agent = FakeAgent()
    async with (
        LoopbackServer(agent) as server,
        connect(server.url, bindings=[binding]) as client,
    ):
        answer = await client.ask("hello")
        card = await client.get_extended_agent_card()
        again = await client.ask("again")

    assert (answer.text, again.text) == ("hello", "again")
    assert card.supported_interfaces[0].url == f"{server.url}/rpc"


async def test_a_connection_serves_one_request_after_the_other():
    agent = FakeAgent()
    async with LoopbackServer(agent) as server, await Client.of(server) as client:
        for _ in range(3):
            await client.send(request_bytes())
            status, headers, body = await client.reply()
            assert (status, headers["content-type"]) == (200, "application/json")
            assert b"hello" in body

        assert server.connections == 1
    assert len(agent.received) == 3


async def test_requests_that_come_in_one_piece_are_answered_in_order():
    agent = FakeAgent()
    async with LoopbackServer(agent) as server, await Client.of(server) as client:
        await client.send(
            request_bytes() + request_bytes(b"", first="GET /rest/tasks/nope HTTP/1.1")
        )

        assert [(await client.reply())[0] for _ in range(2)] == [200, 404]


async def test_a_request_that_comes_byte_by_byte_is_read():
    async with LoopbackServer(FakeAgent()) as server, await Client.of(server) as client:
        for byte in request_bytes():
            await client.send(bytes([byte]))
            await asyncio.sleep(0)

        assert (await client.reply())[0] == 200


async def test_a_client_that_asks_for_it_is_hung_up_on():
    async with LoopbackServer(FakeAgent()) as server, await Client.of(server) as client:
        await client.send(request_bytes(SEND, "Connection: close"))

        reply = await client.rest()

    assert reply.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"connection: close\r\n" in reply


async def test_a_blocking_send_waits_for_the_task():
    agent = FakeAgent(lambda turn: completes("done", after=0.05))
    async with LoopbackServer(agent) as server, connect(server.url) as client:
        assert (await client.send_message("hello")).state is TaskState.COMPLETED


async def test_a_port_can_be_named():
    port = reserve_port()
    async with LoopbackServer(FakeAgent(), port=port) as server:
        assert server.url == f"http://127.0.0.1:{port}"


# ── Clients that do not behave ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),  # which may have no line end
        (b"GET /\r\n\r\n", 400),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / SSH/2.0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n folded: yes\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: some\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000, 431),
    ],
)
async def test_what_is_no_request_is_refused_and_hung_up_on(data, status):
    agent = FakeAgent()
    async with LoopbackServer(agent) as server:
        async with await Client.of(server) as client:
            await client.send(data)
            with_status = (await client.rest())[:12]
        async with await Client.of(server) as client:
            await client.send(request_bytes())
            assert (await client.reply())[0] == 200

    assert with_status == b"HTTP/1.1 %d" % status
    assert len(agent.received) == 1


@pytest.mark.parametrize("count", [0, 1, 20, -1])
async def test_a_client_that_leaves_in_the_middle_is_survived(count):
    agent = FakeAgent()
    async with LoopbackServer(agent) as server:
        leaving = await Client.of(server)
        await leaving.send(request_bytes()[:count])
        leaving.leave()
        closing = await Client.of(server)
        await closing.send(request_bytes()[:count])
        await closing.__aexit__()
        async with await Client.of(server) as client:
            await client.send(request_bytes())
            assert (await client.reply())[0] == 200
    assert len(agent.received) == 1


async def test_a_client_that_does_not_wait_is_survived():
    agent = FakeAgent(latency=0.02)
    async with LoopbackServer(agent) as server:
        for _ in range(5):
            client = await Client.of(server)
            await client.send(request_bytes())
            client.leave()
        async with await Client.of(server) as client:
            await client.send(request_bytes())
            assert (await client.reply())[0] == 200


async def test_a_client_that_does_not_read_does_not_keep_the_server():
    agent = FakeAgent()
    agent.inject(Respond(status=200, body=b"x" * 30_000_000))
    client = None
    async with LoopbackServer(agent) as server:
        client = await Client.of(server)
        client._writer.transport.pause_reading()
        await client.send(request_bytes())
        async with await Client.of(server) as other:
            await other.send(request_bytes())
            assert (await other.reply())[0] == 200
    client.leave()


# ── Streams ──────────────────────────────────────────────────────────────────────────────────


async def test_each_event_of_a_stream_is_a_chunk_as_soon_as_it_happens():
    agent = FakeAgent(streams("a", "b", every=0.01))
    async with LoopbackServer(agent) as server, await Client.of(server) as client:
        await client.send(request_bytes(STREAM))
        first, headers = await client.head()
        chunks = []
        while chunk := await client.chunk():
            chunks.append(chunk)

        assert first == "HTTP/1.1 200 OK"
        assert headers["content-type"] == "text/event-stream"
        assert headers["transfer-encoding"] == "chunked"
        assert "content-length" not in headers
        assert [len(frames_of(chunk)) for chunk in chunks] == [1] * 5

        await client.send(request_bytes(b"", first="GET /rest/tasks HTTP/1.1"))
        assert (await client.reply())[0] == 200
        assert (agent.open_streams, server.connections) == (0, 1)


async def test_the_head_of_a_stream_comes_before_its_first_event():
    agent = FakeAgent(streams("a", every=1000), streaming=Streaming(snapshot=False))
    async with LoopbackServer(agent) as server, await Client.of(server) as client:
        await client.send(request_bytes(STREAM))
        await client.head()
        await client.chunk()
        async with await Client.of(server) as other:
            path = f"/rest/tasks/{next(iter(agent.tasks))}:subscribe"
            await other.send(request_bytes(b"", first=f"GET {path} HTTP/1.1"))
            assert (await other.head())[0] == "HTTP/1.1 200 OK"


@pytest.mark.parametrize("leave", [Client.leave, Client.__aexit__])
async def test_a_client_that_leaves_a_stream_frees_it(leave):
    agent = FakeAgent(streams("a", every=1000))
    async with LoopbackServer(agent) as server:
        client = await Client.of(server)
        await client.send(request_bytes(STREAM))
        await client.head()
        assert agent.open_streams == 1

        if leave is Client.leave:
            client.leave()
        else:
            await client.__aexit__()

        async with asyncio.timeout(HANGING):
            await something(lambda: agent.open_streams == 0)
        assert len(agent.tasks) == 1
        async with asyncio.timeout(HANGING):
            await something(lambda: not server._handlers)


async def test_a_client_that_does_not_read_its_stream_may_leave_too():
    agent = FakeAgent(streams(*["x" * 1_000_000] * 30))
    async with LoopbackServer(agent) as server:
        client = await Client.of(server)
        client._writer.transport.pause_reading()
        await client.send(request_bytes(STREAM))
        async with await Client.of(server) as other:
            await other.send(request_bytes(b"", first="GET /rest/tasks/nope HTTP/1.1"))
            assert (await other.reply())[0] == 404
        assert agent.open_streams == 1
        client.leave()
        async with asyncio.timeout(HANGING):
            await something(lambda: agent.open_streams == 0)


async def test_a_client_that_talks_into_its_stream_is_hung_up_on_after_it():
    agent = FakeAgent(streams("a", every=0.05))
    async with LoopbackServer(agent) as server, await Client.of(server) as client:
        await client.send(request_bytes(STREAM) + request_bytes())
        reply = await client.rest()

    assert reply.endswith(b"0\r\n\r\n")
    assert len(agent.received) == 1


async def test_leaving_ends_open_streams():
    before = asyncio.all_tasks()
    agent = FakeAgent(streams("a", every=1000), streaming=Streaming(keep_alive=0.01))
    async with LoopbackServer(agent) as server:
        client = await Client.of(server)
        await client.send(request_bytes(STREAM))
        await client.head()

    assert asyncio.all_tasks() == before
    assert agent.open_streams == 0
    client.leave()
    timers = asyncio.get_running_loop()._scheduled
    assert [timer for timer in timers if not timer.cancelled()] == []


# ── Leaving ──────────────────────────────────────────────────────────────────────────────────


async def test_leaving_frees_everything():
    before = asyncio.all_tasks()
    agent = FakeAgent(lambda turn: works_forever())
    async with LoopbackServer(agent) as server:
        idle, waiting, stalled = [await Client.of(server) for _ in range(3)]
        await waiting.send(request_bytes())
        agent.inject(Stall(), on="GetTask")
        await stalled.send(request_bytes(b"", first="GET /rest/tasks/x HTTP/1.1"))
        await something(lambda: agent.received)

    assert asyncio.all_tasks() == before
    for client in (idle, waiting, stalled):
        with contextlib.suppress(ConnectionResetError):  # what it still had to read was dropped
            assert await client.rest() == b""
        client.leave()
    await asyncio.sleep(0)
    gc.collect()  # a ResourceWarning is an error


async def test_it_can_be_entered_again():
    server = LoopbackServer(FakeAgent())
    urls = []
    for _ in range(2):
        async with server, connect(server.url) as client:
            urls.append(server.url)
            assert (await client.ask("hello")).text == "hello"
    assert urls[0] == urls[1]


async def test_what_the_behaviour_raises_is_raised_when_the_context_is_left():
    def behaviour(turn):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await hung_up_on(FakeAgent(behaviour))


async def hung_up_on(agent):
    """Serves an agent whose only client gets no answer."""
    async with LoopbackServer(agent) as server, await Client.of(server) as client:
        await client.send(request_bytes())
        assert await client.rest() == b""


@pytest.mark.parametrize("fault", [Refuse(), Stall(phase="connect")])
async def test_a_fault_that_no_request_can_have_is_a_mistake_of_the_test(fault):
    agent = FakeAgent()
    agent.inject(fault)
    with pytest.raises(TypeError, match=r"use refuse\(\) or stall\(\)"):
        await hung_up_on(agent)


async def test_an_error_of_the_test_itself_comes_first():
    agent = FakeAgent()
    agent.inject(Refuse())
    server = LoopbackServer(agent)
    await server.__aenter__()
    async with await Client.of(server) as client:
        await client.send(request_bytes())
        await client.rest()

    await server.__aexit__(KeyError, KeyError(), None)  # raises nothing of its own


# ── Before a connection ──────────────────────────────────────────────────────────────────────


async def test_it_refuses_and_listens_again_at_the_same_address():
    agent = FakeAgent()
    async with LoopbackServer(agent) as server, engine_of() as engine:
        await server.refuse()
        await server.refuse()
        error = await failure(engine, server.url)
        assert (error.failure, error.executed) == ("refused", False)

        await server.listen()
        await server.listen()
        assert (await engine.request(to(server.url))).status == 200


async def test_open_connections_continue_while_it_refuses():
    async with LoopbackServer(FakeAgent()) as server, await Client.of(server) as client:
        await client.send(request_bytes())
        await client.reply()

        await server.refuse()

        await client.send(request_bytes())
        assert (await client.reply())[0] == 200


async def test_it_lets_connections_hang_and_listens_again():
    async with LoopbackServer(FakeAgent()) as server, engine_of() as engine:
        await server.stall()
        error = await failure(engine, server.url, timeouts=replace(PATIENT, connect=0.1))
        assert (error.phase, error.executed) == ("connect", False)

        await server.listen()
        assert (await engine.request(to(server.url))).status == 200


async def test_it_can_be_left_while_connections_hang():
    async with LoopbackServer(FakeAgent()) as server:
        await server.stall()
    gc.collect()


# ── Faults look the same through both doors ──────────────────────────────────────────────────


PATIENT = Timeouts(pool=LIMIT, connect=LIMIT, write=LIMIT, first_byte=LIMIT, idle=LIMIT)


def limits(fault):
    """Short only for the wait that the fault is to make expire."""
    match fault:
        case Stall(phase=phase, after_bytes=count) if count < 1000:
            return replace(PATIENT, **{phase: 0.1})
        case Delay(seconds=seconds) if seconds > LIMIT:
            return replace(PATIENT, first_byte=0.1)
        case _:
            return PATIENT


class engine_of:  # noqa: N801  reads as a function
    """An engine over real sockets that is closed at the end."""

    async def __aenter__(self):
        self._engine = AiohttpEngine(proxies=False)
        return self._engine

    async def __aexit__(self, *_):
        await self._engine.close()


def to(url, timeouts=PATIENT, **members):
    headers = {"a2a-version": "1.0", "content-type": "application/json"}
    return HttpRequest(
        method="POST", url=f"{url}/rpc", headers=headers, body=SEND, timeouts=timeouts, **members
    )


async def failure(engine, url, **members):
    with pytest.raises(A2AError) as caught:
        async with asyncio.timeout(HANGING):
            await engine.request(to(url, **members))
    return caught.value


async def seen(engine, url, agent, fault, **members):
    """What a client can tell of a fault, and what the agent knows of it."""
    agent.inject(fault)
    request = to(url, limits(fault), **members)
    try:
        async with asyncio.timeout(HANGING):
            reply = await engine.request(request)
        headers = {n: reply.headers.get(n) for n in ("content-type", "retry-after", "location")}
        outcome = (reply.status, reply.body, headers)
    except A2AError as error:
        outcome = (
            type(error),
            getattr(error, "failure", None),
            getattr(error, "phase", None),
            getattr(error, "timeout", None),
            error.executed,
            error.transient,
        )
    return outcome, request.progress.sent, len(agent.executions)


FAULTS = [
    Reset(),
    Reset(after_execution=True),
    Stall(),
    Stall(after_execution=True),
    Stall(phase="idle"),
    Stall(phase="idle", after_bytes=5),
    Stall(phase="idle", after_bytes=100_000),
    Delay(seconds=0.01),
    Delay(seconds=0.01, after_execution=False),
    Delay(seconds=100),
    Cut(),
    Cut(after_bytes=5),
    Cut(after_bytes=100_000),
    Cut(after_events=1),
    Cut(after_bytes=5, clean=True),
    Cut(clean=True),
    Reset(after_events=0),
    Reset(after_events=1),
    Stall(phase="idle", after_events=1),
    Fail(after_events=0),
    Duplicate(),
    Garbage(),
    Garbage(after_execution=True),
    Garbage(data=b"SSH-2.0-OpenSSH_9.6\r\n"),
    Respond(status=200),
    Respond(status=204),
    Respond(status=302, headers={"location": "http://x.test/"}),
    Respond(status=599, body=b"?", after_execution=True),
    Fail(),
    Fail(code=-32001, retry_after=3, after_execution=True),
    bad_gateway(),
    rate_limited(3),
    unavailable(),
]


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
async def test_a_fault_looks_the_same_in_process_and_on_a_socket(fault):
    far, near = FakeAgent(), FakeAgent()
    async with LoopbackServer(far) as server, engine_of() as engine:
        there = await seen(engine, server.url, far, fault)
    here = await seen(FakeNetwork(near), near.url, near, fault)

    assert _timeless(there) == _timeless(here)


def _timeless(outcome):
    (first, *rest), sent, executions = outcome
    if isinstance(first, int) and rest[0].endswith(b"}"):
        document = json.loads(rest[0])
        if "result" in document:
            document["result"]["task"]["status"]["timestamp"] = ""
        rest[0] = document
    return first, rest, sent, executions


STREAM_FAULTS = [
    None,
    Cut(),
    Cut(after_events=2),
    Cut(after_events=1, after_bytes=30),
    Cut(after_bytes=700),
    Cut(after_events=5),
    Cut(after_events=99),
    Cut(clean=True),
    Cut(after_events=2, clean=True),
    Cut(after_events=1, after_bytes=30, clean=True),
    Reset(),
    Reset(after_execution=True),
    Reset(after_events=0),
    Reset(after_events=2),
    Reset(after_events=5),
    Reset(after_events=99),
    Stall(after_execution=True),
    Stall(phase="idle"),
    Stall(phase="idle", after_events=2),
    Stall(phase="idle", after_events=1, after_bytes=30),
    Duplicate(event=2),
    Delay(seconds=0.01),
    Delay(seconds=0.01, after_execution=False),
    Fail(),
    Fail(after_events=0),
    Fail(after_events=2, retry_after=3),
    Fail(after_events=2, named=False),
    Respond(status=200, headers={"content-type": "text/event-stream"}),
    Respond(status=202),
    Respond(status=401, headers={"content-type": "application/json"}, body=b'{"error": "no"}'),
    Garbage(after_execution=True),
    bad_gateway(),
]


async def streamed(engine, url, agent, fault):
    """What a client can tell of a stream, and what the agent knows of it."""
    if fault is not None:
        agent.inject(fault)
    request = replace(to(url, limits(fault)), body=STREAM)
    status, kind, body, error = None, None, b"", None
    try:
        async with asyncio.timeout(HANGING), engine.stream(request) as reply:
            status, kind = reply.status, reply.headers.get("content-type")
            async for chunk in reply.chunks():
                body += chunk
    except A2AError as failure:
        names = ("failure", "phase", "timeout", "executed", "transient")
        error = type(failure), *(getattr(failure, name, None) for name in names)
    async with asyncio.timeout(HANGING):
        await something(lambda: agent.open_streams == 0)
    return status, kind, body, error, request.progress.sent, len(agent.executions)


@pytest.mark.parametrize("fault", STREAM_FAULTS, ids=repr)
async def test_a_fault_of_a_stream_looks_the_same_in_process_and_on_a_socket(fault):
    far, near = (FakeAgent(streams("Hello, ", "world")) for _ in range(2))
    async with LoopbackServer(far) as server, engine_of() as engine:
        there = await streamed(engine, server.url, far, fault)
    here = await streamed(FakeNetwork(near), near.url, near, fault)

    assert _without_times(there) == _without_times(here)


def _without_times(outcome):
    return [_TIME.sub(b"", seen) if isinstance(seen, bytes) else seen for seen in outcome]


_TIME = re.compile(rb'"timestamp":"[^"]*"')


async def test_a_reply_that_is_too_large_looks_the_same_too():
    far, near, fault = FakeAgent(), FakeAgent(), Respond(status=200, body=b"x" * 100)
    async with LoopbackServer(far) as server, engine_of() as engine:
        there = await seen(engine, server.url, far, fault, limits=Limits(body=10))

    assert there == await seen(FakeNetwork(near), near.url, near, fault, limits=Limits(body=10))


async def test_a_request_in_flight_is_executed_though_its_client_left():
    agent = FakeAgent()
    agent.inject(Delay(seconds=0.1, after_execution=False))
    async with LoopbackServer(agent) as server:
        client = await Client.of(server)
        await client.send(request_bytes())
        client.leave()
        async with asyncio.timeout(HANGING):
            await something(lambda: agent.executions)

    assert len(agent.received) == 1


async def test_a_request_in_flight_is_lost_with_the_server():
    agent = FakeAgent()
    agent.inject(Delay(seconds=1000, after_execution=False))
    async with LoopbackServer(agent) as server, await Client.of(server) as client:
        await client.send(request_bytes())
        await something(lambda: not agent.pending_faults)

    timers = asyncio.get_running_loop()._scheduled
    assert [timer for timer in timers if not timer.cancelled()] == []


async def test_a_connection_continues_after_an_answer_in_the_agents_place():
    agent = FakeAgent()
    agent.inject(bad_gateway())
    async with LoopbackServer(agent) as server, await Client.of(server) as client:
        for status in (502, 200):
            await client.send(request_bytes())
            assert (await client.reply())[0] == status


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Reset(), A2AConnectionError),
        (Cut(after_bytes=3), A2AConnectionError),
        (Stall(), A2ATimeoutError),
        (Stall(phase="idle", after_bytes=3), A2ATimeoutError),
    ],
)
async def test_a_read_that_fails_is_the_same_error_for_a_client(fault, error):
    agent = FakeAgent()
    resilience = Resilience(timeouts=limits(fault), retry=Resilience.off().retry, budget=None)
    async with (
        LoopbackServer(agent) as server,
        connect(server.url, resilience=resilience) as client,
    ):
        await client.agent_card()
        agent.inject(fault)
        with pytest.raises(error):
            await client.get_task("x")


async def test_a_crash_is_answered_over_the_socket_too():
    agent = FakeAgent(lambda turn: crashes("boom"))
    async with LoopbackServer(agent) as server, await Client.of(server) as client:
        await client.send(request_bytes())

        assert json.loads((await client.reply())[2])["error"]["message"] == "boom"


@pytest.mark.parametrize("name", ["agent", "serve"])
def test_an_example_whose_port_is_taken_says_so_in_one_line(name, monkeypatch):
    example = ROOT / "examples" / f"{name}.py"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(sys, "argv", [str(example), str(port)])
        with pytest.raises(SystemExit) as caught:
            runpy.run_path(str(example), run_name="__main__")
    said = str(caught.value)
    assert str(port) in said
    assert re.search(r"name another( port)?, 0 takes a free one$", said)
    assert "\n" not in said


@pytest.mark.parametrize("name", ["agent", "serve"])
def test_an_example_says_which_ports_there_are(name, monkeypatch, capsys):
    example = ROOT / "examples" / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(example), "99999"])

    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(example), run_name="__main__")

    assert "port must be between 0 and 65535, not 99999" in capsys.readouterr().err
