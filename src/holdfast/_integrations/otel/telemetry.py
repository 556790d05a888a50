"""`Telemetry`, which `holdfast.integrations.opentelemetry` publishes."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, trace

from holdfast._arguments import check_kind, check_methods
from holdfast._integrations.otel.attempt_spans import AttemptSpans
from holdfast._integrations.otel.metrics import Metrics
from holdfast._integrations.otel.server_spans import ServerSpans
from holdfast._integrations.otel.spans import Spans
from holdfast._version import __version__
from holdfast.observe import Observation

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import TracerProvider

    from holdfast.extend import Transport
    from holdfast.observe import ServerActivity, ServerSpan

__all__ = ["Telemetry"]

logger = logging.getLogger("holdfast")


class Telemetry:
    """Makes spans and metrics of OpenTelemetry, and sends the trace context to agents.

    Pass it as ``connect(telemetry=…)``; one object can serve many clients. It makes

    - a span of kind CLIENT for each request, named after its A2A method (``SendMessage``), from
      its start to the last event of its stream. Its parent is the span that is current where your
      program calls the client. A resubscription is linked to the connection that was cut.
    - below it a span of kind CLIENT for each attempt, whose context the attempt sends to the agent
      (``traceparent``, ``tracestate``, baggage), if the agent's origin is trusted with
      credentials, and unless the caller passes a ``traceparent`` of its own.
    - a span of kind INTERNAL for each search after a lost reply (``reconcile``).

    Pass it as ``A2AServer(telemetry=…)`` as well, and as ``PushReceiver(telemetry=…)``. It makes

    - a span of kind SERVER for each request, named after its A2A method, from its start to its
      reply or the last event of its stream. Its parent is the context in the request's headers or
      gRPC metadata. The agent runs in its context, with the baggage of the request.
    - below it a span of kind CLIENT for each push notification of the turn
      (``SendPushNotification``), whose ids are sent to the receiver, without tracestate and
      baggage: a client chose the receiver.
    - a span of kind CONSUMER for each request to a push receiver (``ReceivePushNotification``),
      linked to the context in its headers.

    While an attempt is made, instrumentations of aiohttp, httpx and other HTTP clients make no
    spans of their own.

    The metrics of a client (meter ``holdfast``) count operations, attempts, retries, reconnects,
    searches and unknown outcomes, and measure durations, streams, queues, circuits, retry budgets
    and the journal; the documentation lists them. Their attributes are names, and never ids.

    Spans have ids, names and facts of errors as attributes, and no content of messages unless
    `capture_content` is set. The names follow the draft of the semantic conventions for A2A (pull
    request 195 of open-telemetry/semantic-conventions-genai): ``a2a.*``, ``gen_ai.*``,
    ``server.*``, ``http.*`` and ``error.type``; those that it does not define begin with
    ``holdfast.``.

    Args:
        tracer_provider: Makes the spans; the global one by default.
        meter_provider: Makes the metrics; the global one by default.
        propagator: Writes the context into headers; the global one by default.
        operation_spans: Whether each operation has a span of kind INTERNAL around its requests
            (``holdfast.ask``). False by default.
        capture_content: Whether the spans of a client's requests have the parts of the message
            (``gen_ai.input.messages``) and of the agent's answer
            (``gen_ai.output.messages``), as JSON of up to 64 KiB each, without the bytes of files;
            the first part that does not fit is left out, with all that follow. False by default.

    Raises:
        TypeError: An argument of another type.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        operation_spans: bool = False,
        capture_content: bool = False,
    ) -> None:
        if tracer_provider is not None:
            check_kind("tracer_provider", tracer_provider, trace.TracerProvider)
        if meter_provider is not None:
            check_kind("meter_provider", meter_provider, metrics.MeterProvider)
        if propagator is not None:
            check_methods("propagator", propagator, "inject")
        check_kind("operation_spans", operation_spans, bool)
        check_kind("capture_content", capture_content, bool)
        self._has_warned = False
        tracer = trace.get_tracer("holdfast", __version__, tracer_provider=tracer_provider)
        self._server_spans = ServerSpans(tracer, propagator, warn=self._warn)
        self._spans = Spans(
            tracer,
            propagator,
            operation_spans=operation_spans,
            capture_content=capture_content,
            warn=self._warn,
        )
        meter = Metrics(metrics.get_meter("holdfast", __version__, meter_provider))
        handlers = defaultdict[type[Observation], list[Callable[[Any], None]]](list)
        for source in (self._spans.handlers, meter.handlers):
            for kind, handle in source.items():
                handlers[kind].append(handle)
        self._handlers = dict(handlers)

    def observe(self, observation: Observation) -> None:
        """Make or end a span for an observation of a client, and measure it.

        A failure of OpenTelemetry is logged as a warning, once.

        Args:
            observation: The observation.
        """
        for handle in self._handlers.get(type(observation), ()):
            try:
                handle(observation)
            except Exception as failure:  # noqa: BLE001  a provider must not end calls
                self._warn(failure)

    def layer(self, inner: Transport, /) -> Transport:
        """Return the layer around each attempt of a client.

        Args:
            inner: The transport below.
        """
        return AttemptSpans(inner, self._spans)

    def traceparent(self, operation_id: str, /) -> str | None:
        """Return the trace context of an operation of a client, for the record of its call.

        Args:
            operation_id: Id of the operation.

        Returns:
            The span of the operation, or the one that is current where it was called, as the
            ``traceparent`` of W3C Trace Context; None if there is neither.
        """
        return self._spans.traceparent(operation_id)

    def start_span(
        self, activity: ServerActivity, parent: ServerSpan | None = None, /
    ) -> ServerSpan:
        """Start the span of an activity of a server or a push receiver; never raises.

        Args:
            activity: The activity.
            parent: The span that caused a push; None if unknown.

        Returns:
            The span, which does nothing if OpenTelemetry fails.
        """
        return self._server_spans.start(activity, parent)

    def _warn(self, failure: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "OpenTelemetry failed, and calls continue without it: %s: %s",
                type(failure).__name__,
                failure,
            )
