"""The engine over aiohttp: real sockets, HTTP/1.1.

Rules, each against something that aiohttp does otherwise:
- A request is sent once. aiohttp resends GET and DELETE after a disconnect; a middleware turns
  that off.
- Redirects, cookies and ``.netrc`` are left alone; proxies come from the environment, read once.
- Every phase has its own limit, and the error names it. aiohttp has no write timeout and one for
  pool and connect together: slots are counted here, the body is written by `_Body`.
- `executed` is False only if no byte of the request was handed to a socket.
- Open streams cannot starve calls: they have slots and connections of their own.
- Connections belong to an event loop; another loop gets others.
"""

from __future__ import annotations

import asyncio
import socket
import ssl as tls
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

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
from holdfast.wire.http import HttpReply, HttpRequest, HttpStream, presentable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import SimpleNamespace, TracebackType

    from aiohttp.abc import AbstractStreamWriter

__all__ = ["AiohttpEngine"]

_PIECE = 32 * 1024
"""Bytes written at once: below what makes aiohttp wait for the socket within one write."""

_NEVER_ROUNDED = float("inf")
"""aiohttp rounds timeouts above a threshold up to whole seconds."""

_FRESH = 1.0
"""Largest `HttpRequest.max_idle` that needs the pool whose connections are closed soonest."""


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
            pool waits count as connecting, its middlewares may send a request twice, and for a
            request without a body nobody can tell whether it was sent.

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
        self._max_connections = max_connections
        self._max_streams = max_streams
        self._ssl = _ssl_option(ssl)
        self._proxies = _Proxies(getproxies() if proxies and session is None else {})
        self._lent = session
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pools] = WeakKeyDictionary()

    async def request(self, request: HttpRequest) -> HttpReply:
        """Sends a request and reads the whole reply.

        Raises:
            A2AConnectionError: No connection, or it broke.
            A2ATimeoutError: A limit of ``request.timeouts`` fired.
            LimitExceededError: The body is larger than ``request.max_reply``.
            InvalidAgentResponseError: The reply is no HTTP.
        """
        pools = self._here()
        await _take(pools.calls, request)
        try:
            session = pools.fresh if request.max_idle <= _FRESH else pools.warm
            exchange = _Exchange(session, request, self._options("gzip", request), lent=pools.lent)
            async with exchange:
                return await exchange.read_reply()
        finally:
            pools.calls.release()

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Sends a request and leaves the body to be read while the context is open.

        Raises:
            A2AConnectionError: No connection, or it broke; also from the chunks.
            A2ATimeoutError: A limit of ``request.timeouts`` fired; also from the chunks.
            InvalidAgentResponseError: The reply is no HTTP.
        """
        return _StreamContext(self._here, self._options, request)

    async def close(self) -> None:
        """Closes what belongs to the running loop, and to loops that are gone."""
        here = asyncio.get_running_loop()
        for loop in list(self._pools):
            if loop is here or loop.is_closed():
                await self._pools.pop(loop).close()

    def _here(self) -> _Pools:
        """The pools of the running loop."""
        loop = asyncio.get_running_loop()
        pools = self._pools.get(loop)
        if pools is None:
            pools = _Pools(
                calls=asyncio.Semaphore(self._max_connections),
                streams=asyncio.Semaphore(self._max_streams),
                lent=self._lent,
            )
            self._pools[loop] = pools
        return pools

    def _options(self, accept_encoding: str, request: HttpRequest) -> dict[str, Any]:
        options: dict[str, Any] = {
            "headers": {**request.headers, "accept-encoding": accept_encoding},
            "timeout": aiohttp.ClientTimeout(
                connect=request.timeouts.connect, ceil_threshold=_NEVER_ROUNDED
            ),
            "allow_redirects": False,
        }
        if self._lent is not None:
            return options  # its connector knows about TLS, it about proxies
        options["ssl"] = self._ssl
        proxy = self._proxies.of(request.url)
        if proxy is not None:
            options["proxy"] = proxy
        return options


class _Pools:
    """Slots and sessions of one event loop; sessions are made when first used."""

    def __init__(
        self,
        *,
        calls: asyncio.Semaphore,
        streams: asyncio.Semaphore,
        lent: aiohttp.ClientSession | None,
    ) -> None:
        self.calls = calls
        self.streams = streams
        self._lent = lent
        self._made: dict[str, aiohttp.ClientSession] = {}

    @property
    def lent(self) -> bool:
        """Whether the session belongs to the caller."""
        return self._lent is not None

    @property
    def fresh(self) -> aiohttp.ClientSession:
        """For messages: connections that idled for a second at most."""
        return self._session("fresh", keepalive=_FRESH)

    @property
    def warm(self) -> aiohttp.ClientSession:
        """For what can be sent twice: connections that idled for four seconds at most."""
        return self._session("warm", keepalive=4.0)

    @property
    def streaming(self) -> aiohttp.ClientSession:
        """For streams."""
        return self._session("streaming", keepalive=_FRESH)

    async def close(self) -> None:
        made, self._made = self._made, {}
        for session in made.values():
            await session.close()

    def _session(self, name: str, *, keepalive: float) -> aiohttp.ClientSession:
        if self._lent is not None:
            return self._lent
        session = self._made.get(name)
        if session is None:
            session = self._made[name] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=keepalive),
                cookie_jar=aiohttp.DummyCookieJar(),
                middlewares=(_send_once,),
                trace_configs=[_note_headers()],
            )
        return session


class _DisconnectedError(aiohttp.ClientError):
    """Stands for a disconnect, so that aiohttp does not resend by itself."""


async def _send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _DisconnectedError(str(error)) from error


def _note_headers() -> aiohttp.TraceConfig:
    """Tells an exchange without a body that its headers are about to leave."""

    async def on_headers(
        _session: aiohttp.ClientSession,
        context: SimpleNamespace,
        _params: aiohttp.TraceRequestHeadersSentParams,
    ) -> None:
        exchange: _Exchange = context.trace_request_ctx
        if not exchange.request.body:
            exchange.bytes_leave()

    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(on_headers)
    return config


class _Exchange:
    """One request and its reply: keeps the limits, tells failures as what they are."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        request: HttpRequest,
        options: dict[str, Any],
        *,
        lent: bool,
    ) -> None:
        self.request = request
        self._session = session
        self._options = options
        if not lent:
            options["trace_request_ctx"] = self
        self._phase: TimeoutPhase = "connect"
        self._scope = asyncio.timeout(None)
        self._timed = False
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> Self:
        """Sends the request and waits for the headers of the reply."""
        request = self.request
        body = _Body(request.body, self) if request.body else None
        try:
            async with self._scope:
                self._timed = True
                if body is None and "trace_request_ctx" not in self._options:
                    self.bytes_leave()  # a lent session does not tell when
                self._response = await self._session.request(
                    request.method, URL(request.url, encoded=True), data=body, **self._options
                )
        except (aiohttp.ClientError, OSError) as error:
            raise self._error(error) from error
        finally:
            self._timed = False
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Gives the connection back if the reply was read to its end, else closes it."""
        if self._response is not None:
            self._response.release()

    @property
    def response(self) -> aiohttp.ClientResponse:
        if self._response is None:
            message = "the exchange was not entered"
            raise RuntimeError(message)
        return self._response

    def bytes_leave(self) -> None:
        """Notes that the first byte is about to be handed to the socket."""
        self.request.progress.sent = True
        self.enter("write" if self.request.body else "first_byte")

    def nothing_left(self) -> None:
        """Takes back what `bytes_leave` noted: the socket was closed already."""
        self.request.progress.sent = False

    def enter(self, phase: TimeoutPhase) -> None:
        """Starts the clock of a phase."""
        self._phase = phase
        if self._timed:  # aiohttp may go on writing after the reply has come
            limit: float = getattr(self.request.timeouts, phase)
            self._scope.reschedule(asyncio.get_running_loop().time() + limit)

    async def read_reply(self) -> HttpReply:
        response = self.response
        body = await self.read()
        return HttpReply(status=response.status, headers=response.headers, body=body)

    async def read(self) -> bytes:
        pieces: list[bytes] = []
        size = 0
        async for piece in self.chunks():
            size += len(piece)
            if size > self.request.max_reply:
                self.response.close()
                raise LimitExceededError(
                    f"the reply is larger than {self.request.max_reply} bytes",
                    which="reply bytes",
                    bound=self.request.max_reply,
                    **self._facts(),
                )
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def chunks(self) -> AsyncIterator[bytes]:
        return _Chunks(self)

    async def next_chunk(self) -> bytes:
        """The next piece of the body; empty at its end."""
        content = self.response.content
        try:
            if content.is_eof():
                return await content.readany()  # all is here: nothing to wait for
            self._phase = "idle"
            async with asyncio.timeout(self.request.timeouts.idle):
                return await content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise self._error(error) from error

    def _error(self, error: aiohttp.ClientError | OSError) -> A2AError:
        """What a failure of aiohttp means."""
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return self._timeout("connect")
        if isinstance(error, TimeoutError):
            return self._timeout(self._phase)
        where = presentable(self.request.url)
        facts = self._facts()
        if isinstance(error, aiohttp.ClientResponseError) and not _is_about_proxy(error):
            return InvalidAgentResponseError(
                f"the reply of {where} is not HTTP: {error.message}", **facts
            )
        failure = _failure(error)
        if failure in _BEFORE_SENDING:
            facts["executed"] = False
        facts["transient"] = not _is_permanent(error)
        reason = getattr(error, "strerror", None)
        what = f"{where}: {_FAILED[failure]}{f' ({reason})' if reason else ''}"
        return A2AConnectionError(what, failure=failure, **facts)

    def _timeout(self, phase: TimeoutPhase) -> A2ATimeoutError:
        limit: float = getattr(self.request.timeouts, phase)
        facts = self._facts()
        facts["transient"] = True
        if phase == "connect":
            facts["executed"] = False
        return A2ATimeoutError(
            f"{presentable(self.request.url)}: {_WAITED[phase]} for {limit:g} s",
            phase=phase,
            timeout=limit,
            **facts,
        )

    def _facts(self) -> Facts:
        return _facts_of(self.request)


_WAITED: Mapping[TimeoutPhase, str] = {
    "pool": "no connection slot was free",
    "connect": "no connection came about",
    "write": "the agent did not read the request",
    "first_byte": "no reply began",
    "idle": "the reply did not go on",
}


_BEFORE_SENDING = frozenset({"dns", "proxy", "tls", "refused", "unreachable"})

_FAILED: Mapping[ConnectionFailure, str] = {
    "dns": "the name could not be resolved",
    "proxy": "the proxy did not connect",
    "tls": "no TLS connection came about",
    "refused": "the connection was refused",
    "unreachable": "the host could not be reached",
    "disconnected": "the connection was closed before the reply",
    "truncated": "the reply ended too early",
}


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
        exchange.bytes_leave()
        for start in range(0, len(self._body), _PIECE):
            if start:
                exchange.enter("write")
            try:
                await writer.write(self._body[start : start + _PIECE])
            except aiohttp.ClientConnectionResetError:
                if start == 0:
                    exchange.nothing_left()  # headers and first piece go in one write
                raise
        exchange.enter("first_byte")

    async def write_with_length(
        self,
        writer: AbstractStreamWriter,
        content_length: int | None,  # noqa: ARG002  always that of the whole body
    ) -> None:
        await self.write(writer)


class _Chunks:
    """The pieces of a body as they arrive."""

    def __init__(self, exchange: _Exchange) -> None:
        self._exchange = exchange

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self._exchange.next_chunk()
        if not chunk:
            raise StopAsyncIteration
        return chunk


class _Stream:
    """An `HttpStream` over an exchange."""

    def __init__(self, exchange: _Exchange) -> None:
        self._exchange = exchange

    @property
    def status(self) -> int:
        return self._exchange.response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._exchange.response.headers

    def chunks(self) -> AsyncIterator[bytes]:
        return self._exchange.chunks()

    async def read(self) -> bytes:
        return await self._exchange.read()


class _StreamContext:
    """Holds a slot and a connection while a stream is open."""

    def __init__(
        self,
        pools: Callable[[], _Pools],
        options: Callable[[str, HttpRequest], dict[str, Any]],
        request: HttpRequest,
    ) -> None:
        self._pools = pools
        self._options = options
        self._request = request
        self._slots: asyncio.Semaphore | None = None
        self._exchange: _Exchange | None = None

    async def __aenter__(self) -> HttpStream:
        pools = self._pools()
        await _take(pools.streams, self._request)
        try:
            options = self._options("identity", self._request)
            exchange = _Exchange(pools.streaming, self._request, options, lent=pools.lent)
            await exchange.__aenter__()
        except BaseException:
            pools.streams.release()
            raise
        self._slots, self._exchange = pools.streams, exchange
        return _Stream(exchange)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        exchange, self._exchange = self._exchange, None
        slots, self._slots = self._slots, None
        try:
            if exchange is not None:
                await exchange.__aexit__(kind, error, trace)
        finally:
            if slots is not None:
                slots.release()


async def _take(slots: asyncio.Semaphore, request: HttpRequest) -> None:
    """Takes a slot, waiting for one no longer than the pool timeout."""
    if not slots.locked():
        await slots.acquire()
        return
    limit = request.timeouts.pool
    try:
        async with asyncio.timeout(limit):
            await slots.acquire()
    except TimeoutError:
        facts = _facts_of(request)
        facts["executed"] = False
        facts["transient"] = True
        raise A2ATimeoutError(
            f"{presentable(request.url)}: {_WAITED['pool']} for {limit:g} s",
            phase="pool",
            timeout=limit,
            **facts,
        ) from None


def _facts_of(request: HttpRequest) -> Facts:
    executed = None if request.progress.sent else False
    return Facts(executed=executed, agent=presentable(request.url))


def _failure(error: aiohttp.ClientError | OSError) -> ConnectionFailure:
    """What kind of failure it is; the order counts, because some kinds are kinds of others."""
    if _is_about_proxy(error):
        return "proxy"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "dns"
    if isinstance(error, aiohttp.ClientSSLError):
        return "tls"
    if isinstance(error, aiohttp.ClientConnectorError):
        refused = isinstance(error.os_error, ConnectionRefusedError)
        return "refused" if refused else "unreachable"
    return "truncated" if isinstance(error, aiohttp.ClientPayloadError) else "disconnected"


def _is_about_proxy(error: Exception) -> bool:
    return isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError)


def _is_permanent(error: aiohttp.ClientError | OSError) -> bool:
    """Whether trying again cannot help: no such host, or a certificate that does not verify."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return error.os_error.errno == socket.EAI_NONAME
    return isinstance(error, aiohttp.ClientConnectorCertificateError)


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


class _Proxies:
    """The proxies that the environment names; looking them up is slow, so it is done once."""

    def __init__(self, by_scheme: Mapping[str, str]) -> None:
        self._by_scheme = by_scheme
        self._by_host: dict[tuple[str, str], URL | None] = {}

    def of(self, url: str) -> URL | None:
        """The proxy for a URL, None for a direct connection."""
        if not self._by_scheme:
            return None
        parts = urlsplit(url)
        key = (parts.scheme, parts.netloc.rpartition("@")[2])
        if key not in self._by_host:
            proxy = self._by_scheme.get(key[0]) or self._by_scheme.get("all")
            bypassed = proxy is None or bool(proxy_bypass(key[1]))
            self._by_host[key] = None if bypassed else URL(str(proxy))
        return self._by_host[key]
