"""What an error response needs of its request: the binding, and the JSON-RPC id.

Only what the application reads is read, until there is an error to answer; then no more than the
beginning of the body.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from holdfast._aio.cancel_scope import CancelScope
from holdfast._asgi import header_map
from holdfast._model.error_values import int64

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from holdfast._asgi import ASGIReceive, ASGIScope

__all__ = ["TappedRequest"]

_MAX_KEPT_BYTES = 256 * 1024
"""Bytes of a body that are kept while the application reads it."""

_READ_TIMEOUT_S = 5.0
"""Seconds to read the rest of those, if the application did not."""

_RECEIVED_TIMEOUT_S = 0.2
"""Seconds to take what the server has received already."""

_ID = re.compile(r"[\w.:+/=-]{1,128}", re.ASCII)
_SEPARATORS = re.compile(r"[\s,:]*")


class TappedRequest:
    """Passes a request on to the application, and keeps the beginning of its body.

    Args:
        scope: The request's scope.
        receive: The request's ``receive``.

    Attributes:
        headers: The request's headers; names in lower case.
        is_gone: Whether the client has left.
        is_slow: Whether reading the rest of the body has timed out.
    """

    def __init__(self, scope: ASGIScope, receive: ASGIReceive) -> None:
        self.headers = header_map(scope.get("headers") or ())
        self.is_gone = False
        self.is_slow = False
        self._scope = scope
        self._receive = receive
        self._body = bytearray()
        self._has_more = True

    @property
    def method(self) -> str:
        """The HTTP method."""
        return str(self._scope.get("method", ""))

    @property
    def path(self) -> str:
        """The path, decoded."""
        return str(self._scope.get("path", ""))

    @property
    def id(self) -> str | None:
        """The request id of the ``X-Request-ID`` header; None if it is missing or not valid."""
        value = self.headers.get("x-request-id", "")
        return value if _ID.fullmatch(value) else None

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next message for the application."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.is_gone = True
        elif message["type"] == "http.request":
            self._body += message.get("body", b"")[: _MAX_KEPT_BYTES - len(self._body)]
            self._has_more = bool(message.get("more_body", False))
        return message

    async def rpc_id(self, *, from_received: bool = False) -> tuple[bool, Any]:
        """Return whether the request is JSON-RPC, and its ``id`` (JSON-RPC 2.0, 5).

        The id is None if it cannot be read.

        Args:
            from_received: Whether to read no more of the body than what has been received; for
                a request that is refused before its body is read.
        """
        if self.method != "POST":
            return False, None
        seconds = _RECEIVED_TIMEOUT_S if from_received else _READ_TIMEOUT_S
        async with CancelScope.within(seconds) as scope:
            while self._needs_more() and not (from_received and self._body):
                await self.receive()
        if scope.expired:
            self.is_slow = True  # read the id from what was received
        members = _leading_members(bytes(self._body).decode("utf-8-sig", "replace"))
        rpc_id = members.get("id")
        if not isinstance(rpc_id, str):
            rpc_id = int64(rpc_id)  # an id should not have a fraction (JSON-RPC 2.0, 4)
        return not members.keys().isdisjoint({"jsonrpc", "method"}), rpc_id

    def _needs_more(self) -> bool:
        has_enough = not self._has_more or len(self._body) >= _MAX_KEPT_BYTES
        return not (has_enough or self.is_gone or self.is_slow)


def _leading_members(text: str) -> dict[str, Any]:
    """Return the members of a JSON object that may be cut off; empty if it is not an object."""
    members: dict[str, Any] = {}
    start = text.find("{")
    if start < 0 or text[:start].strip():
        return {}
    decode = json.JSONDecoder().raw_decode
    offset = start + 1
    try:
        while True:
            name, offset = decode(text, _skip_separators(text, offset))
            value, offset = decode(text, _skip_separators(text, offset))
            if not isinstance(name, str):
                return {}
            members[name] = value
    except (ValueError, RecursionError):
        return members  # the end of the object, or of the text


def _skip_separators(text: str, offset: int) -> int:
    match = _SEPARATORS.match(text, offset)
    return offset if match is None else match.end()
