"""The engine over aiohttp: real sockets, HTTP/1.1.

Rules, each against something that aiohttp does otherwise:
- A request is sent once. aiohttp resends GET and DELETE after a disconnect; a middleware turns
  that off.
- A socket is made only where the request may reach, after its name was resolved.
- Redirects, cookies and ``.netrc`` are left alone; proxies come from the environment, read once.
- Every phase has its own limit, and the error names it: slots are counted here, and every
  request, even an empty one, is written by a `_Body`, which tells when the first byte leaves.
  aiohttp's own clocks are off.
- `executed` is False only if no byte of the request was handed to a socket.
- A reply that was there before the request left is not its reply.
- What arrived before a cut is delivered before the error.
- What is given up is aborted: closing would first wait for a peer that does not read.
- Open streams cannot starve calls: they have slots and connections of their own.
- Connections belong to an event loop, and end with it; another loop gets others.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl as tls
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.request import getproxies

import aiohttp
from aiohttp import payload
from yarl import URL

from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2ATimeoutError,
    ConnectionFailure,
    Facts,
    InvalidAgentResponseError,
    LimitExceededError,
    TimeoutPhase,
)
from holdfast.net.failures import (
    failure_of,
    forbidden_address,
    has_large_headers,
    presentable_cause,
    unreadable,
)
from holdfast.net.proxies import Proxies
from holdfast.net.sockets import ForbiddenAddressError, check_host, sockets_within
from holdfast.runtime.engine import connection_error, reach_error, timeout_error
from holdfast.runtime.perloop import PerLoop
from holdfast.runtime.watchdog import Watchdog
from holdfast.wire.http import HttpReply, HttpRequest, HttpStream, presentable
from holdfast.wire.inflating import Inflater
from holdfast.wire.limits import are_small, exceeded, largest_header
from holdfast.wire.reach import Reach

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from aiohttp.abc import AbstractStreamWriter

    from holdfast.runtime.watchdog import TimeLimit

__all__ = ["AiohttpEngine"]

_PIECE = 32 * 1024
"""Bytes written at once: below what makes aiohttp wait for the socket within one write."""

_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)

_UNASKED = "a reply was there before the request"


class AiohttpEngine:
    """Carries requests with `aiohttp`.

    Args:
        max_connections: Calls under way at a time; more of them wait for a slot.
        max_streams: Streams open at a time, apart from the calls.
        ssl: A certificate authority's file, a context, or False for no verification at all
            (development only). The default verifies with the system's authorities.
        proxies: Whether to use the proxies that the environment names (``HTTPS_PROXY``,
            ``NO_PROXY`` …), read when the engine is made.
        session: A session of your own, used as it is and never closed. Its pool is its own, so
            pool waits count as connecting, ``max_idle`` is not kept, its middlewares may send a
            request twice, what its cookie jar keeps goes with the calls of all who share it, a
            GET carries ``Content-Length: 0``, and where a request must not reach, nothing is
            sent, but a connection may be made.

    Raises:
        ValueError: A number is not positive, or the file is no certificate.
        FileNotFoundError: There is no such file.
    """

    def __init__(
        self,
        *,
        max_connections: int = 100,
        max_streams: int = 1000,
        ssl: tls.SSLContext | str | PathLike[str] | bool = True,
        proxies: bool = True,
        session: aiohttp.ClientSession | None = None,
    ) -> None:
        if max_connections < 1 or max_streams < 1:
            message = "an engine needs at least one connection and one stream"
            raise ValueError(message)
        settings = _Settings(
            max_connections=max_connections,
            max_streams=max_streams,
            ssl=_ssl_option(ssl),
            proxies=Proxies(getproxies() if proxies and session is None else {}),
            lent=session,
        )
        self._pools = PerLoop(lambda: _Pools(settings))

    async def request(self, request: HttpRequest) -> HttpReply:
        """Sends a request and reads the whole reply.

        Raises:
            A2AConnectionError: No connection, or it broke.
            A2ATimeoutError: A limit of ``request.timeouts`` fired.
            LimitExceededError: The reply is larger than ``request.limits`` allow.
            InvalidAgentResponseError: The reply cannot be read.
        """
        async with _Exchange(self._pools, request, streaming=False) as reply:
            body = await reply.read()
            return HttpReply(
                status=reply.status, headers=reply.headers, body=body, address=reply.address
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


_Purpose = tuple[float, bool, Reach | None, int]
"""`HttpRequest.max_idle`, whether it is for streams, how far it may reach, and the bytes that
one header may have."""

_Sessions = dict[_Purpose, aiohttp.ClientSession]


class _Settings(NamedTuple):
    """What an engine was made with."""

    max_connections: int
    max_streams: int
    ssl: tls.SSLContext | bool
    proxies: Proxies
    lent: aiohttp.ClientSession | None


class _Pools:
    """Slots and sessions of one event loop; sessions are made when first used."""

    def __init__(self, settings: _Settings) -> None:
        self.calls = asyncio.Semaphore(settings.max_connections)
        self.streams = asyncio.Semaphore(settings.max_streams)
        self.watchdog = Watchdog()
        self.lent = settings.lent is not None
        self._settings = settings
        self._made: _Sessions = {}
        self._at_last = _close_at_last(self._made)
        with contextlib.suppress(StopIteration):
            self._at_last.__anext__().send(None)  # from its first step on, the loop knows of it

    async def close(self) -> None:
        await _close(self._made)

    async def send(
        self, request: HttpRequest, body: _Body, *, streaming: bool
    ) -> aiohttp.ClientResponse:
        options: dict[str, Any] = {
            "headers": {
                **request.headers,
                "accept-encoding": "identity" if streaming else "gzip",
            },
            "timeout": _NO_TIMEOUT,
            "allow_redirects": False,
            "raise_for_status": False,
            "data": body,
        }
        largest = largest_header(request.limits)
        session = self._settings.lent
        if session is not None:  # it has its own ideas about TLS and proxies
            options["skip_auto_headers"] = ("content-type",)
            options["auto_decompress"] = False
            options["max_field_size"] = largest
        else:
            options["ssl"] = self._settings.ssl
            options["proxy"] = proxy = self._settings.proxies.of(request.url)
            reach = request.reach
            if proxy is not None and reach is not None:
                check_host(request.url, reach)  # all that can be known; the proxy is the user's
                reach = None
            if request.method == "POST":
                options["middlewares"] = ()  # which aiohttp does not resend
            session = self._session((request.max_idle, streaming, reach, largest))
        return await session.request(request.method, URL(request.url, encoded=True), **options)

    def is_proxied(self, url: str) -> bool:
        """Whether a proxy of this engine is at the other end; of a lent session's, who knows."""
        return not self.lent and self._settings.proxies.of(url) is not None

    def _session(self, purpose: _Purpose) -> aiohttp.ClientSession:
        session = self._made.get(purpose)
        if session is None:
            max_idle, _, reach, largest = purpose
            session = self._made[purpose] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0,
                    keepalive_timeout=max_idle,
                    socket_factory=None if reach is None else sockets_within(reach),
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                max_field_size=largest,
                middlewares=(_send_once,),
            )
        return session


async def _close(sessions: _Sessions) -> None:
    closing = list(sessions.values())
    sessions.clear()  # whoever sends from now on makes new ones
    for session in closing:
        await session.close()


async def _close_at_last(sessions: _Sessions) -> AsyncGenerator[None]:
    """Closes sessions when it is closed, which a loop that ends does to its generators."""
    try:
        yield
    finally:
        await _close(sessions)


class _DisconnectedError(aiohttp.ClientError):
    """Stands for a disconnect, so that aiohttp does not resend by itself."""


async def _send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    if request.method == "GET" and request.headers["content-length"] == "0":
        del request.headers["content-length"], request.headers["content-type"]
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _DisconnectedError(str(error)) from error


class _Exchange:
    """One request and its reply: takes a slot, keeps the limits, tells failures as what they are.

    Entered, it is an `HttpStream`.
    """

    _pools: _Pools
    _slots: asyncio.Semaphore
    _response: aiohttp.ClientResponse

    def __init__(
        self, all_pools: PerLoop[_Pools], request: HttpRequest, *, streaming: bool
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
        self._forbidden: str | None = None

    async def __aenter__(self) -> Self:
        """Takes a slot, sends the request and waits for the headers of the reply."""
        self._pools = self._all_pools.here()
        self._slots = self._pools.streams if self._streaming else self._pools.calls
        try:
            with self._pools.watchdog.within(self._request.timeouts.pool) as self._limit:
                await self._slots.acquire()
                return await self._send()
        except A2AError:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure, cause = self._told(error)
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
                raise self._connection_error("truncated") from None
            raise
        except (InvalidAgentResponseError, LimitExceededError) as error:
            raise self._stated(error) from None
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
                raise self._error(error) from error
        if not piece:
            raise StopAsyncIteration
        return piece

    async def read(self) -> bytes:
        body, limits = bytearray(), self._request.limits
        async for piece in self:
            body += piece
            if len(body) > limits.body:
                what = f"the reply is larger than {limits.body} bytes"
                raise exceeded("body", limits, what, **self._facts())
            if self._inflater is None and self._response.content.at_eof():
                break
        return bytes(body)

    @property
    def given_up(self) -> bool:
        """Whether nobody waits for the reply any more, and nothing must leave."""
        return self._given_up or (self._limit is not None and self._limit.expired)

    def leaves(self, transport: asyncio.Transport | None, phase: TimeoutPhase) -> None:
        """Notes that the first byte is about to be handed to a socket.

        Raises:
            ForbiddenAddressError: A lent session has connected to where it must not lead.
        """
        self._transport = transport
        reach = self._request.reach
        if reach is not None and self._pools.lent:
            address = self.address
            if address is not None and reach.refuses(address):
                self._forbidden = address
                raise ForbiddenAddressError(address)
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

    async def _send(self) -> Self:
        response: aiohttp.ClientResponse | None = None
        try:
            self.enter("connect")
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
        return self

    def _look_at(self, response: aiohttp.ClientResponse) -> Inflater | None:
        """Checks what there is before the body is read, and says how to unpack that."""
        if not self._sent:
            raise self._connection_error("disconnected", _UNASKED)
        limits = self._request.limits
        if not are_small(response.raw_headers, limits):
            raise self._headers_too_large()
        coding = response.headers.get("content-encoding")
        try:
            return None if coding is None else Inflater.of(coding, limits)
        except InvalidAgentResponseError as error:
            raise self._stated(error) from None

    def _headers_too_large(self) -> LimitExceededError:
        limits = self._request.limits
        what = f"the headers of the reply are larger than {limits.headers} bytes"
        return exceeded("headers", limits, what, **self._facts())

    def _stated(self, error: A2AError) -> A2AError:
        """An error with what is known of this exchange."""
        for name, fact in self._facts().items():
            setattr(error, name, fact)
        return error

    def _told(
        self, error: aiohttp.ClientError | OSError | ValueError
    ) -> tuple[A2AError, Exception | None]:
        """What kept the reply from coming, and what to name as its cause."""
        if isinstance(error, aiohttp.ClientError | OSError):
            return self._error(error), presentable_cause(error)
        if isinstance(error, UnicodeError):
            if getattr(error, "encoding", "idna") != "idna":
                raise error
            return self._connection_error("dns", transient=False), error
        if self._sent:
            raise error
        # aiohttp does not take such an address, or such credentials
        return self._connection_error("unreachable", str(error), transient=False), None

    def _error(self, error: aiohttp.ClientError | OSError) -> A2AError:
        """What a failure of aiohttp means."""
        if isinstance(error, TimeoutError):
            return self._timeout()
        forbidden = self._forbidden or forbidden_address(error)
        if forbidden is not None:
            return reach_error(self._request, forbidden)
        if has_large_headers(error):
            return self._headers_too_large()
        why = unreadable(error)
        if why is not None:
            return InvalidAgentResponseError(f"the reply cannot be read: {why}", **self._facts())
        failure, transient = failure_of(error, secure=self._request.url.startswith("https:"))
        reason: str | None = getattr(error, "strerror", None)
        if isinstance(error, aiohttp.ClientHttpProxyError):
            reason = f"HTTP {error.status}"
        return self._connection_error(failure, reason, transient=transient)

    def _timeout(self) -> A2ATimeoutError:
        return timeout_error(self._request, self._phase, sent=self._sent)

    def _connection_error(
        self, failure: ConnectionFailure, reason: str | None = None, *, transient: bool = True
    ) -> A2AConnectionError:
        return connection_error(
            self._request, failure, reason, sent=self._sent, transient=transient
        )

    def _facts(self) -> Facts:
        return Facts(executed=None if self._sent else False, agent=presentable(self._request.url))


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
            message = "the request was given up before it left"
            raise aiohttp.ClientConnectionResetError(message)
        # A lent session may have another writer, which does not tell.
        if getattr(getattr(writer, "protocol", None), "should_close", False):
            message = "there was a reply before the request"
            raise aiohttp.ClientConnectionResetError(message)
        in_pieces = len(self._body) > _PIECE
        self._consumed = True  # so that aiohttp does not send it again
        exchange.leaves(getattr(writer, "transport", None), "write" if in_pieces else "first_byte")
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


def _ssl_option(
    ssl: tls.SSLContext | str | PathLike[str] | bool,  # noqa: FBT001  aiohttp's own spelling
) -> tls.SSLContext | bool:
    if not isinstance(ssl, str | PathLike):
        return ssl
    try:
        return tls.create_default_context(cafile=fspath(ssl))
    except tls.SSLError as error:
        message = f"{fspath(ssl)} holds no certificate: {error}"
        raise ValueError(message) from None
