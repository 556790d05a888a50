"""Conversations: what belongs together goes together, and questions on the way are replied to."""

import asyncio
import functools
import json

import pytest

from holdfast import (
    Artifact,
    DeadlineExceededError,
    Interruption,
    InvalidParamsError,
    OutcomeUnknownError,
    PassThrough,
    Reply,
    StreamOver,
    TaskAuthRequiredError,
    TaskInputRequiredError,
    TaskState,
    connect,
    text_part,
)
from holdfast.testing import (
    Cut,
    Delay,
    Fail,
    FakeAgent,
    FakeNetwork,
    Plan,
    Reset,
    Step,
    Streaming,
    asks,
    completes,
    needs_auth,
    replies,
    streams,
)


@pytest.fixture(autouse=True, params=["1.0", "0.3"])
def version(request, monkeypatch):
    """Has every agent here speak one version of the protocol, and then the other."""
    agent = functools.partial(FakeAgent, versions=(request.param,))
    monkeypatch.setitem(globals(), "FakeAgent", agent)
    return request.param


both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
both_ways = pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "polled"])


def now():
    return asyncio.get_running_loop().time()


def connected(agent, binding, **options):
    return connect(agent.url, engine=FakeNetwork(agent), bindings=(binding,), **options)


def scripted(*behaviours):
    """An agent that does one thing after another, and notes what it was told."""
    left = list(behaviours)

    def behave(turn):
        behave.told.append((turn.message.text, turn.message.task_id, turn.message.context_id))
        behaviour = left.pop(0)
        return behaviour(turn) if callable(behaviour) else behaviour

    behave.told = []
    return behave


PIZZA = (asks("Which one?"), asks("How large?"), completes("A large Margherita."))
REPLIES = {"Which one?": "Margherita", "How large?": "large"}


# ── What goes along ──────────────────────────────────────────────────────────────────────────


@both_bindings
@both_ways
async def test_s15_the_task_goes_along_while_it_is_open_and_the_context_always(streaming, binding):
    agent = scripted(asks("Which one?"), completes("One Margherita."), completes("Paid."))
    fake = FakeAgent(agent, streaming=streaming)
    chat = connected(fake, binding).conversation()

    first = await chat.ask("A pizza, please")
    assert (first.needs_input, first.question) == (True, "Which one?")
    assert chat.is_open
    second = await chat.ask("Margherita")
    assert (second.needs_input, second.text) == (False, "One Margherita.")
    assert not chat.is_open
    third = await chat.ask("By card")

    context = first.context_id
    assert agent.told == [
        ("A pizza, please", None, None),
        ("Margherita", first.task_id, context),
        ("By card", None, context),
    ]
    assert (third.text, third.task_id != first.task_id) == ("Paid.", True)
    assert chat.context_id == context
    assert chat.task.id == third.task_id


@both_bindings
async def test_a_conversation_of_messages_has_a_context_and_no_task(binding):
    def reply(turn):
        return replies(f"you said {turn.message.text}")

    agent = scripted(reply, reply)
    chat = connected(FakeAgent(agent), binding).conversation()

    assert (await chat.ask("one")).text == "you said one"
    context = chat.context_id
    assert context is not None
    assert (chat.task, chat.is_open) == (None, False)
    assert (await chat.ask("two")).text == "you said two"
    assert agent.told == [("one", None, None), ("two", None, context)]


@both_bindings
async def test_a_conversation_is_gone_on_with_by_its_context_or_its_task(binding):
    agent = scripted(asks("Which one?"), completes("done"), completes("more"))
    client = connected(FakeAgent(agent), binding)
    task = (await client.ask("A pizza")).task

    assert (await client.conversation(task=task).ask("Margherita")).text == "done"
    chat = client.conversation(context_id=task.context_id)
    assert (await chat.ask("and then")).text == "more"

    assert agent.told[1:] == [
        ("Margherita", task.id, task.context_id),
        ("and then", None, task.context_id),
    ]
    with pytest.raises(ValueError, match="is of the conversation"):
        client.conversation(task=task, context_id="another")


@both_bindings
async def test_a_task_that_was_left_at_work_and_is_over_is_not_spoken_to(binding):
    agent = scripted(streams("a", "b", every=10), completes("next"))
    chat = connected(FakeAgent(agent), binding).conversation()

    async with chat.stream_message("begin") as events:
        await anext(events)
    assert chat.is_open
    await asyncio.sleep(100)
    answer = await chat.ask("go on")

    assert answer.text == "next"
    assert agent.told[1] == ("go on", None, answer.context_id)


@both_bindings
async def test_a_task_that_was_left_at_work_and_goes_on_is_spoken_to(binding):
    agent = scripted(streams(*"abcdef", every=10), completes("enough"))
    chat = connected(FakeAgent(agent), binding).conversation()

    async with chat.stream_message("begin") as events:
        await anext(events)
    await asyncio.sleep(25)
    await chat.ask("stop")

    assert agent.told[1] == ("stop", "task-1", chat.context_id)


# ── Hooks ────────────────────────────────────────────────────────────────────────────────────


@both_bindings
@both_ways
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_what_the_agent_asks_is_replied_to_within_the_turn(kind, streaming, binding):
    asked = []

    def reply(interruption):
        asked.append(interruption)
        return REPLIES[interruption.text]

    async def later(interruption):
        await asyncio.sleep(30)
        return reply(interruption)

    agent = scripted(*PIZZA)
    hook = reply if kind == "sync" else later
    chat = connected(FakeAgent(agent, streaming=streaming), binding).conversation(on_input=hook)

    answer = await chat.ask("A pizza, please")

    assert (answer.text, answer.needs_input) == ("A large Margherita.", False)
    assert [text for text, *_ in agent.told] == ["A pizza, please", "Margherita", "large"]
    assert {task for _, task, _ in agent.told[1:]} == {answer.task_id}
    assert all(isinstance(each, Interruption) for each in asked)
    assert asked[0].task.state is TaskState.INPUT_REQUIRED
    assert asked[0].message.parts[0].text == "Which one?"


@both_bindings
@both_ways
async def test_the_text_of_a_turn_comes_once_over_all_its_streams(streaming, binding, version):
    more = Artifact(artifact_id="more", parts=(text_part("three "), text_part("four")))
    agent = scripted(
        streams("one ", "two", every=1, then=asks("Go on?")), completes(more, after=3, works=1)
    )
    fake = FakeAgent(agent, streaming=streaming)
    fake.inject(Cut(after_events=4), on="SendStreamingMessage")
    fake.inject(Cut(after_events=1), on="SendStreamingMessage")
    chat = connected(fake, binding).conversation(on_input=lambda _: "yes")

    async with chat.stream_message("count") as events:
        text = "".join([text async for text in events.text_deltas()])
        answer = await events.result()

    assert text == answer.text == "one two\nthree four"
    assert events.task.state is TaskState.COMPLETED
    assert events.reconnects == (2 if streaming and version == "1.0" else 0)


@both_bindings
async def test_a_hook_without_a_reply_leaves_the_question_to_the_caller(binding):
    asked = []
    agent = scripted(*PIZZA)
    chat = connected(FakeAgent(agent), binding).conversation(on_input=asked.append)

    answer = await chat.ask("A pizza, please")

    assert (answer.needs_input, answer.question, len(asked)) == (True, "Which one?", 1)
    assert (await chat.ask("Margherita")).question == "How large?"
    assert (await chat.ask("large")).text == "A large Margherita."


@both_bindings
@both_ways
async def test_a_question_that_is_told_once_more_is_not_replied_to_again(streaming, binding):
    artifact = Artifact(artifact_id="a", parts=(text_part("done"),))
    done = Plan((Step(artifacts=(artifact,)), Step(state=TaskState.COMPLETED, after=1)))
    agent = scripted(asks("Which one?"), done)
    asked = []

    def reply(interruption):
        asked.append(interruption.text)
        return "Margherita"

    fake = FakeAgent(agent, streaming=streaming)
    chat = connected(fake, binding).conversation(on_input=reply)

    assert (await chat.ask("A pizza")).text == "done"
    assert (asked, len(agent.told)) == (["Which one?"], 2)


@both_bindings
async def test_a_reply_asks_for_what_its_turn_can_use(binding):
    fake = FakeAgent(scripted(asks("Which one?"), completes("done")))
    chat = connected(fake, binding).conversation(on_input=lambda _: "Margherita")

    await chat.ask("A pizza", accepted_output_modes=["application/json"])

    sent = [json.loads(r.body) for r in fake.received if r.operation == "SendStreamingMessage"]
    modes = [(each.get("params") or each)["configuration"]["acceptedOutputModes"] for each in sent]
    assert modes == [["application/json"]] * 2


@both_bindings
async def test_a_hook_may_reply_with_parts(binding):
    agent = scripted(asks("Which one?"), completes("done"))
    chat = connected(FakeAgent(agent), binding).conversation(
        on_input=lambda _: [text_part("this"), text_part(" one")]
    )

    assert (await chat.ask("A pizza")).text == "done"
    assert agent.told[1][0] == "this\n one"


@both_bindings
@both_ways
async def test_a_hook_that_fails_leaves_the_task_to_be_gone_on_with(streaming, binding):
    def fail(_):
        raise KeyError("no idea")

    agent = scripted(asks("Which one?"), completes("done"))
    chat = connected(FakeAgent(agent, streaming=streaming), binding).conversation(on_input=fail)

    expected = "task task-1 still waits for input: the hook failed: KeyError: 'no idea'"
    with pytest.raises(TaskInputRequiredError, match=expected) as caught:
        await chat.ask("A pizza")

    error = caught.value
    assert (error.task.id, error.executed) == ("task-1", True)
    assert isinstance(error.__cause__, KeyError)
    assert chat.is_open
    assert (await chat.ask("Margherita")).text == "done"
    assert agent.told[1][1] == "task-1"


@both_bindings
@pytest.mark.parametrize("reply", [5, b"2", "", {"parts": 5}], ids=repr)
async def test_a_reply_that_is_no_message_leaves_the_task_to_be_gone_on_with(reply, binding):
    fake = FakeAgent(scripted(asks("Which one?"), completes("done")))
    chat = connected(fake, binding).conversation(on_input=lambda _: reply)

    failed = r"task-1 still .* the hook failed: "
    with pytest.raises(TaskInputRequiredError, match=failed) as caught:
        await chat.ask("A pizza")

    assert caught.value.task.id == "task-1"
    assert (await chat.ask("Margherita")).text == "done"


@both_bindings
async def test_a_hook_that_takes_too_long_leaves_the_task_to_be_gone_on_with(binding):
    async def sleep(_):
        await asyncio.sleep(1000)

    agent = scripted(asks("Which one?"), completes("done"))
    chat = connected(FakeAgent(agent), binding).conversation(on_input=sleep, input_timeout=60)

    expected = "still waits for input: the hook did not reply within the input timeout of 60 s"
    with pytest.raises(TaskInputRequiredError, match=expected) as caught:
        await chat.ask("A pizza")

    late = caught.value.__cause__
    assert isinstance(late, DeadlineExceededError)
    assert (late.deadline, late.timeout, late.task.id) == ("input", 60, "task-1")
    assert now() == 60
    assert (await chat.ask("Margherita")).text == "done"


@both_bindings
async def test_a_turn_ends_at_its_own_deadline_however_much_time_a_hook_has(binding):
    async def sleep(_):
        await asyncio.sleep(1000)

    chat = connected(FakeAgent(scripted(asks("Which one?"))), binding).conversation(
        on_input=sleep, input_timeout=60, timeout=40
    )

    with pytest.raises(TaskInputRequiredError, match="the conversation timeout of 40 s"):
        await chat.ask("A pizza")
    assert now() == 40


@both_bindings
async def test_an_agent_that_asks_for_ever_is_not_replied_to_for_ever(binding):
    fake = FakeAgent(lambda _: asks("Really?"))
    chat = connected(fake, binding).conversation(on_input=lambda _: "yes", max_turns=5)

    with pytest.raises(TaskInputRequiredError, match="still waits for input: 5 replies were not"):
        await chat.ask("Go")

    assert len(fake.calls("SendStreamingMessage")) == 6


@both_bindings
async def test_a_reply_that_may_be_lost_is_not_given_again(binding):
    fake = FakeAgent(scripted(asks("Which one?"), completes("done")))
    chat = connected(fake, binding).conversation(on_input=lambda _: "Margherita")
    fake.inject(Cut(after_events=99), on="SendStreamingMessage")  # the first is whole
    fake.inject(Reset(after_execution=True), on="SendStreamingMessage")

    with pytest.raises(OutcomeUnknownError) as caught:
        await chat.ask("A pizza")

    assert caught.value.context_id == chat.context_id
    assert len(fake.calls("SendStreamingMessage")) == 2
    assert (await chat.wait()).text == "done"


@both_bindings
async def test_a_turn_that_is_cancelled_while_it_replies_does_not_reply_again(binding):
    fake = FakeAgent(scripted(asks("Which one?"), completes("done")))
    chat = connected(fake, binding).conversation(on_input=lambda _: "Margherita")
    fake.inject(Cut(after_events=99), on="SendStreamingMessage")
    fake.inject(Delay(seconds=50, after_execution=True), on="SendStreamingMessage")

    async with chat.stream_message("A pizza") as events:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await events.result()
        assert (await events.result()).needs_input

    assert len(fake.calls("SendStreamingMessage")) == 2
    assert (await chat.wait()).text == "done"


@both_bindings
async def test_a_stream_that_does_not_close_keeps_no_reply_from_its_answer(binding):
    class Stuck(StreamOver):
        async def close(self):
            await super().close()
            await asyncio.sleep(1000)

    class Layer(PassThrough):
        async def stream(self, call, /):
            reply = await self._inner.stream(call)
            return Reply(value=reply.value if seen else Stuck(reply.value))

    seen = []
    agent = scripted(asks("Which one?"), completes("done"))
    fake = FakeAgent(agent, streaming=Streaming(stays_open=True))
    chat = connected(fake, binding, call_layers=[Layer]).conversation(
        on_input=lambda asked: seen.append(asked) or "Margherita"
    )

    assert (await chat.ask("A pizza")).text == "done"
    assert (len(agent.told), fake.open_streams) == (2, 0)


@both_bindings
async def test_closing_a_turn_ends_the_hook_that_it_waits_for(binding):
    ended = []

    async def sleep(_):
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(now())

    fake = FakeAgent(scripted(asks("Which one?")))
    chat = connected(fake, binding).conversation(on_input=sleep)
    events = chat.stream_message("A pizza")
    await events.__aenter__()
    reading = asyncio.create_task(rest_of(events))
    await asyncio.sleep(10)

    await events.close()
    await reading

    assert (ended, fake.open_streams) == ([10], 0)


async def rest_of(events):
    return [event async for event in events]


# ── Authorization ────────────────────────────────────────────────────────────────────────────


@both_bindings
@both_ways
async def test_s16_an_authorization_that_is_given_elsewhere_is_waited_for(streaming, binding):
    seen = []
    fake = FakeAgent(needs_auth("sign in", cleared_after=300), streaming=streaming)
    chat = connected(fake, binding).conversation(on_auth=seen.append)

    answer = await chat.ask("hello")

    assert (answer.text, [each.text for each in seen]) == ("authorized", ["sign in"])
    assert now() >= 300


@both_bindings
@both_ways
async def test_an_authorization_may_be_answered_with_a_message(streaming, binding):
    agent = scripted(needs_auth("May I?"), completes("done"))
    fake = FakeAgent(agent, streaming=streaming)
    chat = connected(fake, binding).conversation(on_auth=lambda _: "you may")

    assert (await chat.ask("delete it")).text == "done"
    assert agent.told[1][:2] == ("you may", "task-1")


@both_bindings
@both_ways
async def test_an_authorization_that_nobody_gives_ends_the_turn_and_not_the_task(
    streaming, binding
):
    fake = FakeAgent(needs_auth("sign in", cleared_after=100), streaming=streaming)
    chat = connected(fake, binding).conversation()

    with pytest.raises(TaskAuthRequiredError, match="the conversation timeout of 50 s"):
        await chat.ask("hello", timeout=50)

    assert chat.is_open
    assert (await chat.wait()).text == "authorized"


@both_bindings
async def test_an_agent_in_between_hands_an_interruption_on_and_goes_on_later(binding):
    """A calls B calls C: B lets C's question out as its own, and goes on when A has replied."""
    down = connected(FakeAgent(scripted(needs_auth("May C?"), completes("done by C"))), binding)

    def hand_on(interruption):
        raise interruption.error("my own caller is asked")

    chat = down.conversation(on_auth=hand_on)
    with pytest.raises(TaskAuthRequiredError, match="for an authorization: my own") as caught:
        await chat.ask("do it")
    assert caught.value.task.status.message.text == "May C?"

    later = down.conversation(task=caught.value.task)
    assert (await later.ask("C may")).text == "done by C"


# ── Misuse ───────────────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_one_turn_at_a_time(binding):
    chat = connected(FakeAgent(scripted(streams("a", every=1))), binding).conversation()

    async with chat.stream_message("one"):
        with pytest.raises(RuntimeError, match="a turn of the conversation is under way"):
            await chat.ask("two")
        with pytest.raises(RuntimeError, match="a turn of the conversation is under way"):
            await chat.wait()


@both_bindings
async def test_two_turns_that_begin_at_once_are_one_too_many(binding):
    agent = scripted(completes("one"), completes("two"))
    chat = connected(FakeAgent(agent), binding).conversation()

    first, second = await asyncio.gather(chat.ask("x"), chat.ask("y"), return_exceptions=True)

    assert (first.text, type(second)) == ("one", RuntimeError)
    assert (await chat.ask("y")).context_id == first.context_id


@both_bindings
async def test_a_turn_that_did_not_begin_is_no_turn(binding):
    fake = FakeAgent(scripted(completes("one")))
    chat = connected(fake, binding).conversation()
    fake.inject(Fail(code=-32602), on="SendStreamingMessage")

    with pytest.raises(InvalidParamsError):
        await chat.ask("x")

    assert (await chat.ask("x")).text == "one"


@both_bindings
async def test_there_is_nothing_to_wait_for_without_an_open_task(binding):
    chat = connected(FakeAgent(), binding).conversation()
    with pytest.raises(RuntimeError, match="no open task"):
        await chat.wait()
    await chat.ask("hello")
    with pytest.raises(RuntimeError, match="no open task"):
        await chat.wait()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"on_input": "yes"}, TypeError),
        ({"on_auth": 3}, TypeError),
        ({"timeout": 0}, ValueError),
        ({"input_timeout": -1}, ValueError),
        ({"max_turns": 1.5}, ValueError),
        ({"poll_interval": True}, ValueError),
        ({"task": "task-1"}, TypeError),
    ],
)
async def test_what_cannot_be_right_is_told_at_once(options, error):
    client = connected(FakeAgent(), "JSONRPC")
    with pytest.raises((error, TypeError), match=next(iter(options))):
        client.conversation(**options)


async def test_an_empty_message_is_refused_before_the_turn():
    chat = connected(FakeAgent(), "JSONRPC").conversation()
    with pytest.raises(ValueError, match="at least one part"):
        chat.stream_message("")
