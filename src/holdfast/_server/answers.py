"""Errors of the protocol in the form of each binding, in place of an application's own."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, cast

from holdfast._asgi import ShortReply, reply
from holdfast._model import codec
from holdfast._model.error_hops import as_hop
from holdfast._model.error_values import integer, text_of
from holdfast._wire.status import from_http_status
from holdfast.errors import (
    A2AError,
    A2AHTTPError,
    InternalError,
    NotEnoughResultsError,
    wrap_downstream,
)
from holdfast.extend import HttpReply, media_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._asgi import ASGISend

__all__ = [
    "answer",
    "error_of_failure",
    "error_of_status",
    "event",
    "is_proper",
    "refuse",
]


async def refuse(
    send: ASGISend, status: int, reason: str, headers: Mapping[str, str] | None = None
) -> None:
    """Answer a request with a status, and with the reason as the ``detail`` of a JSON object.

    Args:
        send: The request's ``send``.
        status: HTTP status, from 400 on.
        reason: One line, without a secret.
        headers: Headers besides those of the body; names in lower case.
    """
    text = json.dumps({"detail": reason})
    content_type = {"content-type": "application/json"}
    await reply(send, ShortReply(status, text, {**(headers or {}), **content_type}))


_CODES = {
    400: -32600,
    404: -32601,
    405: -32600,
    413: -32600,
    415: -32600,
    422: -32602,
    501: -32601,
}
"""JSON-RPC codes for HTTP statuses, for clients that ignore the status."""


def error_of_failure(failure: Exception, agent: str) -> A2AError:
    """Return the error that the client gets for an exception of the application.

    Args:
        failure: The exception. The text of an `A2AError` is passed on; an error of another agent
            is wrapped, so that the client sees where the chain broke. Of every other exception
            the client sees nothing.
        agent: The name of the agent.
    """
    failure = _unwrap_group(failure)
    if isinstance(failure, NotEnoughResultsError):
        return wrap_downstream(failure, current=agent)
    if isinstance(failure, A2AError):
        is_wrapped = failure.hops and failure.http_status is None and failure.request_id is None
        if is_wrapped or not failure.agent or failure.agent == agent:
            return failure
        return wrap_downstream(failure, current=agent, agent=as_hop(failure.agent) or "?")
    if isinstance(failure, TimeoutError):
        return InternalError("the agent took too long", transient=True)
    return InternalError("internal error")


def error_of_status(
    status: int, headers: Mapping[str, str], body: bytes, *, now: float
) -> A2AError:
    """Return the error that the client gets for an HTTP status of the application.

    Args:
        status: HTTP status, from 400 on.
        headers: The response's headers; names in lower case.
        body: The response's body. Only the ``detail`` of a JSON object is passed on, and only if
            the status is below 500.
        now: Wall time in seconds since the epoch, for a ``Retry-After`` date.
    """
    error = from_http_status(HttpReply(status=status, headers=headers), now=now)
    if status == 500:
        return InternalError("internal error", retry_after=error.retry_after)
    if detail := text_of((_members(body) or {}).get("detail")) if status < 500 else "":
        error.message = f"{error.message}: {detail}"
    error.code = _CODES.get(status)
    return error


def is_proper(headers: Mapping[str, str], body: bytes, *, is_rpc: bool) -> bool:
    """Whether an application's response is an error in the form of the request's binding."""
    members = _members(body) if "json" in media_type(headers) else None
    if members is None:
        return False
    error = members.get("error")
    if isinstance(error, dict) and integer(cast("dict[str, Any]", error).get("code")) is not None:
        return not is_rpc or "jsonrpc" in members
    if is_rpc:
        return "jsonrpc" in members and "result" in members
    is_problem = media_type(headers) == "application/problem+json"
    is_v03 = isinstance(members.get("message"), str) and members.keys() <= {"message", "data"}
    return is_problem or is_v03 or integer(members.get("code")) is not None


def answer(
    error: A2AError, *, is_rpc: bool, rpc_id: Any, request_id: str, nested: bool
) -> tuple[int, dict[str, str], bytes]:
    """Return the status, headers and body of an error in the form of a binding.

    A JSON-RPC error has HTTP 200, as official servers answer, unless it is an `A2AHTTPError`.
    """
    status = error.to_rest()["code"]
    if is_rpc and not isinstance(error, A2AHTTPError):
        status = 200
    headers = {"content-type": "application/json", "x-request-id": request_id}
    if error.retry_after is not None and math.isfinite(error.retry_after):
        headers["retry-after"] = str(math.ceil(max(0.0, error.retry_after)))
    body = _body(error, is_rpc=is_rpc, rpc_id=rpc_id, request_id=request_id, nested=nested)
    return status, headers, body


def event(error: A2AError, *, is_rpc: bool, rpc_id: Any, request_id: str, nested: bool) -> bytes:
    """Return the last event of a failed stream (A2A 9.4.2); HTTP+JSON as official servers do."""
    body = _body(error, is_rpc=is_rpc, rpc_id=rpc_id, request_id=request_id, nested=nested)
    return b"%sdata: %s\n\n" % (b"" if is_rpc else b"event: error\n", body)


def _body(error: A2AError, *, is_rpc: bool, rpc_id: Any, request_id: str, nested: bool) -> bytes:
    if is_rpc:
        document = error.to_jsonrpc(nested=nested, request_id=request_id)
        return codec.encode({"jsonrpc": "2.0", "id": rpc_id, "error": document})
    return codec.encode({"error": error.to_rest(request_id=request_id)})


def _unwrap_group(failure: Exception) -> Exception:
    """Return the only exception of a group, as task groups wrap it."""
    if not isinstance(failure, ExceptionGroup):
        return failure
    group = cast("ExceptionGroup[Exception]", failure)
    first, *others = group.exceptions
    return group if others else _unwrap_group(first)


def _members(body: bytes) -> dict[str, Any] | None:
    try:
        return codec.as_object(codec.parse(body))
    except codec.MalformedError:
        return None
