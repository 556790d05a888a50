"""The results of ``holdfast run``: one result on each line, as JSON.

Rules: a result is written in one piece after the existing ones; of an existing file, nothing is
removed but a last line that was cut, the errors of lines that were not sent, which are sent
again, and the open question of a task that has an answer now; a file with other content is not
changed; two runs never write to the same file at the same time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import click
import msgspec

from holdfast._cli.batch.input import key_of
from holdfast._cli.errors import unusable
from holdfast._cli.output.base import OutputError
from holdfast._cli.output.json_output import write_json
from holdfast._model import codec
from holdfast.types import TaskState

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from holdfast._cli.batch.input import Line

__all__ = ["Known", "Results"]

_BEGINNINGS = (b'{"id":', b'{"line":')
_OUTCOMES = frozenset({"task", "message", "error"})
_WAITING = frozenset({TaskState.INPUT_REQUIRED.value, TaskState.AUTH_REQUIRED.value})
"""The states of a task with an open question."""

_FAILED = frozenset({TaskState.FAILED.value, TaskState.REJECTED.value, TaskState.CANCELED.value})
"""The states of a task that ended without its result."""

_NOTHING, _SOMETHING = msgspec.Raw(b""), msgspec.Raw(b"{}")


class _Status(msgspec.Struct):
    state: str


class _Task(msgspec.Struct):
    """The member of a task that a run needs."""

    status: _Status


class _Error(msgspec.Struct):
    """The member of an error that a run needs."""

    code: str = ""


class _Result(msgspec.Struct):
    """The members of a result that a run needs."""

    line: int
    digest: str
    id: str | int | None = None
    copy: int = 1
    executed: bool | None = None
    task: msgspec.Raw = _NOTHING
    message: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING

    @property
    def key(self) -> str:
        """The key of its line."""
        return key_of(self.id, self.digest, self.copy)

    @property
    def is_error(self) -> bool:
        """Return whether it has an error in place of an answer."""
        return self.error != _NOTHING

    @property
    def error_code(self) -> str | None:
        """The code of its error; None for an answer."""
        if not self.is_error:
            return None
        try:
            return msgspec.json.decode(self.error, type=_Error).code
        except codec.UNREADABLE:
            return ""

    @property
    def state(self) -> str | None:
        """The state of its task; None if it has none."""
        if self.task == _NOTHING:
            return None
        try:
            return msgspec.json.decode(self.task, type=_Task).status.state
        except codec.UNREADABLE:
            return None

    @property
    def was_not_sent(self) -> bool:
        """Return whether it is the error of a line that certainly was not executed."""
        return self.is_error and self.executed is False


class Known(NamedTuple):
    """An existing result.

    Attributes:
        digest: The digest of the content of its line.
        row: The line of the file of results that has it, from 1 on.
        state: The state of its task; None if it has none.
        error_code: The code of its error; None for an answer.
        executed: Whether its error says that the message was executed; None if it is unknown.
    """

    digest: str
    row: int
    state: str | None = None
    error_code: str | None = None
    executed: bool | None = None

    @property
    def is_error(self) -> bool:
        """Return whether it has an error in place of an answer."""
        return self.error_code is not None

    @property
    def is_waiting(self) -> bool:
        """Return whether it is a task with an open question."""
        return self.state in _WAITING

    @property
    def is_failed(self) -> bool:
        """Return whether it is a task that failed, was rejected or was canceled."""
        return self.state in _FAILED

    def is_question_of(self, digest: str) -> bool:
        """Return whether it is the open question to a message."""
        return self.is_waiting and self.digest == digest


class Results:
    """The results of a run.

    Args:
        path: The file, created if it is missing; None for standard output.
        without_errors: Whether to remove all results with errors from the file, so that their
            lines are without a result; else only those of lines that were not sent.

    Attributes:
        known: The existing results, by the keys of their lines.

    Raises:
        CommandError: The file cannot be written, has other content, or another run writes it.
    """

    def __init__(self, path: Path | None, *, without_errors: bool) -> None:
        self.known: dict[str, Known] = {}
        self._without_errors = without_errors
        self._executed = set[tuple[str, str]]()
        self._rows = 0
        self._removed: set[int] = set()
        self._file: BinaryIO | None = None
        self._path = path
        if path is not None:
            try:
                self._open(path)
            except OSError as error:
                self.close()
                raise unusable(path, f"cannot be written: {error.strerror or error}") from None
            except BaseException:
                self.close()
                raise

    @property
    def is_gone(self) -> bool:
        """Return whether the file was removed or replaced."""
        if self._file is None or self._path is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return True

    def was_executed(self, line: Line) -> bool:
        """Return whether a removed error said that the agent executed the message of a line."""
        return (line.key, line.digest) in self._executed

    def write(self, line: Line, members: Mapping[str, Any]) -> None:
        """Write the result of a line.

        Raises:
            OutputError: The result cannot be written.
        """
        line_id = {} if line.id is None else {"id": line.id}
        copy = {} if line.copy == 1 else {"copy": line.copy}
        position = {**line_id, "line": line.number, "digest": line.digest, **copy}
        row = f"{write_json({**position, **members}, in_line=True)}\n".encode()
        self._write(row)
        self._rows += 1
        if (result := _result(row)) is not None:
            self._add(result)

    def remove_answered_questions(self) -> None:
        """Remove the questions whose tasks have a later result, unless the file was moved.

        Raises:
            OSError: The file cannot be replaced; it is unchanged.
        """
        if self._path is not None and self._removed and not self.is_gone:
            self._remove_results(self._path)

    def _write(self, line: bytes) -> None:
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
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, path: Path) -> None:
        self._file = _opened(path)
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            return  # its content cannot be read
        _lock(self._file, path)
        if not os.path.samestat(os.fstat(self._file.fileno()), path.stat()):
            raise unusable(path, "is being written by another run")  # which has replaced it
        self._file.truncate(self._read(path))
        if self._removed:
            self._remove_results(path)

    def _read(self, path: Path) -> int:
        """Read the existing results; return the end of whole lines."""
        end = 0
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n") and _may_be_half(line):
                    break
                result = _result(line)
                if result is None or not line.endswith(b"\n"):
                    raise unusable(
                        path, f"contains something that is not a result, in line {number}",
                        "name a new file with --results",
                    )  # fmt: skip
                end += len(line)
                self._rows = number
                if result.is_error if self._without_errors else result.was_not_sent:
                    self._removed.add(number)
                    if result.executed:
                        self._executed.add((result.key, result.digest))
                else:
                    self._add(result)
        return end

    def _add(self, result: _Result) -> None:
        """Add the newest result: an answer replaces an open question, and an error does not."""
        earlier = self.known.get(result.key)
        if earlier is not None and earlier.is_question_of(result.digest):
            self._removed.add(self._rows if result.is_error else earlier.row)
            if result.is_error:
                return
        self.known[result.key] = Known(
            result.digest, self._rows, result.state, result.error_code, result.executed
        )

    def _remove_results(self, path: Path) -> None:
        """Replace the file, in one step, by one with the results to keep."""
        path = path.resolve()  # a link remains a link
        temporary = path.with_name(f".{path.name}.holdfast")
        new = _created(temporary)
        questions = {known.row: key for key, known in self.known.items() if known.is_waiting}
        rows = 0
        try:
            shutil.copymode(path, temporary)
            _lock(new, path)
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if number in self._removed:
                        continue
                    _write(new, line)
                    rows += 1
                    if (key := questions.get(number)) is not None:
                        self.known[key] = self.known[key]._replace(row=rows)
            os.fsync(new.fileno())
            temporary.replace(path)
        except BaseException:
            new.close()
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self.close()
        self._file = new
        self._rows, self._removed = rows, set()


def _write(file: BinaryIO, line: bytes) -> None:
    left = memoryview(line)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError:
        with contextlib.suppress(OSError):  # half a line would break the next one
            file.truncate(file.seek(0, os.SEEK_END) - (len(line) - len(left)))
        raise


def _result(line: bytes) -> _Result | None:
    result: _Result | None
    try:
        result = msgspec.json.decode(line, type=_Result)
    except codec.UNREADABLE:
        result = _read_slowly(line)
    if result is None:
        return None
    outcomes = (result.task, result.message, result.error)
    return result if sum(outcome != _NOTHING for outcome in outcomes) == 1 else None


def _read_slowly(line: bytes) -> _Result | None:
    """Read a result with half a surrogate pair, which JSON can express and UTF-8 cannot."""
    try:
        members = msgspec.convert(codec.parse(line), dict[str, Any])
        members.update(dict.fromkeys(_OUTCOMES & members.keys(), _SOMETHING))
        return msgspec.convert(members, _Result)
    except ValueError:
        return None


def _may_be_half(line: bytes) -> bool:
    """Return whether a line may be a result that was not written to its end."""
    return any(
        line.startswith(beginning) or beginning.startswith(line) for beginning in _BEGINNINGS
    )


def _created(path: Path) -> BinaryIO:
    """Create a file in place of one that a killed run left; no link is followed.

    Raises:
        OSError: It cannot be created.
    """
    with contextlib.suppress(FileNotFoundError):
        path.unlink()  # of a link, only the link
    return path.open("xb", buffering=0)


def _opened(path: Path) -> BinaryIO:
    """Open a file to append to it; refuse a FIFO without a reader at once.

    Raises:
        CommandError: It is such a FIFO.
        OSError: It cannot be opened.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0), 0o666)

    try:
        file: BinaryIO = open(path, "ab", buffering=0, opener=opener)  # noqa: SIM115
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise unusable(
                path, "is a FIFO that no process reads", "start its reader first"
            ) from None
        raise
    if hasattr(os, "set_blocking"):
        os.set_blocking(file.fileno(), True)
    return file


def _lock(file: BinaryIO, path: Path) -> None:
    """Lock the file against other runs, until it is closed.

    Raises:
        CommandError: Another run has the lock.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise unusable(path, "is being written by another run") from None
        except OSError:
            return  # a file system without locks
