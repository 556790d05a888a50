"""The attributes of spans and metrics, by the conventions that `Telemetry` names."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from opentelemetry import trace

from holdfast.errors import A2AError
from holdfast.protocol import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.trace import Span

    from holdfast.observe import Observation

__all__ = [
    "STREAMING_METHODS",
    "bounded",
    "carried",
    "end_span",
    "learned_attributes",
    "name_attributes",
    "server_attributes",
    "type_of",
]

STREAMING_METHODS = frozenset(
    name for name, operation in OPERATIONS.items() if operation.streaming
)
"""A2A methods whose response is a stream."""

_MAX_CHARS = 256
"""Largest length of an id or a name in an attribute, in characters."""

_NAME = re.compile(r"(?!grpc-)[0-9a-z_.-]+(?<!-bin)")
_VALUE = re.compile(r"[\x20-\x7e]*")
"""What HTTP and gRPC carry as a header of text."""


def end_span(span: Span, error: BaseException | None, attributes: Mapping[str, Any]) -> None:
    """End a span with attributes and the facts of an error.

    The text of the error is not recorded: it may quote an agent.

    Args:
        span: The span, which ends even if it refuses an attribute.
        error: The error that ended the work; None for none.
        attributes: The attributes that are known at the end.
    """
    try:
        span.set_attributes(attributes)
        if error is not None:
            span.set_attribute("error.type", type_of(error))
        if isinstance(error, Exception):  # a cancellation is not an error
            span.set_status(trace.Status(trace.StatusCode.ERROR, type_of(error)))
        if isinstance(error, A2AError):
            if error.executed is not None:
                span.set_attribute("holdfast.executed", error.executed)
            if error.http_status is not None:
                span.set_attribute("http.response.status_code", error.http_status)
    finally:
        span.end()


def name_attributes(observation: Observation) -> dict[str, Any]:
    """Return the attributes that name the subject of an observation."""
    names = {
        "gen_ai.agent.name": observation.agent,
        "a2a.message.id": observation.message_id,
        "a2a.task.id": observation.task_id,
        "gen_ai.conversation.id": observation.context_id,
        "holdfast.operation": observation.operation,
        "holdfast.operation.id": observation.operation_id,
        "holdfast.request.id": observation.request_id,
    }
    attributes: dict[str, Any]
    attributes = {name: bounded(value) for name, value in names.items() if value is not None}
    if observation.endpoint is not None:
        attributes.update(server_attributes(observation.endpoint))
    return attributes


def bounded(value: str) -> str:
    """Return the first 256 characters of an id or a name, whose length the peer chooses."""
    return value if len(value) <= _MAX_CHARS else value[:_MAX_CHARS]


def carried(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a propagator that any binding carries, names in lower case.

    Some propagators write names in upper case (``X-Amzn-Trace-Id``), which gRPC refuses, and a
    value that HTTP forbids would end the call.

    Args:
        headers: The headers.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    return {
        name: value
        for name, value in lowered.items()
        if _NAME.fullmatch(name) and _VALUE.fullmatch(value)
    }


def learned_attributes(started: Observation, finished: Observation) -> dict[str, Any]:
    """Return the attributes that were not known yet when something started.

    Args:
        started: The observation of the start, whose names the span has.
        finished: The observation of the end.
    """
    learned: dict[str, Any] = {}
    if finished.message_id != started.message_id:
        learned["a2a.message.id"] = bounded(finished.message_id or "")
    if finished.task_id != started.task_id:
        learned["a2a.task.id"] = bounded(finished.task_id or "")
    if finished.context_id != started.context_id:
        learned["gen_ai.conversation.id"] = bounded(finished.context_id or "")
    if finished.endpoint is not None and finished.endpoint != started.endpoint:
        learned.update(server_attributes(finished.endpoint))
    return learned


@lru_cache(maxsize=256)
def server_attributes(address: str) -> Mapping[str, Any]:
    """Return the host and the port of an address.

    Args:
        address: A valid address, without credentials or query.
    """
    parts = urlsplit(address)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    attributes: dict[str, Any] = (
        {} if parts.hostname is None else {"server.address": parts.hostname}
    )
    return attributes if port is None else attributes | {"server.port": port}


def type_of(error: BaseException) -> str:
    """Return the value of ``error.type``: the name of the class."""
    return type(error).__name__
