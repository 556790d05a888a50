"""Files that only their owner can read: tokens, logins, cached cards.

Rules:
- A file is created with mode 0600, never with a wider one first; it is replaced in one step.
- A file that others can read, or that belongs to another user, is refused, because others may know
  its content or have written it.
- No link is followed, and a FIFO or a device is refused.
- A directory is created with mode 0700. An existing one keeps its mode, and is refused if every
  user may rename files in it.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "OPENED_SAFELY",
    "NotPrivateError",
    "check_regular",
    "read_private_file",
    "write_private_file",
]

OPENED_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""How files are opened: through no link, and without waiting for the other end of a FIFO."""

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class NotPrivateError(Exception):
    """A file, or its directory, is open to other users, or the file is none.

    Attributes:
        path: The file or directory.
        kind: What is wrong: an ``open file``, an ``open directory``, or ``no file`` but a FIFO, a
            device or a directory.
    """

    def __init__(
        self, path: Path, kind: Literal["open file", "open directory", "no file"]
    ) -> None:
        super().__init__(f"{path}: {kind}")
        self.path = path
        self.kind = kind


def read_private_file(path: Path, *, largest: int) -> bytes | None:
    """Return what is in a file that only its owner can read; None if there is none.

    Args:
        path: The file; no symbolic link.
        largest: Bytes that are read at most.

    Raises:
        NotPrivateError: Others can read it, it is another user's, every user may rename it, or it
            is no regular file.
        OSError: It cannot be read.
    """
    try:
        number = os.open(path, os.O_RDONLY | OPENED_SAFELY)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(number)
        check_regular(path, status)
    except BaseException:
        os.close(number)
        raise
    with os.fdopen(number, "rb") as file:
        if os.name == "posix" and (status.st_mode & _OTHERS or status.st_uid != os.geteuid()):
            raise NotPrivateError(path, "open file")
        _check_directory(path.parent)
        return file.read(largest)


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, in one step.

    Raises:
        NotPrivateError: Every user may write to its directory.
        OSError: It cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_directory(path.parent)
    number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def check_regular(path: Path, status: os.stat_result) -> None:
    """Check that what was opened is a file.

    Raises:
        NotPrivateError: It is a FIFO, a device or a directory.
    """
    if not stat.S_ISREG(status.st_mode):
        raise NotPrivateError(path, "no file")


def _check_directory(directory: Path) -> None:
    mode = directory.stat().st_mode
    if os.name == "posix" and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise NotPrivateError(directory, "open directory")
