"""Digests of messages: whether two say the same."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from holdfast.types import Message

__all__ = ["message_digest"]


def message_digest(message: Message) -> str:
    """A digest of all that a message says but its own id, in 16 hexadecimal digits.

    What is empty says what is missing says, and members of objects have no order.
    """
    said = msgspec.structs.replace(
        message,
        message_id="",
        context_id=message.context_id or None,
        task_id=message.task_id or None,
        metadata=message.metadata or None,
    )
    text = json.dumps(said.to_dict(), sort_keys=True)  # a lone surrogate in it is escaped
    return blake2b(text.encode(), digest_size=8).hexdigest()
