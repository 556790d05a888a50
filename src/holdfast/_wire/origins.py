"""Origins (RFC 6454): the bounds of credentials and redirects.

Rules:
- An origin is scheme, host and port in normalized spelling (`normalized_host`). A host name and
  its IP address are two origins.
- gRPC over TLS counts as https, gRPC without TLS as http.
- ``localhost``, ``127.0.0.1`` and ``[::1]`` are aliases: agents are called by one of them while
  their cards name another. No other loopback address is an alias: ``127.0.0.2`` or
  ``app.localhost`` may be another service.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from holdfast._model.grpc_addresses import without_grpc
from holdfast._model.hosts import normalized_host

__all__ = ["SECURITY_LOGGER", "audience", "canonical_origin", "origin", "origin_and_aliases"]

SECURITY_LOGGER = "holdfast.security"
"""Name of the logger for requests, files and settings that weaken a security guarantee."""

_PORTS = {"http": 80, "https": 443}
_ALIASES = ("localhost", "127.0.0.1", "::1")


def origin(url: str) -> str:
    """Return the origin of a URL (RFC 6454): scheme, host and port, normalized.

    A URL without a host, such as ``urn:agent``, is its own origin.

    Args:
        url: The URL.

    Raises:
        ValueError: The host or port is malformed.
    """
    scheme, host, port = _parts(url)
    return _format_origin(scheme, host, port) if host else url


def canonical_origin(url: str) -> str:
    """Return the origin of a URL, with ``localhost`` in place of any of its aliases.

    Raises:
        ValueError: The host or port is malformed.
    """
    scheme, host, port = _parts(url)
    if not host:
        return url
    return _format_origin(scheme, _ALIASES[0] if host in _ALIASES else host, port)


def origin_and_aliases(url: str) -> frozenset[str]:
    """Return the origin of a URL; for localhost also the origins of its aliases.

    Raises:
        ValueError: The host or port is malformed.
    """
    scheme, host, port = _parts(url)
    if not host:
        return frozenset({url})
    names = _ALIASES if host in _ALIASES else (host,)
    return frozenset(_format_origin(scheme, name, port) for name in names)


def audience(url: str) -> str | None:
    """Return the audience of tokens for the agent at a URL (RFC 8707, 2).

    It is the origin without a default port, such as ``https://agent.example.com``: one for all
    interfaces of the host, and a prefix of their URLs, with which servers compare it. None for a
    URL that is malformed or has no host.
    """
    try:
        scheme, host, port = _parts(url)
    except ValueError:
        return None
    if not host:
        return None
    return _format_origin(scheme, host, None if port == _PORTS.get(scheme) else port)


def _parts(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(without_grpc(url))
    scheme = parts.scheme.lower()
    port = _PORTS.get(scheme) if parts.port is None else parts.port
    return scheme, normalized_host(parts.hostname or ""), port


def _format_origin(scheme: str, host: str, port: int | None) -> str:
    authority = f"[{host}]" if ":" in host else host
    return f"{scheme}://{authority}" if port is None else f"{scheme}://{authority}:{port}"
