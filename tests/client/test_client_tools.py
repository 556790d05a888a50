"""Client tools: offered, called and answered within one answer, each call once."""

import asyncio
import json
import logging
import threading

import pytest
from tests.kit.client_tools import CALL, URI, Scripted, add, call, calls, now, part_of, slow

from holdfast import (
    A2AConnectionError,
    Artifact,
    ClientTools,
    DeadlineExceededError,
    OutcomeUnknownError,
    Part,
    TaskFailedError,
    TaskNotFoundError,
    TaskState,
)
from holdfast.client import ToolError
from holdfast.errors import (
    ClientToolsNotSupportedError,
    InvalidAgentResponseError,
    LimitExceededError,
)
from holdfast.testing import (
    Cut,
    Delay,
    FakeNetwork,
    Plan,
    Reset,
    Step,
    Streaming,
    asks,
    completes,
    fails,
    replies,
)

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
streamed_or_polled = pytest.mark.parametrize("streaming", [True, False])


# ── The turns of an answer ───────────────────────────────────────────────────────────────────


@both_bindings
@streamed_or_polled
async def test_tool_calls_are_answered_in_the_same_task_until_it_completes(binding, streaming):
    fake = Scripted(
        calls(call(1, "add", '{"a": 1}'), call(2, "add", '{"a": 2, "b": 3}'), after=5),
        calls(call(3, "slow", '{"seconds": 60}')),
        completes("done", after=5),
    )
    client = fake.client(bindings=[binding], streaming=streaming)

    answer = await client.ask("hi", context_id="c-1", metadata={"m": 1}, tools=[add, slow])

    assert answer.text == "done"
    assert answer.extensions == (URI,)
    assert fake.results(1) == [("call-1", "add", "2", None), ("call-2", "add", "5", None)]
    assert fake.results(2) == [("call-3", "slow", "after 60 s", None)]
    (task,) = fake.agent.tasks.values()
    for turn in fake.turns[1:]:
        assert (turn.message.task_id, turn.message.context_id) == (task.id, "c-1")
    assert len({turn.message.message_id for turn in fake.turns}) == 3
    assert all(len(attempts) == 1 for attempts in fake.agent.executions.values())
    assert fake.agent.open_streams == 0


async def test_every_message_offers_the_tools_and_names_the_extension():
    fake = Scripted(calls(call(1, "add", '{"a": 1}')), completes("done"))

    await fake.client(extensions=[URI]).ask("hi", metadata={"m": 1}, tools=[add])

    offered = {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
            "required": ["a"],
            "additionalProperties": False,
        },
    }
    for turn in fake.turns:
        assert part_of(turn.message, "tool-schemas") == {"tools": [offered]}
        assert turn.message.extensions == (URI,)
    sent = [r for r in fake.agent.received if r.operation == "SendStreamingMessage"]
    assert [request.headers["a2a-extensions"] for request in sent] == [URI, URI]
    assert [json.loads(r.body)["params"]["metadata"] for r in sent] == [{"m": 1}] * 2


async def test_results_are_sent_with_the_history():
    text = Artifact(artifact_id="text", parts=(Part(text="Let me see."),))
    fake = Scripted(
        calls(text, call(1, "add", '{"a": 1}')), calls(call(2, "lost")), completes("done")
    )
    content = [
        "hi",
        Part(raw=b"\x00", media_type="image/png", filename="cat.png"),
        Part(url="https://a.test/x"),
        Part(data=[1]),
    ]

    await fake.client().ask(content, tools=[add])

    assert part_of(fake.turns[0].message, "history") is None
    history = {
        "kind": "user_input",
        "parts": [
            {"type": "text", "text": "hi"},
            {
                "type": "binary",
                "media_type": "image/png",
                "data": "AA==",
                "kind": "binary",
                "vendor_metadata": {"filename": "cat.png"},
            },
            {"type": "url", "url": "https://a.test/x", "kind": "binary"},
            {"type": "data", "data": [1]},
        ],
    }
    first = {
        "kind": "model_response",
        "content": "Let me see.",
        "tool_calls": [{"id": "call-1", "name": "add", "arguments": '{"a": 1}'}],
    }
    assert part_of(fake.turns[1].message, "history")["events"] == [history, first]
    results, second = part_of(fake.turns[2].message, "history")["events"][2:]
    [result] = results["results"]
    assert (results["kind"], result["kind"], result["parent_id"]) == (
        "tool_results",
        "tool_result",
        "call-1",
    )
    assert (second["content"], second["tool_calls"][0]["name"]) == ("", "lost")


@streamed_or_polled
async def test_a_question_is_the_answer_although_there_are_tools(streaming):
    fake = Scripted(calls(call(1, "add", '{"a": 1}')), asks("Which one?"))

    answer = await fake.client(streaming=streaming).ask("hi", tools=[add])

    assert (answer.needs_input, answer.question) == (True, "Which one?")
    assert len(fake.turns) == 2


@streamed_or_polled
async def test_an_agent_that_calls_no_tool_answers(streaming):
    fake = Scripted(replies("hello"), completes("done"))
    client = fake.client(streaming=streaming)

    assert (await client.ask("hi", tools=[add])).text == "hello"
    assert (await client.ask("hi", tools=[add])).text == "done"


@pytest.mark.parametrize("tools", [(), [], iter(()), ClientTools([])])
async def test_without_tools_the_extension_is_not_named(tools):
    fake = Scripted(completes("done"), declared=False)

    await fake.client().ask("hi", tools=tools)

    assert "a2a-extensions" not in fake.agent.received[-1].headers


@streamed_or_polled
async def test_an_unchanged_task_is_not_the_reply_to_results(streaming):
    # Agents built with AG2 leave the task waiting while their model works on the results.
    later = Plan((Step(state=TaskState.COMPLETED, after=100, says="done"),))
    fake = Scripted(calls(call(1, "add", '{"a": 1}')), later, streaming=Streaming())
    client = fake.client(streaming=streaming)

    answer = await client.ask("hi", tools=[add])

    assert (answer.text, answer.task.state) == ("done", TaskState.COMPLETED)
    assert len(fake.turns) == 2


@streamed_or_polled
async def test_calls_that_arrive_one_by_one_are_answered_together(streaming):
    first, second = call(2, "add", '{"a": 2}'), call(3, "add", '{"a": 3}')
    one_by_one = Plan(
        (
            Step(artifacts=(first,)),
            Step(artifacts=(second,), after=0.1),
            Step(state=TaskState.INPUT_REQUIRED, after=0.1),
        )
    )
    fake = Scripted(calls(call(1, "add", '{"a": 1}')), one_by_one, completes("done"))

    answer = await fake.client(streaming=streaming).ask("hi", tools=[add])

    assert answer.text == "done"
    assert [call_id for call_id, *_ in fake.results(2)] == ["call-2", "call-3"]


@streamed_or_polled
async def test_a_task_unchanged_after_results_may_fail(streaming):
    later = Plan((Step(state=TaskState.FAILED, after=100, says="no model"),))
    fake = Scripted(calls(call(1, "add", '{"a": 1}')), later)

    with pytest.raises(TaskFailedError, match="no model"):
        await fake.client(streaming=streaming).ask("hi", tools=[add])


@streamed_or_polled
async def test_a_failure_after_results_is_raised(streaming):
    fake = Scripted(calls(call(1, "add", '{"a": 1}')), fails("no model"))

    with pytest.raises(TaskFailedError, match="no model"):
        await fake.client(streaming=streaming).ask("hi", tools=[add])


async def test_an_answer_has_the_complete_task_after_a_short_last_stream():
    text = Artifact(artifact_id="text", parts=(Part(text="Let me see."),))
    fake = Scripted(
        calls(text, call(1, "add", '{"a": 1}')),
        Plan((Step(state=TaskState.COMPLETED, after=1),)),
        streaming=Streaming(snapshot=False),
    )
    fake.agent.inject(Delay(seconds=60), on="GetTask", times=2)  # the last word of each stream

    answer = await fake.client().ask("hi", tools=[add])

    assert answer.text == "Let me see."


async def test_calls_of_a_terminal_task_are_not_run():
    fake = Scripted(completes("done", call(1, "add", '{"a": 1}')))

    answer = await fake.client().ask("hi", tools=[add])

    assert answer.text == "done"
    assert len(fake.turns) == 1


# ── Each call once ───────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_a_call_runs_once_although_streams_are_cut_and_the_task_is_repeated(binding):
    runs = []

    def count(n: int) -> int:
        runs.append(n)
        return n

    fake = Scripted(
        calls(call(1, "count", '{"n": 1}'), after=3),
        calls(call(2, "count", '{"n": 2}'), after=3),
        completes("done", after=3),
        streaming=Streaming(overlap=4, final_task=True),
    )
    for operation in ("SendStreamingMessage", "SubscribeToTask") * 2:
        fake.agent.inject(Cut(after_events=1), on=operation)

    answer = await fake.client(bindings=[binding]).ask("hi", tools=[count])

    assert answer.text == "done"
    assert runs == [1, 2]
    assert len(fake.turns) == 3


async def test_results_whose_reply_is_lost_are_not_sent_again():
    fake = Scripted(calls(call(1, "add", '{"a": 1}')), completes("done"))
    network = FakeNetwork(fake.agent)

    def lose(a: int) -> int:
        fake.agent.inject(Reset(after_execution=True), on="SendStreamingMessage")
        return a

    lose.__name__ = "add"
    with pytest.raises(OutcomeUnknownError):
        await fake.client(engine=network, on_unknown="raise").ask("hi", tools=[lose])

    assert len(fake.turns) == 2


@streamed_or_polled
async def test_calls_from_before_the_message_are_not_run(streaming):
    fake = Scripted(
        calls(call(1, "add", '{"a": 1}')),
        calls(call(2, "add", '{"a": 2}')),
        completes("done"),
    )
    client = fake.client(streaming=streaming)
    waiting = await client.ask("hi")

    answer = await client.ask("go on", task_id=waiting.task_id, tools=[add])

    assert answer.text == "done"
    assert fake.results(2) == [("call-2", "add", "3", None)]


async def test_no_message_is_sent_to_a_task_that_cannot_be_fetched():
    fake = Scripted(completes("done"))

    with pytest.raises(TaskNotFoundError) as raised:
        await fake.client().ask("hi", task_id="task-9", tools=[add])

    assert raised.value.executed is False
    assert fake.turns == []


async def test_an_id_reused_with_other_arguments_is_another_call():
    fake = Scripted(
        calls(call(0, "add", '{"a": 1}')), calls(call(0, "add", '{"a": 2}')), completes("done")
    )

    await fake.client().ask("hi", tools=[add])

    assert [fake.results(1)[0][2], fake.results(2)[0][2]] == ["2", "3"]


# ── Before anything is sent ──────────────────────────────────────────────────────────────────


@both_bindings
@streamed_or_polled
async def test_an_agent_without_the_extension_is_offered_no_tools(binding, streaming):
    fake = Scripted(completes("done"), declared=False)
    client = fake.client(bindings=[binding], streaming=streaming)

    with pytest.raises(ClientToolsNotSupportedError) as raised:
        await client.ask("hi", tools=[add])

    assert raised.value.executed is False
    assert raised.value.extensions == (URI,)
    assert "tools=" in raised.value.message
    assert {request.operation for request in fake.agent.received} == {"GetAgentCard"}


class Untyped:
    """No function."""


def untyped(a, b: int) -> int:
    return b


def unknown(a: Untyped) -> None:
    """Takes what JSON does not have."""


def missing(a: "Nowhere") -> None:  # noqa: F821  nobody knows it
    """Takes what nobody knows."""


def any_number(*given: int) -> None:
    """Takes any number of things."""


def anything(**given: int) -> None:
    """Takes things by any name."""


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        (untyped, "parameter 'a' of the tool untyped needs a type"),
        (unknown, r"parameter 'a' of the tool unknown cannot be described: .*Untyped"),
        (missing, "tool missing cannot be described: .*Nowhere"),
        (any_number, "parameter 'given' of the tool any_number"),
        (anything, "parameter 'given' of the tool anything"),
        (lambda a: a, "a named function"),
        (Untyped, "a named function"),
        (7, "a named function"),
    ],
)
async def test_a_function_that_cannot_be_described_is_refused_by_name(tool, message):
    fake = Scripted(completes("done"))

    with pytest.raises(TypeError, match=message):
        await fake.client().ask("hi", tools=[tool])
    assert fake.agent.received == []


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: ClientTools([add, add]), ValueError, "two tools have the name 'add'"),
        (lambda: ClientTools([add], max_turns=0), ValueError, "max_turns"),
        (lambda: ClientTools([add], max_turns=1.5), TypeError, "max_turns"),
        (lambda: ClientTools([add], max_tool_calls=0), ValueError, "max_tool_calls"),
        (lambda: ClientTools([add], max_tool_calls=1.5), TypeError, "max_tool_calls"),
        (lambda: ClientTools([add], raises="yes"), TypeError, "raises"),
        (
            lambda: ClientTools(add),
            TypeError,
            r"be a sequence, not function; pass a list: \[add\]",
        ),
    ],
)
def test_invalid_tools_are_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


# ── Errors ───────────────────────────────────────────────────────────────────────────────────


def broken(secret: str) -> str:
    """Fails."""
    raise ValueError(secret)


async def refusing(what: str) -> str:
    """Says no."""
    raise ToolError(f"there is no {what}")


def unwritable() -> object:
    """Gives what JSON does not have."""
    return threading.Lock()


def stopping() -> None:
    """Raises what no future takes."""
    raise StopIteration


@pytest.mark.parametrize(
    ("name", "arguments", "reply"),
    [
        ("nothing", "{}", "there is no tool 'nothing'; valid names: add, broken, refusing"),
        ("broken", '{"secret": "k-123"}', "the tool failed: ValueError"),
        ("refusing", '{"what": "oven"}', "there is no oven"),
        ("unwritable", "", "the tool failed: TypeError"),
        ("stopping", "{}", "the tool failed: RuntimeError"),
        ("add", "{}", "the parameter 'a' is missing"),
        ("add", '{"a": "1"}', "the parameter 'a' is not valid: Expected `int`, got `str`"),
        ("add", '{"a": 1, "c": 2}', "there is no parameter 'c'; valid names: a, b"),
        ("add", "[1]", "the arguments are not a JSON object: Expected `object`, got `array`"),
        ("add", '{"a": ', "the arguments are not a JSON object: Input data was truncated"),
        ("add", "[" * 100_000, "the arguments are not a JSON object: "),
        ("add", '{"a": "\ud800"}', "the arguments are not a JSON object: "),
    ],
)
async def test_an_error_result_is_sent_to_the_agent(name, arguments, reply, caplog):
    caplog.set_level(logging.CRITICAL, "holdfast")
    fake = Scripted(calls(call(1, name, arguments)), completes("done"))

    answer = await fake.client().ask("hi", tools=[add, broken, refusing, unwritable, stopping])

    [(_, _, content, error)] = fake.results(1)
    assert answer.text == "done"
    assert content == ""
    assert error.startswith(reply)
    assert "k-123" not in error


async def test_a_failing_tool_is_logged(caplog):
    fake = Scripted(calls(call(1, "broken", '{"secret": "x"}')), completes("done"))

    await fake.client().ask("hi", tools=[broken])

    [record] = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert record.getMessage().endswith(": tool broken failed")
    assert (record.operation, record.error_type) == ("ask", "ValueError")
    assert record.exc_info[0] is ValueError


async def test_raises_raises_an_exception_and_cancels_the_other_calls():
    ended = []

    async def endless() -> None:
        """Waits for ever."""
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.append(now())

    fake = Scripted(calls(call(1, "endless"), call(2, "broken", '{"secret": "x"}')))
    began = now()

    with pytest.raises(ValueError, match="x"):
        await fake.client().ask("hi", tools=ClientTools([endless, broken], raises=True))

    assert ended == [began]
    assert len(fake.turns) == 1


async def test_a_tool_error_is_sent_even_with_raises():
    fake = Scripted(calls(call(1, "refusing", '{"what": "oven"}')), completes("done"))

    await fake.client().ask("hi", tools=ClientTools([refusing], raises=True))

    assert fake.results(1) == [("call-1", "refusing", "", "there is no oven")]


@pytest.mark.parametrize("data", [None, 7, {}, {"id": "x"}, {"name": "add"}, {"id": 1, "name": 2}])
async def test_an_unreadable_call_is_an_error(data):
    artifact = Artifact(artifact_id="odd", parts=(Part(data=data, media_type=CALL),))
    fake = Scripted(calls(artifact))

    with pytest.raises(InvalidAgentResponseError, match="'odd'") as raised:
        await fake.client().ask("hi", tools=[add])
    assert raised.value.executed is True


async def test_arguments_may_be_an_object():
    data = {"id": "c", "name": "add", "arguments": {"a": 1}}
    artifact = Artifact(artifact_id="c", parts=(Part(data=data, media_type=CALL),))
    fake = Scripted(calls(artifact), completes("done"))

    await fake.client().ask("hi", tools=[add])

    assert fake.results(1) == [("c", "add", "2", None)]


# ── Limits ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P29")
@streamed_or_polled
async def test_an_agent_that_calls_tools_for_ever_reaches_max_turns(streaming):
    plans = [calls(call(number, "add", '{"a": 1}')) for number in range(4)]
    fake = Scripted(*plans)
    client = fake.client(streaming=streaming)

    with pytest.raises(LimitExceededError, match="max_turns") as raised:
        await client.ask("hi", tools=ClientTools([add], max_turns=3))

    error = raised.value
    assert (error.which, error.bound, error.executed) == ("max_turns", 3, True)
    assert error.task.state is TaskState.INPUT_REQUIRED
    assert len(fake.turns) == 4


def adds(first, count):
    return calls(*(call(n, "add", f'{{"a": {n}}}') for n in range(first, first + count)))


@pytest.mark.rule("P29")
@streamed_or_polled
async def test_calls_beyond_max_tool_calls_do_not_run_and_cancel_nothing(streaming):
    ran = []

    def add(a: int) -> int:
        ran.append(a)
        return a

    fake = Scripted(adds(1, 101))
    with pytest.raises(
        LimitExceededError, match=r"101 tool calls after 0, but max_tool_calls allows 100"
    ) as raised:
        await fake.client(streaming=streaming).ask("hi", tools=[add])

    error = raised.value
    assert (error.which, error.bound, error.executed) == ("max_tool_calls", 100, True)
    assert error.task.state is TaskState.INPUT_REQUIRED
    assert (ran, len(fake.turns)) == ([], 1)
    assert "CancelTask" not in {request.operation for request in fake.agent.received}


@pytest.mark.rule("P29")
async def test_max_tool_calls_counts_all_calls_of_one_answer():
    ran = []

    def add(a: int) -> int:
        ran.append(a)
        return a

    within = Scripted(adds(1, 2), adds(3, 1), completes("done"))
    answer = await within.client().ask("hi", tools=ClientTools([add], max_tool_calls=3))
    assert (answer.text, sorted(ran)) == ("done", [1, 2, 3])

    ran.clear()
    beyond = Scripted(adds(1, 2), adds(3, 2), completes("done"))
    with pytest.raises(
        LimitExceededError, match="2 tool calls after 2, but max_tool_calls allows 3 "
    ):
        await beyond.client().ask("hi", tools=ClientTools([add], max_tool_calls=3))
    assert sorted(ran) == [1, 2]


async def test_tools_run_within_the_timeout_of_the_answer():
    fake = Scripted(calls(call(1, "slow", '{"seconds": 1000}'), after=10))
    began = now()

    with pytest.raises(DeadlineExceededError, match="slow") as raised:
        await fake.client().ask("hi", tools=[slow], timeout=60)

    assert now() - began == 60
    assert (raised.value.deadline, raised.value.timeout) == ("call", 60)
    assert raised.value.task.state is TaskState.INPUT_REQUIRED
    assert raised.value.executed is True


@pytest.mark.rule("D04")
async def test_all_turns_share_one_timeout():
    fake = Scripted(
        calls(call(1, "slow", '{"seconds": 30}'), after=20), completes("done", after=20)
    )
    began = now()

    with pytest.raises(DeadlineExceededError):
        await fake.client().ask("hi", tools=[slow], timeout=60)

    assert now() - began == 60


async def test_a_cancelled_caller_leaves_no_tool_running():
    ended = []

    async def endless() -> None:
        """Waits for ever."""
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.append(True)

    fake = Scripted(calls(call(1, "endless")))
    asking = asyncio.create_task(fake.client().ask("hi", tools=[endless]))
    await asyncio.sleep(1)
    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking
    assert ended == [True]
    assert fake.agent.open_streams == 0


async def test_a_client_that_is_closed_while_tools_run_sends_no_results():
    fake = Scripted(calls(call(1, "slow", '{"seconds": 5}')), completes("done"))
    client = fake.client()
    asking = asyncio.create_task(client.ask("hi", tools=[slow]))
    await asyncio.sleep(1)
    await client.close()

    with pytest.raises(A2AConnectionError) as raised:
        await asking
    assert raised.value.failure == "closed"
    assert len(fake.turns) == 1


# ── Running functions ────────────────────────────────────────────────────────────────────────


async def test_the_calls_of_a_turn_run_concurrently_and_their_results_keep_the_order():
    waits = [call(n, "slow", json.dumps({"seconds": 10 - n})) for n in range(5)]
    fake = Scripted(calls(*waits), completes("done"))
    began = now()

    await fake.client().ask("hi", tools=[slow])

    assert now() - began == 10
    assert [name for name, *_ in fake.results(1)] == [f"call-{n}" for n in range(5)]


@pytest.mark.rule("P29")
async def test_at_most_16_calls_run_at_the_same_time():
    running, most = 0, 0

    async def busy() -> None:
        """Counts itself."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1

    fake = Scripted(calls(*(call(n, "busy") for n in range(100))), completes("done"))

    await fake.client().ask("hi", tools=[busy])

    assert most == 16


async def test_a_function_that_blocks_runs_in_a_thread():
    threads = []

    def blocking() -> None:
        """Notes where it runs."""
        threads.append(threading.current_thread())

    fake = Scripted(calls(call(1, "blocking")), completes("done"))

    await fake.client().ask("hi", tools=[blocking])

    assert threads != [threading.main_thread()]
    assert fake.results(1) == [("call-1", "blocking", "null", None)]


async def test_methods_and_functions_that_return_an_awaitable_are_tools():
    class Shop:
        def __init__(self):
            self.sold = []

        async def sell(self, what: str, /, *, number: int) -> list[str]:
            """Sells something."""
            self.sold += [what] * number
            return self.sold

        def later(self) -> object:
            """Takes its time."""
            return asyncio.sleep(1, "later")

    shop = Shop()
    fake = Scripted(
        calls(call(1, "sell", '{"what": "pie", "number": 2}'), call(2, "later")),
        completes("done"),
    )

    await fake.client().ask("hi", tools=[shop.sell, shop.later])

    assert [content for _, _, content, _ in fake.results(1)] == ['["pie","pie"]', "later"]
