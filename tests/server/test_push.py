"""Push notifications that a served agent sends: what they hold, and where they may lead."""

import asyncio
import json
import socket

import pytest
from a2a.server.tasks import InMemoryPushNotificationConfigStore
from tests.kit.asgi_server import serving
from tests.kit.real_agents import LIMIT
from tests.kit.served_agents import calling, echo

import holdfast
from holdfast.errors import InvalidParamsError
from holdfast.extend import HttpReply
from holdfast.push import PushReceiver
from holdfast.server import A2AServer
from holdfast.types import TaskPushNotificationConfig

METADATA = [
    "169.254.169.254",
    "[::ffff:169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "169.254.170.2",
    "100.100.100.200",
    "100.96.0.96",
    "192.0.0.192",
    "168.63.129.16",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[fd00:c1::a9fe:a9fe]",
    "[fd00:a9fe:a9fe::1]",
]


class Carrying:
    """An engine that notes what it is to carry, and answers as it is told."""

    def __init__(self, status=200):
        self.status = status
        self.requests = []
        self.closed = False

    async def request(self, request):
        raise AssertionError("the reply of a push is not read")

    def stream(self, request):
        self.requests.append(request)
        return Replied(self.status)

    async def close(self):
        self.closed = True


class Replied:
    def __init__(self, status):
        self.status = status

    async def __aenter__(self):
        if isinstance(self.status, Exception):
            raise self.status
        return HttpReply(status=self.status)

    async def __aexit__(self, *_):
        pass


@pytest.fixture
def resolving(monkeypatch):
    """Has a name lead to one address after the other, and then always to the last."""
    real = socket.getaddrinfo
    addresses = []

    def getaddrinfo(host, port, *args, **kwargs):
        if host == "hooks.test":
            host = addresses.pop(0) if len(addresses) > 1 else addresses[0]
        return real(host, port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return addresses


def config(url, **members):
    return TaskPushNotificationConfig(url=url, **members)


async def ask(server_options, url, **members):
    async with calling(echo, push=True, **server_options) as client:
        return await client.ask("hello", push_notification_config=config(url, **members))


# ── What is sent ─────────────────────────────────────────────────────────────────────────────


async def test_pushes_go_through_the_engine_with_what_the_client_gave():
    engine = Carrying()
    basic = holdfast.types.AuthenticationInfo(scheme="Bearer", credentials="secret")
    options = {"push_engine": engine, "push_networks": ["127.0.0.0/8"]}

    await ask(options, "http://127.0.0.1/hook", token="mine", authentication=basic)

    kinds = [next(iter(json.loads(request.body))) for request in engine.requests]
    assert kinds == ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]
    first = engine.requests[0]
    assert (first.method, first.url) == ("POST", "http://127.0.0.1/hook")
    assert first.headers == {
        "content-type": "application/json",
        "x-a2a-notification-token": "mine",
        "authorization": "Bearer secret",
    }
    assert not first.reach.refuses("127.0.0.1")
    assert first.reach.refuses("10.0.0.1")
    assert not engine.closed


@pytest.mark.parametrize(
    ("status", "says"),
    [(302, "HTTP 302"), (500, "HTTP 500"), (RuntimeError("broken"), "broken")],
)
async def test_a_push_that_fails_is_logged_and_leaves_the_task_alone(status, says, caplog):
    options = {"push_engine": Carrying(status), "push_networks": ["127.0.0.0/8"]}

    answer = await ask(options, "http://127.0.0.1/hook?key=hunter2", token="hunter2")

    assert answer.text == "You said hello"
    assert says in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("token", ["a\r\nx: y", "snow\u2603"])
async def test_a_token_that_is_no_header_is_not_sent(token):
    engine = Carrying()

    await ask(
        {"push_engine": engine, "push_networks": ["127.0.0.0/8"]}, "http://127.0.0.1/", token=token
    )

    assert engine.requests == []


# ── Where they may lead ──────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P13")
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost:1/",
        "http://10.0.0.1/",
        "http://[::1]/",
        "http://0.0.0.0/",
        "http://169.254.1.1/",
        "ftp://8.8.8.8/",
        "http://me@8.8.8.8/",
        "http://8.8.8.8\\@127.0.0.1/",
        "file:///etc/passwd",
        *(f"http://{host}/latest/meta-data" for host in METADATA),
    ],
)
async def test_an_address_inside_is_refused_when_it_is_named(url, caplog):
    with pytest.raises(holdfast.errors.InvalidParamsError):
        await ask({"push_engine": Carrying()}, url)

    assert "are refused: " in caplog.text


@pytest.mark.rule("P13")
@pytest.mark.parametrize("host", [*METADATA, "169.254.1.1", "[fe80::1]"])
async def test_a_validator_opens_private_networks_and_no_metadata(host):
    async def anything(_):
        return True

    engine = Carrying()
    options = {"push_engine": engine, "push_url_validator": anything}
    await ask(options, "http://10.0.0.1/")
    assert engine.requests

    with pytest.raises(holdfast.errors.InvalidParamsError):
        await ask(options, f"http://{host}/")
    with pytest.raises(holdfast.errors.InvalidParamsError):
        await ask({**options, "push_networks": ()}, "http://10.0.0.1/")


async def test_a_validator_narrows():
    async def nothing(_):
        return False

    with pytest.raises(holdfast.errors.InvalidParamsError):
        await ask({"push_engine": Carrying(), "push_url_validator": nothing}, "http://8.8.8.8/")


@pytest.mark.rule("P13")
@pytest.mark.real_time
async def test_a_name_that_leads_inside_later_is_refused_where_the_socket_is_made(
    resolving, caplog
):
    resolving += ["8.8.8.8", "127.0.0.1"]
    connections = []
    async with asyncio.timeout(LIMIT):
        listener = await asyncio.start_server(
            lambda _, writer: (connections.append(1), writer.close()), "127.0.0.1", 0
        )
        async with listener:
            port = listener.sockets[0].getsockname()[1]
            answer = await ask({}, f"http://hooks.test:{port}/")

    assert answer.text == "You said hello"
    assert connections == []
    assert "resolves to 127.0.0.1" in caplog.text
    assert 'push_networks=("127.0.0.1",)' in caplog.text


@pytest.mark.rule("P13")
@pytest.mark.real_time
async def test_a_push_arrives_in_a_network_that_is_allowed_and_not_by_way_of_a_proxy(
    resolving, monkeypatch
):
    resolving += ["127.0.0.1"]
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "")
    seen = []

    def received(url):
        port = url.rpartition(":")[2]
        receiver = PushReceiver(f"http://hooks.test:{port}/push")

        async def serve(scope, receive, send):
            seen.append(scope["method"])
            await receiver(scope, receive, send)

        serve.receiver = receiver
        return serve

    async with asyncio.timeout(LIMIT), serving(received) as app:
        receiver = app.receiver
        pushed = receiver.config()
        async with calling(echo, push=True, push_networks=["127.0.0.1"]) as client:
            answer = await client.ask("hello", push_notification_config=pushed)
            receiver.expect(answer.task_id, pushed)
            done = await receiver.wait(answer.task_id)

    assert done.text == "You said hello"
    assert set(seen) == {"POST"}


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"push_networks": ["10.0.0.0/8"]}, ValueError, "need push=True"),
        ({"push_engine": Carrying()}, ValueError, "need push=True"),
        ({"push": True, "push_networks": "10.0.0.0/8"}, TypeError, "a sequence"),
        ({"push": True, "push_networks": ["x"]}, ValueError, "not a network"),
        ({"push": True, "push_engine": 1}, TypeError, "push_engine must have the methods"),
        (
            {"push": True, "push_engine": Carrying(), "push_sender": object()},
            ValueError,
            "omit push_sender",
        ),
    ],
)
def test_options_that_cannot_be_right_are_errors(options, kind, says):
    with pytest.raises(kind, match=says):
        A2AServer(echo, **options)


# ── How many ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P14")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a_task_has_as_many_configurations_as_it_may_have_and_no_more(binding):
    options = {"push": True, "push_engine": Carrying(), "push_networks": ["127.0.0.0/8"]}
    async with calling(echo, binding, **options, max_push_configs=2) as client:
        url = "http://127.0.0.1/hook"
        task = (await client.ask("hello", push_notification_config=config(url, id="a"))).task
        make = client.create_task_push_notification_config

        await make(config(url, task_id=task.id, id="b"))
        for too_many in (config(url, task_id=task.id, id="c"), config(url, task_id=task.id)):
            with pytest.raises(
                InvalidParamsError, match=r"2 push notification config.*may have 2"
            ):
                await make(too_many)
        replaced = await make(config(f"{url}/new", task_id=task.id, id="b"))
        await client.delete_task_push_notification_config(task.id, "a")
        await make(config(url, task_id=task.id, id="c"))
        page = await client.list_task_push_notification_configs(task.id)

    assert replaced.url == f"{url}/new"
    assert sorted(one.id for one in page.configs) == ["b", "c"]


async def test_configurations_made_at_once_are_counted_one_by_one():
    options = {"push": True, "push_networks": ["127.0.0.0/8"], "max_push_configs": 3}
    async with calling(echo, **options) as client:
        task = (await client.ask("hello")).task
        made = [
            client.create_task_push_notification_config(
                config("http://127.0.0.1/hook", task_id=task.id, id=str(number))
            )
            for number in range(20)
        ]
        outcomes = await asyncio.gather(*made, return_exceptions=True)
        page = await client.list_task_push_notification_configs(task.id)

    assert sum(isinstance(one, InvalidParamsError) for one in outcomes) == 17
    assert len(page.configs) == 3


async def test_a_configuration_that_its_store_does_not_take_holds_up_no_other_task():
    class Stuck(InMemoryPushNotificationConfigStore):
        async def set_info(self, task_id, notification_config, context):
            if notification_config.id == "stuck":
                await asyncio.sleep(60)
            return await super().set_info(task_id, notification_config, context)

    options = {"push": Stuck(), "push_networks": ["127.0.0.0/8"]}
    async with calling(echo, **options) as client:
        tasks = [(await client.ask("hello")).task for _ in range(2)]
        hook, make = "http://127.0.0.1/hook", client.create_task_push_notification_config
        stuck = asyncio.create_task(make(config(hook, task_id=tasks[0].id, id="stuck")))
        await asyncio.sleep(1)
        clock = asyncio.get_running_loop().time
        began = clock()
        await make(config(hook, task_id=tasks[1].id, id="b"))
        assert clock() - began < 30
        await stuck


def test_a_bound_that_lets_none_in_is_refused():
    with pytest.raises(ValueError, match="max_push_configs must be at least 1"):
        A2AServer(echo, push=True, max_push_configs=0)
