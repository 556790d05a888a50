"""Decoding of protobuf messages to values: of the tables' classes, or of generated ones.

Rules: a value and its message have the same member names in JSON, so one table per type, built at
first use from the descriptor and the struct, defines the conversion. Unset members stay unset, and
empty ones stay empty. A value that JSON cannot represent is an error that names the member.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import inspect

from holdfast._wire.protobuf.descriptors import (
    enum_of,
    groups_of,
    is_map,
    is_repeated,
    members_of,
    message_of,
    present,
)
from holdfast._wire.protobuf.fields import LENGTH, MANY, NUMBER, ONE, VARINT, Row, reading
from holdfast._wire.protobuf.values import (
    NeedsSlowPathError,
    UnrepresentableError,
    read_struct,
    read_timestamp,
    read_value,
    signed,
    varint,
)
from holdfast.types import WireValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.message import Message as ProtoMessage

__all__ = ["bytes_reader", "reader"]

V = TypeVar("V", bound=WireValue)

_UNUSUAL = (NeedsSlowPathError, IndexError)


@cache
def reader(
    kind: type[V], descriptor: Descriptor, *, lenient: bool = False
) -> Callable[[ProtoMessage], V]:
    """Make a decoder for messages of one type.

    Args:
        kind: Type of the values.
        descriptor: Type of the messages.
        lenient: An unset required member becomes an empty one.

    Returns:
        A function that converts a message; it raises `UnrepresentableError` if the value cannot
        hold a member.
    """
    read: Callable[[bytes, int, int], V] = bytes_reader(kind, descriptor, lenient=lenient)

    def read_message(message: ProtoMessage) -> V:
        data = message.SerializeToString()
        try:
            return read(data, 0, len(data))
        except _UNUSUAL:  # perhaps because of unknown fields
            known_part = type(message)()
            known_part.CopyFrom(message)
            known_part.DiscardUnknownFields()
        data = known_part.SerializeToString()
        try:
            return read(data, 0, len(data))
        except _UNUSUAL:
            raise UnrepresentableError("it is not a valid message") from None

    return read_message


@cache
def bytes_reader(
    kind: type[V], descriptor: Descriptor, *, lenient: bool = False
) -> Callable[[bytes, int, int], V]:
    """Make a decoder for the bytes of messages of one type, in their usual encoding.

    The arguments are those of `reader`.

    Returns:
        A function of the bytes and the bounds of the message in them. It raises
        `UnrepresentableError`; or `NeedsSlowPathError`, `IndexError` or `UnicodeDecodeError` if
        protobuf has to decode the message.
    """
    rows: dict[int, Row] = {}
    required: dict[str, Any] = {}
    for field, info in members_of(kind, descriptor):
        tag, row = _row_of(field, info.name, present(info.type), lenient=lenient)
        rows[tag] = row
        if info.required and lenient:
            required[info.name] = _empty(info.type)
    groups = groups_of(
        descriptor, {field.name: info.name for field, info in members_of(kind, descriptor)}
    )

    def build(members: dict[str, Any]) -> V:
        try:
            return kind(**{**required, **members}) if required else kind(**members)
        except (TypeError, ValueError) as error:  # a required member is missing
            raise UnrepresentableError(str(error)) from None

    return reading(rows, groups, build, tuple)


# ── Rows of the table ────────────────────────────────────────────────────────────────────────

_32_BITS, _64_BITS = 2**32 - 1, 2**64 - 1


def _row_of(
    field: FieldDescriptor, name: str, info: inspect.Type, *, lenient: bool
) -> tuple[int, Row]:
    """Return a field's tag, and how to decode the field."""
    if is_map(field):
        value_field = message_of(field).fields_by_name["value"]
        value_type = info.value_type if isinstance(info, inspect.DictType) else inspect.AnyType()
        _, value_row = _row_of(value_field, "value", value_type, lenient=lenient)
        convert = _text if value_field.type == field.TYPE_STRING else value_row.convert
        return _tag(field, LENGTH), Row(name, MANY, _entry(convert), is_map=True)
    if isinstance(info, inspect.VarTupleType):
        _, item_row = _row_of(field, name, info.item_type, lenient=lenient)
        convert = _text if field.type == field.TYPE_STRING else item_row.convert
        return _tag(field, LENGTH), Row(name, MANY, convert)
    if field.message_type is not None:
        return _tag(field, LENGTH), Row(name, ONE, _message(field, info, lenient=lenient))
    if field.type == field.TYPE_STRING:
        convert = _text if field.has_presence else _nonempty_text
        return _tag(field, LENGTH), Row(name, ONE, convert)
    if field.type == field.TYPE_BYTES:
        return _tag(field, LENGTH), Row(name, ONE, _bytes)
    return _tag(field, VARINT), Row(name, NUMBER, _number_of(field, info))


def _tag(field: FieldDescriptor, wire_type: int) -> int:
    return field.number << 3 | wire_type


def _message(
    field: FieldDescriptor, info: inspect.Type, *, lenient: bool
) -> Callable[[bytes, int, int], Any]:
    """Return the decoder of a nested message."""
    well_known = _WELL_KNOWN.get(message_of(field).full_name)
    if well_known is not None:
        return well_known
    if isinstance(info, inspect.StructType):
        return bytes_reader(info.cls, message_of(field), lenient=lenient)
    return _json_reader(message_of(field))


@cache
def _json_reader(descriptor: Descriptor) -> Callable[[bytes, int, int], dict[str, Any]]:
    """Return a decoder of a message to its JSON object, for a member without a type of its own."""
    rows: dict[int, Row] = {}
    for field in descriptor.fields:
        info: inspect.Type = inspect.AnyType()
        if not is_map(field) and is_repeated(field):
            info = inspect.VarTupleType(info)
        tag, row = _row_of(field, field.json_name, info, lenient=False)
        rows[tag] = row
    groups = groups_of(descriptor, {field.name: field.json_name for field in descriptor.fields})
    return reading(rows, groups, _unchanged, list)


def _unchanged(value: Any) -> Any:
    return value


def _text(data: bytes, position: int, end: int) -> str:
    return data[position:end].decode()


def _nonempty_text(data: bytes, position: int, end: int) -> str:
    if position == end:
        raise NeedsSlowPathError  # an empty text is usually omitted
    return data[position:end].decode()


def _bytes(data: bytes, position: int, end: int) -> bytes:
    return data[position:end]


def _number_of(field: FieldDescriptor, info: inspect.Type) -> Callable[[int], Any]:
    """Return the converter of a number; unset zeros are usually omitted."""
    if field.enum_type is not None:
        kind = info.cls if isinstance(info, inspect.EnumType) else str
        convert = _enum_reader(enum_of(field), kind)
    elif field.type == field.TYPE_BOOL:
        convert = bool
    else:
        convert = _int32
    if field.has_presence:
        return convert
    significant = _64_BITS if convert is bool else _32_BITS

    def read(number: int) -> Any:
        if not number & significant:
            raise NeedsSlowPathError
        return convert(number)

    return read


def _int32(number: int) -> int:
    return number if number < 2**31 else signed(number, 32)


def _enum_reader(descriptor: EnumDescriptor, kind: Callable[[str], Any]) -> Callable[[int], Any]:
    members = {value.number: kind(value.name) for value in descriptor.values}

    def read(number: int) -> Any:
        member = members.get(number)
        if member is not None:
            return member
        number = signed(number, 32)
        return members.get(number) or kind(str(number))

    return read


def _entry(
    convert: Callable[[bytes, int, int], Any],
) -> Callable[[bytes, int, int], tuple[str, Any]]:
    """Return the decoder of a map entry with key and value, as it is usually written."""

    def read(data: bytes, position: int, end: int) -> tuple[str, Any]:
        key, position = _part(data, position, end, 0x0A)
        value, position = _part(data, position, end, 0x12)
        if position != end:
            raise NeedsSlowPathError
        return data[key].decode(), convert(data, value.start, value.stop)

    return read


def _part(data: bytes, position: int, end: int, tag: int) -> tuple[slice, int]:
    if data[position] != tag:
        raise NeedsSlowPathError
    length, position = varint(data, position + 1)
    if position + length > end:
        raise NeedsSlowPathError
    return slice(position, position + length), position + length


_WELL_KNOWN: Mapping[str, Callable[[bytes, int, int], Any]] = {
    "google.protobuf.Struct": read_struct,
    "google.protobuf.Value": read_value,
    "google.protobuf.Timestamp": read_timestamp,
}


def _empty(info: inspect.Type) -> Any:
    return info.cls() if isinstance(info, inspect.StructType) else ""
