"""The consequence of a search for a lost message: its task, an error, or sending it again.

This module is pure, and decides for every caller of `holdfast._client.reconcile`. The message is
never sent again unless its caller allows it (`OnUnknown`); ``"resend_if_absent"`` depends on the
result of the search.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from holdfast._client.reconcile_search import (
    Absent,
    Duplicate,
    Found,
    Inconclusive,
    SearchReport,
)
from holdfast._policy.deadline import add_last_seen
from holdfast.errors import A2AError, DuplicateTasksError
from holdfast.types import Task

if TYPE_CHECKING:
    from holdfast._policy.reconcile import OnUnknown, ReconcilePolicy
    from holdfast.errors import OutcomeUnknownError

__all__ = [
    "AFTER_UNKNOWN",
    "found_task",
    "outcome_unknown",
    "wants_resend",
    "wants_search",
    "wants_search_again",
]

AFTER_UNKNOWN = (
    "Repeat the call with the same key or run_id to search for its task again; "
    'on_unknown="resend" then sends the message again, if running it twice does no harm'
)
"""What the caller of a call with a key can do about an unknown outcome."""


def wants_search(on_unknown: OnUnknown, policy: ReconcilePolicy) -> bool:
    """Return whether the caller's options ask for a search for a lost message."""
    return on_unknown in {"reconcile", "resend_if_absent"} and policy.timeout > 0


def wants_search_again(on_unknown: OnUnknown, policy: ReconcilePolicy) -> bool:
    """Return whether to search once more for the message of a key, whose outcome is unknown.

    A message that may be sent again is always searched for first.
    """
    return on_unknown == "resend" or wants_search(on_unknown, policy)


def wants_resend(on_unknown: OnUnknown, search: SearchReport | None) -> bool:
    """Return whether the caller's option asks for a message to be sent again.

    Args:
        on_unknown: The caller's option.
        search: The search, which has not found the message; None if there was none.
    """
    if on_unknown == "resend_if_absent":
        return search is not None and isinstance(search.result, Absent)
    return on_unknown == "resend"


def found_task(lost_reply: OutcomeUnknownError, search: SearchReport | None) -> Task | None:
    """Return the task that a search has found; None if no task is known.

    Args:
        lost_reply: The error of the message whose reply was lost.
        search: The search; None if there was none.

    Raises:
        DuplicateTasksError: The message created more than one task.
        A2AError: It created a task, which was seen in a list and could not be fetched;
            ``executed`` is True.
    """
    match search:
        case SearchReport(result=Found(task=task)):
            return task
        case SearchReport(result=Duplicate(tasks=tasks)):
            raise _duplicate(lost_reply, tasks) from lost_reply
        case SearchReport(result=Inconclusive(error=A2AError() as error), seen=Task() as seen):
            add_last_seen(error, seen, task_id=seen.id, state=seen.state)
            raise error from lost_reply
        case _:
            return None


def _duplicate(lost_reply: OutcomeUnknownError, tasks: tuple[Task, ...]) -> DuplicateTasksError:
    facts = lost_reply.facts()
    facts["executed"] = True
    names = ", ".join(task.id for task in tasks)
    return DuplicateTasksError(
        f"the agent has {len(tasks)} tasks of message {lost_reply.message_id}: {names}. Unless "
        "on_unknown= caused a resend, a proxy or the agent duplicated it",
        message_id=lost_reply.message_id,
        tasks=tasks,
        **facts,
    )


def outcome_unknown(
    lost_reply: OutcomeUnknownError,
    search: SearchReport | None,
    *,
    times: int = 1,
    failed: A2AError | None = None,
    has_key: bool = False,
) -> OutcomeUnknownError:
    """Return the error for the caller: the loss, the result of the search, and what to do.

    Args:
        lost_reply: The error of the latest lost reply.
        search: The search that followed; None if there was none.
        times: How often the message was sent, and may have arrived.
        failed: The error of an attempt to send it once more.
        has_key: Whether the call has a key, with which it can be repeated.
    """
    error = copy(lost_reply)
    sentences = [lost_reply.message]
    if search is not None:
        result = search.result
        error.searched = search.searched
        error.search_error = result.error if isinstance(result, Inconclusive) else None
        sentences.append(search.summary)
    count = "once" if times == 1 else f"{times} times"
    if failed is not None:
        error.attempts = failed.attempts
        sentences.append(f"It was sent {count}, and could not be sent again: {failed.message}")
    else:
        sentences.append("It was not sent again" if times == 1 else f"It was sent {count}")
    if has_key:
        sentences.append(AFTER_UNKNOWN)
    elif search is None:
        text = "Search the agent's tasks for it, or send it again if running it twice does no harm"
        sentences.append(text)
    else:
        sentences.append("Send it again only if running it twice does no harm")
    error.message = ". ".join(sentences)
    return error
