"""The checks: pure functions from observations to findings.

Rules: a finding is about an observation; without one it is ``not measured``, with the reason. A
problem prevents calls or makes them do harm; a warning affects some callers, or some of the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._doctor.checks.authentication import check_authentication
from holdfast._doctor.checks.card import check_agent_card
from holdfast._doctor.checks.connection import check_connection
from holdfast._doctor.checks.errors import check_errors
from holdfast._doctor.checks.interfaces import check_interfaces
from holdfast._doctor.checks.listing import check_listing
from holdfast._doctor.checks.recording import check_recording
from holdfast._doctor.checks.streaming import check_streaming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from holdfast._doctor.facts import InterfaceFacts, Observations
    from holdfast._doctor.findings import Finding

__all__ = ["run_checks"]

_CHECKS: tuple[Callable[[Observations, float], Iterator[Finding]], ...] = (
    check_agent_card,
    check_connection,
    check_interfaces,
    check_authentication,
    check_errors,
    check_listing,
    check_streaming,
    check_recording,
)


def run_checks(observed: Observations, *, now: float) -> tuple[Finding, ...]:
    """Run all checks.

    Args:
        observed: The observations.
        now: Wall time in seconds since the epoch.
    """
    interfaces = {interface.about: interface for interface in observed.interfaces}
    return tuple(
        _with_interface(finding, interfaces)
        for check in _CHECKS
        for finding in check(observed, now)
    )


def _with_interface(finding: Finding, interfaces: Mapping[str, InterfaceFacts]) -> Finding:
    """Return a finding with the binding and version of the interface that it is about."""
    interface = interfaces.get(finding.about)
    if interface is None:
        return finding
    binding = interface.interface.protocol_binding
    return msgspec.structs.replace(finding, binding=binding, version=interface.version)
