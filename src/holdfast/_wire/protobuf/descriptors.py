"""Matching of the members of message descriptors and of the model's types."""

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
    """Member that a message and a value have in common.

    Attributes:
        field: The member's field in the message.
        info: The member's field in the value.
    """

    field: FieldDescriptor
    info: inspect.Field


def members_of(kind: type[WireValue], descriptor: Descriptor) -> list[Member]:
    """Return the members that both have, matched by their names in JSON."""
    fields = {field.json_name: field for field in descriptor.fields}
    info = cast("inspect.StructType", inspect.type_info(kind))
    return [
        Member(fields[field.encode_name], field)
        for field in info.fields
        if field.encode_name in fields
    ]


def present(info: inspect.Type) -> inspect.Type:
    """Return the type of a member without None."""
    if not isinstance(info, inspect.UnionType):
        return info
    return next(kind for kind in info.types if not isinstance(kind, inspect.NoneType))


def message_of(field: FieldDescriptor) -> Descriptor:
    """Return the message type of a field that holds one or more messages."""
    return cast("Descriptor", field.message_type)


def enum_of(field: FieldDescriptor) -> EnumDescriptor:
    """Return the enum type of a field."""
    return cast("EnumDescriptor", field.enum_type)


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a field is a map."""
    message = field.message_type
    return message is not None and message.GetOptions().map_entry


def is_repeated(field: FieldDescriptor) -> bool:
    """Return whether a field is repeated, by the API of the installed protobuf release."""
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)  # type: ignore[attr-defined]


def groups_of(descriptor: Descriptor, names: Mapping[str, str]) -> list[frozenset[str]]:
    """Return the sets of members of which at most one is set."""
    oneofs = [
        frozenset(names[field.name] for field in oneof.fields if field.name in names)
        for oneof in descriptor.oneofs
    ]
    return [oneof for oneof in oneofs if len(oneof) > 1]


def is_timestamp(field: FieldDescriptor) -> bool:
    """Return whether a field holds a timestamp."""
    message = field.message_type
    return message is not None and message.full_name == "google.protobuf.Timestamp"


def value_in_map(field: FieldDescriptor) -> Descriptor:
    """Return the message type of a map's values."""
    return message_of(message_of(field).fields_by_name["value"])
