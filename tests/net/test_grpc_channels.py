"""gRPC on real sockets against a scripted server: faults, limits, channels."""

import asyncio
import gc
import random
import socket

import grpc
import msgspec
import pytest
import trustme
from a2a.types import a2a_pb2 as pb
from grpc import aio
from tests.kit.grpc_agent import (
    ARTIFACT,
    BEGINNING,
    OK,
    SERVICE,
    TASK,
    Wire,
    card_of,
    event,
    frame,
    frames_agent,
    grpc_agent,
    message_frame,
    task,
)
from tests.kit.ports import reserve_port
from tests.kit.real_agents import LIMIT
from tests.kit.virtual_env import SystemEnv

from holdfast import (
    A2AConnectionError,
    A2ATimeoutError,
    AuthenticationError,
    Limits,
    OutcomeUnknownError,
    RateLimitedError,
    Resilience,
    RetryPolicy,
    TaskState,
    Timeouts,
    TlsConfig,
    connect,
)
from holdfast._net.grpc import channels as channels_of_grpc
from holdfast._net.grpc.channel_factory import ChannelMaker
from holdfast._net.grpc.channels import Channels, ConnectedChannel
from holdfast._net.grpc.failures import NotConnectedError
from holdfast._net.proxies import Proxies
from holdfast._pipeline.grpc_binding import GrpcBinding
from holdfast._policy.deadline import NEVER
from holdfast._testing.listening import Listener
from holdfast._wire.network_scope import NetworkReach
from holdfast.auth import Credentials
from holdfast.compat import ClientConfig, ClientFactory, minimal_agent_card
from holdfast.errors import (
    CredentialOriginError,
    InternalError,
    InvalidAgentCardError,
    InvalidAgentResponseError,
    LimitExceededError,
    NetworkPolicyError,
    ReconnectError,
    UnsupportedOperationError,
)
from holdfast.extend import Call, Endpoint, HttpRequest
from holdfast.protocol import GET_TASK, SUBSCRIBE_TO_TASK
from holdfast.testing import FakeAgent, FakeNetwork
from holdfast.types import GetTaskRequest, SubscribeToTaskRequest

pytestmark = pytest.mark.real_time

PROMPT = Resilience(retry=RetryPolicy(base_delay=0.01, max_delay=0.02), breaker=None)
BARE = Resilience.off()


def with_timeouts(**limits):
    return msgspec.structs.replace(BARE, timeouts=Timeouts(**limits))


async def get_task(request, context):
    return TASK


async def say_hi(request, context):
    return pb.SendMessageResponse(task=task()).SerializeToString()


async def stall(request, context):
    await asyncio.sleep(LIMIT)
    return b""


# ── Connections ──────────────────────────────────────────────────────────────────────────────


async def test_calls_share_a_connection_and_each_stream_has_its_own():
    async def stream(request, context):
        yield pb.StreamResponse(task=task()).SerializeToString()

    async with (
        grpc_agent(GetTask=get_task, SubscribeToTask=stream) as (port, calls, _),
        Wire(port) as wire,
        connect(card_of(f"127.0.0.1:{wire.port}")) as client,
    ):
        await asyncio.gather(*(client.get_task("t1") for _ in range(20)))
        assert wire.connections == 1
        async with client.subscribe_to_task("t1") as events:
            assert [event.id async for event in events] == ["t1"]
        assert wire.connections == 2
    assert len(calls) == 21


@pytest.mark.parametrize("written", ["{}", "dns:///{}", "dns:{}", "ipv4:{}", "http://{}/a2a/v1"])
async def test_a_loopback_address_needs_no_tls_in_any_spelling(written):
    async with grpc_agent(GetTask=get_task) as (port, calls, _):
        url = written.format(f"127.0.0.1:{port}")
        async with connect(card_of(url), resilience=BARE) as client:
            assert (await client.get_task("t1")).state is TaskState.COMPLETED
    [(method, metadata)] = calls
    assert method == f"{SERVICE}GetTask"
    assert metadata["a2a-version"] == "1.0"
    assert metadata["user-agent"].startswith("holdfast/")
    assert "grpc-timeout" not in metadata


async def test_a_refused_connection_is_unsent_and_used_again_later():
    port = reserve_port()
    async with connect(card_of(f"127.0.0.1:{port}"), resilience=BARE) as client:
        for _ in range(2):
            with pytest.raises(A2AConnectionError, match="refused") as caught:
                await client.send_message("hi")
            error = caught.value
            assert (error.failure, error.executed, error.transient) == ("refused", False, True)
            assert error.agent == f"127.0.0.1:{port}"
        async with grpc_agent(port, SendMessage=say_hi) as (_, calls, _):
            # gRPC itself would wait for a second by now, and for two minutes in the end.
            assert (await client.send_message("hi")).id == "t1"
            assert len(calls) == 1


async def test_a_send_is_retried_until_the_server_is_reachable():
    port = reserve_port()
    async with connect(card_of(f"127.0.0.1:{port}"), resilience=PROMPT) as client:
        sending = asyncio.ensure_future(client.send_message("hi"))
        await asyncio.sleep(0)
        async with grpc_agent(port, SendMessage=say_hi) as (_, calls, _):
            await sending
            assert len(calls) == 1


async def test_a_silent_host_is_a_connect_failure():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"127.0.0.1:{silent.getsockname()[1]}"
        async with connect(card_of(url), resilience=with_timeouts(connect=0.05)) as client:
            with pytest.raises(A2ATimeoutError, match="no connection was established") as caught:
                await client.send_message("hi")
    assert (caught.value.phase, caught.value.executed) == ("connect", False)


async def test_an_unknown_name_is_a_connect_failure():
    async with connect(card_of("grpc://agent.invalid:50051"), resilience=BARE) as client:
        with pytest.raises(
            A2AConnectionError, match="the host name could not be resolved"
        ) as caught:
            await client.send_message("hi")
    assert (caught.value.failure, caught.value.executed) == ("dns", False)


async def test_an_idle_connection_is_not_used_again(monkeypatch):
    monkeypatch.setattr("holdfast._net.grpc.channels._MAX_IDLE_S", 0.0)
    async with (
        grpc_agent(GetTask=get_task) as (port, _, _),
        Wire(port) as wire,
        connect(card_of(f"127.0.0.1:{wire.port}"), resilience=BARE) as client,
    ):
        for _ in range(3):
            await client.get_task("t1")
        assert wire.connections == 3


async def test_streams_open_as_many_connections_as_they_need():
    going = asyncio.Event()

    async def stream(request, context):
        yield pb.StreamResponse(task=task(state="TASK_STATE_WORKING")).SerializeToString()
        await going.wait()
        yield pb.StreamResponse(task=task()).SerializeToString()

    async def working(request, context):
        return task(state="TASK_STATE_WORKING").SerializeToString()

    async with (
        grpc_agent(SubscribeToTask=stream, GetTask=working) as (port, _, _),
        Wire(port) as wire,
        connect(card_of(f"127.0.0.1:{wire.port}")) as client,
    ):

        async def watched():
            async with client.subscribe_to_task("t1") as events:
                await anext(events)
                opened.release()
                return [event.status.state async for event in events]

        opened = asyncio.Semaphore(0)
        watching = [asyncio.ensure_future(watched()) for _ in range(101)]
        for _ in watching:
            await asyncio.wait_for(opened.acquire(), LIMIT)
        assert wire.connections == 3  # one of calls
        going.set()
        assert await asyncio.gather(*watching) == [[TaskState.COMPLETED]] * 101


async def test_a_proxy_of_the_environment_is_used(monkeypatch):
    proxied = []

    async def forward(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        proxied.append(head.split()[:2])
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await wire._passed_on(reader, writer)

    async with (
        grpc_agent(GetTask=get_task) as (port, _, _),
        Wire(port) as wire,
        Listener(forward, host="127.0.0.1", port=0, largest_head=65536) as proxy,
    ):
        monkeypatch.setenv("http_proxy", proxy.url)
        for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
            monkeypatch.delenv(name, raising=False)
        async with connect(card_of("grpc://agent.test:50051"), resilience=BARE) as client:
            assert (await client.get_task("t1")).id == "t1"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with connect(card_of(f"127.0.0.1:{port}"), resilience=BARE) as client:
            assert (await client.get_task("t1")).id == "t1"
    assert proxied == [[b"CONNECT", b"agent.test:50051"]]


async def test_an_invalid_grpc_address_is_not_called():
    async with connect(card_of("unix:/run/agent.sock"), resilience=BARE) as client:
        with pytest.raises(InvalidAgentCardError, match="not a gRPC address") as caught:
            await client.get_task("t1")
    assert caught.value.executed is False


@pytest.mark.parametrize("url", ["me:s3cret@a.test:1", "grpc://me:s3cret@a.test", "dns:me@a:1"])
def test_an_address_with_a_password_is_invalid_and_not_shown(url):
    with pytest.raises(InvalidAgentCardError, match=r"supportedInterfaces\[0\]\.url") as caught:
        connect(card_of(url))
    assert "s3cret" not in str(caught.value)


async def test_a_client_works_in_several_event_loops():
    ports = []

    async def once(client):
        async with grpc_agent(ports[0] if ports else 0, GetTask=get_task) as (port, _, _):
            ports.append(port)
            client = client or connect(card_of(f"127.0.0.1:{port}"), resilience=PROMPT)
            assert (await client.get_task("t1")).id == "t1"
            return client

    def in_turn():
        client = asyncio.run(once(None))  # left open
        asyncio.run(once(client))
        asyncio.run(client.close())

    await asyncio.to_thread(in_turn)


# ── Ends of calls ────────────────────────────────────────────────────────────────────────────


async def test_a_reply_that_does_not_begin_ends_at_its_timeout():
    is_gone = asyncio.Event()

    async def never(request, context):
        context.add_done_callback(lambda _: is_gone.set())
        return await stall(request, context)

    async with (
        grpc_agent(GetTask=never, SendMessage=never) as (port, _, _),
        connect(card_of(f"127.0.0.1:{port}"), resilience=with_timeouts(first_byte=0.5)) as client,
    ):
        with pytest.raises(A2ATimeoutError, match="no reply began") as caught:
            await client.get_task("t1")
        assert (caught.value.phase, caught.value.executed) == ("first_byte", None)
        await asyncio.wait_for(is_gone.wait(), LIMIT)
        with pytest.raises(OutcomeUnknownError):
            await client.send_message("hi", on_unknown="raise")


async def test_a_silent_stream_ends_at_its_timeout():
    async def once(request, context):
        yield pb.StreamResponse(task=task(state="TASK_STATE_WORKING")).SerializeToString()
        await stall(request, context)

    async with (
        grpc_agent(SubscribeToTask=once) as (port, _, _),
        connect(card_of(f"127.0.0.1:{port}"), resilience=with_timeouts(idle=0.5)) as client,
        client.subscribe_to_task("t1") as events,
    ):
        await anext(events)
        with pytest.raises(ReconnectError, match="no more of the reply arrived") as caught:
            await anext(events)
    assert caught.value.__cause__.phase == "idle"


async def test_a_cancelled_call_leaks_nothing():
    has_begun, is_gone = asyncio.Event(), asyncio.Event()

    async def never(request, context):
        context.add_done_callback(lambda _: is_gone.set())
        has_begun.set()
        return await stall(request, context)

    async with (
        grpc_agent(GetTask=get_task, SendMessage=never) as (port, _, _),
        connect(card_of(f"127.0.0.1:{port}")) as client,
    ):
        sending = asyncio.ensure_future(client.send_message("hi"))
        await asyncio.wait_for(has_begun.wait(), LIMIT)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await asyncio.wait_for(is_gone.wait(), LIMIT)
        assert (await client.get_task("t1")).id == "t1"
        assert tasks_of_ours() == []


@pytest.mark.rule("D05")
async def test_cancellations_at_any_moment_leak_nothing():
    dice = random.Random(7)

    async def stream(request, context):
        while True:
            yield pb.StreamResponse(task=task(state="TASK_STATE_WORKING")).SerializeToString()
            await asyncio.sleep(0)

    async with (
        grpc_agent(GetTask=get_task, SubscribeToTask=stream) as (port, _, _),
        Wire(port) as wire,
        connect(card_of(f"127.0.0.1:{wire.port}"), resilience=BARE) as client,
    ):

        async def watched():
            async with client.subscribe_to_task("t1") as events:
                async for _ in events:
                    pass

        for round_ in range(60):
            kind = client.get_task("t1") if round_ % 2 else watched()
            calling = asyncio.ensure_future(kind)
            for _ in range(dice.randrange(40)):
                await asyncio.sleep(0)
            calling.cancel()
            await asyncio.wait({calling})
            if round_ % 20 == 19:
                wire.cut()
        assert (await connect_again(client)).id == "t1"
        assert tasks_of_ours() == []
        used = [
            channel
            for channel in gc.get_objects()
            if isinstance(channel, ConnectedChannel) and channel.is_kept
        ]
        assert [channel.uses for channel in used] == [0] * len(used)


async def test_an_abandoned_stream_ends_silently(caplog):
    is_gone = asyncio.Event()

    async def stream(request, context):
        context.add_done_callback(lambda _: is_gone.set())
        while True:
            yield pb.StreamResponse(task=task(state="TASK_STATE_WORKING")).SerializeToString()
            await asyncio.sleep(0)

    async def working(request, context):
        return task(state="TASK_STATE_WORKING").SerializeToString()

    async with (
        grpc_agent(SubscribeToTask=stream, GetTask=working) as (port, _, _),
        connect(card_of(f"127.0.0.1:{port}"), resilience=BARE) as client,
    ):
        before = {
            id(channel) for channel in gc.get_objects() if isinstance(channel, ConnectedChannel)
        }

        async def started():
            await anext(await client.subscribe_to_task("t1").__aenter__())

        await started()
        gc.collect()
        await asyncio.wait_for(is_gone.wait(), LIMIT)
        await asyncio.sleep(0.01)
        assert tasks_of_ours() == []
        used = [channel for channel in gc.get_objects() if isinstance(channel, ConnectedChannel)]
        assert not any(channel.uses for channel in used if id(channel) not in before)
    assert caplog.records == []


def tasks_of_ours():
    codes = [getattr(task.get_coro(), "cr_code", None) for task in asyncio.all_tasks()]
    files = [code.co_filename for code in codes if code is not None]
    return [name for name in files if "/holdfast/" in name and not name.endswith("/listening.py")]


async def connect_again(client):
    """Make a call that may find its connection cut."""
    try:
        return await client.get_task("t1")
    except A2AConnectionError:
        return await client.get_task("t1")


async def test_a_cancelled_wait_for_an_event_can_be_repeated():
    going = asyncio.Event()

    async def stream(request, context):
        yield pb.StreamResponse(task=task(state="TASK_STATE_WORKING")).SerializeToString()
        await going.wait()
        for number in range(40):
            yield event(str(number), append=number > 0)
        yield pb.StreamResponse(task=task()).SerializeToString()

    async with (
        grpc_agent(SubscribeToTask=stream) as (port, _, _),
        connect(card_of(f"127.0.0.1:{port}"), resilience=BARE) as client,
        client.subscribe_to_task("t1") as events,
    ):
        await anext(events)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 0.05)
        going.set()
        received = [event async for event in events]
    texts = [
        observation.artifact.parts[0].text
        for observation in received
        if hasattr(observation, "artifact")
    ]
    assert texts == [str(number) for number in range(40)]


async def test_closing_a_stream_ends_its_tasks():
    async def stream(request, context):
        yield pb.StreamResponse(task=task(state="TASK_STATE_WORKING")).SerializeToString()
        await stall(request, context)

    async with (
        grpc_agent(SubscribeToTask=stream) as (port, _, _),
        connect(card_of(f"127.0.0.1:{port}"), resilience=BARE) as client,
    ):
        events = await client.subscribe_to_task("t1").__aenter__()
        await anext(events)
        assert tasks_of_ours() != []
        await events.close()
        assert tasks_of_ours() == []


async def test_events_before_a_failure_are_delivered_first():
    async def stream(request, context):
        yield pb.StreamResponse(task=task(state="TASK_STATE_WORKING")).SerializeToString()
        for _ in range(30):
            yield ARTIFACT
        await context.abort(grpc.StatusCode.UNAVAILABLE, "bye")

    async with (
        grpc_agent(SubscribeToTask=stream) as (port, _, _),
        connect(card_of(f"127.0.0.1:{port}"), resilience=BARE) as client,
        client.subscribe_to_task("t1") as events,
    ):
        for _ in range(31):
            await anext(events)
            await asyncio.sleep(0.001)
        with pytest.raises(ReconnectError) as caught:
            await anext(events)
    assert caught.value.__cause__.grpc_status == "UNAVAILABLE"


@pytest.mark.parametrize("method", ["send", "stream"])
async def test_closing_the_client_ends_its_calls(method):
    has_begun = asyncio.Event()

    async def never(request, context):
        has_begun.set()
        return await stall(request, context)

    async def stream(request, context):
        has_begun.set()
        await stall(request, context)
        yield b""

    async with grpc_agent(GetTask=never, SubscribeToTask=stream) as (port, _, _):
        client = connect(card_of(f"127.0.0.1:{port}"))

        async def called():
            if method == "send":
                return await client.get_task("t1")
            async with client.subscribe_to_task("t1") as events:
                return await anext(events)

        calling = asyncio.ensure_future(called())
        await asyncio.wait_for(has_begun.wait(), LIMIT)
        await client.close()
        with pytest.raises(A2AConnectionError, match="closed") as caught:
            await calling
    assert caught.value.failure == "closed"


async def test_a_channel_closed_while_it_connects_is_not_a_cancellation(monkeypatch):
    real = channels_of_grpc._failure_reason

    async def reason(channel):
        channel._loop.call_soon(asyncio.ensure_future, channel.close())
        return await real(channel)

    monkeypatch.setattr(channels_of_grpc, "_failure_reason", reason)
    async with connect(card_of(f"127.0.0.1:{reserve_port()}"), resilience=BARE) as client:
        with pytest.raises(A2AConnectionError) as caught:
            await client.send_message("hi")
    assert caught.value.executed is False


async def test_a_truncated_reply_leaves_the_outcome_unknown():
    has_begun = asyncio.Event()

    async def never(request, context):
        has_begun.set()
        return await stall(request, context)

    async with (
        grpc_agent(SendMessage=never) as (port, calls, _),
        Wire(port) as wire,
        connect(card_of(f"127.0.0.1:{wire.port}"), on_unknown="raise") as client,
    ):
        sending = asyncio.ensure_future(client.send_message("hi"))
        await asyncio.wait_for(has_begun.wait(), LIMIT)
        wire.cut()
        with pytest.raises(OutcomeUnknownError) as caught:
            await sending
        assert caught.value.executed is None
        assert len(calls) == 1  # and gRPC itself sends nothing again
        assert isinstance(caught.value.__cause__, A2AConnectionError)


async def test_a_cut_stream_is_resumed():
    cut = asyncio.Event()

    async def send(request, context):
        yield pb.StreamResponse(task=task(state="TASK_STATE_WORKING")).SerializeToString()
        yield event("one ", append=False)
        cut.set()
        await stall(request, context)

    async def again(request, context):
        parts = [pb.Part(text="one "), pb.Part(text="two")]
        artifact = pb.Artifact(artifact_id="a", parts=parts)
        yield pb.StreamResponse(task=task(artifacts=[artifact])).SerializeToString()

    async def complete(request, context):
        artifact = pb.Artifact(artifact_id="a", parts=[pb.Part(text="one "), pb.Part(text="two")])
        return task(artifacts=[artifact]).SerializeToString()

    async with (
        grpc_agent(SendStreamingMessage=send, SubscribeToTask=again, GetTask=complete) as agent,
        Wire(agent[0]) as wire,
        connect(card_of(f"127.0.0.1:{wire.port}"), resilience=PROMPT) as client,
    ):
        asking = asyncio.ensure_future(client.ask("hi"))
        await asyncio.wait_for(cut.wait(), LIMIT)
        await asyncio.sleep(0.02)  # it is on its way
        wire.cut()
        assert (await asyncio.wait_for(asking, LIMIT)).text == "one two"
    methods = [method.rpartition("/")[2] for method, _ in agent[1]]
    assert methods.count("SendStreamingMessage") == 1


async def test_a_server_that_shuts_down_gracefully_is_replaced_by_another():
    working = task(state="TASK_STATE_WORKING")
    going, is_over = asyncio.Event(), asyncio.Event()

    async def stream(request, context):
        yield pb.StreamResponse(task=working).SerializeToString()
        await going.wait()
        is_over.set()
        yield pb.StreamResponse(task=task()).SerializeToString()

    async def get_task(request, context):
        return TASK if is_over.is_set() else working.SerializeToString()

    port = reserve_port()
    async with connect(card_of(f"127.0.0.1:{port}"), resilience=PROMPT) as client:
        async with grpc_agent(port, SubscribeToTask=stream, GetTask=get_task) as (_, _, server):
            async with client.subscribe_to_task("t1") as events:
                await anext(events)
                stopping = asyncio.ensure_future(server.stop(LIMIT))  # GOAWAY
                await asyncio.sleep(0.02)
                going.set()
                assert [event.status.state async for event in events] == [TaskState.COMPLETED]
            await stopping
        async with grpc_agent(port, GetTask=get_task):
            assert (await client.get_task("t1")).id == "t1"


@pytest.mark.parametrize("empty", [True, False])
async def test_a_stream_that_ends_with_ok_leaves_the_state_of_the_task_open(empty):
    async def stream(request, context):
        if not empty:
            yield pb.StreamResponse(task=task(state="TASK_STATE_WORKING")).SerializeToString()

    async with (
        grpc_agent(SendStreamingMessage=stream, GetTask=get_task) as (port, calls, _),
        connect(card_of(f"127.0.0.1:{port}"), resilience=PROMPT, on_unknown="raise") as client,
    ):
        if empty:
            with pytest.raises(OutcomeUnknownError, match="status OK without an event"):
                await client.ask("hi")
        else:
            assert (await client.ask("hi")).task.state is TaskState.COMPLETED
    assert sum("Send" in method for method, _ in calls) == 1


HALF = frame("DATA", b"\x00\x00\x00\x01\x00half")

TRUNCATED = {
    "no message": [frame("HEADERS", BEGINNING), frame("HEADERS", OK, last=True)],
    "nothing but a status": [frame("HEADERS", BEGINNING + OK, last=True)],
    "half a message": [frame("HEADERS", BEGINNING), HALF, frame("HEADERS", OK, last=True)],
    "no status": [frame("HEADERS", BEGINNING, last=True)],
    "no end": [frame("HEADERS", BEGINNING), message_frame(TASK, last=True)],
    "a reset": [frame("RST_STREAM", b"\x00\x00\x00\x02")],
    "a reset under way": [
        frame("HEADERS", BEGINNING),
        HALF,
        frame("RST_STREAM", b"\x00\x00\x00\x01"),
    ],
    "a reset out of anger": [frame("RST_STREAM", b"\x00\x00\x00\x0b")],
    "a reset of some other kind": [frame("RST_STREAM", b"\x00\x00\x00\x0c")],
    "nothing of gRPC": [frame("HEADERS", b"\x8e", last=True)],  # 500
    "a farewell": [frame("GOAWAY", b"\x00" * 8)],
}


@pytest.mark.parametrize("frames", TRUNCATED.values(), ids=TRUNCATED)
async def test_any_truncated_reply_is_lost(frames):
    async with (
        frames_agent(*frames) as port,
        connect(card_of(f"127.0.0.1:{port}"), resilience=BARE, on_unknown="raise") as client,
    ):
        with pytest.raises(OutcomeUnknownError) as caught:
            await client.send_message("hi")
        with pytest.raises(A2AConnectionError) as caught_too:
            await client.get_task("t1")
        assert caught.value.executed is caught_too.value.executed is None
        assert caught_too.value.transient


# ── Statuses and limits ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("code", "kind", "executed", "transient"),
    [
        ("UNAVAILABLE", A2AConnectionError, None, True),
        ("UNAUTHENTICATED", AuthenticationError, False, False),
        ("RESOURCE_EXHAUSTED", RateLimitedError, None, True),
        ("CANCELLED", A2AConnectionError, None, True),
        ("DEADLINE_EXCEEDED", A2ATimeoutError, None, True),
        ("UNKNOWN", InternalError, None, True),
    ],
)
async def test_each_status_is_the_error_that_it_names(code, kind, executed, transient):
    async def refuse(request, context):
        await context.abort(getattr(grpc.StatusCode, code), "no", (("x-request-id", "7"),))

    async with (
        grpc_agent(SendMessage=refuse) as (port, calls, _),
        connect(card_of(f"127.0.0.1:{port}"), resilience=BARE, on_unknown="raise") as client,
    ):
        with pytest.raises((kind, OutcomeUnknownError)) as caught:
            await client.send_message("hi")
        error = caught.value
        if isinstance(error, OutcomeUnknownError):
            assert executed is None
            error = error.__cause__
        assert isinstance(error, kind)
        assert (error.grpc_status, error.executed) == (code, executed)
        assert error.transient is transient
        assert len(calls) == 1


@pytest.mark.parametrize(
    ("size", "which"),
    [(900, "body"), (100_000, "body"), (-5000, "headers"), (-100_000, "headers")],
)
async def test_a_reply_above_its_limit_names_the_limit(size, which):
    async def large(request, context):
        if size < 0:
            context.set_trailing_metadata((("x-large", "x" * -size),))
            return TASK
        return task(metadata={"x": "y" * size}).SerializeToString()

    limits = Limits(body=800, event=800, card=800, headers=1000, json_values=10_000)
    async with (
        grpc_agent(GetTask=large) as (port, _, _),
        connect(card_of(f"127.0.0.1:{port}"), limits=limits, resilience=BARE) as client,
    ):
        with pytest.raises(LimitExceededError) as caught:
            await client.get_task("t1")
    assert (caught.value.which, caught.value.executed) == (which, None)


@pytest.mark.parametrize("size", [1000, 100_000])
async def test_an_event_above_its_limit_names_the_limit(size):
    async def large(request, context):
        oversized = task(metadata={"x": "y" * size})
        yield pb.StreamResponse(task=oversized).SerializeToString()

    limits = Limits(body=4000, event=800)
    async with (
        grpc_agent(SubscribeToTask=large, GetTask=get_task) as (port, _, _),
        connect(card_of(f"127.0.0.1:{port}"), limits=limits, resilience=BARE) as client,
    ):
        with pytest.raises(LimitExceededError) as caught:
            async with client.subscribe_to_task("t1") as events:
                await anext(events)
    assert (caught.value.which, caught.value.bound) == ("event", 800)
    assert "event of the stream is larger than 800 bytes" in str(caught.value)


async def test_too_large_request_headers_are_not_reported_as_the_replys():
    async with (
        grpc_agent(GetTask=get_task) as (port, _, _),
        connect(
            card_of(f"127.0.0.1:{port}"), headers={"x-large": "y" * 20_000}, resilience=BARE
        ) as client,
    ):
        with pytest.raises(RateLimitedError, match="metadata size exceeds") as caught:
            await client.get_task("t1")
        assert "reply" not in caught.value.message


async def test_a_reply_that_inflates_beyond_a_limit_is_too_large():
    async def large(request, context):
        return task(metadata={"x": "y" * 100_000}).SerializeToString()

    gzip = [("grpc.default_compression_algorithm", 2)]
    limits = Limits(body=800, event=800, card=800, json_values=10_000)
    async with (
        grpc_agent(options=gzip, GetTask=large) as (port, calls, _),
        connect(card_of(f"127.0.0.1:{port}"), limits=limits, resilience=PROMPT) as client,
    ):
        with pytest.raises(LimitExceededError) as caught:
            await client.get_task("t1")
        assert (caught.value.which, caught.value.transient) == ("body", False)
        assert len(calls) == 1


async def test_a_reply_that_is_not_a_message_is_invalid():
    async def garbage(request, context):
        return b"\xff\xff\xff"

    async with (
        grpc_agent(GetTask=garbage) as (port, _, _),
        connect(card_of(f"127.0.0.1:{port}"), resilience=BARE) as client,
    ):
        with pytest.raises(InvalidAgentResponseError):
            await client.get_task("t1")


# ── Addresses and credentials ────────────────────────────────────────────────────────────────


async def test_headers_and_credentials_are_metadata_and_renewed_after_a_401():
    class Renewing:
        tokens = 0

        async def credentials(self, call):
            return Credentials(headers={"authorization": f"Bearer token-{self.tokens}"})

        async def on_unauthorized(self, call, error):
            self.tokens += 1
            return True

    async def guarded(request, context):
        if dict(context.invocation_metadata())["authorization"] != "Bearer token-1":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "expired")
        return await say_hi(request, context)

    async with (
        grpc_agent(SendMessage=guarded) as (port, calls, _),
        connect(
            card_of(f"127.0.0.1:{port}"), auth=Renewing(), headers={"X-Own": "7"}, resilience=BARE
        ) as client,
    ):
        assert (await client.send_message("hi")).id == "t1"
    assert [metadata["authorization"] for _, metadata in calls] == [
        "Bearer token-0",
        "Bearer token-1",
    ]
    assert calls[0][1]["x-own"] == "7"


async def test_a_key_in_the_query_is_refused():
    class Query:
        async def credentials(self, call):
            return Credentials(query={"key": "s3cret"})

        async def on_unauthorized(self, call, error):
            return False

    async with (
        grpc_agent(GetTask=get_task) as (port, calls, _),
        connect(card_of(f"127.0.0.1:{port}"), auth=Query()) as client,
    ):
        with pytest.raises(UnsupportedOperationError, match="query parameters") as caught:
            await client.get_task("t1")
    assert "s3cret" not in str(caught.value)
    assert calls == []


async def test_credentials_are_sent_only_to_their_origin():
    async with grpc_agent(GetTask=get_task) as (port, calls, _):
        card = card_of(f"127.0.0.1:{port}")
        trusted = f"grpc://localhost:{port}"  # an alias, in other words
        async with connect(card, url=trusted, auth="Bearer x", resilience=BARE) as client:
            assert (await client.get_task("t1")).id == "t1"
        assert calls[0][1]["authorization"] == "Bearer x"


@pytest.mark.rule("P01", "P19")
async def test_addresses_from_cards_get_no_credentials_and_no_more_private_network(monkeypatch):
    addresses = {
        "outside.test": "127.0.0.1",
        "inside.test": "127.0.0.1",
        "metadata.test": "169.254.169.254",
    }
    real = socket.getaddrinfo

    def resolved(host, port, *args, **kwargs):
        return real(addresses.get(host, host), port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    async with grpc_agent(GetTask=get_task) as (port, calls, _):

        def called(url, **options):
            document = msgspec.json.encode(card_of(url))
            engine = FakeNetwork(
                FakeAgent(url="http://agent.test", card=msgspec.json.decode(document))
            )
            options = {"resilience": BARE, "bindings": ["GRPC"], **options}
            return connect("http://agent.test", engine=engine, **options)

        for url in (
            f"http://inside.test:{port}",
            f"https://metadata.test:{port}",
            "10.0.0.1:50051",
        ):
            async with called(url) as client:
                with pytest.raises(NetworkPolicyError, match="SSRF") as caught:
                    await client.get_task("t1")
                assert caught.value.executed is False
        async with called(f"http://inside.test:{port}", auth="Bearer x") as client:
            with pytest.raises(CredentialOriginError, match=rf"http://inside\.test:{port}"):
                await client.get_task("t1")
        # Nor does one that the caller names, where only public addresses may be reached.
        for own in ({}, {"grpc_channel_factory": aio.insecure_channel}):
            url = f"grpc://inside.test:{port}"
            async with called(url, credential_origins=[url], reach="public", **own) as client:
                with pytest.raises(NetworkPolicyError, match='reach="public"') as caught:
                    await client.get_task("t1")
                assert caught.value.address == (None if own else "127.0.0.1")
        assert calls == []
        # Where it may go, it goes to the number that was judged, under the name that it has.
        async with called(
            f"grpc://inside.test:{port}", allowed_networks=["127.0.0.0/8"]
        ) as client:
            await client.get_task("t1")
        async with called(
            f"grpc://inside.test:{port}",
            allowed_networks=["127.0.0.0/8"],
            credential_origins=[f"grpc://inside.test:{port}"],
            auth="Bearer x",
        ) as client:
            with pytest.raises(A2AConnectionError, match="the host name could not be resolved"):
                await client.get_task("t1")  # trusted, so that gRPC asks the real resolver
        assert len(calls) == 1


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P33")
async def test_tls_verifies_the_server_and_sends_the_client_certificate(tmp_path):
    authority, other_authority = trustme.CA(), trustme.CA()
    server, own = authority.issue_cert("localhost"), authority.issue_cert("client")
    files = {"ca_file": tmp_path / "ca.pem", "cert_file": tmp_path / "own.pem"}
    authority.cert_pem.write_to_path(files["ca_file"])
    own.private_key_and_cert_chain_pem.write_to_path(files["cert_file"])
    other_path = tmp_path / "other.pem"
    other_authority.cert_pem.write_to_path(other_path)
    chain = b"".join(blob.bytes() for blob in server.cert_chain_pems)
    pair = [(server.private_key_pem.bytes(), chain)]
    asking = grpc.ssl_server_credentials(
        pair, authority.cert_pem.bytes(), require_client_auth=True
    )
    async with grpc_agent(credentials=asking, GetTask=get_task) as (port, calls, _):
        card = card_of(f"grpcs://localhost:{port}")
        async with connect(card, tls=TlsConfig(**files), resilience=BARE) as client:
            assert (await client.get_task("t1")).id == "t1"
        for tls in (TlsConfig(ca_file=files["ca_file"]), TlsConfig(ca_file=other_path), None):
            async with connect(card, tls=tls, resilience=with_timeouts(connect=2)) as client:
                with pytest.raises(A2AConnectionError) as caught:
                    await client.send_message("hi", on_unknown="raise")
                assert caught.value.failure in {"tls", "disconnected", "unreachable"}
        assert len(calls) == 1
        async with connect(card, tls=TlsConfig(verify=False), resilience=BARE) as client:
            with pytest.raises(A2AConnectionError, match="ca_file") as caught:
                await client.get_task("t1")
            assert caught.value.failure == "tls"


@pytest.mark.rule("P33")
@pytest.mark.parametrize(("name", "fails"), [("localhost", False), ("agent.test", True)])
async def test_a_server_called_by_ip_address_is_verified_by_name(
    tmp_path, monkeypatch, name, fails
):
    authority = trustme.CA()
    server = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    chain = b"".join(blob.bytes() for blob in server.cert_chain_pems)
    own = grpc.ssl_server_credentials([(server.private_key_pem.bytes(), chain)])
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
    tls = TlsConfig(ca_file=tmp_path / "ca.pem")
    proxies = Proxies({})
    making = ChannelMaker(Limits(), tls=tls, proxies=proxies, factory=None)
    request = HttpRequest(method="POST", url="https://x", reach=NetworkReach(inward="loopback"))
    async with grpc_agent(credentials=own, GetTask=get_task) as (port, _, _):
        channels = Channels(making)
        calling = channels.connected(f"grpcs://{name}:{port}", request, streaming=False)
        if fails:
            with pytest.raises(NotConnectedError, match=r"CERTIFICATE|Hostname|Peer"):
                await calling
        else:
            await (await calling).leave()
        await channels.close()


async def test_a_server_without_tls_is_recognized():
    async with (
        grpc_agent(GetTask=get_task) as (port, _, _),
        connect(card_of(f"grpcs://127.0.0.1:{port}"), resilience=BARE) as client,
    ):
        with pytest.raises(A2AConnectionError) as caught:
            await client.get_task("t1")
    assert (caught.value.failure, caught.value.executed) == ("tls", False)


# ── Borrowed channels ────────────────────────────────────────────────────────────────────────


async def test_a_borrowed_channel_is_used_and_not_closed():
    async def follow(request, context):
        yield pb.StreamResponse(task=task()).SerializeToString()

    async with grpc_agent(GetTask=get_task, SubscribeToTask=follow) as (port, _, _):
        requested = []
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:

            def factory(url):
                requested.append(url)
                return channel

            config = ClientConfig(
                supported_protocol_bindings=["GRPC"], grpc_channel_factory=factory
            )
            async with ClientFactory(config).create(card_of("our:own:name")) as client:
                await asyncio.gather(*(client.get_task("t1") for _ in range(150)))
                async with client.subscribe_to_task("t1") as events:
                    assert (await events.result()).task.id == "t1"
            assert channel.get_state() is grpc.ChannelConnectivity.READY
            async with connect(card_of("other"), grpc_channel_factory=factory) as client:
                await client.get_task("t1")
        assert requested == ["our:own:name", "other"]
        async with connect(card_of("other"), grpc_channel_factory=factory) as client:
            with pytest.raises(A2AConnectionError, match="closed") as caught:
                await client.get_task("t1")
        assert caught.value.executed is False


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_closed_borrowed_channel_ends_its_calls(streaming):
    has_begun = asyncio.Event()

    async def never(request, context):
        has_begun.set()
        return await stall(request, context)

    async def stream(request, context):
        yield pb.StreamResponse(task=task(state="TASK_STATE_WORKING")).SerializeToString()
        await never(request, context)

    async with (
        grpc_agent(GetTask=never, SubscribeToTask=stream) as (port, _, _),
        aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        binding = GrpcBinding(SystemEnv(), BARE, Limits(), factory=lambda _: channel)
        [interface] = card_of("lent").supported_interfaces
        params = SubscribeToTaskRequest(id="t1") if streaming else GetTaskRequest(id="t1")
        call = Call(
            operation=SUBSCRIBE_TO_TASK if streaming else GET_TASK,
            params=params,
            request_id="1",
            deadline=NEVER,
            endpoint=Endpoint(interface),
        )
        if streaming:
            events = (await binding.stream(call)).value
            await anext(events)
            waiting = asyncio.ensure_future(anext(events))
        else:
            waiting = asyncio.ensure_future(binding.unary(call))
        await asyncio.wait_for(has_begun.wait(), LIMIT)
        await channel.close()
        with pytest.raises(A2AConnectionError) as caught:
            await asyncio.wait_for(waiting, LIMIT)
        assert (caught.value.failure, caught.value.executed) == ("closed", None)
        if streaming:
            await events.close()
        await binding.close()


async def test_a_factory_that_returns_another_type_is_named():
    async with connect(card_of("a:1"), grpc_channel_factory=lambda _: 7) as client:
        with pytest.raises(TypeError, match=r"must return a grpc\.aio\.Channel, not int"):
            await client.get_task("t1")


def test_an_invalid_factory_is_refused():
    with pytest.raises(TypeError, match=r"^grpc_channel_factory must be a function, not int"):
        connect(card_of("a:1"), grpc_channel_factory=5)


async def test_a_card_is_fetched_over_grpc():
    async def get_card(request, context):
        return pb.AgentCard(
            name="whole",
            supported_interfaces=[pb.AgentInterface(url="x:1", protocol_binding="GRPC")],
        ).SerializeToString()

    async with grpc_agent(GetExtendedAgentCard=get_card, GetTask=get_task) as (port, _, _):
        card = minimal_agent_card(f"127.0.0.1:{port}", ["GRPC"])
        async with connect(card) as client:
            assert (await client.get_extended_agent_card()).name == "whole"


# ── Choice of gRPC ───────────────────────────────────────────────────────────────────────────


async def test_a_custom_engine_is_not_bypassed_unless_requested():
    engine = FakeNetwork()
    with pytest.raises(ValueError, match="its engine carries HTTP only"):
        connect(card_of("127.0.0.1:1"), engine=engine)
    async with connect(card_of("127.0.0.1:1"), engine=engine, bindings=["GRPC"]) as client:
        assert client is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "grpc://a", "supported_protocol_bindings": ["JSONRPC"]}, "lacks GRPC"),
        ({"url": "grpc://"}, "url"),
        ({"agent": "grpc://agent.test:1"}, "minimal_agent_card"),
    ],
)
def test_an_address_of_grpc_is_only_for_grpc_interfaces(options, message):
    options = {"agent": "http://agent.test", **options}
    with pytest.raises(ValueError, match=message):
        connect(options.pop("agent"), **options)


# ── Replies ──────────────────────────────────────────────────────────────────────────────────


async def test_a_stream_that_begins_with_the_question_replied_to_ends_with_the_answer():
    asking = pb.TaskStatus(state=pb.TASK_STATE_INPUT_REQUIRED)
    asking.timestamp.FromSeconds(1_800_000_000)
    waiting = pb.Task(id="t1", context_id="c1", status=asking)

    async def look(request, context):
        return waiting.SerializeToString()

    async def stream(request, context):
        yield pb.StreamResponse(task=waiting).SerializeToString()
        yield event("One Margherita.")
        yield pb.StreamResponse(task=task()).SerializeToString()

    async with (
        grpc_agent(GetTask=look, SendStreamingMessage=stream) as (port, calls, _),
        connect(card_of(f"127.0.0.1:{port}")) as client,
    ):
        answer = await client.ask("Margherita", task_id="t1")

    assert answer.task.state is TaskState.COMPLETED
    assert [method.rpartition("/")[2] for method, _ in calls] == [
        "GetTask",
        "SendStreamingMessage",
    ]
