"""HTTP engines: the protocol that they implement, redirects, and the errors that they raise."""

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
    """Sends HTTP requests.

    An engine sends each request once, follows no redirects, stores no cookies, obeys the request's
    timeouts and limits, creates no socket to an address that ``request.reach`` refuses, and sets
    ``request.progress.sent`` before the first byte leaves. It raises failures as
    `A2AConnectionError`, `A2ATimeoutError`, `LimitExceededError` or `NetworkPolicyError`, whose
    ``executed`` is False if no byte left, and None otherwise. If it is cancelled, it releases its
    resources. If the reply is not a success (status 300 and above), a body that cannot be read
    counts as empty, because the status is sufficient.
    """

    async def request(self, request: HttpRequest) -> HttpReply:
        """Send a request and read the whole reply, of any status.

        Args:
            request: The request.
        """
        ...

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Send a request; the body is read while the context is open.

        Args:
            request: The request.
        """
        ...

    async def close(self) -> None:
        """Release all resources; can be called twice, and the engine can be used again after."""
        ...


class EngineWithin:
    """An engine that limits the network reach of its requests.

    Args:
        inner: The engine that sends the requests.
        reach: The reach of all requests, in place of their own.
        only: If given, the reach applies only to requests to this origin without a reach of their
            own.

    Attributes:
        tls: The TLS settings of the inner engine, for connections beside it.
    """

    def __init__(self, inner: HttpEngine, reach: NetworkReach, *, only: str | None = None) -> None:
        self._inner = inner
        self._reach = reach
        self._only = only
        self.tls: object = getattr(inner, "tls", None)

    async def request(self, request: HttpRequest) -> HttpReply:
        """Send a request and read its reply; see `HttpEngine`."""
        return await self._inner.request(self._within(request))

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Send a request whose body is read later; see `HttpEngine`."""
        return self._inner.stream(self._within(request))

    async def close(self) -> None:
        """Close the inner engine."""
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
    """Follow the redirects of a call, which may lead only to its own origin.

    Args:
        engine: Sends the requests.
        request: The request that was sent.
        reply: Its reply.
        allowed: Networks that a redirect may lead to, besides those that are no more private than
            the host of the first request.

    Returns:
        The final reply.

    Raises:
        A2AHTTPError: A redirect must not be followed.
        NetworkPolicyError: A redirect leads to a more private network than it may.
        A2AError: The engine raised it.
    """
    _, reply = await _follow_all(engine, request, reply, other_origins=None, allowed=allowed)
    return reply


class Fetched(NamedTuple):
    """A fetched document.

    Attributes:
        reply: The reply, of any status.
        url: The address after redirects.
        scope: The network scope of the host of the first request; public if it is not known.
    """

    reply: HttpReply
    url: str
    scope: NetworkScope


async def fetch(
    engine: HttpEngine,
    request: HttpRequest,
    *,
    other_origins: bool = True,
    allowed: tuple[Network, ...] = (),
) -> Fetched:
    """Fetch a public document, and follow its redirects.

    Args:
        engine: Sends the requests.
        request: A GET.
        other_origins: Whether redirects may lead to another origin; not if the address contains a
            secret.
        allowed: Networks that a redirect may lead to, besides public ones and those that are no
            more private than the host of the first request.

    Raises:
        A2AHTTPError: A redirect must not be followed.
        NetworkPolicyError: A redirect leads to a more private network than it may.
        A2AError: The engine raised it.
    """
    reply = await engine.request(request)
    scope: NetworkScope = "public" if reply.address is None else scope_of(reply.address)
    reach = NetworkReach(inward=scope, allowed=allowed) if other_origins else None
    request, reply = await _follow_all(
        engine, request, reply, other_origins=reach, allowed=allowed
    )
    return Fetched(reply, request.url, scope)


async def _follow_all(
    engine: HttpEngine,
    request: HttpRequest,
    reply: HttpReply,
    *,
    other_origins: NetworkReach | None,
    allowed: tuple[Network, ...],
) -> tuple[HttpRequest, HttpReply]:
    """Return the request and the reply after all redirects."""
    followed = 0
    while True:
        target = follow(
            request, reply, other_origins=other_origins, followed=followed, allowed=allowed
        )
        if target is None:
            return request, reply
        request, followed = target, followed + 1
        reply = await engine.request(request)


_FAILURE_TEXTS: Mapping[ConnectionFailure, str] = {
    "dns": "the host name could not be resolved",
    "proxy": "the proxy did not connect",
    "tls": "the TLS handshake failed",
    "refused": "the connection was refused",
    "unreachable": "the host could not be reached",
    "disconnected": "the connection was closed before the reply",
    "truncated": "the reply ended too early",
    "closed": "the client was closed",
}

_TIMEOUT_TEXTS: Mapping[TimeoutPhase, str] = {
    "pool": "no connection slot was free",
    "connect": "no connection was established",
    "write": "the agent did not read the request",
    "first_byte": "no reply began",
    "idle": "no more of the reply arrived",
}


def connection_error(
    request: HttpRequest,
    failure: ConnectionFailure,
    reason: str | None = None,
    *,
    sent: bool,
    transient: bool = True,
) -> A2AConnectionError:
    """Return the error that an engine raises if the connection fails.

    Args:
        request: The request.
        failure: The kind of failure, one of `ConnectionFailure`.
        reason: The system's description of it.
        sent: Whether a byte of the request may have left.
        transient: Whether a retry may succeed; True by default.
    """
    text = _FAILURE_TEXTS[failure]
    return A2AConnectionError(
        f"{text} ({reason})" if reason else text,
        failure=failure,
        executed=None if sent else False,
        transient=transient,
        agent=presentable(request.url),
    )


def timeout_error(request: HttpRequest, phase: TimeoutPhase, *, sent: bool) -> A2ATimeoutError:
    """Return the error that an engine raises if one of the request's timeouts expires.

    Args:
        request: The request.
        phase: The wait that expired, one of `TimeoutPhase`.
        sent: Whether a byte of the request may have left.
    """
    timeout: float = getattr(request.timeouts, phase)
    slot = request.progress.awaits if phase == "pool" else None
    text = _TIMEOUT_TEXTS[phase] if slot is None else f"no {slot} was free"
    return A2ATimeoutError(
        f"{text} for {timeout:g} s",
        phase=phase,
        timeout=timeout,
        executed=None if sent else False,
        transient=True,
        agent=presentable(request.url),
    )


def reach_error(
    url: str, address: str | None, reach: NetworkReach | None = None
) -> NetworkPolicyError:
    """Return the error that an engine raises if the request's reach refuses an address.

    Args:
        url: The address of the request.
        address: The IP address of its host; None if it must be known, but cannot be.
        reach: The reach that refuses it.
    """
    if address is None:
        text = (
            f'{presentable(url)} was not called: reach="public" cannot be checked, '
            "because a proxy or a caller-supplied gRPC channel resolves the name. Exempt the host "
            "from the proxy, or have the proxy check addresses and omit reach="
        )
        return NetworkPolicyError(text, executed=False, agent=presentable(url))
    if reach is not None and reach.is_strict:
        reason = 'but reach="public" allows public addresses only'
    else:
        reason = "which an agent's card or a redirect must not name (SSRF protection)"
    return NetworkPolicyError(
        f"{presentable(url)} resolves to {address} ({scope_of(address)}), {reason}; nothing was "
        f'sent there. If you trust it, pass allowed_networks=("{address}",)',
        address=address,
        executed=False,
        agent=presentable(url),
    )
