"""Which of two statuses of a task is the newer one: one rule for all who hear of it twice.

- A status that ends the task is newer than any other. Of two that end it in different ways the
  one that is known stands, whichever that is: a task ends once.
- Of two others that of the later timestamp is newer (A2A 4.1.2).
- Where a timestamp is missing or cannot be read, or both name the same time, nobody can say. What
  counts then is for whoever asks, who knows how the two came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.types import TaskStatus

__all__ = ["is_newer"]


def is_newer(status: TaskStatus, known: TaskStatus) -> bool | None:
    """Whether a status is newer than the known one of the same task.

    Returns:
        True or False; None where nobody can say.
    """
    if known.state.is_terminal:
        return None if status.state is known.state else False
    if status.state.is_terminal:
        return True
    time, before = status.time, known.time
    if time is None or before is None or time == before:
        return None
    return time > before
