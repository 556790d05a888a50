"""What goes to standard output and what to standard error, and in which form (a2a-cli 11).

Rules: standard output carries the result and nothing else, in ``json`` as one document or, with
``--stream``, as lines; everything said about it goes to standard error; no credential is on either
of them because of us; what an encoding cannot write is written as an escape, never left out.
"""

from __future__ import annotations

import codecs
import logging
import shlex
import sys
from typing import TYPE_CHECKING, Any, Protocol, TextIO
from urllib.parse import quote

import click

from holdfast.cli import text
from holdfast.cli.chat_text import ChatText
from holdfast.cli.doctor_text import paper, render_diagnosis
from holdfast.cli.document import document, with_paths, write_json
from holdfast.cli.live import LiveText
from holdfast.cli.values import secrets_in_params, secrets_in_reference
from holdfast.errors import A2AError
from holdfast.model.requests import (
    Empty,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
)
from holdfast.model.types import (
    Message,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)
from holdfast.wire.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from holdfast.cli.configuration import Configuration
    from holdfast.cli.errors import Failure
    from holdfast.cli.saving import Saved
    from holdfast.cli.settings import Effective, Settings
    from holdfast.diagnosis import Diagnosis
    from holdfast.model.card import AgentCard, AgentInterface
    from holdfast.model.types import Event, WireValue
    from holdfast.runtime.card_verification import CardVerification

__all__ = [
    "ChatOutput",
    "Diagnostics",
    "JsonOutput",
    "Output",
    "OutputError",
    "TextOutput",
    "command_line",
    "output_for",
]


_ERASE_LINE = "\r\x1b[K"


class Output(Protocol):
    """Where a command says what it has to say."""

    @property
    def has_named_task(self) -> bool:
        """Whether the task that was begun could be named."""
        ...

    def sending(self, message: Message) -> None:
        """A message is about to be sent."""
        ...

    def hide(self, secrets: Iterable[str]) -> None:
        """What no diagnostic may show."""
        ...

    def began(self, task: Task) -> None:
        """A task is known, and will be waited for."""
        ...

    def gave_up(self, task: Task) -> None:
        """The wait for that task ends here, and the task goes on."""
        ...

    def event(self, event: Event, task: Task | None) -> None:
        """An event of a stream that is followed, and the task as it stands after it."""
        ...

    def over(self) -> None:
        """That was the last event."""
        ...

    def result(self, value: WireValue, *, history: bool = False) -> None:
        """The result of the command."""
        ...

    def saved(self, task: Task, saved: Sequence[Saved], *, is_whole: bool) -> None:
        """The files of a task that were saved, and whether these are all."""
        ...

    def deleted(self, task_id: str, config_id: str) -> None:
        """A push configuration of a task is deleted."""
        ...

    def card(
        self,
        card: AgentCard,
        chosen: AgentInterface | None,
        verification: CardVerification | None,
    ) -> None:
        """A card, the interface that calls would use, and what its signatures are worth."""
        ...

    def settings(self, settings: Iterable[Effective], configuration: Configuration) -> None:
        """The settings in effect, and the files that were read for them."""
        ...

    def failure(self, failure: Failure) -> None:
        """The command could not do its job."""
        ...

    def warn(self, message: str) -> None:
        """Something that the caller must know about."""
        ...

    def run(self, counts: Mapping[str, Any], summary: str) -> None:
        """How far many messages have come, as members of a document and in words."""
        ...

    def tell(self, label: str, message: str) -> None:
        """Something that belongs to the result, and is no part of it."""
        ...

    def progress(self, line: str) -> None:
        """How far it has come so far, for somebody who looks on; empty to take that away."""
        ...

    def call(self, members: Mapping[str, Any], lines: Iterable[str]) -> None:
        """One call of a journal, as members of a document and as lines."""
        ...

    def diagnosis(self, diagnosis: Diagnosis, *, is_last: bool) -> None:
        """What was found of an agent, and whether nothing else is said of it."""
        ...

    def envelope(self, failure: Failure) -> dict[str, Any]:
        """The members of a failure in documents."""
        ...

    def hint(self, message: str) -> None:
        """What the caller can do next."""
        ...


class _Speaks:
    """Says things on standard error, the same way in every form."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.has_named_task = False
        self._is_within_line = False
        """Whether a terminal shows a line of standard output that has no end yet."""
        self._progress = ""
        self._secrets = [] if settings is None else _secrets(settings)

    def warn(self, message: str) -> None:
        self._say("Warning", message)

    def hint(self, message: str) -> None:
        self._say("Hint", message)

    def debug(self, message: str) -> None:
        self._say("Debug", message)

    def tell(self, label: str, message: str) -> None:
        self._say(label, message)

    def hide(self, secrets: Iterable[str]) -> None:
        self._secrets += secrets

    def progress(self, line: str) -> None:
        if line != self._progress:
            self._progress = line
            _write(f"{_ERASE_LINE}{line}", err=True)

    def envelope(self, failure: Failure) -> dict[str, Any]:
        return {
            "code": failure.code,
            "message": text.one_line(self._hidden(failure.message)),
            "hint": None if failure.hint is None else self._hidden(failure.hint),
            "a2aCode": failure.a2a_code,
        }

    def _keep(self, message: Message) -> None:
        """Notes what is secret in the addresses that are sent."""
        for part in message.parts:
            self.hide(secrets_in_reference(part.url or ""))

    def _say(self, label: str, message: str) -> None:
        before, self._is_within_line = "\n" if self._is_within_line else "", False
        if self._progress:
            before, self._progress = _ERASE_LINE, ""
        _write(f"{before}{label}: {text.one_line(self._hidden(message))}\n", err=True)

    def _hidden(self, message: str) -> str:
        told = A2AError(message)
        redact(told, self._secrets)
        return told.message


class _Live(Protocol):
    """Text while it comes."""

    @property
    def is_within_line(self) -> bool: ...

    def event(self, event: Event, task: Task | None) -> Iterable[str]: ...

    def last_seen(self, task: Task) -> Iterable[str]: ...

    def close(self) -> Iterable[str]: ...


class TextOutput(_Speaks):
    """``-o text``: labelled lines."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self._verbose = settings is not None and settings.verbose
        self._told: list[str] = []
        self._live: _Live | None = None

    def sending(self, message: Message) -> None:
        self._keep(message)
        if self._verbose:
            self._lines(text.render_sent(message))

    def began(self, task: Task) -> None:
        """Names the task at once, so that an interruption does not lose it."""
        self._told = list(text.identifiers(task))
        self._lines(self._told)
        self.has_named_task = True

    def gave_up(self, task: Task) -> None:
        """Completes what was begun: no output about a task is without its state."""
        if self._live is not None:
            self._pieces(self._live, self._live.last_seen(task))
        elif self._told:
            self._lines([text.state(task)])

    def event(self, event: Event, task: Task | None) -> None:
        if self._live is None:
            self._live = LiveText(text.View(verbose=self._verbose))
        self._pieces(self._live, self._live.event(event, task))
        self.has_named_task = task is not None

    def over(self) -> None:
        if self._live is not None:
            self._pieces(self._live, self._live.close())

    def result(self, value: WireValue, *, history: bool = False) -> None:
        view = text.View(verbose=self._verbose, history=history)
        self._lines(text.render(value, view, told=self._told))

    def saved(self, task: Task, saved: Sequence[Saved], *, is_whole: bool) -> None:  # noqa: ARG002  it is told
        self._lines(text.render_saved(task, saved))

    def deleted(self, task_id: str, config_id: str) -> None:
        self._lines(text.render_deleted(task_id, config_id))

    def card(
        self,
        card: AgentCard,
        chosen: AgentInterface | None,
        verification: CardVerification | None,
    ) -> None:
        view = text.View(verbose=self._verbose)
        self._lines(text.render_card(card, chosen, view, verification))

    def settings(self, settings: Iterable[Effective], configuration: Configuration) -> None:
        self._lines(text.render_settings(settings, configuration))

    def failure(self, failure: Failure) -> None:
        if failure.instead is not None:
            _write(f"{text.clean(failure.instead)}\n", err=True)
            return
        self._say("Error", failure.message)
        self._say("Code", failure.code)
        if failure.hint:
            self._say("Hint", failure.hint)

    def run(self, counts: Mapping[str, Any], summary: str) -> None:  # noqa: ARG002  it is in words
        self._say("Summary", summary)

    def call(self, members: Mapping[str, Any], lines: Iterable[str]) -> None:  # noqa: ARG002  same
        self._lines(lines)

    def diagnosis(self, diagnosis: Diagnosis, *, is_last: bool) -> None:  # noqa: ARG002  same
        shown = diagnosis.hiding(self._hidden)
        self._lines(render_diagnosis(shown, paper(), verbose=self._verbose))

    def _lines(self, lines: Iterable[str]) -> None:
        _write("".join(f"{line}\n" for line in lines))

    def _pieces(self, live: _Live, pieces: Iterable[str]) -> None:
        if written := "".join(pieces):
            self._is_within_line = False  # if nobody reads it
            _write(written)
            self._is_within_line = live.is_within_line


class ChatOutput(TextOutput):
    """What somebody reads who sits at a terminal and talks to an agent."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._chat = ChatText(text.View(verbose=settings.verbose))
        self._live = self._chat

    def sending(self, message: Message) -> None:
        self._chat.turn()
        super().sending(message)

    def interrupted(self) -> None:
        """Ends the line, on which the terminal shows that Ctrl-C was pressed."""
        _write("\n")
        for _ in self._chat.close():
            pass
        self._is_within_line = False


class JsonOutput(_Speaks):
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

    def gave_up(self, task: Task) -> None:
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

    def settings(self, settings: Iterable[Effective], configuration: Configuration) -> None:
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
        self._document({"settings": stated, "files": files})

    def failure(self, failure: Failure) -> None:
        self._document({"error": self.envelope(failure), **self._found})

    def run(self, counts: Mapping[str, Any], summary: str) -> None:  # noqa: ARG002  all is there
        self._document({"run": counts})

    def call(self, members: Mapping[str, Any], lines: Iterable[str]) -> None:  # noqa: ARG002  same
        self._document(dict(members))

    def diagnosis(self, diagnosis: Diagnosis, *, is_last: bool) -> None:
        found = {"diagnosis": diagnosis.hiding(self._hidden).to_dict()}
        if is_last:
            self._document(found)
        else:
            self._found = found

    def _document(self, value: Any) -> None:
        """Writes JSON as UTF-8 or, where the stream takes something else, as ASCII."""
        in_utf8 = codecs.lookup(_encoding(sys.stdout)).name == "utf-8"
        written = write_json(value, ascii_only=not in_utf8, in_line=self._in_lines)
        _write(f"{written}\n")


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


def output_for(
    form: str, settings: Settings | None = None, *, in_lines: bool = False
) -> TextOutput | JsonOutput:
    """The output of a form, ``text`` or ``json``.

    Args:
        form: The form.
        settings: What the command was told, once that is understood.
        in_lines: Whether documents are lines; what the settings say, where there are some.
    """
    if form == "json":
        return JsonOutput(settings, in_lines=in_lines)
    return TextOutput(settings)


class Diagnostics(logging.Handler):
    """Shows what the library logs, while the context is open.

    Args:
        output: Where to.
        enabled: Whether to show anything.
    """

    def __init__(self, output: TextOutput | JsonOutput, *, enabled: bool) -> None:
        super().__init__(logging.DEBUG)
        self._output = output
        self._enabled = enabled
        self._logger = logging.getLogger("holdfast")
        self._level = self._logger.level

    def emit(self, record: logging.LogRecord) -> None:
        """Shows one record."""
        try:
            self._output.debug(record.getMessage())
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        """Nobody reads standard error any more: nothing can be said about that."""

    def __enter__(self) -> None:
        if self._enabled:
            self._level = self._logger.level
            self._logger.setLevel(logging.DEBUG)
            self._logger.addHandler(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._enabled:
            self._logger.removeHandler(self)
            self._logger.setLevel(self._level)


def command_line(words: Sequence[str]) -> str:
    """A command that can be copied into a shell."""
    return shlex.join(["holdfast", *words])


def _secrets(settings: Settings) -> list[str]:
    """What no diagnostic shows, also as a query spells it."""
    given = [secret for secret in (settings.bearer, settings.api_key) if secret is not None]
    given += secrets_in_params(settings.svc_params)
    given += secrets_in_reference(settings.agent_card)
    return [*given, *(quote(secret, safe="") for secret in given)]


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


class OutputError(OSError):
    """An output cannot be written; that says nothing about the agent."""


def _write(content: str, *, err: bool = False) -> None:
    encoding = _encoding(sys.stderr if err else sys.stdout)
    try:
        click.echo(content.encode(encoding, "backslashreplace"), nl=False, err=err)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(*error.args) from None


def _encoding(stream: TextIO | None) -> str:
    return getattr(stream, "encoding", None) or "utf-8"
