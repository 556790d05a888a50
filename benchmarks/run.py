"""Measure Holdfast, bare aiohttp and the official SDK, and print the figures.

    python benchmarks/run.py [--quick | --least]

- Calls: SendMessage per CPU second of the client's process, with 1 and with 32 in flight, against
  an agent that answers at once from another process.
- Streams: events per CPU second of the client's process, and its memory with 10,000 streams open.
- Paced streams: CPU microseconds of an event that arrives alone, in 100 and in 1,000 streams that
  bring one event a second each.
- Layers: CPU microseconds of each floor of a call, without I/O.
- Decoding: CPU microseconds for a small and for a large task.
- Import: CPU milliseconds in new processes.

Each client runs in a process of its own and is told when to work. All of them take short turns,
several in each round, so that a noisy machine hurts them alike; a figure is the median of its
rounds, and a ratio or difference is taken within each round. CPU time, not time on the clock, is
what counts, because other load on the machine changes it least.

``HOLDFAST_SDK_PYTHON`` names the Python that has `a2a-sdk`; without it the SDK is left out. Its
client over Holdfast's transport is measured where the Python that runs this has both.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import time
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from tempfile import TemporaryDirectory

import import_time
import payloads
import tables
from processes import Agent, Worker
from tables import BARE, BY_HAND, ENGINE, HOLDFAST, SDK, SDK_OVER_HOLDFAST, SDK_TASK, Rounds


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        rounds: How often everything is measured.
        turns: How often each client has its turn at calling in one round.
        seconds: For the counted calls of one turn.
        calls: For each floor in one round.
        streaming: Seconds of each client and size of events in one round; one stream at least.
        processes: How many hold open streams, of each client, one after the other.
        decoding: Seconds for each parser and payload in one round.
        paced_rounds: How often paced streams are measured.
        paced: Seconds of each client and number of streams in one of these.
        paced_streams: The numbers of streams.
    """

    rounds: int
    turns: int
    seconds: float
    calls: int
    streaming: float
    processes: int
    decoding: float
    paced_rounds: int
    paced: float
    paced_streams: tuple[int, ...] = tables.PACED_STREAMS


THOROUGH = Effort(
    rounds=15,
    turns=6,
    seconds=0.04,
    calls=1500,
    streaming=0.1,
    processes=2,
    decoding=0.02,
    paced_rounds=5,
    paced=2.0,
)
QUICK = Effort(
    rounds=3,
    turns=3,
    seconds=0.03,
    calls=500,
    streaming=0.05,
    processes=2,
    decoding=0.01,
    paced_rounds=3,
    paced=1.0,
)
LEAST = Effort(
    rounds=1,
    turns=1,
    seconds=0.03,
    calls=64,
    streaming=0.05,
    processes=0,
    decoding=0.01,
    paced_rounds=1,
    paced=1.0,
    paced_streams=(1,),
)
"""Only shows that the benchmark runs; its figures mean nothing."""


@dataclass
class Measured:
    """Figures of the rounds, by measurement."""

    rates: Rounds[tuple[int, str]] = field(default_factory=lambda: defaultdict(list))
    agent: Rounds[int] = field(default_factory=lambda: defaultdict(list))
    events: Rounds[tuple[str, str]] = field(default_factory=lambda: defaultdict(list))
    memory: Rounds[str] = field(default_factory=lambda: defaultdict(list))
    open_streams: int = tables.OPEN_STREAMS
    paced: Rounds[tuple[int, str]] = field(default_factory=lambda: defaultdict(list))
    floors: Rounds[str] = field(default_factory=lambda: defaultdict(list))
    decoding: Rounds[tuple[str, str]] = field(default_factory=lambda: defaultdict(list))
    imports: Rounds[str] = field(default_factory=lambda: defaultdict(list))

    async def measure(
        self, workers: dict[str, Worker], agent: Agent, cache: str | None, effort: Effort
    ) -> None:
        """Measure everything once."""
        await self._rates(workers, agent, effort)
        await self._events(workers, effort)
        done = await workers[HOLDFAST].do("floors", calls=effort.calls)
        for name, cost in done["costs"].items():
            self.floors[name].append(cost)
        for name in (HOLDFAST, SDK):
            if name in workers:
                done = await workers[name].do("decode", seconds=effort.decoding)
                for parser, costs in done.items():
                    for size, cost in costs.items():
                        self.decoding[size, parser].append(cost)
        for name, cost in (await import_time.milliseconds(cache)).items():
            self.imports[name].append(cost)

    async def hold(self, name: str, worker: Worker) -> None:
        """Measures the memory of open streams, in a new process."""
        done = await worker.do("hold", streams=tables.OPEN_STREAMS)
        self.open_streams = min(self.open_streams, done["streams"])
        self.memory[name].append(done["bytes"] / done["streams"] / 1000)

    async def pace(self, workers: dict[str, Worker], effort: Effort) -> None:
        """Lets the clients read events that arrive alone, in turns."""
        for streams in effort.paced_streams:
            for name, worker in workers.items():
                done = await worker.do("paced", streams=streams, seconds=effort.paced)
                self.paced[streams, name].append(done["cpu"] / done["events"] * 1e6)

    async def _events(self, workers: dict[str, Worker], effort: Effort) -> None:
        """Lets the clients read streams, in turns."""
        for size in payloads.STREAMS:
            for name in tables.STREAMING:
                if name in workers:
                    done = await workers[name].do("stream", text=size, seconds=effort.streaming)
                    self.events[size, name].append(done["events"] / done["cpu"])

    async def _rates(self, workers: dict[str, Worker], agent: Agent, effort: Effort) -> None:
        """Lets the clients call, in turns."""
        order = [name for name in workers if name != SDK_TASK]
        for in_flight in tables.IN_FLIGHT:
            work: dict[str, Counter[str]] = {name: Counter() for name in order}
            for _ in range(effort.turns):
                order.append(order.pop(0))  # another one is first each time
                for name in order:
                    before = await agent.cpu()
                    done = await workers[name].do(
                        "rate", in_flight=in_flight, seconds=effort.seconds
                    )
                    work[name].update(done, agent=await agent.cpu() - before)
            for name, sums in work.items():
                self.rates[in_flight, name].append(sums["calls"] / sums["cpu"])
                self.agent[in_flight].append(sums["agent"] / sums["answered"] * 1e6)


_HOLDING = {HOLDFAST: "holdfast_worker.py", BARE: "aiohttp_worker.py"}
"""Clients that hold streams open, and read paced ones."""


async def measure(effort: Effort, sdk_python: str | None) -> Measured:
    measured = Measured()
    async with AsyncExitStack() as children:
        agent = await Agent.start("static_agent.py")
        children.push_async_callback(agent.stop)
        url = await agent.line()

        async def client(
            script: str, *arguments: str, until: AsyncExitStack = children, **python: str
        ) -> Worker:
            worker = await Worker.start(script, *arguments, **python)
            until.push_async_callback(worker.stop)
            await worker.do("open", url=url)
            return worker

        workers = {
            HOLDFAST: await client("holdfast_worker.py"),
            BARE: await client("aiohttp_worker.py"),
            ENGINE: await client("holdfast_worker.py", "engine"),
            BY_HAND: await client("aiohttp_worker.py", "json"),
        }
        versions = {name: version(name) for name in ("aiohttp", "msgspec")}
        if sdk_python:
            workers[SDK] = await client("sdk_worker.py", python=sdk_python)
            workers[SDK_TASK] = await client("sdk_worker.py", "task", python=sdk_python)
            versions |= await workers[SDK].do("versions")
            if find_spec("a2a") is not None:
                workers[SDK_OVER_HOLDFAST] = await client("sdk_worker.py", "holdfast")
        numbers = ", ".join(f"{name} {number}" for name, number in versions.items())
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {numbers}")
        cache = None
        if effort is not LEAST:
            cache = children.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
            await import_time.milliseconds(cache)  # fills it
        for _ in range(effort.rounds):
            await measured.measure(workers, agent, cache, effort)
        async with AsyncExitStack() as over:
            paced = {
                name: await client(script, "streams", until=over)
                for name, script in _HOLDING.items()
            }
            if sdk_python:
                paced[SDK] = await client(
                    "sdk_worker.py", "streams", until=over, python=sdk_python
                )
            for _ in range(effort.paced_rounds):
                await measured.pace(paced, effort)
        for _ in range(effort.processes if sys.platform == "linux" else 0):
            for name, script in _HOLDING.items():
                async with AsyncExitStack() as over:
                    await measured.hold(name, await client(script, "streams", until=over))
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description="Print Holdfast's figures beside their targets.")
    efforts = parser.add_mutually_exclusive_group()
    efforts.add_argument("--quick", action="store_true", help="take a few seconds, be less exact")
    efforts.add_argument("--least", action="store_true", help="show that it runs, and no figures")
    options = parser.parse_args()
    effort = QUICK if options.quick else LEAST if options.least else THOROUGH
    sdk_python = os.environ.get("HOLDFAST_SDK_PYTHON")

    began = time.monotonic()
    measured = asyncio.run(measure(effort, sdk_python))
    table = tables.Table()
    tables.show_rates(table, measured.rates, measured.agent)
    tables.show_streams(table, measured.events)
    tables.show_paced_streams(table, measured.paced)
    if measured.memory:
        tables.show_open_streams(table, measured.memory, measured.open_streams)
    tables.show_floors(table, measured.floors)
    tables.show_decoding(table, measured.decoding)
    tables.show_imports(table, measured.imports)
    if not sdk_python:
        print("\na2a-sdk was left out: HOLDFAST_SDK_PYTHON names no Python that has it")
    seconds = time.monotonic() - began
    missed = ", ".join(table.missed) or "none"
    print(f"\n{effort.rounds} rounds in {seconds:.0f} s; targets missed: {missed}")


if __name__ == "__main__":
    main()
