"""Error objects that an agent answers with: JSON-RPC's and HTTP+JSON's, in both dialects.

Rules: an error always states whether a retry may succeed. Of downstream agents it gives only names
and messages. Nothing about the local machine is sent.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast._model import error_hops as hops
from holdfast._model.article_errors import is_article_data
from holdfast._model.error_reading import answer_prefix, is_detail_type, is_error_info
from holdfast._model.error_scrubbing import scrubbed, scrubbed_details
from holdfast._model.error_values import int64, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["HTTP_STATUS", "UNNAMED", "Entry", "own_message", "rest_error", "rpc_error"]

_TYPE_PREFIX = "type.googleapis.com/google.rpc."
UNNAMED = "UNKNOWN_ERROR"
"""Reason of errors that the protocol does not name, as official servers write it."""

HTTP_STATUS = "HTTP_STATUS"
"""Reason of errors that only describe an HTTP status, which is sent as ``httpStatus``."""

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
"""By HTTP status, following `google.rpc.Code`."""

_DOMAIN = "a2a-protocol.org"
_NOT_FORWARDED = ("RetryInfo", "DebugInfo")
_MAX_DETAILS = 16
_MAX_DELAY_S = 315_576_000_000
"""Maximum of a ``google.protobuf.Duration``, in seconds."""


class Entry(msgspec.Struct, frozen=True):
    """Representation of a kind of error in the protocol (A2A 5.4, 9.5, 11.6).

    Attributes:
        code: JSON-RPC code of errors without one of their own.
        reason: Reason in the `google.rpc.ErrorInfo`.
        http_status: HTTP status over HTTP+JSON.
        grpc_status: Name of the corresponding gRPC status.
        in_article: Code of the same error in the older dialect; None if it is `code`.
    """

    code: int = -32603
    reason: str = "INTERNAL_ERROR"
    http_status: int = 500
    grpc_status: str = "INTERNAL"
    in_article: int | None = None


class SentFacts(Protocol):
    """Facts of an `A2AError` that are sent, besides the ``task_id`` and ``state`` of some."""

    @property
    def message(self) -> str: ...
    @property
    def code(self) -> int | None: ...
    @property
    def data(self) -> Any: ...
    @property
    def details(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def http_status(self) -> int | None: ...
    @property
    def transient(self) -> bool: ...
    @property
    def retry_after(self) -> float | None: ...
    @property
    def agent(self) -> str | None: ...
    @property
    def hops(self) -> tuple[str, ...]: ...
    @property
    def loop(self) -> str | None: ...


def own_message(error: SentFacts) -> str:
    """Return an error's message for other agents, without the prefix of `answer_prefix`."""
    message = error.message.removeprefix(f"{answer_prefix(error.code)}: ")
    return scrubbed(message) or type(error).__name__


def rpc_error(
    error: SentFacts, entry: Entry, *, nested: bool, request_id: str | None
) -> dict[str, Any]:
    """Return the JSON-RPC error object; see `A2AError.to_jsonrpc`."""
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


def rest_error(error: SentFacts, entry: Entry, *, request_id: str | None) -> dict[str, Any]:
    """Return the `google.rpc.Status` object; see `A2AError.to_rest`."""
    status = http_status_of(error, entry)
    return {
        "code": status,
        "status": _GRPC_STATUSES.get(status, "UNKNOWN")
        if _is_status(entry)
        else entry.grpc_status,
        "message": own_message(error),
        "details": _details(error, entry, request_id),
    }


def http_status_of(error: SentFacts, entry: Entry) -> int:
    """Return the HTTP status of the error over HTTP+JSON."""
    own = error.http_status
    return own if _is_status(entry) and own is not None and 400 <= own < 600 else entry.http_status


def _is_status(entry: Entry) -> bool:
    return entry.reason == HTTP_STATUS


def _nested(error: SentFacts) -> dict[str, Any]:
    """Return the members for downstream agents: their errors, nested in each other."""
    chain, links = hops.bounded_chain(error.hops), hops.links_in(error.data)
    texts = _texts_in(own_message(error), chain)
    members: dict[str, Any] = {}
    for index in range(len(chain) - 1, -1, -1):
        link = links[index] if index < len(links) else hops.Link(agent=chain[index])
        answer = {
            "code": -32603 if link.code is None else link.code,
            "message": scrubbed(link.text) or texts[index] or _failed(chain[index + 1 :]),
            "data": {**members, **_hints(error)},
        }
        members = {"downstreamAgent": chain[index], "downstreamError": answer}
        caller = chain[index - 1] if index else hops.as_hop(error.agent)
        if caller:
            members = {"currentAgent": caller, **members}
    return {**members, **({"loop": hops.as_hop(error.loop)} if error.loop else {})}


def _texts_in(message: str, chain: tuple[str, ...]) -> list[str]:
    """Return the text of each agent of a chain, as far as the message contains it."""
    texts: list[str] = []
    for agent in chain:
        _, is_named, rest = message.partition(f"agent {agent} failed: ")
        message = rest if is_named else message
        texts.append(rest)
    return texts


def _failed(chain: tuple[str, ...]) -> str:
    return f"agent {chain[0]} failed" if chain else "failed"


def _hints(error: SentFacts) -> dict[str, Any]:
    hints: dict[str, Any] = {"retryable": error.transient}
    if error.retry_after is not None and _is_wait(error.retry_after):
        hints["retryAfter"] = int64(error.retry_after) or float(error.retry_after)
    return hints


def _details(error: SentFacts, entry: Entry, request_id: str | None) -> list[dict[str, Any]]:
    """Return the typed details, with the `google.rpc.ErrorInfo` first, as some clients need."""
    info = {"reason": entry.reason, "domain": _DOMAIN, "metadata": _metadata(error, entry)}
    details: list[dict[str, Any]] = [{"@type": f"{_TYPE_PREFIX}ErrorInfo", **info}]
    if error.retry_after is not None and _is_wait(error.retry_after):
        delay = f"{min(error.retry_after, _MAX_DELAY_S):.9f}".rstrip("0").rstrip(".")
        details.append({"@type": f"{_TYPE_PREFIX}RetryInfo", "retryDelay": f"{delay}s"})
    if request_id is not None:
        details.append({"@type": f"{_TYPE_PREFIX}RequestInfo", "requestId": request_id})
    downstream = (
        detail
        for detail in error.details
        if text_of(detail.get("@type")) and not _is_replaced(detail, request_id)
    )
    return details + scrubbed_details(islice(downstream, _MAX_DETAILS))


def _is_replaced(detail: Any, request_id: str | None) -> bool:
    """Return whether a received detail is written anew, or must not be forwarded."""
    if request_id is not None and is_detail_type(detail, "RequestInfo"):
        return True
    return is_error_info(detail) or any(is_detail_type(detail, name) for name in _NOT_FORWARDED)


_ABOUT_TASKS = frozenset({"TASK_NOT_FOUND", "TASK_NOT_CANCELABLE"})


def _metadata(error: SentFacts, entry: Entry) -> dict[str, str]:
    """Return the metadata of the `google.rpc.ErrorInfo`, which may hold only texts."""
    metadata = {"retryable": "true" if error.transient else "false"}
    if entry.reason in _ABOUT_TASKS:  # other errors may know a task of a downstream agent
        for name, wire_name in (("task_id", "taskId"), ("state", "state")):
            if value := scrubbed(str(getattr(error, name, None) or "")):
                metadata[wire_name] = value
    if error.code is not None and entry.reason == UNNAMED:
        metadata["code"] = str(error.code)
    if _is_status(entry):
        metadata["httpStatus"] = str(http_status_of(error, entry))
    metadata |= {f"hop{n}": hop for n, hop in enumerate(hops.bounded_chain(error.hops), 1)}
    if error.loop:
        metadata["loop"] = hops.as_hop(error.loop)
    return metadata


def _is_wait(delay: float) -> bool:
    return delay >= 0 and math.isfinite(delay)
