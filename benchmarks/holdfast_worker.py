"""Holdfast as a worker: everything on, as `connect` makes it, with credentials.

Jobs besides ``rate``:

- ``floors``: what each floor of a SendMessage costs without any I/O; see `floors`.
- ``decode``: the codec on the tasks of `payloads`, and `json.loads` beside it.

With ``engine`` as its argument, the worker measures the engine alone instead: the bytes of a
SendMessage in, the bytes of the reply out. With ``streams``, the engine has room for any number of
them.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import payloads
from floors import Floors
from timing import microseconds_of
from worker import paced_job, streaming_jobs, work

from holdfast import connect
from holdfast._model import codec
from holdfast.extend import AiohttpEngine, HttpRequest
from holdfast.types import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.client import Client


class Holdfast:
    """A client with all layers on."""

    def __init__(self, engine: AiohttpEngine | None = None) -> None:
        self._engine = engine
        self._client: Client
        self._floors: Floors | None = None

    async def open(self, url: str) -> None:
        """Connects, and checks one answer."""
        self._client = connect(url, auth=payloads.TOKEN, engine=self._engine)
        task = await self._client.send_message(payloads.QUESTION)
        assert isinstance(task, Task)
        assert task.id == payloads.TASK_ID

    async def send(self) -> None:
        """The raw operation."""
        await self._client.send_message(payloads.QUESTION)

    async def stream(self, text: str, opened: Callable[[], None]) -> int:
        """Iterates over typed events, and takes the task that they make at the end."""
        number = 0
        async with self._client.stream_message(text) as events:
            opened()
            async for _ in events:
                number += 1
            task = events.task
        assert task is not None
        assert len(task.artifacts[0].parts) == number - 2
        return number

    async def read(self, noted: Callable[[], None]) -> None:
        """Iterates over the text."""
        async with self._client.stream_message(payloads.PACED) as events:
            noted()
            async for _ in events.text_deltas():
                noted()

    async def close(self) -> None:
        """Closes the client."""
        await self._client.close()
        if self._engine is not None:
            await self._engine.close()

    async def floors(self, calls: int) -> dict[str, Any]:
        """Times every floor once."""
        if self._floors is None:
            self._floors = await Floors.of_connect()
        return await self._floors.measure(calls)

    async def decode(self, seconds: float) -> dict[str, Any]:
        """Times the codec and the standard library's parser on every payload once."""
        parsers: dict[str, Callable[[bytes], object]] = {
            "holdfast": lambda data: codec.decode(data, Task),
            "json.loads": json.loads,
        }
        return {
            parser: {
                size: microseconds_of(partial(parse, data), seconds=seconds)
                for size, data in payloads.PAYLOADS.items()
            }
            for parser, parse in parsers.items()
        }


class Engine:
    """The engine alone, without a client over it."""

    def __init__(self) -> None:
        self._engine = AiohttpEngine()
        self._url = ""

    async def open(self, url: str) -> None:
        """Checks one answer."""
        self._url = url
        await self.send()

    async def send(self) -> None:
        """The same bytes each time, not decoded; as new a request as each call makes."""
        reply = await self._engine.request(
            HttpRequest(
                method="POST",
                url=self._url,
                headers=dict(payloads.HEADERS),
                body=payloads.REQUEST,
                max_idle=1.0,
            )
        )
        assert len(reply.body) > len(payloads.TASK)

    async def close(self) -> None:
        """Closes the engine."""
        await self._engine.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["engine"]:
        work(Engine())
    else:
        engine = AiohttpEngine(max_streams=1_000_000) if sys.argv[1:] == ["streams"] else None
        holdfast = Holdfast(engine)
        jobs = {**streaming_jobs(holdfast), "paced": paced_job(holdfast)}
        work(holdfast, floors=holdfast.floors, decode=holdfast.decode, **jobs)
