"""Sockets that lead nowhere where they must not, and whether somebody is at their other end."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast._model.hosts import ip_literal

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

    from holdfast._wire.network_scope import NetworkReach

    AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
    """What a resolver gives: family, kind, protocol, canonical name, address."""

__all__ = ["ForbiddenAddressError", "check_host", "is_hung_up", "reason_of", "sockets_within"]

_HUNG_UP = getattr(select, "POLLRDHUP", 0)
"""What to ask of a socket besides ``POLLHUP`` and ``POLLERR``, which are told unasked: on Linux,
whether the other end has finished writing."""


class ForbiddenAddressError(OSError):
    """The resolver gave an address that must not be reached.

    Its text is always the same: where all addresses of a name are refused, that is one reason.

    Attributes:
        address: The number; None where it cannot be known, and has to be.
    """

    def __init__(self, address: str | None) -> None:
        super().__init__("the address must not be reached")
        self.address = address


def check_host(url: str, reach: NetworkReach, *, is_looked_up_later: bool = False) -> None:
    """Checks an address whose name somebody else resolves: its number, if it is one.

    Args:
        url: The address.
        reach: What may be reached.
        is_looked_up_later: Whether the number of a name is checked later.

    Raises:
        ForbiddenAddressError: It must not be reached.
    """
    host = urlsplit(url).hostname or ""
    number = ip_literal(host)
    address = None if number is None else str(number)
    if address is None:
        with contextlib.suppress(OSError):  # what only some read as a number, such as 127.1
            address = socket.inet_ntoa(socket.inet_aton(host.removesuffix(".")))
    is_unknown = address is None and reach.is_strict and not is_looked_up_later
    if is_unknown or (address is not None and reach.refuses(address)):
        raise ForbiddenAddressError(address)


def is_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether the other end has closed a connection, as far as the system knows.

    The event loop learns of it with its next turn, and a request that leaves before is lost: after
    code that blocked the loop for long that is no rare case. Nothing is read.
    """
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is None or not hasattr(select, "poll"):
        return False
    number = connection.fileno()
    if number < 0:  # closed by us, which aiohttp sees
        return False
    poll = select.poll()
    poll.register(number, _HUNG_UP)
    return bool(poll.poll(0))


def reason_of(error: OSError) -> str | None:
    """What the system says of a failure, in words; None if it says nothing.

    Where no connection comes about, asyncio tells the address in place of the reason.
    """
    reason: str | None = error.strerror
    if reason is None or "Connect call failed" not in reason:
        return reason
    return None if error.errno is None else os.strerror(error.errno)


def sockets_within(reach: NetworkReach) -> Callable[[AddressInfo], socket.socket]:
    """What makes the sockets of a connector, after names are resolved."""

    def make(info: AddressInfo) -> socket.socket:
        family, kind, protocol, _, address = info
        if reach.refuses(address[0]):
            raise ForbiddenAddressError(address[0])
        return socket.socket(family, kind, protocol)

    return make
