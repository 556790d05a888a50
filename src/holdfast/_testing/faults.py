"""Faults between a client and an agent, as values.

A fault applies to one request; `FakeAgent.inject` selects it. By default the fault occurs before
the agent receives the request, so that the message is not executed; with ``after_execution`` it
affects the reply only. A client sees the same in process (`FakeNetwork`) and on a socket
(`LoopbackServer`).

Many faults apply to streams too: ``after_events`` is the number of events that still arrive. A
reply that is not a stream counts as one event; comments do not count.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Literal

import msgspec
from msgspec.structs import fields

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
    "check_fault",
    "rate_limited",
    "unavailable",
]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of the faults."""


class Refuse(Fault, frozen=True, kw_only=True):
    """The connection is refused, and nothing is sent.

    In process only: on a socket, the refused request is not known. See `LoopbackServer.refuse`.
    """


class Reset(Fault, frozen=True, kw_only=True):
    """The connection is reset instead of a reply, or in the middle of it.

    On a socket, the reset discards the part of large events (over some 50 KB) that the client has
    not read.

    Attributes:
        after_execution: Whether the agent executes the request before; False by default.
        after_events: Events that still arrive, after the agent has executed the request; None for
            a reset instead of a reply.
    """

    after_execution: bool = False
    after_events: int | None = None


class Stall(Fault, frozen=True, kw_only=True):
    """Nothing more is sent, and the connection stays open.

    Attributes:
        phase: The timeout that expires. ``"connect"``: no connection is made (in process only,
            see `LoopbackServer.stall`). ``"first_byte"``: no reply starts. ``"idle"``: the reply
            stops in the middle, after the agent has executed the request.
        after_execution: Whether the agent executes the request before; for ``"first_byte"``. False
            by default.
        after_events: Events that still arrive; for ``"idle"``.
        after_bytes: Bytes of the body that still arrive after these; for ``"idle"``.
    """

    phase: Literal["connect", "first_byte", "idle"] = "first_byte"
    after_execution: bool = False
    after_events: int = 0
    after_bytes: int = 0


class Delay(Fault, frozen=True, kw_only=True):
    """The request or the reply arrives late.

    Attributes:
        seconds: The delay.
        after_execution: Whether the reply is delayed; True by default. If not, the request is
            delayed, and is executed even if the client has left by then.
    """

    seconds: float
    after_execution: bool = True


class Cut(Fault, frozen=True, kw_only=True):
    """The connection is closed in the middle of the reply, after the agent executed the request.

    The reply announces its full length, so that the client notices the cut; a stream announces
    none, and lacks its last chunk. A body that is no longer than the part that still arrives is
    complete, but a stream lacks its last chunk even then.

    Attributes:
        after_events: Events that still arrive.
        after_bytes: Bytes of the body that still arrive after these, within the next event.
        clean: Whether the body ends as if it were complete, as when a proxy ends a stream that
            takes too long. False by default.
    """

    after_events: int = 0
    after_bytes: int = 0
    clean: bool = False


class Duplicate(Fault, frozen=True, kw_only=True):
    """An event of a stream is sent twice.

    Attributes:
        event: The number of the event, from 1.
    """

    event: int = 1


class Garbage(Fault, frozen=True, kw_only=True):
    """Bytes that are not HTTP arrive instead of a reply.

    Attributes:
        data: The bytes.
        after_execution: Whether the agent executes the request before; False by default.
    """

    data: bytes = b"\x15\x03\x01 this is not HTTP\r\n\r\n"
    after_execution: bool = False


class Respond(Fault, frozen=True, kw_only=True):
    """A gateway in front of the agent replies instead of it.

    Attributes:
        status: HTTP status.
        headers: Headers; names in lower case.
        body: The body.
        after_execution: Whether the agent executes the request before; False by default.
    """

    status: int
    headers: dict[str, str] = {}
    body: bytes = b""
    after_execution: bool = False


class Fail(Fault, frozen=True, kw_only=True):
    """The agent itself answers with an error, in the form of the request's binding.

    Attributes:
        code: JSON-RPC code, -32603 (internal error) by default; over HTTP+JSON, the status and
            reason that belong to it.
        message: The error's message; "internal error" by default.
        retry_after: Seconds in a ``google.rpc.RetryInfo``; None for none.
        data: JSON-RPC ``error.data`` instead of typed details; None for typed details.
        after_execution: Whether the agent executes the request before, as real agents do. False by
            default.
        after_events: Events of a stream before the error, which is its last event; None for an
            error instead of a stream.
        named: Whether that event has the type ``error``, as official servers send it. True by
            default.
    """

    code: int = -32603
    message: str = "internal error"
    retry_after: float | None = None
    data: Any = None
    after_execution: bool = False
    after_events: int | None = None
    named: bool = True


_FAULTS = (Refuse, Reset, Stall, Delay, Cut, Duplicate, Garbage, Respond, Fail)


def check_fault(fault: object) -> None:
    """Check that a value is a fault that has an effect.

    Raises:
        TypeError: It is not, such as a class or a function without parentheses.
    """
    if isinstance(fault, _FAULTS):
        return
    kind, name = type(fault).__name__, getattr(fault, "__name__", "")
    found = kind
    if isinstance(fault, type):
        found = f"the class {name}"
        if fault in _FAULTS:
            required = (field.name for field in fields(fault) if field.required)
            found += f"; write {name}({', '.join(f'{each}=…' for each in required)})"
    elif callable(fault) and name:
        found = f"the function {name}"
        if fault in (rate_limited, unavailable, bad_gateway):
            found += f"; write {name}()"
    elif isinstance(fault, list | tuple):
        found = f"{kind}; call inject() for each fault"
    text = f"fault must be a fault such as Cut(after_events=2) or rate_limited(), not {found}"
    raise TypeError(text)


def rate_limited(
    retry_after: float | str | None = None, *, retry_after_ms: float | None = None
) -> Respond:
    """Return a reply with HTTP 429 (rate limiting).

    Args:
        retry_after: ``Retry-After``, in seconds or as a date; None for none.
        retry_after_ms: ``retry-after-ms``, in milliseconds; None for none.
    """
    headers = _retry_after(retry_after)
    if retry_after_ms is not None:
        headers["retry-after-ms"] = f"{retry_after_ms:g}"
    return Respond(status=HTTPStatus.TOO_MANY_REQUESTS, headers=headers)


def unavailable(retry_after: float | str | None = None) -> Respond:
    """Return a reply with HTTP 503.

    Args:
        retry_after: ``Retry-After``, in seconds or as a date; None for none.
    """
    return Respond(status=HTTPStatus.SERVICE_UNAVAILABLE, headers=_retry_after(retry_after))


def bad_gateway(*, after_execution: bool = False) -> Respond:
    """Return a reply with HTTP 502 and the HTML page of a proxy.

    Args:
        after_execution: Whether the agent executes the request before; False by default.
    """
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
