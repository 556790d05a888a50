"""Typed errors from the replies of agents and proxies.

`holdfast.errors` interprets the error object with its codes and reasons; this module adds the
facts of the HTTP reply, and owns the table of HTTP statuses. Statuses of gRPC are in
`holdfast._wire.grpc_status`. The rules of `executed`:

- An error object of A2A or JSON-RPC proves nothing: servers send any of them after the agent ran.
  Exceptions: -32700 (the request could not be parsed), -32009 (wrong version), and an object that
  states that it only describes the HTTP status (``httpStatus`` in its metadata).
- An HTTP status of `REFUSALS` without such a body comes, by convention, from a proxy in front of
  the agent: not executed. 503 counts only with a Retry-After. A body that was too large or could
  not be read may be such a body. If the agent wrote the body, whatever it contains, a proxy only
  changed the status (`refusals_around`).
- A hint (``retryable``, ``retryAfter``, Retry-After, RetryInfo) sets `transient` and
  `retry_after`, never `executed`.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from holdfast._model import codec
from holdfast._model.error_reading import (
    ErrorObject,
    is_error_info,
    make_error_object,
    metadata_of,
    objects_in,
    read_error_object,
)
from holdfast._model.error_values import excerpt, integer, seconds, text_of
from holdfast._model.error_writing import HTTP_STATUS
from holdfast._model.operations import SEND_OPERATIONS
from holdfast._wire.caching import http_date
from holdfast._wire.http import HttpReply, harmless_headers
from holdfast.errors import (
    CODE_BY_REASON,
    A2AError,
    A2AHTTPError,
    AuthenticationError,
    Facts,
    InternalError,
    InvalidAgentResponseError,
    MethodNotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    error_from_object,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._model.operations import Operation

__all__ = [
    "CODE_BY_GRPC_STATUS",
    "REFUSALS",
    "from_http_status",
    "from_problem",
    "from_rest_status",
    "from_rpc_error",
    "is_agents_own",
    "is_not_an_agent",
    "is_unknown_operation",
    "json_rpc_code_in",
    "malformed_reply",
    "refusals_around",
    "retry_after_in",
]

REFUSALS = frozenset({401, 403, 404, 405, 411, 413, 414, 415, 421, 422, 425, 429, 503})
"""HTTP statuses which, without an A2A error in the body, mean that the agent was not reached."""

_AGENT_MEMBERS = frozenset({"jsonrpc", "result"})
"""Members that only an agent writes, whatever their value; proxies write ``error`` too."""

_RESULT_MEMBERS = ("task", "message", "status")
"""Members of a result of A2A if they hold an object; proxies write text there."""

_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})

_GATEWAY_STATUSES = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses of a gateway that did not reach the agent, and of rate limiting."""

_UNKNOWN_STATUSES = frozenset({404, 405, 501})

_BUSY_STATUSES = frozenset({429, 503})
"""Transient whatever the body says; other statuses around an error object mean only that
object."""

CODE_BY_GRPC_STATUS = {
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
"""Codes reserved by JSON-RPC; no other kind of code is in this range."""


def from_rpc_error(
    error: Any, reply: HttpReply, *, now: float, refusals: frozenset[int] = frozenset()
) -> A2AError:
    """Return the error of a JSON-RPC error object (JSON-RPC 2.0, section 5.1; A2A 9.5).

    Args:
        error: The parsed object.
        reply: The reply that carried it.
        now: Wall time in seconds since the epoch, to evaluate a Retry-After date.
        refusals: Statuses that mean "not executed" if the object only describes the status.
    """
    try:
        error_object = read_error_object(error)
    except ValueError as fault:
        return malformed_reply(f"the reply's error {fault}", reply)
    return _agent_error(error_object, reply, now=now, refusals=refusals)


def from_rest_status(
    error: Mapping[str, Any],
    reply: HttpReply,
    *,
    now: float,
    refusals: frozenset[int] = frozenset(),
) -> A2AError | None:
    """Return the error of a `google.rpc.Status` (A2A 11.6), or of a JSON-RPC error over REST.

    The arguments are those of `from_rpc_error`.

    Returns:
        None if the object is neither, so that only the HTTP status counts.
    """
    code = integer(error.get("code"))
    details = objects_in(error.get("details"))
    reason = next((text_of(d.get("reason")) for d in details if is_error_info(d)), "")
    rpc_code = -32000 if reason == HTTP_STATUS else CODE_BY_REASON.get(reason)
    if rpc_code is None and code in _RPC_CODES:
        return from_rpc_error(error, reply, now=now, refusals=refusals)
    if rpc_code is None and reply.status not in _BY_STATUS:
        grpc_status = text_of(error.get("status"))
        rpc_code = CODE_BY_GRPC_STATUS.get(grpc_status) or json_rpc_code_in(details)
    if rpc_code is not None:
        error_object = make_error_object(rpc_code, text_of(error.get("message")), details, details)
        return _agent_error(error_object, reply, now=now, refusals=refusals)
    if "status" not in error and not details:
        return None
    return _with_body(from_http_status(reply, now=now), error, details)


def from_problem(problem: Mapping[str, Any], reply: HttpReply, *, now: float) -> A2AError | None:
    """Return the error of an RFC 9457 problem whose type names an A2A error.

    Returns:
        None if the type, such as ``…/task-not-found``, names no A2A error.
    """
    name = text_of(problem.get("type")).rstrip("/").rpartition("/")[2]
    code = CODE_BY_REASON.get(name.replace("-", "_").upper().removesuffix("_ERROR"))
    if code is None:
        return None
    text = text_of(problem.get("detail") or problem.get("title"))
    error = _agent_error(make_error_object(code, text, None, ()), reply, now=now)
    error.data = dict(problem)
    return error


def from_http_status(
    reply: HttpReply, *, now: float, refusals: frozenset[int] = REFUSALS
) -> A2AHTTPError:
    """Return the error of an HTTP status whose body is not an error of the protocol.

    Args:
        reply: The reply.
        now: Wall time in seconds since the epoch.
        refusals: Statuses that mean "not executed".
    """
    status = reply.status
    retry_after = retry_after_in(reply.headers, now)
    is_refused = (
        status in refusals
        and (status != HTTPStatus.SERVICE_UNAVAILABLE or retry_after is not None)
        and not _lacks_its_body(reply)
    )
    try:
        phrase = f" {HTTPStatus(status).phrase}"
    except ValueError:
        phrase = ""
    facts = _reply_facts(reply, with_excerpt=True)
    facts["executed"] = False if is_refused else None
    facts["transient"] = status in _TRANSIENT_STATUSES
    facts["retry_after"] = retry_after
    return _BY_STATUS.get(status, A2AHTTPError)(f"HTTP {status}{phrase}", **facts)


def refusals_around(document: Any, refusals: frozenset[int]) -> frozenset[int]:
    """Return the statuses that mean "not executed" around this document.

    Args:
        document: The parsed body of a reply.
        refusals: Statuses that mean it around other bodies.

    Returns:
        An empty set if an agent wrote the document, or an item of it, as in a batch.
    """
    items = cast("list[Any]", document) if isinstance(document, list) else [document]
    return frozenset() if any(map(_is_from_agent, items)) else refusals


def is_unknown_operation(error: A2AError) -> bool:
    """Return whether an error means that the called endpoint lacks the operation.

    The name is unknown (-32601), or the path: an HTTP status without an agent's error.
    """
    if isinstance(error, A2AHTTPError):
        return error.http_status in _UNKNOWN_STATUSES
    return isinstance(error, MethodNotFoundError)


def is_agents_own(error: A2AError) -> bool:
    """Return whether the agent itself failed, as far as the error shows, and not a gateway."""
    if isinstance(error, A2AHTTPError):
        return error.http_status not in _GATEWAY_STATUSES and not is_unknown_operation(error)
    return isinstance(error, InternalError | InvalidAgentResponseError)


def is_not_an_agent(operation: Operation[Any, Any], error: A2AError) -> bool:
    """Return whether the endpoint is not an A2A agent: it does not accept messages."""
    if isinstance(error, A2AHTTPError | MethodNotFoundError):
        return operation in SEND_OPERATIONS and is_unknown_operation(error)
    return isinstance(error, InvalidAgentResponseError) and error.code is None


def _is_from_agent(document: Any) -> bool:
    members = codec.as_object(document) or {}
    return not _AGENT_MEMBERS.isdisjoint(members) or any(
        isinstance(members.get(name), dict) for name in _RESULT_MEMBERS
    )


def _agent_error(
    error_object: ErrorObject,
    reply: HttpReply,
    *,
    now: float,
    refusals: frozenset[int] = frozenset(),
) -> A2AError:
    """Return the error of an agent's error object, with the facts of the reply around it."""
    if error_object.metadata.get("httpStatus") == str(reply.status):
        error_of_status = from_http_status(reply, now=now, refusals=refusals)
        return _with_description(error_of_status, error_object)
    error = error_from_object(error_object, otherwise=_BY_STATUS.get(reply.status))
    error.http_status, error.headers = reply.status, harmless_headers(reply.headers)
    if error.retry_after is None:
        error.retry_after = retry_after_in(reply.headers, now)
    if error_object.retryable is None and not error.transient:
        error.transient = reply.status in _BUSY_STATUSES or error.retry_after is not None
    return error


def _with_description(error: A2AHTTPError, error_object: ErrorObject) -> A2AHTTPError:
    """Add an agent's description of the HTTP status."""
    error.message, error.excerpt = error_object.message, None
    error.code, error.details = error_object.code, error_object.details
    error.data = error_object.data
    return _with_hints(error, error_object)


def _with_body(
    error: A2AHTTPError, body: Mapping[str, Any], details: tuple[dict[str, Any], ...]
) -> A2AHTTPError:
    """Add the contents of a `google.rpc.Status`, which only the agent can have written."""
    if text := text_of(body.get("message")):
        error.message = f"{error.message}: {text}"
        error.excerpt = None
    error.details = details
    error.data = body
    error.executed = None
    return _with_hints(error, make_error_object(0, "", details, details))


def _with_hints(error: A2AHTTPError, error_object: ErrorObject) -> A2AHTTPError:
    error.hops, error.loop = error_object.hops, error_object.loop
    if error_object.retryable is not None:
        error.transient = error_object.retryable
    if error_object.retry_after is not None:
        error.retry_after = error_object.retry_after
    return error


def malformed_reply(message: str, reply: HttpReply) -> InvalidAgentResponseError:
    """Return the error of a reply that violates the protocol, with an excerpt of its body."""
    return InvalidAgentResponseError(message, **_reply_facts(reply, with_excerpt=True))


def json_rpc_code_in(details: tuple[dict[str, Any], ...]) -> int | None:
    """Return the JSON-RPC code of an error that HTTP+JSON has no name for."""
    code = metadata_of(details).get("code", "")
    return int(code) if _RPC_CODE.fullmatch(code) and int(code) in _RPC_CODES else None


def _reply_facts(reply: HttpReply, *, with_excerpt: bool = False) -> Facts:
    facts = Facts(http_status=reply.status, headers=harmless_headers(reply.headers))
    if with_excerpt:
        facts["excerpt"] = excerpt(reply.body)
    return facts


def _lacks_its_body(reply: HttpReply) -> bool:
    """Return whether a body was too large or unreadable: it may have been an agent's."""
    headers = reply.headers
    is_streamed = any(name in headers for name in ("content-encoding", "transfer-encoding"))
    return not reply.body and (is_streamed or headers.get("content-length", "0").strip("0") != "")


def retry_after_in(headers: Mapping[str, str], now: float) -> float | None:
    """Return the Retry-After delay in seconds (RFC 9110, 10.2.3), also from retry-after-ms."""
    milliseconds = seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    delay = seconds(value)
    if delay is not None:
        return delay
    date = http_date(value)
    if date is None:
        return None
    # Compare with the server's own clock if the reply shows it: the clocks may differ.
    return max(0.0, date - (http_date(headers.get("date", "")) or now))
