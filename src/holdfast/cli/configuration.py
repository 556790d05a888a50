"""Settings from files: which files count, what they say, and which source wins (a2a-cli 8.3).

Rules: a flag beats the environment, which beats the local file, which beats the global one; files
are read and never written; only names that begin with ``A2ACLI_`` are looked at, and taken
literally. A file that was merely found and belongs to somebody else is left alone: it could send
credentials to an agent of theirs.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

__all__ = [
    "DEFAULT",
    "ENVIRONMENT",
    "FLAG",
    "PREFIX",
    "Configuration",
    "Source",
    "Stated",
    "read_configuration",
]

PREFIX = "A2ACLI_"

_NAME = ".env"
_GLOBAL = (".config", "a2a-cli", _NAME)
_SECRET = frozenset({"A2ACLI_BEARER", "A2ACLI_API_KEY", "A2ACLI_SVC_PARAM"})


class Source(NamedTuple):
    """Where the value of a setting comes from.

    Attributes:
        rank: The smaller one wins.
        name: ``flag``, ``environment``, ``file`` or ``default``.
        path: The file.
    """

    rank: int
    name: str
    path: Path | None = None


FLAG, ENVIRONMENT, DEFAULT = Source(0, "flag"), Source(1, "environment"), Source(4, "default")
_LOCAL_RANK, _GLOBAL_RANK = 2, 3


class Stated(NamedTuple):
    """What a file says about a setting."""

    value: str
    source: Source


@dataclass(frozen=True)
class Configuration:
    """What the files say.

    Attributes:
        local: The local file, or the one that the caller named; None if there is none.
        shared: The global file; None if there is none.
        stated: What they say, by variable; what the local file says comes first.
        problems: What is wrong with them, for the caller to know.
    """

    local: Path | None = None
    shared: Path | None = None
    stated: Mapping[str, Stated] = field(default_factory=dict[str, Stated], repr=False)
    problems: tuple[str, ...] = ()


def read_configuration(
    named: Path | None, *, home: Callable[[], Path], directory: Callable[[], Path]
) -> Configuration:
    """Reads the files that there are.

    Args:
        named: The file to read in place of the local one.
        home: Gives the home directory; the global file is below it.
        directory: Gives the working directory; the local file is there or above it.

    Raises:
        OSError: The named file cannot be read.
        ValueError: It is not UTF-8.
    """
    problems: list[str] = []
    shared = _found(_below(home), problems)
    local = named or _found(_above(directory), problems)
    stated: dict[str, Stated] = {}
    for path, rank in ((shared, _GLOBAL_RANK), (local, _LOCAL_RANK)):
        if path is None:
            continue
        try:
            found = _read(path, problems)
        except (OSError, ValueError) as error:
            if path is named:
                raise
            problems.append(f"{path} is not read: {getattr(error, 'strerror', None) or error}")
            continue
        if any(found.get(name) for name in _SECRET):
            _check_private(path, problems)
        source = Source(rank, "file", path)
        stated |= {name: Stated(value, source) for name, value in found.items()}
    return Configuration(local, shared, stated, tuple(problems))


def _below(home: Callable[[], Path]) -> Iterator[Path]:
    try:
        yield home().joinpath(*_GLOBAL)
    except (OSError, RuntimeError):  # there is no home
        return


def _above(directory: Callable[[], Path]) -> Iterator[Path]:
    try:
        here = directory()
    except OSError:  # it was removed
        return
    yield from (place / _NAME for place in (here, *here.parents))


def _found(candidates: Iterator[Path], problems: list[str]) -> Path | None:
    """The first one that is there, if we may trust whoever wrote it."""
    for path in candidates:
        try:
            if not path.is_file():
                continue
            owner = path.stat().st_uid
        except OSError:  # a directory that nobody may look into
            continue
        if os.name == "posix" and owner not in {0, os.getuid()}:
            problems.append(
                f"{path} is not read, because it belongs to somebody else; if you trust it, name "
                "it with --config"
            )
            return None
        return path
    return None


def _read(path: Path, problems: list[str]) -> dict[str, str]:
    from dotenv.parser import parse_stream  # not needed where there is no file

    text = path.read_text("utf-8-sig")
    if text.lstrip().startswith(("{", "[")):
        problems.append(f"{path} is not read: it is JSON, not lines of A2ACLI_NAME=value")
        return {}
    stated: dict[str, str] = {}
    for binding in parse_stream(StringIO(text)):
        if binding.key is not None and binding.key.startswith(PREFIX):
            stated[binding.key] = binding.value or ""
        elif binding.error and (ours := _OURS.match(binding.original.string)):
            line = binding.original.line + len(ours["blank"].splitlines())
            wrong = "is not read: the quotes of its value are not balanced"
            problems.append(f"{path}, line {line} {wrong if ours['equals'] else _NO_SETTING}")
    return stated


_OURS = re.compile(rf"(?P<blank>\s*)(?:export\s+)?{PREFIX}\w*\s*(?P<equals>=?)")
_NO_SETTING = "is not A2ACLI_NAME=value"


def _check_private(path: Path, problems: list[str]) -> None:
    if os.name == "posix" and path.is_file() and path.stat().st_mode & 0o077:
        problems.append(
            f"{path} holds a credential, and other people can read it: chmod 600 {path}"
        )
