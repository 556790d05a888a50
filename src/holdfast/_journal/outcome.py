"""What the end of a call says of its message, as a journal keeps it."""

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

_GOES_ON = (
    A2AConnectionError,
    A2ATimeoutError,
    DeadlineExceededError,
    ReconnectError,
    TaskInterruptedError,
)
"""Errors that end the caller's waiting, and not what the agent does, whatever they follow from."""


def outcome_of(error: BaseException, *, was_sent: bool) -> CallOutcome | None:
    """What an error says of the call that it ends; None for nothing, and it stays open.

    An agent that refuses a message says so in the protocol's terms. A reply that cannot be read,
    is too large, or comes from something in front of the agent says nothing of what goes on there.

    Args:
        error: What was raised to the caller.
        was_sent: Whether the message had been sent before, for all that is known: what befalls
            somebody who looks after it says nothing of the message.
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
        case A2AError(executed=None) if error.code is not None and not isinstance(error, _GOES_ON):
            return "refused"
        case _:
            return None
