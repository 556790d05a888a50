"""The outcome of a call for the journal, derived from the error that ended it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2ATimeoutError,
    DeadlineExceededError,
    DuplicateTasksError,
    JournalError,
    OutcomeUnknownError,
    ReconnectError,
    TaskInterruptedError,
)

if TYPE_CHECKING:
    from holdfast.errors import CallOutcome

__all__ = ["outcome_of"]

_WAIT_ERRORS = (
    A2AConnectionError,
    A2ATimeoutError,
    DeadlineExceededError,
    ReconnectError,
    TaskInterruptedError,
)
"""Errors that end only the caller's wait, not the agent's work, whatever their cause."""


def outcome_of(error: BaseException, *, was_sent: bool) -> CallOutcome | None:
    """Return the outcome of a call by its error; None if it is unknown and the call stays open.

    An agent refuses a message with an A2A error. A transient one, such as -32603, is no refusal:
    the agent has failed, perhaps after it executed the message. A reply that cannot be read, is
    too large, or comes from a gateway in front of the agent does not show what the agent does.

    Args:
        error: The error raised to the caller.
        was_sent: Whether the message may have been sent before: a later failure to resume the call
            does not show its outcome.
    """
    match error:
        case OutcomeUnknownError():
            return "unknown" if error.search_error is None else None
        case DuplicateTasksError():
            return "duplicated"
        case A2AError() if was_sent or isinstance(error, JournalError):
            return None
        case A2AError(executed=False):
            return "not_sent"
        case A2AError(executed=None) if error.code is not None and not isinstance(
            error, _WAIT_ERRORS
        ):
            return "unknown" if error.transient else "refused"
        case _:
            return None
