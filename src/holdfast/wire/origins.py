"""Origins (RFC 6454): where credentials stay, and where a redirect may lead."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["origin", "origin_and_aliases"]


def origin(url: str) -> str:
    """The origin of a URL (RFC 6454): scheme, host and port, in one spelling.

    Raises:
        ValueError: Its host or port cannot be read.
    """
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    host = (parts.hostname or "").lower()
    port = parts.port or {"http": 80, "https": 443}.get(scheme)
    bracketed = f"[{host}]" if ":" in host else host
    return f"{scheme}://{bracketed}:{port}" if port else f"{scheme}://{bracketed}"


_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")


def origin_and_aliases(url: str) -> frozenset[str]:
    """The origin of a URL; for a loopback address, also those under its other names.

    Raises:
        ValueError: Its host or port cannot be read.
    """
    own = origin(url)
    for name in _THIS_MACHINE:
        scheme, found, port = own.partition(f"://{name}:")
        if found:
            return frozenset(f"{scheme}://{alias}:{port}" for alias in _THIS_MACHINE)
    return frozenset({own})
