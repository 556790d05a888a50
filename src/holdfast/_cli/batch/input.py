"""The input of ``holdfast run``: a message on each line of a file or of standard input.

Rules: a line is read when there is room for it, and no more of the input is kept than the keys
of its lines; a line that is not a message is reported by its number and the error, before
anything is sent. A line that begins as a JSON object must be one: half a record is not sent as
text. The key of a line is its id, or else its content and the number of earlier lines with the
same content: its position does not matter.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import re
import stat
import sys
import threading
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import msgspec

from holdfast._arguments import check_key
from holdfast._client.content import to_message
from holdfast._model import codec
from holdfast._model.digest import message_digest
from holdfast._model.error_values import one_line
from holdfast._model.settings import suggestion
from holdfast.types import Message

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from pathlib import Path

    from holdfast._client.content import Content

__all__ = ["MAX_LINE_BYTES", "BadLine", "Line", "Lines", "key_of", "read_line"]

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Bytes of a line."""

_LINES_PER_TURN = 1000
"""Lines that are read before other tasks of the event loop run."""

_NO_TEXT = re.compile("[\x00-\x08\x0e-\x1f\x7f]")
_BOM = "\ufeff"

_JSON = ("{", "[", '"')
"""The beginnings of JSON values that are not read as text."""

_CONTENTS = ("text", "message", "parts")
"""Members of an object, of which it has exactly one."""

_OF_A_MESSAGE = {
    field.encode_name.lower(): field.encode_name for field in msgspec.structs.fields(Message)
}
"""The members of a message, by their names in lower case."""


class Line(NamedTuple):
    """A message and its position.

    Attributes:
        number: The line number, from 1 on.
        id: The id that the line states; None if it states none.
        message: The message.
        digest: The digest of its content.
        copy: Its number among the lines with the same content and no id, from 1 on.
    """

    number: int
    id: str | int | None
    message: Message
    digest: str
    copy: int = 1

    @property
    def key(self) -> str:
        """The key of its result and of its record in the journal."""
        return key_of(self.id, self.digest, self.copy)


class BadLine(NamedTuple):
    """A line that is not a message.

    Attributes:
        number: The line number, from 1 on.
        reason: The error.
    """

    number: int
    reason: str


def key_of(line_id: str | int | None, digest: str, copy: int) -> str:
    """Return the key of a line: its id if it has one, else its content."""
    return f"text:{digest}:{copy}" if line_id is None else f"id:{line_id}"


def read_line(raw: bytes, number: int) -> Line | BadLine | None:
    """Read a line; return None for an empty one.

    Args:
        raw: The line, with or without its line end.
        number: The line number, from 1 on.
    """
    if len(raw) > MAX_LINE_BYTES:
        return BadLine(number, f"is longer than {MAX_LINE_BYTES // 1024**2} MiB")
    try:
        text = raw.decode().removeprefix(_BOM if number == 1 else "").strip()
    except UnicodeDecodeError:
        return BadLine(number, "is not UTF-8")
    if not text:
        return None
    try:
        line_id, content = _record(text)
        message = to_message(content, new_id="")
        message.to_json()
    except (ValueError, TypeError) as error:
        return BadLine(number, f"is not a message: {error}")
    return Line(number, line_id, message, message_digest(message))


def _record(text: str) -> tuple[str | int | None, Content]:
    """Return the id, if there is one, and the content."""
    value = None
    if text.startswith(_JSON):
        try:
            value = codec.parse(text.encode())
        except (ValueError, RecursionError) as error:
            if text.startswith("{"):
                fault = str(error).removeprefix("not JSON: ")
                reason = f"it begins like a JSON object, and is not valid JSON: {fault}"
                raise ValueError(reason) from None
    if isinstance(value, str):
        return None, value
    if isinstance(value, dict):
        return _of_object(cast("dict[str, Any]", value))
    if isinstance(value, list):
        reason = "it is a JSON array; write an object with text, message or parts"
        raise ValueError(reason)  # noqa: TRY004  it is what a file says
    if _NO_TEXT.search(text):
        reason = "it has control characters"
        raise ValueError(reason)
    return None, text


def _of_object(record: dict[str, Any]) -> tuple[str | int | None, Content]:
    kinds = [name for name in _CONTENTS if record.get(name) is not None]
    if len(kinds) != 1:
        names = " and ".join(kinds) or "none of them"
        reason = f"an object has exactly one of text, message and parts; this one has {names}"
        raise ValueError(reason)
    kind, value = kinds[0], record[kinds[0]]
    content: Content = value
    if kind == "parts":  # the line is the message, and its own id is the line's
        content = {name: member for name, member in record.items() if name != "id"}
    else:
        _check_members(record, kind)
        expected_type = str if kind == "text" else dict
        if not isinstance(value, expected_type):
            reason = f"its {kind} is {'no text' if expected_type is str else 'no object'}"
            raise ValueError(reason)
    line_id = record.get("id")
    if line_id is None and kind != "text":
        message = record if kind == "parts" else cast("dict[str, Any]", value)
        line_id = message.get("messageId") or None
    return _checked(line_id), content


def _check_members(record: dict[str, Any], kind: str) -> None:
    """Check that an object around a text or a message has no members that would be dropped.

    Raises:
        ValueError: It has one; the message says what to write instead.
    """
    allowed = ("id", kind)
    for name, value in record.items():
        if name in allowed or (name in _CONTENTS and value is None):
            continue
        member = _OF_A_MESSAGE.get(name.replace("_", "").lower())
        if name == "key":  # the name in the library
            hint = "did you mean 'id'?"
        elif member is None:
            hint = suggestion(name, allowed)
        elif kind == "text":
            hint = f'write {{"id": …, "parts": [{{"text": …}}], "{member}": …}}'
        else:
            hint = f'write {{"id": …, "message": {{…, "{member}": …}}}}'
        label = one_line(repr(name), 50)
        reason = f"{label} is not a member of an object with {kind}; {hint}"
        raise ValueError(reason)


def _checked(line_id: object) -> str | int | None:
    if line_id is None or (isinstance(line_id, int) and not isinstance(line_id, bool)):
        return line_id
    if not isinstance(line_id, str) or not line_id.strip():
        reason = "its id is neither a string nor an integer"
        raise ValueError(reason)
    try:
        line_id.encode()
    except UnicodeEncodeError:
        reason = "its id is not UTF-8"
        raise ValueError(reason) from None
    try:
        check_key(key_of(line_id, "", 0))
    except ValueError as error:
        reason = f"its id cannot be a key: {error}"
        raise ValueError(reason) from None
    return line_id


class _Reader:
    """Reads the lines of an input, and counts those with the same content."""

    def __init__(self) -> None:
        self._ids = set[str]()
        self._copies: dict[str, int] = {}

    def read(self, raw: bytes, number: int) -> Line | BadLine | None:
        """Read the next line; return None for an empty one."""
        line = read_line(raw, number)
        if not isinstance(line, Line):
            return line
        if line.id is None:
            copy = self._copies[line.digest] = self._copies.get(line.digest, 0) + 1
            return line._replace(copy=copy)
        name = str(line.id)
        if name in self._ids:
            return BadLine(number, f"has the id {line.id!r} of another line before it")
        self._ids.add(name)
        return line


class Lines:
    """The lines of an input, read once.

    Args:
        path: The file; None for standard input.

    Attributes:
        is_file: Whether it is a file, which can be read again.

    Raises:
        OSError: It cannot be read.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        if path is None:
            self._file = _standard_input()
        elif stat.S_ISREG(path.stat().st_mode):
            self._file = path.open("rb")
        else:
            _check_special(path)  # a FIFO is opened by the thread that reads it: that may block
        self.is_file = path is not None and self._file is not None
        self._may_block = self._file is None or _may_block(self._file)
        self._is_kept_open = False

    async def __aiter__(self) -> AsyncGenerator[Line | BadLine]:
        """Yield each line that is not empty.

        Raises:
            OSError: The rest of the input cannot be read.
        """
        reader, number = _Reader(), 0
        while raw := await self._next():
            number += 1
            if len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
                await self._skip()
            line = reader.read(raw, number)
            if line is not None:
                yield line
            if not number % _LINES_PER_TURN:
                await asyncio.sleep(0)

    def count(self) -> int:
        """Return how many lines of a file are not empty.

        Raises:
            OSError: The file cannot be read.
        """
        return sum(1 for raw in self._again() if raw.strip())

    def again(self) -> Iterator[Line | BadLine]:
        """Yield the lines of a file that are not empty, once more.

        Raises:
            OSError: The file cannot be read.
        """
        reader = _Reader()
        for number, raw in enumerate(self._again(), start=1):
            if (line := reader.read(raw, number)) is not None:
                yield line

    def _again(self) -> Iterator[bytes]:
        if self._path is None:
            return
        with self._path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                yield line
                while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE_BYTES + 1)

    def close(self) -> None:
        """Close the file, unless a thread still reads it."""
        if self._path is not None and self._file is not None and not self._is_kept_open:
            self._file.close()

    async def _skip(self) -> None:
        """Read to the end of a line that is too long."""
        rest = await self._next()
        while rest and not rest.endswith(b"\n"):
            rest = await self._next()

    async def _next(self) -> bytes:
        if not self._may_block:
            return self._read_line()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[bytes] = loop.create_future()
        self._is_kept_open = True

        def wait() -> None:
            line: bytes | OSError
            try:
                line = self._read_line()
            except OSError as error:
                line = error
            with contextlib.suppress(RuntimeError):  # the loop was closed in the meantime
                loop.call_soon_threadsafe(_set_result, result, line)

        # Not a thread of the loop, which would wait for it at the end.
        threading.Thread(target=wait, daemon=True).start()
        line = await result
        self._is_kept_open = False
        return line

    def _read_line(self) -> bytes:
        if self._file is None:
            self._file = cast("Path", self._path).open("rb")
        return self._file.readline(MAX_LINE_BYTES + 1)


def _check_special(path: Path) -> None:
    """Check that a path which is not a regular file can be read, without opening it.

    Raises:
        OSError: It is a directory, or may not be read.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not os.access(path, os.R_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _set_result(result: asyncio.Future[bytes], line: bytes | OSError) -> None:
    if result.done():
        return
    if isinstance(line, OSError):
        result.set_exception(line)
    else:
        result.set_result(line)


def _standard_input() -> BinaryIO:
    stream = sys.stdin
    if stream is None:
        reason = "it is closed"
        raise OSError(reason)
    try:
        # A separate file: a thread may still wait for it when Python closes its own.
        return open(stream.fileno(), "rb", closefd=False)
    except io.UnsupportedOperation:
        return stream.buffer


def _may_block(file: BinaryIO) -> bool:
    """Return whether a read may block for an unlimited time."""
    try:
        return not stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except io.UnsupportedOperation:
        return False
