"""``-o json``: documents of the protocol's own types, or the error envelope."""

from __future__ import annotations

import codecs
import sys
from typing import TYPE_CHECKING, Any, cast

from holdfast._cli.output import text
from holdfast._cli.output.base import BaseOutput, encoding_of, write
from holdfast._cli.output.document import document, with_paths, write_json
from holdfast.types import (
    Empty,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from holdfast._cli.configuration import Configuration
    from holdfast._cli.errors import Failure
    from holdfast._cli.saving import Saved
    from holdfast._cli.settings import ResolvedSetting, Settings
    from holdfast._pipeline.cards.verification import CardVerification
    from holdfast.doctor import Diagnosis
    from holdfast.types import AgentCard, AgentInterface, Event, WireValue

__all__ = ["JsonOutput"]


class JsonOutput(BaseOutput):
    """``-o json``: a document of the protocol's own types, or the error envelope.

    With ``--stream`` each is one line.
    """

    def __init__(self, settings: Settings | None = None, *, in_lines: bool = False) -> None:
        super().__init__(settings)
        self._in_lines = in_lines or (settings is not None and settings.stream)
        self._found: dict[str, Any] = {}
        """What belongs into the document of a failure."""

    def sending(self, message: Message) -> None:
        """The document is what comes back."""
        self._keep(message)

    def began(self, task: Task) -> None:
        """Names the task where it is no part of the document."""
        self._say("Task ID", task.id)
        self.has_named_task = True

    def stopped_waiting(self, task: Task) -> None:
        """The error's message says it."""

    def event(self, event: Event, task: Task | None) -> None:
        self._document(document(_response(event)))
        self.has_named_task = task is not None

    def over(self) -> None:
        """Its last line is written."""

    def result(self, value: WireValue, *, history: bool = False) -> None:  # noqa: ARG002  all is there
        if self._in_lines and isinstance(value, ListTasksResponse):
            for task in value.tasks:
                self._document(document(task))
            return
        if self._in_lines and isinstance(value, ListTaskPushNotificationConfigsResponse):
            for config in value.configs:
                self._document(document(config))
            return
        self._document(document(value))

    def saved(self, task: Task, saved: Sequence[Saved], *, is_whole: bool) -> None:
        if is_whole:
            self._document(document(with_paths(task, saved)))
            return
        for one in saved:  # the document is the error's
            self._say("Saved", str(one.path))

    def deleted(self, task_id: str, config_id: str) -> None:  # noqa: ARG002  the agent says nothing
        self._document(document(Empty()))

    def card(
        self,
        card: AgentCard,
        chosen: AgentInterface | None,  # noqa: ARG002  same
        verification: CardVerification | None,
    ) -> None:
        self._document(document(card))
        if verification is not None:  # the document is the protocol's own
            self.tell("Signature", text.verified(verification))

    def settings(
        self,
        settings: Iterable[ResolvedSetting],
        configuration: Configuration,
        logins: Mapping[str, str],
    ) -> None:
        stated = [
            {
                "name": one.name,
                "variable": one.variable,
                "value": one.value,
                "source": one.source.name,
                "file": _path(one.source.path),
            }
            for one in settings
        ]
        files = {"local": _path(configuration.local), "global": _path(configuration.shared)}
        kept = [{"agent": agent, "file": file} for agent, file in logins.items()]
        self._document({"settings": stated, "files": files, "logins": kept})

    def failure(self, failure: Failure) -> None:
        self._document({"error": self.envelope(failure), **self._found})

    def run(self, counts: Mapping[str, Any], summary: str) -> None:  # noqa: ARG002  all is there
        self._document({"run": counts})

    def call(self, members: Mapping[str, Any], lines: Iterable[str]) -> None:  # noqa: ARG002  same
        self._document(dict(members))

    def report(
        self,
        members: Mapping[str, Any],
        lines: Iterable[str],  # noqa: ARG002  same
        *,
        is_last: bool,
    ) -> None:
        found = cast("dict[str, Any]", self._hiding(dict(members)))
        if is_last:
            self._document(found)
        else:
            self._found = found

    def _hiding(self, value: object) -> object:
        """A document without what is secret in its texts."""
        match value:
            case str():
                return self._hidden(value)
            case dict():
                members = cast("dict[str, object]", value)
                return {name: self._hiding(member) for name, member in members.items()}
            case list():
                return [self._hiding(item) for item in cast("list[object]", value)]
            case _:
                return value

    def diagnosis(self, diagnosis: Diagnosis, *, is_last: bool) -> None:
        found = {"diagnosis": diagnosis.hiding(self._hidden).to_dict()}
        if is_last:
            self._document(found)
        else:
            self._found = found

    def _document(self, value: Any) -> None:
        """Writes JSON as UTF-8 or, where the stream takes something else, as ASCII."""
        in_utf8 = codecs.lookup(encoding_of(sys.stdout)).name == "utf-8"
        written = write_json(value, ascii_only=not in_utf8, in_line=self._in_lines)
        write(f"{written}\n")


def _response(event: Event) -> StreamResponse:
    """An event in its envelope."""
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
