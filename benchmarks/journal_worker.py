"""A client as a worker, with the journal that its argument names.

Its job ``calls`` is SendMessage for some seconds with some calls in flight. The result is the
number of calls, and the seconds that they took.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

import payloads
from worker import work

from holdfast import connect
from holdfast.extend import AiohttpEngine

if TYPE_CHECKING:
    from holdfast.client import Client

_MAX_IN_FLIGHT = 256


class JournaledClient:
    """A client with a journal."""

    def __init__(self, journal: str) -> None:
        self._journal = journal
        self._engine = AiohttpEngine(max_connections=_MAX_IN_FLIGHT)
        self._client: Client

    async def open(self, url: str) -> None:
        """Connect, and check one reply."""
        self._client = connect(
            url, auth=payloads.TOKEN, engine=self._engine, journal=self._journal
        )
        await self.send()

    async def send(self) -> None:
        """Make one call."""
        await self._client.send_message(payloads.QUESTION)

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()
        await self._engine.close()

    async def calls(self, in_flight: int, seconds: float) -> dict[str, Any]:
        """Make calls."""
        count, began = 0, time.perf_counter()

        async def caller() -> None:
            nonlocal count
            while True:
                await self.send()
                count += 1
                if time.perf_counter() - began >= seconds:
                    return

        await asyncio.gather(*(caller() for _ in range(in_flight)))
        return {"calls": count, "seconds": time.perf_counter() - began}


if __name__ == "__main__":
    client = JournaledClient(sys.argv[1])
    work(client, calls=client.calls)
