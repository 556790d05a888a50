"""The agent's side of the bindings: reads requests, writes replies and errors, as real bytes.

It is written apart from the client's codecs on purpose: two readings of the specification that
have to agree.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from holdfast.model import codec
from holdfast.model.operations import OPERATIONS, SUBSCRIBE_TO_TASK, Operation
from holdfast.model.requests import Empty
from holdfast.wire.http import HttpReply

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.testing.streams import Streaming
    from holdfast.wire.http import HttpRequest

__all__ = ["CARD", "Refusal", "Wire", "json_reply", "plain_reply", "read_request"]

CARD = "GetAgentCard"

_BY_NAME = {operation.name: operation for operation in OPERATIONS}

_REASONS = {
    -32001: ("TASK_NOT_FOUND", 404, "NOT_FOUND"),
    -32002: ("TASK_NOT_CANCELABLE", 400, "FAILED_PRECONDITION"),
    -32003: ("PUSH_NOTIFICATION_NOT_SUPPORTED", 400, "FAILED_PRECONDITION"),
    -32004: ("UNSUPPORTED_OPERATION", 400, "FAILED_PRECONDITION"),
    -32005: ("CONTENT_TYPE_NOT_SUPPORTED", 400, "INVALID_ARGUMENT"),
    -32006: ("INVALID_AGENT_RESPONSE", 500, "INTERNAL"),
    -32007: ("EXTENDED_AGENT_CARD_NOT_CONFIGURED", 400, "FAILED_PRECONDITION"),
    -32008: ("EXTENSION_SUPPORT_REQUIRED", 400, "FAILED_PRECONDITION"),
    -32009: ("VERSION_NOT_SUPPORTED", 400, "FAILED_PRECONDITION"),
    -32600: ("INVALID_REQUEST", 400, "INVALID_ARGUMENT"),
    -32602: ("INVALID_PARAMS", 400, "INVALID_ARGUMENT"),
    -32603: (None, 500, "INTERNAL"),
}
"""By code: reason of the `google.rpc.ErrorInfo`, HTTP status, gRPC status (A2A 5.4, 11.6)."""

_UNKNOWN = (None, 400, "UNKNOWN")
_TYPES = "type.googleapis.com/google.rpc."


class Refusal(Exception):  # noqa: N818  a word of this module, not an error that anybody sees
    """The agent says no.

    Args:
        code: The JSON-RPC code.
        message: What it says.
        http_status: A status to send without an A2A error in the body; None for the ordinary way.
        metadata: For the error's `google.rpc.ErrorInfo`.
        retry_after: Seconds for a `google.rpc.RetryInfo`; None for none.
        data: ``error.data`` in place of typed details.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        http_status: int | None = None,
        metadata: Mapping[str, str] | None = None,
        retry_after: float | None = None,
        data: Any = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.http_status = http_status
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after
        self.data = data

    def details(self) -> list[dict[str, Any]]:
        """The typed details of the error."""
        found: list[dict[str, Any]] = []
        reason = _REASONS.get(self.code, _UNKNOWN)[0]
        if reason is not None:
            info = {"reason": reason, "domain": "a2a-protocol.org", "metadata": self.metadata}
            found.append({"@type": f"{_TYPES}ErrorInfo", **info})
        if self.retry_after is not None:
            delay = f"{self.retry_after:g}s"
            found.append({"@type": f"{_TYPES}RetryInfo", "retryDelay": delay})
        return found


class Wire:
    """One request as read, and how to answer it in its own binding.

    Attributes:
        operation: Name of the operation, `CARD`, or empty for what is neither.
    """

    def __init__(
        self, operation: str, params: Any, *, rpc_id: Any = None, is_rpc: bool = False
    ) -> None:
        self.operation = operation
        self._params = params
        self._rpc_id = rpc_id
        self._is_rpc = is_rpc

    def refusing(self, refusal: Refusal) -> Wire:
        """The same request, to be refused as soon as its parameters are asked for."""
        return type(self)(self.operation, refusal, rpc_id=self._rpc_id, is_rpc=self._is_rpc)

    def params(self) -> Any:
        """The parameters, as the operation's request type.

        Raises:
            Refusal: They are not.
        """
        if isinstance(self._params, Refusal):
            raise self._params
        return self.read(self._params)

    def read(self, params: Any) -> Any:
        """Parameters in the words of 1.0 as the operation's request type.

        Raises:
            Refusal: They are not.
        """
        try:
            return codec.from_builtins(params, _BY_NAME[self.operation].request)
        except codec.MalformedError as error:
            raise Refusal(-32602, f"Invalid params: {error}") from None

    def answer(self, value: Any) -> HttpReply:
        """A reply with a result."""
        if self._is_rpc:
            result = None if isinstance(value, Empty) else value
            return json_reply(200, {"jsonrpc": "2.0", "id": self._rpc_id, "result": result})
        kind = "application/json" if self.operation == CARD else "application/a2a+json"
        return json_reply(200, value, kind)

    def refuse(self, refusal: Refusal) -> HttpReply:
        """A reply with an error."""
        if refusal.http_status is not None:
            return plain_reply(refusal.http_status, refusal.message)
        details = refusal.details()
        error: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
        if self._is_rpc:
            data = details if refusal.data is None else refusal.data
            if data:
                error["data"] = data
            return json_reply(200, {"jsonrpc": "2.0", "id": self._rpc_id, "error": error})
        _, error["code"], error["status"] = _REASONS.get(refusal.code, _UNKNOWN)
        if details:
            error["details"] = details
        return json_reply(error["code"], {"error": error})


def read_request(
    request: HttpRequest, streaming: Streaming, versions: Collection[str] = ("1.0",)
) -> Wire:
    """Finds out what a request asks for.

    Args:
        request: The request.
        streaming: By which methods a subscription is taken.
        versions: The versions of the protocol that are spoken.
    """
    path = urlsplit(request.url).path
    if request.method == "GET" and path.endswith("/.well-known/agent-card.json"):
        return Wire(CARD, None)
    is_rpc = path == "/rpc" or path.startswith("/rpc/")
    if "0.3" in versions:
        wire = _read(request, path, streaming, _older(), is_rpc=is_rpc)
        if wire.operation or "1.0" not in versions:
            return wire
    return _with_version(_read(request, path, streaming, _SPOKEN, is_rpc=is_rpc), request)


class _Spoken(NamedTuple):
    """A version of the protocol.

    Attributes:
        wire: How its requests are read and answered.
        methods: Operations by JSON-RPC method.
        routes: Operations and the patterns of their paths.
    """

    wire: type[Wire]
    methods: Mapping[str, Operation[Any, Any]]
    routes: Sequence[tuple[Operation[Any, Any], re.Pattern[str]]]


def _older() -> _Spoken:
    from holdfast.testing.olderwire import LACKING, OlderWire  # which is made of what is here

    known = [operation for operation in OPERATIONS if operation.name not in LACKING]
    return _Spoken(
        OlderWire,
        {operation.method_v03: operation for operation in known},
        [(operation, _pattern(operation.path_v03)) for operation in known],
    )


def _read(
    request: HttpRequest, path: str, streaming: Streaming, spoken: _Spoken, *, is_rpc: bool
) -> Wire:
    if is_rpc:
        return _read_rpc(request, spoken)
    return _read_rest(request, path.removeprefix("/rest"), streaming, spoken)


def _with_version(wire: Wire, request: HttpRequest) -> Wire:
    version = request.headers.get("a2a-version") or "0.3"
    if version.partition(".")[0] == "1" or not wire.operation:
        return wire
    said = f"A2A version {version!r} is not supported by this handler. Expected version '1.0'."
    return wire.refusing(Refusal(-32009, said))


def _read_rpc(request: HttpRequest, spoken: _Spoken) -> Wire:
    kind = spoken.wire
    try:
        document = codec.parse(request.body)
    except codec.MalformedError as error:
        return kind("", Refusal(-32700, str(error)), is_rpc=True)
    members = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    rpc_id, method = members.get("id"), members.get("method")
    if members.get("jsonrpc") != "2.0" or not isinstance(method, str):
        return kind("", Refusal(-32600, "Invalid Request"), rpc_id=rpc_id, is_rpc=True)
    operation = spoken.methods.get(method)
    if operation is None:
        return kind("", Refusal(-32601, "Method not found"), rpc_id=rpc_id, is_rpc=True)
    return kind(operation.name, members.get("params", {}), rpc_id=rpc_id, is_rpc=True)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+?)", re.escape(path)))


_TENANT = r"(?:/(?P<tenant>[^/]+))?"
_SPOKEN = _Spoken(
    Wire,
    _BY_NAME,
    [
        (operation, re.compile(_TENANT + _pattern(operation.path).pattern))
        for operation in OPERATIONS
    ],
)
_WIRE_NAMES = {
    "task_id": "taskId",
    "push_notification_config_id": "pushNotificationConfigId",
}


def _read_rest(request: HttpRequest, path: str, streaming: Streaming, spoken: _Spoken) -> Wire:
    kind, routes = spoken.wire, spoken.routes
    subscription = next(pattern for each, pattern in routes if each is SUBSCRIBE_TO_TASK)
    match = subscription.fullmatch(path)  # first: the id of GET /tasks/{id} may be anything
    if match is not None:
        if request.method not in streaming.verbs:
            return _no_route(streaming.other_verb, kind)
        return _routed(SUBSCRIBE_TO_TASK, match, request, kind)
    known = False
    for operation, pattern in routes:
        match = pattern.fullmatch(path)
        known = known or match is not None
        if operation.verb == request.method and match is not None:
            return _routed(operation, match, request, kind)
    return _no_route(405 if known else 404, kind)


def _routed(
    operation: Operation[Any, Any],
    match: re.Match[str],
    request: HttpRequest,
    kind: type[Wire],
) -> Wire:
    try:
        params = _rest_params(request)
    except codec.MalformedError as error:
        return kind(operation.name, Refusal(-32600, f"Failed to load JSON: {error}"))
    for name, value in match.groupdict().items():
        if value is not None:
            params[_WIRE_NAMES.get(name, name)] = unquote(value)
    return kind(operation.name, params)


def _no_route(status: int, kind: type[Wire]) -> Wire:
    phrase = HTTPStatus(status).phrase
    return kind("", Refusal(-32601, phrase, http_status=status))


def _rest_params(request: HttpRequest) -> dict[str, Any]:
    document: Any = codec.parse(request.body) if request.body else {}
    params = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    # All text; the codec reads numbers and booleans from it.
    params.update(parse_qsl(urlsplit(request.url).query, keep_blank_values=True))
    return params


def json_reply(status: int, value: Any, kind: str = "application/json") -> HttpReply:
    """A reply with JSON."""
    return HttpReply(status=status, headers={"content-type": kind}, body=codec.encode(value))


def plain_reply(status: int, text: str) -> HttpReply:
    """What frameworks answer before the agent is asked."""
    if status == 401:
        reply = json_reply(status, {"error": text})
        headers = {**reply.headers, "www-authenticate": "Bearer"}
        return msgspec.structs.replace(reply, headers=headers)
    headers = {"content-type": "text/plain; charset=utf-8"}
    return HttpReply(status=status, headers=headers, body=text.encode())
