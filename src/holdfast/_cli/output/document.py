"""JSON documents of the protocol's own types (a2a-cli, appendix B; A2A 5.5).

Rules: what the agent said is there, under the names of the data model; a list or map that the
data model requires (``field_behavior = REQUIRED`` in ``a2a.proto``) is there even if it is empty,
so that schema validators are content; nothing else is added.
"""

from __future__ import annotations

import base64
import json
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast import types
from holdfast._cli.output.sanitizer import replace_special

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping

    from holdfast._cli.saving import Saved
    from holdfast.types import Task

__all__ = ["SAVED_AS", "document", "with_paths", "write_json"]

SAVED_AS = "holdfast/savedAs"
"""The member of a part's metadata that names the file that it was saved as."""

_REQUIRED: Mapping[type, frozenset[str]] = {
    types.Message: frozenset({"parts"}),
    types.Artifact: frozenset({"parts"}),
    types.ListTasksResponse: frozenset({"tasks"}),
    types.AgentCard: frozenset(
        {"supported_interfaces", "default_input_modes", "default_output_modes", "skills"}
    ),
    types.AgentSkill: frozenset({"tags"}),
    types.AuthorizationCodeOAuthFlow: frozenset({"scopes"}),
    types.ClientCredentialsOAuthFlow: frozenset({"scopes"}),
    types.DeviceCodeOAuthFlow: frozenset({"scopes"}),
}
_NONE: frozenset[str] = frozenset()
_UNLESS_TRUE = frozenset({"append", "last_chunk"})
"""What is not there unless it is true, as in the protocol's own JSON."""


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


def with_paths(task: Task, saved: Iterable[Saved]) -> Task:
    """The task with the paths of its saved parts, in the parts' metadata (A2A 4.1.6)."""
    paths = {
        (one.file.artifact.artifact_id, number): str(one.path.absolute())
        for one in saved
        for number in one.file.parts
    }
    replace = msgspec.structs.replace

    def part_of(artifact: types.Artifact, number: int, part: types.Part) -> types.Part:
        path = paths.get((artifact.artifact_id, number))
        if path is None:
            return part
        return replace(part, metadata={**(part.metadata or {}), SAVED_AS: path})

    artifacts = tuple(
        replace(one, parts=tuple(part_of(one, n, part) for n, part in enumerate(one.parts)))
        for one in task.artifacts
    )
    return replace(task, artifacts=artifacts)


def write_json(value: Any, *, ascii_only: bool = False, in_line: bool = False) -> str:
    """Writes plain JSON values, safe to show in a terminal: indented, or in one line."""
    indent, separators = (None, (",", ":")) if in_line else (2, None)
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=separators)
    return replace_special(text, _in_json)


def _in_json(found: re.Match[str]) -> str:
    """The character as JSON escapes it: one that is beyond 16 bits in two halves (RFC 8259, 7)."""
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2))


def _members(value: msgspec.Struct) -> dict[str, Any]:
    required = _REQUIRED.get(type(value), _NONE)
    members: dict[str, Any] = {}
    for name, encoded in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        member = getattr(value, name)
        if member is msgspec.UNSET or (member is None and name != "data"):
            continue
        if member in ((), {}) and name != "data" and name not in required:
            continue
        if member is False and name in _UNLESS_TRUE:
            continue
        members[encoded] = document(member)
    return members
