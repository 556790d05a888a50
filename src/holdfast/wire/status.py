"""From what an agent or a proxy answered to a typed error with facts.

This file owns the tables: which code, reason and status is which error, and what each says about
*executed* and *transient*. The rules of `executed`:

- An error object of A2A or JSON-RPC proves nothing: servers send any of them after the agent
  ran. Exceptions: -32700 (the request could not be read) and -32009 (wrong version).
- An HTTP status of `REFUSALS` without such a body comes, by convention, from in front of the
  agent: not executed. 503 counts only with a Retry-After.
- A hint (``retryable``, ``retryAfter``, Retry-After) sets `transient` and `retry_after`, never
  `executed`.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import (
    A2AError,
    A2AHTTPError,
    AgentError,
    AuthenticationError,
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    ExtensionSupportRequiredError,
    Facts,
    InternalError,
    InvalidAgentResponseError,
    InvalidParamsError,
    InvalidRequestError,
    MethodNotFoundError,
    ParseError,
    PermissionDeniedError,
    PushNotificationNotSupportedError,
    RateLimitedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from holdfast.model.types import TaskState
from holdfast.wire.article import is_article_error
from holdfast.wire.fields import http_date, seconds
from holdfast.wire.http import HttpReply, excerpt, harmless_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "REFUSALS",
    "from_http_status",
    "from_problem",
    "from_rest_status",
    "from_rpc_error",
    "is_unknown_there",
]

REFUSALS = frozenset({401, 403, 404, 405, 411, 413, 414, 415, 421, 422, 425, 429, 503})
"""HTTP statuses that, without an A2A error in the body, mean that the agent was not reached."""

_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})

_UNKNOWN_STATUSES = frozenset({404, 405, 501})

_BUSY_STATUSES = frozenset({429, 503})
"""Transient whatever the body says; a 500 around an error object means only that object."""

_BY_CODE: dict[int, type[A2AError]] = {
    -32700: ParseError,
    -32600: InvalidRequestError,
    -32601: MethodNotFoundError,
    -32602: InvalidParamsError,
    -32603: InternalError,
    -32001: TaskNotFoundError,
    -32002: TaskNotCancelableError,
    -32003: PushNotificationNotSupportedError,
    -32004: UnsupportedOperationError,
    -32005: ContentTypeNotSupportedError,
    -32006: InvalidAgentResponseError,
    -32007: ExtendedAgentCardNotConfiguredError,
    -32008: ExtensionSupportRequiredError,
    -32009: VersionNotSupportedError,
}
_NOT_EXECUTED_CODES = frozenset({-32700, -32009})
_TRANSIENT_CODES = frozenset({-32603})

_CODE_BY_REASON = {
    "TASK_NOT_FOUND": -32001,
    "TASK_NOT_CANCELABLE": -32002,
    "PUSH_NOTIFICATION_NOT_SUPPORTED": -32003,
    "UNSUPPORTED_OPERATION": -32004,
    "CONTENT_TYPE_NOT_SUPPORTED": -32005,
    "INVALID_AGENT_RESPONSE": -32006,
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": -32007,
    "EXTENSION_SUPPORT_REQUIRED": -32008,
    "VERSION_NOT_SUPPORTED": -32009,
    "PARSE_ERROR": -32700,
    "JSON_PARSE": -32700,
    "INVALID_REQUEST": -32600,
    "METHOD_NOT_FOUND": -32601,
    "INVALID_PARAMS": -32602,
    "INTERNAL": -32603,
    "INTERNAL_ERROR": -32603,
}
"""`google.rpc.ErrorInfo.reason` of A2A errors (specification 9.5, 11.6)."""

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

_RPC_CODES = range(-32768, -31999)
"""Codes that JSON-RPC reserves; no other kind of code looks like these."""


def from_rpc_error(error: Any, reply: HttpReply, *, now: float) -> A2AError:
    """Reads a JSON-RPC error object (JSON-RPC 2.0, section 5.1; A2A 9.5).

    Args:
        error: The object, parsed.
        reply: The reply that carried it.
        now: Wall time in seconds since the epoch, to read a Retry-After date by.
    """
    if not isinstance(error, dict):
        message = "the reply's error is not an object"
        return InvalidAgentResponseError(message, **_reply_facts(reply, with_excerpt=True))
    members = cast("dict[str, Any]", error)
    code = _integer(members.get("code"))
    if code is None:
        message = "the reply's error has no integer code"
        return InvalidAgentResponseError(message, **_reply_facts(reply, with_excerpt=True))
    data = members.get("data")
    text = _text(members.get("message"))
    return _from_code(code, text, reply, now=now, data=data, details=_details(data))


def from_rest_status(error: Mapping[str, Any], reply: HttpReply, *, now: float) -> A2AError | None:
    """Reads a `google.rpc.Status` object (A2A 11.6), or a bare JSON-RPC error in a REST reply.

    Returns:
        None if the object is neither, so that the HTTP status has to speak for itself.
    """
    code = _integer(error.get("code"))
    details = _details(error.get("details"))
    reason = next((_text(d.get("reason")) for d in details if _is_error_info(d)), "")
    known = _CODE_BY_REASON.get(reason)
    if known is None and code in _RPC_CODES:
        return from_rpc_error(error, reply, now=now)
    if known is None and reply.status not in _BY_STATUS:
        known = _CODE_BY_GRPC_STATUS.get(_text(error.get("status")))
    if known is not None:
        return _from_code(
            known, _text(error.get("message")), reply, now=now, data=details, details=details
        )
    if "status" not in error and not details:
        return None
    return _with_body(from_http_status(reply, now=now), error, details)


def from_problem(problem: Mapping[str, Any], reply: HttpReply, *, now: float) -> A2AError | None:
    """Reads an RFC 9457 problem whose type names an A2A error, as ``…/task-not-found``.

    Returns:
        None if it names none.
    """
    name = _text(problem.get("type")).rstrip("/").rpartition("/")[2]
    code = _CODE_BY_REASON.get(name.replace("-", "_").upper().removesuffix("_ERROR"))
    if code is None:
        return None
    text = _text(problem.get("detail") or problem.get("title"))
    error = _from_code(code, text, reply, now=now)
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
    refused = status in refusals and (
        status != HTTPStatus.SERVICE_UNAVAILABLE or retry_after is not None
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


def is_unknown_there(error: A2AError) -> bool:
    """Whether an error says that an operation is unknown where it was called.

    By its name (-32601), or by its path: an HTTP status about which the agent says nothing.
    """
    if isinstance(error, A2AHTTPError):
        return error.http_status in _UNKNOWN_STATUSES
    return isinstance(error, MethodNotFoundError)


def _from_code(
    code: int,
    text: str,
    reply: HttpReply,
    *,
    now: float,
    data: Any = None,
    details: tuple[dict[str, Any], ...] = (),
) -> A2AError:
    hints = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    facts = _reply_facts(reply)
    facts["code"] = code
    facts["details"] = details
    facts["data"] = data
    facts["executed"] = False if code in _NOT_EXECUTED_CODES else None
    facts["retry_after"] = _first(
        seconds(hints.get("retryAfter")), _retry_info(details), _retry_after(reply.headers, now)
    )
    retryable = hints.get("retryable")
    facts["transient"] = (
        retryable
        if isinstance(retryable, bool)
        else code in _TRANSIENT_CODES
        or reply.status in _BUSY_STATUSES
        or facts["retry_after"] is not None
    )
    text = ": ".join(filter(None, (text, _text(hints.get("detail")))))
    message = f"the agent answered {code}{': ' if text else ''}{text}"

    kind: type[A2AError] = _BY_CODE.get(code) or _BY_STATUS.get(reply.status) or AgentError
    if is_article_error(code, hints):
        kind = AgentError
    metadata = _metadata(details)
    if kind is TaskNotFoundError:
        return TaskNotFoundError(message, task_id=metadata.get("taskId"), **facts)
    if kind is TaskNotCancelableError:
        state = metadata.get("state")
        return TaskNotCancelableError(
            message,
            task_id=metadata.get("taskId"),
            state=None if state is None else TaskState(state),
            **facts,
        )
    return kind(message, **facts)


def _with_body(
    error: A2AHTTPError, body: Mapping[str, Any], details: tuple[dict[str, Any], ...]
) -> A2AHTTPError:
    """Adds what a `google.rpc.Status` says, which also ends the benefit of the convention."""
    if text := _text(body.get("message")):
        error.message = f"{error.message}: {text}"
        error.excerpt = None
    error.details = details
    error.data = body
    error.executed = None
    error.retry_after = _first(_retry_info(details), error.retry_after)
    return error


def _reply_facts(reply: HttpReply, *, with_excerpt: bool = False) -> Facts:
    facts = Facts(http_status=reply.status, headers=harmless_headers(reply.headers))
    if with_excerpt:
        facts["excerpt"] = excerpt(reply.body)
    return facts


def _text(value: Any) -> str:
    return excerpt(value.encode("utf-8", "replace"), 500) if isinstance(value, str) else ""


def _details(value: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list):
        return ()
    items = cast("list[Any]", value)
    return tuple(cast("dict[str, Any]", item) for item in items if isinstance(item, dict))


def _is_type(detail: Mapping[str, Any], name: str) -> bool:
    return _text(detail.get("@type")).rpartition("/")[2] == f"google.rpc.{name}"


def _is_error_info(detail: Mapping[str, Any]) -> bool:
    return _is_type(detail, "ErrorInfo") and detail.get("domain") == "a2a-protocol.org"


def _metadata(details: tuple[dict[str, Any], ...]) -> dict[str, str]:
    for detail in details:
        metadata = detail.get("metadata")
        if _is_error_info(detail) and isinstance(metadata, dict):
            members = cast("dict[str, Any]", metadata)
            return {name: value for name, value in members.items() if isinstance(value, str)}
    return {}


def _retry_info(details: tuple[dict[str, Any], ...]) -> float | None:
    for detail in details:
        delay = detail.get("retryDelay")
        if _is_type(detail, "RetryInfo") and isinstance(delay, str):
            return seconds(delay.removesuffix("s"))
    return None


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


def _integer(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
