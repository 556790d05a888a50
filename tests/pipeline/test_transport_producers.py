"""Transports that the caller makes: where they lead, whose they are, and who closes them."""

import asyncio
import contextlib
import gc

import aiohttp
import msgspec
import pytest
from tests.kit.card_signing import unsigned

from holdfast import AgentCard, connect
from holdfast.compat import ClientConfig, ClientFactory
from holdfast.errors import CredentialOriginError, NetworkPolicyError
from holdfast.extend import Endpoints, Reply
from holdfast.testing import FakeAgent, FakeNetwork, LoopbackServer
from holdfast.types import (
    AgentCapabilities,
    AgentInterface,
    SendMessageResponse,
    Task,
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


@pytest.mark.rule("P01")
@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("10.0.0.1:50051", "203.0.113.9:50051"),
        ("dns:///agent.test:50051", "dns:///evil.test:50051"),
        ("ipv4:10.0.0.1:50051", "ipv4:203.0.113.9:50051"),
        ("agent.test:50051", "agent.test:6000"),
    ],
)
async def test_addresses_of_other_bindings_have_different_origins(mine, theirs):
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


async def test_the_origin_that_an_error_names_can_be_allowed():
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


async def test_a_transport_of_the_caller_is_not_led_to_a_metadata_address():
    own = Own()
    client = connect(
        "http://agent.test",
        engine=FakeNetwork(FakeAgent(card=own_card("own://169.254.169.254/1"))),
        transport_producers={"OWN": lambda *_: own},
    )
    with pytest.raises(NetworkPolicyError):
        await client.get_task("t")

    assert own.calls == []


def open_sessions():
    found = [thing for thing in gc.get_objects() if type(thing) is aiohttp.ClientSession]
    return [session for session in found if not session.closed]


@pytest.mark.real_time
async def test_a_transport_that_fails_to_close_leaves_no_connection_open():
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


async def test_a_transport_is_not_closed_during_a_call():
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


async def test_a_falsy_transport_is_made_once():
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
async def test_a_binding_of_the_caller_is_recognized_in_either_case(registered, named):
    own = Own()
    factory = ClientFactory(ClientConfig(engine=FakeNetwork(FakeAgent())))
    factory.register(registered, lambda *_: own)
    interface = AgentInterface(url="http://agent.test/rpc", protocol_binding=named)
    card = AgentCard(name="Mine", supported_interfaces=(interface,))

    await factory.create(card).send_message("hello")

    assert len(own.calls) == 1
