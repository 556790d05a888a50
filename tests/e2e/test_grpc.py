"""gRPC against real agents on the official SDK, of both versions: calls, streams, cuts, errors.

The agents serve the other bindings beside it, so that what a caller sees can be compared.
"""

import asyncio
import json
import re
import subprocess
import sys

import aiohttp
import msgspec
import pytest
from tests.kit.cli_harness import holdfast
from tests.kit.grpc_agent import Wire
from tests.kit.real_agents import LIMIT, TOKEN, sdk_process

from holdfast import (
    A2AError,
    AuthenticationError,
    CircuitOpenError,
    HedgePolicy,
    OutcomeUnknownError,
    Resilience,
    RetryPolicy,
    TaskFailedError,
    TaskState,
    connect,
)
from holdfast.compat import minimal_agent_card
from holdfast.errors import UnsupportedOperationError
from holdfast.types import TaskPushNotificationConfig

pytestmark = [pytest.mark.real_time, pytest.mark.sdk]

PROMPT = Resilience(retry=RetryPolicy(base_delay=0.01, max_delay=0.05))
ONLY = {"supported_protocol_bindings": ["GRPC"], "resilience": PROMPT, "timeout": LIMIT}


EARLIER = {}
"""By address: the messages that an agent executed before these tests."""


@pytest.fixture(scope="module")
def newer(sdk_url):
    EARLIER[sdk_url] = set(asyncio.run(asked(f"{sdk_url}/executions")))
    return sdk_url


@pytest.fixture(scope="module")
def older(sdk03_url):
    EARLIER[sdk03_url] = set(asyncio.run(asked(f"{sdk03_url}/executions")))
    return sdk03_url


@pytest.fixture(params=["1.0", "0.3"])
def agent(request):
    return request.getfixturevalue("newer" if request.param == "1.0" else "older")


async def asked(url):
    async with aiohttp.ClientSession() as session, session.get(url) as reply:
        return await reply.json()


async def address_of(url):
    async with connect(url) as client:
        card = await client.agent_card()
    return next(i.url for i in card.supported_interfaces if i.protocol_binding == "GRPC")


async def permit(url, name, count):
    await asked(f"{url}/permits?name={name}&count={count}")


async def executions(url):
    """The history: how often each message was executed."""
    made = await asked(f"{url}/executions")
    earlier = EARLIER.get(url, set())
    return {message: len(tasks) for message, tasks in made.items() if message not in earlier}


async def until_executed(url, count):
    """Waits for so many messages to be executed."""
    async with asyncio.timeout(LIMIT):
        while len(await executions(url)) < count:  # noqa: ASYNC110  of another process
            await asyncio.sleep(0.01)


# ── What there is to call ────────────────────────────────────────────────────────────────────


async def test_every_operation_is_the_same_as_over_the_other_bindings(agent):
    async with connect(agent, **ONLY) as client:
        card = await client.agent_card()
        assert (await client.ask("echo hello")).text == "hello"
        assert (await client.ask("message hi")).text == "hi"
        answer = await client.ask('data {"a": [1, 2.5, null, true, "x"]}')
        [part] = answer.task.artifacts[0].parts
        assert part.data == {"a": [1, 2.5, None, True, "x"]}
        answer = await client.ask("file some.bin")
        [part] = answer.task.artifacts[0].parts
        assert (part.raw, part.filename) == (bytes(range(256)), "some.bin")
        task = answer.task
        assert (await client.get_task(task.id)).state is TaskState.COMPLETED
        is_newer = card.supported_interfaces[0].protocol_version == "1.0"
        if is_newer:
            assert task.id in {one.id for one in (await client.list_tasks()).tasks}
        else:
            with pytest.raises(UnsupportedOperationError):
                await client.list_tasks()
        waiting = asyncio.ensure_future(client.ask("paced never 1"))
        async with client.stream_message("paced other 1") as events:
            started = await anext(events)
            canceled = await client.cancel_task(started.id)
            assert canceled.state is TaskState.CANCELED
        waiting.cancel()
        config = TaskPushNotificationConfig(id="c1", task_id=task.id, url="http://127.0.0.1:9/")
        made = await client.create_task_push_notification_config(config)
        assert (made.id, made.url) == ("c1", config.url)
        got = await client.get_task_push_notification_config(task.id, "c1")
        assert got.url == config.url
        if is_newer:
            await client.delete_task_push_notification_config(task.id, "c1")
        else:  # its server has no method for it
            with pytest.raises(UnsupportedOperationError):
                await client.delete_task_push_notification_config(task.id, "c1")
        assert "SDK" in (await client.get_extended_agent_card()).name
        assert all(count == 1 for count in (await executions(agent)).values())
        called = [one.binding for one in client.stats().endpoints if one.attempts]
        assert called == ["card", "GRPC"]


async def counted(client):
    """Converses, and asks how many messages the agent knows of."""
    conversation = client.conversation()
    first = await conversation.ask("ask what?")
    assert first.task.state is TaskState.INPUT_REQUIRED
    return (await conversation.ask("history")).text


async def over_json_rpc(url, what):
    async with connect(url, bindings=["JSONRPC"]) as client:
        return await what(client)


async def test_a_stream_brings_everything_and_a_conversation_continues(agent):
    await permit(agent, "whole", 5)
    async with connect(agent, **ONLY) as client:
        async with client.stream_message("paced whole 5") as events:
            async for _ in events:
                pass
            [artifact] = events.task.artifacts
        text = "".join(part.text for part in artifact.parts)
        assert text == "".join(f"chunk {n}\n" for n in range(1, 6))
        assert await counted(client) == await over_json_rpc(agent, counted)


async def facts_of(url, binding, what):
    async with connect(url, bindings=[binding], resilience=PROMPT) as client:
        done = (await client.ask("echo x")).task
        calls = {
            "no task": lambda: client.get_task("no-task"),
            "canceled": lambda: client.cancel_task(done.id),
            "over": lambda: client.send_message("more", task_id=done.id),
            "config": lambda: client.get_task_push_notification_config(done.id, "none"),
            "crash": lambda: client.ask("crash now"),
        }
        with pytest.raises(A2AError) as caught:
            await calls[what]()
    return caught.value


@pytest.mark.parametrize("what", ["no task", "canceled", "over", "config", "crash"])
async def test_an_error_is_the_same_as_over_json_rpc(newer, what):
    ours, theirs = [await facts_of(newer, binding, what) for binding in ("GRPC", "JSONRPC")]
    assert type(ours) is type(theirs)
    for name in ("code", "executed", "transient", "retry_after"):
        assert getattr(ours, name) == getattr(theirs, name), name
    # Over JSON-RPC it has empty metadata as well.
    reasons = [[d.get("reason") for d in error.details] for error in (ours, theirs)]
    assert reasons[0] == reasons[1]
    if not isinstance(ours, TaskFailedError):
        assert ours.grpc_status
        shapes = [re.sub(r"[0-9a-f-]{36}| \(agent.*", "", str(error)) for error in (ours, theirs)]
        assert shapes[0] == shapes[1]


async def test_a_card_is_fetched_over_grpc_in_a_version_that_is_found_out(agent):
    address = await address_of(agent)
    async with connect(minimal_agent_card(address, ["GRPC"]), **ONLY) as client:
        card = await client.get_extended_agent_card()
        assert card.name.startswith("SDK")
        assert (await client.ask("echo there")).text == "there"


async def test_an_address_of_grpc_may_be_named_by_hand(newer):
    address = await address_of(newer)
    async with connect(newer, url=f"grpc://{address}") as client:
        assert (await client.ask("echo by hand")).text == "by hand"
        assert client.stats().url == f"grpc://{address}"


# ── Faults ───────────────────────────────────────────────────────────────────────────────────


async def test_streams_that_are_cut_over_and_over_lose_and_repeat_nothing(agent):
    address = await address_of(agent)
    async with (
        Wire(int(address.rpartition(":")[2])) as wire,
        connect(agent, url=f"grpc://127.0.0.1:{wire.port}", **ONLY) as client,
    ):
        name = f"cut-{wire.port}"
        async with client.stream_message(f"paced {name} 8") as events:
            await anext(events)
            for cuts in range(1, 5):
                await permit(agent, name, 2)
                while events.task.text.count("\n") < 2 * cuts:
                    await anext(events)
                wire.cut()
            async for _ in events:
                pass
        assert events.task.text == "".join(f"chunk {n}\n" for n in range(1, 9))
    assert all(count == 1 for count in (await executions(agent)).values())


async def test_lost_reply_is_searched_and_found(newer):
    address = await address_of(newer)
    async with (
        Wire(int(address.rpartition(":")[2])) as wire,
        connect(newer, url=f"grpc://127.0.0.1:{wire.port}", **ONLY) as client,
    ):
        await client.discover()
        sending = asyncio.ensure_future(client.send_message("slow 0.3 found"))
        before = len(await executions(newer))
        await until_executed(newer, before + 1)
        wire.cut()
        task = await asyncio.wait_for(sending, LIMIT)
        done = await client.wait(task.id)
        assert done.artifacts[0].parts[0].text == "found"
    assert all(count == 1 for count in (await executions(newer)).values())


async def test_crashed_agent_leaves_the_outcome_unknown_and_refuses_connections(
    tmp_path,
):
    with sdk_process(tmp_path / "errors", "--grpc") as url:
        client = connect(url, resilience=PROMPT, supported_protocol_bindings=["GRPC"])
        await client.ask("echo alive")
        sending = asyncio.ensure_future(client.send_message("slow 20 x", on_unknown="raise"))
        await until_executed(url, 2)
    async with client:  # its process has ended by now
        with pytest.raises(OutcomeUnknownError):
            await asyncio.wait_for(sending, LIMIT)
        with pytest.raises((A2AError, CircuitOpenError)) as caught:
            await client.send_message("hello?")
        assert caught.value.executed is False


# ── Credentials, listeners, other layers ─────────────────────────────────────────────────────


async def test_credentials_are_given_where_the_card_asks_for_them(guarded_sdk_url):
    async with connect(guarded_sdk_url, **ONLY) as client:
        with pytest.raises(AuthenticationError) as caught:
            await client.send_message("echo x")
        assert caught.value.executed is False
    origins = [f"grpc://{await address_of(guarded_sdk_url)}"]
    async with connect(
        guarded_sdk_url, auth=f"Bearer {TOKEN}", credential_origins=origins, **ONLY
    ) as client:
        assert (await client.ask("echo in")).text == "in"


async def test_reads_that_may_be_asked_twice_give_the_task(newer):
    hedging = msgspec.structs.replace(PROMPT, hedge=HedgePolicy())
    async with connect(newer, resilience=hedging, supported_protocol_bindings=["GRPC"]) as client:
        task = (await client.ask("echo x")).task
        found = await asyncio.gather(*(client.get_task(task.id) for _ in range(30)))

    assert {one.text for one in found} == {task.text}


def test_tx_005_the_command_line_speaks_it(newer):
    command = [sys.executable, "-m", "holdfast", "send", "echo over grpc", "-a", newer]
    done = subprocess.run(
        [*command, "--transport", "grpc", "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].startswith("Task ID: "), done.stderr
    assert "over grpc" in json.dumps(json.loads(done.stdout))


def test_out_007_the_command_line_shows_what_goes_over_it(newer):
    words = ("send", "echo over grpc", "--stream", "--debug", "--bearer", "s3cret-token")
    where = ("-e", asyncio.run(address_of(newer)), "--transport", "GRPC")
    done = holdfast(*words, *where, card=None, on_sockets=True)
    (sent,) = [line for line in done.err.splitlines() if "> gRPC SendStreamingMessage" in line]
    assert '"parts":[{"text":"echo over grpc"}]' in sent
    received = [line for line in done.err.splitlines() if "< gRPC SendStreamingMessage" in line]
    assert any("TASK_STATE_COMPLETED" in line for line in received)
    assert "s3cret-token" not in done.err


def test_an_endpoint_of_grpc_is_called_without_its_card(newer):
    where = ("-e", f"grpc://{asyncio.run(address_of(newer))}")
    sent = holdfast("send", "echo over grpc", *where, card=None, on_sockets=True)
    assert (sent.exit, "over grpc" in sent.out) == (0, True)
    missing = holdfast("task", "get", "nope", *where, "-o", "json", card=None, on_sockets=True)
    assert (missing.error["code"], missing.error["a2aCode"]) == ("TaskNotFoundError", "NOT_FOUND")


def test_grpc_is_imported_only_where_it_is_called(newer):
    code = (
        "import asyncio, sys, holdfast\n"
        f"asyncio.run(holdfast.ask({newer!r}, 'echo x'))\n"
        "assert 'grpc' not in sys.modules and 'google.protobuf' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LIMIT)
