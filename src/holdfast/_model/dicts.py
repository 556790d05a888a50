"""Messages that callers write as dicts, in the members of any protocol version.

An unknown member is an error, because it would be dropped. Accepted are ProtoJSON of 1.0 and of
0.3 (``content``, ``fileWithBytes``), the JSON-RPC form of 0.3 (``kind``, ``file``, role ``user``),
and its predecessor, which has ``type`` for ``kind``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from holdfast._model.error_values import one_line
from holdfast._model.settings import suggestion
from holdfast.types import Message, Part, WireValue

__all__ = ["WRAPPED_DATA", "to_message_v1"]

WRAPPED_DATA = "data_part_compat"
"""Metadata member of a part: its data is not an object, as 0.3 requires, and so is wrapped in
``{"value": …}``. Official agents use it too."""

_ROLES = {
    "user": "ROLE_USER",
    "agent": "ROLE_AGENT",
    "ROLE_USER": "ROLE_USER",
    "ROLE_AGENT": "ROLE_AGENT",
    "ROLE_UNSPECIFIED": "ROLE_UNSPECIFIED",
}
_KINDS = ("text", "file", "data")
_FILE = {
    "bytes": "raw",
    "fileWithBytes": "raw",
    "file_with_bytes": "raw",
    "uri": "url",
    "fileWithUri": "url",
    "file_with_uri": "url",
    "name": "filename",
    "mimeType": "mediaType",
    "mime_type": "mediaType",
}
"""Members of a file in every version, with their names in parts of 1.0."""


def _names(kind: type[WireValue]) -> dict[str, str]:
    """Return the members of a type: both their JSON and Python names, mapped to the JSON name."""
    fields = msgspec.structs.fields(kind)
    return {
        name: field.encode_name for field in fields for name in (field.encode_name, field.name)
    }


_MESSAGE = _names(Message)
_PART = {**_names(Part), "mimeType": "mediaType", "mime_type": "mediaType"}
"""Members in every version, with their names in 1.0."""


def to_message_v1(document: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a message to the JSON object of 1.0.

    Raises:
        ValueError: The role, the kind or a part is unknown; the text says what to write.
    """
    message = _renamed(document, _MESSAGE, "the message")
    for name in ("kind", "type"):
        kind = message.pop(name, "message")
        if kind != "message":
            text = f"a dict of {name} {_shown(kind)} is not a message"
            raise ValueError(text)
    role = message.get("role")
    if isinstance(role, str):
        if role and role not in _ROLES:
            text = f'the role of a message must be "user" or "agent", not {_shown(role)}'
            raise ValueError(text)
        message["role"] = _ROLES.get(role, "ROLE_UNSPECIFIED")
    is_older = "parts" not in message and isinstance(message.get("content"), list | tuple)
    if is_older:
        message["parts"] = message.pop("content")
    _check_members(message, _MESSAGE, "the message")
    parts: object = message.get("parts")
    if isinstance(parts, list | tuple):
        numbered = enumerate(cast("list[object]", parts), start=1)
        message["parts"] = [_part(part, number, is_older=is_older) for number, part in numbered]
    return message


def _part(part: object, number: int, *, is_older: bool) -> object:
    if isinstance(part, str):
        return {"text": part}
    if isinstance(part, Part):
        return part.to_dict()
    if not isinstance(part, Mapping):
        return part  # the decoder rejects it, with its path
    subject = f"part {number}"
    members = _renamed(cast("Mapping[str, Any]", part), _PART, subject)
    kind = members.pop("kind", None) or members.pop("type", None)
    members.pop("type", None)
    if kind is not None:
        _check_kind(kind, members, number)
    if "data" in members and (kind == "data" or is_older):
        _unwrap(members, is_older=is_older)
    if "file" in members:
        members.update(_file(members.pop("file"), number))
    _check_members(members, _PART, subject)
    return members


def _renamed(
    document: Mapping[str, Any], names: Mapping[str, str], subject: str
) -> dict[str, Any]:
    """Copy an object with the member names of 1.0."""
    members: dict[str, Any] = {}
    for name, value in document.items():
        renamed = names.get(name, name)
        if renamed in members:
            text = f"{subject} has {renamed!r} twice, in the spellings of two protocol versions"
            raise ValueError(text)
        members[renamed] = value
    return members


def _check_members(members: Mapping[str, Any], names: Mapping[str, str], subject: str) -> None:
    """Check that an object has no unknown members.

    Raises:
        ValueError: A member is unknown; the message suggests the closest name.
    """
    known_names = dict.fromkeys(names.values())
    for name in members:
        if name not in known_names:
            hint = suggestion(str(name), list(known_names))
            if subject == "the message" and "parts" not in members:
                hint = 'write {"parts": [{"text": …}]}'
            text = f"{_shown(name)} is not a member of {subject}; {hint}"
            raise ValueError(text)


def _check_kind(kind: object, part: Mapping[str, Any], number: int) -> None:
    if kind not in _KINDS:
        text = (
            f"part {number} is of kind {_shown(kind)}: "
            'write {"text": …}, {"file": …} or {"data": …}'
        )
        raise ValueError(text)
    if kind not in part and not (kind == "file" and {"raw", "url"} & part.keys()):
        text = f'part {number} is of kind "{kind}" and has no "{kind}": write {{"{kind}": …}}'
        raise ValueError(text)


def _unwrap(part: dict[str, Any], *, is_older: bool) -> None:
    """Extract data from the objects in which 0.3 wraps it."""
    data = part["data"]
    if is_older and isinstance(data, dict) and data.keys() == {"data"}:
        data = part["data"] = cast("dict[str, Any]", data)["data"]
    metadata = part.get("metadata")
    if isinstance(metadata, dict) and cast("dict[str, Any]", metadata).get(WRAPPED_DATA) is True:
        if isinstance(data, dict) and "value" in data:
            part["data"] = cast("dict[str, Any]", data)["value"]
        members = cast("dict[str, Any]", metadata).items()
        part["metadata"] = {name: value for name, value in members if name != WRAPPED_DATA} or None


def _file(file: object, number: int) -> dict[str, Any]:
    if isinstance(file, Mapping):
        document = cast("Mapping[str, Any]", file)
        for name in document:
            if name not in _FILE:
                hint = suggestion(str(name), [member for member in _FILE if "_" not in member])
                message = f"{_shown(name)} is not a member of the file of part {number}; {hint}"
                raise ValueError(message)
        renamed = _renamed(document, _FILE, f"the file of part {number}")
        members = {name: value for name, value in renamed.items() if value is not None}
        if len({"raw", "url"} & members.keys()) == 1:
            return members
    text = (
        f"the file of part {number} must have either its content or its address: "
        'write {"file": {"bytes": "<base64>"}} or {"file": {"uri": …}}'
    )
    raise ValueError(text)


def _shown(value: object) -> str:
    return one_line(repr(value), 50)
