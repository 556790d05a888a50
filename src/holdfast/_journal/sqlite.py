"""A journal in a SQLite file.

Rules:
- When a method returns, its result is on the disk (``synchronous=FULL``, write-ahead log).
- Operations that arrive while a transaction is written share the next one: many calls share one
  wait for the disk.
- `holdfast._journal.sqlite_file` manages the file itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import re
import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast._aio.env import wall_clock
from holdfast._aio.per_loop import PerLoop
from holdfast._journal.agent_name import is_same_agent
from holdfast._journal.permissions import MODES
from holdfast._journal.protocol import (
    CallRecord,
    RecordUpdate,
    TokenUse,
    already_recorded,
    lease_end,
    refused_claim,
    valid_traceparent,
)
from holdfast._journal.sqlite_file import SqliteFile
from holdfast._model.settings import (
    check_count,
    check_kind,
    check_number,
    explains_unknown_options,
)
from holdfast.errors import A2AError, JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["SqliteJournal"]

T = TypeVar("T")

_COLUMNS = tuple(
    name for name in CallRecord.__struct_fields__ if name not in {"lease_left", "damage"}
)
_UPDATED = tuple(name for name in RecordUpdate.__struct_fields__ if name != "releases")
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM calls"  # noqa: S608  constant names only
_OF_MESSAGE = f"{_SELECT} WHERE message_id = ?"
_IS_UNFINISHED = "(outcome IS NULL OR outcome = 'unknown')"
_UNFINISHED = f"{_SELECT} WHERE {_IS_UNFINISHED} ORDER BY began, rowid"
_UNFINISHED_OF_AGENT = f"""
    WITH RECURSIVE names (agent) AS (
        SELECT min(agent) FROM calls WHERE {_IS_UNFINISHED}
        UNION ALL
        SELECT (SELECT min(agent) FROM calls WHERE {_IS_UNFINISHED} AND agent > names.agent)
        FROM names WHERE agent IS NOT NULL
    )
    {_SELECT} WHERE {_IS_UNFINISHED}
    AND agent IN (SELECT agent FROM names WHERE is_wanted(CAST(agent AS BLOB)))
    ORDER BY began, rowid
"""  # noqa: S608
"""Finds each name once, by the index, instead of reading the calls of all agents."""

_OF_LABEL = (
    f"{_SELECT} WHERE label = ? "
    "ORDER BY outcome IS NOT 'not_sent' DESC, began DESC, rowid DESC LIMIT 1"
)
_OF_LABELS = (  # of the records of one label, the last is the one to return
    f"{_SELECT} WHERE label IN ({{}}) ORDER BY outcome IS NOT 'not_sent', began, rowid"
)
_INSERT = (
    f"INSERT INTO calls ({', '.join(_COLUMNS)}) "  # noqa: S608
    f"VALUES ({', '.join('?' * len(_COLUMNS))})"
)
_UPDATE = (
    f"UPDATE calls SET {', '.join(f'{name} = coalesce(?, {name})' for name in _UPDATED)}, "  # noqa: S608
    "lease_until = CASE WHEN ? THEN 0.0 ELSE lease_until END "
    "WHERE message_id = ? AND generation = ? AND outcome IS NULL"
)
_RENEW = (
    "UPDATE calls SET lease_until = ? WHERE message_id = ? AND generation = ? AND outcome IS NULL"
)
_CLAIM = (
    "UPDATE calls SET generation = generation + 1, lease_until = ?, outcome = NULL, detail = NULL "
    "WHERE message_id = ? AND (outcome = 'unknown' OR outcome IS NULL AND lease_until <= ?)"
)
_REPAIRED = tuple(name for name in _COLUMNS if name not in {"message_id", "agent", "label"})
_WITH_ROWID = _SELECT.replace("SELECT ", "SELECT rowid, ", 1)
_REPAIR = f"UPDATE calls SET {', '.join(f'{name} = ?' for name in _REPAIRED)} WHERE rowid = ?"  # noqa: S608
_LABELLED = "SELECT message_id, outcome FROM calls WHERE label = ? AND outcome IS NOT 'not_sent'"
_OUTCOME = "SELECT outcome FROM calls WHERE message_id = ?"
_NOT_SENT = "SELECT generation FROM calls WHERE message_id = ? AND outcome = 'not_sent'"
_SEND_AFTER_ALL = "DELETE FROM calls WHERE message_id = ? AND outcome = 'not_sent'"
_FORGET = (
    "DELETE FROM calls WHERE outcome IS NOT NULL AND outcome != 'unknown' AND label IS NULL "
    "AND began < ?"
)

_FIND_USE = "SELECT body, receiver FROM push_tokens WHERE name = ?"
_COUNT_USES = "SELECT count(*) FROM push_tokens"
_RECORD_USE = "INSERT INTO push_tokens (name, body, receiver, ends) VALUES (?, ?, ?, ?)"
_FORGET_USES = "DELETE FROM push_tokens WHERE ends <= ?"

_RETENTION_INTERVAL_S = 3600.0
"""Seconds between two deletions of records beyond their retention."""

_IN_MEMORY = re.compile(r"file:[^?]*\?(?:.*&)?mode=memory(?:&|\Z)")

_Job = tuple["Callable[[sqlite3.Connection, float], Any]", "asyncio.Future[Any]"]


class SqliteJournal:
    """Journal in a SQLite file; several processes of one machine may share it.

    The file holds addresses, ids and states, and content only with ``store_messages``. It is
    created readable only by its owner, and so are the ``-wal`` and ``-shm`` that SQLite keeps
    beside it. If a journal exists and allows more than ``mode``, its mode is reduced, with a
    warning of ``holdfast.security``; if one of its files belongs to a user other than this
    process's or root, or is a link, or its mode cannot be changed, the journal raises a
    `JournalError` (``"untrusted"``).

    The file is opened at the first call: a missing directory, or a file that is not a journal,
    raises a `JournalError` there, and nothing is sent. An open journal that is moved, deleted or
    replaced raises errors until `close`.

    Args:
        path: The file; it is created if it does not exist, and its directory must exist. A
            relative path is resolved now, in the working directory.
        store_messages: Whether to keep messages and answers too, so that a message whose outcome
            is unknown can be sent again by hand. False by default.
        lease: Seconds after which a call of a crashed process may be taken over; more than 0, 30
            by default.
        retention: Seconds to keep finished calls, from their start, 604,800 (a week) by default;
            None for ever. Older ones, of any process, are deleted with the first call that this
            journal records, and then once an hour. Calls without an outcome or with an unknown one
            are kept, and so are those with a label, which a run needs to recognize its messages.
        busy_timeout: Seconds to wait for another process that writes; more than 0, 5 by default.
        read_only: Whether to write nothing and create no file; writing raises a `JournalError`.
            False by default.
        mode: Mode of the files, as for ``os.chmod``: 0o600, the default, or 0o640 or 0o660 to
            share them with their group on purpose. Then they may belong to another user, if their
            group is one of this process's. Windows has no such modes.

    Attributes:
        path: The file, as it was passed.
        stores_messages: Whether messages and answers are kept.
        lease: Seconds for which a call is held.

    Raises:
        TypeError: An argument of another type.
        ValueError: A number or a mode is out of range, or the path names a database in memory
            (``":memory:"``).

    Example:
        Record calls with their messages, and keep them for a day::

            journal = holdfast.SqliteJournal("calls.db", store_messages=True, retention=86_400)
            async with holdfast.connect("http://localhost:9999", journal=journal) as agent:
                answer = await agent.ask("How far is the moon?")
                print(answer.text, await agent.pending())
            await journal.close()
    """

    @explains_unknown_options()
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        store_messages: bool = False,
        lease: float = 30.0,
        retention: float | None = 7 * 86400.0,
        busy_timeout: float = 5.0,
        read_only: bool = False,
        mode: int = 0o600,
    ) -> None:
        check_kind("path", path, (str, os.PathLike))
        if not os.fspath(path):
            text = "path must not be empty"
            raise ValueError(text)
        _check_outlasts(path)
        check_kind("store_messages", store_messages, bool)
        check_kind("read_only", read_only, bool)
        check_count("mode", mode)
        if mode not in MODES:
            text = f"mode must be 0o600, 0o640 or 0o660, not {oct(mode)}"
            raise ValueError(text)
        waits = {"lease": lease, "busy_timeout": busy_timeout}
        if retention is not None:
            waits["retention"] = retention
        for name, seconds in waits.items():
            check_number(name, seconds, "number of seconds")
            if not 0 < seconds < float("inf"):
                text = f"{name} must be a positive number of seconds, not {seconds}"
                raise ValueError(text)
        self.path = Path(path)
        self.stores_messages = store_messages
        self.lease = lease
        self._retention = retention
        self._forgot = float("-inf")
        self._file = SqliteFile(self.path, busy_timeout, mode=mode, read_only=read_only)
        self._writing = PerLoop(_Writing)

    @property
    def name(self) -> str:
        """The path of the file, as errors name it."""
        return str(self.path)

    async def begin(self, record: CallRecord, /) -> CallRecord:
        """Record a new call, replacing a call of the same message that was not sent.

        Args:
            record: The record of the new call; its times are ignored.

        Returns:
            The record as stored, which begins now and has a new lease.

        Raises:
            JournalError: It cannot be written (``"unusable"``); or a call of that message, or with
                that label to any agent, is recorded already, with an outcome other than
                ``"not_sent"`` (``"exists"``; ``message_id`` is that call's).
        """

        def insert(connection: sqlite3.Connection, now: float) -> CallRecord:
            begun = msgspec.structs.replace(
                record, began=now, lease_until=lease_end(now, self.lease)
            )
            self._forget(connection, now)
            if labelled := connection.execute(_LABELLED, (record.label,)).fetchone():
                raise already_recorded(*labelled, journal=self.name, label=record.label)
            if replaced := connection.execute(_NOT_SENT, (record.message_id,)).fetchone():
                begun = msgspec.structs.replace(begun, generation=replaced[0] + 1)
                connection.execute(_SEND_AFTER_ALL, (record.message_id,))
            try:
                connection.execute(_INSERT, [getattr(begun, name) for name in _COLUMNS])
            except sqlite3.IntegrityError as error:
                row = connection.execute(_OUTCOME, (record.message_id,)).fetchone()
                raise already_recorded(record.message_id, *row, journal=self.name) from error
            return _with_lease(begun, now)

        try:
            return await self._do(insert)
        except JournalError as error:
            error.executed = False
            raise

    def _forget(self, connection: sqlite3.Connection, now: float) -> None:
        """Delete records beyond their retention, at intervals; the clock may be set back."""
        if self._retention is not None and not 0 <= now - self._forgot < _RETENTION_INTERVAL_S:
            connection.execute(_FORGET, (now - self._retention,))
            self._forgot = now

    async def update(self, message_id: str, generation: int, update: RecordUpdate, /) -> bool:
        """Update an open record of that generation; members that are None stay unchanged.

        Args:
            message_id: The message of the call.
            generation: The generation that the record must have.
            update: The members to change.

        Returns:
            True if there is such a record. If not, the call has ended, or has another holder.

        Raises:
            JournalError: The journal cannot be written.
        """
        members = (getattr(update, name) for name in _UPDATED)
        values = (*members, update.releases, message_id, generation)
        return await self._do(
            lambda connection, _now: connection.execute(_UPDATE, values).rowcount == 1
        )

    async def renew(self, held: Sequence[tuple[str, int]], /) -> set[str]:
        """Renew leases: they begin again, with their whole duration.

        Args:
            held: Message ids, each with its generation.

        Returns:
            The ids of the messages whose records are open and of that generation.

        Raises:
            JournalError: The journal cannot be written.
        """

        def renew(connection: sqlite3.Connection, now: float) -> set[str]:
            lease_until = lease_end(now, self.lease)
            return {
                message_id
                for message_id, generation in held
                if connection.execute(_RENEW, (lease_until, message_id, generation)).rowcount
            }

        return await self._do(renew)

    async def claim(self, message_id: str, /) -> CallRecord:
        """Take the lease of an open call whose lease has ended, or of one with an unknown outcome.

        Args:
            message_id: The message of the call.

        Returns:
            The record, with a new lease, its generation increased by one, and without an unknown
            outcome and its details.

        Raises:
            JournalError: Another holder has the call (``"held"``, with ``held_until``), the call
                has ended (``"finished"``) or is not recorded (``"missing"``); or the record cannot
                be written (``"unusable"``).
        """

        def claim(connection: sqlite3.Connection, now: float) -> CallRecord:
            values = (lease_end(now, self.lease), message_id, now)
            claimed_count = connection.execute(_CLAIM, values).rowcount
            record = _first(connection, _OF_MESSAGE, message_id, now=now)
            if claimed_count and record is not None:
                return record
            raise refused_claim(message_id, record, str(self.path))

        return await self._do(claim)

    async def find(self, message_id: str, /) -> CallRecord | None:
        """Return the record of a call, open or finished; None if there is none.

        Args:
            message_id: The message of the call.

        Raises:
            JournalError: The journal cannot be read.
        """
        return await self._do(
            lambda connection, now: _first(connection, _OF_MESSAGE, message_id, now=now)
        )

    async def unfinished(self, agent: str | None = None, /) -> list[CallRecord]:
        """Return the calls without an outcome, or with an unknown one, oldest first.

        Damaged records are included, and marked by `CallRecord.damage`.

        Args:
            agent: Name of an agent, for the calls whose name has an address in common with it;
                None, the default, for all agents.

        Raises:
            JournalError: The journal cannot be read.
        """

        def is_wanted(name: bytes | None) -> bool:
            if name is None or agent is None:
                return False
            return is_same_agent(name.decode(errors="replace"), agent)

        query = _UNFINISHED if agent is None else _UNFINISHED_OF_AGENT

        def find(connection: sqlite3.Connection, now: float) -> list[CallRecord]:
            connection.create_function("is_wanted", 1, is_wanted)
            return [_whole_or_damaged(row, now) for row in connection.execute(query)]

        return await self._do(find)

    async def dismiss_damaged(self, message_id: str, /) -> bool:
        """Record that the outcome of a damaged call is not needed: it is ``"dismissed"``.

        Unreadable members of the record are replaced by defaults; its label is kept, so that a run
        does not send the message again.

        Args:
            message_id: The message of the call; "" for records whose message id cannot be read.

        Returns:
            True if there was such a record.

        Raises:
            JournalError: The journal cannot be written.
        """

        def dismiss(connection: sqlite3.Connection, now: float) -> bool:
            rows = connection.execute(_WITH_ROWID).fetchall()
            records = [(rowid, _whole_or_damaged(row, now)) for rowid, *row in rows]
            damaged = [
                (rowid, record)
                for rowid, record in records
                if record.damage is not None
                and record.outcome in {None, "unknown"}
                and record.message_id == message_id
            ]
            for rowid, record in damaged:
                dismissed = msgspec.structs.replace(
                    record, outcome="dismissed", detail=record.damage, lease_until=0.0
                )
                values = [getattr(dismissed, name) for name in _REPAIRED]
                connection.execute(_REPAIR, (*values, rowid))
            return bool(damaged)

        return await self._do(dismiss)

    async def find_label(self, label: str, /) -> CallRecord | None:
        """Return the record of a label, open or finished, to any agent; None if there is none.

        Of several records, the record whose message may have been sent; otherwise the newest.

        Args:
            label: The label.

        Raises:
            JournalError: The journal cannot be read.
        """
        return await self._do(
            lambda connection, now: _first(connection, _OF_LABEL, label, now=now)
        )

    async def find_labels(self, labels: Sequence[str], /) -> dict[str, CallRecord]:
        """Return the records of labels, as `find_label` does; those without one are left out.

        Args:
            labels: The labels, at most some hundreds.

        Raises:
            JournalError: The journal cannot be read.
        """
        query = _OF_LABELS.format(", ".join("?" * len(labels)))

        def find(connection: sqlite3.Connection, now: float) -> dict[str, CallRecord]:
            records = [_record(row, now) for row in connection.execute(query, labels)]
            return {record.label: record for record in records if record.label is not None}

        return await self._do(find)

    async def use_token(
        self, name: bytes, use: TokenUse, /, *, expires_in: float, most: int
    ) -> TokenUse | None:
        """Record the use of a signed token, unless a use is recorded already.

        Args:
            name: Name that identifies the token.
            use: The use to record.
            expires_in: Seconds until the token expires; uses of expired tokens are deleted.
            most: Largest number of uses to store.

        Returns:
            The recorded use, this one or the earlier one; None if there are too many.

        Raises:
            JournalError: The journal cannot be written.
        """

        def record(connection: sqlite3.Connection, now: float) -> TokenUse | None:
            connection.execute(_FORGET_USES, (now,))
            if earlier := connection.execute(_FIND_USE, (name,)).fetchone():
                return TokenUse(*earlier)
            if connection.execute(_COUNT_USES).fetchone()[0] >= most:
                return None
            connection.execute(_RECORD_USE, (name, *use, now + expires_in))
            return use

        return await self._do(record)

    async def check(self) -> None:
        """Read the whole file, and check its integrity; this takes a while.

        Raises:
            JournalError: The file cannot be read, or is ``"damaged"``.
        """

        def check(connection: sqlite3.Connection, _now: float) -> None:
            (report,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if report != "ok":
                text = f"the journal {self.path} is damaged: {' '.join(report.split())}"
                raise JournalError(text, reason="damaged")

        await self._do(check)

    async def close(self) -> None:
        """Write pending updates, and close the file. Can be called twice."""
        if self._file.is_used:
            with contextlib.suppress(JournalError):
                await self._do(_nothing)  # runs after all earlier operations
            await self._file.close()

    # ── Transactions ─────────────────────────────────────────────────────────────────────────

    async def _do(self, work: Callable[[sqlite3.Connection, float], T]) -> T:
        """Run an operation in the next transaction, and wait until it is on the disk.

        Args:
            work: The operation, which gets the wall time in the transaction, in seconds: it may
                have waited for other processes that write, longer than a lease.
        """
        writing = self._writing.here()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        writing.jobs.append((work, done))
        if not writing.is_busy:
            writing.is_busy = True
            self._write(writing)
        return await done

    def _write(self, writing: _Writing) -> None:
        """Start a transaction of all pending jobs; later jobs go into the next one."""
        jobs, writing.jobs = writing.jobs, []
        clock = wall_clock()
        written = self._file.transact([partial(_outcome, work, clock) for work, _ in jobs])

        def answer(written: asyncio.Future[list[Any]]) -> None:
            outcomes = _outcomes(written, len(jobs))
            for (_, done), outcome in zip(jobs, outcomes, strict=True):
                if done.done():
                    continue  # the caller was cancelled
                if isinstance(outcome, BaseException):
                    done.set_exception(outcome)
                else:
                    done.set_result(outcome)
            if writing.jobs:
                self._write(writing)
            else:
                writing.is_busy = False

        written.add_done_callback(answer)


def _check_outlasts(path: str | os.PathLike[str]) -> None:
    """Refuse SQLite's names of databases in memory, which would become files of these names."""
    name = str(path)
    if name.startswith((":memory:", "file::memory:")) or _IN_MEMORY.match(name):
        text = (
            "the journal must be a file, such as 'calls.db', not {name!r}, which is lost with "
            "the process"
        )
        raise ValueError(text)


class _Writing:
    """The pending operations of one event loop.

    Attributes:
        jobs: The operations, each with the future of its result.
        is_busy: Whether a transaction is being written.
    """

    def __init__(self) -> None:
        self.jobs: list[_Job] = []
        self.is_busy = False


def _outcome(
    work: Callable[[sqlite3.Connection, float], T],
    clock: Callable[[], float],
    connection: sqlite3.Connection,
) -> T | JournalError:
    try:
        return work(connection, clock())
    except JournalError as error:
        return error
    except UnicodeEncodeError as error:  # a lone surrogate; the other jobs can be written
        failure = JournalError(f"the journal cannot store this text: {error}", executed=False)
        failure.__cause__ = error
        return failure
    except OverflowError as error:  # a number beyond 64 bits
        failure = JournalError(f"a number is too large for the journal: {error}", executed=False)
        failure.__cause__ = error
        return failure
    except msgspec.ValidationError as error:  # of an older Holdfast that still runs, or by hand
        text = f"the journal contains an unreadable record: {error}"
        failure = JournalError(text, reason="damaged")
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


def _record(row: Sequence[Any], now: float) -> CallRecord:
    members = dict(zip(_COLUMNS, row, strict=True))
    members["traceparent"] = valid_traceparent(members["traceparent"])
    record = msgspec.convert(members, CallRecord, strict=False)
    return _with_lease(record, now)


def _with_lease(record: CallRecord, now: float) -> CallRecord:
    lease_left = 0.0 if record.outcome else max(0.0, record.lease_until - now)
    return msgspec.structs.replace(record, lease_left=lease_left) if lease_left else record


def _whole_or_damaged(row: Sequence[Any], now: float) -> CallRecord:
    """Return the record of a row; of a damaged one, its readable members."""
    try:
        return _record(row, now)
    except msgspec.ValidationError as error:
        damage = str(error)
    readable: dict[str, Any] = {"message_id": "", "agent": "", "began": 0.0, "damage": damage}
    for name, value in zip(_COLUMNS, row, strict=True):
        with contextlib.suppress(msgspec.ValidationError):
            msgspec.convert({**readable, name: value}, CallRecord, strict=False)
            readable[name] = value
    return _with_lease(msgspec.convert(readable, CallRecord, strict=False), now)


def _first(
    connection: sqlite3.Connection, query: str, *values: str, now: float
) -> CallRecord | None:
    row = connection.execute(query, values).fetchone()
    return None if row is None else _record(row, now)


def _nothing(_connection: sqlite3.Connection, _now: float) -> None:
    """Do nothing."""
