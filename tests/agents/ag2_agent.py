"""A real AG2 agent with a stub for a model, for our tests to call over loopback.

This module owns one agent process: AG2's own A2A server over both HTTP bindings, around an agent
whose model does what the user's text says.

Rules:
- It never imports holdfast. Both ends of the wire must not share a mistake.
- It runs in an environment of its own, where `ag2[a2a]` is installed.
- Standard output carries exactly one line, its address as JSON, once it is ready.
- It ends with exit code 0 when standard input ends, or when its time is up.
- The model has no memory but what AG2 hands it: the script is the first thing that the user said,
  and how far it has come is counted from the results that there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from ag2 import Agent
from ag2.a2a import A2AServer
from ag2.a2a.card import build_card
from ag2.config import LLMClient, ModelConfig
from ag2.events import (
    BaseEvent,
    ModelMessage,
    ModelMessageChunk,
    ModelRequest,
    ModelResponse,
    ToolCallEvent,
    ToolCallsEvent,
    ToolErrorEvent,
    ToolResultsEvent,
)
from serving import serve
from starlette.applications import Starlette
from starlette.routing import Mount

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

MAX_SECONDS: Final = 600


class ScriptedModel(LLMClient):
    """Calls the tools that the script names, turn by turn, then tells all that it was given."""

    async def __call__(
        self, messages: Sequence[BaseEvent], context: Any, *, tools: Any = (), **_: Any
    ) -> ModelResponse:
        """Read the script ``{"turns": [[{"name", "arguments"}, …], …], "says": TEXT}``."""
        offered = [schema.function for schema in tools]
        said = next(m for m in messages if isinstance(m, ModelRequest))
        script = json.loads(said.parts[0].content)
        answered = [m for m in messages if isinstance(m, ToolResultsEvent)]
        if len(answered) < len(script["turns"]):
            if "says" in script:
                await context.send(ModelMessageChunk(script["says"]))
            calls = [
                ToolCallEvent(
                    id=uuid4().hex, name=call["name"], arguments=json.dumps(call["arguments"])
                )
                for call in script["turns"][len(answered)]
            ]
            return ModelResponse(tool_calls=ToolCallsEvent(calls))
        report = {
            "results": [[_told(result) for result in turn.results] for turn in answered],
            "calls": [
                [call.name for call in m.tool_calls.calls]
                for m in messages
                if isinstance(m, ModelResponse)
            ],
            "tools": {tool.name: [tool.description, tool.parameters] for tool in offered},
        }
        message = ModelMessage(json.dumps(report))
        await context.send(message)
        return ModelResponse(message)


def _told(result: Any) -> list[Any]:
    """What the model is told of one call: the tool, and what it gave or why it failed."""
    if isinstance(result, ToolErrorEvent):
        return [result.name, None, str(result.error)]
    return [result.name, "".join(part.content for part in result.result.parts), None]


class Stub(ModelConfig):
    """Where AG2 gets the model from."""

    provider = "stub"
    model = "scripted"

    def copy(self) -> Stub:
        """Nothing to copy."""
        return self

    def create(self) -> ScriptedModel:
        """One for each turn; it remembers nothing."""
        return ScriptedModel()

    def create_files_client(self) -> Any:
        """There is none."""
        raise NotImplementedError


def build_app(url: str) -> Starlette:
    """Put AG2's server behind one address: JSON-RPC at /rpc, HTTP+JSON at /rest."""
    agent = Agent("scripted", "Does as it is told.", config=Stub())
    server = A2AServer(agent)
    card = build_card(
        agent, url=f"{url}/rpc", transports=("jsonrpc", "rest"), rest_url=f"{url}/rest"
    )
    rpc = server.build_jsonrpc(url=url, card=card, rpc_url="/rpc")
    rest = server.build_rest(url=url, card=card)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        async with rpc.router.lifespan_context(rpc), rest.router.lifespan_context(rest):
            yield

    return Starlette(routes=[*rpc.routes, Mount("/rest", app=rest)], lifespan=lifespan)


def main() -> None:
    """Serve with this process's standard streams."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(build_app, MAX_SECONDS))


if __name__ == "__main__":
    main()
