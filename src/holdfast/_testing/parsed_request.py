"""The agent's side of the bindings: parsed requests, and their replies and errors as bytes.

It does not use the client's codecs on purpose: these are two implementations of the specification
that must agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._model import codec
from holdfast.extend import HttpReply
from holdfast.protocol import OPERATIONS
from holdfast.types import Empty

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CARD", "ParsedRequest", "Refusal", "json_reply", "plain_reply"]

CARD = "GetAgentCard"


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


class Refusal(Exception):  # noqa: N818  internal: it becomes a reply
    """The agent answers with an error.

    Args:
        code: The JSON-RPC code.
        message: The error's message.
        http_status: A status to send without an A2A error in the body; None for an A2A error.
        metadata: The metadata of the `google.rpc.ErrorInfo`.
        retry_after: Seconds for a `google.rpc.RetryInfo`; None for none.
        data: ``error.data`` instead of typed details; None for typed details.
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
        """Return the typed details of the error."""
        details: list[dict[str, Any]] = []
        reason = _REASONS.get(self.code, _UNKNOWN)[0]
        if reason is not None:
            info = {"reason": reason, "domain": "a2a-protocol.org", "metadata": self.metadata}
            details.append({"@type": f"{_TYPES}ErrorInfo", **info})
        if self.retry_after is not None:
            delay = f"{self.retry_after:g}s"
            details.append({"@type": f"{_TYPES}RetryInfo", "retryDelay": delay})
        return details


class ParsedRequest:
    """A parsed request, and the encoding of its reply in its binding.

    Attributes:
        operation: Name of the operation, `CARD`, or empty for any other request.
    """

    def __init__(
        self, operation: str, params: Any, *, rpc_id: Any = None, is_rpc: bool = False
    ) -> None:
        self.operation = operation
        self._params = params
        self._rpc_id = rpc_id
        self._is_rpc = is_rpc

    def refusing(self, refusal: Refusal) -> ParsedRequest:
        """Return the same request, whose `params` raises a refusal."""
        return type(self)(self.operation, refusal, rpc_id=self._rpc_id, is_rpc=self._is_rpc)

    def params(self) -> Any:
        """Return the parameters, as the operation's request type.

        Raises:
            Refusal: They are not valid.
        """
        if isinstance(self._params, Refusal):
            raise self._params
        return self.read(self._params)

    def read(self, params: Any) -> Any:
        """Convert parameters in the form of 1.0 to the operation's request type.

        Raises:
            Refusal: They are not valid.
        """
        try:
            return codec.from_builtins(params, OPERATIONS[self.operation].request)
        except codec.MalformedError as error:
            raise Refusal(-32602, f"Invalid params: {error}") from None

    def answer(self, value: Any) -> HttpReply:
        """Return a reply with a result."""
        if self._is_rpc:
            result = None if isinstance(value, Empty) else value
            return json_reply(200, {"jsonrpc": "2.0", "id": self._rpc_id, "result": result})
        kind = "application/json" if self.operation == CARD else "application/a2a+json"
        return json_reply(200, value, kind)

    def refuse(self, refusal: Refusal) -> HttpReply:
        """Return a reply with an error."""
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


def json_reply(status: int, value: Any, kind: str = "application/json") -> HttpReply:
    """Return a reply with a JSON body."""
    return HttpReply(status=status, headers={"content-type": kind}, body=codec.encode(value))


def plain_reply(status: int, text: str) -> HttpReply:
    """Return a reply as frameworks send it before the agent gets the request."""
    if status == 401:
        reply = json_reply(status, {"error": text})
        headers = {**reply.headers, "www-authenticate": "Bearer"}
        return msgspec.structs.replace(reply, headers=headers)
    headers = {"content-type": "text/plain; charset=utf-8"}
    return HttpReply(status=status, headers=headers, body=text.encode())
