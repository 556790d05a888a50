"""The SQLite file of a journal: creates it, opens it, runs transactions, and detects its loss.

Rules:
- A single thread has the file open: the event loop never waits for the disk.
- The file is closed during a fork: in the child, SQLite would assume that it has the locks of the
  parent, and its writes could be lost.
- A file of a newer Holdfast, or of another program, is refused before it is changed, including its
  mode.
- Each process that wrote to a file detects that it was deleted, moved or replaced, since its
  records would be lost.
- Owner and permissions of the file are defined in `holdfast._journal.permissions`, and checked
  before SQLite opens it. Permissions are removed before a journal is written to, and again, for
  the files beside it, before anything but the schema is written.
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
    """
    UPDATE calls SET outcome = 'dismissed' WHERE outcome = 'forgotten';
    DROP INDEX calls_unfinished;
    CREATE INDEX calls_unfinished ON calls (agent, began)
        WHERE (outcome IS NULL OR outcome = 'unknown');
    DROP INDEX calls_finished;
    CREATE INDEX calls_finished ON calls (began)
        WHERE outcome IS NOT NULL AND outcome != 'unknown' AND label IS NULL;
    """,
    "ALTER TABLE calls ADD COLUMN traceparent TEXT",
)
"""The statements for each version of the schema; ``PRAGMA user_version`` counts them."""

_TRACEPARENT_VERSION = 4
"""The first version of the schema whose calls have the column ``traceparent``."""

_OLDER_CALLS = """
    CREATE TEMP VIEW calls AS SELECT rowid AS rowid, *, NULL AS traceparent FROM main.calls
"""
"""The calls of an earlier schema, with the columns of this one."""

_OWNER = (  # in one statement, as another process may be creating the file
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
"""Reasons of a `JournalError` by SQLite's result codes."""

_CANNOT_SHARE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
"""SQLite's result codes if it may not write beside a file."""

_LOCK_POLL_INTERVAL_S = 0.01
"""Seconds between two attempts at a lock that SQLite does not wait for."""


class SqliteFile:
    """The file of one journal; it is opened at its first use.

    Args:
        path: The file, as errors show it; it is created if it does not exist.
        busy_timeout: Seconds to wait for another process that writes.
        mode: Permissions that the file may have: for its owner alone, or also for its group.
        read_only: Whether it is neither created nor written.
    """

    def __init__(
        self, path: Path, busy_timeout: float, *, mode: int = 0o600, read_only: bool = False
    ) -> None:
        self.path = path
        self._absolute_path = _absolute(path)  # independent of the working directory
        self._busy_timeout = busy_timeout
        self._is_read_only = read_only
        self._permissions = Permissions(path, self._absolute_path, mode, read_only=read_only)
        self._identity: tuple[int, int] | None = None
        self._connection: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._lock = threading.RLock()  # held while the file is used, and while the process forks
        with _forks:  # so that a fork in another thread never misses it
            _files.add(self)

    @property
    def is_used(self) -> bool:
        """Whether it was used since it was last closed."""
        return self._thread is not None

    def transact(
        self, works: Sequence[Callable[[sqlite3.Connection], T]]
    ) -> asyncio.Future[list[T]]:
        """Run several operations in one transaction, after all earlier ones.

        Returns:
            The result of each operation, once they are on the disk.

        Raises:
            JournalError: The transaction failed; no operation had an effect.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-journal")
        loop = asyncio.get_running_loop()
        try:
            return loop.run_in_executor(self._thread, self._transact, works)
        except RuntimeError as error:  # no thread can be started, or the interpreter exits
            self._thread = None  # otherwise it might run later what has failed now
            failure = JournalError(f"the journal {self.path} cannot be used: {error}")
            failure.__cause__ = error
            failed: asyncio.Future[list[T]] = loop.create_future()
            failed.set_exception(failure)
            return failed

    async def close(self) -> None:
        """Close the file until its next use. Can be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._disconnect)
            thread.shutdown(wait=False)

    # ── In the thread ────────────────────────────────────────────────────────────────────────

    def _transact(self, works: Sequence[Callable[[sqlite3.Connection], T]]) -> list[T]:
        """Run several operations in one transaction, in the thread.

        Returns:
            The result of each operation.

        Raises:
            JournalError: The transaction failed; no operation had an effect.
        """
        try:
            with self._lock:
                return self._run_all(works)
        except JournalError:
            raise
        except Exception as error:  # of SQLite, the system, or Python for an invalid name
            text = f"the journal {self.path} cannot be used: {self._cause(error)}"
            reason = _REASONS.get(_code(error), "unusable")
            if reason == "locked":
                text += f", by another process that wrote for {self._busy_timeout:g} s"
            raise JournalError(text, reason=reason) from error

    def _cause(self, error: Exception) -> str:
        """Return the cause of an error, and what to do if that is known."""
        directory = self.path.parent
        with contextlib.suppress(OSError, ValueError):  # of an invalid name
            if self._absolute_path.is_dir():
                return f"{self.path} is a directory; pass the path of a file in it"
            if not self._absolute_path.parent.exists():
                return f"the directory {directory} does not exist; create it, or pass another path"
            if not self._absolute_path.parent.is_dir():
                return f"{directory} is not a directory; pass another path"
            if self._is_read_only and not self._absolute_path.exists():
                return f"{self.path} does not exist; pass the path of a journal"
        if _code(error) in _CANNOT_SHARE and (denied := self._denied_path()):
            return f"permission denied: {denied}"
        if _code(error) == sqlite3.SQLITE_NOTADB:
            return f"{self.path} is not a SQLite database; move it away, or pass another path"
        if isinstance(error, PermissionError):
            return f"permission denied: {error.filename or self.path}"
        cause = error.strerror if isinstance(error, OSError) else None
        return cause or str(error)

    def _denied_path(self) -> Path | None:
        """Return the file or directory that this process lacks a permission for, if any."""
        file, directory = self._absolute_path, self._absolute_path.parent
        change = 0 if self._is_read_only else os.W_OK
        for path, access in ((directory, os.X_OK), (file, os.R_OK | change), (directory, change)):
            with contextlib.suppress(OSError):
                if path.exists() and not os.access(path, access):
                    return path
        return None

    def _run_all(self, works: Sequence[Callable[[sqlite3.Connection], T]]) -> list[T]:
        try:
            connection = self._connection or self._open()
            with _transaction(connection, is_read_only=self._is_read_only):
                outcomes = [work(connection) for work in works]
            self._check_identity()
        except Exception:
            self._close_file()  # its state is unknown
            raise
        return outcomes

    def _open(self) -> sqlite3.Connection:
        if self._identity is not None:
            self._check_identity()
        else:
            self._permissions.create()
        if self._absolute_path.exists():  # otherwise SQLite has the better error
            self._permissions.check()
        connection = (
            self._connect_to_read() if self._is_read_only else self._connect(self._absolute_path)
        )
        try:
            self._prepare(connection)
            self._permissions.tighten()  # also of the files beside it
            self._identity = self._identity or self._identity_now()
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _connect(self, database: Path | str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            database,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            uri=isinstance(database, str),
        )
        connection.text_factory = _text
        return connection

    def _connect_to_read(self) -> sqlite3.Connection:
        """Open the file without creating or writing anything lasting.

        If SQLite cannot create the files that readers and writers share, there is no writer. If it
        can, it removes them again, which it would not do with a connection opened read-only.
        """
        uri = f"{self._absolute_path.as_uri()}?mode=rw"
        connection = self._connect(uri)
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.execute(_OWNER)
        except sqlite3.OperationalError as error:
            connection.close()
            log = self._absolute_path.with_name(f"{self._absolute_path.name}-wal")
            if _code(error) not in _CANNOT_SHARE or (log.exists() and log.stat().st_size):
                raise
            connection = self._connect(f"{uri}&immutable=1")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_identity(self) -> None:
        """Check that the file is the one that was opened first.

        Raises:
            JournalError: It no longer exists, or was replaced.
        """
        if self._identity_now() != self._identity:
            text = f"the journal {self.path} was replaced by another file after it was opened"
            raise JournalError(text, reason="replaced")

    def _identity_now(self) -> tuple[int, int]:
        try:
            status = self._absolute_path.stat()
        except OSError as error:
            text = (
                f"the journal {self.path} was deleted or moved after it was opened: "
                f"{error.strerror}"
            )
            raise JournalError(text, reason="replaced") from error
        return status.st_dev, status.st_ino

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make the file a journal of this version if it is not one yet."""
        version = self._check_owner(connection)  # before any change
        if self._is_read_only:
            if not version:  # calls are readable in each version since the first
                text = f"{self.path} is not a journal: it is empty"
                raise JournalError(text)
            if version < _TRACEPARENT_VERSION:
                _show_older_calls(connection)
            return
        self._permissions.tighten()
        self._switch_to_log(connection)
        connection.execute("PRAGMA synchronous = FULL")
        with _transaction(connection):
            self._migrate(connection, self._check_owner(connection))

    def _switch_to_log(self, connection: sqlite3.Connection) -> None:
        """Switch to a write-ahead log; SQLite does not wait for a process that does the same."""
        deadline = time.monotonic() + self._busy_timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if _REASONS.get(_code(error)) != "locked" or time.monotonic() >= deadline:
                    raise
                time.sleep(_LOCK_POLL_INTERVAL_S)
            else:
                return

    def _check_owner(self, connection: sqlite3.Connection) -> int:
        """Return the version of the schema; refuse a file that is neither a journal nor empty."""
        owner, version, tables = connection.execute(_OWNER).fetchone()
        if owner != _APPLICATION and (tables or owner):
            text = f"{self.path} is a SQLite database of another program, not a journal"
            raise JournalError(text)
        if version > len(_MIGRATIONS):
            text = (
                f"the journal {self.path} was written by a newer Holdfast: its schema has version "
                f"{version}, and this one knows {len(_MIGRATIONS)}; update Holdfast"
            )
            raise JournalError(text, reason="newer")
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
        """Close the file, and keep it closed."""
        self._lock.acquire()
        self._close_file()

    def after_fork(self, *, is_child: bool) -> None:
        """Allow the file to be opened again; a child has none of its parent's threads."""
        if is_child:
            self._thread = None
        self._lock.release()


_forks = threading.RLock()
"""Held by the thread that forks, from before to after the fork: one fork at a time.

The same thread may hold it twice, as a signal handler may fork during a fork.
"""

_files: weakref.WeakSet[SqliteFile] = weakref.WeakSet()
"""All journals of the process; read and changed only while `_forks` is held."""

_closed: list[list[SqliteFile]] = []
"""The files closed during each fork in progress; the innermost fork last."""


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
    """Return the absolute path.

    Raises:
        JournalError: The working directory no longer exists.
    """
    try:
        return path.absolute()
    except OSError as error:
        text = f"the journal {path} cannot be used: there is no working directory"
        raise JournalError(text) from error


def _code(error: Exception) -> int:
    """Return SQLite's primary result code; 0 for an error of Python."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection, *, is_read_only: bool = False) -> Generator[None]:
    """Run the block in a transaction: all of it takes effect, or none."""
    connection.execute("BEGIN" if is_read_only else "BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _show_older_calls(connection: sqlite3.Connection) -> None:
    """Show the calls of a file of an earlier schema, which is not migrated, with all columns."""
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA query_only = OFF")
    connection.execute(_OLDER_CALLS)
    connection.execute("PRAGMA query_only = ON")


def _text(stored: bytes) -> str | bytes:
    """Return a text; a damaged one as bytes, so that the others can be read."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored
