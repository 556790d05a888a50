"""The engine over aiohttp: real sockets, HTTP/1.1.

It owns the exchange: one request and its reply. `holdfast._net.pools` owns the slots and the
connections, `holdfast._net.error_mapper` says what a failure means.

Rules, each against something that aiohttp does otherwise:
- Every phase has its own limit, and the error names it: slots are counted here, and every
  request, even an empty one, is written by a `_Body`, which tells when the first byte leaves.
- `sent` is noted before the first byte is handed to a socket, and taken back only if that socket
  was closed already.
- A reply that was there before the request left is not its reply, and a connection that the other
  end has closed takes no request, even if the event loop has not come round to it yet.
- What arrived before a cut is delivered before the error.
- What is given up is aborted: closing would first wait for a peer that does not read.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Self
from urllib.request import getproxies

import aiohttp
from aiohttp import payload

from holdfast._aio.closing import ClosingContext
from holdfast._aio.per_loop import PerLoop
from holdfast._model.settings import check_count, check_kind
from holdfast._net.error_mapper import ErrorMapper, presentable_cause
from holdfast._net.pools import Pools, Settings, is_verifying, ssl_option
from holdfast._net.proxies import Proxies
from holdfast._net.sockets import ForbiddenAddressError, is_hung_up
from holdfast._net.tls_config import TlsConfig
from holdfast._wire.http import HttpReply, HttpRequest, HttpStream
from holdfast._wire.inflating import Inflater
from holdfast._wire.limits import EIGHT_HEADERS, headers_fit
from holdfast.errors import A2AError, InvalidAgentResponseError, LimitExceededError

if TYPE_CHECKING:
    import asyncio
    import ssl as tls
    from collections.abc import AsyncIterator, Coroutine, Mapping
    from contextlib import AbstractAsyncContextManager
    from os import PathLike
    from types import TracebackType

    from aiohttp.abc import AbstractStreamWriter

    from holdfast._aio.semaphore import FifoSemaphore
    from holdfast._aio.watchdog import TimeLimit
    from holdfast.errors import TimeoutPhase

__all__ = ["AiohttpEngine"]

logger = logging.getLogger("holdfast")

_PIECE = 32 * 1024
"""Bytes written at once: below what makes aiohttp wait for the socket within one write."""

_UNASKED = "a reply was there before the request"


class AiohttpEngine(ClosingContext):
    """Carries requests with `aiohttp`. Use it as an async context manager.

    Clients that share one leave it open; whoever made it closes it.

    Args:
        max_connections: Calls under way at a time; more of them wait for a slot.
        max_streams: Streams open at a time, apart from the calls.
        ssl: A `TlsConfig`, a certificate authority's file, a context, or False for no
            verification at all (development only). The default verifies with the system's
            authorities.
        proxies: Whether to use the proxies that the environment names (``HTTPS_PROXY``,
            ``NO_PROXY`` …), read when the engine is made.
        session: A session of your own, used as it is and never closed; `ssl` and `proxies` do
            nothing then. Waiting for its pool counts as connecting, ``max_idle`` is not kept, its
            middlewares may send a request twice, its cookies go with the calls of all who share
            it, a GET carries ``Content-Length: 0``, and to an address that a request must not
            reach nothing is sent, but a connection may be made.

    Attributes:
        tls: What was passed as `ssl`, if that is a `TlsConfig`; what else connects on behalf of
            the same client goes by it.

    Raises:
        ValueError: A number is not positive, or the file is not a certificate.
        TypeError: A number is not whole, or another argument is of another type.
        FileNotFoundError: There is no such file.
    """

    def __init__(
        self,
        *,
        max_connections: int = 100,
        max_streams: int = 1000,
        ssl: TlsConfig | tls.SSLContext | str | PathLike[str] | bool = True,
        proxies: bool = True,
        session: aiohttp.ClientSession | None = None,
    ) -> None:
        check_count("max_connections", max_connections, least=1)
        check_count("max_streams", max_streams, least=1)
        check_kind("proxies", proxies, bool)
        check_kind("session", session, (aiohttp.ClientSession, type(None)))
        trusted = ssl_option(ssl)
        if session is None and not is_verifying(trusted):
            logger.warning(
                "TLS certificates are not verified (ssl= or TlsConfig): anyone on the network "
                "path can read and change requests and replies"
            )
        settings = Settings(
            max_connections=max_connections,
            max_streams=max_streams,
            ssl=trusted,
            proxies=Proxies(getproxies() if proxies and session is None else {}),
            lent=session,
        )
        self.tls = ssl if isinstance(ssl, TlsConfig) else None
        self._pools = PerLoop(lambda: Pools(settings))

    async def request(self, request: HttpRequest) -> HttpReply:
        """Sends a request and reads the whole reply.

        Raises:
            A2AConnectionError: No connection, or it broke.
            A2ATimeoutError: A limit of ``request.timeouts`` fired.
            LimitExceededError: The reply is larger than ``request.limits`` allow.
            InvalidAgentResponseError: The reply cannot be read. The body of one that is no
                success counts as empty then: its status says enough.
        """
        async with _Exchange(self._pools, request, streaming=False) as reply:
            body = await reply.read()
            # Of what was sent nobody asks, unless it is redirected.
            is_asked = request.method == "GET" or 300 <= reply.status < 400
            address = reply.address if is_asked else None
            return HttpReply(
                status=reply.status, headers=reply.headers, body=body, address=address
            )

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Sends a request and leaves the body to be read while the context is open.

        Raises:
            A2AConnectionError: No connection, or it broke; also from the chunks.
            A2ATimeoutError: A limit of ``request.timeouts`` fired; also from the chunks.
            LimitExceededError: The headers are too large; from the chunks: they are inflated
                beyond ``request.limits``.
            InvalidAgentResponseError: The reply cannot be read; also from the chunks.
        """
        return _Exchange(self._pools, request, streaming=True)

    async def close(self) -> None:
        """Closes what belongs to the running loop, and to loops that are gone."""
        for pools in self._pools.here_and_closed():
            await pools.close()


class _Exchange:
    """One request and its reply: takes a slot, keeps the limits, and notes what leaves.

    Entered, it is an `HttpStream`.
    """

    _pools: Pools
    _slots: FifoSemaphore
    _response: aiohttp.ClientResponse

    def __init__(
        self, all_pools: PerLoop[Pools], request: HttpRequest, *, streaming: bool
    ) -> None:
        self._all_pools = all_pools
        self._request = request
        self._streaming = streaming
        self._phase: TimeoutPhase = "pool"
        self._limit: TimeLimit | None = None
        self._given_up = False
        self._sent = False
        self._transport: asyncio.Transport | None = None
        self._inflater: Inflater | None = None
        self._forbidden: ForbiddenAddressError | None = None
        self._is_useless = False  # the body, which is encoded as nobody asked for

    async def __aenter__(self) -> Self:
        """Takes a slot, sends the request and waits for the headers of the reply."""
        self._pools = self._all_pools.here()
        self._slots = self._pools.streams if self._streaming else self._pools.calls
        # Where a slot is free, connecting begins at once: one limit less to set and to move.
        waits = self._slots.is_full
        self._phase = "pool" if waits else "connect"
        progress = self._request.progress
        progress.awaits = self._pools.place(streaming=self._streaming) if waits else None
        seconds = getattr(self._request.timeouts, self._phase)
        try:
            with self._pools.watchdog.within(seconds) as self._limit:
                await self._slots.acquire()
                if waits:
                    progress.awaits = None
                    self.enter("connect")
                return await self._send()
        except A2AError:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure, cause = self._failing.told(error), presentable_cause(error)
            if failure is None:
                raise
        finally:
            self._limit = None
        raise failure from cause  # from outside, so that it drags no other context along

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Gives the connection back if the reply was read to its end."""
        try:
            if not self._response.content.is_eof():
                self.abort()
            self._response.release()
        finally:
            self._slots.release()

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    @property
    def address(self) -> str | None:
        """The number of the host at the other end, unless that is a proxy."""
        transport = self._transport
        if transport is None or self._pools.is_proxied(self._request.url):
            return None
        peer: tuple[str, int] | str | None = transport.get_extra_info("peername")
        return peer[0] if isinstance(peer, tuple) else None

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, bytes]:
        return self._piece() if self._inflater is None else self._inflated(self._inflater)

    async def _inflated(self, inflater: Inflater) -> bytes:
        """The next piece, unpacked."""
        try:
            while not (piece := inflater.feed(await self._piece())):
                pass
        except StopAsyncIteration:
            if inflater.is_cut:
                raise self._failing.connection("truncated") from None
            raise
        except (InvalidAgentResponseError, LimitExceededError) as error:
            raise self._failing.stated(error) from None
        return piece

    async def _piece(self) -> bytes:
        """The next piece as it comes."""
        content = self._response.content
        self._phase = "idle"
        try:
            if content.is_eof():
                piece = content.read_nowait()  # all is here: nothing to wait for
            else:
                with self._pools.watchdog.within(self._request.timeouts.idle):
                    piece = await content.readany()
        except (aiohttp.ClientError, OSError) as error:
            piece = _rest(content)
            if not piece:
                raise self._failing.of(error) from error
        if not piece:
            raise StopAsyncIteration
        return piece

    async def read(self) -> bytes:
        if self._is_useless:
            return b""
        body, largest = bytearray(), self._request.limits.body
        try:
            async for piece in self:
                body += piece
                if len(body) > largest:
                    raise self._failing.large_body()
                if self._inflater is None and self._response.content.at_eof():
                    break
        except (InvalidAgentResponseError, LimitExceededError):
            if self.status < 300:
                raise
            return b""
        return bytes(body)

    @property
    def given_up(self) -> bool:
        """Whether nobody waits for the reply any more, and nothing must leave."""
        return self._given_up or (self._limit is not None and self._limit.expired)

    def finds_hung_up(self, transport: asyncio.Transport) -> bool:
        """Whether the other end has closed a connection while the event loop was kept busy."""
        return self._pools.is_deaf() and is_hung_up(transport)

    def leaves(self, transport: asyncio.Transport | None, phase: TimeoutPhase) -> None:
        """Notes that the first byte is about to be handed to a socket.

        Raises:
            ForbiddenAddressError: A lent session has connected to where it must not lead.
        """
        self._transport = transport
        reach = self._request.reach
        if reach is not None and self._pools.lent:
            address = self.address
            is_refused = reach.is_strict if address is None else reach.refuses(address)
            if is_refused:
                self._forbidden = ForbiddenAddressError(address)
                raise self._forbidden
        self.enter(phase)
        self._sent = self._request.progress.sent = True

    def nothing_left(self) -> None:
        """Takes back what `leaves` noted: the socket was closed already."""
        self._sent = self._request.progress.sent = False

    def enter(self, phase: TimeoutPhase) -> None:
        """Starts the clock of a phase."""
        # aiohttp may go on writing after the reply has come.
        if self._limit is not None and not self._limit.expired:
            self._limit.restart(getattr(self._request.timeouts, phase))
            self._phase = phase

    def abort(self) -> None:
        """Closes the socket, whatever is still to be written."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def _failing(self) -> ErrorMapper:
        return ErrorMapper(self._request, self._phase, self._sent, self._forbidden)

    async def _send(self) -> Self:
        response: aiohttp.ClientResponse | None = None
        try:
            body = _Body(self._request.body, self)
            response = await self._pools.send(self._request, body, streaming=self._streaming)
            self._inflater = self._look_at(response)
        except BaseException:
            self._given_up = True
            if response is not None:
                response.close()
            elif not self._pools.lent:  # another's session may have passed the connection on
                self.abort()
            self._slots.release()
            raise
        self._response = response
        self._pools.heard()
        return self

    def _look_at(self, response: aiohttp.ClientResponse) -> Inflater | None:
        """Checks what there is before the body is read, and says how to unpack that."""
        if not self._sent:
            raise self._failing.connection("disconnected", _UNASKED)
        limits = self._request.limits
        # A handful is small in any case: one by one they were measured as they came.
        few = len(response.headers) <= 8 and limits.headers >= EIGHT_HEADERS
        if not few and not headers_fit(response.raw_headers, limits):
            raise self._failing.large_headers()
        coding = response.headers.get("content-encoding")
        try:
            return None if coding is None else Inflater.of(coding, limits)
        except InvalidAgentResponseError as error:
            self._is_useless = response.status >= 300
            if self._is_useless:
                return None
            raise self._failing.stated(error) from None


class _Body(payload.Payload):
    """The body of a request, written in pieces under the write timeout."""

    _autoclose = True

    def __init__(self, body: bytes, exchange: _Exchange) -> None:
        super().__init__(body)
        self._body = body
        self._size = len(body)  # for Content-Length
        self._exchange = exchange

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._body.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        exchange = self._exchange
        if exchange.given_up:  # a lent session may still be at it, in a task of its own
            message = "the request was cancelled before it was sent"
            raise aiohttp.ClientConnectionResetError(message)
        # A lent session may have another writer, which does not tell.
        if getattr(getattr(writer, "protocol", None), "should_close", False):
            message = "there was a reply before the request"
            raise aiohttp.ClientConnectionResetError(message)
        transport = getattr(writer, "transport", None)
        if transport is not None and exchange.finds_hung_up(transport):
            message = "the server had closed the connection before the request"
            raise aiohttp.ClientConnectionResetError(message)
        in_pieces = len(self._body) > _PIECE
        self._consumed = True  # so that aiohttp does not send it again
        exchange.leaves(transport, "write" if in_pieces else "first_byte")
        try:
            try:
                await writer.write(self._body[:_PIECE])  # in one go with the headers
            except aiohttp.ClientConnectionResetError:
                exchange.nothing_left()
                raise
            for start in range(_PIECE, len(self._body), _PIECE):
                exchange.enter("write")
                await writer.write(self._body[start : start + _PIECE])
            if in_pieces:
                await writer.drain()
                exchange.enter("first_byte")
        except BaseException:
            exchange.abort()
            raise

    async def write_with_length(
        self,
        writer: AbstractStreamWriter,
        content_length: int | None,  # noqa: ARG002  always that of the whole body
    ) -> None:
        await self.write(writer)


def _rest(content: aiohttp.StreamReader) -> bytes:
    """What arrived before a failure: aiohttp does not give it out once it knows of the failure."""
    failure = content.exception()
    if failure is None:
        return b""
    content.set_exception(None)  # type: ignore[arg-type]
    try:
        return content.read_nowait()
    finally:
        content.set_exception(failure)
