"""Replies to tasks that wait: the question as it was is no answer to its own reply."""

import asyncio

import msgspec
import pytest
from a2a.types import a2a_pb2 as pb
from tests.kit.cli_harness import holdfast as cli
from tests.kit.sdk_clients import card_of, client_of, collected, said

from holdfast import Message, Role, Task, TaskState, connect, text_part
from holdfast._stream.replies import PendingReply, Replies
from holdfast.extend import BaseLayer, StreamWrapper
from holdfast.testing import (
    Cut,
    FakeAgent,
    FakeNetwork,
    Plan,
    Refuse,
    Reset,
    Stall,
    Step,
    Streaming,
    asks,
)
from holdfast.types import TaskStatus, TaskStatusUpdateEvent


@pytest.fixture(params=["1.0", "0.3"])
def version(request):
    return request.param


@pytest.fixture(params=[0.0, 3.0], ids=["ordinary", "stale"])
def lag(request):
    return request.param


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
def binding(request):
    return request.param


@pytest.fixture(params=[True, False], ids=["streamed", "polled"])
def streaming(request):
    return request.param


@pytest.fixture
def agent(version, lag, streaming):
    """Makes an agent that does one thing after another."""

    def make(*plans, **options):
        left = list(plans)
        options = {"versions": (version,), "reply_lag": lag, "streaming": streaming, **options}
        return FakeAgent(lambda _turn: left.pop(0), **options)

    return make


@pytest.fixture
def connected(binding):
    def make(agent, **options):
        network = FakeNetwork(agent)
        return connect(agent.url, engine=network, bindings=(binding,), **options)

    return make


def now():
    return asyncio.get_running_loop().time()


DONE = Plan(
    (Step(state=TaskState.WORKING), Step(state=TaskState.COMPLETED, after=5, says="Done."))
)
PIZZA = (asks("Which one?"), asks("How large?"), DONE)


async def test_ask_waits_for_the_answer_to_its_own_reply(agent, connected, lag):
    client = connected(fake := agent(*PIZZA))

    answer = await client.ask("A pizza")
    questions = []
    while answer.needs_input:
        questions.append(answer.question)
        answer = await client.ask("that one", task_id=answer.task_id)

    assert questions == ["Which one?", "How large?"]
    assert (answer.text, len(fake.executions)) == ("Done.", 3)
    assert now() <= 2 * lag + 10


async def test_a_program_that_has_not_seen_the_question_gets_the_answer(agent, connected):
    fake = agent(*PIZZA)
    task = (await connected(fake).ask("A pizza")).task

    second = await connected(fake).ask("Margherita", task_id=task.id)
    third = await connected(fake).ask("large", task_id=task.id)

    assert (second.question, third.text) == ("How large?", "Done.")


async def test_clients_that_reply_in_turns_each_get_the_answer_to_their_own_reply(
    agent, connected
):
    fake = agent(asks("One?"), asks("Two?"), asks("Three?"), DONE)
    one, other = connected(fake), connected(fake)
    task_id = (await one.ask("A pizza")).task_id

    second = await other.ask("1", task_id=task_id)
    third = await one.ask("2", task_id=task_id)
    last = await other.ask("3", task_id=task_id)

    assert (second.question, third.question, last.text) == ("Two?", "Three?", "Done.")
    assert now() < 30


async def test_a_program_whose_look_finds_a_store_that_lags_gets_the_answer(connected):
    plans = [asks("Which one?"), DONE]
    fake = FakeAgent(lambda _turn: plans.pop(0), reply_lag=3, store_lag=2, streaming=False)
    task = await connected(fake).send_message("A pizza", return_immediately=True)

    async with connected(fake).stream_message("Margherita", task_id=task.id) as events:
        answer = await events.result()

    assert answer.text == "Done."


async def test_a_stream_continues_to_the_answer_and_says_what_of_it_is_stale(
    agent, connected, lag, streaming
):
    client = connected(agent(asks("Which one?"), DONE))
    task = (await client.ask("A pizza")).task

    async with client.stream_message("Margherita", task_id=task.id) as events:
        seen = [(events.task.state.name, events.is_stale) async for _ in events]

    assert seen[-2:] == [("WORKING", False), ("COMPLETED", False)]
    is_first_stale = bool(lag)
    assert seen[:-2] == [("INPUT_REQUIRED", True)] * is_first_stale


@pytest.mark.parametrize("is_fresh", [False, True])
async def test_wait_does_not_take_the_question_for_the_answer(agent, connected, is_fresh):
    client = connected(fake := agent(*PIZZA))
    task = (await client.ask("A pizza")).task
    if is_fresh:
        client = connected(fake)

    for expected in ("INPUT_REQUIRED", "COMPLETED"):
        await client.send_message("that one", task_id=task.id, return_immediately=True)
        before = task
        task = await client.wait(task.id)
        assert (task.state.name, task.status != before.status) == (expected, True)


async def test_a_conversation_gets_each_answer_once(agent, connected):
    asked = []
    chat = connected(agent(*PIZZA)).conversation(
        on_input=lambda asking: asked.append(asking.text) or "that one"
    )

    assert (await chat.ask("A pizza")).text == "Done."
    assert asked == ["Which one?", "How large?"]


async def test_a_look_at_a_store_that_lags_does_not_bring_an_older_question_back(connected):
    plans = [*PIZZA]
    agent = FakeAgent(lambda _turn: plans.pop(0), reply_lag=3, store_lag=20)
    client = connected(agent)
    task_id = (await client.ask("A pizza")).task_id
    await asyncio.sleep(30)
    assert (await client.ask("Margherita", task_id=task_id)).question == "How large?"

    looked = await client.get_task(task_id)
    answer = await client.ask("large", task_id=task_id)

    assert (looked.status.message.text, answer.text) == ("Which one?", "Done.")


async def test_a_look_at_a_store_that_lags_does_not_forget_a_question(connected):
    plans = [*PIZZA]
    agent = FakeAgent(lambda _turn: plans.pop(0), reply_lag=3, store_lag=20)
    client = connected(agent)
    task_id = (await client.ask("A pizza")).task_id

    looked = await client.get_task(task_id)
    answer = await client.ask("Margherita", task_id=task_id)

    assert (looked.state, answer.question) == (TaskState.SUBMITTED, "How large?")


async def test_the_same_question_asked_again_is_an_answer(agent, connected):
    client = connected(fake := agent(*[asks("Which one?", after=1)] * 3))
    task = (await client.ask("A pizza")).task

    again = await client.ask("That one", task_id=task.id)
    other = await connected(fake).ask("That one", task_id=task.id)

    times = [one.status.time for one in (task, again.task, other.task)]
    assert (again.question, times) == ("Which one?", sorted(set(times)))
    assert now() < 20


async def test_a_program_that_cannot_ask_before_goes_by_what_follows(agent, connected):
    fake = agent(asks("Which one?"), DONE)
    task = (await connected(fake).ask("A pizza")).task
    fake.inject(Refuse(), on="GetTask")

    assert (await connected(fake).ask("Margherita", task_id=task.id)).text == "Done."


class Bare(BaseLayer):
    """Leaves all out by which a status could be known: timestamps, message ids, history."""

    async def unary(self, call, /):
        reply = await super().unary(call)
        return msgspec.structs.replace(reply, value=bare(reply.value))

    async def stream(self, call, /):
        reply = await super().stream(call)
        return msgspec.structs.replace(reply, value=BareStream(reply.value))


class BareStream(StreamWrapper):
    async def __anext__(self):
        return bare(await super().__anext__())

    def next_nowait(self):
        return None


def bare(value):
    if isinstance(value, Task | TaskStatusUpdateEvent):
        said = value.status.message
        said = None if said is None else msgspec.structs.replace(said, message_id="")
        status = msgspec.structs.replace(value.status, timestamp=None, message=said)
        value = msgspec.structs.replace(value, status=status)
        return msgspec.structs.replace(value, history=()) if isinstance(value, Task) else value
    for member in ("task", "status_update"):
        if getattr(value, member, None) is not None:
            inner = bare(getattr(value, member))
            return msgspec.structs.replace(value, **{member: inner})
    return value


async def test_without_times_and_ids_the_content_and_what_follows_decide(agent, connected):
    client = connected(agent(*PIZZA), call_layers=[Bare])

    answer = await client.ask("A pizza")
    while answer.needs_input:
        answer = await client.ask("that one", task_id=answer.task_id)

    assert (answer.text, now() < 20) == ("Done.", True)


async def test_where_nothing_decides_the_agent_has_a_minute(connected, streaming, version):
    ignored = Plan((Step(state=TaskState.COMPLETED, after=1e6),))
    left = [asks("Which one?"), ignored]
    streaming = Streaming(keep_alive=15) if streaming else False
    fake = FakeAgent(
        lambda _: left.pop(0), reply_lag=1e5, streaming=streaming, versions=(version,)
    )
    client = connected(fake, call_layers=[Bare])
    task = (await client.ask("A pizza")).task

    answer = await client.ask("Margherita", task_id=task.id)

    assert (answer.question, fake.open_streams) == ("Which one?", 0)
    assert 60 <= now() <= 130


@pytest.mark.parametrize("fault", [Cut(after_events=1, clean=True), Cut(after_events=1)])
@pytest.mark.parametrize("streaming", [True], ids=["streamed"])
async def test_a_stream_that_ends_with_the_question_as_it_was_is_cut(agent, connected, fault, lag):
    client = connected(fake := agent(asks("Which one?"), DONE))
    task = (await client.ask("A pizza")).task
    fake.inject(fault, on="SendStreamingMessage")

    async with client.stream_message("Margherita", task_id=task.id) as events:
        states = [events.task.state.name async for _ in events]

    assert states[-1] == "COMPLETED"
    assert (len(fake.executions), now() < 30) == (2, True)


@pytest.mark.parametrize("streaming", [Streaming(keep_alive=1.0)], ids=["streamed"])
@pytest.mark.parametrize("lag", [3.0], ids=["stale"])
async def test_a_stream_that_stays_silent_after_the_question_is_not_waited_for(agent, connected):
    client = connected(fake := agent(asks("Which one?"), DONE))
    task = (await client.ask("A pizza")).task
    fake.inject(Stall(phase="idle", after_events=1), on="SendStreamingMessage")

    assert (await client.ask("Margherita", task_id=task.id)).text == "Done."
    assert now() < 30


async def test_a_lost_reply_that_is_found_is_waited_for_as_well(agent, connected, streaming):
    client = connected(fake := agent(asks("Which one?"), DONE))
    task = (await client.ask("A pizza")).task
    on = "SendStreamingMessage" if streaming else "SendMessage"
    fake.inject(Reset(after_execution=True), on=on)
    assert (await client.ask("Margherita", task_id=task.id)).text == "Done."


async def test_a_lost_reply_to_a_blocking_message_is_waited_for_as_well(agent, connected):
    client = connected(fake := agent(asks("Which one?"), DONE))
    task = (await client.ask("A pizza")).task
    fake.inject(Reset(after_execution=True), on="SendMessage")

    answer = await client.send_message("Margherita", task_id=task.id)

    assert answer.state is TaskState.COMPLETED


async def test_what_the_client_has_seen_is_not_asked_for_again(agent, connected, streaming, lag):
    client = connected(fake := agent(asks("Which one?"), DONE))
    task = (await client.ask("A pizza")).task
    before = len(fake.calls("GetTask"))

    async with client.stream_message("Margherita", task_id=task.id) as events:
        await anext(aiter(events))
        assert len(fake.calls("GetTask")) == before


@pytest.mark.parametrize("stream", [(), ("--stream",)], ids=["at once", "stream"])
def test_the_command_line_shows_the_answer(agent, stream, binding, version):
    fake = agent(asks("Which one?"), DONE)
    options = ("--transport", binding, "--a2a-version", version)
    question = cli("send", "A pizza", *options, agent=fake)
    assert question.field("State") == "TASK_STATE_INPUT_REQUIRED"

    answer = cli("send", "Margherita", "--task-id", "task-1", *stream, *options, agent=fake)

    assert answer.exit == 0
    assert "TASK_STATE_COMPLETED" in answer.out
    assert "waits for your answer" not in answer.err


@pytest.mark.parametrize("streaming", [True], ids=["streamed"])
async def test_the_official_sdk_gets_the_answer(agent, binding, version):
    fake = agent(asks("Which one?"), DONE)
    client = client_of(fake, binding, card=card_of(fake, binding, version=version))
    await collected(client.send_message(said()))
    fake.inject(Cut(after_events=1, clean=True), on="SendStreamingMessage")

    reply = said()
    reply.message.task_id = "task-1"
    events = await collected(client.send_message(reply))

    assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED
    await client.close()


# ── What decides ─────────────────────────────────────────────────────────────────────────────

NOON, LATER = "2026-01-01T12:00:00Z", "2026-01-01T12:00:01Z"


def question(text="Which?", *, message_id="q-1", at=NOON, state=TaskState.INPUT_REQUIRED):
    said = Message(message_id=message_id, role=Role.AGENT, parts=(text_part(text),))
    return TaskStatus(state=state, message=said, timestamp=at)


SILENT = msgspec.structs.replace(question(), message=None)


@pytest.mark.parametrize(
    ("status", "asked", "is_stale"),
    [
        (question(), question(), True),
        (question(at=LATER), question(), False),
        (question(), question(at=LATER), True),
        (question(message_id="q-2"), question(), False),
        (question(message_id="q-2", at=None), question(), False),
        (question(at=None), question(), True),
        (SILENT, question(), True),
        (question(), SILENT, False),
        (question("Why?", message_id=""), question(message_id=""), False),
        (question(message_id=""), question(message_id=""), True),
        (question(state=TaskState.AUTH_REQUIRED), question(), False),
        (question(state=TaskState.COMPLETED), question(), False),
        (question(), None, True),
    ],
)
def test_the_same_state_is_stale_unless_it_is_newer(status, asked, is_stale):
    reply = PendingReply("t", "reply", asked)
    reply.record(Task(id="t", status=status))

    assert reply.is_stale(status) is is_stale


def said_by(role, message_id):
    return Message(message_id=message_id, role=role, parts=(text_part("said"),))


@pytest.mark.parametrize(
    ("history", "is_stale"),
    [
        ((said_by(Role.USER, "reply"), said_by(Role.AGENT, "thinking")), False),
        ((said_by(Role.AGENT, "thinking"), said_by(Role.USER, "reply")), True),
        ((said_by(Role.USER, "reply"), said_by(Role.AGENT, "q-1")), True),
        ((said_by(Role.USER, "other"), said_by(Role.AGENT, "thinking")), True),
    ],
)
def test_what_the_agent_said_after_the_reply_makes_a_question_an_answer(history, is_stale):
    reply = PendingReply("t", "reply", question())
    reply.record(Task(id="t", status=question(), history=history))

    assert reply.is_stale(question()) is is_stale


@pytest.mark.parametrize(
    ("text", "is_stale"),
    [("another's reply", True), ("Margherita", False)],  # which a server may store anew
)
def test_a_newer_question_that_answers_another_client_is_stale(text, is_stale):
    def user(message_id, said):
        return Message(message_id=message_id, role=Role.USER, parts=(text_part(said),))

    asked, newer = question(), question("And?", message_id="q-2", at=LATER)
    before = (user("first", "A pizza"), asked.message)
    reply = PendingReply("t", "reply", asked, user("reply", "Margherita"))
    reply.record(Task(id="t", status=newer, history=(*before, user("u-2", text))))

    assert reply.is_stale(newer) is is_stale
    assert reply.max_silence(newer, 3600.0) == 60.0 or not is_stale

    own = (*before, user("u-2", text), newer.message, user("reply", "Margherita"))
    last = question("Last?", message_id="q-3", at="2026-01-01T12:00:02Z")
    reply.record(Task(id="t", status=last, history=own))
    assert not reply.is_stale(last)


def update(status, task_id="t"):
    return TaskStatusUpdateEvent(task_id=task_id, status=status)


@pytest.mark.parametrize(
    ("asked", "events", "is_stale"),
    [
        (None, [update(question())], False),
        (None, [Task(id="t", status=TaskStatus(state=TaskState.WORKING))], False),
        (question(), [Task(id="another", status=question())], False),
        (question(at=None), [update(question(at=None))], True),
        (
            question(at=None),
            [update(TaskStatus(state=TaskState.WORKING)), update(question(at=None))],
            False,
        ),
        (SILENT, [update(TaskStatus(state=TaskState.WORKING)), update(SILENT)], False),
        (
            question(at=None),  # of a store that is behind
            [
                update(TaskStatus(state=TaskState.WORKING)),
                Task(id="t", status=question(at=None)),
            ],
            True,
        ),
    ],
)
def test_what_comes_before_decides_where_the_status_does_not(asked, events, is_stale):
    reply = PendingReply("t", "reply", asked)
    for event in events:
        reply.record(event)

    assert reply.is_stale(events[-1].status) is is_stale


@pytest.mark.parametrize(
    ("status", "seconds"),
    [
        (question(), 3600.0),
        (SILENT, 60.0),
        (msgspec.structs.replace(SILENT, timestamp="2026-01-01T12:00:00.000Z"), 3600.0),
        (question(message_id=""), 60.0),
        (question(at=None), 60.0),
    ],
)
def test_a_status_that_may_be_another_of_the_same_second_is_an_answer_after_a_minute(
    status, seconds
):
    reply = PendingReply("t", "reply", status)
    reply.record(Task(id="t", status=status))

    assert reply.is_stale(status)
    assert reply.max_silence(status, 3600.0) == seconds


def test_the_latest_tasks_are_remembered():
    replies = Replies()
    for number in range(1000):
        replies.record_status(f"t-{number}", question())

    known = [number for number in range(1000) if replies.question(f"t-{number}") is not None]
    assert known == [*range(744, 1000)]
