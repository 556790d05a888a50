"""How long and how patiently a message is looked for whose reply was lost."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from holdfast._model.settings import check_count, check_numbers

__all__ = ["ContextIds", "OnUnknown", "ReconcilePolicy"]

OnUnknown = Literal["reconcile", "raise", "resend_if_absent", "resend"]
"""What to do about a message whose reply was lost; `holdfast.connect` says what each means."""

ContextIds = Literal["agent", "client"]
"""Who names the context of a conversation; `holdfast.connect` says what each means."""

_SECONDS = ("timeout", "backoff", "max_backoff")


class ReconcilePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop looking for the task of a message whose reply was lost.

    Attributes:
        timeout: How long to look, in seconds, within the call's own deadline: a request may sit in
            a proxy, and a store may be behind, so that a task appears late. With 0, nothing is
            looked for but by `PendingCall.resume`, which looks once in any case.
        backoff: Upper bound of the wait between the first two looks, in seconds; it doubles each
            time, and the wait is drawn between zero and the bound.
        max_backoff: Where the bound stops growing, in seconds.
        max_pages: Pages to read in one look at an agent's list: of 100 tasks, or of less where
            these are too large. Most looks read what has changed since the message was sent;
            some, ever fewer of them, go by no clock at all.

    Raises:
        ValueError: A number is negative, a wait is infinite, or there is to be no page.
        TypeError: `max_pages` is no whole number, or one of the others is no number.
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
