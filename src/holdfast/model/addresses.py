"""What is an address that can be called over HTTP, for all who read one from elsewhere."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

__all__ = ["doubt", "is_http_address", "is_loopback"]

_LONGEST = 8000
"""Characters of an address. More is not taken by common servers (RFC 9110, 4.1)."""


def is_http_address(url: str) -> bool:
    """Whether a URL is absolute, HTTP, and means the same to everybody who reads it.

    A user name, a backslash or a character that is not printable is read in different ways by
    different libraries, which is how requests go astray.
    """
    if len(url) > _LONGEST:
        return False
    if "\\" in url or not all(c.isprintable() and not c.isspace() for c in url):
        return False
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    if port == 0 or "@" in parts.netloc:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


def doubt(url: str, source: str | None) -> str | None:
    """What is wrong with an address that a card names, though it can be read.

    Cards are often written where the agent runs: behind a proxy, in a container, on somebody's
    own machine. Their addresses then mean something there, and something else here.

    Args:
        url: The address that the card names; an HTTP one.
        source: Where the card came from; None if the caller brought it along.

    Returns:
        The reason in words; None if nothing is.
    """
    there = urlsplit(url)
    host = there.hostname or ""
    if _is_unspecified(host):
        return f"{host} is where a server listens, and no address to call"
    if source is None:
        return None
    here = urlsplit(source)
    its_host = here.hostname or ""
    if is_loopback(host) and not (is_loopback(its_host) or _is_unspecified(its_host)):
        return f"{host} is this machine, and the card came from {its_host}"
    same = host.removesuffix(".") == its_host.removesuffix(".")
    if (here.scheme, there.scheme) == ("https", "http") and same:
        return f"it has no TLS, and the card came from {host} with it"
    return None


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its name or number (RFC 6761, 6.3)."""
    name = host.removesuffix(".")
    number = _number(host)
    if number is not None:
        return number.is_loopback
    return name == "localhost" or name.endswith(".localhost")


def _is_unspecified(host: str) -> bool:
    number = _number(host)
    return number is not None and number.is_unspecified


def _number(host: str) -> IPv4Address | IPv6Address | None:
    try:
        number = ip_address(host.removesuffix("."))
    except ValueError:
        return None
    mapped = number.ipv4_mapped if isinstance(number, IPv6Address) else None
    return number if mapped is None else mapped
