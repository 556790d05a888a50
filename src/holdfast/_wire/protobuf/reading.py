"""Messages of protocol buffers as values: of the tables' types, and of anybody's generated ones.

Rules: a value and its message name everything alike in JSON, so that one table per type, made at
its first use from the descriptor and the struct, says it all; what is not set stays so, and an
empty member is there where it was there; what JSON cannot say is an error that names the member.
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

_NOT_PLAIN = (NeedsSlowPathError, IndexError)


@cache
def reader(
    kind: type[V], descriptor: Descriptor, *, lenient: bool = False
) -> Callable[[ProtoMessage], V]:
    """Makes what reads the messages of one type.

    Args:
        kind: The type of the values.
        descriptor: The type of the messages.
        lenient: Whether a required member that is not set is an empty one.

    Returns:
        A function of a message, which raises `UnrepresentableError` where it holds what the value
        cannot.
    """
    read: Callable[[bytes, int, int], V] = bytes_reader(kind, descriptor, lenient=lenient)

    def read_message(message: ProtoMessage) -> V:
        data = message.SerializeToString()
        try:
            return read(data, 0, len(data))
        except _NOT_PLAIN:  # for what it has that nobody knows
            plain = type(message)()
            plain.CopyFrom(message)
            plain.DiscardUnknownFields()
        data = plain.SerializeToString()
        try:
            return read(data, 0, len(data))
        except _NOT_PLAIN:
            raise UnrepresentableError("it is not written as messages are") from None

    return read_message


@cache
def bytes_reader(
    kind: type[V], descriptor: Descriptor, *, lenient: bool = False
) -> Callable[[bytes, int, int], V]:
    """Makes what reads the bytes of messages of one type, as they are usually written.

    The arguments are those of `reader`.

    Returns:
        A function of the bytes and of where the message begins and ends in them. It raises
        `UnrepresentableError`, and `NeedsSlowPathError` or what Python says of bytes that are no
        text or are not there where protobuf has to say what the message is.
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
        except (TypeError, ValueError) as error:  # a member that it needs is not there
            raise UnrepresentableError(str(error)) from None

    return reading(rows, groups, build, tuple)


# ── The rows ─────────────────────────────────────────────────────────────────────────────────

_32_BITS, _64_BITS = 2**32 - 1, 2**64 - 1


def _row_of(
    field: FieldDescriptor, name: str, info: inspect.Type, *, lenient: bool
) -> tuple[int, Row]:
    """What is done with a field, and the number that it begins with."""
    if is_map(field):
        key_and_value = message_of(field).fields_by_name["value"]
        value_type = info.value_type if isinstance(info, inspect.DictType) else inspect.AnyType()
        _, value = _row_of(key_and_value, "value", value_type, lenient=lenient)
        convert = _text if key_and_value.type == field.TYPE_STRING else value.convert
        return _tag(field, LENGTH), Row(name, MANY, _entry(convert), is_map=True)
    if isinstance(info, inspect.VarTupleType):
        _, one = _row_of(field, name, info.item_type, lenient=lenient)
        convert = _text if field.type == field.TYPE_STRING else one.convert
        return _tag(field, LENGTH), Row(name, MANY, convert)
    if field.message_type is not None:
        return _tag(field, LENGTH), Row(name, ONE, _message(field, info, lenient=lenient))
    if field.type == field.TYPE_STRING:
        convert = _text if field.has_presence else _text_that_is_there
        return _tag(field, LENGTH), Row(name, ONE, convert)
    if field.type == field.TYPE_BYTES:
        return _tag(field, LENGTH), Row(name, ONE, _bytes)
    return _tag(field, VARINT), Row(name, NUMBER, _number_of(field, info))


def _tag(field: FieldDescriptor, wire_type: int) -> int:
    return field.number << 3 | wire_type


def _message(
    field: FieldDescriptor, info: inspect.Type, *, lenient: bool
) -> Callable[[bytes, int, int], Any]:
    """What reads the bytes of a message within another."""
    known = _WELL_KNOWN.get(message_of(field).full_name)
    if known is not None:
        return known
    if isinstance(info, inspect.StructType):
        return bytes_reader(info.cls, message_of(field), lenient=lenient)
    return _plain(message_of(field))


@cache
def _plain(descriptor: Descriptor) -> Callable[[bytes, int, int], dict[str, Any]]:
    """What reads a message as its JSON, for a value that takes it so."""
    rows: dict[int, Row] = {}
    for field in descriptor.fields:
        info: inspect.Type = inspect.AnyType()
        if not is_map(field) and is_repeated(field):
            info = inspect.VarTupleType(info)
        tag, row = _row_of(field, field.json_name, info, lenient=False)
        rows[tag] = row
    groups = groups_of(descriptor, {field.name: field.json_name for field in descriptor.fields})
    return reading(rows, groups, _same, list)


def _same(value: Any) -> Any:
    return value


def _text(data: bytes, at: int, end: int) -> str:
    return data[at:end].decode()


def _text_that_is_there(data: bytes, at: int, end: int) -> str:
    if at == end:
        raise NeedsSlowPathError  # one that is not set is not written
    return data[at:end].decode()


def _bytes(data: bytes, at: int, end: int) -> bytes:
    return data[at:end]


def _number_of(field: FieldDescriptor, info: inspect.Type) -> Callable[[int], Any]:
    """What reads a number; a zero that is not set is not written."""
    if field.enum_type is not None:
        kind = info.cls if isinstance(info, inspect.EnumType) else str
        convert = _name_of(enum_of(field), kind)
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


def _name_of(descriptor: EnumDescriptor, kind: Callable[[str], Any]) -> Callable[[int], Any]:
    known = {value.number: kind(value.name) for value in descriptor.values}

    def read(number: int) -> Any:
        member = known.get(number)
        if member is not None:
            return member
        number = signed(number, 32)
        return known.get(number) or kind(str(number))

    return read


def _entry(
    convert: Callable[[bytes, int, int], Any],
) -> Callable[[bytes, int, int], tuple[str, Any]]:
    """What reads a name and what is under it; both are there, as they are always written."""

    def read(data: bytes, at: int, end: int) -> tuple[str, Any]:
        key, at = _part(data, at, end, 0x0A)
        found, at = _part(data, at, end, 0x12)
        if at != end:
            raise NeedsSlowPathError
        return data[key].decode(), convert(data, found.start, found.stop)

    return read


def _part(data: bytes, at: int, end: int, tag: int) -> tuple[slice, int]:
    if data[at] != tag:
        raise NeedsSlowPathError
    length, at = varint(data, at + 1)
    if at + length > end:
        raise NeedsSlowPathError
    return slice(at, at + length), at + length


_WELL_KNOWN: Mapping[str, Callable[[bytes, int, int], Any]] = {
    "google.protobuf.Struct": read_struct,
    "google.protobuf.Value": read_value,
    "google.protobuf.Timestamp": read_timestamp,
}


def _empty(info: inspect.Type) -> Any:
    return info.cls() if isinstance(info, inspect.StructType) else ""
