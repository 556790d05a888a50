"""Validation of values that callers send: texts must be valid UTF-8, and JSON exact.

A codec would silently change other values (``{1: 2}``, a set, NaN), or fail in the middle of a
call. The message of each error begins with the path to the value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from enum import Enum
from typing import cast

import msgspec

from holdfast._model.codec import UnrepresentableError, shown_key
from holdfast._model.sdk_values import kind_of

__all__ = ["check_json", "check_sendable", "check_text"]

_JSON_MEMBERS = ("data", "metadata")
"""Members of the model that hold arbitrary JSON; all others have types of the model."""

_ABSENT = (type(None), msgspec.UnsetType)

_MAX_INTEGER_BITS = 14_000
"""Python converts integers of up to 4,300 digits to text."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class _WrongTypeError(UnrepresentableError):
    """A value does not have the type of its member."""


def check_text(path: str, text: str) -> None:
    """Check that a text can be encoded as UTF-8.

    Raises:
        TypeError: The text is an instance of a subclass of str, which the codec rejects.
        ValueError: The text has an unpaired surrogate.
    """
    _check(path, text, is_json=True)


def check_json(path: str, value: object) -> None:
    """Check that a value is JSON, so that encoding does not change it.

    Args:
        path: Name of the value in errors, such as ``metadata``.
        value: The caller's value; tuples count as arrays.

    Raises:
        ValueError: A value has no JSON type, a key is not a string, a container contains itself or
            is nested too deeply, or a text has an unpaired surrogate.
        TypeError: A text is an instance of a subclass of str.
    """
    _check(path, value, is_json=True)


def check_sendable(path: str, value: object) -> None:
    """Check a value of the model: its texts and its JSON.

    Args:
        path: Name of the value in errors, such as ``message``.
        value: A message, a request, or a member of one.

    Raises:
        ValueError: See `check_json`.
        TypeError: Metadata is not a dict, or a text is an instance of a subclass of str.
    """
    _check(path, value, is_json=False)


def _check(path: str, value: object, *, is_json: bool) -> None:
    try:
        if is_json:
            _check_json(value, ())
        else:
            _check_member(value)
    except UnrepresentableError as error:
        kind = TypeError if isinstance(error, _WrongTypeError) else ValueError
        message = f"{path}{''.join(reversed(error.steps))} {error.reason}"
    except RecursionError:
        kind, message = ValueError, f"{path} is nested too deeply"
    else:
        return
    raise kind(message)


def _check_member(value: object) -> None:
    """Check a value of the model, or of one of its members."""
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, msgspec.Struct):
        names: tuple[str, ...] = value.__struct_fields__
        members: tuple[object, ...] = msgspec.structs.astuple(value)
        for name, member in zip(names, members, strict=True):
            if isinstance(member, _ABSENT):
                continue
            try:
                _check_named(name, member)
            except UnrepresentableError as error:
                raise error.within(f".{name}") from None
    elif isinstance(value, tuple | list):
        for index, item in enumerate(cast("Iterable[object]", value)):
            try:
                _check_member(item)
            except UnrepresentableError as error:
                raise error.within(f"[{index}]") from None


def _check_named(name: str, member: object) -> None:
    if name not in _JSON_MEMBERS:
        _check_member(member)
    elif name == "metadata" and not isinstance(member, dict):
        reason = f"must be a dict, not {kind_of(member, dict)}"
        raise _WrongTypeError(reason)
    else:
        _check_json(cast("object", member), ())


def _check_json(value: object, around: tuple[int, ...]) -> None:
    """Check a JSON value.

    Args:
        value: The value.
        around: Ids of the containers around it.
    """
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, dict | list | tuple):
        if id(cast("object", value)) in around:
            raise UnrepresentableError("contains itself")
        steps = (
            _members(cast("dict[object, object]", value))
            if isinstance(value, dict)
            else enumerate(cast("Iterable[object]", value))
        )
        around = (*around, id(cast("object", value)))
        for step, member in steps:
            if type(member) is str and member.isascii():
                continue
            try:
                _check_json(member, around)
            except UnrepresentableError as error:
                raise error.within(
                    f"[{shown_key(step) if isinstance(step, str) else step}]"
                ) from None
    else:
        _check_number(value)


def _members(value: dict[object, object]) -> Iterable[tuple[object, object]]:
    for key in value:
        if not isinstance(key, str):
            reason = f"has a key that is {type(key).__name__}, but JSON keys must be str"
            raise UnrepresentableError(reason)
        if not key.isascii() and (reason := _fault(key)):
            reason = f"has a key with {reason}"
            raise UnrepresentableError(reason)
    return value.items()


def _check_text(text: str) -> None:
    if type(text) is not str and not isinstance(text, Enum):
        reason = f"must be str, not {type(text).__name__}; pass str(…)"
        raise _WrongTypeError(reason)
    if not text.isascii() and (reason := _fault(text)):
        reason = f"has {reason}"
        raise UnrepresentableError(reason)


def _fault(text: str) -> str:
    """Describe why a text cannot be encoded as UTF-8; empty if it can."""
    surrogate = _SURROGATE.search(text)
    if surrogate is None:
        return ""
    shown = f"\\u{ord(surrogate[0]):04x} at index {surrogate.start()}"
    return f"an unpaired surrogate ({shown}), which UTF-8 cannot encode"


def _check_number(value: object) -> None:
    reason = f"must be JSON, not {kind_of(value, dict)}"
    if isinstance(value, int) and (type(value) is int or isinstance(value, Enum)):
        if value.bit_length() <= _MAX_INTEGER_BITS:
            return
        reason = "is a number of more than 4,000 digits"
    elif type(value) is float:
        if math.isfinite(value):
            return
        reason = f"is {value}, which is not JSON"
    raise UnrepresentableError(reason)
