"""Messages with ids of their own, and what the events of a stream add up to."""

import uuid

from holdfast import Message, Part, Role
from holdfast._stream.fold import TaskFold

__all__ = ["fold_of", "message_of"]


def message_of(text, message_id=None, **members):
    """A user's message of one text."""
    name = message_id or str(uuid.uuid4())
    return Message(message_id=name, role=Role.USER, parts=(Part(text=text),), **members)


def fold_of(events):
    """The fold that the events of a stream add up to."""
    fold = TaskFold()
    for event in events:
        fold.add(event)
    return fold
