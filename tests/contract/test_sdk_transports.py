"""The SDK's own transports and Holdfast's, against one server: same results, same errors.

The contract is that of ``test_messages.py``, by the client.

What a server makes up, ids and times, is blanked before two results are compared. An error counts
as the class of the SDK's that it is. Where the two differ on purpose, a test says how.
"""

import contextlib
import json
import uuid

import httpx
import pytest
from a2a.client.client import ClientCallContext
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.client.transports.rest import RestTransport
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2AError, InvalidParamsError
from google.protobuf.timestamp_pb2 import Timestamp
from tests.kit.raw_server import LAST_CHUNK, chunk, head, reply, serve

from holdfast import Resilience
from holdfast.integrations.a2a_sdk import HoldfastTransport

pytestmark = [pytest.mark.sdk, pytest.mark.real_time]

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
PATHS = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest"}
THEIRS = {"JSONRPC": JsonRpcTransport, "HTTP+JSON": RestTransport}
TERMINAL = {
    pb.TASK_STATE_COMPLETED,
    pb.TASK_STATE_FAILED,
    pb.TASK_STATE_CANCELED,
    pb.TASK_STATE_REJECTED,
}


@pytest.fixture
def agent(sdk_url):
    return sdk_url


def card_of(url, binding, *, extended=True):
    interface = pb.AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0")
    return pb.AgentCard(
        name="agent",
        supported_interfaces=[interface],
        capabilities=pb.AgentCapabilities(
            streaming=True, push_notifications=True, extended_agent_card=extended
        ),
    )


@contextlib.asynccontextmanager
async def transports(url, binding, *, extended=True, **options):
    """The SDK's own, and Holdfast's."""
    card = card_of(url, binding, extended=extended)
    async with (
        httpx.AsyncClient(headers={"a2a-version": "1.0"}, timeout=20) as client,
        THEIRS[binding](client, card, url, **_shared()) as theirs,
        HoldfastTransport(card, url, **options) as ours,
    ):
        yield theirs, ours


def _shared():
    """Whether the SDK is to leave the client alone, which its first versions closed."""
    names = JsonRpcTransport.__init__.__code__.co_varnames
    return {"is_shared_httpx": True} if "is_shared_httpx" in names else {}


# ── Comparing ────────────────────────────────────────────────────────────────────────────────

_MADE_UP = {"id", "task_id", "context_id", "message_id", "artifact_id", "next_page_token"}


def blanked(message, seen=None):
    """A copy, in which ids are numbered as they come, and times are left out."""
    seen = {} if seen is None else seen
    copied = type(message)()
    copied.CopyFrom(message)
    _blank(copied, seen)
    return copied


def _blank(message, seen):
    for field, value in message.ListFields():
        if field.name in _MADE_UP and isinstance(value, str):
            setattr(message, field.name, seen.setdefault(value, f"id-{len(seen)}"))
        elif isinstance(value, Timestamp):
            message.ClearField(field.name)
        elif field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        elif hasattr(value, "ListFields"):
            if value.DESCRIPTOR.full_name.startswith("lf.a2a"):
                _blank(value, seen)
        else:
            for each in value:
                _blank(each, seen)


def kind_of(error):
    """The SDK's class that an error is."""
    return next(kind for kind in type(error).__mro__ if kind.__module__.startswith("a2a."))


async def outcome(work):
    """What comes of a call: blanked results, or the class of an error behind what came before."""
    results, seen = [], {}
    try:
        found = await work(results)
    except A2AError as error:
        return [blanked(result, seen) for result in results], kind_of(error)
    if found is not None:
        results.append(found)
    return [blanked(result, seen) for result in results], None


async def same(agent, binding, work, **options):
    """Does the same over both, and gives what came of it, which is the same."""
    async with transports(agent + PATHS[binding], binding, **options) as (theirs, ours):
        expected = await outcome(lambda results: work(theirs, results))
        assert await outcome(lambda results: work(ours, results)) == expected
    return expected


def said(text, **more):
    message = pb.Message(
        message_id=str(uuid.uuid4()), role=pb.ROLE_USER, parts=[pb.Part(text=text)]
    )
    message.metadata["n"] = 3
    for name in ("task_id", "context_id"):
        setattr(message, name, more.pop(name, ""))
    return pb.SendMessageRequest(message=message, **more)


def configured(**settings):
    return {"configuration": pb.SendMessageConfiguration(**settings)}


AT_ONCE = configured(return_immediately=True)


# ── A real agent on the SDK ──────────────────────────────────────────────────────────────────

SENT = {
    "a task": ("echo hello", {}),
    "text that is more than ASCII": ("echo h\u00e9llo \U0001f600", {}),
    "a message": ("message hello", {}),
    "a failed task": ("fail no", {}),
    "a rejected task": ("reject no", {}),
    "a question": ("ask which?", {}),
    "numbers": ('data {"n": 3, "x": 1.5, "big": 9007199254740993, "none": null, "l": [{}]}', {}),
    "bytes": ("file name.bin", {}),
    "chunks": ("chunks 3", {}),
    "no history": ("echo hello", configured(history_length=0)),
    "modes": ("echo hello", configured(accepted_output_modes=["text/plain"])),
    "metadata": ("echo hello", {"metadata": {"a": {"b": [1, 2.5, "c", None, True]}}}),
    "a task that is not there": ("echo", {"task_id": "nope"}),
    "a crash": ("crash", {}),
}
STREAMED = {what: given for what, given in SENT.items() if what != "a crash"}


@both_bindings
@pytest.mark.parametrize(("text", "more"), SENT.values(), ids=SENT)
async def test_sending_gives_the_same(text, more, binding, agent):
    async def work(transport, _results):
        return await transport.send_message(said(text, **dict(more)))

    await same(agent, binding, work)


@both_bindings
@pytest.mark.parametrize(("text", "more"), STREAMED.values(), ids=STREAMED)
async def test_streaming_gives_the_same_events(text, more, binding, agent):
    async def work(transport, results):
        async for event in transport.send_message_streaming(said(text, **dict(more))):
            results.append(event)

    events, error = await same(agent, binding, work)
    assert events or error


@both_bindings
@pytest.mark.parametrize("streams", [True, False])
async def test_continuing_a_task_gives_the_same(streams, binding, agent):
    async def work(transport, results):
        asked = (await transport.send_message(said("ask which?"))).task
        results.append(asked)
        reply = said("history", task_id=asked.id, context_id=asked.context_id)
        if streams:
            async for event in transport.send_message_streaming(reply):
                results.append(event)
        else:
            results.append(await transport.send_message(reply))
        again = said("too late", task_id=asked.id, context_id=asked.context_id)
        results.append(await transport.send_message(again))

    results, error = await same(agent, binding, work)
    assert len(results) >= 2
    assert error is not None  # the task is over


BAD_MESSAGES = {
    "no parts": pb.Message(message_id="m", role=pb.ROLE_USER),
    "no role": pb.Message(message_id="m", parts=[pb.Part(text="a")]),
    "an empty part": pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part()]),
}


@both_bindings
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("message", BAD_MESSAGES.values(), ids=BAD_MESSAGES)
async def test_a_message_that_is_not_right_is_the_same_error(message, streams, binding, agent):
    async def work(transport, results):
        request = pb.SendMessageRequest(message=message)
        if not streams:
            results.append(await transport.send_message(request))
            return
        async for event in transport.send_message_streaming(request):
            results.append(event)

    await same(agent, binding, work)


@both_bindings
@pytest.mark.parametrize("history_length", [None, 0, 1, 50])
async def test_looking_at_a_task_gives_the_same(history_length, binding, agent):
    async def work(transport, _results):
        task = (await transport.send_message(said("echo hello"))).task
        request = pb.GetTaskRequest(id=task.id)
        if history_length is not None:
            request.history_length = history_length
        return await transport.get_task(request)

    [task], _ = await same(agent, binding, work)
    assert len(task.history) == (0 if history_length == 0 else 1)


LISTED = {
    "all": {},
    "few": {"page_size": 1},
    "with artifacts": {"include_artifacts": True},
    "without artifacts": {"include_artifacts": False},
    "without history": {"history_length": 0},
    "in a state": {"status": pb.TASK_STATE_COMPLETED},
    "in no state": {"status": pb.TASK_STATE_FAILED},
    "since": {"status_timestamp_after": Timestamp(seconds=1_600_000_000, nanos=5_000_000)},
    "too many": {"page_size": 1000},
    "too few": {"page_size": -1},
    "nowhere": {"page_token": "nowhere"},
}


@both_bindings
@pytest.mark.parametrize("asked", LISTED.values(), ids=LISTED)
async def test_listing_tasks_gives_the_same(asked, binding, agent):
    async def work(transport, results):
        context_id = str(uuid.uuid4())
        for text in ("echo one", "echo two"):
            await transport.send_message(said(text, context_id=context_id))
        request = pb.ListTasksRequest(context_id=context_id, **asked)
        results.append(await transport.list_tasks(request))
        if token := results[0].next_page_token:
            request.page_token = token
            results.append(await transport.list_tasks(request))

    await same(agent, binding, work)


@both_bindings
async def test_cancelling_gives_the_same(binding, agent):
    async def work(transport, results):
        task = (await transport.send_message(said("slow 20 x", **AT_ONCE))).task
        request = pb.CancelTaskRequest(id=task.id, metadata={"why": "enough"})
        results.append(await transport.cancel_task(request))
        over = (await transport.send_message(said("echo hello"))).task
        await transport.cancel_task(pb.CancelTaskRequest(id=over.id))

    results, error = await same(agent, binding, work)
    assert (len(results), error.__name__) == (1, "TaskNotCancelableError")


@both_bindings
async def test_push_configurations_are_the_same(binding, agent):
    async def work(transport, results):
        task = (await transport.send_message(said("slow 20 x", **AT_ONCE))).task
        wanted = pb.TaskPushNotificationConfig(
            task_id=task.id,
            id="mine",
            url="http://127.0.0.1:9/push",
            token="t",
            authentication=pb.AuthenticationInfo(scheme="Bearer", credentials="c"),
        )
        named = {"task_id": task.id, "id": "mine"}
        of_task = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id, page_size=5)
        results.append(await transport.create_task_push_notification_config(wanted))
        results.append(
            await transport.get_task_push_notification_config(
                pb.GetTaskPushNotificationConfigRequest(**named)
            )
        )
        results.append(await transport.list_task_push_notification_configs(of_task))
        gone = await transport.delete_task_push_notification_config(
            pb.DeleteTaskPushNotificationConfigRequest(**named)
        )
        assert gone is None
        results.append(await transport.list_task_push_notification_configs(of_task))
        await transport.cancel_task(pb.CancelTaskRequest(id=task.id))
        await transport.get_task_push_notification_config(
            pb.GetTaskPushNotificationConfigRequest(**named)
        )

    results, error = await same(agent, binding, work)
    assert len(results) == 4
    assert error is not None


UNKNOWN = {
    "get_task": pb.GetTaskRequest(id="nope"),
    "an id that is no path": ("get_task", pb.GetTaskRequest(id="a b")),
    "cancel_task": pb.CancelTaskRequest(id="nope"),
    "subscribe": pb.SubscribeToTaskRequest(id="nope"),
    "create_task_push_notification_config": pb.TaskPushNotificationConfig(
        task_id="nope", url="http://127.0.0.1:9"
    ),
    "get_task_push_notification_config": pb.GetTaskPushNotificationConfigRequest(
        task_id="nope", id="nope"
    ),
    "list_task_push_notification_configs": pb.ListTaskPushNotificationConfigsRequest(
        task_id="nope"
    ),
    "delete_task_push_notification_config": pb.DeleteTaskPushNotificationConfigRequest(
        task_id="nope", id="nope"
    ),
}


@both_bindings
@pytest.mark.parametrize("name", UNKNOWN)
async def test_what_is_not_there_is_the_same_error(name, binding, agent):
    given = UNKNOWN[name]
    method, request = given if isinstance(given, tuple) else (name, given)

    async def work(transport, results):
        answer = getattr(transport, method)(request)
        if method != "subscribe":
            results.append(await answer)
            return
        async for event in answer:
            results.append(event)

    _, error = await same(agent, binding, work)
    assert error is not None


@both_bindings
@pytest.mark.parametrize("extended", [True, False])
async def test_the_extended_card_is_the_same(extended, binding, agent):
    async def work(transport, _results):
        return await transport.get_extended_agent_card(pb.GetExtendedAgentCardRequest())

    [card], _ = await same(agent, binding, work, extended=extended)
    assert card.name == ("SDK agent, extended" if extended else "agent")


@both_bindings
async def test_a_subscription_gives_the_same_text_and_end(binding, agent):
    name = str(uuid.uuid4())

    async def work(transport, results):
        task = (await transport.send_message(said(f"paced {name} 3", **AT_ONCE))).task
        events = transport.subscribe(pb.SubscribeToTaskRequest(id=task.id))
        first = await anext(events)
        assert first.HasField("task")
        async with httpx.AsyncClient() as client:
            await client.get(f"{agent}/permits", params={"name": name, "count": 3})
        async for event in events:
            if event.status_update.status.state != pb.TASK_STATE_WORKING:  # or in the first one
                results.append(event)

    results, _ = await same(agent, binding, work)
    assert len(results) == 4
    assert results[-1].status_update.status.state == pb.TASK_STATE_COMPLETED


# ── Where they differ, with a real agent ─────────────────────────────────────────────────────


@both_bindings
async def test_a_message_without_an_id_is_an_error_there_and_gets_one_here(binding, agent):
    request = said("echo hello")
    request.message.message_id = ""
    async with transports(agent + PATHS[binding], binding) as (theirs, ours):
        with pytest.raises(A2AError) as caught:
            await theirs.send_message(request)
        assert kind_of(caught.value) is InvalidParamsError
        assert (await ours.send_message(request)).task.status.state == pb.TASK_STATE_COMPLETED


@both_bindings
async def test_a_subscription_to_a_task_that_is_over_is_an_error_there_and_the_task_here(
    binding, agent
):
    async with transports(agent + PATHS[binding], binding) as (theirs, ours):
        task = (await ours.send_message(said("echo hello"))).task
        request = pb.SubscribeToTaskRequest(id=task.id)
        with pytest.raises(A2AError):
            await anext(theirs.subscribe(request))
        [event] = [event async for event in ours.subscribe(request)]
        assert event.task == task


@both_bindings
async def test_send_message_streaming_agent_crashes_raises_an_error_there_and_here(binding, agent):
    async with transports(agent + PATHS[binding], binding) as (theirs, ours):
        with pytest.raises(A2AError):
            _ = [event async for event in theirs.send_message_streaming(said("crash"))]
        with pytest.raises(A2AError):
            _ = [event async for event in ours.send_message_streaming(said("crash"))]


@both_bindings
async def test_a_line_separator_in_a_stream_breaks_it_there_and_is_text_here(binding, agent):
    async with transports(agent + PATHS[binding], binding) as (theirs, ours):
        text = "echo one\u2028two"
        with pytest.raises(Exception, match=r"SSE|JSON|parse|[Uu]nterminated"):
            _ = [event async for event in theirs.send_message_streaming(said(text))]
        events = [event async for event in ours.send_message_streaming(said(text))]
        told = [e.artifact_update.artifact for e in events if e.HasField("artifact_update")]
        assert [artifact.parts[0].text for artifact in told] == ["one\u2028two"]


# ── Replies that no agent on the SDK gives ───────────────────────────────────────────────────


def answering(binding, document, *, status="200 OK", kind="application/json", raw=None):
    """A script that answers each request with a JSON document, or with these bytes."""

    async def script(connection):
        while (request := await connection.request()) is not None:
            body = raw
            if body is None:
                wrapped = document
                if binding == "JSONRPC":
                    asked = json.loads(request.partition(b"\r\n\r\n")[2])
                    wrapped = {"jsonrpc": "2.0", "id": asked["id"], **document}
                body = json.dumps(wrapped).encode()
            await connection.send(reply(body, f"Content-Type: {kind}", status=status))

    return script


async def same_from(script, binding, work):
    async with serve(script) as server:
        url = server.url.rstrip("/")
        options = {"resilience": Resilience.off(), "on_unknown": "raise"}
        async with transports(url, binding, **options) as (theirs, ours):
            expected = await outcome(lambda results: work(theirs, results))
            assert await outcome(lambda results: work(ours, results)) == expected
    return expected


async def get(transport, _results):
    return await transport.get_task(pb.GetTaskRequest(id="t"))


async def send(transport, _results):
    return await transport.send_message(said("hello"))


TASKS = {
    "the least": {"id": "t"},
    "unknown members": {"id": "t", "futureThing": {"a": 1}},
    "an unknown state": {"id": "t", "status": {"state": "TASK_STATE_PONDERING"}},
    "nulls": {"id": "t", "contextId": None, "artifacts": None, "status": None},
    "whole numbers as 1.0": {
        "id": "t",
        "artifacts": [{"artifactId": "a", "parts": [{"data": {"n": 1.0, "m": 10}}]}],
    },
    "empty values": {"id": "t", "contextId": "", "artifacts": [], "metadata": {}},
    "a whole task": {
        "id": "t",
        "contextId": "c",
        "status": {
            "state": "TASK_STATE_INPUT_REQUIRED",
            "timestamp": "2026-01-01T00:00:00.123Z",
            "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "?"}]},
        },
        "artifacts": [
            {
                "artifactId": "a",
                "name": "n",
                "parts": [
                    {"text": "", "metadata": {"x": [None, True, -1]}},
                    {"raw": "AAEC/w==", "mediaType": "a/b", "filename": "f"},
                    {"url": "https://x.test", "mediaType": "a/b"},
                    {"data": None},
                ],
            }
        ],
        "history": [{"messageId": "m0", "role": "ROLE_USER", "parts": [{"text": "a"}]}],
    },
}


@both_bindings
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
async def test_replies_are_read_the_same(task, binding):
    document = {"result": task} if binding == "JSONRPC" else task
    await same_from(answering(binding, document), binding, get)


CODES = [-32700, *range(-32603, -32599), *range(-32009, -32000), -32050, -32000, 7]


@pytest.mark.parametrize("work", [get, send])
@pytest.mark.parametrize("code", CODES)
async def test_codes_of_json_rpc_are_the_same_errors(code, work):
    error = {"error": {"code": code, "message": "what happened"}}
    _, kind = await same_from(answering("JSONRPC", error), "JSONRPC", work)
    assert kind is not None


REASONS = [
    "TASK_NOT_FOUND",
    "TASK_NOT_CANCELABLE",
    "PUSH_NOTIFICATION_NOT_SUPPORTED",
    "UNSUPPORTED_OPERATION",
    "CONTENT_TYPE_NOT_SUPPORTED",
    "INVALID_AGENT_RESPONSE",
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    "EXTENSION_SUPPORT_REQUIRED",
    "VERSION_NOT_SUPPORTED",
]


@pytest.mark.parametrize("work", [get, send])
@pytest.mark.parametrize("reason", REASONS)
async def test_reasons_of_http_json_are_the_same_errors(reason, work):
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "a2a-protocol.org",
        "metadata": {"taskId": "t"},
    }
    error = {"error": {"code": 400, "message": "what happened", "details": [info]}}
    script = answering("HTTP+JSON", error, status="400 Bad Request")
    _, kind = await same_from(script, "HTTP+JSON", work)
    assert kind is not None


PLAIN = {
    "400": ("400 Bad Request", {"code": 400, "status": "INVALID_ARGUMENT", "message": "no"}),
    "404": ("404 Not Found", {"code": 404, "status": "NOT_FOUND", "message": "no"}),
    "500": ("500 Internal Server Error", {"code": 500, "status": "INTERNAL", "message": "no"}),
    "501": ("501 Not Implemented", {"code": 501, "status": "UNIMPLEMENTED", "message": "no"}),
}


@pytest.mark.parametrize("work", [get, send])
@pytest.mark.parametrize(("status", "error"), PLAIN.values(), ids=PLAIN)
async def test_errors_of_http_json_without_a_reason_are_the_same(status, error, work):
    script = answering("HTTP+JSON", {"error": error}, status=status)
    _, kind = await same_from(script, "HTTP+JSON", work)
    assert kind is not None


PAGES = {
    "400": ("400 Bad Request", b"no"),
    "401": ("401 Unauthorized", b"{}"),
    "403": ("403 Forbidden", b"<html>no</html>"),
    "404": ("404 Not Found", b"no such page"),
    "404 in JSON": ("404 Not Found", b'{"error": "no such page"}'),
    "429": ("429 Too Many Requests", b""),
    "500": ("500 Internal Server Error", b"<html>oops</html>"),
    "502": ("502 Bad Gateway", b"<html>oops</html>"),
    "503": ("503 Service Unavailable", b""),
    "no JSON": ("200 OK", b"<html>hello</html>"),
    "half of it": ("200 OK", b'{"result": {"id": "t"'),
    "nothing": ("200 OK", b""),
}


@both_bindings
@pytest.mark.parametrize("work", [get, send])
@pytest.mark.parametrize(("status", "body"), PAGES.values(), ids=PAGES)
async def test_pages_of_proxies_are_the_same_errors(status, body, work, binding):
    script = answering(binding, None, status=status, kind="text/html", raw=body)
    _, kind = await same_from(script, binding, work)
    assert kind is not None


async def test_a_server_that_hangs_up_is_the_same_error():
    async def script(connection):
        await connection.request()
        connection.reset()

    for work in (get, send):
        _, kind = await same_from(script, "JSONRPC", work)
        assert kind.__name__ == "A2AClientError"


async def test_a_server_that_takes_too_long_is_the_same_error():
    async def script(connection):
        await connection.request()
        await connection.stall()

    async def work(transport, _results):
        context = ClientCallContext(timeout=0.05)
        return await transport.get_task(pb.GetTaskRequest(id="t"), context=context)

    _, kind = await same_from(script, "JSONRPC", work)
    assert kind.__name__ == "A2AClientTimeoutError"


# ── Where they differ, with a scripted one ───────────────────────────────────────────────────


def event(asked, result):
    document = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
    return chunk(b"data: %b\n\n" % json.dumps(document).encode())


def task(state, *texts):
    parts = [{"text": text} for text in texts]
    artifacts = [{"artifactId": "a", "parts": parts}] if parts else []
    return {"id": "t", "contextId": "c", "status": {"state": state}, "artifacts": artifacts}


async def cut(connection):
    """Streams half of an answer, ends it cleanly as proxies do, and has the rest later."""
    while (request := await connection.request()) is not None:
        asked = json.loads(request.partition(b"\r\n\r\n")[2])
        if asked["method"] == "GetTask":
            result = task("TASK_STATE_COMPLETED", "Hello, ", "world")
            body = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
            await connection.send(
                reply(json.dumps(body).encode(), "Content-Type: application/json")
            )
            continue
        start = head("Content-Type: text/event-stream", "Transfer-Encoding: chunked")
        if asked["method"] == "SendStreamingMessage":
            half = {"task": task("TASK_STATE_WORKING", "Hello, ")}
        else:
            half = {"task": task("TASK_STATE_COMPLETED", "Hello, ", "world")}
        await connection.send(start, event(asked, half), LAST_CHUNK)


async def test_a_stream_that_is_cut_looks_finished_there_and_continues_here():
    async with serve(cut) as server, transports(server.url, "JSONRPC") as (theirs, ours):
        request = said("hello")
        seen = [event async for event in theirs.send_message_streaming(request)]
        assert [event.task.status.state for event in seen] == [pb.TASK_STATE_WORKING]

        seen = [event async for event in ours.send_message_streaming(request)]
        assert seen[0].task.status.state == pb.TASK_STATE_WORKING
        assert seen[-1].status_update.status.state == pb.TASK_STATE_COMPLETED
        [update] = [e.artifact_update for e in seen if e.HasField("artifact_update")]
        assert (update.append, update.artifact.parts[0].text) == (True, "world")
