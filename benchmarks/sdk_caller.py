"""The official SDK as a caller: the client of its `ClientFactory`, with all its defaults."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from a2a.client.client_factory import ClientFactory
from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest
from caller import Text, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from a2a.client.client import Client
    from a2a.types.a2a_pb2 import StreamResponse
    from caller import Send


def sender(client: Client) -> Send:
    """Sends a message, and puts the text together from the events that come."""

    async def send(message_id: str, text: str) -> str:
        message = Message(message_id=message_id, role=Role.ROLE_USER, parts=[Part(text=text)])
        got = Text()
        async for event in client.send_message(SendMessageRequest(message=message)):
            _add(got, event)
        return str(got)

    return send


def _add(got: Text, event: StreamResponse) -> None:
    match event.WhichOneof("payload"):
        case "artifact_update":
            update = event.artifact_update
            artifact = update.artifact
            got.add(artifact.artifact_id, _text(artifact.parts), append=update.append)
        case "task":
            for artifact in event.task.artifacts:
                got.add(artifact.artifact_id, _text(artifact.parts), append=False)
        case _:
            pass


def _text(parts: Iterable[Part]) -> str:
    return "".join(part.text for part in parts)


@contextlib.asynccontextmanager
async def alone(url: str) -> AsyncIterator[Send]:
    """The SDK by itself."""
    client = await ClientFactory().create_from_url(url)
    try:
        yield sender(client)
    finally:
        await client.close()


if __name__ == "__main__":
    run(alone, "a2a-sdk", "httpx", settings="all by default")
