"""A worker process of a benchmark: it runs jobs with one client, on request over a pipe.

This file runs every client, so that all clients are measured in the same way. A job is one line of
JSON on standard input, ``{"job": name, ...}`` with the job's arguments; its result is one line on
standard output. At the end of standard input the worker closes its client and exits. A job is
stopped after `LONGEST_JOB` seconds.

Every client has the job ``rate``: SendMessage for some seconds with some calls in flight, after a
warm-up of a fifth of that time (idle connections are closed between the rounds). The result is the
number of calls, the CPU seconds of this process, user and system, and the number of calls that the
agent answered, with those of the warm-up.

A client that streams has three more jobs:

- ``stream``: reads whole streams one after the other for some seconds, after one stream as a
  warm-up. The result is the number of events and the CPU seconds.
- ``hold``: opens streams, and waits in each of them for an event that does not arrive. The result
  is the number of open streams, and the bytes by which this process grew. It needs a process of
  its own.
- ``paced``: opens streams with one event a second, and reads all of them concurrently for some
  seconds. The result is the number of events and the CPU seconds.

This module needs only the standard library, so that every Python can import it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import payloads
from descriptors import as_many_as_there_may_be

LONGEST_JOB = 60.0

_AT_A_TIME = 50
"""Streams that are opened concurrently."""

_LONGEST_OPENING = 45.0
"""Seconds in which streams are opened; those that are open afterwards count."""

_SETTLING = 1.0
"""Seconds that paced streams run before their events are counted."""

_OTHER_DESCRIPTORS = 100
"""File descriptors that a process needs in addition to its streams."""

Job = Callable[..., Awaitable[dict[str, Any]]]


class BenchmarkedClient(Protocol):
    """A client to measure."""

    async def open(self, url: str) -> None:
        """Create the client of the agent at an address."""
        ...

    async def send(self) -> None:
        """Send the question, and read the reply as a user of this client does."""
        ...

    async def close(self) -> None:
        """Close the client."""
        ...


class StreamingClient(BenchmarkedClient, Protocol):
    """A client whose streams can be measured."""

    async def stream(self, text: str, opened: Callable[[], None]) -> int:
        """Send a text, and read the stream of the reply as a user of this client does.

        Args:
            text: One of `payloads.STREAMS`, or `payloads.HELD`.
            opened: Called when the first event has arrived.

        Returns:
            The number of events.
        """
        ...


class ReadingClient(StreamingClient, Protocol):
    """A client that reads the text of a stream as it arrives."""

    async def read(self, noted: Callable[[], None]) -> None:
        """Send `payloads.PACED`, and read the stream of the reply until it ends.

        Args:
            noted: Called for each event, as soon as a user of this client has its text.
        """
        ...


def streaming_jobs(client: StreamingClient) -> dict[str, Job]:
    """Return the jobs of a client that streams."""

    async def stream(text: str, seconds: float) -> dict[str, Any]:
        async def whole() -> int:
            events = await client.stream(text, _nothing)
            assert events == payloads.events_of(text)
            return events

        await whole()
        before = time.process_time()
        until, events = time.perf_counter() + seconds, await whole()
        while time.perf_counter() < until:
            events += await whole()
        return {"events": events, "cpu": time.process_time() - before}

    async def hold(streams: int) -> dict[str, Any]:
        streams = min(streams, as_many_as_there_may_be() - _OTHER_DESCRIPTORS)
        held: list[asyncio.Task[int]] = []

        async def some() -> None:
            """Open a few streams, so that none waits long in the queue of the agent."""
            batch = [asyncio.Event() for _ in range(_AT_A_TIME)]
            held.extend(
                asyncio.create_task(client.stream(payloads.HELD, opened.set)) for opened in batch
            )
            await asyncio.gather(*(opened.wait() for opened in batch))

        try:
            await some()  # memory that is needed once, whatever the number of streams
            before, others = resident_memory(), len(held)
            until = time.perf_counter() + _LONGEST_OPENING
            while len(held) - others + _AT_A_TIME <= streams and time.perf_counter() < until:
                await some()
            grown, streams = resident_memory() - before, len(held) - others
        finally:
            for task in held:
                task.cancel()
            await asyncio.gather(*held, return_exceptions=True)
        return {"streams": streams, "bytes": grown}

    return {"stream": stream, "hold": hold}


def paced_job(client: ReadingClient) -> Job:
    """Return the job of a client whose streams can be read one event at a time."""

    async def paced(streams: int, seconds: float) -> dict[str, Any]:
        as_many_as_there_may_be()
        events = 0
        reading: list[asyncio.Task[None]] = []

        async def some(number: int) -> None:
            batch = [asyncio.Event() for _ in range(number)]
            reading.extend(asyncio.create_task(client.read(noting(opened))) for opened in batch)
            await asyncio.gather(*(opened.wait() for opened in batch))

        def noting(opened: asyncio.Event) -> Callable[[], None]:
            def noted() -> None:
                nonlocal events
                events += 1
                opened.set()

            return noted

        try:
            while len(reading) < streams:
                await some(min(_AT_A_TIME, streams - len(reading)))
            await asyncio.sleep(_SETTLING)
            events, before = 0, time.process_time()
            await asyncio.sleep(seconds)
            async with asyncio.timeout(_LONGEST_OPENING):
                # A single stream may have no event in so short a time. An `asyncio.Event`, set
                # by each event, would add to the measured time.
                while not events:  # noqa: ASYNC110
                    await asyncio.sleep(seconds)
            counted, cpu = events, time.process_time() - before
            broken = [task for task in reading if task.done()]
            assert not broken, broken
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        return {"events": counted, "cpu": cpu}

    return paced


def _nothing() -> None:
    """Ignore the first event."""


def resident_memory() -> int:
    """Return the resident memory of this process in bytes (Linux)."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def work(client: BenchmarkedClient, **jobs: Job) -> None:
    """Run jobs one after the other, until the end of standard input.

    Args:
        client: The client to measure.
        jobs: Its jobs besides ``rate``, by name.
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
        await send()  # at least one, however slow the machine is
        calls = 1
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
