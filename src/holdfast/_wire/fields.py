"""Values of HTTP fields that real servers write in more than one way."""

from __future__ import annotations

from datetime import UTC

__all__ = ["http_date"]


def http_date(value: str) -> float | None:
    """A date of HTTP (RFC 9110, 5.6.7) in seconds since the epoch; None if it is none."""
    from email.utils import parsedate_to_datetime  # heavy, and rarely needed

    try:
        date = parsedate_to_datetime(value)
        # The older forms name no zone; all of HTTP's dates are in UTC.
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
