"""What ``--agent-card`` may be: a host, an origin, a card's URL, or a card's file."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from holdfast.cli.values import masked_reference, names_user
from holdfast.model.hosts import is_loopback

__all__ = ["is_file", "read_reference"]

_HOST = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?)"
    r"(?P<port>:[0-9]+)?(?P<rest>[/?].*)?"
)


def read_reference(text: str) -> str | Path:
    """Reads a reference to an agent card (a2a-cli 10.1).

    With a scheme it is a URL. Without one it is a file if there is such a file, or if it looks
    like a path: it begins with ``/``, ``.`` or ``~``, or its one word ends in ``.json``. Else it
    is a host, with or without a port and a path, and called over https; over http if it is this
    machine.

    Raises:
        ValueError: It is none of these.
    """
    reference = text.strip()
    scheme, separator, _ = reference.partition("://")
    if separator:
        return _of_scheme(scheme.lower(), reference)
    if _looks_like_path(reference):
        return Path(reference).expanduser()
    match = _HOST.fullmatch(reference)
    if match is None:
        message = (
            f"{masked_reference(reference)!r} is neither a host, nor an http:// or https:// URL, "
            "nor a card's file"
        )
        raise ValueError(message)
    return f"{'http' if is_loopback(match['host'].strip('[]')) else 'https'}://{reference}"


def _of_scheme(scheme: str, reference: str) -> str | Path:
    if scheme in {"http", "https"}:
        if names_user(reference):
            message = "an address must not hold a user name or password; see --bearer, --api-key"
            raise ValueError(message)
        return reference
    if scheme != "file":
        message = f"{scheme}:// does not lead to an agent; use https://, http:// or file://"
        raise ValueError(message)
    parts = urlsplit(reference)
    if parts.netloc not in {"", "localhost"}:
        shown = masked_reference(reference)
        message = f"{shown!r} names a file on another machine; write file:///path"
        raise ValueError(message)
    return Path(url2pathname(parts.path))


def _looks_like_path(reference: str) -> bool:
    if reference.startswith(("/", ".", "~")):
        return True
    if "/" not in reference and reference.endswith(".json"):
        return True
    return is_file(reference)


def is_file(reference: str) -> bool:
    """Whether there is a file of this name."""
    try:
        return Path(reference).is_file()
    except (OSError, ValueError):
        return False
