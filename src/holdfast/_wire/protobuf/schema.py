"""Types of the tables of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OF_PROTOBUF", "Field", "Schema"]

OF_PROTOBUF: Mapping[str, str] = {
    "Empty": "google/protobuf/empty.proto",
    "Struct": "google/protobuf/struct.proto",
    "Timestamp": "google/protobuf/timestamp.proto",
    "Value": "google/protobuf/struct.proto",
}
"""protobuf's own messages that the tables use, and the files that define them."""


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: Number of the field on the wire.
        name: Name of the field.
        type: Type in the syntax of protocol buffers: ``string``, ``optional int32``, ``repeated
            Part``, ``map<string, StringList>``.
        oneof: Group of which at most one field is set.
        json: Name in JSON, if it is not `name` in camel case.
    """

    number: int
    name: str
    type: str
    oneof: str | None = None
    json: str | None = None


class Schema(NamedTuple):
    """Messages of one package.

    Attributes:
        package: Name of the package.
        messages: Fields of each message.
        enums: Names of each enumeration's values, numbered from 0.
    """

    package: str
    messages: Mapping[str, tuple[Field, ...]]
    enums: Mapping[str, tuple[str, ...]]
