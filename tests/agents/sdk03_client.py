"""The client of the last official SDK of protocol 0.3, for our tests to watch.

This module owns one process that makes the calls it is told on standard input, see `calling`.

Rules:
- It runs in an environment of its own, where `a2a-sdk` 0.3 is installed.
- It does what that SDK's documentation shows. Holdfast comes in by the one line of `THROUGH`, from
  the path that is named on the command line, and needs its dependencies here.

A call is ``{"through": KIND, "card": URL, "text": TEXT}``, with ``streaming`` of `ClientConfig`
and the ``binding`` to speak where a test is about these; what came of it is ``{"text": …}``, that
of the task's artifacts, or ``{"error": …}``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
import uuid
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, TextPart
from calling import CALL_SECONDS, answer, resilience

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from a2a.types import Task
    from calling import Json, Test


def alone(_: Json, __: Test) -> httpx.AsyncClient:
    """The SDK as it is."""
    return httpx.AsyncClient(timeout=CALL_SECONDS)


def transport(wanted: Json, test: Test) -> httpx.AsyncClient:
    """The SDK with a client whose requests Holdfast carries."""
    from holdfast.integrations.httpx import Transport

    return httpx.AsyncClient(
        transport=Transport(resilience=resilience(wanted, test)), timeout=CALL_SECONDS
    )


THROUGH: Final[Mapping[str, Callable[[Json, Test], httpx.AsyncClient]]] = MappingProxyType(
    {"alone": alone, "transport": transport}
)
"""What the SDK is lent."""


async def call(wanted: Json, test: Test) -> Json:
    """Send the message; what is raised is told as an error."""
    async with THROUGH[wanted["through"]](wanted, test) as http:
        config = ClientConfig(
            httpx_client=http,
            streaming=wanted.get("streaming", True),
            supported_transports=[wanted.get("binding", "JSONRPC")],
        )
        card = await A2ACardResolver(http, wanted["card"]).get_agent_card()
        client = ClientFactory(config).create(card)
        part = Part(root=TextPart(text=wanted["text"]))
        message = Message(message_id=str(uuid.uuid4()), role=Role.user, parts=[part])
        *_, (task, _) = [event async for event in client.send_message(message)]
        return {"text": _text(task)}


def _text(task: Task) -> str:
    """What the artifacts of a task say."""
    parts: list[Any] = [part.root for one in task.artifacts or [] for part in one.parts]
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def main() -> None:
    """Call with this process's arguments and standard streams."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    parser = argparse.ArgumentParser(description="The official client of protocol 0.3.")
    parser.add_argument("--holdfast", required=True, help="the directory that holds the package")
    sys.path.insert(0, parser.parse_args().holdfast)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(answer(call))


if __name__ == "__main__":
    main()
