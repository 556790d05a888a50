"""Tokens in files that only their owner can read.

Rules: files and directories, also of locks, follow the rules of `holdfast._net.private_files`.
Those that others can write to are refused, since a rename could send one agent's token to another.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast._auth.oauth.tokens import Token, hold_lock
from holdfast._model.settings import check_kind
from holdfast._net import private_files
from holdfast._net.private_files import SAFE_OPEN_FLAGS, NotPrivateError, check_regular
from holdfast.errors import AuthenticationError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

__all__ = ["FileTokenStore", "read_private", "write_private"]

_MAX_FILE_BYTES = 256 * 1024
_LINK_ERRORS = (errno.ELOOP, getattr(errno, "EMLINK", errno.ELOOP))
"""Error numbers for a link that was not followed."""

_ROOT_USER_ID = 0


class FileTokenStore:
    """Token store in files, one per token; it survives the process, and processes may share it.

    Args:
        directory: Directory of the files; created with mode 0700 if it is missing, otherwise
            unchanged.

    Raises:
        TypeError: The argument is not a path.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        check_kind("directory", directory, (str, os.PathLike))
        self._directory = Path(directory)

    async def load(self, key: str, /) -> Token | None:
        """Return the token of a name; None if there is none.

        Args:
            key: Name of the token.

        Raises:
            AuthenticationError: Others can read the file, all users can write to its directory, or
                it does not contain a token.
        """
        path = self.path(key)
        content = await asyncio.to_thread(read_private, path)
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=Token)
        except (msgspec.DecodeError, ValueError):
            text = f"{path} contains no token; remove it and log in again"
            raise AuthenticationError(text, executed=False) from None

    async def save(self, key: str, token: Token, /) -> None:
        """Store a token.

        Args:
            key: Name of the token.
            token: The token.

        Raises:
            AuthenticationError: The file cannot be written, or all users can write to its
                directory.
        """
        await asyncio.to_thread(write_private, self.path(key), msgspec.json.encode(token))

    async def remove(self, key: str, /) -> None:
        """Remove a token.

        Args:
            key: Name of the token.
        """
        with contextlib.suppress(FileNotFoundError):
            self.path(key).unlink()

    def turn(self, key: str, /) -> AbstractAsyncContextManager[None]:
        """Return the lock of a name, shared with other processes.

        Args:
            key: Name of the token.
        """
        return hold_lock(_FileLock(self.path(key).with_suffix(".lock")))

    def __repr__(self) -> str:
        return f"FileTokenStore({str(self._directory)!r})"

    def path(self, key: str) -> Path:
        """Return the file of a token.

        Args:
            key: Name of the token.
        """
        digest = hashlib.sha256(key.encode(errors="replace")).hexdigest()
        return self._directory / f"{digest[:32]}.json"


def read_private(path: Path) -> bytes | None:
    """Return the content of a file that only its owner can read; None if it does not exist.

    Raises:
        AuthenticationError: Others can read it, it belongs to another user, all users can rename
            it, it is a link or not a regular file, or it cannot be read.
    """
    try:
        return private_files.read_private_file(path, max_bytes=_MAX_FILE_BYTES)
    except NotPrivateError as error:
        raise _refused(error) from None
    except OSError as error:
        raise _unusable(path, error) from None


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, atomically.

    Raises:
        AuthenticationError: The file cannot be written, or all users can write to its directory.
    """
    try:
        private_files.write_private_file(path, content)
    except NotPrivateError as error:
        raise _refused(error) from None
    except OSError as error:
        raise _unusable(path, error) from None


def _refused(error: NotPrivateError) -> AuthenticationError:
    path = error.path
    texts = {
        "open directory": (
            f"other users can write to {path}, which contains tokens; run chmod go-w {path}"
        ),
        "open file": (
            f"{path} is readable by other users, so its tokens may be known to them; remove it "
            f"and log in again, or if no other user has access, run chmod 600 {path}"
        ),
        "no file": f"{path} cannot be used for tokens: it is not a regular file; remove it",
    }
    return AuthenticationError(texts[error.kind], executed=False)


def _unusable(path: Path, error: OSError) -> AuthenticationError:
    is_link = error.errno in _LINK_ERRORS and path.is_symlink()
    reason = "it is a symbolic link; remove it" if is_link else error.strerror
    return AuthenticationError(f"{path} cannot be used for tokens: {reason}", executed=False)


class _FileLock:
    """Lock between processes; always free on systems without file locks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self, blocking: bool = True) -> bool:  # noqa: FBT001, FBT002  as of a lock
        try:
            import fcntl
        except ImportError:
            return True
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | SAFE_OPEN_FLAGS, 0o600)
        except OSError as error:
            raise _unusable(self._path, error) from None
        try:
            self._check(os.fstat(descriptor))
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            raise _unusable(self._path, error) from None
        except AuthenticationError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def _check(self, status: os.stat_result) -> None:
        """Check that no other user could hold the lock forever.

        Raises:
            AuthenticationError: The lock is not a regular file, or belongs to another user.
        """
        try:
            check_regular(self._path, status)
        except NotPrivateError as error:
            raise _refused(error) from None
        if status.st_uid not in (os.geteuid(), _ROOT_USER_ID):
            text = f"{self._path} belongs to user {status.st_uid}; remove it"
            raise AuthenticationError(text, executed=False)

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            import fcntl

            # Closing alone does not unlock it if a forked process has the descriptor too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
