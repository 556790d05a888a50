"""Warnings, once for each origin, of requests that go where a caller may not expect them.

The warnings are log records of ``holdfast.security``. Nothing is refused here; credentials never
go to an origin that the caller did not name.
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

__all__ = ["Cautions"]

_MOST = 1000
"""Origins that are remembered. A hostile card can name as many as it likes."""

logger = logging.getLogger(SECURITY_LOGGER)


class Cautions:
    """The warnings of one client."""

    def __init__(self) -> None:
        self._contents = set[str]()
        self._checked = set[str]()
        self._plain = set[str]()

    def note_content(
        self, operation: Operation[Any, Any], there: str, named: Iterable[str]
    ) -> None:
        """Warns where a message goes to an origin that the caller did not name.

        Args:
            operation: What is called.
            there: The origin that it goes to.
            named: The origins that the caller named.
        """
        if operation.name in SEND_NAMES and _is_new(there, self._contents):
            logger.warning(
                "messages and files are sent to %s, an origin that only the agent's card names; "
                "the caller named %s; pass credential_origins=(%r,) if you trust it",
                there,
                ", ".join(sorted(named)),
                there,
            )

    def note_credentials(self, call: AnyCall, endpoint: Endpoint) -> None:
        """Warns where a call, with all that it carries, goes to another machine without TLS."""
        if endpoint.agent in self._checked or not (call.query or secrets_in(call.headers)):
            return
        _is_new(endpoint.agent, self._checked)
        there = origin(endpoint.interface.url)
        parts = urlsplit(there)
        is_plain = parts.scheme == "http" and not is_loopback(parts.hostname or "")
        if is_plain and _is_new(there, self._plain):
            logger.warning(
                "credentials are sent to %s without TLS: anyone on the network path can read and "
                "use them; use https",
                there,
            )


def _is_new(place: str, known: set[str]) -> bool:
    """Whether a place comes for the first time; it is known from then on."""
    if place in known or len(known) >= _MOST:
        return False
    known.add(place)
    return True
