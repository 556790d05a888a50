"""The fake agent speaks the protocol's real bytes: held against replies of the official server."""

import asyncio
import json
from urllib.parse import quote

import httpx
import pytest

from holdfast import (
    A2AError,
    AgentCard,
    AuthenticationError,
    Part,
    Resilience,
    TaskFailedError,
    TaskNotFoundError,
    TaskState,
    connect,
)
from holdfast import protocol as op
from holdfast.errors import (
    AgentError,
    InternalError,
    InvalidParamsError,
    TaskNotCancelableError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from holdfast.extend import HttpRequest
from holdfast.integrations.httpx import Transport
from holdfast.testing import (
    Cut,
    Delay,
    Fail,
    FakeAgent,
    FakeNetwork,
    Fault,
    FaultProxy,
    Reset,
    Respond,
    Stall,
    asks,
    bad_gateway,
    completes,
    crashes,
    fails,
    rate_limited,
    replies,
    run,
    unavailable,
    works_forever,
)
from holdfast.types import AgentExtension, Message, SendMessageRequest, TaskPushNotificationConfig

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


def now():
    return asyncio.get_running_loop().time()


def client_of(agent, binding="JSONRPC", **options):
    options.setdefault("engine", FakeNetwork(agent))
    return connect(agent.url, bindings=[binding], **options)


async def http(agent, method, path, body=b"", **headers):
    """What the agent answers to a request written by hand: status, content type, document."""
    headers = {"a2a-version": "1.0"} | {name.replace("_", "-"): v for name, v in headers.items()}
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    request = HttpRequest(
        method=method, url=f"http://agent.test{path}", headers=headers, body=body
    )
    reply = await FakeNetwork(agent).request(request)
    kind = reply.headers["content-type"]
    is_json = kind.partition(";")[0].endswith("json")
    return reply.status, kind, json.loads(reply.body) if is_json else reply.body.decode()


async def rpc(agent, method, params=None, **headers):
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    status, kind, document = await http(agent, "POST", "/rpc", call, **headers)
    assert (status, kind, document["jsonrpc"]) == (200, "application/json", "2.0")
    return document


def message(text="hello", **members):
    return {
        "message": {
            "messageId": "m-1",
            "role": "ROLE_USER",
            "parts": [{"text": text}],
            **members,
        }
    }


def rpc_error(code, text, reason=None):
    error = {"code": code, "message": text}
    if reason is not None:
        error["data"] = [info(reason)]
    return error


def info(reason):
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "a2a-protocol.org",
        "metadata": {},
    }


def without_metadata(error):
    """The official server leaves metadata empty; the fake one tells what the protocol allows."""
    for detail in error.get("data", error.get("details", ())):
        detail["metadata"] = {}
    return error


# ── Golden replies: what the official server answered, word for word ─────────────────────────


async def test_a_task_as_the_official_server_writes_it():
    agent = FakeAgent()

    document = await rpc(agent, "SendMessage", message("hi"))

    task = document["result"]["task"]
    assert document["id"] == 1
    assert task == {
        "id": "task-1",
        "contextId": "context-2",
        "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00.000Z"},
        "artifacts": [{"artifactId": "artifact-1", "parts": [{"text": "hi"}]}],
        "history": [
            {
                "messageId": "m-1",
                "contextId": "context-2",
                "taskId": "task-1",
                "role": "ROLE_USER",
                "parts": [{"text": "hi"}],
            }
        ],
    }
    again = await http(agent, "GET", "/rest/tasks/task-1")
    assert again == (200, "application/a2a+json", task)


async def test_a_message_as_the_official_server_writes_it():
    agent = FakeAgent(lambda turn: replies("hi"))

    document = await rpc(agent, "SendMessage", message())

    assert document["result"] == {
        "message": {
            "messageId": "message-1",
            "contextId": "context-2",
            "role": "ROLE_AGENT",
            "parts": [{"text": "hi"}],
        }
    }


GOLDEN_ERRORS = [
    ("GetTask", {"id": "nope"}, -32001, "Task not found", "TASK_NOT_FOUND"),
    ("CancelTask", {"id": "nope"}, -32001, "Task not found", "TASK_NOT_FOUND"),
    ("CancelTask", {"id": "task-1"}, -32002, "Task cannot be canceled", "TASK_NOT_CANCELABLE"),
    (
        "SendMessage",
        message(taskId="task-1"),
        -32004,
        "Task task-1 is in terminal state: TASK_STATE_COMPLETED",
        "UNSUPPORTED_OPERATION",
    ),
    (
        "SendMessage",
        message(taskId="task-3", contextId="other"),
        -32602,
        "Context other does not match context context-4 of task task-3",
        "INVALID_PARAMS",
    ),
    (
        "GetTask",
        {"id": "task-1", "historyLength": -1},
        -32602,
        "history length must be non-negative",
        "INVALID_PARAMS",
    ),
    ("Nope", {}, -32601, "Method not found", None),
]


async def two_tasks():
    """An agent with task-1, which is over, and task-3, which waits for input."""
    agent = FakeAgent(lambda turn: asks("which?") if turn.message.text == "ask" else "done")
    await rpc(agent, "SendMessage", message())
    await rpc(agent, "SendMessage", message("ask"))
    return agent


@pytest.mark.parametrize(("method", "params", "code", "text", "reason"), GOLDEN_ERRORS)
async def test_a_jsonrpc_error_as_the_official_server_writes_it(
    method, params, code, text, reason
):
    document = await rpc(await two_tasks(), method, params)

    assert document["id"] == 1
    assert without_metadata(document["error"]) == rpc_error(code, text, reason)


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "/tasks/nope", 404, ("NOT_FOUND", "Task not found", "TASK_NOT_FOUND")),
        (
            "POST",
            "/tasks/task-1:cancel",
            400,
            ("FAILED_PRECONDITION", "Task cannot be canceled", "TASK_NOT_CANCELABLE"),
        ),
        (
            "GET",
            "/tasks/task-1?historyLength=-1",
            400,
            ("INVALID_ARGUMENT", "history length must be non-negative", "INVALID_PARAMS"),
        ),
    ],
)
async def test_a_rest_error_as_the_official_server_writes_it(method, path, status, error):
    found, kind, document = await http(await two_tasks(), method, f"/rest{path}")

    name, text, reason = error
    assert (found, kind) == (status, "application/json")
    assert without_metadata(document["error"]) == {
        "code": status,
        "status": name,
        "message": text,
        "details": [info(reason)],
    }


@pytest.mark.parametrize("versions", [(), ("2.0",), ("1.0", "0.2"), "0.3"])
def test_an_agent_speaks_the_versions_that_there_are(versions):
    with pytest.raises(ValueError, match="versions must be"):
        FakeAgent(versions=versions)


async def test_a_wrong_version_as_the_official_server_refuses_it():
    agent = await two_tasks()
    text = "A2A version '0.3' is not supported by this handler. Expected version '1.0'."

    for version in ("", "0.3"):
        document = await rpc(agent, "GetTask", {"id": "task-1"}, a2a_version=version)
        assert document["error"] == rpc_error(-32009, text, "VERSION_NOT_SUPPORTED")
        status, _, document = await http(agent, "GET", "/rest/tasks/task-1", a2a_version=version)
        assert (status, document["error"]["message"]) == (400, text)


@pytest.mark.parametrize("version", ["1", "1.0", "1.7"])
async def test_every_version_with_the_same_major_number_is_taken(version):
    agent = await two_tasks()

    assert "result" in await rpc(agent, "GetTask", {"id": "task-1"}, a2a_version=version)


@pytest.mark.parametrize(
    ("body", "code", "rpc_id"),
    [
        (b"{", -32700, None),
        (b"[]", -32600, None),
        (b'{"jsonrpc":"2.0","id":5}', -32600, 5),
        (b'{"jsonrpc":"1.0","id":5,"method":"GetTask"}', -32600, 5),
    ],
)
async def test_what_is_no_jsonrpc_request(body, code, rpc_id):
    _, _, document = await http(FakeAgent(), "POST", "/rpc", body)

    assert (document["error"]["code"], document["id"]) == (code, rpc_id)


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("POST", "/rest/nope", (404, "Not Found")),
        ("GET", "/rest/message:send", (405, "Method Not Allowed")),
        ("GET", "/elsewhere", (404, "Not Found")),
        ("GET", "/.well-known/agent.json", (404, "Not Found")),
    ],
)
async def test_unserved_path_is_answered_in_plain_text(method, path, answer):
    agent = FakeAgent()

    status, kind, text = await http(agent, method, path)

    assert (status, text, kind) == (*answer, "text/plain; charset=utf-8")
    assert agent.received[0].operation == ""


async def test_a_rest_body_that_is_no_json():
    status, _, document = await http(FakeAgent(), "POST", "/rest/message:send", b"{")

    assert status == 400
    assert document["error"]["details"] == [info("INVALID_REQUEST")]


@pytest.mark.parametrize(
    ("method", "path", "params"),
    [
        ("SendMessage", "/rest/message:send", {}),
        ("SendMessage", "/rest/message:send", message(parts=[])),
        ("SendMessage", "/rest/message:send", message(messageId="")),
        ("CreateTaskPushNotificationConfig", None, {"taskId": "task-1"}),
        ("GetTask", None, {}),
        ("GetTask", None, {"id": 5}),
        ("ListTasks", None, {"pageSize": 0}),
        ("ListTasks", None, {"pageSize": 101}),
        ("ListTasks", None, {"pageToken": "bad"}),
        ("ListTasks", None, {"statusTimestampAfter": "nonsense"}),
        ("ListTasks", None, {"statusTimestampAfter": "2026-01-01T00:00:00"}),
    ],
)
async def test_params_that_are_not_valid_are_refused(method, path, params):
    agent = await two_tasks()

    document = await rpc(agent, method, params)
    assert document["error"]["code"] == -32602
    if path is not None:
        assert (await http(agent, "POST", path, params))[0] == 400


@pytest.mark.parametrize("query", ["pageSize=abc", "pageSize=0", "pageToken=bad"])
async def test_a_query_that_is_not_valid_is_refused(query):
    status, _, document = await http(FakeAgent(), "GET", f"/rest/tasks?{query}")

    assert (status, document["error"]["status"]) == (400, "INVALID_ARGUMENT")


async def test_push_configurations_as_the_official_server_keeps_them():
    agent = await two_tasks()
    config = {"taskId": "task-1", "url": "http://x.test/h"}

    made = await rpc(agent, "CreateTaskPushNotificationConfig", config)
    assert made["result"] == {"id": "task-1", **config}
    named = await http(
        agent,
        "POST",
        "/rest/tasks/task-1/pushNotificationConfigs",
        {"id": "c2", "url": "http://x.test/h", "token": "t"},
    )
    assert named[2] == {"id": "c2", "token": "t", **config}
    listed = await rpc(agent, "ListTaskPushNotificationConfigs", {"taskId": "task-1"})
    assert listed["result"] == {"configs": [made["result"], named[2]]}
    empty = await http(agent, "GET", "/rest/tasks/task-3/pushNotificationConfigs")
    assert empty == (200, "application/a2a+json", {})
    deleted = await rpc(
        agent, "DeleteTaskPushNotificationConfig", {"taskId": "task-1", "id": "c2"}
    )
    assert deleted == {"jsonrpc": "2.0", "id": 1, "result": None}
    gone = await http(agent, "DELETE", "/rest/tasks/task-1/pushNotificationConfigs/task-1")
    assert gone == (200, "application/a2a+json", {})


async def test_a_crash_as_the_official_server_answers_it():
    agent = FakeAgent(lambda turn: crashes("crashed as asked"))

    document = await rpc(agent, "SendMessage", message())
    assert document["error"] == {"code": -32603, "message": "crashed as asked"}
    status, kind, document = await http(agent, "POST", "/rest/message:send", message())
    assert (status, kind) == (500, "application/json")
    assert document["error"] == {
        "code": 500,
        "status": "INTERNAL",
        "message": "crashed as asked",
    }
    assert {task.state for task in agent.tasks.values()} == {TaskState.FAILED}


async def test_a_missing_token_as_the_official_agent_refuses_it():
    agent = FakeAgent(token="secret")

    refused = await http(agent, "GET", "/rest/tasks/x", authorization="Bearer wrong")
    assert refused == (401, "application/json", {"error": "unauthorized"})
    card = await http(agent, "GET", "/.well-known/agent-card.json")
    assert card[0] == 200


# ── Every operation, as a client sees it ─────────────────────────────────────────────────────


@both_bindings
async def test_messages_and_tasks(binding):
    agent = FakeAgent(lambda turn: completes(turn.message.text.upper(), after=5, works=1))
    client = client_of(agent, binding)

    answer = await client.ask("hello")
    blocking = await client.send_message("again")
    immediate = await client.send_message("more", return_immediately=True)

    assert answer.text == "HELLO"
    assert blocking.state is TaskState.COMPLETED
    assert immediate.state is TaskState.SUBMITTED
    assert (await client.wait(immediate.id)).text == "MORE"
    assert await client.get_task(blocking.id) == blocking


@both_bindings
async def test_history_is_as_long_as_asked_for(binding):
    client = client_of(FakeAgent(lambda turn: asks("more?")), binding)
    task = await client.send_message("one")
    await client.send_message("two", task_id=task.id, context_id=task.context_id)

    whole = await client.get_task(task.id)
    one = await client.get_task(task.id, history_length=1)
    none = await client.send_message("three", task_id=task.id, history_length=0)

    assert [m.text for m in whole.history] == ["one", "more?", "two"]
    assert [m.text for m in one.history] == ["two"]
    assert none.history == ()


@both_bindings
async def test_an_agent_may_record_no_messages(binding):
    client = client_of(FakeAgent(records_messages=False), binding)

    assert (await client.send_message("hello")).history == ()


@both_bindings
async def test_a_context_is_the_clients_or_the_agents(binding):
    client = client_of(FakeAgent(), binding)

    mine = await client.send_message("hello", context_id="mine")
    theirs = await client.send_message("hello")

    assert mine.context_id == "mine"
    assert theirs.context_id not in {None, "mine"}


@both_bindings
async def test_tasks_are_listed_the_newest_first_and_page_by_page(binding):
    agent = FakeAgent(lambda turn: asks("?") if turn.message.text == "ask" else "done")
    client = client_of(agent, binding)
    for text in ("a", "ask", "b", "c", "d"):
        await client.send_message(text, context_id="odd" if text in "ac" else "even")
        await asyncio.sleep(1)

    async def listed(**which):
        return [task.history[0].text async for task in client.iter_tasks(limit=2, **which)]

    assert await listed() == ["d", "c", "b", "ask", "a"]
    assert await listed(context_id="odd") == ["c", "a"]
    assert await listed(status=TaskState.INPUT_REQUIRED) == ["ask"]
    assert await listed(status_timestamp_after="2026-01-01T01:00:03+01:00") == ["d", "c"]
    page = await client.list_tasks(limit=2, history_length=0)
    assert (page.page_size, page.total_size, len(page.tasks)) == (2, 5, 2)
    assert {(task.artifacts, task.history) for task in page.tasks} == {((), ())}
    whole = await client.list_tasks(limit=1, include_artifacts=True)
    assert whole.tasks[0].text == "done"


def test_tasks_can_be_listed_by_an_iterator_that_was_made_without_an_event_loop():
    agent = FakeAgent()
    client = client_of(agent, "JSONRPC")
    tasks = client.iter_tasks(timeout=5)

    async def listed():
        await client.send_message("hello")
        return [task.id async for task in tasks]

    assert len(run(listed())) == 1


async def test_every_page_is_asked_for_with_the_same_options():
    agent = FakeAgent(extensions=[AgentExtension(uri="urn:x")])
    client = client_of(agent, "JSONRPC")
    for _ in range(3):
        await client.send_message("hello")

    _ = [task async for task in client.iter_tasks(limit=1, extensions=iter(["urn:x"]))]

    pages = agent.calls("ListTasks")
    assert [page.headers.get("a2a-extensions") for page in pages] == ["urn:x"] * 3


@both_bindings
async def test_a_task_is_canceled(binding):
    client = client_of(FakeAgent(lambda turn: works_forever()), binding)
    task = await client.send_message("hello", return_immediately=True)

    assert (await client.cancel_task(task.id)).state is TaskState.CANCELED

    with pytest.raises(TaskNotCancelableError) as caught:
        await client.cancel_task(task.id)
    assert caught.value.state is TaskState.CANCELED
    with pytest.raises(TaskNotFoundError):
        await client.cancel_task("nope")


@both_bindings
async def test_push_configurations_are_kept_by_task(binding):
    client = client_of(FakeAgent(), binding)
    task = await client.send_message("hello")
    other = await client.send_message("hello")
    config = TaskPushNotificationConfig(task_id=task.id, id="c", url="http://x.test/h")

    assert await client.create_task_push_notification_config(config) == config
    assert await client.get_task_push_notification_config(task.id, "c") == config
    listed = await client.list_task_push_notification_configs(task.id)
    assert listed.configs == (config,)
    listed = await client.list_task_push_notification_configs(other.id)
    assert listed.configs == ()
    await client.delete_task_push_notification_config(task.id, "c")
    with pytest.raises(TaskNotFoundError):
        await client.get_task_push_notification_config(task.id, "c")


@both_bindings
async def test_the_extended_card_says_so_and_names_the_same_addresses(binding):
    agent = FakeAgent(url="http://agent.test:8080")
    client = client_of(agent, binding)

    public = await client.agent_card()
    extended = await client.get_extended_agent_card()

    assert extended.name == "Fake agent, extended"
    assert extended.supported_interfaces == public.supported_interfaces
    assert public.supported_interfaces[0].url == "http://agent.test:8080/rpc"


@both_bindings
async def test_what_it_does_not_offer_is_an_unsupported_operation(binding):
    agent = FakeAgent(streaming=False)
    document = (
        await rpc(agent, "SendStreamingMessage", message())
        if binding == "JSONRPC"
        else (await http(agent, "POST", "/rest/message:stream", message()))[2]
    )

    (detail,) = document["error"].get("data") or document["error"]["details"]
    assert detail["reason"] == "UNSUPPORTED_OPERATION"


@both_bindings
async def test_a_refusal_is_the_error_that_the_protocol_names(binding):
    agent = FakeAgent()
    client = client_of(agent, binding)
    over = await client.send_message("hello")

    with pytest.raises(UnsupportedOperationError):
        await client.send_message("more", task_id=over.id)
    with pytest.raises(TaskNotFoundError) as caught:
        await client.send_message("more", task_id="nope")
    assert caught.value.task_id == "nope"
    with pytest.raises(InvalidParamsError):
        await client.call(op.SEND_MESSAGE, SendMessageRequest(message=Message(message_id="m")))
    with pytest.raises(VersionNotSupportedError):
        await old_client(agent, binding).get_task(over.id)


def old_client(agent, binding):
    """A client whose requests say that they speak another version."""

    class Old(FakeNetwork):
        def stream(self, request):
            request.headers["a2a-version"] = "0.3"
            return super().stream(request)

    return client_of(agent, binding, engine=Old(agent))


@both_bindings
async def test_a_token_opens_everything(binding):
    agent = FakeAgent(token="secret")

    with pytest.raises(AuthenticationError) as caught:
        await client_of(agent, binding, auth="Bearer wrong").send_message("hello")
    assert caught.value.executed is False
    assert caught.value.headers["www-authenticate"] == "Bearer"
    assert agent.executions == {}
    assert (await client_of(agent, binding, auth="Bearer secret").ask("hello")).text == "hello"


# ── Paths of HTTP+JSON ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("task_id", ["a b", "é", "a:b", "a%b", "a/b", "a:cancel", "..", "a?b#c"])
async def test_an_odd_id_arrives_as_it_is(task_id):
    agent = FakeAgent()

    with pytest.raises(TaskNotFoundError) as caught:
        await client_of(agent, "HTTP+JSON").get_task(task_id)

    assert caught.value.task_id == task_id
    assert agent.received[-1].operation == "GetTask"
    assert quote(task_id, safe="").replace("..", "%2E%2E") in agent.received[-1].url


@pytest.mark.parametrize("tenant", ["acme", "ac me", "ac/me"])
async def test_a_tenant_stands_before_the_path(tenant):
    agent = FakeAgent()
    client = client_of(agent, "HTTP+JSON", tenant=tenant)

    task = await client.send_message("hello")
    await client.get_task(task.id)
    await client.list_tasks()

    assert [received.operation for received in agent.received[1:]] == [
        "SendMessage",
        "GetTask",
        "ListTasks",
    ]
    prefix = f"/rest/{quote(tenant, safe='')}/"
    assert all(prefix in received.url for received in agent.received[1:])


# ── What a test can see ──────────────────────────────────────────────────────────────────────


async def test_every_request_is_on_record():
    agent = FakeAgent(latency=2)
    client = client_of(agent, headers={"x-mine": "1"})

    task = await client.send_message("hello")
    await client.get_task(task.id)

    assert [(r.operation, r.method, r.at) for r in agent.received] == [
        ("GetAgentCard", "GET", 0),
        ("SendMessage", "POST", 2),
        ("GetTask", "POST", 4),
    ]
    assert agent.calls("GetTask") == [agent.received[2]]
    assert agent.received[1].headers["x-mine"] == "1"
    assert b"hello" in agent.received[1].body


async def test_every_execution_is_on_record():
    agent = FakeAgent(lambda turn: replies("hi") if turn.message.text == "m" else "done")
    client = client_of(agent)
    for text in ("m", "t", "t"):
        await client.send_message({"messageId": text, "parts": [{"text": text}]})

    assert {name: len(made) for name, made in agent.executions.items()} == {"m": 1, "t": 2}
    assert set(agent.executions["t"]) == set(agent.tasks)


async def test_another_card_can_be_shown():
    own = AgentCard.from_dict({"name": "Mine", "supportedInterfaces": []})
    for card in (own, own.to_dict(), ["not", "a", "card"]):
        agent = FakeAgent(card=card)
        status, kind, document = await http(agent, "GET", "/.well-known/agent-card.json")
        assert (status, kind) == (200, "application/json")
        assert document == (card.to_dict() if isinstance(card, AgentCard) else card)


async def test_a_card_offers_the_bindings_in_the_order_given():
    agent = FakeAgent(bindings=("HTTP+JSON",))

    await connect(agent.url, engine=FakeNetwork(agent)).send_message("hello")

    assert agent.calls("SendMessage")[0].url == "http://agent.test/rest/message:send"


async def test_a_card_may_offer_what_the_agent_does_not_speak():
    agent = FakeAgent(bindings=("GRPC", "JSONRPC"))

    assert (await connect(agent.url, engine=FakeNetwork(agent)).ask("hello")).text == "hello"


# ── Time ─────────────────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_a_blocking_send_answers_when_the_task_settles(binding):
    plans = [completes("done", after=30), asks("what?", after=20), fails("no", after=10)]
    agent = FakeAgent(lambda turn: plans.pop())
    client = client_of(agent, binding)

    states = []
    for _ in range(3):
        began = now()
        task = await client.send_message("hello")
        states.append((task.state.name, now() - began))

    assert states == [("FAILED", 10), ("INPUT_REQUIRED", 20), ("COMPLETED", 30)]


async def test_a_blocking_reply_waits_for_what_it_caused():
    agent = FakeAgent(lambda turn: completes("done", after=7) if turn.task else asks("what?"))
    client = client_of(agent)
    task = await client.send_message("hello")

    task = await client.send_message("this", task_id=task.id)

    assert (task.state, now()) == (TaskState.COMPLETED, 7)


async def test_a_blocking_send_answers_when_its_task_is_canceled():
    client = client_of(FakeAgent(lambda turn: works_forever(), cancel_takes=3))
    blocking = asyncio.create_task(client.send_message("hello"))
    await asyncio.sleep(10)
    (listed,) = (await client.list_tasks()).tasks

    await client.cancel_task(listed.id, confirm=False)

    assert (await blocking).state is TaskState.CANCELED
    assert now() == 13


async def test_a_cancel_takes_its_time():
    client = client_of(FakeAgent(lambda turn: works_forever(), cancel_takes=3))
    task = await client.send_message("hello", return_immediately=True)

    assert (await client.cancel_task(task.id, confirm=False)).state is TaskState.WORKING
    await asyncio.sleep(2.9)
    assert (await client.get_task(task.id)).state is TaskState.WORKING
    await asyncio.sleep(0.1)
    assert (await client.get_task(task.id)).state is TaskState.CANCELED


async def test_a_cancel_may_be_ignored():
    agent = FakeAgent(lambda turn: completes("done", after=5), cancel_takes=None)
    client = client_of(agent)
    task = await client.send_message("hello", return_immediately=True)

    assert (await client.cancel_task(task.id)).state is TaskState.COMPLETED


async def test_every_reply_takes_the_latency():
    agent = FakeAgent(lambda turn: completes("done", after=5), latency=2)
    client = client_of(agent)

    await client.agent_card()
    assert now() == 2
    task = await client.send_message("hello")
    assert now() == 7  # the longer of working and latency
    with pytest.raises(TaskNotFoundError):
        await client.get_task("nope")
    assert now() == 9
    assert task.state is TaskState.COMPLETED


async def test_a_failed_task_tells_its_reason():
    with pytest.raises(TaskFailedError, match="no luck"):
        await client_of(FakeAgent(lambda turn: fails("no luck"))).ask("hello")


# ── Faults ───────────────────────────────────────────────────────────────────────────────────


def once(**options):
    return {"resilience": Resilience.off(), **options}


async def test_faults_come_in_order_and_then_no_more():
    agent = FakeAgent()
    client = client_of(agent, **once())
    agent.inject(rate_limited(), times=2)
    agent.inject(bad_gateway())
    await client.agent_card()

    statuses = []
    for _ in range(4):
        status, _, _ = await http_or_error(agent)
        statuses.append(status)

    assert statuses == [429, 429, 502, 200]
    assert agent.pending_faults == ()


async def http_or_error(agent):
    request = HttpRequest(method="GET", url="http://agent.test/rest/tasks")
    request.headers["a2a-version"] = "1.0"
    reply = await FakeNetwork(agent).request(request)
    return reply.status, reply.headers, reply.body


async def test_a_fault_waits_for_its_operation():
    agent = FakeAgent()
    client = client_of(agent, **once())
    agent.inject(unavailable(), on="GetTask")
    agent.inject(bad_gateway(), on="SendMessage")
    agent.inject(rate_limited(), on="GetAgentCard")
    assert len(agent.pending_faults) == 3

    with pytest.raises(A2AError, match="429"):
        await client.agent_card()
    with pytest.raises(A2AError, match="502"):
        await client.send_message("hello")
    with pytest.raises(A2AError, match="503"):
        await client.get_task("x")
    assert agent.pending_faults == ()


async def test_a_fault_for_whatever_comes_leaves_the_card_alone():
    agent = FakeAgent()
    agent.inject(unavailable())

    await client_of(agent, **once()).agent_card()

    assert len(agent.pending_faults) == 1


def test_a_fault_for_an_operation_that_does_not_exist_is_a_mistake():
    with pytest.raises(ValueError, match=r"on must be one of .*, not 'sendMessage'"):
        FakeAgent().inject(Reset(), on="sendMessage")


@pytest.mark.parametrize(
    "fault",
    [
        Reset(after_execution=True),
        Stall(after_execution=True),
        Stall(phase="idle"),
        Cut(),
        Respond(status=500, after_execution=True),
        Fail(after_execution=True),
        bad_gateway(after_execution=True),
    ],
)
async def test_a_fault_on_the_way_back_leaves_one_execution(fault):
    agent = FakeAgent()
    agent.inject(fault)

    with pytest.raises(A2AError) as caught:
        await client_of(agent, on_unknown="raise").send_message("hello")

    assert caught.value.executed is None
    assert [len(made) for made in agent.executions.values()] == [1]


@both_bindings
async def test_the_agent_itself_may_fail(binding):
    agent = FakeAgent()
    agent.inject(Fail(message="out of memory", after_execution=True))

    with pytest.raises(InternalError, match="out of memory") as caught:
        await client_of(agent, binding).send_message("hello")

    assert (caught.value.code, caught.value.executed) == (-32603, None)


@both_bindings
async def test_the_agent_may_fail_with_a_hint(binding):
    agent = FakeAgent()
    agent.inject(Fail(retry_after=20), on="GetTask")
    client = client_of(agent, binding)
    task = await client.send_message("hello")

    await client.get_task(task.id)

    assert 20 <= now() < 22


async def test_the_agent_may_speak_the_older_dialect():
    agent = FakeAgent()
    agent.inject(Fail(code=-32003, data={"retryable": True, "retryAfter": 7}))

    with pytest.raises(AgentError) as caught:
        await client_of(agent, **once()).get_task("x")

    assert (caught.value.code, caught.value.retry_after) == (-32003, 7)


@pytest.mark.parametrize(
    ("fault", "header", "value"),
    [
        (rate_limited(), "retry-after", None),
        (rate_limited(1.5), "retry-after", "1.5"),
        (
            rate_limited("Fri, 02 Jan 2026 00:00:00 GMT"),
            "retry-after",
            "Fri, 02 Jan 2026 00:00:00 GMT",
        ),
        (rate_limited(retry_after_ms=250), "retry-after-ms", "250"),
        (unavailable(3), "retry-after", "3"),
    ],
)
async def test_hints_are_headers(fault, header, value):
    agent = FakeAgent()
    agent.inject(fault)

    status, headers, _ = await http_or_error(agent)

    assert status == fault.status
    assert headers.get(header) == value


async def test_a_behaviour_that_raises_is_a_mistake_of_the_test():
    def behaviour(turn):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await client_of(FakeAgent(behaviour)).send_message("hello")


async def test_parts_of_every_kind_arrive_and_return():
    agent = FakeAgent(lambda turn: completes(*turn.message.parts))
    parts = [
        Part(text="t"),
        Part(raw=bytes(range(256)), filename="f.bin", media_type="application/octet-stream"),
        Part(url="http://x.test/f"),
        Part(data={"n": 1, "list": [None, True, 1.5]}),
        Part(data=None),
    ]

    answer = await client_of(agent).ask(parts)

    assert [artifact.parts[0] for artifact in answer.task.artifacts] == parts
    assert isinstance(answer.task.artifacts[3].parts[0].data["n"], int)


@pytest.mark.parametrize("role", ["ROLE_AGENT", "ROLE_UNSPECIFIED", None])
async def test_a_message_that_is_not_of_a_user_is_refused_as_official_servers_do(role):
    agent = FakeAgent()
    message = {"messageId": "m", "role": role, "parts": [{"text": "hi"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}

    async with httpx.AsyncClient(transport=Transport(engine=FakeNetwork(agent))) as client:
        headers = {"a2a-version": "1.0"}
        reply = await client.post(f"{agent.url}/rpc", json=call, headers=headers)

    error = reply.json()["error"]
    assert (error["code"], error["message"]) == (-32603, "Message must be from a user")
    assert agent.executions == {}


def nothing_useful():
    """Stand in for a function that is passed without a call."""


@pytest.mark.parametrize(
    ("not_a_fault", "reason"),
    [
        (Cut, "not the class Cut; write Cut()"),
        (Delay, "not the class Delay; write Delay(seconds=…)"),
        (rate_limited, "not the function rate_limited; write rate_limited()"),
        (nothing_useful, "not the function nothing_useful"),
        ("Cut", "not str"),
        (None, "not NoneType"),
        (Fault(), "not Fault"),
        ([Cut()], "not list; call inject() for each fault"),
    ],
    # The representation of a function has its address, which differs between the tests' processes.
    ids=lambda value: getattr(value, "__name__", None) or str(value),
)
@pytest.mark.parametrize("target", ["agent", "proxy"])
def test_inject_refuses_what_is_not_a_fault(target, not_a_fault, reason):
    injectable = FakeAgent() if target == "agent" else FaultProxy("http://127.0.0.1:1")

    with pytest.raises(TypeError) as caught:
        injectable.inject(not_a_fault)

    prefix = "fault must be a fault such as Cut(after_events=2) or rate_limited(), "
    assert str(caught.value) == prefix + reason
    assert injectable.pending_faults == ()


@pytest.mark.parametrize(("times", "kind"), [(0, ValueError), ("2", TypeError)])
def test_inject_refuses_a_number_of_requests_below_one(times, kind):
    agent = FakeAgent()

    with pytest.raises(kind, match="times must be"):
        agent.inject(Cut(), times=times)

    assert agent.pending_faults == ()
