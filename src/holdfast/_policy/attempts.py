"""The attempts of a message that was sent in several calls, as an error tells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.errors import Attempt

__all__ = ["joined_attempts", "last_not_executed"]


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
