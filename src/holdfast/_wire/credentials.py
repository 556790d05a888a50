"""What a request carries to say who sends it: in headers, in the query, in cookies."""

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
"""RFC 6750, 2.1; and no word that stands there where the token is missing."""
_NO_TOKENS = {
    "bearer": "the name of the scheme, and no token",
    "none": "'None', which is how Python writes a missing value",
}
_OTHERWISE = "no bearer token: it has a character where a token has none (RFC 6750)"


class Credentials(RedactedRepr, msgspec.Struct, frozen=True, kw_only=True):
    """What a request carries to say who sends it.

    Attributes:
        headers: Header fields.
        query: Parameters of the address; unencoded.
        cookies: Cookies; they join those of a ``Cookie`` header.
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
        """Everything in them that is secret."""
        return [*self.headers.values(), *self.query.values(), *self.cookies.values()]

    def joined(self, other: Credentials) -> Credentials | None:
        """Both together; None if they want the same place for different values."""
        parts = [(getattr(self, part), getattr(other, part)) for part in self.__struct_fields__]
        if any(a[name] != b[name] for a, b in parts for name in a.keys() & b.keys()):
            return None
        headers, query, cookies = ({**a, **b} for a, b in parts)
        return Credentials(headers=headers, query=query, cookies=cookies)


def check_credentials(credentials: Credentials) -> Credentials:
    """Checks credentials, and puts the names of headers into lower case.

    Raises:
        ValueError: A name or value that a request cannot hold; the value is not shown.
        TypeError: They are something else.
    """
    if not isinstance(cast("object", credentials), Credentials):
        text = f"an AuthProvider gives Credentials, not {type(credentials).__name__}"
        raise TypeError(text)
    for name, value in credentials.cookies.items():
        if not (is_cookie_name(name) and is_cookie_value(value)):
            text = f"the cookie {name!r} has a character that cookies cannot hold (RFC 6265)"
            raise ValueError(text)
    for name, value in credentials.query.items():
        if not name or not is_text(f"{name}{value}"):
            text = f"the query parameter {name!r} has a character that addresses cannot hold"
            raise ValueError(text)
    return Credentials(
        headers=check_headers(credentials.headers),
        query=dict(credentials.query),
        cookies=dict(credentials.cookies),
    )


def with_query(url: str, query: Mapping[str, str]) -> str:
    """Puts parameters into an address; they replace those of the same name.

    Args:
        url: Absolute; what else it holds stays as it is.
        query: Unencoded.
    """
    if not query:
        return url
    address, _, fragment = url.partition("#")
    address, _, present = address.partition("?")
    kept = [pair for pair in present.split("&") if pair and not _is_named(pair, query)]
    added = [f"{quote(n, safe='')}={quote(v, safe='')}" for n, v in query.items()]
    return f"{address}?{'&'.join(kept + added)}" + (f"#{fragment}" if fragment else "")


def with_cookies(header: str, cookies: Mapping[str, str]) -> str:
    """Puts cookies into a ``Cookie`` header; they replace those of the same name."""
    present = (pair.strip() for pair in header.split(";"))
    kept = [pair for pair in present if pair and pair.partition("=")[0].strip() not in cookies]
    return "; ".join([*kept, *(f"{name}={value}" for name, value in cookies.items())])


def bearer_fault(token: str) -> str | None:
    """What a text is that is no bearer token (RFC 6750, 2.1); None for one. It is not shown."""
    if _BEARER.fullmatch(token):
        return None
    if token[:7].lower() == "bearer ":
        return "no bearer token: pass it without the word 'Bearer'"
    return _NO_TOKENS.get(token.strip().lower(), _OTHERWISE)


def is_cookie_name(name: str) -> bool:
    """Whether a cookie may have this name (RFC 6265, 4.1.1)."""
    return _COOKIE_NAME.fullmatch(name) is not None


def is_cookie_value(value: str) -> bool:
    """Whether a cookie may have this value (RFC 6265, 4.1.1)."""
    return _COOKIE_VALUE.fullmatch(value) is not None


def is_text(value: str) -> bool:
    """Whether it can be encoded at all; a lone surrogate cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_named(pair: str, names: Iterable[str]) -> bool:
    return unquote_plus(pair.partition("=")[0]) in names
