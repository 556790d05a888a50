"""``-o json``: documents of the protocol's own types, or the error envelope.

Rules (a2a-cli, appendix B; A2A 5.5): the agent's answer is shown under the names of the data
model; a list or map that the data model requires (``field_behavior = REQUIRED`` in ``a2a.proto``)
is there even if it is empty, so that schema validators are content; nothing else is added, but
``sent`` for a message with a key.
"""

from __future__ import annotations

import base64
import codecs
import json
import sys
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast._cli.output.base import (
    CardShown,
    ConfigDeleted,
    DiagnosisShown,
    FilesSaved,
    Measurement,
    MessageSending,
    MessageSent,
    Output,
    Record,
    Result,
    RunEnded,
    SettingsShown,
    StreamEnded,
    StreamEvent,
    TaskBegan,
    WaitEnded,
    encoding_of,
    write,
)
from holdfast._cli.output.card_text import verified
from holdfast._cli.output.sanitizer import replace_special
from holdfast.types import (
    AgentCard,
    AgentSkill,
    Artifact,
    AuthorizationCodeOAuthFlow,
    ClientCredentialsOAuthFlow,
    DeviceCodeOAuthFlow,
    Empty,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    Part,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from holdfast._cli.errors import Failure
    from holdfast._cli.options.settings import Settings
    from holdfast._cli.output.base import OutputEvent, SavedFile
    from holdfast.types import Event, WireValue

__all__ = ["SAVED_AS", "JsonOutput", "document", "with_paths", "write_json"]


class JsonOutput(Output):
    """``-o json``: a document of the protocol's own types, or the error envelope.

    With ``--stream`` each is one line.
    """

    def __init__(self, settings: Settings | None = None, *, in_lines: bool = False) -> None:
        super().__init__(settings)
        self._in_lines = in_lines or (settings is not None and settings.stream)
        self._failure_members: dict[str, Any] = {}
        """Members for the document of a failure."""
        self._key_members: dict[str, bool] = {}
        """Members for each document about a message with a key."""

    def _show(self, event: OutputEvent) -> None:  # noqa: C901, PLR0912  a case for each event
        match event:
            case MessageSent(is_new):
                self._key_members = {"sent": is_new}
            case TaskBegan(task):  # named if it is not part of the document
                self._diagnostic("Task ID", task.id)
                self.has_named_task = True
            case StreamEvent(of_stream, task):
                self._document(document(_response(of_stream)))
                self.has_named_task = task is not None
            case Result(value):
                for each in self._documents(value):
                    self._document(document(each))
            case FilesSaved(task, files, is_whole):
                if is_whole:
                    self._document(document(with_paths(task, files)))
                    return
                for file in files:  # the document is the error's
                    self._diagnostic("Saved", str(file.path))
            case ConfigDeleted():  # the agent's answer is empty
                self._document(document(Empty()))
            case CardShown(card, _, verification):
                self._document(document(card))
                if verification is not None:  # the document is the protocol's own
                    self._diagnostic("Signature", verified(verification))
            case SettingsShown():
                self._document(_settings(event))
            case Record(members):
                self._document(dict(members))
            case Measurement(members, _, is_last):
                self._close(cast("dict[str, Any]", self._hiding(dict(members))), is_last=is_last)
            case RunEnded(counts, _, is_last):
                self._close({"run": counts}, is_last=is_last)
            case DiagnosisShown(diagnosis, only_problems, is_last):
                members = diagnosis.hiding(self._redacted).to_dict()
                if only_problems:
                    levels = {"problem", "warning"}
                    members["findings"] = [f for f in members["findings"] if f["level"] in levels]
                self._close({"diagnosis": members}, is_last=is_last)
            case MessageSending() | WaitEnded() | StreamEnded():
                pass  # a document or the error shows it
            case _:
                raise TypeError(event)

    def _fail(self, failure: Failure) -> None:
        self._document({"error": self.error_members(failure), **self._failure_members})

    def _documents(self, value: WireValue) -> Iterable[WireValue]:
        """Return the values that have a document of their own: of a page in lines, each item."""
        if self._in_lines and isinstance(value, ListTasksResponse):
            return value.tasks
        if self._in_lines and isinstance(value, ListTaskPushNotificationConfigsResponse):
            return value.configs
        return (value,)

    def _close(self, members: dict[str, Any], *, is_last: bool) -> None:
        """Write a document, or keep its members for that of the failure that follows."""
        if is_last:
            self._document(members)
        else:
            self._failure_members = members

    def _hiding(self, value: object) -> object:
        """Return a document without the secrets in its texts."""
        match value:
            case str():
                return self._redacted(value)
            case dict():
                members = cast("dict[str, object]", value)
                return {name: self._hiding(member) for name, member in members.items()}
            case list():
                return [self._hiding(item) for item in cast("list[object]", value)]
            case _:
                return value

    def _document(self, value: dict[str, Any]) -> None:
        """Write JSON as UTF-8 or, if the stream has another encoding, as ASCII."""
        in_utf8 = codecs.lookup(encoding_of(sys.stdout)).name == "utf-8"
        members = {**value, **self._key_members}
        text = write_json(members, ascii_only=not in_utf8, in_line=self._in_lines)
        write(f"{text}\n")


def _response(event: Event) -> StreamResponse:
    """Return an event in its envelope."""
    match event:
        case Task():
            return StreamResponse(task=event)
        case Message():
            return StreamResponse(message=event)
        case TaskStatusUpdateEvent():
            return StreamResponse(status_update=event)
        case TaskArtifactUpdateEvent():
            return StreamResponse(artifact_update=event)


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _settings(shown: SettingsShown) -> dict[str, Any]:
    """Return the settings in effect as members of a document."""
    settings = [
        {
            "name": setting.name,
            "variable": setting.variable,
            "value": setting.value,
            "source": setting.source.name,
            "file": _path(setting.source.path),
        }
        for setting in shown.settings
    ]
    local, shared = shown.configuration.local, shown.configuration.shared
    logins = [{"agent": agent, "file": file} for agent, file in shown.logins.items()]
    files = {"local": _path(local), "global": _path(shared)}
    return {"settings": settings, "files": files, "logins": logins}


SAVED_AS = "holdfast/savedAs"
"""The member of a part's metadata that names the file that it was saved as."""

_REQUIRED: Mapping[type, frozenset[str]] = {
    Message: frozenset({"parts"}),
    Artifact: frozenset({"parts"}),
    ListTasksResponse: frozenset({"tasks"}),
    AgentCard: frozenset(
        {"supported_interfaces", "default_input_modes", "default_output_modes", "skills"}
    ),
    AgentSkill: frozenset({"tags"}),
    AuthorizationCodeOAuthFlow: frozenset({"scopes"}),
    ClientCredentialsOAuthFlow: frozenset({"scopes"}),
    DeviceCodeOAuthFlow: frozenset({"scopes"}),
}
_NONE: frozenset[str] = frozenset()
_UNLESS_TRUE = frozenset({"append", "last_chunk"})
"""Members that are left out unless true, as in the protocol's own JSON."""


def document(value: object) -> Any:
    """Convert a value of the data model into plain JSON values."""
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


def with_paths(task: Task, saved: Iterable[SavedFile]) -> Task:
    """Return the task with the paths of its saved parts, in the parts' metadata (A2A 4.1.6)."""
    paths = {
        (file.artifact.artifact_id, number): str(file.path.absolute())
        for file in saved
        for number in file.parts
    }
    replace = msgspec.structs.replace

    def part_of(artifact: Artifact, number: int, part: Part) -> Part:
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
    """Return plain JSON values as text, safe to show in a terminal: indented, or in one line."""
    indent, separators = (None, (",", ":")) if in_line else (2, None)
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=separators)
    return replace_special(text, _in_json)


def _in_json(match: re.Match[str]) -> str:
    """Return the JSON escape of a character: two halves beyond 16 bits (RFC 8259, 7)."""
    units = match[0].encode("utf-16-be", "surrogatepass")
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
