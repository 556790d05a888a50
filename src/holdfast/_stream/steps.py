"""What a stream does next, as `holdfast._stream.machine` says it."""

from __future__ import annotations

from enum import Enum, auto

import msgspec

from holdfast.errors import A2AError

__all__ = ["Step", "Wait"]


class Step(Enum):
    """What to do next."""

    READ = auto()
    """Read the next event of the connection, and say `received`, `ended` or `cut`."""
    SUBSCRIBE = auto()
    """Subscribe to the task, and say `subscribed` or `refused`."""
    LOOK = auto()
    """Ask for the task, and say `found` or `not_found`."""
    SEARCH = auto()
    """Search for the task that the message made, which no event named, and say `made`."""
    DONE = auto()
    """Nothing: all is said."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Wait before a further try, and say `waited`.

    Attributes:
        attempt: Number of the try, from 1: what the backoff grows with. 0 for a look at a task
            that is polled.
        at_least: Seconds that the agent asked to wait.
        error: Why.
        then: What to do after it.
    """

    attempt: int
    at_least: float = 0.0
    error: A2AError | None = None
    then: Step = Step.LOOK
