"""Inspection of a server's TLS over a separate connection, on which no request is sent."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies

from holdfast._doctor.facts import TlsFacts
from holdfast._model.hosts import normalized_host
from holdfast._net.proxies import Proxies
from holdfast._net.sockets import reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.policies import TlsConfig

__all__ = ["look_at_tls"]


async def look_at_tls(
    url: str, *, timeout: float, tls: TlsConfig | None = None
) -> TlsFacts | None:
    """Inspect the TLS of a server.

    If the certificate is not trusted, a second connection without verification gets the version.

    Args:
        url: An https address.
        timeout: Seconds for each of the two connections.
        tls: Authorities to trust and the client's certificate; the system's authorities by
            default.

    Returns:
        The facts; None if the connection would use a proxy of the environment.
    """
    if Proxies(getproxies()).for_url(url) is not None:
        return None
    parts = urlsplit(url)
    host, port = normalized_host(parts.hostname or ""), parts.port or 443
    context = ssl.create_default_context() if tls is None else tls.context()
    try:
        return await _connect(host, port, context, timeout)
    except ssl.SSLCertVerificationError as error:
        fault = error.verify_message
    except (OSError, ValueError) as error:
        return TlsFacts(host=host, failure=_describe(error, timeout))
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    try:
        facts = await _connect(host, port, unverified, timeout)
    except (OSError, ValueError):
        return TlsFacts(host=host, fault=fault)
    return TlsFacts(host=host, version=facts.version, fault=fault)


async def _connect(host: str, port: int, context: ssl.SSLContext, timeout: float) -> TlsFacts:
    async with asyncio.timeout(timeout):
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
        certificate: Mapping[str, object] = tls.getpeercert() or {}
        end = certificate.get("notAfter")
        not_after = ssl.cert_time_to_seconds(end) if isinstance(end, str) else None
        return TlsFacts(host=host, version=tls.version() or "", not_after=not_after)
    finally:
        writer.transport.abort()  # no data is sent or expected


def _describe(error: OSError | ValueError, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no connection was established within {timeout:g} s"
    return (reason_of(error) if isinstance(error, OSError) else None) or str(error)
