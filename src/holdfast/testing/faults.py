"""What can go wrong between a client and an agent, as values.

A fault is for one request. Those that happen on the way to the agent leave the message
unexecuted; those with ``after_execution`` happen on the way back.
"""

from __future__ import annotations

from http import HTTPStatus

import msgspec

__all__ = [
    "Cut",
    "Delay",
    "Fault",
    "Garbage",
    "Refuse",
    "Reset",
    "Respond",
    "Stall",
    "bad_gateway",
    "rate_limited",
    "unavailable",
]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the faults.

    Attributes:
        after_execution: Whether the agent takes in the request before it happens.
    """

    after_execution: bool = False


class Refuse(Fault, frozen=True, kw_only=True):
    """The connection is refused.

    In process only: a socket that refuses sees no request. See `LoopbackServer.refuse`.
    """


class Reset(Fault, frozen=True, kw_only=True):
    """The connection is reset instead of a reply."""


class Stall(Fault, frozen=True, kw_only=True):
    """No reply comes; the connection stays open."""


class Delay(Fault, frozen=True, kw_only=True):
    """The reply comes, `seconds` late."""

    seconds: float


class Cut(Fault, frozen=True, kw_only=True):
    """The connection is closed after `after_bytes` bytes of the reply's body.

    It announces its full length, so that what came is known to be too little.
    """

    after_bytes: int = 0
    after_execution: bool = True


class Garbage(Fault, frozen=True, kw_only=True):
    """Bytes that are not HTTP come instead of a reply."""

    data: bytes = b"\x15\x03\x01 this is not HTTP\r\n\r\n"


class Respond(Fault, frozen=True, kw_only=True):
    """Something in front of the agent answers in its place."""

    status: int
    headers: dict[str, str] = {}
    body: bytes = b""


def rate_limited(retry_after: float | str | None = None) -> Respond:
    """HTTP 429, with a Retry-After in seconds or as a date."""
    return Respond(status=HTTPStatus.TOO_MANY_REQUESTS, headers=_retry_after(retry_after))


def unavailable(retry_after: float | str | None = None) -> Respond:
    """HTTP 503, with a Retry-After in seconds or as a date."""
    return Respond(status=HTTPStatus.SERVICE_UNAVAILABLE, headers=_retry_after(retry_after))


def bad_gateway(*, after_execution: bool = False) -> Respond:
    """HTTP 502 with the HTML page of a proxy."""
    return Respond(
        status=HTTPStatus.BAD_GATEWAY,
        headers={"content-type": "text/html"},
        body=b"<html><body><h1>502 Bad Gateway</h1>\n<p>upstream went away</p></body></html>",
        after_execution=after_execution,
    )


def _retry_after(value: float | str | None) -> dict[str, str]:
    if value is None:
        return {}
    return {"retry-after": value if isinstance(value, str) else f"{value:g}"}
