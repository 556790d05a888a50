"""Building messages from what callers have at hand: text, parts, dicts, files, URLs, data."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast._aio.env import SystemEnv
from holdfast._arguments import check_kind, json_object, not_empty
from holdfast._model.codec import MalformedError
from holdfast._model.dicts import message_of_1_0
from holdfast._model.sendable import check_sendable, check_text
from holdfast._model.settings import check_count, kind_of
from holdfast._wire.sdk_values import from_sdk
from holdfast.types import Message, Part, Role

if TYPE_CHECKING:
    from os import PathLike

__all__ = [
    "Content",
    "create_text_message_object",
    "data_part",
    "file_part",
    "regular_bytes",
    "text_part",
    "to_message",
    "url_part",
]

Content = str | Part | Message | Mapping[str, Any] | Iterable[str | Part]
"""What can be sent: text, one part, several parts, a message, or a message's JSON object.

The object may be one of protocol 1.0 or 0.3, whichever the agent speaks, or of the form before
that: ``{"role": "user", "parts": [{"type": "text", "text": "hello"}]}``. A member that no version
has is a ValueError. A `Message` or `Part` of the official SDK is taken too, and of its 0.3 a
`TextPart`, `FilePart` or `DataPart`.
"""


def text_part(text: str, *, media_type: str | None = None) -> Part:
    """A part with text.

    Raises:
        TypeError: An argument of another type.
    """
    check_kind("text", text, str)
    _check_optional_text(media_type=media_type)
    return Part(text=text, media_type=media_type)


def data_part(data: Any, *, media_type: str | None = None) -> Part:
    """A part with a JSON value; ``None`` is JSON's null.

    Integers stay integers on the way there. Servers built with the official SDK send them back
    as ``1.0``.

    Raises:
        TypeError: The media type is not text.
    """
    _check_optional_text(media_type=media_type)
    return Part(data=data, media_type=media_type)


def file_part(
    path: str | PathLike[str],
    *,
    media_type: str | None = None,
    filename: str | None = None,
    max_bytes: int = 1024**3,
) -> Part:
    """A part with the bytes of a file, read now.

    Args:
        path: The file.
        media_type: MIME type; guessed from the name if left out.
        filename: Name to tell the agent; the file's own if left out.
        max_bytes: Size up to which the file is read into memory; 1 GiB by default. Of a larger
            file, send the address with `url_part`.

    Raises:
        OSError: The file cannot be read, is larger than `max_bytes`, or is not a regular file: a
            FIFO or a device might never end. Pipes of this process (``/dev/fd/…``) are read to
            their end.
        ValueError: The path is empty or has a NUL character, or the name of the file is not
            UTF-8 and `filename` is left out.
        TypeError: An argument of another type.
    """
    import mimetypes  # slow to import, and needed only here

    _check_optional_text(media_type=media_type, filename=filename)
    check_count("max_bytes", max_bytes)
    file = _path(path)
    named = filename or file.name
    if not filename and not named.isascii():
        check_text("the name of the file, in place of which filename= may be passed,", named)
    return Part(
        raw=regular_bytes(file, max_bytes=max_bytes),
        filename=named,
        media_type=media_type or mimetypes.guess_type(file.name)[0],
    )


def _check_optional_text(**given: str | None) -> None:
    """Check arguments that are text or left out, by their names."""
    for name, value in given.items():
        if value is not None:
            check_kind(name, value, str)


def _path(given: object) -> Path:
    """The path to a file that a caller passes."""
    if isinstance(given, bytes | bytearray):
        text = "path must be str or Path, not bytes; pass the content of a file as Part(raw=…)"
        raise TypeError(text)
    check_kind("path", given, (str, os.PathLike), or_else=" or Path")
    path = os.fspath(cast("str | PathLike[str]", given))
    check_kind("path", path, str)
    if not path:
        text = "path must not be empty"
        raise ValueError(text)
    if "\0" in path:
        text = "path has a NUL character"
        raise ValueError(text)
    return Path(path)


def regular_bytes(path: Path, *, max_bytes: int = 1024**3) -> bytes:
    """What is in a file, as of `file_part`.

    Raises:
        OSError: It cannot be read, is too large, or is not a regular file.
    """
    if _OWN_PIPE.fullmatch(str(path)):
        return path.read_bytes()
    # A FIFO is opened at once by this, and else when somebody writes to it.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    number = os.open(path, flags)
    try:
        found = os.fstat(number)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            text = "it is not a regular file, but a FIFO, a device or the like"
            raise OSError(errno.EINVAL, text, str(path))
        if found.st_size > max_bytes:
            text = f"it has {found.st_size} bytes, more than {max_bytes} (max_bytes)"
            raise OSError(errno.EFBIG, text, str(path))
        with open(number, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(number)


_OWN_PIPE = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/[0-9]+")


def url_part(url: str, *, media_type: str | None = None, filename: str | None = None) -> Part:
    """A part with the address of a file, which the agent fetches itself.

    Raises:
        ValueError: The address is empty.
        TypeError: An argument of another type.
    """
    not_empty("url", url)
    _check_optional_text(media_type=media_type, filename=filename)
    return Part(url=url, filename=filename, media_type=media_type)


def create_text_message_object(role: Role = Role.USER, content: str = "") -> Message:
    """A message with one part of text and an id of its own.

    Args:
        role: Who says it.
        content: What.

    Raises:
        TypeError: An argument of another type.
    """
    check_kind("role", role, Role)
    check_kind("content", content, str)
    return Message(message_id=SystemEnv().new_id(), role=role, parts=(Part(text=content),))


def to_message(
    content: Content,
    *,
    new_id: str,
    task_id: str | None = None,
    context_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Message:
    """Makes a complete message to send.

    Args:
        content: See `Content`. A message keeps its own id, role and ids of task and context.
        new_id: Id for a message that has none.
        task_id: The task that it continues.
        context_id: The conversation that it belongs to.
        metadata: A JSON object to add to the message's own metadata; it wins where both have a
            member.

    Raises:
        ValueError: There is nothing in it, a part is not exactly one of text, raw, url and data,
            a dict is not a message or has a member that the protocol does not know, a text has an
            unpaired surrogate, metadata or data are not JSON, or the message names another task or
            context than the arguments do.
        TypeError: It is none of these.
    """
    added = json_object("message_metadata", metadata)
    if isinstance(content, str) and content:  # which makes a part that is right
        if type(content) is not str or not content.isascii():
            check_text("message.parts[0].text", content)
        return Message(
            message_id=new_id,
            role=Role.USER,
            parts=(Part(text=content),),
            task_id=_same("task_id", None, task_id),
            context_id=_same("context_id", None, context_id),
            metadata=added,
        )
    message = _read(content)
    if not message.parts:
        text = "a message needs at least one part with content"
        raise ValueError(text)
    for number, part in enumerate(message.parts, start=1):
        _check(part, number)
    check_sendable("message", message)
    return msgspec.structs.replace(
        message,
        message_id=message.message_id or new_id,
        role=Role.USER if message.role is Role.UNSPECIFIED else message.role,
        task_id=_same("task_id", message.task_id, task_id),
        context_id=_same("context_id", message.context_id, context_id),
        metadata={**(message.metadata or {}), **added} if added else message.metadata,
    )


def _read(content: object) -> Message:
    content = _part_of_sdk(from_sdk(content, Message))
    match content:
        case "":
            return Message()
        case Message():
            return content
        case Part():
            return Message(parts=(content,))
        case Mapping():
            return _message(cast("Mapping[str, Any]", content))
        case bytes() | bytearray():
            pass
        case Iterable():
            return Message(parts=tuple(_part(item) for item in cast("Iterable[object]", content)))
        case _:
            pass
    text = f"a message is text, a part, parts, a Message or a dict, not {kind_of(content)}"
    raise TypeError(text)


def _message(document: Mapping[str, Any]) -> Message:
    document = message_of_1_0(document)
    try:
        return Message.from_dict(document)
    except MalformedError as error:
        text = f"the message is not valid: {error}"
        raise ValueError(text) from None


def _part_of_sdk(value: object) -> object:
    """Convert a part of the official SDK, of either version; return any other value as it is."""
    found = from_sdk(value, Part)
    if found is not value and not isinstance(found, Part):  # the JSON object of a pydantic model
        return _message({"parts": [found]}).parts[0]
    return found


def _part(item: object) -> Part:
    match _part_of_sdk(item):
        case Part() as part:
            return part
        case str():
            return Part(text=cast("str", item))
        case _:
            text = f"a part is a Part or text, not {kind_of(item)}"
            raise TypeError(text)


def _check(part: Part, number: int) -> None:
    text: object = part.text  # callers without a type checker write anything
    raw, url = part.raw, part.url
    given = (text is not None) + (raw is not None) + (url is not None)
    if given + (part.data is not msgspec.UNSET) != 1:
        message = f"part {number} must have exactly one of text, raw, url and data"
        raise ValueError(message)
    for name in ("filename", "media_type"):
        member: object = getattr(part, name)
        if member is not None and not isinstance(member, str):
            check_kind(f"the {name} of part {number}", member, str)
    if isinstance(text, str):
        return
    if text is not None:
        check_kind(f"the text of part {number}", text, str)
    elif raw is not None:
        check_kind(f"the raw of part {number}", raw, bytes)
    elif url is not None:
        check_kind(f"the url of part {number}", url, str)
        not_empty(f"the url of part {number}", url)


def _same(name: str, own: str | None, given: str | None) -> str | None:
    if given is not None:
        not_empty(name, given)
    if own and given and own != given:
        text = f"the message has {name} {own!r}, but {given!r} was given"
        raise ValueError(text)
    return own or given
