"""What observed facts mean: each function takes facts and gives findings, and asks nobody.

Rules: a finding is about what was seen; what was not seen is said to be not measured, and why. A
problem keeps calls from working, or makes them do harm; a warning hurts some callers, or at times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._doctor.checks.authentication import judge_authentication
from holdfast._doctor.checks.card import judge_card
from holdfast._doctor.checks.connection import judge_connection
from holdfast._doctor.checks.errors import judge_errors
from holdfast._doctor.checks.interfaces import judge_interfaces
from holdfast._doctor.checks.listing import judge_listing
from holdfast._doctor.checks.recording import judge_recording
from holdfast._doctor.checks.streaming import judge_streaming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from holdfast._doctor.facts import InterfaceFacts, Observed
    from holdfast._doctor.findings import Finding

__all__ = ["verdicts"]

_ALL: tuple[Callable[[Observed, float], Iterator[Finding]], ...] = (
    judge_card,
    judge_connection,
    judge_interfaces,
    judge_authentication,
    judge_errors,
    judge_listing,
    judge_streaming,
    judge_recording,
)


def verdicts(observed: Observed, *, now: float) -> tuple[Finding, ...]:
    """Judges all that was observed.

    Args:
        observed: The facts.
        now: Wall time in seconds since the epoch.
    """
    by_name = {interface.about: interface for interface in observed.interfaces}
    return tuple(_named(finding, by_name) for judge in _ALL for finding in judge(observed, now))


def _named(finding: Finding, by_name: Mapping[str, InterfaceFacts]) -> Finding:
    """The same with the binding and version of the interface that it is about."""
    interface = by_name.get(finding.about)
    if interface is None:
        return finding
    binding = interface.interface.protocol_binding
    return msgspec.structs.replace(finding, binding=binding, version=interface.version)
