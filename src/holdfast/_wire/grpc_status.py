"""Errors of gRPC statuses: what an agent reports, or gRPC itself.

Rules of `executed`, besides those of `holdfast._wire.status`:

- A gRPC status that corresponds to one of `REFUSALS` is a refusal if it comes alone: without typed
  details, an A2A error or a part of a reply. UNAVAILABLE and RESOURCE_EXHAUSTED never are: gRPC
  itself reports the first for a connection that broke during the call, and the second for a reply
  that is too large to send or receive, after the agent has run. A status that gRPC makes up for a
  truncated reply is not an answer either.
- gRPC's pushback sets `transient` and `retry_after`, never `executed`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast._model.error_reading import ErrorObject, is_error_info, make_error_object
from holdfast._model.error_values import seconds, text_of
from holdfast._model.operations import (
    CANCEL_TASK,
    CREATE_PUSH_CONFIG,
    DELETE_PUSH_CONFIG,
    GET_EXTENDED_AGENT_CARD,
    GET_PUSH_CONFIG,
    LIST_PUSH_CONFIGS,
    SUBSCRIBE_TO_TASK,
)
from holdfast._wire import v03
from holdfast._wire.bindings import OLDER_VERSION
from holdfast._wire.grpc_metadata import Metadata, all_headers
from holdfast._wire.http import harmless_headers
from holdfast._wire.protobuf.details import read_details
from holdfast._wire.status import CODE_BY_GRPC_STATUS, json_rpc_code_in, retry_after_in
from holdfast.errors import (
    BY_CODE,
    CODE_BY_REASON,
    A2AConnectionError,
    A2AError,
    A2ATimeoutError,
    AgentError,
    AuthenticationError,
    Facts,
    InvalidAgentResponseError,
    PermissionDeniedError,
    RateLimitedError,
    error_from_object,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._model.operations import Operation
    from holdfast.errors import ConnectionFailure

__all__ = ["GRPC_STATUSES", "NO_CONNECTION", "GrpcStatus", "RpcStatus", "error_from_status"]


class GrpcStatus(NamedTuple):
    """Meaning of a gRPC status that comes without an A2A error.

    Attributes:
        number: Number of the status (`google.rpc.Code`).
        code: JSON-RPC code of the corresponding error (A2A 5.4); None if there is none.
        http: HTTP status of the corresponding refusal; None if there is none.
        transient: A retry may succeed.
    """

    number: int
    code: int | None = None
    http: int | None = None
    transient: bool = False


GRPC_STATUSES: Mapping[str, GrpcStatus] = {
    "CANCELLED": GrpcStatus(1, transient=True),
    "UNKNOWN": GrpcStatus(2, code=-32603, transient=True),
    "INVALID_ARGUMENT": GrpcStatus(3, code=CODE_BY_GRPC_STATUS["INVALID_ARGUMENT"]),
    "DEADLINE_EXCEEDED": GrpcStatus(4, transient=True),
    "NOT_FOUND": GrpcStatus(5, code=-32001),
    "ALREADY_EXISTS": GrpcStatus(6),
    "PERMISSION_DENIED": GrpcStatus(7, http=403),
    "RESOURCE_EXHAUSTED": GrpcStatus(8, transient=True),
    "FAILED_PRECONDITION": GrpcStatus(9),
    "ABORTED": GrpcStatus(10),
    "OUT_OF_RANGE": GrpcStatus(11, code=-32602),
    "UNIMPLEMENTED": GrpcStatus(12, code=CODE_BY_GRPC_STATUS["UNIMPLEMENTED"], http=404),
    "INTERNAL": GrpcStatus(13, code=CODE_BY_GRPC_STATUS["INTERNAL"], transient=True),
    "UNAVAILABLE": GrpcStatus(14, transient=True),
    "DATA_LOSS": GrpcStatus(15),
    "UNAUTHENTICATED": GrpcStatus(16, http=401),
}
"""Meanings by name of the status."""

_BY_GRPC_STATUS: Mapping[str, type[A2AError]] = {
    "PERMISSION_DENIED": PermissionDeniedError,
    "RESOURCE_EXHAUSTED": RateLimitedError,
    "UNAUTHENTICATED": AuthenticationError,
}

_PRECONDITION_CODES: Mapping[str, int] = {
    CANCEL_TASK.name: -32002,
    SUBSCRIBE_TO_TASK.name: -32004,
    CREATE_PUSH_CONFIG.name: -32003,
    GET_PUSH_CONFIG.name: -32003,
    LIST_PUSH_CONFIGS.name: -32003,
    DELETE_PUSH_CONFIG.name: -32003,
    GET_EXTENDED_AGENT_CARD.name: -32007,
}
"""Code that FAILED_PRECONDITION means by operation, where it can mean only one."""

_CONNECTION_STATUSES = frozenset({"CANCELLED", "UNAVAILABLE"})
"""Statuses of a broken connection, and of a call that a proxy dropped."""

_CUT_REPLY = re.compile("Stream removed|Received RST_STREAM|No status received")
"""Begins the text of gRPC's core for a truncated reply, under INTERNAL, UNKNOWN and other
statuses: the agent has not answered."""

_NOT_GRPC = "Received http2 header with status"
"""Begins the text of gRPC's core for a reply that is not gRPC: it comes from a proxy."""

_UNREADABLE_REPLY = re.compile("Compression bit set|Decompression failed|Failed to decompress")
"""Begins the text of gRPC's core for a reply that it cannot decompress."""

_BUSY_STATUSES = frozenset({"RESOURCE_EXHAUSTED", "UNAVAILABLE"})
"""Transient whatever the details say."""

_PUSHBACK = "grpc-retry-pushback-ms"

_CODE_BY_NAME: Mapping[str, int] = {
    **{kind.__name__: code for code, kind in BY_CODE.items()},
    "JSONParseError": -32700,
}
_NAMED_ERROR = re.compile(r"(\w+Error): ?(.*)", re.DOTALL)
"""Text of an error by the official agents of 0.3."""

NO_CONNECTION: tuple[str, ...] = (
    "failed to connect to all addresses",
    "errors resolving ",
    "DNS resolution failed",
)
"""Begins the text of gRPC's core for a connection that was not established."""

_FAILURE_BY_TEXT: tuple[tuple[str, ConnectionFailure], ...] = (
    ("dns resolution", "dns"),
    ("errors resolving", "dns"),
    ("name resolution", "dns"),
    ("http proxy returned", "proxy"),
    ("handshake", "tls"),
    ("ssl_", "tls"),
    ("certificate", "tls"),
    ("connection refused", "refused"),
)
"""Failure of a connection that was not established, by words in the text of gRPC's core."""


# ── Input from gRPC ──────────────────────────────────────────────────────────────────────────


class RpcStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Unsuccessful end of a call, as gRPC reports it.

    Attributes:
        code: Name of the status, such as ``"NOT_FOUND"``, or its number.
        details: Text of the status.
        initial: Metadata received before the reply.
        trailing: Metadata received after the reply.
    """

    code: str | int
    details: str | None = None
    initial: Metadata | None = None
    trailing: Metadata | None = None


_DETAILS_KEY = "grpc-status-details-bin"

_NAME_OF_NUMBER: Mapping[int, str] = {row.number: name for name, row in GRPC_STATUSES.items()}


def error_from_status(
    operation: Operation[Any, Any],
    status: RpcStatus,
    *,
    version: str,
    now: float,
    refusals: frozenset[int],
    sent: bool = True,
    began: bool = False,
) -> A2AError:
    """Return the error of a failed gRPC call, with ``grpc_status``; the caller adds ``agent``.

    Args:
        operation: The operation that was called.
        status: The status that gRPC reports.
        version: Protocol version of the call.
        now: Wall time in seconds since the epoch, to evaluate a Retry-After date.
        refusals: HTTP statuses that mean "not executed" (`Resilience.refusals`); the gRPC statuses
            that correspond to them do too.
        sent: False if no byte of the request can have been sent, because no connection was
            established; then ``executed`` is False whatever the status.
        began: An event or the initial metadata had been received.
    """
    text = status.details or ""
    code = status.code
    headers = all_headers(status.initial, status.trailing)
    encoded = next((v for name, v in status.trailing or () if name.lower() == _DETAILS_KEY), None)
    rich = read_details(encoded) if isinstance(encoded, bytes) else None
    end = _End(
        status=code if isinstance(code, str) else _NAME_OF_NUMBER.get(code, str(code)),
        text=text if rich is None or not rich.message else rich.message,
        details=() if rich is None else rich.details,
        headers=headers,
        sent=sent,
        began=began,
    )
    error = _from_status(operation, end, now=now, refusals=refusals)
    return v03.as_error_of_1_0(error, operation) if version == OLDER_VERSION else error


# ── Interpretation ───────────────────────────────────────────────────────────────────────────


class _End(NamedTuple):
    """Unsuccessful end of a call over gRPC.

    Attributes:
        status: Name of the status; the number if it has no name.
        text: Text of the status.
        details: Typed details, as ProtoJSON.
        headers: The metadata.
        sent: False if no byte of the request can have been sent.
        began: A part of the reply had been received.
    """

    status: str
    text: str
    details: tuple[dict[str, Any], ...]
    headers: Mapping[str, str]
    sent: bool
    began: bool


def _from_status(
    operation: Operation[Any, Any], end: _End, *, now: float, refusals: frozenset[int]
) -> A2AError:
    """Return the error of a call over gRPC (A2A 5.4, 10.6).

    See `error_from_status` for the arguments.
    """
    code, text = _agent_error_in(end)
    answer = make_error_object(code or 0, text_of(text), end.details or None, end.details)
    error = (
        _of_status(operation, end, answer, refusals) if code is None else error_from_object(answer)
    )
    error.grpc_status, error.headers = end.status, harmless_headers(end.headers)
    if not end.sent:
        error.executed = False
    if error.retry_after is None:
        error.retry_after = retry_after_in(end.headers, now)
    if answer.retryable is None and not error.transient:
        error.transient = end.status in _BUSY_STATUSES or error.retry_after is not None
    pushback_ms = end.headers.get(_PUSHBACK)
    if pushback_ms is not None:  # overrides every other hint (gRFC A6)
        wait = seconds(pushback_ms)
        error.retry_after = None if wait is None else wait / 1000
        error.transient = wait is not None
    return error


def _agent_error_in(end: _End) -> tuple[int | None, str]:
    """Return the code and text of the agent's A2A error; None as the code if there is none."""
    reason = next((text_of(d.get("reason")) for d in end.details if is_error_info(d)), "")
    code = CODE_BY_REASON.get(reason) or json_rpc_code_in(end.details)
    named = _NAMED_ERROR.fullmatch(end.text)
    if code is None and named is not None and named[1] in _CODE_BY_NAME:
        return _CODE_BY_NAME[named[1]], named[2]
    return code, end.text


def _of_status(
    operation: Operation[Any, Any], end: _End, answer: ErrorObject, refusals: frozenset[int]
) -> A2AError:
    """Return the error of a status without an A2A error."""
    meaning = GRPC_STATUSES.get(end.status, GrpcStatus(-1))
    code = meaning.code
    if end.status == "FAILED_PRECONDITION":
        code = _PRECONDITION_CODES.get(operation.name)
    status_text = "" if end.details else end.text  # details come from the agent itself
    is_cut = _CUT_REPLY.match(status_text) is not None
    is_unreadable = _UNREADABLE_REPLY.match(status_text) is not None
    is_broken = is_cut or end.status in _CONNECTION_STATUSES
    is_broken = is_broken or (meaning.http is None and status_text.startswith(_NOT_GRPC))
    is_refused = meaning.http in refusals and not (end.details or end.began or is_cut)
    facts = Facts(
        code=None if is_broken or is_unreadable else code,
        details=answer.details,
        data=answer.data,
        executed=False if is_refused else None,
        transient=meaning.transient or is_cut if answer.retryable is None else answer.retryable,
        retry_after=answer.retry_after,
        hops=answer.hops,
        loop=answer.loop,
    )
    text = ": ".join(filter(None, (f"gRPC {end.status}", text_of(end.text))))
    if end.status == "DEADLINE_EXCEEDED":
        return A2ATimeoutError(text, phase="idle" if end.began else "first_byte", **facts)
    if is_broken:
        return A2AConnectionError(text, failure=_failure(end), **facts)
    if is_unreadable:
        return InvalidAgentResponseError(text, **facts)
    if code is not None:
        return BY_CODE[code](text, **facts)
    return _BY_GRPC_STATUS.get(end.status, AgentError)(text, **facts)


def _failure(end: _End) -> ConnectionFailure:
    """Classify the failure; the text is specific only if no connection was established."""
    if end.sent:
        return "disconnected"
    text = end.text.lower()
    for words, failure in _FAILURE_BY_TEXT:
        if words in text:
            return failure
    return "unreachable"
