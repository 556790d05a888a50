"""A journal in a file of SQLite.

Rules:
- What a method has returned from is on the disk (``synchronous=FULL``, write-ahead log).
- What is asked for while a transaction is written goes into the next one together: many calls
  share one wait for the disk.
- The event loop never waits for the disk: one thread does, and nobody else uses the file.
- A fork finds the file closed: in the child, SQLite would take locks for its own that only the
  parent has, and what it writes could be lost.
- A file of a newer Holdfast, or of somebody else, is left alone.
- A file that is deleted, moved away or replaced meanwhile is noticed by all who wrote to it: what
  they wrote would be found by nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import sqlite3
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from holdfast.errors import A2AError, JournalError
from holdfast.model.settings import check_kind, check_number
from holdfast.runtime.agent_name import agent_name
from holdfast.runtime.journal import CallRecord, RecordUpdate
from holdfast.runtime.perloop import PerLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

__all__ = ["SqliteJournal"]

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
        outcome TEXT,
        result TEXT,
        generation INTEGER NOT NULL,
        lease_until REAL NOT NULL
    );
    CREATE INDEX calls_unfinished ON calls (agent, began) WHERE outcome IS NULL;
    CREATE INDEX calls_by_label ON calls (label, began) WHERE label IS NOT NULL;
    CREATE INDEX calls_finished ON calls (began) WHERE outcome IS NOT NULL;
    """,
    # An outcome was a line: "not sent" with what followed, a word, a state's name, or an error.
    """
    ALTER TABLE calls ADD COLUMN digest TEXT;
    ALTER TABLE calls ADD COLUMN detail TEXT;
    UPDATE calls SET agent = agent_name(agent);
    UPDATE calls SET
        outcome = CASE
            WHEN outcome LIKE 'not sent%' THEN 'not_sent'
            WHEN outcome IN ('unknown', 'forgotten') THEN outcome
            WHEN outcome = 'message' OR state IS NOT NULL THEN 'answered'
            ELSE 'failed'
        END,
        detail = CASE
            WHEN outcome LIKE 'not sent: %' THEN substr(outcome, length('not sent: ') + 1)
            WHEN outcome LIKE '%Error%' THEN outcome
        END
        WHERE outcome IS NOT NULL;
    """,
)
"""What makes each version of the schema of the one before; ``PRAGMA user_version`` counts them."""

_COLUMNS = tuple(CallRecord.__struct_fields__)
_UPDATED = tuple(RecordUpdate.__struct_fields__)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM calls"  # noqa: S608  nothing but our own names
_INSERT = (
    f"INSERT INTO calls ({', '.join(_COLUMNS)}) "  # noqa: S608
    f"VALUES ({', '.join('?' * len(_COLUMNS))})"
)
_UPDATE = (
    f"UPDATE calls SET {', '.join(f'{name} = coalesce(?, {name})' for name in _UPDATED)} "  # noqa: S608
    "WHERE message_id = ? AND generation = ? AND outcome IS NULL"
)
_RENEW = (
    "UPDATE calls SET lease_until = ? WHERE message_id = ? AND generation = ? AND outcome IS NULL"
)
_CLAIM = (
    "UPDATE calls SET generation = generation + 1, lease_until = ? "
    "WHERE message_id = ? AND outcome IS NULL AND lease_until <= ?"
)
_LABELLED = (
    "SELECT message_id FROM calls WHERE label = ? AND agent = ? AND outcome IS NOT 'not_sent'"
)
_SEND_AFTER_ALL = "DELETE FROM calls WHERE message_id = ? AND outcome = 'not_sent'"
_FORGET = "DELETE FROM calls WHERE outcome IS NOT NULL AND began < ?"

_OWNER = (  # in one statement, as somebody else may be making the file just now
    "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
    "FROM pragma_application_id, pragma_user_version"
)

_AGAIN = 0.01
"""Seconds between two tries of what SQLite does not wait for."""

_AT_ONCE = 500
"""Labels in one question: SQLite takes no more than 999 values in its older versions."""

_Job = tuple["Callable[[sqlite3.Connection], Any]", "asyncio.Future[Any]"]


class SqliteJournal:
    """Keeps the records of calls in a file; several processes may share it.

    The file holds addresses, ids and states, and what was said only where that is asked for. It is
    made readable to its owner alone.

    Args:
        path: The file; it is made where there is none, and its directory must be there.
        store_messages: Whether to keep messages and answers too, so that what nobody knows to have
            arrived can be sent again by hand.
        lease: Seconds after which a call of a process that died may be taken over.
        retention: Seconds to keep what is finished, counted from a call's begin; what is older is
            deleted when the first call is written after the file was opened.
        busy_timeout: Seconds to wait for another process that writes.

    Raises:
        TypeError: An argument of another type.
        ValueError: A number that cannot be right.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        store_messages: bool = False,
        lease: float = 30.0,
        retention: float = 7 * 86400.0,
        busy_timeout: float = 5.0,
    ) -> None:
        check_kind("path", path, (str, os.PathLike))
        check_kind("store_messages", store_messages, bool)
        waits = {"lease": lease, "retention": retention, "busy_timeout": busy_timeout}
        for name, seconds in waits.items():
            check_number(name, seconds, "number of seconds")
            if not 0 < seconds < float("inf"):
                text = f"{name} must be a positive number of seconds, not {seconds}"
                raise ValueError(text)
        self.path = Path(path)
        self._where = self.path.absolute()  # wherever the program goes
        self._identity: tuple[int, int] | None = None
        self.stores_messages = store_messages
        self.lease = lease
        self._retention = retention
        self._busy_timeout = busy_timeout
        self._is_to_forget = True
        self._connection: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._writing = PerLoop(_Writing)
        self._file = _File(self._close_file, self._forget_thread)

    async def begin(self, record: CallRecord, /) -> None:
        """Writes a call down that begins, in place of one of that message that was not sent.

        Raises:
            JournalError: It cannot be written; or a call of that message, or to that agent with
                that label, is written down already, with another outcome than ``"not_sent"``.
        """
        labelled = (record.label, record.agent)

        def insert(connection: sqlite3.Connection) -> None:
            if self._is_to_forget:
                connection.execute(_FORGET, (record.began - self._retention,))
                self._is_to_forget = False
            if other := connection.execute(_LABELLED, labelled).fetchone():
                text = f"{record.label} is in the journal {self.path} already: message {other[0]}"
                raise JournalError(text)
            connection.execute(_SEND_AFTER_ALL, (record.message_id,))
            try:
                connection.execute(_INSERT, msgspec.structs.astuple(record))
            except sqlite3.IntegrityError as error:
                text = f"message {record.message_id} is in the journal {self.path} already"
                raise JournalError(text) from error

        try:
            await self._do(insert)
        except JournalError as error:
            error.executed = False
            raise

    async def update(self, message_id: str, generation: int, update: RecordUpdate, /) -> bool:
        """Adds to a record that is open and of that generation; what is None stays as it was.

        Returns:
            Whether there is such a record. If not, the call is over, or somebody else's.

        Raises:
            JournalError: It cannot be written.
        """
        values = (*msgspec.structs.astuple(update), message_id, generation)
        return await self._do(lambda connection: connection.execute(_UPDATE, values).rowcount == 1)

    async def renew(self, held: Sequence[tuple[str, int]], lease_until: float, /) -> set[str]:
        """Puts off the end of leases, by message id and generation.

        Returns:
            The ids of those whose records are open and of that generation.

        Raises:
            JournalError: It cannot be written.
        """

        def renew(connection: sqlite3.Connection) -> set[str]:
            return {
                message_id
                for message_id, generation in held
                if connection.execute(_RENEW, (lease_until, message_id, generation)).rowcount
            }

        return await self._do(renew)

    async def claim(self, message_id: str, /, *, now: float, lease_until: float) -> CallRecord:
        """Takes a lease of a call that is open, and whose lease is over by ``now``.

        Returns:
            The record, with a generation that is one more than it was.

        Raises:
            JournalError: Somebody holds it, it is over, or it is not there.
        """

        def claim(connection: sqlite3.Connection) -> CallRecord:
            taken = connection.execute(_CLAIM, (lease_until, message_id, now)).rowcount
            record = _record(connection, message_id)
            if taken and record is not None:
                return record
            raise JournalError(self._why_not(message_id, record, now))

        return await self._do(claim)

    async def find(self, message_id: str, /) -> CallRecord | None:
        """The record of a call, open or over; None where there is none.

        Raises:
            JournalError: It cannot be read.
        """
        return await self._do(lambda connection: _record(connection, message_id))

    async def unfinished(self, agent: str | None = None, /) -> list[CallRecord]:
        """The calls without an outcome, oldest first; of one agent, or of all.

        Raises:
            JournalError: It cannot be read.
        """
        of_agent, values = ("", ()) if agent is None else (" AND agent = ?", (agent,))
        question = f"{_SELECT} WHERE outcome IS NULL{of_agent} ORDER BY began"
        return await self._do(lambda connection: _records(connection.execute(question, values)))

    async def labelled(self, agent: str, labels: Iterable[str], /) -> dict[str, CallRecord]:
        """The record to this agent of each of these labels that has one, open or over.

        Of several it is the one that may have been sent; where there is none, the newest.

        Raises:
            JournalError: It cannot be read.
        """
        wanted = list(labels)

        def read(connection: sqlite3.Connection) -> dict[str, CallRecord]:
            found: dict[str, CallRecord] = {}
            for start in range(0, len(wanted), _AT_ONCE):
                some = wanted[start : start + _AT_ONCE]
                marks = ", ".join("?" * len(some))
                question = (
                    f"{_SELECT} WHERE agent = ? AND label IN ({marks}) "
                    "ORDER BY outcome IS NOT 'not_sent', began"
                )
                for record in _records(connection.execute(question, (agent, *some))):
                    found[cast("str", record.label)] = record
            return found

        return await self._do(read)

    async def close(self) -> None:
        """Writes what is still to be written, and closes the file. Can be called twice."""
        thread = self._thread
        if thread is None:
            return
        with contextlib.suppress(JournalError):
            await self._do(_nothing)  # which comes after all that was asked for
        self._thread = None
        await asyncio.get_running_loop().run_in_executor(thread, self._disconnect)
        thread.shutdown(wait=False)

    # ── The thread ───────────────────────────────────────────────────────────────────────────

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Has something done in the next transaction, and waits until that is on the disk."""
        writing = self._writing.here()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        writing.jobs.append((work, done))
        if not writing.is_busy:
            writing.is_busy = True
            self._write(writing)
        return await done

    def _write(self, writing: _Writing) -> None:
        """Begins to write what there is to write; what comes meanwhile is written after that."""
        jobs, writing.jobs = writing.jobs, []
        loop, works = asyncio.get_running_loop(), [work for work, _ in jobs]
        try:
            written = loop.run_in_executor(self._thread_here(), self._transact, works)
        except RuntimeError as error:  # there is no thread to be had, or the program ends
            self._thread = None  # which would do later what has failed now
            failure = JournalError(f"the journal {self.path} cannot be used: {error}")
            failure.__cause__ = error
            written = loop.create_future()
            written.set_exception(failure)

        def answer(written: asyncio.Future[list[Any]]) -> None:
            outcomes = _outcomes(written, len(jobs))
            for (_, done), outcome in zip(jobs, outcomes, strict=True):
                if done.done():
                    continue  # who asked has been cancelled
                if isinstance(outcome, BaseException):
                    done.set_exception(outcome)
                else:
                    done.set_result(outcome)
            if writing.jobs:
                self._write(writing)
            else:
                writing.is_busy = False

        written.add_done_callback(answer)

    def _thread_here(self) -> ThreadPoolExecutor:
        """The one thread that has the file open."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-journal")
        return self._thread

    def _transact(self, works: list[Callable[[sqlite3.Connection], Any]]) -> list[Any]:
        """Does several things in one transaction: in the thread.

        Returns:
            What each came to; a `JournalError` for one that failed by itself.

        Raises:
            JournalError: None of them came to anything.
        """
        try:
            with self._file.lock:
                return self._do_all(works)
        except sqlite3.Error as error:
            text = f"the journal {self.path} cannot be used: {error}"
            if "locked" in str(error):
                text += f", by another process that wrote for {self._busy_timeout:g} s"
            raise JournalError(text) from error

    def _do_all(self, works: list[Callable[[sqlite3.Connection], Any]]) -> list[Any]:
        try:
            connection = self._connection or self._open()
            with _transaction(connection):
                outcomes = [_outcome(work, connection) for work in works]
            self._check_identity()
        except (sqlite3.Error, JournalError):
            self._close_file()  # who knows what state it is in
            raise
        return outcomes

    def _open(self) -> sqlite3.Connection:
        if self._identity is not None:
            self._check_identity()
        elif not self._where.exists():
            with contextlib.suppress(OSError):  # which SQLite will tell better
                os.close(os.open(self._where, os.O_CREAT | os.O_WRONLY, 0o600))
        connection = sqlite3.connect(
            self._where, timeout=self._busy_timeout, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(connection)
            self._identity = self._identity or self._identity_now()
        except BaseException:
            connection.close()
            raise
        self._connection, self._is_to_forget = connection, True
        return connection

    def _check_identity(self) -> None:
        """Sees whether the file is the one that was opened first.

        Raises:
            JournalError: It is not there, or another one is in its place.
        """
        if self._identity_now() != self._identity:
            text = f"the journal {self.path} is another file than the one that was opened"
            raise JournalError(text)

    def _identity_now(self) -> tuple[int, int]:
        try:
            found = self._where.stat()
        except OSError as error:
            text = f"the journal {self.path} is gone since it was opened: {error.strerror}"
            raise JournalError(text) from error
        return found.st_dev, found.st_ino

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Makes the file a journal of this version, if it is not one."""
        self._check_owner(connection)  # before anything is changed
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
                if "locked" not in str(error) or time.monotonic() >= ends:
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
        connection.create_function("agent_name", 1, agent_name, deterministic=True)
        for migration in _MIGRATIONS[version:]:
            for statement in migration.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")

    def _disconnect(self) -> None:
        with self._file.lock:
            self._close_file()
            self._identity = None

    def _close_file(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _forget_thread(self) -> None:
        self._thread = None

    def _why_not(self, message_id: str, record: CallRecord | None, now: float) -> str:
        """Why a call cannot be claimed."""
        if record is None:
            return f"message {message_id} is not in the journal {self.path}"
        call = f"the call of message {message_id}"
        if record.outcome is not None:
            detail = f" ({record.detail})" if record.detail else ""
            return f"{call} is over: {record.outcome.replace('_', ' ')}{detail}"
        return f"{call} is held: its lease ends in {record.lease_until - now:.3g} s, if ever"


class _File:
    """Who may use a journal's file: one at a time, and nobody while the process forks.

    Args:
        close: Closes it.
        forget_thread: Called in a child, which has none of its parent's threads.

    Attributes:
        lock: Held by who uses it.
    """

    def __init__(self, close: Callable[[], None], forget_thread: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self._close = close
        self._forget_thread = forget_thread
        _files.add(self)

    def before_fork(self) -> None:
        """Closes it, and keeps it closed."""
        self.lock.acquire()
        self._close()

    def after_fork(self, *, is_child: bool) -> None:
        """Lets it be opened again."""
        if is_child:
            self._forget_thread()
        self.lock.release()


_files: weakref.WeakSet[_File] = weakref.WeakSet()
"""Of all journals there are: a fork is the whole process's."""

_forking: list[_File] = []
"""Those that a fork under way keeps closed."""


def _before_fork() -> None:
    _forking.extend(_files)
    for file in _forking:
        file.before_fork()


def _after_fork(*, is_child: bool) -> None:
    for file in _forking:
        file.after_fork(is_child=is_child)
    _forking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(is_child=False),
        after_in_child=lambda: _after_fork(is_child=True),
    )


class _Writing:
    """What is to be written, as far as one event loop asks for it.

    Attributes:
        jobs: What to do, and whom to tell.
        is_busy: Whether a transaction is being written.
    """

    def __init__(self) -> None:
        self.jobs: list[_Job] = []
        self.is_busy = False


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Generator[None]:
    """All that is done within, or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _outcome(
    work: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection
) -> T | JournalError:
    try:
        return work(connection)
    except JournalError as error:
        return error
    except UnicodeEncodeError as error:  # a lone surrogate; the others can be written
        failure = JournalError(f"the journal takes no such text: {error}", executed=False)
        failure.__cause__ = error
        return failure
    except msgspec.ValidationError as error:  # of an older Holdfast that still runs, or by hand
        failure = JournalError(f"the journal holds a record that cannot be read: {error}")
        failure.__cause__ = error
        return failure


def _outcomes(written: asyncio.Future[list[Any]], count: int) -> list[Any]:
    if written.cancelled():
        text = "the event loop was closed while the journal was written"
        return [JournalError(text)] * count
    error = written.exception()
    if error is None:
        return written.result()
    if not isinstance(error, A2AError):
        return [error] * count
    return [copy.copy(error) for _ in range(count)]


def _records(rows: Iterable[tuple[Any, ...]]) -> list[CallRecord]:
    return [
        msgspec.convert(dict(zip(_COLUMNS, row, strict=True)), CallRecord, strict=False)
        for row in rows
    ]


def _record(connection: sqlite3.Connection, message_id: str) -> CallRecord | None:
    rows = connection.execute(f"{_SELECT} WHERE message_id = ?", (message_id,))
    return next(iter(_records(rows)), None)


def _nothing(_connection: sqlite3.Connection) -> None:
    """Does nothing."""
