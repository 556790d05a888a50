"""What ``holdfast run`` does while nothing can be sent: it waits, ever longer, and gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.journaled import was_not_sent
from holdfast.errors import A2AError, RunItemChangedError

if TYPE_CHECKING:
    from holdfast.answer import Answer

__all__ = ["Outage"]

_TRIES = 10
"""Messages that are tried after all that were under way could not be sent."""

_FIRST = 1.0
_LONGEST = 30.0
"""Seconds before the first and the last of these; in between they double."""


class Outage:
    """How many messages in a row could not be sent.

    Args:
        at_once: How many are under way at once.

    Attributes:
        count: How many it were.
    """

    def __init__(self, at_once: int) -> None:
        self.count = 0
        self._most = at_once + _TRIES
        self._may_pass = False
        self._pause = 0.0

    @property
    def is_final(self) -> bool:
        """Whether no more are to be tried."""
        return self.count >= self._most

    def __str__(self) -> str:
        messages = "message" if self.count == 1 else f"{self.count} messages"
        return f"the last {messages} could not be sent"

    def saw(self, outcome: Answer | Exception) -> None:
        """Takes in what came of a message."""
        if isinstance(outcome, RunItemChangedError):
            return  # the agent was not asked
        if isinstance(outcome, A2AError) and was_not_sent(outcome):
            self.count += 1
            self._may_pass = bool(outcome.transient)
        else:
            self.count = 0
            self._pause = 0.0

    def pause(self) -> float:
        """Seconds to wait before the next message is tried; longer each time."""
        if self.count and self._may_pass:
            self._pause = min(max(_FIRST, 2 * self._pause), _LONGEST)
            return self._pause
        return 0.0
