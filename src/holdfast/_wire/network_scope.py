"""Network scopes of addresses, and the scopes that a request may reach (SSRF protection).

An address from a card or a redirect may try to make this machine call what its author cannot
reach: a service on loopback, a host of the private network, or a cloud's metadata service, which
hands out credentials (server-side request forgery). Such a request reaches no more private network
than that of the user's own target. The check applies to the IP address of the socket, whatever
name was resolved to it.
"""

from __future__ import annotations

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from holdfast._model.hosts import ip_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "AgentReach",
    "Network",
    "NetworkReach",
    "NetworkScope",
    "innermost",
    "network",
    "scope_of",
    "scope_of_host",
]

NetworkScope = Literal["public", "private", "link-local", "loopback", "metadata"]
"""Scope of an address, from public to the most private."""

_REACHABLE_FROM: Mapping[NetworkScope, frozenset[NetworkScope]] = {
    "public": frozenset({"public"}),
    "private": frozenset({"public", "private"}),
    "link-local": frozenset({"public", "private", "link-local"}),
    "loopback": frozenset({"public", "private", "loopback"}),
    "metadata": frozenset({"public", "private", "loopback"}),
}
"""Scopes that a target in each scope may lead to."""

AgentReach = Literal["any", "public"]
"""Scopes that a client may connect to at all, even for addresses that the caller named."""

Network = IPv4Network | IPv6Network

_SCOPES: tuple[NetworkScope, ...] = get_args(NetworkScope)

_METADATA = frozenset(
    ip_address(number)
    for number in (
        "100.100.100.200",  # Alibaba Cloud
        "100.96.0.96",  # Volcengine
        "168.63.129.16",  # Azure
        "169.254.169.254",  # most clouds
        "169.254.170.2",  # AWS, of containers
        "169.254.170.23",
        "169.254.42.42",  # Scaleway
        "169.254.0.23",  # Tencent Cloud
        "192.0.0.192",  # Oracle Cloud
        "fd00:c1::a9fe:a9fe",
        "fd00:ec2::23",  # AWS
        "fd00:ec2::254",
        "fd00:42::42",  # Scaleway
        "fd00:a9fe:a9fe::1",  # Linode
        "fe80::a9fe:a9fe",  # OpenStack
        "fd20:ce::254",  # Google Cloud
    )
)
_THIS_HOST = ip_network("0.0.0.0/8")  # sockets treat it as loopback
_EMBEDDING = tuple(
    # Prefixes with an IPv4 address in the last 32 bits: RFC 6052 (2.1), 8215, 4291 (2.5.5.1).
    IPv6Network(prefix)
    for prefix in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")
)


def scope_of(address: str) -> NetworkScope:
    """Return the scope of a socket's address.

    Args:
        address: IPv4 or IPv6 address, as the socket reports it.

    Raises:
        ValueError: It is not an IP address.
    """
    ip = ip_address(address.partition("%")[0])
    return innermost(map(_scope, (ip, *_embedded(ip))))


def scope_of_host(url: str) -> NetworkScope:
    """Return the scope of a URL's host, without a name lookup.

    A host name counts as public.
    """
    ip = ip_literal(urlsplit(url).hostname or "")
    return "public" if ip is None else scope_of(str(ip))


def innermost(scopes: Iterable[NetworkScope]) -> NetworkScope:
    """Return the most private of some scopes; public if there are none."""
    return _SCOPES[max(map(_SCOPES.index, scopes), default=0)]


def network(text: str) -> Network:
    """Parse an IP address or a network such as ``10.0.0.0/8``.

    Raises:
        ValueError: The text is neither.
    """
    return ip_network(text, strict=False)


class NetworkReach(msgspec.Struct, frozen=True, kw_only=True):
    """Networks that a request may reach if its address came from a card or a redirect.

    Attributes:
        inward: Scope of the user's own target, ``"public"`` by default; no more private scope is
            reached. Link-local addresses are reached only from there, since many of a machine's
            own devices have them, and metadata services never.
        allowed: Networks that are reached in any case.
        is_strict: Whether the reach holds for all connections of a client, for any address
            (``reach="public"``); then a host whose IP address is unknown, as behind a proxy, is
            refused. False by default.
    """

    inward: NetworkScope = "public"
    allowed: tuple[Network, ...] = ()
    is_strict: bool = False

    def refuses(self, address: str) -> bool:
        """Return whether a connection to an IP address is refused.

        Args:
            address: The IP address.
        """
        if scope_of(address) in _REACHABLE_FROM[self.inward]:
            return False
        ip = ip_address(address.partition("%")[0])
        targets = (ip, *_embedded(ip))
        return not any(target in allowed for allowed in self.allowed for target in targets)


def _scope(ip: IPv4Address | IPv6Address) -> NetworkScope:
    if ip in _METADATA:
        return "metadata"
    if ip.is_loopback or ip.is_unspecified or ip in _THIS_HOST:
        return "loopback"
    if ip.is_link_local:
        return "link-local"
    # Site-local addresses and 6to4 are deprecated (RFC 3879, 7526); any that remain are internal.
    is_deprecated = isinstance(ip, IPv6Address) and (ip.is_site_local or bool(ip.sixtofour))
    is_private = is_deprecated or ip.is_multicast or not ip.is_global
    return "private" if is_private else "public"


def _embedded(ip: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """Return the IPv4 addresses embedded in an IPv6 address (RFC 4291, 3056, 4380, 6052)."""
    if isinstance(ip, IPv4Address):
        return []
    embedded = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    if any(ip in prefix for prefix in _EMBEDDING):
        embedded.append(IPv4Address(int(ip) & 0xFFFFFFFF))
    return [address for address in embedded if address is not None]
