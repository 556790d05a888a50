"""What the descriptor of a message and the type of a value tell of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from msgspec import inspect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

    from holdfast.types import WireValue

__all__ = [
    "Member",
    "enum_of",
    "groups_of",
    "is_map",
    "is_repeated",
    "is_timestamp",
    "members_of",
    "message_of",
    "present",
    "value_in_map",
]


class Member(NamedTuple):
    """A member that a message and a value have in common.

    Attributes:
        field: As the message has it.
        info: As the value has it.
    """

    field: FieldDescriptor
    info: inspect.Field


def members_of(kind: type[WireValue], descriptor: Descriptor) -> list[Member]:
    """The members that both have, by their names in JSON."""
    fields = {field.json_name: field for field in descriptor.fields}
    info = cast("inspect.StructType", inspect.type_info(kind))
    return [
        Member(fields[field.encode_name], field)
        for field in info.fields
        if field.encode_name in fields
    ]


def present(info: inspect.Type) -> inspect.Type:
    """The type of a member that is there."""
    if not isinstance(info, inspect.UnionType):
        return info
    return next(one for one in info.types if not isinstance(one, inspect.NoneType))


def message_of(field: FieldDescriptor) -> Descriptor:
    """The type of a field that holds a message, or some."""
    return cast("Descriptor", field.message_type)


def enum_of(field: FieldDescriptor) -> EnumDescriptor:
    """The type of a field that holds a name."""
    return cast("EnumDescriptor", field.enum_type)


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field holds messages or texts by name."""
    message = field.message_type
    return message is not None and message.GetOptions().map_entry


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether there may be many of a field; each release of protobuf is asked in its own words."""
    told = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if told is None else told)  # type: ignore[attr-defined]


def groups_of(descriptor: Descriptor, names: Mapping[str, str]) -> list[frozenset[str]]:
    """The members of which one is set at most."""
    oneofs = [
        frozenset(names[field.name] for field in oneof.fields if field.name in names)
        for oneof in descriptor.oneofs
    ]
    return [oneof for oneof in oneofs if len(oneof) > 1]


def is_timestamp(field: FieldDescriptor) -> bool:
    """Whether a field holds a time."""
    message = field.message_type
    return message is not None and message.full_name == "google.protobuf.Timestamp"


def value_in_map(field: FieldDescriptor) -> Descriptor:
    """The type of the messages in a field that has them by name."""
    return message_of(message_of(field).fields_by_name["value"])
