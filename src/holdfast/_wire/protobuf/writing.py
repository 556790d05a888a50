"""Encoding of values to protobuf messages: of the tables' classes, or of generated ones.

Rules: as for reading. Members with their default are not set. A value that the message cannot
represent is an error that names the member.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import inspect

from holdfast._model.codec import as_object
from holdfast._wire.protobuf.descriptors import (
    enum_of,
    is_timestamp,
    members_of,
    message_of,
    present,
    value_in_map,
)
from holdfast._wire.protobuf.values import (
    UnrepresentableError,
    why_refused,
    write_struct,
    write_timestamp,
    write_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

    from holdfast.types import WireValue

__all__ = ["writer"]


class _Row(NamedTuple):
    """Encoding of one member of a value.

    Attributes:
        name: Its name in the value.
        field: Its name in the message.
        write: Writes it into the message; None if assignment suffices.
        group: Group of members of which at most one is set.
    """

    name: str
    field: str
    write: Callable[[Any, Any], None] | None
    group: str | None


@cache
def writer(
    kind: type[WireValue], descriptor: Descriptor, *, lenient: bool = False
) -> Callable[[Any, Any], None]:
    """Make an encoder for values of one type.

    Args:
        kind: Type of the values.
        descriptor: Type of the messages.
        lenient: Omit a time that is malformed.

    Returns:
        A function of a value and the message to write it into; it raises `UnrepresentableError` if
        the message cannot hold it.
    """
    rows = [
        _Row(
            name=info.name,
            field=field.name,
            write=_write_of(field, info.type, lenient=lenient),
            group=_group(field),
        )
        for field, info in members_of(kind, descriptor)
    ]
    values_of = _values_of([row.name for row in rows])
    # Defaults are omitted, as msgspec does.
    default_of = {field.name: field.default for field in msgspec.structs.fields(kind)}
    defaults = [default_of[row.name] for row in rows]

    def write_members(value: Any, message: Any) -> None:
        name, chosen = "", None
        try:
            for member, default, row in zip(values_of(value), defaults, rows, strict=True):
                if member is default:
                    continue
                name, field, write, group = row
                if group is not None:
                    if chosen is not None and member is None:
                        continue  # null data of a part without data
                    _check_exclusive(chosen)
                    chosen = name
                if write is None:
                    setattr(message, field, member)
                else:
                    write(member, message)
        except UnrepresentableError as error:
            raise error.within(f".{name}") from None
        except (ValueError, TypeError) as error:
            raise UnrepresentableError(why_refused(error)).within(f".{name}") from None

    return write_members


def _write_of(
    field: FieldDescriptor, info: inspect.Type, *, lenient: bool
) -> Callable[[Any, Any], None] | None:
    """Return the function that writes a member; None if assignment suffices."""
    name = field.name
    match present(info):
        case inspect.StructType(cls=kind):
            return _put(name, writer(kind, message_of(field), lenient=lenient))
        case inspect.VarTupleType(item_type=inspect.StructType(cls=kind)):
            return _write_each(name, writer(kind, message_of(field), lenient=lenient))
        case inspect.VarTupleType():
            return lambda texts, message: getattr(message, name).extend(texts)
        case inspect.DictType(value_type=inspect.StructType(cls=kind)):
            return _write_map(name, writer(kind, value_in_map(field), lenient=lenient))
        case inspect.DictType(value_type=inspect.AnyType()):
            return _put(name, write_struct)
        case inspect.DictType():
            return lambda texts, message: getattr(message, name).update(texts)
        case inspect.AnyType():
            return _write_any(field)
        case inspect.EnumType():
            return _write_enum(name, enum_of(field))
        case _:
            return _put_time(name, lenient=lenient) if is_timestamp(field) else None


def _put(name: str, write: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def put(member: Any, message: Any) -> None:
        target = getattr(message, name)
        target.SetInParent()  # set even if empty
        write(member, target)

    return put


def _put_time(name: str, *, lenient: bool) -> Callable[[str, Any], None]:
    def put(text: str, message: Any) -> None:
        if not write_timestamp(text, getattr(message, name)) and not lenient:
            raise UnrepresentableError("not an RFC 3339 time")

    return put


def _write_each(name: str, write: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def write_each(members: Iterable[Any], message: Any) -> None:
        messages = getattr(message, name)
        add = messages.add
        try:
            for member in members:
                write(member, add())
        except UnrepresentableError as error:
            raise error.within(f"[{len(messages) - 1}]") from None

    return write_each


def _write_map(name: str, write: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def write_map(members: Mapping[str, Any], message: Any) -> None:
        messages = getattr(message, name)
        for key, member in members.items():
            write(member, messages[key])

    return write_map


def _write_enum(name: str, descriptor: EnumDescriptor) -> Callable[[Any, Any], None]:
    numbers = {value.name: value.number for value in descriptor.values}

    def write(member: Any, message: Any) -> None:
        number = numbers.get(member)
        if number is None:
            number = _unnamed(str(member))
        setattr(message, name, number)

    return write


def _unnamed(text: str) -> int:
    """Return the number of an enum value without a name; 0 for an unknown name."""
    try:
        number = int(text)
    except ValueError:
        return 0
    return number if -(2**31) <= number < 2**31 else 0


def _write_any(field: FieldDescriptor) -> Callable[[Any, Any], None] | None:
    """Return the writer of JSON for a member that is an enum, a JSON value, or an object."""
    if field.enum_type is not None:
        return _write_enum(field.name, enum_of(field))
    if message_of(field).full_name == "google.protobuf.Value":
        return _put(field.name, write_value)
    return _put(field.name, _write_object)


def _write_object(members: Any, message: Any) -> None:
    """Write a JSON object into a message whose members are objects."""
    fields = {field.json_name: field for field in message.DESCRIPTOR.fields}
    for name, member in (as_object(members) or {}).items():
        field = fields.get(name)
        if field is not None:
            _put(field.name, write_struct)(member, message)


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that gets these members of a value, at once if there are several."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def _check_exclusive(chosen: str | None) -> None:
    if chosen is not None:
        raise UnrepresentableError(f"it is set beside {chosen}, but only one of them may be set")


def _group(field: FieldDescriptor) -> str | None:
    """Return the oneof of a member; None for that of an optional member alone."""
    oneof = field.containing_oneof
    return None if oneof is None or len(oneof.fields) == 1 else oneof.name
