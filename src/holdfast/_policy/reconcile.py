"""The search for a message whose reply was lost: its duration and intervals."""

from __future__ import annotations

import math
from typing import Literal

from holdfast._model.settings import Policy, check_count, check_numbers

__all__ = ["ContextIds", "OnUnknown", "ReconcilePolicy"]

OnUnknown = Literal["reconcile", "raise", "resend_if_absent", "resend"]
"""Handling of a message whose reply was lost; the argument of `connect` explains each value."""

ContextIds = Literal["agent", "client"]
"""The side that creates the context id of a conversation: the agent, or the client."""

_SECONDS = ("timeout", "backoff", "max_backoff")


class ReconcilePolicy(Policy, frozen=True, kw_only=True):
    """Policy of the search for the task of a message whose reply was lost.

    Attributes:
        timeout: Seconds to search, within the call's own deadline; 0 or more, 30 by default. A
            proxy may delay the request, and a store may lag behind, so that a task appears late. 0
            turns the search off, except in `PendingCall.resume`, which always searches once.
        backoff: Upper bound of the wait between the first two searches, in seconds, 0.5 by
            default; it doubles each time, and the wait is drawn evenly between zero and the bound.
        max_backoff: Largest value of the bound, in seconds, 5 by default.
        max_pages: Pages of the agent's task list to read in one search; at least 1, 20 by default.
            A page has 100 tasks, or fewer if these are too large. Most searches read the tasks
            changed since the message was sent; some, with decreasing frequency, use no timestamp
            at all.

    Raises:
        ValueError: A number is negative, a wait is infinite, or `max_pages` is 0.
        TypeError: `max_pages` is not an integer, or another value is not a number.
    """

    timeout: float = 30.0
    backoff: float = 0.5
    max_backoff: float = 5.0
    max_pages: int = 20

    def __post_init__(self) -> None:
        check_count("max_pages", self.max_pages)
        check_numbers(self, _SECONDS)
        for name in _SECONDS:
            if not 0 <= getattr(self, name) < math.inf:
                message = f"{name} must be a finite number of seconds, and not negative"
                raise ValueError(message)
        if not self.max_pages:
            message = "max_pages must be at least 1"
            raise ValueError(message)
