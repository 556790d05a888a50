"""Messages that callers write as dicts, in the words of any version of the protocol.

A member that no version has is refused, because it would be dropped. Read are ProtoJSON of 1.0
and of 0.3 (``content``, ``fileWithBytes``), the JSON-RPC form of 0.3 (``kind``, ``file``, role
``user``), and the form before that, which has ``type`` for ``kind``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from holdfast._model.error_values import one_line
from holdfast._model.settings import suggestion
from holdfast.types import Message, Part, WireValue

__all__ = ["to_message_v1"]

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
"""Members of a file in every version, and what parts of 1.0 call them."""


def _names(kind: type[WireValue]) -> dict[str, str]:
    """The members of a type, by their names in JSON and in Python."""
    fields = msgspec.structs.fields(kind)
    return {name: one.encode_name for one in fields for name in (one.encode_name, one.name)}


_MESSAGE = _names(Message)
_PART = {**_names(Part), "mimeType": "mediaType", "mime_type": "mediaType"}
"""Members in every version, and what 1.0 calls them."""
_WRAPPED = "data_part_compat"
"""As in `holdfast._model.v03.reading`."""


def to_message_v1(document: Mapping[str, Any]) -> dict[str, Any]:
    """A message as the JSON object of 1.0.

    Raises:
        ValueError: Its role, its kind or a part is unknown; the text says what to write.
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
            text = f'the role of a message is "user", or "agent", not {_shown(role)}'
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
        return part  # which whoever reads it refuses, by its place
    what = f"part {number}"
    found = _renamed(cast("Mapping[str, Any]", part), _PART, what)
    kind = found.pop("kind", None) or found.pop("type", None)
    found.pop("type", None)
    if kind is not None:
        _check_kind(kind, found, number)
    if "data" in found and (kind == "data" or is_older):
        _unwrap(found, is_older=is_older)
    if "file" in found:
        found.update(_file(found.pop("file"), number))
    _check_members(found, _PART, what)
    return found


def _renamed(document: Mapping[str, Any], names: Mapping[str, str], what: str) -> dict[str, Any]:
    """Copy an object, with the members' names of 1.0 for those of other versions."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        renamed = names.get(name, name)
        if renamed in found:
            text = f"{what} has {renamed!r} twice, the other time as another version writes it"
            raise ValueError(text)
        found[renamed] = value
    return found


def _check_members(found: Mapping[str, Any], names: Mapping[str, str], what: str) -> None:
    """Check that an object has members of the protocol only.

    Raises:
        ValueError: It has another; the message says which name is nearest.
    """
    known = dict.fromkeys(names.values())
    for name in found:
        if name not in known:
            hint = suggestion(str(name), list(known))
            if what == "the message" and "parts" not in found:
                hint = 'write {"parts": [{"text": …}]}'
            text = f"{_shown(name)} is not a member of {what}; {hint}"
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
    """Takes data out of the objects that 0.3 puts it into."""
    data = part["data"]
    if is_older and isinstance(data, dict) and data.keys() == {"data"}:
        data = part["data"] = cast("dict[str, Any]", data)["data"]
    metadata = part.get("metadata")
    if isinstance(metadata, dict) and cast("dict[str, Any]", metadata).get(_WRAPPED) is True:
        if isinstance(data, dict) and "value" in data:
            part["data"] = cast("dict[str, Any]", data)["value"]
        members = cast("dict[str, Any]", metadata).items()
        part["metadata"] = {name: value for name, value in members if name != _WRAPPED} or None


def _file(file: object, number: int) -> dict[str, Any]:
    if isinstance(file, Mapping):
        given = cast("Mapping[str, Any]", file)
        for name in given:
            if name not in _FILE:
                hint = suggestion(str(name), [known for known in _FILE if "_" not in known])
                message = f"{_shown(name)} is not a member of the file of part {number}; {hint}"
                raise ValueError(message)
        found = _renamed(given, _FILE, f"the file of part {number}")
        found = {name: value for name, value in found.items() if value is not None}
        if len({"raw", "url"} & found.keys()) == 1:
            return found
    text = (
        f"the file of part {number} must have either its content or its address: "
        'write {"file": {"bytes": "<base64>"}} or {"file": {"uri": …}}'
    )
    raise ValueError(text)


def _shown(value: object) -> str:
    return one_line(repr(value), 50)
