"""The JSON-RPC binding (A2A specification 9): calls to requests, replies to values or errors."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from holdfast._model import codec
from holdfast._wire import status
from holdfast._wire.http import Encoded, HttpReply
from holdfast._wire.sse import EVENT_STREAM
from holdfast.types import Empty

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from holdfast._model.operations import Operation
    from holdfast.errors import A2AError

__all__ = ["decode", "encode", "reader"]

_HEADERS = {"content-type": "application/json", "accept": "application/json"}
_EVENT_HEADERS = {**_HEADERS, "accept": f"{EVENT_STREAM}, application/json"}

P = TypeVar("P")
R = TypeVar("R")


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    method: str
    params: Any
    jsonrpc: str = "2.0"


def encode(operation: Operation[P, R], params: P, url: str, request_id: str) -> Encoded:
    """Encode a call as a POST request.

    Args:
        operation: The operation.
        params: Its parameters.
        url: Address of the interface, used unchanged.
        request_id: The ``id`` of the request.
    """
    body = codec.encode(_Request(id=request_id, method=operation.name, params=params))
    headers = _EVENT_HEADERS if operation.streaming else _HEADERS
    return Encoded(method="POST", url=url, headers=headers, body=body)


def reader(operation: Operation[P, R], request_id: str) -> Callable[[bytes], R | None]:
    """Make a fast reader of a stream's plain events.

    Args:
        operation: The operation that was called.
        request_id: The ``id`` that was sent.

    Returns:
        A function that decodes an event's data; it returns None for data that only `decode`
        handles.
    """
    decoder = _result_decoder(cast("Any", operation.response)).decode

    def read(data: bytes) -> R | None:
        try:
            envelope = decoder(data)
        except codec.UNREADABLE:
            return None
        result = envelope.result
        if result is UNSET or envelope.error is not None or envelope.id != request_id:
            return None
        return cast("R", result)

    return read


def decode(
    operation: Operation[P, R],
    request_id: str,
    reply: HttpReply,
    *,
    now: float,
    refusals: frozenset[int] = status.REFUSALS,
) -> R:
    """Decode the reply of an operation, or one event of its stream.

    Args:
        operation: The operation that was called.
        request_id: The ``id`` that was sent.
        reply: The HTTP reply, of any status and content.
        now: Wall time in seconds since the epoch.
        refusals: HTTP statuses that mean "not executed".

    Raises:
        A2AError: The agent's error, the error of the HTTP status, or `InvalidAgentResponseError`
            for a malformed reply.
    """
    try:
        envelope = _result_decoder(cast("Any", operation.response)).decode(reply.body)
    except codec.UNREADABLE:
        return _decode_slowly(operation, request_id, reply, now=now, refusals=refusals)
    is_plain = (
        envelope.result is not UNSET and envelope.error is None and envelope.id == request_id
    )
    if not is_plain or not 200 <= reply.status < 300:
        return _decode_slowly(operation, request_id, reply, now=now, refusals=refusals)
    return cast("R", envelope.result)


@lru_cache(maxsize=64)
def _result_decoder(response: Hashable) -> msgspec.json.Decoder[Any]:
    result: Any = cast("Any", response) | UnsetType
    envelope = msgspec.defstruct(
        "_Result",
        [("id", Any, None), ("result", result, UNSET), ("error", Any, None)],
        kw_only=True,
        frozen=True,
    )
    return msgspec.json.Decoder(envelope)


def _decode_slowly(
    operation: Operation[P, R],
    request_id: str,
    reply: HttpReply,
    *,
    now: float,
    refusals: frozenset[int],
) -> R:
    """Diagnose a reply that the fast path rejected, and decode it if it is usable."""
    try:
        document = codec.parse(reply.body)
    except codec.MalformedError as error:
        if not _is_success(reply):
            raise status.from_http_status(reply, now=now, refusals=refusals) from None
        raise status.malformed_reply(f"the reply is {error}", reply) from None
    members = codec.as_object(document) or {}
    if members.get("error") is not None:
        raise _error(members, request_id, reply, now=now, refusals=refusals)
    if not _is_success(reply):
        effective_refusals = status.refusals_around(document, refusals)
        raise status.from_http_status(reply, now=now, refusals=effective_refusals)
    result = _or_empty(members.get("result"), operation)
    if "result" not in members and result is None:
        raise status.malformed_reply("the reply has neither result nor error", reply)
    if members.get("id") != request_id:
        raise status.malformed_reply("the reply has the id of another request", reply)
    try:
        return codec.from_builtins(result, operation.response)
    except codec.MalformedError as error:
        message = f"the reply to {operation.name} is not a {operation.response.__name__}: {error}"
        raise status.malformed_reply(message, reply) from None


def _error(
    members: dict[str, Any],
    request_id: str,
    reply: HttpReply,
    *,
    now: float,
    refusals: frozenset[int],
) -> A2AError:
    # An agent that could not parse the request does not know its id. (An id may be unhashable.)
    if members.get("id") not in (request_id, None):
        return status.malformed_reply("the reply has the id of another request", reply)
    error = members["error"]
    if not (isinstance(error, dict) and "code" in error) and not _is_success(reply):
        effective_refusals = status.refusals_around(members, refusals)
        return status.from_http_status(reply, now=now, refusals=effective_refusals)
    return status.from_rpc_error(error, reply, now=now, refusals=refusals)


def _or_empty(result: Any, operation: Operation[P, R]) -> Any:
    """Return ``{}`` for a missing or null result of an operation that returns nothing."""
    return {} if result is None and operation.response is Empty else result


def _is_success(reply: HttpReply) -> bool:
    return 200 <= reply.status < 300
