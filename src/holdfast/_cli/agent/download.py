"""Saving the contents of a task's artifacts (``task download``).

Rules: an existing file is not replaced unless the caller says so, and the target of a link never;
a file is replaced in one step, by the whole new file; a file that cannot be written to its end
is removed again. An address is fetched without credentials, if its scheme is http or https and it
is not in a more private network than the agent (`holdfast._wire.network_scope`). Number, size
and sum of the files are bounded, and a download that the disk has no room for is not started.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import mimetypes
import os
import re
import secrets
import shutil
import stat
import unicodedata
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from holdfast._cli.errors import CommandError, Failure
from holdfast._cli.options.masking import masked_reference
from holdfast._cli.output.base import FilesSaved, Notice, SavedFile
from holdfast._cli.output.sanitizer import replace_special
from holdfast._model.addresses import is_http_address
from holdfast._net.engine import fetch
from holdfast._wire.http import HttpRequest, presentable
from holdfast._wire.limits import Limits
from holdfast._wire.network_scope import NetworkReach, scope_of_host
from holdfast._wire.origins import origin
from holdfast.errors import A2AError, A2AHTTPError, LimitExceededError, NetworkPolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from holdfast._cli.agent.session import Session
    from holdfast._cli.output.base import Output
    from holdfast._net.engine import HttpEngine
    from holdfast.types import Artifact, Part, Task

__all__ = [
    "MAX_FETCHED_BYTES",
    "File",
    "check_free",
    "content_of",
    "download_task",
    "files_of",
    "safe_name",
    "write",
]

MAX_FETCHED_BYTES = 100 * 1024 * 1024
"""Bytes of a fetched file."""


def check_free(directory: Path, files: Sequence[File]) -> None:
    """Check that no file exists already.

    Raises:
        CommandError: A file exists.
    """
    existing = [file.name for file in files if os.path.lexists(directory / file.name)]
    if existing:
        more = f", and {len(existing) - 1} more do" if existing[1:] else ""
        raise CommandError(
            Failure(
                code="HOLDFAST_ERR_FILE_EXISTS",
                message=f"{directory / existing[0]} exists{more}; nothing was saved",
                hint="name another directory with --to, or replace files with --overwrite",
            )
        )


def check_size(files: Sequence[File], *, most_files: int, most_bytes: int) -> None:
    """Check the known number and sizes of the files before any is saved.

    Raises:
        CommandError: There are too many files, or too many bytes.
    """
    size = sum(len(file.content or b"") for file in files)
    if len(files) > most_files:
        excess, option = f"has more than {most_files} files", "--max-files"
    elif size > most_bytes:
        excess, option = f"has {size} bytes of files, more than {most_bytes}", "--max-bytes"
    else:
        return
    raise CommandError(
        Failure(
            code="HOLDFAST_ERR_DOWNLOAD",
            message=f"the task {excess}; nothing was saved",
            hint=f"raise {option} if that is right",
        )
    )


async def content_of(file: File, engine: HttpEngine, agent: str, *, most_bytes: int) -> bytes:
    """Return the content of a file.

    Args:
        file: The file.
        engine: Fetches the file.
        agent: The address of the agent.
        most_bytes: Maximum number of bytes, if the file is fetched.

    Raises:
        A2AError: The file cannot be fetched; the message says why.
    """
    if file.content is not None:
        return file.content
    url = file.url or ""
    if not is_http_address(url):
        message = f"{masked_reference(url)} is not an http:// or https:// URL"
        raise NetworkPolicyError(message, address=None, executed=False)
    is_agent_origin = origin(url) == origin(agent)
    request = HttpRequest(
        method="GET",
        url=url.partition("#")[0],
        headers={"accept": "*/*"},
        limits=Limits(body=max(1, min(MAX_FETCHED_BYTES, most_bytes))),
        reach=None if is_agent_origin else NetworkReach(inward=scope_of_host(agent)),
    )
    try:
        reply = (await fetch(engine, request)).reply
    except LimitExceededError as error:
        if error.which != "body":
            raise
        hint = "; raise --max-bytes if that is right" if error.bound < MAX_FETCHED_BYTES else ""
        message = f"{presentable(url)} has more than {error.bound} bytes{hint}"
        raise LimitExceededError(message, which="body", bound=error.bound) from None
    if not 200 <= reply.status < 300:
        message = f"{presentable(url)} answered HTTP {reply.status}"
        raise A2AHTTPError(message, http_status=reply.status)
    return reply.body


async def write(path: Path, content: bytes, *, overwrite: bool) -> None:
    """Write a file, and create its directory if it is missing.

    An interruption takes effect after the file is written.

    Raises:
        OSError: It cannot be written, the disk has no room for it, or the path is neither
            a regular file nor a link; an existing file is unchanged.
    """
    await asyncio.to_thread(write_now, path, content, overwrite=overwrite)


def write_now(path: Path, content: bytes, *, overwrite: bool) -> None:
    """Write a file, as `write` does; a link in its place is replaced, and not followed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(path.parent).free < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    if overwrite and os.path.lexists(path):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
            text = "it is a FIFO, a device or the like"
            raise OSError(errno.EEXIST, text, str(path))
    # In the same directory, so that it replaces the other file in one step.
    target = path.with_name(f".holdfast-{secrets.token_hex(8)}") if overwrite else path
    new = target.open("xb")
    try:
        with new:
            new.write(content)
        if overwrite:
            target.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            target.unlink()
        raise


async def download_task(
    session: Session,
    output: Output,
    *,
    task_id: str,
    directory: Path,
    overwrite: bool,
    most_files: int,
    most_bytes: int,
) -> None:
    """Save the contents of the task's artifacts.

    Args:
        session: The agent.
        output: Where the result is shown.
        task_id: The task.
        directory: Where files are saved.
        overwrite: Whether existing files are replaced.
        most_files: Maximum number of files of the task.
        most_bytes: Maximum number of bytes of all files together.

    Raises:
        CommandError: There are too many files, files exist, or one could not be saved.
        A2AError: The task could not be fetched.
    """
    await session.prepare()
    task = await session.client.get_task(
        task_id, timeout=session.seconds_left(), headers=session.svc_params
    )
    files = list(islice(files_of(task), most_files + 1))
    check_size(files, most_files=most_files, most_bytes=most_bytes)
    if not overwrite:
        check_free(directory, files)
    saved: list[SavedFile] = []
    failed = 0
    for file in files:
        try:
            remaining = most_bytes - sum(earlier.size for earlier in saved)
            saved.append(await _save(session, file, directory, remaining, overwrite=overwrite))
        except A2AError as error:
            failed += 1
            output.emit(Notice.warning(f"{file.name} is not saved: {error}"))
    output.emit(FilesSaved(task, saved, is_whole=not failed))
    if failed:
        raise CommandError(
            Failure(
                code="HOLDFAST_ERR_DOWNLOAD",
                message=f"{failed} of {len(files)} files of task {task.id} could not be fetched",
            )
        )
    if not files:
        output.emit(Notice.warning(f"task {task.id} has no artifacts to save"))
    if not task.state.is_terminal:
        output.emit(
            Notice.warning(f"task {task.id} is still {task.state}: there may be more to come")
        )


async def _save(
    session: Session, file: File, directory: Path, remaining: int, *, overwrite: bool
) -> SavedFile:
    path = directory / file.name

    async def fetch() -> bytes:
        agent = await session.named_address()
        return await content_of(file, session.engine, agent, most_bytes=remaining)

    content = await session.within_time(fetch())
    try:
        await write(path, content, overwrite=overwrite)
    except OSError as error:
        raise CommandError(
            Failure(
                code="HOLDFAST_ERR_FILE",
                message=f"{path} cannot be written: {error.strerror or error}",
                hint="name another directory with --to",
            )
        ) from None
    return SavedFile(file.artifact, file.parts, file.media_type, path, len(content))


# ── The files of a task ──────────────────────────────────────────────────────────────────────


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
        continues_text = text and part.text is not None and not part.filename
        if text and not continues_text:
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
