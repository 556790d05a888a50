"""Measure fan-outs to many agents: latency and memory.

    python benchmarks/fan_out.py [--agents 1000] [--rounds 9] [--processes 4]

The first part runs over loopback, with agents that reply immediately, each at its own port: the
first fan-out fetches all cards and opens all connections, later rounds reuse them. Memory is the
growth of the process, with all clients, cards and connections (Linux).

The second part runs in virtual time, in which only the agents' work takes time: each works for 0.5
to 2 s, and one in a hundred is unreachable. All calls should end when the slowest agent has
replied, and unreachable agents should not affect the others. A figure is the median of the rounds;
the duration of a call includes its wait for a slot.

The benchmark fails if an unreachable agent makes a call to another one fail or take longer.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
from contextlib import AsyncExitStack
from statistics import median, quantiles
from typing import TYPE_CHECKING

import payloads
from descriptors import as_many_as_there_may_be
from processes import Child
from worker import resident_memory

from holdfast import Coordinator
from holdfast.testing import FakeAgent, FakeNetwork, Refuse, completes, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.client import AgentResult

AT_ONCE = (1000, 100)
"""Concurrent calls of each measurement; memory is measured with the first number."""

AWAY = 100
"""One agent of this many is unreachable."""

_DESCRIPTORS = 200
"""File descriptors that a process needs in addition to its connections."""


# ── Over loopback ────────────────────────────────────────────────────────────────────────────


async def timed(coordinator: Coordinator) -> tuple[float, Sequence[AgentResult]]:
    """Make one fan-out to all agents, and return its duration."""
    began = time.perf_counter()
    results = await coordinator.fan_out(payloads.QUESTION, min_results=len(coordinator.agents))
    return time.perf_counter() - began, results


def cells(seconds: float, results: Sequence[AgentResult]) -> tuple[float, float, float]:
    """Return the duration of a fan-out, and p50 and p99 of its calls, in milliseconds."""
    cuts = quantiles((one.duration for one in results), n=100)
    return seconds * 1000, cuts[49] * 1000, cuts[98] * 1000


async def over_loopback(agents: int, processes: int, rounds: int) -> None:
    """Measure fan-outs to agents in other processes, and print the figures."""
    async with AsyncExitStack() as stack:
        urls: list[str] = []
        for place in range(processes):
            number = len(range(place, agents, processes))
            child = await Child.start("fan_out_agents.py", str(number))
            stack.push_async_callback(child.stop)
            urls += (await child.line()).split()
        print(f"\n  {len(urls):,} agents over loopback, in {processes} processes")
        print(f"    {'':<30}{'all ms':>9}{'p50 ms':>9}{'p99 ms':>9}{'agents/s':>10}")
        grown: list[float] = []
        for at_once in AT_ONCE:
            async with Coordinator(urls, concurrency=at_once, streaming=False) as coordinator:
                before = resident_memory()
                first = cells(*await timed(coordinator))
                grown.append((resident_memory() - before) / 1024 / len(urls))
                later = [cells(*await timed(coordinator)) for _ in range(rounds)]
            show(f"{at_once:,} at once, first fan-out", first, len(urls))
            again = tuple(median(column) for column in zip(*later, strict=True))
            show(f"{at_once:,} at once, later fan-outs", again, len(urls))
        print(f"    {'memory per agent, card and connection':<44}{grown[0]:>9.1f} kB")


def show(name: str, figures: Sequence[float], agents: int) -> None:
    """Print one line."""
    columns = "".join(f"{figure:>9,.1f}" for figure in figures)
    print(f"    {name:<30}{columns}{agents / figures[0] * 1000:>10,.0f}")


# ── In virtual time ──────────────────────────────────────────────────────────────────────────


async def with_some_away(agents: int, seed: int) -> bool:
    """Measure fan-outs with unreachable agents; return whether the others were unaffected."""
    dice = random.Random(seed)
    works = [dice.uniform(0.5, 2.0) for _ in range(agents)]
    fakes = [
        FakeAgent(completes("done", after=seconds), url=f"http://agent{number}.test")
        for number, seconds in enumerate(works)
    ]
    for fake in fakes[::AWAY]:
        fake.inject(Refuse(), times=100)
    began, virtual = time.process_time(), asyncio.get_running_loop().time
    names = {fake.url: fake.url for fake in fakes}
    async with Coordinator(names, engine=FakeNetwork(*fakes), concurrency=agents) as coordinator:
        present = agents - len(fakes[::AWAY])
        results = await coordinator.fan_out("hello", min_results=present)
        once = virtual()
        again = await coordinator.fan_out("hello", min_results=present)
    delays = [
        one.duration - seconds
        for several in (results, again)
        for one, seconds in zip(several, works, strict=True)
        if one.error is None
    ]
    spent = (time.process_time() - began) / 2 / agents
    print(f"\n  {agents:,} agents in virtual time, one in {AWAY} unreachable")
    print(f"    {'work of the slowest agent':<44}{max(works):>9.2f} s")
    print(f"    {'all calls have ended after':<44}{once:>9.2f} s")
    print(f"    {'answers of the other agents':<44}{len(delays) / 2:>9,.0f} of {present:,}")
    print(f"    {'longest extra wait of one of them':<44}{max(delays) * 1000:>9.2f} ms")
    print(f"    {'CPU for each agent, both sides':<44}{spent * 1000:>9.2f} ms")
    return len(delays) == 2 * present and max(delays) < 0.001


def main() -> int:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        description="Measure fan-outs to many agents: latency and memory."
    )
    parser.add_argument("--agents", type=int, default=1000, help="number of agents (default 1000)")
    parser.add_argument("--rounds", type=int, default=9, help="fan-outs after the first one")
    parser.add_argument(
        "--processes", type=int, default=4, help="number of processes that serve the agents"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the random durations of work")
    options = parser.parse_args()
    if options.agents < AWAY or options.rounds < 2 or options.processes < 1:
        parser.error(f"at least {AWAY} agents, 2 rounds and 1 process")
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    print("Fan-out to many agents")
    most = as_many_as_there_may_be() - _DESCRIPTORS
    asyncio.run(over_loopback(min(options.agents, most), options.processes, options.rounds))
    well = run(with_some_away(options.agents, options.seed))
    if not well:
        print("\nmissed: calls to reachable agents failed, or took longer")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
