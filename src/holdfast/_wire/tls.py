"""What a server's TLS looks like, as facts; `holdfast._net.tls` looks at it."""

from __future__ import annotations

import msgspec

__all__ = ["TlsFacts"]


class TlsFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A TLS connection.

    Attributes:
        host: The host that was called.
        version: As ``TLSv1.3``; empty if there is none.
        fault: Why the certificate is not trusted, as the library says; empty if it is.
        not_after: End of the certificate's validity, in seconds since the epoch; None if that is
            not known, as of one that is not trusted.
        failure: Why no connection came about; empty if one did.
    """

    host: str
    version: str = ""
    fault: str = ""
    not_after: float | None = None
    failure: str = ""
