"""Attempts of a call: what they show together, and which of them an error reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import CircuitOpenError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.errors import A2AError, Attempt

__all__ = ["joined_attempts", "last_not_executed", "more_informative", "was_executed"]


def was_executed(attempts: Sequence[bool | None]) -> bool | None:
    """Decide whether a call was executed: not, only where no attempt can have been.

    Args:
        attempts: Whether each attempt was executed, in order; None for unknown. At least one.
    """
    last = attempts[-1]
    return None if last is False and any(one is not False for one in attempts) else last


def last_not_executed(attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
    """The attempts of a call, the last of which turned out not to have been executed."""
    last = [msgspec.structs.replace(one, executed=False) for one in attempts[-1:]]
    return (*attempts[:-1], *last)


def joined_attempts(
    earlier: Sequence[Attempt], later: Sequence[Attempt], *, after: float
) -> tuple[Attempt, ...]:
    """The attempts of two calls for the same thing, as those of one.

    Args:
        earlier: Those of the first call.
        later: Those of the second.
        after: Seconds from the beginning of the first to that of the second.
    """
    replace, count = msgspec.structs.replace, len(earlier)
    moved = tuple(
        replace(one, number=count + number, started=after + one.started)
        for number, one in enumerate(later, 1)
    )
    if not earlier or not moved:
        return (*earlier, *moved)
    last = earlier[-1]
    wait = moved[0].started - last.started - last.duration
    if wait < 0:  # they overlap
        return (*earlier, *moved)
    return (*earlier[:-1], replace(last, wait=wait), *moved)


def more_informative(error: A2AError, earlier: A2AError | None) -> A2AError:
    """The error to report of two in a row.

    Args:
        error: The later one.
        earlier: The earlier one; None for none. A refusal by an open circuit, which tried
            nothing, hides no error of an attempt.
    """
    return error if earlier is None or not isinstance(error, CircuitOpenError) else earlier
