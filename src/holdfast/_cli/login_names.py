"""What is known of logins before anything of OAuth is loaded, which is an extra."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Literal, TextIO, get_args

from holdfast._cli.trust import PREFIX
from holdfast._cli.values import read_secret

__all__ = ["CLIENT_SECRET", "DIRECTORY", "FLOWS", "Flow", "client_secret"]

Flow = Literal["device-code", "client-credentials", "authorization-code"]
"""How a token is had; all but the second need a person."""

FLOWS: tuple[str, ...] = get_args(Flow)

DIRECTORY = (".config", "holdfast", "logins")
"""Where logins are kept, below the home directory."""

CLIENT_SECRET = f"{PREFIX}CLIENT_SECRET"
"""Variable that holds the client's secret; there is no such flag, which would show it."""

_TURN = 0.1
"""Seconds after which a signal during the read of a pipe takes effect, at the latest."""


def client_secret(file: str) -> str:
    """Read the client's secret from a file; it may block until a pipe or a person writes it.

    Args:
        file: The file; ``-`` for standard input.

    Raises:
        ValueError: The file cannot be read, or holds none.
    """
    try:
        text = _standard_input() if file == "-" else _read(Path(file).expanduser()).decode()
    except (OSError, UnicodeError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeError) else error.strerror or error
        text = f"--client-secret-file {file} cannot be read: {reason}"
        raise ValueError(text) from None
    try:
        return read_secret(text)
    except ValueError as error:
        text = f"--client-secret-file {file}: {error}"
        raise ValueError(text) from None


def _read(path: Path) -> bytes:
    """Read a file; if it is a pipe, one interruption ends the wait for its writer.

    A signal that arrives just before a blocking call takes effect only when that call returns. So
    a thread reads, which may be abandoned, and this one waits for it in short turns.
    """
    if path.is_file():
        return path.read_bytes()
    read: list[bytes | OSError] = []

    def wait() -> None:
        try:
            # Unbuffered: Python aborts at exit if an abandoned thread holds a buffer's lock.
            with path.open("rb", buffering=0) as pipe:
                read.append(pipe.readall())
        except OSError as error:
            read.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_TURN)
    (result,) = read
    if isinstance(result, OSError):
        raise result
    return result


def _standard_input() -> str:
    stream: TextIO | None = sys.stdin  # None if the process was started without one
    if stream is None:
        reason = "it is closed"
        raise OSError(reason)
    return stream.read()
