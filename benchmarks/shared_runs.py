"""Measure a bulk run that several processes share through a journal in PostgreSQL.

    python benchmarks/shared_runs.py [--items 320] [--processes 1 2 4] [--work 1.0]

An agent works ``--work`` seconds on each message. The processes have 16 messages in flight each,
and share one run of ``--items`` messages with ``Client.run(shared=True)``. The figures are
messages per second of all processes together, the smallest and the largest share of a process, and
by how much a process grew after the first tenth of the run. The benchmark fails if a message was
executed twice, or has no result. ``--items 1000000 --work 0`` shows that memory stays flat. The
server is started for the benchmark, with ``fsync=on``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from processes import Child
from worker import resident_memory

from holdfast import connect
from holdfast.testing import FakeAgent, LoopbackServer, completes

if TYPE_CHECKING:
    from holdfast.testing import Plan, Turn

IN_FLIGHT = 16
_SCRIPT = Path(__file__).name


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


async def share(url: str, journal: str, run_id: str, items: int) -> dict[str, Any]:
    """Take part in a run; return the number of results, and by how much the process grew."""
    results = errors = before = 0
    async with connect(url, journal=journal) as client:
        run = client.run(
            (str(number) for number in range(items)),
            run_id=run_id,
            shared=True,
            concurrency=IN_FLIGHT,
            poll_interval=0.2,
        )
        async for result in run:
            results += 1
            errors += result.error is not None
            if not before and results + run.left_to_others >= items / 10:
                before = resident_memory()
        grown = resident_memory() - before if before else 0
    return {"results": results, "errors": errors, "grown": grown}


async def measure(dsn: str, items: int, processes: list[int], work: float) -> None:
    """Measure, and print the figures."""
    print(f"  {items:,} messages of {work:g} s, {IN_FLIGHT} in flight in each process")
    print(f"  {'':<16}{'messages/s':>12}{'least':>10}{'most':>10}{'MB grown':>10}")
    async with AsyncExitStack() as stack:
        serving = await Child.start(_SCRIPT, "--agent", str(work))
        stack.push_async_callback(serving.stop)
        url = await serving.line()
        for count in processes:
            began = time.perf_counter()
            workers: list[Child] = []
            for _ in range(count):
                arguments = ("--share", url, dsn, f"{count}-processes", str(items))
                worker = await Child.start(_SCRIPT, *arguments)
                stack.push_async_callback(worker.stop)
                workers.append(worker)
            done = [
                json.loads(line)
                for line in await asyncio.gather(*(worker.line(within=None) for worker in workers))
            ]
            seconds = time.perf_counter() - began
            executed = json.loads(await serving.ask())
            shares = [one["results"] for one in done]
            problems = (sum(one["errors"] for one in done), executed["repeated"])
            if sum(shares) < items or executed["received"] != items or any(problems):
                text = f"{sum(shares)} results of {items}, {executed}, {problems[0]} errors"
                raise SystemExit(text)
            grown = max(one["grown"] for one in done) / 1e6
            name = f"{count} process{'es' if count > 1 else ''}"
            figures = f"{items / seconds:>12,.0f}{min(shares):>10,}{max(shares):>10,}"
            print(f"    {name:<14}{figures}{grown:>10.1f}")


def main() -> None:
    """Parse the options, and measure."""
    if sys.argv[1:2] == ["--agent"]:
        asyncio.run(agent(float(sys.argv[2])))
        return
    if sys.argv[1:2] == ["--share"]:
        url, journal, run_id, items = sys.argv[2:]
        print(json.dumps(asyncio.run(share(url, journal, run_id, int(items)))), flush=True)
        return
    parser = argparse.ArgumentParser(description="Measure a shared run.")
    parser.add_argument("--items", type=int, default=320)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--work", type=float, default=1.0, help="seconds of each message")
    options = parser.parse_args()
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.kit.postgres_server import Postgres

    server = Postgres(fsync="on")
    try:
        print("A bulk run that processes share through PostgreSQL")
        asyncio.run(measure(server.dsn, options.items, options.processes, options.work))
    finally:
        server.close()


if __name__ == "__main__":
    main()
