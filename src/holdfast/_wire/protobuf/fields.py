"""The fields of a message, one after the other, as they usually come over the wire.

What is unusual, and all that is no message, is told by `NeedsSlowPathError` or `IndexError`, for
protobuf to say what it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast._wire.protobuf.values import NeedsSlowPathError, UnrepresentableError, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["LENGTH", "MANY", "NUMBER", "ONE", "VARINT", "Row", "reading"]


class Row(NamedTuple):
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


NUMBER, ONE, MANY = range(3)
"""How a field is read: as a number, or from its bytes; of these, whether there may be more."""

_32_BITS = 2**32 - 1
_LONGEST_TAG = 5
VARINT, LENGTH = 0, 2
"""How values are written."""

_FIXED: Mapping[int, int] = {VARINT: 0, 1: 8, LENGTH: 0, 5: 4}
"""How many bytes a value has; 0 where it says so itself."""


def reading(
    rows: Mapping[int, Row],
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
                if how == NUMBER:
                    members[name] = convert(number)
                    continue
                stop = at + number
                if stop > end or (how == ONE and name in members):
                    raise NeedsSlowPathError
                if how == ONE:
                    members[name] = convert(data, at, stop)
                else:
                    members.setdefault(name, []).append(convert(data, at, stop))
                at = stop
        except UnrepresentableError as error:
            raise _placed(error, name, members) from None
        if at != end or not _are_alone(members, groups):
            raise NeedsSlowPathError
        return build(_whole(members, many))

    return read


def _many_of(
    rows: Mapping[int, Row], sequence: Callable[[list[Any]], Any]
) -> list[tuple[str, Callable[[list[Any]], Any]]]:
    """The members that hold many items, and what is made of a list of them."""
    found = (row for row in rows.values() if row.how == MANY)
    return [(row.name, dict if row.is_map else sequence) for row in found]


def _large(data: bytes, at: int) -> tuple[int, int, int]:
    """What a field begins with, and the number behind it, where they take more than a byte."""
    tag, behind = varint(data, at)
    if tag > _32_BITS or behind - at > _LONGEST_TAG:
        raise NeedsSlowPathError
    number, at = varint(data, behind)
    return tag, number, at


def _behind(data: bytes, at: int) -> int:
    """Where the next thing begins behind a field that nobody wants."""
    tag, at = varint(data, at)
    size = _FIXED.get(tag & 7)
    if tag < 8 or size is None:
        raise NeedsSlowPathError
    if size:
        return at + size
    number, at = varint(data, at)
    return at + number if tag & 7 == LENGTH else at


def _placed(
    error: UnrepresentableError, name: str, members: Mapping[str, Any]
) -> UnrepresentableError:
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
