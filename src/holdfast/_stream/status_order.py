"""Which of two statuses of one task is the later one.

Rules:

- A status that ends the task is later than any other. Of two that end it in different ways, the
  known one stands: a task ends once.
- Of two other statuses, the one with the later timestamp is later (A2A 4.1.2).
- If a timestamp is missing or unreadable, or both are equal, the order is unknown. Each caller
  then decides by how the two statuses arrived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.types import TaskState

if TYPE_CHECKING:
    from holdfast.types import TaskStatus

__all__ = ["is_as_far", "is_newer", "still_waits", "was_before"]


def is_newer(status: TaskStatus, known: TaskStatus) -> bool | None:
    """Return whether a status is later than the known one of the same task.

    Returns:
        True or False; None if the order is unknown.
    """
    if known.state.is_terminal:
        return None if status.state is known.state else False
    if status.state.is_terminal:
        return True
    time, before = status.time, known.time
    if time is None or before is None or time == before:
        return None
    return time > before


def is_as_far(status: TaskStatus, streamed: TaskStatus) -> bool:
    """Return whether the status of a stored task is the one that its stream sent, or a later one.

    Without an order, the same state is sufficient.
    """
    newer = is_newer(status, streamed)
    return status.state is streamed.state if newer is None else newer


def was_before(status: TaskStatus, now: TaskStatus) -> bool:
    """Return whether a status that a connection sends is the current one, or an earlier one.

    Without an order, only SUBMITTED is earlier.
    """
    if status == now:
        return True
    newer = is_newer(now, status)
    return status.state is TaskState.SUBMITTED if newer is None else newer


def still_waits(status: TaskStatus, question: TaskStatus) -> bool:
    """Return whether a task waits for the same reply as before.

    Without an order, the messages decide. A status without a message is the same: its message may
    have moved to the history.
    """
    if status.state is not question.state:
        return False
    newer = is_newer(status, question)
    if newer is not None:
        return not newer
    message, asked = status.message, question.message
    if message is None or asked is None:
        return message is None
    if message.message_id and asked.message_id:
        return message.message_id == asked.message_id
    return message == asked
