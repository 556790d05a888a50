"""Whether a message whose reply was lost is sent again, and what is told of one that was.

All of this is pure. It is never sent again unless its caller says so (`OnUnknown`); what
`holdfast.tasks.reconcile` says of a search is what ``"resend_if_absent"`` goes by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.tasks.reconcile import Absent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.errors import A2AError, Attempt, OutcomeUnknownError
    from holdfast.policy.reconcile import OnUnknown
    from holdfast.tasks.reconcile import SearchResult

__all__ = ["concluded", "is_to_be_resent", "joined", "refused"]


def is_to_be_resent(on_unknown: OnUnknown, found: SearchResult | None) -> bool:
    """Whether a caller wants a message sent again.

    Args:
        on_unknown: What the caller said.
        found: What a search for the message came to; None if there was none.
    """
    return on_unknown == "resend" or (
        on_unknown == "resend_if_absent" and isinstance(found, Absent)
    )


def concluded(
    lost: OutcomeUnknownError,
    found: SearchResult | None,
    *,
    times: int,
    failed: A2AError | None = None,
) -> OutcomeUnknownError:
    """An error made to say how often the message was sent, and what may be done about it.

    Args:
        lost: The error of the last time that its reply was lost.
        found: What the search came to that followed; None if there was none.
        times: How often the message was sent, and may have arrived.
        failed: Why it could not be sent once more.
    """
    often = "once" if times == 1 else f"{times} times"
    if failed is not None:
        lost.attempts = failed.attempts
        again = f"It was sent {often}, and could not be sent again: {failed.message}"
    else:
        again = "It was not sent again" if times == 1 else f"It was sent {often}"
    advice = (
        "Look for it among the agent's tasks, or send it again if running it twice does no harm"
        if found is None
        else "Send it again only if running it twice does no harm"
    )
    lost.message = f"{lost.message}. {again}. {advice}"
    return lost


def refused(attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
    """The attempts of a call, the last of which turned out not to have been executed."""
    last = [msgspec.structs.replace(one, executed=False) for one in attempts[-1:]]
    return (*attempts[:-1], *last)


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
