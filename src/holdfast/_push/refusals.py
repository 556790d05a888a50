"""Why a delivery is refused, and the HTTP reply to each refusal."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from holdfast._net.asgi import ShortReply

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Refusal", "Refused", "answer_to"]


class Refusal(Enum):
    """What keeps a delivery from being taken."""

    UNPROVEN = auto()
    """Nothing proves who sent it, or what should do so is wrong."""
    UNVOUCHED = auto()
    """Its signed token does not count."""
    UNEXPECTED = auto()
    """It is of another task than the expected one."""
    EARLY = auto()
    """It may be of a task that is about to be expected."""
    NOT_NOW = auto()
    """It cannot be judged or kept now, and perhaps later."""
    NOT_POSTED = auto()
    """It came by another method."""
    NOT_JSON = auto()
    """Its body is in another format, or compressed."""
    UNREADABLE = auto()
    """Its body is no event."""
    TOO_LARGE = auto()
    """It is larger than is accepted, or makes the task so."""
    TOO_SLOW = auto()
    """Its body did not come in time."""


class Refused(Exception):  # noqa: N818  nothing fails here; it is an answer
    """A delivery is not taken.

    Args:
        fact: Why.
        text: The same in one line, for whoever looks into it; no secret is in it.
    """

    def __init__(self, fact: Refusal, text: str) -> None:
        super().__init__(text)
        self.fact = fact
        self.text = text


_LATER = {"retry-after": "10"}
_ANSWERS: Mapping[Refusal, tuple[int, dict[str, str]]] = {
    Refusal.UNPROVEN: (401, {"www-authenticate": "Bearer"}),
    Refusal.UNVOUCHED: (401, {"www-authenticate": 'Bearer error="invalid_token"'}),  # RFC 6750
    Refusal.UNEXPECTED: (404, {}),
    Refusal.EARLY: (503, {"retry-after": "1"}),
    Refusal.NOT_NOW: (503, _LATER),
    Refusal.NOT_POSTED: (405, {"allow": "POST"}),
    Refusal.NOT_JSON: (415, {}),
    Refusal.UNREADABLE: (400, {}),
    Refusal.TOO_LARGE: (413, {}),
    Refusal.TOO_SLOW: (408, {}),
}
"""The status and the headers that answer each refusal."""


def answer_to(refused: Refused) -> ShortReply:
    """Return the reply to a refused delivery."""
    status, headers = _ANSWERS[refused.fact]
    return ShortReply(status, refused.text, headers)
