"""Conversion between the SDK's protobuf messages and Holdfast's values.

Rules: `holdfast._wire.protobuf` converts; a value that the other side cannot represent is an error
that names the field. The result equals that of the SDK's own transport for the same JSON, with
these differences:

- a whole number of a Struct, up to 2**53, leaves as an integer: ``3``, not ``3.0``;
- a time that the SDK refuses is read if Python can read it, in UTC if it has no zone, and
  omitted otherwise;
- a null beside other content of a part is no data;
- JSON may be nested 100 levels deep, instead of about 49.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, TypeVar, cast

from google.protobuf.message import Message as ProtobufMessage

from holdfast import types
from holdfast._model.codec import MalformedError
from holdfast._wire.protobuf.reading import reader
from holdfast._wire.protobuf.values import UnrepresentableError
from holdfast._wire.protobuf.writing import writer
from holdfast.client import Answer
from holdfast.errors import InvalidAgentResponseError
from holdfast.protocol import OPERATIONS
from holdfast.types import AgentCard, WireValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from a2a.types import a2a_pb2
    from google.protobuf.message import Message as ProtoMessage

    from holdfast.types import Request

__all__ = ["to_card", "to_params", "to_proto", "to_value"]

M = TypeVar("M", bound="ProtoMessage")
V = TypeVar("V", bound=WireValue)


def to_params(message: ProtoMessage) -> Request:
    """Return the parameters of a request of the SDK, which is not changed.

    A required member that is not set is empty: the agent reports the error.

    Args:
        message: The request of any operation.

    Raises:
        ValueError: A member holds a value that JSON lacks, such as NaN; the message names it.
        TypeError: It is not a request.
    """
    kind = _requests().get(message.DESCRIPTOR.name)
    if kind is None:
        raise TypeError(f"{type(message).__name__} is not an A2A request")
    return to_value(message, kind)


def to_card(card: a2a_pb2.AgentCard) -> AgentCard:
    """Return the agent card for a card of the SDK, without checking that it is usable.

    Raises:
        ValueError: A member holds a value that JSON lacks, such as NaN; the message names it.
    """
    return to_value(card, AgentCard)


def to_value(message: ProtoMessage, kind: type[V]) -> V:
    """Return the value of a message of the SDK.

    Args:
        message: The message.
        kind: The type of the value; it has the same name as the message's type.

    Raises:
        ValueError: A member holds a value that JSON lacks, such as NaN; the message names it.
        TypeError: It is not a message of the SDK, or ``kind`` is not the class of `holdfast.types`
            of the same name.
    """
    if not isinstance(cast("object", message), ProtobufMessage):
        given = _described(message)
        text = f"message must be a message of the official SDK, not {given}"
        if isinstance(message, Mapping):
            text += f"; for a JSON object, use holdfast.types.{kind.__name__}.from_dict(…)"
        raise TypeError(text)
    if not _is_subclass(kind, WireValue):
        expected = f"holdfast.types.{message.DESCRIPTOR.name}"
        raise TypeError(f"kind must be a class of holdfast.types; pass {expected}")
    _check_same_name(kind, message)
    read: Callable[[ProtoMessage], V] = reader(kind, message.DESCRIPTOR, lenient=True)
    try:
        return read(message)
    except UnrepresentableError as error:
        raise MalformedError(error.reason, error.path) from None
    except RecursionError:  # the caller's stack is deep already
        raise MalformedError("nested too deeply") from None


def to_proto(value: WireValue, message_type: type[M]) -> M:
    """Return the message of the SDK for an answer of an agent.

    Args:
        value: A task, an event, a page, a configuration, a card; its type has the same name as
            the message's.
        message_type: The type of the message.

    Raises:
        InvalidAgentResponseError: A member cannot be represented, such as a text that is not valid
            Unicode; the message names it.
        TypeError: The value and the message are of different types.
    """
    is_answer = isinstance(value, Answer)
    if is_answer or not isinstance(cast("object", value), WireValue):
        hint = "; pass its task or its message" if is_answer else ""
        raise TypeError(f"value must be of holdfast.types, not {_described(value)}{hint}")
    if not _is_subclass(message_type, ProtobufMessage):
        expected = f"a2a.types.{type(value).__name__}"
        raise TypeError(f"message_type must be a class of the official SDK; pass {expected}")
    message = message_type()
    _check_same_name(type(value), message)
    write = writer(type(value), message.DESCRIPTOR, lenient=True)
    try:
        write(value, message)
    except UnrepresentableError as error:
        cause = f"{error.reason} at {error.path}"
    except RecursionError:  # the caller's stack is deep already
        cause = "nested too deeply"
    else:
        return message
    raise InvalidAgentResponseError(
        f"the reply cannot be converted to the SDK's types: {cause}", executed=True
    )


@cache
def _requests() -> Mapping[str, type[Request]]:
    return {operation.request.__name__: operation.request for operation in OPERATIONS.values()}


def _is_subclass(kind: object, base: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, base)


def _check_same_name(kind: type, message: ProtoMessage) -> None:
    name = message.DESCRIPTOR.name
    if kind.__name__ == name:
        return
    member = _member_of(name, kind)
    hint = f"; pass holdfast.types.{name}({member}=…)" if member else ""
    raise TypeError(f"holdfast.types.{kind.__name__} is not a2a.types.{name}{hint}")


def _member_of(name: str, kind: type) -> str | None:
    """Return the member of an envelope, such as `StreamResponse`, that takes a value."""
    envelope = getattr(types, name, None)
    members = {"Task": "task", "Message": "message"}
    if envelope is types.StreamResponse:
        members |= {
            "TaskStatusUpdateEvent": "status_update",
            "TaskArtifactUpdateEvent": "artifact_update",
        }
    elif envelope is not types.SendMessageResponse:
        return None
    return members.get(kind.__name__)


def _described(value: object) -> str:
    """Name the class of a rejected value with its library."""
    kind = type(value)
    if isinstance(value, ProtobufMessage):
        return f"a2a.types.{kind.__name__}"
    is_public = getattr(types, kind.__name__, None) is kind
    return f"holdfast.types.{kind.__name__}" if is_public else kind.__name__
