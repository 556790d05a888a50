"""The protocol's versions and bindings by name; light to import, unlike their codecs."""

from __future__ import annotations

from typing import Literal

__all__ = [
    "BINDINGS",
    "GRPC_BINDING",
    "HTTP_BINDINGS",
    "OLDER_VERSION",
    "PROTOCOL_VERSION",
    "PROTOCOL_VERSIONS",
    "ProtocolVersion",
]

ProtocolVersion = Literal["1.0", "0.3"]

PROTOCOL_VERSION: ProtocolVersion = "1.0"
OLDER_VERSION: ProtocolVersion = "0.3"
PROTOCOL_VERSIONS: tuple[ProtocolVersion, ...] = (PROTOCOL_VERSION, OLDER_VERSION)

HTTP_BINDINGS = ("JSONRPC", "HTTP+JSON")
"""Bindings that an `HttpEngine` carries."""

GRPC_BINDING = "GRPC"

BINDINGS = (*HTTP_BINDINGS, GRPC_BINDING)
"""All supported bindings; the last one needs its extra."""
