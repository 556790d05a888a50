"""Settings of the `httpx.AsyncClient` in the SDK's configuration, for Holdfast's client.

`HoldfastTransport` has connections of its own, and takes over the settings of that client.

Rules: headers, cookies, a user name with its password and timeouts are taken over; headers and
cookies as they are at the time of each call. Any other setting is an error when the transport is
created, which names the option that replaces it; with that option there is no error. The client
may have Holdfast's own transport for httpx: `HoldfastTransport` does the same for a call.
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

__all__ = ["HttpxSettings"]

_SET_BY_CODEC = frozenset(
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
"""Headers about the encoding of a request and the program that sends it, which is not httpx."""

_HTTPX_DEFAULT = httpx.Timeout(5.0)
"""The default of httpx."""


class HttpxSettings:
    """The settings of a caller's httpx client.

    Args:
        client: The client.
        url: The address of the requests.
        options: The caller's options of the transport; their headers take precedence.
        taker: What takes these options, for the error.

    Raises:
        ValueError: The client has a setting that cannot be taken over, and no option replaces it.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        options: ClientOptions,
        *,
        taker: str = "HoldfastTransport",
    ) -> None:
        passed = {name for name, value in options.items() if value is not None}
        for setting in _UNSUPPORTED:
            value = setting.describe(client)
            if value is not None and passed.isdisjoint(setting.options):
                message = (
                    f"the httpx_client of the configuration has {value}, which Holdfast does not "
                    f"take over; pass {setting.hint} to {taker} instead"
                )
                raise ValueError(message)
        self._client = client
        self._url = url
        headers = options.get("headers") or {}
        self._omitted = _SET_BY_CODEC | {name.lower() for name in headers}

    def headers(self) -> dict[str, str]:
        """Return the headers and cookies to send, as they are now; names in lower case."""
        request = httpx.Request("POST", self._url)
        self._client.cookies.set_cookie_header(request)
        auth = self._client.auth
        if isinstance(auth, httpx.BasicAuth):
            next(auth.sync_auth_flow(request))
        added = {name: request.headers[name] for name in _ADDED if name in request.headers}
        headers = {**self._client.headers, **added}
        return {name: value for name, value in headers.items() if name not in self._omitted}

    def timeouts(self, timeouts: Timeouts, *, longest: float) -> Timeouts:
        """Return the timeouts of an attempt, with those that were set on the client.

        Args:
            timeouts: Timeouts to use if the client has the defaults of httpx.
            longest: Seconds of a timeout that the client does not limit.
        """
        own = self._client.timeout
        if own == _HTTPX_DEFAULT:
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


_ADDED = ("authorization", "cookie")
"""Headers that httpx adds to each request."""


class _Setting(NamedTuple):
    """A setting that cannot be taken over.

    Attributes:
        describe: Returns the setting of a client as an error names it; None if it is not set.
        options: The options that replace it.
        hint: The option to pass.
    """

    describe: Callable[[httpx.AsyncClient], str | None]
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
    # httpx has no public attribute for it; a client without this one counts as ordinary.
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
        # With an engine of the caller it does not own one, and that engine must not be dropped.
        owns: bool = getattr(transport, "_owned", None) is not None
        return None if owns else "transport=Transport(engine=…)"
    return f"transport={type(transport).__name__}(…)"


def _retries(client: httpx.AsyncClient) -> str | None:
    retries: Any = getattr(_pool(client), "_retries", 0)
    return f"transport=AsyncHTTPTransport(retries={retries})" if retries else None


def _tls(client: httpx.AsyncClient) -> str | None:
    """Return how the TLS context differs from that of httpx, as far as it can be read."""
    context: Any = getattr(_pool(client), "_ssl_context", None)
    if not isinstance(context, ssl.SSLContext):
        return None
    if context.verify_mode is ssl.CERT_NONE:
        return "verify=False"
    is_usual = type(context) is ssl.SSLContext and _properties(context) == _properties(
        httpx.create_ssl_context(trust_env=client.trust_env)
    )
    return None if is_usual else "verify=… (a context of its own)"


def _properties(context: ssl.SSLContext) -> tuple[object, ...]:
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


_ENGINE = "engine=… (an AiohttpEngine or another HttpEngine, or an aiohttp.ClientSession)"

_UNSUPPORTED = (
    _Setting(_auth, ("auth", "headers", "engine"), "auth=… (a value, headers, an AuthProvider)"),
    _Setting(_params, ("auth", "engine"), "auth=… (an AuthProvider gives query parameters, too)"),
    _Setting(
        _event_hooks,
        ("observers", "attempt_layers", "engine"),
        "observers=… or attempt_layers=…",
    ),
    _Setting(_transport, ("engine",), _ENGINE),
    _Setting(
        _retries,
        ("resilience", "engine"),
        "resilience=Resilience(retry=RetryPolicy(…)), or retry_config=RetryConfig(…)",
    ),
    _Setting(_tls, ("engine", "tls"), "engine=AiohttpEngine(ssl=…), or tls=TlsConfig(…)"),
    _Setting(_proxy, ("engine",), _ENGINE),
    _Setting(_no_environment, ("engine",), _ENGINE),
)
