"""What is known of logins before anything of OAuth is loaded, which is an extra."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, get_args

from holdfast.cli.configuration import PREFIX
from holdfast.cli.values import read_secret

__all__ = ["CLIENT_SECRET", "DIRECTORY", "FLOWS", "Flow", "client_secret"]

Flow = Literal["device-code", "client-credentials", "authorization-code"]
"""How a token is had; all but the second need a person."""

FLOWS: tuple[str, ...] = get_args(Flow)

DIRECTORY = (".config", "holdfast", "logins")
"""Where logins are kept, below the home directory."""

CLIENT_SECRET = f"{PREFIX}CLIENT_SECRET"
"""Variable of the environment that holds the client's secret."""


def client_secret(file: str | None) -> str | None:
    """The client's secret: what a file holds, or standard input, else the environment.

    Raises:
        ValueError: The file cannot be read, or holds none.
    """
    if file is None:
        stated = os.environ.get(CLIENT_SECRET)
        return read_secret(stated) if stated else None
    try:
        text = sys.stdin.read() if file == "-" else Path(file).expanduser().read_text()
    except (OSError, UnicodeError) as error:
        text = f"--client-secret-file {file} cannot be read: {error}"
        raise ValueError(text) from None
    return read_secret(text)
