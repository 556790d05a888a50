"""A client whose calls are observed in one way: CPU microseconds of its calls and its events.

    python benchmarks/telemetry_worker.py WAY

The ways: ``off``; ``observer``, an observer that does nothing; ``api``, `Telemetry` and no
provider of OpenTelemetry; ``sdk``, `Telemetry` with the providers of OpenTelemetry's SDK, whose
exporters drop what they get; ``a2a-sdk``, the client of the official SDK, whose own spans go to
such an exporter, and are off if ``OTEL_INSTRUMENTATION_A2A_SDK_ENABLED`` is ``false``. ``floor``
makes no call: it makes two spans and two measurements, as `Telemetry` does for a call, by hand.

Replies come from memory. It answers lines with lines, as `worker` does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from typing import TYPE_CHECKING, Any

import httpx
from opentelemetry import metrics, propagate, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from timing import microseconds

import holdfast
from holdfast.integrations.opentelemetry import Telemetry
from holdfast.testing import FakeAgent, FakeNetwork, streams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from holdfast.observe import Observation

CALLS = 1000
EVENTS = 400


class Dropping(SpanExporter):
    """Drops the spans that it gets."""

    def export(self, _spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Drop spans."""
        return SpanExportResult.SUCCESS


def provide() -> None:
    """Set global providers whose exporters do nothing."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Dropping(), max_queue_size=1 << 20))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))


def nothing(_observation: Observation) -> None:
    """Observe without doing anything."""


def options_of(way: str) -> dict[str, Any]:
    """Return the options of `connect`."""
    if way == "observer":
        return {"observers": [nothing]}
    if way == "sdk":
        provide()
    return {"telemetry": Telemetry()} if way in {"api", "sdk"} else {}


def holdfast_calls(way: str) -> tuple[Callable[[], Awaitable[object]], ...]:
    """Return a call, and a stream of `EVENTS` events besides the first and the last ones."""
    options = options_of(way)
    quick = FakeAgent("42")
    client = holdfast.connect(quick.url, engine=FakeNetwork(quick), **options)
    streaming = FakeAgent(streams(*["data" * 50] * EVENTS))
    streamed = holdfast.connect(streaming.url, engine=FakeNetwork(streaming), **options)
    tasks: list[str] = []

    async def call() -> None:
        if not tasks:
            tasks.append((await client.send_message("hi")).id)
        await client.get_task(tasks[0], history_length=0)

    async def stream() -> None:
        async with streamed.stream_message("hi") as events:
            async for _ in events:
                pass

    return call, stream


def sdk_calls() -> tuple[Callable[[], Awaitable[object]], ...]:
    """Return a call of the official SDK's client, and a stream of as many events."""
    from a2a.client.transports.jsonrpc import JsonRpcTransport
    from a2a.types.a2a_pb2 import (
        AgentCard,
        AgentInterface,
        GetTaskRequest,
        Message,
        Part,
        Role,
        SendMessageRequest,
    )

    status = {"state": "TASK_STATE_WORKING"}
    task = {"id": "t", "contextId": "c", "status": status}
    piece = {
        "taskId": "t",
        "contextId": "c",
        "artifact": {"artifactId": "a", "parts": [{"text": "data" * 50}]},
        "append": True,
    }

    def handle(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        envelope = {"jsonrpc": "2.0", "id": asked["id"]}
        if asked["method"] == "GetTask":
            return httpx.Response(200, json=envelope | {"result": task})
        event = json.dumps(envelope | {"result": {"artifactUpdate": piece}})
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, headers=headers, text=f"data: {event}\n\n" * (EVENTS + 2))

    card = AgentCard(
        name="agent",
        supported_interfaces=[
            AgentInterface(
                url="http://agent.test/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
            )
        ],
    )
    http = httpx.AsyncClient(transport=httpx.MockTransport(handle))
    transport = JsonRpcTransport(http, card, "http://agent.test/rpc")

    async def call() -> None:
        await transport.get_task(GetTaskRequest(id="t"))

    async def stream() -> None:
        message = Message(
            message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text="hi")]
        )
        request = SendMessageRequest(message=message)
        async for _ in transport.send_message_streaming(request):
            pass

    return call, stream


def bare_calls() -> tuple[Callable[[], Awaitable[object]], ...]:
    """Return what OpenTelemetry's SDK does for a call, and nothing for a stream."""
    tracer, meter = trace.get_tracer("floor"), metrics.get_meter("floor")
    counter, histogram = meter.create_counter("attempts"), meter.create_histogram("duration")
    names = {f"name.{number}": "a value of some length" for number in range(8)}

    async def call() -> None:
        request = tracer.start_span("GetTask", kind=trace.SpanKind.CLIENT, attributes=names)
        parent = trace.set_span_in_context(request)
        attempt = tracer.start_span("POST", parent, trace.SpanKind.CLIENT, names)
        headers: dict[str, str] = {}
        propagate.inject(headers, trace.set_span_in_context(attempt))
        attempt.end()
        request.end()
        counter.add(1, {"agent": "a", "method": "GetTask"})
        histogram.record(0.1, {"agent": "a", "operation": "get_task", "outcome": "succeeded"})

    async def stream() -> None:
        pass

    return call, stream


def main(way: str) -> None:
    """Measure a round for each line."""
    if way in {"a2a-sdk", "floor"}:
        provide()
    with asyncio.Runner() as runner:

        async def make() -> tuple[Callable[[], Awaitable[object]], ...]:
            if way == "floor":
                return bare_calls()
            return sdk_calls() if way == "a2a-sdk" else holdfast_calls(way)

        call, stream = runner.run(make())
        for _line in sys.stdin:
            figures = {
                "call": runner.run(microseconds(call, calls=CALLS)),
                "event": runner.run(microseconds(stream, calls=4)) / EVENTS,
            }
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
