"""Where ``holdfast run`` writes: one result on each line, as JSON.

Rules: a result is written in one piece and behind those that are there; of a file that is there,
nothing is lost but a last line that was cut in half; a file that holds something else is left
alone; two runs never write to the same file at once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

import click
import msgspec

from holdfast.cli.document import write_json
from holdfast.cli.errors import CommandError, Failure
from holdfast.cli.lines import key_of
from holdfast.cli.output import OutputError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Results", "unusable"]

_BEGINNINGS = (b'{"id":', b'{"line":')
_NOTHING = msgspec.Raw(b"")


class _Result(msgspec.Struct):
    """As much of a result as has to be known of it."""

    line: int
    id: str | int | None = None
    task: msgspec.Raw = _NOTHING
    message: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING

    @property
    def is_error(self) -> bool:
        """Whether there is an error in place of an answer."""
        return self.error != _NOTHING


def unusable(path: Path, problem: str, hint: str | None = None) -> CommandError:
    """A file that a command cannot do without, and cannot use."""
    return CommandError(
        Failure(code="HOLDFAST_ERR_FILE", message=f"{path} {problem}; nothing was sent", hint=hint)
    )


class Results:
    """The results of a run.

    Args:
        path: The file, which is made where there is none; None for standard output.
        without_errors: Whether to take results that are errors out of the file, so that their
            lines have none.

    Attributes:
        known: The keys of the lines whose results are there already.

    Raises:
        CommandError: The file cannot be written, holds something else, or is being written.
    """

    def __init__(self, path: Path | None, *, without_errors: bool) -> None:
        self.known: set[str] = set()
        self._path = path
        self._file: BinaryIO | None = None
        if path is not None:
            try:
                self._open(path, without_errors=without_errors)
            except OSError as error:
                self.close()
                raise unusable(path, f"cannot be written: {error.strerror or error}") from None
            except BaseException:
                self.close()
                raise

    def write(self, document: dict[str, Any]) -> None:
        """Writes a result.

        Raises:
            OutputError: It cannot be written.
        """
        line = f"{write_json(document, in_line=True)}\n".encode()
        try:
            if self._file is None:
                click.echo(line, nl=False)
            else:
                _write(self._file, line)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(*error.args) from None

    def close(self) -> None:
        """Lets go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, path: Path, *, without_errors: bool) -> None:
        self._file = path.open("ab", buffering=0)
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            return  # what it holds nobody can read
        _lock(self._file, path)
        end, errors = self._read(path, keeps_errors=not without_errors)
        self._file.truncate(end)
        if errors and without_errors:
            self._take_out_errors(path)

    def _read(self, path: Path, *, keeps_errors: bool) -> tuple[int, int]:
        """Looks at what is there; gives where whole lines end, and how many are errors."""
        end = errors = 0
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n") and _may_be_half(line):
                    break
                result = _result(line)
                if result is None or not line.endswith(b"\n"):
                    raise unusable(
                        path, f"holds something that is no result, on line {number}",
                        "name a file that is not there yet with --output",
                    )  # fmt: skip
                end += len(line)
                errors += result.is_error
                if keeps_errors or not result.is_error:
                    self.known.add(key_of(result.id, result.line))
        return end, errors

    def _take_out_errors(self, path: Path) -> None:
        """Puts a file without them in the place of the file, in one step."""
        path = path.resolve()  # a link stays one
        other = path.with_name(f".{path.name}.holdfast")
        new = other.open("wb", buffering=0)
        try:
            shutil.copymode(path, other)
            _lock(new, path)
            with path.open("rb") as file:
                for line in file:
                    result = _result(line)
                    if result is not None and not result.is_error:
                        _write(new, line)
            os.fsync(new.fileno())
            other.replace(path)
        except BaseException:
            new.close()
            with contextlib.suppress(OSError):
                other.unlink()
            raise
        self.close()
        self._file = new


def _write(file: BinaryIO, line: bytes) -> None:
    left = memoryview(line)
    while left:
        left = left[file.write(left) :]


def _result(line: bytes) -> _Result | None:
    try:
        result = msgspec.json.decode(line, type=_Result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    given = (result.task, result.message, result.error)
    return result if sum(one != _NOTHING for one in given) == 1 else None


def _may_be_half(line: bytes) -> bool:
    """Whether it may be a result that was not written to its end."""
    return any(
        line.startswith(beginning) or beginning.startswith(line) for beginning in _BEGINNINGS
    )


def _lock(file: BinaryIO, path: Path) -> None:
    """Keeps other runs away, until the file is closed.

    Raises:
        CommandError: Another one is writing it.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise unusable(path, "is being written by another run") from None
        except OSError:
            return  # a file system without locks
