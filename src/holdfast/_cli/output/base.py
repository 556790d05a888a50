"""The content of standard output and of standard error, and its form (a2a-cli 11).

Rules: standard output carries the result and nothing else, in ``json`` as one document or, with
``--stream``, as lines; everything about it goes to standard error. Neither shows a credential
of the caller. Characters that would steer a terminal or hide in it are written as escapes
(`holdfast._cli.output.sanitizer`), and so are those that an encoding lacks; none is left out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote

import click

from holdfast._cli.options.masking import secrets_in_params, secrets_in_reference
from holdfast._cli.output.events import Failed, MessageSending, Notice, ProgressLine
from holdfast._cli.output.sanitizer import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast._cli.errors import Failure
    from holdfast._cli.options.settings import Settings
    from holdfast._cli.output.events import OutputEvent

__all__ = ["Output", "OutputError", "encoding_of", "output_for", "write"]

_ERASE_LINE = "\r\x1b[K"


class Output:
    """The output of a command; a subclass for each form.

    Args:
        settings: The settings of the command, once parsed.

    Attributes:
        has_named_task: Whether the id of the task was written.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.has_named_task = False
        self._is_within_line = False
        """Whether the last line on the terminal of standard output has no end yet."""
        self._progress = ""
        self._secrets = [] if settings is None else _secrets(settings)

    def emit(self, event: OutputEvent) -> None:
        """Show an event.

        Raises:
            BrokenPipeError: The output has no reader.
            OutputError: The output cannot be written.
        """
        match event:
            case Notice(label, text):
                self._diagnostic(label, text)
            case ProgressLine(line):
                self._draw(line)
            case Failed(failure):
                self._fail(failure)
            case _:
                if isinstance(event, MessageSending):
                    for part in event.message.parts:
                        self.hide(secrets_in_reference(part.url or ""))
                self._show(event)

    def hide(self, secrets: Iterable[str]) -> None:
        """Show these texts nowhere from now on."""
        self._secrets += secrets

    def error_members(self, failure: Failure) -> dict[str, Any]:
        """Return a failure as members of a document."""
        return {
            "code": failure.code,
            "message": clean_line(self._redacted(failure.message)),
            "hint": None if failure.hint is None else self._redacted(failure.hint),
            "a2aCode": failure.a2a_code,
        }

    def _show(self, event: OutputEvent) -> None:
        """Show an event that each form shows in its own way."""
        raise NotImplementedError

    def _fail(self, failure: Failure) -> None:
        """Show the failure of the command."""
        raise NotImplementedError

    def _draw(self, line: str) -> None:
        if line != self._progress:
            self._progress = line
            write(f"{_ERASE_LINE}{clean(line)}", err=True)

    def _diagnostic(self, label: str, message: str) -> None:
        before, self._is_within_line = "\n" if self._is_within_line else "", False
        if self._progress:
            before, self._progress = _ERASE_LINE, ""
        line = self._broken(f"{label}: {clean_line(self._redacted(message))}")
        write(f"{before}{line}\n", err=True)

    def _broken(self, line: str) -> str:
        """Break a line for its reader; a line stays whole where it may be copied or parsed."""
        return line

    def _redacted(self, message: str) -> str:
        if not self._secrets:
            return message
        from holdfast._wire.redaction import redact
        from holdfast.errors import A2AError

        error = A2AError(message)
        redact(error, self._secrets)
        return error.message


def _secrets(settings: Settings) -> list[str]:
    """Return the secrets that no diagnostic shows, also as a query encodes them."""
    stated = (
        settings.bearer,
        settings.api_key,
        settings.client_secret,
        settings.client_key_password,
    )
    secrets = [secret for secret in stated if secret is not None]
    secrets += secrets_in_params(settings.svc_params)
    secrets += secrets_in_reference(settings.agent_card)
    return [*secrets, *(quote(secret, safe="") for secret in secrets)]


class OutputError(OSError):
    """An output cannot be written; that says nothing about the agent."""


def write(content: str, *, err: bool = False) -> None:
    """Write to standard output or standard error, in any encoding.

    Raises:
        BrokenPipeError: The output has no reader.
        OutputError: It cannot be written.
    """
    encoding = encoding_of(sys.stderr if err else sys.stdout)
    try:
        click.echo(content.encode(encoding, "backslashreplace"), nl=False, err=err)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(*error.args) from None


def encoding_of(stream: TextIO | None) -> str:
    """Return the encoding of an output."""
    return getattr(stream, "encoding", None) or "utf-8"


def output_for(form: str, settings: Settings | None = None, *, in_lines: bool = False) -> Output:
    """Return the output of a form.

    Args:
        form: ``text`` or ``json``.
        settings: The settings of the command, once parsed.
        in_lines: Whether each document is one line; used if there are no settings.
    """
    if form == "json":
        from holdfast._cli.output.json_output import JsonOutput

        return JsonOutput(settings, in_lines=in_lines)
    from holdfast._cli.output.text_output import TextOutput

    return TextOutput(settings)
