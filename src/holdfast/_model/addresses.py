"""HTTP addresses from others: validation and normalization.

An accepted address means the same to every parser. Libraries disagree about user names,
backslashes and unprintable characters, so that a request could reach another host than the one
that was checked. `holdfast._model.hosts` handles hosts in other scripts.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from holdfast._model.hosts import HostError, ascii_host, ip_literal, is_loopback

__all__ = ["address_doubt", "address_fault", "has_user", "is_http_address", "with_ascii_host"]

_MAX_CHARACTERS = 8000
"""Longer addresses are rejected by common servers (RFC 9110, 4.1)."""
_INVISIBLE_JOINERS = dict.fromkeys(map(ord, "\u200c\u200d"))
"""Zero-width characters that change how letters are joined; some names need them."""

_AUTHORITY = re.compile(r"(?:[^:/?#@]*:)?/*([^/?#]*)")


def is_http_address(url: str) -> bool:
    """Return whether a URL is absolute, HTTP, and without an `address_fault` or a user name."""
    if has_user(url) or address_fault(url) is not None:
        return False
    parts = urlsplit(url)
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


def has_user(url: str) -> bool:
    """Return whether a URL contains a user name, with or without a password."""
    authority = _AUTHORITY.match(url)
    return authority is not None and "@" in authority[1]


def address_fault(url: str) -> str | None:
    """Describe why parsers may disagree about a URL of any scheme; the text follows the URL.

    Args:
        url: A URL without a user name, since the text may quote it.

    Returns:
        The text; None if the URL is unambiguous.
    """
    if len(url) > _MAX_CHARACTERS:
        return f"has more than {_MAX_CHARACTERS} characters"
    if "\\" in url:
        return "has a backslash in it"
    before, authority, after = _around_authority(url)
    shown = f"{before}{authority.translate(_INVISIBLE_JOINERS)}{after}"
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
    """Return a URL with its host in ASCII; unchanged if that is not possible.

    Args:
        url: A URL without an `address_fault`; any other may be returned unchanged.
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
    """Return the host as written; empty for an IP address in brackets."""
    host_and_port = authority.rpartition("@")[2]
    return "" if host_and_port.startswith("[") else host_and_port.partition(":")[0]


def _around_authority(url: str) -> tuple[str, str, str]:
    """Split a URL into the text before its authority, the authority, and the rest."""
    match = _AUTHORITY.match(url)
    start, end = (0, 0) if match is None else match.span(1)
    return url[:start], url[start:end], url[end:]


def address_doubt(url: str, source: str | None) -> str | None:
    """Describe why an address from a card probably does not work for this client.

    Cards are often generated where the agent runs: behind a proxy, in a container, on a
    developer's machine. Their addresses are valid there, but not for the client.

    Args:
        url: An HTTP address from the card.
        source: URL of the card; None if the caller passed the card itself.

    Returns:
        The reason; None if there is none.
    """
    target = urlsplit(url)
    host = target.hostname or ""
    if _is_unspecified(host):
        return f"{host} is where a server listens, and no address to call"
    if source is None:
        return None
    card = urlsplit(source)
    card_host = card.hostname or ""
    if is_loopback(host) and not (is_loopback(card_host) or _is_unspecified(card_host)):
        return f"{host} is this machine, and the card came from {card_host}"
    is_same_host = host.removesuffix(".") == card_host.removesuffix(".")
    if (card.scheme, target.scheme) == ("https", "http") and is_same_host:
        return f"it has no TLS, and the card came from {host} with it"
    return None


def _is_unspecified(host: str) -> bool:
    ip = ip_literal(host)
    return ip is not None and ip.is_unspecified
