"""What observed facts mean: each function takes facts and gives findings, and asks nobody.

Rules: a finding is about what was seen; what was not seen is said to be not measured, and why. A
problem keeps calls from working, or makes them do harm; a warning hurts some callers, or at times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.diagnosis.verdicts.authentication import about_authentication
from holdfast.diagnosis.verdicts.card import about_card
from holdfast.diagnosis.verdicts.connection import about_connection
from holdfast.diagnosis.verdicts.errors import about_errors
from holdfast.diagnosis.verdicts.interfaces import about_interfaces
from holdfast.diagnosis.verdicts.listing import about_listing
from holdfast.diagnosis.verdicts.recording import about_recording
from holdfast.diagnosis.verdicts.streaming import about_streaming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.diagnosis.facts import Observed
    from holdfast.diagnosis.findings import Finding

__all__ = ["verdicts"]

_ALL: tuple[Callable[[Observed, float], Iterator[Finding]], ...] = (
    about_card,
    about_connection,
    about_interfaces,
    about_authentication,
    about_errors,
    about_listing,
    about_streaming,
    about_recording,
)


def verdicts(observed: Observed, *, now: float) -> tuple[Finding, ...]:
    """Judges all that was observed.

    Args:
        observed: The facts.
        now: Wall time in seconds since the epoch.
    """
    return tuple(finding for about in _ALL for finding in about(observed, now))
