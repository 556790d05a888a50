"""The files of a task's artifacts: their names and their contents.

Rules: a name leads only into the directory that the caller named, is not hidden, and is unique,
whatever names the agent gives. Text that arrived in several parts is one file.
"""

from __future__ import annotations

import json
import mimetypes
import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from holdfast._cli.output.sanitizer import replace_special

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.types import Artifact, Part, Task

__all__ = ["File", "files_of", "safe_name"]


class File(NamedTuple):
    """A file to save.

    Attributes:
        artifact: The artifact that the file belongs to.
        parts: The indexes of its parts in the artifact.
        name: The file name, with no directory.
        media_type: The media type that the agent states; None if it states none.
        content: The content; None if it has to be fetched.
        url: The address to fetch it from.
    """

    artifact: Artifact
    parts: tuple[int, ...]
    name: str
    media_type: str | None
    content: bytes | None = None
    url: str | None = None


def files_of(task: Task) -> Iterator[File]:
    """Yield the files of a task, each with a unique name, without parts of an unknown kind."""
    used_names: set[str] = set()
    for artifact in task.artifacts:
        for numbers in _together(artifact):
            parts = [artifact.parts[number] for number in numbers]
            content = _content(parts)
            if content is None and parts[0].url is None:
                continue
            name = _free(safe_name(_name(artifact, parts[0])), used_names)
            media_type = parts[0].media_type or None
            yield File(artifact, numbers, name, media_type, content, parts[0].url)


def _together(artifact: Artifact) -> Iterator[tuple[int, ...]]:
    """Yield the indexes of the parts of each file."""
    text: list[int] = []
    for number, part in enumerate(artifact.parts):
        goes_on = text and part.text is not None and not part.filename
        if text and not goes_on:
            yield tuple(text)
            text = []
        if part.text is not None:
            text.append(number)
        else:
            yield (number,)
    if text:
        yield tuple(text)


def _content(parts: list[Part]) -> bytes | None:
    part = parts[0]
    if part.text is not None:
        return "".join(part.text or "" for part in parts).encode("utf-8", "replace")
    if part.raw is not None:
        return part.raw
    if part.data is not msgspec.UNSET and part.url is None:
        return f"{json.dumps(part.data, indent=2)}\n".encode()
    return None


# ── Names ────────────────────────────────────────────────────────────────────────────────────


_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,8}")
_SEPARATOR = re.compile(r"[/\\]")
_AWKWARD = re.compile(r'[<>:"|?*\x00-\x1f\x7f]')
_DEVICE = re.compile(
    r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$|clock\$) *(?:\..*)?",
    re.IGNORECASE,
)
"""Names that Windows takes for a device, also before a dot, or before spaces and a dot."""
_MAX_NAME_BYTES = 200  # file systems take 255


def safe_name(name: str) -> str:
    """Return a name that is valid on every system, close to a requested one."""
    last = _SEPARATOR.split(replace_special(name, lambda _: ""))[-1]
    plain = _AWKWARD.sub("_", unicodedata.normalize("NFC", last)).strip().rstrip(". ")
    if plain[:1] in {".", "-", "~"}:  # hidden, or taken for a flag or a home directory
        plain = f"_{plain[1:]}"
    if _DEVICE.fullmatch(plain):
        plain = f"_{plain}"
    stem, extension = _split(plain)
    room = _MAX_NAME_BYTES - len(extension.encode())
    shortened = stem.encode()[:room].decode("utf-8", "ignore")
    return f"{shortened}{extension}".rstrip(". ") or "file"


def _name(artifact: Artifact, part: Part) -> str:
    """Return the requested name of a part's file, safe or not."""
    if part.filename:
        return part.filename
    if part.url is not None:
        last = unquote(_path(part.url)).rpartition("/")[2]
        if last:
            return last
    name = _SEPARATOR.sub("_", artifact.name or artifact.artifact_id or "artifact")
    return name if _split(name)[1] else f"{name}{_extension(part)}"


def _path(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:
        return ""


def _extension(part: Part) -> str:
    if part.text is None and part.raw is None and part.url is None:
        return ".json"
    plain = ".txt" if part.text is not None else ".bin"
    media_type = (part.media_type or "").partition(";")[0].strip().lower()
    if media_type == "text/plain":
        return ".txt"
    return mimetypes.guess_extension(media_type) or plain


def _split(name: str) -> tuple[str, str]:
    stem, dot, last = name.rpartition(".")
    extension = f"{dot}{last}"
    return (stem, extension) if stem and _EXTENSION.fullmatch(extension) else (name, "")


def _free(name: str, used_names: set[str]) -> str:
    """Return the name, or a similar one that no other file of the task has, ignoring case."""
    stem, extension = _split(name)
    number, free = 1, name
    while free.casefold() in used_names:
        number += 1
        free = f"{stem}-{number}{extension}"
    used_names.add(free.casefold())
    return free
