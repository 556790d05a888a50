"""Conversion of untrusted values to numbers and to texts that may be shown, at bounded cost."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit, urlunsplit

__all__ = ["excerpt", "int64", "integer", "one_line", "presentable", "seconds", "text_of"]

_NUMBER = re.compile(r"\s*[0-9]+(\.[0-9]+)?\s*")
_USER = re.compile(r"(?<=://)[^\s/?#\"'<>]*@")


def seconds(value: Any) -> float | None:
    """Convert a number or its text to seconds; None if it is invalid, negative or infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number < float("inf") else None


def integer(value: Any) -> int | None:
    """Convert a value to an integer, also ``2.0``; None if it is not one."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def int64(value: Any) -> int | None:
    """Convert a value to a signed 64-bit integer; None if it is not one."""
    number = integer(value)
    return number if number is not None and -(2**63) <= number < 2**63 else None


def presentable(url: str) -> str:
    """Return a URL for errors and logs: without user, password, query and fragment.

    Args:
        url: The URL.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(unreadable address)"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def excerpt(body: bytes, length: int = 200) -> str:
    """Return the beginning of a body as one readable line, without users of URLs.

    A truncated text ends with an ellipsis.

    Args:
        body: The body, as bytes or text.
        length: Largest number of characters; 200 by default.
    """
    text = _USER.sub("***@", body[: length * 4].decode("utf-8", "replace"))
    line = " ".join(_printable(text).split())
    if len(body) <= length * 4 and len(line) <= length:
        return line
    return f"{line[: length - 1]}…"


def text_of(value: Any, length: int = 500) -> str:
    """Return the `excerpt` of a text; empty for any other value."""
    if not isinstance(value, str):
        return ""
    return excerpt(value[: length * 4 + 1].encode("utf-8", "replace"), length)


def one_line(text: str, length: int) -> str:
    """Return a text as one readable line of at most `length` characters."""
    line = " ".join(_printable(text[: length * 4]).split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " for c in text)
