"""The concurrency slots and the connections of one event loop, in sessions of aiohttp.

Rules, each of which differs from aiohttp's default behaviour:
- A request is sent once. aiohttp resends GET and DELETE after a disconnect; a middleware prevents
  that.
- A socket is created only to addresses within the request's reach, after its name was resolved.
- Redirects, cookies and ``.netrc`` are not used; proxies come from the environment, read once.
- aiohttp's timeouts are off: the exchange enforces timeouts.
- Open streams cannot starve calls: they have slots and connections of their own.
- Connections belong to an event loop, and are closed with it; another loop has its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl as tls
import warnings
from functools import lru_cache
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import aiohttp
from yarl import URL

from holdfast._aio.semaphore import FifoSemaphore
from holdfast._aio.watchdog import Watchdog
from holdfast._net.sockets import check_host, sockets_within
from holdfast._net.tls_config import TlsConfig
from holdfast._wire.limits import largest_header
from holdfast._wire.network_scope import NetworkReach

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable

    from aiohttp import payload

    from holdfast._net.proxies import Proxies
    from holdfast._wire.http import HttpRequest

__all__ = ["Pools", "Settings", "is_verifying", "ssl_option"]

_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)

_SKIPPED_HEADERS = ("content-type",)
"""Headers that aiohttp must not add: the content type is known only to the body's author."""

_POLL_OVERDUE_S = 0.01
"""Seconds without polling sockets after which a closed connection may have gone unnoticed. Asking
the operating system before each request would cost more than it is worth."""

_SessionKey = tuple[float, bool, NetworkReach | None, int]
"""`HttpRequest.max_idle`, whether it is for streams, its network reach, and the largest size of a
header in bytes."""

_Sessions = dict[_SessionKey, aiohttp.ClientSession]


class Settings(NamedTuple):
    """The settings of an engine.

    Attributes:
        max_connections: Calls in flight at the same time.
        max_streams: Open streams at the same time.
        ssl: The ``ssl`` argument for aiohttp.
        proxies: The proxies of the environment.
        session: The caller's session, used in place of all others; never closed.
        owner: What has to be closed, as a warning names it.
    """

    max_connections: int
    max_streams: int
    ssl: tls.SSLContext | bool
    proxies: Proxies
    session: aiohttp.ClientSession | None
    owner: str = "AiohttpEngine"


class Pools:
    """The slots and sessions of one event loop; sessions are created when first used.

    Attributes:
        calls: The slots of calls.
        streams: The slots of streams.
        watchdog: Enforces the timeouts of everything that holds a slot.
        is_session_borrowed: Whether the session belongs to the caller.
    """

    def __init__(self, settings: Settings) -> None:
        self.calls = FifoSemaphore(settings.max_connections)
        self.streams = FifoSemaphore(settings.max_streams)
        self.watchdog = Watchdog()
        self.is_session_borrowed = settings.session is not None
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._polled_at = -math.inf
        self._parse_url = lru_cache(maxsize=100)(_parse_url)
        self._sessions: _Sessions = {}
        self._closer = _close_with_loop(self._sessions)
        with contextlib.suppress(StopIteration):
            self._closer.__anext__().send(None)  # its first step registers it with the loop

    def __del__(self) -> None:
        # The engine was dropped without close(), and its loop is still open.
        if self._sessions:
            text = f"unclosed {self._settings.owner}: use 'async with' for it, or call close()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
            # aiohttp would log each session, and the loop may end before it closes `_closer`.
            try:
                is_own_loop = asyncio.get_running_loop() is self._loop
            except RuntimeError:
                is_own_loop = False
            if is_own_loop:
                _close_now(self._sessions)
            else:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(_close_now, self._sessions)

    def slot_name(self, *, streaming: bool) -> str:
        """Return the name of the slot that a request waits for, with the option to raise."""
        if streaming:
            return f"slot for streams (max_streams={self._settings.max_streams})"
        return f"slot for calls (max_connections={self._settings.max_connections})"

    async def close(self) -> None:
        """Close the sessions; the caller's session stays open."""
        await _close(self._sessions)

    def send(
        self, request: HttpRequest, body: payload.Payload, *, streaming: bool
    ) -> Awaitable[aiohttp.ClientResponse]:
        """Send a request, and return the reply once its headers have arrived.

        Raises:
            aiohttp.ClientError: The request failed.
            OSError: The request failed; a `ForbiddenAddressError` if its reach refuses the
                address.
            ValueError: aiohttp rejects the address.
        """
        coding = "identity" if streaming else "gzip"
        options: dict[str, Any] = {
            "data": body,
            "headers": {**request.headers, "accept-encoding": coding},
            "allow_redirects": False,
        }
        if request.max_idle <= 0:
            options["headers"]["connection"] = "close"
        if "content-type" not in request.headers:
            options["skip_auto_headers"] = _SKIPPED_HEADERS
        max_header_bytes = largest_header(request.limits)
        session = self._settings.session
        if session is not None:  # it has its own settings for TLS and proxies
            options["auto_decompress"] = False
            options["max_field_size"] = max_header_bytes
            options["raise_for_status"] = False
            options["timeout"] = _NO_TIMEOUT
            if request.reach is not None:
                check_host(request.url, request.reach, is_checked_later=True)
        else:
            reach = request.reach
            if (proxy := self._settings.proxies.for_url(request.url)) is not None:
                options["proxy"] = proxy
                if reach is not None:
                    check_host(request.url, reach)  # the user's proxy resolves names
                    reach = None
            if request.method == "POST":
                options["middlewares"] = ()  # aiohttp does not resend a POST
            session = self._session((request.max_idle, streaming, reach, max_header_bytes))
        return session.request(request.method, self._parse_url(request.url), **options)

    def note_poll(self) -> None:
        """Record that the event loop has just polled its sockets."""
        self._polled_at = self._now()

    def is_poll_overdue(self) -> bool:
        """Return whether the event loop may have been blocked since it last polled."""
        return self._now() - self._polled_at > _POLL_OVERDUE_S

    def is_proxied(self, url: str) -> bool:
        """Return whether the peer is, or may be, a proxy."""
        session = self._settings.session
        if session is None:
            return self._settings.proxies.for_url(url) is not None
        return session.trust_env or getattr(session, "_default_proxy", None) is not None

    def describe_proxy(self, url: str) -> str | None:
        """Return the proxy of a URL, and where it is set; None if there is none of its own."""
        return None if self.is_session_borrowed else self._settings.proxies.describe(url)

    def _session(self, key: _SessionKey) -> aiohttp.ClientSession:
        session = self._sessions.get(key)
        if session is None:
            max_idle, _, reach, max_header_bytes = key
            is_reused = max_idle > 0
            session = self._sessions[key] = aiohttp.ClientSession(
                timeout=_NO_TIMEOUT,
                connector=aiohttp.TCPConnector(
                    limit=0,
                    ssl=self._settings.ssl,
                    keepalive_timeout=max_idle if is_reused else None,
                    force_close=not is_reused,
                    socket_factory=None if reach is None else sockets_within(reach),
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                max_field_size=max_header_bytes,
                middlewares=(_send_once,),
            )
        return session


def _parse_url(url: str) -> URL:
    parsed = URL(url, encoded=True)
    if not (parsed.raw_host or "").isascii():  # the system might map it to another host
        text = "its host name has no ASCII form"
        raise ValueError(text)
    return parsed


async def _close(sessions: _Sessions) -> None:
    closing = dict(sessions)
    sessions.clear()  # later requests create new sessions
    try:
        for key, session in list(closing.items()):
            await session.close()
            del closing[key]
    finally:
        for key, session in closing.items():  # if closing was cancelled
            sessions.setdefault(key, session)


def _close_now(sessions: _Sessions) -> None:
    """Close sessions without waiting until their sockets are closed."""
    while sessions:
        _, session = sessions.popitem()
        closing = session.close()
        with contextlib.suppress(StopIteration):
            closing.send(None)
        closing.close()


async def _close_with_loop(sessions: _Sessions) -> AsyncGenerator[None]:
    """Close sessions when this generator is closed, as a loop that ends does."""
    try:
        yield
    finally:
        await _close(sessions)


class _DisconnectedError(aiohttp.ClientError):
    """Replaces the error of a disconnect, for which aiohttp would resend the request."""


async def _send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    if request.method == "GET" and request.headers["content-length"] == "0":
        del request.headers["content-length"]
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _DisconnectedError(str(error)) from error


def is_verifying(ssl: tls.SSLContext | bool) -> bool:  # noqa: FBT001  aiohttp's own spelling
    """Return whether certificates and their hosts are verified."""
    if isinstance(ssl, bool):
        return ssl
    return ssl.verify_mode is not tls.CERT_NONE and ssl.check_hostname


def ssl_option(
    ssl: TlsConfig | tls.SSLContext | str | PathLike[str] | bool,  # noqa: FBT001  aiohttp's own spelling
) -> tls.SSLContext | bool:
    """Return the ``ssl`` argument for aiohttp from that of `AiohttpEngine`.

    Raises:
        ValueError: The file holds no certificate.
        TypeError: The argument is of another type.
        FileNotFoundError: The file does not exist.
    """
    if isinstance(ssl, tls.SSLContext | bool):
        return ssl
    if isinstance(ssl, TlsConfig):
        return ssl.context()
    if not isinstance(cast("object", ssl), str | PathLike):
        message = f"ssl must be a TlsConfig, a file, a context or a bool, not {type(ssl).__name__}"
        raise TypeError(message)
    try:
        return tls.create_default_context(cafile=fspath(ssl))
    except FileNotFoundError:
        message = f"ssl={fspath(ssl)!r}: file not found"
        raise FileNotFoundError(message) from None
    except tls.SSLError as error:
        message = f"{fspath(ssl)} contains no certificate: {error}"
        raise ValueError(message) from None
