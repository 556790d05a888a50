"""What is known of logins before anything of OAuth is loaded, which is an extra."""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["DIRECTORY", "FLOWS", "Flow"]

Flow = Literal["device-code", "client-credentials", "authorization-code"]
"""How a token is had; all but the second need a person."""

FLOWS: tuple[str, ...] = get_args(Flow)

DIRECTORY = (".config", "holdfast", "logins")
"""Where logins are kept, below the home directory."""
