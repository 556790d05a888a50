"""The HTTP+JSON binding (A2A specification 11): calls to requests, replies to values or errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from holdfast._model import codec
from holdfast._wire import status
from holdfast._wire.http import Encoded, HttpReply, excerpt
from holdfast._wire.sse import EVENT_STREAM
from holdfast.types import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._model.operations import Operation
    from holdfast.errors import A2AError

__all__ = ["decode", "encode", "read_error", "read_error_event", "reader"]

_ACCEPT_JSON = {"accept": "application/a2a+json, application/json"}
_ACCEPT_EVENTS = {"accept": f"{EVENT_STREAM}, application/a2a+json, application/json"}
_JSON_BODY = {"content-type": "application/a2a+json"}
_WITH_BODY = {**_JSON_BODY, **_ACCEPT_JSON}

P = TypeVar("P", bound=Request)
R = TypeVar("R")


def encode(operation: Operation[P, R], params: P, url: str, _request_id: str) -> Encoded:
    """Encode a call as a request.

    Members named in the path template are percent-encoded into it; the others go into the body of
    a POST, or into the query (A2A 11.5).

    Args:
        operation: The operation.
        params: Its parameters.
        url: Address of the interface; the operation's path is appended to its path.

    Raises:
        MalformedError: A member that the path needs is not set.
    """
    path, path_members = _fill(operation.path, params)
    tenant = f"/{_segment(params.tenant)}" if params.tenant else ""
    base = urlsplit(url)
    query, body = base.query, b""
    if operation.verb == "POST" and not path_members:
        body = codec.encode(params)
    else:
        document: dict[str, Any] = codec.to_builtins(params)
        members = {name: value for name, value in document.items() if name not in path_members}
        if operation.verb == "POST":
            body = codec.encode(members)
        else:
            members.pop("tenant", None)
            values = {name: _query_value(value) for name, value in members.items()}
            parameters = urlencode(values, errors="surrogatepass")
            query = "&".join(filter(None, (query, parameters)))
    headers = _WITH_BODY if body else _ACCEPT_JSON
    if operation.streaming:
        headers = {**_JSON_BODY, **_ACCEPT_EVENTS} if body else _ACCEPT_EVENTS
    full_path = f"{base.path.rstrip('/')}{tenant}{path}"
    return Encoded(
        method=operation.verb,
        url=urlunsplit((base.scheme, base.netloc, full_path, query, "")),
        headers=headers,
        body=body,
    )


def reader(operation: Operation[P, R], _request_id: str) -> Callable[[bytes], R | None]:
    """Make a fast reader of a stream's plain events.

    Args:
        operation: The operation that was called.

    Returns:
        A function that decodes an event's data; it returns None for data that only `decode`
        handles.
    """
    decoder = codec.decoder_of(operation.response).decode

    def read(data: bytes) -> R | None:
        if b'"error"' in data:
            return None
        try:
            return cast("R", decoder(data))
        except codec.UNREADABLE:
            return None

    return read


def decode(
    operation: Operation[P, R],
    _request_id: str,
    reply: HttpReply,
    *,
    now: float,
    refusals: frozenset[int] = status.REFUSALS,
) -> R:
    """Decode the reply of an operation, or one event of its stream.

    Args:
        operation: The operation that was called.
        reply: The HTTP reply, of any status and content.
        now: Wall time in seconds since the epoch.
        refusals: HTTP statuses that mean "not executed".

    Raises:
        A2AError: The agent's error, the error of the HTTP status, or `InvalidAgentResponseError`
            for a malformed reply.
    """
    if not 200 <= reply.status < 300:
        effective_refusals = status.refusals_around(_document(reply), refusals)
        if _holds_result(operation, reply):
            effective_refusals = frozenset[
                int
            ]()  # from the agent; something on the way changed the status
        raise read_error(reply, now=now, refusals=effective_refusals)
    if b'"error"' in reply.body:
        _raise_hidden_error(operation, reply, now=now)
    try:
        return codec.decode(reply.body or b"{}", operation.response)
    except codec.MalformedError as error:
        message = f"the reply to {operation.name} is not a {operation.response.__name__}: {error}"
        raise status.malformed_reply(message, reply) from None


def read_error_event(reply: HttpReply, *, now: float) -> A2AError:
    """Decode an event of type ``error``, in any of the forms that agents write.

    Args:
        reply: Reply whose body is the event's data.
        now: Wall time in seconds since the epoch.
    """
    members = _members(reply)
    error: Any = members.get("error", members)
    code = cast("dict[str, Any]", error).get("code") if isinstance(error, dict) else None
    status_code = code if isinstance(code, int) and 400 <= code < 600 else 500
    error_reply = HttpReply(status=status_code, headers=reply.headers, body=reply.body)
    a2a_error = read_error(error_reply, now=now, refusals=frozenset())
    a2a_error.http_status = reply.status
    if not members:
        a2a_error.message = f"the agent ended the stream with an error: {excerpt(reply.body)}"
    return a2a_error


def read_error(reply: HttpReply, *, now: float, refusals: frozenset[int]) -> A2AError:
    """Decode an unsuccessful reply, in any of the forms that agents write.

    Args:
        reply: The reply.
        now: Wall time in seconds since the epoch.
        refusals: HTTP statuses that mean "not executed".
    """
    members = _members(reply)
    error = members.get("error")
    a2a_error: A2AError | None = None
    if isinstance(error, dict):
        members = cast("dict[str, Any]", error)
        a2a_error = status.from_rest_status(members, reply, now=now, refusals=refusals)
    else:
        a2a_error = status.from_problem(members, reply, now=now)
        if a2a_error is None and "code" in members:
            a2a_error = status.from_rest_status(members, reply, now=now, refusals=refusals)
    return a2a_error or status.from_http_status(reply, now=now, refusals=refusals)


def _holds_result(operation: Operation[P, R], reply: HttpReply) -> bool:
    members, response = _members(reply), cast("Any", operation.response)
    return any(isinstance(members.get(n), dict) for n in response.__struct_encode_fields__)


def _raise_hidden_error(operation: Operation[P, R], reply: HttpReply, *, now: float) -> None:
    """Raise the JSON-RPC error that some agents send with HTTP 200 over HTTP+JSON too.

    A task with an extra member ``error`` is still a task.
    """
    members = _members(reply)
    error = members.get("error")
    response: Any = operation.response
    known_members = members.keys() & set(response.__struct_encode_fields__)
    if isinstance(error, dict) and ("jsonrpc" in members or not known_members):
        if operation.streaming:
            raise read_error_event(reply, now=now)
        raise status.from_rpc_error(error, reply, now=now)


def _document(reply: HttpReply) -> Any:
    try:
        return codec.parse(reply.body)
    except codec.MalformedError:
        return None


def _members(reply: HttpReply) -> dict[str, Any]:
    return codec.as_object(_document(reply)) or {}


def _fill(template: str, params: Request) -> tuple[str, set[str]]:
    """Put the named members into a path, and return their JSON names."""
    names: set[str] = set()
    path = template
    for name, wire_name in zip(
        params.__struct_fields__, params.__struct_encode_fields__, strict=True
    ):
        if f"{{{name}}}" in template:
            segment: str | None = getattr(params, name)
            if not segment:
                message = f"the request lacks {name}, which its path needs"
                raise codec.MalformedError(message)
            path = path.replace(f"{{{name}}}", _segment(segment))
            names.add(wire_name)
    return path, names


def _segment(value: str) -> str:
    """Encode a value so that it stays one path segment."""
    encoded = quote(value, safe="", errors="surrogatepass")
    # Proxies and servers would resolve a segment of dots (RFC 3986, 5.2.4).
    return encoded.replace(".", "%2E") if encoded in {".", ".."} else encoded


def _query_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
