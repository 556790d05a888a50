"""AG2 as a caller: an `Agent` whose model is a remote agent, as AG2's documentation has it.

With ``--transport holdfast``, AG2's HTTP clients have Holdfast's transport below them.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from a2a.client import A2ACardResolver
from ag2 import Agent
from ag2.a2a import A2AConfig
from caller import PATIENCE, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from caller import Send

SOURCE = Path(__file__).parent.parent / "src"
"""Import Holdfast, which is not installed in the environment of AG2."""


@contextlib.asynccontextmanager
async def ag2(url: str, *, client: Callable[[], httpx.AsyncClient] | None) -> AsyncIterator[Send]:
    """Creates a client for each call, as AG2 does; AG2 assigns message ids."""
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    options: dict[str, Any] = {"timeout": PATIENCE}
    if client is not None:
        options = {"httpx_client_factory": client}
    agent = Agent("caller", config=A2AConfig.from_card(card, card_url=url, **options))

    async def send(_: str, text: str) -> str:
        reply = await agent.ask(text)
        return reply.body or ""

    yield send


def carried() -> httpx.AsyncClient:
    """An HTTP client whose requests Holdfast carries."""
    from holdfast.integrations.httpx import Transport

    return httpx.AsyncClient(transport=Transport(), timeout=PATIENCE)


def main() -> None:
    """Make the calls that standard input requests."""
    parser = argparse.ArgumentParser(description="Call agents with AG2.")
    parser.add_argument("--transport", choices=("httpx", "holdfast"), default="httpx")
    distributions, client = ["ag2", "a2a-sdk", "httpx"], None
    if parser.parse_args().transport == "holdfast":
        sys.path.insert(0, str(SOURCE))
        distributions, client = [*distributions, "aiohttp"], carried
    settings = [f"`timeout={PATIENCE:g}` (60 by default)"]
    run(partial(ag2, client=client), *distributions, settings=settings)


if __name__ == "__main__":
    main()
