"""Protection against DNS rebinding: the hosts and origins that requests may name.

A web page can point its own host name at 127.0.0.1, and then call a server that only listens
there. The browser still sends the name that it called (``Host``, RFC 9110, 7.2) and the page's
origin (``Origin``, RFC 6454, 7); both are checked before anything else. Browsers do not speak
gRPC, so for gRPC only the origin is checked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from holdfast._model.error_values import one_line
from holdfast._model.hosts import is_loopback, normalized_host
from holdfast._server.answers import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast._asgi import ASGIApplication, ASGIReceive, ASGIScope, ASGISend

__all__ = ["HostCheck", "HostRules", "host_rules"]

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s\[\]:/?#@\\]+))(?::[0-9]*)?")
_ANY = "*"
_MAX_SHOWN_CHARS = 200


class HostRules(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts and origins that requests may name.

    Attributes:
        hosts: Names as `holdfast._model.hosts.normalized_host` returns them, ``*.`` before those
            whose subdomains are meant, or ``*`` for all.
        origins: Origins in lower case, or ``*`` for all.
        is_loopback: Whether every name of this machine is accepted.
        checks_hosts: Whether ``Host`` is checked.
        checks_origins: Whether ``Origin`` is checked.
        hint: What the operator can do about a refusal, for its text; None to name the options of
            `A2AServer`.
    """

    hosts: frozenset[str]
    origins: frozenset[str]
    is_loopback: bool
    checks_hosts: bool
    checks_origins: bool
    hint: str | None = None

    def refusal(self, hosts: list[str], origins: list[str]) -> tuple[int, str] | None:
        """Return the HTTP status and reason of a refusal; None for an accepted request.

        Args:
            hosts: The values of the ``Host`` headers.
            origins: The values of the ``Origin`` headers.
        """
        if self.checks_hosts:
            host = _host_of(hosts[0]) if len(hosts) == 1 else ""
            if not host:  # RFC 9112, 3.2
                return 400, "the request must have exactly one Host header, with a valid host"
            if not self.accepts_host(host):
                return 421, self._reason("host", host, "allowed_hosts")
        for origin in origins:
            if not self.accepts_origin(origin):
                return 403, self._reason("origin", origin, "allowed_origins")
        return None

    def _reason(self, kind: str, value: str, option: str) -> str:
        hint = self.hint or f"its operator may add it to {option}="
        shown = one_line(value, _MAX_SHOWN_CHARS)
        # A client's error quotes the beginning.
        return f"the {kind} {shown!r} is not allowed; {hint} (protection against DNS rebinding)"

    def accepts_host(self, host: str) -> bool:
        """Whether requests may name a host; an IPv6 address is without brackets."""
        name = normalized_host(host).removesuffix(".")
        if _ANY in self.hosts or name in self.hosts or (self.is_loopback and is_loopback(name)):
            return True
        return any(rule.startswith("*.") and name.endswith(rule[1:]) for rule in self.hosts)

    def accepts_origin(self, origin: str) -> bool:
        """Whether requests may name an origin; its port does not matter."""
        if not self.checks_origins or not {_ANY, origin.lower()}.isdisjoint(self.origins):
            return True
        scheme, _, authority = origin.partition("://")
        host = _host_of(authority)
        return scheme.lower() in {"http", "https"} and bool(host) and self.accepts_host(host)


def host_rules(
    url: str,
    *,
    listens_on: str | None,
    allowed_hosts: Iterable[str] | None,
    allowed_origins: Iterable[str] | None,
    hint: str | None = None,
) -> HostRules:
    """Return the rules of a server.

    Args:
        url: The address at which clients reach the server; its host is always accepted.
        listens_on: The host that the server listens on; None if it is unknown, as for a mounted
            application: then that of `url` counts.
        allowed_hosts: More hosts; None for none, and for a check on loopback addresses only.
        allowed_origins: More origins; None for none.
        hint: See `HostRules`.
    """
    own_host = urlsplit(url).hostname or ""
    is_local = is_loopback(own_host if listens_on is None else listens_on)
    checks_hosts = is_local or allowed_hosts is not None
    accepted = (own_host, *(() if allowed_hosts is None else allowed_hosts))
    return HostRules(
        hosts=frozenset(
            normalized_host(_unbracketed(host)).removesuffix(".") for host in accepted
        ),
        origins=frozenset(origin.lower() for origin in allowed_origins or ()),
        is_loopback=is_local,
        checks_hosts=checks_hosts,
        checks_origins=checks_hosts or allowed_origins is not None,
        hint=hint,
    )


class HostCheck:
    """ASGI middleware whose application gets only requests that the rules accept.

    Args:
        app: The application.
        rules: The accepted hosts and origins.
    """

    def __init__(self, app: ASGIApplication, rules: HostRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        """Serve one request."""
        refusal = None
        if scope["type"] == "http":
            refusal = self._rules.refusal(_values(scope, b"host"), _values(scope, b"origin"))
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await refuse(send, *refusal)


def _values(scope: ASGIScope, name: bytes) -> list[str]:
    """Return the values of every header with a name."""
    headers = scope.get("headers") or ()
    return [value.decode("latin-1").strip() for n, value in headers if n.lower() == name]


def _host_of(authority: str) -> str:
    """Return the host of ``host[:port]``; empty if it is not valid."""
    match = _HOST.fullmatch(authority)
    return "" if match is None else (match[1] or match[2])


def _unbracketed(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host
