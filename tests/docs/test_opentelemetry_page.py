"""The code in docs/howto/opentelemetry.md runs as it stands, and the page is true and complete."""

import functools
import json
import re
import sys
import types

import prometheus_client
import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace import export as sdk_export
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.kit.pages import Page, execute

import holdfast
from holdfast.integrations.opentelemetry import HoldfastInstrumentor, Telemetry
from holdfast.testing import Cut, FakeAgent, FakeNetwork, rate_limited, streams

PAGE = Page("docs/howto/opentelemetry.md")
DASHBOARD = PAGE.path.with_name("grafana-dashboard.json")


@pytest.fixture
def run(monkeypatch):
    """Runs a block against an agent that is rate limited and cuts its stream."""

    async def run(text, **names):
        agent = FakeAgent(streams("384,400", " km", every=1), url="http://localhost:9999")
        connect = functools.partial(holdfast.connect, engine=FakeNetwork(agent))
        monkeypatch.setattr(holdfast, "connect", connect)
        agent.inject(rate_limited(retry_after=1), on="SendStreamingMessage")
        agent.inject(Cut(after_events=2), on="SendStreamingMessage")
        await execute(PAGE.block(text), print=lambda *_: None, **names)
        return agent

    return run


@pytest.fixture
def exporter(monkeypatch):
    """Gets the spans of programs that name no provider."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def get_tracer(name, *_args, **_options):
        # Not for the official SDK, which makes spans of its own.
        return provider.get_tracer(name) if name == "holdfast" else trace.NoOpTracer()

    monkeypatch.setattr(trace, "get_tracer", get_tracer)
    return exporter


def named(attributes):
    return {name for name in attributes if f"`{name}`" not in PAGE.text}


async def test_telemetry_makes_the_spans_and_sends_the_context(run, exporter, monkeypatch):
    monkeypatch.setattr(sdk_export, "ConsoleSpanExporter", lambda: exporter)
    agent = await run("BatchSpanProcessor")

    spans = exporter.get_finished_spans()
    assert {span.name for span in spans} == {
        *("GetAgentCard", "SendStreamingMessage", "SubscribeToTask", "GetTask"),
        *("GET", "POST"),
    }
    assert named({name for span in spans for name in span.attributes}) == set()
    assert all("traceparent" in each.headers for each in agent.received)


@pytest.mark.real_time
async def test_spans_of_an_agent_are_below_the_request_that_it_answers(monkeypatch, exporter):
    here = "http://localhost:9999"
    moon, connect = FakeAgent("384,400 km", url=here), holdfast.connect
    monkeypatch.setattr(
        holdfast,
        "connect",
        lambda url, **options: connect(
            url, engine=FakeNetwork(moon) if url == here else None, **options
        ),
    )
    printed = []

    await execute(PAGE.block("A2AServer"), print=printed.append)

    assert printed == ["384,400 km"]
    spans = exporter.get_finished_spans()
    served = [span for span in spans if span.kind is trace.SpanKind.SERVER]
    (asked,) = [span for span in served if span.name == "SendStreamingMessage"]
    below = [
        span for span in spans if span.parent and span.parent.span_id == asked.context.span_id
    ]
    assert {"GetAgentCard", "SendStreamingMessage"} <= {span.name for span in below}
    assert named({name for span in served for name in span.attributes}) == set()


async def test_the_instrumentor_gives_a_telemetry_to_all_clients(run, exporter):
    try:
        await run("HoldfastInstrumentor().instrument()")
    finally:
        HoldfastInstrumentor().uninstrument()
    assert {span.name for span in exporter.get_finished_spans()} >= {"GetAgentCard", "POST"}


async def test_the_instrumentation_of_aiohttp_is_switched_on(run, monkeypatch):
    switched = []
    instrumentor = types.SimpleNamespace(instrument=lambda: switched.append(True))
    module = types.ModuleType("opentelemetry.instrumentation.aiohttp_client")
    module.AioHttpClientInstrumentor = lambda: instrumentor
    monkeypatch.setitem(sys.modules, module.__name__, module)
    await run("AioHttpClientInstrumentor")
    assert switched == [True]


# ── Metrics ──────────────────────────────────────────────────────────────────────────────────

ROWS = {
    name: (kind, set(re.findall(r"`([\w.]+)`", attributes)))
    for name, kind, attributes in re.findall(
        r"^\| `([\w.]+)`[^|]*\| ([a-z -]+) \|([^|]*)\|$", PAGE.text, re.MULTILINE
    )
}


def test_the_table_lists_all_metrics(monkeypatch):
    made = {}

    class Meter(metrics.NoOpMeter):
        """Notes the instruments that are made."""

    def noting(kind):
        def create(self, name, unit="", description="", **_options):
            made[name] = kind
            return getattr(metrics.NoOpMeter("m"), f"create_{kind}")(name, unit, description)

        return create

    def observable(_self, name, *_arguments, **_options):
        made[name] = "gauge"

    monkeypatch.setattr(Meter, "create_observable_gauge", observable)
    for kind in ("histogram", "counter", "up_down_counter"):
        monkeypatch.setattr(Meter, f"create_{kind}", noting(kind))
    monkeypatch.setattr(metrics, "get_meter", lambda *_args, **_options: Meter("holdfast"))
    Telemetry()

    shown = {name: re.sub("[ -]", "_", kind) for name, (kind, _) in ROWS.items()}
    assert shown == made


async def test_metrics_have_the_attributes_of_the_table(run, monkeypatch, tmp_path):
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr(
        metrics, "get_meter", lambda name, *_args, **_options: provider.get_meter(name)
    )
    connect = functools.partial(holdfast.connect, journal=tmp_path / "calls.db")
    monkeypatch.setattr(holdfast, "connect", connect)
    await run("BatchSpanProcessor")

    for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics:
        for metric in scope.metrics:
            for point in metric.data.data_points:
                _, attributes = ROWS[metric.name]
                assert set(point.attributes) - {"gen_ai.agent.name"} <= attributes, metric.name


async def exposed(run, monkeypatch):
    """The names of the metrics as Prometheus sees them, after the block was run."""
    registry = prometheus_client.CollectorRegistry()
    monkeypatch.setattr(prometheus_client.registry, "REGISTRY", registry)
    monkeypatch.setattr("opentelemetry.exporter.prometheus.REGISTRY", registry)
    served = []
    monkeypatch.setattr(prometheus_client, "start_http_server", served.append)
    await run("PrometheusMetricReader")
    assert served == [8000]
    text = prometheus_client.generate_latest(registry).decode()
    return {line.partition("{")[0] for line in text.splitlines() if "{" in line}


def prometheus_names():
    """The names that the exporter makes of those in the table."""
    for name, (kind, _) in ROWS.items():
        base = name.replace(".", "_")
        if kind == "histogram":
            unit = "" if name.endswith("events") else "_seconds"
            yield from (f"{base}{unit}_{end}" for end in ("bucket", "count", "sum"))
        else:
            yield base + ("_total" if kind == "counter" else "")


async def test_prometheus_sees_the_metrics(run, monkeypatch):
    names = await exposed(run, monkeypatch)
    ours = {name for name in names if name.startswith(("a2a_", "holdfast_"))}
    assert len(ours) > 10
    assert ours <= set(prometheus_names())


def test_the_dashboard_and_the_alerts_query_metrics_and_labels_that_exist():
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
    queries += re.findall(r"expr: (.*)", PAGE.text)
    labels = {"gen_ai_agent_name", "le", "agent"}
    labels |= {name.replace(".", "_") for _, names in ROWS.values() for name in names}
    known = set(prometheus_names())
    for query in queries:
        words = set(re.findall(r"(?:a2a|holdfast|gen_ai|error)_\w+", query))
        assert words <= known | labels, query
        assert words & known, query
    used = {word for query in queries for word in re.findall(r"\w+", query)} & known
    shown = {re.sub("_(bucket|count|sum)$", "", name) for name in used}
    assert shown == {re.sub("_(bucket|count|sum)$", "", name) for name in known}


def test_the_panels_of_the_dashboard_do_not_overlap():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)


def test_every_block_is_run():
    PAGE.check_complete(
        "BatchSpanProcessor",
        "A2AServer",
        "PrometheusMetricReader",
        "HoldfastInstrumentor().instrument()",
        "AioHttpClientInstrumentor",
    )


def test_every_link_leads_somewhere():
    PAGE.check_links()
