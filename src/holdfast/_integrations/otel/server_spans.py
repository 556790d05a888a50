"""Spans of what servers and push receivers do.

Rules: a request continues the trace in its headers. A delivery is only linked to that trace,
because it arrives later than what caused it, and because an unknown sender must not decide whether
its span is sampled. A push carries the trace and nothing else: clients choose where it goes. No
failure of a tracer or propagator reaches the server.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, default_setter
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode

from holdfast._integrations.otel.attempt_spans import SUPPRESS_HTTP
from holdfast._integrations.otel.attributes import bounded, carried, server_attributes, type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping
    from contextvars import Token
    from types import TracebackType

    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, Tracer

    from holdfast.observe import ServerActivity, ServerSpan

__all__ = ["ServerSpans"]

_KINDS = {"request": SpanKind.SERVER, "push": SpanKind.CLIENT, "delivery": SpanKind.CONSUMER}
_NAMES = {"push": "SendPushNotification", "delivery": "ReceivePushNotification"}

_FAULTS = frozenset({"InternalError", "InvalidAgentResponseError"})
"""Errors of the protocol that are the server's fault."""


class ServerSpans:
    """Starts the spans of servers and push receivers.

    Args:
        tracer: Makes the spans.
        propagator: Reads and writes contexts; None for the global one.
        warn: Receives each failure of the tracer and the propagator.

    Attributes:
        warn: Receives each failure of the tracer and the propagator.
    """

    def __init__(
        self,
        tracer: Tracer,
        propagator: TextMapPropagator | None,
        *,
        warn: Callable[[Exception], None],
    ) -> None:
        self.warn = warn
        self._tracer = tracer
        self._propagator = propagator

    @property
    def propagator(self) -> TextMapPropagator:
        """The propagator in use."""
        return propagate.get_global_textmap() if self._propagator is None else self._propagator

    def start(self, activity: ServerActivity, parent: ServerSpan | None) -> ServerSpan:
        """Start the span of an activity.

        Args:
            activity: The activity.
            parent: The span that caused a push; None if unknown.
        """
        received = self._extracted(activity)
        links = None
        match activity.kind, parent:
            case "request", _:
                above = received
            case "push", OpenSpan(current=above):
                pass
            case _:
                above = Context()
                cause = trace.get_current_span(received).get_span_context()
                links = [trace.Link(cause)] if cause.is_valid else None
        try:
            span = self._tracer.start_span(
                _NAMES.get(activity.kind) or activity.method or "A2A",
                above,
                kind=_KINDS[activity.kind],
                attributes=_attributes(activity),
                links=links,
            )
        except Exception as failure:  # noqa: BLE001  a tracer must not end requests
            self.warn(failure)
            return OpenSpan(self, None, above, activity)
        return OpenSpan(self, span, trace.set_span_in_context(span, above), activity)

    def _extracted(self, activity: ServerActivity) -> Context:
        """Return the context in the headers of an activity, empty if there is none.

        It does not continue the current context: a server's tasks inherit that of its start.
        """
        if not activity.headers:
            return Context()
        try:
            return self.propagator.extract(activity.headers, Context(), _HeaderGetter())
        except Exception as failure:  # noqa: BLE001  a propagator must not end requests
            self.warn(failure)
            return Context()


class OpenSpan:
    """The span of an activity, until its end.

    Args:
        spans: Started it.
        span: The span; None if it could not be made.
        current: The context below the span.
        activity: The activity.

    Attributes:
        current: The context below the span.
    """

    def __init__(
        self, spans: ServerSpans, span: Span | None, current: Context, activity: ServerActivity
    ) -> None:
        self.current = current
        self._spans = spans
        self._span = span
        self._kind = activity.kind
        self._is_open = span is not None

    def attached(self) -> AbstractContextManager[None]:
        """Return a context in which the span is the current one."""
        if self._kind == "push":  # instrumentations would send baggage
            return _Attached(context.set_value(SUPPRESS_HTTP, value=True, context=self.current))
        return _Attached(self.current)

    def headers(self) -> Mapping[str, str]:
        """Return the headers that carry the ids of the trace, and neither state nor baggage."""
        carrier: MutableMapping[str, str] = {}
        if self._span is None:
            return carrier
        try:
            own = self._span.get_span_context()
            bare = SpanContext(
                own.trace_id, own.span_id, is_remote=False, trace_flags=own.trace_flags
            )
            current = trace.set_span_in_context(NonRecordingSpan(bare), Context())
            self._spans.propagator.inject(carrier, current, default_setter)
            return carried(carrier)
        except Exception as failure:  # noqa: BLE001  a propagator must not end a push
            self._spans.warn(failure)
            return {}

    def end(self, activity: ServerActivity, error: BaseException | None = None) -> None:
        """End the span, once.

        Args:
            activity: The activity with all that is known of it now.
            error: The error that ended it.
        """
        span = self._span
        if span is None or not self._is_open:
            return
        self._is_open = False
        try:
            if span.is_recording():
                span.set_attributes(_attributes(activity))
                _set_outcome(span, activity, error)
        except Exception as failure:  # noqa: BLE001  a span must not end requests
            self._spans.warn(failure)
        try:
            span.end()
        except Exception as failure:  # noqa: BLE001  a span processor must not either
            self._spans.warn(failure)


class _Attached(AbstractContextManager[None]):
    """Attaches a context; one `with` block of one task."""

    def __init__(self, current: Context) -> None:
        self._current = current
        self._token: Token[Context] | None = None

    def __enter__(self) -> None:
        self._token = context.attach(self._current)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A coroutine that is dropped ends with GeneratorExit, maybe in another context.
        if self._token is not None and kind is not GeneratorExit:
            context.detach(self._token)


class _HeaderGetter(Getter["Mapping[str, str]"]):
    """Reads headers whose names are in lower case, whatever case a propagator uses."""

    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        value = carrier.get(key.lower())
        return None if value is None else [value]

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        return list(carrier)


def _set_outcome(span: Span, activity: ServerActivity, error: BaseException | None) -> None:
    """Record an error; those that a client has caused leave the status unset."""
    status = activity.http_status
    is_push = activity.kind == "push"
    name, is_fault = None, False
    if error is not None:
        name = type_of(error)
        is_refusal = type(error).__module__.startswith("a2a.") and name not in _FAULTS
        is_fault = isinstance(error, Exception) and not is_refusal  # nor a cancellation
    elif status is not None and status >= (300 if is_push else 400):
        name, is_fault = str(status), is_push or status >= 500
    if name is not None:
        span.set_attribute("error.type", name)
    if is_fault:
        span.set_status(Status(StatusCode.ERROR, name))


def _attributes(activity: ServerActivity) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "a2a.method.name": activity.method,
        "a2a.protocol.version": activity.version,
        "a2a.tenant": activity.tenant,
        "a2a.message.id": activity.message_id,
        "a2a.task.id": activity.task_id,
        "a2a.task.state": None if activity.state is None else activity.state.value,
        "gen_ai.conversation.id": activity.context_id,
    }
    attributes = {name: bounded(value) for name, value in attributes.items() if value}
    if activity.endpoint is not None:
        attributes.update(server_attributes(activity.endpoint))
    if activity.http_status is not None:
        attributes["http.response.status_code"] = activity.http_status
    if activity.kind != "request":
        attributes["http.request.method"] = "POST"
    return attributes
