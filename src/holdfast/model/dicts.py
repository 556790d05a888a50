"""Messages that callers write as dicts, in the words of any version of the protocol.

Read are ProtoJSON of 1.0 and of 0.3 (``content``, ``fileWithBytes``), the JSON-RPC form of 0.3
(``kind``, ``file``, role ``user``), and the form before that, which has ``type`` for ``kind``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from holdfast.errors.values import one_line
from holdfast.model.types import Message, Part

__all__ = ["message_of_1_0"]

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
_WRAPPED = "data_part_compat"
"""As in `holdfast.model.v03.reading`."""


def message_of_1_0(document: Mapping[str, Any]) -> dict[str, Any]:
    """A message as the JSON object of 1.0.

    Raises:
        ValueError: Its role, its kind or a part is unknown; the text says what to write.
    """
    names = {name: name.split("_") for name in Message.__struct_fields__ if "_" in name}
    in_camel_case = {n: w[0] + "".join(map(str.capitalize, w[1:])) for n, w in names.items()}
    message = {in_camel_case.get(name, name): value for name, value in document.items()}
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
    found = dict(cast("Mapping[str, Any]", part))
    for old, new in (("media_type", "mediaType"), ("mimeType", "mediaType")):
        if old in found:
            found.setdefault(new, found.pop(old))
    kind = found.pop("kind", None) or found.pop("type", None)
    found.pop("type", None)
    if kind is not None:
        _check_kind(kind, found, number)
    if "data" in found and (kind == "data" or is_older):
        _unwrap(found, is_older=is_older)
    if "file" in found:
        found.update(_file(found.pop("file"), number))
    return found


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
        members = cast("Mapping[str, Any]", file).items()
        found = {_FILE[name]: value for name, value in members if name in _FILE}
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
