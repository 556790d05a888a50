"""Streams, whole and cut, against every agent; the contract is that of ``test_messages.py``."""

import asyncio
import json
import uuid

import msgspec
import pytest
from tests.kit.contract import SOON, contract, get_json, open_engine
from tests.kit.event_streams import RPC_ID, event_summary, frames_of, results_of
from tests.kit.messages import fold_of, message_of
from tests.kit.proxy import Fault, Proxy
from tests.kit.raw_server import serve

from holdfast import A2AError, Resilience, TaskNotFoundError, TaskState, connect
from holdfast.extend import HttpRequest
from holdfast.policies import ReconnectPolicy
from holdfast.types import SendMessageRequest, StreamResponse

pytestmark = [pytest.mark.sdk, pytest.mark.real_time]


def chunks_up_to(count):
    return "".join(f"chunk {number}\n" for number in range(1, count + 1))


# ── What a client reads ──────────────────────────────────────────────────────────────────────


@pytest.mark.rule("D12")
@contract
@pytest.mark.parametrize("text", ["chunks 60", "ask which colour?", "slow 0.01 done"])
async def test_stream_adds_up_to_the_agents_own_task(agent, text):
    async with agent, agent.client() as client:
        async with client.stream_message(text) as events:
            texts = [text async for text in events.text_deltas()]
        stored = await client.get_task(events.task.id)

    assert "".join(texts) == stored.text
    assert stored.text == {"chunks 60": chunks_up_to(60), "slow 0.01 done": "done"}.get(text, "")
    assert (events.task, events.reconnects) == (stored, 0)


@pytest.mark.rule("S04")
@contract
async def test_s04_subscription_to_a_finished_task_yields_the_whole_task(agent):
    async with agent, agent.client() as client:
        task = await client.send_message("echo hello")
        async with client.subscribe_to_task(task.id, force_subscription=True) as events:
            seen = [event async for event in events]

    assert [(event.state, event.text) for event in seen] == [(TaskState.COMPLETED, "hello")]


@contract
async def test_an_error_that_refuses_a_stream_names_the_task(agent):
    async with agent, agent.client() as client:
        with pytest.raises(TaskNotFoundError) as caught:
            async with client.subscribe_to_task("missing", force_subscription=True) as events:
                await anext(events)
        assert caught.value.task_id == "missing"

        message = msgspec.structs.replace(message_of("echo hello"), task_id="absent")
        with pytest.raises(A2AError) as caught:
            async with client.stream_message(message) as events:
                await anext(events)
        assert caught.value.task_id == "absent"


# ── What an agent sends ──────────────────────────────────────────────────────────────────────


async def stream_request(agent, operation, params):
    """Return the request of a stream."""
    path = await agent.path()
    body = {"jsonrpc": "2.0", "id": RPC_ID, "method": operation, "params": params}
    if agent.binding == "HTTP+JSON":
        task_id = params.get("id")
        path += f"/tasks/{task_id}:subscribe" if task_id else "/message:stream"
        body = params
    return HttpRequest(
        method="POST",
        url=f"{agent.origin}{path or '/'}",
        headers={"content-type": "application/json", "a2a-version": "1.0"},
        body=json.dumps(body).encode(),
    )


async def reply_to(request):
    """Return the whole reply to a request."""
    async with open_engine() as engine:
        return await engine.request(request)


SENT = {
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
@contract
@pytest.mark.parametrize("text", SENT)
async def test_stream_sends_the_same_raw_events(agent, text):
    params = SendMessageRequest(message=message_of(text)).to_dict()
    async with agent:
        reply = await reply_to(await stream_request(agent, "SendStreamingMessage", params))

    assert (reply.status, reply.headers["content-type"].partition(";")[0]) == (
        200,
        "text/event-stream",
    )
    results = results_of(reply.body, agent.binding)
    sent = [event_summary(result).replace("\n", "").removesuffix(" last") for result in results]
    expected = [summary.removesuffix(" last") for summary in SENT[text]]
    is_error = text == "crash" and agent.kind != "server"
    if text == "crash" and not is_error:  # `A2AServer` ends the task before it ends the stream
        expected[-1] = "status FAILED"
    assert sent[-1].startswith(expected[-1])
    assert sent[:-1] == expected[:-1]
    kinds = [kind for kind, _ in frames_of(reply.body)]
    assert set(kinds[:-1]) <= {"message"}
    assert kinds[-1] == ("error" if is_error else "message")


@contract
@pytest.mark.parametrize("text", ["story", "chunks 100", "ask which colour?", "fail no"])
async def test_events_of_a_stream_fold_to_the_agents_own_task(agent, text):
    params = SendMessageRequest(message=message_of(text)).to_dict()
    async with agent, agent.client() as client:
        reply = await reply_to(await stream_request(agent, "SendStreamingMessage", params))
        results = results_of(reply.body, agent.binding)
        task = fold_of(StreamResponse.from_dict(result).event for result in results).task

        assert task == await client.get_task(task.id)


@contract
async def test_subscription_to_a_finished_or_unknown_task_is_refused(agent):
    async with agent, agent.client() as client:
        finished = await client.send_message("echo hello")
        seen = []
        for task_id in (finished.id, "nope"):
            reply = await reply_to(await stream_request(agent, "SubscribeToTask", {"id": task_id}))
            error = json.loads(reply.body)["error"]
            seen.append((reply.status, reply.headers["content-type"], error["code"]))

    statuses, codes = ((200, 200), (-32004, -32001))
    if agent.binding == "HTTP+JSON":
        statuses = codes = (400, 404)
    kinds = ("application/json",) * 2
    assert seen == list(zip(statuses, kinds, codes, strict=True))


@contract
async def test_subscription_begins_with_the_task_in_its_current_state(agent):
    async with agent, agent.client() as client:
        task = await client.send_message("slow 30 never", return_immediately=True)
        while task.state is not TaskState.WORKING:
            await asyncio.sleep(0.02)
            task = await client.get_task(task.id)
        request = await stream_request(agent, "SubscribeToTask", {"id": task.id})
        async with open_engine() as engine, engine.stream(request) as reply:
            first = await anext(aiter(reply.chunks()))
        canceled = await client.cancel_task(task.id, **SOON)

    assert [event_summary(x) for x in results_of(first, agent.binding)] == ["task WORKING"]
    assert canceled.state is TaskState.CANCELED


# ── Streams that are cut ─────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S03")
@contract
@pytest.mark.parametrize("cut", ["reset", "close", "end"])
async def test_s03_stream_that_is_cut_is_resumed(agent, cut):
    name = str(uuid.uuid4())
    message = message_of(f"paced {name} 10")

    async def release():
        """Let the agent continue when the client has asked for its events again."""
        if len(proxy.requests) == 2:
            await agent.permit(name, 5)

    resilience = Resilience(reconnect=ReconnectPolicy(backoff=0.01, max_backoff=0.05))
    async with agent, agent.client() as direct:
        proxy = Proxy(agent.origin, [Fault(cut, after=4)], on_request=release)
        await agent.permit(name, 5)
        async with serve(proxy) as server:
            url = server.url.rstrip("/") + await agent.path()
            async with (
                agent.client(url=url, resilience=resilience) as client,
                client.stream_message(message) as events,
            ):
                answer = await events.result()
        stored = await direct.get_task(answer.task_id)
        executions = (await agent.executions())[message.message_id]

    assert [fault.kind for fault in proxy.happened] == [cut]
    assert (answer.task, stored.state) == (stored, TaskState.COMPLETED)
    assert executions == [stored.id]
    assert answer.text == chunks_up_to(10)


older_sdk = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


@older_sdk
async def test_cut_stream_of_an_older_sdk_agent_is_polled_and_not_subscribed_to(
    sdk03_url, binding
):
    # Each subscriber would have its server store what follows once more.
    name = str(uuid.uuid4())
    path = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest"}[binding]

    async def release():
        if len(proxy.requests) > 1:
            await permit(1)

    async def permit(count):
        await get_json(f"{sdk03_url}/permits?name={name}&count={count}")

    proxy = Proxy(sdk03_url, [Fault("reset", after=4)], on_request=release)
    await permit(5)
    async with (
        serve(proxy) as server,
        connect(sdk03_url, bindings=(binding,), url=server.url.rstrip("/") + path) as client,
    ):
        async with client.stream_message(f"paced {name} 10", **SOON) as events:
            texts = [text async for text in events.text_deltas()]
        stored = await client.get_task(events.task.id)

    assert "".join(texts) == stored.text == chunks_up_to(10)
    assert len(texts) > 4  # in steps, and not at the end only
    assert (events.task, events.gap, events.reconnects) == (stored, True, 0)
    assert proxy.streams == 1


@older_sdk
async def test_subscription_to_an_older_sdk_agent_makes_it_store_events_twice(sdk03_url, binding):
    # A fact of that server: each subscription adds the events that it sends to the task again.
    name = str(uuid.uuid4())

    async def permit(count):
        await get_json(f"{sdk03_url}/permits?name={name}&count={count}")

    async with (
        connect(sdk03_url, bindings=(binding,)) as client,
        client.stream_message(f"paced {name} 100") as first,
    ):
        await anext(first)
        async with client.subscribe_to_task(first.task.id, force_subscription=True) as second:
            first_event = asyncio.create_task(anext(second))
            while not first_event.done():  # one chunk at a time, until an event arrives
                await permit(1)
                await asyncio.wait({first_event}, timeout=0.01)
            await permit(100)
            await second.result()
        stored = await client.get_task(first.task.id)

    assert (stored.state, stored.text != chunks_up_to(100)) == (TaskState.COMPLETED, True)
