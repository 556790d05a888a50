"""Measure a bulk run that several processes share through a journal in PostgreSQL.

    python benchmarks/shared_runs.py [--items 320] [--processes 1 2 4] [--work 1.0]
                                     [--recorded 0] [--results]

An agent works ``--work`` seconds on each message. The processes have 16 messages in flight each,
and share one run of ``--items`` messages with ``Client.run(shared=True)``. The figures are
messages per second of all processes together, the smallest and the largest share of a process, and
by how much a process grew after the first tenth of the run. The benchmark fails if a message was
executed twice, or has no result. The server is started for the benchmark, with ``fsync=on``.

The journal has the results of the first ``--recorded`` messages before the processes start, as if
they had sent these messages earlier: they pass over them, and send the rest. Each record is a copy
of the record of a message that the library has sent, with ids, a label and a digest of its own. So
``--items 1000000 --recorded 980000 --work 0 --processes 1`` shows in minutes that memory stays
flat. ``--results`` stores messages and answers too, and measures ``holdfast run results`` for each
run: its time, and the largest memory of its process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
from processes import Child, environment
from psycopg.rows import dict_row
from worker import resident_memory

from holdfast import PostgresJournal, connect
from holdfast._model.digest import message_digest
from holdfast.testing import FakeAgent, LoopbackServer, completes
from holdfast.types import Message, Part, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.testing import Plan, Turn

IN_FLIGHT = 16
_SCRIPT = Path(__file__).name
_MAIN = "import sys; from holdfast.cli import main; sys.exit(main())"


@dataclass(frozen=True)
class Run:
    """What is measured.

    Attributes:
        items: The number of messages.
        recorded: How many of them, from the first on, the journal has already.
        work: Seconds that the agent works on each.
        stores: Whether the journal stores messages and answers.
    """

    items: int
    recorded: int
    work: float
    stores: bool


async def agent(work: float) -> None:
    """Serve the agent until the end of standard input; answer each line with the executions."""
    received = repeated = 0
    seen = bytearray()

    def behave(turn: Turn) -> Plan:
        nonlocal received, repeated
        number = int(turn.message.text)
        if number >= len(seen):
            seen.extend(bytes(number + 1 - len(seen)))
        received += 1
        repeated += seen[number]
        seen[number] = 1
        return completes("done", after=work)

    async with LoopbackServer(FakeAgent(behave)) as server:
        print(server.url, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps({"received": received, "repeated": repeated}), flush=True)
            received = repeated = 0
            seen.clear()


async def share(url: str, dsn: str, run_id: str, run: Run) -> dict[str, Any]:
    """Take part in a run.

    Args:
        url: The agent.
        dsn: The journal.
        run_id: The name of the run in the journal.
        run: What is measured.

    Returns:
        The numbers of results, errors and messages left to others; by how much the process grew;
        and the seconds in which it passed over the recorded messages.
    """
    results = errors = before = 0
    passed, began = 0.0, time.perf_counter()

    def advance(_key: str | None = None) -> None:
        nonlocal before, passed
        if not before and results + shared.finished_elsewhere >= run.items / 10:
            before = resident_memory()
        if not passed and shared.finished_elsewhere >= run.recorded > 0:
            passed = time.perf_counter() - began

    journal = PostgresJournal(dsn, store_messages=run.stores)
    try:
        async with connect(url, journal=journal) as client:
            shared = client.run(
                (str(number) for number in range(run.items)),
                run_id=run_id,
                shared=True,
                concurrency=IN_FLIGHT,
                poll_interval=0.2,
            )
            shared.on_finished_elsewhere = advance
            async for result in shared:
                results += 1
                errors += result.error is not None
                advance()
            grown = resident_memory() - before if before else 0
    finally:
        await journal.close()
    return {
        "results": results,
        "errors": errors,
        "elsewhere": shared.finished_elsewhere,
        "grown": grown,
        "passed": passed,
    }


# ── Recorded messages ────────────────────────────────────────────────────────────────────────


async def record(url: str, dsn: str, run_id: str, run: Run) -> None:
    """Fill a journal with the records of the first messages of a run."""
    await share(url, dsn, run_id, replace(run, items=1, recorded=0))
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as database:
        select = "SELECT * FROM holdfast.calls WHERE label = %s"
        sent = database.execute(select, [f"{run_id}:0"]).fetchone()
        assert sent is not None
        columns = ", ".join(sent)
        copying = f"COPY holdfast.calls ({columns}) FROM STDIN".encode()
        with database.cursor().copy(copying) as copy:
            for values in _copies(sent, run_id, run.recorded):
                copy.write_row(values)
        database.execute("VACUUM ANALYZE holdfast.calls")


def _copies(sent: dict[str, Any], run_id: str, count: int) -> Iterator[tuple[Any, ...]]:
    """Yield the records of messages as if they had been sent after the first one."""
    for number in range(1, count):
        ids = {name: str(uuid4()) for name in ("message_id", "context_id", "task_id")}
        text = str(number)
        message = Message(message_id="", role=Role.USER, parts=(Part(text=text),))
        values = {
            **sent,
            **ids,
            "label": f"{run_id}:{number}",
            "digest": message_digest(message),
            "written_by": uuid4(),
        }
        for name in ("request", "result"):  # None if messages are not stored
            if (stored := sent[name]) is not None:
                for member, value in ids.items():
                    stored = stored.replace(f'"{sent[member]}"', f'"{value}"')
                values[name] = stored.replace('"text":"0"', f'"text":"{text}"')
        yield tuple(values.values())


# ── Results ──────────────────────────────────────────────────────────────────────────────────


def print_results(dsn: str, run_id: str, items: int) -> tuple[float, float]:
    """Print the results of a run with the command; return its seconds, and its largest MB.

    A line of the command has another key than a message of the library.
    """
    with psycopg.connect(dsn, autocommit=True) as database:
        renaming = "UPDATE holdfast.calls SET label = %s || substr(label, %s) WHERE label LIKE %s"
        database.execute(renaming, [f"{run_id}:id:", len(run_id) + 2, f"{run_id}:%"])
        database.execute("VACUUM ANALYZE holdfast.calls")
    with tempfile.TemporaryDirectory() as directory:
        lines, results = Path(directory) / "lines.jsonl", Path(directory) / "results.jsonl"
        with lines.open("w") as file:
            file.writelines(f'{{"id":{number},"text":"{number}"}}\n' for number in range(items))
        options = ("--input", str(lines), "--journal", dsn, "--run-id", run_id, "-o", "json")
        began = time.perf_counter()
        with results.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, "run", "results", *options],
                stdout=output,
                env=environment(),
            )
            _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        with results.open() as file:
            answered = sum("error" not in json.loads(line) for line in file)
    if process.returncode or answered != items:
        text = f"holdfast run results: exit code {process.returncode}, {answered} answers"
        raise SystemExit(text)
    return seconds, used.ru_maxrss * 1024 / 1e6


# ── The program ──────────────────────────────────────────────────────────────────────────────


async def measure(dsn: str, run: Run, processes: list[int]) -> None:
    """Measure, and print the figures."""
    shown = f"  {run.items:,} messages of {run.work:g} s, {IN_FLIGHT} in flight in each process"
    print(f"{shown}, {run.recorded:,} of them recorded before" if run.recorded else shown)
    titles = ["messages/s", "least", "most", "MB grown"]
    titles += ["passed/s"] if run.recorded else []
    titles += ["results, s", "its MB"] if run.stores else []
    print(f"  {'':<16}{titles[0]:>12}{''.join(f'{title:>12}' for title in titles[1:])}")
    async with AsyncExitStack() as stack:
        serving = await Child.start(_SCRIPT, "--agent", str(run.work))
        stack.push_async_callback(serving.stop)
        url = await serving.line()
        for count in processes:
            run_id = f"{count}-processes"
            if run.recorded:
                await record(url, dsn, run_id, run)
                await serving.ask()
            began = time.perf_counter()
            workers: list[Child] = []
            for _ in range(count):
                arguments = (url, dsn, run_id, json.dumps(asdict(run)))
                worker = await Child.start(_SCRIPT, "--share", *arguments)
                stack.push_async_callback(worker.stop)
                workers.append(worker)
            done = [
                json.loads(line)
                for line in await asyncio.gather(*(worker.line(within=None) for worker in workers))
            ]
            seconds = time.perf_counter() - began
            executed = json.loads(await serving.ask())
            _check(run, done, executed)
            shares = [one["results"] for one in done]
            sent = run.items - run.recorded
            figures = [
                f"{sent / (seconds - max(one['passed'] for one in done)):,.0f}",
                f"{min(shares):,}",
                f"{max(shares):,}",
                f"{max(one['grown'] for one in done) / 1e6:.1f}",
            ]
            if run.recorded:
                figures.append(f"{min(run.recorded / one['passed'] for one in done):,.0f}")
            if run.stores:
                figures += [f"{figure:,.1f}" for figure in print_results(dsn, run_id, run.items)]
            name = f"{count} process{'es' if count > 1 else ''}"
            row = f"    {name:<14}{''.join(f'{figure:>12}' for figure in figures)}"
            print(row, flush=True)


def _check(run: Run, done: list[dict[str, Any]], executed: dict[str, int]) -> None:
    """Check that each message has a result, and that none was executed twice.

    Raises:
        SystemExit: A message has no result, or was executed twice.
    """
    sent, results = run.items - run.recorded, sum(one["results"] for one in done)
    errors = sum(one["errors"] for one in done)
    is_whole = all(one["results"] + one["elsewhere"] == run.items for one in done)
    is_once = executed == {"received": sent, "repeated": 0}
    if results < sent or errors or not is_whole or not is_once:
        raise SystemExit(f"{results} results of {sent}, {executed}, {done}")


def main() -> None:
    """Parse the options, and measure."""
    if sys.argv[1:2] == ["--agent"]:
        asyncio.run(agent(float(sys.argv[2])))
        return
    if sys.argv[1:2] == ["--share"]:
        url, dsn, run_id, members = sys.argv[2:]
        sharing = share(url, dsn, run_id, Run(**json.loads(members)))
        print(json.dumps(asyncio.run(sharing)), flush=True)
        return
    parser = argparse.ArgumentParser(description="Measure a shared run.")
    parser.add_argument("--items", type=int, default=320)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--work", type=float, default=1.0, help="seconds of each message")
    parser.add_argument("--recorded", type=int, default=0, help="messages with a result before")
    parser.add_argument("--results", action="store_true", help="measure holdfast run results")
    options = parser.parse_args()
    run = Run(options.items, options.recorded, options.work, stores=options.results)
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.kit.postgres_server import Postgres

    server = Postgres(fsync="on")
    try:
        print("A bulk run that processes share through PostgreSQL")
        asyncio.run(measure(server.dsn, run, options.processes))
    finally:
        server.close()


if __name__ == "__main__":
    main()
