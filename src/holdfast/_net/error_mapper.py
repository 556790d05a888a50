"""Map the errors of aiohttp to those of `holdfast.errors`.

Rules:
- `executed` is False only if no byte of the request was handed to a socket.
- The kind of a failure follows from aiohttp's error; that of a timeout from its phase.
- An error that shows the request's headers or a proxy's password is not kept as a cause.
- An error that is not a failure of the request is not mapped.
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
    """Maps errors by the state of a request when it fails.

    Attributes:
        request: The request.
        phase: The phase that it was in.
        sent: Whether a byte of it may have left.
        forbidden: The error of a caller-supplied session that connected to a refused address.
        proxy: The proxy of the request, and where it is set; None without one, or if it is not
            known.
    """

    request: HttpRequest
    phase: TimeoutPhase
    sent: bool
    forbidden: ForbiddenAddressError | None
    proxy: str | None

    def map_any(self, error: aiohttp.ClientError | OSError | ValueError) -> A2AError | None:
        """Map an error that prevented a reply; None if it is not a failure of the request."""
        if isinstance(error, aiohttp.ClientError | OSError):
            return self.map(error)
        if isinstance(error, UnicodeError):
            is_of_name = getattr(error, "encoding", "idna") == "idna"
            return self.connection("dns", transient=False) if is_of_name else None
        if self.sent:
            return None
        # aiohttp rejects the address or the credentials in it
        return self.connection("unreachable", str(error), transient=False)

    def map(self, error: aiohttp.ClientError | OSError) -> A2AError:
        """Map an error of aiohttp or of the operating system."""
        if isinstance(error, TimeoutError):
            timeout = timeout_error(self.request, self.phase, sent=self.sent)
            if self.phase == "connect" and _may_be_plain_http(self.request.url):
                timeout.message = f"{timeout.message}; {_PLAIN_HTTP_HINT}"
            return timeout
        forbidden = self.forbidden or _forbidden_address(error)
        if forbidden is not None:
            return reach_error(self.request.url, forbidden.address, self.request.reach)
        if _has_large_headers(error):
            return self.large_headers()
        unreadable = _unreadable_reason(error)
        if unreadable is not None:
            return InvalidAgentResponseError(unreadable, **self._facts())
        failure, transient = _failure_of(error, secure=self.request.url.startswith("https:"))
        mapped = self.connection(failure, self._reason(error, failure), transient=transient)
        if isinstance(error, aiohttp.ClientSSLError) and _is_not_tls(error):
            text = "the server does not speak TLS"
            mapped.message = f"{mapped.message}: {text}; {_PLAIN_HTTP_HINT}"
        elif failure == "tls" and transient and _may_be_plain_http(self.request.url):
            mapped.message = f"{mapped.message}; {_PLAIN_HTTP_HINT}"
        return mapped

    def _reason(
        self, error: aiohttp.ClientError | OSError, failure: ConnectionFailure
    ) -> str | None:
        """Return what the text of a failed connection adds to the kind of its failure."""
        reason = reason_of(error) if isinstance(error, OSError) else None
        if isinstance(error, aiohttp.ClientHttpProxyError):
            reason = f"HTTP {error.status}"
        elif failure == "refused":
            reason = None  # it would repeat the failure
        if failure == "proxy":
            reason = ": ".join(part for part in (self.proxy, reason) if part)
        return reason or None

    def connection(
        self, failure: ConnectionFailure, reason: str | None = None, *, transient: bool = True
    ) -> A2AConnectionError:
        """Return the error of a failed connection; see `connection_error`."""
        return connection_error(self.request, failure, reason, sent=self.sent, transient=transient)

    def large_headers(self) -> LimitExceededError:
        """Return the error of a reply whose headers are larger than allowed."""
        limits = self.request.limits
        problem = f"the headers of the reply are larger than {limits.headers} bytes"
        return limit_error("headers", limits, problem, **self._facts())

    def large_body(self) -> LimitExceededError:
        """Return the error of a reply whose body is larger than allowed."""
        limits = self.request.limits
        problem = f"the reply is larger than {limits.body} bytes"
        return limit_error("body", limits, problem, **self._facts())

    def with_facts(self, error: A2AError) -> A2AError:
        """Return an error with the facts of the request added."""
        for name, fact in self._facts().items():
            setattr(error, name, fact)
        return error

    def _facts(self) -> Facts:
        return Facts(executed=None if self.sent else False, agent=presentable(self.request.url))


def presentable_cause(error: Exception) -> BaseException | None:
    """Return the root cause of an error, for the cause of the error that it is mapped to.

    It has no traceback, as the frames of aiohttp explain nothing. None if it shows the request's
    headers or the proxy's password.
    """
    if isinstance(error, aiohttp.ClientError | OSError):
        has_secrets = isinstance(error, aiohttp.ClientResponseError) or _is_about_proxy(error)
    else:
        has_secrets = not isinstance(error, UnicodeError)
    if has_secrets:
        return None
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    root: BaseException = error
    while root.__cause__ is not None:
        root = root.__cause__
    root.__context__ = None
    return root.with_traceback(None)


_FAILURES: tuple[tuple[type[Exception], ConnectionFailure, bool], ...] = (
    (aiohttp.ClientProxyConnectionError, "proxy", True),
    (aiohttp.ClientConnectorCertificateError, "tls", False),
    (aiohttp.InvalidURL, "unreachable", False),
    (aiohttp.NonHttpUrlClientError, "unreachable", False),
    (aiohttp.ClientPayloadError, "truncated", True),
)
"""The failure that an error of aiohttp means, and whether a retry may succeed."""


def _failure_of(
    error: aiohttp.ClientError | OSError, *, secure: bool
) -> tuple[ConnectionFailure, bool]:
    """Return how the connection failed, and whether a retry may succeed."""
    for kind, failure, transient in _FAILURES:
        if isinstance(error, kind):
            return failure, transient
    if isinstance(error, aiohttp.ClientSSLError):
        return "tls", not _is_not_tls(error)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return "proxy", error.status >= 500
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "dns", error.os_error.errno != socket.EAI_NONAME
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, ConnectionRefusedError):
            return "refused", True
        is_cut = secure and isinstance(error.os_error, ConnectionError)
        return "tls" if is_cut else "unreachable", True
    return "disconnected", True


_PLAIN_HTTP_HINT = "if the server speaks plain http (unencrypted), use http:// in its address"

_NOT_TLS_CODES = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "HTTP_REQUEST",
    "UNKNOWN_PROTOCOL",
)
"""The codes of OpenSSL's versions for an answer that is not TLS."""


def _is_not_tls(error: aiohttp.ClientSSLError) -> bool:
    """Return whether the server answered the TLS handshake with something else."""
    text = str(error).upper().replace(" ", "_")
    return any(code in text for code in _NOT_TLS_CODES)


def _may_be_plain_http(url: str) -> bool:
    """Return whether a server that does not answer a TLS handshake may speak plain http."""
    parts = urlsplit(url)
    return parts.scheme == "https" and parts.port not in (None, 443)


def _is_about_proxy(error: Exception) -> bool:
    return isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError)


def _unreadable_reason(error: Exception) -> str | None:
    """Return why a reply is not valid HTTP, if that is the failure."""
    if not isinstance(error, aiohttp.ClientResponseError) or _is_about_proxy(error):
        return None
    problem, _, rest = error.message.partition("\n\n")  # the offending bytes follow
    first_bytes = rest.strip("^ \n")
    if not _is_due_to(error, BadStatusLine):
        return f"the reply cannot be read: {problem} {first_bytes}".rstrip()
    return f"the reply is not HTTP/1.1{_describe_begin(first_bytes)}"


def _describe_begin(literal: str) -> str:
    """Describe the first bytes of a reply that is not HTTP/1.1, from their Python literal."""
    try:
        first = ast.literal_eval(literal)
    except (SyntaxError, ValueError):
        return f"; it begins {literal}" if literal else ""
    if not isinstance(first, bytes):
        return f"; it begins {literal}"
    if first[3:9] == _HTTP2_SETTINGS:
        return ", but HTTP/2, as a gRPC server speaks it"
    if first.isascii() and all(byte >= 32 or byte in b"\t\r\n" for byte in first):
        return f"; it begins {literal}"
    return f"; it begins with {len(first)} bytes that are not text"


_HTTP2_SETTINGS = b"\x04\x00\x00\x00\x00\x00"
"""Type, flags and stream of the first frame of an HTTP/2 server (RFC 9113 3.4, 6.5)."""


def _is_due_to(error: BaseException | None, kind: type[Exception]) -> bool:
    """Return whether an error or one of its causes is of a kind."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__
    return error is not None


def _forbidden_address(error: Exception) -> ForbiddenAddressError | None:
    """Return the error of a refused address, if that is the failure."""
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    return error if isinstance(error, ForbiddenAddressError) else None


def _has_large_headers(error: Exception) -> bool:
    """Return whether the headers of a reply are too long or too many."""
    if _is_due_to(error, LineTooLong):
        return True
    return isinstance(error, aiohttp.ClientResponseError) and "Too many headers" in error.message
