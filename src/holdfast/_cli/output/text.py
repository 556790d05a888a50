"""Text for people and pipes: one ``Label: value`` per line, and blocks (a2a-cli 11.2).

Rules: a label means the same everywhere; what does not fit on one line is a block: its label's
line, the content, an empty line. Inside a block an empty line is written as one space, so that
the first empty line always ends it. What would steer a terminal, or hide in it, is escaped,
whatever its source.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast._cli.options.masking import hidden, masked_reference
from holdfast._cli.output.sanitizer import clean, clean_line
from holdfast.types import (
    Artifact,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    Part,
    SendMessageResponse,
    Task,
    TaskPushNotificationConfig,
    TaskStatus,
    WireValue,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from holdfast._cli.options.configuration import Configuration
    from holdfast._cli.options.settings import ResolvedSetting
    from holdfast._cli.output.base import SavedFile

__all__ = [
    "View",
    "artifact_head",
    "block",
    "clean",
    "clean_line",
    "contents",
    "entry",
    "field",
    "identifiers",
    "is_same_kind",
    "part_tail",
    "render",
    "render_deleted",
    "render_saved",
    "render_sent",
    "render_settings",
    "render_status",
    "state",
]


class View(NamedTuple):
    """The settings of a view.

    Attributes:
        verbose: Whether to show everything.
        history: Whether to show the messages so far.
    """

    verbose: bool = False
    history: bool = False


def identifiers(task: Task) -> Iterator[str]:
    """Yield the ids that a later command needs."""
    yield field("Task ID", task.id)
    yield field("Context ID", task.context_id)


def state(task: Task) -> str:
    """Return the state of a task, for people to read."""
    return field("State", str(task.state))


def render(value: WireValue, view: View, *, shown_lines: Iterable[str] = ()) -> Iterator[str]:
    """Yield the lines for an agent's answer.

    Args:
        value: A task, a message, the reply to a message, a push configuration, or a page.
        view: What to show.
        shown_lines: Lines of identifiers that were shown already.
    """
    match value:
        case SendMessageResponse():
            answer = value.task or value.message
            return iter(()) if answer is None else render(answer, view, shown_lines=shown_lines)
        case Task():
            return _task(value, view, frozenset(shown_lines))
        case Message():
            return _reply(value, view)
        case ListTasksResponse():
            return _page(value, view)
        case TaskPushNotificationConfig():
            return _push_config(value)
        case ListTaskPushNotificationConfigsResponse():
            return _push_configs(value)
        case _:
            text = f"there is no text form of {type(value).__name__}"
            raise TypeError(text)


def render_saved(task: Task, saved: Iterable[SavedFile]) -> Iterator[str]:
    """Yield the lines for the saved files of a task."""
    yield from identifiers(task)
    yield state(task)
    for file in saved:
        yield field("Artifact", file.artifact.name or file.artifact.artifact_id)
        yield field("Saved", str(file.path))
        yield field("Media type", file.media_type)
        yield field("Size", f"{file.size} bytes")


def render_deleted(task_id: str, config_id: str) -> Iterator[str]:
    """Yield the lines for a deleted push configuration."""
    yield field("Task ID", task_id)
    yield field("Deleted config ID", config_id)


def render_sent(message: Message) -> Iterator[str]:
    """Yield the lines for a message that is about to be sent."""
    yield field("Sent message", message.message_id)
    for part in message.parts:
        url = None if part.url is None else masked_reference(part.url)
        yield from contents((msgspec.structs.replace(part, url=url),), View(verbose=True))


def render_settings(
    settings: Iterable[ResolvedSetting], configuration: Configuration, logins: Mapping[str, str]
) -> Iterator[str]:
    """Yield the lines for the settings in effect: the flag, its value, and its source."""
    for setting in settings:
        source = setting.source.name if setting.source.path is None else str(setting.source.path)
        value = setting.value or f"({setting.otherwise or 'none'})"
        yield field(setting.name, f"{value} [{source}]")
    yield field("Local file", _path(configuration.local))
    yield field("Global file", _path(configuration.shared))
    for agent, file in logins.items():
        yield field("Login", f"{agent} [{file}]")


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


# ── Fields and blocks ────────────────────────────────────────────────────────────────────────


def field(label: str, value: str | None) -> str:
    """Return a field on its line; a missing value is marked as such."""
    return f"{label}: {clean_line(value or '') or '(none)'}"


def block(label: str, text: str) -> Iterator[str]:
    """Yield the lines of a block."""
    yield f"{label}:"
    for line in clean(text).removesuffix("\n").split("\n"):
        yield line or " "
    yield ""


def entry(label: str, text: str | None) -> Iterator[str]:
    """Yield a field, or a block for several lines; nothing for a missing text."""
    if not text:
        return
    if "\n" in clean(text).strip("\n"):
        yield from block(label, text)
    else:
        yield field(label, text)


def _json(label: str, value: Any) -> Iterator[str]:
    yield from block(label, json.dumps(value, indent=2, ensure_ascii=False))


# ── Tasks and messages ───────────────────────────────────────────────────────────────────────


def _task(task: Task, view: View, shown_lines: frozenset[str]) -> Iterator[str]:
    yield from (line for line in identifiers(task) if line not in shown_lines)
    yield from render_status(task.status, task.metadata, view)
    for artifact in task.artifacts:
        yield from _artifact(artifact, view)
    if view.history or view.verbose:
        for message in task.history:
            yield field("History message", message.message_id)
            yield field("Role", str(message.role))
            yield from contents(message.parts, view)


def render_status(
    status: TaskStatus, metadata: dict[str, Any] | None, view: View
) -> Iterator[str]:
    """Yield the state of a task, and the agent's message about it.

    Args:
        status: The status.
        metadata: The metadata of the task or the event.
        view: What to show.
    """
    yield field("State", str(status.state))
    if view.verbose:
        yield from entry("Updated", status.timestamp)
        if metadata:
            yield from _json("Task metadata", metadata)
    if status.message is not None:
        yield from _status_message(status.message, view)


def _status_message(message: Message, view: View) -> Iterator[str]:
    """Yield the agent's message about the state."""
    if text := message.text:
        yield from entry("Status message", text)
    other_parts = [part for part in message.parts if part.text is None]
    if other_parts:
        yield field("Status parts", str(len(other_parts)))
        yield from contents(other_parts, view)


def _artifact(artifact: Artifact, view: View) -> Iterator[str]:
    yield field("Artifact", artifact.name or artifact.artifact_id)
    yield from artifact_head(artifact, view)
    yield from contents(artifact.parts, view)


def artifact_head(artifact: Artifact, view: View) -> Iterator[str]:
    """Yield the facts of an artifact besides its name and its content."""
    if view.verbose:
        yield field("Artifact ID", artifact.artifact_id)
        yield from entry("Artifact description", artifact.description)
        if artifact.metadata:
            yield from _json("Artifact metadata", artifact.metadata)


def _page(page: ListTasksResponse, view: View) -> Iterator[str]:
    """Yield tasks one after the other: the first line of each names it."""
    for task in page.tasks:
        yield from _task(task, view, frozenset())
    if not page.tasks:
        yield field("Tasks", None)
    if page.total_size:
        yield field("Total", str(page.total_size))
    yield field("Next page token", page.next_page_token)


def _push_config(config: TaskPushNotificationConfig) -> Iterator[str]:
    """Yield a push configuration, without its secrets."""
    yield field("Task ID", config.task_id)
    yield field("Config ID", config.id)
    yield field("URL", masked_reference(config.url))
    yield field("Token", hidden(config.token) if config.token else None)
    authentication = config.authentication
    if authentication is not None:
        secret = f" {hidden(authentication.credentials)}" if authentication.credentials else ""
        yield field("Authentication", f"{authentication.scheme}{secret}")


def _push_configs(page: ListTaskPushNotificationConfigsResponse) -> Iterator[str]:
    for config in page.configs:
        yield from _push_config(config)
    if not page.configs:
        yield field("Configs", None)
    yield field("Next page token", page.next_page_token)


def _reply(message: Message, view: View) -> Iterator[str]:
    """Yield a message in place of a task."""
    yield field("Message ID", message.message_id)
    if message.task_id:
        yield field("Task ID", message.task_id)
    yield field("Context ID", message.context_id)
    if view.verbose:
        yield field("Role", str(message.role))
        if message.metadata:
            yield from _json("Message metadata", message.metadata)
    yield from contents(message.parts, view)


def contents(parts: Sequence[Part], view: View) -> Iterator[str]:
    """Yield the parts in order; text that came in several parts of one kind is one text."""
    for part in _joined(parts, view):
        for shows, lines in _PART_RENDERERS:
            if shows(part):
                yield from lines(part, view)
                break
        yield from part_tail(part, view)


def part_tail(part: Part, view: View) -> Iterator[str]:
    """Yield the facts of a part besides its content."""
    if view.verbose and part.metadata:
        yield from _json("Part metadata", part.metadata)


def _joined(parts: Sequence[Part], view: View) -> Iterator[Part]:
    texts: list[Part] = []
    for part in parts:
        if texts and (part.text is None or (view.verbose and not is_same_kind(texts[0], part))):
            yield _one_text(texts)
            texts = []
        if part.text is None:
            yield part
        else:
            texts.append(part)
    if texts:
        yield _one_text(texts)


def is_same_kind(part: Part, other: Part) -> bool:
    """Return whether two texts have the same facts besides their text."""
    return (part.media_type, part.metadata) == (other.media_type, other.metadata)


def _one_text(parts: Sequence[Part]) -> Part:
    return msgspec.structs.replace(parts[0], text="".join(part.text or "" for part in parts))


def _text(part: Part, view: View) -> Iterator[str]:
    if view.verbose:
        yield from entry("Media type", part.media_type)
    yield from block("Text", part.text or "")


def _data(part: Part, view: View) -> Iterator[str]:
    if view.verbose:
        yield from entry("Media type", part.media_type)
    yield from _json("Data", part.data)


def _file(part: Part, _view: View) -> Iterator[str]:
    yield field("File", part.filename)
    yield field("Media type", part.media_type)
    if part.url is not None:
        yield field("URL", part.url)
    else:
        yield field("Size", f"{len(part.raw or b'')} bytes")


def _unknown(_part: Part, _view: View) -> Iterator[str]:
    yield field("Part", "of a kind that is not known")


_PART_RENDERERS: tuple[
    tuple[Callable[[Part], bool], Callable[[Part, View], Iterator[str]]], ...
] = (
    (lambda part: part.text is not None, _text),
    (lambda part: part.raw is not None or part.url is not None, _file),
    (lambda part: part.data is not msgspec.UNSET, _data),
    (lambda _part: True, _unknown),
)
