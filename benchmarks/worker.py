"""The worker's end of the pipe: a client in a process of its own, which runs jobs on request.

Every client is run by this file, so that all of them are measured alike. A job is one line of
JSON on standard input, ``{"job": name, ...}`` with the job's arguments; its result is one line on
standard output. At the end of standard input the worker closes its client and stops. A job that
does not end is given up after `LONGEST_JOB` seconds.

The job that all of them know is ``rate``: SendMessage for some seconds with some calls in flight,
after a fifth of that time uncounted (connections idle between the rounds, and get closed). It
tells the calls made, the CPU seconds that this process used for them, user and system, and how
many calls the agent answered, the uncounted ones included.

A client that streams knows three more:

- ``stream``: reads whole streams one after the other for some seconds, after one that is not
  counted. It tells the events and the CPU seconds.
- ``hold``: opens streams, waits in each of them for an event that does not come, and tells how
  many it could open and how many bytes of memory this process grew by. It is for a process of its
  own.
- ``paced``: opens streams that bring one event a second, reads all of them at once for some
  seconds, and tells the events and the CPU seconds.

Only the standard library is needed, so that every Python can import this.
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
"""Streams that are being opened at a time."""

_LONGEST_OPENING = 45.0
"""Seconds; then those count that are open."""

_SETTLING = 1.0
"""Seconds that paced streams run before they are counted."""

_OTHER_DESCRIPTORS = 100
"""Of what a process has open besides."""

Job = Callable[..., Awaitable[dict[str, Any]]]


class BenchmarkedClient(Protocol):
    """A client to measure."""

    async def open(self, url: str) -> None:
        """Makes the client of the agent at an address."""
        ...

    async def send(self) -> None:
        """Sends the question, takes the reply as a user of this client gets it."""
        ...

    async def close(self) -> None:
        """Closes the client."""
        ...


class StreamingClient(BenchmarkedClient, Protocol):
    """A client whose streams can be measured."""

    async def stream(self, text: str, opened: Callable[[], None]) -> int:
        """Sends a text, and reads the stream that answers it, as a user of this client does.

        Args:
            text: One of `payloads.STREAMS`, or `payloads.HELD`.
            opened: To be called when the first event is there.

        Returns:
            How many events there were.
        """
        ...


class ReadingClient(StreamingClient, Protocol):
    """A client that reads the text of a stream as it comes."""

    async def read(self, noted: Callable[[], None]) -> None:
        """Sends `payloads.PACED`, and reads the stream that answers it for as long as it goes on.

        Args:
            noted: To be called for each event, as soon as a user of this client has its text.
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
            """Opens so few that none waits for long in the queue of the agent."""
            batch = [asyncio.Event() for _ in range(_AT_A_TIME)]
            held.extend(
                asyncio.create_task(client.stream(payloads.HELD, opened.set)) for opened in batch
            )
            await asyncio.gather(*(opened.wait() for opened in batch))

        try:
            await some()  # what there is once, whatever the number
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
    """Return the jobs of a client whose streams can be read one event at a time."""

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
                # A single stream may bring none in so short a time. An `asyncio.Event`, set by
                # each of them, would count towards what is measured.
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
