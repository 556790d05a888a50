"""Agent cards of protocol 1.0 in protocol buffers, as the JSON object that is signed."""

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
    """Return the JSON object of a card, if it represents the whole message.

    A signature is made over JSON (A2A 8.4). A message has the same members, so that the JSON is
    complete unless the message has unknown fields.

    Args:
        data: The serialized message.

    Returns:
        None if it has unknown fields, is not a card, is malformed, or the extra ``grpc`` is not
        installed.
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
