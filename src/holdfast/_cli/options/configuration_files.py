"""Finding and reading the configuration files (a2a-cli 8.3).

Rules:
- Files are read and never written. A line that is not ``NAME=value``, and a name that only
  resembles a setting's, are reported with the file and the line, and never with a value.
- A file is the user's own if the user named it, or it is the global one, and it belongs to the
  user and has mode 0600.
- A found file that belongs to another user is not read. A file that is not regular is not opened
  for long, and none is read beyond a limit.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import stat
import time
from io import StringIO
from typing import TYPE_CHECKING

from holdfast._cli.options.configuration import (
    FOUND_FILE,
    GLOBAL_RANK,
    LOCAL_RANK,
    PREFIX,
    SETTING_PREFIXES,
    Configuration,
    ConfigurationFile,
    FileSetting,
    Source,
    looks_like_setting,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["read_configuration"]

_NAME = ".env"


_GLOBAL = (".config", "a2a-cli", _NAME)


_MAX_FILE_BYTES = 64 * 1024
"""Maximum bytes of a file."""


_PIPE_WAIT_S = 60.0
"""Seconds for a named pipe to deliver all of its content."""


_MAX_PROBLEMS = 10
"""Maximum number of wrong lines of a file that are reported one by one."""


_MAX_LINE_NUMBERS = 5
"""Maximum number of other broken lines whose numbers are shown."""


def read_configuration(
    named: Path | None, *, home: Callable[[], Path], directory: Callable[[], Path]
) -> Configuration:
    """Read the configuration files.

    Args:
        named: The file to read in place of the local one.
        home: Returns the home directory; the global file is below it.
        directory: Returns the working directory; the local file is there or above it.

    Raises:
        OSError: The named file cannot be read.
        ValueError: It is not UTF-8, or larger than 64 KiB.
    """
    problems: list[str] = []
    shared = _find(_below(home), problems)
    local = named or _find(_above(directory, shared), problems)
    files: list[ConfigurationFile] = []
    for path, rank in ((local, LOCAL_RANK), (shared, GLOBAL_RANK)):
        if path is None:
            continue
        is_found = rank == LOCAL_RANK and named is None
        try:
            files.append(_read(path, rank, problems, is_found=is_found, is_named=path is named))
        except (OSError, ValueError) as error:
            if path is named:
                raise
            problems.append(f"{path} is not read: {getattr(error, 'strerror', None) or error}")
    return Configuration(tuple(files), local, shared, tuple(problems))


def _below(home: Callable[[], Path]) -> Iterator[Path]:
    try:
        yield home().joinpath(*_GLOBAL)
    except (OSError, RuntimeError):  # there is no home directory
        return


def _above(directory: Callable[[], Path], shared: Path | None) -> Iterator[Path]:
    """Yield the candidates for the local file, without the global one."""
    try:
        working_directory = directory()
    except OSError:  # it was removed
        return
    yield from (
        path
        for place in (working_directory, *working_directory.parents)
        if (path := place / _NAME) != shared
    )


def _find(candidates: Iterator[Path], problems: list[str]) -> Path | None:
    """Return the first existing file, if it may be read."""
    for path in candidates:
        try:
            link, target = path.lstat(), path.stat()
        except (OSError, ValueError):  # also a directory without access
            continue
        if stat.S_ISDIR(target.st_mode):
            continue
        if not stat.S_ISREG(target.st_mode):
            problems.append(f"{path} is not read: {_NO_FILE}")
            return None
        if _belongs_to_another_user(link) or _belongs_to_another_user(target):
            problems.append(
                f"{path} is not read, because it belongs to another user; if you trust it, name "
                "it with --config"
            )
            return None
        return path
    return None


def _belongs_to_another_user(status: os.stat_result) -> bool:
    return os.name == "posix" and status.st_uid not in {0, os.geteuid()}


def _read(
    path: Path, rank: int, problems: list[str], *, is_found: bool, is_named: bool
) -> ConfigurationFile:
    from dotenv.parser import parse_stream  # not needed where there is no file

    content, status = _content(path, is_named=is_named)
    obstacle = FOUND_FILE if is_found else _not_own(path, status)
    text = content.decode("utf-8-sig")
    if text.lstrip().startswith(("{", "[")):
        problems.append(f"{path} is not read: it is JSON, not lines of A2ACLI_NAME=value")
        return ConfigurationFile(path)
    stated: dict[str, FileSetting] = {}
    similar: dict[str, Source] = {}
    wrong: list[str] = []
    unparsed_lines: list[int] = []  # broken lines that may be for other programs
    for binding in parse_stream(StringIO(text)):
        key, original = binding.key or "", binding.original.string
        blank = original[: len(original) - len(original.lstrip())]
        line = binding.original.line + len(blank.splitlines())
        source = Source(rank, "file", path, line, is_trusted=not obstacle)
        match = re.match(_SETTING_LINE, original)
        if match is None:
            unparsed_lines += [line] if binding.error else []
        elif binding.error and match["equals"]:
            wrong.append(f"{path}, line {line} {_UNBALANCED}")
        elif binding.value is None or not looks_like_setting(key):
            wrong.append(f"{path}, line {line} {_NO_SETTING}")
        elif key.startswith(PREFIX):
            stated[key] = FileSetting(binding.value, source)
        else:
            similar[key] = source
        wrong += [f"{path}, line {line + n} {_QUOTED} {line}" for n in _swallowed(original)]
    problems += wrong[:_MAX_PROBLEMS]
    if len(wrong) > _MAX_PROBLEMS:
        problems.append(f"{path} has {len(wrong) - _MAX_PROBLEMS} more such lines")
    if unparsed_lines:
        problems.append(f"{path}, {_lines(unparsed_lines)} not NAME=value")
    return ConfigurationFile(path, stated, similar, obstacle)


def _swallowed(statement: str) -> Iterator[int]:
    """Yield the offsets of lines with settings that are inside the quotes of another value."""
    lines = statement.strip().splitlines()
    for number, line in enumerate(lines[1:], start=1):
        if (match := re.match(_SETTING_LINE, line)) is not None and match["equals"]:
            yield number


def _lines(numbers: list[int]) -> str:
    """Return line numbers for an error, with the verb."""
    if len(numbers) == 1:
        return f"line {numbers[0]} is"
    more = len(numbers) - _MAX_LINE_NUMBERS
    listed = ", ".join(map(str, numbers[:_MAX_LINE_NUMBERS]))
    return f"lines {listed}{f' and {more} more' if more > 0 else ''} are"


def _content(path: Path, *, is_named: bool) -> tuple[bytes, os.stat_result]:
    """Return the content of a file; opening it does not block.

    Raises:
        OSError: It cannot be read.
        ValueError: It may not be read here, or is too large.
    """
    number = os.open(path, os.O_RDONLY | _OPEN_FLAGS)
    try:
        status = os.fstat(number)
        is_regular = stat.S_ISREG(status.st_mode)
        # A named one may be /dev/null, or a pipe that another program writes.
        if not (is_named or is_regular):
            raise ValueError(_NO_FILE)
        content = _bytes_of(number, may_wait=not is_regular)
    finally:
        os.close(number)
    if len(content) > _MAX_FILE_BYTES:
        message = f"it has more than {_MAX_FILE_BYTES} bytes"
        raise ValueError(message)
    return content, status


def _bytes_of(number: int, *, may_wait: bool) -> bytes:
    """Return the content of an open file to its end, or one byte more than the limit.

    Raises:
        TimeoutError: The content did not arrive in time.
    """
    content, ends = bytearray(), time.monotonic() + _PIPE_WAIT_S
    while len(content) <= _MAX_FILE_BYTES:
        left = max(ends - time.monotonic(), 0)
        if may_wait and not select.select([number], [], [], left)[0]:
            message = f"it did not end within {_PIPE_WAIT_S:g} seconds"
            raise TimeoutError(message)
        piece = os.read(number, _MAX_FILE_BYTES + 1 - len(content))
        if not piece:
            break
        content += piece
    return bytes(content)


_OPEN_FLAGS = (
    getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)
)


_NO_FILE = "it is not a regular file"


def _not_own(path: Path, status: os.stat_result) -> str:
    """Return why a file is not the user's own; empty if it is."""
    if os.name != "posix":
        return ""
    if status.st_uid != os.geteuid():
        return f"{path} belongs to another user"
    if status.st_mode & 0o077:
        return f"other users can open {path}: chmod 600 {shlex.quote(str(path))}"
    return ""


_SETTING_LINE = rf"\s*(?:export\s+)?(?:'?){SETTING_PREFIXES}[\w-]*'?\s*(?P<equals>=?)"


_NO_SETTING = "is not A2ACLI_NAME=value"


_UNBALANCED = "is not read: the quotes of its value are not balanced"


_QUOTED = "is not read: it is inside the quotes that begin in line"
