"""Measure journals in SQLite and PostgreSQL, side by side.

    python benchmarks/journals.py [--rounds 5] [--seconds 1.0]
                                  [--processes 1 2 4] [--records 1000 100000]

- Calls: SendMessage per second of 1, 2 and 4 processes together, which share one journal, each
  with 32 in flight, to an agent that answers at once. Every call is recorded durably before it is
  sent, and again with its outcome.
- Operations: milliseconds of one operation of a journal that has few or many finished records, and
  100 open ones of 10 agents; half of the finished ones belong to runs. ``unfinished`` is what
  `Client.pending` reads.
- Memory: by how much this process grew while it used the journals.

All journals take turns in each round; a figure is the median of the rounds, and a ratio is taken
within each of them. The PostgreSQL server is started for the benchmark, on a Unix socket, with the
settings of its distribution (``fsync=on``); ``--postgres`` names another. Both stores lie in
``TMPDIR``. ``--records 1000 1000000`` fills the larger ones with a million records.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sqlite3
import sys
import time
from collections import defaultdict
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
from processes import Agent, Worker
from worker import resident_memory

from holdfast import PostgresJournal, SqliteJournal
from holdfast.errors import JournalError
from holdfast.extend import CallRecord, RecordUpdate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.extend import Journal

IN_FLIGHT = 32
OPEN_CALLS = 100
OPEN_AGENTS = 10
REPEATED = 20
"""Operations of each kind in one round."""

SQLITE, POSTGRES = "SQLite", "PostgreSQL"

_COLUMNS = "message_id, agent, began, is_own_context, label, outcome, generation, lease_until"
_FILL_SQLITE = f"""
    WITH RECURSIVE numbers (number) AS (
        SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < :records
    )
    INSERT INTO calls ({_COLUMNS})
    SELECT 'old-' || number, 'http://old.test', strftime('%s', 'now'), 0,
        CASE WHEN number % 2 THEN 'run:' || number END, 'answered', 1, 0.0
    FROM numbers
"""  # noqa: S608  constant names only
_FILL_POSTGRES = f"""
    INSERT INTO {{schema}}.calls ({_COLUMNS}, written_by)
    SELECT 'old-' || number, 'http://old.test', now(), false,
        CASE WHEN mod(number, 2) = 1 THEN 'run:' || number END, 'answered', 1, 'epoch',
        gen_random_uuid()
    FROM generate_series(1, %(records)s) AS number
"""  # noqa: S608


def agent(number: int) -> str:
    """Return the name of an agent with open calls."""
    return f"http://agent-{number % OPEN_AGENTS}.test"


class Stores:
    """Where the benchmark makes journals.

    Args:
        dsn: The address of a PostgreSQL database, to which a query can be added.
        directory: The directory of the files.
    """

    def __init__(self, dsn: str, directory: str) -> None:
        self._dsn = f"{dsn}{'&' if '?' in dsn else '?'}"
        self._directory = Path(directory)
        self._schemas: list[str] = []

    def address(self, store: str) -> str:
        """Return the address of a new journal."""
        name = f"benchmark_{uuid4().hex}"
        if store == SQLITE:
            return f"sqlite:///{self._directory / name}.db"
        self._schemas.append(name)
        return f"{self._dsn}schema={name}"

    async def filled(self, store: str, records: int) -> Journal:
        """Return a new journal with finished records, and with open ones."""
        address = self.address(store)
        journal: Journal
        if store == SQLITE:
            path = address.removeprefix("sqlite:///")
            journal = SqliteJournal(path)
            await journal.find("")
            with contextlib.closing(sqlite3.connect(path)) as connection:
                connection.execute(_FILL_SQLITE, {"records": records})
                connection.commit()
        else:
            journal = PostgresJournal(address)
            await journal.find("")
            with psycopg.connect(self._dsn.rstrip("?&"), autocommit=True) as database:
                schema = self._schemas[-1]
                database.execute(
                    _FILL_POSTGRES.format(schema=schema).encode(), {"records": records}
                )
                database.execute(f"VACUUM ANALYZE {schema}.calls".encode())
        for number in range(OPEN_CALLS):
            await journal.begin(CallRecord(message_id=f"open-{number}", agent=agent(number)))
        return journal

    def remove(self) -> None:
        """Remove the journals in PostgreSQL."""
        with psycopg.connect(self._dsn.rstrip("?&"), autocommit=True) as database:
            for schema in self._schemas:
                database.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


# ── Calls ────────────────────────────────────────────────────────────────────────────────────


async def measure_calls(stores: Stores, rounds: int, seconds: float, processes: list[int]) -> None:
    """Measure calls per second of several processes, and print them."""
    rates: dict[tuple[str, int], list[float]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        static = await Agent.start("static_agent.py")
        stack.push_async_callback(static.stop)
        url = await static.line()
        workers: dict[str, list[Worker]] = {SQLITE: [], POSTGRES: []}
        for store, started in workers.items():
            address = stores.address(store)
            for _ in range(max(processes)):
                worker = await Worker.start("journal_worker.py", address)
                stack.push_async_callback(worker.stop)
                await worker.do("open", url=url)
                started.append(worker)
        for number in range(rounds):
            for count in processes:
                for store in sorted(workers, reverse=bool(number % 2)):
                    done = await asyncio.gather(
                        *(
                            worker.do("calls", in_flight=IN_FLIGHT, seconds=seconds)
                            for worker in workers[store][:count]
                        )
                    )
                    rate = sum(one["calls"] / one["seconds"] for one in done)
                    rates[store, count].append(rate)
    print(f"\n  {'calls/s':<24}{SQLITE:>12}{POSTGRES:>12}{'ratio':>9}")
    for count in processes:
        figures = [rates[store, count] for store in (SQLITE, POSTGRES)]
        ratio = median(second / first for first, second in zip(*figures, strict=True))
        shown = "".join(f"{median(figure):>12,.0f}" for figure in figures)
        print(f"    {count} process{'es' if count > 1 else '':<20}"[:26] + f"{shown}{ratio:>9.2f}")


# ── Operations ───────────────────────────────────────────────────────────────────────────────


async def measure_operations(stores: Stores, rounds: int, sizes: list[int]) -> None:
    """Measure each operation on journals with few and with many records, and print them."""
    taken: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    grown: dict[tuple[str, int], int] = defaultdict(int)
    journals: dict[tuple[str, int], Journal] = {}
    try:
        for size in sizes:
            for store in (SQLITE, POSTGRES):
                journals[store, size] = await stores.filled(store, size)
        for number in range(rounds + 1):
            for (store, size), journal in journals.items():
                before = resident_memory()
                round_of = await _operations(journal, number)
                if number:  # the first round warms up
                    grown[store, size] += resident_memory() - before
                    for name, milliseconds in round_of.items():
                        taken[name, store, size].append(milliseconds)
    finally:
        for journal in journals.values():
            await journal.close()
    for store in (SQLITE, POSTGRES):
        columns = "".join(f"{size:>14,}" for size in sizes)
        print(f"\n  {f'ms, {store}, finished records':<34}{columns}{'ratio':>9}")
        for name in OPERATIONS:
            figures = [taken[name, store, size] for size in sizes]
            ratio = median(many / few for few, many in zip(figures[0], figures[-1], strict=True))
            shown = "".join(f"{median(figure):>14.2f}" for figure in figures)
            print(f"    {name:<32}{shown}{ratio:>9.2f}")
        shown = "".join(f"{grown[store, size] / 1e6:>14.1f}" for size in sizes)
        print(f"    {'MB that the process grew':<32}{shown}")


OPERATIONS = ("begin", "begin, refused", "find_label", "renew", "claim", "update", "unfinished")


async def _operations(journal: Journal, number: int) -> dict[str, float]:
    """Measure each operation some times; return the medians in milliseconds."""
    names = [f"new-{number}-{index}" for index in range(REPEATED)]

    async def unfinished(_name: str) -> None:
        found = await journal.unfinished(agent(0))
        assert len(found) == OPEN_CALLS / OPEN_AGENTS

    async def refused(_name: str) -> None:
        try:
            await journal.begin(CallRecord(message_id="new", agent="http://a.test", label="run:1"))
        except JournalError:
            return
        raise AssertionError

    async def begin(name: str) -> object:
        return await journal.begin(CallRecord(message_id=name, agent="http://a.test", label=name))

    return {
        "begin": await _timed(names, begin),
        "begin, refused": await _timed(names, refused),
        "find_label": await _timed(names, journal.find_label),
        "renew": await _timed(names, lambda name: journal.renew([(name, 1)])),
        "release": await _timed(
            names, lambda name: journal.update(name, 1, RecordUpdate(releases=True))
        ),
        "claim": await _timed(names, journal.claim),
        "update": await _timed(
            names, lambda name: journal.update(name, 2, RecordUpdate(outcome="answered"))
        ),
        "unfinished": await _timed(names, unfinished),
    }


async def _timed(names: list[str], work: Callable[[str], Awaitable[object]]) -> float:
    taken: list[float] = []
    for name in names:
        began = time.perf_counter()
        await work(name)
        taken.append(time.perf_counter() - began)
    return median(taken) * 1000


# ── The program ──────────────────────────────────────────────────────────────────────────────


def main() -> None:
    """Parse the options, and measure."""
    parser = argparse.ArgumentParser(description="Measure the journals side by side.")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured")
    parser.add_argument("--seconds", type=float, default=1.0, help="of calls in each turn")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--records", type=int, nargs="+", default=[1000, 100_000])
    parser.add_argument("--postgres", help="the address of a database; default: one is started")
    options = parser.parse_args()
    with ExitStack() as stack:
        dsn = options.postgres
        if dsn is None:
            sys.path.append(str(Path(__file__).parents[1]))
            from tests.kit.postgres_server import Postgres

            server = Postgres(fsync="on")
            stack.callback(server.close)
            dsn = server.dsn
        stores = Stores(dsn, stack.enter_context(TemporaryDirectory()))
        stack.callback(stores.remove)
        print("Journals side by side: SQLite (synchronous=FULL) and PostgreSQL (fsync=on)")
        asyncio.run(measure_calls(stores, options.rounds, options.seconds, options.processes))
        asyncio.run(measure_operations(stores, options.rounds, options.records))


if __name__ == "__main__":
    main()
