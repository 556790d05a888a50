"""The little of ASGI 3 that a receiver needs: a request in, a short reply out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast._aio.cancel_scope import CancelScope
from holdfast._push.refusals import Refusal, Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "ASGIReceive",
    "ASGIScope",
    "ASGISend",
    "Gone",
    "ShortReply",
    "answer_to",
    "headers_of",
    "lifespan",
    "read_body",
    "refuse_websocket",
    "reply",
]

ASGIScope = MutableMapping[str, Any]
ASGIReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]
ASGISend = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ShortReply(msgspec.Struct, frozen=True):
    """What is answered.

    Attributes:
        status: HTTP status.
        text: One line for whoever looks into it; no secret is in it.
        headers: Besides the length, and the type where that is not plain text; names in lower
            case.
    """

    status: int
    text: str
    headers: dict[str, str] = {}


_LATER = {"retry-after": "10"}
_ANSWERS: Mapping[Refusal, tuple[int, dict[str, str]]] = {
    Refusal.UNPROVEN: (401, {"www-authenticate": "Bearer"}),
    Refusal.UNVOUCHED: (401, {"www-authenticate": 'Bearer error="invalid_token"'}),  # RFC 6750
    Refusal.UNEXPECTED: (404, {}),
    Refusal.EARLY: (503, {"retry-after": "1"}),
    Refusal.NOT_NOW: (503, _LATER),
    Refusal.NOT_POSTED: (405, {"allow": "POST"}),
    Refusal.NOT_JSON: (415, {}),
    Refusal.UNREADABLE: (400, {}),
    Refusal.TOO_LARGE: (413, {}),
    Refusal.TOO_SLOW: (408, {}),
}
"""What each refusal is answered by: its status, and headers."""

_SENDING = 30.0
"""Seconds that an answer may take to be sent."""


def answer_to(refused: Refused) -> ShortReply:
    """How a refusal is answered."""
    status, headers = _ANSWERS[refused.fact]
    return ShortReply(status, refused.text, headers)


class Gone(Exception):  # noqa: N818  whoever leaves gets no answer
    """The client has left."""


def headers_of(scope: ASGIScope) -> dict[str, str]:
    """The headers, names in lower case; one that came several times is joined by commas."""
    found: dict[str, str] = {}
    pairs = cast("Iterable[tuple[bytes, bytes]]", scope.get("headers") or ())
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").strip()
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


async def read_body(
    receive: ASGIReceive, *, limit: int, seconds: float, take: Callable[[int], None]
) -> bytes:
    """Reads a body, and no more of it than is accepted.

    Args:
        receive: Where it comes from.
        limit: How many bytes it may have.
        seconds: How long it may take.
        take: Told of the bytes of each piece, before it is kept.

    Raises:
        Refused: It is too large, or takes too long.
        Gone: The client has left.
    """
    body = bytearray()  # many small pieces take more room than they hold
    async with CancelScope.within(seconds):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            piece: bytes = message.get("body", b"")
            if len(body) + len(piece) > limit:
                raise Refused(Refusal.TOO_LARGE, f"the body is larger than {limit} bytes")
            take(len(piece))
            body += piece
            if not message.get("more_body", False):
                return bytes(body)
            if not piece:
                await asyncio.sleep(0)  # not all servers wait before they bring nothing
    raise Refused(Refusal.TOO_SLOW, f"the body did not come within {seconds:g} s")


async def reply(send: ASGISend, answer: ShortReply) -> None:
    """Sends an answer; what is sent to a client that has left, or does not read, is lost."""
    body = f"{answer.text}\n".encode()
    headers = {
        "content-type": "text/plain; charset=utf-8",
        **answer.headers,
        "content-length": str(len(body)),
    }
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    with contextlib.suppress(OSError):  # ASGI 2.4: the client has left
        async with CancelScope.within(_SENDING):
            await send({"type": "http.response.start", "status": answer.status, "headers": raw})
            await send({"type": "http.response.body", "body": body})


async def lifespan(receive: ASGIReceive, send: ASGISend) -> None:
    """Tells a server that there is nothing to prepare, and at the end nothing to wait for."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return


async def refuse_websocket(receive: ASGIReceive, send: ASGISend) -> None:
    """Closes what is no request; a server answers 403 for that."""
    await receive()
    await send({"type": "websocket.close", "code": 1000})
