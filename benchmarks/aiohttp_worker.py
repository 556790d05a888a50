"""Bare aiohttp as a worker: the floor that a client over aiohttp stands on.

A POST of the same ready-made bytes each time on a session with aiohttp's defaults, and reading
the reply as bytes: no JSON is written or read, nothing is retried, errors are not classified.

With ``json`` as its argument, the worker also writes each request with `json.dumps` and reads
each reply with `json.loads`: what one would write by hand. With ``streams``, as many connections
as there may be are open, for as long as they may be. Of a paced stream it reads the lines, and
their JSON with `json.loads`: nothing is checked, and nothing is put together.
"""

from __future__ import annotations

import json
import sys
import uuid
from typing import TYPE_CHECKING, Any

import aiohttp
import payloads
from worker import paced_job, streaming_jobs, work

if TYPE_CHECKING:
    from collections.abc import Callable


class BareAiohttp:
    """A bare session."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession
        self._url = ""

    async def open(self, url: str) -> None:
        """Create the session, and check one answer."""
        self._session = self._made()
        self._url = url
        await self.send()

    async def send(self) -> None:
        """Send the same bytes each time."""
        assert len(await self.post(payloads.REQUEST)) > len(payloads.TASK)

    async def post(self, body: bytes) -> bytes:
        """Send and read bytes."""
        async with self._session.post(self._url, data=body, headers=payloads.HEADERS) as response:
            assert response.status == 200
            return await response.read()

    async def stream(self, text: str, opened: Callable[[], None]) -> int:
        """Read the bytes of a stream as they arrive."""
        body = payloads.STREAMING_REQUESTS[text]
        size = 0
        async with self._session.post(self._url, data=body, headers=payloads.HEADERS) as response:
            async for chunk in response.content.iter_any():
                if not size:
                    opened()
                size += len(chunk)
        return payloads.events_of(text)

    async def read(self, noted: Callable[[], None]) -> None:
        """Read line by line, and decode the data."""
        body = payloads.STREAMING_REQUESTS[payloads.PACED]
        async with self._session.post(self._url, data=body, headers=payloads.HEADERS) as response:
            async for line in response.content:
                if line.startswith(b"data: "):
                    assert json.loads(line[6:])["result"]
                    noted()

    async def close(self) -> None:
        """Close the session."""
        await self._session.close()

    def _made(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession()


class AiohttpWithStreams(BareAiohttp):
    """Bare streams."""

    def _made(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout()
        )


class AiohttpWithJson(BareAiohttp):
    """A bare session with the standard library's JSON."""

    async def send(self) -> None:
        """Send a new message each time."""
        request: dict[str, Any] = {
            "jsonrpc": "2.0",
            "id": str(uuid.uuid4()),
            "method": "SendMessage",
            "params": {
                "message": {
                    "messageId": str(uuid.uuid4()),
                    "role": "ROLE_USER",
                    "parts": [{"text": payloads.QUESTION}],
                }
            },
        }
        reply = json.loads(await self.post(json.dumps(request).encode()))
        assert reply["result"]["task"]["id"] == payloads.TASK_ID


if __name__ == "__main__":
    kinds = {"json": AiohttpWithJson, "streams": AiohttpWithStreams}
    client = kinds[sys.argv[1]]() if sys.argv[1:] else BareAiohttp()
    work(client, paced=paced_job(client), **streaming_jobs(client))
