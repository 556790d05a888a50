"""Messages of protocol buffers as values: of the tables' types, and of anybody's generated ones.

Rules: a value and its message name everything alike in JSON, so that one table per type, made at
its first use from the descriptor and the struct, says it all; what is not set stays so, and an
empty member is there where it was there; what JSON cannot say is an error that names the member.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from msgspec import inspect

from holdfast.model.types import WireValue
from holdfast.wire.protobuf.values import (
    UnfitError,
    UnusualError,
    read_struct,
    read_timestamp,
    read_value,
    signed,
    varint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.message import Message as ProtoMessage

__all__ = [
    "Member",
    "bytes_reader",
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


class _Row(NamedTuple):
    """A field as it usually comes over the wire.

    Attributes:
        name: The member that it goes into.
        how: What is done with it.
        convert: Makes a value of its number, or of where its bytes are.
        is_map: Whether its items have names.
    """

    name: str
    how: int
    convert: Callable[..., Any]
    is_map: bool = False


_NUMBER, _ONE, _MANY = range(3)
"""How a field is read: as a number, or from its bytes; of these, whether there may be more."""

_NOT_PLAIN = (UnusualError, IndexError)


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
        A function of a message, which raises `UnfitError` where it holds what the value cannot.
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
            raise UnfitError("it is not written as messages are") from None

    return read_message


@cache
def bytes_reader(
    kind: type[V], descriptor: Descriptor, *, lenient: bool = False
) -> Callable[[bytes, int, int], V]:
    """Makes what reads the bytes of messages of one type, as they are usually written.

    The arguments are those of `reader`.

    Returns:
        A function of the bytes and of where the message begins and ends in them. It raises
        `UnfitError`, and `UnusualError` or what Python says of bytes that are no text or are not
        there where protobuf has to say what the message is.
    """
    rows: dict[int, _Row] = {}
    required: dict[str, Any] = {}
    for field, info in members_of(kind, descriptor):
        tag, row = _row_of(field, info.name, present(info.type), lenient=lenient)
        rows[tag] = row
        if info.required and lenient:
            required[info.name] = _empty(info.type)
    groups = _groups(
        descriptor, {field.name: info.name for field, info in members_of(kind, descriptor)}
    )

    def build(members: dict[str, Any]) -> V:
        try:
            return kind(**{**required, **members}) if required else kind(**members)
        except (TypeError, ValueError) as error:  # a member that it needs is not there
            raise UnfitError(str(error)) from None

    return _reading(rows, groups, build, tuple)


def _reading(
    rows: Mapping[int, _Row],
    groups: Sequence[frozenset[str]],
    build: Callable[[dict[str, Any]], Any],
    sequence: Callable[[list[Any]], Any],
) -> Callable[[bytes, int, int], Any]:
    """Makes what reads the bytes of messages.

    Args:
        rows: What is done with each field, by the number that it begins with.
        groups: Members of which one is set at most.
        build: Makes the value of its members.
        sequence: Makes what a member with many items holds.
    """
    row_of = rows.get
    many = _many_of(rows, sequence)

    def read(data: bytes, at: int, end: int) -> Any:
        members: dict[str, Any] = {}
        name = ""
        try:
            while at < end:
                began, tag, number, at = at, data[at], data[at + 1], at + 2
                if tag > 0x7F or number > 0x7F:
                    tag, number, at = _large(data, began)
                row = row_of(tag)
                if row is None:  # a newer agent, or SDK, may have more
                    at = _behind(data, began)
                    continue
                name, how, convert, _ = row
                if how == _NUMBER:
                    members[name] = convert(number)
                    continue
                stop = at + number
                if stop > end or (how == _ONE and name in members):
                    raise UnusualError
                if how == _ONE:
                    members[name] = convert(data, at, stop)
                else:
                    members.setdefault(name, []).append(convert(data, at, stop))
                at = stop
        except UnfitError as error:
            raise _placed(error, name, members) from None
        if at != end or not _are_alone(members, groups):
            raise UnusualError
        return build(_whole(members, many))

    return read


def _many_of(
    rows: Mapping[int, _Row], sequence: Callable[[list[Any]], Any]
) -> list[tuple[str, Callable[[list[Any]], Any]]]:
    """The members that hold many items, and what is made of a list of them."""
    found = (row for row in rows.values() if row.how == _MANY)
    return [(row.name, dict if row.is_map else sequence) for row in found]


def _large(data: bytes, at: int) -> tuple[int, int, int]:
    """What a field begins with, and the number behind it, where they take more than a byte."""
    tag, behind = varint(data, at)
    if tag > _32_BITS or behind - at > _LONGEST_TAG:
        raise UnusualError
    number, at = varint(data, behind)
    return tag, number, at


def _behind(data: bytes, at: int) -> int:
    """Where the next thing begins behind a field that nobody wants."""
    tag, at = varint(data, at)
    size = _FIXED.get(tag & 7)
    if tag < 8 or size is None:
        raise UnusualError
    if size:
        return at + size
    number, at = varint(data, at)
    return at + number if tag & 7 == _LENGTH else at


def _placed(error: UnfitError, name: str, members: Mapping[str, Any]) -> UnfitError:
    """An error in a member, or in the next item of it."""
    items: Any = members.get(name)
    if isinstance(items, list):
        error.within(f"[{len(cast('list[Any]', items))}]")
    return error.within(f".{name}")


def _whole(
    members: dict[str, Any], many: Sequence[tuple[str, Callable[[list[Any]], Any]]]
) -> dict[str, Any]:
    """The members, when all items of those are there that hold many."""
    for name, of_items in many:
        if name in members:
            members[name] = of_items(members[name])
    return members


def _are_alone(members: Mapping[str, Any], groups: Sequence[frozenset[str]]) -> bool:
    """Whether of each group one member is set at most."""
    return all(len(group & members.keys()) < 2 for group in groups)


# ── The rows ─────────────────────────────────────────────────────────────────────────────────

_32_BITS, _64_BITS = 2**32 - 1, 2**64 - 1
_LONGEST_TAG = 5
_VARINT, _LENGTH = 0, 2
"""How values are written."""

_FIXED: Mapping[int, int] = {_VARINT: 0, 1: 8, _LENGTH: 0, 5: 4}
"""How many bytes a value has; 0 where it says so itself."""


def _row_of(
    field: FieldDescriptor, name: str, info: inspect.Type, *, lenient: bool
) -> tuple[int, _Row]:
    """What is done with a field, and the number that it begins with."""
    if is_map(field):
        key_and_value = message_of(field).fields_by_name["value"]
        value_type = info.value_type if isinstance(info, inspect.DictType) else inspect.AnyType()
        _, value = _row_of(key_and_value, "value", value_type, lenient=lenient)
        convert = _text if key_and_value.type == field.TYPE_STRING else value.convert
        return _tag(field, _LENGTH), _Row(name, _MANY, _entry(convert), is_map=True)
    if isinstance(info, inspect.VarTupleType):
        _, one = _row_of(field, name, info.item_type, lenient=lenient)
        convert = _text if field.type == field.TYPE_STRING else one.convert
        return _tag(field, _LENGTH), _Row(name, _MANY, convert)
    if field.message_type is not None:
        return _tag(field, _LENGTH), _Row(name, _ONE, _message(field, info, lenient=lenient))
    if field.type == field.TYPE_STRING:
        convert = _text if field.has_presence else _text_that_is_there
        return _tag(field, _LENGTH), _Row(name, _ONE, convert)
    if field.type == field.TYPE_BYTES:
        return _tag(field, _LENGTH), _Row(name, _ONE, _bytes)
    return _tag(field, _VARINT), _Row(name, _NUMBER, _number_of(field, info))


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
    rows: dict[int, _Row] = {}
    for field in descriptor.fields:
        info: inspect.Type = inspect.AnyType()
        if not is_map(field) and is_repeated(field):
            info = inspect.VarTupleType(info)
        tag, row = _row_of(field, field.json_name, info, lenient=False)
        rows[tag] = row
    groups = _groups(descriptor, {field.name: field.json_name for field in descriptor.fields})
    return _reading(rows, groups, _same, list)


def _same(value: Any) -> Any:
    return value


def _text(data: bytes, at: int, end: int) -> str:
    return data[at:end].decode()


def _text_that_is_there(data: bytes, at: int, end: int) -> str:
    if at == end:
        raise UnusualError  # one that is not set is not written
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
            raise UnusualError
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
            raise UnusualError
        return data[key].decode(), convert(data, found.start, found.stop)

    return read


def _part(data: bytes, at: int, end: int, tag: int) -> tuple[slice, int]:
    if data[at] != tag:
        raise UnusualError
    length, at = varint(data, at + 1)
    if at + length > end:
        raise UnusualError
    return slice(at, at + length), at + length


_WELL_KNOWN: Mapping[str, Callable[[bytes, int, int], Any]] = {
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


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether there may be many of a field; each release of protobuf is asked in its own words."""
    told = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if told is None else told)  # type: ignore[attr-defined]


def _groups(descriptor: Descriptor, names: Mapping[str, str]) -> list[frozenset[str]]:
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


def _empty(info: inspect.Type) -> Any:
    return info.cls() if isinstance(info, inspect.StructType) else ""
