"""Sockets: address checks against the network reach, and detection of closed connections."""

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
    """A resolver's result: family, kind, protocol, canonical name, address."""

__all__ = ["ForbiddenAddressError", "check_host", "is_hung_up", "reason_of", "sockets_within"]

_POLL_HANG_UP = getattr(select, "POLLRDHUP", 0)
"""Event to poll for besides ``POLLHUP`` and ``POLLERR``, which are always reported: on Linux, that
the peer has finished writing."""


class ForbiddenAddressError(OSError):
    """The resolver returned an address that the network reach refuses.

    Its text is always the same, so that asyncio reports one reason if all addresses are refused.

    Attributes:
        address: The IP address; None if it must be known, but cannot be.
    """

    def __init__(self, address: str | None) -> None:
        super().__init__("the address must not be reached")
        self.address = address


def check_host(url: str, reach: NetworkReach, *, is_checked_later: bool = False) -> None:
    """Check the host of an address that another party resolves, if it is an IP address.

    Args:
        url: The address.
        reach: The network reach.
        is_checked_later: Whether the IP address of a name is checked later.

    Raises:
        ForbiddenAddressError: The reach refuses the address.
    """
    host = urlsplit(url).hostname or ""
    literal = ip_literal(host)
    address = None if literal is None else str(literal)
    if address is None:
        with contextlib.suppress(OSError):  # forms that only some resolvers accept, such as 127.1
            address = socket.inet_ntoa(socket.inet_aton(host.removesuffix(".")))
    is_unknown = address is None and reach.is_strict and not is_checked_later
    if is_unknown or (address is not None and reach.refuses(address)):
        raise ForbiddenAddressError(address)


def is_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Return whether the peer has closed a connection, according to the operating system.

    The event loop learns of it only with its next iteration, and a request that is sent before is
    lost. This is likely after code that blocked the loop. Nothing is read.
    """
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is None or not hasattr(select, "poll"):
        return False
    descriptor = connection.fileno()
    if descriptor < 0:  # closed on this side, which aiohttp detects
        return False
    poll = select.poll()
    poll.register(descriptor, _POLL_HANG_UP)
    return bool(poll.poll(0))


def reason_of(error: OSError) -> str | None:
    """Return the system's description of a failure; None if there is none.

    If a connection fails, asyncio gives the address in place of the reason.
    """
    reason: str | None = error.strerror
    if reason is None or "Connect call failed" not in reason:
        return reason
    return None if error.errno is None else os.strerror(error.errno)


def sockets_within(reach: NetworkReach) -> Callable[[AddressInfo], socket.socket]:
    """Return a connector's socket factory, which is called after names are resolved."""

    def create(info: AddressInfo) -> socket.socket:
        family, kind, protocol, _, address = info
        if reach.refuses(address[0]):
            raise ForbiddenAddressError(address[0])
        return socket.socket(family, kind, protocol)

    return create
