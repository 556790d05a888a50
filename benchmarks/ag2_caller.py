"""AG2 as a caller: an `Agent` whose model is a remote agent, as AG2's documentation has it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import httpx
from a2a.client import A2ACardResolver
from ag2 import Agent
from ag2.a2a import A2AConfig
from caller import PATIENCE, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from caller import Send


@contextlib.asynccontextmanager
async def ag2(url: str) -> AsyncIterator[Send]:
    """AG2 makes an HTTP client, and message ids, of its own for each call."""
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    agent = Agent("caller", config=A2AConfig.from_card(card, card_url=url, timeout=PATIENCE))

    async def send(_: str, text: str) -> str:
        reply = await agent.ask(text)
        return reply.body or ""

    yield send


if __name__ == "__main__":
    run(
        ag2,
        "ag2",
        "a2a-sdk",
        "httpx",
        settings=[f"`timeout={PATIENCE:g}` (60 by default)"],
    )
