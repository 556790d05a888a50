"""What can go wrong between a client and an agent, as values.

A fault is for one request: `FakeAgent.inject` says for which. What happens on the way to the
agent leaves the message unexecuted; with ``after_execution`` it happens on the way back. A client
sees the same of a fault in process (`FakeNetwork`) and on a socket (`LoopbackServer`).

Many faults are for streams, too: ``after_events`` says how many events still come. A reply that is
no stream counts as one event; comments do not count.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Literal

import msgspec

__all__ = [
    "Cut",
    "Delay",
    "Duplicate",
    "Fail",
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
    """Base of the faults."""


class Refuse(Fault, frozen=True, kw_only=True):
    """The connection is refused: no byte leaves.

    In process only: a socket that refuses sees no request. See `LoopbackServer.refuse`.
    """


class Reset(Fault, frozen=True, kw_only=True):
    """The connection is reset instead of a reply, or in the middle of it.

    On a socket, what a client has not received of events of more than some 50 KB is lost with it.

    Attributes:
        after_execution: Whether the agent takes in the request before.
        after_events: Events that still come, after the agent took in the request; None for a
            reset instead of a reply.
    """

    after_execution: bool = False
    after_events: int | None = None


class Stall(Fault, frozen=True, kw_only=True):
    """Nothing goes on any more; the connection stays open.

    Attributes:
        phase: The wait that it makes expire. ``"connect"``: no connection comes about (in
            process only, see `LoopbackServer.stall`). ``"first_byte"``: no reply begins.
            ``"idle"``: the reply stops in the middle, after the agent took in the request.
        after_execution: Whether the agent takes in the request before; for ``"first_byte"``.
        after_events: Events that still come; for ``"idle"``.
        after_bytes: Bytes of the reply's body that still come after these; for ``"idle"``.
    """

    phase: Literal["connect", "first_byte", "idle"] = "first_byte"
    after_execution: bool = False
    after_events: int = 0
    after_bytes: int = 0


class Delay(Fault, frozen=True, kw_only=True):
    """Everything comes, but late.

    Attributes:
        seconds: How late.
        after_execution: Whether it is the reply that is late. If not, the request itself is
            under way for so long, and is taken in even if nobody waits for its reply any more.
    """

    seconds: float
    after_execution: bool = True


class Cut(Fault, frozen=True, kw_only=True):
    """The connection is closed in the middle of the reply, after the agent took in the request.

    The reply announces its full length, so that what came is known to be too little; a stream,
    which announces none, lacks its end. A body that is not longer than what still comes is whole,
    but for a stream with no more than so many events: it lacks its end all the same.

    Attributes:
        after_events: Events that still come.
        after_bytes: Bytes of the body that still come after these: inside the next event.
        clean: Whether the body ends properly there, as if it were whole: what a proxy does to a
            stream that takes too long.
    """

    after_events: int = 0
    after_bytes: int = 0
    clean: bool = False


class Duplicate(Fault, frozen=True, kw_only=True):
    """An event of a stream comes twice.

    Attributes:
        event: Which one, counted from 1.
    """

    event: int = 1


class Garbage(Fault, frozen=True, kw_only=True):
    """Bytes that are not HTTP come instead of a reply.

    Attributes:
        data: The bytes.
        after_execution: Whether the agent takes in the request before.
    """

    data: bytes = b"\x15\x03\x01 this is not HTTP\r\n\r\n"
    after_execution: bool = False


class Respond(Fault, frozen=True, kw_only=True):
    """Something in front of the agent answers in its place.

    Attributes:
        status: HTTP status.
        headers: Names in lower case.
        body: As it is sent.
        after_execution: Whether the agent takes in the request before.
    """

    status: int
    headers: dict[str, str] = {}
    body: bytes = b""
    after_execution: bool = False


class Fail(Fault, frozen=True, kw_only=True):
    """The agent itself answers with an error, in the form of the request's binding.

    Attributes:
        code: JSON-RPC code; HTTP+JSON gets the status and reason that belong to it.
        message: What it says.
        retry_after: Seconds in a `google.rpc.RetryInfo`; None for no such hint.
        data: JSON-RPC ``error.data`` in place of typed details.
        after_execution: Whether the agent takes in the request before, as real ones do.
        after_events: Events of a stream that come before; the error is an event then, and the
            last one. None for an error in place of the stream.
        named: Whether that event is of the type ``error``, as official servers send it.
    """

    code: int = -32603
    message: str = "internal error"
    retry_after: float | None = None
    data: Any = None
    after_execution: bool = False
    after_events: int | None = None
    named: bool = True


def rate_limited(
    retry_after: float | str | None = None, *, retry_after_ms: float | None = None
) -> Respond:
    """HTTP 429.

    Args:
        retry_after: ``Retry-After``, in seconds or as a date; None for none.
        retry_after_ms: ``retry-after-ms``, in milliseconds; None for none.
    """
    headers = _retry_after(retry_after)
    if retry_after_ms is not None:
        headers["retry-after-ms"] = f"{retry_after_ms:g}"
    return Respond(status=HTTPStatus.TOO_MANY_REQUESTS, headers=headers)


def unavailable(retry_after: float | str | None = None) -> Respond:
    """HTTP 503, with a ``Retry-After`` in seconds or as a date."""
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
