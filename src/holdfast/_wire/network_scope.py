"""How far inside a network an address lies, and how far a request may reach.

An address that somebody else names (a card, a redirect) may be meant to make this machine call
what its author cannot: a service on loopback, a host of the private network, the metadata of a
cloud, which hands out credentials (server-side request forgery). Such a request reaches no
further in than the user's own target lies. What counts is the number that a socket is made for,
whatever name led to it.
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
"""Where an address lies, from the outside in."""

_REACHED: Mapping[NetworkScope, frozenset[NetworkScope]] = {
    "public": frozenset({"public"}),
    "private": frozenset({"public", "private"}),
    "link-local": frozenset({"public", "private", "link-local"}),
    "loopback": frozenset({"public", "private", "loopback"}),
    "metadata": frozenset({"public", "private", "loopback"}),
}
"""What may be reached from where."""

AgentReach = Literal["any", "public"]
"""Where a client's addresses may lead, whoever named them."""

Network = IPv4Network | IPv6Network

_INWARD: tuple[NetworkScope, ...] = get_args(NetworkScope)

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
_THIS_HOST = ip_network("0.0.0.0/8")  # which a socket takes for loopback
_EMBEDDING = tuple(
    # What carries an IPv4 address in its last 32 bits: RFC 6052 (2.1), 8215, 4291 (2.5.5.1).
    IPv6Network(prefix)
    for prefix in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")
)


def scope_of(address: str) -> NetworkScope:
    """Where the address of a socket lies.

    Args:
        address: A number, IPv4 or IPv6, as the socket knows it.

    Raises:
        ValueError: It is no number.
    """
    number = ip_address(address.partition("%")[0])
    return innermost(map(_scope, (number, *_embedded(number))))


def scope_of_host(url: str) -> NetworkScope:
    """Where the host of a URL lies, as far as that is plain without asking anybody.

    A name that only a resolver knows counts as public.
    """
    number = ip_literal(urlsplit(url).hostname or "")
    return "public" if number is None else scope_of(str(number))


def innermost(scopes: Iterable[NetworkScope]) -> NetworkScope:
    """The scope that lies furthest in; public if there is none."""
    return _INWARD[max(map(_INWARD.index, scopes), default=0)]


def network(text: str) -> Network:
    """Reads an address or a network such as ``10.0.0.0/8``.

    Raises:
        ValueError: It is neither.
    """
    return ip_network(text, strict=False)


class NetworkReach(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request may lead whose address others named.

    Attributes:
        inward: Where the user's own target lies; nothing further in is reached. Link-local
            addresses are reached from there only, since much of a machine's own equipment has
            them, and metadata never.
        allowed: Networks that are reached all the same.
        is_strict: Whether it holds for all that a client connects to, whoever named it
            (``reach="public"``), so that a host whose number cannot be known here, as behind a
            proxy, is refused.
    """

    inward: NetworkScope = "public"
    allowed: tuple[Network, ...] = ()
    is_strict: bool = False

    def refuses(self, address: str) -> bool:
        """Whether a socket to this number must not be made."""
        if scope_of(address) in _REACHED[self.inward]:
            return False
        number = ip_address(address.partition("%")[0])
        meant = (number, *_embedded(number))
        return not any(one in allowed for allowed in self.allowed for one in meant)


def _scope(number: IPv4Address | IPv6Address) -> NetworkScope:
    if number in _METADATA:
        return "metadata"
    if number.is_loopback or number.is_unspecified or number in _THIS_HOST:
        return "loopback"
    if number.is_link_local:
        return "link-local"
    # Site-local addresses and 6to4 are given up (RFC 3879, 7526): who still has them means inside.
    given_up = isinstance(number, IPv6Address) and (number.is_site_local or bool(number.sixtofour))
    inside = given_up or number.is_multicast or not number.is_global
    return "private" if inside else "public"


def _embedded(number: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that an IPv6 address leads to (RFC 4291, 3056, 4380, 6052)."""
    if isinstance(number, IPv4Address):
        return []
    found = [number.ipv4_mapped, number.sixtofour, *(number.teredo or ())]
    if any(number in prefix for prefix in _EMBEDDING):
        found.append(IPv4Address(int(number) & 0xFFFFFFFF))
    return [address for address in found if address is not None]
