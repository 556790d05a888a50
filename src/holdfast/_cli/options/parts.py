"""The content of a message, from what the part flags of ``send`` name."""

from __future__ import annotations

import mimetypes
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlsplit
from urllib.request import url2pathname

import click
import msgspec

from holdfast._cli.options.masking import masked_address
from holdfast._client.content import data_part, file_part, regular_bytes, text_part, url_part
from holdfast._model import codec
from holdfast.types import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


__all__ = ["Draft", "read_parts", "read_text"]

_FROM_STANDARD_INPUT = ("TEXT", "--file", "--data")
_URL = r"(?s)[A-Za-z][A-Za-z0-9+.-]*://.*"


class Draft(msgspec.Struct):
    """A part as the caller wrote it.

    Attributes:
        flag: The flag, or ``TEXT`` for the argument.
        value: The value of the flag.
        media_type: What ``--media-type`` says about it.
        metadata: What ``--part-metadata`` says about it.
    """

    flag: str
    value: str
    media_type: str | None = None
    metadata: dict[str, Any] | None = None


def read_parts(
    ctx: click.Context, words: Sequence[str], flagged: Sequence[Draft]
) -> tuple[Part, ...]:
    """Make the parts of a message: the positional text first, then the flags in their order.

    Args:
        ctx: Names the command in errors.
        words: The arguments without a flag: one text, or none.
        flagged: The parts of flags.

    Raises:
        click.UsageError: There is nothing to send, or a part cannot be read.
    """
    drafts = [*_positional(ctx, words), *flagged]
    if not drafts:
        message = "There is nothing to send: pass TEXT, --text, --file or --data."
        raise click.UsageError(message, ctx)
    reads = [d.flag for d in drafts if d.value == "-" and d.flag in _FROM_STANDARD_INPUT]
    if len(reads) > 1:
        both = " and ".join(f"'{flag} -'" for flag in dict.fromkeys(reads))
        count = "two " if len(set(reads)) == 1 else ""
        message = f"Standard input can be read once: there are {count}{both}."
        raise click.UsageError(message, ctx)
    return _parts(ctx, drafts)


def read_text(ctx: click.Context, words: Sequence[str]) -> Part | None:
    """Make the part of the positional text, if there is one.

    Args:
        ctx: Names the command in errors.
        words: The arguments without a flag: one text, or none.

    Raises:
        click.UsageError: The text cannot be sent.
    """
    return next(iter(_parts(ctx, _positional(ctx, words))), None)


def _positional(ctx: click.Context, words: Sequence[str]) -> list[Draft]:
    if len(words) > 1 and (address := masked_address(words[0])):
        message = f"TEXT is one argument; to name the agent: -a {address}"
        raise click.UsageError(message, ctx)
    if len(words) > 1:
        message = f"TEXT is one argument; put it in quotes: {' '.join(words)!r}"
        raise click.UsageError(message, ctx)
    return [Draft("TEXT", text) for text in words]


def _parts(ctx: click.Context, drafts: Sequence[Draft]) -> tuple[Part, ...]:
    try:
        parts = ((_READ[draft.flag](draft), draft.metadata) for draft in drafts)
        return tuple(
            part if metadata is None else msgspec.structs.replace(part, metadata=metadata)
            for part, metadata in parts
        )
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None


def _argument(draft: Draft) -> Part:
    """Return the part of the positional text; ``-`` stands for standard input."""
    if draft.value != "-":
        return _text(draft)
    try:
        text = _standard_input().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        message = (
            "Standard input is not UTF-8: it cannot be a text; send it as a file with --file -"
        )
        raise ValueError(message) from None
    except (OSError, ValueError) as error:
        raise _unreadable("TEXT", "from standard input", error) from None
    if not text.strip():
        message = "Standard input is empty: there is no text to send."
        raise ValueError(message)
    return _text(Draft("TEXT", text))


def _text(draft: Draft) -> Part:
    if not draft.value.strip():
        message = f"The text of {draft.flag} is empty."
        raise ValueError(message)
    try:
        draft.value.encode()
    except UnicodeEncodeError:
        message = f"The text of {draft.flag} is not UTF-8."
        raise ValueError(message) from None
    return text_part(draft.value, media_type=draft.media_type)


def _file(draft: Draft) -> Part:
    if draft.value == "-":
        return _piped_file(draft)
    if re.fullmatch(_URL, draft.value) and not draft.value.startswith("file://"):
        return _url(draft)
    path = _path(draft.value)
    try:
        name = path.name.encode("utf-8", "replace").decode()
        return file_part(path, media_type=draft.media_type, filename=name)
    except (OSError, ValueError) as error:
        raise _unreadable("--file", draft.value, error) from None


def _piped_file(draft: Draft) -> Part:
    """Return a part with the bytes of standard input, which has no name."""
    try:
        content = _standard_input()
    except (OSError, ValueError) as error:
        raise _unreadable("--file", "from standard input", error) from None
    if not content:
        message = "Standard input is empty: there is no file to send."
        raise ValueError(message)
    return Part(raw=content, media_type=draft.media_type)


def _url(draft: Draft) -> Part:
    if any(character.isspace() or not character.isprintable() for character in draft.value):
        message = f"The URL {draft.value!r} has a space or a control character in it."
        raise ValueError(message)
    name = urlsplit(draft.value).path.rpartition("/")[2]
    media_type = draft.media_type or mimetypes.guess_type(name)[0]
    return url_part(draft.value, media_type=media_type, filename=name or None)


def _data(draft: Draft) -> Part:
    origin = "standard input" if draft.value == "-" else draft.value
    try:
        content = _standard_input() if draft.value == "-" else regular_bytes(_path(draft.value))
    except (OSError, ValueError) as error:
        if _looks_like_json(draft.value):
            message = (
                "--data takes a file, and this looks like JSON: put it into a file, or pass it "
                "on standard input with --data -"
            )
            raise ValueError(message) from None
        raise _unreadable("--data", origin, error) from None
    try:
        value = codec.parse(content)
        codec.encode(value)
    except (ValueError, OverflowError) as error:
        message = f"The data of {origin} cannot be sent: {error}"
        raise ValueError(message) from None
    return data_part(value, media_type=draft.media_type)


def _looks_like_json(text: str) -> bool:
    return text.lstrip().startswith(("{", "[", '"'))


def _standard_input() -> bytes:
    stream: TextIO | None = sys.stdin  # None if the process was started without one
    if stream is None:
        message = "it is closed"
        raise ValueError(message)
    return stream.buffer.read()


def _path(text: str) -> Path:
    return Path(url2pathname(text[7:])) if text.startswith("file://") else Path(text).expanduser()


def _unreadable(flag: str, origin: str, error: Exception) -> ValueError:
    reason = getattr(error, "strerror", None) or error
    return ValueError(f"{flag} {origin} cannot be read: {reason}")


_READ: Mapping[str, Callable[[Draft], Part]] = {
    "TEXT": _argument,
    "--text": _text,
    "--file": _file,
    "--data": _data,
}
