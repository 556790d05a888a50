"""From what an agent or a proxy answered to a typed error with facts.

What an error object says is known to `holdfast.errors`, codes and reasons included; this file
adds what the HTTP reply around it says, and owns the tables of statuses, HTTP's and gRPC's. The
rules of `executed`:

- An error object of A2A or JSON-RPC proves nothing: servers send any of them after the agent
  ran. Exceptions: -32700 (the request could not be read), -32009 (wrong version), and one that
  says itself that it only dresses up the HTTP status (``httpStatus`` in its metadata).
- An HTTP status of `REFUSALS` without such a body comes, by convention, from in front of the
  agent: not executed. 503 counts only with a Retry-After. A body that was too large, or could
  not be read, may be such a body. Where an agent speaks in the body, whatever it says, something
  on the way has only changed the status (`refusals_around`).
- A status of gRPC that stands for one of `REFUSALS` is one, where nothing else came: no typed
  details, no error in A2A's words, no part of a reply. UNAVAILABLE and RESOURCE_EXHAUSTED stand
  for none: gRPC itself says the first of a connection that broke under way, and the second of a
  reply that is too large for the one who sends or gets it, when the agent has run. What gRPC
  says of a reply that broke off is no answer, either, whatever status it makes of it.
- A hint (``retryable``, ``retryAfter``, Retry-After, RetryInfo, gRPC's pushback) sets `transient`
  and `retry_after`, never `executed`.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    A2ATimeoutError,
    AgentError,
    AuthenticationError,
    Facts,
    InvalidAgentResponseError,
    MethodNotFoundError,
    PermissionDeniedError,
    RateLimitedError,
)
from holdfast.errors.reading import ErrorObject, is_error_info, metadata_of, read, tell, typed
from holdfast.errors.tree import BY_CODE, CODE_BY_REASON, error_of
from holdfast.errors.values import excerpt, integer, seconds, text_of
from holdfast.errors.writing import HTTP_STATUS
from holdfast.model import codec
from holdfast.model.operations import (
    CANCEL_TASK,
    CREATE_PUSH_CONFIG,
    DELETE_PUSH_CONFIG,
    GET_EXTENDED_AGENT_CARD,
    GET_PUSH_CONFIG,
    LIST_PUSH_CONFIGS,
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    SUBSCRIBE_TO_TASK,
)
from holdfast.wire.fields import http_date
from holdfast.wire.http import HttpReply, harmless_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.errors import ConnectionFailure
    from holdfast.model.operations import Operation

__all__ = [
    "GRPC_STATUSES",
    "NO_CONNECTION",
    "REFUSALS",
    "GrpcStatus",
    "RpcEnd",
    "from_grpc_status",
    "from_http_status",
    "from_problem",
    "from_rest_status",
    "from_rpc_error",
    "is_no_agent",
    "is_unknown_there",
    "refusals_around",
]

REFUSALS = frozenset({401, 403, 404, 405, 411, 413, 414, 415, 421, 422, 425, 429, 503})
"""HTTP statuses that, without an A2A error in the body, mean that the agent was not reached."""

_SPOKEN = frozenset({"jsonrpc", "result"})
"""Members that nobody but an agent writes, whatever they hold; proxies have errors, too."""

_ANSWERS = ("task", "message", "status")
"""Members of an answer of A2A where they hold an object; what proxies write there is text."""

_SENDS = frozenset({SEND_MESSAGE, SEND_STREAMING_MESSAGE})

_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})

_UNKNOWN_STATUSES = frozenset({404, 405, 501})

_BUSY_STATUSES = frozenset({429, 503})
"""Transient whatever the body says; a 500 around an error object means only that object."""

_CODE_BY_GRPC_STATUS = {
    "INVALID_ARGUMENT": -32602,
    "UNIMPLEMENTED": -32601,
    "INTERNAL": -32603,
}

_BY_STATUS: dict[int, type[A2AHTTPError]] = {
    401: AuthenticationError,
    403: PermissionDeniedError,
    429: RateLimitedError,
}

_RPC_CODE = re.compile(r"-[0-9]{5}")
_RPC_CODES = range(-32768, -31999)
"""Codes that JSON-RPC reserves; no other kind of code looks like these."""


# ── The statuses of gRPC ─────────────────────────────────────────────────────────────────────


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
    "INVALID_ARGUMENT": GrpcStatus(3, code=_CODE_BY_GRPC_STATUS["INVALID_ARGUMENT"]),
    "DEADLINE_EXCEEDED": GrpcStatus(4, transient=True),
    "NOT_FOUND": GrpcStatus(5, code=-32001),
    "ALREADY_EXISTS": GrpcStatus(6),
    "PERMISSION_DENIED": GrpcStatus(7, http=403),
    "RESOURCE_EXHAUSTED": GrpcStatus(8, transient=True),
    "FAILED_PRECONDITION": GrpcStatus(9),
    "ABORTED": GrpcStatus(10),
    "OUT_OF_RANGE": GrpcStatus(11, code=-32602),
    "UNIMPLEMENTED": GrpcStatus(12, code=_CODE_BY_GRPC_STATUS["UNIMPLEMENTED"], http=404),
    "INTERNAL": GrpcStatus(13, code=_CODE_BY_GRPC_STATUS["INTERNAL"], transient=True),
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


class RpcEnd(NamedTuple):
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


def from_grpc_status(
    operation: Operation[Any, Any], end: RpcEnd, *, now: float, refusals: frozenset[int]
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
    error = _of_status(operation, end, told, refusals) if code is None else error_of(told)
    error.grpc_status, error.headers = end.status, harmless_headers(end.headers)
    if not end.sent:
        error.executed = False
    if error.retry_after is None:
        error.retry_after = _retry_after(end.headers, now)
    if told.retryable is None and not error.transient:
        error.transient = end.status in _BUSY_GRPC or error.retry_after is not None
    pushback = end.headers.get(_PUSHBACK)
    if pushback is not None:  # the agent's own word, which ends all others (gRFC A6)
        wait = seconds(pushback)
        error.retry_after = None if wait is None else wait / 1000
        error.transient = wait is not None
    return error


def _answer_in(end: RpcEnd) -> tuple[int | None, str]:
    """The code of the A2A error that an agent answered with, and its text; None for no such."""
    reason = next((text_of(d.get("reason")) for d in end.details if is_error_info(d)), "")
    code = CODE_BY_REASON.get(reason) or _own_code(end.details)
    named = _NAMED.fullmatch(end.text)
    if code is None and named is not None and named[1] in _CODE_BY_NAME:
        return _CODE_BY_NAME[named[1]], named[2]
    return code, end.text


def _of_status(
    operation: Operation[Any, Any], end: RpcEnd, told: ErrorObject, refusals: frozenset[int]
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


def _failure(end: RpcEnd) -> ConnectionFailure:
    """What broke; only of a connection that never came about the words tell more."""
    if end.sent:
        return "disconnected"
    said = end.text.lower()
    for words, failure in _FAILURE_BY_WORDS:
        if words in said:
            return failure
    return "unreachable"


# ── Error objects, and the statuses of HTTP ──────────────────────────────────────────────────


def from_rpc_error(
    error: Any, reply: HttpReply, *, now: float, refusals: frozenset[int] = frozenset()
) -> A2AError:
    """Reads a JSON-RPC error object (JSON-RPC 2.0, section 5.1; A2A 9.5).

    Args:
        error: The object, parsed.
        reply: The reply that carried it.
        now: Wall time in seconds since the epoch, to read a Retry-After date by.
        refusals: Statuses that mean "not executed" where the object says no more than them.
    """
    try:
        told = read(error)
    except ValueError as why:
        facts = _reply_facts(reply, with_excerpt=True)
        return InvalidAgentResponseError(f"the reply's error {why}", **facts)
    return _answered(told, reply, now=now, refusals=refusals)


def from_rest_status(
    error: Mapping[str, Any],
    reply: HttpReply,
    *,
    now: float,
    refusals: frozenset[int] = frozenset(),
) -> A2AError | None:
    """Reads a `google.rpc.Status` object (A2A 11.6), or a bare JSON-RPC error in a REST reply.

    The arguments are those of `from_rpc_error`.

    Returns:
        None if the object is neither, so that the HTTP status has to speak for itself.
    """
    code = integer(error.get("code"))
    details = typed(error.get("details"))
    reason = next((text_of(d.get("reason")) for d in details if is_error_info(d)), "")
    known = -32000 if reason == HTTP_STATUS else CODE_BY_REASON.get(reason)
    if known is None and code in _RPC_CODES:
        return from_rpc_error(error, reply, now=now, refusals=refusals)
    if known is None and reply.status not in _BY_STATUS:
        known = _CODE_BY_GRPC_STATUS.get(text_of(error.get("status"))) or _own_code(details)
    if known is not None:
        told = tell(known, text_of(error.get("message")), details, details)
        return _answered(told, reply, now=now, refusals=refusals)
    if "status" not in error and not details:
        return None
    return _with_body(from_http_status(reply, now=now), error, details)


def from_problem(problem: Mapping[str, Any], reply: HttpReply, *, now: float) -> A2AError | None:
    """Reads an RFC 9457 problem whose type names an A2A error, as ``…/task-not-found``.

    Returns:
        None if it names none.
    """
    name = text_of(problem.get("type")).rstrip("/").rpartition("/")[2]
    code = CODE_BY_REASON.get(name.replace("-", "_").upper().removesuffix("_ERROR"))
    if code is None:
        return None
    text = text_of(problem.get("detail") or problem.get("title"))
    error = _answered(tell(code, text, None, ()), reply, now=now)
    error.data = dict(problem)
    return error


def from_http_status(
    reply: HttpReply, *, now: float, refusals: frozenset[int] = REFUSALS
) -> A2AHTTPError:
    """Makes the error of an HTTP status whose body says nothing in the protocol's terms.

    Args:
        reply: The reply.
        now: Wall time in seconds since the epoch.
        refusals: Statuses that are taken to mean "not executed".
    """
    status = reply.status
    retry_after = _retry_after(reply.headers, now)
    refused = (
        status in refusals
        and (status != HTTPStatus.SERVICE_UNAVAILABLE or retry_after is not None)
        and not _lacks_its_body(reply)
    )
    try:
        phrase = f" {HTTPStatus(status).phrase}"
    except ValueError:
        phrase = ""
    facts = _reply_facts(reply, with_excerpt=True)
    facts["executed"] = False if refused else None
    facts["transient"] = status in _TRANSIENT_STATUSES
    facts["retry_after"] = retry_after
    return _BY_STATUS.get(status, A2AHTTPError)(f"HTTP {status}{phrase}", **facts)


def refusals_around(document: Any, refusals: frozenset[int]) -> frozenset[int]:
    """Which of some statuses mean "not executed" around this document.

    Args:
        document: The body of a reply, parsed.
        refusals: Statuses that do where nothing else is known.

    Returns:
        None of them if an agent must have written it, or an item of it, as in a batch.
    """
    said = cast("list[Any]", document) if isinstance(document, list) else [document]
    return frozenset() if any(map(_is_an_agents, said)) else refusals


def is_unknown_there(error: A2AError) -> bool:
    """Whether an error says that an operation is unknown where it was called.

    By its name (-32601), or by its path: an HTTP status about which the agent says nothing.
    """
    if isinstance(error, A2AHTTPError):
        return error.http_status in _UNKNOWN_STATUSES
    return isinstance(error, MethodNotFoundError)


def is_no_agent(operation: Operation[Any, Any], error: A2AError) -> bool:
    """Whether something else than an agent has answered: every agent takes messages."""
    if isinstance(error, A2AHTTPError | MethodNotFoundError):
        return operation in _SENDS and is_unknown_there(error)
    return isinstance(error, InvalidAgentResponseError) and error.code is None


def _is_an_agents(document: Any) -> bool:
    members = codec.as_object(document) or {}
    return not _SPOKEN.isdisjoint(members) or any(
        isinstance(members.get(name), dict) for name in _ANSWERS
    )


def _answered(
    told: ErrorObject, reply: HttpReply, *, now: float, refusals: frozenset[int] = frozenset()
) -> A2AError:
    """The error that an agent answered with, and what the reply around it says."""
    if told.metadata.get("httpStatus") == str(reply.status):
        return _dressed(told, from_http_status(reply, now=now, refusals=refusals))
    error = error_of(told, otherwise=_BY_STATUS.get(reply.status))
    error.http_status, error.headers = reply.status, harmless_headers(reply.headers)
    if error.retry_after is None:
        error.retry_after = _retry_after(reply.headers, now)
    if told.retryable is None and not error.transient:
        error.transient = reply.status in _BUSY_STATUSES or error.retry_after is not None
    return error


def _dressed(told: ErrorObject, error: A2AHTTPError) -> A2AHTTPError:
    """The error of an HTTP status that an agent only put into words."""
    error.message, error.excerpt = told.message, None
    error.code, error.details, error.data = told.code, told.details, told.data
    return _with_hints(error, told)


def _with_body(
    error: A2AHTTPError, body: Mapping[str, Any], details: tuple[dict[str, Any], ...]
) -> A2AHTTPError:
    """Adds what a `google.rpc.Status` says, which also ends the benefit of the convention."""
    if text := text_of(body.get("message")):
        error.message = f"{error.message}: {text}"
        error.excerpt = None
    error.details = details
    error.data = body
    error.executed = None
    return _with_hints(error, tell(0, "", details, details))


def _with_hints(error: A2AHTTPError, told: ErrorObject) -> A2AHTTPError:
    error.hops, error.loop = told.hops, told.loop
    if told.retryable is not None:
        error.transient = told.retryable
    if told.retry_after is not None:
        error.retry_after = told.retry_after
    return error


def _own_code(details: tuple[dict[str, Any], ...]) -> int | None:
    """The JSON-RPC code of an error that HTTP+JSON has no name for."""
    code = metadata_of(details).get("code", "")
    return int(code) if _RPC_CODE.fullmatch(code) and int(code) in _RPC_CODES else None


def _reply_facts(reply: HttpReply, *, with_excerpt: bool = False) -> Facts:
    facts = Facts(http_status=reply.status, headers=harmless_headers(reply.headers))
    if with_excerpt:
        facts["excerpt"] = excerpt(reply.body)
    return facts


def _lacks_its_body(reply: HttpReply) -> bool:
    """Whether there was a body that could not be read, or was too large: it may be an agent's."""
    headers = reply.headers
    is_told = any(name in headers for name in ("content-encoding", "transfer-encoding"))
    return not reply.body and (is_told or headers.get("content-length", "0").strip("0") != "")


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Retry-After in seconds or as a date (RFC 9110, 10.2.3), or retry-after-ms."""
    milliseconds = seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    delay = seconds(value)
    if delay is not None:
        return delay
    at = http_date(value)
    if at is None:
        return None
    # The server's own clock, where it shows it, makes the difference right in spite of skew.
    return max(0.0, at - (http_date(headers.get("date", "")) or now))
