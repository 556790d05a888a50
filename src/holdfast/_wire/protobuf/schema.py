"""What a table of messages holds."""

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
"""protobuf's own messages that the tables name, and the files that they are in."""


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: Its number, which is what goes over the wire.
        name: Its name.
        type: In the words of the language of protocol buffers: ``string``, ``optional int32``,
            ``repeated Part``, ``map<string, StringList>``.
        oneof: The group that it is one of, of which one is set at most.
        json: Its name in JSON, where that is not `name` in camel case.
    """

    number: int
    name: str
    type: str
    oneof: str | None = None
    json: str | None = None


class Schema(NamedTuple):
    """The messages of one package.

    Attributes:
        package: Its name.
        messages: The fields of each message.
        enums: The names of each enumeration, which are numbered from 0.
    """

    package: str
    messages: Mapping[str, tuple[Field, ...]]
    enums: Mapping[str, tuple[str, ...]]
