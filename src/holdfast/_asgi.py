"""What servers and receivers share of ASGI 3: headers, a bounded body, a short reply."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._aio.cancel_scope import CancelScope

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "ASGIApplication",
    "ASGIReceive",
    "ASGIScope",
    "ASGISend",
    "BodyRejected",
    "ClientGone",
    "ShortReply",
    "header_map",
    "lifespan",
    "metadata_map",
    "read_body",
    "refuse_websocket",
    "reply",
]

ASGIScope = MutableMapping[str, Any]
ASGIReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]
ASGISend = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApplication = Callable[[ASGIScope, ASGIReceive, ASGISend], Awaitable[None]]
"""An application of ASGI 3."""

_SEND_TIMEOUT_S = 30.0
"""Seconds that sending a reply may take."""


class ShortReply(msgspec.Struct, frozen=True):
    """A reply of one line.

    Attributes:
        status: HTTP status.
        text: The line; it contains no secret.
        headers: Headers besides ``Content-Length``, and besides ``Content-Type`` if that is plain
            text; names in lower case.
    """

    status: int
    text: str
    headers: dict[str, str] = {}


class ClientGone(Exception):  # noqa: N818  a client that leaves is not an error
    """The client has left; it gets no reply."""


class BodyRejected(Exception):  # noqa: N818  it is an answer
    """The body of a request is not accepted.

    Attributes:
        status: The HTTP status to answer with: 413 for too large, 408 for too slow, 503 for no
            memory left.
        text: The reason in one line; it contains no secret.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def header_map(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by their names in lower case; repeated ones are joined by commas."""
    return _joined(
        (name.decode("latin-1").lower(), value.decode("latin-1").strip())
        for name, value in headers
    )


def metadata_map(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[str, str]:
    """Return the metadata of a gRPC call by name, without binary values, as `header_map` does."""
    return _joined((name, value) for name, value in metadata or () if isinstance(value, str))


def _joined(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    by_name: dict[str, str] = {}
    for name, value in headers:
        by_name[name] = f"{by_name[name]}, {value}" if name in by_name else value
    return by_name


async def read_body(
    receive: ASGIReceive, *, limit: int, seconds: float, reserve: Callable[[int], None]
) -> bytes:
    """Read the body of a request, and no more of it than is accepted.

    Args:
        receive: The request's ``receive``.
        limit: Bytes that the body may have.
        seconds: Seconds that reading it may take.
        reserve: Called with the size of each piece, before the piece is kept.

    Raises:
        BodyRejected: The body is too large (413), or too slow (408).
        ClientGone: The client has left.
    """
    body = bytearray()  # many small pieces would take more room than their content
    async with CancelScope.within(seconds):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece: bytes = message.get("body", b"")
            if len(body) + len(piece) > limit:
                raise BodyRejected(413, f"the body is larger than {limit} bytes")
            reserve(len(piece))
            body += piece
            if not message.get("more_body", False):
                return bytes(body)
            if not piece:
                await asyncio.sleep(0)  # some servers return empty pieces without waiting
    raise BodyRejected(408, f"the body did not come within {seconds:g} s")


async def reply(send: ASGISend, answer: ShortReply) -> None:
    """Send a reply; if the client has left or does not read, the reply is lost."""
    body = f"{answer.text}\n".encode()
    headers = {
        "content-type": "text/plain; charset=utf-8",
        **answer.headers,
        "content-length": str(len(body)),
    }
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    with contextlib.suppress(OSError):  # ASGI 2.4: the client has left
        async with CancelScope.within(_SEND_TIMEOUT_S):
            await send({"type": "http.response.start", "status": answer.status, "headers": raw})
            await send({"type": "http.response.body", "body": body})


async def lifespan(receive: ASGIReceive, send: ASGISend) -> None:
    """Serve the lifespan protocol of an application with nothing to start or to stop."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return


async def refuse_websocket(receive: ASGIReceive, send: ASGISend) -> None:
    """Close a WebSocket before it opens; the server answers HTTP 403."""
    await receive()
    await send({"type": "websocket.close", "code": 1000})
