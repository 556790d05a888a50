"""How long a reply may be kept, and how to ask whether it still holds (RFC 9111).

For a private cache of one document that is always asked for in the same way: what ``Vary`` names
is then the same too, except for ``*``.
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
    """A date of HTTP (RFC 9110, 5.6.7) in seconds since the epoch; None if it is none."""
    from email.utils import parsedate_to_datetime  # heavy, and rarely needed

    try:
        date = parsedate_to_datetime(value)
        # The older forms name no zone; all of HTTP's dates are in UTC.
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


_FIELDS = ("age", "cache-control", "date", "etag", "expires", "last-modified", "vary")
_LISTS = frozenset({"cache-control", "vary"})
_ETAG = re.compile(r'(W/)?"[!#-~]*"')
_OF_ONE_REPLY = frozenset({"age", "date"})
_DIRECTIVE = re.compile(r"""([^\s,;="]+)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,;"]*)))?""")


class Caching(msgspec.Struct, frozen=True, kw_only=True):
    """What a reply says about keeping it.

    Attributes:
        lifetime: Seconds from now for which it is fresh (RFC 9111, 4.2); None if it says nothing.
        stale_if_error: Seconds after that in which it may stand in for a newer one that cannot be
            had (RFC 5861, 4); None if it says nothing, 0 if it must not.
        fields: The header fields that say so.
    """

    lifetime: float | None
    stale_if_error: float | None
    fields: dict[str, str]

    @classmethod
    def of(
        cls, headers: Mapping[str, str], *, now: float, before: Caching | None = None
    ) -> Caching:
        """Reads the headers of a reply.

        Args:
            headers: Looked up in lower case.
            now: Wall time in seconds since the epoch.
            before: For a 304: what the reply said that still holds (RFC 9111, 3.2).
        """
        fields = {name: value for name in _FIELDS if (value := _field(headers, name)) is not None}
        if before is not None:
            kept = {n: v for n, v in before.fields.items() if n not in _OF_ONE_REPLY}
            fields = kept | fields
        directives = _directives(fields.get("cache-control", ""))
        if directives.keys() & {"no-store", "no-cache"} or "*" in fields.get("vary", ""):
            return cls(lifetime=0.0, stale_if_error=0.0, fields=fields)
        grace = seconds(directives.get("stale-if-error"))
        if "must-revalidate" in directives:
            grace = 0.0
        lifetime = _lifetime(fields, directives, now)
        return cls(lifetime=lifetime, stale_if_error=grace, fields=fields)

    def conditions(self) -> dict[str, str]:
        """The headers that ask for a newer one only (RFC 9111, 4.3.1); empty if it names none."""
        conditions: dict[str, str] = {}
        if _ETAG.fullmatch(etag := self.fields.get("etag", "")):
            conditions["if-none-match"] = etag
        modified = self.fields.get("last-modified", "")
        if modified.isprintable() and http_date(modified) is not None:
            conditions["if-modified-since"] = modified
        return conditions

    def is_confirmed_by(self, headers: Mapping[str, str]) -> bool:
        """Whether a 304 with these headers is about this reply (RFC 9111, 4.3.4)."""
        etag = headers.get("etag")
        own = self.fields.get("etag", "")
        return etag is None or etag.removeprefix("W/") == own.removeprefix("W/")


def _field(headers: Mapping[str, str], name: str) -> str | None:
    """A field; several lines of one that is a list are one list (RFC 9110, 5.3)."""
    if name in _LISTS and hasattr(headers, "getall"):
        lines: list[str] = cast("Any", headers).getall(name, [])
        return ", ".join(lines) if lines else None
    return headers.get(name)


def _lifetime(
    fields: Mapping[str, str], directives: Mapping[str, str], now: float
) -> float | None:
    if "max-age" in directives:
        lifetime = seconds(directives["max-age"]) or 0.0  # one that cannot be read is over
    elif "expires" in fields:
        began = http_date(fields.get("date", "")) or now
        lifetime = (http_date(fields["expires"]) or began) - began
    else:
        return None
    return max(0.0, lifetime - (seconds(fields.get("age")) or 0.0))


def _directives(value: str) -> dict[str, str]:
    """Names in lower case; of one that is given twice, the first counts (RFC 9111, 4.2.1)."""
    found: dict[str, str] = {}
    for name, quoted, token in _DIRECTIVE.findall(value):
        found.setdefault(name.lower(), quoted or token)
    return found
