"""Whether a message whose reply was lost is sent again, and what is told of one that was.

All of this is pure. It is never sent again unless its caller says so (`OnUnknown`); what
`holdfast.tasks.reconcile` says of a search is what ``"resend_if_absent"`` goes by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.tasks.reconcile import Absent, Unseen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.errors import A2AError, Attempt
    from holdfast.policy.reconcile import OnUnknown

__all__ = ["is_to_be_resent", "joined", "told"]


def is_to_be_resent(on_unknown: OnUnknown, found: Absent | Unseen | None) -> bool:
    """Whether a caller wants a message sent again.

    Args:
        on_unknown: What the caller said.
        found: What a search for the message came to; None if there was none.
    """
    return on_unknown == "resend" or (
        on_unknown == "resend_if_absent" and isinstance(found, Absent)
    )


def told(times: int, refused: A2AError | None = None, *, was_looked_for: bool) -> str:
    """How often a message was sent whose reply was lost, and what may be done about it.

    Args:
        times: How often it was sent, and may have arrived.
        was_looked_for: Whether its caller need not do that first.
        refused: Why it could not be sent once more.
    """
    often = "once" if times == 1 else f"{times} times"
    if refused is not None:
        again = f"It was sent {often}, and could not be sent again: {refused.message}"
    else:
        again = "It was not sent again" if times == 1 else f"It was sent {often}"
    if was_looked_for:
        return f"{again}. Send it again only if running it twice does no harm"
    return (
        f"{again}. Look for it among the agent's tasks, or send it again if running it twice does "
        "no harm"
    )


def joined(
    earlier: Sequence[Attempt], later: Sequence[Attempt], *, after: float
) -> tuple[Attempt, ...]:
    """The attempts of two calls that sent the same message, as those of one.

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
    return (*earlier[:-1], replace(last, wait=wait), *moved)
