"""The seam of bytes: whatever can carry an HTTP request is an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from holdfast._wire.http import HttpReply, HttpRequest, HttpStream, presentable
from holdfast._wire.network_scope import Network, NetworkReach, NetworkScope, scope_of
from holdfast._wire.origins import origin
from holdfast._wire.redirects import follow
from holdfast.errors import (
    A2AConnectionError,
    A2ATimeoutError,
    ConnectionFailure,
    NetworkPolicyError,
    TimeoutPhase,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

__all__ = [
    "EngineWithin",
    "Fetched",
    "HttpEngine",
    "connection_error",
    "fetch",
    "reach_error",
    "redirected",
    "timeout_error",
]


class HttpEngine(Protocol):
    """Carries HTTP requests.

    An engine sends each request once, follows no redirect, keeps no cookie, keeps the request's
    timeouts and limits, makes no socket that ``request.reach`` refuses, and sets
    ``request.progress.sent`` before the first byte leaves. It tells failures as
    `A2AConnectionError`, `A2ATimeoutError`, `LimitExceededError` or `NetworkPolicyError` whose
    `executed` is False where no byte left and None otherwise. Being cancelled, it frees what it
    holds. Of a reply that is no success (300 and above) a body that cannot be read counts as
    empty, since the status says what there is to say.
    """

    async def request(self, request: HttpRequest) -> HttpReply:
        """Sends a request and reads the whole reply, whatever its status."""
        ...

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Sends a request; the body is read while the context is open."""
        ...

    async def close(self) -> None:
        """Frees everything; can be called twice, and the engine can be used again after it."""
        ...


class EngineWithin:
    """An engine whose requests reach no further than it is told.

    Args:
        inner: What carries them.
        reach: Where they may lead, in place of what each of them says; so no request says less.
        only: The origin for which that is so, where a request says nothing; None for all.

    Attributes:
        tls: How it speaks TLS, for what connects beside it.
    """

    def __init__(self, inner: HttpEngine, reach: NetworkReach, *, only: str | None = None) -> None:
        self._inner = inner
        self._reach = reach
        self._only = only
        self.tls: object = getattr(inner, "tls", None)

    async def request(self, request: HttpRequest) -> HttpReply:
        """Sends a request and reads its reply; see `HttpEngine`."""
        return await self._inner.request(self._within(request))

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Sends a request whose body is read later; see `HttpEngine`."""
        return self._inner.stream(self._within(request))

    async def close(self) -> None:
        """Closes the engine below."""
        await self._inner.close()

    def _within(self, request: HttpRequest) -> HttpRequest:
        if self._only is not None and (
            request.reach is not None or origin(request.url) != self._only
        ):
            return request
        return msgspec.structs.replace(request, reach=self._reach)


async def redirected(
    engine: HttpEngine,
    request: HttpRequest,
    reply: HttpReply,
    *,
    allowed: tuple[Network, ...] = (),
) -> HttpReply:
    """What the redirects of a call lead to, which may follow them only to its own origin.

    Args:
        engine: What carries the requests.
        request: What was sent.
        reply: What came back.
        allowed: Networks that a redirect may reach, besides what lies no further in than the
            host that was asked.

    Raises:
        A2AHTTPError: A redirect that must not be followed.
        NetworkPolicyError: A redirect leads further inside than it may.
        A2AError: What the engine raises.
    """
    _, reply = await _followed(engine, request, reply, elsewhere=None, allowed=allowed)
    return reply


class Fetched(NamedTuple):
    """A public document.

    Attributes:
        reply: The reply, of any status.
        url: Where it came from in the end.
        asked: Where the host lies that was asked first; public if that is not known.
    """

    reply: HttpReply
    url: str
    asked: NetworkScope


async def fetch(
    engine: HttpEngine,
    request: HttpRequest,
    *,
    elsewhere: bool = True,
    allowed: tuple[Network, ...] = (),
) -> Fetched:
    """Gets a public document, wherever it was moved to.

    Args:
        engine: What carries the requests.
        request: A GET.
        elsewhere: Whether it may have been moved to another origin; for what has a secret in
            its address, it may not.
        allowed: Networks that a redirect may lead to, besides the outside and what lies no
            further in than the host that was asked.

    Raises:
        A2AHTTPError: A redirect that must not be followed.
        NetworkPolicyError: A redirect leads further inside than it may.
        A2AError: What the engine raises.
    """
    reply = await engine.request(request)
    asked: NetworkScope = "public" if reply.address is None else scope_of(reply.address)
    reach = NetworkReach(inward=asked, allowed=allowed) if elsewhere else None
    request, reply = await _followed(engine, request, reply, elsewhere=reach, allowed=allowed)
    return Fetched(reply, request.url, asked)


async def _followed(
    engine: HttpEngine,
    request: HttpRequest,
    reply: HttpReply,
    *,
    elsewhere: NetworkReach | None,
    allowed: tuple[Network, ...],
) -> tuple[HttpRequest, HttpReply]:
    """What the redirects lead to in the end, from the first reply on."""
    followed = 0
    while True:
        onward = follow(request, reply, elsewhere=elsewhere, followed=followed, allowed=allowed)
        if onward is None:
            return request, reply
        request, followed = onward, followed + 1
        reply = await engine.request(request)


_FAILED: Mapping[ConnectionFailure, str] = {
    "dns": "the name could not be resolved",
    "proxy": "the proxy did not connect",
    "tls": "no TLS connection came about",
    "refused": "the connection was refused",
    "unreachable": "the host could not be reached",
    "disconnected": "the connection was closed before the reply",
    "truncated": "the reply ended too early",
    "closed": "the client was closed",
}

_WAITED: Mapping[TimeoutPhase, str] = {
    "pool": "no connection slot was free",
    "connect": "no connection came about",
    "write": "the agent did not read the request",
    "first_byte": "no reply began",
    "idle": "the reply did not go on",
}


def connection_error(
    request: HttpRequest,
    failure: ConnectionFailure,
    reason: str | None = None,
    *,
    sent: bool,
    transient: bool = True,
) -> A2AConnectionError:
    """The error that an engine raises where the connection fails.

    Args:
        request: What was to be carried.
        failure: What broke.
        reason: What the system says about it.
        sent: Whether a byte of the request may have left.
        transient: Whether trying again may help.
    """
    return A2AConnectionError(
        f"{_FAILED[failure]} ({reason})" if reason else _FAILED[failure],
        failure=failure,
        executed=None if sent else False,
        transient=transient,
        agent=presentable(request.url),
    )


def timeout_error(request: HttpRequest, phase: TimeoutPhase, *, sent: bool) -> A2ATimeoutError:
    """The error that an engine raises where one of the request's timeouts fires.

    Args:
        request: What was to be carried.
        phase: Which wait expired.
        sent: Whether a byte of the request may have left.
    """
    limit: float = getattr(request.timeouts, phase)
    place = request.progress.awaits if phase == "pool" else None
    waited = _WAITED[phase] if place is None else f"no {place} was free"
    return A2ATimeoutError(
        f"{waited} for {limit:g} s",
        phase=phase,
        timeout=limit,
        executed=None if sent else False,
        transient=True,
        agent=presentable(request.url),
    )


def reach_error(
    url: str, address: str | None, reach: NetworkReach | None = None
) -> NetworkPolicyError:
    """The error that an engine raises where the request's reach refuses an address.

    Args:
        url: Where it was to go.
        address: The number that its host led to; None where that cannot be known, and has to be.
        reach: What refuses it.
    """
    if address is None:
        text = (
            f'{presentable(url)} was not called: reach="public" cannot be checked, because a '
            "proxy or a gRPC channel of your own resolves the name. Exempt the host from the "
            "proxy, or have the proxy check addresses and leave out reach="
        )
        return NetworkPolicyError(text, executed=False, agent=presentable(url))
    if reach is not None and reach.is_strict:
        why = 'but reach="public" allows public addresses only'
    else:
        why = "which an agent's card or a redirect must not name (SSRF protection)"
    return NetworkPolicyError(
        f"{presentable(url)} resolves to {address} ({scope_of(address)}), {why}; nothing was sent "
        f'there. If you trust it, pass allowed_networks=("{address}",)',
        address=address,
        executed=False,
        agent=presentable(url),
    )
