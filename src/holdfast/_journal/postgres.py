"""A journal in PostgreSQL, which the processes of several machines share.

Rules:
- When a method returns, its result is on the server's disk (``synchronous_commit``).
- The server's clock decides when leases end.
- Each write carries an id, so that it can be repeated after a lost connection:
  see `holdfast._journal.postgres_server`.
"""

from __future__ import annotations

import logging
import time
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._journal.agent_name import NEXT_ADDRESS, addresses_in
from holdfast._journal.postgres_address import parse_address
from holdfast._journal.protocol import (
    CallRecord,
    RecordUpdate,
    TokenUse,
    already_recorded,
    damaged,
    refused_claim,
    valid_traceparent,
)
from holdfast._model.extras import missing_extra
from holdfast._model.settings import check_kind, check_number, explains_unknown_options
from holdfast.errors import JournalError

try:
    import psycopg
    from psycopg import errors

    from holdfast._journal.postgres_server import PostgresServer
except ModuleNotFoundError as error:
    raise missing_extra("PostgresJournal", "postgres", library="psycopg") from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._journal.postgres_server import Connection

__all__ = ["PostgresJournal"]

logger = logging.getLogger("holdfast")

_STORED = tuple(
    name
    for name in CallRecord.__struct_fields__
    if name not in {"began", "lease_until", "lease_left", "damage"}
)
_UPDATED = tuple(name for name in RecordUpdate.__struct_fields__ if name != "releases")

_NOW = "clock_timestamp()"  # also after a wait for the lock of a row
_STATEMENT_TIME = "statement_timestamp()"  # unlike `_NOW` searched for by an index
_LEASE_END = f"least({_NOW} + make_interval(secs => %(lease)s), '9999-12-31'::timestamptz)"
_READ = (
    ", ".join(_STORED) + ", extract(epoch FROM began)::float8, "
    "greatest(0, extract(epoch FROM lease_until))::float8, "
    "CASE WHEN outcome IS NULL "
    f"THEN greatest(0, extract(epoch FROM lease_until - {_NOW})) ELSE 0 END::float8"
)
_READ_MEMBERS = (*_STORED, "began", "lease_until", "lease_left")

_SELECT = f"SELECT {_READ} FROM {{calls}} "  # noqa: S608  constant names only
_OF_MESSAGE = _SELECT + "WHERE message_id = %(message_id)s"
_IS_UNFINISHED = "(outcome IS NULL OR outcome = 'unknown')"
_UNFINISHED = _SELECT + f"WHERE {_IS_UNFINISHED} ORDER BY began"
_UNFINISHED_OF_AGENT = f"""
    WITH RECURSIVE names (agent) AS (
        SELECT min(agent) FROM {{calls}} WHERE {_IS_UNFINISHED}
        UNION ALL
        SELECT (SELECT min(agent) FROM {{calls}} WHERE {_IS_UNFINISHED} AND agent > names.agent)
        FROM names WHERE agent IS NOT NULL
    )
    {_SELECT} WHERE {_IS_UNFINISHED} AND agent = ANY (ARRAY (
        SELECT agent FROM names WHERE regexp_split_to_array(agent, %(space)s) && %(addresses)s
    ))
    ORDER BY began
"""  # noqa: S608
"""Finds each name once, by the index, instead of reading the calls of all agents."""

_OF_LABEL = (
    _SELECT + "WHERE label = %(label)s "
    "ORDER BY outcome IS DISTINCT FROM 'not_sent' DESC, began DESC LIMIT 1"
)
_OF_LABELS = (  # of the records of one label, the last is the one to return
    _SELECT + "WHERE label = ANY (%(labels)s) ORDER BY outcome IS DISTINCT FROM 'not_sent', began"
)
_WRITTEN = (*_STORED, "began", "lease_until", "written_by")
_BEGIN = (
    f"INSERT INTO {{calls}} ({', '.join(_WRITTEN)}) "  # noqa: S608
    f"VALUES ({', '.join(f'%({name})s' for name in _STORED)}, {_NOW}, {_LEASE_END}, %(writer)s) "
    "ON CONFLICT (message_id) DO UPDATE "
    f"SET {', '.join(f'{name} = excluded.{name}' for name in _WRITTEN if name != 'generation')}, "
    "generation = calls.generation + "
    "CASE WHEN calls.written_by = excluded.written_by THEN 0 ELSE 1 END "
    "WHERE calls.outcome = 'not_sent' OR calls.written_by = excluded.written_by "
    f"RETURNING {_READ}"
)
_UPDATE = (
    f"UPDATE {{calls}} SET {', '.join(f'{name} = coalesce(%({name})s, {name})' for name in _UPDATED)}, "  # noqa: S608, E501
    "lease_until = CASE WHEN %(releases)s THEN 'epoch' ELSE lease_until END, "
    "written_by = %(writer)s "
    "WHERE message_id = %(message_id)s AND generation = %(generation)s "
    "AND (outcome IS NULL OR written_by = %(writer)s)"
)
_RENEW = (
    f"UPDATE {{calls}} SET lease_until = {_LEASE_END} "  # noqa: S608
    "FROM unnest(%(messages)s::text[], %(generations)s::integer[]) AS held (message, number) "
    "WHERE message_id = held.message AND generation = held.number AND outcome IS NULL "
    "RETURNING message_id"
)
_CLAIM = (
    "UPDATE {calls} SET written_by = %(writer)s, "  # noqa: S608
    "generation = generation + CASE WHEN written_by = %(writer)s THEN 0 ELSE 1 END, "
    f"lease_until = {_LEASE_END}, outcome = NULL, detail = NULL "
    "WHERE message_id = %(message_id)s AND (outcome = 'unknown' "
    f"OR outcome IS NULL AND (lease_until <= {_NOW} OR written_by = %(writer)s)) "
    f"RETURNING {_READ}"
)
_FORGET = (
    "DELETE FROM {calls} WHERE message_id IN (SELECT message_id FROM {calls} "  # noqa: S608
    "WHERE outcome IS NOT NULL AND outcome != 'unknown' AND label IS NULL "
    f"AND began < {_STATEMENT_TIME} - make_interval(secs => %(retention)s) LIMIT 10000)"
)
_FIND_USE = f"SELECT body, receiver FROM {{push_tokens}} WHERE name = %(name)s AND ends > {_NOW}"  # noqa: S608
_FORGET_USES = f"DELETE FROM {{push_tokens}} WHERE ends <= {_STATEMENT_TIME}"  # noqa: S608
_RECORD_USE = (
    "INSERT INTO {push_tokens} (name, body, receiver, ends) "  # noqa: S608
    f"SELECT %(name)s, %(body)s, %(receiver)s, {_NOW} + make_interval(secs => %(expires_in)s) "
    "WHERE (SELECT count(*) FROM {push_tokens}) < %(most)s ON CONFLICT DO NOTHING"
)

_RETENTION_INTERVAL_S = 3600.0
"""Seconds between two deletions of records beyond their retention."""


class PostgresJournal:
    """Journal in a PostgreSQL database, which many machines may share; needs ``postgres``.

    The tables are created, in a schema of their own, at the first call; a role without the right
    to do so needs them to be there. Every statement commits by itself, so that a pooler
    such as PgBouncer can assign connections by session or by transaction. The
    database holds addresses, ids and states, and content only with ``store_messages``.

    Leases are measured by the server's clock: the clocks of the machines may differ.

    Args:
        dsn: The connection string, as libpq reads it: a URI such as
            ``"postgresql://user@db.example/agents?sslmode=verify-full"`` or keywords and values.
            The password belongs into ``PGPASSFILE``, ``PGSERVICEFILE`` or ``PGPASSWORD``. The
            query of a URI may also have ``schema`` (of the tables, ``holdfast`` by default) and
            ``pool_size`` (connections of this journal in one process, from 1 to 100, 4 by
            default). Connecting fails after 10 s (``connect_timeout``), and a connection after
            20 s without acknowledgements (``tcp_user_timeout``), unless the string sets others.
        store_messages: Whether to keep messages and answers too. False by default.
        lease: Seconds after which a call of a crashed process may be taken over; more than 0, 30
            by default.
        retention: Seconds to keep finished calls without a label, from their start, 604,800 (a
            week) by default; None for ever. Older ones are deleted with the first call that this
            journal records, and then once an hour, 10,000 at a time. Calls without an outcome or
            with an unknown one are kept.
        retry_for: Seconds for which an operation is repeated after a lost connection, as while
            the server restarts; not negative, 10 by default. A first connection is not repeated.
        read_only: Whether to write nothing; writing raises a `JournalError`. False by default.

    Attributes:
        stores_messages: Whether messages and answers are kept.
        lease: Seconds for which a call is held.

    Raises:
        TypeError: An argument of another type.
        ValueError: A number is out of range, or the connection string is not valid.
        ImportError: The extra is not installed.

    Example:
        Share a run among the machines that execute this program::

            journal = "postgresql://agents@db.example/agents"
            async with holdfast.connect("http://localhost:9999", journal=journal) as agent:
                async for result in agent.run(["How far is the moon?"], run_id="moon"):
                    print(result.key, result.error or result.answer.text)
    """

    @explains_unknown_options()
    def __init__(
        self,
        dsn: str,
        *,
        store_messages: bool = False,
        lease: float = 30.0,
        retention: float | None = 7 * 86400.0,
        retry_for: float = 10.0,
        read_only: bool = False,
    ) -> None:
        check_kind("dsn", dsn, str)
        check_kind("store_messages", store_messages, bool)
        check_kind("read_only", read_only, bool)
        waits = {"lease": lease} if retention is None else {"lease": lease, "retention": retention}
        for name, seconds in {**waits, "retry_for": retry_for}.items():
            check_number(name, seconds, "number of seconds")
            is_allowed = seconds >= 0 if name == "retry_for" else seconds > 0
            if not is_allowed or seconds == float("inf"):
                text = f"{name} must be a positive number of seconds, not {seconds}"
                raise ValueError(text)
        self.stores_messages = store_messages
        self.lease = lease
        self._retention = retention
        self._is_read_only = read_only
        self._server = PostgresServer(parse_address(dsn), retry_for=retry_for, read_only=read_only)
        self._forget_at = float("-inf")

    @property
    def name(self) -> str:
        """The journal's address without its password, as errors name it."""
        return self._server.shown

    def __repr__(self) -> str:
        return f"PostgresJournal({self._server.shown!r})"

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
        self._check_writable()
        values = {name: getattr(record, name) for name in _STORED}
        values |= {"lease": self.lease, "writer": uuid.uuid4()}

        def insert(connection: Connection) -> CallRecord | None:
            try:
                begun = self._first(connection, _BEGIN, values)
            except errors.UniqueViolation:
                return None  # of the label
            self._forget(connection)
            return begun

        try:
            begun = await self._server.run(insert)
            if begun is not None:
                return begun
            earlier = await self._earlier(record)
        except JournalError as error:
            error.executed = False
            raise
        if earlier is None or earlier.outcome == "not_sent":  # since then
            return await self.begin(record)
        is_label = earlier.message_id != record.message_id
        raise already_recorded(
            earlier.message_id,
            earlier.outcome,
            journal=self.name,
            label=record.label if is_label else None,
        )

    async def _earlier(self, record: CallRecord) -> CallRecord | None:
        """Return the call that has the message or the label of a new one."""
        if record.label is not None:
            labelled = await self.find_label(record.label)
            if labelled is not None and labelled.outcome != "not_sent":
                return labelled
        return await self.find(record.message_id)

    def _forget(self, connection: Connection) -> None:
        """Delete records beyond their retention, at intervals."""
        now = time.monotonic()
        if self._retention is None or now < self._forget_at:
            return
        self._forget_at = now + _RETENTION_INTERVAL_S
        forget = self._server.statement(_FORGET)
        try:
            connection.execute(forget, {"retention": self._retention})
        except psycopg.Error as error:  # the call is recorded, and the next begin tries again
            self._forget_at = float("-inf")
            logger.warning("%s: old records were not deleted: %s", self._server.shown, error)

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
        self._check_writable()
        values = {name: getattr(update, name) for name in (*_UPDATED, "releases")}
        values |= {"message_id": message_id, "generation": generation, "writer": uuid.uuid4()}
        statement = self._server.statement(_UPDATE)
        return await self._server.run(
            lambda connection: connection.execute(statement, values).rowcount == 1
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
        self._check_writable()
        ordered = sorted(held)  # so that two renewals never wait for each other in a circle
        values = {
            "messages": [message_id for message_id, _ in ordered],
            "generations": [generation for _, generation in ordered],
            "lease": self.lease,
        }
        statement = self._server.statement(_RENEW)
        return await self._server.run(
            lambda connection: {name for (name,) in connection.execute(statement, values)}
        )

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
        self._check_writable()
        values = {"message_id": message_id, "lease": self.lease, "writer": uuid.uuid4()}
        claimed = await self._find_first(_CLAIM, values)
        if claimed is None:
            raise refused_claim(message_id, await self.find(message_id), self._server.shown)
        return claimed

    async def find(self, message_id: str, /) -> CallRecord | None:
        """Return the record of a call, open or finished; None if there is none.

        Args:
            message_id: The message of the call.

        Raises:
            JournalError: The journal cannot be read.
        """
        return await self._find_first(_OF_MESSAGE, {"message_id": message_id})

    async def unfinished(self, agent: str | None = None, /) -> list[CallRecord]:
        """Return the calls without an outcome, or with an unknown one, oldest first.

        Args:
            agent: Name of an agent, for the calls whose name has an address in common with it;
                None, the default, for all agents.

        Raises:
            JournalError: The journal cannot be read.
        """
        query = self._server.statement(_UNFINISHED if agent is None else _UNFINISHED_OF_AGENT)
        addresses = [] if agent is None else addresses_in(agent)
        values = {"addresses": addresses, "space": NEXT_ADDRESS.pattern}
        return await self._server.run(
            lambda connection: [_record(row) for row in connection.execute(query, values)]
        )

    async def find_label(self, label: str, /) -> CallRecord | None:
        """Return the record of a label, open or finished, to any agent; None if there is none.

        Of several records, the record whose message may have been sent; otherwise the newest.

        Args:
            label: The label.

        Raises:
            JournalError: The journal cannot be read.
        """
        return await self._find_first(_OF_LABEL, {"label": label})

    async def find_labels(self, labels: Sequence[str], /) -> dict[str, CallRecord]:
        """Return the records of labels, as `find_label` does; those without one are left out.

        Args:
            labels: The labels, at most some hundreds.

        Raises:
            JournalError: The journal cannot be read.
        """
        query, values = self._server.statement(_OF_LABELS), {"labels": list(labels)}
        records = await self._server.run(
            lambda connection: [_record(row) for row in connection.execute(query, values)]
        )
        return {record.label: record for record in records if record.label is not None}

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
        self._check_writable()
        values = {"name": name, **use._asdict(), "expires_in": expires_in, "most": most}
        statements = [
            self._server.statement(text)
            for text in (_FIND_USE, _FORGET_USES, _RECORD_USE, _FIND_USE)
        ]

        def record(connection: Connection) -> TokenUse | None:
            find, forget, insert, find_again = statements
            earlier = connection.execute(find, values).fetchone()
            if earlier is None:
                connection.execute(forget)
                connection.execute(insert, values)
                earlier = connection.execute(find_again, values).fetchone()
            return None if earlier is None else TokenUse(*earlier)

        return await self._server.run(record)

    async def check(self) -> None:
        """Check that the journal can be read.

        Raises:
            JournalError: It cannot be reached, or the role has no rights to it.
        """
        await self.find("")

    async def close(self) -> None:
        """Write pending updates, and close the connections. Can be called twice."""
        await self._server.close()

    def _check_writable(self) -> None:
        if self._is_read_only:
            text = f"the journal {self._server.shown} was opened with read_only=True"
            raise JournalError(text, reason="read_only", executed=False)

    async def _find_first(self, text: str, values: dict[str, Any]) -> CallRecord | None:
        return await self._server.run(lambda connection: self._first(connection, text, values))

    def _first(
        self, connection: Connection, text: str, values: dict[str, Any]
    ) -> CallRecord | None:
        row = connection.execute(self._server.statement(text), values).fetchone()
        return None if row is None else _record(row)


def _record(row: Sequence[Any]) -> CallRecord:
    members = dict(zip(_READ_MEMBERS, row, strict=True))
    members["traceparent"] = valid_traceparent(members["traceparent"])
    try:
        return msgspec.convert(members, CallRecord, strict=False)
    except msgspec.ValidationError as error:  # of a newer Holdfast, or written by hand
        raise damaged(members["message_id"], error) from error
