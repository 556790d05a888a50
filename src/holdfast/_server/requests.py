"""A request as far as an error has to know it: in which binding it is, and under which id.

Nothing is read that the application does not read itself, until there is an error to answer; and
then no more than the beginning.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from holdfast._aio.cancel_scope import CancelScope
from holdfast._model.error_values import int64

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

    from holdfast._push.asgi import ASGIReceive, ASGIScope

__all__ = ["TappedRequest", "by_name"]

_KEPT = 256 * 1024
"""Bytes of a body that are kept while the application reads it."""

_READING = 5.0
"""Seconds that the rest of those may take, where the application did not read them."""

_GLANCING = 0.2
"""Seconds that the first of them may take, where they are not to be read."""

_ID = re.compile(r"[\w.:+/=-]{1,128}", re.ASCII)
_SPACE = re.compile(r"[\s,:]*")


class TappedRequest:
    """Hands a request to the application, and keeps the beginning of its body.

    Args:
        scope: Of the request.
        receive: Where its body comes from.

    Attributes:
        headers: Names in lower case.
        is_gone: Whether the client has left.
        is_slow: Whether nobody waits for the rest of it any more.
    """

    def __init__(self, scope: ASGIScope, receive: ASGIReceive) -> None:
        self.headers = by_name(scope.get("headers") or ())
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
        """The id that the caller gave it in ``X-Request-ID``, if it can be one."""
        named = self.headers.get("x-request-id", "")
        return named if _ID.fullmatch(named) else None

    async def receive(self) -> MutableMapping[str, Any]:
        """The next message, for the application."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.is_gone = True
        elif message["type"] == "http.request":
            self._body += message.get("body", b"")[: _KEPT - len(self._body)]
            self._has_more = bool(message.get("more_body", False))
        return message

    async def rpc_id(self, *, glance: bool = False) -> tuple[bool, Any]:
        """Whether it is JSON-RPC, and the ``id`` to answer to (JSON-RPC 2.0, 5).

        The id is None where it could not be told.

        Args:
            glance: Whether to look at no more of a body than what is there already: so it is of
                a request that was refused by its head.
        """
        if self.method != "POST":
            return False, None
        async with CancelScope.within(_GLANCING if glance else _READING) as scope:
            while self._is_wanting() and not (glance and self._body):
                await self.receive()
        if scope.expired:
            self.is_slow = True  # what there is has to do
        members = _members(bytes(self._body).decode("utf-8-sig", "replace")) or {}
        rpc_id = members.get("id")
        if not isinstance(rpc_id, str):
            rpc_id = int64(rpc_id)  # fractions are not to be used (JSON-RPC 2.0, 4)
        return not members.keys().isdisjoint({"jsonrpc", "method"}), rpc_id

    def _is_wanting(self) -> bool:
        has_enough = not self._has_more or len(self._body) >= _KEPT
        return not (has_enough or self.is_gone or self.is_slow)


def by_name(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers of a request or response, names in lower case; of several the last one."""
    return {n.decode("latin-1").lower(): v.decode("latin-1").strip() for n, v in headers}


def _members(text: str) -> dict[str, Any] | None:
    """The members of the object that a text is, or begins to be; None if it is none."""
    found: dict[str, Any] = {}
    start = text.find("{")
    if start < 0 or text[:start].strip():
        return None
    read = json.JSONDecoder().raw_decode
    at = start + 1
    try:
        while True:
            name, at = read(text, _after_space(text, at))
            value, at = read(text, _after_space(text, at))
            if not isinstance(name, str):
                return None
            found[name] = value
    except (ValueError, RecursionError):
        return found or None  # the end of the object, or of what was kept


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
