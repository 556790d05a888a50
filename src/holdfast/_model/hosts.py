"""Hosts of URLs: normalization and classification, without name lookups.

Rules:
- ``localhost`` and every name below it is this machine (RFC 6761, 6.3), with address 127.0.0.1.
- An IPv4 address in an IPv6 one (``::ffff:127.0.0.1``; RFC 4291, 2.5.5.2) is that IPv4 address.
- Case does not matter, nor does a final dot of an IP address or of this machine.
- What only some parsers read as an IP address (``127.1``, ``0x7f.1``) is a name, like all else.
- A name in another script is converted to ASCII (``xn--…``) by UTS 46, non-transitional, and IDNA
  2008: ``ß`` stays ``ß``. A name that this would change into another one is rejected, and so is
  one that mixes scripts with similar letters, since a reader could not tell which host it is.

`holdfast._wire.network_scope` determines the scope of an IP address.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from unicodedata import name as name_of

__all__ = ["HostError", "ascii_host", "ip_literal", "is_loopback", "normalized_host"]

_LOOPBACK = IPv4Address("127.0.0.1")
_ASCII_PREFIX = "xn--"
"""Prefix of the ASCII form (RFC 5890, 2.3.2.1)."""

_MAX_LABEL_CHARACTERS = 63
_SIMILAR_SCRIPTS = frozenset({"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC"})
"""Scripts with similar letters, as the Unicode names of their letters begin."""


class HostError(ValueError):
    """The host has no unambiguous ASCII form; the text follows "has a host that"."""


def ip_literal(host: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that a host denotes without a lookup; None for other names.

    Args:
        host: Host of a URL, without brackets.
    """
    name = host.lower().removesuffix(".")
    return _LOOPBACK if _is_this_machine(name) else _parse_ip(name)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine by its name or IP address.

    Args:
        host: Host of a URL, without brackets.
    """
    ip = ip_literal(host)
    return ip is not None and ip.is_loopback


def normalized_host(host: str) -> str:
    """Return the normalized spelling of a host: equal for all that certainly are the same.

    Args:
        host: Host of a URL, without brackets.
    """
    name = host.lower().removesuffix(".")
    if _is_this_machine(name):
        return name
    ip = _parse_ip(name)
    if ip is not None:
        return str(ip)
    try:
        return ascii_host(host)
    except HostError:
        return host.lower()


@lru_cache(maxsize=256)
def ascii_host(host: str) -> str:
    """Return a host in lower case and in ASCII.

    Args:
        host: Host of a URL, without brackets.

    Raises:
        HostError: It has no ASCII form, or an ambiguous one.
    """
    lower_host = host.lower()
    if host.isascii() and _ASCII_PREFIX not in lower_host:
        return lower_host
    return ".".join(map(_ascii_label, host.split(".")))


def _ascii_label(label: str) -> str:
    if not label.isascii():
        return _encoded(label)
    lower_label = label.lower()
    if lower_label.startswith(_ASCII_PREFIX) and not _is_ascii_form(lower_label):
        text = f"is not a valid ASCII form of a name ({label[:_MAX_LABEL_CHARACTERS]})"
        raise HostError(text)
    return lower_label


def _encoded(label: str) -> str:
    import idna  # slow to import, and rarely needed

    if len(label) > _MAX_LABEL_CHARACTERS:
        text = f"has more than {_MAX_LABEL_CHARACTERS} characters between two dots"
        raise HostError(text)
    try:
        mapped = idna.uts46_remap(label, std3_rules=True, transitional=False)
        if mapped != label.lower() or mapped.isascii():
            hint = f"; if you mean {mapped}, write that" if mapped.isascii() else ""
            text = f"is ambiguous (UTS 46){hint}"
            raise HostError(text)
        encoded = idna.alabel(mapped).decode()
    except idna.IDNAError as error:
        text = f"is not valid in IDNA 2008 ({_in_ascii(str(error))})"
        raise HostError(text) from None
    alphabets = sorted(
        _SIMILAR_SCRIPTS & {name_of(letter, "").partition(" ")[0] for letter in mapped}
    )
    if len(alphabets) > 1:
        mixed = " and ".join(alphabet.capitalize() for alphabet in alphabets)
        text = f"mixes {mixed} letters, which look alike; if you mean this host, write {encoded}"
        raise HostError(text)
    return encoded


def _is_ascii_form(label: str) -> bool:
    """Return whether a label is the ASCII form of a name, and the name converts back to it."""
    import idna

    encoded = label.removeprefix(_ASCII_PREFIX)
    try:
        name = encoded.encode().decode("punycode")
        is_reversible = name.encode("punycode").decode() == encoded
        is_normalized = idna.uts46_remap(name, std3_rules=True, transitional=False) == name
    except (ValueError, OverflowError):
        return False
    return (
        is_reversible
        and is_normalized
        and not name.isascii()
        and len(label) <= _MAX_LABEL_CHARACTERS
    )


def _in_ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _is_this_machine(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")


def _parse_ip(name: str) -> IPv4Address | IPv6Address | None:
    try:
        ip = ip_address(name)
    except ValueError:
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return ip if mapped is None else mapped
