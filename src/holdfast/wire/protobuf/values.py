"""JSON values and times in protocol buffers: `google.protobuf` Struct, Value and Timestamp.

Rules: a number of a Struct is a double; a whole one that a double holds exactly is read as an
integer, so that ``3`` does not leave as ``3.0``; what is not JSON (NaN, infinities, keys that are
no texts) is refused by `UnfitError`, and so is what is nested more than 100 levels deep.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from holdfast.model import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.struct_pb2 import ListValue, Struct, Value
    from google.protobuf.timestamp_pb2 import Timestamp

__all__ = [
    "UnfitError",
    "read_struct",
    "read_timestamp",
    "read_value",
    "why_refused",
    "write_struct",
    "write_timestamp",
    "write_value",
]

_MAX_DEPTH = 100
_LARGEST_EXACT = 2.0**53
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""Of the years 1 to 9999 in UTC, beyond which a time with an offset may reach."""
_FINE_FRACTION = re.compile(r":\d\d[.,](\d{7,9})")
"""Of a second, finer than the microseconds that Python reads."""


class UnfitError(Exception):
    """A value that the other side has no form for.

    Attributes:
        why: What is wrong with it.
        steps: The way to it, innermost first, as ``.name`` and ``[0]``.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.steps: list[str] = []

    def within(self, step: str) -> UnfitError:
        """Adds one step to the way, from inside out."""
        self.steps.append(step)
        return self

    @property
    def path(self) -> str:
        """The way to the value from outside in, as ``parts[0].data["n"]``."""
        return "".join(reversed(self.steps)).removeprefix(".")


# ── Reading ──────────────────────────────────────────────────────────────────────────────────


def read_struct(struct: Struct, depth: int = 0) -> dict[str, Any]:
    """The JSON object that a Struct is.

    Args:
        struct: The Struct.
        depth: In how many values it stands.

    Raises:
        UnfitError: It holds what JSON cannot say, or is nested too deeply.
    """
    members: dict[str, Any] = {}
    key = ""
    try:
        for key, value in struct.fields.items():
            members[key] = read_value(value, depth)
    except UnfitError as error:
        raise error.within(_step(key)) from None
    return members


def read_value(value: Value, depth: int = 0) -> Any:
    """The JSON value that a Value is; one of no kind is a null, as it is for protobuf's JSON.

    Raises:
        UnfitError: It holds what JSON cannot say, or is nested too deeply.
    """
    if depth > _MAX_DEPTH:
        raise UnfitError(f"nested more than {_MAX_DEPTH} levels deep")
    return _READERS[value.WhichOneof("kind")](value, depth + 1)


def _read_number(value: Value, _: int) -> float:
    number = value.number_value
    if not math.isfinite(number):
        raise UnfitError(f"{number} is no number of JSON")
    if number.is_integer() and -_LARGEST_EXACT <= number <= _LARGEST_EXACT:
        # There is no integer that is minus zero.
        return int(number) if number or math.copysign(1, number) > 0 else number
    return number


def _read_list(values: ListValue, depth: int) -> list[Any]:
    items: list[Any] = []
    try:
        for value in values.values:
            items.append(read_value(value, depth))  # noqa: PERF401  the index is told on failure
    except UnfitError as error:
        raise error.within(f"[{len(items)}]") from None
    return items


_READERS: Mapping[str | None, Callable[[Value, int], Any]] = MappingProxyType(
    {
        "string_value": lambda value, _: value.string_value,
        "number_value": _read_number,
        "bool_value": lambda value, _: value.bool_value,
        "struct_value": lambda value, depth: read_struct(value.struct_value, depth),
        "list_value": lambda value, depth: _read_list(value.list_value, depth),
        "null_value": lambda _value, _depth: None,
        None: lambda _value, _depth: None,
    }
)


def read_timestamp(timestamp: Timestamp) -> str:
    """A time as the protocol's text (RFC 3339, UTC), with as many digits as it needs.

    Raises:
        UnfitError: It lies outside the years 1 to 9999.
    """
    try:
        return timestamp.ToJsonString()
    except (ValueError, OverflowError) as error:
        raise UnfitError(f"no time of RFC 3339: {error}") from None


# ── Writing ──────────────────────────────────────────────────────────────────────────────────


def write_struct(members: dict[str, Any], struct: Struct, depth: int = 0) -> None:
    """Puts a JSON object into an empty Struct, which is there then even if there is no member.

    Args:
        members: The object.
        struct: Where to put it.
        depth: In how many values it stands.

    Raises:
        UnfitError: It holds what no Value can hold, or is nested too deeply.
    """
    if not members:
        struct.SetInParent()
    fields = struct.fields
    key: Any = ""
    try:
        for key, member in members.items():
            write_value(member, fields[key], depth)
    except UnfitError as error:
        raise error.within(_step(key)) from None
    except UnicodeEncodeError as error:
        raise UnfitError(why_refused(error)).within(_step(key)) from None
    except TypeError:
        raise UnfitError(f"its key is no text but {type(key).__name__}") from None


def write_value(item: Any, value: Value, depth: int = 0) -> None:
    """Puts a JSON value into an empty Value.

    Raises:
        UnfitError: It holds what no Value can hold, or is nested too deeply.
        UnicodeEncodeError: It is itself a text that is no Unicode.
    """
    if depth > _MAX_DEPTH:
        raise UnfitError(f"nested more than {_MAX_DEPTH} levels deep")
    write = _WRITERS.get(item.__class__)
    if write is None:  # what the model takes for JSON besides, such as a date
        item = _plain(item)
        write = _WRITERS[item.__class__]
    write(item, value, depth + 1)


def why_refused(error: Exception) -> str:
    """Why protobuf does not take a value."""
    if isinstance(error, UnicodeEncodeError):
        return "the text is no Unicode (a lone surrogate)"
    return str(error)


def _plain(item: Any) -> Any:
    try:
        return codec.to_builtins(item)
    except (TypeError, ValueError) as error:
        raise UnfitError(f"no JSON value: {error}") from None


def _write_text(text: str, value: Value, _: int) -> None:
    value.string_value = text


def _write_number(number: float, value: Value, _: int) -> None:
    try:
        double = float(number)
    except OverflowError:
        double = math.inf
    if not math.isfinite(double):
        raise UnfitError("the number is out of range")
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
    except UnfitError as error:
        raise error.within(f"[{len(added) - 1}]") from None
    except UnicodeEncodeError as error:
        raise UnfitError(why_refused(error)).within(f"[{len(added) - 1}]") from None


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
    """Puts a time of the protocol into an empty Timestamp.

    Args:
        text: As received. One without a zone is in UTC.
        timestamp: Where to put it.

    Returns:
        Whether it is a time; nothing was put if it is not.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return False
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    seconds = (time - _EPOCH) // _SECOND
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
        return False
    fine = _FINE_FRACTION.search(text)
    timestamp.seconds = seconds
    timestamp.nanos = int(fine[1].ljust(9, "0")) if fine else time.microsecond * 1000
    return True


_LONGEST_KEY = 40


def _step(key: Any) -> str:
    shown = str(key)
    shown = shown if len(shown) <= _LONGEST_KEY else f"{shown[:_LONGEST_KEY]}…"
    return f'["{shown.encode("ascii", "backslashreplace").decode()}"]'
