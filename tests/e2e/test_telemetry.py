"""One trace over three agents and two processes, the last of them on the official SDK."""

import asyncio
import json

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.kit.real_agents import LIMIT, traced_process

import holdfast
from holdfast.integrations.opentelemetry import Telemetry
from holdfast.server import A2AServer

pytestmark = pytest.mark.real_time

CARD = "GET /.well-known/agent-card.json"
HANDLER = "a2a.server.request_handlers."


async def trace_of(tmp_path, *options):
    """Has a client ask an agent that asks another one; gives all spans, as JSON objects."""
    exporters = {"client": InMemorySpanExporter(), "front": InMemorySpanExporter()}
    providers = {name: TracerProvider() for name in exporters}
    for name, exporter in exporters.items():
        providers[name].add_span_processor(SimpleSpanProcessor(exporter))
    client_side, server_side = (Telemetry(tracer_provider=each) for each in providers.values())
    file = tmp_path / "spans.jsonl"

    with traced_process(tmp_path / "stderr", "--spans", file, *options) as back_url:
        async with holdfast.connect(back_url, telemetry=server_side) as back:

            async def delegates(message):
                return (await back.ask(f"echo {message.text}, said the front")).text

            async with (
                asyncio.timeout(LIMIT),
                A2AServer(delegates, telemetry=server_side).serving() as running,
                holdfast.connect(running.url, telemetry=client_side) as front,
            ):
                with providers["client"].get_tracer("program").start_as_current_span("main"):
                    answer = await front.ask("hello")
    assert answer.text == "hello, said the front"

    spans = [
        {**json.loads(span.to_json()), "of": name}
        for name, exporter in exporters.items()
        for span in exporter.get_finished_spans()
    ]
    spans += [{**json.loads(line), "of": "back"} for line in file.read_text().splitlines()]
    return sorted(spans, key=lambda span: span["start_time"])


def tree(spans, parent_id=None, depth=0):
    """The spans below a parent, in order of their starts: depth, agent, kind and name."""
    for span in spans:
        if span["parent_id"] == parent_id:
            kind = span["kind"].removeprefix("SpanKind.")
            yield depth, span["of"], kind, span["name"]
            yield from tree(spans, span["context"]["span_id"], depth + 1)


async def test_a_trace_leads_through_three_agents(tmp_path):
    spans = await trace_of(tmp_path)

    (main,) = [span for span in spans if span["name"] == "main"]
    below = {span["context"]["trace_id"] for span in spans if span["parent_id"]}
    assert below == {main["context"]["trace_id"]}
    lines = [line for line in tree(spans) if not line[3].startswith("a2a.server.")]
    assert lines == [
        (0, "client", "INTERNAL", "main"),
        (1, "client", "CLIENT", "GetAgentCard"),
        (2, "client", "CLIENT", "GET"),
        (1, "client", "CLIENT", "SendStreamingMessage"),
        (2, "client", "CLIENT", "POST"),
        (3, "front", "SERVER", "SendStreamingMessage"),
        (4, "front", "CLIENT", "GetAgentCard"),
        (5, "front", "CLIENT", "GET"),
        (6, "back", "SERVER", CARD),
        (4, "front", "CLIENT", "SendStreamingMessage"),
        (5, "front", "CLIENT", "POST"),
        (6, "back", "SERVER", "POST /rpc"),
        (4, "front", "CLIENT", "GetTask"),
        (5, "front", "CLIENT", "POST"),
        (6, "back", "SERVER", "POST /rpc"),
        (1, "client", "CLIENT", "GetTask"),
        (2, "client", "CLIENT", "POST"),
        (3, "front", "SERVER", "GetTask"),
    ]
    methods = {line[3].rpartition(".")[2] for line in tree(spans) if line[3].startswith(HANDLER)}
    assert methods >= {"on_message_send_stream", "on_get_task"}
    served = [span for span in spans if (span["of"], span["kind"]) == ("front", "SpanKind.SERVER")]
    assert {span["attributes"]["a2a.task.state"] for span in served} == {"TASK_STATE_COMPLETED"}
    assert len({span["attributes"]["a2a.task.id"] for span in served}) == 1


async def test_the_sdk_alone_begins_a_trace_of_its_own(tmp_path):
    spans = await trace_of(tmp_path, "--bare")

    traces = {
        name: {span["context"]["trace_id"] for span in spans if span["of"] == name}
        for name in ("client", "front", "back")
    }
    assert traces["client"] == traces["front"]
    assert traces["back"].isdisjoint(traces["client"])
    assert any(span["name"].startswith(HANDLER) for span in spans)
