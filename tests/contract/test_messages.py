"""Messages and their answers, against every agent, over every binding and version.

The contract, which the files of this folder share: a program that calls an agent gets the same
results and the same errors, whichever binding and protocol version it uses, and whether the agent
is the fake one, one on `holdfast.server`, or one on the official SDK. So what the fake agent shows
in virtual time holds for real agents. `tests.kit.contract` lists the agents, and the cases that do
not apply to some of them.
"""

import asyncio

import pytest
from tests.kit.contract import FILE, SOON, completed, contract, shape
from tests.kit.messages import message_of

from holdfast import (
    Part,
    Role,
    TaskFailedError,
    TaskState,
    data_part,
    text_part,
)
from holdfast.errors import TaskAuthRequiredError, TaskRejectedError

pytestmark = [pytest.mark.sdk, pytest.mark.real_time]

streamed_and_polled = pytest.mark.parametrize(
    "streaming", [True, False], ids=["streamed", "polled"]
)


# ── Answers ──────────────────────────────────────────────────────────────────────────────────


@contract
@streamed_and_polled
async def test_ask_returns_the_completed_task(agent, streaming):
    async with agent, agent.client(streaming=streaming) as client:
        answer = await client.ask("echo hello", **SOON)
        slow = await client.ask("slow 0.05 done", **SOON)

    assert answer.text == "hello"
    assert shape(answer.task) == completed("hello", "echo hello")
    assert shape(slow.task) == completed("done", "slow 0.05 done")


@contract
@streamed_and_polled
async def test_ask_may_return_a_message_without_a_task(agent, streaming):
    async with agent, agent.client(streaming=streaming) as client:
        answer = await client.ask("message hello")
        raw = await client.send_message("message hello")

    assert (answer.text, answer.task, answer.message.role) == ("hello", None, Role.AGENT)
    assert (raw.text, bool(raw.message_id), bool(raw.context_id)) == ("hello", True, True)


@contract
async def test_send_message_blocking_returns_the_completed_task(agent):
    message = message_of("slow 0.05 done")
    async with agent, agent.client() as client:
        task = await client.send_message(message)
        stored = await client.get_task(task.id)
        executions = (await agent.executions())[message.message_id]

    assert shape(task) == shape(stored) == completed("done", "slow 0.05 done")
    assert stored.history[0].message_id == message.message_id
    assert executions == [task.id]


@contract
async def test_status_of_a_task_names_its_time(agent):
    async with agent, agent.client() as client:
        task = await client.send_message("echo hello")

    assert task.status.time is not None


@contract
async def test_send_message_returning_immediately_returns_a_task_to_wait_for(agent):
    message = message_of("slow 0.2 done")
    async with agent, agent.client() as client:
        early = await client.send_message(message, return_immediately=True)
        task = await client.wait(early.id, **SOON)
        executions = (await agent.executions())[message.message_id]

    assert early.state in {TaskState.SUBMITTED, TaskState.WORKING}
    assert early.artifacts == ()
    assert shape(task) == completed("done", "slow 0.2 done")
    assert executions == [task.id]


@pytest.mark.rule("S10")
@contract
@pytest.mark.parametrize(
    ("text", "error", "state"),
    [
        ("fail no luck", TaskFailedError, TaskState.FAILED),
        ("reject no luck", TaskRejectedError, TaskState.REJECTED),
    ],
)
async def test_s10_task_that_fails_or_is_rejected_raises_its_reason(agent, text, error, state):
    async with agent, agent.client() as client:
        with pytest.raises(error, match="no luck") as caught:
            await client.ask(text, **SOON)

    task = caught.value.task
    assert (task.state, caught.value.executed) == (state, True)
    assert shape(task)["status"] == (Role.AGENT, "no luck", True)
    assert task.artifacts == ()


# ── Interruptions and conversations ──────────────────────────────────────────────────────────


@pytest.mark.rule("S15", "D12")
@contract
@streamed_and_polled
async def test_s15_reply_to_a_question_continues_its_task(agent, streaming):
    async with agent, agent.client(streaming=streaming) as client:
        asked = await client.ask("ask which colour?", **SOON)
        await client.get_task(
            asked.task_id
        )  # the official server of 0.3 needs a moment after a run
        answer = await client.ask(
            "blue", task_id=asked.task_id, context_id=asked.context_id, **SOON
        )
        after = await client.ask("echo thanks", context_id=asked.context_id, **SOON)
        stored = await client.get_task(asked.task_id)

    assert (asked.needs_input, asked.question, asked.text) == (True, "which colour?", "")
    assert (answer.needs_input, answer.text, answer.task_id) == (False, "blue", asked.task_id)
    texts = ["ask which colour?", "which colour?", "blue"]
    assert [message.text for message in stored.history] == texts
    assert after.task_id != asked.task_id
    assert after.context_id == asked.context_id


@contract
async def test_reply_to_a_question_never_returns_the_question(agent):
    async with agent, agent.client() as client:
        for number in range(5):
            asked = await client.ask("ask which colour?", **SOON)
            reply = await client.send_message(
                f"blue {number}", task_id=asked.task_id, return_immediately=True
            )
            assert reply.state is not TaskState.INPUT_REQUIRED
            assert (await client.wait(asked.task_id, **SOON)).text == f"blue {number}"


@pytest.mark.rule("S15")
@contract
@streamed_and_polled
async def test_s15_conversation_keeps_its_context_and_answers_questions(agent, streaming):
    questions = []

    async with agent, agent.client(streaming=streaming) as client:

        async def reply(interruption):
            questions.append(interruption.text)
            await client.get_task(interruption.task.id)  # as above
            return "blue"

        chat = client.conversation(on_input=reply, **SOON)
        first = await chat.ask("ask which colour?")
        second = await chat.ask("echo thanks")
        silent = client.conversation(context_id=chat.context_id, **SOON)
        question = await silent.ask("ask how large?")
        await client.get_task(question.task_id)  # as above
        answer = await silent.ask("large")
        async with silent.stream_message("chunks 3") as events:
            text = "".join([text async for text in events.text_deltas()])

    assert (questions, first.text, second.text) == (["which colour?"], "blue", "thanks")
    assert (question.question, question.text, answer.text) == ("how large?", "", "large")
    assert answer.task_id == question.task_id
    assert text == events.task.text
    assert not chat.is_open
    answers = (first, second, answer, events.task)
    assert len({first.task_id, second.task_id, answer.task_id, events.task.id}) == len(answers)
    assert {one.context_id for one in (*answers, question)} == {chat.context_id}


@contract
async def test_reply_to_an_authorization_request_continues_its_task(agent):
    async with agent, agent.client() as client:
        chat = client.conversation(on_auth=lambda _: "you may", **SOON)
        assert (await chat.ask("auth May I?")).text == "you may"

        deferring = client.conversation(on_auth=_defer, **SOON)
        with pytest.raises(TaskAuthRequiredError, match="for an authorization: ask upstairs"):
            await deferring.ask("auth May I?")
        later = client.conversation(task=deferring.task, **SOON)
        assert (await later.ask("go on")).text == "go on"
        assert later.task.id == deferring.task.id


def _defer(interruption):
    raise interruption.to_error("ask upstairs")


@pytest.mark.rule("S16")
@contract
async def test_s16_wait_notices_an_authorization_that_was_given_meanwhile(agent):
    async with agent, agent.client() as client:
        task = await client.send_message("auth log in")
        waiting = asyncio.create_task(client.wait(task.id, **SOON))
        await client.send_message("done", task_id=task.id)
        done = await waiting

    assert task.state is TaskState.AUTH_REQUIRED
    assert (done.state, done.text) == (TaskState.COMPLETED, "done")


# ── Content ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S26")
@contract
async def test_s26_integer_stays_an_integer_as_far_as_the_server_keeps_it(agent):
    async with agent, agent.client() as client:
        data = '{"n": 1, "list": [1, null, "x"], "more": [2, {"m": 3}]}'
        sent = [text_part(f"data {data}"), data_part({"n": 1})]
        task = (await client.ask(sent, **SOON)).task

    data = task.artifacts[0].parts[0].data
    assert data == {"n": 1, "list": [1, None, "x"], "more": [2, {"m": 3}]}
    assert task.history[0].parts[1].data == {"n": 1}
    # Servers on protobuf know floats only, and write 1 as 1.0 in JSON.
    is_exact = agent.binding == "GRPC" or agent.kind == "fake" or agent.is_sdk("0.3", "JSONRPC")
    assert type(data["n"]) is (int if is_exact else float)


@contract
async def test_file_arrives_byte_for_byte(agent):
    async with agent, agent.client() as client:
        task = (await client.ask("file all.bin", **SOON)).task

    (part,) = task.artifacts[0].parts
    assert (part.raw, part.filename) == (FILE, "all.bin")
    assert part.media_type == "application/octet-stream"


@contract
async def test_parts_of_a_message_come_back_as_they_were_sent(agent):
    parts = [
        text_part("back"),
        Part(raw=FILE, filename="a.bin", media_type="application/x-own"),
        Part(url="http://files.test/a?b=c", filename="b.bin"),
        Part(url="http://x.test/f.png", media_type="image/png"),
        data_part({"n": 1}),
        data_part([1, "two", None]),
        Part(data={"of": "text"}, metadata={"n": 1}),
    ]
    async with agent, agent.client() as client:
        task = (await client.ask(parts, **SOON)).task

    (artifact,) = task.artifacts
    assert list(artifact.parts) == parts[1:]
    assert list(task.history[0].parts) == parts


@pytest.mark.rule("D12")
@contract
async def test_text_keeps_every_character(agent):
    text = 'é "quoted" \\ \u2028 \x85 \u0000 😀\n\ttab'
    async with agent, agent.client() as client:
        assert (await client.ask(f"echo {text}", **SOON)).text == text
