"""Addresses of gRPC interfaces: host, port, and whether to use TLS.

Cards use many forms, and the specification defines none. Accepted are:

    https://host[:443]  grpcs://host[:443]       TLS
    http://host[:80]    grpc://host[:80]         no TLS
    host:port  dns:host[:443]  dns:///host[:443]
    ipv4:number:port  ipv6:[number]:port         TLS, unless the host is this machine

gRPC has no paths, so a path after the host is ignored. Any other form (Unix sockets, a name server
in the address) is not supported.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast._model.addresses import is_http_address
from holdfast._model.hosts import ascii_host, is_loopback

__all__ = ["GrpcAddress", "grpc_address", "is_of_grpc_alone", "without_grpc"]

_SCHEMES = {"http": "http", "grpc": "http", "https": "https", "grpcs": "https"}
_PORTS = {"http": 80, "https": 443}
_ONLY_GRPC = frozenset({"grpc", "grpcs"})
_RESOLVED = re.compile(r"(?:dns:(?:///)?|ipv[46]:)", re.IGNORECASE)
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/?#@,\[\]]+)(:[0-9]{1,5})?")


class GrpcAddress(NamedTuple):
    """Address of a gRPC interface.

    Attributes:
        host: ASCII host name or IP address, without brackets.
        port: The port.
        is_secure: Whether to use TLS.
    """

    host: str
    port: int
    is_secure: bool

    @property
    def authority(self) -> str:
        """Host and port in gRPC's syntax."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The address as an HTTP URL."""
        return f"{'https' if self.is_secure else 'http'}://{self.authority}"


def grpc_address(url: str) -> GrpcAddress | None:
    """Parse the address of a gRPC interface; None if it is invalid."""
    form = _http_form(url)
    if form is None or not is_http_address(form):
        return None
    parts = urlsplit(form)
    port = _PORTS[parts.scheme] if parts.port is None else parts.port
    return GrpcAddress(ascii_host(parts.hostname or ""), port, parts.scheme == "https")


def without_grpc(url: str) -> str:
    """Convert a gRPC address to an HTTP URL; return any other unchanged.

    Origins, hosts and IP addresses are derived from that form.
    """
    if urlsplit(url).scheme in _PORTS:
        return url
    address = grpc_address(url)
    return url if address is None else address.url


def is_of_grpc_alone(url: str) -> bool:
    """Return whether the scheme of an address is ``grpc`` or ``grpcs``."""
    return url.partition("://")[0].lower() in _ONLY_GRPC


def _http_form(url: str) -> str | None:
    scheme, separator, rest = url.partition("://")
    http_scheme = _SCHEMES.get(scheme.lower()) if separator else None
    if http_scheme is not None:
        return f"{http_scheme}://{re.split('[/?#]', rest, maxsplit=1)[0]}"
    resolved = _RESOLVED.match(url)
    authority = _AUTHORITY.fullmatch(url if resolved is None else url[resolved.end() :])
    if authority is None or (resolved is None and authority[2] is None):
        return None
    host, port = authority[1], authority[2] or ":443"
    return f"{'http' if is_loopback(host.strip('[]')) else 'https'}://{host}{port}"
