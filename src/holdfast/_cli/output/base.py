"""What is said on standard error, the same way in every form, and how both outputs are written.

Rules: no credential is on either of them because of us; what would steer a terminal or hide in it
is written as an escape (`holdfast._cli.output.sanitizer`), and so is what an encoding cannot
write: neither is left out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote

import click

from holdfast._cli.output import text
from holdfast._cli.values import secrets_in_params, secrets_in_reference
from holdfast._wire.redaction import redact
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast._cli.errors import Failure
    from holdfast._cli.settings import Settings
    from holdfast.types import Message

__all__ = ["BaseOutput", "OutputError", "encoding_of", "write"]

_ERASE_LINE = "\r\x1b[K"


class BaseOutput:
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
            write(f"{_ERASE_LINE}{text.clean(line)}", err=True)

    def envelope(self, failure: Failure) -> dict[str, Any]:
        return {
            "code": failure.code,
            "message": text.clean_line(self._hidden(failure.message)),
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
        line = self._broken(f"{label}: {text.clean_line(self._hidden(message))}")
        write(f"{before}{line}\n", err=True)

    def _broken(self, line: str) -> str:
        """Break a line for its reader; a line stays whole where it may be copied or parsed."""
        return line

    def _hidden(self, message: str) -> str:
        told = A2AError(message)
        redact(told, self._secrets)
        return told.message


def _secrets(settings: Settings) -> list[str]:
    """What no diagnostic shows, also as a query spells it."""
    stated = (
        settings.bearer,
        settings.api_key,
        settings.client_secret,
        settings.client_key_password,
    )
    given = [secret for secret in stated if secret is not None]
    given += secrets_in_params(settings.svc_params)
    given += secrets_in_reference(settings.agent_card)
    return [*given, *(quote(secret, safe="") for secret in given)]


class OutputError(OSError):
    """An output cannot be written; that says nothing about the agent."""


def write(content: str, *, err: bool = False) -> None:
    """Writes to standard output or standard error, whatever their encoding.

    Raises:
        BrokenPipeError: Nobody reads it.
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
    """The encoding of an output."""
    return getattr(stream, "encoding", None) or "utf-8"
