"""Credentials: where they come from. What is done with them is `holdfast.runtime.credentials`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.runtime.credentials import AuthProvider
from holdfast.wire.http import check_headers

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
        case str() if not auth.strip():
            text = "auth is empty; leave it out to send no credentials"
            raise ValueError(text)
        case str():
            return StaticAuth(check_headers({"authorization": auth}))
        case Mapping():
            return StaticAuth(check_headers(auth))
        case _ if hasattr(auth, "headers") and hasattr(auth, "on_unauthorized"):
            return auth
        case _:
            text = f"auth is a header value, headers or an AuthProvider, not {type(auth).__name__}"
            raise TypeError(text)
