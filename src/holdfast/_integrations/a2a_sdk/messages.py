"""The SDK's protobuf messages and Holdfast's values, one made of the other.

Rules: `holdfast._wire.protobuf` does the work; what the other side has no form for is an error
that names the field. The result is what the SDK's own transport makes of the same JSON, and
differs in this only:

- a whole number of a Struct, up to 2**53, leaves as an integer: ``3``, not ``3.0``;
- a time that the SDK refuses is read where Python can read it, in UTC if it names no zone, and
  left out where it cannot;
- a null beside other content of a part is no data;
- JSON may be nested 100 levels deep, and not only about 49.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeVar

from holdfast._model.codec import MalformedError
from holdfast._model.operations import OPERATIONS
from holdfast._wire.protobuf.reading import reader
from holdfast._wire.protobuf.values import UnrepresentableError
from holdfast._wire.protobuf.writing import writer
from holdfast.errors import InvalidAgentResponseError
from holdfast.types import AgentCard, WireValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from a2a.types import a2a_pb2
    from google.protobuf.message import Message as ProtoMessage

    from holdfast.types import Request

__all__ = ["to_card", "to_params", "to_proto", "to_value"]

M = TypeVar("M", bound="ProtoMessage")
V = TypeVar("V", bound=WireValue)


def to_params(message: ProtoMessage) -> Request:
    """The parameters that a request of the SDK stands for; the request is left as it is.

    A required member that is not set is an empty one: the agent says what is wrong with it.

    Args:
        message: Of the type of any operation's request.

    Raises:
        ValueError: A member holds what JSON cannot say, such as NaN; the message names it.
        TypeError: It is no request.
    """
    kind = _requests().get(message.DESCRIPTOR.name)
    if kind is None:
        raise TypeError(f"{type(message).__name__} is not a request of the protocol")
    return to_value(message, kind)


def to_card(card: a2a_pb2.AgentCard) -> AgentCard:
    """The agent card that a card of the SDK is; whether it can be used is not checked.

    Raises:
        ValueError: A member holds what JSON cannot say, such as NaN; the message names it.
    """
    return to_value(card, AgentCard)


def to_value(message: ProtoMessage, kind: type[V]) -> V:
    """The value that a message of the SDK stands for.

    Args:
        message: The message.
        kind: The type of the value, of the same name as the message's.

    Raises:
        ValueError: A member holds what JSON cannot say, such as NaN; the message names it.
    """
    _check_same_name(kind, message)
    read: Callable[[ProtoMessage], V] = reader(kind, message.DESCRIPTOR, lenient=True)
    try:
        return read(message)
    except UnrepresentableError as error:
        raise MalformedError(error.reason, error.path) from None
    except RecursionError:  # the program's own stack is deep already
        raise MalformedError("nested too deeply") from None


def to_proto(value: WireValue, message_type: type[M]) -> M:
    """The message of the SDK for what an agent answered.

    Args:
        value: A task, an event, a page, a configuration, a card; its type has the same name as
            the message's.
        message_type: The type of the message.

    Raises:
        InvalidAgentResponseError: A member has no form there, such as a text that is no Unicode;
            the message names it.
        TypeError: The value is of another type than the message.
    """
    message = message_type()
    _check_same_name(type(value), message)
    write = writer(type(value), message.DESCRIPTOR, lenient=True)
    try:
        write(value, message)
    except UnrepresentableError as error:
        why = f"{error.reason} at {error.path}"
    except RecursionError:  # the program's own stack is deep already
        why = "nested too deeply"
    else:
        return message
    raise InvalidAgentResponseError(
        f"the reply cannot be given in the SDK's types: {why}", executed=True
    )


@cache
def _requests() -> Mapping[str, type[Request]]:
    return {operation.request.__name__: operation.request for operation in OPERATIONS.values()}


def _check_same_name(kind: type, message: ProtoMessage) -> None:
    if kind.__name__ != message.DESCRIPTOR.name:
        raise TypeError(f"a {kind.__name__} is no {message.DESCRIPTOR.name}")
