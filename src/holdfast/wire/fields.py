"""Values of HTTP fields and JSON members that real servers write in more than one way."""

from __future__ import annotations

import re
from datetime import UTC
from typing import Any

__all__ = ["http_date", "seconds"]

_NUMBER = re.compile(r"\s*[0-9]+(\.[0-9]+)?\s*")


def http_date(value: str) -> float | None:
    """A date of HTTP (RFC 9110, 5.6.7) in seconds since the epoch; None if it is none."""
    from email.utils import parsedate_to_datetime  # heavy, and rarely needed

    try:
        date = parsedate_to_datetime(value)
        # The older forms name no zone; all of HTTP's dates are in UTC.
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def seconds(value: Any) -> float | None:
    """A number of seconds, or its text; None if it is none, negative or without end."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number < float("inf") else None
