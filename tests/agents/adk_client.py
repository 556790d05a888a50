"""Google ADK's client of a remote agent, for our tests to watch: `RemoteA2aAgent` in a `Runner`.

This module owns one process that makes the calls it is told on standard input, see `calling`.

Rules:
- It runs in an environment of its own, where `google-adk[a2a]` is installed. There is no model.
- It does what ADK's documentation shows. Holdfast comes in by the one line of `THROUGH`, from the
  path that is named on the command line, and needs its dependencies here.

A call is ``{"through": KIND, "card": URL or CARD, "text": TEXT}``, with ``look``,
``on_unknown`` and ``bindings`` for Holdfast where a test is about these; what came of it is
``{"text": …, "errors": [MESSAGE, …], "events": [[TEXT, PARTIAL], …], "lent_is_closed": BOOL}``:
the text of all events together, the errors among them, the events with text.
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
from a2a.client import ClientConfig
from a2a.types import AgentCard
from calling import CALL_SECONDS, answer, resilience
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types
from google.protobuf.json_format import ParseDict

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from calling import Json, Test

Options = dict[str, Any]

APP: Final = "tests"
USER: Final = "tester"


@contextlib.asynccontextmanager
async def alone(_: Json, __: Test) -> AsyncGenerator[Options, None]:
    """ADK as it is."""
    yield {}


@contextlib.asynccontextmanager
async def transport(wanted: Json, test: Test) -> AsyncGenerator[Options, None]:
    """ADK with a client whose requests Holdfast carries."""
    from holdfast.integrations.httpx import Transport

    async with httpx.AsyncClient(
        transport=Transport(resilience=resilience(wanted, test)), timeout=CALL_SECONDS
    ) as client:
        yield {"httpx_client": client}


@contextlib.asynccontextmanager
async def factory(wanted: Json, test: Test) -> AsyncGenerator[Options, None]:
    """ADK with a factory of Holdfast's clients; ADK fetches the card by itself."""
    from holdfast.extend import AiohttpEngine
    from holdfast.integrations.a2a_sdk import client_factory

    bindings = wanted.get("bindings", [])
    async with AiohttpEngine() as engine:  # ADK closes no client of a factory
        yield {
            "a2a_client_factory": client_factory(
                ClientConfig(supported_protocol_bindings=bindings),
                resilience=resilience(wanted, test),
                on_unknown=wanted.get("on_unknown", "reconcile"),
                engine=engine,
            )
        }


@contextlib.asynccontextmanager
async def both(wanted: Json, test: Test) -> AsyncGenerator[Options, None]:
    """ADK with a factory of Holdfast's clients, and with a client that fetches the card."""
    async with factory(wanted, test) as making, transport(wanted, test) as carrying:
        yield making | carrying


THROUGH: Final[Mapping[str, Callable[[Json, Test], Any]]] = MappingProxyType(
    {"alone": alone, "transport": transport, "factory": factory, "both": both}
)
"""What `RemoteA2aAgent` is made with, beside the card."""


async def call(wanted: Json, test: Test) -> Json:
    """Run the remote agent in a session of its own."""
    card = wanted["card"]
    if not isinstance(card, str):
        card = ParseDict(card, AgentCard())
    async with THROUGH[wanted["through"]](wanted, test) as options:
        agent = RemoteA2aAgent(name="remote", agent_card=card, **options)
        runner = InMemoryRunner(agent, app_name=APP)
        session = await runner.session_service.create_session(app_name=APP, user_id=USER)
        said = types.Content(role="user", parts=[types.Part(text=wanted["text"])])
        events = [
            event
            async for event in runner.run_async(
                user_id=USER, session_id=session.id, new_message=said
            )
        ]
        await runner.close()
        await agent.cleanup()
        lent = options.get("httpx_client")
        return {
            "text": "".join(_text(event) for event in events),
            "errors": [event.error_message for event in events if event.error_message],
            "events": [[_text(event), event.partial] for event in events if _text(event)],
            "lent_is_closed": None if lent is None else lent.is_closed,
        }


def _text(event: Any) -> str:
    """What an event says to the user, thoughts apart."""
    if event.content is None:
        return ""
    return "".join(part.text or "" for part in event.content.parts if not part.thought)


def main() -> None:
    """Call with this process's arguments and standard streams."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    parser = argparse.ArgumentParser(description="Google ADK's client of a remote agent.")
    parser.add_argument("--holdfast", required=True, help="the directory that holds the package")
    sys.path.insert(0, parser.parse_args().holdfast)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(answer(call))


if __name__ == "__main__":
    main()
