"""What the failures of aiohttp mean, in the words of `holdfast.errors`.

Rules:
- `executed` is False only if no byte of the request was handed to a socket.
- A failure is told from what aiohttp raises; a limit from the phase in which it fired.
- What shows the request's headers, or the password of a proxy, is no error's cause.
- What is no failure of a request is not told as one.
"""

from __future__ import annotations

import ast
import socket
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import aiohttp
from aiohttp.http_exceptions import BadStatusLine, LineTooLong

from holdfast._net.engine import connection_error, reach_error, timeout_error
from holdfast._net.sockets import ForbiddenAddressError, reason_of
from holdfast._wire.http import presentable
from holdfast._wire.limits import limit_error
from holdfast.errors import Facts, InvalidAgentResponseError

if TYPE_CHECKING:
    from holdfast._wire.http import HttpRequest
    from holdfast.errors import (
        A2AConnectionError,
        A2AError,
        ConnectionFailure,
        LimitExceededError,
        TimeoutPhase,
    )

__all__ = ["ErrorMapper", "presentable_cause"]


class ErrorMapper(NamedTuple):
    """A request at the moment when it fails, and the errors that tell of it.

    Attributes:
        request: What was to be carried.
        phase: What was waited for.
        sent: Whether a byte of it may have left.
        forbidden: Where a lent session led, if the request must not reach it.
    """

    request: HttpRequest
    phase: TimeoutPhase
    sent: bool
    forbidden: ForbiddenAddressError | None

    def told(self, error: aiohttp.ClientError | OSError | ValueError) -> A2AError | None:
        """What kept a reply from coming; None if that is no failure of the request."""
        if isinstance(error, aiohttp.ClientError | OSError):
            return self.of(error)
        if isinstance(error, UnicodeError):
            is_of_name = getattr(error, "encoding", "idna") == "idna"
            return self.connection("dns", transient=False) if is_of_name else None
        if self.sent:
            return None
        # aiohttp does not take such an address, or such credentials
        return self.connection("unreachable", str(error), transient=False)

    def of(self, error: aiohttp.ClientError | OSError) -> A2AError:
        """What an error of aiohttp, or of the system under it, means."""
        if isinstance(error, TimeoutError):
            late = timeout_error(self.request, self.phase, sent=self.sent)
            if self.phase == "connect" and _may_be_plain(self.request.url):
                late.message = f"{late.message}; {_PLAIN}"
            return late
        forbidden = self.forbidden or _forbidden(error)
        if forbidden is not None:
            return reach_error(self.request.url, forbidden.address, self.request.reach)
        if _has_large_headers(error):
            return self.large_headers()
        why = _unreadable(error)
        if why is not None:
            return InvalidAgentResponseError(why, **self._facts())
        failure, transient = _failure_of(error, secure=self.request.url.startswith("https:"))
        reason = reason_of(error) if isinstance(error, OSError) else None
        if isinstance(error, aiohttp.ClientHttpProxyError):
            reason = f"HTTP {error.status}"
        elif failure == "refused":
            reason = None  # which says no more
        told = self.connection(failure, reason, transient=transient)
        if isinstance(error, aiohttp.ClientSSLError) and _is_no_tls(error):
            told.message = f"{told.message}: the server answered, but not with TLS; {_PLAIN}"
        elif failure == "tls" and transient and _may_be_plain(self.request.url):
            told.message = f"{told.message}; {_PLAIN}"
        return told

    def connection(
        self, failure: ConnectionFailure, reason: str | None = None, *, transient: bool = True
    ) -> A2AConnectionError:
        """The connection failed; see `connection_error`."""
        return connection_error(self.request, failure, reason, sent=self.sent, transient=transient)

    def large_headers(self) -> LimitExceededError:
        """The headers of the reply are larger than allowed."""
        limits = self.request.limits
        what = f"the headers of the reply are larger than {limits.headers} bytes"
        return limit_error("headers", limits, what, **self._facts())

    def large_body(self) -> LimitExceededError:
        """The body of the reply is larger than allowed."""
        limits = self.request.limits
        what = f"the reply is larger than {limits.body} bytes"
        return limit_error("body", limits, what, **self._facts())

    def stated(self, error: A2AError) -> A2AError:
        """An error that knows nothing of the request, with what is known of that."""
        for name, fact in self._facts().items():
            setattr(error, name, fact)
        return error

    def _facts(self) -> Facts:
        return Facts(executed=None if self.sent else False, agent=presentable(self.request.url))


def presentable_cause(error: Exception) -> Exception | None:
    """The error itself, unless it shows the request's headers or the proxy's password."""
    if isinstance(error, aiohttp.ClientError | OSError):
        secretive = isinstance(error, aiohttp.ClientResponseError) or _is_about_proxy(error)
    else:
        secretive = not isinstance(error, UnicodeError)
    return None if secretive else error


_FAILURES: tuple[tuple[type[Exception], ConnectionFailure, bool], ...] = (
    (aiohttp.ClientProxyConnectionError, "proxy", True),
    (aiohttp.ClientConnectorCertificateError, "tls", False),
    (aiohttp.InvalidURL, "unreachable", False),
    (aiohttp.NonHttpUrlClientError, "unreachable", False),
    (aiohttp.ClientPayloadError, "truncated", True),
)
"""What an error of aiohttp says, and whether trying again may help."""


def _failure_of(
    error: aiohttp.ClientError | OSError, *, secure: bool
) -> tuple[ConnectionFailure, bool]:
    """How the connection failed, and whether trying again may help."""
    for kind, failure, transient in _FAILURES:
        if isinstance(error, kind):
            return failure, transient
    if isinstance(error, aiohttp.ClientSSLError):
        return "tls", not _is_no_tls(error)  # a peer that does not speak TLS will not learn it
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


_PLAIN = "if it speaks plain http, which encrypts nothing, its address begins with http://"

_NO_TLS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "HTTP_REQUEST",
    "UNKNOWN_PROTOCOL",
)
"""How versions of OpenSSL name an answer that is not TLS."""


def _is_no_tls(error: aiohttp.ClientSSLError) -> bool:
    """Whether the server answered a TLS handshake with something else."""
    said = str(error).upper().replace(" ", "_")
    return any(name in said for name in _NO_TLS)


def _may_be_plain(url: str) -> bool:
    """Whether a server that answers no TLS handshake may be one of plain http."""
    parts = urlsplit(url)
    return parts.scheme == "https" and parts.port not in (None, 443)


def _is_about_proxy(error: Exception) -> bool:
    return isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError)


def _unreadable(error: Exception) -> str | None:
    """Why a reply is not HTTP, if that is the failure."""
    if not isinstance(error, aiohttp.ClientResponseError) or _is_about_proxy(error):
        return None
    what, _, begin = error.message.partition("\n\n")  # which the bytes follow that it is about
    begins = begin.strip("^ \n")
    if not _is_due_to(error, BadStatusLine):
        return f"the reply cannot be read: {what} {begins}".rstrip()
    return f"the reply is not HTTP/1.1{_how_it_begins(begins)}"


def _how_it_begins(begins: str) -> str:
    """Describe what came instead of HTTP/1.1, from how Python writes its first bytes."""
    try:
        first = ast.literal_eval(begins)
    except (SyntaxError, ValueError):
        return f"; it begins {begins}" if begins else ""
    if not isinstance(first, bytes):
        return f"; it begins {begins}"
    if first[3:9] == _SETTINGS:
        return ", but HTTP/2, as a gRPC server speaks it"
    if first.isascii() and all(byte >= 32 or byte in b"\t\r\n" for byte in first):
        return f"; it begins {begins}"
    return f"; it begins with {len(first)} bytes that are not text"


_SETTINGS = b"\x04\x00\x00\x00\x00\x00"
"""Type, flags and stream of the frame with which an HTTP/2 server begins (RFC 9113 3.4, 6.5)."""


def _is_due_to(error: BaseException | None, kind: type[Exception]) -> bool:
    """Whether an error of a kind is among the causes."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__
    return error is not None


def _forbidden(error: Exception) -> ForbiddenAddressError | None:
    """What says that an address must not be reached, if that is the failure."""
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    return error if isinstance(error, ForbiddenAddressError) else None


def _has_large_headers(error: Exception) -> bool:
    """Whether the headers of a reply are too long or too many."""
    if _is_due_to(error, LineTooLong):
        return True
    return isinstance(error, aiohttp.ClientResponseError) and "Too many headers" in error.message
