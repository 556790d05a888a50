"""The cost of one failing agent of ten for the others in fan-outs.

    python benchmarks/dead_agent.py [--fan-outs 300]

A coordinator has the cards of all ten agents, and starts a fan-out every 0.2 s without waiting for
the results of the previous one. Nine agents work for 0.5 to 2 s; the tenth fails, in each of the
ways below. The coordinator and its requests are real, the agents are fake, and time is virtual.

An agent that accepts requests and never replies is the hardest case. A reply may take minutes, so
a missing reply is no sign of a failure, and each call holds a slot until its time limit.

The benchmark fails if less than 99.9 % of the calls to the nine agents succeed, or if a call takes
longer than its agent works.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from holdfast import Coordinator, Resilience, Timeouts
from holdfast._aio.env import SystemEnv
from holdfast.testing import (
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    Stall,
    bad_gateway,
    completes,
    run,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from holdfast.client import AgentResult, ConnectOptions
    from holdfast.extend import HttpRequest, HttpStream
    from holdfast.testing import Fault, Plan, Turn

AGENTS = 10
EVERY = 0.2
"""Seconds from one fan-out to the next."""

WITHIN = 10.0
"""Time limit of a fan-out, in seconds."""

LEAST_WELL = 0.999

QUICK = Resilience(timeouts=Timeouts(first_byte=5.0))

DEATHS: dict[str, tuple[Fault, ConnectOptions]] = {
    "refuses connections": (Refuse(), {}),
    "resets connections": (Reset(), {}),
    "answers 502": (bad_gateway(), {}),
    "never replies": (Stall(), {}),
    "never replies, `Timeouts(first_byte=5)`": (Stall(), {"resilience": QUICK}),
}
"""A kind of failure of the agent, and the options of its callers."""


class Day(NamedTuple):
    """Outcomes of the calls.

    Attributes:
        calls: Calls to the nine.
        well: Those of them that succeeded.
        beyond: Maximum seconds that a call took longer than its agent worked.
        requests: Requests to the failing agent.
        at_once: Share of the calls to it that failed immediately, without a request.
    """

    calls: int
    well: int
    beyond: float
    requests: int
    at_once: float


class Seeded(SystemEnv):
    """An environment with the same random numbers in each run."""

    def __init__(self) -> None:
        self._dice = random.Random(1)

    def random(self) -> float:
        """Return a number from 0 up to 1."""
        return self._dice.random()


class Counting(FakeNetwork):
    """Counts requests by host."""

    def __init__(self, *agents: FakeAgent) -> None:
        super().__init__(*agents)
        self.requests: Counter[str | None] = Counter()

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Count a request, and send it."""
        self.requests[urlsplit(request.url).hostname] += 1
        return super().stream(request)


async def day(fault: Fault, options: ConnectOptions, fan_outs: int) -> Day:
    """Make fan-outs to all ten agents, and return the outcomes."""
    dice = random.Random(1)
    works: dict[str, float] = {}

    def behave(turn: Turn) -> Plan:
        works[turn.message.message_id] = seconds = dice.uniform(0.5, 2.0)
        return completes("done", after=seconds)

    agents = [FakeAgent(behave, url=f"http://agent{number}.test") for number in range(AGENTS)]
    network, dead = Counting(*agents), agents[0]
    others: list[AgentResult] = []
    its_own: list[AgentResult] = []

    async def ask(coordinator: Coordinator) -> None:
        for result in await coordinator.fan_out("hello", min_results=0, within=WITHIN):
            (its_own if result.agent == dead.url else others).append(result)

    urls = [agent.url for agent in agents]
    options = {"engine": network, "env": Seeded(), **options}
    async with Coordinator(urls, **options) as coordinator:
        await asyncio.gather(*(coordinator.client(url).agent_card() for url in urls))
        network.requests.clear()
        dead.inject(fault, times=10 * fan_outs)
        async with asyncio.TaskGroup() as all_of_them:
            for _ in range(fan_outs):
                all_of_them.create_task(ask(coordinator))
                await asyncio.sleep(EVERY)
    assert dead.pending_faults
    assert not dead.executions
    well = [one for one in others if one.answer is not None]
    return Day(
        calls=len(others),
        well=len(well),
        beyond=max(one.duration - works[message_id_of(one)] for one in well),
        requests=network.requests["agent0.test"],
        at_once=sum(one.duration == 0 for one in its_own) / len(its_own),
    )


def message_id_of(result: AgentResult) -> str:
    """Return the id of the answered message."""
    task = result.unwrap().task
    assert task is not None
    return task.history[0].message_id


def main() -> int:
    """Print the table; return 1 if the others were affected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fan-outs", type=int, default=300, help="for each kind of failure")
    options = parser.parse_args()
    if options.fan_outs < 10:
        parser.error("at least 10 fan-outs")
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    print(
        "| the failing agent | calls to the others | succeeded | longest extra wait "
        "| calls to the failing agent | failed immediately | requests to it |"
    )
    print("|---|---|---|---|---|---|---|")
    missed: list[str] = []
    for name, (fault, more) in DEATHS.items():
        one = run(day(fault, more, options.fan_outs))
        print(
            f"| {name} | {one.calls:,} | {100 * one.well / one.calls:.2f} % | {one.beyond:.1f} s "
            f"| {options.fan_outs} | {100 * one.at_once:.0f} % | {one.requests:,} |",
            flush=True,
        )
        if one.well < LEAST_WELL * one.calls or one.beyond > 0.001:
            missed.append(f"missed: {name}: calls to the other agents failed, or took longer")
    print("", *missed, sep="\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
