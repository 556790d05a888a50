"""The same program against real agents of both versions of the protocol, which it need not know.

The contract is that of ``test_agents.py``, by version.

Agents of 1.0 and of 0.3 on the official SDK, each over both bindings. What the two servers do in
ways of their own is kept here as facts.
"""

import asyncio
import contextlib
import json
import uuid

import pytest
from tests.kit.effort import case
from tests.kit.messages import message_of
from tests.kit.proxy import Fault, Proxy
from tests.kit.raw_server import serve
from tests.kit.real_agents import LIMIT, sdk03_process, sdk_process

from holdfast import (
    AgentCard,
    AuthenticationError,
    Part,
    Resilience,
    Role,
    TaskFailedError,
    TaskNotFoundError,
    TaskState,
    connect,
    data_part,
    text_part,
)
from holdfast.errors import (
    InternalError,
    TaskNotCancelableError,
    TaskRejectedError,
    UnsupportedOperationError,
)
from holdfast.extend import AiohttpEngine, HttpRequest
from holdfast.policies import ReconnectPolicy
from holdfast.types import TaskPushNotificationConfig

pytestmark = [pytest.mark.sdk, pytest.mark.real_time]

PATHS = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest"}
SOON = {"poll_interval": 0.02}
FILE = bytes(range(256))

both_bindings = pytest.mark.parametrize("binding", PATHS)
older_only = pytest.mark.parametrize("version", ["0.3"])


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    errors = tmp_path_factory.mktemp("sdk") / "stderr"
    errors03 = tmp_path_factory.mktemp("sdk03") / "stderr"
    with sdk_process(errors) as newer, sdk03_process(errors03) as older:
        yield {"1.0": newer, "0.3": older}


@pytest.fixture(params=["1.0", "0.3"])
def version(request):
    return request.param


@pytest.fixture
def url(urls, version):
    return urls[version]


@pytest.fixture
def client_of(url, binding):
    """Gives a client of the agent, within a limit."""

    @contextlib.asynccontextmanager
    async def client(agent=None, **options):
        async with (
            asyncio.timeout(LIMIT),
            connect(agent or url, bindings=(binding,), **options) as made,
        ):
            yield made

    return client


async def get(url):
    engine = AiohttpEngine(proxies=False)
    try:
        reply = await engine.request(HttpRequest(method="GET", url=url))
    finally:
        await engine.close()
    return json.loads(reply.body)


async def ran_as(url, message):
    """The tasks that a message was executed as."""
    return (await get(f"{url}/executions")).get(message.message_id, [])


def words(text):
    return message_of(text)


# ── Send, ask, stream ────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S20", "D12")
@both_bindings
async def test_s20_an_agent_is_asked_in_the_version_of_its_card(client_of, url, binding, version):
    before = len(await get(f"{url}/requests"))
    async with client_of() as client:
        answer = await client.ask("echo hello")
        card = await client.agent_card()

    seen = (await get(f"{url}/requests"))[before:]
    assert answer.text == "hello"
    assert [interface.protocol_version[:3] for interface in card.supported_interfaces] == [
        version,
        version,
    ]
    assert {call["a2a-version"] for call in seen[1:]} == {version}
    below = f"{PATHS[binding]}/v1" if (version, binding) == ("0.3", "HTTP+JSON") else None
    assert all(call["path"].startswith(below or PATHS[binding]) for call in seen[1:])


@pytest.mark.rule("S20")
@both_bindings
@pytest.mark.parametrize("how", ["file", "dict", "card"])
async def test_s20_a_card_may_be_at_hand(client_of, url, how, tmp_path):
    document = await get(f"{url}/.well-known/agent-card.json")
    file = tmp_path / "card.json"
    file.write_text(json.dumps(document))
    async with client_of() as other:
        card = await other.agent_card()
    assert isinstance(card, AgentCard)

    async with client_of({"file": file, "dict": document, "card": card}[how]) as client:
        assert (await client.ask("echo hello")).text == "hello"


@both_bindings
@pytest.mark.parametrize("at_once", [False, True])
async def test_a_message_is_sent(client_of, url, at_once):
    message = words("slow 0.05 hello")
    async with client_of() as client:
        task = await client.send_message(message, return_immediately=at_once)
        truth = await client.wait(task.id, **SOON)

    assert task.state.is_terminal is not at_once
    assert (truth.state, truth.text) == (TaskState.COMPLETED, "hello")
    assert [told.text for told in truth.history] == ["slow 0.05 hello"]
    assert truth.history[0].message_id == message.message_id
    assert truth.history[0].role is Role.USER
    assert await ran_as(url, message) == [task.id]


@both_bindings
@pytest.mark.parametrize("streaming", [True, False])
async def test_an_agent_is_asked(client_of, streaming):
    async with client_of(streaming=streaming) as client:
        slow = await client.ask("slow 0.05 hello", **SOON)
        plain = await client.ask("message no task")

    assert (slow.text, slow.task.state) == ("hello", TaskState.COMPLETED)
    assert (plain.text, plain.task) == ("no task", None)


@pytest.mark.rule("D12")
@both_bindings
async def test_a_stream_adds_up_to_the_agents_own_task(client_of, url):
    name = str(uuid.uuid4())
    await get(f"{url}/permits?name={name}&count=100")
    async with client_of() as client:
        async with client.stream_message(f"paced {name} 60") as events:
            texts = [text async for text in events.text_deltas()]
        truth = await client.get_task(events.task.id)

    assert "".join(texts) == truth.text == "".join(f"chunk {n}\n" for n in range(1, 61))
    assert (events.task, events.reconnects) == (truth, 0)


# ── Cut and resume ───────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S03")
@both_bindings
@pytest.mark.parametrize("cut", ["reset", "close", "end"])
async def test_s03_a_stream_that_is_cut_is_taken_up_again(url, binding, version, cut):
    name = str(uuid.uuid4())
    message = words(f"paced {name} 10")

    async def go_on():
        """Lets the agent go on when it was asked for its events again."""
        if len(proxy.requests) == 2:
            await get(f"{url}/permits?name={name}&count=5")

    proxy = Proxy(url, [Fault(cut, after=4)], on_request=go_on)
    resilience = Resilience(reconnect=ReconnectPolicy(backoff=0.01, max_backoff=0.05))
    await get(f"{url}/permits?name={name}&count=5")
    async with (
        asyncio.timeout(LIMIT),
        serve(proxy) as server,
        connect(
            url,
            bindings=(binding,),
            url=server.url.rstrip("/") + PATHS[binding],
            resilience=resilience,
        ) as client,
        connect(url, bindings=(binding,)) as direct,
    ):
        async with client.stream_message(message) as events:
            answer = await events.result()
        truth = await direct.get_task(answer.task_id)

    assert [fault.kind for fault in proxy.happened] == [cut]
    assert (answer.task, truth.state) == (truth, TaskState.COMPLETED)
    assert await ran_as(url, message) == [truth.id]
    assert answer.text == "".join(f"chunk {n}\n" for n in range(1, 11))


@both_bindings
@older_only
async def test_a_cut_on_an_older_agent_is_followed_by_looks_and_by_no_subscription(url, binding):
    # Each subscriber would have its server store what follows once more.
    name = str(uuid.uuid4())

    async def go_on():
        if len(proxy.requests) > 1:
            await get(f"{url}/permits?name={name}&count=1")

    proxy = Proxy(url, [Fault("reset", after=4)], on_request=go_on)
    await get(f"{url}/permits?name={name}&count=5")
    async with (
        asyncio.timeout(LIMIT),
        serve(proxy) as server,
        connect(url, bindings=(binding,), url=server.url.rstrip("/") + PATHS[binding]) as client,
    ):
        async with client.stream_message(f"paced {name} 10", **SOON) as events:
            texts = [text async for text in events.text_deltas()]
        truth = await client.get_task(events.task.id)

    assert "".join(texts) == truth.text == "".join(f"chunk {n}\n" for n in range(1, 11))
    assert len(texts) > 4  # in steps, and not at the end only
    assert (events.task, events.gap, events.reconnects) == (truth, True, 0)
    assert proxy.streams == 1


@both_bindings
@older_only
async def test_who_subscribes_to_an_older_agent_has_it_store_what_follows_once_more(url, binding):
    # A fact of that server: each subscription adds what it tells to the same task once more.
    name = str(uuid.uuid4())
    async with (
        asyncio.timeout(LIMIT),
        connect(url, bindings=(binding,)) as client,
        client.stream_message(f"paced {name} 100") as first,
    ):
        await anext(first)
        async with client.subscribe_to_task(first.task.id, force_subscription=True) as second:
            begun = asyncio.create_task(anext(second))
            while not begun.done():  # one chunk at a time, until it is there
                await get(f"{url}/permits?name={name}&count=1")
                await asyncio.wait({begun}, timeout=0.01)
            await get(f"{url}/permits?name={name}&count=100")
            await second.result()
        truth = await client.get_task(first.task.id)

    meant = "".join(f"chunk {n}\n" for n in range(1, 101))
    assert (truth.state, truth.text != meant) == (TaskState.COMPLETED, True)


@pytest.mark.rule("S04")
@both_bindings
async def test_s04_what_is_over_cannot_be_subscribed_to_and_is_given_whole(client_of):
    async with client_of() as client:
        task = await client.send_message("echo hello")
        async with client.subscribe_to_task(task.id, force_subscription=True) as events:
            seen = [event async for event in events]

    assert [(event.state, event.text) for event in seen] == [(TaskState.COMPLETED, "hello")]


# ── Cancel ───────────────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_a_running_task_is_canceled(client_of):
    async with client_of() as client:
        task = await client.send_message("slow 9 never", return_immediately=True)
        canceled = await client.cancel_task(task.id, **SOON)

        assert (canceled.id, canceled.state) == (task.id, TaskState.CANCELED)
        with pytest.raises(TaskNotCancelableError) as caught:
            await client.cancel_task(task.id)

    assert caught.value.task_id == task.id


@both_bindings
async def test_who_waits_learns_that_somebody_else_canceled(client_of):
    # Without streams: the server of 0.3 never ends the stream of a task that another one cancels.
    async with client_of(streaming=False) as client:
        task = await client.send_message("slow 9 never", return_immediately=True)
        waiting = asyncio.create_task(client.wait(task.id, **SOON))
        await client.cancel_task(task.id, confirm=False)
        canceled = await waiting

    assert canceled.state is TaskState.CANCELED


# ── Errors ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S10")
@both_bindings
@pytest.mark.parametrize(
    ("text", "kind"), [("fail too big", TaskFailedError), ("reject too big", TaskRejectedError)]
)
async def test_s10_a_task_that_ends_badly_tells_its_reason(client_of, text, kind):
    async with client_of() as client:
        with pytest.raises(kind, match="too big") as caught:
            await client.ask(text)

    assert caught.value.task.status.message.text == "too big"


@both_bindings
async def test_a_task_that_nobody_knows_is_not_found(client_of):
    async with client_of() as client:
        for asking in (client.get_task, client.cancel_task, client.wait):
            with pytest.raises(TaskNotFoundError) as caught:
                await asking("none such")
            assert (caught.value.task_id, caught.value.code) == ("none such", -32001)


@both_bindings
async def test_what_is_over_takes_no_message(client_of, url):
    message = words("more")
    async with client_of() as client:
        task = await client.send_message("echo hello")
        with pytest.raises(Exception, match="terminal") as caught:
            await client.send_message(message, task_id=task.id)

    assert caught.value.executed is None
    assert await ran_as(url, message) == []


@both_bindings
async def test_an_agent_that_crashes_ran_once(client_of, url):
    message = words("crash")
    async with client_of() as client:
        with pytest.raises(InternalError) as caught:
            await client.send_message(message)

    assert caught.value.executed is None
    assert len(await ran_as(url, message)) == 1


async def test_only_the_right_token_opens(version, tmp_path):
    process = sdk_process if version == "1.0" else sdk03_process
    with process(tmp_path / "stderr", "--token", "right") as url:
        for binding in PATHS:
            with case(binding):
                async with asyncio.timeout(LIMIT):
                    async with connect(url, bindings=(binding,), auth="Bearer wrong") as client:
                        with pytest.raises(AuthenticationError):
                            await client.ask("echo hello")
                    async with connect(url, bindings=(binding,), auth="Bearer right") as client:
                        assert (await client.ask("echo hello")).text == "hello"
                        card = await client.agent_card()

                (scheme,) = card.security_schemes.values()
                assert scheme.http_auth_security_scheme.scheme == "Bearer"
                assert len(card.security_requirements) == 1


# ── Conversation ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S15", "D12")
@both_bindings
@pytest.mark.parametrize("streaming", [True, False])
async def test_s15_a_question_is_answered_on_its_task(client_of, streaming):
    async with client_of(streaming=streaming) as client:
        asked = await client.ask("ask which colour?", **SOON)
        await client.get_task(asked.task_id)  # the server of 0.3 needs a moment after a run
        reply = await client.ask(
            "blue", task_id=asked.task_id, context_id=asked.context_id, **SOON
        )
        after = await client.ask("echo thanks", context_id=asked.context_id)
        truth = await client.get_task(asked.task_id)

    assert (asked.needs_input, asked.question) == (True, "which colour?")
    assert (reply.text, reply.task_id) == ("blue", asked.task_id)
    assert [message.text for message in truth.history] == [
        "ask which colour?",
        "which colour?",
        "blue",
    ]
    assert (after.task_id != asked.task_id, after.context_id) == (True, asked.context_id)


@pytest.mark.rule("S15")
@both_bindings
@pytest.mark.parametrize("streaming", [True, False])
async def test_s15_a_conversation_keeps_what_belongs_together(client_of, streaming):
    async with client_of(streaming=streaming) as client:

        async def reply(interruption):
            await client.get_task(interruption.task.id)  # the server of 0.3 needs a moment
            return "blue"

        chat = client.conversation(on_input=reply, **SOON)
        first = await chat.ask("ask which colour?")
        second = await chat.ask("echo thanks")

    assert (first.text, second.text) == ("blue", "thanks")
    assert (first.task_id != second.task_id, chat.is_open) == (True, False)
    assert first.context_id == second.context_id == chat.context_id


@pytest.mark.rule("S16")
@both_bindings
@pytest.mark.parametrize("version", ["1.0"])  # that of 0.3 loses what comes as a run of it ends
async def test_s16_an_authorization_that_is_given_meanwhile_is_seen(client_of):
    async with client_of() as client:
        task = await client.send_message("auth log in")
        waiting = asyncio.create_task(client.wait(task.id, **SOON))
        await client.send_message("done", task_id=task.id)
        done = await waiting

    assert task.state is TaskState.AUTH_REQUIRED
    assert (done.state, done.text) == (TaskState.COMPLETED, "done")


# ── Content ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S26")
@both_bindings
async def test_s26_an_integer_stays_one(client_of, version, binding):
    async with client_of() as client:
        answer = await client.ask('data {"n": 1, "more": [2, {"m": 3}]}')

    ((part,),) = (artifact.parts for artifact in answer.task.artifacts)
    assert part.data == {"n": 1, "more": [2, {"m": 3}]}
    if (version, binding) == ("0.3", "JSONRPC"):  # where servers use ProtoJSON, they answer 1.0
        assert isinstance(part.data["n"], int)


@both_bindings
async def test_a_file_comes_byte_for_byte(client_of):
    async with client_of() as client:
        answer = await client.ask("file all.bin")

    ((part,),) = (artifact.parts for artifact in answer.task.artifacts)
    assert (part.raw, part.filename) == (FILE, "all.bin")
    assert part.media_type == "application/octet-stream"


@both_bindings
@older_only
async def test_parts_come_back_from_an_older_agent_as_they_went(client_of):
    parts = [
        text_part("back"),
        Part(raw=FILE, filename="a.bin", media_type="application/x-own"),
        Part(url="http://files.test/a?b=c", filename="b.bin"),
        data_part({"n": 1}),
        data_part([1, "two", None]),
        Part(data={"of": "text"}, metadata={"n": 1}),
    ]
    async with client_of() as client:
        answer = await client.ask(parts)

    (artifact,) = answer.task.artifacts
    assert list(artifact.parts) == parts[1:]


# ── What is asked for besides ────────────────────────────────────────────────────────────────


@both_bindings
async def test_the_extended_card_replaces_the_public_one(client_of):
    async with client_of() as client:
        public = await client.agent_card()
        extended = await client.get_extended_agent_card()
        answer = await client.ask("echo hello")

    assert extended.name == f"{public.name}, extended"
    assert [skill.name for skill in extended.skills] == ["script", "secret"]
    assert answer.text == "hello"


@both_bindings
async def test_a_push_configuration_is_kept(client_of):
    config = TaskPushNotificationConfig(url="http://127.0.0.1:1/", id="mine", token="secret")
    async with client_of() as client:
        task = await client.send_message("echo hello")
        of_task = TaskPushNotificationConfig.from_dict({**config.to_dict(), "taskId": task.id})
        made = await client.create_task_push_notification_config(of_task)
        got = await client.get_task_push_notification_config(task.id, "mine")

    assert made == got == of_task


@both_bindings
@older_only
async def test_what_an_older_agent_lacks_is_named(client_of, binding):
    async with client_of() as client:
        task = await client.send_message("echo hello")
        lacking = [client.list_tasks()]
        if binding == "HTTP+JSON":  # its server has an internal error in place of this list
            lacking.append(client.list_task_push_notification_configs(task.id))
        for asking in lacking:
            with pytest.raises(UnsupportedOperationError, match=r"protocol 0\.3") as caught:
                await asking
            assert caught.value.executed is False
