"""`RetryTransport` around the SDK's own transports: JSON-RPC, HTTP+JSON and gRPC."""

import asyncio
import contextlib
import json

import grpc
import httpx
import pytest
from a2a.client.errors import A2AClientError, A2AClientTimeoutError
from a2a.client.transports.grpc import GrpcTransport
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.client.transports.rest import RestTransport
from a2a.client.transports.tenant_decorator import TenantTransportDecorator
from a2a.types import a2a_pb2 as sdk
from a2a.types import a2a_pb2_grpc
from a2a.utils.errors import TaskNotFoundError
from tests.kit.ports import reserve_port
from tests.kit.raw_server import serve
from tests.kit.sdk_transports import Dice

from holdfast.integrations.a2a_sdk import RetryTransport, retry_facts

URL = "http://agent.example/a2a"
SEND = sdk.SendMessageRequest(message=sdk.Message(message_id="m-1", role="ROLE_USER"))
GET = sdk.GetTaskRequest(id="t-1")
SUBSCRIBE = sdk.SubscribeToTaskRequest(id="t-1")
TASK = {"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_WORKING"}}

BINDINGS = {"JSONRPC": JsonRpcTransport, "HTTP+JSON": RestTransport}


@pytest.fixture(params=BINDINGS)
def binding(request):
    return request.param


# ── Over httpx, in virtual time ──────────────────────────────────────────────────────────────


class Agent(httpx.AsyncBaseTransport):
    """What httpx gets: a status, events, an error of its own, or a task when nothing is left.

    Attributes:
        requests: What was asked.
        open: How many streams are open.
    """

    def __init__(self, binding, *script):
        self._is_rpc = binding == "JSONRPC"
        self._script = list(script)
        self.requests = []
        self.open = 0

    async def handle_async_request(self, request):
        self.requests.append(request)
        what = self._script.pop(0) if self._script else 200
        if isinstance(what, type):
            raise what("no reply", request=request)
        if isinstance(what, list):
            stream = Events(self, what, request)
            return httpx.Response(
                200, headers={"content-type": "text/event-stream"}, stream=stream
            )
        if isinstance(what, httpx.Response):
            return what
        asks = b"/message:send" in request.url.raw_path or b'"SendMessage"' in request.content
        result = {"task": TASK} if asks else TASK
        return httpx.Response(what, json=self.wrapped(result) if what == 200 else None)

    def wrapped(self, result):
        return {"jsonrpc": "2.0", "id": "1", "result": result} if self._is_rpc else result


class Events(httpx.AsyncByteStream):
    def __init__(self, agent, script, request):
        self._agent = agent
        self._script = script
        self._request = request
        agent.open += 1

    async def __aiter__(self):
        for what in self._script:
            if isinstance(what, type):
                raise what("cut", request=self._request)
            yield f"data: {json.dumps(self._agent.wrapped({'task': what}))}\n\n".encode()

    async def aclose(self):
        self._agent.open -= 1


def over(binding, agent, **options):
    client = httpx.AsyncClient(transport=agent)
    inner = BINDINGS[binding](client, sdk.AgentCard(), URL)
    return RetryTransport(inner, env=Dice(0.5), **options)


async def test_a_message_comes_through_what_passes(binding):
    agent = Agent(binding, httpx.ConnectError, 429, httpx.ConnectTimeout)
    async with over(binding, agent) as transport:
        answer = await transport.send_message(SEND)

    assert answer.task.id == "t-1"
    assert len(agent.requests) == 4
    bodies = [json.loads(request.content) for request in agent.requests]
    messages = [body.get("params", body)["message"]["messageId"] for body in bodies]
    assert messages == ["m-1"] * 4


@pytest.mark.parametrize(
    "what", [httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError, 502, 503, 504]
)
async def test_a_message_that_may_have_come_through_is_not_sent_again(binding, what):
    agent = Agent(binding, what, what)
    async with over(binding, agent) as transport:
        with pytest.raises(A2AClientError) as raised:
            await transport.send_message(SEND)
        assert retry_facts(raised.value).reason == "the agent may have executed it"
        with pytest.raises(A2AClientError):
            [event async for event in transport.send_message_streaming(SEND)]

    assert len(agent.requests) == 2


@pytest.mark.parametrize(
    "what", [httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError, 429, 502, 503, 504]
)
async def test_what_only_asks_is_asked_again(binding, what):
    agent = Agent(binding, what)
    async with over(binding, agent) as transport:
        assert (await transport.get_task(GET)).id == "t-1"

    assert len(agent.requests) == 2


async def test_a_hint_of_a_real_reply_is_followed(binding):
    agent = Agent(binding, httpx.Response(503, headers={"Retry-After": "30"}))
    async with over(binding, agent) as transport:
        await transport.send_message(SEND)

    assert asyncio.get_running_loop().time() == 30.5


async def test_a_refusal_that_the_agent_words_itself_proves_nothing(binding):
    error = {"code": -32603, "message": "ran into something"}
    body = (
        {"jsonrpc": "2.0", "id": "1", "error": error} if binding == "JSONRPC" else {"error": error}
    )
    agent = Agent(binding, httpx.Response(503, headers={"Retry-After": "1"}, json=body))
    async with over(binding, agent) as transport:
        with pytest.raises(A2AClientError):
            await transport.send_message(SEND)

    assert len(agent.requests) == 1


def no_such_task(binding):
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "TASK_NOT_FOUND",
        "domain": "a2a-protocol.org",
    }
    error = {"code": -32001, "message": "no such task"}
    body = {
        "JSONRPC": {"jsonrpc": "2.0", "id": "1", "error": error},
        "HTTP+JSON": {"error": {**error, "details": [info]}},
    }[binding]
    status = 200 if binding == "JSONRPC" else 404
    return httpx.Response(status, json=body)


async def test_an_answer_of_the_agent_is_no_failure(binding):
    agent = Agent(binding, no_such_task(binding))
    async with over(binding, agent) as transport:
        with pytest.raises(TaskNotFoundError):
            await transport.get_task(GET)

    assert len(agent.requests) == 1


async def test_a_stream_is_opened_again_before_its_first_event(binding):
    agent = Agent(binding, httpx.ConnectError, 503, [httpx.ReadError], [TASK, TASK])
    async with over(binding, agent) as transport:
        events = [event async for event in transport.subscribe(SUBSCRIBE)]

    assert [event.task.id for event in events] == ["t-1"] * 2
    assert len(agent.requests) == 4
    assert agent.open == 0


async def test_a_stream_that_is_cut_later_is_the_callers(binding):
    agent = Agent(binding, [TASK, httpx.ReadError])
    got = []

    async def follow(transport):
        async for event in transport.subscribe(SUBSCRIBE):
            got.append(event)  # noqa: PERF401  what was got before the cut is looked at

    async with over(binding, agent) as transport:
        with pytest.raises(A2AClientError):
            await follow(transport)

    assert (len(got), len(agent.requests), agent.open) == (1, 1, 0)


async def test_a_stream_that_is_left_is_closed(binding):
    agent = Agent(binding, [TASK, TASK])
    async with over(binding, agent) as transport:
        events = transport.subscribe(SUBSCRIBE)
        await anext(events)
        assert agent.open == 1
        await events.aclose()
        await asyncio.sleep(0.01)  # the SDK leaves its innermost generator to the event loop

        assert agent.open == 0


async def test_the_tenant_of_a_decorator_is_in_the_path_of_each_try():
    agent = Agent("HTTP+JSON", httpx.ConnectError, httpx.ConnectError)
    client = httpx.AsyncClient(transport=agent)
    inner = TenantTransportDecorator(RestTransport(client, sdk.AgentCard(), URL), "acme")
    request = sdk.GetTaskRequest(id="t-1")

    async with RetryTransport(inner, env=Dice(0.5)) as transport:
        await transport.get_task(request)

    assert [asked.url.path for asked in agent.requests] == ["/a2a/acme/tasks/t-1"] * 3
    assert request.tenant == ""


@pytest.mark.parametrize("what", [httpx.ConnectError, httpx.ConnectTimeout, 429])
@pytest.mark.parametrize("elsewhere", ["http://audit.example/a2a", "http://agent.example/log"])
async def test_what_a_hook_asks_of_others_says_nothing_of_the_message(binding, what, elsewhere):
    agent = Agent(binding)

    async def audit(_):
        other = httpx.AsyncClient(transport=Agent(binding, what))
        (await other.post(elsewhere)).raise_for_status()

    client = httpx.AsyncClient(transport=agent, event_hooks={"response": [audit]})
    inner = TenantTransportDecorator(BINDINGS[binding](client, sdk.AgentCard(), URL), "acme")

    async with RetryTransport(inner, env=Dice(0.5)) as transport:
        with pytest.raises(A2AClientError) as raised:
            await transport.send_message(SEND)

    assert len(agent.requests) == 1
    assert retry_facts(raised.value).executed is None


@pytest.mark.parametrize(
    ("url", "base"),
    [("HTTP://Agent.Example:80/a2a/", ""), ("/a2a", "http://agent.example"), (URL, "")],
)
async def test_an_address_may_be_written_in_several_ways(binding, url, base):
    agent = Agent(binding, httpx.ConnectError)
    client = httpx.AsyncClient(transport=agent, base_url=base)
    inner = BINDINGS[binding](client, sdk.AgentCard(), url)

    async with RetryTransport(inner, env=Dice(0.5)) as transport:
        await transport.send_message(SEND)

    assert len(agent.requests) == 2


async def test_a_config_that_was_not_there_is_not_deleted_by_who_was_never_heard():
    agent = Agent("HTTP+JSON", httpx.ConnectError, no_such_task("HTTP+JSON"))

    async with over("HTTP+JSON", agent) as transport:
        with pytest.raises(TaskNotFoundError):
            await transport.delete_task_push_notification_config(
                sdk.DeleteTaskPushNotificationConfigRequest(task_id="t-1", id="c-1")
            )


# ── Over httpx, on real sockets ──────────────────────────────────────────────────────────────


async def stall(connection):
    if await connection.request() is not None:
        await connection.stall()


async def reset(connection):
    if await connection.request() is not None:
        connection.reset()


async def leave(connection):
    await connection.request()


def on_sockets(binding, url, *, read=0.1, **options):
    client = httpx.AsyncClient(timeout=httpx.Timeout(5, read=read))
    inner = BINDINGS[binding](client, sdk.AgentCard(), url)
    return RetryTransport(inner, base_delay=0.01, **options)


@pytest.mark.real_time
@pytest.mark.parametrize("script", [stall, reset, leave])
@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({}, 1),
        ({"retry_predicate": lambda _: True}, 1),
        ({"resend_ambiguous": True, "max_retries": 1}, 2),
    ],
)
async def test_a_message_whose_reply_is_lost_is_executed_once(binding, script, options, sent):
    async with (
        serve(script) as server,
        on_sockets(binding, server.url, **options) as transport,
    ):
        with pytest.raises(A2AClientError):
            await transport.send_message(SEND)
        assert len(server.requests) == sent
        with pytest.raises(A2AClientError):
            [event async for event in transport.send_message_streaming(SEND)]

        assert len(server.requests) == 2 * sent


@pytest.mark.real_time
@pytest.mark.parametrize("script", [stall, reset, leave])
async def test_what_only_asks_is_asked_again_on_a_socket(binding, script):
    async with (
        serve(script) as server,
        on_sockets(binding, server.url, max_retries=2) as transport,
    ):
        with pytest.raises(A2AClientError):
            await transport.get_task(GET)

        assert len(server.requests) == 3


@pytest.mark.real_time
async def test_a_message_that_is_refused_at_the_socket_is_sent_again(binding):
    told = []
    url = f"http://127.0.0.1:{reserve_port()}/"
    transport = on_sockets(binding, url, max_retries=2, on_retry=lambda *args: told.append(args))

    async with transport:
        with pytest.raises(A2AClientError) as raised:
            await transport.send_message(SEND)

    assert [attempt for attempt, *_ in told] == [1, 2]
    assert retry_facts(raised.value).executed is False


@pytest.mark.real_time
async def test_a_call_ends_with_its_time_on_a_socket(binding):
    async with (
        serve(stall) as server,
        on_sockets(binding, server.url, read=5, timeout=0.5) as transport,
    ):
        with pytest.raises(A2AClientTimeoutError, match=r"did not finish .* of 0\.5 s"):
            await transport.get_task(GET)
        await server.connections[0].until_gone()  # what it waited for is let go of

        assert len(server.requests) == 1


# ── gRPC ─────────────────────────────────────────────────────────────────────────────────────


class Servicer(a2a_pb2_grpc.A2AServiceServicer):
    """An agent that fails as its script says, having done its work.

    Attributes:
        executed: The contexts of the calls, in order.
    """

    def __init__(self, *script):
        self._script = list(script)
        self.executed = []

    async def _work(self, context):
        self.executed.append(context)
        if self._script:
            code, text, *trailing = self._script.pop(0)
            await context.abort(code, text, trailing_metadata=tuple(trailing))

    async def SendMessage(self, request, context):  # noqa: N802
        await self._work(context)
        return sdk.SendMessageResponse(task=sdk.Task(id="t-1"))

    async def GetTask(self, request, context):  # noqa: N802
        await self._work(context)
        return sdk.Task(id=request.id)

    async def SubscribeToTask(self, request, context):  # noqa: N802
        await self._work(context)
        yield sdk.StreamResponse(task=sdk.Task(id=request.id))
        await self._work(context)


@contextlib.asynccontextmanager
async def grpc_agent(*script, port=0):
    servicer = Servicer(*script)
    server = grpc.aio.server()
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(servicer, server)
    servicer.port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield servicer
    finally:
        await server.stop(None)


def channel_to(port):
    quickly = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 100)]
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=quickly)


@contextlib.asynccontextmanager
async def over_grpc(port, *, channel=None, **options):
    inner = GrpcTransport(channel or channel_to(port), sdk.AgentCard())
    async with RetryTransport(inner, **({"base_delay": 0.01} | options)) as transport:
        yield transport


BUSY = (grpc.StatusCode.UNAVAILABLE, "busy")
EXHAUSTED = (grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")
PASSED_ON = (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: tool")
DENIED = (grpc.StatusCode.PERMISSION_DENIED, "no")


@pytest.mark.real_time
async def test_what_only_asks_is_asked_again_over_grpc():
    async with grpc_agent(BUSY, EXHAUSTED) as agent, over_grpc(agent.port) as transport:
        assert (await transport.get_task(GET)).id == "t-1"

        assert len(agent.executed) == 3


@pytest.mark.real_time
async def test_a_stream_is_opened_again_over_grpc():
    async with grpc_agent(BUSY) as agent, over_grpc(agent.port) as transport:
        events = [event async for event in transport.subscribe(SUBSCRIBE)]

        assert [event.task.id for event in events] == ["t-1"]
        assert len(agent.executed) == 3


@pytest.mark.real_time
async def test_an_answer_over_grpc_is_no_failure():
    async with grpc_agent(DENIED) as agent, over_grpc(agent.port) as transport:
        with pytest.raises(A2AClientError):
            await transport.get_task(GET)

        assert len(agent.executed) == 1


@pytest.mark.real_time
@pytest.mark.parametrize("failure", [BUSY, EXHAUSTED, PASSED_ON])
async def test_a_message_that_a_grpc_agent_worked_on_is_executed_once(failure):
    """Even if the agent passes on in gRPC's words that a tool of *its* was not there."""
    async with grpc_agent(failure) as agent, over_grpc(agent.port) as transport:
        with pytest.raises(A2AClientError) as raised:
            await transport.send_message(SEND)

        assert len(agent.executed) == 1
        assert retry_facts(raised.value).reason == "the agent may have executed it"


@pytest.mark.real_time
async def test_a_message_that_found_no_grpc_agent_is_sent_once_there_is_one():
    port = reserve_port()
    channel = channel_to(port)
    retries, started = [], []
    async with contextlib.AsyncExitStack() as stack:

        async def start(attempt, *_):
            retries.append(attempt)
            if attempt == 3:
                started.append(await stack.enter_async_context(grpc_agent(port=port)))
                # A try that fails while a connection comes about may have been carried by it:
                # it would be the last one.
                await channel.channel_ready()

        transport = await stack.enter_async_context(
            over_grpc(port, channel=channel, on_retry=start)
        )
        answer = await transport.send_message(SEND)

        assert answer.task.id == "t-1"
        assert retries == [1, 2, 3]
        assert len(started[0].executed) == 1


@pytest.mark.real_time
async def test_a_grpc_hint_ends_the_call_at_once_if_it_is_too_long():
    wait = (*BUSY, ("grpc-retry-pushback-ms", "90000"))
    async with grpc_agent(wait) as agent, over_grpc(agent.port) as transport:
        with pytest.raises(A2AClientError) as raised:
            await transport.get_task(GET)

    assert retry_facts(raised.value).retry_after == 90
