"""The content of a message, from the part flags of ``send`` in the order in which they stand."""

from __future__ import annotations

import mimetypes
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlsplit
from urllib.request import url2pathname

import click
from msgspec.structs import replace

from holdfast._cli.values import ParsedParam, complete_path, read_metadata
from holdfast._client.content import data_part, file_part, regular_bytes, text_part, url_part
from holdfast._model import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.types import Part

__all__ = ["PARTS", "PartsCommand", "read_parts", "read_text"]

PARTS = (
    click.option(
        "--text",
        "--text-part",
        "text",
        multiple=True,
        metavar="TEXT",
        help="A part with text; can be repeated.",
    ),
    click.option(
        "--file",
        "--file-part",
        "file",
        multiple=True,
        metavar="PATH|URL",
        shell_complete=complete_path,
        help="A part with the bytes of a file, or with a URL that the agent fetches; can be "
        "repeated.",
    ),
    click.option(
        "--data",
        "--data-part",
        "data",
        multiple=True,
        metavar="PATH|-",
        shell_complete=complete_path,
        help="A part with the JSON of a file, or of standard input; can be repeated.",
    ),
    click.option(
        "--media-type",
        "media_type",
        multiple=True,
        metavar="TYPE",
        help="Media type of the part whose flag stands just before; guessed from a file's name "
        "if left out.",
    ),
    click.option(
        "--part-metadata",
        "part_metadata",
        multiple=True,
        metavar="JSON",
        type=ParsedParam("json", read_metadata),
        help="JSON object for the metadata of the part whose flag stands just before, as --data.",
    ),
)
_FLAGS = {
    "text": "--text",
    "file": "--file",
    "data": "--data",
    "media_type": "--media-type",
    "part_metadata": "--part-metadata",
}
_OF_A_PART = ("media_type", "part_metadata")
_FROM_STANDARD_INPUT = ("TEXT", "--data")
_ORDER = "holdfast._cli.parts.order"
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(?:\s*;[\x20-\x7e]*)?")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.*", re.DOTALL)


class PartsCommand(click.Command):
    """A command that remembers in which order its part flags stood.

    click gathers the values of each option by itself; the order between options is known to its
    parser only.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the arguments a first time for their order."""
        parsed = self.make_parser(ctx).parse_args(args=list(args))
        ctx.meta[_ORDER] = [param.name for param in parsed[2] if param.name in _FLAGS]
        return super().parse_args(ctx, args)


@dataclass
class _Draft:
    """A part as the caller wrote it."""

    flag: str
    value: str
    media_type: str | None = None
    metadata: dict[str, Any] | None = None


def read_parts(ctx: click.Context, words: Sequence[str]) -> tuple[Part, ...]:
    """Makes the parts of a message: the positional text first, then the flags in their order.

    Args:
        ctx: Knows the flags.
        words: What stands there without a flag: one text, or nothing.

    Raises:
        click.UsageError: There is nothing to send, or a part that cannot be read.
    """
    drafts = _positional(ctx, words)
    drafts += _drafts(ctx.meta.get(_ORDER, ()), ctx.params)
    if not drafts:
        message = "There is nothing to send: give TEXT, --text, --file or --data."
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
        ctx: Names the command.
        words: What stands there without a flag: one text, or nothing.

    Raises:
        click.UsageError: It is no text to send.
    """
    return next(iter(_parts(ctx, _positional(ctx, words))), None)


def _positional(ctx: click.Context, words: Sequence[str]) -> list[_Draft]:
    if len(words) > 1:
        message = f"TEXT is one argument; put it in quotes: {' '.join(words)!r}"
        raise click.UsageError(message, ctx)
    return [_Draft("TEXT", text) for text in words]


def _parts(ctx: click.Context, drafts: Sequence[_Draft]) -> tuple[Part, ...]:
    try:
        parts = ((_READ[draft.flag](draft), draft.metadata) for draft in drafts)
        return tuple(
            part if metadata is None else replace(part, metadata=metadata)
            for part, metadata in parts
        )
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None


def _drafts(order: Sequence[str], params: Mapping[str, Any]) -> list[_Draft]:
    values: dict[str, Iterator[Any]] = {name: iter(params[name]) for name in _FLAGS}
    drafts: list[_Draft] = []
    for name in order:
        value = next(values[name])
        if name not in _OF_A_PART:
            drafts.append(_Draft(_FLAGS[name], value))
            continue
        is_metadata = name == "part_metadata"
        if is_metadata and drafts and drafts[-1].metadata is None:
            drafts[-1].metadata = value
            continue
        if is_metadata:
            message = "--part-metadata stands behind no part: write it after its part flag."
            raise click.UsageError(message)
        if not drafts or drafts[-1].media_type is not None:
            message = f"--media-type {value} stands behind no part: write it after its part flag."
            raise click.UsageError(message)
        if not _MEDIA_TYPE.fullmatch(value):
            message = f"{value!r} is not a media type, such as application/pdf."
            raise click.UsageError(message)
        drafts[-1].media_type = value
    return drafts


def _argument(draft: _Draft) -> Part:
    """The positional text; ``-`` stands for what standard input holds."""
    if draft.value != "-":
        return _text(draft)
    try:
        said = _standard_input().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        message = "Standard input is not UTF-8: it cannot be a text; send it with --file."
        raise ValueError(message) from None
    except (OSError, ValueError) as error:
        raise _unreadable("TEXT", "from standard input", error) from None
    if not said.strip():
        message = "Standard input is empty: there is no text to send."
        raise ValueError(message)
    return _text(_Draft("TEXT", said))


def _text(draft: _Draft) -> Part:
    if not draft.value.strip():
        message = f"The text of {draft.flag} is empty."
        raise ValueError(message)
    try:
        draft.value.encode()
    except UnicodeEncodeError:
        message = f"The text of {draft.flag} is not UTF-8."
        raise ValueError(message) from None
    return text_part(draft.value, media_type=draft.media_type)


def _file(draft: _Draft) -> Part:
    if _URL.fullmatch(draft.value) and not draft.value.startswith("file://"):
        return _url(draft)
    path = _path(draft.value)
    try:
        name = path.name.encode("utf-8", "replace").decode()
        return file_part(path, media_type=draft.media_type, filename=name)
    except (OSError, ValueError) as error:
        raise _unreadable("--file", draft.value, error) from None


def _url(draft: _Draft) -> Part:
    if any(character.isspace() or not character.isprintable() for character in draft.value):
        message = f"The URL {draft.value!r} has a space or a control character in it."
        raise ValueError(message)
    name = urlsplit(draft.value).path.rpartition("/")[2]
    media_type = draft.media_type or mimetypes.guess_type(name)[0]
    return url_part(draft.value, media_type=media_type, filename=name or None)


def _data(draft: _Draft) -> Part:
    where = "standard input" if draft.value == "-" else draft.value
    try:
        content = _standard_input() if draft.value == "-" else regular_bytes(_path(draft.value))
    except (OSError, ValueError) as error:
        if _looks_like_json(draft.value):
            message = (
                "--data takes a file, and was given what looks like JSON itself: put it into a "
                "file, or send it by standard input with --data -"
            )
            raise ValueError(message) from None
        raise _unreadable("--data", where, error) from None
    try:
        value = codec.parse(content)
        codec.encode(value)
    except (ValueError, OverflowError) as error:
        message = f"The data of {where} cannot be sent: {error}"
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


def _unreadable(flag: str, what: str, error: Exception) -> ValueError:
    reason = getattr(error, "strerror", None) or error
    return ValueError(f"{flag} {what} cannot be read: {reason}")


_READ: Mapping[str, Callable[[_Draft], Part]] = {
    "TEXT": _argument,
    "--text": _text,
    "--file": _file,
    "--data": _data,
}
