"""JSON values and times in protocol buffers: `google.protobuf` Struct, Value and Timestamp.

Rules: a number of a Struct is a double; an integral one within the exact range is read as an
integer, so that ``3`` is not sent as ``3.0``. Values that are not JSON (NaN, infinities, keys that
are not strings) raise `UnrepresentableError`, and so does nesting of more than 100 levels.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from holdfast._model import codec
from holdfast._model.codec import UnrepresentableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.struct_pb2 import Struct as StructMessage
    from google.protobuf.struct_pb2 import Value
    from google.protobuf.timestamp_pb2 import Timestamp

__all__ = [
    "NeedsSlowPathError",
    "UnrepresentableError",
    "read_struct",
    "read_timestamp",
    "read_value",
    "signed",
    "varint",
    "why_refused",
    "write_struct",
    "write_timestamp",
    "write_value",
]

_MAX_DEPTH = 100
_MAX_EXACT_INTEGER = 2.0**53
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  written without a zone
_SECOND = timedelta(seconds=1)
_MIN_SECONDS, _MAX_SECONDS = -62_135_596_800, 253_402_300_799
"""Years 1 to 9999 in UTC; a time with an offset may lie outside."""
_NANOS_PER_SECOND = 1_000_000_000
_FINE_FRACTION = re.compile(r":\d\d[.,](\d{7,9})")
"""Fraction of a second with more digits than Python parses."""

_MAX_SHIFT = 63
"""Position of the last seven bits of a varint."""

_KEY, _VALUE, _ITEM = 0x0A, 0x12, 0x0A
_NUMBER, _STRING, _BOOLEAN, _OBJECT, _LIST = 0x11, 0x1A, 0x20, 0x2A, 0x32
_BOOLEAN_OR_NULL = frozenset({0x08, _BOOLEAN})
_SECONDS, _NANOS = 0x08, 0x10
"""Tags of fields (google/protobuf/struct.proto, timestamp.proto)."""

_double = Struct("<d").unpack_from


# ── Reading ──────────────────────────────────────────────────────────────────────────────────


class NeedsSlowPathError(Exception):
    """The bytes are not a message, or not in the usual encoding."""


def varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode a varint; return it and the position after it.

    Raises:
        NeedsSlowPathError: It is too long.
        IndexError: It is incomplete.
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > _MAX_SHIFT:
            raise NeedsSlowPathError


def signed(number: int, bits: int) -> int:
    """Interpret the low bits of a number as a signed integer."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def read_struct(data: bytes, position: int, end: int, depth: int = 0) -> dict[str, Any]:
    """Decode the bytes of a Struct to a JSON object.

    Args:
        data: The bytes of the whole message.
        position: Position where the Struct begins.
        end: Position where it ends.
        depth: Number of values around it.

    Raises:
        UnrepresentableError: It holds a value that JSON cannot represent, or is nested too deeply.
        NeedsSlowPathError: It is not in the usual encoding.
    """
    members: dict[str, Any] = {}
    key = ""
    try:
        while position < end:
            position, stop = _inner(data, position, end, _ITEM)
            key, value_at, value_end = _entry(data, position, stop)
            members[key] = read_value(data, value_at, value_end, depth)
            position = stop
    except UnrepresentableError as error:
        raise error.within(_step(key)) from None
    return members


def read_value(data: bytes, position: int, end: int, depth: int = 0) -> Any:
    """Decode the bytes of a Value to a JSON value; one without a kind is null (ProtoJSON).

    Raises:
        UnrepresentableError: It holds a value that JSON cannot represent, or is nested too deeply.
        NeedsSlowPathError: It is not in the usual encoding.
    """
    if depth > _MAX_DEPTH:
        raise UnrepresentableError(f"nested more than {_MAX_DEPTH} levels deep")
    if position == end:
        return None
    tag = data[position]
    read = _READERS.get(tag)
    if read is not None:
        position, stop = _inner(data, position, end, tag)
        if stop == end:
            return read(data, position, stop, depth + 1)
    elif tag == _NUMBER:
        if position + 9 == end:
            return _number(_double(data, position + 1)[0])
    elif tag in _BOOLEAN_OR_NULL:
        number, stop = varint(data, position + 1)
        if stop == end:
            return number != 0 if tag == _BOOLEAN else None
    raise NeedsSlowPathError


def _text(data: bytes, position: int, end: int, _: int) -> str:
    return data[position:end].decode()


def _inner(data: bytes, position: int, end: int, expected: int) -> tuple[int, int]:
    """Return the bounds of a length-delimited field with the expected tag."""
    if data[position] != expected:
        raise NeedsSlowPathError
    length, position = data[position + 1], position + 2
    if length > 0x7F:
        length, position = varint(data, position - 1)
    if position + length > end:
        raise NeedsSlowPathError
    return position, position + length


def _entry(data: bytes, position: int, end: int) -> tuple[str, int, int]:
    """Return the key of an entry, and the bounds of its value."""
    key, value_at = "", end
    if position < end and data[position] == _KEY:
        position, stop = _inner(data, position, end, _KEY)
        key, position = data[position:stop].decode(), stop
    if position < end:
        value_at, stop = _inner(data, position, end, _VALUE)
        if stop != end:
            raise NeedsSlowPathError
    return key, value_at, end


def _list(data: bytes, position: int, end: int, depth: int) -> list[Any]:
    items: list[Any] = []
    try:
        while position < end:
            position, stop = _inner(data, position, end, _ITEM)
            items.append(read_value(data, position, stop, depth))
            position = stop
    except UnrepresentableError as error:
        raise error.within(f"[{len(items)}]") from None
    return items


_READERS: Mapping[int, Callable[[bytes, int, int, int], Any]] = MappingProxyType(
    {_STRING: _text, _OBJECT: read_struct, _LIST: _list}
)


def _number(number: float) -> float:
    if number.is_integer():
        if -_MAX_EXACT_INTEGER <= number <= _MAX_EXACT_INTEGER:
            # No integer is minus zero.
            return int(number) if number or math.copysign(1, number) > 0 else number
    elif not math.isfinite(number):
        raise UnrepresentableError(f"{number} is not a JSON number")
    return number


def read_timestamp(data: bytes, position: int, end: int) -> str:
    """Decode the bytes of a Timestamp to a text of RFC 3339 in UTC, as short as possible.

    Raises:
        UnrepresentableError: The time is outside the years 1 to 9999.
        NeedsSlowPathError: It is not in the usual encoding.
    """
    seconds = nanos = 0
    while position < end:
        tag = data[position]
        number, position = varint(data, position + 1)
        if tag == _SECONDS:
            seconds = signed(number, 64)
        elif tag == _NANOS:
            nanos = signed(number, 32)
        else:
            raise NeedsSlowPathError
    if position != end:
        raise NeedsSlowPathError
    if not (_MIN_SECONDS <= seconds <= _MAX_SECONDS and 0 <= nanos < _NANOS_PER_SECOND):
        raise UnrepresentableError("not an RFC 3339 time")
    text = (_NAIVE_EPOCH + timedelta(seconds=seconds)).isoformat()
    if not nanos:
        return f"{text}Z"
    fraction = f"{nanos:09}"
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    return f"{text}.{fraction}Z"


# ── Writing ──────────────────────────────────────────────────────────────────────────────────


def write_struct(members: dict[str, Any], struct: StructMessage, depth: int = 0) -> None:
    """Write a JSON object into an empty Struct, which is then set even if it is empty.

    Args:
        members: The object.
        struct: The target.
        depth: Number of values around it.

    Raises:
        UnrepresentableError: It holds a value that no Value can hold, or is nested too deeply.
    """
    if not members:
        struct.SetInParent()
    fields = struct.fields
    key: Any = ""
    try:
        for key, member in members.items():
            write_value(member, fields[key], depth)
    except UnrepresentableError as error:
        raise error.within(_step(key)) from None
    except UnicodeEncodeError as error:
        raise UnrepresentableError(why_refused(error)).within(_step(key)) from None
    except TypeError:
        raise UnrepresentableError(f"its key must be str, not {type(key).__name__}") from None


def write_value(item: Any, value: Value, depth: int = 0) -> None:
    """Write a JSON value into an empty Value.

    Raises:
        UnrepresentableError: It holds a value that no Value can hold, or is nested too deeply.
        UnicodeEncodeError: The value is a string with a lone surrogate.
    """
    if depth > _MAX_DEPTH:
        raise UnrepresentableError(f"nested more than {_MAX_DEPTH} levels deep")
    write = _WRITERS.get(item.__class__)
    if write is None:  # other types that the model accepts as JSON, such as dates
        item = _to_json(item)
        write = _WRITERS[item.__class__]
    write(item, value, depth + 1)


def why_refused(error: Exception) -> str:
    """Describe why protobuf rejects a value."""
    if isinstance(error, UnicodeEncodeError):
        return "the text is not valid Unicode (a lone surrogate)"
    return str(error)


def _to_json(item: Any) -> Any:
    try:
        return codec.to_builtins(item)
    except (TypeError, ValueError) as error:
        raise UnrepresentableError(f"not a JSON value: {error}") from None


def _write_text(text: str, value: Value, _: int) -> None:
    value.string_value = text


def _write_number(number: float, value: Value, _: int) -> None:
    try:
        double = float(number)
    except OverflowError:
        double = math.inf
    if not math.isfinite(double):
        raise UnrepresentableError("the number is out of range")
    value.number_value = double


def _write_boolean(boolean: bool, value: Value, _: int) -> None:  # noqa: FBT001  as all of them
    value.bool_value = boolean


def _write_null(_: None, value: Value, __: int) -> None:
    value.null_value = 0  # type: ignore[assignment]


def _write_object(members: dict[str, Any], value: Value, depth: int) -> None:
    write_struct(members, value.struct_value, depth)


def _write_list(items: list[Any], value: Value, depth: int) -> None:
    values = value.list_value
    if not items:
        values.SetInParent()
    added = values.values
    try:
        for item in items:
            write_value(item, added.add(), depth)
    except UnrepresentableError as error:
        raise error.within(f"[{len(added) - 1}]") from None
    except UnicodeEncodeError as error:
        raise UnrepresentableError(why_refused(error)).within(f"[{len(added) - 1}]") from None


_WRITERS: Mapping[type, Callable[[Any, Value, int], None]] = MappingProxyType(
    {
        str: _write_text,
        int: _write_number,
        float: _write_number,
        bool: _write_boolean,
        type(None): _write_null,
        dict: _write_object,
        list: _write_list,
        tuple: _write_list,
    }
)


def write_timestamp(text: str, timestamp: Timestamp) -> bool:
    """Write a time of the protocol into an empty Timestamp.

    Args:
        text: As received; UTC if it has no zone.
        timestamp: The target.

    Returns:
        False, with nothing written, if the text is not a time.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return False
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    seconds = (time - _EPOCH) // _SECOND
    if not _MIN_SECONDS <= seconds <= _MAX_SECONDS:
        return False
    fraction = _FINE_FRACTION.search(text)
    timestamp.seconds = seconds
    timestamp.nanos = int(fraction[1].ljust(9, "0")) if fraction else time.microsecond * 1000
    return True


_MAX_KEY_CHARACTERS = 40


def _step(key: Any) -> str:
    shown = str(key)
    shown = shown if len(shown) <= _MAX_KEY_CHARACTERS else f"{shown[:_MAX_KEY_CHARACTERS]}…"
    return f'["{shown.encode("ascii", "backslashreplace").decode()}"]'
