"""Parsing requests: the operation, in each protocol version and over each binding."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast._model import codec
from holdfast._testing.parsed_request import CARD, ParsedRequest, Refusal
from holdfast._testing.parsed_request_v03 import (
    UNSUPPORTED_V03_OPERATIONS,
    V03BytesParsedRequest,
    V03FileEncoding,
    V03ParsedRequest,
)
from holdfast.protocol import OPERATIONS, SUBSCRIBE_TO_TASK, Operation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast._testing.streaming import Streaming
    from holdfast.extend import HttpRequest

__all__ = ["read_request"]


def read_request(
    request: HttpRequest,
    streaming: Streaming,
    versions: Collection[str] = ("1.0",),
    *,
    v03_file_encoding: V03FileEncoding = "base64",
) -> ParsedRequest:
    """Parse a request.

    Args:
        request: The request.
        streaming: The HTTP methods that a subscription may use.
        versions: The protocol versions that the agent speaks.
        v03_file_encoding: The form of files over HTTP+JSON in 0.3.
    """
    path = urlsplit(request.url).path
    if request.method == "GET" and path.endswith("/.well-known/agent-card.json"):
        return ParsedRequest(CARD, None)
    is_rpc = path == "/rpc" or path.startswith("/rpc/")
    if "0.3" in versions:
        routes_of_version = _ROUTES_V03
        if v03_file_encoding == "bytes":
            routes_of_version = routes_of_version._replace(request_type=V03BytesParsedRequest)
        parsed = _read(request, path, streaming, routes_of_version, is_rpc=is_rpc)
        if parsed.operation or "1.0" not in versions:
            return parsed
    return _with_version(_read(request, path, streaming, _ROUTES, is_rpc=is_rpc), request)


class _VersionRoutes(NamedTuple):
    """The routes of a protocol version.

    Attributes:
        request_type: Reads its requests and writes its replies.
        methods: Operations by JSON-RPC method.
        routes: Operations, with the patterns of their paths.
    """

    request_type: type[ParsedRequest]
    methods: Mapping[str, Operation[Any, Any]]
    routes: Sequence[tuple[Operation[Any, Any], re.Pattern[str]]]


def _read(
    request: HttpRequest,
    path: str,
    streaming: Streaming,
    routes_of_version: _VersionRoutes,
    *,
    is_rpc: bool,
) -> ParsedRequest:
    if is_rpc:
        return _read_rpc(request, routes_of_version)
    return _read_rest(request, path.removeprefix("/rest"), streaming, routes_of_version)


def _with_version(parsed: ParsedRequest, request: HttpRequest) -> ParsedRequest:
    version = request.headers.get("a2a-version") or "0.3"
    if version.partition(".")[0] == "1" or not parsed.operation:
        return parsed
    text = f"A2A version {version!r} is not supported by this handler. Expected version '1.0'."
    return parsed.refusing(Refusal(-32009, text))


def _read_rpc(request: HttpRequest, routes_of_version: _VersionRoutes) -> ParsedRequest:
    kind = routes_of_version.request_type
    try:
        document = codec.parse(request.body)
    except codec.MalformedError as error:
        return kind("", Refusal(-32700, str(error)), is_rpc=True)
    members = codec.as_object(document) or {}
    rpc_id, method = members.get("id"), members.get("method")
    if members.get("jsonrpc") != "2.0" or not isinstance(method, str):
        return kind("", Refusal(-32600, "Invalid Request"), rpc_id=rpc_id, is_rpc=True)
    operation = routes_of_version.methods.get(method)
    if operation is None:
        return kind("", Refusal(-32601, "Method not found"), rpc_id=rpc_id, is_rpc=True)
    return kind(operation.name, members.get("params", {}), rpc_id=rpc_id, is_rpc=True)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+?)", re.escape(path)))


_TENANT = r"(?:/(?P<tenant>[^/]+))?"
_ROUTES = _VersionRoutes(
    ParsedRequest,
    OPERATIONS,
    [
        (operation, re.compile(_TENANT + _pattern(operation.path).pattern))
        for operation in OPERATIONS.values()
    ],
)
_OPERATIONS_V03 = [
    operation
    for operation in OPERATIONS.values()
    if operation.name not in UNSUPPORTED_V03_OPERATIONS
]
_ROUTES_V03 = _VersionRoutes(
    V03ParsedRequest,
    {operation.method_v03: operation for operation in _OPERATIONS_V03},
    [(operation, _pattern(operation.path_v03)) for operation in _OPERATIONS_V03],
)
_WIRE_NAMES = {
    "task_id": "taskId",
    "push_notification_config_id": "pushNotificationConfigId",
}


def _read_rest(
    request: HttpRequest, path: str, streaming: Streaming, routes_of_version: _VersionRoutes
) -> ParsedRequest:
    kind, routes = routes_of_version.request_type, routes_of_version.routes
    subscription = next(pattern for operation, pattern in routes if operation is SUBSCRIBE_TO_TASK)
    match = subscription.fullmatch(path)  # first: the id of GET /tasks/{id} may be anything
    if match is not None:
        if request.method not in streaming.verbs:
            return _no_route(streaming.other_verb, kind)
        return _routed(SUBSCRIBE_TO_TASK, match, request, kind)
    is_known_path = False
    for operation, pattern in routes:
        match = pattern.fullmatch(path)
        is_known_path = is_known_path or match is not None
        if operation.verb == request.method and match is not None:
            return _routed(operation, match, request, kind)
    return _no_route(405 if is_known_path else 404, kind)


def _routed(
    operation: Operation[Any, Any],
    match: re.Match[str],
    request: HttpRequest,
    kind: type[ParsedRequest],
) -> ParsedRequest:
    try:
        params = _rest_params(request)
    except codec.MalformedError as error:
        return kind(operation.name, Refusal(-32600, f"Failed to load JSON: {error}"))
    for name, value in match.groupdict().items():
        if value is not None:
            params[_WIRE_NAMES.get(name, name)] = unquote(value)
    return kind(operation.name, params)


def _no_route(status: int, kind: type[ParsedRequest]) -> ParsedRequest:
    phrase = HTTPStatus(status).phrase
    return kind("", Refusal(-32601, phrase, http_status=status))


def _rest_params(request: HttpRequest) -> dict[str, Any]:
    document: Any = codec.parse(request.body) if request.body else {}
    params = codec.as_object(document) or {}
    # All values are text; the codec converts them to numbers and booleans.
    params.update(parse_qsl(urlsplit(request.url).query, keep_blank_values=True))
    return params
