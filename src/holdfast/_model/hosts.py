"""What the host of an address says of itself, without asking a resolver.

Rules, for all who read one:
- ``localhost`` and every name below it is this machine (RFC 6761, 6.3), and leads to 127.0.0.1.
- An IPv4 address in an IPv6 one (``::ffff:127.0.0.1``; RFC 4291, 2.5.5.2) is that IPv4 address.
- Capitals make no difference; nor does a dot at the end, of a number or of this machine.
- What only some read as a number (``127.1``, ``0x7f.1``) is a name, and so is all else.
- A name in other letters is its ASCII form (``xn--…``) by UTS 46, non-transitional processing, and
  IDNA 2008: ``ß`` stays ``ß``. One that this would change into another name is refused, and so is
  one that mixes alphabets whose letters look alike: nobody could see which host is called.

How far inside a network a number lies is said by `holdfast._wire.network_scope`.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from unicodedata import name as name_of

__all__ = ["HostError", "ascii_host", "ip_literal", "is_loopback", "normalized_host"]

_LOOPBACK = IPv4Address("127.0.0.1")
_ACE = "xn--"
"""What an ASCII form begins with (RFC 5890, 2.3.2.1)."""

_LONGEST_LABEL = 63
_LOOK_ALIKE = frozenset({"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC"})
"""Alphabets that share letters to the eye, as Unicode begins the names of their letters."""


class HostError(ValueError):
    """A host that has no one ASCII form; its text follows "has a host that"."""


def ip_literal(host: str) -> IPv4Address | IPv6Address | None:
    """The number that a host leads to; None for a name that only a resolver knows.

    Args:
        host: As in an address, without brackets.
    """
    name = host.lower().removesuffix(".")
    return _LOOPBACK if _is_this_machine(name) else _read(name)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its name or number.

    Args:
        host: As in an address, without brackets.
    """
    number = ip_literal(host)
    return number is not None and number.is_loopback


def normalized_host(host: str) -> str:
    """A host in the one spelling of all that are the same host for certain.

    Args:
        host: As in an address, without brackets.
    """
    name = host.lower().removesuffix(".")
    if _is_this_machine(name):
        return name
    number = _read(name)
    if number is not None:
        return str(number)
    try:
        return ascii_host(host)
    except HostError:
        return host.lower()


@lru_cache(maxsize=256)
def ascii_host(host: str) -> str:
    """A host in the letters that are sent: lower case, and the ASCII form of what is not ASCII.

    Args:
        host: As in an address, without brackets.

    Raises:
        HostError: It has no ASCII form, or one that means another host to some or to the eye.
    """
    lowered = host.lower()
    if host.isascii() and _ACE not in lowered:
        return lowered
    return ".".join(map(_ascii_label, host.split(".")))


def _ascii_label(label: str) -> str:
    if not label.isascii():
        return _encoded(label)
    lowered = label.lower()
    if lowered.startswith(_ACE) and not _is_ascii_form(lowered):
        text = f"is not a valid ASCII form of a name ({label[:_LONGEST_LABEL]})"
        raise HostError(text)
    return lowered


def _encoded(label: str) -> str:
    import idna  # slow to import, and not for everybody

    if len(label) > _LONGEST_LABEL:
        text = f"has more than {_LONGEST_LABEL} characters between two dots"
        raise HostError(text)
    try:
        mapped = idna.uts46_remap(label, std3_rules=True, transitional=False)
        if mapped != label.lower() or mapped.isascii():
            meant = f"; if you mean {mapped}, write that" if mapped.isascii() else ""
            text = f"is ambiguous (UTS 46){meant}"
            raise HostError(text)
        encoded = idna.alabel(mapped).decode()
    except idna.IDNAError as error:
        text = f"is not valid in IDNA 2008 ({_in_ascii(str(error))})"
        raise HostError(text) from None
    alphabets = sorted(_LOOK_ALIKE & {name_of(one, "").partition(" ")[0] for one in mapped})
    if len(alphabets) > 1:
        mixed = " and ".join(alphabet.capitalize() for alphabet in alphabets)
        text = f"mixes {mixed} letters, which look alike; if you mean this host, write {encoded}"
        raise HostError(text)
    return encoded


def _is_ascii_form(label: str) -> bool:
    """Whether a label is what some name is encoded as, and that name is encoded as it is."""
    import idna

    encoded = label.removeprefix(_ACE)
    try:
        name = encoded.encode().decode("punycode")
        is_round = name.encode("punycode").decode() == encoded
        is_whole = idna.uts46_remap(name, std3_rules=True, transitional=False) == name
    except (ValueError, OverflowError):
        return False
    return is_round and is_whole and not name.isascii() and len(label) <= _LONGEST_LABEL


def _in_ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _is_this_machine(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")


def _read(name: str) -> IPv4Address | IPv6Address | None:
    try:
        number = ip_address(name)
    except ValueError:
        return None
    mapped = number.ipv4_mapped if isinstance(number, IPv6Address) else None
    return number if mapped is None else mapped
