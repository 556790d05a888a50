"""Tokens in files that nobody else can read.

Rules: files and directories are kept as `holdfast._net.private_files` says, also for a lock;
what is open to others is refused, since a rename could send the token of one agent to another.
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

from holdfast._auth.oauth.tokens import Token, turn_of
from holdfast._model.settings import check_kind
from holdfast._net import private_files
from holdfast._net.private_files import SAFE_OPEN_FLAGS, NotPrivateError, check_regular
from holdfast.errors import AuthenticationError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

__all__ = ["FileTokenStore", "read_private", "write_private"]

_LARGEST = 256 * 1024
_LINKS = (errno.ELOOP, getattr(errno, "EMLINK", errno.ELOOP))
"""How systems say that they follow no link."""

_ROOT = 0


class FileTokenStore:
    """Tokens in files, one for each name, which survive the process and are shared by several.

    Args:
        directory: Where they are; made with mode 0700 if it is not there, and else left as it is.

    Raises:
        TypeError: It is no path.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        check_kind("directory", directory, (str, os.PathLike))
        self._directory = Path(directory)

    async def load(self, key: str, /) -> Token | None:
        """The token of that name.

        Raises:
            AuthenticationError: Its file can be read by others, its directory written to by all
                users, or it holds something else.
        """
        path = self.path(key)
        content = await asyncio.to_thread(read_private, path)
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=Token)
        except (msgspec.DecodeError, ValueError):
            text = f"{path} holds no token; remove it, and log in again"
            raise AuthenticationError(text, executed=False) from None

    async def save(self, key: str, token: Token, /) -> None:
        """Keeps a token.

        Raises:
            AuthenticationError: It cannot be written, or all users may write to its directory.
        """
        await asyncio.to_thread(write_private, self.path(key), msgspec.json.encode(token))

    async def remove(self, key: str, /) -> None:
        """Forgets a token."""
        with contextlib.suppress(FileNotFoundError):
            self.path(key).unlink()

    def turn(self, key: str, /) -> AbstractAsyncContextManager[None]:
        """Lets one after the other, other processes included."""
        return turn_of(_FileLock(self.path(key).with_suffix(".lock")))

    def __repr__(self) -> str:
        return f"FileTokenStore({str(self._directory)!r})"

    def path(self, key: str) -> Path:
        """The file of a token."""
        digest = hashlib.sha256(key.encode(errors="replace")).hexdigest()
        return self._directory / f"{digest[:32]}.json"


def read_private(path: Path) -> bytes | None:
    """What is in a file that only its owner can read; None if there is none.

    Raises:
        AuthenticationError: Others can read it, it belongs to another user, every user may
            rename it, it is a link or no regular file, or it cannot be read.
    """
    try:
        return private_files.read_private_file(path, max_bytes=_LARGEST)
    except NotPrivateError as error:
        raise _refused(error) from None
    except OSError as error:
        raise _unusable(path, error) from None


def write_private(path: Path, content: bytes) -> None:
    """Writes a file that only its owner can read, in one step.

    Raises:
        AuthenticationError: It cannot be written, or every user may write to its directory.
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
            f"every user may write to {path}, which holds tokens: chmod go-w {path}"
        ),
        "open file": (
            f"{path} can be read by others, and what it holds may be known to them; remove "
            f"it and log in again, or if it is yours alone: chmod 600 {path}"
        ),
        "no file": f"{path} cannot be used for tokens: it is not a regular file; remove it",
    }
    return AuthenticationError(texts[error.kind], executed=False)


def _unusable(path: Path, error: OSError) -> AuthenticationError:
    is_link = error.errno in _LINKS and path.is_symlink()
    why = "it is a link, which is not followed; remove it" if is_link else error.strerror
    return AuthenticationError(f"{path} cannot be used for tokens: {why}", executed=False)


class _FileLock:
    """A lock that processes share; where the system has none, it is free."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number: int | None = None

    def acquire(self, blocking: bool = True) -> bool:  # noqa: FBT001, FBT002  as of a lock
        try:
            import fcntl
        except ImportError:
            return True
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            number = os.open(self._path, os.O_RDWR | os.O_CREAT | SAFE_OPEN_FLAGS, 0o600)
        except OSError as error:
            raise _unusable(self._path, error) from None
        try:
            self._check(os.fstat(number))
            fcntl.flock(number, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(number)
            return False
        except OSError as error:
            os.close(number)
            raise _unusable(self._path, error) from None
        except AuthenticationError:
            os.close(number)
            raise
        self._number = number
        return True

    def _check(self, status: os.stat_result) -> None:
        """Checks that a lock is a file that no other user could lock for ever.

        Raises:
            AuthenticationError: It is no regular file, or belongs to another user.
        """
        try:
            check_regular(self._path, status)
        except NotPrivateError as error:
            raise _refused(error) from None
        if status.st_uid not in (os.geteuid(), _ROOT):
            text = f"{self._path} belongs to user {status.st_uid}; remove it"
            raise AuthenticationError(text, executed=False)

    def release(self) -> None:
        number, self._number = self._number, None
        if number is not None:
            import fcntl

            # Closing alone would not do where a process was forked meanwhile: it has it, too.
            fcntl.flock(number, fcntl.LOCK_UN)
            os.close(number)
