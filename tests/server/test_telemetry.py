"""Spans of a served agent: their parents, their attributes, their ends, and bad input."""

import asyncio
import contextlib
import gc
import json
from contextvars import ContextVar

import grpc
import pytest
from a2a.server.agent_execution import AgentExecutor
from a2a.server.context import ServerCallContext
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import a2a_pb2, a2a_pb2_grpc
from opentelemetry import baggage, context, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from tests.kit.real_agents import LIMIT
from tests.kit.recorded_spans import (
    BrokenPropagator,
    broken_spans,
    broken_tracers,
    recorded_spans,
    span_named,
)
from tests.kit.served_agents import URL, calling, echo

from holdfast import connect
from holdfast.errors import A2AError, TaskNotFoundError
from holdfast.extend import HttpReply
from holdfast.integrations.opentelemetry import HoldfastInstrumentor, Telemetry
from holdfast.push import PushReceiver
from holdfast.server import A2AServer, requires_input
from holdfast.types import (
    Message,
    Part,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"

MESSAGE = Message(message_id="m-7", parts=(Part(text="hi"),))

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


@pytest.fixture
def traced(caplog):
    with recorded_spans() as recorded:
        yield recorded
    assert "Failed to detach context" not in caplog.text


def telemetry_of(provider):
    return Telemetry(tracer_provider=provider)


def ids(span):
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def parent_ids(span):
    return f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}"


class Nested:
    """An agent's function that makes a span, and notes the baggage."""

    def __init__(self, provider):
        self.tracer = provider.get_tracer("agent")
        self.baggage = []

    async def __call__(self, message):
        self.baggage.append(dict(baggage.get_all()))
        with self.tracer.start_as_current_span("work"):
            return f"You said {message.text}"


def nested(provider, **options):
    agent = Nested(provider)
    options = {"card": {"name": "nested"}, "telemetry": telemetry_of(provider), **options}
    return agent, A2AServer(agent, **options)


# ── Requests ─────────────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_a_request_continues_the_trace_and_the_agent_runs_below_it(traced, binding):
    provider, finished = traced
    agent, server = nested(provider)
    headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=1", "baggage": "user=ada"}

    async with calling(server, binding) as client:
        task = await client.send_message(MESSAGE, headers=headers)

    span = span_named(finished(), "SendMessage")
    assert (span.kind, parent_ids(span)) == (SpanKind.SERVER, (TRACE, SPAN))
    assert span.parent.is_remote
    assert span.context.trace_state == {"vendor": "1"}
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes) == {
        "a2a.method.name": "SendMessage",
        "a2a.protocol.version": "1.0",
        "a2a.message.id": "m-7",
        "a2a.task.id": task.id,
        "a2a.task.state": "TASK_STATE_COMPLETED",
        "gen_ai.conversation.id": task.context_id,
        "server.address": "agent.test",
        "server.port": 80,
    }
    assert parent_ids(span_named(finished(), "work")) == ids(span)
    assert agent.baggage == [{"user": "ada"}]


@both_bindings
async def test_a_stream_has_one_span_until_its_last_event(traced, binding):
    provider, finished = traced
    _, server = nested(provider)

    async with calling(server, binding) as client:
        answer = await client.ask("hi", headers={"traceparent": TRACEPARENT})

    span = span_named(finished(), "SendStreamingMessage")
    assert (span.kind, parent_ids(span)) == (SpanKind.SERVER, (TRACE, SPAN))
    assert span.attributes["a2a.task.id"] == answer.task_id
    assert span.attributes["a2a.task.state"] == "TASK_STATE_COMPLETED"
    assert parent_ids(span_named(finished(), "work")) == ids(span)


@both_bindings
async def test_each_method_has_a_span_of_its_name(traced, binding):
    provider, finished = traced

    async def works_forever(_):
        await asyncio.Event().wait()

    server = A2AServer(
        works_forever,
        push=True,
        push_networks=["127.0.0.0/8"],
        push_engine=Carrying(),
        extended_card={"name": "extended"},
        telemetry=telemetry_of(provider),
    )
    async with calling(server, binding) as client:
        task = await client.send_message("hi", return_immediately=True, tenant="acme")
        await client.get_task(task.id)
        await client.list_tasks()
        config = TaskPushNotificationConfig(task_id=task.id, id="c", url="http://127.0.0.1/")
        await client.create_task_push_notification_config(config)
        await client.get_task_push_notification_config(task.id, "c")
        await client.list_task_push_notification_configs(task.id)
        await client.delete_task_push_notification_config(task.id, "c")
        await client.get_extended_agent_card()
        await client.cancel_task(task.id)

    spans = {span.name: span for span in finished()}
    assert spans.keys() == {
        "SendMessage",
        "GetTask",
        "ListTasks",
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
        "GetExtendedAgentCard",
        "CancelTask",
    }
    assert {span.kind for span in finished()} == {SpanKind.SERVER}
    assert spans["SendMessage"].attributes["a2a.tenant"] == "acme"
    for name, span in spans.items():
        assert span.attributes["a2a.method.name"] == name
        known = span.attributes.get("a2a.task.id")
        assert known == (None if name in {"ListTasks", "GetExtendedAgentCard"} else task.id)


@both_bindings
async def test_requests_of_protocol_0_3_have_spans(traced, binding):
    provider, finished = traced
    _, server = nested(provider, versions=["0.3"])

    async with calling(server, binding) as client:
        await client.send_message("hi", headers={"traceparent": TRACEPARENT})

    span = span_named(finished(), "SendMessage")
    assert (span.attributes["a2a.protocol.version"], parent_ids(span)) == ("0.3", (TRACE, SPAN))


@pytest.mark.real_time
async def test_requests_over_grpc_have_spans(traced):
    provider, finished = traced
    agent, server = nested(provider)
    message = a2a_pb2.Message(
        message_id="m", role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text="hi")]
    )
    request = a2a_pb2.SendMessageRequest(message=message, tenant="acme")
    metadata = [("a2a-version", "1.0"), ("traceparent", TRACEPARENT), ("baggage", "user=ada")]
    async with (
        asyncio.timeout(LIMIT),
        server.serving(bindings=("JSONRPC", "GRPC")) as running,
        grpc.aio.insecure_channel(running.grpc_url) as channel,
    ):
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        reply = await stub.SendMessage(request, metadata=metadata)
        events = [each async for each in stub.SendStreamingMessage(request, metadata=metadata)]
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.GetTask(a2a_pb2.GetTaskRequest(id="unknown"), metadata=metadata)

    unary, stream = (
        span_named(finished(), "SendMessage"),
        span_named(finished(), "SendStreamingMessage"),
    )
    assert unary.attributes["a2a.task.id"] == reply.task.id
    assert stream.attributes["a2a.task.id"] == events[0].task.id
    for span in (unary, stream):
        assert (span.kind, parent_ids(span)) == (SpanKind.SERVER, (TRACE, SPAN))
        assert span.attributes["a2a.tenant"] == "acme"
        assert f"127.0.0.1:{span.attributes['server.port']}" == running.grpc_url
    assert agent.baggage == [{"user": "ada"}] * 2
    assert span_named(finished(), "GetTask").attributes["error.type"] == "TaskNotFoundError"


async def test_the_next_message_of_a_task_runs_below_its_own_request(traced):
    provider, finished = traced
    tracer = provider.get_tracer("agent")

    async def asks(message, turn):
        with tracer.start_as_current_span(f"work on {message.text}"):
            return requires_input("More?") if turn.task is None else "done"

    server = A2AServer(asks, telemetry=telemetry_of(provider))
    async with calling(server) as client:
        task = await client.send_message("one", headers={"traceparent": TRACEPARENT})
        await client.send_message("two", task_id=task.id, context_id=task.context_id)

    first, second = [span for span in finished() if span.name == "SendMessage"]
    assert parent_ids(span_named(finished(), "work on one")) == ids(first)
    assert parent_ids(span_named(finished(), "work on two")) == ids(second)
    assert second.parent is None
    assert ids(first)[0] != ids(second)[0]


async def test_an_agent_that_outlives_its_request_keeps_the_context(traced):
    provider, finished = traced
    tracer = provider.get_tracer("agent")

    async def slow(_):
        await asyncio.sleep(60)
        with tracer.start_as_current_span("work"):
            return "done"

    async with calling(A2AServer(slow, telemetry=telemetry_of(provider))) as client:
        task = await client.send_message("hi", return_immediately=True)
        assert span_named(finished(), "SendMessage").attributes["a2a.task.id"] == task.id
        await client.wait(task.id)

    assert parent_ids(span_named(finished(), "work")) == ids(span_named(finished(), "SendMessage"))


async def test_a_blocking_function_runs_in_the_context(traced):
    provider, finished = traced
    tracer = provider.get_tracer("agent")

    def blocking(_):
        with tracer.start_as_current_span("work"):
            yield "a"
        yield "b"

    async with calling(A2AServer(blocking, telemetry=telemetry_of(provider))) as client:
        assert (await client.ask("hi")).text == "ab"

    assert parent_ids(span_named(finished(), "work")) == ids(
        span_named(finished(), "SendStreamingMessage")
    )


async def test_an_executor_of_the_sdk_runs_in_the_context(traced):
    provider, finished = traced
    tracer = provider.get_tracer("agent")

    class OfTheSdk(AgentExecutor):
        async def execute(self, context, event_queue):
            with tracer.start_as_current_span("work"):
                message = a2a_pb2.Message(message_id="m", role=a2a_pb2.ROLE_AGENT)
                message.parts.add(text="hi")
                await event_queue.enqueue_event(message)

        async def cancel(self, context, event_queue):
            raise NotImplementedError

    server = A2AServer(OfTheSdk(), card={"name": "sdk"}, telemetry=telemetry_of(provider))
    async with calling(server) as client:
        await client.send_message("hi")

    assert parent_ids(span_named(finished(), "work")) == ids(span_named(finished(), "SendMessage"))


async def test_an_async_generator_may_keep_a_span_open_across_its_yields(traced):
    provider, finished = traced
    tracer = provider.get_tracer("agent")

    async def generates(_):
        with tracer.start_as_current_span("work"):
            for piece in "abc":
                await asyncio.sleep(1)
                yield piece

    async with calling(A2AServer(generates, telemetry=telemetry_of(provider))) as client:
        assert (await client.ask("hi")).text == "abc"

    assert parent_ids(span_named(finished(), "work")) == ids(
        span_named(finished(), "SendStreamingMessage")
    )


@both_bindings
async def test_a_subscription_has_a_span_of_its_own(traced, binding):
    provider, finished = traced
    tracer = provider.get_tracer("agent")

    async def slow(_):
        await asyncio.sleep(10)
        with tracer.start_as_current_span("work"):
            return "done"

    async with calling(A2AServer(slow, telemetry=telemetry_of(provider)), binding) as client:
        task = await client.send_message("hi", return_immediately=True)
        headers = {"traceparent": TRACEPARENT}
        async with client.subscribe_to_task(task.id, headers=headers) as events:
            assert [event async for event in events]

    subscribed = span_named(finished(), "SubscribeToTask")
    assert parent_ids(subscribed) == (TRACE, SPAN)
    assert subscribed.attributes["a2a.task.id"] == task.id
    assert subscribed.attributes["a2a.task.state"] == "TASK_STATE_COMPLETED"
    assert parent_ids(span_named(finished(), "work")) == ids(span_named(finished(), "SendMessage"))


async def test_concurrent_requests_keep_their_contexts_apart(traced):
    provider, finished = traced
    seen = {}

    async def agent(message):
        for _ in range(5):
            await asyncio.sleep(1)
            seen.setdefault(message.text, set()).add(
                (trace.get_current_span().get_span_context().trace_id, baggage.get_baggage("user"))
            )
        return message.text

    async with calling(A2AServer(agent, telemetry=telemetry_of(provider))) as client:
        await asyncio.gather(
            *(
                client.ask(
                    str(number),
                    headers={
                        "traceparent": f"00-{number:032x}-{SPAN}-01",
                        "baggage": f"user={number}",
                    },
                )
                for number in range(1, 21)
            )
        )

    assert seen == {str(number): {(number, str(number))} for number in range(1, 21)}
    assert len(finished()) >= 20


async def test_the_context_in_which_a_server_is_started_is_not_used(traced):
    provider, finished = traced
    agent, server = nested(provider)
    token = context.attach(baggage.set_baggage("user", "operator"))
    with provider.get_tracer("program").start_as_current_span("main"):
        assert await call_asgi(server.app(url=URL), HEADERS, body_of("m")) == 200
    context.detach(token)
    await server.close()

    assert span_named(finished(), "SendMessage").parent is None
    assert agent.baggage == [{}]


async def test_a_trace_that_is_not_sampled_is_continued_without_spans(traced):
    provider, finished = traced
    engine, seen = Carrying(), []

    async def agent(message):
        seen.append(trace.get_current_span().get_span_context())
        return message.text

    server = A2AServer(
        agent,
        push=True,
        push_engine=engine,
        push_networks=["127.0.0.0/8"],
        telemetry=telemetry_of(provider),
    )
    config = TaskPushNotificationConfig(url="http://127.0.0.1/")
    async with calling(server) as client:
        headers = {"traceparent": TRACEPARENT.removesuffix("01") + "00"}
        await client.ask("hi", headers=headers, push_notification_config=config)

    assert finished() == ()
    assert (f"{seen[0].trace_id:032x}", seen[0].trace_flags.sampled) == (TRACE, False)
    sent = {request.headers["traceparent"][-3:] for request in engine.requests}
    assert sent == {"-00"}


# ── Errors and ends ──────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_an_error_of_the_client_is_no_error_of_the_server(traced, binding):
    provider, finished = traced
    async with calling(A2AServer(echo, telemetry=telemetry_of(provider)), binding) as client:
        with pytest.raises(TaskNotFoundError):
            await client.get_task("unknown")

    span = span_named(finished(), "GetTask")
    assert span.attributes["error.type"] == "TaskNotFoundError"
    assert span.attributes["a2a.task.id"] == "unknown"
    assert span.status.status_code is StatusCode.UNSET


async def test_an_error_of_the_server_is_an_error_without_its_text(traced):
    class Store(InMemoryTaskStore):
        async def get(self, *_args, **_options):
            raise RuntimeError("hunter2")

    provider, finished = traced
    server = A2AServer(echo, task_store=Store(), telemetry=telemetry_of(provider))
    async with calling(server) as client:
        with pytest.raises(A2AError):
            await client.get_task("t", timeout=5)

    spans = [span for span in finished() if span.name == "GetTask"]
    for span in spans:
        assert span.attributes["error.type"] == "InternalError"
        assert span.status.status_code is StatusCode.ERROR
        assert "hunter2" not in span.to_json()
    assert spans


async def test_a_task_that_fails_is_a_state_of_its_request(traced):
    provider, finished = traced

    async def fails(_):
        raise RuntimeError("hunter2")

    async with calling(A2AServer(fails, telemetry=telemetry_of(provider))) as client:
        await client.send_message("hi")

    span = span_named(finished(), "SendMessage")
    assert span.attributes["a2a.task.state"] == "TASK_STATE_FAILED"
    assert "hunter2" not in span.to_json()


@both_bindings
@pytest.mark.parametrize("how", ["left", "cancelled", "closed"])
async def test_the_span_of_a_stream_ends_once_however_the_stream_ends(traced, how, binding):
    provider, finished = traced

    async def endless(_):
        while True:
            await asyncio.sleep(1)
            yield "."

    server = A2AServer(endless, telemetry=telemetry_of(provider))
    async with calling(server, binding) as client:
        events = client.stream_message("hi")

        async def read():
            await events.__aenter__()
            async for _ in events:
                pass

        reading = asyncio.create_task(read())
        await asyncio.sleep(3.5)
        assert finished() == ()
        match how:
            case "closed":
                await server.close()
                await asyncio.wait([reading])
            case "left":
                await events.close()
                await asyncio.wait([reading])
            case _:
                reading.cancel()
                await asyncio.wait([reading])
                await events.close()
        await asyncio.sleep(1)

        span = span_named(finished(), "SendStreamingMessage")
        state = "TASK_STATE_FAILED" if how == "closed" else "TASK_STATE_WORKING"
        assert span.attributes["a2a.task.state"] == state
        assert span.status.status_code is StatusCode.UNSET


async def test_a_generator_of_the_handler_that_is_garbage_collected_ends_its_span(traced):
    provider, finished = traced
    server = A2AServer(echo, telemetry=telemetry_of(provider))
    handler = server._service(server.agent_card(url=URL)).handler
    request = a2a_pb2.SendMessageRequest()
    request.message.message_id = "m"
    request.message.role = a2a_pb2.ROLE_USER
    request.message.parts.add(text="hi")
    events = handler.on_message_send_stream(request, ServerCallContext())
    await anext(events)

    del events
    gc.collect()
    await asyncio.sleep(0.1)

    assert span_named(finished(), "SendStreamingMessage").attributes["a2a.message.id"] == "m"
    assert not trace.get_current_span().get_span_context().is_valid
    await server.close()


async def test_no_context_is_attached_while_a_stream_waits_to_be_read(traced):
    provider, _ = traced
    seen = []

    def watching(app):
        async def watched(scope, receive, send):
            async def sent(message):
                seen.append(trace.get_current_span().get_span_context().is_valid)
                await send(message)

            await app(scope, receive, sent)

        return watched

    server = A2AServer(echo, middleware=[watching], telemetry=telemetry_of(provider))
    async with calling(server) as client:
        await client.ask("hi")

    assert len(seen) > 3
    assert not any(seen)


class Ended(SpanProcessor):
    """Reports the end of spans of a name to the event loop."""

    def __init__(self, name):
        self.name = name
        self.loop = asyncio.get_running_loop()
        self.event = asyncio.Event()

    def on_end(self, span):
        if span.name == self.name:
            self.loop.call_soon_threadsafe(self.event.set)


@pytest.mark.real_time
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
@pytest.mark.parametrize("how", ["hangs up", "stops"])
async def test_a_stream_over_a_socket_that_breaks_ends_its_span(traced, binding, how):
    provider, finished = traced
    ended = Ended("SendStreamingMessage")
    provider.add_span_processor(ended)

    async def endless(_):
        yield "."
        await asyncio.Event().wait()

    server = A2AServer(endless, telemetry=telemetry_of(provider))
    async with asyncio.timeout(LIMIT):
        serving = server.serving(bindings=("JSONRPC", "HTTP+JSON", "GRPC"), grace=0)
        async with serving as running, connect(running.url, bindings=[binding]) as client:
            async with client.stream_message("hi") as events:
                async for event in events:
                    if isinstance(event, TaskArtifactUpdateEvent):
                        break
                assert finished() == ()
                if how == "stops":
                    await serving.stop(0)
            await ended.event.wait()

    span = span_named(finished(), "SendStreamingMessage")
    assert (span.attributes["server.address"], span.status.status_code) == (
        "127.0.0.1",
        StatusCode.UNSET,
    )
    state = "FAILED" if how == "stops" else "WORKING"
    assert span.attributes["a2a.task.state"] == f"TASK_STATE_{state}"


# ── Bad input ────────────────────────────────────────────────────────────────────────────────

MALFORMED = [
    "",
    "nonsense",
    "00-" + "0" * 32 + f"-{SPAN}-01",
    f"00-{TRACE}-" + "0" * 16 + "-01",
    f"ff-{TRACE}-{SPAN}-01",
    f"00-{TRACE[:-1]}g-{SPAN}-01",
    f"00-{TRACE.upper()}-{SPAN}-01x",
    TRACEPARENT + "-extra",
    TRACEPARENT + "0" * 20_000,
    f"{TRACEPARENT}, {TRACEPARENT}",
]


HEADERS = [
    (b"content-type", b"application/json"),
    (b"a2a-version", b"1.0"),
    (b"host", b"agent.test"),
]


def body_of(message_id):
    message = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    return json.dumps(request).encode()


@pytest.mark.parametrize("value", MALFORMED, ids=range(len(MALFORMED)))
async def test_a_malformed_traceparent_begins_a_new_trace(traced, value):
    provider, finished = traced
    _, server = nested(provider)
    headers = [*HEADERS, (b"traceparent", value.encode())]

    assert await call_asgi(server.app(url=URL), headers, body_of("m")) == 200
    await server.close()

    span = span_named(finished(), "SendMessage")
    assert span.parent is None
    assert parent_ids(span_named(finished(), "work")) == ids(span)


async def test_repeated_and_unreadable_headers_are_harmless(traced):
    provider, finished = traced
    agent, server = nested(provider)
    headers = [
        *HEADERS,
        (b"traceparent", TRACEPARENT.encode()),
        (b"traceparent", f"00-{TRACE[::-1]}-{SPAN}-01".encode()),
        (b"tracestate", bytes(range(128, 256))),
        (b"baggage", b"user=ada"),
        (b"baggage", b"%ff==;,,=" + b"x" * 100),
    ]
    status = await call_asgi(server.app(url=URL), headers, body_of("m" * 5_000))
    await server.close()

    assert status == 200
    span = span_named(finished(), "SendMessage")
    assert span.parent is None
    assert len(span.attributes["a2a.message.id"]) == 256
    assert agent.baggage == [{"user": "ada"}]


async def test_a_request_that_is_refused_before_its_method_has_no_span(traced):
    provider, finished = traced
    server = A2AServer(echo, authenticate=lambda _: None, telemetry=telemetry_of(provider))

    assert await call_asgi(server.app(url=URL), HEADERS, body_of("m")) == 401
    assert finished() == ()


# ── Without a provider, and with broken parts ────────────────────────────────────────────────


async def test_without_a_provider_the_trace_still_goes_on_to_the_agents_clients():
    seen = []

    async def agent(message):
        seen.append(trace.get_current_span().get_span_context())
        return message.text

    async with calling(A2AServer(agent, telemetry=Telemetry())) as client:
        assert (await client.ask("hi", headers={"traceparent": TRACEPARENT})).text == "hi"
        assert (await client.ask("hi")).text == "hi"

    assert f"{seen[0].trace_id:032x}" == TRACE
    assert not seen[1].is_valid


class Raises:
    """A telemetry of another tracing library that raises at one of its methods."""

    def __init__(self, at):
        self._at = at

    def start_span(self, _activity, _parent=None, /):
        return self._raise("start_span", self)

    def attached(self):
        return self._raise("attached", self)

    def __enter__(self):
        self._raise("enter")

    def __exit__(self, *_error):
        self._raise("exit")

    def headers(self):
        return self._raise("headers", {"traceparent": TRACEPARENT})

    def end(self, _activity, _error=None):
        self._raise("end")

    def _raise(self, name, value=None):
        if name == self._at:
            raise RuntimeError("OpenTelemetry's rival is out of order")
        return value


@pytest.mark.parametrize(
    "telemetry",
    [
        Telemetry(tracer_provider=broken_tracers()),
        Telemetry(tracer_provider=broken_spans()),
        Telemetry(propagator=BrokenPropagator()),
        *map(Raises, ("start_span", "attached", "enter", "exit", "headers", "end")),
    ],
    ids=["tracer", "span", "propagator", "start", "attached", "enter", "exit", "headers", "end"],
)
async def test_a_broken_part_ends_no_request_and_is_reported_once(telemetry, caplog):
    engine = Carrying()
    server = A2AServer(
        echo,
        push=True,
        push_engine=engine,
        push_networks=["127.0.0.0/8"],
        telemetry=telemetry,
    )
    config = TaskPushNotificationConfig(url="http://127.0.0.1/")
    async with calling(server) as client:
        for _ in range(2):
            answer = await client.ask(
                "hi", headers={"traceparent": TRACEPARENT}, push_notification_config=config
            )
            assert answer.text == "You said hi"

    assert len(engine.requests) == 8
    (warning,) = [each for each in caplog.records if "OpenTelemetry" in each.getMessage()]
    assert (warning.levelname, warning.name) == ("WARNING", "holdfast")


@pytest.mark.parametrize("wrong", [True, "otel", object(), Telemetry])
def test_other_telemetry_is_refused(wrong):
    with pytest.raises(TypeError, match="telemetry"):
        A2AServer(echo, telemetry=wrong)
    with pytest.raises(TypeError, match="telemetry"):
        PushReceiver("https://me.example/push", telemetry=wrong)


async def test_another_propagator_is_used(traced):
    provider, finished = traced
    seen = []

    async def agent(message):
        seen.append(dict(baggage.get_all()))
        return message.text

    telemetry = Telemetry(tracer_provider=provider, propagator=W3CBaggagePropagator())
    async with calling(A2AServer(agent, telemetry=telemetry)) as client:
        await client.send_message("hi", headers={"traceparent": TRACEPARENT, "baggage": "a=b"})

    assert span_named(finished(), "SendMessage").parent is None
    assert seen == [{"a": "b"}]


async def test_a_program_that_is_instrumented_has_spans_of_its_servers_and_receivers(traced):
    provider, finished = traced
    instrumentor = HoldfastInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        server, receiver = A2AServer(echo), PushReceiver("https://me.example/push")
    finally:
        instrumentor.uninstrument()
    later = A2AServer(echo)

    for each in (server, later):
        assert await call_asgi(each.app(url=URL), HEADERS, body_of("m")) == 200
        await each.close()
    assert await call_asgi(receiver, HEADERS, b"{}") == 401
    await receiver.close()

    assert [span.name for span in finished()] == ["SendMessage", "ReceivePushNotification"]


# ── Other tracing libraries ──────────────────────────────────────────────────────────────────


class Recorded:
    """A span of a library other than OpenTelemetry."""

    current = ContextVar("current", default=None)

    def __init__(self, activity, parent):
        self.activity = activity
        self.parent = parent
        self.error = None

    @contextlib.contextmanager
    def attached(self):
        token = self.current.set(self)
        yield
        self.current.reset(token)

    def headers(self):
        return {"x-trace": "7", "content-type": "text/plain"}

    def end(self, activity, error=None):
        assert self.activity.state is None
        self.activity, self.error = activity, error


async def test_another_tracing_library_implements_the_protocol():
    spans, seen, engine = [], [], Carrying()

    class Library:
        def start_span(self, activity, parent=None, /):
            spans.append(Recorded(activity, parent))
            return spans[-1]

    async def agent(message):
        seen.append(Recorded.current.get())
        return message.text

    server = A2AServer(
        agent, push=True, push_engine=engine, push_networks=["127.0.0.0/8"], telemetry=Library()
    )
    config = TaskPushNotificationConfig(url="http://127.0.0.1/")
    async with calling(server) as client:
        headers = {"x-trace": "6", "authorization": "Bearer hunter2"}
        task = await client.send_message(MESSAGE, headers=headers, push_notification_config=config)
        with pytest.raises(TaskNotFoundError):
            await client.get_task("unknown")

    request, *pushes, failed = spans
    assert seen == [request]
    assert (request.activity.kind, request.activity.method) == ("request", "SendMessage")
    assert (request.activity.message_id, request.activity.task_id) == ("m-7", task.id)
    assert request.activity.state is TaskState.COMPLETED
    assert request.activity.headers["x-trace"] == "6"
    assert "hunter2" not in repr(request.activity)
    assert [(push.activity.kind, push.parent) for push in pushes] == [("push", request)] * 4
    assert {sent.headers["x-trace"] for sent in engine.requests} == {"7"}
    assert {sent.headers["content-type"] for sent in engine.requests} == {"application/json"}
    assert type(failed.error).__name__ == "TaskNotFoundError"


# ── Push notifications ───────────────────────────────────────────────────────────────────────


class Carrying:
    """An engine that notes the requests that it gets, and the contexts in which it gets them."""

    def __init__(self, status=200):
        self.status = status
        self.requests = []
        self.contexts = []

    async def request(self, request):
        raise AssertionError("the reply of a push is not read")

    @contextlib.asynccontextmanager
    async def stream(self, request):
        self.requests.append(request)
        self.contexts.append(context.get_current())
        if isinstance(self.status, Exception):
            raise self.status
        yield HttpReply(status=self.status)

    async def close(self):
        pass


async def pushed(provider, engine, **members):
    _, server = nested(provider, push=True, push_engine=engine, push_networks=["127.0.0.0/8"])
    headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=1", "baggage": "user=ada"}
    config = TaskPushNotificationConfig(url="http://127.0.0.1:99/hook?key=hunter2", **members)
    async with calling(server) as client:
        return await client.ask("hi", push_notification_config=config, headers=headers)


async def test_each_push_has_a_span_and_carries_its_ids_alone(traced):
    provider, finished = traced
    engine = Carrying()

    answer = await pushed(provider, engine, token="t")

    request = span_named(finished(), "SendStreamingMessage")
    pushes = [span for span in finished() if span.name == "SendPushNotification"]
    assert len(pushes) == len(engine.requests) == 4
    for push, sent, current in zip(pushes, engine.requests, engine.contexts, strict=True):
        assert (push.kind, parent_ids(push)) == (SpanKind.CLIENT, ids(request))
        assert sent.headers["traceparent"] == "00-{}-{}-01".format(*ids(push))
        assert sent.headers.keys() == {"content-type", "x-a2a-notification-token", "traceparent"}
        assert current[context._SUPPRESS_HTTP_INSTRUMENTATION_KEY] is True
        assert "hunter2" not in push.to_json()
    assert dict(pushes[-1].attributes) == {
        "a2a.task.id": answer.task_id,
        "a2a.task.state": "TASK_STATE_COMPLETED",
        "gen_ai.conversation.id": answer.task.context_id,
        "server.address": "127.0.0.1",
        "server.port": 99,
        "http.request.method": "POST",
        "http.response.status_code": 200,
    }


@pytest.mark.parametrize(
    ("status", "name"), [(500, "500"), (302, "302"), (OSError("hunter2"), "OSError")]
)
async def test_a_push_that_fails_has_an_error(traced, status, name):
    provider, finished = traced

    await pushed(provider, Carrying(status))

    for push in [span for span in finished() if span.name == "SendPushNotification"]:
        assert push.attributes["error.type"] == name
        assert push.status.status_code is StatusCode.ERROR
        assert "hunter2" not in push.to_json()


async def test_without_telemetry_a_push_has_no_headers_of_a_trace():
    engine = Carrying()
    server = A2AServer(echo, push=True, push_engine=engine, push_networks=["127.0.0.0/8"])
    config = TaskPushNotificationConfig(url="http://127.0.0.1/")
    async with calling(server) as client:
        await client.ask(
            "hi", push_notification_config=config, headers={"traceparent": TRACEPARENT}
        )

    assert [request.headers.keys() for request in engine.requests] == [{"content-type"}] * 4


async def test_a_delivery_is_linked_to_the_push_that_caused_it(traced):
    provider, finished = traced
    engine = Carrying()
    receiver = PushReceiver("https://127.0.0.1/push", telemetry=telemetry_of(provider))
    config = receiver.config()
    _, server = nested(provider, push=True, push_engine=engine, push_networks=["127.0.0.0/8"])
    async with calling(server) as client:
        task = await client.send_message("hi", push_notification_config=config)
    receiver.expect(task.id, config)
    for sent in engine.requests:
        headers = [(name.encode(), value.encode()) for name, value in sent.headers.items()]
        assert await call_asgi(receiver, headers, sent.body) == 200
    await receiver.close()

    pushes = [span for span in finished() if span.name == "SendPushNotification"]
    deliveries = [span for span in finished() if span.name == "ReceivePushNotification"]
    assert len(deliveries) == 4
    for push, delivery in zip(pushes, deliveries, strict=True):
        assert (delivery.kind, delivery.parent) == (SpanKind.CONSUMER, None)
        (link,) = delivery.links
        assert link.context.span_id == push.context.span_id
        assert link.context.trace_id == push.context.trace_id
    assert dict(deliveries[-1].attributes) == {
        "a2a.task.id": task.id,
        "a2a.task.state": "TASK_STATE_COMPLETED",
        "gen_ai.conversation.id": task.context_id,
        "server.address": "127.0.0.1",
        "server.port": 443,
        "http.request.method": "POST",
        "http.response.status_code": 200,
    }


@pytest.mark.parametrize("value", ["", *MALFORMED], ids=range(len(MALFORMED) + 1))
async def test_a_refused_delivery_has_a_span_with_its_status(traced, value):
    provider, finished = traced
    receiver = PushReceiver("https://me.example/push", telemetry=telemetry_of(provider))

    assert await call_asgi(receiver, [(b"traceparent", value.encode())], b"{}") == 401
    await receiver.close()

    (span,) = finished()
    assert (span.links, span.parent) == ((), None)
    assert span.attributes["error.type"] == "401"
    assert span.status.status_code is StatusCode.UNSET


async def test_a_sender_that_leaves_ends_the_span_of_its_delivery(traced):
    provider, finished = traced
    receiver = PushReceiver("https://me.example/push", telemetry=telemetry_of(provider))
    token = receiver.config().token.encode()

    headers = [(b"x-a2a-notification-token", token), (b"content-type", b"application/json")]
    assert await call_asgi(receiver, headers, None) is None
    await receiver.close()

    assert (
        "http.response.status_code"
        not in span_named(finished(), "ReceivePushNotification").attributes
    )


async def call_asgi(app, headers, body):
    """Calls an application with headers that may be repeated; gives the status, if any.

    With a body of None the client leaves.
    """
    statuses = []

    async def receive():
        if body is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    scope |= {"query_string": b"", "root_path": "", "scheme": "http", "http_version": "1.1"}
    await app(scope, receive, send)
    return statuses[0] if statuses else None
