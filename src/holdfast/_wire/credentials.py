"""Credentials of a request: in headers, in the query, in cookies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, unquote_plus

import msgspec

from holdfast._model.redacted_repr import RedactedRepr
from holdfast._wire.http import check_headers

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Credentials",
    "bearer_fault",
    "check_credentials",
    "is_cookie_name",
    "is_cookie_value",
    "is_text",
    "with_cookies",
    "with_query",
]

_COOKIE_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_COOKIE_VALUE = re.compile(r"[!#-+\--:<-\[\]-~]*")
"""RFC 6265, 4.1.1."""

_BEARER = re.compile(r"(?!(?i:bearer|none)\Z)[A-Za-z0-9\-._~+/]+=*")
"""RFC 6750, 2.1; excludes words that stand for a missing token."""
_FAULT_OF_PLACEHOLDER = {
    "bearer": "the name of the scheme without a token",
    "none": "'None', which is how Python writes a missing value",
}
_BEARER_SYNTAX_FAULT = (
    "not a bearer token: it has a character that tokens cannot contain (RFC 6750)"
)


class Credentials(RedactedRepr, msgspec.Struct, frozen=True, kw_only=True):
    """Credentials of a request.

    Attributes:
        headers: Header fields, which replace those of the request.
        query: Query parameters, not encoded.
        cookies: Cookies, added to those of a ``Cookie`` header.
    """

    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    cookies: Mapping[str, str] = {}

    def __repr__(self) -> str:
        # Names only: the values are secret.
        shown = [f"{part}=[{', '.join(getattr(self, part))}]" for part in self.__struct_fields__]
        return f"Credentials({', '.join(shown)})"

    @property
    def values(self) -> list[str]:
        """All secret values."""
        return [*self.headers.values(), *self.query.values(), *self.cookies.values()]

    def joined(self, other: Credentials) -> Credentials | None:
        """Return both merged; None if they give one header, parameter or cookie different values.

        Args:
            other: The credentials to add.
        """
        parts = [(getattr(self, part), getattr(other, part)) for part in self.__struct_fields__]
        if any(a[name] != b[name] for a, b in parts for name in a.keys() & b.keys()):
            return None
        headers, query, cookies = ({**a, **b} for a, b in parts)
        return Credentials(headers=headers, query=query, cookies=cookies)


def check_credentials(credentials: Credentials) -> Credentials:
    """Validate credentials, and convert header names to lower case.

    Raises:
        ValueError: A name or value cannot be sent in a request; the message hides the value.
        TypeError: The argument is not a `Credentials`.
    """
    if not isinstance(cast("object", credentials), Credentials):
        text = f"an AuthProvider must return Credentials, not {type(credentials).__name__}"
        raise TypeError(text)
    for name, value in credentials.cookies.items():
        if not (is_cookie_name(name) and is_cookie_value(value)):
            text = f"the cookie {name!r} has a character that is not valid in a cookie (RFC 6265)"
            raise ValueError(text)
    for name, value in credentials.query.items():
        if not name or not is_text(f"{name}{value}"):
            text = f"the query parameter {name!r} has a character that is not valid in a URL"
            raise ValueError(text)
    return Credentials(
        headers=check_headers(credentials.headers),
        query=dict(credentials.query),
        cookies=dict(credentials.cookies),
    )


def with_query(url: str, query: Mapping[str, str]) -> str:
    """Add query parameters to a URL, replacing those of the same name.

    Args:
        url: Absolute; everything else in it is kept.
        query: Not encoded.
    """
    if not query:
        return url
    address, _, fragment = url.partition("#")
    address, _, present = address.partition("?")
    kept = [pair for pair in present.split("&") if pair and not _is_named(pair, query)]
    added = [f"{quote(n, safe='')}={quote(v, safe='')}" for n, v in query.items()]
    return f"{address}?{'&'.join(kept + added)}" + (f"#{fragment}" if fragment else "")


def with_cookies(header: str, cookies: Mapping[str, str]) -> str:
    """Add cookies to a ``Cookie`` header, replacing those of the same name."""
    present = (pair.strip() for pair in header.split(";"))
    kept = [pair for pair in present if pair and pair.partition("=")[0].strip() not in cookies]
    return "; ".join([*kept, *(f"{name}={value}" for name, value in cookies.items())])


def bearer_fault(token: str) -> str | None:
    """Describe why a text is not a bearer token (RFC 6750, 2.1), without showing it."""
    if _BEARER.fullmatch(token):
        return None
    if token[:7].lower() == "bearer ":
        return "not a bearer token: pass it without the word 'Bearer'"
    return _FAULT_OF_PLACEHOLDER.get(token.strip().lower(), _BEARER_SYNTAX_FAULT)


def is_cookie_name(name: str) -> bool:
    """Return whether a text is a valid cookie name (RFC 6265, 4.1.1)."""
    return _COOKIE_NAME.fullmatch(name) is not None


def is_cookie_value(value: str) -> bool:
    """Return whether a text is a valid cookie value (RFC 6265, 4.1.1)."""
    return _COOKIE_VALUE.fullmatch(value) is not None


def is_text(value: str) -> bool:
    """Return whether a string can be encoded: it has no lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_named(pair: str, names: Iterable[str]) -> bool:
    return unquote_plus(pair.partition("=")[0]) in names
