"""Decoder of the fields of a message in their usual encoding.

Unusual encodings and malformed messages raise `NeedsSlowPathError` or `IndexError`; protobuf then
decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast._wire.protobuf.values import NeedsSlowPathError, UnrepresentableError, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["LENGTH", "MANY", "NUMBER", "ONE", "VARINT", "Row", "reading"]


class Row(NamedTuple):
    """Decoding of one field.

    Attributes:
        name: Member that receives the value.
        how: `NUMBER`, `ONE` or `MANY`.
        convert: Converts the number, or the position of the bytes, to a value.
        is_map: The items are map entries.
    """

    name: str
    how: int
    convert: Callable[..., Any]
    is_map: bool = False


NUMBER, ONE, MANY = range(3)
"""Kinds of fields: a number, or bytes that occur once or repeatedly."""

_32_BITS = 2**32 - 1
_MAX_TAG_BYTES = 5
VARINT, LENGTH = 0, 2
"""Wire types."""

_SIZE_OF_WIRE_TYPE: Mapping[int, int] = {VARINT: 0, 1: 8, LENGTH: 0, 5: 4}
"""Size of a value in bytes; 0 if it is variable."""


def reading(
    rows: Mapping[int, Row],
    groups: Sequence[frozenset[str]],
    build: Callable[[dict[str, Any]], Any],
    sequence: Callable[[list[Any]], Any],
) -> Callable[[bytes, int, int], Any]:
    """Make a decoder of a message's bytes.

    Args:
        rows: How to decode each field, by its tag.
        groups: Sets of members of which at most one is set.
        build: Makes the value from its members.
        sequence: Makes the value of a repeated member from its items.
    """
    row_of = rows.get
    many = _many_of(rows, sequence)

    def read(data: bytes, position: int, end: int) -> Any:
        members: dict[str, Any] = {}
        name = ""
        try:
            while position < end:
                start, tag, number, position = (
                    position,
                    data[position],
                    data[position + 1],
                    position + 2,
                )
                if tag > 0x7F or number > 0x7F:
                    tag, number, position = _read_varints(data, start)
                row = row_of(tag)
                if row is None:  # from a newer agent or SDK
                    position = _skip(data, start)
                    continue
                name, how, convert, _ = row
                if how == NUMBER:
                    members[name] = convert(number)
                    continue
                stop = position + number
                if stop > end or (how == ONE and name in members):
                    raise NeedsSlowPathError
                if how == ONE:
                    members[name] = convert(data, position, stop)
                else:
                    members.setdefault(name, []).append(convert(data, position, stop))
                position = stop
        except UnrepresentableError as error:
            raise _with_path(error, name, members) from None
        if position != end or not _are_exclusive(members, groups):
            raise NeedsSlowPathError
        return build(_finished(members, many))

    return read


def _many_of(
    rows: Mapping[int, Row], sequence: Callable[[list[Any]], Any]
) -> list[tuple[str, Callable[[list[Any]], Any]]]:
    """Return the repeated members, each with the function that converts its list of items."""
    repeated = (row for row in rows.values() if row.how == MANY)
    return [(row.name, dict if row.is_map else sequence) for row in repeated]


def _read_varints(data: bytes, position: int) -> tuple[int, int, int]:
    """Decode a tag and the number after it, if either takes more than one byte."""
    tag, after_tag = varint(data, position)
    if tag > _32_BITS or after_tag - position > _MAX_TAG_BYTES:
        raise NeedsSlowPathError
    number, position = varint(data, after_tag)
    return tag, number, position


def _skip(data: bytes, position: int) -> int:
    """Return the position after an unknown field."""
    tag, position = varint(data, position)
    size = _SIZE_OF_WIRE_TYPE.get(tag & 7)
    if tag < 8 or size is None:
        raise NeedsSlowPathError
    if size:
        return position + size
    number, position = varint(data, position)
    return position + number if tag & 7 == LENGTH else position


def _with_path(
    error: UnrepresentableError, name: str, members: Mapping[str, Any]
) -> UnrepresentableError:
    """Add the member, or its next item, to the path of an error."""
    items: Any = members.get(name)
    if isinstance(items, list):
        error.within(f"[{len(cast('list[Any]', items))}]")
    return error.within(f".{name}")


def _finished(
    members: dict[str, Any], many: Sequence[tuple[str, Callable[[list[Any]], Any]]]
) -> dict[str, Any]:
    """Convert the lists of repeated members to their values."""
    for name, of_items in many:
        if name in members:
            members[name] = of_items(members[name])
    return members


def _are_exclusive(members: Mapping[str, Any], groups: Sequence[frozenset[str]]) -> bool:
    """Return whether at most one member of each group is set."""
    return all(len(group & members.keys()) < 2 for group in groups)
