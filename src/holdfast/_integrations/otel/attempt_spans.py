"""The layer around each attempt: its span is current for as long as the attempt is awaited."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from opentelemetry import context

from holdfast._integrations.otel.content import RecordedStream
from holdfast.extend import BaseLayer

if TYPE_CHECKING:
    from holdfast._integrations.otel.spans import Spans
    from holdfast.extend import Call, CallNext, Reply, Transport

__all__ = ["SUPPRESS_HTTP", "AttemptSpans"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

SUPPRESS_HTTP: str = getattr(
    context, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", "suppress_http_instrumentation"
)
"""Key of the context by which instrumentations of HTTP clients make no span of their own.

The API has no public name for it; opentelemetry-instrumentation imports the same private one.
"""


class AttemptSpans(BaseLayer):
    """Makes the span of each attempt, and sends its context to the agent."""

    def __init__(self, inner: Transport, spans: Spans) -> None:
        super().__init__(inner)
        self._spans = spans

    async def handle(self, call: Call[P, R], call_next: CallNext[P, R, T], /) -> Reply[T]:
        started = self._spans.start_attempt(call)
        if started is None:
            return await call_next(call)
        span, current = started
        call = self._spans.with_context(call, current)
        if self._spans.captures_content:
            self._spans.capture_input(call)
        token = context.attach(context.set_value(SUPPRESS_HTTP, value=True, context=current))
        try:
            reply = await call_next(call)
        except GeneratorExit:  # the coroutine is dropped, maybe in another context
            self._spans.end_attempt(span)
            raise
        except BaseException as failure:
            context.detach(token)
            self._spans.end_attempt(span, failure)
            raise
        context.detach(token)
        self._spans.end_attempt(span)
        return self._recorded(call, reply) if self._spans.captures_content else reply

    def _recorded(self, call: Call[P, R], reply: Reply[T]) -> Reply[T]:
        """Note the content of a reply, or of the events of a stream."""
        record = partial(self._spans.capture_output, call.request_id)
        if not call.operation.streaming:
            record(reply.value)
            return reply
        stream: Any = reply.value
        return msgspec.structs.replace(reply, value=RecordedStream(stream, record))
