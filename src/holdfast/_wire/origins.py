"""Origins (RFC 6454): where credentials stay, and where a redirect may lead.

Rules:
- An origin is scheme, host and port in one spelling; that of a host is `spelled`'s. A name and the
  number that it leads to are two origins.
- gRPC over TLS is https, and without it http: its addresses have the same origins.
- ``localhost``, ``127.0.0.1`` and ``[::1]`` are aliases: agents are called by one of them while
  their cards name another. No other address is one, not even of loopback: behind ``127.0.0.2`` or
  ``app.localhost`` may be somebody else.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from holdfast._model.grpc_addresses import without_grpc
from holdfast._model.hosts import spelled

__all__ = ["SECURITY_LOGGER", "audience", "canonical_origin", "origin", "origin_and_aliases"]

SECURITY_LOGGER = "holdfast.security"
"""Name of the logger that warns of requests, files and settings that weaken a promise."""

_PORTS = {"http": 80, "https": 443}
_ALIASES = ("localhost", "127.0.0.1", "::1")


def origin(url: str) -> str:
    """The origin of a URL (RFC 6454): scheme, host and port, in one spelling.

    An address without a host, such as ``urn:agent``, is an origin of its own.

    Raises:
        ValueError: Its host or port cannot be read.
    """
    scheme, host, port = _parts(url)
    return _written(scheme, host, port) if host else url


def canonical_origin(url: str) -> str:
    """The origin of a URL, this machine's under the name ``localhost``: one for all its aliases.

    Raises:
        ValueError: Its host or port cannot be read.
    """
    scheme, host, port = _parts(url)
    if not host:
        return url
    return _written(scheme, _ALIASES[0] if host in _ALIASES else host, port)


def origin_and_aliases(url: str) -> frozenset[str]:
    """The origin of a URL; for this machine's, also those under its other names.

    Raises:
        ValueError: Its host or port cannot be read.
    """
    scheme, host, port = _parts(url)
    if not host:
        return frozenset({url})
    names = _ALIASES if host in _ALIASES else (host,)
    return frozenset(_written(scheme, name, port) for name in names)


def audience(url: str) -> str | None:
    """The name of the agent at an address, as whom tokens are for (RFC 8707, 2).

    It is the origin of the address, without a port that the scheme implies, as
    ``https://agent.example.com``: one for all interfaces there, and the beginning of their
    addresses, with which servers compare it. None for an address without a host, or one that
    cannot be read.
    """
    try:
        scheme, host, port = _parts(url)
    except ValueError:
        return None
    if not host:
        return None
    return _written(scheme, host, None if port == _PORTS.get(scheme) else port)


def _parts(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(without_grpc(url))
    scheme = parts.scheme.lower()
    port = _PORTS.get(scheme) if parts.port is None else parts.port
    return scheme, spelled(parts.hostname or ""), port


def _written(scheme: str, host: str, port: int | None) -> str:
    named = f"[{host}]" if ":" in host else host
    return f"{scheme}://{named}" if port is None else f"{scheme}://{named}:{port}"
