"""The effect of hedging on tail latency, and the additional requests that it causes.

    python benchmarks/hedging.py [--reads 10000] [--seeds 10] [--least]

A client asks for a task, again and again. Most replies take 20 to 60 ms, and one in fifty takes
0.9 to 1.3 s. In another series, every reply takes three times as long from the middle on: an agent
that is overloaded must not get much more to do. The client and what it sends are real, the agent
is a fake one, time is virtual. Each figure is that of the worst seed; the first reads, of which
too little is known to hedge, are counted too.

It fails if a figure of the design is not reached: 99 % of the reads within 150 ms, for at most 5 %
more requests.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
from typing import TYPE_CHECKING, NamedTuple

from holdfast import HedgePolicy, Resilience, connect
from holdfast.testing import FakeAgent, FakeNetwork, run

if TYPE_CHECKING:
    from holdfast.extend import HttpReply, HttpRequest

P99 = 0.15
"""Maximum of the 99th percentile, in seconds."""

MOST_EXTRA = 0.05
"""Additional requests, as a share of the reads."""


class Day(NamedTuple):
    """What became of the reads: seconds that shares of them took, and requests beyond one each."""

    p50: float
    p95: float
    p99: float
    longest: float
    extra: float


class SlowNetwork(FakeNetwork):
    """Delays each request.

    Attributes:
        requests: How many there were.
        slowness: What the time is multiplied by.
    """

    def __init__(self, agent: FakeAgent, seed: int) -> None:
        super().__init__(agent)
        self._dice = random.Random(seed)
        self.requests = 0
        self.slowness = 1.0

    async def request(self, request: HttpRequest) -> HttpReply:
        """Carries a request."""
        self.requests += 1
        dice = self._dice
        is_slow = dice.random() < 0.02
        seconds = dice.uniform(0.9, 1.3) if is_slow else dice.uniform(0.02, 0.06)
        await asyncio.sleep(seconds * self.slowness)
        return await super().request(request)


async def day(policy: HedgePolicy | None, reads: int, seed: int, *, slows_down: bool) -> Day:
    """Make all reads, one after the other."""
    agent = FakeAgent()
    network = SlowNetwork(agent, seed)
    clock = asyncio.get_running_loop().time
    seconds: list[float] = []
    resilience = Resilience(hedge=policy)
    async with connect(
        agent.url, engine=network, resilience=resilience, timeout=60.0, card_ttl=math.inf
    ) as client:
        task = await client.send_message("hello")
        network.requests = 0
        for number in range(reads):
            if slows_down and number == reads // 2:
                network.slowness = 3.0
            began = clock()
            await client.get_task(task.id)
            seconds.append(clock() - began)
    seconds.sort()
    p50, p95, p99 = (seconds[int(share * reads)] for share in (0.5, 0.95, 0.99))
    return Day(p50, p95, p99, seconds[-1], network.requests / reads - 1)


def main() -> int:
    """Print the table; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--reads", type=int, default=10_000, help="of each series")
    parser.add_argument("--seeds", type=int, default=10, help="series of each kind")
    parser.add_argument("--least", action="store_true", help="show that it runs, and no figures")
    options = parser.parse_args()
    if options.least:
        options.reads, options.seeds = 100, 1
    elif options.reads < 1000 or options.seeds < 1:
        parser.error("at least 1000 reads and 1 seed")
    print("| reads of an agent | p50 | p95 | p99 | longest | more requests |")
    print("|---|---|---|---|---|---|")
    missed: list[str] = []
    for name, policy, slows_down in (
        ("1 in 50 slow, no hedging", None, False),
        ("1 in 50 slow, hedging", HedgePolicy(), False),
        ("3 times as slow from the middle on, no hedging", None, True),
        ("3 times as slow from the middle on, hedging", HedgePolicy(), True),
    ):
        days = [
            run(day(policy, options.reads, seed, slows_down=slows_down))
            for seed in range(options.seeds)
        ]
        worst = Day(*map(max, zip(*days, strict=True)))
        cells = [f"{seconds * 1000:,.0f} ms" for seconds in worst[:4]]
        print(f"| {name} | {' | '.join(cells)} | {100 * worst.extra:.1f} % |", flush=True)
        if policy is not None and worst.extra > MOST_EXTRA:
            missed.append(f"missed: {name}: {100 * worst.extra:.1f} % more requests")
        if policy is not None and worst.p99 > P99 and not slows_down:
            missed.append(f"missed: {name}: p99 of {worst.p99 * 1000:.0f} ms")
    print("", *missed, sep="\n")
    return 1 if missed and not options.least else 0


if __name__ == "__main__":
    sys.exit(main())
