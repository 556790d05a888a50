"""From what an agent or a proxy answered to a typed error with facts.

What an error object says is known to `holdfast.errors`, codes and reasons included; this file
adds what the HTTP reply around it says, and owns the table of statuses; those of gRPC are in
`holdfast._wire.grpc_status`. The rules of `executed`:

- An error object of A2A or JSON-RPC proves nothing: servers send any of them after the agent
  ran. Exceptions: -32700 (the request could not be read), -32009 (wrong version), and one that
  says itself that it only dresses up the HTTP status (``httpStatus`` in its metadata).
- An HTTP status of `REFUSALS` without such a body comes, by convention, from in front of the
  agent: not executed. 503 counts only with a Retry-After. A body that was too large, or could
  not be read, may be such a body. Where an agent speaks in the body, whatever it says, something
  on the way has only changed the status (`refusals_around`).
- A hint (``retryable``, ``retryAfter``, Retry-After, RetryInfo) sets `transient`
  and `retry_after`, never `executed`.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from holdfast._model import codec
from holdfast._model.error_reading import (
    ErrorObject,
    is_error_info,
    metadata_of,
    read,
    tell,
    typed,
)
from holdfast._model.error_values import excerpt, integer, seconds, text_of
from holdfast._model.error_writing import HTTP_STATUS
from holdfast._model.operations import SENDS
from holdfast._wire.caching import http_date
from holdfast._wire.http import HttpReply, harmless_headers
from holdfast.errors import (
    CODE_BY_REASON,
    A2AError,
    A2AHTTPError,
    AuthenticationError,
    Facts,
    InvalidAgentResponseError,
    MethodNotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    error_of,
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
    "is_not_an_agent",
    "is_unknown_operation",
    "json_rpc_code_in",
    "refusals_around",
    "retry_after_in",
]

REFUSALS = frozenset({401, 403, 404, 405, 411, 413, 414, 415, 421, 422, 425, 429, 503})
"""HTTP statuses that, without an A2A error in the body, mean that the agent was not reached."""

_SPOKEN = frozenset({"jsonrpc", "result"})
"""Members that nobody but an agent writes, whatever they hold; proxies have errors, too."""

_ANSWERS = ("task", "message", "status")
"""Members of an answer of A2A where they hold an object; what proxies write there is text."""

_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})

_UNKNOWN_STATUSES = frozenset({404, 405, 501})

_BUSY_STATUSES = frozenset({429, 503})
"""Transient whatever the body says; a 500 around an error object means only that object."""

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
"""Codes that JSON-RPC reserves; no other kind of code looks like these."""


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
        known = CODE_BY_GRPC_STATUS.get(text_of(error.get("status"))) or json_rpc_code_in(details)
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
    retry_after = retry_after_in(reply.headers, now)
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


def is_unknown_operation(error: A2AError) -> bool:
    """Whether an error says that an operation is unknown where it was called.

    By its name (-32601), or by its path: an HTTP status about which the agent says nothing.
    """
    if isinstance(error, A2AHTTPError):
        return error.http_status in _UNKNOWN_STATUSES
    return isinstance(error, MethodNotFoundError)


def is_not_an_agent(operation: Operation[Any, Any], error: A2AError) -> bool:
    """Whether something else than an agent has answered: every agent takes messages."""
    if isinstance(error, A2AHTTPError | MethodNotFoundError):
        return operation in SENDS and is_unknown_operation(error)
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
        error.retry_after = retry_after_in(reply.headers, now)
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


def json_rpc_code_in(details: tuple[dict[str, Any], ...]) -> int | None:
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
    is_streamed = any(name in headers for name in ("content-encoding", "transfer-encoding"))
    return not reply.body and (is_streamed or headers.get("content-length", "0").strip("0") != "")


def retry_after_in(headers: Mapping[str, str], now: float) -> float | None:
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
