"""HTTP caching: how long a reply is fresh, and how to revalidate it (RFC 9111).

For a private cache of one document that is always requested in the same way, so that ``Vary``
matters only if it is ``*``.
"""

from __future__ import annotations

import re
from datetime import UTC
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast._model.error_values import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Caching", "http_date"]


def http_date(value: str) -> float | None:
    """Parse an HTTP date (RFC 9110, 5.6.7) to seconds since the epoch; None if it is invalid."""
    from email.utils import parsedate_to_datetime  # heavy, and rarely needed

    try:
        date = parsedate_to_datetime(value)
        # The older forms name no zone; all of HTTP's dates are in UTC.
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


_CACHING_FIELDS = ("age", "cache-control", "date", "etag", "expires", "last-modified", "vary")
_LIST_FIELDS = frozenset({"cache-control", "vary"})
_ETAG = re.compile(r'(W/)?"[!#-~]*"')
_FIELDS_OF_ONE_REPLY = frozenset({"age", "date"})
_DIRECTIVE = re.compile(r"""([^\s,;="]+)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,;"]*)))?""")


class Caching(msgspec.Struct, frozen=True, kw_only=True):
    """Caching information of a reply.

    Attributes:
        lifetime: Freshness lifetime in seconds from now (RFC 9111, 4.2); None if the reply states
            none.
        stale_if_error: Seconds after that in which a stale reply may be used if no newer one is
            available (RFC 5861, 4); None if the reply does not say, 0 if it must not be used.
        fields: The header fields that the other attributes were read from.
    """

    lifetime: float | None
    stale_if_error: float | None
    fields: dict[str, str]

    @classmethod
    def of(
        cls, headers: Mapping[str, str], *, now: float, revalidated: Caching | None = None
    ) -> Caching:
        """Read the caching headers of a reply.

        Args:
            headers: Looked up in lower case.
            now: Wall time in seconds since the epoch.
            revalidated: For a 304: the caching information that it confirms (RFC 9111, 3.2).
        """
        fields = {
            name: value for name in _CACHING_FIELDS if (value := _field(headers, name)) is not None
        }
        if revalidated is not None:
            kept = {n: v for n, v in revalidated.fields.items() if n not in _FIELDS_OF_ONE_REPLY}
            fields = kept | fields
        directives = _directives(fields.get("cache-control", ""))
        if directives.keys() & {"no-store", "no-cache"} or "*" in fields.get("vary", ""):
            return cls(lifetime=0.0, stale_if_error=0.0, fields=fields)
        stale_if_error = seconds(directives.get("stale-if-error"))
        if "must-revalidate" in directives:
            stale_if_error = 0.0
        lifetime = _lifetime(fields, directives, now)
        return cls(lifetime=lifetime, stale_if_error=stale_if_error, fields=fields)

    def conditions(self) -> dict[str, str]:
        """Return the headers of a conditional request (RFC 9111, 4.3.1)."""
        conditions: dict[str, str] = {}
        if _ETAG.fullmatch(etag := self.fields.get("etag", "")):
            conditions["if-none-match"] = etag
        modified = self.fields.get("last-modified", "")
        if modified.isprintable() and http_date(modified) is not None:
            conditions["if-modified-since"] = modified
        return conditions

    def is_confirmed_by(self, headers: Mapping[str, str]) -> bool:
        """Return whether a 304 with these headers is about this reply (RFC 9111, 4.3.4)."""
        etag = headers.get("etag")
        own = self.fields.get("etag", "")
        return etag is None or etag.removeprefix("W/") == own.removeprefix("W/")


def _field(headers: Mapping[str, str], name: str) -> str | None:
    """Return a header field; the lines of a list field are joined (RFC 9110, 5.3)."""
    if name in _LIST_FIELDS and hasattr(headers, "getall"):
        lines: list[str] = cast("Any", headers).getall(name, [])
        return ", ".join(lines) if lines else None
    return headers.get(name)


def _lifetime(
    fields: Mapping[str, str], directives: Mapping[str, str], now: float
) -> float | None:
    if "max-age" in directives:
        lifetime = seconds(directives["max-age"]) or 0.0  # invalid means stale
    elif "expires" in fields:
        date = http_date(fields.get("date", "")) or now
        lifetime = (http_date(fields["expires"]) or date) - date
    else:
        return None
    return max(0.0, lifetime - (seconds(fields.get("age")) or 0.0))


def _directives(value: str) -> dict[str, str]:
    """Parse Cache-Control; names in lower case, the first of duplicates wins (RFC 9111, 4.2.1)."""
    directives: dict[str, str] = {}
    for name, quoted, token in _DIRECTIVE.findall(value):
        directives.setdefault(name.lower(), quoted or token)
    return directives
