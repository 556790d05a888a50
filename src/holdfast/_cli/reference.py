"""What ``--agent-card`` may be: a host, an origin, a card's URL, or a card's file."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from holdfast._cli.values import masked_reference, names_user
from holdfast._model.hosts import is_loopback

__all__ = ["is_file", "read_reference"]

_LETTER = r"A-Za-z0-9_\u00a1-\U0010ffff"
"""Letters of hosts; `holdfast._model.hosts` refuses the non-ASCII ones that no host has."""
_HOST = (  # compiled when a reference without a scheme is read: that takes milliseconds
    rf"(?P<host>\[[0-9A-Fa-f:.]+\]|[{_LETTER}](?:[{_LETTER}.-]*[{_LETTER}.])?)"
    r"(?P<port>:[0-9]+)?(?P<rest>[/?].*)?"
)


def read_reference(text: str) -> str | Path:
    """Reads a reference to an agent card (a2a-cli 10.1).

    With a scheme it is a URL. Without one it is a file if it looks like a path: it begins with
    ``/``, ``.`` or ``~``, or its one word ends in ``.json``; or if there is such a file in a
    directory of that name, as ``cards/agent``. Else it is a host, with or without a port and a
    path, and called over https; over http if it is this machine. Its letters may be those of any
    alphabet, as in an address with a scheme. A file in the working directory never stands in for
    a host: where there is a file of a host's name, neither is taken.

    Raises:
        ValueError: It is none of these, or could be a host and a file.
    """
    reference = text.strip()
    scheme, separator, _ = reference.partition("://")
    if separator:
        return _of_scheme(scheme.lower(), reference)
    if _looks_like_path(reference):
        return Path(reference).expanduser()
    match = re.fullmatch(_HOST, reference)
    if is_file(reference):
        if match is None or _is_below_directory(match):
            return Path(reference)
        shown, scheme = masked_reference(reference), _scheme(match)
        message = (
            f"{shown!r} names a host, and there is a file of that name here; write "
            f"{scheme}://{shown} or ./{shown}"
        )
        raise ValueError(message)
    if match is None:
        message = (
            f"{masked_reference(reference)!r} is neither a host, nor an http:// or https:// URL, "
            "nor a card's file"
        )
        raise ValueError(message)
    return f"{_scheme(match)}://{reference}"


def _scheme(match: re.Match[str]) -> str:
    """How a host is called that is named without a scheme."""
    return "http" if is_loopback(match["host"].strip("[]")) else "https"


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
    return "/" not in reference and reference.endswith(".json")


def _is_below_directory(match: re.Match[str]) -> bool:
    """Whether what looks like a host can only be a directory: one word before a path."""
    host = match["host"]
    is_word = "." not in host and not match["port"] and not is_loopback(host.strip("[]"))
    return is_word and (match["rest"] or "").startswith("/")


def is_file(reference: str) -> bool:
    """Whether there is a file of this name."""
    try:
        return Path(reference).is_file()
    except (OSError, ValueError):
        return False
