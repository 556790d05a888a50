"""Which numbers a channel may lead to, where somebody else has named its address.

gRPC resolves names by itself, again and again. A name that may mean something else each time is
resolved here, and the channel is made for the numbers.
"""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING

from holdfast._net.engine import connection_error, reach_error
from holdfast._net.sockets import ForbiddenAddressError, check_host, reason_of

if TYPE_CHECKING:
    from holdfast._model.grpc_addresses import GrpcAddress
    from holdfast._wire.http import HttpRequest
    from holdfast._wire.network_scope import Reach

__all__ = ["check_own_number", "target_within"]


def check_own_number(address: GrpcAddress, url: str, reach: Reach) -> None:
    """Checks an address whose name somebody else resolves: its number, if it is one.

    Raises:
        NetworkPolicyError: It must not be reached.
    """
    try:
        check_host(address.url, reach)
    except ForbiddenAddressError as error:
        raise reach_error(url, error.address, reach) from None


async def target_within(reach: Reach, address: GrpcAddress, url: str, request: HttpRequest) -> str:
    """The target of a channel that leads to such numbers of an address as may be reached.

    Args:
        reach: What may be reached.
        address: Where the interface is.
        url: The same, as it is written.
        request: What is to be sent there.

    Raises:
        NetworkPolicyError: None of them may be.
        A2AConnectionError: The name is not known.
    """
    loop = asyncio.get_running_loop()
    try:
        known = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        is_transient = error.errno != socket.EAI_NONAME
        raise connection_error(
            request, "dns", reason_of(error), sent=False, transient=is_transient
        ) from error
    except UnicodeError as error:
        raise connection_error(request, "dns", sent=False, transient=False) from error
    numbers = list(dict.fromkeys(str(info[4][0]) for info in known))
    allowed = [number for number in numbers if not reach.refuses(number)]
    if not allowed:
        raise reach_error(url, numbers[0], reach)
    # A target is of one family; the system puts the better one first.
    version = _version(allowed[0])
    places = [_place(n, address.port) for n in allowed if _version(n) == version]
    return f"ipv{version}:{','.join(places)}"


def _version(number: str) -> int:
    return ip_address(number.partition("%")[0]).version


def _place(number: str, port: int) -> str:
    return f"[{number.replace('%', '%25')}]:{port}" if ":" in number else f"{number}:{port}"
