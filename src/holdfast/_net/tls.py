"""Looking at a server's TLS: a connection of its own, over which nothing is sent."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies

from holdfast._model.hosts import normalized_host
from holdfast._net.proxies import Proxies
from holdfast._net.sockets import reason_of
from holdfast._wire.tls import TlsFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._net.tls_config import TlsConfig

__all__ = ["look_at_tls"]


async def look_at_tls(
    url: str, *, timeout: float, tls: TlsConfig | None = None
) -> TlsFacts | None:
    """Looks at the TLS of a server.

    A certificate that is not trusted is looked at once more without trust, for the version.

    Args:
        url: An https address.
        timeout: Seconds for each of the two connections.
        tls: Whom to trust and which certificate to show; the system's authorities if left out.

    Returns:
        None where a proxy of the environment stands between.
    """
    if Proxies(getproxies()).of(url) is not None:
        return None
    parts = urlsplit(url)
    host, port = normalized_host(parts.hostname or ""), parts.port or 443
    context = ssl.create_default_context() if tls is None else tls.context()
    try:
        return await _look(host, port, context, timeout)
    except ssl.SSLCertVerificationError as error:
        fault = error.verify_message
    except (OSError, ValueError) as error:
        return TlsFacts(host=host, failure=_in_words(error, timeout))
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    try:
        found = await _look(host, port, trusting, timeout)
    except (OSError, ValueError):
        return TlsFacts(host=host, fault=fault)
    return TlsFacts(host=host, version=found.version, fault=fault)


async def _look(host: str, port: int, context: ssl.SSLContext, timeout: float) -> TlsFacts:
    async with asyncio.timeout(timeout):
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
        certificate: Mapping[str, object] = tls.getpeercert() or {}
        end = certificate.get("notAfter")
        not_after = ssl.cert_time_to_seconds(end) if isinstance(end, str) else None
        return TlsFacts(host=host, version=tls.version() or "", not_after=not_after)
    finally:
        writer.transport.abort()  # nothing was sent, and nothing is to come


def _in_words(error: OSError | ValueError, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no connection came about for {timeout:g} s"
    return (reason_of(error) if isinstance(error, OSError) else None) or str(error)
