"""The worker's end of the pipe: a client in a process of its own, which works when it is told to.

Every client is run by this file, so that all of them are measured alike. A job is one line of
JSON on standard input, ``{"job": name, ...}`` with the job's arguments; its result is one line on
standard output. At the end of standard input the worker closes its client and stops. A job that
does not end is given up after `LONGEST_JOB` seconds.

The job that all of them know is ``rate``: SendMessage for some seconds with some calls in flight,
after a fifth of that time uncounted (connections idle between the rounds, and get closed). It
tells the calls made, the CPU seconds that this process used for them, user and system, and how
many calls the agent answered, the uncounted ones included.

Only the standard library is needed, so that every Python can import this.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

LONGEST_JOB = 60.0

Job = Callable[..., Awaitable[dict[str, Any]]]


class BenchmarkedClient(Protocol):
    """A client that can be measured."""

    async def open(self, url: str) -> None:
        """Makes the client of the agent at an address."""
        ...

    async def send(self) -> None:
        """Sends the question, takes the reply as a user of this client gets it."""
        ...

    async def close(self) -> None:
        """Closes the client."""
        ...


def work(client: BenchmarkedClient, **jobs: Job) -> None:
    """Does the jobs that arrive, one after the other, until there are no more.

    Args:
        client: The client to measure.
        jobs: What it can do besides ``rate``.
    """

    async def do(job: str, arguments: dict[str, Any]) -> dict[str, Any]:
        async with asyncio.timeout(LONGEST_JOB):
            if job == "open":
                await client.open(**arguments)
                return {}
            if job == "rate":
                return await _rate(client.send, **arguments)
            return await jobs[job](**arguments)

    with asyncio.Runner() as runner:
        for line in sys.stdin:
            arguments = json.loads(line)
            result = runner.run(do(arguments.pop("job"), arguments))
            print(json.dumps(result), flush=True)
        runner.run(client.close())


async def _rate(
    send: Callable[[], Awaitable[None]], *, in_flight: int, seconds: float
) -> dict[str, Any]:
    async def caller(until: float) -> int:
        calls = 0
        while time.perf_counter() < until:
            await send()
            calls += 1
        return calls

    async def callers(for_seconds: float) -> int:
        until = time.perf_counter() + for_seconds
        return sum(await asyncio.gather(*(caller(until) for _ in range(in_flight))))

    uncounted = await callers(seconds / 5)
    before = time.process_time()
    calls = await callers(seconds)
    cpu = time.process_time() - before
    return {"calls": calls, "cpu": cpu, "answered": uncounted + calls}
