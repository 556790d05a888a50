"""What others wrote, as values that may be shown or reckoned with; whatever it is, it is cheap."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit, urlunsplit

__all__ = ["excerpt", "int64", "integer", "one_line", "presentable", "seconds", "text_of"]

_NUMBER = re.compile(r"\s*[0-9]+(\.[0-9]+)?\s*")
_USER = re.compile(r"(?<=://)[^\s/?#\"'<>]*@")


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


def integer(value: Any) -> int | None:
    """An integer, which some write as ``2.0``; None if it is none."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def int64(value: Any) -> int | None:
    """An integer that everybody can read, of 64 bits; None if it is none."""
    found = integer(value)
    return found if found is not None and -(2**63) <= found < 2**63 else None


def presentable(url: str) -> str:
    """A URL to show in errors and logs: without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(unreadable address)"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def excerpt(body: bytes, length: int = 200) -> str:
    """The beginning of a body as one line of readable text, without users of URLs.

    Where it was cut off there is an ellipsis.
    """
    text = _USER.sub("***@", body[: length * 4].decode("utf-8", "replace"))
    line = " ".join(_printable(text).split())
    if len(body) <= length * 4 and len(line) <= length:
        return line
    return f"{line[: length - 1]}…"


def text_of(value: Any, length: int = 500) -> str:
    """The `excerpt` of a text; empty for what is none."""
    if not isinstance(value, str):
        return ""
    return excerpt(value[: length * 4 + 1].encode("utf-8", "replace"), length)


def one_line(text: str, length: int) -> str:
    """Whatever an agent wrote, as one readable line of bounded length."""
    line = " ".join(_printable(text[: length * 4]).split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " for c in text)
