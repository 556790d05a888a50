"""HTTP messages as values, and what may be shown of them.

An engine turns an `HttpRequest` into an `HttpReply`; everything above it reasons with these.
Header names are in lower case here, and looked up in lower case.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Protocol, cast

import msgspec

from holdfast._model.addresses import in_ascii
from holdfast._model.error_values import excerpt, presentable
from holdfast._model.redacted_repr import RedactedRepr
from holdfast._model.settings import check_numbers
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
    "check_headers",
    "excerpt",
    "harmless_headers",
    "media_type",
    "presentable",
]

_HARMLESS = (
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
"""What belongs to one connection (RFC 9110, 7.6.1) or frames a request on it."""
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)
"""W3C Trace Context 3.2; only a later version than the first may have more behind it."""

_TOKEN_FOLLOWS = frozenset({"basic", "bearer"})
_IN_NAMES = frozenset("!#$%&'*+-.^_`|~")


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one attempt, in seconds; the error of the one that fires names it.

    Attributes:
        pool: For a free connection slot.
        connect: For name resolution, TCP and TLS together.
        write: For the socket to take the next piece of the request.
        first_byte: From the end of the request to the headers of the reply.
        idle: Between two pieces of the reply.

    Raises:
        ValueError: A limit is not a positive number.
        TypeError: A limit is no number.
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
    """How far a request has come; written by the engine, read by whoever must judge a failure.

    Attributes:
        sent: Whether a byte of it may have left: set just before the first one is handed over.
        awaits: What it waits for because none is free, as in "slot for streams"; None as soon
            as it has one.
    """

    sent: bool = False
    awaits: str | None = None


class Encoded(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a binding makes of a call; the rest of the request is the same for all.

    Attributes:
        method: In capitals.
        url: Absolute, encoded.
        headers: Those that the binding needs.
        body: The whole body; empty for none.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""


class HttpRequest(RedactedRepr, msgspec.Struct, frozen=True, kw_only=True):
    """A request as an engine needs it.

    Attributes:
        method: In capitals.
        url: Absolute, encoded; sent as it is, with a host in other letters in its ASCII form.
        headers: Everything but Host, Content-Length and Accept-Encoding.
        body: The whole body.
        timeouts: What the engine has to keep.
        max_idle: A connection that was idle for longer (seconds) must not be reused; 0 for a new
            connection that no other request uses.
        limits: How large a reply to accept: its body, headers and inflation.
        reach: Where the socket may lead; None for an address that the caller named.
        progress: Where the engine notes that bytes leave.
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
            msgspec.structs.force_setattr(self, "url", in_ascii(self.url))

    def __repr__(self) -> str:
        # Names only: the values of the headers are secret, and so may be query and body.
        headers = ", ".join(self.headers)
        return f"HttpRequest({self.method} {presentable(self.url)}, headers=[{headers}])"


class HttpReply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A reply that was read to its end.

    Attributes:
        status: The status code.
        headers: Looked up in lower case.
        body: The whole body, decompressed.
        address: The number of the host that sent it; None where that is not known, as behind a
            proxy.
    """

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""
    address: str | None = None


class HttpStream(Protocol):
    """A reply whose body is still coming."""

    @property
    def status(self) -> int:
        """The status code."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Looked up in lower case."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, in pieces of any size; iterate once."""
        ...

    async def read(self) -> bytes:
        """The whole body, for replies that turn out not to be streams."""
        ...


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Checks headers that a caller passes, and puts their names into lower case.

    Raises:
        ValueError: A name or value that would break the request, an ``Authorization`` without
            what it should hold, or a ``traceparent`` that is none; the value is not shown.
        TypeError: It is not a mapping of strings to strings.
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
        lowered = name.lower()
        if not name or not name.isascii() or not all(c.isalnum() or c in _IN_NAMES for c in name):
            text = f"{name!r} is not the name of an HTTP header"
            raise ValueError(text)
        if lowered in FRAMING:
            text = f"the header {name} is set by the connection, not by the caller"
            raise ValueError(text)
        if any((ord(c) < 32 and c != "\t") or ord(c) == 127 or ord(c) > 255 for c in value):
            text = f"the header {name} has a line break or another character that HTTP forbids"
            raise ValueError(text)
        checked[lowered] = value
    if "traceparent" in checked:
        _check_traceparent(checked["traceparent"])
    if "authorization" in checked:
        _check_authorization(checked["authorization"])
    return checked


def _check_traceparent(value: str) -> None:
    """Refuses what would end the trace at the next agent, which takes no notice of it."""
    found = _TRACEPARENT.fullmatch(value)
    if found is None or (found[1] and value.startswith("00")):
        text = (
            "the header traceparent is not one of W3C Trace Context: "
            "version-traceid-parentid-flags, as 00-<32 digits>-<16 digits>-01"
        )
        raise ValueError(text)


def _check_authorization(value: str) -> None:
    """Refuses what is left of a credential that its caller has not got."""
    words = value.split()
    if not words:
        why = "is empty"
    elif words[1:] == ["None"] or words == ["None"]:
        why = "holds None in place of a token: is an environment variable not set?"
    elif len(words) == 1 and words[0].lower() in _TOKEN_FOLLOWS:
        why = f"has no token behind {words[0]!r}"
    else:
        return
    text = f"the header Authorization {why}"
    raise ValueError(text)


def media_type(headers: Mapping[str, str]) -> str:
    """What a body is, without parameters and in lower case; empty if nobody says."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def harmless_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a reply that an error may carry."""
    found = {name: value for name in _HARMLESS if (value := headers.get(name)) is not None}
    if "location" in found:
        found["location"] = presentable(found["location"])
    return found
