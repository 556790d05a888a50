"""The slots and the connections of one event loop, in sessions of aiohttp.

Rules, each against something that aiohttp does otherwise:
- A request is sent once. aiohttp resends GET and DELETE after a disconnect; a middleware turns
  that off.
- A socket is made only where the request may reach, after its name was resolved.
- Redirects, cookies and ``.netrc`` are left alone; proxies come from the environment, read once.
- No clock of aiohttp's runs: the limits are the exchange's.
- Open streams cannot starve calls: they have slots and connections of their own.
- Connections belong to an event loop, and end with it; another loop gets others.
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

_NOT_ADDED = ("content-type",)
"""What aiohttp adds by itself, and nobody here knows: what a body is says whoever wrote it."""

_MOMENT = 0.01
"""Seconds in which a connection that ends is seen late as a matter of course; to ask the system
before each request would cost more than it is worth."""

_UNCLOSED = (
    "unclosed AiohttpEngine: enter it, or the client that made it, by 'async with', or close it"
)

_Purpose = tuple[float, bool, NetworkReach | None, int]
"""`HttpRequest.max_idle`, whether it is for streams, how far it may reach, and the bytes that
one header may have."""

_Sessions = dict[_Purpose, aiohttp.ClientSession]


class Settings(NamedTuple):
    """What an engine was made with.

    Attributes:
        max_connections: Calls under way at a time.
        max_streams: Streams open at a time.
        ssl: What aiohttp verifies certificates with.
        proxies: Those of the environment.
        lent: The caller's own session, in place of all others; never closed.
    """

    max_connections: int
    max_streams: int
    ssl: tls.SSLContext | bool
    proxies: Proxies
    lent: aiohttp.ClientSession | None


class Pools:
    """Slots and sessions of one event loop; sessions are made when first used.

    Attributes:
        calls: The slots of calls.
        streams: The slots of streams.
        watchdog: What keeps the limits of everything that has a slot.
        lent: Whether the session is the caller's own.
    """

    def __init__(self, settings: Settings) -> None:
        self.calls = FifoSemaphore(settings.max_connections)
        self.streams = FifoSemaphore(settings.max_streams)
        self.watchdog = Watchdog()
        self.lent = settings.lent is not None
        self._settings = settings
        self._now = asyncio.get_running_loop().time
        self._heard = -math.inf
        self._parsed = lru_cache(maxsize=100)(_parsed)
        self._made: _Sessions = {}
        self._at_last = _close_at_last(self._made)
        with contextlib.suppress(StopIteration):
            self._at_last.__anext__().send(None)  # from its first step on, the loop knows of it

    def __del__(self) -> None:
        # Nobody has the engine any more, and its loop goes on.
        if self._made:
            warnings.warn(_UNCLOSED, ResourceWarning, stacklevel=2, source=self)

    def place(self, *, streaming: bool) -> str:
        """What a request waits for where no slot is free, and what makes more of them."""
        if streaming:
            return f"slot for streams (max_streams={self._settings.max_streams})"
        return f"slot for calls (max_connections={self._settings.max_connections})"

    async def close(self) -> None:
        """Closes the sessions; one that was lent stays open."""
        self.watchdog.rest()
        await _close(self._made)

    def send(
        self, request: HttpRequest, body: payload.Payload, *, streaming: bool
    ) -> Awaitable[aiohttp.ClientResponse]:
        """Sends a request, and gives the reply once its headers are there.

        Raises:
            aiohttp.ClientError: What aiohttp says of a failure.
            OSError: What the system says; a `ForbiddenAddressError` where the request must not
                reach.
            ValueError: aiohttp does not take the address, or what it holds.
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
            options["skip_auto_headers"] = _NOT_ADDED
        largest = largest_header(request.limits)
        session = self._settings.lent
        if session is not None:  # it has its own ideas about TLS and proxies
            options["auto_decompress"] = False
            options["max_field_size"] = largest
            options["raise_for_status"] = False
            options["timeout"] = _NO_TIMEOUT
            if request.reach is not None:
                check_host(request.url, request.reach, is_checked_later=True)
        else:
            reach = request.reach
            if (proxy := self._settings.proxies.of(request.url)) is not None:
                options["proxy"] = proxy
                if reach is not None:
                    check_host(request.url, reach)  # all that can be known; it is the user's
                    reach = None
            if request.method == "POST":
                options["middlewares"] = ()  # which aiohttp does not resend
            session = self._session((request.max_idle, streaming, reach, largest))
        return session.request(request.method, self._parsed(request.url), **options)

    def heard(self) -> None:
        """Notes that the event loop has just looked at its sockets."""
        self._heard = self._now()

    def is_deaf(self) -> bool:
        """Whether it may have been kept from that for longer than a moment."""
        return self._now() - self._heard > _MOMENT

    def is_proxied(self, url: str) -> bool:
        """Whether a proxy is at the other end, or may be."""
        session = self._settings.lent
        if session is None:
            return self._settings.proxies.of(url) is not None
        return session.trust_env or getattr(session, "_default_proxy", None) is not None

    def _session(self, purpose: _Purpose) -> aiohttp.ClientSession:
        session = self._made.get(purpose)
        if session is None:
            max_idle, _, reach, largest = purpose
            is_reused = max_idle > 0
            session = self._made[purpose] = aiohttp.ClientSession(
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
                max_field_size=largest,
                middlewares=(_send_once,),
            )
        return session


def _parsed(url: str) -> URL:
    parsed = URL(url, encoded=True)
    if not (parsed.raw_host or "").isascii():  # the system would make another host of some
        text = "its host has no ASCII form"
        raise ValueError(text)
    return parsed


async def _close(sessions: _Sessions) -> None:
    closing = dict(sessions)
    sessions.clear()  # whoever sends from now on makes new ones
    try:
        for purpose, session in list(closing.items()):
            await session.close()
            del closing[purpose]
    finally:
        for purpose, session in closing.items():  # of a close that was cancelled
            sessions.setdefault(purpose, session)


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
        del request.headers["content-length"]
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _DisconnectedError(str(error)) from error


def is_verifying(ssl: tls.SSLContext | bool) -> bool:  # noqa: FBT001  the same
    """Whether certificates and the hosts that they are for are verified."""
    if isinstance(ssl, bool):
        return ssl
    return ssl.verify_mode is not tls.CERT_NONE and ssl.check_hostname


def ssl_option(
    ssl: TlsConfig | tls.SSLContext | str | PathLike[str] | bool,  # noqa: FBT001  aiohttp's own spelling
) -> tls.SSLContext | bool:
    """What aiohttp takes for what `AiohttpEngine` does.

    Raises:
        ValueError: The file is no certificate.
        TypeError: It is something else.
        FileNotFoundError: There is no such file.
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
        message = f"ssl={fspath(ssl)!r}: there is no such file"
        raise FileNotFoundError(message) from None
    except tls.SSLError as error:
        message = f"{fspath(ssl)} holds no certificate: {error}"
        raise ValueError(message) from None
