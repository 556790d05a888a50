"""Tools in conversations and streams: the streams of a turn are one stream for the caller."""

import asyncio
import contextlib

import pytest
from tests.kit.client_tools import Scripted, add, call, calls, now, part_of, slow

from holdfast import (
    A2AConnectionError,
    Artifact,
    ClientTools,
    DeadlineExceededError,
    OutcomeUnknownError,
    Part,
    TaskFailedError,
    TaskState,
    ask,
    text_part,
)
from holdfast.client import ToolError
from holdfast.errors import ClientToolsNotSupportedError, LimitExceededError
from holdfast.testing import (
    Cut,
    FakeNetwork,
    Plan,
    Refuse,
    Reset,
    Step,
    Streaming,
    asks,
    completes,
    fails,
    rate_limited,
    replies,
    streams,
)

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
both_ways = pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "polled"])


def saying(name, text):
    return Artifact(artifact_id=name, parts=(text_part(text),))


# ── Streams ──────────────────────────────────────────────────────────────────────────────────


@both_bindings
@both_ways
async def test_a_stream_continues_over_all_turns_and_delivers_each_text_once(streaming, binding):
    fake = Scripted(
        calls(saying("a", "one "), call(1, "add", '{"a": 1}'), after=1),
        calls(saying("b", "two "), call(2, "slow", '{"seconds": 60}'), after=1),
        streams("three ", "four", every=1),
        streaming=streaming,
    )
    client = fake.client(bindings=[binding])

    async with client.stream_message("count", tools=[add, slow]) as events:
        text = "".join([text async for text in events.text_deltas()])
        answer = await events.result()

    assert text == answer.text == "one \ntwo \nthree four"
    assert fake.results(1) == [("call-1", "add", "2", None)]
    assert fake.results(2) == [("call-2", "slow", "after 60 s", None)]
    assert events.task.state is TaskState.COMPLETED
    assert fake.agent.open_streams == 0


@both_bindings
async def test_a_stream_with_tools_survives_cuts_in_every_turn(binding):
    runs = []

    def count(n: int) -> int:
        runs.append(n)
        return n

    fake = Scripted(
        calls(saying("a", "one"), call(1, "count", '{"n": 1}'), after=3),
        calls(saying("b", "two"), call(2, "count", '{"n": 2}'), after=3),
        completes(saying("c", "three"), after=3),
        streaming=Streaming(overlap=4, final_task=True),
    )
    for operation in ("SendStreamingMessage", "SubscribeToTask") * 2:
        fake.agent.inject(Cut(after_events=1), on=operation)

    async with fake.client(bindings=[binding]).stream_message("hi", tools=[count]) as events:
        text = "".join([text async for text in events.text_deltas()])

    assert (text, runs) == ("one\ntwo\nthree", [1, 2])
    assert events.reconnects == 4


@both_ways
async def test_a_question_ends_a_stream_with_tools(streaming):
    fake = Scripted(calls(call(1, "add", '{"a": 1}')), asks("Which one?"), streaming=streaming)

    async with fake.client().stream_message("hi", tools=[add]) as events:
        states = [event.status.state async for event in events if hasattr(event, "status")]
        answer = await events.result()

    assert (states[-1], answer.question) == (TaskState.INPUT_REQUIRED, "Which one?")


async def test_a_stream_checks_the_extension_before_anything_is_sent():
    fake = Scripted(completes("done"), declared=False)

    with pytest.raises(ClientToolsNotSupportedError):
        async with fake.client().stream_message("hi", tools=[add]):
            pass
    assert fake.turns == []
    with pytest.raises(TypeError, match="a named function"):
        fake.client().stream_message("hi", tools=[7])


@both_bindings
@both_ways
async def test_tools_are_not_offered_over_protocol_0_3(streaming, binding):
    fake = Scripted(completes("done"), versions=("0.3",), streaming=streaming)

    with pytest.raises(ClientToolsNotSupportedError, match=r"protocol 0\.3") as caught:
        await fake.client(bindings=[binding]).ask("hi", tools=[add])
    assert (caught.value.executed, fake.turns) == (False, [])


async def test_a_stream_without_a_deadline_has_no_time_limit_for_tools():
    fake = Scripted(calls(call(1, "slow", '{"seconds": 50000}')), completes("done"))

    async with fake.client().stream_message("hi", tools=[slow]) as events:
        assert (await events.result()).text == "done"


async def test_ask_function_accepts_tools():
    fake = Scripted(calls(call(1, "add", '{"a": 1}')), completes("done"))

    answer = await ask(fake.agent.url, "hi", tools=[add], engine=FakeNetwork(fake.agent))

    assert answer.text == "done"


@both_ways
async def test_a_reply_to_an_unchanged_task_is_awaited(streaming):
    later = Plan((Step(state=TaskState.COMPLETED, after=600, says="done"),))
    fake = Scripted(calls(call(1, "add", '{"a": 1}')), later, streaming=streaming)
    client = fake.client()
    waiting = await client.ask("hi")

    answer = await client.ask("never mind", task_id=waiting.task_id, tools=[add])

    assert (answer.text, len(fake.turns)) == ("done", 2)


# ── At most once ─────────────────────────────────────────────────────────────────────────────


async def test_a_call_that_is_repeated_at_once_runs_once():
    runs = []

    def count() -> int:
        runs.append(1)
        return 1

    again = Artifact(artifact_id="again", parts=call(1, "count").parts)
    fake = Scripted(calls(call(1, "count"), again), completes("done"))

    await fake.client().ask("hi", tools=[count])

    assert (len(runs), len(fake.results(1))) == (1, 1)


@both_ways
async def test_an_interrupted_call_is_not_run_again(streaming):
    began = []

    async def pay(who: str) -> str:
        began.append(who)
        await asyncio.sleep(0 if who == "Ada" else 1000)
        return f"paid {who}"

    both = call(1, "pay", '{"who": "Ada"}'), call(2, "pay", '{"who": "Bob"}')
    fake = Scripted(calls(*both), completes("done"), streaming=streaming)

    async with fake.client().stream_message("hi", tools=[pay]) as events:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await events.result()
        answer = await events.result()

    assert (answer.text, began) == ("done", ["Ada", "Bob"])
    interrupted = "the tool call was interrupted, and is not run again"
    assert fake.results(1) == [
        ("call-1", "pay", "paid Ada", None),
        ("call-2", "pay", "", interrupted),
    ]


async def test_a_tool_that_ignores_cancellation_blocks_nothing(caplog):
    woken = asyncio.Event()

    async def stubborn() -> None:
        while not woken.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await woken.wait()

    fake = Scripted(calls(call(1, "stubborn")))

    with pytest.raises(DeadlineExceededError, match=r"tools \(stubborn\) did not finish"):
        await fake.client().ask("hi", tools=[stubborn], timeout=60)

    assert now() == 61  # it had a second to end
    assert "tool stubborn continues although it was cancelled" in caplog.messages
    woken.set()
    await asyncio.sleep(1)
    assert len(fake.turns) == 1


async def test_a_cancelled_caller_waits_for_no_stubborn_tool():
    woken = asyncio.Event()

    async def stubborn() -> None:
        while not woken.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await woken.wait()

    fake = Scripted(calls(call(1, "stubborn")))
    asking = asyncio.create_task(fake.client().ask("hi", tools=[stubborn]))
    await asyncio.sleep(10)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert now() == 11
    woken.set()
    await asyncio.sleep(1)


async def test_a_tool_that_cancels_itself_has_failed_and_cancels_nothing_else():
    async def gone() -> None:
        raise asyncio.CancelledError

    def gone_too() -> None:
        raise asyncio.CancelledError

    fake = Scripted(calls(call(1, "gone"), call(2, "gone_too"), call(3, "add", '{"a": 1}')),
                    completes("done"))  # fmt: skip

    answer = await fake.client().ask("hi", tools=[gone, gone_too, add])

    assert answer.text == "done"
    assert [error for *_, error in fake.results(1)] == [
        "the tool failed: RuntimeError",
        "the tool failed: RuntimeError",
        None,
    ]


# ── Conversations ────────────────────────────────────────────────────────────────────────────


@both_bindings
@both_ways
async def test_each_turn_may_call_tools_and_carries_the_history(streaming, binding):
    fake = Scripted(
        calls(call(1, "add", '{"a": 1}')),
        completes("two", after=1),
        calls(call(1, "add", '{"a": 2}')),
        completes("three"),
        streaming=streaming,
    )
    chat = fake.client(bindings=[binding]).conversation(tools=[add])

    assert (await chat.ask("1 + 1?", metadata={"m": 1})).text == "two"
    assert (await chat.ask("2 + 1?")).text == "three"

    first, second = fake.turns[0].message, fake.turns[2].message
    assert part_of(first, "history") is None
    assert (second.task_id, second.context_id) == (None, chat.context_id)
    history = part_of(second, "history")["events"]
    assert [event["kind"] for event in history] == [
        "user_input",
        "model_response",
        "tool_results",
        "model_response",
    ]
    assert (history[3]["content"], history[3]["tool_calls"]) == ("two", [])
    events = part_of(fake.turns[3].message, "history")["events"]
    assert [event["kind"] for event in events[4:]] == ["user_input", "model_response"]
    assert fake.results(3) == [("call-1", "add", "3", None)]


async def test_the_same_call_in_another_task_is_another_call():
    again = calls(call(1, "add", '{"a": 1}'))
    fake = Scripted(again, completes("one"), again, completes("two"))
    chat = fake.client().conversation(tools=[add])

    assert (await chat.ask("hi")).text == "one"
    assert (await chat.ask("again")).text == "two"
    assert fake.results(3) == [("call-1", "add", "2", None)]


@both_ways
async def test_questions_go_to_hooks_and_calls_to_tools(streaming):
    fake = Scripted(
        calls(call(1, "add", '{"a": 1}')),
        asks("Sure?", after=1),
        calls(call(2, "add", '{"a": 2}')),
        completes("done"),
        streaming=streaming,
    )
    questions = []
    chat = fake.client().conversation(tools=[add], on_input=lambda i: questions.append(i) or "yes")

    async with chat.stream_message("hi") as events:
        assert (await events.result()).text == "done"

    assert [each.text for each in questions] == ["Sure?"]
    assert [each[2] for each in (*fake.results(1), *fake.results(3))] == ["2", "3"]
    reply = fake.turns[2].message
    assert reply.parts[0].text == "yes"


async def test_the_history_contains_answers_that_are_messages():
    fake = Scripted(replies("hello"), replies("bye"))
    chat = fake.client().conversation(tools=[add])

    await chat.ask("hi")
    await chat.ask("thanks")

    history = part_of(fake.turns[1].message, "history")["events"]
    assert [event.get("content") for event in history] == [None, "hello"]


@pytest.mark.parametrize(
    ("answer", "arrived"),
    [
        (replies("hello"), []),
        (completes("hello"), []),
        (asks("hello"), [None, "lost"]),  # which the task tells that it was for
    ],
)
async def test_the_history_omits_messages_that_may_not_have_arrived(answer, arrived):
    fake = Scripted(answer, completes("lost"), completes("done"))
    chat = fake.client(on_unknown="raise").conversation(tools=[add])
    await chat.ask("hi")
    fake.agent.inject(Reset(after_execution=True), on="SendStreamingMessage")

    with pytest.raises(OutcomeUnknownError):
        await chat.ask("and?")
    await chat.ask("and?")

    history = part_of(fake.turns[2].message, "history")["events"]
    assert [event.get("content") for event in history] == [None, "hello", *arrived]


@both_ways
async def test_a_turn_whose_tools_timed_out_can_be_continued(streaming):
    runs = []

    async def brew(cups: int) -> str:
        runs.append(cups)
        await asyncio.sleep(100)
        return "coffee"

    fake = Scripted(calls(call(1, "brew", '{"cups": 2}')), completes("done"), streaming=streaming)
    chat = fake.client().conversation(tools=[brew])

    with pytest.raises(DeadlineExceededError, match=r"tools \(brew\) .* the call timeout"):
        await chat.ask("hi", timeout=60)
    assert (await chat.wait()).text == "done"

    assert runs == [2]
    assert "interrupted" in fake.results(1)[0][3]


async def test_a_message_in_place_of_results_skips_the_calls():
    async def brew() -> str:
        raise ToolError("no water") if messages else AssertionError

    messages = []
    fake = Scripted(calls(call(1, "brew")), asks("So?"), completes("done"))
    tools = ClientTools([brew], raises=True)
    chat = fake.client().conversation(tools=tools)
    with pytest.raises(AssertionError):
        await chat.ask("hi")
    messages.append("never mind")

    assert (await chat.ask("never mind")).question == "So?"
    assert fake.turns[1].message.task_id == chat.task.id
    assert part_of(fake.turns[1].message, "tool-result") is None


async def test_calls_of_a_task_from_elsewhere_are_not_run():
    fake = Scripted(calls(call(1, "add", '{"a": 1}')), completes("done"))
    client = fake.client()
    task = (await client.ask("hi")).task

    chat = client.conversation(task=task, tools=[add])
    assert (await chat.wait()).needs_input
    assert (await chat.ask("go on")).text == "done"

    assert len(fake.turns) == 2
    assert part_of(fake.turns[1].message, "tool-result") is None


@both_ways
async def test_results_whose_reply_is_lost_are_not_sent_again(streaming):
    runs = []

    def lose() -> int:
        runs.append(1)
        operation = "SendStreamingMessage" if streaming else "SendMessage"
        fake.agent.inject(Reset(after_execution=True), on=operation)
        return 1

    fake = Scripted(calls(call(1, "lose")), completes("done"), streaming=streaming)
    chat = fake.client(on_unknown="raise").conversation(tools=[lose])

    with pytest.raises(OutcomeUnknownError):
        await chat.ask("hi")

    assert (await chat.wait()).text == "done"
    assert (len(runs), len(fake.turns)) == (1, 2)


@both_ways
async def test_unsent_results_are_sent_by_the_next_wait_and_nothing_runs_again(
    streaming,
):
    runs = []

    def count() -> int:
        runs.append(1)
        operation = "SendStreamingMessage" if streaming else "SendMessage"
        fake.agent.inject(Refuse(), on=operation, times=4)
        return 1

    fake = Scripted(calls(call(1, "count")), completes("done"), streaming=streaming)
    chat = fake.client().conversation(tools=[count])

    with pytest.raises(A2AConnectionError, match="the reply to task task-1 was not sent"):
        await chat.ask("hi")
    assert (await chat.wait()).text == "done"

    assert (runs, fake.results(1)) == ([1], [("call-1", "count", "1", None)])
    history = part_of(fake.turns[1].message, "history")["events"]
    assert [event["kind"] for event in history] == ["user_input", "model_response"]


@both_bindings
@both_ways
async def test_results_cancelled_before_they_were_sent_are_sent_by_the_next_wait(
    streaming, binding
):
    runs = []

    def count(n: int) -> int:
        runs.append(n)
        fake.agent.inject(rate_limited(10), on=operation)  # the next try waits
        return n

    operation = "SendStreamingMessage" if streaming else "SendMessage"
    counting = call(1, "count", '{"n": 1}')
    fake = Scripted(calls(counting, after=3), completes("done"), streaming=streaming)
    chat = fake.client(bindings=[binding]).conversation(tools=[count])
    asking = asyncio.create_task(chat.ask("hi"))
    while not runs or fake.agent.pending_faults:  # noqa: ASYNC110  the refusal sets no event
        await asyncio.sleep(0.001)
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    assert len(fake.turns) == 1

    assert (await chat.wait()).text == "done"
    assert runs == [1]


@pytest.mark.rule("P29")
async def test_max_turns_ends_a_turn_and_the_next_one_may_continue():
    plans = [calls(call(number, "add", '{"a": 1}')) for number in range(4)]
    fake = Scripted(*plans, completes("done"))
    chat = fake.client().conversation(tools=ClientTools([add], max_turns=3))

    with pytest.raises(LimitExceededError, match="max_turns"):
        await chat.ask("hi")
    assert (await chat.wait()).text == "done"

    assert len(fake.turns) == 5


async def test_calls_beyond_max_tool_calls_may_run_in_another_turn():
    plans = [calls(call(number, "add", '{"a": 1}')) for number in range(4)]
    fake = Scripted(*plans, completes("done"))
    chat = fake.client().conversation(tools=ClientTools([add], max_tool_calls=3))

    with pytest.raises(LimitExceededError, match="max_tool_calls"):
        await chat.ask("hi")
    assert (await chat.wait()).text == "done"

    assert len(fake.turns) == 5


async def test_a_failure_after_results_ends_the_turn():
    fake = Scripted(calls(call(1, "add", '{"a": 1}')), fails("no model"), completes("done"))
    chat = fake.client().conversation(tools=[add])

    with pytest.raises(TaskFailedError, match="no model"):
        await chat.ask("hi")
    assert (await chat.ask("again")).text == "done"


async def test_an_unreadable_call_does_not_block_the_next_message():
    odd = Artifact(
        artifact_id="odd", parts=(Part(data={}, media_type=call(1, "x").parts[0].media_type),)
    )
    fake = Scripted(calls(odd), completes("done"))
    client = fake.client()
    task = (await client.ask("hi")).task

    assert (await client.conversation(task=task, tools=[add]).ask("stop")).text == "done"


# ── Extensions of a message ──────────────────────────────────────────────────────────────────


async def test_extensions_of_a_message_are_sent_with_the_others():
    fake = Scripted(completes("done"))

    await fake.client().ask("hi", tools=[add], headers={"A2A-Extensions": "urn:other"})

    sent = fake.agent.received[-1].headers["a2a-extensions"]
    assert sent == "urn:ag2:client-tools:v1,urn:other"


# ── Exit of the program ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_tool_that_exits_the_program_leaves_nothing_open(kind, caplog):
    async def leave() -> None:
        raise kind

    fake = Scripted(calls(call(1, "leave")))

    async def main():
        await fake.client().ask("hi", tools=[leave])

    with pytest.raises(kind):
        asyncio.run(main())
    assert (fake.agent.open_streams, caplog.messages) == (0, [])
