"""What the host of an address says of itself, without asking a resolver.

Rules, for all who read one:
- ``localhost`` and every name below it is this machine (RFC 6761, 6.3), and leads to 127.0.0.1.
- An IPv4 address in an IPv6 one (``::ffff:127.0.0.1``; RFC 4291, 2.5.5.2) is that IPv4 address.
- Capitals make no difference; nor does a dot at the end, of a number or of this machine.
- What only some read as a number (``127.1``, ``0x7f.1``) is a name, and so is all else.

How far inside a network a number lies is said by `holdfast.wire.reach`.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

__all__ = ["is_loopback", "number_of", "spelled"]

_LOOPBACK = IPv4Address("127.0.0.1")


def number_of(host: str) -> IPv4Address | IPv6Address | None:
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
    number = number_of(host)
    return number is not None and number.is_loopback


def spelled(host: str) -> str:
    """A host in the one spelling of all that are the same host for certain.

    Args:
        host: As in an address, without brackets.
    """
    name = host.lower().removesuffix(".")
    if _is_this_machine(name):
        return name
    number = _read(name)
    return host.lower() if number is None else str(number)


def _is_this_machine(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")


def _read(name: str) -> IPv4Address | IPv6Address | None:
    try:
        number = ip_address(name)
    except ValueError:
        return None
    mapped = number.ipv4_mapped if isinstance(number, IPv6Address) else None
    return number if mapped is None else mapped
