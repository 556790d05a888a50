"""How a channel is made: where it leads, whom it trusts, and what gRPC must not do by itself.

Rules:
- Nothing is tried again below the layers of a call, and no server configures its clients.
- An address that somebody else names is resolved here, and the channel leads to the numbers that
  may be reached, whatever the name says later.
- Proxies are those of the environment, read once, as they are for HTTP.
- What the caller's own factory makes is used as it is.

Which numbers a channel may lead to, where somebody else has named its address.

gRPC resolves names by itself, again and again. A name that may mean something else each time is
resolved here, and the channel is made for the numbers.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, cast

import grpc
from grpc import aio

from holdfast._model.grpc_addresses import grpc_address
from holdfast._net.engine import connection_error, reach_error
from holdfast._net.sockets import ForbiddenAddressError, check_host, reason_of
from holdfast._wire.grpc_metadata import USER_AGENT
from holdfast._wire.http import presentable
from holdfast.errors import InvalidAgentCardError

if TYPE_CHECKING:
    from holdfast._model.grpc_addresses import GrpcAddress
    from holdfast._net.proxies import Proxies
    from holdfast._net.tls_config import TlsConfig
    from holdfast._wire.http import HttpRequest
    from holdfast._wire.limits import Limits
    from holdfast._wire.network_scope import NetworkReach

__all__ = [
    "ChannelFactory",
    "ChannelMaker",
    "channel_credentials",
    "check_own_number",
    "target_within",
]


def check_own_number(address: GrpcAddress, url: str, reach: NetworkReach) -> None:
    """Checks an address whose name somebody else resolves: its number, if it is one.

    Raises:
        NetworkPolicyError: It must not be reached.
    """
    try:
        check_host(address.url, reach)
    except ForbiddenAddressError as error:
        raise reach_error(url, error.address, reach) from None


async def target_within(
    reach: NetworkReach, address: GrpcAddress, url: str, request: HttpRequest
) -> str:
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


_OWN_ROOTS = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""Variable of the environment that names authorities for gRPC alone."""


def channel_credentials(tls: TlsConfig | None) -> grpc.ChannelCredentials:
    """What a channel speaks TLS with.

    Args:
        tls: Whom to trust, and which certificate to show; None for the system's authorities.

    Raises:
        ValueError: Nobody is to be verified, which gRPC cannot do without; or see
            `TlsConfig.pem`.
    """
    if tls is None:
        return grpc.ssl_channel_credentials(_system_authorities())
    if not tls.verify:
        text = "gRPC cannot do without verifying the server: name its authority with ca_file="
        raise ValueError(text)
    pem = tls.pem()
    return grpc.ssl_channel_credentials(
        _system_authorities() if pem.ca is None else pem.ca, pem.key, pem.certificate
    )


def _system_authorities() -> bytes | None:
    """Those that Python trusts, where they are in one file; else gRPC has a list of its own."""
    found = ssl.get_default_verify_paths().cafile or ""
    if not found or _OWN_ROOTS in os.environ:
        return None
    return Path(found).read_bytes()


ChannelFactory = Callable[[str], aio.Channel]
"""Makes the channel for an address, as the card or ``url=`` writes it."""

_KEEP_ALIVE = 330_000
"""Milliseconds after which a silent connection is asked whether it lives. Servers take more than
one question in five minutes for an attack, and hang up."""

_ANSWER = 20_000
"""Milliseconds that the answer may take."""

_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", _KEEP_ALIVE),
    ("grpc.keepalive_timeout_ms", _ANSWER),
    ("grpc.max_send_message_length", -1),
    ("grpc.primary_user_agent", USER_AGENT),
)

_Options = list[tuple[str, int | str]]


class ChannelMaker:
    """Makes channels that are alike.

    Args:
        limits: How large replies and their headers may be.
        tls: Whom to trust, and which certificate to show; None for the system's authorities.
        proxies: Those of the environment.
        factory: The caller's own, in place of all that.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        tls: TlsConfig | None,
        proxies: Proxies,
        factory: ChannelFactory | None,
    ) -> None:
        # A little more than ours, so that those are told.
        largest = max(limits.body, limits.event, limits.card) + 1024
        self._options = (
            *_OPTIONS,
            ("grpc.max_receive_message_length", largest),
            ("grpc.max_metadata_size", limits.headers),
            ("grpc.absolute_max_metadata_size", limits.headers),
        )
        self._tls = tls
        self._proxies = proxies
        self._factory = factory
        self._credentials: grpc.ChannelCredentials | None = None

    @property
    def is_lent(self) -> bool:
        """Whether they are the caller's."""
        return self._factory is not None

    async def make(self, url: str, request: HttpRequest) -> aio.Channel:
        """Makes one, which is not connected yet.

        Args:
            url: Address of the interface, as it is written.
            request: What is to be sent over it.

        Raises:
            A2AConnectionError: The name of the host is not known, or TLS cannot be spoken.
            NetworkPolicyError: The address leads where it must not.
            InvalidAgentCardError: It is no address of gRPC.
            TypeError: The caller's factory made something else.
        """
        address = grpc_address(url)
        if self._factory is not None:
            if request.reach is not None and address is not None:
                check_own_number(address, url, request.reach)  # all that can be known
            return _checked(self._factory(url))
        if address is None:
            message = f"{presentable(url)} is not an address of gRPC, such as host:port"
            raise InvalidAgentCardError(message, field="url", executed=False)
        options: _Options = [*self._options]
        target = await self._target(address, url, request, options)
        if not address.is_secure:
            return aio.insecure_channel(target, options=options)
        return aio.secure_channel(target, self._trusting(request), options=options)

    async def _target(
        self, address: GrpcAddress, url: str, request: HttpRequest, options: _Options
    ) -> str:
        """Where it leads; adds the options that belong to that."""
        target, proxy, reach = f"dns:///{address.authority}", self._proxies.of(address.url), None
        if proxy is None:
            options.append(("grpc.enable_http_proxy", 0))
            reach = request.reach
        else:
            options.append(("grpc.http_proxy", str(proxy)))
            if request.reach is not None:
                check_own_number(address, url, request.reach)  # the proxy resolves names
        if reach is None:
            return target
        options.append(("grpc.default_authority", address.authority))
        if address.is_secure:
            options.append(("grpc.ssl_target_name_override", address.host))
        return await target_within(reach, address, url, request)

    def _trusting(self, request: HttpRequest) -> grpc.ChannelCredentials:
        if self._credentials is None:
            try:
                self._credentials = channel_credentials(self._tls)
            except (OSError, ValueError) as error:  # of a file that has changed, say
                raise connection_error(
                    request, "tls", str(error), sent=False, transient=False
                ) from None
        return self._credentials


def _checked(channel: aio.Channel) -> aio.Channel:
    if not isinstance(cast("object", channel), aio.Channel):
        text = f"grpc_channel_factory must give a grpc.aio.Channel, not {type(channel).__name__}"
        raise TypeError(text)
    return channel
