"""JSON codec of the data model.

Rules: well-formed replies take the fast path. Known mistakes of servers (null for a list, integers
for enum names, URL-safe or unpadded base64, lone surrogates, ``1.0`` for an integer) are repaired
on a slower path. Any other mismatch raises `MalformedError` with the path of the member. No
exception of a JSON library leaves this module.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Hashable, Iterator
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, TypeGuard, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import inspect

T = TypeVar("T")

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of a decoder for input that `from_builtins` may still accept."""

_encoder = msgspec.json.Encoder()


class MalformedError(ValueError):
    """A document is not JSON, or does not have the required shape.

    Attributes:
        path: Path of the member, such as ``status.state``, ``parts[0]`` or ``schemes["key"]``;
            empty for the whole document.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{message} at {path}" if path else message)
        self.path = path


class UnrepresentableError(Exception):
    """The target format cannot represent a value.

    Attributes:
        reason: Description of the fault.
        steps: Steps of the path to the value, innermost first, such as ``.name`` and ``[0]``.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def within(self, step: str) -> UnrepresentableError:
        """Append the next outer step of the path."""
        self.steps.append(step)
        return self

    @property
    def path(self) -> str:
        """Path to the value, such as ``parts[0].data["n"]``."""
        return "".join(reversed(self.steps)).removeprefix(".")


def decode(data: bytes, kind: type[T]) -> T:
    """Decode a JSON document to a value of the model.

    Args:
        data: UTF-8 text of the document.
        kind: Target type: a struct of the model or a plain type.

    Raises:
        MalformedError: The text is not JSON, is nested too deeply, or has another shape.
    """
    try:
        return cast("T", decoder_of(kind).decode(data))
    except UNREADABLE:
        return from_builtins(parse(data), kind)


def parse(data: bytes) -> Any:
    """Parse JSON with the standard library, which is slower and more lenient than msgspec.

    Raises:
        MalformedError: The text is not JSON, or nested too deeply.
    """
    try:
        # As UTF-8 (RFC 8259, 8.1): json.loads would also detect other encodings.
        text = data.decode("utf-8-sig", "surrogatepass")
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        reason = "nested too deeply"
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, oversized integers
        reason = "an HTML page, not JSON" if is_html(data) else f"not JSON: {error}"
    raise MalformedError(reason)  # outside the handler: the parser's errors hold the whole text


def is_html(content: bytes) -> bool:
    """Return whether a document begins as an HTML page."""
    return content.lstrip()[:100].lower().startswith((b"<!doctype", b"<html"))


def from_builtins(value: Any, kind: type[T]) -> T:
    """Convert dicts, lists and scalars to a value of the model, repairing known mistakes.

    Raises:
        MalformedError: A member is missing or has another type.
    """
    try:
        repaired = _repair(value, _type_info(cast("Any", kind)))
        try:
            return msgspec.convert(repaired, kind, strict=False)
        except _UNREADABLE as error:
            message = _why_unreadable(error)
            raise MalformedError(message, _path_of_fault(repaired, kind).lstrip(".")) from None
    except RecursionError:
        raise MalformedError("nested too deeply") from None


def encode(value: Any) -> bytes:
    """Encode a value of the model, or plain containers, as compact JSON.

    Lone surrogates, which some servers send and UTF-8 cannot encode, are written as escapes.

    Raises:
        MalformedError: The value is nested too deeply.
    """
    try:
        try:
            return _encoder.encode(value)
        except UnicodeEncodeError:
            return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()
    except RecursionError:
        raise MalformedError("nested too deeply") from None


def indented(text: bytes, spaces: int) -> bytes:
    """Format JSON over several lines, with this many spaces per level."""
    try:
        return msgspec.json.format(text, indent=spaces)
    except msgspec.DecodeError:  # an escaped lone surrogate
        return json.dumps(parse(text), indent=spaces).encode()


def to_builtins(value: Any) -> Any:
    """Convert a value of the model to the dicts, lists and scalars of its JSON."""
    return parse(encode(value))


def as_object(value: object) -> dict[str, Any] | None:
    """Return a parsed JSON value if it is an object, otherwise None."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the cached decoder of a type."""
    return _decoder(kind)


@lru_cache(maxsize=256)
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cast("Any", kind))


@lru_cache(maxsize=256)
def _type_info(kind: Hashable) -> inspect.Type:
    return inspect.type_info(kind)


def _refuse_constant(name: str) -> Any:
    message = f"{name} is not JSON"
    raise ValueError(message)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        message = f"{text[:40]} is out of range"
        raise ValueError(message)
    return number


def _repair(value: Any, info: inspect.Type) -> Any:
    match info:
        case inspect.StructType() if isinstance(value, dict):
            return _repair_members(cast("dict[str, Any]", value), info)
        case inspect.DictType() if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            return {name: _repair(member, info.value_type) for name, member in members.items()}
        case inspect.VarTupleType() if isinstance(value, list):
            return [_repair(item, info.item_type) for item in cast("list[Any]", value)]
        case inspect.UnionType() if value is not None:
            return _repair(value, next(t for t in info.types if not isinstance(t, _EMPTY)))
        case inspect.EnumType() if _is_enum_number(value):
            return _enum_by_number(info.cls, int(value))
        case inspect.BytesType() if isinstance(value, str):
            return _bytes(value)
        case _:
            return value


_EMPTY = (inspect.NoneType,)


def _repair_members(value: dict[str, Any], info: inspect.StructType) -> dict[str, Any]:
    repaired: dict[str, Any] = {}
    for field in info.fields:
        if field.encode_name not in value:
            continue
        member = value[field.encode_name]
        if member is None and not _takes_null(field.type):
            continue  # null means absent (ProtoJSON)
        repaired[field.encode_name] = _repair(member, field.type)
    return repaired


def _takes_null(info: inspect.Type) -> bool:
    if isinstance(info, inspect.UnionType):
        return any(_takes_null(member) for member in info.types)
    return isinstance(info, inspect.NoneType | inspect.AnyType)


_UNREADABLE = (msgspec.ValidationError, UnicodeEncodeError)


def _why_unreadable(error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):  # msgspec fails to encode a lone surrogate
        return "a text stands where something else belongs"
    return str(error).partition(" - at `")[0]


def _path_of_fault(value: Any, kind: Any) -> str:
    """Return the path of the first invalid member; msgspec does not report keys of dicts."""
    for step, member, member_kind in _members(value, kind):
        try:
            msgspec.convert(member, member_kind, strict=False)
        except _UNREADABLE:
            return step + _path_of_fault(member, member_kind)
    return ""


def _members(value: Any, kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the members of a value: the step of each in a path, its value, its expected type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType or origin is Union:
        yield from _members(value, next(k for k in arguments if k not in _NOTHING))
    elif isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        if origin is dict:
            for name, member in members.items():
                yield f"[{shown_key(str(name))}]", member, arguments[1]
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            for field in msgspec.structs.fields(kind):
                if field.encode_name in members:
                    yield f".{field.encode_name}", members[field.encode_name], field.type
    elif isinstance(value, list) and origin is tuple:
        for index, item in enumerate(cast("list[Any]", value)):
            yield f"[{index}]", item, arguments[0]


_NOTHING = (NoneType, msgspec.UnsetType)
_MAX_KEY_CHARACTERS = 40


def shown_key(name: str) -> str:
    """Quote a key for a path; a long key is truncated with an ellipsis."""
    shown = json.dumps(name[:_MAX_KEY_CHARACTERS])
    return shown if len(name) <= _MAX_KEY_CHARACTERS else f"{shown[:-1]}…"


def _is_enum_number(value: Any) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -(2**31) <= value < 2**31 and value == int(value)


def _enum_by_number(kind: type[Enum], number: int) -> str:
    """Return the enum name of a number; ProtoJSON allows numbers, in order of declaration."""
    members = list(kind)
    is_known = 0 <= number < len(members)
    return str(members[number].value) if is_known else str(number)


def _bytes(text: str) -> Any:
    """Decode base64 here: the conversion would read the base64 text ``null`` as null."""
    try:
        compact = text.encode("ascii").translate(_STANDARD, _WHITE_SPACE).rstrip(b"=")
        return base64.b64decode(compact + b"=" * (-len(compact) % 4), validate=True)
    except ValueError:
        return _NOT_BASE64  # the conversion then reports the member


_STANDARD = bytes.maketrans(b"-_", b"+/")
_WHITE_SPACE = bytes(byte for byte in range(128) if chr(byte).isspace())
_NOT_BASE64 = "?"
