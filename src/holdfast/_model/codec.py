"""JSON in and out of the data model.

Rules: well-formed replies take the fast path; whatever servers are known to get wrong (null for
a list, integers for enum names, URL-safe or unpadded base64, lone surrogates, ``1.0`` for an
integer) is repaired on a second, slower one; what is still not the right shape raises
`MalformedError` with the path of the offending member. No codec's own exception leaves here.
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
"""What a decoder raises for what may be readable all the same."""

_encoder = msgspec.json.Encoder()


class MalformedError(ValueError):
    """JSON that is not JSON, or not of the shape that was asked for.

    Attributes:
        path: Where, as ``status.state``, ``parts[0]`` or ``schemes["key"]``; empty for the whole
            document.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{message} at {path}" if path else message)
        self.path = path


class UnrepresentableError(Exception):
    """A value that the form to write it in cannot hold.

    Attributes:
        why: What is wrong with it.
        steps: The way to it, innermost first, as ``.name`` and ``[0]``.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.steps: list[str] = []

    def within(self, step: str) -> UnrepresentableError:
        """Adds one step to the way, from inside out."""
        self.steps.append(step)
        return self

    @property
    def path(self) -> str:
        """The way to the value from outside in, as ``parts[0].data["n"]``."""
        return "".join(reversed(self.steps)).removeprefix(".")


def decode(data: bytes, kind: type[T]) -> T:
    """Reads one JSON document as a value of the model.

    Args:
        data: UTF-8 text of the document.
        kind: The type to read, a struct of this package or a plain type.

    Raises:
        MalformedError: The text is not JSON, nested too deeply, or of another shape.
    """
    try:
        return cast("T", decoder_of(kind).decode(data))
    except UNREADABLE:
        return from_builtins(parse(data), kind)


def parse(data: bytes) -> Any:
    """Reads JSON with the standard library's parser, which is slower and more forgiving.

    Raises:
        MalformedError: The text is not JSON, or nested too deeply.
    """
    try:
        # As UTF-8 (RFC 8259, 8.1): left to itself, it would take others that nobody has checked.
        text = data.decode("utf-8-sig", "surrogatepass")
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        why = "nested too deeply"
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, oversized integers
        why = "an HTML page, not JSON" if is_html(data) else f"not JSON: {error}"
    raise MalformedError(why)  # from outside: the parser's errors carry the whole text along


def is_html(content: bytes) -> bool:
    """Return whether a document begins as an HTML page."""
    return content.lstrip()[:100].lower().startswith((b"<!doctype", b"<html"))


def from_builtins(value: Any, kind: type[T]) -> T:
    """Makes a value of the model from dicts, lists and scalars, repairing what can be repaired.

    Raises:
        MalformedError: A member is missing or of another type.
    """
    try:
        repaired = _repair(value, _type_info(cast("Any", kind)))
        try:
            return msgspec.convert(repaired, kind, strict=False)
        except _UNREADABLE as error:
            message = _why_unreadable(error)
            raise MalformedError(message, _place(repaired, kind).lstrip(".")) from None
    except RecursionError:
        raise MalformedError("nested too deeply") from None


def encode(value: Any) -> bytes:
    """Writes a value of the model, or plain containers, as compact JSON.

    Lone surrogates, which servers send and UTF-8 cannot carry, are written as escapes.

    Raises:
        MalformedError: It is nested too deeply.
    """
    try:
        try:
            return _encoder.encode(value)
        except UnicodeEncodeError:
            return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()
    except RecursionError:
        raise MalformedError("nested too deeply") from None


def indented(text: bytes, spaces: int) -> bytes:
    """Lays JSON out over lines, `spaces` deeper on each level."""
    try:
        return msgspec.json.format(text, indent=spaces)
    except msgspec.DecodeError:  # an escaped lone surrogate
        return json.dumps(parse(text), indent=spaces).encode()


def to_builtins(value: Any) -> Any:
    """Turns a value of the model into what `json.loads` would give for its JSON."""
    return parse(encode(value))


def as_object(value: object) -> dict[str, Any] | None:
    """A parsed JSON object as one; None for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a type; making one is slow, so it is kept."""
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
    if isinstance(error, UnicodeEncodeError):  # it tries to read a lone surrogate as such
        return "a text stands where something else belongs"
    return str(error).partition(" - at `")[0]


def _place(value: Any, kind: Any) -> str:
    """Where the first member is that cannot be read: msgspec names no keys of a dict."""
    for step, member, its_kind in _members(value, kind):
        try:
            msgspec.convert(member, its_kind, strict=False)
        except _UNREADABLE:
            return step + _place(member, its_kind)
    return ""


def _members(value: Any, kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """What a value is made of: the step to it in a path, the member, and what it should be."""
    outer, inner = get_origin(kind), get_args(kind)
    if outer is UnionType or outer is Union:
        yield from _members(value, next(k for k in inner if k not in _NOTHING))
    elif isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        if outer is dict:
            for name, member in members.items():
                yield f"[{shown_key(str(name))}]", member, inner[1]
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            for field in msgspec.structs.fields(kind):
                if field.encode_name in members:
                    yield f".{field.encode_name}", members[field.encode_name], field.type
    elif isinstance(value, list) and outer is tuple:
        for index, item in enumerate(cast("list[Any]", value)):
            yield f"[{index}]", item, inner[0]


_NOTHING = (NoneType, msgspec.UnsetType)
_LONGEST_KEY = 40


def shown_key(name: str) -> str:
    """Show a key in a path; a long one is cut off at an ellipsis."""
    shown = json.dumps(name[:_LONGEST_KEY])
    return shown if len(name) <= _LONGEST_KEY else f"{shown[:-1]}…"


def _is_enum_number(value: Any) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -(2**31) <= value < 2**31 and value == int(value)


def _enum_by_number(kind: type[Enum], number: int) -> str:
    """ProtoJSON lets a server send the number; our enums are declared in that order."""
    members = list(kind)
    known = 0 <= number < len(members)
    return str(members[number].value) if known else str(number)


def _bytes(text: str) -> Any:
    """Decodes here: the conversion would take the base64 text ``null`` for a null."""
    try:
        compact = text.encode("ascii").translate(_STANDARD, _WHITE_SPACE).rstrip(b"=")
        return base64.b64decode(compact + b"=" * (-len(compact) % 4), validate=True)
    except ValueError:
        return _NOT_BASE64  # let the conversion name the member


_STANDARD = bytes.maketrans(b"-_", b"+/")
_WHITE_SPACE = bytes(byte for byte in range(128) if chr(byte).isspace())
_NOT_BASE64 = "?"
