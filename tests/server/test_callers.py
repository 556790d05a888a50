"""Who may call a served agent, and whose tasks are whose."""

import asyncio
import logging

import grpc
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc
from tests.kit.real_agents import LIMIT
from tests.kit.served_agents import URL, calling, echo, post

import holdfast
from holdfast.extend import HttpRequest
from holdfast.protocol import CANCEL_TASK, DELETE_PUSH_CONFIG
from holdfast.server import A2AServer, requires_input
from holdfast.testing import AsgiNetwork
from holdfast.types import CancelTaskRequest, DeleteTaskPushNotificationConfigRequest

BOTH = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
TOKENS = {"Bearer of-ada": "ada", "Bearer of-bob": "bob", "Bearer of-nobody": ""}
ADA, BOB = ({"authorization": f"Bearer of-{name}"} for name in ("ada", "bob"))
BODY = {"jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": {"id": "x"}}


def by_token(headers):
    return TOKENS.get(headers.get("authorization", ""))


async def by_token_later(headers):
    await asyncio.sleep(1)
    return by_token(headers)


async def whose(message, turn):
    if message.text == "ask":
        raise requires_input("Which?")
    return f"{turn.requester.user} said {message.text}"


async def not_found_by(client, task_id):
    """The operations by which a client finds nothing of a task."""
    config = holdfast.types.TaskPushNotificationConfig(task_id=task_id, url="http://8.8.8.8/")
    operations = {
        "get": lambda: client.get_task(task_id),
        "cancel": lambda: client.call(CANCEL_TASK, CancelTaskRequest(id=task_id)),
        "reply": lambda: client.send_message("mine", task_id=task_id),
        "create": lambda: client.create_task_push_notification_config(config),
        "config": lambda: client.get_task_push_notification_config(task_id, "c"),
        "configs": lambda: client.list_task_push_notification_configs(task_id),
        "delete": lambda: client.call(
            DELETE_PUSH_CONFIG, DeleteTaskPushNotificationConfigRequest(task_id=task_id, id="c")
        ),
        "subscribe": lambda: subscribed(client, task_id),
    }
    found = []
    for name, operation in operations.items():
        try:
            await operation()
        except holdfast.TaskNotFoundError:
            found.append(name)
    return found


async def subscribed(client, task_id):
    async with client.subscribe_to_task(task_id) as events:
        await anext(events)


ALL = ["get", "cancel", "reply", "create", "config", "configs", "delete", "subscribe"]


@pytest.mark.rule("P15")
@BOTH
@pytest.mark.parametrize("authenticate", [by_token, by_token_later])
async def test_what_belongs_to_another_caller_is_not_found(binding, authenticate):
    server = A2AServer(whose, authenticate=authenticate, push=True)
    network = AsgiNetwork({URL: server.app(url=URL)})
    options = {"engine": network, "bindings": [binding]}
    async with (
        holdfast.connect(URL, headers=ADA, **options) as ada,
        holdfast.connect(URL, headers=BOB, **options) as bob,
    ):
        asked = (await ada.ask("ask")).task
        await ada.create_task_push_notification_config(
            holdfast.types.TaskPushNotificationConfig(
                task_id=asked.id, id="c", url="http://8.8.8.8/"
            )
        )
        assert (await bob.ask("hello", context_id=asked.context_id)).text == "bob said hello"
        assert await not_found_by(bob, asked.id) == ALL
        listed = (await bob.list_tasks()).tasks
        assert [task.state for task in listed] == [holdfast.TaskState.COMPLETED]

        assert [task.id for task in (await ada.list_tasks()).tasks] == [asked.id]
        assert len((await ada.list_task_push_notification_configs(asked.id)).configs) == 1
        answer = await ada.ask("it", task_id=asked.id, context_id=asked.context_id)
        assert answer.text == "ada said it"
    await server.close()


@pytest.mark.rule("P15")
@pytest.mark.parametrize("token", ["", "Bearer wrong", "Bearer of-nobody"])
@pytest.mark.parametrize("path", ["/", "/tasks/x", "/extendedAgentCard", "/nothing"])
async def test_a_caller_without_a_name_gets_no_further(token, path):
    server = A2AServer(echo, authenticate=by_token, middleware=[unreachable])
    headers = {"authorization": token} if token else {}

    status, answer = await post(server, BODY, path, **headers)

    assert (status, answer["id"]) == (401, 7)
    assert "valid credentials" in answer["error"]["message"]


def unreachable(app):
    async def serve(scope, receive, send):
        raise AssertionError("it is behind authentication")

    return serve


async def test_the_public_card_is_for_everybody_wherever_it_is_mounted():
    app = A2AServer(echo, authenticate=by_token).app(url=URL)

    async def mounted(scope, receive, send):
        assert scope["path"].startswith("/agent/")
        await app({**scope, "root_path": "/agent"}, receive, send)

    statuses = []
    for engine, path in [
        (AsgiNetwork({URL: app}), ""),
        (AsgiNetwork({URL: mounted}), "/agent"),
        (AsgiNetwork({URL: app}), "/tasks"),
    ]:
        url = f"{URL}{path}/.well-known/agent-card.json"
        statuses.append((await engine.request(HttpRequest(method="GET", url=url))).status)

    assert statuses == [200, 200, 401]


async def test_a_challenge_comes_with_the_refusal_and_a_client_understands_it():
    async with calling(echo, authenticate=by_token) as client:
        with pytest.raises(holdfast.AuthenticationError) as caught:
            await client.ask("hello")

    assert caught.value.http_status == 401
    assert caught.value.executed is False


@pytest.mark.parametrize(
    ("authenticate", "status"),
    [
        (lambda _: 1, 200),
        (lambda _: 1 / 0, 200),
        (lambda _: asyncio.Event().wait(), 200),
    ],
)
async def test_authentication_function_that_raises_admits_no_caller(authenticate, status, caplog):
    server = A2AServer(echo, authenticate=authenticate, middleware=[unreachable])

    answered, answer = await post(server, BODY)

    assert (answered, answer["error"]["code"]) == (status, -32603)
    assert "division" not in answer["error"]["message"]
    assert caplog.records


async def test_what_is_meant_for_the_caller_is_reported():
    def expired(headers):
        raise holdfast.errors.PermissionDeniedError("the account is closed")

    status, answer = await post(A2AServer(echo, authenticate=expired), BODY)

    assert (status, answer["error"]["message"]) == (403, "the account is closed")


# ── Identity by middleware ───────────────────────────────────────────────────────────────────


class User:
    is_authenticated = True
    display_name = "Ada"

    def __init__(self, identity=None):
        self._identity = identity

    @property
    def identity(self):
        if self._identity is None:
            raise NotImplementedError
        return self._identity


def as_user(user):
    def wrap(app):
        async def serve(scope, receive, send):
            await app({**scope, "user": user(scope)}, receive, send)

        return serve

    return wrap


def by_header(scope):
    return User(dict(scope["headers"]).get(b"x-user", b"").decode() or None)


async def test_users_of_the_same_display_name_are_distinguished_by_their_identity():
    server = A2AServer(whose, middleware=[as_user(by_header)])
    network = AsgiNetwork({URL: server.app(url=URL)})
    seen = []
    for user in ("1", "2", ""):
        headers = {"x-user": user} if user else {}
        async with holdfast.connect(URL, engine=network, headers=headers) as client:
            answer = await client.ask("hello")
            seen.append((answer.text, len((await client.list_tasks()).tasks)))
    await server.close()

    assert seen == [("1 said hello", 1), ("2 said hello", 1), ("Ada said hello", 1)]


async def test_an_authenticated_user_without_a_name_is_an_error():
    user = User()
    user.display_name = ""
    server = A2AServer(echo, middleware=[as_user(lambda _: user)])

    _, answer = await post(server, BODY)

    assert answer["error"]["message"] == "internal error"


# ── It is said at the start ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "url", "level"),
    [
        ({}, URL, "WARNING"),
        ({}, "http://127.0.0.1:1", "INFO"),
        ({"authenticate": by_token}, URL, None),
        ({"middleware": [unreachable]}, URL, None),
    ],
)
def test_the_log_says_that_callers_share_all_tasks(options, url, level, caplog):
    caplog.set_level(logging.INFO, "holdfast.server")
    A2AServer(echo, **options).app(url=url)

    said = [r.levelname for r in caplog.records if "without authentication" in r.getMessage()]
    assert said == ([] if level is None else [level])


# ── gRPC ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P15")
@pytest.mark.real_time
async def test_callers_have_the_same_name_over_grpc():
    server = A2AServer(whose, card={"name": "whose"}, authenticate=by_token)
    bindings = ("JSONRPC", "GRPC")
    ada, bob = (
        (("a2a-version", "1.0"), ("authorization", f"Bearer of-{n}")) for n in ("ada", "bob")
    )
    codes = []
    async with (
        asyncio.timeout(LIMIT),
        server.serving(bindings=bindings) as running,
        grpc.aio.insecure_channel(running.grpc_url) as channel,
        holdfast.connect(running.url, headers=ADA, bindings=["JSONRPC"]) as client,
    ):
        task = (await client.ask("ask")).task
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        wanted = a2a_pb2.GetTaskRequest(id=task.id)
        found = await stub.GetTask(wanted, metadata=ada)
        listed = await stub.ListTasks(a2a_pb2.ListTasksRequest(), metadata=bob)
        page = ("origin", "https://page.example")
        for metadata in (bob, ada[:1], (*ada[:1], ("authorization", "no")), (*ada, page)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.GetTask(wanted, metadata=metadata)
            codes.append(caught.value.code().name)
        silent = stub.SendStreamingMessage(a2a_pb2.SendMessageRequest(), metadata=ada[:1])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await silent.read()
        codes.append(caught.value.code().name)

    assert (found.id, list(listed.tasks)) == (task.id, [])
    assert codes == [
        "NOT_FOUND",
        "UNAUTHENTICATED",
        "UNAUTHENTICATED",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
    ]
