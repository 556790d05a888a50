"""The same calls against the fake agent and a real one on the official SDK, over real sockets.

The contract, which the files of this folder share: a program that calls an agent gets the same
results and the same errors, whichever binding it uses (JSON-RPC, HTTP+JSON), whichever version the
agent has (1.0, 0.3), whether the agent is the fake one or a real server, and whether the program
uses Holdfast's client or the official SDK's on Holdfast's transport. So what the fake agent shows
in virtual time holds for real agents.

- This file: the fake and a real agent of 1.0, over both bindings.
- ``test_versions.py``: real agents of 1.0 and 0.3, over both bindings.
- ``test_sdk_transports.py``: the SDK's own transports and Holdfast's, over both bindings.

gRPC is in ``tests/e2e/test_grpc.py``. What holds for both agents is written once. Where the two
differ, the test says which of them does what: those are limits of the official server, kept here
as facts.
"""

import asyncio
import contextlib
import json
import random
import socket
import struct
import uuid

import msgspec
import pytest
from tests.kit.effort import rounds
from tests.kit.event_streams import RPC_ID, frames_of, results_of, told
from tests.kit.messages import fold_of, message_of
from tests.kit.real_agents import LIMIT, sdk_process
from tests.kit.virtual_env import SystemEnv

from holdfast import (
    A2AHTTPError,
    AgentCardResolutionError,
    AuthenticationError,
    Message,
    Part,
    Resilience,
    RetryPolicy,
    Role,
    SchemeCredentials,
    TaskFailedError,
    TaskNotFoundError,
    TaskState,
    connect,
    data_part,
    text_part,
)
from holdfast import protocol as op
from holdfast._pipeline.http_binding import HttpBinding
from holdfast._testing.listening import Listener
from holdfast.compat import (
    A2ACardResolver,
    AuthInterceptor,
    ClientConfig,
    ClientFactory,
    create_text_message_object,
    minimal_agent_card,
)
from holdfast.errors import (
    InternalError,
    TaskAuthRequiredError,
    TaskCanceledError,
    TaskNotCancelableError,
    TaskRejectedError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from holdfast.extend import AiohttpEngine, Endpoints, HttpRequest
from holdfast.policies import Limits
from holdfast.testing import (
    FakeAgent,
    LoopbackServer,
    asks,
    completes,
    crashes,
    fails,
    rejects,
    replies,
    streams,
    works_forever,
)
from holdfast.types import (
    AgentInterface,
    SendMessageRequest,
    StreamResponse,
    TaskPushNotificationConfig,
)

pytestmark = [pytest.mark.sdk, pytest.mark.real_time]

FILE = bytes(range(256))
SOON = {"poll_interval": 0.02}

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
both_agents = pytest.mark.parametrize("kind", ["fake", "sdk"])


# ── The agents ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def sdk_url(tmp_path_factory):
    with sdk_process(tmp_path_factory.mktemp("sdk") / "stderr") as url:
        yield url


@pytest.fixture(scope="module")
def guarded_sdk_url(tmp_path_factory):
    with sdk_process(tmp_path_factory.mktemp("sdk") / "stderr", "--token", "secret") as url:
        yield url


def slow(rest):
    seconds, _, text = rest.partition(" ")
    return completes(text, after=float(seconds), works=0)


COMMANDS = {
    "echo": completes,
    "message": replies,
    "fail": fails,
    "reject": rejects,
    "ask": asks,
    "slow": slow,
    "data": lambda rest: completes(Part(data=json.loads(rest))),
    "file": lambda rest: completes(
        Part(raw=FILE, filename=rest, media_type="application/octet-stream")
    ),
    "chunks": lambda rest: streams(*(f"chunk {n}" for n in range(1, int(rest) + 1))),
    "crash": lambda _rest: crashes("crashed as asked"),
}
"""Those of the real agent, as far as the tests here use them."""


def scripted(turn):
    """Does with a message what the real agent does with it."""
    text = turn.message.text
    word, _, rest = text.partition(" ")
    if turn.task is not None or word not in COMMANDS:
        return completes(text)
    return COMMANDS[word](rest)


class Agent:
    """An agent under test: where it is, and what it knows of executions."""

    def __init__(self, url, fake=None):
        self.url = url
        self._fake = fake

    async def executions(self):
        if self._fake is not None:
            return self._fake.executions
        async with engine_of() as engine:
            reply = await engine.request(HttpRequest(method="GET", url=f"{self.url}/executions"))
            return json.loads(reply.body)


@contextlib.asynccontextmanager
async def serve(sdk_url, **options):
    """The real agent at an address, or a fake one with these options; time is bounded."""
    async with asyncio.timeout(LIMIT):
        if sdk_url is not None:
            yield Agent(sdk_url)
            return
        fake = FakeAgent(scripted, **options)
        async with LoopbackServer(fake) as server:
            yield Agent(server.url, fake)


@pytest.fixture
def agent_of(kind, request):
    """Gives a context in which the agent that a test is for can be reached."""
    url = None if kind == "fake" else request.getfixturevalue("sdk_url")
    return lambda: serve(url)


@contextlib.asynccontextmanager
async def engine_of(kind=AiohttpEngine, **options):
    engine = kind(proxies=False, **options)
    try:
        yield engine
    finally:
        await engine.close()


@contextlib.asynccontextmanager
async def client_of(agent_of, binding, **options):
    async with (
        agent_of() as agent,
        connect(agent.url, bindings=[binding], **options) as client,
    ):
        yield client


async def first_task(client, context):
    """The id of a context's first task, as soon as the agent has it."""
    while True:
        if tasks := (await client.list_tasks(context)).tasks:
            return tasks[0].id
        await asyncio.sleep(0.02)


def everywhere(test):
    """Runs a test with both bindings against both agents."""
    return both_bindings(both_agents(test))


def shape(task):
    """What a task says, whatever ids and times it has."""
    said = task.status.message
    return {
        "ids": bool(task.id and task.context_id),
        "state": task.state.name,
        "time": task.status.time is not None,
        "said": None if said is None else (said.role, said.text, said.task_id == task.id),
        "artifacts": [
            [(part.text, part.raw, part.filename or None) for part in artifact.parts]
            for artifact in task.artifacts
        ],
        "history": [
            (message.role, message.text, message.task_id == task.id, bool(message.message_id))
            for message in task.history
        ],
    }


def completed(text, *said):
    """The shape of a completed task with one artifact of text."""
    return {
        "ids": True,
        "state": "COMPLETED",
        "time": True,
        "said": None,
        "artifacts": [[(text, None, None)]],
        "history": [(Role.USER, words, True, True) for words in said],
    }


# ── Messages ─────────────────────────────────────────────────────────────────────────────────


@everywhere
async def test_ask_gives_the_text_of_the_answer(agent_of, binding):
    async with client_of(agent_of, binding) as client:
        answer = await client.ask("echo hello", **SOON)

    assert answer.text == "hello"
    assert shape(answer.task) == completed("hello", "echo hello")


@everywhere
async def test_a_message_may_be_answered_by_a_message(agent_of, binding):
    async with client_of(agent_of, binding) as client:
        answer = await client.ask("message hello")
        raw = await client.send_message("message hello")

    assert (answer.text, answer.task, answer.message.role) == ("hello", None, Role.AGENT)
    assert (raw.text, bool(raw.message_id), bool(raw.context_id)) == ("hello", True, True)


@everywhere
async def test_a_blocking_send_answers_with_the_task_that_is_over(agent_of, binding):
    async with client_of(agent_of, binding) as client:
        task = await client.send_message("slow 0.1 done")
        again = await client.get_task(task.id)

    assert shape(task) == completed("done", "slow 0.1 done")
    assert shape(again) == shape(task)


@everywhere
async def test_a_send_that_returns_immediately_leaves_a_task_to_wait_for(agent_of, binding):
    async with client_of(agent_of, binding) as client:
        early = await client.send_message("slow 0.2 done", return_immediately=True)
        task = await client.wait(early.id, **SOON)

    assert early.state in {TaskState.SUBMITTED, TaskState.WORKING}
    assert early.artifacts == ()
    assert shape(task) == completed("done", "slow 0.2 done")


@everywhere
async def test_ask_waits_for_a_slow_task(agent_of, binding):
    async with client_of(agent_of, binding) as client:
        assert (await client.ask("slow 0.2 done", **SOON)).text == "done"


@pytest.mark.rule("S10")
@everywhere
@pytest.mark.parametrize(
    ("text", "error", "state"),
    [
        ("fail no luck", TaskFailedError, TaskState.FAILED),
        ("reject no luck", TaskRejectedError, TaskState.REJECTED),
    ],
)
async def test_s10_a_task_that_ends_badly_tells_its_reason(agent_of, binding, text, error, state):
    async with client_of(agent_of, binding) as client:
        with pytest.raises(error, match="no luck") as caught:
            await client.ask(text, **SOON)

    assert (caught.value.task.state, caught.value.executed) == (state, True)
    assert shape(caught.value.task)["said"] == (Role.AGENT, "no luck", True)
    assert caught.value.task.artifacts == ()


@pytest.mark.rule("S15")
@everywhere
async def test_s15_a_question_is_answered_on_its_task(agent_of, binding):
    async with client_of(agent_of, binding) as client:
        asked = await client.ask("ask which colour?", **SOON)
        answer = await client.ask(
            "blue", task_id=asked.task_id, context_id=asked.context_id, **SOON
        )
        after = await client.ask("echo thanks", context_id=asked.context_id, **SOON)

    assert (asked.needs_input, asked.question, asked.text) == (True, "which colour?", "")
    assert (answer.needs_input, answer.text, answer.task_id) == (False, "blue", asked.task_id)
    assert [message.text for message in answer.task.history] == [
        "ask which colour?",
        "which colour?",
        "blue",
    ]
    assert after.task_id != asked.task_id
    assert after.context_id == asked.context_id


@everywhere
async def test_a_reply_is_never_answered_by_the_question_as_it_stood(agent_of, binding):
    async with client_of(agent_of, binding) as client:
        for number in range(5):
            asked = await client.ask("ask which colour?", **SOON)
            reply = await client.send_message(
                f"blue {number}", task_id=asked.task_id, return_immediately=True
            )
            assert reply.state is not TaskState.INPUT_REQUIRED
            assert (await client.wait(asked.task_id, **SOON)).text == f"blue {number}"


@pytest.mark.rule("S15")
@everywhere
@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "polled"])
async def test_s15_a_conversation_keeps_what_belongs_together(agent_of, binding, streaming):
    asked = []

    def reply(interruption):
        asked.append(interruption.text)
        return "blue"

    async with client_of(agent_of, binding, streaming=streaming) as client:
        chat = client.conversation(on_input=reply, **SOON)
        first = await chat.ask("ask which colour?")
        second = await chat.ask("echo thanks")
        silent = client.conversation(context_id=chat.context_id, **SOON)
        question = await silent.ask("ask how large?")
        answer = await silent.ask("large")
        async with silent.stream_message("chunks 3") as events:
            text = "".join([text async for text in events.text_deltas()])

    assert (asked, first.text, second.text) == (["which colour?"], "blue", "thanks")
    assert (question.question, question.text, answer.text) == ("how large?", "", "large")
    assert answer.task_id == question.task_id
    assert text == events.task.text
    assert len({first.task_id, second.task_id, answer.task_id, events.task.id}) == 4
    assert {a.context_id for a in (first, second, question, answer, events.task)} == {
        chat.context_id
    }


@both_bindings
async def test_an_authorization_is_answered_on_its_task(sdk_url, binding):
    async with client_of(lambda: serve(sdk_url), binding) as client:
        chat = client.conversation(on_auth=lambda _: "you may", **SOON)
        assert (await chat.ask("auth May I?")).text == "you may"

        down = client.conversation(on_auth=hand_on, **SOON)
        with pytest.raises(TaskAuthRequiredError, match="for an authorization: ask upstairs"):
            await down.ask("auth May I?")
        later = client.conversation(task=down.task, **SOON)
        assert (await later.ask("go on")).text == "go on"
        assert later.task.id == down.task.id


def hand_on(interruption):
    raise interruption.to_error("ask upstairs")


# ── Streams ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["story", "chunks 100", "ask which colour?", "fail no"])
async def test_the_fold_of_a_real_stream_is_the_agents_own_task(sdk_url, text):
    message = message_of(text)
    async with asyncio.timeout(LIMIT), engine_of() as engine:
        request = HttpRequest(
            method="POST",
            url=f"{sdk_url}/rest/message:stream",
            headers={"content-type": "application/json", "a2a-version": "1.0"},
            body=json.dumps(SendMessageRequest(message=message).to_dict()).encode(),
        )
        reply = await engine.request(request)
        lines = [x.removeprefix(b"data: ") for x in reply.body.splitlines() if b"data: " in x[:6]]
        task = fold_of(StreamResponse.from_dict(json.loads(x)).event for x in lines).task
        async with connect(sdk_url) as client:
            assert task == await client.get_task(task.id)


# ── Parts ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S26")
@everywhere
async def test_s26_an_integer_stays_one_as_far_as_the_server_lets_it(agent_of, binding, kind):
    async with client_of(agent_of, binding) as client:
        sent = [text_part('data {"n": 1, "list": [1, null, "x"]}'), data_part({"n": 1})]
        task = (await client.ask(sent, **SOON)).task

    data = task.artifacts[0].parts[0].data
    assert data == {"n": 1, "list": [1, None, "x"]}
    assert task.history[0].parts[1].data == {"n": 1}
    # The JSON of the official server goes through protobuf, which knows floats only: 1 becomes
    # 1.0 on its side of the wire.
    assert type(data["n"]) is (float if kind == "sdk" else int)


@everywhere
async def test_a_file_comes_byte_for_byte(agent_of, binding):
    async with client_of(agent_of, binding) as client:
        task = (await client.ask("file all.bin", **SOON)).task

    (part,) = task.artifacts[0].parts
    assert (part.raw, part.filename) == (FILE, "all.bin")
    assert part.media_type == "application/octet-stream"


@everywhere
async def test_a_file_goes_byte_for_byte(agent_of, binding):
    file = Part(raw=FILE, filename="all.bin", media_type="application/octet-stream")
    link = Part(url="http://x.test/f.png", media_type="image/png")
    async with client_of(agent_of, binding) as client:
        task = (await client.ask([text_part("echo hello"), file, link], **SOON)).task

    assert task.history[0].parts[1:] == (file, link)


@pytest.mark.rule("D12")
@everywhere
async def test_text_survives_whatever_it_holds(agent_of, binding):
    text = 'é "quoted" \\ \u2028 \x85 \u0000 😀\n\ttab'
    async with client_of(agent_of, binding) as client:
        assert (await client.ask(f"echo {text}", **SOON)).text == text


# ── Tasks ────────────────────────────────────────────────────────────────────────────────────


@everywhere
async def test_tasks_are_listed_by_context_page_by_page(agent_of, binding):
    context = f"context {uuid.uuid4()}"
    async with client_of(agent_of, binding) as client:
        for text in ("echo one", "ask two?", "echo three"):
            await client.send_message(text, context_id=context)

        page = await client.list_tasks(context, limit=2)
        tasks = [task async for task in client.iter_tasks(context, limit=2)]
        waiting = await client.list_tasks(context, status=TaskState.INPUT_REQUIRED)
        whole = await client.list_tasks(context, limit=1, include_artifacts=True)
        short = await client.list_tasks(context, history_length=0)
        none = await client.list_tasks(f"not {context}")

    assert (len(page.tasks), page.page_size, page.total_size) == (2, 2, 3)
    assert page.next_page_token
    assert [task.history[0].text for task in tasks] == ["echo three", "ask two?", "echo one"]
    assert {task.artifacts for task in tasks} == {()}
    assert {task.context_id for task in tasks} == {context}
    assert [shape(task)["said"] for task in waiting.tasks] == [(Role.AGENT, "two?", True)]
    assert shape(whole.tasks[0]) == completed("three", "echo three")
    assert [task.history for task in short.tasks] == [(), (), ()]
    assert (none.tasks, none.total_size, none.next_page_token) == ((), 0, "")


@everywhere
async def test_history_is_as_long_as_asked_for(agent_of, binding):
    async with client_of(agent_of, binding) as client:
        task = await client.send_message("ask what?", history_length=0)
        await client.send_message("this", task_id=task.id)
        last = await client.get_task(task.id, history_length=1)
        none = await client.get_task(task.id, history_length=0)

    assert task.history == ()
    assert [message.text for message in last.history] == ["this"]
    assert none.history == ()


@everywhere
async def test_a_running_task_is_canceled(agent_of, binding):
    async with client_of(agent_of, binding) as client:
        task = await client.send_message("slow 30 never", return_immediately=True)
        canceled = await client.cancel_task(task.id, **SOON)
        with pytest.raises(TaskNotCancelableError) as caught:
            await client.cancel_task(task.id)

    assert canceled.state is TaskState.CANCELED
    assert (caught.value.code, len(caught.value.attempts)) == (-32002, 1)


@everywhere
async def test_who_asks_learns_that_somebody_else_canceled(agent_of, binding):
    context = str(uuid.uuid4())
    async with client_of(agent_of, binding) as client:
        asking = asyncio.create_task(client.ask("slow 30 never", context_id=context, **SOON))
        await client.cancel_task(await first_task(client, context), **SOON)

        with pytest.raises(TaskCanceledError):
            await asking


@everywhere
async def test_a_blocking_send_answers_when_its_task_is_canceled(agent_of, binding):
    context = str(uuid.uuid4())
    async with client_of(agent_of, binding) as client:
        blocking = asyncio.create_task(client.send_message("slow 30 never", context_id=context))
        await client.cancel_task(await first_task(client, context), **SOON)

        assert (await blocking).state is TaskState.CANCELED


# ── What streams tell ────────────────────────────────────────────────────────────────────────


def streaming(agent, binding, operation, params):
    """The request of a stream."""
    path, body = "/rpc", {"jsonrpc": "2.0", "id": RPC_ID, "method": operation, "params": params}
    if binding == "HTTP+JSON":
        task_id = params.get("id")
        path = f"/rest/tasks/{task_id}:subscribe" if task_id else "/rest/message:stream"
        body = params
    return HttpRequest(
        method="POST",
        url=f"{agent.url}{path}",
        headers={"content-type": "application/json", "a2a-version": "1.0"},
        body=json.dumps(body).encode(),
    )


def said(text, **members):
    user = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": {**user, **members}}


TOLD = {
    "chunks 3": [
        "task SUBMITTED",
        "status WORKING",
        "artifact chunk 1",
        "append chunk 2",
        "append chunk 3 last",
        "status COMPLETED",
    ],
    "slow 0.01 done": ["task SUBMITTED", "status WORKING", "artifact done", "status COMPLETED"],
    "reject no": ["task SUBMITTED", "status REJECTED"],
    "message hi": ["message hi"],
    "crash": ["task SUBMITTED", "status WORKING", "error"],
}


@pytest.mark.rule("D12")
@everywhere
@pytest.mark.parametrize("text", TOLD)
async def test_a_stream_tells_the_same(agent_of, binding, text):
    async with agent_of() as agent, engine_of() as engine:
        reply = await engine.request(streaming(agent, binding, "SendStreamingMessage", said(text)))

    assert (reply.status, reply.headers["content-type"].partition(";")[0]) == (
        200,
        "text/event-stream",
    )
    told_here = [told(result).replace("\n", "") for result in results_of(reply.body, binding)]
    lasts = [event.removesuffix(" last") for event in told_here]
    assert lasts[-1].startswith(TOLD[text][-1])
    assert lasts[:-1] == [event.removesuffix(" last") for event in TOLD[text][:-1]]
    assert {kind for kind, _ in frames_of(reply.body)[:-1]} <= {"message"}
    assert frames_of(reply.body)[-1][0] == ("error" if text == "crash" else "message")


@everywhere
async def test_what_is_over_or_unknown_is_no_stream(agent_of, binding):
    async with agent_of() as agent, engine_of() as engine, connect(agent.url) as client:
        over = await client.send_message("echo hello")
        seen = []
        for task_id in (over.id, "nope"):
            request = streaming(agent, binding, "SubscribeToTask", {"id": task_id})
            reply = await engine.request(request)
            error = json.loads(reply.body)["error"]
            seen.append((reply.status, reply.headers["content-type"], error["code"]))

    statuses, codes = ((200, 200), (-32004, -32001))
    if binding == "HTTP+JSON":
        statuses = codes = (400, 404)
    kinds = ("application/json",) * 2
    assert seen == list(zip(statuses, kinds, codes, strict=True))


@everywhere
async def test_a_subscription_begins_with_the_task_as_it_stands(agent_of, binding):
    async with agent_of() as agent, engine_of() as engine, connect(agent.url) as client:
        task = await client.send_message("slow 30 never", return_immediately=True)
        while task.state is not TaskState.WORKING:
            await asyncio.sleep(0.02)
            task = await client.get_task(task.id)
        request = streaming(agent, binding, "SubscribeToTask", {"id": task.id})
        async with engine.stream(request) as reply:
            first = await anext(aiter(reply.chunks()))
        canceled = await client.cancel_task(task.id, **SOON)

    assert [told(result) for result in results_of(first, binding)] == ["task WORKING"]
    assert canceled.state is TaskState.CANCELED


# ── Refusals ─────────────────────────────────────────────────────────────────────────────────


@everywhere
async def test_what_is_over_takes_neither_cancel_nor_message(agent_of, binding):
    async with client_of(agent_of, binding) as client:
        task = await client.send_message("echo hello")
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(task.id)
        with pytest.raises(UnsupportedOperationError, match="terminal state") as caught:
            await client.ask("more", task_id=task.id)

    assert (caught.value.code, caught.value.executed) == (-32004, None)
    assert len(caught.value.attempts) == 1


@everywhere
async def test_a_task_that_nobody_knows_is_not_found(agent_of, binding):
    async with client_of(agent_of, binding) as client:
        for call in (
            client.get_task("nope"),
            client.wait("nope"),
            client.cancel_task("nope"),
            client.ask("hello", task_id="nope"),
            client.list_task_push_notification_configs("nope"),
            client.get_task_push_notification_config("nope", "c"),
            client.delete_task_push_notification_config("nope", "c"),
            client.create_task_push_notification_config(
                TaskPushNotificationConfig(task_id="nope", url="http://x.test/")
            ),
        ):
            with pytest.raises(TaskNotFoundError) as caught:
                await call
            assert caught.value.code == -32001


@everywhere
async def test_an_odd_id_is_only_a_task_that_nobody_knows(agent_of, binding, kind):
    async with client_of(agent_of, binding) as client:
        for task_id in ("a b", "é", "a:b", "a%b", "a?b", ".."):
            with pytest.raises(TaskNotFoundError) as caught:
                await client.get_task(task_id)
            assert caught.value.code == -32001
        with pytest.raises((TaskNotFoundError, A2AHTTPError)) as caught:
            await client.get_task("a/b")

    # The router of the official server takes an encoded slash for a real one, finds no such path,
    # and says so in plain text.
    if (kind, binding) == ("sdk", "HTTP+JSON"):
        assert (type(caught.value), caught.value.http_status) == (A2AHTTPError, 404)
        assert caught.value.excerpt == "Not Found"
    else:
        assert (type(caught.value), caught.value.code) == (TaskNotFoundError, -32001)


class OldEngine(AiohttpEngine):
    """Says that its client speaks another version of the protocol."""

    async def request(self, request):
        request.headers["a2a-version"] = "0.3"
        return await super().request(request)


@everywhere
async def test_another_version_is_refused_before_anything_runs(agent_of, binding):
    async with agent_of() as agent, engine_of(OldEngine) as engine:
        client = connect(agent.url, bindings=[binding], engine=engine)
        message = message_of("echo hello")
        for call in (client.get_task("x"), client.send_message(message)):
            with pytest.raises(VersionNotSupportedError) as caught:
                await call
            assert (caught.value.code, caught.value.executed) == (-32009, False)
        assert message.message_id not in await agent.executions()


@everywhere
async def test_an_agent_that_crashes_after_its_side_effects_ran_once(agent_of, binding):
    message = message_of("crash")
    async with agent_of() as agent, connect(agent.url, bindings=[binding]) as client:
        with pytest.raises(InternalError) as caught:
            await client.send_message(message)
        ran = (await agent.executions())[message.message_id]
        stored = await client.get_task(ran[0])

    assert (caught.value.code, caught.value.executed) == (-32603, None)
    assert len(caught.value.attempts) == 1
    assert len(ran) == 1
    assert stored.state is TaskState.FAILED


@everywhere
async def test_ask_learns_of_a_crash_from_the_task(agent_of, binding):
    message = message_of("crash")
    async with agent_of() as agent, connect(agent.url, bindings=[binding]) as client:
        with pytest.raises(TaskFailedError):
            await client.ask(message, **SOON)
        assert len((await agent.executions())[message.message_id]) == 1


# ── Cards and tokens ─────────────────────────────────────────────────────────────────────────


@everywhere
async def test_the_card_names_both_bindings(agent_of, binding):
    async with agent_of() as agent, connect(agent.url, bindings=[binding]) as client:
        card = await client.agent_card()

    assert [(i.protocol_binding, i.url) for i in card.supported_interfaces] == [
        ("JSONRPC", f"{agent.url}/rpc"),
        ("HTTP+JSON", f"{agent.url}/rest"),
    ]
    assert card.capabilities.extended_agent_card


@everywhere
async def test_the_extended_card_replaces_the_public_one(agent_of, binding):
    async with client_of(agent_of, binding) as client:
        public = await client.agent_card()
        extended = await client.get_extended_agent_card()
        kept = await client.agent_card()
        answer = await client.ask("echo hello", **SOON)

    assert extended.name == f"{public.name}, extended"
    assert kept == extended
    assert answer.text == "hello"


@pytest.fixture
def guarded_agent_of(kind, request):
    """The same with agents that want the token ``secret``."""
    url = None if kind == "fake" else request.getfixturevalue("guarded_sdk_url")
    return lambda: serve(url, token="secret")


@everywhere
async def test_only_the_right_token_opens(guarded_agent_of, binding):
    async with guarded_agent_of() as agent:
        ran = len(await agent.executions())
        for auth in (None, "Bearer wrong"):
            async with connect(agent.url, bindings=[binding], auth=auth) as client:
                assert (await client.agent_card()).name
                for call in (client.ask("echo hello"), client.get_task("x")):
                    with pytest.raises(AuthenticationError) as caught:
                        await call
                    assert (caught.value.http_status, caught.value.executed) == (401, False)
                    assert caught.value.headers["www-authenticate"] == "Bearer"
                    assert "wrong" not in str(caught.value)
        assert len(await agent.executions()) == ran
        async with connect(agent.url, bindings=[binding], auth="Bearer secret") as client:
            assert (await client.ask("echo hello", **SOON)).text == "hello"


SCHEMES = {
    "bearer": "bearer-token",
    "basic": "user:päss:word",
    "header": "header key",
    "query": "query&key=+ü",
    "cookie": "cookie-key",
    "oauth": "oauth-token",
    "oidc": "oidc-token",
}
"""What the real agent wants, by the names of its card's schemes."""


@both_bindings
@pytest.mark.parametrize(
    ("needs", "known", "missing"),
    [
        *((scheme, [scheme], [scheme]) for scheme in SCHEMES),
        ("header+query", ["header", "query"], ["query"]),
        ("basic,cookie", ["basic"], ["basic", "cookie"]),
        ("basic,cookie", ["cookie"], ["basic", "cookie"]),
    ],
)
async def test_a_real_agent_gets_the_credentials_that_its_card_asks_for(
    sdk_url, binding, needs, known, missing
):
    url = f"{sdk_url}/needs/{needs}"
    async with asyncio.timeout(LIMIT):
        service = SchemeCredentials({scheme: SCHEMES[scheme] for scheme in known})
        async with connect(url, bindings=[binding], auth=service) as client:
            assert (await client.ask("echo hello", **SOON)).text == "hello"
            assert (await client.list_tasks(limit=1)).tasks
        wrong = SchemeCredentials({scheme: f"{SCHEMES[scheme]}x" for scheme in known})
        async with connect(url, bindings=[binding], auth=wrong) as client:
            with pytest.raises(AuthenticationError) as caught:
                await client.ask("echo hello")
            assert (caught.value.http_status, caught.value.executed) == (401, False)
        less = SchemeCredentials({s: SCHEMES[s] for s in SCHEMES if s not in missing})
        async with connect(url, bindings=[binding], auth=less) as client:
            with pytest.raises(AuthenticationError) as caught:
                await client.ask("echo hello")
            assert caught.value.http_status is None
            assert caught.value.missing == tuple(missing)


# ── In the words of the official SDK ─────────────────────────────────────────────────────────


class Wrapped:
    """A binding of one's own: JSON-RPC at another address than the interface's."""

    def __init__(self, url, engine):
        interface = AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")
        self._endpoint = Endpoints().of(interface)
        self._binding = HttpBinding(engine, SystemEnv(), Resilience.standard(), Limits())

    async def unary(self, call, /):
        return await self._binding.unary(msgspec.structs.replace(call, endpoint=self._endpoint))

    async def close(self):
        await self._binding.close()


@everywhere
async def test_a_factory_makes_clients_by_its_configuration(agent_of, binding):
    seen, later = [], []
    async with agent_of() as agent, engine_of() as engine:
        config = ClientConfig(
            engine=engine,
            polling=True,
            accepted_output_modes=["text/plain"],
            push_notification_configs=[TaskPushNotificationConfig(url="http://127.0.0.1:9/push")],
            supported_protocol_bindings=[binding],
            use_client_preference=True,
        )
        factory = ClientFactory(config, [lambda _event, task, _card: seen.append(task.id)])
        async with A2ACardResolver(agent.url, engine=engine) as resolver:
            card = await resolver.get_agent_card()
            assert await resolver.get_agent_card("/.well-known/agent-card.json") == card
            with pytest.raises(AgentCardResolutionError):
                await resolver.get_agent_card("/no/card/here")
        async with factory.create(card) as client:
            task = await client.send_message(create_text_message_object(content="slow 0.2 hello"))
            await client.add_event_consumer(lambda _event, task, _card: later.append(task.id))
            done = await client.wait(task.id, **SOON)
            configs = await client.list_task_push_notification_configs(task.id)
        assert (task.state.is_terminal, done.text) == (False, "hello")
        assert [config.url for config in configs.configs] == ["http://127.0.0.1:9/push"]
        assert set(seen) == set(later) == {task.id}
        assert len(seen) == len(later) + 1


@both_bindings
async def test_a_minimal_card_leads_to_the_extended_one(sdk_url, binding):
    path = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest"}[binding]
    async with (
        asyncio.timeout(LIMIT),
        ClientFactory().create(minimal_agent_card(f"{sdk_url}{path}", [binding])) as client,
    ):
        assert (await client.get_extended_agent_card()).name == "SDK agent, extended"
        assert (await client.ask("echo hello", **SOON)).text == "hello"


async def test_a_binding_of_ones_own_reaches_a_real_agent(sdk_url):
    async with asyncio.timeout(LIMIT), engine_of() as engine:
        factory = ClientFactory(ClientConfig(engine=engine))
        factory.register("urn:own", lambda _card, url, _config: Wrapped(f"{url}/rpc", engine))
        card = minimal_agent_card(sdk_url, ["urn:own"])
        async with factory.create(card) as client:
            assert (await client.ask("echo hello", **SOON)).text == "hello"


async def test_an_auth_interceptor_that_comes_later_opens_a_real_agent(sdk_url):
    url = f"{sdk_url}/needs/header+query"
    async with asyncio.timeout(LIMIT), connect(url) as client:
        with pytest.raises(AuthenticationError):
            await client.ask("echo hello")
        await client.add_request_middleware(AuthInterceptor(SchemeCredentials(SCHEMES)))
        assert (await client.ask("echo hello", **SOON)).text == "hello"


# ── Push notifications ───────────────────────────────────────────────────────────────────────


@everywhere
async def test_push_configurations_come_and_go(agent_of, binding):
    async with client_of(agent_of, binding) as client:
        task = await client.send_message("ask what?")
        none = await client.list_task_push_notification_configs(task.id)
        unnamed = await client.create_task_push_notification_config(
            TaskPushNotificationConfig(task_id=task.id, url="http://x.test/a")
        )
        config = TaskPushNotificationConfig(
            task_id=task.id, id="mine", url="http://x.test/b", token="t"
        )
        named = await client.create_task_push_notification_config(config)
        found = await client.get_task_push_notification_config(task.id, "mine")
        both = await client.list_task_push_notification_configs(task.id)
        deleted = await client.delete_task_push_notification_config(task.id, "mine")
        left = await client.list_task_push_notification_configs(task.id)
        with pytest.raises(TaskNotFoundError):
            await client.get_task_push_notification_config(task.id, "mine")

    assert none.configs == ()
    assert (unnamed.id, unnamed.url) == (task.id, "http://x.test/a")
    assert named == found == config
    assert both.configs == (unnamed, named)
    assert deleted is None
    assert left.configs == (unnamed,)


# ── Replies that are lost ────────────────────────────────────────────────────────────────────


class LossyProxy(Listener):
    """Passes requests on to an agent, and cuts the connection instead of passing on the reply.

    Attributes:
        url: Where it listens.
        requests: What it passed on.
    """

    def __init__(self, target, cut):
        super().__init__(self._pass_on, host="127.0.0.1", port=0, largest_head=65536)
        self._target = target
        self._cut = cut
        self.requests = []

    async def _pass_on(self, reader, writer):
        request = await whole(reader)
        port = int(self._target.rpartition(":")[2])
        onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", port)
        self.requests.append(request)
        try:
            onward_writer.write(request)
            reply = await whole(onward_reader)  # the agent is done
        finally:
            onward_writer.transport.abort()
        sock = writer.get_extra_info("socket")
        match self._cut if b'"parts"' in request else "whole":
            case "whole":
                writer.write(reply)
            case "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            case "cut":
                writer.write(reply[:-10])


async def whole(reader):
    """One HTTP message."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.decode("latin-1").lower().split("\r\n"):
        if line.startswith("content-length:"):
            return head + await reader.readexactly(int(line.partition(":")[2]))
    return head


@pytest.mark.rule("S05")
@everywhere
@pytest.mark.parametrize("cut", ["reset", "close", "cut"])
async def test_s05_a_lost_reply_leaves_one_execution_which_is_found_again(agent_of, binding, cut):
    path = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest"}[binding]
    async with agent_of() as agent, LossyProxy(agent.url, cut) as proxy:
        async with connect(agent.url, bindings=[binding], url=f"{proxy.url}{path}") as client:
            message_id = f"lost-{cut}-{binding}"
            part = text_part("echo hello")
            message = Message(message_id=message_id, role=Role.USER, parts=(part,))
            answer = await client.ask(message)
        ran = (await agent.executions())[message_id]

    assert (answer.text, ran) == ("hello", [answer.task_id])
    sends = [one for one in proxy.requests if message_id.encode() in one and b"parts" in one]
    assert len(sends) == 1


# ── Connections ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S06")
@both_bindings
async def test_s06_an_agent_that_is_not_up_yet_gets_one_message_once_it_is(binding):
    agent = FakeAgent()
    async with asyncio.timeout(LIMIT), LoopbackServer(agent) as server:
        async with connect(server.url) as client:
            card = await client.agent_card()
        await server.refuse()
        waits = []

        async def on_retry(number, error, wait):
            waits.append((number, error.failure, error.executed))
            if number == 2:
                await server.listen()

        policy = RetryPolicy(base_delay=0.01, on_retry=on_retry)
        async with connect(
            card, bindings=[binding], resilience=Resilience(retry=policy)
        ) as client:
            message = message_of("hello", "m-1")
            reply = await client.call(op.SEND_MESSAGE, SendMessageRequest(message=message))

        assert waits == [(1, "refused", False), (2, "refused", False)]
        assert reply.value.task.text == "hello"
        assert [attempt.number for attempt in reply.attempts] == [1, 2, 3]
        assert ["refused" in (attempt.error or "") for attempt in reply.attempts] == [
            True,
            True,
            False,
        ]
        assert {name: len(made) for name, made in agent.executions.items()} == {"m-1": 1}
        assert len(agent.tasks) == 1


async def executed(agent, count):
    """Waits until an agent has executed so many messages."""
    while True:
        if len(agent.executions) >= count:
            return
        await asyncio.sleep(0.01)


@pytest.mark.rule("S28")
async def test_s28_calls_that_are_cancelled_at_random_leave_every_slot_free():
    dice, slots, wanted = random.Random(28), 10, rounds(1000, 3000)
    plans = [completes("done")]
    agent = FakeAgent(lambda turn: plans[-1], latency=0.001)
    async with (
        asyncio.timeout(LIMIT * 2),
        LoopbackServer(agent) as server,
        engine_of(max_connections=slots) as engine,
    ):
        client = connect(server.url, engine=engine)
        cancelled = 0
        while cancelled < wanted:
            calls = [
                asyncio.create_task(
                    client.get_task("x") if number % 2 else client.send_message("hello")
                )
                for number in range(25)
            ]
            for call in calls:
                asyncio.get_running_loop().call_later(dice.uniform(0, 0.01), call.cancel)
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            cancelled += sum(isinstance(o, asyncio.CancelledError) for o in outcomes)
            unexpected = [
                outcome
                for outcome in outcomes
                if isinstance(outcome, BaseException)
                and not isinstance(outcome, asyncio.CancelledError | TaskNotFoundError)
            ]
            assert unexpected == []

        plans.append(works_forever())
        for _ in range(2):  # they take all the slots there are, and leave them again
            before = len(agent.executions)
            calls = [asyncio.create_task(client.send_message("hello")) for _ in range(slots)]
            await executed(agent, before + slots)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
    assert max(len(made) for made in agent.executions.values()) == 1
