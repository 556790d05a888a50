"""The SDK's protobuf messages and Holdfast's values, one made of the other.

Rules: both name everything alike, so that one table per type, made at its first use from the
descriptor and the struct, says it all; what is not set stays so, and an empty member is there
where it was there; what the other side has no form for is an error that names the field. The
result is what the SDK's own transport makes of the same JSON, and differs in this only:

- a whole number of a Struct, up to 2**53, leaves as an integer: ``3``, not ``3.0``;
- a time that the SDK refuses is read where Python can read it, in UTC if it names no zone, and
  left out where it cannot;
- a null beside other content of a part is no data;
- JSON may be nested 100 levels deep, and not only about 49.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import inspect

from holdfast.errors import InvalidAgentResponseError
from holdfast.integrations.a2a_sdk.values import (
    UnfitError,
    read_struct,
    read_timestamp,
    read_value,
    why_refused,
    write_struct,
    write_timestamp,
    write_value,
)
from holdfast.model.card import AgentCard
from holdfast.model.codec import MalformedError
from holdfast.model.operations import OPERATIONS
from holdfast.model.types import WireValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from enum import Enum

    from a2a.types import a2a_pb2
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.message import Message as ProtoMessage

    from holdfast.model.requests import Request

__all__ = ["to_card", "to_params", "to_proto", "to_value"]

M = TypeVar("M", bound="ProtoMessage")
V = TypeVar("V", bound=WireValue)


def to_params(message: ProtoMessage) -> Request:
    """The parameters that a request of the SDK stands for; the request is left as it is.

    A required member that is not set is an empty one: the agent says what is wrong with it.

    Args:
        message: Of the type of any operation's request.

    Raises:
        ValueError: A member holds what JSON cannot say, such as NaN; the message names it.
        TypeError: It is no request.
    """
    kind = _requests().get(message.DESCRIPTOR.name)
    if kind is None:
        raise TypeError(f"{type(message).__name__} is no request of the protocol")
    return to_value(message, kind)


def to_card(card: a2a_pb2.AgentCard) -> AgentCard:
    """The agent card that a card of the SDK is; whether it can be used is not checked.

    Raises:
        ValueError: A member holds what JSON cannot say, such as NaN; the message names it.
    """
    return to_value(card, AgentCard)


def to_value(message: ProtoMessage, kind: type[V]) -> V:
    """The value that a message of the SDK stands for.

    Args:
        message: The message.
        kind: The type of the value, of the same name as the message's.

    Raises:
        ValueError: A member holds what JSON cannot say, such as NaN; the message names it.
    """
    read: Callable[[ProtoMessage], V] = _reader(kind, message.DESCRIPTOR)
    try:
        return read(message)
    except UnfitError as error:
        raise MalformedError(error.why, error.path) from None
    except RecursionError:  # the program's own stack is deep already
        raise MalformedError("nested too deeply") from None


def to_proto(value: WireValue, message_type: type[M]) -> M:
    """The message of the SDK for what an agent answered.

    Args:
        value: A task, an event, a page, a configuration, a card; its type has the same name as
            the message's.
        message_type: The type of the message.

    Raises:
        InvalidAgentResponseError: A member has no form there, such as a text that is no Unicode;
            the message names it.
        TypeError: The value is of another type than the message.
    """
    message = message_type()
    write = _writer(type(value), message.DESCRIPTOR)
    try:
        write(value, message)
    except UnfitError as error:
        why = f"{error.why} at {error.path}"
    except RecursionError:  # the program's own stack is deep already
        why = "nested too deeply"
    else:
        return message
    raise InvalidAgentResponseError(
        f"the reply cannot be given in the SDK's types: {why}", executed=True
    )


# ── The tables ───────────────────────────────────────────────────────────────────────────────


class _Row(NamedTuple):
    """One member of a value, on its way into a message.

    Attributes:
        name: Its name in both.
        write: Puts it into the message; None if assigning does.
        group: The group of members that it is one of, of which one is set at most.
    """

    name: str
    write: Callable[[Any, Any], None] | None
    group: str | None


@cache
def _requests() -> Mapping[str, type[Request]]:
    return {operation.request.__name__: operation.request for operation in OPERATIONS}


@cache
def _reader(kind: type[V], descriptor: Descriptor) -> Callable[[Any], V]:
    """Makes what reads the messages of one type."""
    _same_name(kind, descriptor)
    rows: dict[FieldDescriptor, tuple[str, Callable[[Any], Any] | None]] = {}
    required: dict[str, Any] = {}
    for field, info in _members(kind, descriptor):
        rows[field] = field.name, _read_of(field, info.type)
        if info.required:
            required[field.name] = _empty(info.type)
    row_of = rows.get

    def read(message: Any) -> V:
        members = required.copy()
        name = ""
        try:
            for field, member in message.ListFields():
                row = row_of(field)
                if row is not None:  # a newer SDK may have more
                    name, convert = row
                    members[name] = member if convert is None else convert(member)
        except UnfitError as error:
            raise error.within(f".{name}") from None
        return kind(**members)

    return read


def _read_of(field: FieldDescriptor, info: inspect.Type) -> Callable[[Any], Any] | None:
    """What reads a member; None if it is one of Python's own values already."""
    match _present(info):
        case inspect.StructType(cls=kind):
            return _reader(kind, _message_of(field))
        case inspect.VarTupleType(item_type=inspect.StructType(cls=kind)):
            return _read_each(_reader(kind, _message_of(field)))
        case inspect.VarTupleType():
            return tuple
        case inspect.DictType(value_type=inspect.StructType(cls=kind)):
            return _read_map(
                _reader(kind, _message_of(_message_of(field).fields_by_name["value"]))
            )
        case inspect.DictType(value_type=inspect.AnyType()):
            return read_struct
        case inspect.DictType():
            return dict
        case inspect.AnyType():
            return read_value
        case inspect.EnumType(cls=kind):
            return _read_enum(kind, _enum_of(field))
        case _:
            return read_timestamp if _is_timestamp(field) else None


def _read_each(read: Callable[[Any], V]) -> Callable[[Iterable[Any]], tuple[V, ...]]:
    def read_each(messages: Iterable[Any]) -> tuple[V, ...]:
        values: list[V] = []
        try:
            for message in messages:
                values.append(read(message))  # noqa: PERF401  the index is told on failure
        except UnfitError as error:
            raise error.within(f"[{len(values)}]") from None
        return tuple(values)

    return read_each


def _read_map(read: Callable[[Any], V]) -> Callable[[Mapping[str, Any]], dict[str, V]]:
    return lambda messages: {name: read(message) for name, message in messages.items()}


def _read_enum(kind: type[Enum], descriptor: EnumDescriptor) -> Callable[[int], Enum]:
    known = {value.number: kind(value.name) for value in descriptor.values}

    def read(number: int) -> Enum:
        member = known.get(number)
        return kind(str(number)) if member is None else member

    return read


@cache
def _writer(kind: type[WireValue], descriptor: Descriptor) -> Callable[[Any, Any], None]:
    """Makes what writes the values of one type."""
    _same_name(kind, descriptor)
    rows = [
        _Row(
            name=field.name,
            write=_write_of(field, info.type),
            group=_group(field),
        )
        for field, info in _members(kind, descriptor)
    ]
    members_of = _members_of([row.name for row in rows])
    # What there is nothing to write for: msgspec leaves out the same.
    default_of = {field.name: field.default for field in msgspec.structs.fields(kind)}
    defaults = [default_of[row.name] for row in rows]

    def write_members(value: Any, message: Any) -> None:
        name, chosen = "", None
        try:
            for member, default, row in zip(members_of(value), defaults, rows, strict=True):
                if member is default:
                    continue
                name, write, group = row
                if group is not None:
                    if chosen is not None and member is None:
                        continue  # a null for data that are not there
                    _check_alone(chosen)
                    chosen = name
                if write is None:
                    setattr(message, name, member)
                else:
                    write(member, message)
        except UnfitError as error:
            raise error.within(f".{name}") from None
        except (ValueError, TypeError) as error:
            raise UnfitError(why_refused(error)).within(f".{name}") from None

    return write_members


def _write_of(field: FieldDescriptor, info: inspect.Type) -> Callable[[Any, Any], None] | None:
    """What writes a member into the message that is to have it; None if assigning does."""
    name = field.name
    match _present(info):
        case inspect.StructType(cls=kind):
            return _put(name, _writer(kind, _message_of(field)))
        case inspect.VarTupleType(item_type=inspect.StructType(cls=kind)):
            return _write_each(name, _writer(kind, _message_of(field)))
        case inspect.VarTupleType():
            return lambda texts, message: getattr(message, name).extend(texts)
        case inspect.DictType(value_type=inspect.StructType(cls=kind)):
            value_type = _message_of(_message_of(field).fields_by_name["value"])
            return _write_map(name, _writer(kind, value_type))
        case inspect.DictType(value_type=inspect.AnyType()):
            return _put(name, write_struct)
        case inspect.DictType():
            return lambda texts, message: getattr(message, name).update(texts)
        case inspect.AnyType():
            return _put(name, write_value)
        case inspect.EnumType():
            return _write_enum(name, _enum_of(field))
        case _:
            return _put_time(name) if _is_timestamp(field) else None


def _put(name: str, write: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def put(member: Any, message: Any) -> None:
        target = getattr(message, name)
        target.SetInParent()  # it is there, even with nothing in it
        write(member, target)

    return put


def _put_time(name: str) -> Callable[[str, Any], None]:
    def put(text: str, message: Any) -> None:
        write_timestamp(text, getattr(message, name))

    return put


def _write_each(name: str, write: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def write_each(members: Iterable[Any], message: Any) -> None:
        messages = getattr(message, name)
        add = messages.add
        try:
            for member in members:
                write(member, add())
        except UnfitError as error:
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


def _members_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gets these members of a value, all at once where there are many."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def _check_alone(chosen: str | None) -> None:
    if chosen is not None:
        raise UnfitError(f"it is there beside {chosen}, and only one of them may be")


# ── What descriptors and structs tell ────────────────────────────────────────────────────────


def _members(
    kind: type[WireValue], descriptor: Descriptor
) -> list[tuple[FieldDescriptor, inspect.Field]]:
    """The members that both have."""
    fields = descriptor.fields_by_name
    info = cast("inspect.StructType", inspect.type_info(kind))
    return [(fields[field.name], field) for field in info.fields if field.name in fields]


def _same_name(kind: type, descriptor: Descriptor) -> None:
    if kind.__name__ != descriptor.name:
        raise TypeError(f"a {kind.__name__} is no {descriptor.name}")


def _present(info: inspect.Type) -> inspect.Type:
    """The type of a member that is there."""
    if not isinstance(info, inspect.UnionType):
        return info
    return next(one for one in info.types if not isinstance(one, inspect.NoneType))


def _empty(info: inspect.Type) -> Any:
    return info.cls() if isinstance(info, inspect.StructType) else ""


def _message_of(field: FieldDescriptor) -> Descriptor:
    return cast("Descriptor", field.message_type)


def _enum_of(field: FieldDescriptor) -> EnumDescriptor:
    return cast("EnumDescriptor", field.enum_type)


def _is_timestamp(field: FieldDescriptor) -> bool:
    message = field.message_type
    return message is not None and message.full_name == "google.protobuf.Timestamp"


def _group(field: FieldDescriptor) -> str | None:
    """The oneof that a member belongs to; that of an optional member has no other in it."""
    oneof = field.containing_oneof
    return None if oneof is None or len(oneof.fields) == 1 else oneof.name
