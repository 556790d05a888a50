"""What gRPC speaks TLS with: the same authorities as everybody else in the process."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from holdfast._net.tls_config import TlsConfig

__all__ = ["channel_credentials"]

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
