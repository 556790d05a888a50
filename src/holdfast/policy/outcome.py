"""What the end of a call says of its message, as a journal keeps it."""

from __future__ import annotations

from typing import Literal

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

__all__ = ["CallOutcome", "outcome_of"]

CallOutcome = Literal["answered", "refused", "duplicated", "unknown", "not_sent", "forgotten"]
"""What became of a call.

- ``"answered"``: by a task, in whatever state it came to rest, or by a message.
- ``"refused"``: by an error of the protocol, and nothing goes on.
- ``"duplicated"``: the agent made more than one task of it, and its caller was told so.
- ``"unknown"``: it may have been sent, nothing was found of it, and its caller was told so.
- ``"not_sent"``: it certainly did not reach the agent, and may be sent again.
- ``"forgotten"``: nobody wants to know.
"""

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
