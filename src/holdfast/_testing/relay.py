"""A request passed on to a real agent, over a connection of its own, and what comes back of it.

It knows of HTTP/1.1 what a reply needs: its head, and a body with its length, in chunks, or up to
the end of the connection. A body of events is read event by event.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from holdfast._testing.bodies import share_of
from holdfast._testing.faults import Duplicate
from holdfast._testing.serverhttp import LARGEST_HEAD
from holdfast._wire.http import FRAMING, media_type
from holdfast._wire.sse import EVENT_STREAM

if TYPE_CHECKING:
    from holdfast._testing.bodies import Ending
    from holdfast._testing.faults import Fault
    from holdfast._wire.http import HttpRequest

__all__ = ["Relay", "RelayError", "RelayedEvents"]

_CONNECTING = 10.0
_LARGEST_BODY = 64 * 1024 * 1024
_PIECE = 64 * 1024
_SEPARATORS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class RelayError(Exception):
    """The agent did not answer, or not to the end, or not in HTTP."""


class Relay:
    """A request at the agent; to be closed.

    Attributes:
        status: HTTP status of the reply.
        headers: Names in lower case, without those that frame the body.
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
        """Connects to the agent and hands the request over.

        Args:
            agent: Its origin.
            request: The request as it came.

        Raises:
            OSError: Nobody is there.
        """
        parts = urlsplit(agent)
        async with asyncio.timeout(_CONNECTING):  # a TimeoutError is an OSError
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
        there = urlsplit(request.url)
        target = there._replace(scheme="", netloc="").geturl() or "/"
        lines = [f"{request.method} {target} HTTP/1.1", *(f"{n}: {v}" for n, v in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + request.body)
        return cls(reader, writer)

    async def head(self) -> None:
        """Waits for the head of the reply.

        Raises:
            RelayError: The agent broke off, or what came is no HTTP.
        """
        try:
            await self._writer.drain()
            while self.status < 200:  # others are still to come (RFC 9110, 15.2)
                self._read_head(await self._reader.readuntil(b"\r\n\r\n"))
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:
            raise RelayError from error

    @property
    def is_stream(self) -> bool:
        """Whether the reply is a stream of events."""
        return media_type(self.headers) == EVENT_STREAM

    async def piece(self) -> bytes:
        """The next piece of the body; empty at its end.

        Raises:
            RelayError: The agent broke off before the end.
        """
        piece = b"" if self._is_over else await self._next()
        self._is_over = not piece
        return piece

    async def _next(self) -> bytes:
        try:
            if self._is_chunked:
                return await self._chunk()
            if self._length is None:
                return await self._reader.read(_PIECE)
            piece = await self._reader.read(min(self._length, _PIECE))
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:
            raise RelayError from error
        if not piece and self._length:
            raise RelayError
        self._length -= len(piece)
        return piece

    async def body(self) -> bytes:
        """The whole body.

        Raises:
            RelayError: The agent broke off before the end, or it is larger than 64 MiB.
        """
        body = bytearray()
        while piece := await self.piece():
            body += piece
            if len(body) > _LARGEST_BODY:
                raise RelayError
        return bytes(body)

    def close(self) -> None:
        """Lets go of the agent; whoever waits for a piece gets a `RelayError`, or the end."""
        self._writer.transport.abort()

    async def _chunk(self) -> bytes:
        size = int((await self._reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        if not 0 <= size <= _LARGEST_BODY:
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
    """The events of an agent's stream, as far as a fault lets them come.

    Args:
        relay: The stream.
        fault: What goes wrong with it.
    """

    length = None

    def __init__(self, relay: Relay, fault: Fault | None) -> None:
        self.ending: Ending = "whole"
        self._relay = relay
        self._share = share_of(fault)
        self._repeated = fault.event if isinstance(fault, Duplicate) else 0
        self._told = 0
        self._again = b""
        self._unread = b""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._again:
            again, self._again = self._again, b""
            return again
        share = self._share
        if share.events == share.size == 0:
            self.ending = share.ending
            raise StopAsyncIteration
        try:
            block = await self._block()
        except RelayError:
            self.ending = "cut"
            raise StopAsyncIteration from None
        if not block:
            raise StopAsyncIteration
        if share.events == 0:
            block = block[: share.size]
            share.size -= len(block)
        elif _is_event(block):
            self._count(block)
        return block

    def close(self) -> None:
        """Lets go of the agent."""
        self._relay.close()

    def _count(self, block: bytes) -> None:
        self._told += 1
        if self._share.events is not None:
            self._share.events -= 1
        if self._told == self._repeated:
            self._again = block

    async def _block(self) -> bytes:
        """What comes up to the next empty line, and with it."""
        while True:
            ends = [at + len(s) for s in _SEPARATORS if (at := self._unread.find(s)) >= 0]
            if ends:
                end = min(ends)
                block, self._unread = self._unread[:end], self._unread[end:]
                return block
            piece = await self._relay.piece()
            if not piece:
                block, self._unread = self._unread, b""
                return block
            self._unread += piece
            if len(self._unread) > _LARGEST_BODY:
                raise RelayError


def _is_event(block: bytes) -> bool:
    return any(line and not line.startswith(b":") for line in block.splitlines())
