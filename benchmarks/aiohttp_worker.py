"""Bare aiohttp as a worker: the floor that a client over aiohttp stands on.

A POST of the same ready-made bytes each time on a session with aiohttp's defaults, and reading
the reply as bytes: no JSON is written or read, nothing is retried, no error is told apart.

With ``json`` as its argument, the worker also writes each request with `json.dumps` and reads
each reply with `json.loads`: what one would write by hand.
"""

from __future__ import annotations

import json
import sys
import uuid
from typing import Any

import aiohttp
import payloads
from worker import work


class BareAiohttp:
    """A session and nothing else."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession
        self._url = ""

    async def open(self, url: str) -> None:
        """Makes the session, and checks one answer."""
        self._session = aiohttp.ClientSession()
        self._url = url
        await self.send()

    async def send(self) -> None:
        """The same bytes each time."""
        assert len(await self.post(payloads.REQUEST)) > len(payloads.TASK)

    async def post(self, body: bytes) -> bytes:
        """Sends bytes, reads bytes."""
        async with self._session.post(self._url, data=body, headers=payloads.HEADERS) as response:
            assert response.status == 200
            return await response.read()

    async def close(self) -> None:
        """Closes the session."""
        await self._session.close()


class AiohttpWithJson(BareAiohttp):
    """The standard library's JSON on top."""

    async def send(self) -> None:
        """A message of its own each time."""
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
    work(AiohttpWithJson() if sys.argv[1:] == ["json"] else BareAiohttp())
