"""Files that other users must not read or replace: tokens, logins, cached cards, journals.

The meaning of modes and owners is defined here for all of them. A journal, which SQLite opens and
a group may share, has further rules (`holdfast._journal.permissions`).

Rules for a private file:
- A file is created with mode 0600, never with a wider one first; it is replaced atomically.
- A file that other users can read, or that belongs to another user, is rejected, because others
  may know its content or have written it.
- Symbolic links are not followed; a FIFO or a device is rejected.
- A directory is created with mode 0700. An existing one keeps its mode, and is rejected if every
  user may rename files in it.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "SAFE_OPEN_FLAGS",
    "NotPrivateError",
    "check_regular",
    "is_own_group",
    "is_trusted_owner",
    "may_others_replace",
    "read_private_file",
    "surplus_permissions",
    "write_private_file",
]

SAFE_OPEN_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags to open files with: follow no link, and do not wait for the other end of a FIFO."""

_ROOT = 0
_GROUP_OR_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NotPrivateError(Exception):
    """A file or its directory is open to other users, or the path is not a regular file.

    Attributes:
        path: The file or directory.
        kind: ``open file``, ``open directory``, or ``no file``: a FIFO, a device or a directory.
    """

    def __init__(
        self, path: Path, kind: Literal["open file", "open directory", "no file"]
    ) -> None:
        super().__init__(f"{path}: {kind}")
        self.path = path
        self.kind = kind


def read_private_file(path: Path, *, max_bytes: int) -> bytes | None:
    """Return the content of a file that only its owner can read; None if it does not exist.

    Args:
        path: The file; not a symbolic link.
        max_bytes: Number of bytes to read at most.

    Raises:
        NotPrivateError: Other users can read it, it belongs to another user, every user may rename
            it, or it is not a regular file.
        OSError: It cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | SAFE_OPEN_FLAGS)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(descriptor)
        check_regular(path, status)
    except BaseException:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        is_private = os.name != "posix" or (
            is_trusted_owner(status.st_uid) and not surplus_permissions(status.st_mode, 0o600)
        )
        if not is_private:
            raise NotPrivateError(path, "open file")
        _check_directory(path.parent)
        return file.read(max_bytes)


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, atomically.

    Raises:
        NotPrivateError: Every user may write to its directory.
        OSError: It cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_directory(path.parent)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def is_trusted_owner(user: int) -> bool:
    """Return whether a user may own private files: this process's user, or root."""
    return user in (os.geteuid(), _ROOT)


def surplus_permissions(mode: int, allowed: int, *, write_only: bool = False) -> int:
    """Return the permissions of the group and of others that exceed the allowed mode.

    Args:
        mode: The mode of a file.
        allowed: The mode that it may have.
        write_only: Whether only permissions to write count.
    """
    surplus = mode & ~allowed & _GROUP_OR_OTHERS
    return surplus & _WRITE if write_only else surplus


def is_own_group(group: int) -> bool:
    """Return whether this process is a member of a group."""
    return group in (os.getegid(), *os.getgroups())


def may_others_replace(directory: os.stat_result, *, is_group_trusted: bool) -> bool:
    """Return whether users besides this process's and root may replace files in a directory.

    Its owner always may; other users may if it is writable for them, and not sticky.

    Args:
        directory: The status of the directory.
        is_group_trusted: Whether members of its group count as this process's user.
    """
    if not is_trusted_owner(directory.st_uid):
        return True
    if directory.st_mode & stat.S_ISVTX:
        return False
    return bool(directory.st_mode & (stat.S_IWOTH if is_group_trusted else _WRITE))


def check_regular(path: Path, status: os.stat_result) -> None:
    """Check that an opened path is a regular file.

    Raises:
        NotPrivateError: It is a FIFO, a device or a directory.
    """
    if not stat.S_ISREG(status.st_mode):
        raise NotPrivateError(path, "no file")


def _check_directory(directory: Path) -> None:
    mode = directory.stat().st_mode
    if os.name == "posix" and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise NotPrivateError(directory, "open directory")
