"""What is known of logins before anything of OAuth is loaded, which is an extra."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal, get_args

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


def client_secret(file: str | None, stated: str | None) -> str | None:
    """The client's secret: what a file holds, or standard input, else what is set.

    Args:
        file: The file; ``-`` for standard input.
        stated: What `CLIENT_SECRET` holds.

    Raises:
        ValueError: The file cannot be read, or holds none.
    """
    if file is None:
        return read_secret(stated) if stated else None
    try:
        text = sys.stdin.read() if file == "-" else Path(file).expanduser().read_text()
    except (OSError, UnicodeError) as error:
        text = f"--client-secret-file {file} cannot be read: {error}"
        raise ValueError(text) from None
    return read_secret(text)
