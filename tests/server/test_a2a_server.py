"""An agent behind `A2AServer`, called in process over both bindings that are HTTP."""

import asyncio
import contextlib
import json
import logging
import random
import runpy
import threading
from types import SimpleNamespace

import pytest
from tests.kit.paths import ROOT
from tests.kit.served_agents import URL, SdkExecutor, calling, echo, post

import holdfast
from holdfast import A2AError, Artifact, Message, Part, TaskState
from holdfast.extend import HttpRequest
from holdfast.server import (
    A2AServer,
    Executor,
    fail,
    reject,
    requires_auth,
    requires_input,
)
from holdfast.testing import AsgiNetwork
from holdfast.types import TaskStatus, TaskStatusUpdateEvent

SAYING = (
    b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": '
    b'{"messageId": "a", "role": "ROLE_USER", "parts": [{"data": %b}]}}}'
)
BOTH = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


class Counting(Executor):
    """Counts down, and can be stopped."""

    def __init__(self):
        self.cancelled = []

    async def execute(self, turn):
        await turn.working("Counting.")
        for number in range(int(turn.text), 0, -1):
            await turn.write(f"{number} ")
            await asyncio.sleep(1)
        await turn.artifact("done", name="report")
        await turn.complete("Lift-off.")

    async def cancel(self, turn):
        self.cancelled.append(turn.task_id)


# ── A function answers ───────────────────────────────────────────────────────────────────────


@BOTH
async def test_a_function_answers(binding):
    async with calling(echo, binding) as client:
        answer = await client.ask("hello")

    assert answer.text == "You said hello"
    assert answer.task.state is TaskState.COMPLETED
    assert answer.task.history[0].text == "hello"


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ("text", ["text"]),
        (Part(text="part"), ["part"]),
        (["a", Part(text="b")], ["ab"]),
        ([Artifact(parts=(Part(text="one"),)), "two"], ["one", "two"]),
        (Artifact(artifact_id="x", parts=(Part(text="own"),)), ["own"]),
        (None, []),
    ],
)
async def test_what_a_function_gives_becomes_artifacts(given, texts):
    async def answer(message):
        return given

    async with calling(answer) as client:
        task = (await client.ask("?")).task

    assert [artifact.text for artifact in task.artifacts] == texts
    assert task.state is TaskState.COMPLETED


async def test_a_dict_becomes_data():
    async def answer(message):
        return {"degrees": 21.5}

    async with calling(answer) as client:
        task = (await client.ask("?")).task

    assert task.artifacts[0].parts[0].data == {"degrees": 21.5}


async def test_a_message_is_said_at_the_end_of_the_task():
    async def answer(message):
        return Message(parts=(Part(text="done"),))

    async with calling(answer) as client:
        task = (await client.ask("?")).task

    assert (task.status.message.text, task.artifacts) == ("done", ())


@BOTH
async def test_what_a_generator_yields_is_one_text_that_grows(binding):
    async def answer(message):
        yield Message(parts=(Part(text="Thinking."),))
        for word in ("one ", "two ", "three"):
            yield word
            await asyncio.sleep(1)

    async with (
        calling(answer, binding) as client,
        client.stream_message("count") as events,
    ):
        deltas = [delta async for delta in events.text_deltas()]
        task = (await events.result()).task

    assert deltas == ["one ", "two ", "three"]
    assert [artifact.text for artifact in task.artifacts] == ["one two three"]


@pytest.mark.parametrize("is_generator", [False, True])
async def test_a_function_that_blocks_runs_in_a_thread(is_generator):
    def plain(message):
        return "plain"

    def pieces(message):
        yield "pl"
        yield "ain"

    async with calling(pieces if is_generator else plain) as client:
        assert (await client.ask("?")).text == "plain"


async def test_functions_that_block_do_not_wait_for_each_other():
    together = threading.Barrier(40)

    def plain(message):
        together.wait(5)
        # Nor does the end of the program wait for one that never returns.
        return str(threading.current_thread().daemon)

    async with calling(plain) as client:
        answers = await asyncio.gather(*(client.ask("?") for _ in range(40)))

    assert {answer.text for answer in answers} == {"True"}


@pytest.mark.parametrize("failure", [StopIteration(), SystemExit(2)])
async def test_a_function_that_blocks_fails_by_whatever_it_raises(failure):
    def plain(message):
        raise failure

    async with calling(plain) as client:
        with pytest.raises(holdfast.TaskFailedError, match="internal error"):
            await client.ask("?")


async def test_a_function_that_declares_text_gets_text():
    async def shout(text: str) -> str:
        return text.upper()

    async with calling(shout) as client:
        assert (await client.ask("hello")).text == "HELLO"


async def test_the_turn_tells_who_called():
    seen = []

    async def answer(message, turn):
        seen.append(turn)
        return "ok"

    async with calling(answer) as client:
        answered = await client.ask("?", metadata={"colour": "blue"})

    (turn,) = seen
    assert turn.task_id == answered.task_id
    assert turn.context_id == answered.context_id
    assert turn.requester.headers["a2a-version"] == "1.0"
    assert (turn.requester.user, turn.asked, turn.history) == (None, None, ())
    assert turn.message.text == turn.text == "?"


@BOTH
async def test_many_are_answered_at_the_same_time(binding):
    async def answer(message):
        await asyncio.sleep(10)
        return message.text

    async with calling(answer, binding) as client, asyncio.timeout(20):
        answers = await asyncio.gather(*(client.ask(str(n)) for n in range(15)))

    assert [answer.text for answer in answers] == [str(n) for n in range(15)]


async def test_the_example_asks_and_answers():
    example = ROOT / "examples" / "serve.py"
    async with calling(runpy.run_path(str(example))["weather"]) as client:
        asked = await client.ask("weather")
        answered = await client.ask("Rome", task_id=asked.task_id)

    assert asked.question == "In which city?"
    assert answered.text == "It is sunny in Rome. "


# ── It asks, refuses, fails ──────────────────────────────────────────────────────────────────


@BOTH
@pytest.mark.parametrize("is_raised", [True, False])
async def test_requires_input_and_continues_with_what_was_asked(binding, is_raised):
    async def answer(message, turn):
        if turn.asked is None:
            question = requires_input("Which city?")
            if is_raised:
                raise question
            return question
        said = [m.text for m in turn.history]
        return f"{turn.asked} {message.text} {said}"

    async with calling(answer, binding) as client:
        asked = await client.ask("weather")
        answered = await client.ask("Rome", task_id=asked.task_id)

    assert asked.task.state is TaskState.INPUT_REQUIRED
    assert asked.question == "Which city?"
    assert answered.task_id == asked.task_id
    assert answered.text == "Which city? Rome ['weather', 'Which city?']"


async def test_a_prompt_of_an_executor_ends_the_turn_and_not_the_task():
    class Asking(Executor):
        async def execute(self, turn):
            if turn.asked:
                await turn.complete(f"Done: {turn.text}")
            else:
                await turn.requires_input("Sure?")

    async with calling(Asking()) as client:
        asked = await client.ask("delete all")
        done = await client.ask("yes", task_id=asked.task_id)

    assert (asked.question, done.task.status.message.text) == ("Sure?", "Done: yes")


async def test_requires_auth():
    async def answer(message):
        raise requires_auth("Log in at https://example.com/login")

    async with calling(answer) as client:
        task = await client.send_message("?")

    assert task.state is TaskState.AUTH_REQUIRED
    assert task.status.message.text == "Log in at https://example.com/login"


@BOTH
async def test_rejects(binding):
    async def answer(message):
        raise reject("Not my job.")

    async with calling(answer, binding) as client:
        with pytest.raises(holdfast.errors.TaskRejectedError, match=r"Not my job\.") as caught:
            await client.ask("?")

    assert caught.value.task.status.message.text == "Not my job."


@pytest.mark.rule("P12")
@BOTH
@pytest.mark.parametrize("kind", ["function", "generator", "executor"])
async def test_an_exception_fails_the_task_and_tells_nothing(binding, kind, caplog):
    secret = "token=hunter2 in /etc/agent.conf"

    async def function(message):
        raise RuntimeError(secret)

    async def generator(message):
        yield "so far"
        raise RuntimeError(secret)

    class Raising(Executor):
        async def execute(self, turn):
            raise RuntimeError(secret)

    agent = {"function": function, "generator": generator, "executor": Raising()}[kind]
    async with calling(agent, binding) as client:
        with pytest.raises(holdfast.TaskFailedError) as caught:
            await client.ask("?")
        told = (await client.get_task(caught.value.task.id)).to_json()

    assert caught.value.task.status.message.text == "internal error"
    assert "hunter2" not in str(caught.value) + told
    assert "/etc" not in told
    logged = [record for record in caplog.records if record.name == "holdfast.server"]
    assert any("hunter2" in record.getMessage() for record in logged)


@pytest.mark.rule("P12")
@BOTH
@pytest.mark.parametrize("kind", [fail, holdfast.errors.InvalidParamsError])
async def test_the_words_of_a_failure_are_sent_without_secrets_and_paths(binding, kind):
    async def function(message):
        raise kind("The shop is closed, see token=hunter2hunter2 in /etc/agent.conf")

    async with calling(function, binding) as client:
        with pytest.raises(holdfast.TaskFailedError, match="The shop is closed") as caught:
            await client.ask("?")
        told = (await client.get_task(caught.value.task.id)).to_json()

    assert "hunter2" not in told
    assert "/etc" not in told


async def raising(message):
    raise fail("The shop is closed.", retry_after=60)


async def returning(message):
    return fail("The shop is closed.", retry_after=60)


async def yielding(message):
    yield fail("The shop is closed.", retry_after=60)


@pytest.mark.parametrize("answer", [raising, returning, yielding])
async def test_deliberate_failure_is_reported_with_its_facts(answer):
    async with calling(answer) as client:
        with pytest.raises(holdfast.TaskFailedError, match="The shop is closed") as caught:
            await client.ask("?")

    told = A2AError.from_jsonrpc(caught.value.task.status.message.metadata["error"])
    assert (told.transient, told.retry_after) == (True, 60.0)
    assert caught.value.__cause__.retry_after == 60.0


async def test_a_failure_of_another_agent_tells_where_the_chain_broke():
    async def answer(message):
        raise holdfast.errors.InternalError(
            "out of memory", agent="weather", hops=("sensors",), request_id="7"
        )

    async with calling(answer, card={"name": "coordinator"}) as client:
        with pytest.raises(holdfast.TaskFailedError) as caught:
            await client.ask("?")

    told = A2AError.from_jsonrpc(caught.value.task.status.message.metadata["error"])
    assert told.hops == ("weather", "sensors")


@pytest.mark.rule("P14")
async def test_a_turn_that_takes_too_long_fails():
    async def answer(message):
        await asyncio.sleep(3600)

    async with calling(answer, timeout=60) as client:
        with pytest.raises(holdfast.TaskFailedError, match="the agent took too long"):
            await client.ask("?")


@pytest.mark.parametrize("result", [42, b"bytes", object()])
async def test_what_is_no_answer_fails_the_task(result, caplog):
    async def answer(message):
        return result

    async with calling(answer) as client:
        with pytest.raises(holdfast.TaskFailedError, match="internal error"):
            await client.ask("?")

    assert any("the function returned" in record.getMessage() for record in caplog.records)


# ── An executor owns the life of its tasks ───────────────────────────────────────────────────


@BOTH
async def test_an_executor_tells_status_and_artifacts_and_ends_the_task(binding):
    async with calling(Counting(), binding) as client, client.stream_message("3") as events:
        states = [
            event.status.state
            async for event in events
            if isinstance(event, holdfast.types.TaskStatusUpdateEvent)
        ]
        task = (await events.result()).task

    assert states == [TaskState.WORKING, TaskState.COMPLETED]
    assert [artifact.text for artifact in task.artifacts] == ["3 2 1 ", "done"]
    assert task.artifacts[1].name == "report"
    assert task.status.message.text == "Lift-off."


async def test_an_executor_may_answer_with_a_message_and_no_task():
    class Brief(Executor):
        async def execute(self, turn):
            await turn.reply("pong")

    async with calling(Brief()) as client:
        answer = await client.ask("ping")

    assert (answer.text, answer.task) == ("pong", None)


@pytest.mark.parametrize("says", [True, False])
async def test_a_turn_without_an_end_fails(says):
    class Forgetful(Executor):
        async def execute(self, turn):
            if says:
                await turn.working()

    async with calling(Forgetful()) as client:
        with pytest.raises(holdfast.TaskFailedError, match="internal error"):
            await client.ask("?")


async def test_event_after_the_end_is_refused():
    refused = []

    class Talkative(Executor):
        async def execute(self, turn):
            await turn.complete()
            for tell in (turn.working, lambda: turn.write("more"), lambda: turn.reply("x")):
                with pytest.raises(RuntimeError) as caught:
                    await tell()
                refused.append(str(caught.value))

    async with calling(Talkative()) as client:
        task = (await client.ask("?")).task

    assert task.state is TaskState.COMPLETED
    assert len(refused) == 3


@BOTH
async def test_a_cancel_ends_what_runs_and_tells_the_executor(binding):
    executor = Counting()
    async with calling(executor, binding) as client:
        task = await client.send_message("100", return_immediately=True)
        cancelled = await client.cancel_task(task.id)
        later = await client.get_task(task.id)

    assert cancelled.state is later.state is TaskState.CANCELED
    assert executor.cancelled == [task.id]


@pytest.mark.parametrize(
    ("failure", "told"),
    [(fail("The oven is on."), "The oven is on"), (OSError("hunter2"), "internal error")],
)
async def test_a_cancel_that_fails_fails_the_task(failure, told):
    class Stubborn(Counting):
        async def cancel(self, turn):
            raise failure

    async with calling(Stubborn()) as client:
        task = await client.send_message("100", return_immediately=True)
        with pytest.raises(A2AError, match=told) as caught:
            await client.cancel_task(task.id)
        state = (await client.wait(task.id)).state

    assert state is TaskState.FAILED
    assert "hunter2" not in str(caught.value)


async def test_a_cancel_ends_a_function_where_it_waits():
    ended = asyncio.Event()

    async def answer(message):
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    async with calling(answer) as client, client.stream_message("?") as events:
        task_id = None
        while task_id is None:
            await anext(events)
            task_id = events.task.id
        await client.cancel_task(task_id)
        with pytest.raises(holdfast.errors.TaskCanceledError):
            await events.result()

    assert ended.is_set()


async def test_a_task_that_waits_for_input_can_be_cancelled():
    async def answer(message):
        raise requires_input("Which?")

    async with calling(answer) as client:
        asked = await client.ask("?")
        cancelled = await client.cancel_task(asked.task_id)

    assert cancelled.state is TaskState.CANCELED


@pytest.mark.parametrize("seed", range(2))
async def test_whenever_it_is_cancelled_a_task_ends_once_and_nothing_is_left(seed):
    dice = random.Random(seed)

    async def answer(message):
        for _ in range(dice.randrange(4)):
            yield "word "
            await asyncio.sleep(dice.random())

    async def one(client):
        task = await client.send_message("?", return_immediately=True)
        await asyncio.sleep(dice.random() * 3)
        with contextlib.suppress(holdfast.errors.TaskNotCancelableError):
            await client.cancel_task(task.id)
        return (await client.get_task(task.id)).state

    async with calling(answer) as client:
        states = await asyncio.gather(*(one(client) for _ in range(15)))

    assert set(states) == {TaskState.COMPLETED, TaskState.CANCELED}


async def test_a_client_that_leaves_finds_its_task_done():
    async def answer(message):
        yield "began "
        await asyncio.sleep(30)
        yield "ended"

    async with calling(answer) as client:
        async with client.stream_message("?") as events:
            await anext(events)
            task_id = events.task.id
        assert (await client.wait(task_id)).text == "began ended"


# ── What people do with executors (HITL first, pipelines, other life cycles) ─────────────────


async def test_human_in_the_loop_first_and_the_prompt_is_not_in_the_answer():
    class Approved(Executor):
        async def execute(self, turn):
            if turn.asked is None:
                await turn.requires_input(f"May I do {turn.text!r}?")
            elif turn.text == "yes":
                await turn.artifact(f"did {turn.history[0].text}")
                await turn.complete()
            else:
                await turn.reject("Not allowed.")

    async with calling(Approved()) as client:
        asked = await client.ask("it")
        done = await client.ask("yes", task_id=asked.task_id)
        again = await client.ask("it")
        with pytest.raises(holdfast.errors.TaskRejectedError, match=r"Not allowed\."):
            await client.ask("no", task_id=again.task_id)

    assert asked.question == "May I do 'it'?"
    assert done.text == "did it"


async def test_a_pipeline_of_agents_behind_one_card():
    stub = SimpleNamespace(name="pipeline", description="One after the other.")
    inner = A2AServer(echo)
    network = AsgiNetwork({"http://inner.test": inner.app(url="http://inner.test")})

    class Pipeline(Executor):
        async def execute(self, turn):
            async with holdfast.connect("http://inner.test", engine=network) as next_agent:
                for step in ("one", "two"):
                    await turn.working(f"Asking for {step}.")
                    answer = await next_agent.ask(f"{turn.text} {step}")
                    await turn.artifact(answer.text, name=step)
            await turn.complete()

    async with calling(A2AServer(stub, executor=Pipeline())) as client:
        answer = await client.ask("go")
        name = (await client.agent_card()).name
    await inner.close()

    texts = {artifact.name: artifact.text for artifact in answer.task.artifacts}
    assert (name, texts) == ("pipeline", {"one": "You said go one", "two": "You said go two"})


async def test_an_authorization_may_come_in_another_way_while_the_executor_waits():
    class Waiting(Executor):
        async def execute(self, turn):
            status = TaskStatus(state=TaskState.AUTH_REQUIRED)
            await turn.emit(TaskStatusUpdateEvent(status=status))
            await asyncio.sleep(10)
            await turn.complete("Thank you.")

    async with calling(Waiting()) as client:
        task = await client.send_message("?")
        done = await client.wait(task.id)

    assert task.state is TaskState.AUTH_REQUIRED
    assert done.status.message.text == "Thank you."


# ── An executor of the official SDK's ────────────────────────────────────────────────────────


async def test_an_executor_of_the_sdk_is_taken_as_it_is():
    async with calling(SdkExecutor(), card={"name": "sdk"}) as client:
        assert (await client.ask("?")).message.text == "as it is"


@pytest.mark.rule("P12")
@BOTH
async def test_what_an_executor_of_the_sdk_raises_is_not_reported(binding, caplog):
    caplog.set_level(logging.CRITICAL, "a2a")
    async with calling(SdkExecutor(), binding, card={"name": "sdk"}) as client:
        with pytest.raises(A2AError) as caught:
            await client.send_message("raise")

    assert "hunter2" not in f"{caught.value} {caught.value.data} {caught.value.excerpt}"


# ── What goes wrong before the agent sees it ─────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (b"{", -32700),
        ({"jsonrpc": "2.0", "id": 1, "method": "Dance"}, -32601),
        ({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "no"}}, -32001),
        ({"id": 1}, -32600),
    ],
)
async def test_a_wrong_request_gets_a_proper_error(document, code):
    status, answer = await post(A2AServer(echo), document)

    assert (status, answer["error"]["code"]) == (200, code)


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (b"[" * 100_000, -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "Dance", "params": ' + b'{"a":' * 50_000, -32700),
        (b'{"jsonrpc": "2.0", "id": ' + b"9" * 5000 + b"}", -32700),
        (b'{"jsonrpc": "2.0", "id": NaN}', -32700),
        (b'{"jsonrpc": "\xff"}', -32700),
        (b'"\\ud800"', -32600),
        (SAYING % b"1e999", -32602),
        (SAYING % (b"[" * 500 + b"]" * 500), -32602),
    ],
)
async def test_what_cannot_be_read_is_the_clients_fault_and_tells_nothing_of_python(
    document, code
):
    status, answer = await post(A2AServer(echo), document)

    assert (status, answer["error"]["code"]) == (200, code)
    for word in ("sys.", "codec", "maximum recursion", "internal"):
        assert word not in str(answer)


@pytest.mark.rule("P14")
async def test_a_body_that_is_too_large_never_reaches_the_agent():
    request = {"jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": {"id": "x" * 5000}}

    status, answer = await post(A2AServer(echo, max_body=1000), request)

    assert (status, answer["id"], answer["error"]["code"]) == (413, 7, -32600)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_what_a_page_in_a_browser_may_send_unasked_never_reaches_the_agent(kind):
    request = {"jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": {"id": "x"}}

    status, answer = await post(A2AServer(echo), request, **{"content-type": kind})

    assert (status, answer["id"], answer["error"]["code"]) == (415, 7, -32600)


async def test_an_unknown_path_gets_a_proper_error():
    status, answer = await post(A2AServer(echo), {}, "/nothing/here")

    assert (status, answer["error"]["status"]) == (404, "NOT_FOUND")


@pytest.mark.rule("P12")
async def test_what_fails_in_the_middleware_tells_nothing():
    def broken(app):
        async def serve(scope, receive, send):
            raise RuntimeError("hunter2")

        return serve

    request = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
    status, answer = await post(A2AServer(echo, middleware=[broken]), request)

    assert (status, answer["error"]["message"]) == (200, "internal error")


# ── What else the protocol has ───────────────────────────────────────────────────────────────


@BOTH
async def test_tasks_are_listed_and_found(binding):
    async with calling(echo, binding) as client:
        answer = await client.ask("one")
        page = await client.list_tasks()
        found = await client.get_task(answer.task_id)

    assert [task.id for task in page.tasks] == [answer.task_id]
    assert found.text == "You said one"


async def test_a_task_that_came_by_one_binding_can_be_asked_for_by_another():
    server = A2AServer(echo)
    network = AsgiNetwork({URL: server.app(url=URL)})
    clients = [
        holdfast.connect(URL, engine=network, bindings=[binding])
        for binding in ("JSONRPC", "HTTP+JSON")
    ]
    async with clients[0] as one, clients[1] as other:
        answer = await one.ask("hello")
        assert (await other.get_task(answer.task_id)).text == "You said hello"
    await server.close()


@BOTH
async def test_the_extended_card_is_served(binding):
    options = {"card": {"name": "plain"}, "extended_card": {"name": "more"}}
    async with calling(echo, binding, **options) as client:
        assert (await client.agent_card()).name == "plain"
        assert (await client.get_extended_agent_card()).name == "more"


async def test_an_extension_that_is_required_has_to_be_declared():
    extension = holdfast.types.AgentExtension(uri="urn:needed", required=True)
    server = A2AServer(echo, extensions=[extension])
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "?"}]}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    _, refused = await post(server, asked)
    declared = {"a2a-extensions": "urn:needed"}
    _, answered = await post(server, asked, **declared)
    await server.close()

    assert refused["error"]["code"] == -32008
    assert "urn:needed" in refused["error"]["message"]
    assert answered["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_stream_without_events_says_that_it_is_alive():
    async def answer(message):
        await asyncio.sleep(50)

    server = A2AServer(answer, keep_alive=20)
    network = AsgiNetwork({URL: server.app(url=URL)})
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "?"}]}
    asked = HttpRequest(
        method="POST",
        url=f"{URL}/message:stream",
        headers={"content-type": "application/json", "a2a-version": "1.0"},
        body=json.dumps({"message": message}).encode(),
    )
    async with network.stream(asked) as reply:
        pieces = [piece async for piece in reply.chunks()]
    await server.close()

    assert pieces.count(b": alive\n\n") == 2


async def test_pushes_what_happens():
    pushed = []

    class Sender:
        async def send_notification(self, task_id, event):
            pushed.append(type(event).__name__)

    async with calling(echo, push=True, push_sender=Sender()) as client:
        await client.ask("?")

    assert pushed[0] == "Task"
    assert "TaskArtifactUpdateEvent" in pushed


async def test_the_middleware_says_who_calls():
    class User:
        is_authenticated = True
        display_name = "ada"

    def authenticated(app):
        async def serve(scope, receive, send):
            await app({**scope, "user": User()}, receive, send)

        return serve

    async def answer(message, turn):
        return turn.requester.user

    async with calling(answer, middleware=[authenticated]) as client:
        assert (await client.ask("who am I?")).text == "ada"


@BOTH
async def test_protocol_0_3_is_spoken_where_it_is_asked_for(binding):
    server = A2AServer(echo, versions=("1.0", "0.3"))
    network = AsgiNetwork({URL: server.app(url=URL)})
    card = server.agent_card(url=URL)
    interface = next(
        i
        for i in card.supported_interfaces
        if (i.protocol_binding, i.protocol_version) == (binding, "0.3")
    )
    older = holdfast.AgentCard(
        name="older",
        supported_interfaces=(interface,),
        capabilities=holdfast.types.AgentCapabilities(streaming=True),
    )
    async with holdfast.connect(older, engine=network) as client:
        assert (await client.ask("hello")).text == "You said hello"
    await server.close()


# ── The end ──────────────────────────────────────────────────────────────────────────────────


async def test_closing_lets_turns_end_that_have_the_time():
    async def answer(message):
        await asyncio.sleep(5)
        return "in time"

    server = A2AServer(answer)
    async with calling(server) as client:
        asking = asyncio.create_task(client.ask("?"))
        await asyncio.sleep(1)
        await server.close(grace=10)
        assert (await asking).text == "in time"


async def test_closing_ends_turns_that_have_not_and_they_say_so(caplog):
    async def answer(message):
        yield "so far"
        await asyncio.sleep(3600)

    server = A2AServer(answer)
    async with calling(server) as client:
        asking = asyncio.create_task(client.ask("?"))
        await asyncio.sleep(1)
        await server.close(grace=10)
        with pytest.raises(holdfast.TaskFailedError, match="the agent was stopped") as caught:
            await asking

    assert caught.value.task.text == "so far"
    assert any("1 turns were ended" in record.getMessage() for record in caplog.records)


async def test_closing_says_so_of_a_turn_that_holds_on_to_its_cancellation():
    may_end = asyncio.Event()

    async def answer(message):
        while not may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await may_end.wait()

    server = A2AServer(answer)
    async with calling(server) as client:
        asking = asyncio.create_task(client.ask("?"))
        await asyncio.sleep(1)
        await server.close()
        with pytest.raises(holdfast.TaskFailedError, match="the agent was stopped"):
            await asking
        may_end.set()
