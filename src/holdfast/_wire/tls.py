"""Facts of a TLS connection, as `holdfast._net.tls` collects them."""

from __future__ import annotations

import msgspec

__all__ = ["TlsFacts"]


class TlsFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a TLS connection.

    Attributes:
        host: Name of the host.
        version: Protocol version, such as ``TLSv1.3``; empty without a connection.
        fault: Why the certificate is not trusted, in the TLS library's words; empty if it is.
        not_after: End of the certificate's validity, in seconds since the epoch; None if unknown,
            as for an untrusted certificate.
        failure: Why no connection was established; empty if it was.
    """

    host: str
    version: str = ""
    fault: str = ""
    not_after: float | None = None
    failure: str = ""
