"""The HTTP+JSON binding (A2A specification 11): calls to requests, replies to values or errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from holdfast._model import codec
from holdfast._wire import status
from holdfast._wire.http import Encoded, HttpReply, excerpt, harmless_headers
from holdfast._wire.sse import EVENT_STREAM
from holdfast.errors import A2AError, InvalidAgentResponseError
from holdfast.types import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._model.operations import Operation

__all__ = ["decode", "encode", "read_error", "read_error_event", "reader"]

_ACCEPT = {"accept": "application/a2a+json, application/json"}
_ACCEPT_EVENTS = {"accept": f"{EVENT_STREAM}, application/a2a+json, application/json"}
_BODY = {"content-type": "application/a2a+json"}
_WITH_BODY = {**_BODY, **_ACCEPT}

P = TypeVar("P", bound=Request)
R = TypeVar("R")


def encode(operation: Operation[P, R], params: P, url: str, _request_id: str) -> Encoded:
    """Makes the request of a call.

    Members named by the path go there, percent-encoded whole; the others go into the body of a
    POST, or into the query (A2A 11.5).

    Args:
        operation: What to call.
        params: Its parameters.
        url: The interface's address; the operation's path goes behind its own.

    Raises:
        MalformedError: A member that the path needs is not set.
    """
    path, in_path = _fill(operation.path, params)
    tenant = f"/{_segment(params.tenant)}" if params.tenant else ""
    base = urlsplit(url)
    query, body = base.query, b""
    if operation.verb == "POST" and not in_path:
        body = codec.encode(params)
    else:
        document: dict[str, Any] = codec.to_builtins(params)
        members = {name: value for name, value in document.items() if name not in in_path}
        if operation.verb == "POST":
            body = codec.encode(members)
        else:
            members.pop("tenant", None)
            values = {name: _query_value(value) for name, value in members.items()}
            extra = urlencode(values, errors="surrogatepass")
            query = "&".join(filter(None, (query, extra)))
    headers = _WITH_BODY if body else _ACCEPT
    if operation.streaming:
        headers = {**_BODY, **_ACCEPT_EVENTS} if body else _ACCEPT_EVENTS
    where = f"{base.path.rstrip('/')}{tenant}{path}"
    return Encoded(
        method=operation.verb,
        url=urlunsplit((base.scheme, base.netloc, where, query, "")),
        headers=headers,
        body=body,
    )


def reader(operation: Operation[P, R], _request_id: str) -> Callable[[bytes], R | None]:
    """Makes what reads the plain events of a stream, quickly.

    Args:
        operation: What was called.

    Returns:
        A function of an event's data: its value; None if `decode` has to say what it is.
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
    """Reads the reply of an operation, or an event of its stream.

    Args:
        operation: What was called.
        reply: The HTTP reply, of any status and content.
        now: Wall time in seconds since the epoch.
        refusals: HTTP statuses that are taken to mean "not executed".

    Raises:
        A2AError: The agent's error, the HTTP status's, or `InvalidAgentResponseError` for a reply
            that is not what it must be.
    """
    if not 200 <= reply.status < 300:
        around = status.refusals_around(_document(reply), refusals)
        if _holds_result(operation, reply):
            around = frozenset[int]()  # it did come from the agent, whatever changed the status
        raise read_error(reply, now=now, refusals=around)
    if b'"error"' in reply.body:
        _raise_hidden_error(operation, reply, now=now)
    try:
        return codec.decode(reply.body or b"{}", operation.response)
    except codec.MalformedError as error:
        what = f"the reply to {operation.name} is not a {operation.response.__name__}: {error}"
        raise InvalidAgentResponseError(
            what,
            http_status=reply.status,
            headers=harmless_headers(reply.headers),
            excerpt=excerpt(reply.body),
        ) from None


def read_error_event(reply: HttpReply, *, now: float) -> A2AError:
    """Reads an event that is named an error, in whatever form the agent writes it.

    Args:
        reply: With the event's data as its body.
        now: Wall time in seconds since the epoch.
    """
    members = _members(reply)
    error: Any = members.get("error", members)
    code = cast("dict[str, Any]", error).get("code") if isinstance(error, dict) else None
    status_code = code if isinstance(code, int) and 400 <= code < 600 else 500
    told = HttpReply(status=status_code, headers=reply.headers, body=reply.body)
    found = read_error(told, now=now, refusals=frozenset())
    found.http_status = reply.status
    if not members:
        found.message = f"the agent ended the stream with an error: {excerpt(reply.body)}"
    return found


def read_error(reply: HttpReply, *, now: float, refusals: frozenset[int]) -> A2AError:
    """Reads a reply that is no success, in whatever form its body tells of an error.

    Args:
        reply: The reply.
        now: Wall time in seconds since the epoch.
        refusals: HTTP statuses that are taken to mean "not executed".
    """
    members = _members(reply)
    error = members.get("error")
    found: A2AError | None = None
    if isinstance(error, dict):
        members = cast("dict[str, Any]", error)
        found = status.from_rest_status(members, reply, now=now, refusals=refusals)
    else:
        found = status.from_problem(members, reply, now=now)
        if found is None and "code" in members:
            found = status.from_rest_status(members, reply, now=now, refusals=refusals)
    return found or status.from_http_status(reply, now=now, refusals=refusals)


def _holds_result(operation: Operation[P, R], reply: HttpReply) -> bool:
    members, response = _members(reply), cast("Any", operation.response)
    return any(isinstance(members.get(n), dict) for n in response.__struct_encode_fields__)


def _raise_hidden_error(operation: Operation[P, R], reply: HttpReply, *, now: float) -> None:
    """Raises the JSON-RPC error that some agents send with HTTP 200 here, too.

    A task with a member ``error`` of the agent's own is a task all the same.
    """
    members = _members(reply)
    error = members.get("error")
    response: Any = operation.response
    says_something = members.keys() & set(response.__struct_encode_fields__)
    if isinstance(error, dict) and ("jsonrpc" in members or not says_something):
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
    """Puts the named members into a path, and tells their names on the wire."""
    names: set[str] = set()
    path = template
    for name, wire_name in zip(
        params.__struct_fields__, params.__struct_encode_fields__, strict=True
    ):
        if f"{{{name}}}" in template:
            value: str | None = getattr(params, name)
            if not value:
                message = f"the request lacks {name}, which its path needs"
                raise codec.MalformedError(message)
            path = path.replace(f"{{{name}}}", _segment(value))
            names.add(wire_name)
    return path, names


def _segment(value: str) -> str:
    """Encodes a value so that it stays one path segment, whatever it holds."""
    encoded = quote(value, safe="", errors="surrogatepass")
    # A segment of dots would be resolved away by everything on the path (RFC 3986, 5.2.4).
    return encoded.replace(".", "%2E") if encoded in {".", ".."} else encoded


def _query_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
