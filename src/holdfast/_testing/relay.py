"""A request forwarded to a real agent, over a connection of its own, and its reply.

It implements the part of HTTP/1.1 that a reply needs: the head, and a body with a length, in
chunks, or up to the end of the connection. A body of events is read event by event.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from holdfast._testing.bodies import portion_of
from holdfast._testing.faults import Duplicate
from holdfast._testing.http_messages import LARGEST_HEAD
from holdfast._wire.http import FRAMING
from holdfast.extend import media_type
from holdfast.protocol import EVENT_STREAM

if TYPE_CHECKING:
    from holdfast._testing.bodies import BodyEnd
    from holdfast._testing.faults import Fault
    from holdfast.extend import HttpRequest

__all__ = ["Relay", "RelayError", "RelayedEvents"]

_CONNECT_TIMEOUT_S = 10.0
_MAX_BODY_BYTES = 64 * 1024 * 1024
_PIECE_BYTES = 64 * 1024
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class RelayError(Exception):
    """The agent did not answer, or not to the end, or not in HTTP."""


class Relay:
    """A request to the agent; it must be closed.

    Attributes:
        status: HTTP status of the reply.
        headers: Headers except those that frame the body; names in lower case.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._length: int | None = None
        self._is_chunked = False
        self._is_over = False
        self.status = 0
        self.headers: dict[str, str] = {}

    @classmethod
    async def begin(cls, agent: str, request: HttpRequest) -> Self:
        """Connect to the agent, and send the request.

        Args:
            agent: The agent's origin.
            request: The client's request.

        Raises:
            OSError: The agent cannot be reached.
        """
        parts = urlsplit(agent)
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):  # a TimeoutError is an OSError
            reader, writer = await asyncio.open_connection(
                parts.hostname, parts.port or 80, limit=LARGEST_HEAD
            )
        kept = {n: v for n, v in request.headers.items() if n not in FRAMING}
        headers = {
            **kept,
            "host": parts.netloc,
            "accept-encoding": "identity",
            "connection": "close",
            "content-length": str(len(request.body)),
        }
        target = urlsplit(request.url)._replace(scheme="", netloc="").geturl() or "/"
        lines = [f"{request.method} {target} HTTP/1.1", *(f"{n}: {v}" for n, v in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + request.body)
        return cls(reader, writer)

    async def head(self) -> None:
        """Wait for the head of the reply.

        Raises:
            RelayError: The connection was closed, or the reply is not HTTP.
        """
        try:
            await self._writer.drain()
            while self.status < 200:  # interim responses (RFC 9110, 15.2)
                self._read_head(await self._reader.readuntil(b"\r\n\r\n"))
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:
            raise RelayError from error

    @property
    def is_stream(self) -> bool:
        """Whether the reply is a stream of events."""
        return media_type(self.headers) == EVENT_STREAM

    async def piece(self) -> bytes:
        """Return the next piece of the body; empty at its end.

        Raises:
            RelayError: The connection was closed before the end.
        """
        piece = b"" if self._is_over else await self._next()
        self._is_over = not piece
        return piece

    async def _next(self) -> bytes:
        try:
            if self._is_chunked:
                return await self._chunk()
            if self._length is None:
                return await self._reader.read(_PIECE_BYTES)
            piece = await self._reader.read(min(self._length, _PIECE_BYTES))
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:
            raise RelayError from error
        if not piece and self._length:
            raise RelayError
        self._length -= len(piece)
        return piece

    async def body(self) -> bytes:
        """Return the whole body.

        Raises:
            RelayError: The connection was closed before the end, or the body is larger than
                64 MiB.
        """
        body = bytearray()
        while piece := await self.piece():
            body += piece
            if len(body) > _MAX_BODY_BYTES:
                raise RelayError
        return bytes(body)

    def close(self) -> None:
        """Close the connection; a reader that waits gets a `RelayError`, or the end."""
        self._writer.transport.abort()

    async def _chunk(self) -> bytes:
        size = int((await self._reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        if not 0 <= size <= _MAX_BODY_BYTES:
            raise RelayError
        return (await self._reader.readexactly(size + 2))[:-2]

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ", 2)[1])
        headers: dict[str, str] = {}
        for line in filter(None, lines):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        self._is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        length = headers.get("content-length")
        self._length = None if length is None else int(length)
        if self.status in {204, 304}:
            self._length = 0
        self.headers = {n: v for n, v in headers.items() if n not in FRAMING}


class RelayedEvents:
    """The events of an agent's stream that a fault lets through.

    Args:
        relay: The stream.
        fault: The fault; None for none.
    """

    length = None

    def __init__(self, relay: Relay, fault: Fault | None) -> None:
        self.ending: BodyEnd = "whole"
        self._relay = relay
        self._portion = portion_of(fault)
        self._repeated = fault.event if isinstance(fault, Duplicate) else 0
        self._sent = 0
        self._repeat = b""
        self._unread = b""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._repeat:
            repeat, self._repeat = self._repeat, b""
            return repeat
        portion = self._portion
        if portion.events == portion.size == 0:
            self.ending = portion.ending
            raise StopAsyncIteration
        try:
            block = await self._block()
        except RelayError:
            self.ending = "cut"
            raise StopAsyncIteration from None
        if not block:
            raise StopAsyncIteration
        if portion.events == 0:
            block = block[: portion.size]
            portion.size -= len(block)
        elif _is_event(block):
            self._count(block)
        return block

    def close(self) -> None:
        """Close the connection to the agent."""
        self._relay.close()

    def _count(self, block: bytes) -> None:
        self._sent += 1
        if self._portion.events is not None:
            self._portion.events -= 1
        if self._sent == self._repeated:
            self._repeat = block

    async def _block(self) -> bytes:
        """Return the text up to and including the next empty line."""
        while True:
            ends = [
                start + len(end) for end in _EVENT_ENDS if (start := self._unread.find(end)) >= 0
            ]
            if ends:
                end = min(ends)
                block, self._unread = self._unread[:end], self._unread[end:]
                return block
            piece = await self._relay.piece()
            if not piece:
                block, self._unread = self._unread, b""
                return block
            self._unread += piece
            if len(self._unread) > _MAX_BODY_BYTES:
                raise RelayError


def _is_event(block: bytes) -> bool:
    return any(line and not line.startswith(b":") for line in block.splitlines())
