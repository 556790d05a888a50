"""Providers of OpenTelemetry for tests: one that records spans, and ones that are broken."""

import contextlib
from collections import Counter

from opentelemetry import trace
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class _StartedSpans(SpanProcessor):
    """Keeps the spans that have started."""

    def __init__(self):
        self.spans = []

    def on_start(self, span, parent_context=None):
        self.spans.append(span)


@contextlib.contextmanager
def recorded_spans():
    """A provider, and its finished spans; checks that each span that started has ended once."""
    provider, exporter, started = TracerProvider(), InMemorySpanExporter(), _StartedSpans()
    provider.add_span_processor(started)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider, exporter.get_finished_spans
    ended = Counter(span.context.span_id for span in exporter.get_finished_spans())
    assert max(ended.values(), default=1) == 1
    assert [span.name for span in started.spans if span.context.span_id not in ended] == []


def span_named(spans, name):
    """The only span of a name."""
    (span,) = [span for span in spans if span.name == name]
    return span


def _fail(*_args, **_options):
    raise RuntimeError("out of order")


class _BrokenSpan(trace.Span):
    """A span whose methods raise, as those of a program's span processors may."""

    def get_span_context(self):
        return trace.INVALID_SPAN_CONTEXT

    def is_recording(self):
        return True

    set_attribute = set_attributes = set_status = end = _fail
    add_event = update_name = record_exception = _fail


class _Provider(trace.TracerProvider):
    def __init__(self, start_span):
        self._start_span = start_span

    def get_tracer(self, *_args, **_options):
        tracer = trace.NoOpTracer()
        tracer.start_span = self._start_span
        return tracer


def broken_tracers():
    """A provider whose tracers raise."""
    return _Provider(_fail)


def broken_spans():
    """A provider whose spans raise."""
    return _Provider(lambda *_args, **_options: _BrokenSpan())


class BrokenPropagator(TextMapPropagator):
    """A propagator that raises."""

    fields = frozenset()
    extract = inject = _fail
