"""The error objects that an agent answers with: JSON-RPC's and HTTP+JSON's, in both dialects.

Rules: an error says whether it may help to try again, always; what it says of the agents below it
is who they are and what they said; nothing of the machine that it was written on goes out.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._model import error_hops as hops
from holdfast._model.article_errors import is_article_data
from holdfast._model.error_reading import answer_prefix, is_detail_type, is_error_info
from holdfast._model.error_scrubbing import scrubbed, scrubbed_details
from holdfast._model.error_values import int64, text_of

if TYPE_CHECKING:
    from holdfast.errors import A2AError

__all__ = ["HTTP_STATUS", "UNNAMED", "Entry", "own_message", "rest_error", "rpc_error"]

_TYPES = "type.googleapis.com/google.rpc."
UNNAMED = "UNKNOWN_ERROR"
"""The reason of errors that the protocol does not name; official servers call them so, too."""

HTTP_STATUS = "HTTP_STATUS"
"""The reason of errors that say no more than an HTTP status; it goes along, as ``httpStatus``."""

_GRPC_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    415: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""By HTTP status, as `google.rpc.Code` relates them."""

_DOMAIN = "a2a-protocol.org"
_REASSIGNED = ("RetryInfo", "DebugInfo")
_MOST_DETAILS = 16
_LONGEST_WAIT = 315_576_000_000
"""Seconds that a ``google.protobuf.Duration`` can hold."""


class Entry(msgspec.Struct, frozen=True):
    """How the protocol writes a kind of error (A2A 5.4, 9.5, 11.6).

    Attributes:
        code: The JSON-RPC code of those that have none of their own.
        reason: In the `google.rpc.ErrorInfo`.
        http_status: Over HTTP+JSON.
        grpc_status: The name that goes with it.
        in_article: The code that says the same in the older dialect; None if `code` does.
    """

    code: int = -32603
    reason: str = "INTERNAL_ERROR"
    http_status: int = 500
    grpc_status: str = "INTERNAL"
    in_article: int | None = None


def own_message(error: A2AError) -> str:
    """What an error says, without who says it, as it may be told to others."""
    message = error.message.removeprefix(f"{answer_prefix(error.code)}: ")
    return scrubbed(message) or type(error).__name__


def rpc_error(
    error: A2AError, entry: Entry, *, nested: bool, request_id: str | None
) -> dict[str, Any]:
    """The JSON-RPC error object; see `A2AError.to_jsonrpc`."""
    own = int64(error.code)
    code = entry.code if own is None else own
    if nested:
        if entry.in_article is not None and not is_article_data(error.data):
            code = entry.in_article
        data: Any = _hints(error)
        if error.hops:
            data = {**_nested(error), **data}
        if request_id is not None:
            data["requestId"] = request_id
    else:
        data = _details(error, entry, request_id)
    return {"code": code, "message": own_message(error), "data": data}


def rest_error(error: A2AError, entry: Entry, *, request_id: str | None) -> dict[str, Any]:
    """The `google.rpc.Status` object; see `A2AError.to_rest`."""
    status = http_status_of(error, entry)
    return {
        "code": status,
        "status": _GRPC_STATUSES.get(status, "UNKNOWN")
        if _is_status(entry)
        else entry.grpc_status,
        "message": own_message(error),
        "details": _details(error, entry, request_id),
    }


def http_status_of(error: A2AError, entry: Entry) -> int:
    """The HTTP status that an error is answered with over HTTP+JSON."""
    own = error.http_status
    return own if _is_status(entry) and own is not None and 400 <= own < 600 else entry.http_status


def _is_status(entry: Entry) -> bool:
    return entry.reason == HTTP_STATUS


def _nested(error: A2AError) -> dict[str, Any]:
    """Who failed below an agent, and what they said, one error inside the other."""
    chain, links = hops.bounded_chain(error.hops), hops.links_in(error.data)
    said = _said_in(own_message(error), chain)
    below: dict[str, Any] = {}
    for index in range(len(chain) - 1, -1, -1):
        link = links[index] if index < len(links) else hops.Link(agent=chain[index])
        answer = {
            "code": -32603 if link.code is None else link.code,
            "message": scrubbed(link.text) or said[index] or _failed(chain[index + 1 :]),
            "data": {**below, **_hints(error)},
        }
        below = {"downstreamAgent": chain[index], "downstreamError": answer}
        before = chain[index - 1] if index else hops.as_hop(error.agent)
        if before:
            below = {"currentAgent": before, **below}
    return {**below, **({"loop": hops.as_hop(error.loop)} if error.loop else {})}


def _said_in(message: str, chain: tuple[str, ...]) -> list[str]:
    """What each agent of a chain said, as far as the message of the first error tells it."""
    said: list[str] = []
    for agent in chain:
        _, is_streamed, rest = message.partition(f"agent {agent} failed: ")
        message = rest if is_streamed else message
        said.append(rest)
    return said


def _failed(chain: tuple[str, ...]) -> str:
    return f"agent {chain[0]} failed" if chain else "failed"


def _hints(error: A2AError) -> dict[str, Any]:
    hints: dict[str, Any] = {"retryable": error.transient}
    if error.retry_after is not None and _is_wait(error.retry_after):
        hints["retryAfter"] = int64(error.retry_after) or float(error.retry_after)
    return hints


def _details(error: A2AError, entry: Entry, request_id: str | None) -> list[dict[str, Any]]:
    """The typed details; the `google.rpc.ErrorInfo` is the first, where some clients look."""
    info = {"reason": entry.reason, "domain": _DOMAIN, "metadata": _metadata(error, entry)}
    details: list[dict[str, Any]] = [{"@type": f"{_TYPES}ErrorInfo", **info}]
    if error.retry_after is not None and _is_wait(error.retry_after):
        delay = f"{min(error.retry_after, _LONGEST_WAIT):.9f}".rstrip("0").rstrip(".")
        details.append({"@type": f"{_TYPES}RetryInfo", "retryDelay": f"{delay}s"})
    if request_id is not None:
        details.append({"@type": f"{_TYPES}RequestInfo", "requestId": request_id})
    foreign = (
        detail
        for detail in error.details
        if text_of(detail.get("@type")) and not _is_ours(detail, request_id)
    )
    return details + scrubbed_details(islice(foreign, _MOST_DETAILS))


def _is_ours(detail: Any, request_id: str | None) -> bool:
    """Whether a detail says what is said anew, or what is nobody else's business."""
    if request_id is not None and is_detail_type(detail, "RequestInfo"):
        return True
    return is_error_info(detail) or any(is_detail_type(detail, name) for name in _REASSIGNED)


def _metadata(error: A2AError, entry: Entry) -> dict[str, str]:
    """Of texts only: that is what the object may hold."""
    found = {"retryable": "true" if error.transient else "false"}
    for name, wire_name in (("task_id", "taskId"), ("state", "state")):
        if value := scrubbed(str(getattr(error, name, None) or "")):
            found[wire_name] = value
    if error.code is not None and entry.reason == UNNAMED:
        found["code"] = str(error.code)
    if _is_status(entry):
        found["httpStatus"] = str(http_status_of(error, entry))
    found |= {f"hop{n}": hop for n, hop in enumerate(hops.bounded_chain(error.hops), 1)}
    if error.loop:
        found["loop"] = hops.as_hop(error.loop)
    return found


def _is_wait(delay: float) -> bool:
    return delay >= 0 and math.isfinite(delay)
