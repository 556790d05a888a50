"""An agent card of protocol 1.0 in protocol buffers, as the JSON object that is signed."""

from __future__ import annotations

from typing import Any

from holdfast._model import codec
from holdfast._wire.protobuf.messages import message_type
from holdfast._wire.protobuf.reading import reader
from holdfast._wire.protobuf.schema_v1 import V1
from holdfast._wire.protobuf.values import UnrepresentableError
from holdfast.types import AgentCard

__all__ = ["card_json"]


def card_json(data: bytes) -> dict[str, Any] | None:
    """The JSON object of a card, if all that its message says is in there.

    A signature is made over JSON (A2A 8.4). A message has the same members, so that nothing of
    what was signed is missing, unless it has fields that are not known here.

    Args:
        data: The message, serialized.

    Returns:
        None if it has such fields, or is no card, or cannot be read: without the extra ``grpc``
        none can.
    """
    try:
        kind = message_type(V1.package, AgentCard.__name__)
    except ImportError:
        return None
    from google.protobuf.message import DecodeError, EncodeError

    try:
        message = kind.cls.FromString(data)
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if not size or message.ByteSize() != size:
            return None
        card = reader(AgentCard, kind.descriptor)(message)
        return codec.as_object(codec.to_builtins(card))
    except (DecodeError, EncodeError, RecursionError, UnrepresentableError, codec.MalformedError):
        return None
