"""Settings from files: the files that count, their content, and precedence (a2a-cli 8.3).

Rules:
- A flag beats the environment, which beats the local file, which beats the global one.
- Files are read and never written; only names that begin with ``A2ACLI_`` are looked at, and taken
  literally. A line that is not ``NAME=value``, and a name that only resembles a setting's, are
  reported with the file and the line, and never with a value.
- A file is the user's own if the user named it, or it is the global one, and it belongs to the
  user and has mode 0600. What any other file may decide is in `holdfast._cli.options.trust`: a
  working directory may have been written by anybody.
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
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._cli.options.trust import PREFIX, RULES, rule_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

__all__ = [
    "DEFAULT",
    "ENVIRONMENT",
    "FLAG",
    "PREFIX",
    "Configuration",
    "FileSetting",
    "Ignored",
    "Source",
    "looks_like_setting",
    "read_configuration",
]

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


class Source(NamedTuple):
    """The source of a setting's value.

    Attributes:
        rank: The precedence; the lowest rank wins.
        name: ``flag``, ``environment``, ``file`` or ``default``.
        path: The file.
        line: The line number in the file.
        is_trusted: Whether it is the user's own: false for a file that is not.
    """

    rank: int
    name: str
    path: Path | None = None
    line: int | None = None
    is_trusted: bool = True

    @property
    def place(self) -> str:
        """Return the file and the line, for people to find."""
        return str(self.path) if self.line is None else f"{self.path}, line {self.line}"


FLAG, ENVIRONMENT, DEFAULT = Source(0, "flag"), Source(1, "environment"), Source(4, "default")
_LOCAL_RANK, _GLOBAL_RANK = 2, 3


class FileSetting(NamedTuple):
    """The value of a setting in a file."""

    value: str
    source: Source


class Ignored(NamedTuple):
    """A setting in a file that may not decide it.

    Attributes:
        variable: The setting.
        source: The file and the line.
        why: The reason.
    """

    variable: str
    source: Source
    why: str

    def __str__(self) -> str:
        return f"{self.source.place}: {self.variable} is ignored: {self.why}"


_NONE: Mapping[str, Any] = MappingProxyType({})


class _File(NamedTuple):
    """A configuration file and its content.

    Attributes:
        path: The file.
        stated: The values, by variable.
        similar: Names that resemble those of settings, such as ``HOLDFAST_OUTPUT``.
        hindrance: Why it is not the user's own; empty if it is.
    """

    path: Path
    stated: Mapping[str, FileSetting] = _NONE
    similar: Mapping[str, Source] = _NONE
    hindrance: str = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path})"  # the values may be secrets


class Configuration(NamedTuple):
    """The configuration files.

    Attributes:
        files: The files, in the order of precedence.
        local: The local file, or the one that the caller named; None if there is none.
        shared: The global file; None if there is none.
        problems: The problems of the files, for the caller.
    """

    files: tuple[_File, ...] = ()
    local: Path | None = None
    shared: Path | None = None
    problems: tuple[str, ...] = ()

    @property
    def names(self) -> set[str]:
        """The variables that the files name, whether they are settings or not."""
        return {name for file in self.files for name in file.stated}

    @property
    def unknown(self) -> Iterator[tuple[str, Source]]:
        """Yield the names in the files that only resemble a setting's, and their sources."""
        for file in self.files:
            for name, stated in file.stated.items():
                if name not in RULES:
                    yield name, stated.source
            yield from file.similar.items()

    def find(self, variable: str, default: str | None = None) -> FileSetting | None:
        """Return the value of a setting in the files, as far as each may decide it.

        Args:
            variable: The setting.
            default: The value if no file has one, as a file would have it.
        """
        return self._decide(variable, default)[0]

    def ignored(self, defaults: Mapping[str, str | None]) -> Iterator[Ignored]:
        """Yield the settings in files that may not decide them.

        Args:
            defaults: The settings that have a default, with it.
        """
        for variable in sorted(self.names & RULES.keys()):
            for stated, file in self._decide(variable, defaults.get(variable))[1]:
                yield Ignored(variable, stated.source, _why_not(variable, file))

    def said_by(self, source: Source, variable: str) -> str | None:
        """Return another setting in the file of a source, if it is the user's own."""
        files = (file for file in self.files if file.path == source.path and source.is_trusted)
        setting = next((file.stated.get(variable) for file in files), None)
        return None if setting is None else setting.value or None

    def _decide(
        self, variable: str, default: str | None
    ) -> tuple[FileSetting | None, list[tuple[FileSetting, _File]]]:
        rule = rule_of(variable)
        decided: FileSetting | None = None
        ignored: list[tuple[FileSetting, _File]] = []
        for file in reversed(self.files):
            stated = file.stated.get(variable)
            if stated is None:
                continue
            if rule.own and stated.source.is_trusted:
                decided = stated if stated.value else None  # empty: hides lower precedence
            elif not stated.value:
                continue
            elif rule.permits(stated.value, decided.value if decided else default):
                decided = stated
            else:
                ignored.append((stated, file))
        return decided, ignored


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
    files: list[_File] = []
    for path, rank in ((local, _LOCAL_RANK), (shared, _GLOBAL_RANK)):
        if path is None:
            continue
        is_found = rank == _LOCAL_RANK and named is None
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
        if _is_foreign(link) or _is_foreign(target):
            problems.append(
                f"{path} is not read, because it belongs to another user; if you trust it, name "
                "it with --config"
            )
            return None
        return path
    return None


def _is_foreign(status: os.stat_result) -> bool:
    return os.name == "posix" and status.st_uid not in {0, os.geteuid()}


def _read(path: Path, rank: int, problems: list[str], *, is_found: bool, is_named: bool) -> _File:
    from dotenv.parser import parse_stream  # not needed where there is no file

    content, status = _content(path, is_named=is_named)
    hindrance = _FOUND if is_found else _not_own(path, status)
    text = content.decode("utf-8-sig")
    if text.lstrip().startswith(("{", "[")):
        problems.append(f"{path} is not read: it is JSON, not lines of A2ACLI_NAME=value")
        return _File(path)
    stated: dict[str, FileSetting] = {}
    similar: dict[str, Source] = {}
    wrong: list[str] = []
    foreign_lines: list[int] = []  # broken lines that may be for other programs
    for binding in parse_stream(StringIO(text)):
        key, original = binding.key or "", binding.original.string
        blank = original[: len(original) - len(original.lstrip())]
        line = binding.original.line + len(blank.splitlines())
        source = Source(rank, "file", path, line, is_trusted=not hindrance)
        match = re.match(_SETTING_LINE, original)
        if match is None:
            foreign_lines += [line] if binding.error else []
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
    if foreign_lines:
        problems.append(f"{path}, {_lines(foreign_lines)} not NAME=value")
    return _File(path, stated, similar, hindrance)


def looks_like_setting(name: str) -> bool:
    """Return whether a name may be meant as a setting's; such a name is safe to show."""
    return re.fullmatch(_LIKE, name) is not None


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


_FOUND = "a file found in the working directory or above it"
_ELSEWHERE = "set it in the environment, in ~/.config/a2a-cli/.env, or name the file with --config"


def _why_not(variable: str, file: _File) -> str:
    rule = rule_of(variable)
    if not rule.own:
        return "no file may set it"
    if file.hindrance != _FOUND:
        return file.hindrance
    if rule.strictness is not None:
        return f"{_FOUND} may only {rule.strictness.only}"
    return f"{_FOUND} must not set it; {_ELSEWHERE}"


_PREFIXES = r"(?i:a2a[-_]?cli|holdfast)[-_]"
"""The prefixes of names that may be meant as settings."""
_LIKE = rf"{_PREFIXES}[A-Za-z][\w-]{{0,47}}"
_SETTING_LINE = rf"\s*(?:export\s+)?(?:'?){_PREFIXES}[\w-]*'?\s*(?P<equals>=?)"
_NO_SETTING = "is not A2ACLI_NAME=value"
_UNBALANCED = "is not read: the quotes of its value are not balanced"
_QUOTED = "is not read: it is inside the quotes that begin in line"
