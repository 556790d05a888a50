"""Attempts of a call: whether it was executed, and which attempts an error reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import CircuitOpenError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.errors import A2AError, Attempt

__all__ = ["joined_attempts", "last_not_executed", "more_informative", "was_executed"]


def was_executed(attempts: Sequence[bool | None]) -> bool | None:
    """Return whether a call was executed; False only if no attempt can have been executed.

    Args:
        attempts: Whether each attempt was executed, in order; None if unknown. At least one.
    """
    last = attempts[-1]
    return None if last is False and any(executed is not False for executed in attempts) else last


def last_not_executed(attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
    """Return the attempts of a call with the last one marked as not executed."""
    last = [msgspec.structs.replace(attempt, executed=False) for attempt in attempts[-1:]]
    return (*attempts[:-1], *last)


def joined_attempts(
    earlier: Sequence[Attempt], later: Sequence[Attempt], *, after: float
) -> tuple[Attempt, ...]:
    """Return the attempts of two calls for the same operation as those of one call.

    Args:
        earlier: Attempts of the first call.
        later: Attempts of the second call.
        after: Seconds from the start of the first call to the start of the second.
    """
    replace, count = msgspec.structs.replace, len(earlier)
    moved = tuple(
        replace(attempt, number=count + number, started=after + attempt.started)
        for number, attempt in enumerate(later, 1)
    )
    if not earlier or not moved:
        return (*earlier, *moved)
    last = earlier[-1]
    wait = moved[0].started - last.started - last.duration
    if wait < 0:  # the two calls overlap
        return (*earlier, *moved)
    return (*earlier[:-1], replace(last, wait=wait), *moved)


def attempts_within(attempts: Sequence[Attempt], *, after: float) -> tuple[Attempt, ...]:
    """Return the attempts of work that a call waited for, timed from the start of the call.

    The call may have joined work that others began: attempts that ended before are left out, and
    one in flight began with the call.

    Args:
        attempts: The attempts of the work.
        after: Seconds from the start of the call to the start of the work; less than 0 if the work
            had begun before.
    """
    within: list[Attempt] = []
    for attempt in attempts:
        started = attempt.started + after
        ended = started + attempt.duration
        if started < 0 and ended <= 0 and attempt is not attempts[-1]:
            continue
        started, ended = max(0.0, started), max(0.0, ended)
        moved = msgspec.structs.replace(
            attempt, number=len(within) + 1, started=started, duration=ended - started
        )
        within.append(moved)
    return tuple(within)


def more_informative(error: A2AError, earlier: A2AError | None) -> A2AError:
    """Return which of two consecutive errors to report.

    Args:
        error: The later error.
        earlier: The earlier error; None if there is none. It is reported if the later one is a
            refusal by an open circuit, which attempted nothing.
    """
    return error if earlier is None or not isinstance(error, CircuitOpenError) else earlier
