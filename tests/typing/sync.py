"""`holdfast.sync` as a caller's program uses it, for type checkers: never run."""

# What must be refused is marked as ignored; an ignored line that is right is an error as well.
# pyright: reportUnnecessaryTypeIgnoreComment=true

from collections.abc import Iterator
from typing import assert_type

import holdfast
from holdfast import Answer, Message, Task
from holdfast._policy.breaker import BreakerState
from holdfast.protocol import GET_TASK
from holdfast.sync import (
    A2ACardResolver,
    BulkRun,
    Circuit,
    Client,
    ClientFactory,
    ClientTaskManager,
    Conversation,
    Coordinator,
    EventStream,
    FanOut,
    Iteration,
    PendingCall,
    ask,
    connect,
    diagnose,
    run,
)
from holdfast.types import Event, GetTaskRequest, ListTasksResponse


def calls() -> None:
    assert_type(ask("http://agent.test", "hello", timeout=3.0), Answer)
    assert_type(diagnose("http://agent.test"), holdfast.doctor.Diagnosis)
    with connect("http://agent.test", on_unknown="raise") as client:
        assert_type(client, Client)
        assert_type(client.ask("hello", timeout=3.0).text, str)
        assert_type(client.send_message("hello"), Task | Message)
        assert_type(client.get_task("1", headers={"x": "y"}), Task)
        assert_type(client.list_tasks(), ListTasksResponse)
        assert_type(client.iter_tasks(), Iteration[Task])
        assert_type(client.circuit, Circuit)
        assert_type(client.circuit.state, BreakerState)
        assert_type(client.pending(), list[PendingCall])
        assert_type(client.pending()[0].resume(), Answer)
        reply = client.call(GET_TASK, GetTaskRequest(id="1"))
        assert_type(reply.value, Task)
        client.ask("hello", retries=3)  # type: ignore[call-arg]
        client.get_task(1)  # type: ignore[arg-type]


async def notebook(client: Client) -> None:
    await client.ask("hello")  # type: ignore[misc]
    async with client:  # type: ignore[attr-defined]
        pass


def streams(client: Client) -> Iterator[Task]:
    with client.stream_message("hello") as events:
        assert_type(events, EventStream)
        for event in events:
            assert_type(event, Event)
        for text in events.text_deltas():
            assert_type(text, str)
        assert_type(events.result(), Answer)
    results = client.run(["one", "two"], concurrency=2)
    assert_type(results, BulkRun)
    for result in results:
        assert_type(result, holdfast.client.RunResult)
    yield from client.iter_tasks()


def conversations(client: Client) -> None:
    def reply(interruption: holdfast.Interruption) -> str:
        return input(interruption.text)

    talk = client.conversation(on_input=reply)
    assert_type(talk, Conversation)
    assert_type(talk.ask("hello"), Answer)


def agents(client: Client) -> None:
    with Coordinator({"one": client, "two": "http://agent.test"}) as coordinator:
        assert_type(coordinator, Coordinator)
        assert_type(coordinator.client("one"), Client)
        assert_type(coordinator.fan_out("hello"), FanOut)
        assert_type(
            coordinator.fan_out("hello").results(), tuple[holdfast.client.AgentResult, ...]
        )
        for result in coordinator.fan_out("hello"):
            assert_type(result.unwrap(), Answer)
    assert_type(ClientFactory().create("http://agent.test"), Client)
    with A2ACardResolver("http://agent.test") as cards:
        assert_type(cards.get_agent_card(), holdfast.AgentCard)


def rest(manager: ClientTaskManager, task: Task) -> None:
    assert_type(manager.process(task), Task)
    assert_type(run(holdfast.SqliteJournal("calls.db").close()), None)
