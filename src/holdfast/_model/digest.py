"""Digests of messages, to recognize a repeated one."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from holdfast.types import Message

__all__ = ["message_digest"]


def message_digest(message: Message) -> str:
    """Return a digest of a message without its id, as 16 hexadecimal digits.

    Empty and missing members are equal, and the order of members does not matter.
    """
    content = msgspec.structs.replace(
        message,
        message_id="",
        context_id=message.context_id or None,
        task_id=message.task_id or None,
        metadata=message.metadata or None,
    )
    text = json.dumps(content.to_dict(), sort_keys=True)  # escapes lone surrogates
    return blake2b(text.encode(), digest_size=8).hexdigest()
