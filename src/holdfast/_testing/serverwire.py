"""The agent's side of the bindings: a request as it was read, and its reply or error, as bytes.

It is written apart from the client's codecs on purpose: two readings of the specification that
have to agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._model import codec
from holdfast._model.operations import OPERATIONS
from holdfast._wire.http import HttpReply
from holdfast.types import Empty

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CARD", "Refusal", "Wire", "json_reply", "plain_reply"]

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
