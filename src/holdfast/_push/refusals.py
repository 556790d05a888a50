"""Why a delivery is not taken: facts, whatever protocol they are told in."""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["Refusal", "Refused"]


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
