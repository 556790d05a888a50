"""Ownership and permissions of a journal's files.

Rules:
- The file, and the ``-wal``, ``-shm`` and ``-journal`` that SQLite keeps beside it, belong to the
  user of the process or to root; if the caller shares them with a group, to any member of it.
- Permissions beyond those that the caller names are removed, once the file is known to be a
  journal: the mode of another program's file stays. If only another owner could remove them, the
  journal is refused. A read-only journal is refused if others could have written to it.
- A link that another user made is not followed; beside the file there are no links at all.
- Nothing here opens a file that exists: to close it would give up SQLite's locks on it.
- In or below a directory where other users may replace files, no check lasts, so a warning is
  logged: a directory that belongs to one of them, or that is not sticky and that everyone, or a
  group that is not this process's own, may write to.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from typing import TYPE_CHECKING

from holdfast._net.private_files import (
    is_own_group,
    is_trusted_owner,
    may_others_replace,
    surplus_permissions,
)
from holdfast._wire.origins import SECURITY_LOGGER
from holdfast.errors import JournalError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MODES", "Permissions"]

MODES = (0o600, 0o640, 0o660)
"""Modes of a journal: access for its owner alone, or read or write access for its group."""

_BESIDE = ("-wal", "-shm", "-journal")

logger = logging.getLogger(SECURITY_LOGGER)


class Permissions:
    """The permissions of one journal's files.

    Args:
        path: The journal's path, as errors show it.
        absolute_path: The absolute path.
        mode: Permissions that the files may have; one of `MODES`.
        read_only: Whether to change nothing.
    """

    def __init__(self, path: Path, absolute_path: Path, mode: int, *, read_only: bool) -> None:
        self._path = path
        self._absolute_path = absolute_path
        self._mode = mode
        self._is_read_only = read_only
        self._is_warned = False

    def create(self) -> None:
        """Create the file if it does not exist and the journal is not read-only.

        Raises:
            JournalError: The path is a link that another user made (``"untrusted"``).
        """
        file = self._resolved_path()
        if self._is_read_only or file.exists():
            return
        with contextlib.suppress(OSError):  # SQLite has the better error
            descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            try:
                if self._mode != 0o600 and os.name == "posix":
                    os.fchmod(descriptor, self._mode)  # independent of the umask
            finally:
                os.close(descriptor)

    def check(self) -> None:
        """Check the owners of the files, and the modes of a read-only journal; change nothing.

        Raises:
            JournalError: One belongs to another user, is a link, or could have been written by
                others although the journal is read-only (``"untrusted"``).
            OSError: One cannot be examined.
        """
        self._check(is_journal=False)

    def tighten(self) -> None:
        """Check the files of a journal, and remove the permissions that they should not have.

        Raises:
            JournalError: As for `check`; or permissions cannot be removed (``"untrusted"``).
            OSError: One cannot be examined.
        """
        self._check(is_journal=True)

    def _check(self, *, is_journal: bool) -> None:
        if os.name != "posix":  # elsewhere the directory's permissions apply
            return
        path = self._resolved_path()
        for suffix in ("", *_BESIDE):
            file = path.with_name(f"{path.name}{suffix}")
            extra, mode = self._check_file(file)
            if extra and (is_journal or self._is_read_only):
                self._remove(extra, file, mode)
        self._check_directory(path.parent)

    def _resolved_path(self) -> Path:
        """Return the path of the file, with links of the user's own resolved."""
        path = self._absolute_path
        if os.name == "posix" and path.is_symlink():
            owner = path.lstat().st_uid
            if not is_trusted_owner(owner):
                text = f"it is a symbolic link of user {owner}; pass the path of its target"
                raise self._untrusted(path, text)
            path = path.resolve()
        return path

    def _check_file(self, file: Path) -> tuple[int, int]:
        """Return the permissions that a file should not have, and its mode."""
        try:
            status = file.lstat()
        except FileNotFoundError:
            return 0, 0  # SQLite creates it with the journal's permissions
        if stat.S_ISDIR(status.st_mode):
            return 0, 0  # SQLite does not open a directory
        if not stat.S_ISREG(status.st_mode):
            raise self._untrusted(
                file, "it is not a regular file; remove it, or pass another path"
            )
        if not is_trusted_owner(status.st_uid) and not self._is_shared(status.st_gid):
            text = (
                f"it belongs to user {status.st_uid}, but this process runs as user "
                f"{os.geteuid()}; run the process as that user, or change the owner of the file"
            )
            raise self._untrusted(file, text)
        mode = stat.S_IMODE(status.st_mode)
        return surplus_permissions(mode, self._mode, write_only=self._is_read_only), mode

    def _is_shared(self, group: int) -> bool:
        return bool(self._mode & stat.S_IRWXG) and is_own_group(group)

    def _remove(self, extra: int, file: Path, mode: int) -> None:
        """Remove permissions from a file."""
        new_mode = mode & ~extra
        hint = self._hint(extra)
        refusal = self._untrusted(
            file, f"its mode {mode:04o} gives other users access; run chmod {new_mode:o}{hint}"
        )
        if self._is_read_only:
            raise refusal
        try:
            file.chmod(new_mode)
            is_removed = not file.lstat().st_mode & extra
        except FileNotFoundError:
            return  # another process has closed the journal
        except PermissionError:
            raise refusal from None
        if not is_removed:
            self._warn(
                "the file system of %s does not support permissions: other users may be able to "
                "read it",
                file,
            )
        else:
            logger.warning(
                "changed the mode of %s from %04o to %04o%s", file, mode, new_mode, hint
            )

    def _hint(self, extra: int) -> str:
        """Return how to keep permissions that a group was given on purpose."""
        if extra & (stat.S_IRWXO | stat.S_IXGRP):
            return ""
        group_mode = 0o660 if extra & stat.S_IWGRP else 0o640
        return f"; SqliteJournal(mode=0o{group_mode:o}) shares it with its group"

    def _check_directory(self, directory: Path) -> None:
        real = directory.resolve()
        for ancestor in (real, *real.parents):
            status = ancestor.stat()
            is_trusted = status.st_gid == os.getegid() or self._is_shared(status.st_gid)
            if may_others_replace(status, is_group_trusted=is_trusted):
                text = "other users can replace the journal in %s; move it to a private directory"
                self._warn(text, ancestor)
                return

    def _warn(self, text: str, path: Path) -> None:
        if not self._is_warned:
            self._is_warned = True
            logger.warning(text, path)

    def _untrusted(self, path: Path, cause: str) -> JournalError:
        text = f"the journal {self._path} is not used"
        if path != self._absolute_path:
            text += f" because of {path}"
        return JournalError(f"{text}: {cause}", reason="untrusted")
