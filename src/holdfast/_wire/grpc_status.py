"""From a status of gRPC to a typed error with facts: what an agent says, or gRPC itself.

Rules of `executed`, besides those of `holdfast._wire.status`:

- A status of gRPC that stands for one of `REFUSALS` is one, where nothing else came: no typed
  details, no error in A2A's words, no part of a reply. UNAVAILABLE and RESOURCE_EXHAUSTED stand
  for none: gRPC itself says the first of a connection that broke under way, and the second of a
  reply that is too large for the one who sends or gets it, when the agent has run. What gRPC
  says of a reply that broke off is no answer, either, whatever status it makes of it.
- gRPC's pushback sets `transient` and `retry_after`, and never `executed`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast._model.error_reading import ErrorObject, is_error_info, tell
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
)
from holdfast.errors import error_of as error_told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._model.operations import Operation
    from holdfast.errors import ConnectionFailure

__all__ = ["GRPC_STATUSES", "NO_CONNECTION", "GrpcStatus", "RpcStatus", "error_of"]


class GrpcStatus(NamedTuple):
    """What a status of gRPC means where no error of A2A says more.

    Attributes:
        number: Its number (`google.rpc.Code`).
        code: The JSON-RPC code of the error that it stands for (A2A 5.4); None for none.
        http: The HTTP status that it stands for as a refusal; None for none.
        transient: Whether it may pass.
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
"""By name."""

_BY_GRPC_STATUS: Mapping[str, type[A2AError]] = {
    "PERMISSION_DENIED": PermissionDeniedError,
    "RESOURCE_EXHAUSTED": RateLimitedError,
    "UNAUTHENTICATED": AuthenticationError,
}

_CODE_OF_PRECONDITION: Mapping[str, int] = {
    CANCEL_TASK.name: -32002,
    SUBSCRIBE_TO_TASK.name: -32004,
    CREATE_PUSH_CONFIG.name: -32003,
    GET_PUSH_CONFIG.name: -32003,
    LIST_PUSH_CONFIGS.name: -32003,
    DELETE_PUSH_CONFIG.name: -32003,
    GET_EXTENDED_AGENT_CARD.name: -32007,
}
"""What FAILED_PRECONDITION means, by operation, where it can mean but one thing."""

_BROKEN = frozenset({"CANCELLED", "UNAVAILABLE"})
"""What gRPC says of a connection; of a call that somebody on the way has dropped, too."""

_CUT = re.compile("Stream removed|Received RST_STREAM|No status received")
"""How gRPC's core begins what it says of a reply that broke off, whatever status it makes of that
(INTERNAL, UNKNOWN and others): nobody has answered."""

_NO_GRPC = "Received http2 header with status"
"""How it begins what it says of a reply that is none of gRPC: of somebody on the way."""

_UNREADABLE = re.compile("Compression bit set|Decompression failed|Failed to decompress")
"""How it begins what it says of a reply that it cannot read."""

_BUSY_GRPC = frozenset({"RESOURCE_EXHAUSTED", "UNAVAILABLE"})
"""Transient whatever else is said."""

_PUSHBACK = "grpc-retry-pushback-ms"

_CODE_BY_NAME: Mapping[str, int] = {
    **{kind.__name__: code for code, kind in BY_CODE.items()},
    "JSONParseError": -32700,
}
_NAMED = re.compile(r"(\w+Error): ?(.*)", re.DOTALL)
"""How official agents of 0.3 begin the text of an error."""

NO_CONNECTION: tuple[str, ...] = (
    "failed to connect to all addresses",
    "errors resolving ",
    "DNS resolution failed",
)
"""How gRPC's core begins what it says of a connection that did not come about."""

_FAILURE_BY_WORDS: tuple[tuple[str, ConnectionFailure], ...] = (
    ("dns resolution", "dns"),
    ("errors resolving", "dns"),
    ("name resolution", "dns"),
    ("http proxy returned", "proxy"),
    ("handshake", "tls"),
    ("ssl_", "tls"),
    ("certificate", "tls"),
    ("connection refused", "refused"),
)
"""How a connection failed that never came about, by the words of gRPC's core."""


# ── From what gRPC tells ─────────────────────────────────────────────────────────────────────


class RpcStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended that was no success, as gRPC tells it.

    Attributes:
        code: Name of the status, as ``"NOT_FOUND"``, or its number.
        details: The text that came along.
        initial: Metadata before the reply.
        trailing: Metadata behind it.
    """

    code: str | int
    details: str | None = None
    initial: Metadata | None = None
    trailing: Metadata | None = None


_RICH = "grpc-status-details-bin"

_NAMES: Mapping[int, str] = {meant.number: name for name, meant in GRPC_STATUSES.items()}


def error_of(
    operation: Operation[Any, Any],
    ended: RpcStatus,
    *,
    version: str,
    now: float,
    refusals: frozenset[int],
    sent: bool = True,
    began: bool = False,
) -> A2AError:
    """Makes the error of a call that gRPC says has failed.

    Args:
        operation: What was called.
        ended: What gRPC says.
        version: The version of the protocol that was spoken.
        now: Wall time in seconds since the epoch, to read a Retry-After date by.
        refusals: HTTP statuses that are taken to mean "not executed" (`Resilience.refusals`);
            those gRPC statuses mean it that stand for one of them.
        sent: False where it is certain that no byte of the request left, because there never was
            a connection: then it was not executed, whatever is said.
        began: Whether an event or the initial metadata had come before.

    Returns:
        With ``grpc_status`` and the facts; raised by whoever asked, who adds ``agent``.
    """
    text = ended.details or ""
    code = ended.code
    headers = all_headers(ended.initial, ended.trailing)
    rich = next((v for name, v in ended.trailing or () if name.lower() == _RICH), None)
    told = read_details(rich) if isinstance(rich, bytes) else None
    end = _End(
        status=code if isinstance(code, str) else _NAMES.get(code, str(code)),
        text=text if told is None or not told.message else told.message,
        details=() if told is None else told.details,
        headers=headers,
        sent=sent,
        began=began,
    )
    error = _from_status(operation, end, now=now, refusals=refusals)
    return v03.as_error_of_1_0(error, operation) if version == OLDER_VERSION else error


# ── To what it means ─────────────────────────────────────────────────────────────────────────


class _End(NamedTuple):
    """How a call over gRPC ended that was no success.

    Attributes:
        status: The name of its status; of one that has none, the number.
        text: What is said about it.
        details: Typed details, as ProtoJSON.
        headers: The metadata.
        sent: False if no byte of the request can have left.
        began: Whether a part of the reply had come.
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
    """Makes the error of a call over gRPC (A2A 5.4, 10.6).

    Args:
        operation: What was called.
        end: How it ended.
        now: Wall time in seconds since the epoch, to read a Retry-After date by.
        refusals: HTTP statuses that mean "not executed"; here those that stand for one of them.
    """
    code, text = _answer_in(end)
    told = tell(code or 0, text_of(text), end.details or None, end.details)
    error = _of_status(operation, end, told, refusals) if code is None else error_told(told)
    error.grpc_status, error.headers = end.status, harmless_headers(end.headers)
    if not end.sent:
        error.executed = False
    if error.retry_after is None:
        error.retry_after = retry_after_in(end.headers, now)
    if told.retryable is None and not error.transient:
        error.transient = end.status in _BUSY_GRPC or error.retry_after is not None
    pushback = end.headers.get(_PUSHBACK)
    if pushback is not None:  # the agent's own word, which ends all others (gRFC A6)
        wait = seconds(pushback)
        error.retry_after = None if wait is None else wait / 1000
        error.transient = wait is not None
    return error


def _answer_in(end: _End) -> tuple[int | None, str]:
    """The code of the A2A error that an agent answered with, and its text; None for no such."""
    reason = next((text_of(d.get("reason")) for d in end.details if is_error_info(d)), "")
    code = CODE_BY_REASON.get(reason) or json_rpc_code_in(end.details)
    named = _NAMED.fullmatch(end.text)
    if code is None and named is not None and named[1] in _CODE_BY_NAME:
        return _CODE_BY_NAME[named[1]], named[2]
    return code, end.text


def _of_status(
    operation: Operation[Any, Any], end: _End, told: ErrorObject, refusals: frozenset[int]
) -> A2AError:
    """The error of a status alone."""
    meant = GRPC_STATUSES.get(end.status, GrpcStatus(-1))
    code = meant.code
    if end.status == "FAILED_PRECONDITION":
        code = _CODE_OF_PRECONDITION.get(operation.name)
    said = "" if end.details else end.text  # who adds details has answered
    is_cut = _CUT.match(said) is not None
    is_unreadable = _UNREADABLE.match(said) is not None
    is_broken = is_cut or end.status in _BROKEN
    is_broken = is_broken or (meant.http is None and said.startswith(_NO_GRPC))
    refused = meant.http in refusals and not (end.details or end.began or is_cut)
    facts = Facts(
        code=None if is_broken or is_unreadable else code,
        details=told.details,
        data=told.data,
        executed=False if refused else None,
        transient=meant.transient or is_cut if told.retryable is None else told.retryable,
        retry_after=told.retry_after,
        hops=told.hops,
        loop=told.loop,
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
    """What broke; only of a connection that never came about the words tell more."""
    if end.sent:
        return "disconnected"
    said = end.text.lower()
    for words, failure in _FAILURE_BY_WORDS:
        if words in said:
            return failure
    return "unreachable"
