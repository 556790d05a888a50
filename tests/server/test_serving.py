"""An agent that is served on loopback, called by Holdfast's client and by the official SDK's."""

import asyncio
import contextlib
import io
import logging
import os
import signal
import ssl
import uuid

import grpc
import httpx
import pytest
import trustme
from a2a.client import ClientConfig, ClientFactory
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.context import ServerCallContext
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2, a2a_pb2_grpc
from tests.kit.ports import reserve_port
from tests.kit.real_agents import LIMIT
from tests.kit.served_agents import URL

import holdfast
from holdfast._integrations.a2a_sdk.messages import to_proto
from holdfast._server import turn_registry
from holdfast.server import A2AServer, requires_input
from holdfast.testing import AsgiNetwork

pytestmark = pytest.mark.real_time

ALL = ("JSONRPC", "HTTP+JSON", "GRPC")
VERSION = (("a2a-version", "1.0"),)


class Scripted:
    """Does as it is told; what takes long is let go by an event."""

    def __init__(self):
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()

    async def __call__(self, message, turn):
        match message.text:
            case "raise":
                raise RuntimeError("hunter2")
            case "ask":
                raise requires_input("Which city?")
            case "wait":
                yield "began "
                self.began.set()
                await self.may_end.wait()
                yield "ended"
            case text:
                headers = "a2a-version" in turn.requester.headers
                yield f"You said {text}, {'with' if headers else 'without'} headers"


def server_of(agent):
    return A2AServer(agent, card={"name": "scripted"})


def request(text):
    part = a2a_pb2.Part(text=text)
    message = a2a_pb2.Message(message_id=str(uuid.uuid4()), role=a2a_pb2.ROLE_USER, parts=[part])
    return a2a_pb2.SendMessageRequest(message=message)


@contextlib.asynccontextmanager
async def grpc_stub(running):
    async with grpc.aio.insecure_channel(running.grpc_url) as channel:
        yield a2a_pb2_grpc.A2AServiceStub(channel)


# ── All bindings ─────────────────────────────────────────────────────────────────────────────


async def test_both_clients_are_answered_over_every_binding():
    async with asyncio.timeout(LIMIT), server_of(Scripted()).serving(bindings=ALL) as running:
        texts = []
        for binding in ("JSONRPC", "HTTP+JSON"):
            async with holdfast.connect(running.url, bindings=[binding]) as client:
                texts.append((await client.ask("hello")).text)
                with pytest.raises(holdfast.TaskFailedError, match="internal error"):
                    await client.ask("raise")
        card = to_proto(running.card, a2a_pb2.AgentCard)
        async with httpx.AsyncClient(trust_env=False) as http:
            for binding in ALL:
                config = ClientConfig(
                    httpx_client=http,
                    grpc_channel_factory=grpc.aio.insecure_channel,
                    supported_protocol_bindings=[binding],
                )
                client = ClientFactory(config).create(card)
                events = [event async for event in client.send_message(request("hello"))]
                texts += [
                    "".join(part.text for part in event.artifact_update.artifact.parts)
                    for event in events
                    if event.HasField("artifact_update")
                ]
                assert events[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED

    assert texts == ["You said hello, with headers"] * 5
    assert [i.protocol_binding for i in running.card.supported_interfaces] == list(ALL)
    assert running.card.supported_interfaces[2].url == running.grpc_url


@pytest.mark.rule("P12")
async def test_grpc_asks_fails_and_tells_nothing():
    async with (
        asyncio.timeout(LIMIT),
        server_of(Scripted()).serving(bindings=ALL) as running,
        grpc_stub(running) as stub,
    ):
        asked = (await stub.SendMessage(request("ask"), metadata=VERSION)).task
        failed = (await stub.SendMessage(request("raise"), metadata=VERSION)).task
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetTask(a2a_pb2.GetTaskRequest(id="nobody"), metadata=VERSION)
        async with holdfast.connect(running.url) as client:
            found = await client.get_task(asked.id)

    assert found.state is holdfast.TaskState.INPUT_REQUIRED
    assert asked.status.message.parts[0].text == "Which city?"
    assert failed.status.state == a2a_pb2.TASK_STATE_FAILED
    assert "hunter2" not in str(failed)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_tls_is_spoken_over_http_and_grpc(tmp_path):
    authority = trustme.CA()
    files = {name: str(tmp_path / name) for name in ("cert.pem", "key.pem", "ca.pem")}
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(files["cert.pem"])
    issued.private_key_pem.write_to_path(files["key.pem"])
    authority.cert_pem.write_to_path(files["ca.pem"])
    server = server_of(Scripted())
    tls = {"cert_file": files["cert.pem"], "key_file": files["key.pem"]}
    credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    async with asyncio.timeout(LIMIT), server.serving(bindings=ALL, **tls) as running:
        trusting = holdfast.AiohttpEngine(ssl=ssl.create_default_context(cafile=files["ca.pem"]))
        async with holdfast.connect(running.url, engine=trusting) as client:
            answer = await client.ask("hello")
        async with grpc.aio.secure_channel(running.grpc_url, credentials) as channel:
            stub = a2a_pb2_grpc.A2AServiceStub(channel)
            asked = await stub.SendMessage(request("ask"), metadata=VERSION)
        await trusting.close()

    assert running.url.startswith("https://127.0.0.1:")
    assert answer.text.startswith("You said hello")
    assert asked.task.status.state == a2a_pb2.TASK_STATE_INPUT_REQUIRED


# ── The end ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_open_streams_may_end_before_the_server_does(binding):
    agent = Scripted()
    async with asyncio.timeout(LIMIT), contextlib.AsyncExitStack() as stack:
        serving = server_of(agent).serving(grace=LIMIT)
        running = await serving.__aenter__()
        client = await stack.enter_async_context(holdfast.connect(running.url, bindings=[binding]))
        asking = asyncio.create_task(client.ask("wait"))
        await agent.began.wait()
        stopping = asyncio.create_task(serving.stop())
        await asyncio.sleep(0)
        agent.may_end.set()

        assert (await asking).text == "began ended"
        assert await stopping == 0


async def test_streams_that_do_not_end_in_time_end_in_a_task_that_says_so(caplog):
    agent = Scripted()
    async with asyncio.timeout(LIMIT), contextlib.AsyncExitStack() as stack:
        serving = server_of(agent).serving(bindings=ALL, grace=0.05)
        running = await serving.__aenter__()
        client = await stack.enter_async_context(holdfast.connect(running.url))
        stub = await stack.enter_async_context(grpc_stub(running))
        over_grpc = stub.SendStreamingMessage(request("wait"), metadata=VERSION)
        events = [await over_grpc.read() for _ in range(2)]
        async with client.stream_message("wait") as stream:
            await anext(stream)
            await agent.began.wait()
            assert await serving.stop() == 2
            while not (seen := stream.task).state.is_terminal:
                await anext(stream)
        while (event := await over_grpc.read()) is not grpc.aio.EOF:
            events.append(event)

    assert events[-1].status_update.status.state == a2a_pb2.TASK_STATE_FAILED
    assert seen.status.message.text == "the agent was stopped"
    assert "2 turns were ended" in caplog.text


async def test_a_block_that_raises_ends_at_once():
    agent = Scripted()
    with pytest.raises(RuntimeError, match="mine"):  # noqa: PT012
        async with (
            asyncio.timeout(LIMIT),
            server_of(agent).serving(grace=3600) as running,
            holdfast.connect(running.url) as client,
        ):
            await client.send_message("wait", return_immediately=True)
            await agent.began.wait()
            raise RuntimeError("mine")


@pytest.mark.parametrize("twice", [False, True])
async def test_a_signal_ends_it_and_a_second_one_at_once(twice, caplog):
    caplog.set_level(logging.INFO, "holdfast.server")
    agent, before = Scripted(), signal.getsignal(signal.SIGTERM)
    async with asyncio.timeout(LIMIT):
        serving = asyncio.create_task(server_of(agent).serve(port=0, grace=3600))
        url = await address_in(caplog)
        async with holdfast.connect(url) as client:
            await client.send_message("wait", return_immediately=True)
            await agent.began.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            await logged("stopping on SIGTERM", caplog)
            if twice:
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                agent.may_end.set()
            await serving

    assert ("stopping at once" in caplog.text) is twice
    assert ("1 turns were ended" in caplog.text) is twice
    assert signal.getsignal(signal.SIGTERM) is before


class SlowStore(InMemoryTaskStore):
    """Takes its time to save a task."""

    async def save(self, task, context):
        for _ in range(50):
            await asyncio.sleep(0)
        await super().save(task, context)


class RecordingSender:
    """Records the states that it has pushed, which takes its time, too."""

    def __init__(self):
        self.states = []

    async def send_notification(self, task_id, event):
        for _ in range(50):
            await asyncio.sleep(0)
        if isinstance(event, a2a_pb2.TaskStatusUpdateEvent):
            self.states.append(a2a_pb2.TaskState.Name(event.status.state))


@pytest.mark.parametrize("grace", [0, 0.01])
async def test_a_turn_that_the_end_stopped_is_stored_and_pushed_as_failed(grace):
    agent, store, sender = Scripted(), SlowStore(), RecordingSender()
    options = {"task_store": store, "push": True, "push_sender": sender}
    server = A2AServer(agent, card={"name": "scripted"}, **options)
    async with asyncio.timeout(LIMIT):
        async with (
            server.serving(grace=grace) as running,
            holdfast.connect(running.url) as client,
        ):
            reply = await client.send_message("wait", return_immediately=True)
            await agent.began.wait()
        task = await store.get(reply.id, ServerCallContext())

    assert task.status.state == a2a_pb2.TASK_STATE_FAILED
    assert task.status.message.parts[0].text == "the agent was stopped"
    assert sender.states[-1] == "TASK_STATE_FAILED"


class SdkScripted(AgentExecutor):
    """An executor of the SDK that waits until it is cancelled, and then does as it is told."""

    def __init__(self, at_the_end):
        self.at_the_end = at_the_end
        self.began = asyncio.Event()
        self.was_cancelled = False

    async def execute(self, context, event_queue):
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if self.at_the_end != "is not announced":
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
            await updater.start_work()
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            match self.at_the_end:
                case "swallows it":
                    return
                case "fails":
                    raise RuntimeError("hunter2") from None
                case "ends the task":
                    await updater.complete()
                case "goes on":
                    await asyncio.sleep(0.2)
                    await updater.complete()
                    return
            raise

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def test_a_client_cancels_a_turn_of_an_sdk_executor():
    executor = SdkScripted("is cancelled")
    async with asyncio.timeout(LIMIT):
        async with (
            A2AServer(executor, card={"name": "scripted"}).serving(grace=0) as running,
            holdfast.connect(running.url) as client,
        ):
            task = await client.send_message("wait", return_immediately=True)
            await executor.began.wait()
            canceled = await client.cancel_task(task.id)

    assert canceled.state is holdfast.TaskState.CANCELED
    assert executor.was_cancelled


@pytest.mark.parametrize(
    ("at_the_end", "state"),
    [
        ("is cancelled", "TASK_STATE_FAILED"),
        ("is not announced", "TASK_STATE_FAILED"),
        ("swallows it", "TASK_STATE_FAILED"),
        ("fails", "TASK_STATE_FAILED"),
        ("goes on", "TASK_STATE_FAILED"),
        ("ends the task", "TASK_STATE_COMPLETED"),
    ],
)
@pytest.mark.parametrize("grace", [0, 0.05])
async def test_a_stopped_turn_of_an_sdk_executor_is_stored_and_pushed_with_its_end(
    at_the_end, state, grace, monkeypatch, caplog
):
    monkeypatch.setattr(turn_registry, "_CANCEL_TIMEOUT_S", 0.1)
    executor, store, sender = SdkScripted(at_the_end), SlowStore(), RecordingSender()
    options = {"task_store": store, "push": True, "push_sender": sender}
    server = A2AServer(executor, card={"name": "scripted"}, **options)
    async with asyncio.timeout(LIMIT):
        serving = server.serving(grace=grace)
        running = await serving.__aenter__()
        async with holdfast.connect(running.url) as client:
            asking = asyncio.create_task(client.send_message("wait"))
            await executor.began.wait()
            assert await serving.stop() == 1
            answer = await asking
        task = await store.get(answer.id, ServerCallContext())

    assert a2a_pb2.TaskState.Name(task.status.state) == state
    texts = [part.text for part in task.status.message.parts]
    assert texts == ([] if at_the_end == "ends the task" else ["the agent was stopped"])
    assert sender.states[-1] == state
    assert sum(name != "TASK_STATE_WORKING" for name in sender.states) == 1
    assert answer.state == holdfast.TaskState(state)
    assert "Dispatcher task" not in caplog.text


async def test_a_turn_of_an_sdk_executor_that_begins_while_the_server_stops_fails():
    executor, store = SdkScripted("is cancelled"), InMemoryTaskStore()
    server = A2AServer(executor, card={"name": "scripted"}, task_store=store)
    async with asyncio.timeout(LIMIT):
        network = AsgiNetwork({URL: server.app(url=URL)})
        async with holdfast.connect(URL, engine=network) as client:
            first = await client.send_message("wait", return_immediately=True)
            await executor.began.wait()
            closing = asyncio.create_task(server.close(grace=0.2))
            await asyncio.sleep(0)
            with pytest.raises(holdfast.TaskFailedError, match="the agent is stopping"):
                await client.ask("wait")
            await closing
        task = await store.get(first.id, ServerCallContext())

    assert task.status.message.parts[0].text == "the agent was stopped"


async def logged(beginning, caplog):
    while True:
        for record in caplog.records:
            if record.name == "holdfast.server" and record.getMessage().startswith(beginning):
                return record
        await asyncio.sleep(0.01)


async def address_in(caplog):
    return (await logged("serving ", caplog)).args[1]


@pytest.mark.parametrize("is_set_up", [False, True])
async def test_where_no_logging_is_set_up_stderr_tells_why_a_turn_failed(
    is_set_up, monkeypatch, capsys
):
    logger = logging.getLogger("holdfast")
    monkeypatch.setattr(logger, "propagate", False)  # pytest has set up the root
    monkeypatch.setattr(logger, "handlers", [logging.NullHandler()])
    if is_set_up:
        monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(io.StringIO())])
    port = reserve_port()
    async with asyncio.timeout(LIMIT):
        serving = asyncio.create_task(server_of(Scripted()).serve(port=port))
        async with holdfast.connect(f"http://127.0.0.1:{port}") as client:
            with pytest.raises(holdfast.TaskFailedError, match="internal error"):
                await client.ask("raise")
        os.kill(os.getpid(), signal.SIGTERM)
        await serving

    told = capsys.readouterr().err
    assert ("hunter2" in told) is not is_set_up
    assert (f"serving scripted at http://127.0.0.1:{port}\n" in told) is not is_set_up
    server = logging.getLogger("holdfast.server")
    assert (server.handlers, server.level) == ([], logging.NOTSET)


async def test_a_server_that_is_cancelled_leaves_nothing(caplog):
    caplog.set_level(logging.INFO, "holdfast.server")
    agent, before = Scripted(), asyncio.all_tasks()
    async with asyncio.timeout(LIMIT):
        serving = asyncio.create_task(server_of(agent).serve(port=0, grace=3600))
        async with holdfast.connect(await address_in(caplog)) as client:
            await client.send_message("wait", return_immediately=True)
            await agent.began.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    assert asyncio.all_tasks() == before


async def test_a_port_that_is_taken_is_an_error_and_leaves_nothing():
    async with asyncio.timeout(LIMIT), server_of(Scripted()).serving() as running:
        port = int(running.url.rpartition(":")[2])
        before = asyncio.all_tasks()
        with pytest.raises(OSError, match=f"on 127.0.0.1:{port}: Address already in use"):
            async with server_of(Scripted()).serving(port=port):
                pass
        assert asyncio.all_tasks() == before


def test_what_is_not_entered_says_so():
    serving = server_of(Scripted()).serving()
    with pytest.raises(AttributeError, match="'url'; enter it first: async with"):
        _ = serving.url
    with pytest.raises(AttributeError, match=r"'colour'$"):
        _ = serving.colour


# ── Clients that take their time ─────────────────────────────────────────────────────────────


async def sent(running, *pieces):
    """Sends pieces, and then nothing; gives what comes until the server closes."""
    host, port = running.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for piece in pieces:
            writer.write(piece)
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.transport.abort()


async def test_who_does_not_get_to_the_point_is_not_waited_for():
    head = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n"
    server = A2AServer(Scripted(), card={"name": "scripted"}, body_timeout=0.2, max_body=100)
    async with asyncio.timeout(LIMIT), server.serving() as running:
        nothing, half, slow = await asyncio.gather(
            sent(running, b""),
            sent(running, head),
            sent(running, head, b'\r\n{"jsonrpc": "2.0", "id": 1, "'),
        )
        async with httpx.AsyncClient(trust_env=False) as http:
            large = await http.post(running.url, content=b"x" * 5_000_000)

    assert nothing == half == b""
    assert slow.startswith(b"HTTP/1.1 408 ")
    assert large.status_code == 413
