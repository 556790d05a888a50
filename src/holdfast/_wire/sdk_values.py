"""Conversion of the official SDK's values that callers pass in place of Holdfast's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from holdfast._model.codec import MalformedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message as ProtoMessage

    from holdfast.types import WireValue

__all__ = ["from_sdk"]

_PARTS: Mapping[str, str] = dict.fromkeys(("TextPart", "FilePart", "DataPart"), "Part")
"""Models of the SDK for 0.3 in addition to those named like the protocol's types."""

_PACKAGE = "lf.a2a.v1"
"""Package of the protocol's messages (A2A, a2a.proto), of which the SDK's are made."""


def from_sdk(value: object, kind: type[WireValue]) -> object:
    """Convert a value of the official SDK; return any other value as it is.

    Args:
        value: A protobuf message (a2a-sdk 1.x), a pydantic model (0.3), or any other value.
        kind: Holdfast's type of the same name; a value whose type has another name is returned as
            it is. The three part classes of 0.3 count as `Part`.

    Returns:
        A ``kind`` for a protobuf message, the JSON object of a pydantic model.

    Raises:
        ValueError: A member holds a value that JSON cannot represent, such as NaN; the message
            names it.
    """
    sdk_type = type(value)
    if kind.__name__ not in (sdk_type.__name__, _PARTS.get(sdk_type.__name__)):
        return value
    descriptor: Any = getattr(sdk_type, "DESCRIPTOR", None)
    if getattr(descriptor, "full_name", None) == f"{_PACKAGE}.{kind.__name__}":
        return _from_protobuf(cast("ProtoMessage", value), descriptor, kind)
    dump: Any = getattr(value, "model_dump", None)
    if sdk_type.__module__.partition(".")[0] == "a2a" and callable(dump):
        return dump(mode="json", by_alias=True, exclude_none=True)
    return value


def _from_protobuf(
    message: ProtoMessage, descriptor: Descriptor, kind: type[WireValue]
) -> WireValue:
    from holdfast._wire.protobuf.reading import reader  # needs protobuf
    from holdfast._wire.protobuf.values import UnrepresentableError

    try:
        read: Callable[[ProtoMessage], WireValue] = reader(kind, descriptor, lenient=True)
        return read(message)
    except UnrepresentableError as error:
        raise MalformedError(error.reason, error.path) from None
    except RecursionError:  # the program's own stack is nearly exhausted
        text = "nested too deeply"
        raise MalformedError(text) from None
