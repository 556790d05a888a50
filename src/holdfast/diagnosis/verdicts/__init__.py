"""What observed facts mean: each function takes facts and gives findings, and asks nobody.

Rules: a finding is about what was seen; what was not seen is said to be not measured, and why. A
problem keeps calls from working, or makes them do harm; a warning hurts some callers, or at times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.diagnosis.verdicts.authentication import judge_authentication
from holdfast.diagnosis.verdicts.card import judge_card
from holdfast.diagnosis.verdicts.connection import judge_connection
from holdfast.diagnosis.verdicts.errors import judge_errors
from holdfast.diagnosis.verdicts.interfaces import judge_interfaces
from holdfast.diagnosis.verdicts.listing import judge_listing
from holdfast.diagnosis.verdicts.recording import judge_recording
from holdfast.diagnosis.verdicts.streaming import judge_streaming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.diagnosis.facts import Observed
    from holdfast.diagnosis.findings import Finding

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
    return tuple(finding for judge in _ALL for finding in judge(observed, now))
