"""Spans of what clients do, made from observations.

They have explicit parents: no context is attached while a stream is open, so that a stream can be
left early, closed by another task or garbage-collected.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import default_setter
from opentelemetry.trace import Span, SpanContext

from holdfast._integrations.otel.attributes import (
    end_span,
    name_attributes,
    server_attributes,
    type_of,
)
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

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Tracer

    from holdfast.extend import Call
    from holdfast.observe import Observation

__all__ = ["Spans"]

P = TypeVar("P")
R = TypeVar("R")

logger = logging.getLogger("holdfast")

_SUBSCRIBE = "SubscribeToTask"
_STREAMS = frozenset({"SendStreamingMessage", _SUBSCRIBE})


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


class Spans:
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
                attributes=name_attributes(started),
            )
            operation.context = trace.set_span_in_context(operation.span, operation.context)
        self._operations[started.operation_id] = operation

    def _end_operation(self, finished: OperationFinished) -> None:
        operation = self._operations.pop(finished.operation_id, None)
        if operation is None or operation.span is None:
            return
        attributes = name_attributes(finished) | {
            "holdfast.outcome": finished.outcome,
            "holdfast.attempts": finished.attempts,
            "holdfast.reconnects": finished.reconnects,
            "holdfast.gap": finished.has_gap,
        }
        if finished.executed is not None:
            attributes["holdfast.executed"] = finished.executed
        if finished.state is not None:
            attributes["a2a.task.state"] = finished.state.value
        end_span(operation.span, finished.error, attributes)

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
            attributes=name_attributes(started) | {"a2a.method.name": method},
            links=links,
        )
        self._requests[started.request_id] = span
        if operation is not None and method in _STREAMS:
            operation.stream = span.get_span_context()

    def _end_request(self, finished: RequestFinished) -> None:
        span = self._requests.pop(finished.request_id, None)
        if span is not None:
            attributes = name_attributes(finished) | {"holdfast.attempts": finished.attempts}
            end_span(span, finished.error, attributes)

    def _trace_search(self, observation: ReconcileStarted | Reconciled) -> None:
        key = observation.operation_id, observation.message_id
        if isinstance(observation, ReconcileStarted):
            operation = self._operations.get(observation.operation_id)
            self._searches[key] = self._tracer.start_span(
                "reconcile",
                context.get_current() if operation is None else operation.context,
                kind=trace.SpanKind.INTERNAL,
                attributes=name_attributes(observation),
            )
        elif (search := self._searches.pop(key, None)) is not None:
            end_span(search, observation.error, name_attributes(observation))

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
                attributes |= {"holdfast.wait.reason": reason, "error.type": type_of(error)}
            case HedgeStarted(delay=delay):
                name, attributes = "hedge", {"holdfast.wait": delay}
            case StreamInterrupted(error=cause):
                name = "interrupted"
                attributes = {} if cause is None else {"error.type": type_of(cause)}
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
            attributes.update(server_attributes(endpoint.agent))
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
