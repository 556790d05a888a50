"""A file of SQLite that is a journal: made, opened, written to in transactions, and watched.

Rules:
- One thread has the file open, and nobody else uses it: the event loop never waits for the disk.
- A fork finds the file closed: in the child, SQLite would take locks for its own that only the
  parent has, and what it writes could be lost.
- A file of a newer Holdfast, or of another program, is refused before anything of it is changed,
  its mode included.
- A file that is deleted, moved away or replaced meanwhile is noticed by all who wrote to it: what
  they wrote would be found by nobody.
- Whose the file may be, and who else may read it, is in `holdfast._journal.permissions`; that is
  checked before SQLite opens it. Permissions are removed before a file that is a journal is
  written to, and again, for the files beside it, before anything but the schema is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from holdfast._journal.permissions import Permissions
from holdfast.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from holdfast.errors import JournalFailure

__all__ = ["SqliteFile"]

T = TypeVar("T")

_APPLICATION = 0x484F4C44
"""``PRAGMA application_id`` of a journal: "HOLD"."""

_MIGRATIONS = (
    """
    CREATE TABLE calls (
        message_id TEXT PRIMARY KEY,
        agent TEXT NOT NULL,
        began REAL NOT NULL,
        context_id TEXT,
        task_id TEXT,
        state TEXT,
        is_own_context INTEGER NOT NULL,
        request TEXT,
        label TEXT,
        digest TEXT,
        outcome TEXT,
        detail TEXT,
        result TEXT,
        generation INTEGER NOT NULL,
        lease_until REAL NOT NULL
    );
    CREATE INDEX calls_unfinished ON calls (agent, began) WHERE outcome IS NULL;
    CREATE INDEX calls_by_label ON calls (label, began) WHERE label IS NOT NULL;
    CREATE INDEX calls_finished ON calls (began) WHERE outcome IS NOT NULL AND label IS NULL;
    """,
    """
    CREATE TABLE push_tokens (
        name BLOB PRIMARY KEY,
        body BLOB NOT NULL,
        receiver TEXT NOT NULL,
        ends REAL NOT NULL
    );
    CREATE INDEX push_tokens_by_end ON push_tokens (ends);
    """,
)
"""What makes each version of the schema of the one before; ``PRAGMA user_version`` counts them."""

_OWNER = (  # in one statement, as somebody else may be making the file just now
    "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
    "FROM pragma_application_id, pragma_user_version"
)

_REASONS: Mapping[int, JournalFailure] = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_READONLY: "read_only",
}
"""What errors of SQLite mean."""

_CANNOT_SHARE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
"""How SQLite says that it may not write beside a file."""

_AGAIN = 0.01
"""Seconds between two tries of what SQLite does not wait for."""


class SqliteFile:
    """One file that is a journal; it is opened when something is to be done with it.

    Args:
        path: The file, as it is called in errors; it is made where there is none.
        busy_timeout: Seconds to wait for another process that writes.
        mode: What the file may allow: its owner alone, or also its group.
        read_only: Whether it is neither made nor written, as where nobody may.
    """

    def __init__(
        self, path: Path, busy_timeout: float, *, mode: int = 0o600, read_only: bool = False
    ) -> None:
        self.path = path
        self._where = _absolute(path)  # wherever the program goes
        self._busy_timeout = busy_timeout
        self._is_read_only = read_only
        self._permissions = Permissions(path, self._where, mode, read_only=read_only)
        self._identity: tuple[int, int] | None = None
        self._connection: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._lock = threading.RLock()  # held by who uses it, and while the process forks
        with _forks:  # so that a fork in another thread never misses it
            _files.add(self)

    @property
    def is_used(self) -> bool:
        """Whether something was done with it since it was closed."""
        return self._thread is not None

    def transact(
        self, works: Sequence[Callable[[sqlite3.Connection], T]]
    ) -> asyncio.Future[list[T]]:
        """Does several things in one transaction, behind all that was asked for before.

        Returns:
            What each came to, once that is on the disk.

        Raises:
            JournalError: None of them came to anything.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-journal")
        loop = asyncio.get_running_loop()
        try:
            return loop.run_in_executor(self._thread, self._transact, works)
        except RuntimeError as error:  # there is no thread to be had, or the program ends
            self._thread = None  # which would do later what has failed now
            failure = JournalError(f"the journal {self.path} cannot be used: {error}")
            failure.__cause__ = error
            failed: asyncio.Future[list[T]] = loop.create_future()
            failed.set_exception(failure)
            return failed

    async def close(self) -> None:
        """Closes it, until something is to be done with it again. Can be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._disconnect)
            thread.shutdown(wait=False)

    # ── In the thread ────────────────────────────────────────────────────────────────────────

    def _transact(self, works: Sequence[Callable[[sqlite3.Connection], T]]) -> list[T]:
        """Does several things in one transaction: in the thread.

        Returns:
            What each came to.

        Raises:
            JournalError: None of them came to anything.
        """
        try:
            with self._lock:
                return self._do_all(works)
        except JournalError:
            raise
        except Exception as error:  # of SQLite, of the system, or of Python for an impossible name
            text = f"the journal {self.path} cannot be used: {self._why(error)}"
            reason = _REASONS.get(_code(error), "unusable")
            if reason == "locked":
                text += f", by another process that wrote for {self._busy_timeout:g} s"
            raise JournalError(text, reason=reason) from error

    def _why(self, error: Exception) -> str:
        """What is wrong, and what to do where that is clear."""
        directory = self.path.parent
        with contextlib.suppress(OSError, ValueError):  # of a name that is impossible
            if self._where.is_dir():
                return f"{self.path} is a directory; name a file in it"
            if not self._where.parent.exists():
                return f"the directory {directory} does not exist; create it, or name another file"
            if not self._where.parent.is_dir():
                return f"{directory} is not a directory; name another file"
            if self._is_read_only and not self._where.exists():
                return f"{self.path} does not exist; name the file of a journal"
        if _code(error) == sqlite3.SQLITE_NOTADB:
            return f"{self.path} is not a SQLite database; move it away, or name another file"
        said = error.strerror if isinstance(error, OSError) else None
        return said or str(error)

    def _do_all(self, works: Sequence[Callable[[sqlite3.Connection], T]]) -> list[T]:
        try:
            connection = self._connection or self._open()
            with _transaction(connection, is_read_only=self._is_read_only):
                outcomes = [work(connection) for work in works]
            self._check_identity()
        except Exception:
            self._close_file()  # who knows what state it is in
            raise
        return outcomes

    def _open(self) -> sqlite3.Connection:
        if self._identity is not None:
            self._check_identity()
        else:
            self._permissions.create()
        if self._where.exists():  # else SQLite tells best why not
            self._permissions.check()
        connection = self._connect_to_read() if self._is_read_only else self._connect(self._where)
        try:
            self._prepare(connection)
            self._permissions.tighten()  # also what SQLite has created, or found, beside it
            self._identity = self._identity or self._identity_now()
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _connect(self, where: Path | str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            where,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            uri=isinstance(where, str),
        )
        connection.text_factory = _text
        return connection

    def _connect_to_read(self) -> sqlite3.Connection:
        """Opens it so that nothing is made and nothing is written down.

        Where SQLite cannot make the files that readers and writers share, nobody writes. Where it
        can, it takes them away again, as it would not if it were told that it may only read.
        """
        where = f"{self._where.as_uri()}?mode=rw"
        connection = self._connect(where)
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.execute(_OWNER)
        except sqlite3.OperationalError as error:
            connection.close()
            log = self._where.with_name(f"{self._where.name}-wal")
            if _code(error) not in _CANNOT_SHARE or (log.exists() and log.stat().st_size):
                raise
            connection = self._connect(f"{where}&immutable=1")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_identity(self) -> None:
        """Sees whether the file is the one that was opened first.

        Raises:
            JournalError: It is not there, or another one is in its place.
        """
        if self._identity_now() != self._identity:
            text = f"the journal {self.path} is another file than the one that was opened"
            raise JournalError(text, reason="gone")

    def _identity_now(self) -> tuple[int, int]:
        try:
            found = self._where.stat()
        except OSError as error:
            text = f"the journal {self.path} is gone since it was opened: {error.strerror}"
            raise JournalError(text, reason="gone") from error
        return found.st_dev, found.st_ino

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Makes the file a journal of this version, if it is not one."""
        version = self._check_owner(connection)  # before anything is changed
        if self._is_read_only:
            if not version:  # calls can be read since the first one
                text = f"{self.path} is not a journal yet: nothing was written to it"
                raise JournalError(text)
            return
        self._permissions.tighten()
        self._switch_to_log(connection)
        connection.execute("PRAGMA synchronous = FULL")
        with _transaction(connection):
            self._migrate(connection, self._check_owner(connection))

    def _switch_to_log(self, connection: sqlite3.Connection) -> None:
        """Has the file written by way of a log; SQLite does not wait for who does so, too."""
        ends = time.monotonic() + self._busy_timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if _REASONS.get(_code(error)) != "locked" or time.monotonic() >= ends:
                    raise
                time.sleep(_AGAIN)
            else:
                return

    def _check_owner(self, connection: sqlite3.Connection) -> int:
        """The version of the schema, of a file that is a journal or nothing yet."""
        owner, version, tables = connection.execute(_OWNER).fetchone()
        if owner != _APPLICATION and (tables or owner):
            text = f"{self.path} is a database of something else, and no journal"
            raise JournalError(text)
        if version > len(_MIGRATIONS):
            text = (
                f"the journal {self.path} was made by a newer Holdfast: it has schema {version}, "
                f"and {len(_MIGRATIONS)} is the newest known here"
            )
            raise JournalError(text)
        return int(version)

    def _migrate(self, connection: sqlite3.Connection, version: int) -> None:
        for migration in _MIGRATIONS[version:]:
            for statement in migration.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")

    def _disconnect(self) -> None:
        with self._lock:
            self._close_file()
            self._identity = None

    def _close_file(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    # ── Forks ────────────────────────────────────────────────────────────────────────────────

    def before_fork(self) -> None:
        """Closes it, and keeps it closed."""
        self._lock.acquire()
        self._close_file()

    def after_fork(self, *, is_child: bool) -> None:
        """Lets it be opened again; a child has none of its parent's threads."""
        if is_child:
            self._thread = None
        self._lock.release()


_forks = threading.RLock()
"""Held by the thread that forks, from before the fork until after it: one fork at a time.

It can be held twice by the same thread, as by a signal handler that forks during a fork.
"""

_files: weakref.WeakSet[SqliteFile] = weakref.WeakSet()
"""All journals of the process; read and changed only while `_forks` is held."""

_closed: list[list[SqliteFile]] = []
"""The files that each fork in progress keeps closed; the innermost fork last."""


def _before_fork() -> None:
    _forks.acquire()
    files = list(_files)
    _closed.append(files)
    for file in files:
        file.before_fork()


def _after_fork(*, is_child: bool) -> None:
    for file in _closed.pop():
        file.after_fork(is_child=is_child)
    _forks.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(is_child=False),
        after_in_child=lambda: _after_fork(is_child=True),
    )


def _absolute(path: Path) -> Path:
    """The path as it is from anywhere.

    Raises:
        JournalError: The directory that the program is in is gone.
    """
    try:
        return path.absolute()
    except OSError as error:
        text = f"the journal {path} cannot be used: there is no working directory"
        raise JournalError(text) from error


def _code(error: Exception) -> int:
    """The primary result code of SQLite; 0 for what Python has found wrong."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection, *, is_read_only: bool = False) -> Generator[None]:
    """All that is done within, or nothing of it."""
    connection.execute("BEGIN" if is_read_only else "BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _text(stored: bytes) -> str | bytes:
    """Return a text; one that is damaged as bytes, so that it is the only one not to be read."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored
