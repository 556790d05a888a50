"""Credentials: where they come from. What is done with them is `holdfast.runtime.layers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from holdfast.runtime.layers import AuthProvider

if TYPE_CHECKING:
    from holdfast.errors import AuthenticationError
    from holdfast.runtime.transport import AnyCall

__all__ = ["AuthProvider", "StaticAuth", "to_provider"]


class StaticAuth:
    """Credentials that never change.

    Args:
        headers: The headers that carry them.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = dict(headers)

    async def headers(self, _call: AnyCall, /) -> dict[str, str]:
        """The same headers for each attempt."""
        return self._headers

    async def on_unauthorized(self, _error: AuthenticationError, /) -> bool:
        """There are no others to try."""
        return False

    def __repr__(self) -> str:
        return f"StaticAuth({', '.join(self._headers)})"  # names only: the values are secret


def to_provider(auth: str | Mapping[str, str] | AuthProvider | None) -> AuthProvider | None:
    """Reads what a caller passes as ``auth=``.

    Args:
        auth: A value for ``Authorization``, such as ``"Bearer …"``; headers; or a provider.

    Raises:
        ValueError: A header that HTTP does not allow.
        TypeError: It is none of these.
    """
    match auth:
        case None:
            return None
        case str():
            return StaticAuth(check_headers({"authorization": auth}))
        case Mapping():
            return StaticAuth(check_headers(auth))
        case _ if hasattr(auth, "headers") and hasattr(auth, "on_unauthorized"):
            return auth
        case _:
            text = f"auth is a header value, headers or an AuthProvider, not {type(auth).__name__}"
            raise TypeError(text)


_FRAMING = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "transfer-encoding",
        "upgrade",
    }
)
"""What belongs to one connection (RFC 9110, 7.6.1) or frames a request on it."""


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Checks headers that a caller passes, and puts their names into lower case.

    Raises:
        ValueError: A name or value that would break the request; the value is not shown.
        TypeError: It is no mapping of strings to strings.
    """
    if not isinstance(cast("object", headers), Mapping):
        text = f"headers are a dict of strings, not {type(headers).__name__}"
        raise TypeError(text)
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(cast("object", name), str):
            text = f"the name of a header is a string, not {type(name).__name__}"
            raise TypeError(text)
        if not isinstance(cast("object", value), str):
            text = f"the value of the header {name!r} is a string, not {type(value).__name__}"
            raise TypeError(text)
        lowered = name.lower()
        if not name or not name.isascii() or not all(c.isalnum() or c in _TOKEN for c in name):
            text = f"{name!r} is no name of an HTTP header"
            raise ValueError(text)
        if lowered in _FRAMING:
            text = f"the header {name} is set by the connection, not by the caller"
            raise ValueError(text)
        if any((ord(c) < 32 and c != "\t") or ord(c) == 127 or ord(c) > 255 for c in value):
            text = f"the header {name} has a line break or another character that HTTP forbids"
            raise ValueError(text)
        checked[lowered] = value
    return checked


_TOKEN = frozenset("!#$%&'*+-.^_`|~")
