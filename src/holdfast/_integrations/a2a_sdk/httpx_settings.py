"""What a program has set on the `httpx.AsyncClient` that it lends to the SDK.

`HoldfastTransport` sends with connections of its own, so what is set there has to come along.

Rules: headers, cookies, a user name with its password and timeouts come along, headers and cookies
as they are at the time of each call. What cannot come along is an error when the transport is
made, which says what to pass in its place; once that is passed, there is no error. Holdfast's own
transport for httpx may be there: what that does for a request is done here for a call.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.request import getproxies

import httpx
import msgspec

from holdfast._integrations.httpx import Transport

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._client.options import ClientOptions
    from holdfast.policies import Timeouts

__all__ = ["LentClient"]

_BY_THE_CODEC = frozenset(
    {
        "a2a-version",
        "accept",
        "accept-encoding",
        "cache-control",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "keep-alive",
        "te",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)
"""Headers that say how a request is written, and who writes it: that is not httpx here."""

_NOBODY_CHOSE = httpx.Timeout(5.0)
"""What httpx takes where nobody says anything."""


class LentClient:
    """What comes along of a lent client.

    Args:
        client: The client.
        url: Where requests go.
        instead: The options that the caller passes besides it; its headers count before these.

    Raises:
        ValueError: Something that is set on it cannot come along, and nothing is passed in its
            place.
    """

    def __init__(self, client: httpx.AsyncClient, url: str, instead: ClientOptions) -> None:
        passed = {name for name, value in instead.items() if value is not None}
        for what in _CANNOT_COME:
            found = what.found(client)
            if found is not None and passed.isdisjoint(what.options):
                message = (
                    f"the lent httpx client has {found}, which has no effect on the requests of a "
                    f"HoldfastTransport; pass {what.hint} in its place"
                )
                raise ValueError(message)
        self._client = client
        self._url = url
        own = instead.get("headers") or {}
        self._drops = _BY_THE_CODEC | {name.lower() for name in own}

    def headers(self) -> dict[str, str]:
        """The headers and cookies to send, as they are now; names in lower case."""
        request = httpx.Request("POST", self._url)
        self._client.cookies.set_cookie_header(request)
        auth = self._client.auth
        if isinstance(auth, httpx.BasicAuth):
            next(auth.sync_auth_flow(request))
        own = {name: request.headers[name] for name in _MADE if name in request.headers}
        found = {**self._client.headers, **own}
        return {name: value for name, value in found.items() if name not in self._drops}

    def timeouts(self, timeouts: Timeouts, *, longest: float) -> Timeouts:
        """The limits of an attempt, with those that were set on the client.

        Args:
            timeouts: Those that are to be used where nothing was set.
            longest: Seconds that stand for no limit.
        """
        own = self._client.timeout
        if own == _NOBODY_CHOSE:
            return timeouts

        def limit(seconds: float | None) -> float:
            return longest if seconds is None else seconds

        return msgspec.structs.replace(
            timeouts,
            pool=limit(own.pool),
            connect=limit(own.connect),
            write=limit(own.write),
            first_byte=limit(own.read),
            idle=limit(own.read),
        )


_MADE = ("authorization", "cookie")


class _Setting(NamedTuple):
    """Something that cannot come along.

    Attributes:
        found: Says what is set; None for nothing.
        options: Those that can stand for it.
        hint: What to pass.
    """

    found: Callable[[httpx.AsyncClient], str | None]
    options: tuple[str, ...]
    hint: str


def _auth(client: httpx.AsyncClient) -> str | None:
    auth = client.auth
    if auth is None or isinstance(auth, httpx.BasicAuth):
        return None
    return f"auth={type(auth).__name__}(…)"


def _event_hooks(client: httpx.AsyncClient) -> str | None:
    return "event_hooks" if any(client.event_hooks.values()) else None


def _params(client: httpx.AsyncClient) -> str | None:
    return "params" if client.params else None


def _transport(client: httpx.AsyncClient) -> str | None:
    # httpx has no public way to see it; what has no such attribute is taken for ordinary.
    transport: Any = getattr(client, "_transport", None)
    if transport is None:
        return None
    if type(transport) is httpx.AsyncHTTPTransport:
        pool: Any = getattr(transport, "_pool", None)
        if getattr(pool, "_uds", None) is not None or hasattr(pool, "_proxy_url"):
            return "transport=AsyncHTTPTransport(…) with a proxy or a socket of its own"
        address = getattr(pool, "_local_address", None)
        return None if address is None else "transport=AsyncHTTPTransport(local_address=…)"
    if isinstance(transport, Transport):
        # One that was given an engine does not own it, and was given it for a reason.
        owns: bool = getattr(transport, "_owned", None) is not None
        return None if owns else "transport=Transport(engine=…)"
    return f"transport={type(transport).__name__}(…)"


def _own_tries(client: httpx.AsyncClient) -> str | None:
    retries: Any = getattr(_pool(client), "_retries", 0)
    return f"transport=AsyncHTTPTransport(retries={retries})" if retries else None


def _tls(client: httpx.AsyncClient) -> str | None:
    """What differs from httpx's own context, as far as a context tells of itself."""
    context: Any = getattr(_pool(client), "_ssl_context", None)
    if not isinstance(context, ssl.SSLContext):
        return None
    if context.verify_mode is ssl.CERT_NONE:
        return "verify=False"
    is_usual = type(context) is ssl.SSLContext and _traits(context) == _traits(
        httpx.create_ssl_context(trust_env=client.trust_env)
    )
    return None if is_usual else "verify=… (a context of its own)"


def _traits(context: ssl.SSLContext) -> tuple[object, ...]:
    trusted = frozenset(context.get_ca_certs(binary_form=True))
    return (trusted, context.check_hostname, context.minimum_version)


def _pool(client: httpx.AsyncClient) -> Any:
    transport: Any = getattr(client, "_transport", None)
    is_plain = type(transport) is httpx.AsyncHTTPTransport
    return getattr(transport, "_pool", None) if is_plain else None


def _proxy(client: httpx.AsyncClient) -> str | None:
    mounts: Any = getattr(client, "_mounts", None) or {}
    own = {f"{scheme}://" for scheme in getproxies()} if client.trust_env else set[str]()
    used = {where.pattern for where, transport in mounts.items() if transport is not None}
    return "a proxy or mounts" if used - own else None


def _no_environment(client: httpx.AsyncClient) -> str | None:
    return None if client.trust_env or not getproxies() else "trust_env=False"


_AN_ENGINE = "engine=… (an AiohttpEngine or another HttpEngine, or an aiohttp.ClientSession)"

_CANNOT_COME = (
    _Setting(_auth, ("auth", "headers", "engine"), "auth=… (a value, headers, an AuthProvider)"),
    _Setting(_params, ("auth", "engine"), "auth=… (an AuthProvider gives query parameters, too)"),
    _Setting(
        _event_hooks,
        ("observers", "attempt_layers", "engine"),
        "observers=… or attempt_layers=…",
    ),
    _Setting(_transport, ("engine",), _AN_ENGINE),
    _Setting(
        _own_tries,
        ("resilience", "engine"),
        "resilience=Resilience(retry=RetryPolicy(…)), or retry_config=RetryConfig(…)",
    ),
    _Setting(_tls, ("engine", "tls"), "engine=AiohttpEngine(ssl=…), or tls=TlsConfig(…)"),
    _Setting(_proxy, ("engine",), _AN_ENGINE),
    _Setting(_no_environment, ("engine",), _AN_ENGINE),
)
