"""Messages of protocol buffers as values: of the tables' classes, and of anybody's generated ones.

Rules: a value and its message name everything alike in JSON, so that one table per type, made at
its first use from the descriptor and the struct, says it all; what is not set stays so, and an
empty member is there where it was there; what JSON cannot say is an error that names the member.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from msgspec import inspect

from holdfast.model.types import WireValue
from holdfast.wire.protobuf.values import UnfitError, read_struct, read_timestamp, read_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from enum import Enum

    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

__all__ = [
    "Member",
    "enum_of",
    "is_map",
    "is_timestamp",
    "members_of",
    "message_of",
    "present",
    "reader",
    "value_in_map",
]

V = TypeVar("V", bound=WireValue)


class Member(NamedTuple):
    """A member that a message and a value have in common.

    Attributes:
        field: As the message has it.
        info: As the value has it.
    """

    field: FieldDescriptor
    info: inspect.Field


@cache
def reader(kind: type[V], descriptor: Descriptor, *, lenient: bool = False) -> Callable[[Any], V]:
    """Makes what reads the messages of one type.

    Args:
        kind: The type of the values.
        descriptor: The type of the messages.
        lenient: Whether a required member that is not set is an empty one.

    Returns:
        A function of a message, which raises `UnfitError` where it holds what the value cannot.
    """
    rows: dict[FieldDescriptor, tuple[str, Callable[[Any], Any] | None]] = {}
    required: dict[str, Any] = {}
    for field, info in members_of(kind, descriptor):
        rows[field] = info.name, _read_of(field, info.type, lenient=lenient)
        if info.required and lenient:
            required[info.name] = _empty(info.type)
    row_of = rows.get

    def read(message: Any) -> V:
        members = required.copy()
        name = ""
        try:
            for field, member in message.ListFields():
                row = row_of(field)
                if row is not None:  # a newer agent, or SDK, may have more
                    name, convert = row
                    members[name] = member if convert is None else convert(member)
        except UnfitError as error:
            raise error.within(f".{name}") from None
        try:
            return kind(**members)
        except (TypeError, ValueError) as error:  # a member that it needs is not there
            raise UnfitError(str(error)) from None

    return read


def _read_of(
    field: FieldDescriptor, info: inspect.Type, *, lenient: bool
) -> Callable[[Any], Any] | None:
    """What reads a member; None if it is one of Python's own values already."""
    match present(info):
        case inspect.StructType(cls=kind):
            return reader(kind, message_of(field), lenient=lenient)
        case inspect.VarTupleType(item_type=inspect.StructType(cls=kind)):
            return _read_each(reader(kind, message_of(field), lenient=lenient))
        case inspect.VarTupleType(item_type=inspect.DictType()):
            return _read_each(_read_plain(message_of(field)))
        case inspect.VarTupleType():
            return tuple
        case inspect.DictType(value_type=inspect.StructType(cls=kind)):
            return _read_map(reader(kind, value_in_map(field), lenient=lenient))
        case inspect.DictType(value_type=inspect.AnyType()):
            return read_struct
        case inspect.DictType():
            return dict
        case inspect.AnyType():
            return _read_any(field)
        case inspect.EnumType(cls=kind):
            return _read_enum(enum_of(field), kind)
        case _:
            return read_timestamp if is_timestamp(field) else None


def _read_each(read: Callable[[Any], Any]) -> Callable[[Iterable[Any]], tuple[Any, ...]]:
    def read_each(messages: Iterable[Any]) -> tuple[Any, ...]:
        values: list[Any] = []
        try:
            for message in messages:
                values.append(read(message))  # noqa: PERF401  the index is told on failure
        except UnfitError as error:
            raise error.within(f"[{len(values)}]") from None
        return tuple(values)

    return read_each


def _read_map(read: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda messages: {name: read(message) for name, message in messages.items()}


def _read_enum(
    descriptor: EnumDescriptor, kind: Callable[[str], Enum | str]
) -> Callable[[int], Enum | str]:
    known = {value.number: kind(value.name) for value in descriptor.values}

    def read(number: int) -> Enum | str:
        member = known.get(number)
        return kind(str(number)) if member is None else member

    return read


# ── What a value takes as it is in JSON ──────────────────────────────────────────────────────


def _read_any(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    if field.enum_type is not None:
        return _read_enum(enum_of(field), str)
    return None if field.message_type is None else _read_plain(field.message_type)


@cache
def _read_plain(descriptor: Descriptor) -> Callable[[Any], Any]:
    """What reads a message as its JSON."""
    known = _WELL_KNOWN.get(descriptor.full_name)
    if known is not None:
        return known

    def read(message: Any) -> dict[str, Any]:
        members: dict[str, Any] = {}
        name = ""
        try:
            for field, member in message.ListFields():
                name = field.json_name
                members[name] = _plain_member(field)(member)
        except UnfitError as error:
            raise error.within(f".{name}") from None
        return members

    return read


@cache
def _plain_member(field: FieldDescriptor) -> Callable[[Any], Any]:
    if is_map(field):
        return _read_map(_plain_member(message_of(field).fields_by_name["value"]))
    read = _read_any(field) or _same

    def read_one_or_each(member: Any) -> Any:
        # Whether a field is repeated is asked in other words by each release of protobuf.
        return list(_read_each(read)(member)) if hasattr(member, "extend") else read(member)

    return read_one_or_each


def _same(value: Any) -> Any:
    return value


_WELL_KNOWN: Mapping[str, Callable[[Any], Any]] = {
    "google.protobuf.Struct": read_struct,
    "google.protobuf.Value": read_value,
    "google.protobuf.Timestamp": read_timestamp,
}


# ── What descriptors and structs tell ────────────────────────────────────────────────────────


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


def is_timestamp(field: FieldDescriptor) -> bool:
    """Whether a field holds a time."""
    message = field.message_type
    return message is not None and message.full_name == "google.protobuf.Timestamp"


def value_in_map(field: FieldDescriptor) -> Descriptor:
    """The type of the messages in a field that has them by name."""
    return message_of(message_of(field).fields_by_name["value"])


def _empty(info: inspect.Type) -> Any:
    return info.cls() if isinstance(info, inspect.StructType) else ""
