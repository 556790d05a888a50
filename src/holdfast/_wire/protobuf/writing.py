"""Values as messages of protocol buffers: of the tables' classes, and of anybody's generated ones.

Rules: as for reading. What is left at its default is not set; what the message has no form for is
an error that names the member.
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
    """One member of a value, on its way into a message.

    Attributes:
        name: Its name in the value.
        field: Its name in the message.
        write: Puts it into the message; None if assigning does.
        group: The group of members that it is one of, of which one is set at most.
    """

    name: str
    field: str
    write: Callable[[Any, Any], None] | None
    group: str | None


@cache
def writer(
    kind: type[WireValue], descriptor: Descriptor, *, lenient: bool = False
) -> Callable[[Any, Any], None]:
    """Makes what writes the values of one type.

    Args:
        kind: The type of the values.
        descriptor: The type of the messages.
        lenient: Whether a time that nobody can read is left out.

    Returns:
        A function of a value and of the message to put it into, which raises
        `UnrepresentableError` where the message cannot hold it.
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
    # What there is nothing to write for: msgspec leaves out the same.
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
                        continue  # a null for data that are not there
                    _check_alone(chosen)
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
    """What writes a member into the message that is to have it; None if assigning does."""
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
        target.SetInParent()  # it is there, even with nothing in it
        write(member, target)

    return put


def _put_time(name: str, *, lenient: bool) -> Callable[[str, Any], None]:
    def put(text: str, message: Any) -> None:
        if not write_timestamp(text, getattr(message, name)) and not lenient:
            raise UnrepresentableError("no time of RFC 3339")

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
    """The number of an enumeration that has no name here; 0 for a name that has no number."""
    try:
        number = int(text)
    except ValueError:
        return 0
    return number if -(2**31) <= number < 2**31 else 0


def _write_any(field: FieldDescriptor) -> Callable[[Any, Any], None] | None:
    """What writes JSON as it is into a member that is a name, a JSON value, or an object."""
    if field.enum_type is not None:
        return _write_enum(field.name, enum_of(field))
    if message_of(field).full_name == "google.protobuf.Value":
        return _put(field.name, write_value)
    return _put(field.name, _write_object)


def _write_object(members: Any, message: Any) -> None:
    """Puts a JSON object into a message whose members are objects themselves."""
    fields = {field.json_name: field for field in message.DESCRIPTOR.fields}
    for name, member in (as_object(members) or {}).items():
        field = fields.get(name)
        if field is not None:
            _put(field.name, write_struct)(member, message)


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gets these members of a value, all at once where there are many."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def _check_alone(chosen: str | None) -> None:
    if chosen is not None:
        raise UnrepresentableError(f"it is there beside {chosen}, and only one of them may be")


def _group(field: FieldDescriptor) -> str | None:
    """The oneof that a member belongs to; that of an optional member has no other in it."""
    oneof = field.containing_oneof
    return None if oneof is None or len(oneof.fields) == 1 else oneof.name
