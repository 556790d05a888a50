"""HTTP messages as values, and the parts of them that may be shown.

An engine turns an `HttpRequest` into an `HttpReply`; all layers above it use these types. Header
names are in lower case, and are looked up in lower case.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Protocol, cast

import msgspec

from holdfast._model.addresses import with_ascii_host
from holdfast._model.error_values import excerpt, presentable
from holdfast._model.redacted_repr import RedactedRepr
from holdfast._model.settings import Policy, check_numbers
from holdfast._wire.limits import Limits
from holdfast._wire.network_scope import NetworkReach

__all__ = [
    "FRAMING",
    "Encoded",
    "HttpReply",
    "HttpRequest",
    "HttpStream",
    "Progress",
    "Timeouts",
    "check_caller_headers",
    "check_headers",
    "excerpt",
    "harmless_headers",
    "media_type",
    "presentable",
]

_HARMLESS_HEADERS = (
    "content-type",
    "date",
    "location",
    "retry-after",
    "retry-after-ms",
    "server",
    "via",
    "www-authenticate",
    "x-request-id",
)

FRAMING = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of one connection (RFC 9110, 7.6.1), and those that frame a request on it."""
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)
"""W3C Trace Context 3.2; only later versions than 00 may append more fields."""

_SCHEMES_WITH_TOKEN = frozenset({"basic", "bearer"})
_NAME_SYMBOLS = frozenset("!#$%&'*+-.^_`|~")


class Timeouts(Policy, frozen=True, kw_only=True):
    """Time limits of one attempt, in seconds; the error names the limit that expired.

    Attributes:
        pool: Seconds to wait for a free connection slot; more than 0, 10 by default.
        connect: Seconds for name resolution, TCP and TLS together; more than 0, 5 by default.
        write: Seconds until the socket accepts the next piece of the request; more than 0, 30 by
            default.
        first_byte: Seconds from the end of the request to the headers of the reply; more than 0,
            120 by default.
        idle: Seconds between two pieces of the reply; more than 0, 120 by default.

    Raises:
        ValueError: A timeout is not a positive number.
        TypeError: A timeout is not a number.
    """

    pool: float = 10.0
    connect: float = 5.0
    write: float = 30.0
    first_byte: float = 120.0
    idle: float = 120.0

    def __post_init__(self) -> None:
        check_numbers(self, self.__struct_fields__)
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                message = f"the {name} timeout must be a positive number of seconds"
                raise ValueError(message)


class Progress(msgspec.Struct):
    """Progress of a request; written by the engine, read to judge a failure.

    Attributes:
        sent: A byte of the request may have been sent: set just before the first one is handed
            over.
        awaits: Exhausted resource that the request waits for, such as "slot for streams"; None
            once it has one.
    """

    sent: bool = False
    awaits: str | None = None


class Encoded(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Binding-specific part of a request.

    Attributes:
        method: In upper case.
        url: Absolute and encoded.
        headers: Headers that the binding needs.
        body: The whole body; empty if there is none.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""


class HttpRequest(RedactedRepr, msgspec.Struct, frozen=True, kw_only=True):
    """HTTP request for an engine.

    Attributes:
        method: In upper case.
        url: Absolute and encoded; sent unchanged, except that a host in other scripts is converted
            to its ASCII form.
        headers: All headers except Host, Content-Length and Accept-Encoding.
        body: The whole body.
        timeouts: Timeouts that the engine enforces.
        max_idle: Maximum idle time of a reused connection in seconds, 4 by default; 0 for a new
            connection that no other request uses.
        limits: Bounds of the reply: its body, headers and inflation.
        reach: Networks that the socket may connect to; None for an address that the caller named.
        progress: Where the engine records that bytes leave.
    """

    method: str
    url: str
    headers: dict[str, str] = {}
    body: bytes = b""
    timeouts: Timeouts = Timeouts()
    max_idle: float = 4.0
    limits: Limits = Limits()
    reach: NetworkReach | None = None
    progress: Progress = msgspec.field(default_factory=Progress)

    def __post_init__(self) -> None:
        if not self.url.isascii():
            msgspec.structs.force_setattr(self, "url", with_ascii_host(self.url))

    def __repr__(self) -> str:
        # Names only: the values of the headers are secret, and so may be query and body.
        headers = ", ".join(self.headers)
        return f"HttpRequest({self.method} {presentable(self.url)}, headers=[{headers}])"


class HttpReply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Reply that was read completely.

    Attributes:
        status: The status code.
        headers: Header fields, names in lower case.
        body: The whole body, decompressed.
        address: IP address of the host that sent it; None if unknown, as behind a proxy.
    """

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""
    address: str | None = None


class HttpStream(Protocol):
    """Reply whose body is still arriving."""

    @property
    def status(self) -> int:
        """The status code."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields, names in lower case."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, in pieces of any size; iterate once."""
        ...

    async def read(self) -> bytes:
        """Return the whole body, for replies that turn out not to be streams."""
        ...


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Validate headers passed by a caller, and convert their names to lower case.

    Raises:
        ValueError: A name or value would break the request, an ``Authorization`` lacks its
            credential, or a ``traceparent`` is malformed; the message hides the value.
        TypeError: The argument is not a mapping of strings to strings.
    """
    if not isinstance(cast("object", headers), Mapping):
        text = f"headers are a dict of strings, not {type(headers).__name__}"
        raise TypeError(text)
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(cast("object", name), str):
            text = f"the name of a header must be a string, not {type(name).__name__}"
            raise TypeError(text)
        if not isinstance(cast("object", value), str):
            text = f"the value of the header {name!r} must be a string, not {type(value).__name__}"
            raise TypeError(text)
        lower_name = name.lower()
        if (
            not name
            or not name.isascii()
            or not all(c.isalnum() or c in _NAME_SYMBOLS for c in name)
        ):
            text = f"{name!r} is not the name of an HTTP header"
            raise ValueError(text)
        if lower_name in FRAMING:
            text = f"the header {name} is set by the connection, not by the caller"
            raise ValueError(text)
        if any((ord(c) < 32 and c != "\t") or ord(c) == 127 or ord(c) > 255 for c in value):
            text = f"the header {name} has a line break or another character that HTTP forbids"
            raise ValueError(text)
        checked[lower_name] = value
    if "traceparent" in checked:
        _check_traceparent(checked["traceparent"])
    if "authorization" in checked:
        _check_authorization(checked["authorization"])
    return checked


def check_caller_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Validate headers to send with requests, as `check_headers` does; refuse the client's own.

    Raises:
        ValueError: A header is not valid, or is one that the client sets in each request.
        TypeError: The argument is not a mapping of strings to strings.
    """
    checked = check_headers(headers)
    for name in checked:
        if (instead := _SET_BY_CLIENT.get(name)) is not None:
            text = f"the header {name} is set by the client; {instead}"
            raise ValueError(text)
    return checked


_SET_BY_CLIENT = {
    "a2a-version": "pass protocol_version= to connect to require a version",
    "accept": "remove it",
    "accept-encoding": "remove it",
    "content-type": "the binding decides it: pass bindings= to connect to choose one",
    "user-agent": "remove it",
}
"""Headers whose value in a request is the client's, and what to do instead."""


def _check_traceparent(value: str) -> None:
    """Reject a malformed value; the next agent would ignore it, and the trace would end there."""
    match = _TRACEPARENT.fullmatch(value)
    if match is None or (match[1] and value.startswith("00")):
        text = (
            "the header traceparent is not one of W3C Trace Context: "
            "version-traceid-parentid-flags, as 00-<32 digits>-<16 digits>-01"
        )
        raise ValueError(text)


def _check_authorization(value: str) -> None:
    """Reject a value without a credential, as a missing variable leaves it."""
    words = value.split()
    if not words:
        fault = "is empty"
    elif words[1:] == ["None"] or words == ["None"]:
        fault = "contains None instead of a token: is an environment variable unset?"
    elif len(words) == 1 and words[0].lower() in _SCHEMES_WITH_TOKEN:
        fault = f"has no token behind {words[0]!r}"
    else:
        return
    text = f"the header Authorization {fault}"
    raise ValueError(text)


def media_type(headers: Mapping[str, str]) -> str:
    """Return the media type without parameters, in lower case; empty if not stated.

    Args:
        headers: Headers of a reply; names in lower case.
    """
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def harmless_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a reply that an error may carry."""
    headers_shown = {
        name: value for name in _HARMLESS_HEADERS if (value := headers.get(name)) is not None
    }
    if "location" in headers_shown:
        headers_shown["location"] = presentable(headers_shown["location"])
    return headers_shown
