"""Telemetry beside the instrumentations of HTTP clients, below httpx, and for a whole program."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from opentelemetry.instrumentation.aiohttp_client import AioHttpClientInstrumentor
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import connect
from holdfast.integrations.httpx import Transport
from holdfast.integrations.opentelemetry import HoldfastInstrumentor, Telemetry
from holdfast.testing import FakeAgent, FakeNetwork, LoopbackServer, streams, unavailable

VERSION = {"A2A-Version": "1.0"}

SEND = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "SendMessage",
    "params": {"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}},
}


@pytest.fixture
def provider():
    provider = TracerProvider()
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.exporter = exporter
    return provider


@pytest.fixture(params=[AioHttpClientInstrumentor, HTTPXClientInstrumentor])
def instrumented(request, provider):
    """A provider that also gets the spans of another instrumentation."""
    other = request.param()
    other.instrument(tracer_provider=provider)
    yield provider
    other.uninstrument()


def names(provider):
    return sorted(span.name for span in provider.exporter.get_finished_spans())


@pytest.mark.real_time
async def test_the_instrumentation_of_an_http_client_makes_no_second_span(instrumented):
    telemetry = Telemetry(tracer_provider=instrumented)
    async with (
        LoopbackServer(FakeAgent(streams("4", "2"))) as server,
        connect(server.url, telemetry=telemetry) as client,
    ):
        assert (await client.ask("hi")).text == "42"

    assert names(instrumented) == [
        *("GET", "GetAgentCard", "GetTask", "POST", "POST", "SendStreamingMessage")
    ]


@pytest.mark.real_time
async def test_a_program_below_httpx_has_the_spans_of_its_transport_alone(instrumented):
    telemetry = Telemetry(tracer_provider=instrumented)
    async with LoopbackServer(FakeAgent("42")) as server:
        transport = Transport(telemetry=telemetry)
        async with httpx.AsyncClient(transport=transport) as client:
            reply = await client.post(f"{server.url}/rpc", json=SEND, headers=VERSION)
    assert reply.status_code == 200
    assert names(instrumented) == ["POST", "SendMessage"]


async def test_each_attempt_below_httpx_sends_its_context(provider):
    sent = []

    class Watched(FakeNetwork):
        async def request(self, request):
            sent.append(request.headers["traceparent"])
            return await super().request(request)

    agent = FakeAgent("42")
    agent.inject(unavailable(), on="GetTask")
    get = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "task-1"}}
    telemetry = Telemetry(tracer_provider=provider)
    transport = Transport(engine=Watched(agent), telemetry=telemetry)
    async with httpx.AsyncClient(transport=transport, headers=VERSION) as client:
        await client.post(f"{agent.url}/rpc", json=get)

    spans = provider.exporter.get_finished_spans()
    (request,) = [span for span in spans if span.name == "GetTask"]
    attempts = [span for span in spans if span.name == "POST"]
    assert {span.parent.span_id for span in attempts} == {request.context.span_id}
    assert [header.split("-")[2] for header in sent] == [
        f"{span.context.span_id:016x}" for span in attempts
    ]
    assert len(sent) == 2


# ── A whole program ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def instrumentor():
    instrumentor = HoldfastInstrumentor()
    yield instrumentor
    instrumentor.uninstrument()


async def test_an_instrumented_program_traces_and_measures_all_its_clients(
    provider, instrumentor, caplog
):
    agent, reader = FakeAgent("42", streaming=False), InMemoryMetricReader()
    assert not instrumentor.is_instrumented_by_opentelemetry
    instrumentor.instrument(tracer_provider=provider, meter_provider=MeterProvider([reader]))
    assert HoldfastInstrumentor().is_instrumented_by_opentelemetry

    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        await client.send_message("hi")
    transport = Transport(engine=FakeNetwork(agent))
    async with httpx.AsyncClient(transport=transport, headers=VERSION) as client:
        await client.post(f"{agent.url}/rpc", json=SEND)
    assert names(provider).count("SendMessage") == 2
    (resource,) = reader.get_metrics_data().resource_metrics
    measured = {metric.name for scope in resource.scope_metrics for metric in scope.metrics}
    assert "a2a.client.operation.duration" in measured

    instrumentor.instrument()  # a second time
    assert ["uninstrument() first" in each.getMessage() for each in caplog.records] == [True]

    instrumentor.uninstrument()
    provider.exporter.clear()
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        await client.send_message("hi")
    assert names(provider) == []


@pytest.mark.parametrize(
    ("said", "is_captured"),
    [("true", True), ("SPAN_ONLY", True), ("false", False), ("event_only", False), (None, False)],
)
async def test_the_environment_decides_on_content(
    said, is_captured, provider, instrumentor, monkeypatch
):
    name = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    monkeypatch.delenv(name, raising=False)
    if said is not None:
        monkeypatch.setenv(name, said)
    instrumentor.instrument(tracer_provider=provider)
    agent = FakeAgent("42")
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        await client.ask("hi")
    spans = provider.exporter.get_finished_spans()
    assert any("gen_ai.input.messages" in span.attributes for span in spans) == is_captured


PROGRAM = """
import asyncio
import holdfast
from holdfast.testing import FakeAgent, FakeNetwork

async def main():
    agent = FakeAgent("42", streaming=False)
    async with holdfast.connect(agent.url, engine=FakeNetwork(agent)) as client:
        await client.send_message("hi")

asyncio.run(main())
"""


def test_opentelemetry_instrument_finds_the_instrumentor(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    instrument = [str(Path(sys.executable).with_name("opentelemetry-instrument"))]
    exporters = ["--traces_exporter", "console", "--metrics_exporter", "none"]
    done = subprocess.run(
        [*instrument, *exporters, "--logs_exporter", "none", sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    decoder, spans, rest = json.JSONDecoder(), [], done.stdout.strip()
    while rest:
        span, end = decoder.raw_decode(rest)
        spans.append(span["name"])
        rest = rest[end:].strip()
    assert sorted(spans) == ["GET", "GetAgentCard", "POST", "SendMessage"]
