"""The official SDK as a worker: `a2a-sdk`'s client over JSON-RPC, with httpx inside.

The client comes from `ClientFactory` and the agent's card. It does not stream, as the other
clients here do not. It gets an httpx client that keeps every connection open: httpx by itself
keeps 20, so that with 32 in flight it would connect anew again and again.

Jobs besides ``rate``: ``decode``, protobuf's `json_format` on the tasks of `payloads`; and
``versions``.
"""

from __future__ import annotations

import uuid
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import httpx
import payloads
from a2a.client.client import ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest, StreamResponse, Task
from google.protobuf import json_format
from timing import microseconds_of
from worker import work

if TYPE_CHECKING:
    from a2a.client.client import Client


class OfficialSdk:
    """A client of the official SDK."""

    def __init__(self) -> None:
        self._client: Client
        self._http: httpx.AsyncClient

    async def open(self, url: str) -> None:
        """Connects, and checks one answer."""
        self._http = httpx.AsyncClient(
            headers={"authorization": payloads.TOKEN},
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=100),
        )
        factory = ClientFactory(ClientConfig(streaming=False, httpx_client=self._http))
        self._client = await factory.create_from_url(url)
        responses = await self._responses()
        assert [response.task.id for response in responses] == [payloads.TASK_ID]

    async def send(self) -> None:
        """The operation, and the one event that it yields."""
        await self._responses()

    async def _responses(self) -> list[StreamResponse]:
        message = Message(
            message_id=str(uuid.uuid4()),
            role=Role.ROLE_USER,
            parts=[Part(text=payloads.QUESTION)],
        )
        request = SendMessageRequest(message=message)
        return [response async for response in self._client.send_message(request)]

    async def close(self) -> None:
        """Closes the client."""
        await self._client.close()
        await self._http.aclose()


async def decode(seconds: float) -> dict[str, Any]:
    """Times protobuf's JSON parser on every payload once."""

    def parse(data: bytes) -> Task:
        task: Task = json_format.Parse(data, Task())
        return task

    return {
        "protobuf json_format": {
            size: microseconds_of(partial(parse, data), seconds=seconds)
            for size, data in payloads.PAYLOADS.items()
        }
    }


async def versions() -> dict[str, Any]:
    """What is measured."""
    return {name: version(name) for name in ("a2a-sdk", "httpx", "protobuf")}


if __name__ == "__main__":
    work(OfficialSdk(), decode=decode, versions=versions)
