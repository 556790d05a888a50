"""Creation of gRPC channels: their targets, TLS credentials, and options.

Rules:
- grpcio does not retry, and servers cannot configure their clients.
- grpcio resolves names by itself, again and again. The name of an address that a card or a
  redirect names is resolved here instead, and the channel is created for those of its IP addresses
  that the reach allows, even if the name changes later.
- Proxies are those of the environment, read once, as for HTTP.
- Channels of the caller's factory are used unchanged.
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
    "allowed_target",
    "channel_credentials",
    "check_ip_literal",
]


def check_ip_literal(address: GrpcAddress, url: str, reach: NetworkReach) -> None:
    """Check the host of an address that another party resolves, if it is an IP address.

    Raises:
        NetworkPolicyError: The reach refuses it.
    """
    try:
        check_host(address.url, reach)
    except ForbiddenAddressError as error:
        raise reach_error(url, error.address, reach) from None


async def allowed_target(
    reach: NetworkReach, address: GrpcAddress, url: str, request: HttpRequest
) -> str:
    """Return a channel target with those IP addresses of a host that the reach allows.

    Args:
        reach: The network reach.
        address: The address of the interface.
        url: The address as it was written.
        request: The request to send.

    Raises:
        NetworkPolicyError: The reach refuses all IP addresses of the host.
        A2AConnectionError: The name cannot be resolved.
    """
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        is_transient = error.errno != socket.EAI_NONAME
        raise connection_error(
            request, "dns", reason_of(error), sent=False, transient=is_transient
        ) from error
    except UnicodeError as error:
        raise connection_error(request, "dns", sent=False, transient=False) from error
    ips = list(dict.fromkeys(str(info[4][0]) for info in infos))
    allowed = [ip for ip in ips if not reach.refuses(ip)]
    if not allowed:
        raise reach_error(url, ips[0], reach)
    # A target has one address family; the system lists the preferred one first.
    version = _ip_version(allowed[0])
    sockets = [_host_port(ip, address.port) for ip in allowed if _ip_version(ip) == version]
    return f"ipv{version}:{','.join(sockets)}"


def _ip_version(ip: str) -> int:
    return ip_address(ip.partition("%")[0]).version


def _host_port(ip: str, port: int) -> str:
    return f"[{ip.replace('%', '%25')}]:{port}" if ":" in ip else f"{ip}:{port}"


_GRPC_ROOTS_VARIABLE = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""Environment variable that names the authorities for gRPC alone."""


def channel_credentials(tls: TlsConfig | None) -> grpc.ChannelCredentials:
    """Return the TLS credentials of a channel.

    Args:
        tls: Trusted authorities and the client's certificate; None for the system's authorities.

    Raises:
        ValueError: The server is not to be verified, which gRPC does not support; or see
            `TlsConfig.pem`.
    """
    if tls is None:
        return grpc.ssl_channel_credentials(_system_authorities())
    if not tls.verify:
        text = (
            "gRPC always verifies the server's certificate; pass its certificate authority as "
            "ca_file="
        )
        raise ValueError(text)
    pem = tls.pem()
    return grpc.ssl_channel_credentials(
        _system_authorities() if pem.ca is None else pem.ca, pem.key, pem.certificate
    )


def _system_authorities() -> bytes | None:
    """Return the authorities that Python trusts, if they are one file; else gRPC uses its own."""
    path = ssl.get_default_verify_paths().cafile or ""
    if not path or _GRPC_ROOTS_VARIABLE in os.environ:
        return None
    return Path(path).read_bytes()


ChannelFactory = Callable[[str], aio.Channel]
"""Returns a channel for an address, as the card or ``url=`` writes it."""

_KEEPALIVE_MS = 330_000
"""Milliseconds without data after which a keepalive ping is sent. Servers treat more than one ping
in five minutes as an attack, and close the connection."""

_KEEPALIVE_TIMEOUT_MS = 20_000
"""Milliseconds to wait for the answer to a ping."""

_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
    ("grpc.max_send_message_length", -1),
    ("grpc.primary_user_agent", USER_AGENT),
)

_Options = list[tuple[str, int | str]]


class ChannelMaker:
    """Creates channels with the same settings.

    Args:
        limits: Bound the size of replies and their headers.
        tls: Trusted authorities and the client's certificate; None for the system's authorities.
        proxies: The proxies of the environment.
        factory: The caller's factory, used in place of all these.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        tls: TlsConfig | None,
        proxies: Proxies,
        factory: ChannelFactory | None,
    ) -> None:
        # Slightly above the client's limits, so that their errors are raised.
        max_message_bytes = max(limits.body, limits.event, limits.card) + 1024
        self._options = (
            *_OPTIONS,
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_metadata_size", limits.headers),
            ("grpc.absolute_max_metadata_size", limits.headers),
        )
        self._tls = tls
        self._proxies = proxies
        self._factory = factory
        self._credentials: grpc.ChannelCredentials | None = None

    @property
    def are_borrowed(self) -> bool:
        """Whether the channels belong to the caller."""
        return self._factory is not None

    async def make(self, url: str, request: HttpRequest) -> aio.Channel:
        """Return a new channel, which is not connected yet.

        Args:
            url: Address of the interface, as it is written.
            request: The request to send.

        Raises:
            A2AConnectionError: The name of the host cannot be resolved, or the TLS settings are
                not valid.
            NetworkPolicyError: The request's reach refuses the address.
            InvalidAgentCardError: The address is not one of gRPC.
            TypeError: The caller's factory returned something else.
        """
        address = grpc_address(url)
        if self._factory is not None:
            if request.reach is not None and address is not None:
                check_ip_literal(address, url, request.reach)  # the channel resolves names
            return _checked(self._factory(url))
        if address is None:
            message = f"{presentable(url)} is not a gRPC address, such as host:port"
            raise InvalidAgentCardError(message, field="url", executed=False)
        options: _Options = [*self._options]
        target = await self._target(address, url, request, options)
        if not address.is_secure:
            return aio.insecure_channel(target, options=options)
        return aio.secure_channel(target, self._tls_credentials(request), options=options)

    async def _target(
        self, address: GrpcAddress, url: str, request: HttpRequest, options: _Options
    ) -> str:
        """Return the target of a channel, and add the options that belong to it."""
        target, proxy, reach = (
            f"dns:///{address.authority}",
            self._proxies.for_url(address.url),
            None,
        )
        if proxy is None:
            options.append(("grpc.enable_http_proxy", 0))
            reach = request.reach
        else:
            options.append(("grpc.http_proxy", str(proxy)))
            if request.reach is not None:
                check_ip_literal(address, url, request.reach)  # the proxy resolves names
        if reach is None:
            return target
        options.append(("grpc.default_authority", address.authority))
        if address.is_secure:
            options.append(("grpc.ssl_target_name_override", address.host))
        return await allowed_target(reach, address, url, request)

    def _tls_credentials(self, request: HttpRequest) -> grpc.ChannelCredentials:
        if self._credentials is None:
            try:
                self._credentials = channel_credentials(self._tls)
            except (OSError, ValueError) as error:  # such as a file that has changed
                raise connection_error(
                    request, "tls", str(error), sent=False, transient=False
                ) from None
        return self._credentials


def _checked(channel: aio.Channel) -> aio.Channel:
    if not isinstance(cast("object", channel), aio.Channel):
        text = f"grpc_channel_factory must return a grpc.aio.Channel, not {type(channel).__name__}"
        raise TypeError(text)
    return channel
