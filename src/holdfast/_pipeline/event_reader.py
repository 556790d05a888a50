"""Reading the events of one connection: the value of a streaming call's reply.

Rules: a stream is open once its first event has arrived, so that any earlier failure is a failed
attempt like any other; an agent that answers with one JSON document instead of events is
accepted; this module does not decide whether a stream was complete.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from holdfast._net.engine import connection_error
from holdfast._wire.http import HttpReply, media_type
from holdfast._wire.limits import check_json_size, check_value, harmless_size
from holdfast._wire.redirects import follow
from holdfast._wire.sse import EVENT_STREAM, EventStreamParser, ServerSentEvent
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from holdfast._net.engine import HttpEngine
    from holdfast._wire.http import HttpRequest, HttpStream
    from holdfast._wire.limits import Limits
    from holdfast._wire.network_scope import Network

__all__ = ["EventReader"]

R = TypeVar("R")


class EventReader(Generic[R]):
    """The events of the reply to one request.

    Args:
        engine: Carries the request.
        request: The request.
        limits: How large an event and its content may be.
        agent: The agent's address, as shown in errors.
        read: Decodes the data of an event; returns None where it cannot.
        decode: Decodes a reply or, where ``read`` returned None, the data of an event, or raises
            an `A2AError`.
        decode_error: Makes the error of an event of type ``error``.
        networks: Networks that a redirect may always reach.
    """

    __slots__ = (
        "_agent",
        "_chunks",
        "_connection",
        "_decode",
        "_decode_error",
        "_engine",
        "_frames",
        "_harmless",
        "_headers",
        "_limits",
        "_networks",
        "_parser",
        "_read",
        "_reply",
        "_request",
        "_status",
        "_value",
    )

    _reply: HttpStream
    _chunks: AsyncIterator[bytes]

    def __init__(
        self,
        engine: HttpEngine,
        request: HttpRequest,
        *,
        limits: Limits,
        agent: str,
        read: Callable[[bytes], R | None],
        decode: Callable[[HttpReply], R],
        decode_error: Callable[[HttpReply], A2AError],
        networks: tuple[Network, ...] = (),
    ) -> None:
        self._engine = engine
        self._request = request
        self._limits = limits
        self._harmless = harmless_size(limits)
        self._agent = agent
        self._read = read
        self._decode = decode
        self._decode_error = decode_error
        self._networks = networks
        self._connection: AbstractAsyncContextManager[HttpStream] | None = None
        self._parser = EventStreamParser(limits)
        self._frames: list[ServerSentEvent] = []  # received and not decoded, the last one first
        self._value: R | None = None  # the first, until it is taken
        self._status = 0
        self._headers: Mapping[str, str] = {}

    def __aiter__(self) -> Self:
        return self

    async def open(self) -> Mapping[str, str]:
        """Send the request, wait for the first event, and return the headers of the reply.

        Raises:
            A2AError: A failure before the first event; the connection is closed.
        """
        try:
            await self._send()
            if self._status < 300 and media_type(self._headers) == EVENT_STREAM:
                self._chunks = self._reply.chunks()
                self._value = await self._first()
            else:
                self._value = await self._only()
        except BaseException as error:
            if isinstance(error, A2AError):
                error.agent = self._agent
            await self.close()
            raise
        return self._headers

    async def __anext__(self) -> R:
        if self._value is not None:
            first, self._value = self._value, None
            return first
        if self._connection is None:
            raise StopAsyncIteration
        try:
            while not self._frames:
                try:
                    chunk = await self._chunks.__anext__()
                except StopAsyncIteration:
                    if self._parser.is_cut:
                        reason = "in the middle of an event"
                        raise self._cut(reason) from None
                    raise
                self._frames = self._parser.feed(chunk)[::-1]
            value = self.next_nowait()
            if value is None:  # it is an error, or cannot be decoded
                frame = self._frames.pop()
                reply = self._reply_of(frame.data)
                if frame.event == "error":
                    raise self._decode_error(reply)
                value = self._checked(reply)
        except A2AError as error:
            error.agent = self._agent
            raise
        return value

    def next_nowait(self) -> R | None:
        """Return the next value if it is buffered; errors are raised by ``__anext__``."""
        if not self._frames or self._value is not None:
            return None
        frame = self._frames[-1]
        data = frame.data
        if frame.event == "error":
            return None
        try:
            check_json_size(data, self._limits)
            value = self._read(data)
            if value is None:
                value = self._decode(self._reply_of(data))
            if len(data) > self._harmless:
                check_value(value, self._limits)
        except A2AError:
            return None
        self._frames.pop()
        return value

    async def close(self) -> None:
        """Close the connection."""
        self._frames.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.__aexit__(None, None, None)

    async def _send(self) -> None:
        """Send the request, and follow the redirects that are allowed for it."""
        request, followed = self._request, 0
        while True:
            connection = self._engine.stream(request)
            self._reply = reply = await connection.__aenter__()
            self._connection = connection
            self._status, self._headers = reply.status, reply.headers
            if not 300 <= reply.status < 400:
                return
            # Not every engine reports the final URL of a stream.
            address: str | None = getattr(reply, "address", None)
            moved = HttpReply(status=reply.status, headers=reply.headers, address=address)
            onward = follow(
                request, moved, other_origins=None, followed=followed, allowed=self._networks
            )
            if onward is None:
                return
            await self.close()
            request, followed = onward, followed + 1

    async def _first(self) -> R:
        with contextlib.suppress(StopAsyncIteration):
            return await self.__anext__()
        raise self._empty()

    async def _only(self) -> R:
        """Return the reply of an agent that answers with one document."""
        reply = self._reply_of(await self._reply.read())
        if not reply.body and reply.status < 300:
            raise self._empty()
        await self.close()
        return self._checked(reply)

    def _reply_of(self, body: bytes) -> HttpReply:
        return HttpReply(status=self._status, headers=self._headers, body=body)

    def _checked(self, reply: HttpReply) -> R:
        check_json_size(reply.body, self._limits)
        value = self._decode(reply)
        if len(reply.body) > self._harmless:
            check_value(value, self._limits)
        return value

    def _empty(self) -> A2AError:
        return self._cut(f"HTTP {self._status} without an event")

    def _cut(self, reason: str) -> A2AError:
        return connection_error(self._request, "truncated", reason, sent=True)
