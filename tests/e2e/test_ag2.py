"""A real AG2 agent calls our tools: its own server, its own loop, a stub in place of its model."""

import contextlib
import json
from enum import Enum

import pytest
from tests.kit.real_agents import LIMIT, ag2_process

from holdfast import ClientTools, Resilience, TaskState, connect
from holdfast.client import ToolError
from holdfast.extend import AiohttpEngine

pytestmark = [pytest.mark.ag2, pytest.mark.real_time]

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
streamed_or_polled = pytest.mark.parametrize(
    "streaming", [True, False], ids=["streamed", "polled"]
)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with ag2_process(tmp_path_factory.mktemp("ag2") / "stderr") as url:
        yield url


@contextlib.asynccontextmanager
async def client_of(url, binding="JSONRPC", *, streaming=True):
    async with AiohttpEngine(proxies=False) as engine:
        yield connect(
            url,
            engine=engine,
            bindings=[binding],
            streaming=streaming,
            timeout=LIMIT,
            resilience=Resilience.off(),
        )


def script(*turns, **more):
    """What the model does: in each turn it calls some tools, then it tells what it was given."""
    calls = [[{"name": name, "arguments": given} for name, given in turn] for turn in turns]
    return json.dumps({"turns": calls, **more})


class Unit(Enum):
    METRE = "m"
    FOOT = "ft"


def add(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b


async def measure(what: str, unit: Unit = Unit.METRE) -> dict[str, str]:
    """Measures something."""
    if what == "soul":
        raise ToolError("nobody can")
    return {"what": what, "unit": unit.value}


@both_bindings
@streamed_or_polled
async def test_tools_are_offered_called_and_answered_in_one_turn(url, binding, streaming):
    async with client_of(url, binding, streaming=streaming) as client:
        answer = await client.ask(
            script(
                [("add", {"a": 1}), ("measure", {"what": "bridge", "unit": "ft"})],
                [("add", {"a": 40, "b": 2})],
            ),
            tools=[add, measure],
        )

    told = json.loads(answer.text)
    assert answer.task.state is TaskState.COMPLETED
    first, second = told["results"]
    assert sorted(first) == [  # AG2 runs, and so announces, the calls of a turn in any order
        ["add", "2", None],
        ["measure", '{"what":"bridge","unit":"ft"}', None],
    ]
    assert second == [["add", "42", None]]
    assert [sorted(names) for names in told["calls"]] == [["add", "measure"], ["add"]]
    assert told["tools"]["add"] == [
        "Adds two numbers.",
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
            "required": ["a"],
            "additionalProperties": False,
        },
    ]


async def test_tool_failure_is_reported_to_the_model(url):
    async with client_of(url) as client:
        answer = await client.ask(
            script([("measure", {"what": "soul"}), ("add", {"a": "x"})]), tools=[add, measure]
        )

    wrong, soul = sorted(json.loads(answer.text)["results"][0])
    assert soul == ["measure", None, "nobody can"]
    assert wrong[2] == "the parameter 'a' is not valid: Expected `int`, got `str`"


@streamed_or_polled
async def test_what_the_agent_says_between_calls_stays_in_the_answer(url, streaming):
    async with client_of(url, streaming=streaming) as client:
        answer = await client.ask(
            script([("add", {"a": 1})], [("add", {"a": 2})], says="Let me see."),
            tools=ClientTools([add], max_turns=2),
        )

    assert answer.task.state is TaskState.COMPLETED
    assert answer.text == "Let me see.\nLet me see."
    assert json.loads(answer.task.status.message.text)["results"] == [
        [["add", "2", None]],
        [["add", "3", None]],
    ]


@both_bindings
@streamed_or_polled
async def test_a_stream_continues_over_all_turns(url, binding, streaming):
    async with client_of(url, binding, streaming=streaming) as client:
        told = script([("add", {"a": 1})], [("add", {"a": 2})], says="Let me see.")
        async with client.stream_message(told, tools=[add]) as events:
            text = "".join([text async for text in events.text_deltas()])
            answer = await events.result()

    assert answer.task.state is TaskState.COMPLETED
    assert text == answer.text == "Let me see.\nLet me see."


@both_bindings
@streamed_or_polled
async def test_a_conversation_tells_the_agent_what_it_does_not_remember(url, binding, streaming):
    async with client_of(url, binding, streaming=streaming) as client:
        chat = client.conversation(tools=[add], timeout=LIMIT)
        first = await chat.ask(script([("add", {"a": 1})]))
        second = await chat.ask("And what was that?")

    assert second.context_id == first.context_id
    assert second.task_id != first.task_id
    for answer in (first, second):  # the second is made of what was said before
        assert json.loads(answer.text)["results"] == [[["add", "2", None]]]
