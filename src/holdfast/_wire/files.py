"""File content in messages of ``a2a.v1``: HTTP+JSON and gRPC of protocol 0.3.

The proto defines a bytes field that holds the content. The official servers for Python, Java and
Go convert their JSON-RPC types, in which a file is base64 text, and put that text into the field;
servers that follow the proto put the content there.

Rules: a received file is decoded only if the server is known to send base64 text, and only if it
is canonical base64, with padding and without line breaks; anything else is the content itself.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from holdfast._model import codec
from holdfast._model.error_reading import is_error_info, objects_in
from holdfast.types import Artifact, Message, Part

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["as_base64", "from_base64", "has_content", "may_be_base64", "sends_base64"]

T = TypeVar("T")


def sends_base64(error: object) -> bool | None:
    """Infer from the error of an unknown task whether a server sends file content as base64.

    Args:
        error: The reply to GetTask: the JSON of the body, or the text of the gRPC status.

    Returns:
        None if the error proves nothing: a proxy may also answer with only a message.
    """
    members = codec.as_object(error)
    if members is None:
        if not isinstance(error, str) or not error:
            return None
        return error.startswith("TaskNotFoundError:") or error.endswith("task not found")
    text, kind = members.get("message"), members.get("error")
    if not isinstance(text, str):
        failure = codec.as_object(kind)
        if failure is None:
            return None
        # Of the servers of 0.3, only the official ones of 1.0 name reasons of A2A.
        return any(map(is_error_info, objects_in(failure.get("details"))))
    if members.keys() == {"error", "message"}:
        return True if isinstance(kind, str) and _JAVA_CLASS.fullmatch(kind) else None
    if members.keys() <= {"message", "data"}:
        return True if "task" in text.lower() else None
    return False if "code" in members else None


_JAVA_CLASS = re.compile(r"[a-z0-9.]+\.TaskNotFoundError\w*")
"""Error name of the official Java servers over HTTP+JSON: the name of its class."""


def as_base64(value: T) -> T:
    """Return a request or reply with the content of each file encoded as base64 text."""
    written: T = _map_files(value, base64.b64encode)
    return written


def from_base64(value: T) -> T:
    """Return a request or reply with the base64 text of each file decoded."""
    read: T = _map_files(value, _decoded)
    return read


def has_content(value: object) -> bool:
    """Return whether a value holds a file by content."""
    return _any_file(value, lambda _: True)


def may_be_base64(value: object) -> bool:
    """Return whether a file's content is itself valid base64 text, and so ambiguous.

    An empty file is the same in both forms.
    """
    return _any_file(value, lambda raw: raw != b"" and _decoded(raw) is not raw)


def _decoded(raw: bytes) -> bytes:
    try:
        decoded = base64.b64decode(raw, validate=True)
    except (binascii.Error, ValueError):
        return raw
    return decoded if base64.b64encode(decoded) == raw else raw


def _any_file(value: object, predicate: Callable[[bytes], bool]) -> bool:
    if isinstance(value, Part):
        return value.raw is not None and predicate(value.raw)
    return any(_any_file(item, predicate) for item in _items(value))


def _map_files(value: Any, change: Callable[[bytes], bytes]) -> Any:
    """Return a value with the content of its files changed; the value itself if it has none."""
    if isinstance(value, Part):
        return value if value.raw is None else _replaced(value, raw=change(value.raw))
    changed: dict[str, Any] = {}
    for name, member in _members(value):
        if not isinstance(member, tuple):
            new = _map_files(member, change)
            if new is not member:
                changed[name] = new
            continue
        items = cast("tuple[Any, ...]", member)
        mapped = tuple(_map_files(item, change) for item in items)
        if any(new is not old for new, old in zip(mapped, items, strict=True)):
            changed[name] = mapped
    return _replaced(value, **changed) if changed else value


def _replaced(value: Any, **changed: Any) -> Any:
    return msgspec.structs.replace(value, **changed)


_MEMBERS = ("message", "task", "status_update", "artifact_update", "status", "artifact")
_LIST_MEMBERS = ("tasks", "artifacts", "history")
"""Members of requests, replies and tasks that may contain files."""


def _members(value: object) -> list[tuple[str, Any]]:
    if not isinstance(value, msgspec.Struct):
        return []
    names = ("parts",) if isinstance(value, Message | Artifact) else (*_MEMBERS, *_LIST_MEMBERS)
    members = ((name, getattr(value, name, None)) for name in names)
    return [(name, member) for name, member in members if member]


def _items(value: object) -> list[Any]:
    items: list[Any] = []
    for _, member in _members(value):
        if isinstance(member, tuple):
            items.extend(cast("tuple[Any, ...]", member))
        else:
            items.append(member)
    return items
