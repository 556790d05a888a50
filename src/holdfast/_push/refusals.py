"""Reasons for refusing a delivery, and the HTTP reply to each."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from holdfast._asgi import ShortReply

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Refusal", "Refused", "reply_to"]


class Refusal(Enum):
    """Reason for refusing a delivery."""

    UNAUTHENTICATED = auto()
    """The secret of the sender is missing or wrong."""
    INVALID_TOKEN = auto()
    """The signed token is not valid."""
    UNKNOWN_TASK = auto()
    """The delivery is of another task than the expected one."""
    TOO_EARLY = auto()
    """The delivery may be of a task that the caller is about to name."""
    UNAVAILABLE = auto()
    """The delivery cannot be verified or stored now, but perhaps later."""
    WRONG_METHOD = auto()
    """The method is not POST."""
    WRONG_CONTENT = auto()
    """The body is not JSON, or compressed."""
    MALFORMED = auto()
    """The body is not an event."""
    TOO_LARGE = auto()
    """The delivery, or the task with it, exceeds a limit."""
    TOO_SLOW = auto()
    """The body did not arrive in time."""


class Refused(Exception):  # noqa: N818  an answer, not a failure
    """A delivery is refused.

    Args:
        reason: Reason for the refusal.
        text: The same in one line, for the log and the reply; without secrets.
    """

    def __init__(self, reason: Refusal, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


_LATER = {"retry-after": "10"}
_REPLIES: Mapping[Refusal, tuple[int, dict[str, str]]] = {
    Refusal.UNAUTHENTICATED: (401, {"www-authenticate": "Bearer"}),
    Refusal.INVALID_TOKEN: (401, {"www-authenticate": 'Bearer error="invalid_token"'}),  # RFC 6750
    Refusal.UNKNOWN_TASK: (404, {}),
    Refusal.TOO_EARLY: (503, {"retry-after": "1"}),
    Refusal.UNAVAILABLE: (503, _LATER),
    Refusal.WRONG_METHOD: (405, {"allow": "POST"}),
    Refusal.WRONG_CONTENT: (415, {}),
    Refusal.MALFORMED: (400, {}),
    Refusal.TOO_LARGE: (413, {}),
    Refusal.TOO_SLOW: (408, {}),
}
"""Status and headers of the reply to each refusal."""


def reply_to(refused: Refused) -> ShortReply:
    """Return the reply to a refused delivery."""
    status, headers = _REPLIES[refused.reason]
    return ShortReply(status, refused.text, headers)
