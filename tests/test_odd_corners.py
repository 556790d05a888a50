"""Odd corners of trust and of closing, where something went wrong once; each says what holds."""

import asyncio
import contextlib
import gc
import json
import math
import pydoc

import aiohttp
import msgspec
import pytest
from tests.kit.card_signing import unsigned
from tests.kit.public_names import PUBLIC
from tests.kit.raw_server import always, reply, serve

import holdfast
from holdfast import (
    A2AError,
    AgentCard,
    AiohttpEngine,
    AuthenticationError,
    BudgetPolicy,
    Limits,
    OutcomeUnknownError,
    ReconnectPolicy,
    Resilience,
    RetryPolicy,
    SchemeCredentials,
    TaskFailedError,
    Timeouts,
    connect,
)
from holdfast._wire.network_scope import NetworkReach, scope_of
from holdfast.auth import ClientCallContext
from holdfast.compat import (
    A2ACardResolver,
    ClientConfig,
    ClientFactory,
    InMemoryContextCredentialStore,
)
from holdfast.errors import (
    CredentialOriginError,
    InvalidAgentResponseError,
    LimitExceededError,
    NetworkPolicyError,
)
from holdfast.extend import Endpoints, HttpReply, HttpRequest, Reply
from holdfast.testing import FakeAgent, FakeNetwork, LoopbackServer, fails
from holdfast.types import (
    AgentCapabilities,
    AgentInterface,
    SendMessageResponse,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
)

SECRET = "s3cret-value-of-some-length"


class Own:
    """A transport that answers by itself."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = []
        self.closed = 0

    async def unary(self, call, /):
        self.calls.append(call)
        if self.answers:
            return Reply(value=self.answers.pop(0))
        task = Task(id="own", status=TaskStatus(state=TaskState.COMPLETED))
        sending = call.operation.response is SendMessageResponse
        return Reply(value=SendMessageResponse(task=task) if sending else task)

    async def close(self):
        self.closed += 1


def own_card(*urls, **members):
    interfaces = tuple(
        AgentInterface(url=url, protocol_binding="OWN", protocol_version="1.0") for url in urls
    )
    return AgentCard(name="Mine", supported_interfaces=interfaces, **members)


def move(client, url, **members):
    client._core._resolver.replace(unsigned(own_card(url, **members)), frozenset())


class Answering(FakeNetwork):
    """Answers every POST with what a function makes of it; the card is the fake agent's."""

    def __init__(self, answer, agent=None):
        super().__init__(agent or FakeAgent())
        self.answer = answer

    async def request(self, request):
        if request.method == "GET":
            return await super().request(request)
        request.progress.sent = True
        return self.answer(request)


def rpc(request, **members):
    document = {"jsonrpc": "2.0", "id": json.loads(request.body)["id"], **members}
    return HttpReply(status=200, body=json.dumps(document).encode())


def everything_in(error):
    facts = f"{error!r}{error}{vars(error)}"
    return facts + "".join(f"{attempt}" for attempt in error.attempts)


SPOKEN = {
    "url": "http://agent.test/rpc",
    "protocolBinding": "JSONRPC",
    "protocolVersion": "1.0",
}

# ── Credentials and their origin ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("10.0.0.1:50051", "203.0.113.9:50051"),
        ("dns:///agent.test:50051", "dns:///evil.test:50051"),
        ("ipv4:10.0.0.1:50051", "ipv4:203.0.113.9:50051"),
        ("agent.test:50051", "agent.test:6000"),
    ],
)
async def test_addresses_of_other_bindings_have_origins_that_differ(mine, theirs):
    extended = own_card(theirs)
    own = Own(extended)
    client = connect(
        own_card(mine, capabilities=AgentCapabilities(extended_agent_card=True)),
        engine=FakeNetwork(),
        transport_producers={"OWN": lambda *_: own},
        auth=f"Bearer {SECRET}",
    )
    await client.get_extended_agent_card()

    with pytest.raises(CredentialOriginError):
        await client.get_task("t")  # now at an address that another one named

    assert len(own.calls) == 1


async def test_the_hint_of_a_refused_origin_can_be_followed():
    own = Own()
    agent = FakeAgent(card=own_card("agent.test:50051"))
    options = {
        "engine": FakeNetwork(agent),
        "transport_producers": {"OWN": lambda *_: own},
        "auth": f"Bearer {SECRET}",
    }
    with pytest.raises(CredentialOriginError) as caught:
        await connect("http://agent.test", **options).get_task("t")

    await connect(
        "http://agent.test", credential_origins=[caught.value.origin], **options
    ).get_task("t")


async def test_the_extended_card_of_one_session_does_not_lead_another_astray():
    scheme = {"it": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}
    card = {
        "name": "Many",
        "supportedInterfaces": [SPOKEN],
        "capabilities": {"extendedAgentCard": True},
        "securitySchemes": scheme,
        "securityRequirements": [{"schemes": {"it": {"list": []}}}],
    }
    asked = []

    def answer(request):
        document = json.loads(request.body)
        who = request.headers["authorization"].partition(" ")[2]
        if document["method"] == "GetExtendedAgentCard":
            [own] = card["supportedInterfaces"]
            return rpc(request, result={**card, "supportedInterfaces": [{**own, "tenant": who}]})
        asked.append((who, document["params"].get("tenant")))
        task = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
        return rpc(request, result=task)

    store = InMemoryContextCredentialStore()
    for session in ("alice", "bob"):
        await store.set_credentials(session, "it", session)
    client = connect(
        "http://agent.test", engine=Answering(answer, FakeAgent(card=card)), auth=store
    )
    alice, bob = (ClientCallContext(state={"sessionId": who}) for who in ("alice", "bob"))
    await client.get_extended_agent_card(context=alice)
    await client.get_task("t", context=bob)

    assert asked == [("bob", None)]


# ── The network policy ───────────────────────────────────────────────────────────────────────


@pytest.mark.real_time
@pytest.mark.parametrize(
    "host",
    [
        "169%2e254%2e169%2e254",
        "\uff11\uff16\uff19.254.169.254",
        "169\u3002254\u3002169\u3002254",
        "\u24dbocalhost",
    ],
)
async def test_a_number_in_another_spelling_is_not_handed_to_a_proxy(host, monkeypatch):
    async with serve(always()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "")
        engine = AiohttpEngine()
        card = {
            "name": "Odd",
            "supportedInterfaces": [
                {"url": f"http://{host}/rpc", "protocolBinding": "JSONRPC"},
            ],
        }
        agent = FakeAgent(card=card)

        class CardElsewhere(FakeNetwork):
            async def request(self, request):
                if request.method == "GET":
                    return await super().request(request)
                return await engine.request(request)

        client = connect(
            "http://agent.test", engine=CardElsewhere(agent), resilience=Resilience.off()
        )
        with contextlib.suppress(A2AError):
            await client.get_task("t")
        await engine.close()

        assert proxy.requests == []


@pytest.mark.real_time
async def test_a_lent_session_with_a_proxy_sends_no_number_that_must_not_be_reached():
    async with serve(always()) as proxy, aiohttp.ClientSession(proxy=proxy.url) as session:
        engine = AiohttpEngine(session=session)
        reach = NetworkReach(inward="loopback")
        request = HttpRequest(
            method="POST", url="http://169.254.169.254/", body=b"{}", reach=reach
        )

        with pytest.raises(NetworkPolicyError):
            await engine.request(request)
        assert proxy.requests == []


@pytest.mark.real_time
async def test_a_lent_session_does_not_take_its_proxy_for_the_agent():
    card = {
        "name": "Outside",
        "supportedInterfaces": [{"url": "http://10.0.0.1/rpc", "protocolBinding": "JSONRPC"}],
    }

    async def script(connection):
        while (request := await connection.request()) is not None:
            is_card = request.startswith(b"GET")
            await connection.send(reply(json.dumps(card).encode() if is_card else b"{}"))

    async with serve(script) as proxy, aiohttp.ClientSession(proxy=proxy.url) as session:
        client = connect("http://agent.test", engine=session, resilience=Resilience.off())

        with pytest.raises(NetworkPolicyError):
            await client.get_task("t")
        assert [r for r in proxy.requests if r.startswith(b"POST")] == []


@pytest.mark.parametrize("address", ["fec0::2", "feff::1"])
def test_site_local_addresses_are_not_outside(address):
    assert scope_of(address) == "private"  # RFC 3879: what has them routes them inside only


@pytest.mark.parametrize(
    "address",
    [
        "169.254.42.42",  # Scaleway
        "fd00:42::42",
        "169.254.0.23",  # Tencent Cloud
        "fe80::a9fe:a9fe",  # OpenStack
    ],
)
async def test_a_card_for_this_machine_names_no_metadata(address):
    assert NetworkReach(inward="loopback").refuses(address)


async def test_a_transport_of_ones_own_is_led_to_no_number_that_must_not_be_reached():
    own = Own()
    client = connect(
        "http://agent.test",
        engine=FakeNetwork(FakeAgent(card=own_card("own://169.254.169.254/1"))),
        transport_producers={"OWN": lambda *_: own},
    )
    with pytest.raises(NetworkPolicyError):
        await client.get_task("t")

    assert own.calls == []


@pytest.mark.parametrize(
    "options",
    [
        {"allowed_networks": ["127.0.0.0/8"]},
        {"credential_origins": ["http://127.0.0.1:8000"]},
    ],
)
async def test_what_the_caller_allows_on_this_machine_is_allowed(options):
    card = {
        "name": "Beside",
        "supportedInterfaces": [
            {"url": "http://127.0.0.1:8000/rpc", "protocolBinding": "JSONRPC"}
        ],
    }
    network = FakeNetwork(FakeAgent(card=card), FakeAgent(url="http://127.0.0.1:8000"))

    await connect("http://agent.test", engine=network, **options).ask("hello")


# ── Limits ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-be", "utf-16", "utf-32-be", "utf-32"])
@pytest.mark.parametrize(
    ("metadata", "limits"),
    [
        ({"a": [{}] * 1000}, Limits(json_values=100)),
        (json.loads('{"a":' + "[" * 200 + "]" * 200 + "}"), Limits(json_depth=20)),
    ],
    ids=["values", "depth"],
)
async def test_limits_of_json_hold_in_every_encoding(encoding, metadata, limits):
    def answer(request):
        told = rpc(
            request,
            result={
                "id": "t",
                "contextId": "c",
                "status": {"state": "TASK_STATE_WORKING"},
                "metadata": metadata,
            },
        )
        text = json.dumps(json.loads(told.body))
        return HttpReply(status=200, body=text.encode(encoding))

    client = connect(
        "http://agent.test",
        engine=Answering(answer),
        limits=limits,
        resilience=Resilience.off(),
    )
    with pytest.raises(A2AError) as caught:
        await client.get_task("t")

    assert isinstance(caught.value, LimitExceededError) or encoding != "utf-8"


# ── Secrets ──────────────────────────────────────────────────────────────────────────────────


async def test_a_secret_that_is_cut_off_within_a_message_is_not_shown():
    token = "".join(f"{n:04x}" for n in range(40))
    said = f"{'x' * 350} {token}"  # 500 characters of it are kept, 149 of the token's 160

    def answer(request):
        data = {"detail": "no", "retryable": False}
        return rpc(request, error={"code": -32000, "message": said, "data": data})

    client = connect("http://agent.test", engine=Answering(answer), auth=f"Bearer {token}")
    with pytest.raises(A2AError) as caught:
        await client.get_task("t")

    assert token[:100] not in everything_in(caught.value)


async def test_a_secret_that_is_the_key_of_a_map_is_not_shown():
    token = "".join(f"{n:03x}" for n in range(15))  # 45 characters, of which 40 are kept

    class Echo(FakeNetwork):
        async def request(self, request):
            sent = request.headers["authorization"].partition(" ")[2]
            card = {
                "name": "Echo",
                "supportedInterfaces": [
                    {"url": "http://agent.test/rpc", "protocolBinding": "JSONRPC"}
                ],
                "securitySchemes": {sent: 1},
            }
            return HttpReply(status=200, body=json.dumps(card).encode())

    client = connect("http://agent.test", engine=Echo(FakeAgent()), auth=f"Bearer {token}")
    with pytest.raises(A2AError) as caught:
        await client.get_task("t")

    assert token[:36] not in everything_in(caught.value)


async def test_a_card_whose_name_repeats_a_secret_does_not_show_it(caplog):
    caplog.set_level(1)
    card = {
        "name": f"you sent {SECRET}",
        "supportedInterfaces": [SPOKEN],
        "securitySchemes": {"it": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
        "securityRequirements": [{"schemes": {"it": {"list": []}}}],
    }
    client = connect(
        "http://agent.test",
        engine=FakeNetwork(FakeAgent(card=card)),
        headers={"x-api-key": SECRET},
        auth=SchemeCredentials({"other": SECRET}),
    )
    with pytest.raises(AuthenticationError) as caught:
        await client.get_task("t")

    assert SECRET not in everything_in(caught.value)
    assert SECRET not in caplog.text


async def test_a_card_whose_address_repeats_a_secret_does_not_show_it(caplog):
    caplog.set_level(1)
    card = {
        "name": "Echo",
        "supportedInterfaces": [
            {"url": f"http://agent.test/rpc/{SECRET}", "protocolBinding": "JSONRPC"}
        ],
    }
    client = connect(
        "http://agent.test",
        engine=Answering(lambda _: HttpReply(status=500), FakeAgent(card=card)),
        auth=f"Bearer {SECRET}",
        resilience=Resilience.off(),
    )
    with pytest.raises(A2AError) as caught:
        await client.get_task("t")

    assert SECRET not in everything_in(caught.value)
    assert SECRET not in caplog.text


async def test_an_extended_card_that_repeats_a_secret_does_not_show_it():
    scheme = {"it": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}
    interfaces = [{"url": "http://agent.test/rpc", "protocolBinding": "JSONRPC"}]
    card = {
        "name": "Plain",
        "supportedInterfaces": interfaces,
        "capabilities": {"extendedAgentCard": True},
        "securitySchemes": scheme,
        "securityRequirements": [{"schemes": {"it": {"list": []}}}],
    }

    def answer(request):
        sent = request.headers["authorization"].partition(" ")[2]
        there = [{"url": "http://agent.test/rpc", "protocolBinding": f"for {sent}"}]
        return rpc(request, result={**card, "name": "Echo", "supportedInterfaces": there})

    client = connect(
        "http://agent.test",
        engine=Answering(answer, FakeAgent(card=card)),
        auth=SchemeCredentials({"it": SECRET}),
    )
    await client.get_extended_agent_card()
    with pytest.raises(A2AError) as caught:
        await client.get_task("t")

    assert SECRET not in everything_in(caught.value)


async def test_a_task_that_fails_with_what_it_was_sent_does_not_show_it():
    client = connect(
        "http://agent.test",
        engine=FakeNetwork(FakeAgent(fails(f"upstream refused Bearer {SECRET}"))),
        auth=f"Bearer {SECRET}",
    )
    with pytest.raises(TaskFailedError) as caught:
        await client.ask("hello")

    assert SECRET not in f"{caught.value}{caught.value!r}"


async def test_the_token_of_a_push_notification_is_not_shown():
    def answer(request):
        sent = json.loads(request.body)["params"]
        said = f"cannot use {sent['token']} and {sent['authentication']['credentials']}"
        return rpc(request, error={"code": -32602, "message": said, "data": sent})

    card = {
        "name": "Echo",
        "capabilities": {"pushNotifications": True},
        "supportedInterfaces": [SPOKEN],
    }
    config = TaskPushNotificationConfig.from_dict(
        {
            "taskId": "t",
            "url": "http://me.test/push",
            "token": SECRET,
            "authentication": {"scheme": "Bearer", "credentials": f"{SECRET}-too"},
        }
    )
    client = connect("http://agent.test", engine=Answering(answer, FakeAgent(card=card)))
    with pytest.raises(A2AError) as caught:
        await client.create_task_push_notification_config(config)

    assert SECRET not in everything_in(caught.value)


def test_a_push_notification_shows_no_token():
    config = TaskPushNotificationConfig.from_dict(
        {
            "url": "http://me.test/push",
            "token": SECRET,
            "authentication": {"scheme": "Bearer", "credentials": SECRET},
        }
    )

    assert SECRET not in repr(config)


# ── Transports of the caller's own ───────────────────────────────────────────────────────────


def open_sessions():
    found = [thing for thing in gc.get_objects() if type(thing) is aiohttp.ClientSession]
    return [session for session in found if not session.closed]


@pytest.mark.real_time
async def test_a_transport_that_fails_to_close_leaves_no_connection_behind():
    class Failing(Own):
        async def close(self):
            raise OSError("cannot")

    agent = FakeAgent(card=own_card("own://agent.test/1"))
    async with LoopbackServer(agent) as server:
        client = connect(server.url, transport_producers={"OWN": lambda *_: Failing()})
        await client.get_task("own")
        with contextlib.suppress(OSError):
            await client.close()

        left = open_sessions()
        for session in left:
            await session.close()
    assert left == []


async def test_a_call_does_not_fail_because_another_transport_cannot_be_closed():
    class Failing(Own):
        async def close(self):
            raise OSError("cannot")

    client = connect(
        own_card("own://agent.test/0"),
        engine=FakeNetwork(),
        transport_producers={"OWN": lambda *_: Failing()},
    )
    for number in range(101):
        if number:
            move(client, f"own://agent.test/{number}")
        await client.get_task("own")


async def test_a_transport_is_not_closed_under_a_call():
    class Slow(Own):
        async def unary(self, call, /):
            await asyncio.sleep(60)
            assert not self.closed, "closed while a call was under way"
            return await super().unary(call)

    made = []

    def producer(_card, interface):
        made.append(Slow() if interface.url.endswith("/0") else Own())
        return made[-1]

    client = connect(
        own_card("own://agent.test/0"), engine=FakeNetwork(), transport_producers={"OWN": producer}
    )
    slow = asyncio.create_task(client.get_task("own"))
    await asyncio.sleep(1)
    for number in range(1, 102):
        move(client, f"own://agent.test/{number}")
        await client.get_task("own")

    assert (await slow).id == "own"
    await client.close()


def test_a_transport_belongs_to_its_event_loop():
    made = []

    class Bound(Own):
        def __init__(self):
            super().__init__()
            self.loop = asyncio.get_running_loop()

        async def unary(self, call, /):
            assert self.loop is asyncio.get_running_loop()
            return await super().unary(call)

    def producer(*_):
        made.append(Bound())
        return made[-1]

    client = connect(
        own_card("own://agent.test/1"), engine=FakeNetwork(), transport_producers={"OWN": producer}
    )
    asyncio.run(client.get_task("own"))
    asyncio.run(client.get_task("own"))

    assert len(made) == 2


async def test_a_transport_that_counts_as_false_is_made_once():
    class Empty(Own):
        def __len__(self):
            return 0

    made = []

    def producer(*_):
        made.append(Empty())
        return made[-1]

    client = connect(
        own_card("own://agent.test/1"), engine=FakeNetwork(), transport_producers={"OWN": producer}
    )
    for _ in range(3):
        await client.get_task("own")
    await client.close()

    assert [own.closed for own in made] == [1]


async def test_a_producer_is_given_the_interface_of_its_own_card():
    asked = []
    shared = Endpoints()

    def producer(_card, interface):
        asked.append(interface.protocol_version)
        return Own()

    offered = own_card("own://agent.test/1")
    [interface] = offered.supported_interfaces
    older = msgspec.structs.replace(
        offered,
        supported_interfaces=(msgspec.structs.replace(interface, protocol_version="0.3"),),
    )
    for card in (offered, older):
        client = connect(
            card, engine=FakeNetwork(), shared=shared, transport_producers={"OWN": producer}
        )
        await client.get_task("own")

    assert asked == ["1.0", "0.3"]


@pytest.mark.parametrize(("registered", "named"), [("jsonrpc", "JSONRPC"), ("GRPC", "grpc")])
async def test_a_binding_of_ones_own_is_known_in_either_case(registered, named):
    own = Own()
    factory = ClientFactory(ClientConfig(engine=FakeNetwork(FakeAgent())))
    factory.register(registered, lambda *_: own)
    interface = AgentInterface(url="http://agent.test/rpc", protocol_binding=named)
    card = AgentCard(name="Mine", supported_interfaces=(interface,))

    await factory.create(card).send_message("hello")

    assert len(own.calls) == 1


# ── What grows, what stays open ──────────────────────────────────────────────────────────────


@pytest.mark.real_time
async def test_an_engine_whose_closing_is_cancelled_leaves_nothing_open():
    engine = AiohttpEngine()
    async with serve(always()) as server:
        for idle in (1.0, 2.0, 3.0, 4.0):
            await engine.request(HttpRequest(method="POST", url=server.url, max_idle=idle))
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        closing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await closing
        await engine.close()  # a second try must find what the first one left

        left = open_sessions()
        for session in left:
            await session.close()
    assert left == []


async def test_a_card_resolver_that_is_closed_fetches_no_more():
    resolver = A2ACardResolver("http://agent.test", engine=FakeNetwork(FakeAgent()))
    await resolver.close()

    with pytest.raises(RuntimeError, match="closed"):
        await resolver.get_agent_card()


# ── What is known of a failure ───────────────────────────────────────────────────────────────


PAGE = b"<html>" + b"busy " * 1000


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("headers", "limits"),
    [
        (("Content-Encoding: br",), Limits()),
        (("Content-Encoding: gzip",), Limits()),
        ((), Limits(body=1000)),
    ],
    ids=["a coding not asked for", "broken compression", "a page beyond the limit"],
)
async def test_a_page_that_cannot_be_read_has_a_status_all_the_same(headers, limits):
    busy = reply(PAGE, "Retry-After: 7", *headers, status="503 Busy")
    engine = AiohttpEngine()
    async with serve(always(busy)) as server:
        card = {
            "name": "Busy",
            "supportedInterfaces": [{"url": server.url, "protocolBinding": "JSONRPC"}],
        }
        client = connect(card, engine=engine, limits=limits, resilience=Resilience.off())
        with pytest.raises(A2AError) as of_a_read:
            await client.get_task("t")
        with pytest.raises(OutcomeUnknownError) as of_a_message:
            await client.send_message("hello")
        await engine.close()

    assert of_a_read.value.transient
    for error in (of_a_read.value, of_a_message.value):
        # What cannot be read may be an agent's.
        assert (error.http_status, error.retry_after, error.executed) == (503, 7.0, None)


@pytest.mark.real_time
async def test_an_old_card_stands_in_while_a_page_comes_that_cannot_be_read():
    served = []

    async def script(connection):
        while (await connection.request()) is not None:
            served.append(connection)
            card = {
                "name": "Old",
                "supportedInterfaces": [{"url": server.url, "protocolBinding": "JSONRPC"}],
            }
            body = json.dumps(card).encode()
            good = reply(body, "Cache-Control: max-age=0, stale-if-error=60")
            bad = reply(PAGE, "Content-Encoding: br", status="503 Busy")
            await connection.send(good if len(served) == 1 else bad)

    engine = AiohttpEngine()
    async with serve(script) as server:
        client = connect(server.url, engine=engine, card_ttl=0, resilience=Resilience.off())
        first = await client.agent_card()
        assert await client.agent_card() is first
        await engine.close()

    assert len(served) == 2


# ── What a person would ask ──────────────────────────────────────────────────────────────────


ANOTHER = b'{"jsonrpc": "2.0", "id": "another", "result": {}}'


@pytest.mark.parametrize(
    ("body", "limits", "kind"),
    [
        (b"<html>", Limits(), InvalidAgentResponseError),
        (ANOTHER, Limits(), InvalidAgentResponseError),
        (b'{"a": [[[[1]]]]}', Limits(json_depth=3), LimitExceededError),
    ],
)
async def test_a_message_whose_reply_says_nothing_is_named(body, limits, kind):
    card = {
        "name": "Mute",
        "supportedInterfaces": [SPOKEN],
    }
    network = Answering(lambda _: HttpReply(status=200, body=body))
    client = connect(card, engine=network, limits=limits)
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}

    with pytest.raises(kind) as caught:
        await client.send_message(message)
    assert caught.value.executed is None
    assert "message m-1 was sent, and may have been executed" in str(caught.value)

    with pytest.raises(A2AError) as caught:
        await client.get_task("t")
    assert "may have been executed" not in str(caught.value)


def test_what_is_public_can_be_looked_at():
    assert "the A2A client" in pydoc.render_doc(holdfast)
    for thing in PUBLIC.values():
        if isinstance(thing, type):
            pydoc.render_doc(thing)


async def test_where_a_card_leads_is_named_when_it_fails():
    class Moved(FakeNetwork):
        async def request(self, request):
            if request.url.startswith("http://agent.test/"):
                headers = {"location": "http://login.test/in"}
                return HttpReply(status=302, headers=headers)
            return await super().request(request)

    client = connect("http://agent.test", engine=Moved(), resilience=Resilience.off())
    with pytest.raises(A2AError) as caught:
        await client.agent_card()

    assert caught.value.agent == "http://login.test/in"
    told = "could not be resolved, where http://agent.test/.well-known/agent-card.json leads"
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Resilience(retry=3), "retry must be RetryPolicy, not int"),
        (lambda: Resilience(timeouts=5), "timeouts must be Timeouts, not int"),
        (
            lambda: Resilience(budget=5),
            "budget must be BudgetPolicy, or None to switch it off, not int",
        ),
        (lambda: Resilience(refusals=[429]), "refusals must be frozenset, not list"),
        (lambda: Timeouts(connect="5"), "connect must be a number, not str"),
        (lambda: Timeouts(idle=True), "idle must be a number, not bool"),
        (lambda: RetryPolicy(max_retries="3"), "max_retries must be a whole number, not str"),
        (lambda: RetryPolicy(max_retries=1.5), "max_retries must be a whole number, not float"),
        (lambda: RetryPolicy(max_retries=True), "max_retries must be a whole number, not bool"),
        (lambda: RetryPolicy(base_delay=True), "base_delay must be a number, not bool"),
        (lambda: RetryPolicy(jitter=0.5), "jitter must be bool, not float"),
        (lambda: RetryPolicy(retry_predicate=False), "retry_predicate must be callable; bool is"),
        (lambda: RetryPolicy(on_retry="log"), "on_retry must be callable; str is not"),
        (lambda: ReconnectPolicy(max_reconnects=1.5), "max_reconnects must be a whole number"),
        (lambda: ReconnectPolicy(max_reconnects=math.inf), "max_reconnects must be a whole num"),
        (lambda: ReconnectPolicy(max_reconnects=False), "max_reconnects must be a whole number"),
        (lambda: BudgetPolicy(tokens="x"), "tokens must be a whole number, not str"),
        (lambda: BudgetPolicy(tokens=2.5), "tokens must be a whole number, not float"),
        (lambda: Resilience(refusals=frozenset({"429"})), "each of refusals must be a whole num"),
        (lambda: AiohttpEngine(proxies="http://p"), "proxies must be bool, not str"),
        (lambda: AiohttpEngine(session=3), "session must be ClientSession, not int"),
        (
            lambda: AiohttpEngine(ssl=None),
            "ssl must be a TlsConfig, a file, a context or a bool, not NoneType",
        ),
        (
            lambda: AiohttpEngine(ssl=0),
            "ssl must be a TlsConfig, a file, a context or a bool, not int",
        ),
        (lambda: AiohttpEngine(max_streams=1.5), "max_streams must be a whole number, not float"),
        (lambda: AiohttpEngine(max_connections=True), "max_connections must be a whole number"),
    ],
)
def test_settings_of_another_type_are_named(make, said):
    with pytest.raises(TypeError, match=said):
        make()


async def test_an_extended_card_fetched_with_a_users_own_headers_leads_nobody_else():
    own = {
        "name": "Public",
        "supportedInterfaces": [SPOKEN],
        "capabilities": {"extendedAgentCard": True},
    }
    network = Answering(lambda request: rpc(request, result={**own, "name": "Extended"}))
    client = connect(own, engine=network)

    extended = await client.get_extended_agent_card(headers={"authorization": "Bearer alice"})
    assert (extended.name, (await client.agent_card()).name) == ("Extended", "Public")

    await client.get_extended_agent_card()
    assert (await client.agent_card()).name == "Extended"


# ── Artifacts that share an id ───────────────────────────────────────────────────────────────


def alike(state):
    """A task with two artifacts of an agent that gives them no ids."""
    artifacts = [{"parts": [{"text": text}]} for text in ("one", "two")]
    return {"id": "t", "contextId": "c", "status": {"state": state}, "artifacts": artifacts}


def answering_alike(*states):
    left = list(states)

    def answer(request):
        is_sent = json.loads(request.body)["method"] == "SendMessage"
        task = alike(left.pop(0))
        return rpc(request, result={"task": task} if is_sent else task)

    return connect("http://agent.test", engine=Answering(answer, FakeAgent(streaming=False)))


async def test_the_text_of_artifacts_that_share_an_id_comes_to_an_end():
    client = answering_alike("TASK_STATE_COMPLETED")

    async with client.stream_message("hi") as events:
        text = "".join([delta async for delta in events.text_deltas()])
        answer = await events.result()

    assert text == answer.text == "one\ntwo"


async def test_artifacts_that_share_an_id_are_all_told_while_the_task_works():
    working = "TASK_STATE_WORKING"
    client = answering_alike(working, working, working, "TASK_STATE_COMPLETED")

    async with client.stream_message("hi") as events:
        assert [events.task.text async for _ in events] == ["one\ntwo"] * 2
