"""What the failures of aiohttp mean, in the words of `holdfast.errors`."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.http_exceptions import LineTooLong

from holdfast.net.sockets import ForbiddenAddressError

if TYPE_CHECKING:
    from holdfast.errors import ConnectionFailure

__all__ = [
    "failure_of",
    "forbidden_address",
    "has_large_headers",
    "presentable_cause",
    "unreadable",
]

_FAILURES: tuple[tuple[type[Exception], ConnectionFailure, bool], ...] = (
    (aiohttp.ClientProxyConnectionError, "proxy", True),
    (aiohttp.ClientConnectorCertificateError, "tls", False),
    (aiohttp.InvalidURL, "unreachable", False),
    (aiohttp.NonHttpUrlClientError, "unreachable", False),
    (aiohttp.ClientPayloadError, "truncated", True),
)
"""What an error of aiohttp says, and whether trying again may help."""


def failure_of(
    error: aiohttp.ClientError | OSError, *, secure: bool
) -> tuple[ConnectionFailure, bool]:
    """How the connection failed, and whether trying again may help."""
    for kind, failure, transient in _FAILURES:
        if isinstance(error, kind):
            return failure, transient
    if isinstance(error, aiohttp.ClientSSLError):
        # A peer that does not speak TLS will not learn it.
        return "tls", "WRONG_VERSION_NUMBER" not in str(error)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return "proxy", error.status >= 500
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "dns", error.os_error.errno != socket.EAI_NONAME
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, ConnectionRefusedError):
            return "refused", True
        lost = secure and isinstance(error.os_error, ConnectionError)
        return "tls" if lost else "unreachable", True
    return "disconnected", True


def _is_about_proxy(error: Exception) -> bool:
    return isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError)


def unreadable(error: Exception) -> str | None:
    """Why a reply is no HTTP, if that is the failure."""
    if isinstance(error, aiohttp.ClientResponseError) and not _is_about_proxy(error):
        return error.message
    return None


def forbidden_address(error: Exception) -> str | None:
    """The address that must not be reached, if that is the failure."""
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    return error.address if isinstance(error, ForbiddenAddressError) else None


def has_large_headers(error: Exception) -> bool:
    """Whether the headers of a reply are too long or too many."""
    if isinstance(error.__cause__, LineTooLong):
        return True
    return isinstance(error, aiohttp.ClientResponseError) and "Too many headers" in error.message


def presentable_cause(error: Exception) -> Exception | None:
    """The error itself, unless it shows the request's headers or the proxy's password."""
    secretive = isinstance(error, aiohttp.ClientResponseError) or _is_about_proxy(error)
    return None if secretive else error
