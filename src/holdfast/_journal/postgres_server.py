"""The connections of a journal to PostgreSQL, and its schema there.

Rules:
- Each connection has a thread of its own, so that the event loop never waits for the server, and
  a journal serves several event loops.
- Each statement commits by itself: it needs neither a session nor a prepared statement, and works
  behind a pooler that assigns connections by transaction.
- An operation, of one statement or several, is repeated after a lost connection, as while the
  server restarts: its statements have to recognize that they took effect before.
- A child of a fork opens its own connections, and leaves those of its parent untouched.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, LiteralString, Protocol, TypeAlias, TypeVar, cast

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from holdfast.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._journal.postgres_address import PostgresAddress
    from holdfast.errors import JournalFailure

__all__ = ["PostgresServer"]

T = TypeVar("T")

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"


class _Prepare(Protocol):
    def __call__(self, connection: Connection, *, is_first: bool) -> None: ...


_MIGRATIONS = (
    """
    CREATE TABLE {schema}.calls (
        message_id text PRIMARY KEY,
        agent text NOT NULL,
        began timestamptz NOT NULL,
        context_id text,
        task_id text,
        state text,
        is_own_context boolean NOT NULL,
        request text,
        label text,
        digest text,
        outcome text,
        detail text,
        result text,
        generation integer NOT NULL,
        lease_until timestamptz NOT NULL,
        written_by uuid NOT NULL
    ) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
    CREATE INDEX calls_unfinished ON {schema}.calls (agent, began) WHERE outcome IS NULL;
    CREATE UNIQUE INDEX calls_sent_once ON {schema}.calls (label)
        WHERE outcome IS DISTINCT FROM 'not_sent';
    CREATE INDEX calls_by_label ON {schema}.calls (label, began) WHERE label IS NOT NULL;
    CREATE INDEX calls_finished ON {schema}.calls (began)
        WHERE outcome IS NOT NULL AND label IS NULL;
    CREATE TABLE {schema}.push_tokens (
        name bytea PRIMARY KEY,
        body bytea NOT NULL,
        receiver text NOT NULL,
        ends timestamptz NOT NULL
    );
    CREATE INDEX push_tokens_by_end ON {schema}.push_tokens (ends);
    """,
    """
    UPDATE {schema}.calls SET outcome = 'dismissed' WHERE outcome = 'forgotten';
    DROP INDEX {schema}.calls_unfinished;
    CREATE INDEX calls_unfinished ON {schema}.calls (agent, began)
        WHERE (outcome IS NULL OR outcome = 'unknown');
    DROP INDEX {schema}.calls_finished;
    CREATE INDEX calls_finished ON {schema}.calls (began)
        WHERE outcome IS NOT NULL AND outcome != 'unknown' AND label IS NULL;
    """,
    "ALTER TABLE {schema}.calls ADD COLUMN traceparent text",
)
"""The statements for each version of the schema; the table ``version`` lists them.

A renewed lease changes no indexed column. With room in its page (``fillfactor``), the new row
needs no new index entries: with 20 renewals a call, 94 % of all updates need none (56 % without
``fillfactor``), and the table has a third of the size.
"""

_TABLES = (  # reads the catalogs: to_regclass() may not see what was just committed elsewhere
    "SELECT count(*) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE nspname = %s AND relname = 'version'"
)

_DURABILITY = "SELECT current_setting('synchronous_commit'), pg_backend_pid()"

_LOCK = 0x484F4C44
"""Key of the advisory lock that a migration holds: "HOLD" in ASCII."""

_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0

_CLOSING_S = 10.0
"""Seconds that `PostgresServer.close` waits for operations before it cuts their connections."""

_TRANSIENT = (
    "08",  # the connection
    "40",  # a deadlock, or a conflict of serializable transactions
    "53300",  # too many connections
    "57000",
    "57P01",  # the server shuts down, has crashed, or is not up yet
    "57P02",
    "57P03",
)
"""Beginnings of the SQLSTATE of errors that pass; psycopg has no classes for groups of them."""

_REASONS: tuple[tuple[type[psycopg.Error], JournalFailure], ...] = (
    (errors.InsufficientPrivilege, "forbidden"),
    (errors.ReadOnlySqlTransaction, "read_only"),
    (errors.DiskFull, "full"),
    (errors.LockNotAvailable, "locked"),
    (errors.DataCorrupted, "damaged"),
    (errors.IndexCorrupted, "damaged"),
)


class PostgresServer:
    """The connections of one journal; they are opened at its first use.

    Args:
        address: Where the journal is.
        retry_for: Seconds for which an operation is repeated after a lost connection.
        read_only: Whether nothing is written, not even the schema.
    """

    def __init__(
        self, address: PostgresAddress, *, retry_for: float, read_only: bool = False
    ) -> None:
        self.shown = address.shown
        self._address = address
        self._retry_for = retry_for
        self._is_read_only = read_only
        self._lock = threading.Lock()
        self._statements: dict[str, bytes] = {}
        self._workers: _Workers | None = None
        self._of_parents: list[_Workers] = []  # kept: to free them would end their sessions

    def statement(self, text: str) -> bytes:
        """Return a statement with the names of the journal's schema and tables in place."""
        known = self._statements.get(text)
        if known is None:
            schema = self._address.schema
            composed = sql.SQL(cast("LiteralString", text)).format(  # of this package's own texts
                schema=sql.Identifier(schema),
                calls=sql.Identifier(schema, "calls"),
                push_tokens=sql.Identifier(schema, "push_tokens"),
            )
            known = self._statements[text] = composed.as_bytes(None)
        return known

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run an operation in a thread, again after a lost connection.

        If the caller is cancelled, the operation takes effect nevertheless, or not at all.

        Args:
            work: Executes one statement, which may have taken effect before.

        Raises:
            JournalError: The server cannot be reached, or refuses the operation.
        """
        with self._lock:
            if self._workers is not None and self._workers.process != os.getpid():
                self._of_parents.append(self._workers)
                self._workers = None
            if self._workers is None:
                self._workers = _Workers(
                    self._address.pool_size, self._retry_for, self._connect, self._prepare
                )
            workers = self._workers
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(workers.threads, workers.run, work)
        except psycopg.Error as error:
            raise self._failure(error) from error
        except UnicodeEncodeError as error:  # a lone surrogate
            text = f"the journal cannot store this text: {error}"
            raise JournalError(text, executed=False) from error

    async def close(self) -> None:
        """Wait for all operations, and close the connections. Can be called twice."""
        with self._lock:
            workers, self._workers = self._workers, None
        if workers is not None and workers.process == os.getpid():
            await asyncio.to_thread(workers.close)

    # ── In a thread ──────────────────────────────────────────────────────────────────────────

    def _connect(self) -> Connection:
        return psycopg.connect(
            make_conninfo("", **self._address.parameters), autocommit=True, prepare_threshold=None
        )

    def _prepare(self, connection: Connection, *, is_first: bool) -> None:
        if is_first:
            self._check_schema(connection)
        self._make_durable(connection)

    def _make_durable(self, connection: Connection) -> None:
        """Let the server confirm a write only when it is on the disk.

        Raises:
            JournalError: The server confirms early, and a pooler may apply the setting to another
                session.
        """
        setting, process = _row(connection.execute(_DURABILITY))
        if setting != "off":
            return
        if process != connection.info.backend_pid:
            text = (
                f"{self.shown} confirms writes before they are on the disk "
                "(synchronous_commit=off), and a pooler prevents a change of this setting; "
                "execute ALTER ROLE … SET synchronous_commit = on for the role of the journal"
            )
            raise JournalError(text)
        connection.execute("SET synchronous_commit = on")

    def _check_schema(self, connection: Connection) -> None:
        """Check that the tables exist and are of this version, and migrate older ones.

        Raises:
            JournalError: They are newer, or do not exist and may not be created.
        """
        if (version := self._version(connection)) < len(_MIGRATIONS):
            if self._is_read_only:
                text = f"{self.shown} has no journal of this version, and read_only is set"
                raise JournalError(text, reason="missing" if version == 0 else "read_only")
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                self._migrate(connection, self._version(connection))
        elif version > len(_MIGRATIONS):
            text = (
                f"the journal {self.shown} was written by a newer Holdfast: its schema has "
                f"version {version}, and this one knows {len(_MIGRATIONS)}; update Holdfast"
            )
            raise JournalError(text, reason="newer")

    def _version(self, connection: Connection) -> int:
        """Return the version of the tables; 0 if there are none."""
        if _row(connection.execute(_TABLES, (self._address.schema,))) == (0,):
            return 0
        select = self.statement("SELECT coalesce(max(number), 0) FROM {schema}.version")
        (version,) = _row(connection.execute(select))
        return int(version)

    def _migrate(self, connection: Connection, version: int) -> None:
        schema = self._address.schema
        is_there = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
        if _row(connection.execute(is_there, (schema,))) == (0,):
            connection.execute(self.statement("CREATE SCHEMA {schema}"))
        if version == 0:
            table = "CREATE TABLE {schema}.version (number integer PRIMARY KEY)"
            connection.execute(self.statement(table))
        for number, migration in enumerate(_MIGRATIONS[version:], version + 1):
            connection.execute(self.statement(migration))
            connection.execute(
                self.statement("INSERT INTO {schema}.version VALUES (%s)"), (number,)
            )

    def _failure(self, error: psycopg.Error) -> JournalError:
        """Return the error of an operation that PostgreSQL refused, in one line."""
        lines = str(error).strip().splitlines() or [type(error).__name__]
        if error.sqlstate is None and isinstance(error, psycopg.OperationalError):
            text = f"the journal {self.shown} cannot be reached: {'; '.join(lines)}"
            return JournalError(text, reason="unreachable")
        reason: JournalFailure = "unusable"
        for kind, known in _REASONS:
            if isinstance(error, kind):
                reason = known
        executed = False if isinstance(error, psycopg.DataError) else None
        text = f"the journal {self.shown} failed: {lines[0]}"
        return JournalError(text, reason=reason, executed=executed)


class _Workers:
    """Threads of one process, each with a connection.

    Attributes:
        process: The id of the process.
        threads: The threads.
    """

    def __init__(
        self, size: int, retry_for: float, connect: Callable[[], Connection], prepare: _Prepare
    ) -> None:
        self.process = os.getpid()
        self._connect = connect
        self._prepare = prepare
        self._retry_for = retry_for
        self.threads = ThreadPoolExecutor(size, thread_name_prefix="holdfast-journal")
        self._local = threading.local()
        self._opening = threading.Lock()
        self._is_checked = False  # whether a connection was made, and has the tables
        self._closing = threading.Event()
        self._connections: set[Connection] = set()

    def close(self) -> None:
        """Wait for the operations for a while, then cut their connections, and close all."""
        cutting = threading.Timer(_CLOSING_S, self._cut)
        cutting.daemon = True
        cutting.start()
        self.threads.shutdown()
        cutting.cancel()
        for connection in self._connections:
            connection.close()

    def _cut(self) -> None:
        self._closing.set()
        for connection in [*self._connections]:
            with contextlib.suppress(OSError, psycopg.Error):
                _shut_down(connection)

    def run(self, work: Callable[[Connection], T]) -> T:
        """Run an operation in one of the threads, again after a lost connection."""
        end, pause = time.monotonic() + self._retry_for, _PAUSE_S
        while True:
            self._raise_if_closing()
            try:
                return work(self._connection())
            except psycopg.Error as error:
                # The first connection shows whether the address is right at all.
                is_transient = (error.sqlstate or "").startswith(_TRANSIENT)
                may_pass = self._is_checked and (self._is_lost() or is_transient)
                if not may_pass or time.monotonic() + pause > end:
                    raise
            self._closing.wait(pause)
            pause = min(_LONGEST_PAUSE_S, 2 * pause)

    def _connection(self) -> Connection:
        """Return the connection of this thread."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is not None and not connection.closed:
            return connection
        if connection is not None:
            self._connections.discard(connection)
        self._local.connection = None
        if self._is_checked:
            connection = self._new_connection(is_first=False)
        else:
            with self._opening:  # one thread creates the tables
                connection = self._new_connection(is_first=not self._is_checked)
                self._is_checked = True
        self._local.connection = connection
        return connection

    def _new_connection(self, *, is_first: bool) -> Connection:
        self._raise_if_closing()
        connection = self._connect()
        self._connections.add(connection)  # so that it is cut if it waits while the journal closes
        try:
            self._raise_if_closing()
            self._prepare(connection, is_first=is_first)
        except BaseException:
            self._connections.discard(connection)
            connection.close()
            raise
        return connection

    def _raise_if_closing(self) -> None:
        """End the operations that still wait for their turn when connections are cut."""
        if self._closing.is_set():
            text = "the journal was closed"
            raise psycopg.OperationalError(text)

    def _is_lost(self) -> bool:
        """Whether this thread has no usable connection after an operation failed.

        Once in 10,000 lost connections, psycopg sees the socket's error before its end, and leaves
        the connection open in the middle of a statement, so that each further one would fail.
        """
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None or connection.closed:
            return True
        if connection.info.transaction_status is TransactionStatus.IDLE:
            return False
        connection.close()
        return True


def _shut_down(connection: Connection) -> None:
    """End a connection while its thread waits for the server, which then sees an error."""
    duplicate = socket.socket(fileno=os.dup(connection.fileno()))
    with contextlib.closing(duplicate):
        duplicate.shutdown(socket.SHUT_RDWR)


def _row(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the row of a query that always has one."""
    return next(cursor)
