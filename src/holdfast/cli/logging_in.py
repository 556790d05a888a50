"""What is known of logins before anything of OAuth is loaded, which is an extra."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal, TextIO, get_args

from holdfast.cli.trust import PREFIX
from holdfast.cli.values import read_secret

__all__ = ["CLIENT_SECRET", "DIRECTORY", "FLOWS", "Flow", "client_secret"]

Flow = Literal["device-code", "client-credentials", "authorization-code"]
"""How a token is had; all but the second need a person."""

FLOWS: tuple[str, ...] = get_args(Flow)

DIRECTORY = (".config", "holdfast", "logins")
"""Where logins are kept, below the home directory."""

CLIENT_SECRET = f"{PREFIX}CLIENT_SECRET"
"""Variable that holds the client's secret; there is no such flag, which would show it."""


def client_secret(file: str) -> str:
    """Read the client's secret from a file; it may block until a pipe or a person writes it.

    Args:
        file: The file; ``-`` for standard input.

    Raises:
        ValueError: The file cannot be read, or holds none.
    """
    try:
        text = _standard_input() if file == "-" else Path(file).expanduser().read_text("utf-8")
    except (OSError, UnicodeError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeError) else error.strerror or error
        text = f"--client-secret-file {file} cannot be read: {reason}"
        raise ValueError(text) from None
    try:
        return read_secret(text)
    except ValueError as error:
        text = f"--client-secret-file {file}: {error}"
        raise ValueError(text) from None


def _standard_input() -> str:
    stream: TextIO | None = sys.stdin  # None if the process was started without one
    if stream is None:
        reason = "it is closed"
        raise OSError(reason)
    return stream.read()
