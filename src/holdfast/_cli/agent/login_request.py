"""The options of ``holdfast auth login``, with the client's secret, which is read from a file.

The file is read before the event loop runs, which a pipe without a writer would block.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click

from holdfast._cli.options.values import Flow, read_secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["LoginRequest"]

_JOIN_INTERVAL_S = 0.1
"""Seconds after which a signal during the read of a pipe takes effect, at the latest."""


class LoginRequest(NamedTuple):
    """The options of ``auth login``."""

    flow: Flow
    issuer: str | None
    client_id: str
    secret: str | None
    client_auth: str | None
    scopes: Sequence[str]
    resource: str | None
    trusted: Sequence[str]
    allows_unadvertised_pkce: bool

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> LoginRequest:
        if not options["client_id"]:
            message = (
                "Missing option '--client-id': pass the id that the authorization server gave you."
            )
            raise click.UsageError(message)
        file = options["client_secret_file"]
        try:
            secret = None if file is None else _client_secret(file)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        return cls(
            flow=options["flow"],
            issuer=options["issuer"],
            client_id=options["client_id"],
            secret=secret,
            client_auth=options["client_auth"],
            scopes=options["scope"],
            resource=options["resource"],
            trusted=options["trust_server"],
            allows_unadvertised_pkce=options["allow_unadvertised_pkce"],
        )


def _client_secret(file: str) -> str:
    """Read the client's secret from a file; it may block until a pipe or a person writes it.

    Args:
        file: The file; ``-`` for standard input.

    Raises:
        ValueError: The file cannot be read, or holds none.
    """
    try:
        text = _standard_input() if file == "-" else _read_file(Path(file).expanduser()).decode()
    except (OSError, UnicodeError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeError) else error.strerror or error
        text = f"--client-secret-file {file} cannot be read: {reason}"
        raise ValueError(text) from None
    try:
        return read_secret(text)
    except ValueError as error:
        text = f"--client-secret-file {file}: {error}"
        raise ValueError(text) from None


def _read_file(path: Path) -> bytes:
    """Read a file; if it is a pipe, one interruption ends the wait for its writer.

    A signal that arrives just before a blocking call takes effect only when that call returns. So
    a thread reads, which may be abandoned, and this one waits for it in short turns.
    """
    if path.is_file():
        return path.read_bytes()
    outcome: list[bytes | OSError] = []

    def wait() -> None:
        try:
            # Unbuffered: Python aborts at exit if an abandoned thread holds a buffer's lock.
            with path.open("rb", buffering=0) as pipe:
                outcome.append(pipe.readall())
        except OSError as error:
            outcome.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_JOIN_INTERVAL_S)
    (result,) = outcome
    if isinstance(result, OSError):
        raise result
    return result


def _standard_input() -> str:
    stream: TextIO | None = sys.stdin  # None if the process was started without one
    if stream is None:
        reason = "it is closed"
        raise OSError(reason)
    return stream.read()
