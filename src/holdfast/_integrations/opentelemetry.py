"""Spans of OpenTelemetry; `holdfast.integrations.opentelemetry` publishes `Telemetry`.

Spans are made from observations, with explicit parents, and end with them: no context is attached
while a stream is open, so that a stream can be left early, closed by another task or
garbage-collected. Only the span of an attempt is current, for as long as the attempt is awaited.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from holdfast._arguments import check_kind
from holdfast._model.extras import missing_extra
from holdfast.errors import A2AError
from holdfast.extend import BaseLayer
from holdfast.observe import (
    HedgeStarted,
    OperationFinished,
    OperationStarted,
    Reconciled,
    ReconcileStarted,
    Reconnected,
    RequestFinished,
    RequestStarted,
    RetryScheduled,
    StreamInterrupted,
)

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import default_setter
    from opentelemetry.trace import Span, SpanContext
except ModuleNotFoundError as error:
    if error.name != "opentelemetry":
        raise
    feature = "holdfast.integrations.opentelemetry"
    raise missing_extra(feature, "otel", library="opentelemetry-api") from error

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Tracer, TracerProvider

    from holdfast.extend import Call, CallNext, Reply, Transport
    from holdfast.observe import Observation

__all__ = ["Telemetry"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

logger = logging.getLogger("holdfast")

_SUBSCRIBE = "SubscribeToTask"
_STREAMS = frozenset({"SendStreamingMessage", _SUBSCRIBE})

_SUPPRESS_HTTP = "suppress_http_instrumentation"
"""Key of the context by which instrumentations of HTTP clients make no span of their own."""


class _Operation(msgspec.Struct):
    """An operation in progress.

    Attributes:
        context: The context of the caller, below which its spans are.
        span: Its span, if operations have spans.
        stream: The span of its latest connection of a stream, to which a resubscription is linked.
    """

    context: Context
    span: Span | None = None
    stream: SpanContext | None = None


class Telemetry:
    """Makes spans of OpenTelemetry, and passes the trace on to agents.

    Pass it as ``connect(telemetry=…)``; one object can serve many clients. It makes

    - a span of kind CLIENT for each request, named after its A2A method (``SendMessage``), from
      its start to the last event of its stream. Its parent is the span that is current where your
      program calls the client. A resubscription is linked to the connection that was cut.
    - below it a span of kind CLIENT for each attempt, whose context the attempt sends to the agent
      (``traceparent``, ``tracestate``, baggage), if the agent's origin is trusted with
      credentials, and unless the caller passes a ``traceparent`` of its own.
    - a span of kind INTERNAL for each search after a lost reply (``reconcile``).

    While an attempt is made, instrumentations of aiohttp, httpx and other HTTP clients make no
    spans of their own.

    Spans have ids, names and facts of errors as attributes, and no content of messages. The names
    follow the draft of the semantic conventions for A2A (pull request 195 of
    open-telemetry/semantic-conventions-genai): ``a2a.*``, ``gen_ai.*``, ``server.*``, ``http.*``
    and ``error.type``; those that it does not define begin with ``holdfast.``.

    Args:
        tracer_provider: Makes the spans; the global one by default.
        propagator: Writes the context into headers; the global one by default.
        operation_spans: Whether each operation has a span of kind INTERNAL around its requests
            (``holdfast.ask``). False by default.

    Raises:
        TypeError: An argument of another type.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
        operation_spans: bool = False,
    ) -> None:
        if tracer_provider is not None:
            check_kind("tracer_provider", tracer_provider, trace.TracerProvider)
        check_kind("operation_spans", operation_spans, bool)
        tracer = trace.get_tracer("holdfast", tracer_provider=tracer_provider)
        self._spans = _Spans(tracer, propagator, operation_spans=operation_spans)

    def observe(self, observation: Observation) -> None:
        """Make and end spans; the observer of a client.

        Args:
            observation: The observation.
        """
        self._spans.observe(observation)

    def layer(self, inner: Transport, /) -> Transport:
        """Return the layer around each attempt of a client.

        Args:
            inner: The transport below.
        """
        return _AttemptSpans(inner, self._spans)


class _Spans:
    """The spans that have not ended.

    Args:
        tracer: Makes the spans.
        propagator: Writes the context into headers; None for the global one.
        operation_spans: Whether each operation has a span.
    """

    def __init__(
        self, tracer: Tracer, propagator: TextMapPropagator | None, *, operation_spans: bool
    ) -> None:
        self._tracer = tracer
        self._propagator = (
            propagate.get_global_textmap if propagator is None else lambda: propagator
        )
        self._operation_spans = operation_spans
        self._operations: dict[str, _Operation] = {}
        self._requests: dict[str | None, Span] = {}
        self._searches: dict[tuple[str, str | None], Span] = {}
        self._has_warned = False

    def observe(self, observation: Observation) -> None:
        """Make or end the span of an observation."""
        match observation:
            case OperationStarted():
                self._start_operation(observation)
            case OperationFinished():
                self._end_operation(observation)
            case RequestStarted():
                self._start_request(observation)
            case RequestFinished():
                self._end_request(observation)
            case ReconcileStarted() | Reconciled():
                self._trace_search(observation)
            case _:
                self._add_event(observation)

    # ── Operations and requests ──────────────────────────────────────────────────────────────

    def _start_operation(self, started: OperationStarted) -> None:
        operation = _Operation(context.get_current())
        if self._operation_spans:
            operation.span = self._tracer.start_span(
                f"holdfast.{started.operation}",
                operation.context,
                kind=trace.SpanKind.INTERNAL,
                attributes=_names(started),
            )
            operation.context = trace.set_span_in_context(operation.span, operation.context)
        self._operations[started.operation_id] = operation

    def _end_operation(self, finished: OperationFinished) -> None:
        operation = self._operations.pop(finished.operation_id, None)
        if operation is None or operation.span is None:
            return
        attributes = _names(finished) | {
            "holdfast.outcome": finished.outcome,
            "holdfast.attempts": finished.attempts,
            "holdfast.reconnects": finished.reconnects,
            "holdfast.gap": finished.has_gap,
        }
        if finished.executed is not None:
            attributes["holdfast.executed"] = finished.executed
        if finished.state is not None:
            attributes["a2a.task.state"] = finished.state.value
        _end(operation.span, finished.error, attributes)

    def _start_request(self, started: RequestStarted) -> None:
        operation = self._operations.get(started.operation_id)
        method = started.method or started.operation
        links = None
        if operation is not None and operation.stream is not None and method == _SUBSCRIBE:
            links = [trace.Link(operation.stream)]
        span = self._tracer.start_span(
            method,
            context.get_current() if operation is None else operation.context,
            kind=trace.SpanKind.CLIENT,
            attributes=_names(started) | {"a2a.method.name": method},
            links=links,
        )
        self._requests[started.request_id] = span
        if operation is not None and method in _STREAMS:
            operation.stream = span.get_span_context()

    def _end_request(self, finished: RequestFinished) -> None:
        span = self._requests.pop(finished.request_id, None)
        if span is not None:
            attributes = _names(finished) | {"holdfast.attempts": finished.attempts}
            _end(span, finished.error, attributes)

    def _trace_search(self, observation: ReconcileStarted | Reconciled) -> None:
        key = observation.operation_id, observation.message_id
        if isinstance(observation, ReconcileStarted):
            operation = self._operations.get(observation.operation_id)
            self._searches[key] = self._tracer.start_span(
                "reconcile",
                context.get_current() if operation is None else operation.context,
                kind=trace.SpanKind.INTERNAL,
                attributes=_names(observation),
            )
        elif (search := self._searches.pop(key, None)) is not None:
            _end(search, observation.error, _names(observation))

    def _add_event(self, observation: Observation) -> None:
        """Add what the client does about a failure to the span of its request."""
        span = self._requests.get(observation.request_id)
        if span is None:
            return
        attributes: dict[str, Any] = {}
        match observation:
            case RetryScheduled(number=number, wait=wait, reason=reason, error=error):
                name = "retry"
                attributes = {"holdfast.attempt": number, "holdfast.wait": wait}
                attributes |= {"holdfast.wait.reason": reason, "error.type": _type_of(error)}
            case HedgeStarted(delay=delay):
                name, attributes = "hedge", {"holdfast.wait": delay}
            case StreamInterrupted(error=cause):
                name = "interrupted"
                attributes = {} if cause is None else {"error.type": _type_of(cause)}
            case Reconnected(number=number):
                name, attributes = "reconnected", {"holdfast.reconnects": number}
            case _:
                return
        span.add_event(name, attributes)

    # ── Attempts ─────────────────────────────────────────────────────────────────────────────

    def start_attempt(self, call: Call[Any, Any]) -> tuple[Span, Context] | None:
        """Start the span of an attempt; None if it cannot be made.

        Args:
            call: The call of the attempt.
        """
        try:
            return self._start_attempt(call)
        except Exception as failure:  # noqa: BLE001  a tracer must not end calls
            self._warn(failure)
            return None

    def _start_attempt(self, call: Call[Any, Any]) -> tuple[Span, Context] | None:
        request = self._requests.get(call.request_id)
        if request is None:
            return None
        operation = call.progress.operation
        known = None if operation is None else self._operations.get(operation.id)
        parent = context.get_current() if known is None else known.context
        endpoint = call.endpoint
        binding = "" if endpoint is None else endpoint.interface.protocol_binding
        attributes: dict[str, Any] = {"a2a.method.name": call.operation.name}
        if endpoint is not None:
            attributes.update(_server(endpoint.agent))
            attributes["a2a.protocol.version"] = endpoint.version
        if call.attempt > 1:
            attributes["http.request.resend_count"] = call.attempt - 1
        name = call.operation.name
        if binding in {"JSONRPC", "HTTP+JSON"}:
            name = "POST" if binding == "JSONRPC" else call.operation.verb
            attributes["http.request.method"] = name
        span = self._tracer.start_span(
            name,
            trace.set_span_in_context(request, parent),
            kind=trace.SpanKind.CLIENT,
            attributes=attributes,
        )
        return span, trace.set_span_in_context(span, parent)

    def with_context(self, call: Call[P, R], current: Context) -> Call[P, R]:
        """Return a call with the headers that carry a context to the agent.

        Args:
            call: The call.
            current: The context.
        """
        if not call.is_trusted or "traceparent" in call.headers:
            return call
        headers: MutableMapping[str, str] = {}
        try:
            self._propagator().inject(headers, current, default_setter)
        except Exception as failure:  # noqa: BLE001  nor a propagator
            self._warn(failure)
            return call
        return msgspec.structs.replace(call, headers={**call.headers, **headers})

    def _warn(self, failure: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("OpenTelemetry failed, and calls continue without it: %s", failure)


class _AttemptSpans(BaseLayer):
    """Makes the span of each attempt, and sends its context to the agent."""

    def __init__(self, inner: Transport, spans: _Spans) -> None:
        super().__init__(inner)
        self._spans = spans

    async def handle(self, call: Call[P, R], call_next: CallNext[P, R, T], /) -> Reply[T]:
        started = self._spans.start_attempt(call)
        if started is None:
            return await call_next(call)
        span, current = started
        call = self._spans.with_context(call, current)
        token = context.attach(context.set_value(_SUPPRESS_HTTP, value=True, context=current))
        try:
            reply = await call_next(call)
        except GeneratorExit:  # the coroutine is dropped, maybe in another context
            span.end()
            raise
        except BaseException as failure:
            context.detach(token)
            _end(span, failure, {})
            raise
        context.detach(token)
        span.end()
        return reply


def _end(span: Span, error: BaseException | None, attributes: Mapping[str, Any]) -> None:
    """End a span with the facts of an error; the text of an error may quote an agent."""
    span.set_attributes(attributes)
    if error is not None:
        span.set_attribute("error.type", _type_of(error))
    if isinstance(error, Exception):  # a cancellation is no error
        span.set_status(trace.Status(trace.StatusCode.ERROR, _type_of(error)))
    if isinstance(error, A2AError):
        if error.executed is not None:
            span.set_attribute("holdfast.executed", error.executed)
        if error.http_status is not None:
            span.set_attribute("http.response.status_code", error.http_status)
    span.end()


def _names(observation: Observation) -> dict[str, Any]:
    """Return the attributes that name the subject of an observation."""
    attributes: dict[str, Any] = {
        "gen_ai.agent.name": observation.agent,
        "a2a.message.id": observation.message_id,
        "a2a.task.id": observation.task_id,
        "gen_ai.conversation.id": observation.context_id,
        "holdfast.operation": observation.operation,
        "holdfast.operation.id": observation.operation_id,
        "holdfast.request.id": observation.request_id,
    }
    if observation.endpoint is not None:
        attributes.update(_server(observation.endpoint))
    return {name: value for name, value in attributes.items() if value is not None}


@lru_cache(maxsize=256)
def _server(address: str) -> Mapping[str, Any]:
    """Return the attributes of an address, which is the presentable form of a valid one."""
    parts = urlsplit(address)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    attributes: dict[str, Any] = (
        {} if parts.hostname is None else {"server.address": parts.hostname}
    )
    return attributes if port is None else attributes | {"server.port": port}


def _type_of(error: BaseException) -> str:
    return type(error).__name__
