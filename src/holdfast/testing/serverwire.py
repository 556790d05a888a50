"""The agent's side of the bindings: reads requests, writes replies and errors, as real bytes.

It is written apart from the client's codecs on purpose: two readings of the specification that
have to agree.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from holdfast.model import codec
from holdfast.model.operations import OPERATIONS, Operation
from holdfast.wire.http import HttpReply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.wire.http import HttpRequest

__all__ = ["CARD", "Refusal", "Wire", "read_request"]

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
    -32602: ("INVALID_PARAMS", 400, "INVALID_ARGUMENT"),
    -32603: ("INTERNAL", 500, "INTERNAL"),
}


class Refusal(Exception):  # noqa: N818  a word of this module, not an error that anybody sees
    """The agent says no.

    Args:
        code: The JSON-RPC code.
        message: What it says.
        http_status: A status to send without an A2A error in the body; None for the ordinary way.
        metadata: For the error's `google.rpc.ErrorInfo`.
        data: ``error.data`` in place of typed details.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        http_status: int | None = None,
        metadata: Mapping[str, str] | None = None,
        data: Any = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.http_status = http_status
        self.metadata = dict(metadata or {})
        self.data = data


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
        return Wire(self.operation, refusal, rpc_id=self._rpc_id, is_rpc=self._is_rpc)

    def params(self) -> Any:
        """The parameters, as the operation's request type.

        Raises:
            Refusal: They are not.
        """
        if isinstance(self._params, Refusal):
            raise self._params
        operation = _BY_NAME.get(self.operation)
        if operation is None:
            raise Refusal(-32601, "method not found", http_status=None if self._is_rpc else 404)
        try:
            return codec.from_builtins(self._params, operation.request)
        except codec.MalformedError as error:
            raise Refusal(-32602, f"invalid params: {error}") from None

    def answer(self, value: Any) -> HttpReply:
        """A reply with a result."""
        if self._is_rpc:
            envelope = {"jsonrpc": "2.0", "id": self._rpc_id, "result": value}
            return _json(200, envelope)
        kind = "application/json" if self.operation == CARD else "application/a2a+json"
        return _json(200, value, kind)

    def refuse(self, refusal: Refusal) -> HttpReply:
        """A reply with an error."""
        if refusal.http_status is not None:
            headers = {"www-authenticate": "Bearer"} if refusal.http_status == 401 else {}
            reply = _json(refusal.http_status, {"detail": refusal.message})
            return msgspec.structs.replace(reply, headers={**reply.headers, **headers})
        reason, http_status, grpc_status = _REASONS.get(refusal.code, (None, 400, "UNKNOWN"))
        info = {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason,
            "domain": "a2a-protocol.org",
            "metadata": refusal.metadata,
        }
        details = [] if reason is None else [info]
        if self._is_rpc:
            data = details if refusal.data is None else refusal.data
            error = {"code": refusal.code, "message": refusal.message, "data": data}
            return _json(200, {"jsonrpc": "2.0", "id": self._rpc_id, "error": error})
        error = {
            "code": http_status,
            "status": grpc_status,
            "message": refusal.message,
            "details": details,
        }
        return _json(http_status, {"error": error})


def read_request(request: HttpRequest) -> Wire:
    """Finds out what a request asks for."""
    parts = urlsplit(request.url)
    if request.method == "GET" and parts.path.startswith("/.well-known/"):
        return Wire(CARD if parts.path.endswith("/agent-card.json") else "", None)
    if parts.path.startswith("/rpc"):
        return _with_version(_read_rpc(request), request)
    return _with_version(_read_rest(request, parts.path.removeprefix("/rest")), request)


def _with_version(wire: Wire, request: HttpRequest) -> Wire:
    version = request.headers.get("a2a-version", "")
    if version.startswith("1."):
        return wire
    return wire.refusing(Refusal(-32009, f"version {version or '0.3'} is not supported"))


def _read_rpc(request: HttpRequest) -> Wire:
    try:
        document = codec.parse(request.body)
    except codec.MalformedError as error:
        return Wire("", Refusal(-32700, str(error)), is_rpc=True)
    if not isinstance(document, dict):
        return Wire("", Refusal(-32600, "not a request"), is_rpc=True)
    members = cast("dict[str, Any]", document)
    method = members.get("method")
    if members.get("jsonrpc") != "2.0" or not isinstance(method, str):
        return Wire("", Refusal(-32600, "not a request"), rpc_id=members.get("id"), is_rpc=True)
    params = members.get("params", {})
    return Wire(method, params, rpc_id=members.get("id"), is_rpc=True)


def _pattern(operation: Operation[Any, Any]) -> re.Pattern[str]:
    literal = re.escape(operation.path)
    return re.compile(
        r"(?:/(?P<tenant>[^/]+))?" + re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+?)", literal)
    )


_ROUTES = [(operation, _pattern(operation)) for operation in OPERATIONS]
_WIRE_NAMES = {"task_id": "taskId"}
_INTEGERS = frozenset({"historyLength", "pageSize"})


def _read_rest(request: HttpRequest, path: str) -> Wire:
    for operation, pattern in _ROUTES:
        match = pattern.fullmatch(path)
        if operation.verb != request.method or match is None:
            continue
        params: dict[str, Any] = {}
        if request.body:
            try:
                params = codec.parse(request.body)
            except codec.MalformedError as error:
                return Wire(operation.name, Refusal(-32602, str(error)))
        for name, value in parse_qsl(urlsplit(request.url).query, keep_blank_values=True):
            params[name] = _query_value(name, value)
        for name, value in match.groupdict().items():
            if value is not None:
                params[_WIRE_NAMES.get(name, name)] = unquote(value)
        return Wire(operation.name, params)
    return Wire("", {})


def _query_value(name: str, value: str) -> Any:
    if name in _INTEGERS:
        return int(value)
    return {"true": True, "false": False}.get(value, value)


def _json(status: int, value: Any, kind: str = "application/json") -> HttpReply:
    return HttpReply(status=status, headers={"content-type": kind}, body=codec.encode(value))
