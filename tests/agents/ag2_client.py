"""AG2's client of a remote agent, for our tests to watch: an `Agent` on an `A2AConfig`.

This module owns one process that makes the calls it is told on standard input, see `calling`.

Rules:
- It runs in an environment of its own, where `ag2[a2a]` is installed. There is no model.
- It does what AG2's documentation shows. Holdfast comes in by the one line of `THROUGH`, from the
  path that is named on the command line, and needs its dependencies here.

A call is ``{"through": KIND, "card": URL or CARD, "text": TEXT}``, with ``streaming`` and
``prefer`` of `A2AConfig` where a test is about these; what came of it is
``{"text": …, "chunks": [TEXT, …]}``, the reply and the pieces in which it was told on the way, or
``{"error": …, "chunks": …}``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import httpx
from a2a.types import AgentCard
from ag2 import Agent, MemoryStream
from ag2.a2a import A2AConfig
from ag2.events import ModelMessageChunk
from calling import CALL_SECONDS, answer, described, resilience
from google.protobuf.json_format import ParseDict

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from calling import Json, Test

Options = dict[str, Any]


@contextlib.asynccontextmanager
async def alone(_: Json, __: Test) -> AsyncGenerator[Options, None]:
    """AG2 as it is."""
    yield {}


@contextlib.asynccontextmanager
async def transport(wanted: Json, test: Test) -> AsyncGenerator[Options, None]:
    """AG2 with clients whose requests Holdfast carries; AG2 closes each when it has its reply."""
    from holdfast.extend import Endpoints
    from holdfast.integrations.httpx import Transport

    shared, made = Endpoints(), []

    def client() -> httpx.AsyncClient:
        carrying = Transport(resilience=resilience(wanted, test), shared=shared)
        made.append(httpx.AsyncClient(transport=carrying, timeout=CALL_SECONDS))
        return made[-1]

    yield {"httpx_client_factory": client}
    assert [client.is_closed for client in made] == [True]


THROUGH: Final[Mapping[str, Callable[[Json, Test], Any]]] = MappingProxyType(
    {"alone": alone, "transport": transport}
)
"""What `A2AConfig` is made with, beside the card."""


async def call(wanted: Json, test: Test) -> Json:
    """Ask the remote agent."""
    card = wanted["card"]
    async with THROUGH[wanted["through"]](wanted, test) as options:
        options |= {"reconnect_backoff": 0.01, "polling_interval": 0.01}
        options |= {name: wanted[name] for name in ("streaming", "prefer") if name in wanted}
        if isinstance(card, str):
            config = A2AConfig(card_url=card, **options)
        else:
            config = A2AConfig.from_card(ParseDict(card, AgentCard()), **options)
        chunks: list[str] = []
        stream = MemoryStream()

        async def note(chunk: ModelMessageChunk) -> None:
            chunks.append(chunk.content)

        stream.where(ModelMessageChunk).subscribe(note)
        try:
            reply = await Agent("remote", config=config).ask(wanted["text"], stream=stream)
        except Exception as error:  # noqa: BLE001  whatever AG2 raises is a result
            return {"error": described(error), "chunks": chunks}
        return {"text": reply.body, "chunks": chunks}


def main() -> None:
    """Call with this process's arguments and standard streams."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    parser = argparse.ArgumentParser(description="AG2's client of a remote agent.")
    parser.add_argument("--holdfast", required=True, help="the directory that holds the package")
    sys.path.insert(0, parser.parse_args().holdfast)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(answer(call))


if __name__ == "__main__":
    main()
