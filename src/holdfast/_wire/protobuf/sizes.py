"""How much a message holds, told before it is read: to read it takes many times its size.

Only what is large is looked at, field by field, and no further than what is allowed.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from holdfast._wire.limits import exceeded
from holdfast._wire.protobuf.values import UnusualError, varint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.descriptor import Descriptor

    from holdfast._wire.limits import Limits

__all__ = ["check_values"]

_SMALLEST = 2
"""Bytes that a field takes at least: its number, and its value or its length."""


def check_values(body: bytes, descriptor: Descriptor, limits: Limits) -> None:
    """Checks how many values a message holds: each field on the wire is one.

    A message that is none passes: whoever reads it says so.

    Args:
        body: The message, serialized.
        descriptor: Its type.
        limits: The bounds.

    Raises:
        LimitExceededError: It holds too many.
    """
    if len(body) < _SMALLEST * limits.json_values:
        return
    try:
        found = _count(body, descriptor, limits.json_values)
    except (IndexError, UnusualError):
        return
    if found > limits.json_values:
        what = f"the reply holds more than {limits.json_values} values"
        raise exceeded("json_values", limits, what)


def _count(body: bytes, descriptor: Descriptor, most: int) -> int:
    """How many fields there are, as far as it matters; messages in messages are looked into."""
    found = 0
    within: list[tuple[int, int, Descriptor]] = [(0, len(body), descriptor)]
    while within:
        at, end, kind = within.pop()
        inner = _messages_in(kind)
        while at < end and found <= most:
            found += 1
            tag, at = body[at], at + 1
            if tag > 0x7F:
                tag, at = varint(body, at - 1)
            match tag & 7:
                case 0:
                    _, at = varint(body, at)
                case 1:
                    at += 8
                case 2:
                    length, at = varint(body, at)
                    message = inner.get(tag >> 3)
                    if message is not None:
                        within.append((at, min(at + length, end), message))
                    at += length
                case 5:
                    at += 4
                case _:
                    pass  # the ends of a group, which nothing here has
    return found


@cache
def _messages_in(descriptor: Descriptor) -> Mapping[int, Descriptor]:
    """The fields that hold messages, by number."""
    return {
        field.number: field.message_type
        for field in descriptor.fields
        if field.message_type is not None
    }
