"""The HTTP/1.1 engine over aiohttp.

This module owns the exchange: one request and its reply. `holdfast._net.pools` owns the slots and
the connections, `holdfast._net.error_mapper` maps failures.

Rules, each of which differs from aiohttp's default behaviour:
- Every phase has its own timeout, and the error names it: slots are counted here, and every
  request, even an empty one, is written by a `_Body`, which notices when the first byte leaves.
- `sent` is set before the first byte is handed to a socket, and reset only if that socket was
  closed already.
- A reply that arrived before the request left is not its reply, and a connection that the peer has
  closed takes no request, even if the event loop has not noticed yet.
- Data that arrived before a cut is delivered before the error.
- An abandoned exchange is aborted: closing would first wait for a peer that does not read.
"""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, Self
from urllib.request import getproxies

import aiohttp
from aiohttp import payload

from holdfast._aio.closing import ClosingContext
from holdfast._aio.per_loop import PerLoop
from holdfast._model.settings import check_count, check_kind, explains_unknown_options
from holdfast._net.error_mapper import ErrorMapper, presentable_cause
from holdfast._net.pools import Pools, Settings, is_verifying, ssl_option
from holdfast._net.proxies import Proxies
from holdfast._net.sockets import ForbiddenAddressError, is_hung_up
from holdfast._net.tls_config import TlsConfig
from holdfast._wire.http import HttpReply, HttpRequest, HttpStream
from holdfast._wire.inflating import Inflater
from holdfast._wire.limits import EIGHT_HEADERS, headers_fit
from holdfast._wire.origins import SECURITY_LOGGER
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

__all__ = ["AiohttpEngine", "OwnedEngine"]

logger = logging.getLogger(SECURITY_LOGGER)

_WRITE_BYTES = 32 * 1024
"""Bytes of one write: below the size for which aiohttp waits for the socket within the write."""

_EARLY_REPLY = "a reply was there before the request"


class AiohttpEngine(ClosingContext):
    """Sends requests with ``aiohttp``. Use it as an async context manager.

    Clients that share an engine do not close it; its creator does.

    Args:
        max_connections: Calls in flight at the same time; others wait for a slot. At least 1, 100
            by default.
        max_streams: Open streams at the same time, counted apart from the calls. At least 1, 1000
            by default.
        ssl: A `TlsConfig`, a certificate authority's file, a context, or False for no
            verification at all (development only). True, the default, verifies with the system's
            authorities.
        proxies: Whether to use the proxies of the environment (``HTTPS_PROXY``, ``NO_PROXY`` …),
            read when the engine is created. True by default.
        session: A session of the caller, used unchanged and never closed; ``ssl`` and ``proxies``
            are then ignored. Waiting for its pool counts as connecting, ``max_idle`` is ignored,
            its middlewares may send a request twice, its cookies are sent with the calls of all
            clients that share it, and a GET carries ``Content-Length: 0``. Nothing is sent to an
            address that the request's reach refuses, but a connection may be made.

    Attributes:
        tls: The `TlsConfig` passed as ``ssl``, if any; other connections of the same client use it
            too.

    Raises:
        ValueError: A number is not positive, or the file is not a certificate.
        TypeError: A number is not an int, or another argument is of another type.
        FileNotFoundError: The file does not exist.
    """

    @explains_unknown_options()
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
            session=session,
        )
        self.tls = ssl if isinstance(ssl, TlsConfig) else None
        self._settings = settings
        self._pools = PerLoop(lambda: Pools(settings))

    async def request(self, request: HttpRequest) -> HttpReply:
        """Send a request and read the whole reply.

        Args:
            request: The request.

        Raises:
            A2AConnectionError: There was no connection, or it broke.
            A2ATimeoutError: A timeout of ``request.timeouts`` expired.
            LimitExceededError: The reply is larger than ``request.limits`` allow.
            InvalidAgentResponseError: The reply cannot be read. If its status is not a success,
                an unreadable body counts as empty instead.
        """
        async with _Exchange(self._pools, request, streaming=False) as reply:
            body = await reply.read()
            # The peer's address is needed for documents and redirects only.
            needs_address = request.method == "GET" or 300 <= reply.status < 400
            address = reply.address if needs_address else None
            return HttpReply(
                status=reply.status, headers=reply.headers, body=body, address=address
            )

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Send a request; the body is read while the context is open.

        Args:
            request: The request.

        Raises:
            A2AConnectionError: There was no connection, or it broke; also from the chunks.
            A2ATimeoutError: A timeout of ``request.timeouts`` expired; also from the chunks.
            LimitExceededError: The headers are too large; from the chunks: they inflate beyond
                ``request.limits``.
            InvalidAgentResponseError: The reply cannot be read; also from the chunks.
        """
        return _Exchange(self._pools, request, streaming=True)

    async def close(self) -> None:
        """Close the connections of the running event loop, and of loops that were closed."""
        for pools in self._pools.here_and_closed():
            await pools.close()


class OwnedEngine(AiohttpEngine):
    """An engine that its owner closes; a warning names the owner if it does not.

    The warning also names the line outside of this package that made the owner.

    Args:
        owner: The owner.
        max_connections: As for `AiohttpEngine`.
        max_streams: As for `AiohttpEngine`.
        ssl: As for `AiohttpEngine`.
    """

    def __init__(
        self,
        owner: str,
        *,
        max_connections: int = 100,
        max_streams: int = 1000,
        ssl: TlsConfig | bool = True,
    ) -> None:
        super().__init__(max_connections=max_connections, max_streams=max_streams, ssl=ssl)
        settings = self._settings._replace(owner=f"{owner}{_made_at()}")
        self._settings, self._pools = settings, PerLoop(lambda: Pools(settings))


def _made_at() -> str:
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("holdfast."):
        frame = frame.f_back
    if frame is None or frame.f_globals.get("__name__", "").startswith("asyncio."):
        return ""  # of `holdfast.sync`, whose event loop has a thread of its own
    return f", made at {frame.f_code.co_filename}:{frame.f_lineno}"


class _Exchange:
    """One request and its reply: takes a slot, enforces timeouts and limits, tracks `sent`.

    Once entered, it is an `HttpStream`.
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
        self._is_abandoned = False
        self._sent = False
        self._transport: asyncio.Transport | None = None
        self._inflater: Inflater | None = None
        self._forbidden: ForbiddenAddressError | None = None
        self._ignores_body = False  # its content coding was not accepted

    async def __aenter__(self) -> Self:
        """Take a slot, send the request and wait for the headers of the reply."""
        self._pools = self._all_pools.here()
        self._slots = self._pools.streams if self._streaming else self._pools.calls
        # If a slot is free, the first limit is that of connecting: one limit less to set.
        waits = self._slots.is_full
        self._phase = "pool" if waits else "connect"
        progress = self._request.progress
        progress.awaits = self._pools.slot_name(streaming=self._streaming) if waits else None
        seconds = getattr(self._request.timeouts, self._phase)
        try:
            with self._pools.watchdog.within(seconds) as self._limit:
                await self._slots.acquire()
                if waits:
                    progress.awaits = None
                    self.start_phase("connect")
                return await self._send()
        except A2AError:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure, cause = self._errors.map_any(error), presentable_cause(error)
            if failure is None:
                raise
        finally:
            self._limit = None
        raise failure from cause  # outside of the handler, so that it has no other context

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Return the connection to the pool if the reply was read to its end."""
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
        """The IP address of the peer, unless it is a proxy."""
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
        return self._chunk() if self._inflater is None else self._inflated(self._inflater)

    async def _inflated(self, inflater: Inflater) -> bytes:
        """Return the next chunk, inflated."""
        try:
            while not (chunk := inflater.feed(await self._chunk())):
                pass
        except StopAsyncIteration:
            if inflater.is_cut:
                raise self._errors.connection("truncated") from None
            raise
        except (InvalidAgentResponseError, LimitExceededError) as error:
            raise self._errors.with_facts(error) from None
        return chunk

    async def _chunk(self) -> bytes:
        """Return the next chunk as it was received."""
        content = self._response.content
        self._phase = "idle"
        try:
            if content.is_eof():
                chunk = content.read_nowait()  # everything was received
            else:
                with self._pools.watchdog.within(self._request.timeouts.idle):
                    chunk = await content.readany()
        except (aiohttp.ClientError, OSError) as error:
            chunk = _received_before(content)
            if not chunk:
                raise self._errors.map(error) from error
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def read(self) -> bytes:
        if self._ignores_body:
            return b""
        body, max_bytes = bytearray(), self._request.limits.body
        try:
            async for chunk in self:
                body += chunk
                if len(body) > max_bytes:
                    raise self._errors.large_body()
                if self._inflater is None and self._response.content.at_eof():
                    break
        except (InvalidAgentResponseError, LimitExceededError):
            if self.status < 300:
                raise
            return b""
        return bytes(body)

    @property
    def is_abandoned(self) -> bool:
        """Whether the exchange has ended without a reply, so that nothing must be sent."""
        return self._is_abandoned or (self._limit is not None and self._limit.expired)

    def is_peer_gone(self, transport: asyncio.Transport) -> bool:
        """Return whether the peer has closed a connection while the event loop was blocked."""
        return self._pools.is_poll_overdue() and is_hung_up(transport)

    def on_first_byte(self, transport: asyncio.Transport | None, phase: TimeoutPhase) -> None:
        """Record that the first byte is about to be handed to a socket.

        Raises:
            ForbiddenAddressError: A caller-supplied session has connected to a refused address.
        """
        self._transport = transport
        reach = self._request.reach
        if reach is not None and self._pools.is_session_borrowed:
            address = self.address
            is_refused = reach.is_strict if address is None else reach.refuses(address)
            if is_refused:
                self._forbidden = ForbiddenAddressError(address)
                raise self._forbidden
        self.start_phase(phase)
        self._sent = self._request.progress.sent = True

    def revert_sent(self) -> None:
        """Record that no byte was sent, because the socket was closed already."""
        self._sent = self._request.progress.sent = False

    def start_phase(self, phase: TimeoutPhase) -> None:
        """Start the timeout of a phase."""
        # aiohttp may continue to write after the reply has arrived.
        if self._limit is not None and not self._limit.expired:
            self._limit.restart(getattr(self._request.timeouts, phase))
            self._phase = phase

    def abort(self) -> None:
        """Close the socket, and discard data that was not written yet."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def _errors(self) -> ErrorMapper:
        proxy = self._pools.describe_proxy(self._request.url)
        return ErrorMapper(self._request, self._phase, self._sent, self._forbidden, proxy)

    async def _send(self) -> Self:
        response: aiohttp.ClientResponse | None = None
        try:
            body = _Body(self._request.body, self)
            response = await self._pools.send(self._request, body, streaming=self._streaming)
            self._inflater = self._check_headers(response)
        except BaseException:
            self._is_abandoned = True
            if response is not None:
                response.close()
            elif not self._pools.is_session_borrowed:  # a session may reuse the connection
                self.abort()
            self._slots.release()
            raise
        self._response = response
        self._pools.note_poll()
        return self

    def _check_headers(self, response: aiohttp.ClientResponse) -> Inflater | None:
        """Check the reply before its body is read; return the inflater that the body needs."""
        if not self._sent:
            raise self._errors.connection("disconnected", _EARLY_REPLY)
        limits = self._request.limits
        # The parser bounds each header, so a few of them need not be measured together.
        are_few = len(response.headers) <= 8 and limits.headers >= EIGHT_HEADERS
        if not are_few and not headers_fit(response.raw_headers, limits):
            raise self._errors.large_headers()
        coding = response.headers.get("content-encoding")
        try:
            return None if coding is None else Inflater.for_coding(coding, limits)
        except InvalidAgentResponseError as error:
            self._ignores_body = response.status >= 300
            if self._ignores_body:
                return None
            raise self._errors.with_facts(error) from None


class _Body(payload.Payload):
    """The body of a request, written in parts under the write timeout."""

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
        if exchange.is_abandoned:  # the caller's session may still write, in a task of its own
            message = "the request was cancelled before it was sent"
            raise aiohttp.ClientConnectionResetError(message)
        # The writer of a caller-supplied session may have no protocol.
        if getattr(getattr(writer, "protocol", None), "should_close", False):
            message = "there was a reply before the request"
            raise aiohttp.ClientConnectionResetError(message)
        transport = getattr(writer, "transport", None)
        if transport is not None and exchange.is_peer_gone(transport):
            message = "the server had closed the connection before the request"
            raise aiohttp.ClientConnectionResetError(message)
        is_large = len(self._body) > _WRITE_BYTES
        self._consumed = True  # so that aiohttp does not send it again
        exchange.on_first_byte(transport, "write" if is_large else "first_byte")
        try:
            try:
                await writer.write(self._body[:_WRITE_BYTES])  # together with the headers
            except aiohttp.ClientConnectionResetError:
                exchange.revert_sent()
                raise
            for start in range(_WRITE_BYTES, len(self._body), _WRITE_BYTES):
                exchange.start_phase("write")
                await writer.write(self._body[start : start + _WRITE_BYTES])
            if is_large:
                await writer.drain()
                exchange.start_phase("first_byte")
        except BaseException:
            exchange.abort()
            raise

    async def write_with_length(
        self,
        writer: AbstractStreamWriter,
        content_length: int | None,  # noqa: ARG002  always that of the whole body
    ) -> None:
        await self.write(writer)


def _received_before(content: aiohttp.StreamReader) -> bytes:
    """Return the data received before a failure, which aiohttp no longer returns by itself."""
    failure = content.exception()
    if failure is None:
        return b""
    content.set_exception(None)  # type: ignore[arg-type]
    try:
        return content.read_nowait()
    finally:
        content.set_exception(failure)
