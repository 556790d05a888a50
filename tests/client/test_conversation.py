"""Conversations: messages with a common context, and replies to interruptions."""

import asyncio
import contextlib
import functools
import json

import msgspec
import pytest
from tests.kit.effort import crossed

from holdfast import (
    A2AConnectionError,
    Artifact,
    DeadlineExceededError,
    Interruption,
    Message,
    OutcomeUnknownError,
    Role,
    Task,
    TaskInputRequiredError,
    TaskNotFoundError,
    TaskState,
    connect,
    text_part,
)
from holdfast.errors import (
    InternalError,
    InvalidParamsError,
    TaskAuthRequiredError,
    UnsupportedOperationError,
)
from holdfast.extend import BaseLayer, Reply, StreamWrapper
from holdfast.testing import (
    Cut,
    Delay,
    Fail,
    FakeAgent,
    FakeNetwork,
    Plan,
    Refuse,
    Reset,
    Stall,
    Step,
    Streaming,
    asks,
    completes,
    needs_auth,
    replies,
    streams,
    works_forever,
)


@pytest.fixture(autouse=True, params=["1.0", "0.3"])
def version(request, monkeypatch):
    """Run a test with agents of one protocol version, and then of the other."""
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
    """Return an agent with one behavior per message, which records the messages."""
    remaining = list(behaviours)

    def behave(turn):
        behave.messages.append((turn.message.text, turn.message.task_id, turn.message.context_id))
        behaviour = remaining.pop(0)
        return behaviour(turn) if callable(behaviour) else behaviour

    behave.messages = []
    return behave


PIZZA = (asks("Which one?"), asks("How large?"), completes("A large Margherita."))
REPLIES = {"Which one?": "Margherita", "How large?": "large"}


# ── Context and task ─────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S15")
@both_bindings
@both_ways
async def test_s15_messages_carry_the_context_and_the_task_while_it_is_open(streaming, binding):
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
    assert agent.messages == [
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
    assert agent.messages == [("one", None, None), ("two", None, context)]


@both_bindings
async def test_a_conversation_continues_by_its_context_or_its_task(binding):
    agent = scripted(asks("Which one?"), completes("done"), completes("more"))
    client = connected(FakeAgent(agent), binding)
    task = (await client.ask("A pizza")).task

    assert (await client.conversation(task=task).ask("Margherita")).text == "done"
    chat = client.conversation(context_id=task.context_id)
    assert (await chat.ask("and then")).text == "more"

    assert agent.messages[1:] == [
        ("Margherita", task.id, task.context_id),
        ("and then", None, task.context_id),
    ]
    with pytest.raises(ValueError, match="is of the conversation"):
        client.conversation(task=task, context_id="another")


@both_bindings
async def test_an_abandoned_task_that_has_ended_is_not_continued(binding):
    agent = scripted(streams("a", "b", every=10), completes("next"))
    chat = connected(FakeAgent(agent), binding).conversation()

    async with chat.stream_message("begin") as events:
        await anext(events)
    assert chat.is_open
    await asyncio.sleep(100)
    answer = await chat.ask("go on")

    assert answer.text == "next"
    assert agent.messages[1] == ("go on", None, answer.context_id)


@both_bindings
async def test_an_abandoned_task_that_still_works_is_continued(binding):
    agent = scripted(streams(*"abcdef", every=10), completes("enough"))
    chat = connected(FakeAgent(agent), binding).conversation()

    async with chat.stream_message("begin") as events:
        await anext(events)
    await asyncio.sleep(25)
    await chat.ask("stop")

    assert agent.messages[1] == ("stop", "task-1", chat.context_id)


# ── Hooks ────────────────────────────────────────────────────────────────────────────────────


@both_bindings
@both_ways
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_hook_replies_to_a_question_within_the_turn(kind, streaming, binding):
    questions = []

    def reply(interruption):
        questions.append(interruption)
        return REPLIES[interruption.text]

    async def later(interruption):
        await asyncio.sleep(30)
        return reply(interruption)

    agent = scripted(*PIZZA)
    hook = reply if kind == "sync" else later
    chat = connected(FakeAgent(agent, streaming=streaming), binding).conversation(on_input=hook)

    answer = await chat.ask("A pizza, please")

    assert (answer.text, answer.needs_input) == ("A large Margherita.", False)
    assert [text for text, *_ in agent.messages] == ["A pizza, please", "Margherita", "large"]
    assert {task for _, task, _ in agent.messages[1:]} == {answer.task_id}
    assert all(isinstance(each, Interruption) for each in questions)
    assert questions[0].task.state is TaskState.INPUT_REQUIRED
    assert questions[0].message.parts[0].text == "Which one?"


@both_bindings
@both_ways
async def test_the_text_of_a_turn_is_delivered_once_over_all_its_streams(
    streaming, binding, version
):
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
    questions = []
    agent = scripted(*PIZZA)
    chat = connected(FakeAgent(agent), binding).conversation(on_input=questions.append)

    answer = await chat.ask("A pizza, please")

    assert (answer.needs_input, answer.question, len(questions)) == (True, "Which one?", 1)
    assert (await chat.ask("Margherita")).question == "How large?"
    assert (await chat.ask("large")).text == "A large Margherita."


@both_bindings
@both_ways
async def test_a_repeated_question_is_not_replied_to_again(streaming, binding):
    artifact = Artifact(artifact_id="a", parts=(text_part("done"),))
    done = Plan((Step(artifacts=(artifact,)), Step(state=TaskState.COMPLETED, after=1)))
    agent = scripted(asks("Which one?"), done)
    questions = []

    def reply(interruption):
        questions.append(interruption.text)
        return "Margherita"

    fake = FakeAgent(agent, streaming=streaming)
    chat = connected(fake, binding).conversation(on_input=reply)

    assert (await chat.ask("A pizza")).text == "done"
    assert (questions, len(agent.messages)) == (["Which one?"], 2)


@both_bindings
async def test_a_reply_has_the_output_modes_of_its_turn(binding):
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
    assert agent.messages[1][0] == "this\n one"


@both_bindings
@both_ways
async def test_a_failing_hook_leaves_the_task_to_be_continued(streaming, binding):
    def fail(_):
        raise KeyError("no idea")

    agent = scripted(asks("Which one?"), completes("done"))
    chat = connected(FakeAgent(agent, streaming=streaming), binding).conversation(on_input=fail)

    failed = r"the input handler \(on_input\) failed: KeyError: 'no idea'"
    expected = f"task task-1 still waits for input: {failed}"
    with pytest.raises(TaskInputRequiredError, match=expected) as caught:
        await chat.ask("A pizza")

    error = caught.value
    assert (error.task.id, error.executed) == ("task-1", True)
    assert isinstance(error.__cause__, KeyError)
    assert chat.is_open
    assert (await chat.ask("Margherita")).text == "done"
    assert agent.messages[1][1] == "task-1"


@both_bindings
@pytest.mark.parametrize("reply", [5, b"2", "", {"parts": 5}], ids=repr)
async def test_an_invalid_reply_leaves_the_task_to_be_continued(reply, binding):
    fake = FakeAgent(scripted(asks("Which one?"), completes("done")))
    chat = connected(fake, binding).conversation(on_input=lambda _: reply)

    failed = r"task-1 still .* the input handler \(on_input\) failed: "
    with pytest.raises(TaskInputRequiredError, match=failed) as caught:
        await chat.ask("A pizza")

    assert caught.value.task.id == "task-1"
    assert (await chat.ask("Margherita")).text == "done"


async def test_a_hook_exception_without_text_leaves_no_dangling_colon():
    agent = FakeAgent(asks("Which table?"))

    def hook(_):
        raise EOFError

    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        with pytest.raises(TaskInputRequiredError) as caught:
            await client.conversation(on_input=hook).ask("Book a table.")

    assert "the input handler (on_input) failed: EOFError (agent" in str(caught.value)


@both_bindings
async def test_a_hook_timeout_leaves_the_task_to_be_continued(binding):
    async def sleep(_):
        await asyncio.sleep(1000)

    agent = scripted(asks("Which one?"), completes("done"))
    chat = connected(FakeAgent(agent), binding).conversation(on_input=sleep, input_timeout=60)

    late = r"the input handler \(on_input\) did not reply within the input timeout of 60 s"
    expected = f"still waits for input: {late}"
    with pytest.raises(TaskInputRequiredError, match=expected) as caught:
        await chat.ask("A pizza")

    late = caught.value.__cause__
    assert isinstance(late, DeadlineExceededError)
    assert (late.deadline, late.timeout, late.task.id) == ("input", 60, "task-1")
    assert now() == 60
    assert (await chat.ask("Margherita")).text == "done"


@both_bindings
async def test_the_deadline_of_a_turn_bounds_its_hooks(binding):
    async def sleep(_):
        await asyncio.sleep(1000)

    chat = connected(FakeAgent(scripted(asks("Which one?"))), binding).conversation(
        on_input=sleep, input_timeout=60, timeout=40
    )

    with pytest.raises(TaskInputRequiredError, match="the conversation timeout of 40 s"):
        await chat.ask("A pizza")
    assert now() == 40


@both_bindings
async def test_max_turns_bounds_the_replies(binding):
    fake = FakeAgent(lambda _: asks("Really?"))
    chat = connected(fake, binding).conversation(on_input=lambda _: "yes", max_turns=5)

    with pytest.raises(TaskInputRequiredError, match="still waits for input: 5 replies were not"):
        await chat.ask("Go")

    assert len(fake.calls("SendStreamingMessage")) == 6


@both_bindings
async def test_a_reply_that_may_be_lost_is_not_sent_again(binding):
    fake = FakeAgent(scripted(asks("Which one?"), completes("done")))
    chat = connected(fake, binding, on_unknown="raise").conversation(
        on_input=lambda _: "Margherita"
    )
    fake.inject(Cut(after_events=99), on="SendStreamingMessage")  # the first is whole
    fake.inject(Reset(after_execution=True), on="SendStreamingMessage")

    with pytest.raises(OutcomeUnknownError) as caught:
        await chat.ask("A pizza")

    assert caught.value.context_id == chat.context_id
    assert len(fake.calls("SendStreamingMessage")) == 2
    assert (await chat.wait()).text == "done"


@both_bindings
async def test_a_turn_cancelled_during_a_reply_does_not_reply_again(binding):
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
async def test_a_stream_that_does_not_close_does_not_block_the_answer(binding):
    class Stuck(StreamWrapper):
        async def close(self):
            await super().close()
            await asyncio.sleep(1000)

    class Layer(BaseLayer):
        async def stream(self, call, /):
            reply = await self._inner.stream(call)
            return Reply(value=reply.value if interruptions else Stuck(reply.value))

    interruptions = []
    agent = scripted(asks("Which one?"), completes("done"))
    fake = FakeAgent(agent, streaming=Streaming(stays_open=True))
    chat = connected(fake, binding, call_layers=[Layer]).conversation(
        on_input=lambda interruption: interruptions.append(interruption) or "Margherita"
    )

    assert (await chat.ask("A pizza")).text == "done"
    assert (len(agent.messages), fake.open_streams) == (2, 0)


@both_bindings
async def test_closing_a_turn_cancels_its_hook(binding):
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


@both_bindings
async def test_a_hook_that_ignores_cancellation_blocks_nothing(binding, caplog):
    woken = asyncio.Event()

    async def stubborn(_):
        while not woken.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await woken.wait()
        return "too late"

    agent = scripted(asks("Which one?"), completes("done"))
    chat = connected(FakeAgent(agent), binding).conversation(on_input=stubborn, input_timeout=60)

    with pytest.raises(TaskInputRequiredError, match="the input timeout of 60 s"):
        await chat.ask("A pizza")

    assert now() == 61  # it had a second to end
    assert [r.getMessage() for r in caplog.records] == [
        "the input handler (on_input) continues although it was cancelled"
    ]
    assert (await chat.ask("Margherita")).text == "done"
    woken.set()
    await asyncio.sleep(1)
    assert [text for text, *_ in agent.messages] == ["A pizza", "Margherita"]


@both_bindings
async def test_a_hook_that_cancels_itself_has_failed_and_cancels_nothing_else(binding):
    async def give_up(_):
        raise asyncio.CancelledError

    chat = connected(FakeAgent(scripted(asks("Which one?"))), binding).conversation(
        on_input=give_up
    )

    with pytest.raises(TaskInputRequiredError, match="it cancelled itself"):
        await chat.ask("A pizza")


@both_bindings
async def test_a_hook_cannot_use_its_own_conversation(binding):
    async def talk(_):
        await chat.ask("what do you mean?")

    chat = connected(FakeAgent(scripted(asks("Which one?"))), binding).conversation(on_input=talk)

    with pytest.raises(TaskInputRequiredError, match="a turn of the conversation is in flight"):
        await chat.ask("A pizza")


@both_bindings
async def test_a_hook_may_end_its_own_turn(binding):
    async def leave(_):
        await events.close()
        await asyncio.sleep(10)

    fake = FakeAgent(scripted(asks("Which one?")))
    chat = connected(fake, binding).conversation(on_input=leave)
    async with chat.stream_message("A pizza") as events:
        assert (await events.result()).needs_input

    assert (now(), fake.open_streams) == (0, 0)


@both_bindings
@pytest.mark.parametrize("names", [{"task_id": "task-9"}, {"context_id": "c-9"}])
async def test_a_reply_to_another_task_is_refused(names, binding):
    other_reply = Message(role=Role.USER, parts=(text_part("this"),), **names)
    fake = FakeAgent(scripted(asks("Which one?"), completes("done")))
    chat = connected(fake, binding).conversation(on_input=lambda _: other_reply)

    with pytest.raises(
        TaskInputRequiredError, match=r"the input handler \(on_input\) failed: ValueError: .*-9"
    ):
        await chat.ask("A pizza")
    assert (await chat.ask("Margherita")).text == "done"


@both_bindings
async def test_max_turns_zero_leaves_questions_to_the_caller(binding):
    client = connected(FakeAgent(lambda _: asks("Really?")), binding)

    assert (await client.conversation(max_turns=0).ask("Go")).question == "Really?"
    with pytest.raises(TaskInputRequiredError, match=r"no handler may reply \(max_turns=0\)"):
        await client.conversation(max_turns=0, on_input=lambda _: "yes").ask("Go")


@both_bindings
async def test_an_authorization_is_awaited_after_max_turns(binding):
    agent = scripted(asks("Which one?"), needs_auth("sign in", cleared_after=100))
    chat = connected(FakeAgent(agent), binding).conversation(
        on_input=lambda _: "this", max_turns=1
    )

    assert (await chat.ask("A pizza")).text == "authorized"


# ── Reactions of agents to a reply ───────────────────────────────────────────────────────────


class OtherTask(BaseLayer):
    """Sends each message without the id of its task."""

    async def unary(self, call, /):
        return await super().unary(self._without(call))

    async def stream(self, call, /):
        return await super().stream(self._without(call))

    def _without(self, call):
        if call.operation.safety != "conditional":
            return call
        message = msgspec.structs.replace(call.params.message, task_id=None)
        params = msgspec.structs.replace(call.params, message=message)
        return msgspec.structs.replace(call, params=params)


@both_bindings
@both_ways
async def test_a_reply_that_is_answered_by_another_task_continues_with_that_task(
    streaming, binding
):
    agent = scripted(asks("Which one?"), asks("How large?"), completes("done"))
    fake = FakeAgent(agent, streaming=streaming)
    chat = connected(fake, binding, call_layers=[OtherTask]).conversation(
        on_input=lambda interruption: REPLIES[interruption.text]
    )

    answer = await chat.ask("A pizza")

    assert (answer.text, len(agent.messages)) == ("done", 3)
    assert chat.task == answer.task
    assert len(fake.tasks) == 3
    assert answer.task_id == [*fake.tasks][-1]


@both_bindings
@both_ways
async def test_a_reply_may_be_answered_by_a_message(streaming, binding):
    fake = FakeAgent(scripted(asks("Which one?"), replies("gone")), streaming=streaming)
    chat = connected(fake, binding).conversation(on_input=lambda _: "this")

    assert (await chat.ask("A pizza")).text == "gone"
    assert chat.task is None


@both_bindings
@both_ways
async def test_an_unchanged_task_is_awaited_as_long_as_the_agent_works(streaming, binding):
    later = Plan((Step(state=TaskState.COMPLETED, after=1200, says="done"),))
    questions = []
    fake = FakeAgent(scripted(asks("Which one?"), later), streaming=streaming)
    chat = connected(fake, binding).conversation(on_input=lambda i: questions.append(i) or "this")

    assert (await chat.ask("A pizza")).text == "done"
    assert len(questions) == 1


@crossed("binding, undated", ["JSONRPC", "HTTP+JSON"], [False, True])
async def test_a_silent_agent_ends_the_turn_with_the_last_question(binding, undated):
    bound = 60 if undated else 3600

    class Undated(BaseLayer):
        async def unary(self, call, /):
            reply = await super().unary(call)
            reply_value = getattr(reply.value, "task", None) or reply.value
            if not undated or not isinstance(reply_value, Task):
                return reply
            status = msgspec.structs.replace(reply_value.status, timestamp=None)
            task = msgspec.structs.replace(reply_value, status=status)
            if reply_value is not reply.value:
                task = msgspec.structs.replace(reply.value, task=task)
            return msgspec.structs.replace(reply, value=task)

    ignored = Plan((Step(state=TaskState.COMPLETED, after=1e6),))
    fake = FakeAgent(scripted(asks("Which one?"), ignored), streaming=False)
    chat = connected(fake, binding, call_layers=[Undated]).conversation(on_input=lambda _: "this")

    assert (await chat.ask("A pizza")).needs_input
    assert bound <= now() <= bound + 5


# ── Unknown outcomes ─────────────────────────────────────────────────────────────────────────


@both_bindings
@both_ways
async def test_an_unsent_reply_is_reported_and_the_first_message_was_executed(streaming, binding):
    operation = "SendStreamingMessage" if streaming else "SendMessage"

    def reply(_):
        if not agent.messages[1:]:
            fake.inject(Refuse(), on=operation, times=4)
        return "Margherita"

    agent = scripted(asks("Which one?"), completes("done"))
    fake = FakeAgent(agent, streaming=streaming)
    chat = connected(fake, binding).conversation(on_input=reply)

    expected = "the reply to task task-1 was not sent"
    with pytest.raises(A2AConnectionError, match=expected) as caught:
        await chat.ask("A pizza")

    error = caught.value
    assert (error.executed, error.transient, error.task_id) == (True, False, "task-1")
    assert (await chat.ask("Margherita")).text == "done"
    assert agent.messages[1] == ("Margherita", "task-1", chat.context_id)


@both_bindings
async def test_wait_calls_a_hook_again_whose_reply_was_not_sent(binding):
    questions = []

    def reply(interruption):
        questions.append(interruption.text)
        if len(questions) == 1:
            fake.inject(Refuse(), on="SendStreamingMessage", times=4)
        return "Margherita"

    agent = scripted(asks("Which one?"), completes("done"))
    fake = FakeAgent(agent)
    chat = connected(fake, binding).conversation(on_input=reply)
    with pytest.raises(A2AConnectionError, match="the reply to task task-1 was not sent"):
        await chat.ask("A pizza")

    assert (await chat.wait()).text == "done"
    assert questions == ["Which one?"] * 2
    assert [text for text, *_ in agent.messages] == ["A pizza", "Margherita"]


@both_bindings
async def test_a_deadline_before_a_reply_is_sent_names_itself_and_the_task(binding):
    def reply(_):
        fake.inject(Refuse(), on="SendStreamingMessage", times=9)
        return "Margherita"

    class SlowLayer(BaseLayer):
        """A layer that delays each attempt, so that the second one is too late."""

        async def stream(self, call, /):
            await asyncio.sleep(30 * bool(agent.messages))
            return await super().stream(call)

    agent = scripted(asks("Which one?"))
    fake = FakeAgent(agent)
    chat = connected(fake, binding, attempt_layers=[SlowLayer]).conversation(on_input=reply)

    with pytest.raises(DeadlineExceededError, match="the call timeout of 20 s") as caught:
        await chat.ask("A pizza", timeout=20)

    assert (caught.value.executed, caught.value.task.id) == (True, "task-1")


@pytest.mark.rule("S15")
@both_bindings
async def test_s15_after_a_reply_that_may_be_lost_the_task_is_fetched_first(binding):
    agent = scripted(asks("Which one?"), completes("done"), completes("next"))
    fake = FakeAgent(agent)
    chat = connected(fake, binding, on_unknown="raise").conversation(
        on_input=lambda _: "Margherita"
    )
    fake.inject(Cut(after_events=99), on="SendStreamingMessage")
    fake.inject(Reset(after_execution=True), on="SendStreamingMessage")

    with pytest.raises(OutcomeUnknownError):
        await chat.ask("A pizza")
    assert (await chat.ask("and then")).text == "next"

    assert agent.messages[2] == ("and then", None, chat.context_id)


@both_bindings
@both_ways
async def test_a_question_that_may_have_been_answered_is_left_to_the_caller(
    streaming, binding, version
):
    later = Plan((Step(state=TaskState.COMPLETED, after=100, says="done"),))
    agent = scripted(asks("Which one?"), later)
    fake = FakeAgent(agent, streaming=streaming)
    operation = "SendStreamingMessage" if streaming else "SendMessage"

    def reply(_):
        fake.inject(Reset(after_execution=True), on=operation)
        return "Margherita"

    chat = connected(fake, binding, on_unknown="raise").conversation(on_input=reply)

    with pytest.raises(OutcomeUnknownError):
        await chat.ask("A pizza")
    if not streaming or version == "0.3":  # a stream goes on until it says something else
        assert (await chat.wait()).needs_input
        await asyncio.sleep(100)
    assert (await chat.wait()).text == "done"
    assert len(agent.messages) == 2


@both_bindings
async def test_wait_after_a_possible_reply_ends_though_its_stream_does_not(binding):
    def reply(_):
        agent.inject(Reset(), on="SendStreamingMessage")
        return "Margherita"

    remaining = iter([asks("Which one?")])
    agent = FakeAgent(
        lambda _: next(remaining), streaming=Streaming(stays_open=True, keep_alive=15)
    )
    chat = connected(agent, binding).conversation(on_input=reply)
    with pytest.raises(OutcomeUnknownError):
        await chat.ask("A pizza")

    assert (await chat.wait()).needs_input
    assert now() <= 3700


@both_bindings
async def test_wait_requests_an_unsent_reply_from_its_hook_again(binding):
    agent = scripted(asks("Which one?"), completes("done"))
    fake = FakeAgent(agent)
    questions = []

    def reply(_):
        questions.append(now())
        if len(questions) == 1:
            fake.inject(Refuse(), on="SendStreamingMessage", times=4)
        return "Margherita"

    chat = connected(fake, binding).conversation(on_input=reply)

    with pytest.raises(A2AConnectionError):
        await chat.ask("A pizza")
    assert (await chat.wait()).text == "done"
    assert (len(questions), len(agent.messages)) == (2, 2)


@pytest.mark.rule("S15")
@both_bindings
async def test_s15_a_task_that_ended_meanwhile_is_not_continued(binding):
    agent = scripted(asks("Which one?"), completes("done by others"), completes("next"))
    client = connected(FakeAgent(agent), binding)
    chat = client.conversation()
    task = (await chat.ask("A pizza")).task
    await client.ask("Margherita", task_id=task.id)

    with pytest.raises(UnsupportedOperationError):
        await chat.ask("Funghi")
    assert (await chat.ask("and then")).text == "next"


@both_bindings
async def test_no_message_is_sent_to_a_task_that_cannot_be_fetched(binding):
    agent = scripted(works_forever())
    fake = FakeAgent(agent)
    chat = connected(fake, binding).conversation()
    async with chat.stream_message("begin") as events:
        await anext(events)

    fake.inject(Fail(code=-32603), on="GetTask", times=4)
    with pytest.raises(InternalError) as caught:
        await chat.ask("go on")
    fake.inject(Stall(), on="GetTask", times=9)
    with pytest.raises(DeadlineExceededError, match="the call timeout of 20 s") as late:
        await chat.ask("go on", timeout=20)

    assert (caught.value.executed, late.value.executed) == (False, False)
    assert late.value.task.id == "task-1"
    assert (len(agent.messages), chat.is_open) == (1, True)


# ── Authorization ────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S16")
@both_bindings
@both_ways
async def test_s16_an_external_authorization_is_awaited(streaming, binding):
    states = []
    fake = FakeAgent(needs_auth("sign in", cleared_after=300), streaming=streaming)
    chat = connected(fake, binding).conversation(on_auth=states.append)

    answer = await chat.ask("hello")

    assert (answer.text, [each.text for each in states]) == ("authorized", ["sign in"])
    assert now() >= 300


@both_bindings
@both_ways
async def test_an_authorization_may_be_answered_with_a_message(streaming, binding):
    agent = scripted(needs_auth("May I?"), completes("done"))
    fake = FakeAgent(agent, streaming=streaming)
    chat = connected(fake, binding).conversation(on_auth=lambda _: "you may")

    assert (await chat.ask("delete it")).text == "done"
    assert agent.messages[1][:2] == ("you may", "task-1")


@both_bindings
@both_ways
async def test_a_reply_to_an_authorization_that_was_granted_meanwhile_is_not_sent(
    streaming, binding
):
    async def say(_):
        await asyncio.sleep(60)
        return "you may"

    agent = scripted(needs_auth("May I?", cleared_after=5), completes("twice"))
    chat = connected(FakeAgent(agent, streaming=streaming), binding).conversation(on_auth=say)

    assert (await chat.ask("delete it")).text == "authorized"
    assert len(agent.messages) == 1


@both_bindings
@both_ways
async def test_an_authorization_that_is_not_granted_ends_the_turn_and_not_the_task(
    streaming, binding
):
    fake = FakeAgent(needs_auth("sign in", cleared_after=100), streaming=streaming)
    chat = connected(fake, binding).conversation()

    with pytest.raises(TaskAuthRequiredError, match="the call timeout of 50 s"):
        await chat.ask("hello", timeout=50)

    assert chat.is_open
    assert (await chat.wait()).text == "authorized"


@both_bindings
async def test_an_intermediate_agent_passes_an_interruption_on_and_continues_later(binding):
    """A calls B calls C: B passes C's question on, and continues when A has replied."""
    down = connected(FakeAgent(scripted(needs_auth("May C?"), completes("done by C"))), binding)

    def hand_on(interruption):
        raise interruption.to_error("my own caller is asked")

    chat = down.conversation(on_auth=hand_on)
    with pytest.raises(TaskAuthRequiredError, match="for an authorization: my own") as caught:
        await chat.ask("do it")
    assert caught.value.task.status.message.text == "May C?"

    later = down.conversation(task=caught.value.task)
    assert (await later.ask("C may")).text == "done by C"


@both_bindings
async def test_an_interruption_of_another_agent_is_not_this_tasks(binding):
    down = connected(FakeAgent(scripted(completes("zero"), asks("Which C?"))), binding)
    await down.ask("zero")

    async def ask_another(interruption):
        answer = await down.ask(interruption.text)
        raise Interruption(task=answer.task).to_error("C asks")

    chat = connected(FakeAgent(scripted(asks("Which one?"))), binding).conversation(
        on_input=ask_another
    )

    with pytest.raises(TaskInputRequiredError, match=r"task-1 still .* C asks") as caught:
        await chat.ask("A pizza")
    assert caught.value.task == chat.task
    assert caught.value.__cause__.task.id != chat.task.id


# ── Misuse ───────────────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_one_turn_at_a_time(binding):
    chat = connected(FakeAgent(scripted(streams("a", every=1))), binding).conversation()

    async with chat.stream_message("one"):
        with pytest.raises(RuntimeError, match="a turn of the conversation is in flight"):
            await chat.ask("two")
        with pytest.raises(RuntimeError, match="a turn of the conversation is in flight"):
            await chat.wait()


@both_bindings
async def test_two_concurrent_turns_are_refused(binding):
    agent = scripted(completes("one"), completes("two"))
    chat = connected(FakeAgent(agent), binding).conversation()

    first, second = await asyncio.gather(chat.ask("x"), chat.ask("y"), return_exceptions=True)

    assert (first.text, type(second)) == ("one", RuntimeError)
    assert (await chat.ask("y")).context_id == first.context_id


@both_bindings
async def test_a_turn_that_failed_to_begin_does_not_block_the_next(binding):
    fake = FakeAgent(scripted(completes("one")))
    chat = connected(fake, binding).conversation()
    fake.inject(Fail(code=-32602), on="SendStreamingMessage")

    with pytest.raises(InvalidParamsError):
        await chat.ask("x")

    assert (await chat.ask("x")).text == "one"


@both_bindings
async def test_wait_without_an_open_task_is_refused(binding):
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
        ({"tools": print}, TypeError),
        ({"timeout": 0}, ValueError),
        ({"input_timeout": -1}, ValueError),
        ({"max_turns": 1.5}, ValueError),
        ({"poll_interval": True}, ValueError),
        ({"task": "task-1"}, TypeError),
    ],
)
async def test_invalid_arguments_are_refused_at_once(options, error):
    client = connected(FakeAgent(), "JSONRPC")
    with pytest.raises((error, TypeError), match=next(iter(options))):
        client.conversation(**options)


async def test_a_hook_must_be_a_function():
    client = connected(FakeAgent(), "JSONRPC")
    with pytest.raises(TypeError, match="on_input must be a function, not str"):
        client.conversation(on_input="yes")


async def test_an_empty_message_is_refused_before_the_turn():
    chat = connected(FakeAgent(), "JSONRPC").conversation()
    with pytest.raises(ValueError, match="at least one part"):
        chat.stream_message("")


# ── Input requests while a stream stays open ─────────────────────────────────────────────────────


both_versions = pytest.mark.parametrize("version", ["1.0", "0.3"])


def agent_taking_turns(*behaviours, **options):
    """Return an agent with one behavior per message."""
    remaining = iter(behaviours)
    return FakeAgent(lambda _: next(remaining), **options)


@both_bindings
@both_versions
@pytest.mark.parametrize("hook", [None, lambda _: None], ids=["no hook", "no reply"])
async def test_an_input_request_ends_the_turn_while_the_stream_stays_open(hook, version, binding):
    streaming = Streaming(stays_open=True, keep_alive=15)
    agent = agent_taking_turns(
        asks("Which one?"), completes("done"), versions=(version,), streaming=streaming
    )
    chat = connected(agent, binding).conversation(on_input=hook)

    assert (await chat.ask("A pizza")).question == "Which one?"
    assert (now() <= 1, agent.open_streams) == (True, 0)
    assert (await chat.ask("Margherita")).text == "done"


@both_bindings
async def test_an_iteration_over_a_turn_ends_at_an_input_request_while_the_stream_stays_open(
    binding,
):
    agent = agent_taking_turns(
        asks("Which one?"), streaming=Streaming(stays_open=True, keep_alive=15)
    )
    chat = connected(agent, binding).conversation()

    async with chat.stream_message("A pizza") as events:
        last = [event async for event in events][-1]
        assert (await events.result()).question == "Which one?"

    assert last.status.state is TaskState.INPUT_REQUIRED
    assert (now() <= 1, agent.open_streams) == (True, 0)


# ── Lagging stores, and close ────────────────────────────────────────────────────────────────────


@both_bindings
@both_versions
@pytest.mark.parametrize("lag", [0.3, 3])
async def test_an_older_input_request_from_a_lagging_store_does_not_replace_a_newer_one(
    lag, version, binding
):
    first = streams("one", then=asks("Which one?"))
    second = Plan(
        (
            Step(state=TaskState.WORKING),
            Step(artifacts=(Artifact(artifact_id="more", parts=(text_part("two"),)),)),
            Step(state=TaskState.INPUT_REQUIRED, says="How large?"),
        )
    )
    agent = agent_taking_turns(
        first, second, completes("done"), versions=(version,), store_lag=lag
    )
    chat = connected(agent, binding).conversation()

    await chat.ask("A pizza")
    await asyncio.sleep(10)
    answer = await chat.ask("Margherita")

    assert (answer.question, answer.text) == ("How large?", "one\ntwo")
    assert chat.task.status.message.text == "How large?"


@both_bindings
@both_versions
@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "polled"])
async def test_closing_the_client_while_the_input_handler_runs_names_the_unsent_reply(
    streaming, version, binding
):
    async def reply(_):
        await asyncio.sleep(10)
        return "Margherita"

    agent = agent_taking_turns(asks("Which one?"), versions=(version,), streaming=streaming)
    client = connected(agent, binding)
    chat = client.conversation(on_input=reply)
    asking = asyncio.create_task(chat.ask("A pizza"))
    await asyncio.sleep(5)
    await client.close()

    with pytest.raises(
        A2AConnectionError, match="the reply to task task-1 was not sent"
    ) as caught:
        await asking

    assert (caught.value.failure, caught.value.executed) == ("closed", True)
    assert agent.open_streams == 0


# ── Tasks that the agent no longer has ───────────────────────────────────────────────────────


class RestartingNetwork(FakeNetwork):
    """A network whose agent can be replaced, as by a restart that loses its tasks."""

    def start(self, agent):
        self._agents = FakeNetwork(agent)._agents


def restartable(fake, binding, **options):
    network = RestartingNetwork(fake)
    client = connect(fake.url, engine=network, bindings=(binding,))
    return network, client.conversation(**options)


@both_bindings
@both_ways
async def test_after_the_agent_lost_the_open_task_the_next_message_begins_another(
    streaming, binding
):
    network, chat = restartable(
        FakeAgent(scripted(asks("Which one?")), streaming=streaming), binding
    )
    context = (await chat.ask("A pizza")).context_id
    agent = scripted(completes("One Margherita."))
    network.start(FakeAgent(agent, streaming=streaming))

    with pytest.raises(TaskNotFoundError, match="begins another task") as caught:
        await chat.ask("Margherita")
    assert (caught.value.task.id, caught.value.task_id) == ("task-1", "task-1")
    assert (chat.task, chat.is_open) == (None, False)
    with pytest.raises(RuntimeError, match="no open task"):
        await chat.wait()

    assert (await chat.ask("A Margherita")).text == "One Margherita."
    assert agent.messages == [("A Margherita", None, context)]
    assert chat.task.id == "task-1"  # the agent that was started counts from one


@both_bindings
async def test_wait_for_a_task_that_the_agent_lost_lets_the_conversation_continue(binding):
    network, chat = restartable(FakeAgent(scripted(asks("Which one?"))), binding)
    await chat.ask("A pizza")
    agent = scripted(completes("done"))
    network.start(FakeAgent(agent))

    with pytest.raises(TaskNotFoundError, match="begins another task"):
        await chat.wait()

    assert (await chat.ask("Anew")).text == "done"
    assert agent.messages[0][:2] == ("Anew", None)


@both_bindings
async def test_a_task_lost_while_a_handler_replies_lets_the_conversation_continue(binding):
    agent = scripted(completes("done"))

    def reply(_):
        network.start(FakeAgent(agent))
        return "Margherita"

    network, chat = restartable(FakeAgent(scripted(asks("Which one?"))), binding, on_input=reply)

    with pytest.raises(TaskNotFoundError, match="begins another task"):
        await chat.ask("A pizza")
    assert not chat.is_open
    assert (await chat.ask("Anew")).text == "done"
    assert [text for text, _, _ in agent.messages] == ["Anew"]


@both_bindings
async def test_a_working_task_that_the_agent_lost_lets_the_conversation_continue(binding):
    network, chat = restartable(FakeAgent(scripted(works_forever())), binding)
    with pytest.raises(DeadlineExceededError):
        await chat.ask("A pizza", timeout=10)
    agent = scripted(completes("done"))
    network.start(FakeAgent(agent))

    with pytest.raises(TaskNotFoundError, match="begins another task") as caught:
        await chat.ask("And a beer")
    assert caught.value.executed is False

    assert (await chat.ask("And a beer")).text == "done"
    assert [text for text, _, _ in agent.messages] == ["And a beer"]
