"""Spans of OpenTelemetry: their tree, their context on the wire, and their ends."""

import asyncio
import gc
import json
import logging
import random
import threading

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from tests.kit.real_agents import LIMIT
from tests.kit.recorded_spans import (
    BrokenPropagator,
    broken_spans,
    broken_tracers,
    recorded_spans,
    span_named,
)

import holdfast
from holdfast import (
    A2AError,
    Coordinator,
    OutcomeUnknownError,
    TaskFailedError,
    connect,
)
from holdfast._integrations.otel.attributes import end_span
from holdfast.integrations.opentelemetry import Telemetry
from holdfast.server import A2AServer
from holdfast.testing import (
    Cut,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    completes,
    fails,
    rate_limited,
    streams,
    works_forever,
)

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


@pytest.fixture
def traced():
    with recorded_spans() as recorded:
        yield recorded


def connected(agent, provider, *, network=None, binding="JSONRPC", telemetry=None, **options):
    return connect(
        agent.url,
        engine=network or FakeNetwork(agent),
        bindings=(binding,),
        telemetry=telemetry or Telemetry(tracer_provider=provider),
        **options,
    )


def named(spans, name):
    return [span for span in spans if span.name == name]


def children(spans, parent):
    return [
        span for span in spans if span.parent and span.parent.span_id == parent.context.span_id
    ]


def traceparent(span):
    ids = f"{span.context.trace_id:032x}-{span.context.span_id:016x}"
    return f"00-{ids}-{span.context.trace_flags:02x}"


@both_bindings
async def test_a_request_has_a_span_below_the_callers_and_each_attempt_one_below_it(
    traced, binding
):
    provider, finished = traced
    agent = FakeAgent(completes("42"), streaming=False)
    agent.inject(rate_limited(retry_after=1), on="SendMessage")
    tracer = provider.get_tracer("program")

    async with connected(agent, provider, binding=binding) as client:
        with tracer.start_as_current_span("work") as work:
            answer = await client.ask("hi")

    spans = finished()
    assert {span.name for span in children(spans, span_named(spans, "work"))} >= {
        "GetAgentCard",
        "SendMessage",
    }
    request = span_named(spans, "SendMessage")
    assert (request.kind, request.parent.span_id) == (
        SpanKind.CLIENT,
        work.get_span_context().span_id,
    )
    attributes = dict(request.attributes)
    assert attributes["a2a.method.name"] == "SendMessage"
    assert attributes["a2a.task.id"] == answer.task_id
    assert attributes["gen_ai.agent.name"] == agent.url
    assert attributes["gen_ai.conversation.id"] == answer.task.context_id
    assert (attributes["server.address"], attributes["server.port"]) == ("agent.test", 80)
    assert attributes["holdfast.attempts"] == 2
    assert request.status.status_code is StatusCode.UNSET
    (retry,) = request.events
    assert (retry.name, retry.attributes["error.type"]) == ("retry", "RateLimitedError")

    first, second = children(spans, request)
    assert {first.name, second.name} == {"POST"}
    assert first.attributes["http.response.status_code"] == 429
    assert first.status.status_code is StatusCode.ERROR
    assert "http.request.resend_count" not in first.attributes
    assert second.attributes["http.request.resend_count"] == 1
    (sent,) = [each for each in agent.received if each.operation == "SendMessage"]  # and answered
    assert sent.headers["traceparent"] == traceparent(second)


async def test_a_resubscription_is_linked_to_the_connection_that_was_cut(traced):
    provider, finished = traced
    agent = FakeAgent(streams(*"abc", every=5))
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")

    async with connected(agent, provider) as client:
        assert (await client.ask("hi")).text == "abc"

    cut = span_named(finished(), "SendStreamingMessage")
    subscribed = span_named(finished(), "SubscribeToTask")
    assert [link.context.span_id for link in subscribed.links] == [cut.context.span_id]
    assert cut.attributes["error.type"] == "A2AConnectionError"


async def test_operations_have_spans_if_they_are_asked_for(traced):
    provider, finished = traced
    agent = FakeAgent(fails("no", after=1))
    telemetry = Telemetry(tracer_provider=provider, operation_spans=True)

    async with connected(agent, provider, telemetry=telemetry) as client:
        with pytest.raises(TaskFailedError):
            await client.ask("hi")

    spans = finished()
    operation = span_named(spans, "holdfast.ask")
    assert (operation.kind, operation.parent) == (SpanKind.INTERNAL, None)
    assert operation.status.status_code is StatusCode.ERROR
    assert operation.attributes["error.type"] == "TaskFailedError"
    assert operation.attributes["a2a.task.state"] == "TASK_STATE_FAILED"
    assert operation.attributes["holdfast.executed"] is True
    requests = [span for span in children(spans, operation) if span.kind is SpanKind.CLIENT]
    assert {span.name for span in requests} >= {"GetAgentCard", "SendStreamingMessage"}


async def test_a_cut_is_an_event_of_the_operation_if_it_has_a_span(traced):
    provider, finished = traced
    agent = FakeAgent(streams(*"abcd", every=1))
    agent.inject(Cut(after_events=2))
    telemetry = Telemetry(tracer_provider=provider, operation_spans=True)
    async with connected(agent, provider, telemetry=telemetry) as client:
        await client.ask("hi")
    operation = span_named(finished(), "holdfast.ask")
    assert "interrupted" in [event.name for event in operation.events]
    assert "reconnected" in [e.name for e in span_named(finished(), "SubscribeToTask").events]


async def test_the_search_for_a_lost_reply_has_a_span(traced):
    provider, finished = traced
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(after_execution=False), on="SendMessage")

    async with connected(agent, provider) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.send_message("hi")

    search = span_named(finished(), "reconcile")
    assert search.kind is SpanKind.INTERNAL
    assert search.attributes["a2a.message.id"]


async def test_baggage_goes_to_the_agent_and_headers_of_the_caller_are_kept(traced):
    provider, _ = traced
    agent = FakeAgent(completes("42"), streaming=False)
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async with connected(agent, provider) as client:
        token = context.attach(baggage.set_baggage("tenant", "moon"))
        await client.ask("hi")
        await client.ask("hi", headers={"baggage": "tenant=sun"})
        context.detach(token)
        await client.ask("hi", headers={"traceparent": own})

    first, second, third = [each for each in agent.received if each.operation == "SendMessage"]
    assert first.headers["baggage"] == "tenant=moon"
    assert second.headers["baggage"] == "tenant=sun"
    assert "traceparent" in second.headers
    assert third.headers["traceparent"] == own


async def test_an_origin_that_only_the_card_names_gets_no_trace(traced):
    provider, finished = traced
    elsewhere = FakeAgent(completes("42"), url="http://elsewhere.test", streaming=False)
    async with connect(elsewhere.url, engine=FakeNetwork(elsewhere)) as client:
        card = await client.agent_card()
    front = FakeAgent(url="http://front.test", card=card)
    network = FakeNetwork(front, elsewhere)

    async with connected(front, provider, network=network) as client:
        await client.ask("hi")

    (sent,) = [each for each in elsewhere.received if each.operation == "SendMessage"]
    assert "traceparent" not in sent.headers
    assert span_named(finished(), "SendMessage").attributes["server.address"] == "elsewhere.test"


@pytest.mark.parametrize("how", ["left", "cancelled", "collected", "closed elsewhere"])
async def test_the_span_of_a_stream_ends_once_however_the_stream_ends(traced, how, caplog):
    provider, finished = traced
    agent = FakeAgent(streams(*"abc", every=5))
    async with connected(agent, provider) as client:
        events = client.stream_message("hi")

        async def read():
            await events.__aenter__()
            await anext(events)
            if how == "cancelled":
                try:
                    await asyncio.sleep(60)
                finally:
                    await events.close()

        reading = asyncio.create_task(read())
        await asyncio.sleep(1)
        match how:
            case "cancelled":
                reading.cancel()
                await asyncio.wait([reading])
            case "left":
                await reading
                await events.close()
            case "closed elsewhere":
                await reading
                await asyncio.create_task(events.close())
            case "collected":
                await reading
                del events, read, reading
                gc.collect()
                await asyncio.sleep(0)

        assert len(named(finished(), "SendStreamingMessage")) == 1
    assert [record for record in caplog.records if "etach" in record.getMessage()] == []


@pytest.mark.parametrize("seed", range(40))
async def test_each_span_ends_once_whatever_happens(seed, traced, caplog):
    provider, _ = traced
    draw = random.Random(seed)
    behaviours = [completes("42", after=3), streams(*"abc", every=2), works_forever(), fails("no")]
    agent = FakeAgent(lambda _: draw.choice(behaviours), latency=draw.choice([0, 0.2]))
    faults = [Refuse(), Reset(), Cut(after_events=1), rate_limited(retry_after=1)]
    for _ in range(draw.randint(0, 6)):
        agent.inject(draw.choice(faults), times=draw.choice([1, 3]))
    telemetry = Telemetry(tracer_provider=provider, operation_spans=draw.random() < 0.5)
    async with connected(agent, provider, telemetry=telemetry) as client:
        calls = [
            asyncio.create_task(
                client.ask("hi", timeout=60, cancel_on_abandon=draw.random() < 0.5)
            )
            for _ in range(3)
        ]
        for call in calls:
            if draw.random() < 0.5:
                asyncio.get_running_loop().call_later(draw.choice([0, 0.1, 2, 20]), call.cancel)
        await asyncio.wait(calls)
        for call in calls:
            assert call.cancelled() or isinstance(call.exception(), A2AError | None)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_agents_of_a_coordinator_are_named(traced):
    provider, finished = traced
    one_agent, two = FakeAgent("1", url="http://one.test"), FakeAgent("2", url="http://two.test")
    async with Coordinator(
        {"first": one_agent.url, "second": two.url},
        engine=FakeNetwork(one_agent, two),
        telemetry=Telemetry(tracer_provider=provider),
    ) as coordinator:
        await coordinator.fan_out("hi")

    requests = [span for span in finished() if "gen_ai.agent.name" in span.attributes]
    assert {span.attributes["gen_ai.agent.name"] for span in requests} == {"first", "second"}


async def test_a_tracer_that_raises_ends_no_call(caplog):
    agent = FakeAgent("42")

    async with connected(agent, broken_tracers()) as client:
        assert [(await client.ask("hi")).text for _ in range(2)] == ["42", "42"]

    (warning,) = [each for each in caplog.records if "out of order" in each.getMessage()]
    assert warning.levelname == "WARNING"


async def test_a_propagator_that_raises_ends_no_call_and_is_reported_once(traced, caplog):
    provider, _ = traced
    telemetry = Telemetry(tracer_provider=provider, propagator=BrokenPropagator())
    async with connected(FakeAgent("42"), provider, telemetry=telemetry) as client:
        assert [(await client.ask("hi")).text for _ in range(2)] == ["42", "42"]

    (warning,) = [each for each in caplog.records if "OpenTelemetry" in each.getMessage()]
    assert warning.levelname == "WARNING"


class BrokenSpan(trace.NonRecordingSpan):
    """A span that can only be started."""

    def set_attribute(self, *_arguments):
        raise RuntimeError("out of order")

    set_attributes = set_status = add_event = end = set_attribute


class BrokenAtTheEnd(SpanProcessor):
    def on_end(self, span):
        raise RuntimeError("out of order")


def ending_badly():
    provider = TracerProvider()
    provider.add_span_processor(BrokenAtTheEnd())
    return provider


@pytest.mark.parametrize("provider", [broken_spans, ending_badly])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_spans_that_raise_end_no_call_and_are_reported_once(provider, is_streamed, caplog):
    agent = FakeAgent(streams("4", "2"), streaming=is_streamed)
    agent.inject(rate_limited(retry_after=1), times=1)
    telemetry = Telemetry(tracer_provider=provider(), operation_spans=True, capture_content=True)

    async with connected(agent, None, telemetry=telemetry) as client:
        assert (await client.ask("hi")).text == "42"
        agent.inject(Refuse(), times=10)
        with pytest.raises(holdfast.A2AConnectionError):
            await client.ask("hi")

    (warning,) = [each for each in caplog.records if "OpenTelemetry" in each.getMessage()]
    assert warning.levelname == "WARNING"


async def test_a_span_whose_attributes_fail_is_ended():
    ended = []

    class Span(BrokenSpan):
        def end(self, *_arguments):
            ended.append(self)

    span = Span(trace.SpanContext(1, 1, is_remote=False))
    with pytest.raises(RuntimeError):
        end_span(span, None, {"holdfast.attempts": 1})

    assert ended == [span]


class OtherNames:
    """A propagator of names and values that not every binding carries."""

    def inject(self, carrier, context=None, setter=None):
        carrier["X-Amzn-Trace-Id"] = "Root=1-2"
        carrier["grpc-trace-bin"] = "AA=="
        carrier["x-words"] = "two\r\nlines"

    def extract(self, carrier, context=None, getter=None):
        return context


async def test_headers_of_a_propagator_are_in_lower_case_and_never_replace_the_callers(traced):
    provider, _ = traced
    agent = FakeAgent(completes("42"), streaming=False)
    telemetry = Telemetry(tracer_provider=provider, propagator=OtherNames())

    async with connected(agent, provider, telemetry=telemetry) as client:
        await client.ask("hi")
        await client.ask("hi", headers={"X-Amzn-Trace-Id": "mine"})

    sent = [each.headers for each in agent.received if each.operation == "SendMessage"]
    assert [headers["x-amzn-trace-id"] for headers in sent] == ["Root=1-2", "mine"]
    assert all({"X-Amzn-Trace-Id", "grpc-trace-bin", "x-words"}.isdisjoint(each) for each in sent)


@pytest.mark.real_time
async def test_grpc_carries_the_headers_of_a_propagator_of_other_names(traced):
    provider, _ = traced
    telemetry = Telemetry(tracer_provider=provider, propagator=OtherNames())
    server = A2AServer(lambda message: "42", card={"name": "agent"})
    async with (
        asyncio.timeout(LIMIT),
        server.serving(bindings=("JSONRPC", "GRPC")) as running,
        connect(running.url, bindings=("GRPC",), telemetry=telemetry) as client,
    ):
        assert (await client.ask("hi")).text == "42"


async def test_a_provider_that_is_shut_down_ends_no_call():
    provider = TracerProvider()
    provider.shutdown()
    async with connected(FakeAgent("42"), provider) as client:
        assert (await client.ask("hi")).text == "42"


@pytest.mark.parametrize("wrong", [{"tracer_provider": "sdk"}, {"operation_spans": "yes"}])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(TypeError, match=next(iter(wrong))):
        Telemetry(**wrong)


@pytest.mark.parametrize("wrong", [Telemetry, "otel", object()])
def test_a_telemetry_of_another_type_is_refused(wrong):
    with pytest.raises(TypeError, match="telemetry"):
        connect("http://agent.test", telemetry=wrong)


async def test_the_fetch_of_a_card_has_the_span_of_its_attempt_and_sends_its_context(traced):
    provider, finished = traced
    sent = []

    class Watched(FakeNetwork):
        async def request(self, request):
            sent.append((request.method, request.headers.get("traceparent")))
            return await super().request(request)

    agent = FakeAgent("42")
    async with connected(agent, provider, network=Watched(agent)) as client:
        await client.agent_card()

    (attempt,) = children(finished(), span_named(finished(), "GetAgentCard"))
    assert (attempt.name, attempt.attributes["http.request.method"]) == ("GET", "GET")
    assert sent == [("GET", traceparent(attempt))]


@both_bindings
async def test_an_error_has_the_trace_context_that_its_attempt_carried(traced, binding):
    provider, finished = traced
    agent = FakeAgent("42")
    async with connected(agent, provider, binding=binding) as client:
        with pytest.raises(A2AError) as caught:
            await client.get_task("missing")
        (attempt,) = children(finished(), span_named(finished(), "GetTask"))
        assert caught.value.traceparent == traceparent(attempt)

        own = f"00-{1:032x}-{1:016x}-01"
        with pytest.raises(A2AError) as caught:
            await client.get_task("missing", headers={"traceparent": own})
        assert caught.value.traceparent == own


async def test_the_error_of_a_stream_has_the_trace_context_of_its_attempt(traced):
    provider, finished = traced
    agent = FakeAgent(works_forever())
    async with connected(agent, provider) as client:
        with pytest.raises(A2AError) as caught:
            async with client.stream_message("hi", timeout=20) as events:
                assert [each async for each in events]
    sent = [traceparent(span) for span in named(finished(), "POST")]
    assert caught.value.traceparent in sent


# ── The content of messages ──────────────────────────────────────────────────────────────────


def content(span, name):
    ((message),) = json.loads(span.attributes[f"gen_ai.{name}.messages"])
    return message["role"], message["parts"]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_content_is_captured_if_it_is_asked_for(traced, is_streamed):
    provider, finished = traced
    agent = FakeAgent(streams("Twenty-", "one", every=1), streaming=is_streamed)
    telemetry = Telemetry(tracer_provider=provider, capture_content=True)
    parts = [
        holdfast.Part(text="How far?"),
        holdfast.Part(raw=b"12345", media_type="image/png"),
        holdfast.Part(url="https://user:secret@files.test/a?token=secret"),
        holdfast.Part(data={"n": 1}),
    ]
    async with connected(agent, provider, telemetry=telemetry) as client:
        assert (await client.ask(parts)).text == "Twenty-one"

    spans = finished()
    request = span_named(spans, "SendStreamingMessage" if is_streamed else "SendMessage")
    role, sent = content(request, "input")
    assert role == "user"
    assert sent[0] == {"type": "text", "content": "How far?"}
    assert sent[1] == {"type": "blob", "mime_type": "image/png", "size": 5}
    assert sent[2]["type"] == "uri"
    assert sent[3] == {"type": "data", "content": {"n": 1}}
    assert not any("secret" in str(value) for span in spans for value in span.attributes.values())
    received = [
        part["content"]
        for span in spans
        if "gen_ai.output.messages" in span.attributes
        for part in content(span, "output")[1]
    ]
    assert "Twenty-" in "".join(received)
    assert "one" in "".join(received)


async def test_no_span_has_content_by_default(traced):
    provider, finished = traced
    agent = FakeAgent(streams("Twenty-", "one"))
    async with connected(agent, provider) as client:
        await client.ask("How far?")
    text = str([(dict(span.attributes), span.events) for span in finished()])
    assert "How far?" not in text
    assert "Twenty" not in text


async def test_content_has_a_largest_length(traced):
    provider, finished = traced
    agent = FakeAgent(streams(*["x" * 30_000] * 5, every=1))
    telemetry = Telemetry(tracer_provider=provider, capture_content=True)
    async with connected(agent, provider, telemetry=telemetry) as client:
        await client.ask("y" * 100_000)
    request = span_named(finished(), "SendStreamingMessage")
    assert content(request, "input") == ("user", [])
    _, parts = content(request, "output")
    assert [len(part["content"]) for part in parts] == [30_000, 30_000]


# ── Bad providers, and bad values ────────────────────────────────────────────────────────────


async def test_an_exporter_that_blocks_does_not_delay_calls():
    """A batch processor exports in a thread of its own; the calls of the program go on."""
    released, began = threading.Event(), threading.Event()

    class Blocking(SpanExporter):
        def export(self, spans):
            began.set()
            released.wait(30)
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Blocking(), max_export_batch_size=1))
    async with connected(FakeAgent("42"), provider) as client:
        assert [(await client.ask("hi")).text for _ in range(3)] == ["42"] * 3
        assert began.wait(30)
        assert [(await client.ask("hi")).text for _ in range(3)] == ["42"] * 3
        assert not released.is_set()
    released.set()
    provider.shutdown()


async def test_ids_of_any_length_and_letters_are_attributes_of_bounded_length(traced, caplog):
    provider, finished = traced
    agent = FakeAgent("42", id_suffix="-" + "☾" * 5000)
    async with connected(agent, provider) as client:
        answer = await client.ask("hi")
    assert len(answer.task_id) > 5000
    ids = {span.attributes.get("a2a.task.id") for span in finished()} - {None}
    assert {len(each) for each in ids} == {256}
    assert caplog.messages == []


async def test_a_sampler_that_drops_spans_still_passes_the_trace_on(traced):
    _, finished = traced
    provider = TracerProvider(sampler=ALWAYS_OFF)
    agent = FakeAgent("42")
    async with connected(agent, provider) as client:
        await client.ask("hi")
    (sent,) = {each.headers["traceparent"][-2:] for each in agent.received} - {None}
    assert int(sent, 16) & 1 == 0
    assert finished() == ()
