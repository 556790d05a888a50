"""Security warnings: content sent to origins that the caller did not name, and missing TLS.

Each warning is logged once for each origin, under ``holdfast.security``. Nothing is refused here;
credentials are never sent to an origin that the caller did not name.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast._model.hosts import is_loopback
from holdfast._model.operations import SEND_NAMES
from holdfast._wire.origins import SECURITY_LOGGER, origin
from holdfast._wire.redaction import secrets_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast._model.operations import Operation
    from holdfast._pipeline.endpoints import Endpoint
    from holdfast._pipeline.transport import AnyCall

__all__ = ["SecurityWarnings"]

_MAX_ORIGINS = 1000
"""Origins to remember; a hostile card may name any number."""

logger = logging.getLogger(SECURITY_LOGGER)


class SecurityWarnings:
    """The warnings of one client."""

    def __init__(self) -> None:
        self._contents = set[str]()
        self._checked = set[str]()
        self._plain = set[str]()

    def check_content(
        self, operation: Operation[Any, Any], target: str, named: Iterable[str]
    ) -> None:
        """Warn if a message is sent to an origin that the caller did not name.

        Args:
            operation: The operation.
            target: The origin that receives the message.
            named: The origins that the caller named.
        """
        if operation.name in SEND_NAMES and _is_new(target, self._contents):
            logger.warning(
                "messages and files are sent to %s, an origin that only the agent's card names; "
                "the caller named %s; pass credential_origins=(%r,) if you trust it",
                target,
                ", ".join(sorted(named)),
                target,
            )

    def check_credentials(self, call: AnyCall, endpoint: Endpoint) -> None:
        """Warn if a call with credentials is sent to another machine without TLS."""
        if endpoint.agent in self._checked or not (call.query or secrets_in(call.headers)):
            return
        _is_new(endpoint.agent, self._checked)
        target = origin(endpoint.interface.url)
        parts = urlsplit(target)
        is_plain = parts.scheme == "http" and not is_loopback(parts.hostname or "")
        if is_plain and _is_new(target, self._plain):
            logger.warning(
                "credentials are sent to %s without TLS: anyone on the network path can read and "
                "use them; use https",
                target,
            )


def _is_new(address: str, seen: set[str]) -> bool:
    """Return whether an address is seen for the first time, and remember it."""
    if address in seen or len(seen) >= _MAX_ORIGINS:
        return False
    seen.add(address)
    return True
