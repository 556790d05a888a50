"""What is an address that can be called over HTTP, for all who read one from elsewhere."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["is_http_address"]


def is_http_address(url: str) -> bool:
    """Whether a URL is absolute, HTTP, and means the same to everybody who reads it.

    A user name, a backslash or a character that is not printable is read in different ways by
    different libraries, which is how requests go astray.
    """
    if "\\" in url or not all(c.isprintable() and not c.isspace() for c in url):
        return False
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
