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
    "spoken_version",
]

ProtocolVersion = Literal["1.0", "0.3"]
"""A protocol version that Holdfast supports."""

PROTOCOL_VERSION: ProtocolVersion = "1.0"
"""The protocol version that is preferred if an agent supports several."""

OLDER_VERSION: ProtocolVersion = "0.3"
"""The older protocol version that Holdfast supports."""

PROTOCOL_VERSIONS: tuple[ProtocolVersion, ...] = (PROTOCOL_VERSION, OLDER_VERSION)
"""All protocol versions that Holdfast supports, the preferred one first."""

HTTP_BINDINGS = ("JSONRPC", "HTTP+JSON")
"""Bindings that an `HttpEngine` carries."""

GRPC_BINDING = "GRPC"
"""Name of the gRPC binding, which needs the extra ``grpc``."""

BINDINGS = (*HTTP_BINDINGS, GRPC_BINDING)
"""All supported bindings; the last one needs its extra."""

_SUPPORTED_BY_DECLARED = {"1": PROTOCOL_VERSION, "0.2": OLDER_VERSION, "0.3": OLDER_VERSION}


def spoken_version(declared: str | None) -> str | None:
    """Return the supported protocol version for the version in a card (``1.0.3``).

    0.2 counts as 0.3, and a card without a version as 1.0.

    Args:
        declared: The version in the card; empty if there is none.

    Returns:
        The version that Holdfast supports; None if the declared one is not supported.
    """
    if not declared:
        return PROTOCOL_VERSION
    major, _, minor_and_patch = declared.strip().removeprefix("v").partition(".")
    return _SUPPORTED_BY_DECLARED.get(major) or _SUPPORTED_BY_DECLARED.get(
        f"{major}.{minor_and_patch.partition('.')[0]}"
    )
