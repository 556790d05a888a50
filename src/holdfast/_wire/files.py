"""The content of files in messages of ``a2a.v1``: over HTTP+JSON and gRPC of protocol 0.3.

The proto has a field of bytes, which is the content. The official servers for Python, Java and Go
convert their JSON-RPC types, where a file is base64 text, and put that text into the field.
Servers that follow the proto put the content there.

Rules: what was received is decoded only where the server is known to put text there, and only if
it is base64 text in its one canonical form, with padding and without line breaks; anything else is
the content itself.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from holdfast._model import codec
from holdfast.types import Artifact, Message, Part

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["as_base64", "base64_hint_in", "from_base64", "has_content", "may_be_base64"]

T = TypeVar("T")


def base64_hint_in(error: object) -> bool | None:
    """Whether a server that words the error of an unknown task so takes base64 text for bytes.

    Args:
        error: What it answered to GetTask: the JSON of the body, or the text of the gRPC status.

    Returns:
        None where it says nothing: others than an agent answer with a mere message, too.
    """
    members = codec.as_object(error)
    if members is None:
        if not isinstance(error, str) or not error:
            return None
        return error.startswith("TaskNotFoundError:") or error.endswith("task not found")
    text, kind = members.get("message"), members.get("error")
    if not isinstance(text, str):
        return False if isinstance(kind, dict) else None
    if members.keys() == {"error", "message"}:
        return True if isinstance(kind, str) and _CLASS.fullmatch(kind) else None
    if members.keys() <= {"message", "data"}:
        return True if "task" in text.lower() else None
    return False if "code" in members else None


_CLASS = re.compile(r"[a-z0-9.]+\.TaskNotFoundError\w*")
"""How official servers for Java name an error over HTTP+JSON: by its class."""


def as_base64(value: T) -> T:
    """A request or reply with the base64 text of each file in place of its content."""
    written: T = _mapped(value, base64.b64encode)
    return written


def from_base64(value: T) -> T:
    """The same with the content of each file in place of its base64 text."""
    read: T = _mapped(value, _content)
    return read


def has_content(value: object) -> bool:
    """Whether there is a file in it that comes by content."""
    return _any(value, lambda _: True)


def may_be_base64(value: object) -> bool:
    """Whether there is a file in it whose content is base64 text, so that it may mean two things.

    An empty file means the same in both forms.
    """
    return _any(value, lambda raw: raw != b"" and _content(raw) is not raw)


def _content(raw: bytes) -> bytes:
    try:
        decoded = base64.b64decode(raw, validate=True)
    except (binascii.Error, ValueError):
        return raw
    return decoded if base64.b64encode(decoded) == raw else raw


def _any(value: object, is_such: Callable[[bytes], bool]) -> bool:
    if isinstance(value, Part):
        return value.raw is not None and is_such(value.raw)
    return any(_any(item, is_such) for item in _items(value))


def _mapped(value: Any, change: Callable[[bytes], bytes]) -> Any:
    """A value with the content of its files changed; the value itself where there are none."""
    if isinstance(value, Part):
        return value if value.raw is None else _replaced(value, raw=change(value.raw))
    changed: dict[str, Any] = {}
    for name, member in _members(value):
        if not isinstance(member, tuple):
            new = _mapped(member, change)
            if new is not member:
                changed[name] = new
            continue
        items = cast("tuple[Any, ...]", member)
        mapped = tuple(_mapped(item, change) for item in items)
        if any(new is not old for new, old in zip(mapped, items, strict=True)):
            changed[name] = mapped
    return _replaced(value, **changed) if changed else value


def _replaced(value: Any, **changed: Any) -> Any:
    return msgspec.structs.replace(value, **changed)


_HOLDING = ("message", "task", "status_update", "artifact_update", "status", "artifact")
_LISTS = ("tasks", "artifacts", "history")
"""Members of requests, replies and tasks that have files somewhere in them."""


def _members(value: object) -> list[tuple[str, Any]]:
    if not isinstance(value, msgspec.Struct):
        return []
    names = ("parts",) if isinstance(value, Message | Artifact) else (*_HOLDING, *_LISTS)
    found = ((name, getattr(value, name, None)) for name in names)
    return [(name, member) for name, member in found if member]


def _items(value: object) -> list[Any]:
    found: list[Any] = []
    for _, member in _members(value):
        if isinstance(member, tuple):
            found.extend(cast("tuple[Any, ...]", member))
        else:
            found.append(member)
    return found
