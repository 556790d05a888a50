"""Clients that are configured alike, bindings of the caller's own, and hooks that come later."""

import asyncio
import json
import re

import msgspec
import pytest
from tests.kit.card_signing import unsigned

from holdfast import (
    A2AConnectionError,
    AgentCard,
    AgentCardResolutionError,
    AuthenticationError,
    Client,
    DeadlineExceededError,
    OutcomeUnknownError,
    SchemeCredentials,
    TaskNotFoundError,
    connect,
)
from holdfast.compat import AuthInterceptor, ClientConfig, ClientFactory, minimal_agent_card
from holdfast.errors import CredentialOriginError, InvalidAgentCardError
from holdfast.extend import AiohttpEngine, BaseLayer, Interceptor, Reply
from holdfast.observe import RetryScheduled
from holdfast.testing import FakeAgent, FakeNetwork, Refuse, works_forever
from holdfast.types import (
    AgentInterface,
    SendMessageConfiguration,
    SendMessageResponse,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
)

SECRET = "s3cret-value"
PUSH = TaskPushNotificationConfig(url="http://me.test/push", token=SECRET)


def now():
    return asyncio.get_running_loop().time()


def card(*bindings, **members):
    paths = {"JSONRPC": "http://agent.test/rpc", "HTTP+JSON": "http://agent.test/rest"}
    interfaces = tuple(
        AgentInterface(
            url=paths.get(binding, "own://agent.test/1"),
            protocol_binding=binding,
            protocol_version="1.0",
        )
        for binding in bindings
    )
    return AgentCard(name="Mine", supported_interfaces=interfaces, **members)


def made(agent=None, consumers=(), **options):
    """A factory whose clients reach one fake agent."""
    network = FakeNetwork(agent or FakeAgent())
    return ClientFactory(ClientConfig(engine=network, **options), consumers)


def configuration(received):
    """The configuration of a message as it was sent."""
    document = json.loads(received.body)
    return document.get("params", document).get("configuration", {})


# ── The configuration ────────────────────────────────────────────────────────────────────────


def test_a_configuration_is_frozen_and_keeps_what_it_was_given():
    bindings = ["JSONRPC"]
    config = ClientConfig(supported_protocol_bindings=bindings)
    bindings.append("HTTP+JSON")

    assert config.supported_protocol_bindings == ("JSONRPC",)
    with pytest.raises(AttributeError):
        config.polling = True


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"polling": 1}, TypeError),
        ({"use_client_preference": "yes"}, TypeError),
        ({"supported_protocol_bindings": "JSONRPC"}, TypeError),
        ({"supported_protocol_bindings": [7]}, TypeError),
        ({"supported_protocol_bindings": [""]}, ValueError),
        ({"accepted_output_modes": "text/plain"}, TypeError),
        ({"accepted_output_modes": [None]}, TypeError),
        ({"accepted_output_modes": [""]}, ValueError),
        ({"push_notification_configs": [{"url": "http://me.test"}]}, TypeError),
        ({"push_notification_configs": PUSH}, TypeError),
        ({"push_notification_configs": [TaskPushNotificationConfig()]}, ValueError),
        ({"push_notification_configs": [PUSH, PUSH]}, ValueError),
        ({"streaming": "yes"}, TypeError),
        ({"grpc_channel_factory": "a:1"}, TypeError),
    ],
    ids=str,
)
def test_a_configuration_that_cannot_be_right_is_refused(options, error):
    with pytest.raises(error) as caught:
        ClientConfig(**options)
    assert SECRET not in str(caught.value)


def test_a_configuration_does_not_show_the_receivers_token():
    assert SECRET not in repr(ClientConfig(push_notification_configs=[PUSH]))


@pytest.mark.parametrize("engine", [7, "http", FakeNetwork])
def test_an_engine_that_is_none_is_refused(engine):
    with pytest.raises(TypeError, match="engine must"):
        ClientFactory(ClientConfig(engine=engine)).create(card("JSONRPC"))


# ── Making clients ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["card", "dict", "file", "url"])
async def test_a_factory_makes_clients_of_whatever_names_an_agent(how, tmp_path):
    own = card("JSONRPC")
    path = tmp_path / "card.json"
    path.write_text(own.to_json())
    named = {"card": own, "dict": own.to_dict(), "file": path, "url": "http://agent.test"}[how]

    async with made().create(named) as client:
        assert isinstance(client, Client)
        assert (await client.ask("hello")).text == "hello"


async def test_a_factory_needs_no_configuration():
    async with ClientFactory().create(card("JSONRPC")) as client:
        assert (await client.agent_card()).name == "Mine"


@pytest.mark.parametrize(
    ("offered", "supported", "prefer", "chosen"),
    [
        (["JSONRPC", "HTTP+JSON"], [], False, "/rpc"),
        (["HTTP+JSON", "JSONRPC"], [], False, "/rest"),
        (["HTTP+JSON", "JSONRPC"], ["JSONRPC", "HTTP+JSON"], False, "/rest"),
        (["HTTP+JSON", "JSONRPC"], ["JSONRPC", "HTTP+JSON"], True, "/rpc"),
        (["HTTP+JSON", "JSONRPC"], ["JSONRPC"], False, "/rpc"),
        (["JSONRPC", "HTTP+JSON"], ["HTTP+JSON"], True, "/rest"),
        (["GRPC", "HTTP+JSON", "JSONRPC"], [], True, "/rest"),
    ],
)
async def test_the_cards_order_counts_unless_the_clients_is_to(offered, supported, prefer, chosen):
    agent = FakeAgent()
    factory = made(agent, supported_protocol_bindings=supported, use_client_preference=prefer)

    await factory.create(card(*offered)).send_message("hello")

    assert chosen in agent.received[0].url


@pytest.mark.parametrize("as_dict", [False, True])
@pytest.mark.parametrize(
    ("offered", "supported", "says"),
    [
        (["GRPC"], [], "offers only GRPC; this client speaks JSONRPC, HTTP+JSON"),
        (["JSONRPC"], ["HTTP+JSON"], "offers only JSONRPC; this client speaks HTTP+JSON"),
        (
            ["JSONRPC"],
            ["PIGEON"],
            "'PIGEON' in supported_protocol_bindings is not a binding",
        ),
    ],
)
def test_a_card_that_does_not_match_is_refused_at_once(offered, supported, says, as_dict):
    own = card(*offered)

    with pytest.raises(ValueError, match=re.escape(says)):
        made(supported_protocol_bindings=supported).create(own.to_dict() if as_dict else own)


def test_a_card_of_another_protocol_is_refused_at_once():
    [interface] = card("JSONRPC").supported_interfaces
    old = msgspec.structs.replace(interface, protocol_version="2.0")

    with pytest.raises(ValueError, match=r"speaks protocol 2\.0"):
        made().create(AgentCard(name="Old", supported_interfaces=(old,)))


async def test_a_card_that_must_be_fetched_is_refused_by_the_first_call():
    agent = FakeAgent(bindings=("JSONRPC",))
    client = made(agent, supported_protocol_bindings=["HTTP+JSON"]).create(agent.url)

    with pytest.raises(AgentCardResolutionError, match="offers only JSONRPC") as caught:
        await client.send_message("hello")

    assert (caught.value.executed, agent.calls("SendMessage")) == (False, [])


def test_what_is_no_card_is_refused():
    with pytest.raises(InvalidAgentCardError):
        made().create({"name": "x"})
    with pytest.raises(TypeError, match="agent must be a URL, a Path, an AgentCard or a dict"):
        made().create(7)
    with pytest.raises(TypeError):
        made().create(card("JSONRPC"), consumers=[7])
    with pytest.raises(TypeError):
        made().create(card("JSONRPC"), interceptors=[7])
    with pytest.raises(TypeError):
        ClientFactory({"polling": True})
    with pytest.raises(TypeError):
        ClientFactory(consumers=[7])


async def test_options_of_connect_go_with_the_client():
    agent = FakeAgent(token="t0ken")
    client = made(agent).create(card("JSONRPC"), auth="Bearer t0ken", headers={"x-team": "blue"})

    assert (await client.ask("hello")).text == "hello"
    assert agent.received[-1].headers["x-team"] == "blue"


# ── What goes with each message ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_the_configuration_goes_with_each_message(binding):
    agent = FakeAgent()
    client = made(
        agent,
        polling=True,
        accepted_output_modes=["text/plain", "application/json"],
        push_notification_configs=[PUSH],
    ).create(card(binding))

    await client.send_message("hello")
    await client.ask("hello")

    for received in agent.received:
        assert configuration(received) == {
            "acceptedOutputModes": ["text/plain", "application/json"],
            "taskPushNotificationConfig": {"url": PUSH.url, "token": SECRET},
            "returnImmediately": True,
        }


async def test_what_a_call_says_counts_for_it_alone():
    agent = FakeAgent()
    default = SendMessageConfiguration(
        accepted_output_modes=("text/plain",),
        task_push_notification_config=PUSH,
        history_length=3,
        return_immediately=True,
    )
    network = FakeNetwork(agent)
    client = connect(agent.url, engine=network, configuration=default, streaming=False)
    other = TaskPushNotificationConfig(url="http://you.test")

    await client.send_message(
        "hello",
        accepted_output_modes=["image/png"],
        push_notification_config=other,
        history_length=0,
        return_immediately=False,
    )
    await client.ask("hello", accepted_output_modes=[], push_notification_config=other)
    await client.send_message("hello")

    said, asked, plain = (configuration(call) for call in agent.calls("SendMessage"))
    assert said == {
        "acceptedOutputModes": ["image/png"],
        "taskPushNotificationConfig": {"url": "http://you.test"},
        "historyLength": 0,
    }
    assert asked == {
        "taskPushNotificationConfig": {"url": "http://you.test"},
        "historyLength": 3,
        "returnImmediately": True,
    }
    assert plain == default.to_dict()


async def test_polling_returns_before_the_task_is_over():
    agent = FakeAgent(works_forever())

    task = await made(agent, polling=True).create(card("JSONRPC")).send_message("hello")

    assert not task.state.is_terminal


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"accepted_output_modes": "text/plain"}, TypeError),
        ({"accepted_output_modes": [""]}, ValueError),
        ({"push_notification_config": {"url": "http://me.test"}}, TypeError),
        ({"push_notification_config": TaskPushNotificationConfig()}, ValueError),
    ],
)
@pytest.mark.parametrize("operation", ["ask", "send_message"])
async def test_what_a_call_says_is_checked(operation, options, error):
    agent = FakeAgent()
    with pytest.raises(error):
        await getattr(made(agent).create(card("JSONRPC")), operation)("hello", **options)
    assert agent.received == []


@pytest.mark.parametrize(
    ("members", "error", "what"),
    [
        ({"history_length": -1}, ValueError, "history_length must not be negative"),
        ({"history_length": "3"}, TypeError, "history_length"),
        ({"accepted_output_modes": ("",)}, ValueError, "accepted_output_modes"),
        ({"accepted_output_modes": "text/plain"}, TypeError, "accepted_output_modes"),
        ({"task_push_notification_config": {"url": PUSH.url}}, TypeError, "push notification"),
        (
            {"task_push_notification_config": TaskPushNotificationConfig()},
            ValueError,
            "push notification",
        ),
        ({"return_immediately": "no"}, TypeError, "return_immediately"),
    ],
)
def test_a_clients_configuration_is_checked_as_that_of_a_call_is(members, error, what):
    configuration = SendMessageConfiguration(**members)

    with pytest.raises(error, match=what):
        connect("http://agent.test", engine=FakeNetwork(), configuration=configuration)


@pytest.mark.parametrize("configuration", [7, {"returnImmediately": True}])
def test_a_clients_configuration_is_one(configuration):
    with pytest.raises(TypeError, match="configuration must be SendMessageConfiguration"):
        connect("http://agent.test", engine=FakeNetwork(), configuration=configuration)


# ── Bindings of the caller's own ─────────────────────────────────────────────────────────────


class Own:
    """A transport that answers by itself, after failing as it is told."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.calls = []
        self.closed = 0

    async def unary(self, call, /):
        self.calls.append(call)
        if self.failures:
            raise self.failures.pop(0)
        task = Task(id="own", status=TaskStatus(state=TaskState.COMPLETED))
        sending = call.operation.response is SendMessageResponse
        return Reply(value=SendMessageResponse(task=task) if sending else task)

    async def close(self):
        self.closed += 1


def refused():
    return A2AConnectionError("nobody there", failure="refused", executed=False, transient=True)


async def test_a_binding_of_ones_own_stands_under_all_layers():
    agent, own, asked, seen = FakeAgent(), Own(refused()), [], []
    factory = made(agent, consumers=[lambda *event: seen.append(event)])
    config = factory._config
    offered = card("OWN", "JSONRPC")
    factory.register("OWN", lambda *given: asked.append(given) or own)

    async with factory.create(offered, headers={"x-team": "blue"}) as client:
        task = await client.send_message("hello")
        assert (await client.get_task("own")).id == task.id == "own"
    await client.close()

    assert asked == [(offered, "own://agent.test/1", config)]
    first, again, get = own.calls
    assert (first.attempt, again.attempt, get.attempt) == (1, 2, 1)
    assert first.params.message.message_id == again.params.message.message_id
    assert first.headers == {"x-team": "blue"}
    assert [task.id for task, _, _ in seen] == ["own"]
    assert (own.closed, agent.received) == (1, [])


async def test_a_binding_of_ones_own_can_be_connected_without_a_factory():
    own, asked = Own(), []
    offered = card("OWN")
    client = connect(
        offered,
        engine=FakeNetwork(),
        tenant="mine",
        bindings=["OWN"],
        transport_producers={"OWN": lambda *given: asked.append(given) or own},
    )

    reply = await client.call(*get_task())

    assert reply.endpoint.agent == "own://agent.test/1"
    assert (own.calls[0].params.tenant, reply.attempts[0].executed) == ("mine", True)
    [(its_card, interface)] = asked
    assert (its_card, interface.tenant, interface.url) == (offered, "mine", "own://agent.test/1")
    operation, params = get_task()
    await client.call(operation, msgspec.structs.replace(params, tenant="other"))
    assert own.calls[1].params.tenant == "other"


def get_task():
    from holdfast.protocol import GET_TASK
    from holdfast.types import GetTaskRequest

    return GET_TASK, GetTaskRequest(id="own")


async def test_a_binding_can_be_taken_over_whatever_version_its_card_names():
    own = Own()
    factory = made()
    factory.register("JSONRPC", lambda *_: own)
    [interface] = card("JSONRPC").supported_interfaces
    older = msgspec.structs.replace(interface, protocol_version="0.3")

    client = factory.create(AgentCard(name="Old", supported_interfaces=(older,)))

    assert (await client.send_message("hello")).id == "own"


async def test_transports_of_one_client_are_added_to_those_of_the_factory():
    registered, replaced, added = Own(), Own(), Own()
    factory = made()
    factory.register("OWN", lambda *_: registered)
    factory.register("URN", lambda *_: replaced)
    given = {"URN": lambda *_: added}

    await factory.create(card("OWN"), transport_producers=given).send_message("hello")
    await factory.create(card("URN"), transport_producers=given).send_message("hello")

    assert [len(own.calls) for own in (registered, replaced, added)] == [1, 0, 1]


def test_transports_of_one_client_are_checked():
    factory = made()
    factory.register("OWN", lambda *_: Own())

    for given in ([], 7, {"OWN": 7}):
        with pytest.raises(TypeError, match="transport_producers"):
            factory.create(card("OWN"), transport_producers=given)


@pytest.mark.parametrize("prefer", [False, True])
async def test_a_filter_of_one_client_stands_in_place_of_the_factorys(prefer):
    agent = FakeAgent()
    factory = made(agent, supported_protocol_bindings=["JSONRPC"], use_client_preference=prefer)
    only = iter(["HTTP+JSON"])

    client = factory.create(card("JSONRPC", "HTTP+JSON"), supported_protocol_bindings=only)
    await client.send_message("hello")

    assert "/rest" in agent.received[0].url


async def test_the_clients_own_bindings_continue_beside_another():
    agent, own = FakeAgent(), Own()
    factory = made(agent)
    factory.register("OWN", lambda *_: own)

    assert (await factory.create(card("JSONRPC", "OWN")).ask("hello")).text == "hello"
    assert own.calls == []


@pytest.mark.parametrize("preference", [False, True])
async def test_a_binding_of_ones_own_takes_part_in_the_choice(preference):
    agent, own = FakeAgent(), Own()
    factory = made(
        agent,
        supported_protocol_bindings=["OWN", "JSONRPC"],
        use_client_preference=preference,
    )
    factory.register("OWN", lambda *_: own)

    await factory.create(card("JSONRPC", "OWN")).send_message("hello")

    assert (len(own.calls), len(agent.received)) == ((1, 0) if preference else (0, 1))


async def test_what_a_transport_does_not_say_of_a_message_is_unknown():
    lost = A2AConnectionError("gone", failure="disconnected", transient=True)
    factory, own = made(), Own(lost)
    factory.register("OWN", lambda *_: own)

    with pytest.raises(OutcomeUnknownError):
        await factory.create(card("OWN"), on_unknown="raise").send_message("hello")

    assert len(own.calls) == 1


async def test_message_in_flight_in_another_transport_may_have_been_sent():
    class Hanging(Own):
        async def unary(self, call, /):
            await asyncio.sleep(1000)

    factory = made()
    factory.register("OWN", lambda *_: Hanging())

    with pytest.raises(OutcomeUnknownError) as caught:
        await factory.create(card("OWN")).send_message("hello", timeout=5)

    assert isinstance(caught.value.__cause__, DeadlineExceededError)


async def test_an_error_of_another_transport_shows_no_secret():
    error = TaskNotFoundError(f"you sent {SECRET}", data={"headers": SECRET})
    factory = made()
    factory.register("OWN", lambda *_: Own(error))

    with pytest.raises(TaskNotFoundError) as caught:
        await factory.create(card("OWN")).get_task("t", headers={"x-api-key": SECRET})

    assert SECRET not in f"{caught.value!r}{vars(caught.value)}"
    assert caught.value.agent == "own://agent.test/1"


GUARD = {
    "security_schemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "x-key"}}},
    "security_requirements": [{"schemes": {"key": {}}}],
}


def guarded(*bindings):
    document = card(*bindings).to_dict()
    document["securitySchemes"] = GUARD["security_schemes"]
    document["securityRequirements"] = GUARD["security_requirements"]
    return AgentCard.from_dict(document)


async def test_credentials_reach_another_transport_by_the_same_rules():
    own = Own()
    factory = made()
    factory.register("OWN", lambda *_: own)
    auth = SchemeCredentials({"key": SECRET})

    await factory.create(guarded("OWN"), auth=auth).send_message("hello")
    with pytest.raises(CredentialOriginError):
        await factory.create(guarded("JSONRPC", "OWN"), auth=auth, bindings=["OWN"]).send_message(
            "hello"
        )
    origins = ["own://agent.test"]
    await factory.create(
        guarded("JSONRPC", "OWN"), auth=auth, bindings=["OWN"], credential_origins=origins
    ).send_message("hello")

    assert [dict(call.headers) for call in own.calls] == [{"x-key": SECRET}] * 2


async def test_a_producer_that_makes_something_else_is_named():
    factory = made()
    factory.register("OWN", lambda *_: object())

    with pytest.raises(TypeError, match="the producer of OWN must return a Transport, not object"):
        await factory.create(card("OWN")).send_message("hello")


@pytest.mark.parametrize(("label", "producer"), [("", Own), (7, Own), ("OWN", None), ("OWN", 7)])
def test_a_registration_is_a_name_and_a_producer(label, producer):
    with pytest.raises((ValueError, TypeError)):
        ClientFactory().register(label, producer)
    with pytest.raises((ValueError, TypeError)):
        connect("http://agent.test", engine=FakeNetwork(), transport_producers={label: producer})


class Slow(Own):
    """A transport whose calls and whose closing take some seconds each."""

    def __init__(self, *, unary=0.0, close=0.0):
        super().__init__()
        self.seconds = {"unary": unary, "close": close}
        self.in_flight = 0
        self.closed_during_a_call = False

    async def unary(self, call, /):
        self.in_flight += 1
        try:
            await asyncio.sleep(self.seconds["unary"])
            return await super().unary(call)
        finally:
            self.in_flight -= 1

    async def close(self):
        self.closed_during_a_call |= self.in_flight > 0
        await asyncio.sleep(self.seconds["close"])
        await super().close()


class Breaks(Own):
    """A transport that cannot be closed."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    async def close(self):
        await super().close()
        raise self.error


class Wandering:
    """A client whose agent moves to another address before each call."""

    def __init__(self, *transports, **options):
        self.owns = list(transports)
        self.made = []
        self.offered = card("OWN")
        options.setdefault("engine", FakeNetwork())
        self.client = connect(self.offered, transport_producers={"OWN": self.produce}, **options)

    def produce(self, _card, _interface):
        self.made.append(self.owns.pop(0) if self.owns else Own())
        return self.made[-1]

    async def call(self):
        await self.client.agent_card()
        [interface] = self.offered.supported_interfaces
        moved = msgspec.structs.replace(interface, url=f"own://agent.test/{len(self.made)}")
        card = msgspec.structs.replace(self.offered, supported_interfaces=(moved,))
        self.client._core._resolver.replace(unsigned(card), frozenset())
        return await self.client.get_task("own")

    async def calls(self, times):
        for _ in range(times):
            await self.call()


async def test_transports_that_are_not_used_any_more_are_closed():
    agent = Wandering()

    await agent.calls(103)
    await asyncio.sleep(0)

    assert [own.closed for own in agent.made] == [1] * 3 + [0] * 100
    await agent.client.close()
    assert {own.closed for own in agent.made} == {1}


async def test_a_transport_is_not_let_go_while_a_call_is_in_it():
    agent = Wandering(Slow(unary=60))
    slow_call = asyncio.ensure_future(agent.call())
    await asyncio.sleep(1)

    await agent.calls(150)
    assert (await slow_call).id == "own"
    await agent.call()
    await agent.client.close()

    assert not agent.made[0].closed_during_a_call
    assert {own.closed for own in agent.made} == {1}


async def test_no_call_waits_for_a_transport_that_is_let_go():
    agent = Wandering(Slow(close=3), Slow(close=3600))
    began = now()

    await agent.calls(102)

    assert now() == began
    with pytest.raises(TimeoutError, match="Slow did not close within 5 s"):
        await agent.client.close()
    assert now() == began + 5
    assert [own.closed for own in agent.made] == [1, 0] + [1] * 100


async def test_what_letting_a_transport_go_raises_is_reported_when_the_client_is_closed():
    agent = Wandering(Breaks(OSError("disk full")), Breaks(LookupError("later")))

    await agent.calls(101)
    await asyncio.sleep(0)
    await agent.call()
    await asyncio.sleep(0)

    with pytest.raises(OSError, match="disk full"):
        await agent.client.close()
    await agent.client.close()  # told once
    assert {own.closed for own in agent.made} == {1}


@pytest.fixture
def closed_engines(monkeypatch):
    closed = []

    async def close(engine):
        closed.append(engine)

    monkeypatch.setattr(AiohttpEngine, "close", close)
    return closed


async def test_everything_is_closed_whatever_one_of_them_raises(closed_engines):
    agent = Wandering(Own(), Breaks(OSError("first")), Breaks(LookupError("second")), engine=None)
    await agent.calls(4)

    with pytest.raises(OSError, match="first"):
        await agent.client.close()

    assert [own.closed for own in agent.made] == [1] * 4
    assert len(closed_engines) == 1


@pytest.mark.parametrize("seconds", [0, 3600])
async def test_a_layer_that_does_not_close_what_is_below_it_keeps_nothing_open(seconds):
    class Careless(BaseLayer):
        async def close(self):
            await asyncio.sleep(seconds)
            raise OSError("careless")

    agent = Wandering(attempt_layers=[Careless])
    await agent.calls(2)
    began = now()

    with pytest.raises(OSError, match="careless" if not seconds else "did not close within 10 s"):
        await agent.client.close()

    assert now() == began + min(seconds, 10)
    assert [own.closed for own in agent.made] == [1, 1]


async def test_a_cancelled_close_closes_what_is_left(closed_engines):
    agent = Wandering(Slow(close=3), engine=None)
    await agent.call()
    closing = asyncio.ensure_future(agent.client.close())
    await asyncio.sleep(1)

    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing

    assert len(closed_engines) == 1


# ── A minimal card ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("bindings", [None, ["JSONRPC"]])
async def test_a_minimal_card_is_enough_to_ask_for_the_whole_one(bindings):
    agent = FakeAgent()
    client = made(agent).create(minimal_agent_card("http://agent.test/rpc", bindings))

    extended = await client.get_extended_agent_card()

    assert extended.name == "Fake agent, extended"
    assert await client.agent_card() == extended
    assert agent.calls("GetAgentCard") == []


def test_a_minimal_card_says_no_more_than_it_must():
    minimal = minimal_agent_card("http://agent.test/a?key=s3cret", ["HTTP+JSON", "OWN"])

    assert minimal.name == "http://agent.test/a"
    assert minimal.capabilities.extended_agent_card
    assert [(i.url, i.protocol_binding) for i in minimal.supported_interfaces] == [
        ("http://agent.test/a?key=s3cret", "HTTP+JSON"),
        ("http://agent.test/a?key=s3cret", "OWN"),
    ]


@pytest.mark.parametrize(
    ("url", "transports", "error"),
    [
        ("agent.test", None, ValueError),
        (7, None, TypeError),
        ("own://agent.test", ["JSONRPC"], ValueError),
        ("http://agent.test", [], ValueError),
        ("http://agent.test", "JSONRPC", TypeError),
        ("http://agent.test", [""], ValueError),
    ],
)
def test_a_minimal_card_needs_an_address_and_bindings(url, transports, error):
    with pytest.raises(error):
        minimal_agent_card(url, transports)


# ── Hooks that come later ────────────────────────────────────────────────────────────────────


async def test_consumers_added_later_are_notified_last_and_of_later_calls_only():
    told = []
    agent = FakeAgent()
    factory = made(agent, consumers=[lambda event, *_: told.append(("factory", event.id))])
    client = factory.create(card("JSONRPC"), [lambda event, *_: told.append(("own", event.id))])

    await client.send_message("hello")
    await client.add_event_consumer(lambda event, *_: told.append(("later", event.id)))
    await client.send_message("hello")

    first, second = agent.tasks
    assert told == [
        ("factory", first),
        ("own", first),
        ("factory", second),
        ("own", second),
        ("later", second),
    ]


async def test_consumer_added_while_a_task_is_watched_is_not_notified_of_it():
    agent = FakeAgent(works_forever())
    client = made(agent, consumers=[lambda *_: None]).create(card("JSONRPC"))
    told = []
    watching = asyncio.ensure_future(client.ask("hello", timeout=60))
    await asyncio.sleep(1)

    await client.add_event_consumer(lambda event, *_: told.append(event.id))
    await client.cancel_task("task-1")
    await asyncio.gather(watching, return_exceptions=True)

    assert told == []


class Marking(Interceptor):
    """Puts a mark on each call."""

    def __init__(self, mark, *, waits=0):
        self.mark = mark
        self.waits = waits
        self.after_calls = 0

    async def before(self, call):
        await asyncio.sleep(self.waits)
        marks = f"{call.headers.get('x-marks', '')}{self.mark}"
        return msgspec.structs.replace(call, headers={**call.headers, "x-marks": marks})

    async def after(self, call, outcome):
        self.after_calls += 1
        return outcome


@pytest.mark.parametrize("first", [[], [Marking("a", waits=5)]])
async def test_interceptors_that_come_later_see_later_calls_only(first):
    agent = FakeAgent(latency=5)
    client = made(agent).create(card("JSONRPC"), interceptors=first)
    later = Marking("b")
    in_flight = asyncio.ensure_future(client.send_message("hello"))
    await asyncio.sleep(1)

    await client.add_request_middleware(later)
    await in_flight
    await client.send_message("hello")

    marks = [call.headers.get("x-marks", "") for call in agent.received]
    assert marks == (["a", "ab"] if first else ["", "b"])
    assert later.after_calls == 1


async def test_an_auth_interceptor_that_comes_later_is_where_credentials_come_from():
    agent, failed = FakeAgent(card=guarded("JSONRPC")), asyncio.Event()
    client = made(agent).create(
        agent.url, observers=[lambda seen: isinstance(seen, RetryScheduled) and failed.set()]
    )
    agent.inject(Refuse(), on="SendMessage")
    in_flight = asyncio.ensure_future(client.send_message("hello"))
    await failed.wait()

    await client.add_request_middleware(AuthInterceptor(SchemeCredentials({"key": SECRET})))
    await in_flight
    await client.send_message("hello")

    keys = [call.headers.get("x-key") for call in agent.calls("SendMessage")]
    assert keys == [None, SECRET]


async def test_an_auth_interceptor_that_comes_later_keeps_to_the_same_origins():
    elsewhere = FakeAgent(url="http://agent.test")
    agent = FakeAgent(url="http://first.test", card=guarded("JSONRPC"))
    network = FakeNetwork(agent, elsewhere)
    client = connect(agent.url, engine=network)
    await client.ask("hello")

    await client.add_request_middleware(AuthInterceptor(SchemeCredentials({"key": SECRET})))

    with pytest.raises(CredentialOriginError):
        await client.ask("hello")
    assert len(elsewhere.received) == 1


@pytest.mark.parametrize("options", [{"auth": "Bearer x"}, {"interceptors": "another"}])
async def test_credentials_that_are_there_stay(options):
    own = AuthInterceptor(SchemeCredentials({"other": SECRET}))
    if options.get("interceptors"):
        options = {"interceptors": [own]}
    agent = FakeAgent(card=guarded("JSONRPC"))
    client = connect(agent.url, engine=FakeNetwork(agent), **options)

    with pytest.raises(ValueError, match="pass credentials as auth= or in one"):
        await client.add_request_middleware(AuthInterceptor(SchemeCredentials({"key": SECRET})))

    if "auth" in options:
        await client.ask("hello")
        assert agent.received[-1].headers["authorization"] == "Bearer x"
    else:
        with pytest.raises(AuthenticationError):
            await client.ask("hello")


@pytest.mark.parametrize("hook", [None, 7, "x", Interceptor, Own])
async def test_hooks_that_come_later_are_checked(hook):
    client = made().create(card("JSONRPC"))

    with pytest.raises(TypeError):
        await client.add_request_middleware(hook)
    if not callable(hook):
        with pytest.raises(TypeError):
            await client.add_event_consumer(hook)
