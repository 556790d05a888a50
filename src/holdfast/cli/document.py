"""JSON documents of the protocol's own types (a2a-cli, appendix B; A2A 5.5).

Rules: what the agent said is there, under the names of the data model; a list or map that the
data model requires (``field_behavior = REQUIRED`` in ``a2a.proto``) is there even if it is empty,
so that schema validators are content; nothing else is added.
"""

from __future__ import annotations

import base64
import json
import re
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.model import card, types

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["document", "write_json"]

_REQUIRED: Mapping[type, frozenset[str]] = {
    types.Message: frozenset({"parts"}),
    types.Artifact: frozenset({"parts"}),
    card.AgentCard: frozenset(
        {"supported_interfaces", "default_input_modes", "default_output_modes", "skills"}
    ),
    card.AgentSkill: frozenset({"tags"}),
    card.AuthorizationCodeOAuthFlow: frozenset({"scopes"}),
    card.ClientCredentialsOAuthFlow: frozenset({"scopes"}),
    card.DeviceCodeOAuthFlow: frozenset({"scopes"}),
}
_NONE: frozenset[str] = frozenset()

_UNSAFE = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""What a terminal, a reader of lines or UTF-8 takes amiss, beside what JSON escapes anyway."""


def document(value: object) -> Any:
    """Turns a value of the data model into plain JSON values."""
    match value:
        case msgspec.Struct():
            return _members(value)
        case Enum():
            return str(value.value)
        case bytes():
            return base64.b64encode(value).decode()
        case tuple():
            return [document(item) for item in cast("tuple[object, ...]", value)]
        case dict():
            members = cast("dict[str, object]", value)
            return {
                name: document(member) if isinstance(member, msgspec.Struct) else member
                for name, member in members.items()
            }
        case _:
            return value


def write_json(value: Any, *, ascii_only: bool = False) -> str:
    """Writes plain JSON values as one indented document, safe to show in a terminal."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=2)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _members(value: msgspec.Struct) -> dict[str, Any]:
    required = _REQUIRED.get(type(value), _NONE)
    members: dict[str, Any] = {}
    for name, encoded in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        member = getattr(value, name)
        if member is msgspec.UNSET or (member is None and name != "data"):
            continue
        if member in ((), {}) and name != "data" and name not in required:
            continue
        members[encoded] = document(member)
    return members
