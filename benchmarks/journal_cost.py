"""Measure the cost of a journal: calls per second and latency, with and without it.

    python benchmarks/journal_cost.py [--rounds 9] [--seconds 1.0]

SendMessage to an agent that answers at once from another process, over loopback, with 32 and with
256 in flight. Each call is recorded before it is sent, and again with its outcome, and waits
for the disk both times (``synchronous=FULL``): calls in flight share that wait. Both
clients take turns in each round; a figure is the median of the rounds, and a ratio is taken within
each of them. The journal lies in ``TMPDIR``.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import payloads
from processes import Agent

from holdfast import connect
from holdfast.extend import AiohttpEngine

if TYPE_CHECKING:
    from holdfast.client import Client

IN_FLIGHT = (32, 256)

PLAIN = "without a journal"
KEPT = "with a journal"


async def turn(client: Client, in_flight: int, seconds: float) -> list[float]:
    """Call the agent with ``in_flight`` callers for ``seconds``; return the seconds of each call.

    Each caller makes at least one call, however slow the machine is.
    """
    taken: list[float] = []
    end = time.perf_counter() + seconds

    async def caller() -> None:
        began = time.perf_counter()
        while True:
            await client.send_message(payloads.QUESTION)
            now = time.perf_counter()
            taken.append(now - began)
            if now >= end:
                return
            began = now

    await asyncio.gather(*(caller() for _ in range(in_flight)))
    return taken


async def measure(rounds: int, seconds: float) -> None:
    """Measure, and print the figures."""
    figures: dict[tuple[int, str], list[tuple[float, float, float]]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        agent = await Agent.start("static_agent.py")
        stack.push_async_callback(agent.stop)
        url = await agent.line()
        directory = stack.enter_context(TemporaryDirectory())
        engine = AiohttpEngine(max_connections=max(IN_FLIGHT))
        stack.push_async_callback(engine.close)
        clients = {
            PLAIN: connect(url, auth=payloads.TOKEN, engine=engine),
            KEPT: connect(
                url,
                auth=payloads.TOKEN,
                engine=engine,
                journal=f"sqlite:///{directory}/calls.db",
            ),
        }
        for client in clients.values():
            await stack.enter_async_context(client)
            await turn(client, max(IN_FLIGHT), seconds / 4)
        for number, in_flight in itertools.product(range(rounds), IN_FLIGHT):
            order = list(clients) if number % 2 else list(reversed(clients))
            for name in order:
                began = time.perf_counter()
                taken = await turn(clients[name], in_flight, seconds)
                lasted = time.perf_counter() - began
                cuts = quantiles(taken, n=100)
                rate = len(taken) / lasted
                figures[in_flight, name].append((rate, cuts[49] * 1000, cuts[98] * 1000))

    print(f"  {'':<34}{'calls/s':>9}{'p50 ms':>9}{'p99 ms':>9}")
    for in_flight in IN_FLIGHT:
        print(f"  {in_flight} in flight")
        for name in (PLAIN, KEPT):
            rate, half, most = (
                median(column) for column in zip(*figures[in_flight, name], strict=True)
            )
            print(f"    {name:<32}{rate:>9,.0f}{half:>9.1f}{most:>9.1f}")
        both = zip(figures[in_flight, KEPT], figures[in_flight, PLAIN], strict=True)
        ratios = [kept[0] / plain[0] for kept, plain in both]
        print(f"    {'calls with / without':<32}{100 * median(ratios):>8.0f}%")


def main() -> None:
    """Parse the options."""
    parser = argparse.ArgumentParser(description="Print what a journal costs.")
    parser.add_argument("--rounds", type=int, default=9, help="how often each is measured")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    options = parser.parse_args()
    print("The cost of a journal (SQLite, synchronous=FULL), SendMessage over loopback")
    asyncio.run(measure(options.rounds, options.seconds))


if __name__ == "__main__":
    main()
