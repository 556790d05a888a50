"""`holdfast.server` as an agent's program uses it, for type checkers: never run."""

# What must be refused is marked as ignored; an ignored line that is right is an error as well.
# pyright: reportUnnecessaryTypeIgnoreComment=true

from collections.abc import AsyncIterator
from pathlib import Path
from typing import assert_type

from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import InMemoryTaskStore

from holdfast import A2AError, AgentCard, Message
from holdfast.server import (
    A2AServer,
    AgentTurn,
    Executor,
    InputRequired,
    ProtocolErrors,
    Rejected,
    fail,
    reject,
    requires_input,
)


async def answer(message: Message) -> str:
    return message.text


async def pieces(text: str, turn: AgentTurn) -> AsyncIterator[str]:
    assert_type(turn.asked, str | None)
    assert_type(turn.history, tuple[Message, ...])
    yield text


class Leading(Executor):
    async def execute(self, turn: AgentTurn) -> None:
        await turn.working("At it.")
        assert_type(await turn.artifact("report", name="report"), str)
        await turn.complete()


async def use(executor: AgentExecutor, stub: object) -> None:
    server = A2AServer(answer, card=Path("card.json"), task_store=InMemoryTaskStore(), push=True)
    A2AServer(pieces)
    A2AServer(Leading(), card={"name": "leading"})
    A2AServer(stub, executor=executor)
    A2AServer(answer, card_modifier=lambda card: card)
    A2AServer(answer, card_modifier=lambda card: None)  # type: ignore[arg-type, return-value]
    A2AServer(answer, task_store={})  # type: ignore[arg-type]

    assert_type(server.app(url="https://agents.example"), ProtocolErrors)
    assert_type(server.agent_card(url="https://agents.example"), AgentCard)
    async with server.serving(bindings=("JSONRPC", "GRPC"), grace=5) as running:
        assert_type(running.url, str)
        assert_type(running.card, AgentCard)
        assert_type(running.grpc_url, str | None)
    assert_type(await server.serve(port=9999), None)
    await server.close(grace=5)


assert_type(requires_input("Which city?"), InputRequired)
assert_type(reject("No."), Rejected)
assert_type(fail("Closed.", retry_after=60), A2AError)
