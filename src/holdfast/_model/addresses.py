"""What is an address that can be called over HTTP, for all who read one from elsewhere.

It means the same to everybody who reads it. A user name, a backslash or a character that is not
printable is read in different ways by different libraries, which is how requests go astray. What a
host in other letters means is said by `holdfast._model.hosts`.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from holdfast._model.hosts import HostError, ascii_host, ip_literal, is_loopback

__all__ = ["address_doubt", "address_fault", "has_user", "is_http_address", "with_ascii_host"]

_LONGEST = 8000
"""Characters of an address. More is not taken by common servers (RFC 9110, 4.1)."""
_JOINERS = dict.fromkeys(map(ord, "\u200c\u200d"))
"""What is not shown by itself, and changes how letters are joined: some names need it."""

_AUTHORITY = re.compile(r"(?:[^:/?#@]*:)?/*([^/?#]*)")


def is_http_address(url: str) -> bool:
    """Whether a URL is absolute, HTTP, and without a `address_fault` or a user name."""
    if has_user(url) or address_fault(url) is not None:
        return False
    parts = urlsplit(url)
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


def has_user(url: str) -> bool:
    """Whether a URL, or what is meant as one, holds a user name; there may be a password."""
    authority = _AUTHORITY.match(url)
    return authority is not None and "@" in authority[1]


def address_fault(url: str) -> str | None:
    """What keeps a URL of any scheme from meaning the same to everybody, in words that follow it.

    Args:
        url: One without a user name, which the words may show.

    Returns:
        The words; None if nothing does.
    """
    if len(url) > _LONGEST:
        return f"has more than {_LONGEST} characters"
    if "\\" in url:
        return "has a backslash in it"
    before, authority, after = _around_authority(url)
    shown = f"{before}{authority.translate(_JOINERS)}{after}"
    if any(character.isspace() or not character.isprintable() for character in shown):
        return "has a space or a control character in it"
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError as error:
        return f"is not a URL: {error}"
    if "%" in host and ":" not in host:
        return "has a host that can be read in two ways"
    try:
        ascii_host(_host_in(authority))
    except HostError as error:
        return f"has a host that {error}"
    return "has port 0, on which no server can listen" if port == 0 else None


def with_ascii_host(url: str) -> str:
    """An address with its host in the letters that are sent; as it is if there are none.

    Args:
        url: One without a `address_fault`; any other may come back as it is.
    """
    before, authority, after = _around_authority(url)
    if authority.isascii():
        return url
    host = _host_in(authority)
    try:
        return f"{before}{authority.replace(host, ascii_host(host))}{after}"
    except HostError:
        return url


def _host_in(authority: str) -> str:
    """The host as it is written; of a number in brackets nothing."""
    place = authority.rpartition("@")[2]
    return "" if place.startswith("[") else place.partition(":")[0]


def _around_authority(url: str) -> tuple[str, str, str]:
    """What stands before the authority of a URL, the authority, and what stands behind it."""
    found = _AUTHORITY.match(url)
    start, end = (0, 0) if found is None else found.span(1)
    return url[:start], url[start:end], url[end:]


def address_doubt(url: str, source: str | None) -> str | None:
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


def _is_unspecified(host: str) -> bool:
    number = ip_literal(host)
    return number is not None and number.is_unspecified
