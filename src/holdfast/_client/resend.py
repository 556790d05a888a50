"""What is done about a message whose reply was lost, and what its caller is told in the end.

All of this is pure. It is never sent again unless its caller says so (`OnUnknown`); what
`holdfast._client.reconcile_search` says of a search is what ``"resend_if_absent"`` goes by.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from holdfast._client.reconcile_search import Absent, Inconclusive

if TYPE_CHECKING:
    from holdfast._client.reconcile_search import SearchReport
    from holdfast._policy.reconcile import OnUnknown, ReconcilePolicy
    from holdfast.errors import A2AError, OutcomeUnknownError

__all__ = ["is_resent", "is_searched_for", "outcome_unknown"]


def is_searched_for(on_unknown: OnUnknown, policy: ReconcilePolicy) -> bool:
    """Whether a caller wants a message looked for."""
    return on_unknown in {"reconcile", "resend_if_absent"} and policy.timeout > 0


def is_resent(on_unknown: OnUnknown, search: SearchReport | None) -> bool:
    """Whether a caller wants a message sent again.

    Args:
        on_unknown: What the caller said.
        search: The search for the message that was not found; None if there was none.
    """
    if on_unknown == "resend_if_absent":
        return search is not None and isinstance(search.result, Absent)
    return on_unknown == "resend"


def outcome_unknown(
    lost: OutcomeUnknownError,
    search: SearchReport | None,
    *,
    times: int = 1,
    failed: A2AError | None = None,
) -> OutcomeUnknownError:
    """The error for the caller: what was lost, what a search came to, and what may be done.

    Args:
        lost: The error of the last time that the reply was lost.
        search: The search that followed; None if there was none.
        times: How often the message was sent, and may have arrived.
        failed: Why it could not be sent once more.
    """
    error = copy(lost)
    sentences = [lost.message]
    if search is not None:
        result = search.result
        error.searched = search.searched
        error.search_error = result.why if isinstance(result, Inconclusive) else None
        sentences.append(search.told)
    often = "once" if times == 1 else f"{times} times"
    if failed is not None:
        error.attempts = failed.attempts
        sentences.append(f"It was sent {often}, and could not be sent again: {failed.message}")
    else:
        sentences.append("It was not sent again" if times == 1 else f"It was sent {often}")
    sentences.append(
        "Look for it among the agent's tasks, or send it again if running it twice does no harm"
        if search is None
        else "Send it again only if running it twice does no harm"
    )
    error.message = ". ".join(sentences)
    return error
