"""Spans of what clients do, made from observations.

They have explicit parents: no context is attached while a stream is open, so that a stream can be
left early, closed by another task or garbage-collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import default_setter
from opentelemetry.trace import Link, Span, SpanContext, TraceFlags

from holdfast._integrations.otel.attributes import (
    STREAMING_METHODS,
    carried,
    end_span,
    learned_attributes,
    name_attributes,
    server_attributes,
    type_of,
)
from holdfast._integrations.otel.content import Content, parts_of
from holdfast.observe import (
    HedgeStarted,
    JournalWritten,
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
from holdfast.protocol import CARD_BINDING, GET_AGENT_CARD, SUBSCRIBE_TO_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Tracer

    from holdfast.extend import Call
    from holdfast.observe import Observation

__all__ = ["Spans"]

P = TypeVar("P")
R = TypeVar("R")

_VERBS = {"JSONRPC": "POST", "HTTP+JSON": None, CARD_BINDING: "GET"}
"""The HTTP method of each binding; None for that of the operation."""

_RESUMED = {"holdfast.link": "resumed"}
"""Attributes of a link to the span in which a call began that is now resumed."""


class _Operation(msgspec.Struct):
    """An operation in progress.

    Attributes:
        context: The context of the caller, below which its spans are.
        span: Its span, if operations have spans.
        stream: The span of its latest connection of a stream, to which a resubscription is linked.
        resumed: The span in which the call that it has taken over began, until one of its own
            spans is linked to it.
    """

    context: Context
    span: Span | None = None
    stream: SpanContext | None = None
    resumed: SpanContext | None = None


class Spans:
    """The spans that have not ended.

    Args:
        tracer: Makes the spans.
        propagator: Writes the context into headers; None for the global one.
        operation_spans: Whether each operation has a span.
        capture_content: Whether spans have the parts of messages.
        warn: Logs a failure of OpenTelemetry, once.

    Attributes:
        captures_content: Whether spans have the parts of messages.
        handlers: For each class of observations, the method that makes or ends its span.
    """

    def __init__(
        self,
        tracer: Tracer,
        propagator: TextMapPropagator | None,
        *,
        operation_spans: bool,
        capture_content: bool,
        warn: Callable[[Exception], None],
    ) -> None:
        self._tracer = tracer
        self._propagator = (
            propagate.get_global_textmap if propagator is None else lambda: propagator
        )
        self._operation_spans = operation_spans
        self._operations: dict[str, _Operation] = {}
        self._requests: dict[str | None, tuple[Span, RequestStarted]] = {}
        self._searches: dict[tuple[str, str | None], Span] = {}
        self.captures_content = capture_content
        self._answers: dict[str | None, Content] = {}
        self._warn = warn

        self.handlers: Mapping[type[Observation], Callable[[Any], None]] = {
            OperationStarted: self._start_operation,
            OperationFinished: self._end_operation,
            RequestStarted: self._start_request,
            RequestFinished: self._end_request,
            ReconcileStarted: self._start_search,
            Reconciled: self._end_search,
            RetryScheduled: self._add_retry,
            HedgeStarted: self._add_hedge,
            StreamInterrupted: self._add_interruption,
            Reconnected: self._add_reconnect,
            JournalWritten: self._note_claim,
        }

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
        links = [] if method == GET_AGENT_CARD.name else _take_resumed_links(operation)
        if (
            operation is not None
            and operation.stream is not None
            and method == SUBSCRIBE_TO_TASK.name
        ):
            links.append(Link(operation.stream))
        span = self._tracer.start_span(
            method,
            context.get_current() if operation is None else operation.context,
            kind=trace.SpanKind.CLIENT,
            attributes=name_attributes(started) | {"a2a.method.name": method},
            links=links,
        )
        self._requests[started.request_id] = span, started
        if operation is not None and method in STREAMING_METHODS:
            operation.stream = span.get_span_context()

    def _end_request(self, finished: RequestFinished) -> None:
        span, started = self._requests.pop(finished.request_id, (None, None))
        if span is not None and started is not None:
            attributes = learned_attributes(started, finished)
            attributes["holdfast.attempts"] = finished.attempts
            if (answer := self._answers.pop(finished.request_id, None)) is not None:
                attributes["gen_ai.output.messages"] = answer.to_json()
            end_span(span, finished.error, attributes)

    def _start_search(self, started: ReconcileStarted) -> None:
        operation = self._operations.get(started.operation_id)
        self._searches[started.operation_id, started.message_id] = self._tracer.start_span(
            "reconcile",
            context.get_current() if operation is None else operation.context,
            kind=trace.SpanKind.INTERNAL,
            attributes=name_attributes(started),
            links=_take_resumed_links(operation),
        )

    def _end_search(self, finished: Reconciled) -> None:
        search = self._searches.pop((finished.operation_id, finished.message_id), None)
        if search is not None:
            end_span(search, finished.error, name_attributes(finished))

    # ── Calls of a journal ───────────────────────────────────────────────────────────────────

    def traceparent(self, operation_id: str) -> str | None:
        """Return the ``traceparent`` of an operation; None if it is in no trace.

        It names the span of the operation, or the span that was current where it was called.

        Args:
            operation_id: Id of the operation.
        """
        operation = self._operations.get(operation_id)
        current = trace.get_current_span(None if operation is None else operation.context)
        span = current.get_span_context()
        if not span.is_valid:
            return None
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"

    def _note_claim(self, written: JournalWritten) -> None:
        """Link the operation that has taken a call over to the span in which the call began."""
        operation = self._operations.get(written.operation_id)
        if operation is None or written.traceparent is None or written.error is not None:
            return
        began = _span_context(written.traceparent)
        if operation.span is None:
            operation.resumed = began
        else:
            operation.span.add_link(began, _RESUMED)

    # ── What the client does about a failure ─────────────────────────────────────────────────

    def _add_retry(self, scheduled: RetryScheduled) -> None:
        facts = {
            "holdfast.attempt": scheduled.number,
            "holdfast.wait": scheduled.wait,
            "holdfast.wait.reason": scheduled.reason,
            "error.type": type_of(scheduled.error),
        }
        self._add_event(scheduled, "retry", facts)

    def _add_hedge(self, started: HedgeStarted) -> None:
        self._add_event(started, "hedge", {"holdfast.wait": started.delay})

    def _add_interruption(self, interrupted: StreamInterrupted) -> None:
        error = interrupted.error
        facts = {} if error is None else {"error.type": type_of(error)}
        self._add_event(interrupted, "interrupted", facts)

    def _add_reconnect(self, reconnected: Reconnected) -> None:
        self._add_event(reconnected, "reconnected", {"holdfast.reconnects": reconnected.number})

    def _add_event(self, observation: Observation, name: str, facts: Mapping[str, Any]) -> None:
        span, _ = self._requests.get(observation.request_id, (None, None))
        if span is None and (operation := self._operations.get(observation.operation_id)):
            span = operation.span  # the request has ended, as one whose stream was cut
        if span is not None:
            span.add_event(name, facts)

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
        request, _ = self._requests.get(call.request_id, (None, None))
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
        if binding in _VERBS:
            attributes["http.request.method"] = name = _VERBS[binding] or call.operation.verb
        span = self._tracer.start_span(
            name,
            trace.set_span_in_context(request, parent),
            kind=trace.SpanKind.CLIENT,
            attributes=attributes,
        )
        return span, trace.set_span_in_context(span, parent)

    def end_attempt(self, span: Span, error: BaseException | None = None) -> None:
        """End the span of an attempt.

        Args:
            span: The span.
            error: The error of the attempt; None for none.
        """
        try:
            end_span(span, error, {})
        except Exception as failure:  # noqa: BLE001  a span must not end calls
            self._warn(failure)

    def with_context(self, call: Call[P, R], current: Context) -> Call[P, R]:
        """Return a call with the headers that carry a context to the agent.

        A call with a ``traceparent`` of its own gets none; its other headers take precedence.

        Args:
            call: The call.
            current: The context.
        """
        if not call.is_trusted or "traceparent" in call.headers:
            return call
        headers: MutableMapping[str, str] = {}
        try:
            self._propagator().inject(headers, current, default_setter)
            headers = carried(headers)
        except Exception as failure:  # noqa: BLE001  a propagator must not end calls
            self._warn(failure)
            return call
        call.progress.traceparent = headers.get("traceparent")
        return msgspec.structs.replace(call, headers={**headers, **call.headers})

    # ── The content of messages ──────────────────────────────────────────────────────────────

    def capture_input(self, call: Call[Any, Any]) -> None:
        """Add the message that a call sends to the span of its request."""
        span, _ = self._requests.get(call.request_id, (None, None))
        if span is None:
            return
        try:
            if parts := parts_of(call.params):
                message = Content("user")
                message.add(parts)
                span.set_attribute("gen_ai.input.messages", message.to_json())
        except Exception as failure:  # noqa: BLE001  content must not end calls
            self._warn(failure)

    def capture_output(self, request_id: str, value: object) -> None:
        """Note what a reply or an event brings, for the end of the span of its request."""
        if request_id not in self._requests:
            return
        try:
            if parts := parts_of(value):
                self._answers.setdefault(request_id, Content("assistant")).add(parts)
        except Exception as failure:  # noqa: BLE001  nor must content lose replies
            self._warn(failure)


def _span_context(traceparent: str) -> SpanContext:
    """Return the span that a valid ``traceparent`` names."""
    _version, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )


def _take_resumed_links(operation: _Operation | None) -> list[Link]:
    """Return the link to the span in which a resumed call began: for one span of an operation."""
    if operation is None or operation.resumed is None:
        return []
    resumed, operation.resumed = operation.resumed, None
    return [Link(resumed, _RESUMED)]
