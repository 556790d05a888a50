"""The official SDK as a worker: `a2a-sdk`'s client over JSON-RPC, with httpx inside.

The clients come from `ClientFactory` and the agent's card: one for calls, and one that streams.
They get an httpx client that keeps every connection open: httpx by itself keeps 20, so that with
32 in flight it would connect anew again and again.

Its client gives the events of a stream alone. With ``task`` the worker puts the task together from
them as well, with the function that the SDK has for that. With ``holdfast`` the clients come from
Holdfast's `client_factory`, and it carries what they ask for. With ``streams`` any number of
connections may be open.

Jobs besides ``rate``: ``decode``, protobuf's `json_format` on the tasks of `payloads`; and
``versions``.
"""

from __future__ import annotations

import sys
import uuid
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import httpx
import payloads
from a2a.client.client import ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.server.tasks.task_manager import append_artifact_to_task
from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest, StreamResponse, Task
from google.protobuf import json_format
from timing import microseconds_of
from worker import paced_job, streaming_jobs, work

if TYPE_CHECKING:
    from collections.abc import Callable

    from a2a.client.client import Client


class OfficialSdk:
    """Clients of the official SDK."""

    def __init__(
        self,
        *,
        folds: bool,
        factory: type[ClientFactory] = ClientFactory,
        connections: int | None = 100,
    ) -> None:
        self._folds = folds
        self._connections = connections
        self._factory = factory
        self._client: Client
        self._streaming: Client
        self._http: httpx.AsyncClient

    async def open(self, url: str) -> None:
        """Connects, and checks one answer."""
        self._http = httpx.AsyncClient(
            headers={"authorization": payloads.TOKEN},
            limits=httpx.Limits(
                max_connections=self._connections, max_keepalive_connections=self._connections
            ),
        )

        async def client(*, streaming: bool) -> Client:
            config = ClientConfig(streaming=streaming, httpx_client=self._http)
            return await self._factory(config).create_from_url(url)

        self._client = await client(streaming=False)
        self._streaming = await client(streaming=True)
        responses = await self._responses()
        assert [response.task.id for response in responses] == [payloads.TASK_ID]

    async def send(self) -> None:
        """The operation, and the one event that it yields."""
        await self._responses()

    async def _responses(self) -> list[StreamResponse]:
        request = _request(payloads.QUESTION)
        return [response async for response in self._client.send_message(request)]

    async def stream(self, text: str, opened: Callable[[], None]) -> int:
        """Iterates over the events and, if it is to, puts the task together."""
        number = 0
        task = Task()
        async for response in self._streaming.send_message(_request(text)):
            if not number:
                opened()
            number += 1
            if self._folds:
                _fold(task, response)
        assert not self._folds or len(task.artifacts[0].parts) == number - 2
        return number

    async def read(self, noted: Callable[[], None]) -> None:
        """Iterates over the events, and takes the text of each."""
        async for response in self._streaming.send_message(_request(payloads.PACED)):
            _ = [part.text for part in response.artifact_update.artifact.parts]
            noted()

    async def close(self) -> None:
        """Closes the clients."""
        await self._client.close()
        await self._streaming.close()
        await self._http.aclose()


def _request(text: str) -> SendMessageRequest:
    parts = [Part(text=text)]
    message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=parts)
    return SendMessageRequest(message=message)


def _fold(task: Task, response: StreamResponse) -> None:
    match response.WhichOneof("payload"):
        case "artifact_update":
            append_artifact_to_task(task, response.artifact_update)
        case "status_update":
            task.status.CopyFrom(response.status_update.status)
        case "task":
            task.CopyFrom(response.task)
        case _:
            pass


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
    """Run the worker."""
    return {name: version(name) for name in ("a2a-sdk", "httpx", "protobuf")}


if __name__ == "__main__":
    factory = ClientFactory
    if "holdfast" in sys.argv[1:]:
        from holdfast.integrations.a2a_sdk import HoldfastClientFactory

        factory = HoldfastClientFactory
    connections = None if "streams" in sys.argv[1:] else 100
    sdk = OfficialSdk(folds="task" in sys.argv[1:], factory=factory, connections=connections)
    work(sdk, decode=decode, versions=versions, paced=paced_job(sdk), **streaming_jobs(sdk))
