"""Messages and parts, built from text, dicts, files, URLs and JSON data."""

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
from holdfast._arguments import check_json_object, check_kind, check_not_empty
from holdfast._model.codec import MalformedError, from_builtins
from holdfast._model.dicts import to_message_v1
from holdfast._model.sdk_values import is_of_sdk, kind_of
from holdfast._model.sendable import check_sendable, check_text
from holdfast._model.settings import check_count
from holdfast.types import Message, Part, Role

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message as ProtoMessage

    from holdfast.types import WireValue

__all__ = [
    "Content",
    "create_text_message_object",
    "data_part",
    "file_part",
    "from_sdk",
    "regular_bytes",
    "text_part",
    "to_message",
    "to_user_message",
    "url_part",
]

Content = str | Part | Message | Mapping[str, Any] | Iterable[str | Part]
"""The content of a message: text, one part, several parts, a message, or a message's JSON object.

The object may have the form of protocol 1.0 or 0.3, whichever the agent uses, or the form before
0.3: ``{"role": "user", "parts": [{"type": "text", "text": "hello"}]}``. Members that no version
defines are refused with a ValueError. A `Message` or `Part` of the official SDK is accepted too,
and a `TextPart`, `FilePart` or `DataPart` of its version 0.3.
"""

_ABSOLUTE_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*://|data:)\S", re.IGNORECASE)


def text_part(text: str, *, media_type: str | None = None) -> Part:
    """Return a part with text.

    Args:
        text: The text.
        media_type: MIME type; none by default.

    Raises:
        TypeError: An argument of another type.
    """
    check_kind("text", text, str)
    _check_optional_text(media_type=media_type)
    return Part(text=text, media_type=media_type)


def data_part(data: Any, *, media_type: str | None = None) -> Part:
    """Return a part with a JSON value; ``None`` is JSON's null.

    Integers are sent as integers. Servers built with the official SDK send them back as ``1.0``.

    Args:
        data: Any JSON value.
        media_type: MIME type; none by default.

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
    """Return a part with the bytes of a file, which is read now.

    Args:
        path: The file.
        media_type: MIME type; guessed from the file's name by default.
        filename: Name for the agent; the file's own name by default.
        max_bytes: Largest size in bytes to read into memory; 1 GiB by default. For a larger file,
            send the address with `url_part`.

    Raises:
        OSError: The file cannot be read, is larger than ``max_bytes``, or is not a regular file: a
            FIFO or a device might never end. Pipes of this process (``/dev/fd/…``) are read to
            their end.
        ValueError: The path is empty or has a NUL character, or the name of the file is not UTF-8
            and ``filename`` is not given.
        TypeError: An argument of another type.
    """
    import mimetypes  # slow to import, and needed only here

    _check_optional_text(media_type=media_type, filename=filename)
    check_count("max_bytes", max_bytes)
    file = _to_path(path)
    shown_name = filename or file.name
    if not filename and not shown_name.isascii():
        check_text("the name of the file, which filename= can replace,", shown_name)
    return Part(
        raw=regular_bytes(file, max_bytes=max_bytes),
        filename=shown_name,
        media_type=media_type or mimetypes.guess_type(file.name)[0],
    )


def _check_optional_text(**arguments: str | None) -> None:
    """Check arguments that must be text if they are given."""
    for name, value in arguments.items():
        if value is not None:
            check_kind(name, value, str)


def _to_path(path: object) -> Path:
    """Return the checked path that a caller passes."""
    if isinstance(path, bytes | bytearray):
        text = "path must be str or Path, not bytes; pass the content of a file as Part(raw=…)"
        raise TypeError(text)
    check_kind("path", path, (str, os.PathLike), or_else=" or Path")
    name = os.fspath(cast("str | PathLike[str]", path))
    check_kind("path", name, str)
    if not name:
        text = "path must not be empty"
        raise ValueError(text)
    if "\0" in name:
        text = "path has a NUL character"
        raise ValueError(text)
    return Path(name)


def regular_bytes(path: Path, *, max_bytes: int = 1024**3) -> bytes:
    """Return the content of a file, with the rules of `file_part`.

    Raises:
        OSError: The file cannot be read, is too large, or is not a regular file.
    """
    if _OWN_PIPE.fullmatch(str(path)):
        return path.read_bytes()
    # Without O_NONBLOCK, opening a FIFO waits for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            text = "it is not a regular file (a FIFO, a device or similar)"
            raise OSError(errno.EINVAL, text, str(path))
        if status.st_size > max_bytes:
            text = f"it has {status.st_size} bytes, more than max_bytes={max_bytes}"
            raise OSError(errno.EFBIG, text, str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


_OWN_PIPE = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/[0-9]+")


def url_part(url: str, *, media_type: str | None = None, filename: str | None = None) -> Part:
    """Return a part with the address of a file, which the agent fetches itself.

    Args:
        url: The address.
        media_type: MIME type; none by default.
        filename: Name of the file; none by default.

    Raises:
        ValueError: The address is not an absolute URL, such as ``https://example.com/moon.txt``.
        TypeError: An argument of another type.
    """
    check_not_empty("url", url)
    if not _ABSOLUTE_URL.match(url):
        text = (
            f"url must be an absolute URL, such as https://example.com/moon.txt: {url!r}; "
            "for a local file, use file_part"
        )
        raise ValueError(text)
    _check_optional_text(media_type=media_type, filename=filename)
    return Part(url=url, filename=filename, media_type=media_type)


def create_text_message_object(role: Role = Role.USER, content: str = "") -> Message:
    """Return a message with one text part and a new message id.

    Args:
        role: The sender's role; the user by default.
        content: The text; empty by default.

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
    """Return a complete message to send.

    Args:
        content: The `Content` to send. A message keeps its own id, role, task id and context id.
        new_id: Id for a message that has none.
        task_id: Id of the task that the message continues; none by default.
        context_id: Id of the conversation that the message belongs to; none by default.
        metadata: A JSON object to add to the message's own metadata; it takes precedence if both
            have a member. None by default.

    Raises:
        ValueError: The content is empty, a part does not have exactly one of text, raw, url and
            data, a dict is not a message or has a member that the protocol does not define, a text
            has an unpaired surrogate, metadata or data are not JSON, or the message has another
            task or context id than the arguments.
        TypeError: The content is of another type.
    """
    added_metadata = None if metadata is None else check_json_object("message_metadata", metadata)
    if isinstance(content, str) and content:  # fast path: its part needs no further checks
        if type(content) is not str or not content.isascii():
            check_text("message.parts[0].text", content)
        return Message(
            message_id=new_id,
            role=Role.USER,
            parts=(Part(text=content),),
            task_id=None if task_id is None else check_not_empty("task_id", task_id),
            context_id=None if context_id is None else check_not_empty("context_id", context_id),
            metadata=added_metadata,
        )
    message = _from_content(content)
    if not message.parts:
        text = "a message needs at least one part with content"
        raise ValueError(text)
    for number, part in enumerate(message.parts, start=1):
        _check_part(part, number)
    check_kind("the role of the message", message.role, (Role, str))
    check_sendable("message", message)
    return msgspec.structs.replace(
        message,
        message_id=message.message_id or new_id,
        role=Role.USER if message.role is Role.UNSPECIFIED else message.role,
        task_id=_merge_id("task_id", message.task_id, task_id),
        context_id=_merge_id("context_id", message.context_id, context_id),
        metadata={**(message.metadata or {}), **added_metadata}
        if added_metadata
        else message.metadata,
    )


def to_user_message(
    content: Content,
    *,
    new_id: str,
    task_id: str | None = None,
    context_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Message:
    """Return a complete message for a client to send; agents refuse one with the role AGENT.

    Args:
        content: The content, as for `to_message`.
        new_id: Id for a message that has none.
        task_id: Id of the task that the message continues; none by default.
        context_id: Id of the conversation that the message belongs to; none by default.
        metadata: A JSON object to add to the message's own metadata; none by default.

    Raises:
        ValueError: The role is AGENT; or as for `to_message`.
        TypeError: The content is of another type.
    """
    message = to_message(
        content, new_id=new_id, task_id=task_id, context_id=context_id, metadata=metadata
    )
    if message.role is Role.AGENT:
        text = (
            "the message has the role AGENT, which only an agent sends; pass Role.USER, or leave "
            "the role out; to forward a message of an agent, pass its parts"
        )
        raise ValueError(text)
    return message


def _from_content(content: object) -> Message:
    content = _from_sdk_part(from_sdk(content, Message))
    match content:
        case "":
            return Message()
        case Message():
            return content
        case Part():
            return Message(parts=(content,))
        case Mapping():
            return _from_document(cast("Mapping[str, Any]", content))
        case bytes() | bytearray():
            pass
        case _ if is_of_sdk(type(content)) or _is_file(content):
            pass  # its pydantic models are iterable, and so are open files
        case Iterable():
            items = cast("Iterable[object]", content)
            return Message(parts=tuple(_to_part(item) for item in items))
        case _:
            pass
    kind = kind_of(content)
    text = (
        f"a message must be text, a part, parts, a Message or a dict, not {kind}{_hint(content)}"
    )
    raise TypeError(text)


def _from_document(document: Mapping[str, Any]) -> Message:
    document = to_message_v1(document)
    try:
        return from_builtins(document, Message)  # text and ids may come from other arguments
    except MalformedError as error:
        text = f"the message is not valid: {error}"
        raise ValueError(text) from None


def _from_sdk_part(value: object) -> object:
    """Convert a part of the official SDK, of either version; return any other value unchanged."""
    part = from_sdk(value, Part)
    if part is not value and not isinstance(part, Part):  # the JSON object of a pydantic model
        return _from_document({"parts": [part]}).parts[0]
    return part


def _to_part(item: object) -> Part:
    match _from_sdk_part(item):
        case Part() as part:
            return part
        case str():
            return Part(text=cast("str", item))
        case _:
            hint = "; pass Part.from_dict(…)" if isinstance(item, Mapping) else _hint(item)
            text = f"a part must be a Part or text, not {kind_of(cast('object', item))}{hint}"
            raise TypeError(text)


def _is_file(value: object) -> bool:
    """Return whether a value is an open file, or an object with its methods."""
    return callable(getattr(value, "read", None))


def _hint(value: object) -> str:
    """Return how to send a file that a caller passes as a path, as its bytes, or open."""
    if isinstance(value, os.PathLike) or _is_file(value):
        return "; to send a file, pass file_part(path)"
    if isinstance(value, bytes | bytearray):
        return "; pass Part(raw=…), or file_part(path) for a file"
    return ""


def _check_part(part: Part, number: int) -> None:
    if not isinstance(cast("object", part), Part):
        check_kind(f"part {number}", part, Part)
    text: object = part.text  # callers without a type checker may pass any type
    raw, url = part.raw, part.url
    count = (text is not None) + (raw is not None) + (url is not None)
    if count + (part.data is not msgspec.UNSET) != 1:
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
        check_not_empty(f"the url of part {number}", url)


def _merge_id(name: str, own: str | None, argument: str | None) -> str | None:
    """Return the id that a message and the caller's argument agree on, if either has one."""
    if argument is not None:
        check_not_empty(name, argument)
    if own and argument and own != argument:
        text = f"the message has {name} {own!r}, but {argument!r} was given"
        raise ValueError(text)
    return own or argument


# ── Values of the official SDK ───────────────────────────────────────────────────────────────

_SDK_PARTS: Mapping[str, str] = dict.fromkeys(("TextPart", "FilePart", "DataPart"), "Part")
"""Models of the SDK for 0.3 in addition to those named like the protocol's types."""

_SDK_PACKAGE = "lf.a2a.v1"
"""Package of the protocol's messages (A2A, a2a.proto), of which the SDK's are made."""


def from_sdk(value: object, kind: type[WireValue]) -> object:
    """Convert a value of the official SDK; return any other value as it is.

    Args:
        value: A protobuf message (a2a-sdk 1.x), a pydantic model (0.3), or any other value.
        kind: Holdfast's type of the same name; a value whose type has another name is returned as
            it is. The three part classes of 0.3 count as `Part`.

    Returns:
        A ``kind`` for a protobuf message, the JSON object of a pydantic model.

    Raises:
        ValueError: A member holds a value that JSON cannot represent, such as NaN; the message
            names it.
    """
    sdk_type = type(value)
    if kind.__name__ not in (sdk_type.__name__, _SDK_PARTS.get(sdk_type.__name__)):
        return value
    descriptor: Any = getattr(sdk_type, "DESCRIPTOR", None)
    if getattr(descriptor, "full_name", None) == f"{_SDK_PACKAGE}.{kind.__name__}":
        return _from_protobuf(cast("ProtoMessage", value), descriptor, kind)
    dump: Any = getattr(value, "model_dump", None)
    if sdk_type.__module__.partition(".")[0] == "a2a" and callable(dump):
        return dump(mode="json", by_alias=True, exclude_none=True)
    return value


def _from_protobuf(
    message: ProtoMessage, descriptor: Descriptor, kind: type[WireValue]
) -> WireValue:
    from holdfast._wire.protobuf.reading import reader  # needs protobuf
    from holdfast._wire.protobuf.values import UnrepresentableError

    try:
        read: Callable[[ProtoMessage], WireValue] = reader(kind, descriptor, lenient=True)
        return read(message)
    except UnrepresentableError as error:
        raise MalformedError(error.reason, error.path) from None
    except RecursionError:  # the program's own stack is nearly exhausted
        text = "nested too deeply"
        raise MalformedError(text) from None
