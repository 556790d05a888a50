"""Which version of the protocol is spoken: by the card, by the agent's answers, by the caller."""

import asyncio
import json

import pytest
from tests.kit.stubborn_network import StubbornNetwork

from holdfast import (
    A2AError,
    A2AHTTPError,
    DeadlineExceededError,
    Resilience,
    TaskNotFoundError,
    TaskState,
    connect,
)
from holdfast.compat import ClientFactory, minimal_agent_card
from holdfast.errors import (
    CredentialOriginError,
    MethodNotFoundError,
    ReconnectError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from holdfast.extend import Endpoints
from holdfast.testing import (
    Cut,
    Delay,
    Fail,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Respond,
    Streaming,
    asks,
    needs_auth,
    streams,
    unavailable,
)
from holdfast.types import AgentExtension, AgentInterface

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])

PATHS = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest"}
OLDER, NEWER = ("0.3",), ("1.0",)


def interface(binding, version="1.0", path=None):
    found = {"url": f"http://agent.test{path or PATHS[binding]}", "protocolBinding": binding}
    return found if version is None else {**found, "protocolVersion": version}


def card(*interfaces, **members):
    return {"name": "Some", "supportedInterfaces": list(interfaces), **members}


def client_of(agent, binding="JSONRPC", **options):
    return connect(agent.url, engine=FakeNetwork(agent), bindings=(binding,), **options)


def operations(agent):
    """What was asked for, and in which version."""
    return [
        (each.operation, each.headers["a2a-version"])
        for each in agent.received
        if each.operation != "GetAgentCard"
    ]


SENT = [("SendMessage", "0.3")]
PROBED = [("", "1.0"), ("GetTask", "0.3")]

# ── By the card ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S20")
@both_bindings
@pytest.mark.parametrize("how", ["url", "file", "dict"])
async def test_s20_a_card_of_0_3_is_enough(binding, how, tmp_path):
    agent = FakeAgent(versions=OLDER, bindings=(binding,))
    network = FakeNetwork(agent)
    other = {"JSONRPC": "HTTP+JSON", "HTTP+JSON": "JSONRPC"}[binding]
    document = {
        "name": "Older",
        "url": f"http://agent.test{PATHS[binding]}",
        "preferredTransport": binding,
        "additionalInterfaces": [{"url": "http://agent.test/none", "transport": other}],
        "protocolVersion": "0.3.0",
        "capabilities": {},
    }
    file = tmp_path / "card.json"
    file.write_text(json.dumps(document))
    named = {"url": agent.url, "file": file, "dict": document}[how]

    async with connect(named, engine=network) as client:
        assert (await client.ask("hello")).text == "hello"

    assert {version for _, version in operations(agent)} == {"0.3"}


@both_bindings
@pytest.mark.parametrize("version", ["0.3", "0.3.0", "0.3.5", "0.2.6", "v0.3"])
async def test_an_interface_is_spoken_to_in_the_version_that_it_declares(binding, version):
    agent = FakeAgent(versions=("1.0", "0.3"), card=card(interface(binding, version)))

    await client_of(agent, binding).send_message("hello")

    assert operations(agent) == SENT


@both_bindings
async def test_a_newer_version_comes_before_a_preferred_binding(binding):
    other = {"JSONRPC": "HTTP+JSON", "HTTP+JSON": "JSONRPC"}[binding]
    both = card(interface(binding, "0.3.0"), interface(other, "1.0"))
    agent = FakeAgent(versions=("1.0", "0.3"), card=both)

    await client_of(agent, binding).send_message("hello")
    await client_of(agent, binding, supported_protocol_bindings=(binding,)).send_message("hello")

    assert operations(agent) == [("SendMessage", "1.0"), ("SendMessage", "0.3")]


@both_bindings
async def test_an_agent_of_both_versions_is_spoken_to_in_the_newer_one(binding):
    agent = FakeAgent(versions=("1.0", "0.3"))
    client = client_of(agent, binding)

    await client.send_message("hello")
    offered = (await client.agent_card()).supported_interfaces

    assert operations(agent) == [("SendMessage", "1.0")]
    assert [(i.protocol_binding, i.protocol_version) for i in offered] == [
        ("JSONRPC", "1.0"),
        ("HTTP+JSON", "1.0"),
        ("JSONRPC", "0.3.0"),
        ("HTTP+JSON", "0.3.0"),
    ]


async def test_what_a_card_says_in_both_ways_is_there_once():
    members = {
        "url": "http://agent.test/rpc",
        "protocolVersion": "0.3.0",
        "additionalInterfaces": [{"url": "http://agent.test/rpc", "transport": "JSONRPC"}],
        "security": [{"key": ["a"]}],
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "x-key"}},
        "supportsAuthenticatedExtendedCard": True,
    }
    both = card(interface("JSONRPC", "1.0"), interface("JSONRPC", "0.3"), **members)
    read = await client_of(FakeAgent(card=both)).agent_card()

    assert [i.protocol_version for i in read.supported_interfaces] == ["1.0", "0.3"]
    assert read.security_schemes["key"].api_key_security_scheme.name == "x-key"
    assert read.security_requirements[0].schemes["key"].list == ("a",)
    assert read.capabilities.extended_agent_card is True


# ── By what an agent answers ─────────────────────────────────────────────────────────────────


@pytest.mark.rule("S19")
@both_bindings
async def test_s19_a_card_without_a_version_and_an_agent_of_1_0(binding):
    agent = FakeAgent(card=card(interface(binding, None)))
    client = client_of(agent, binding)

    await client.send_message("hello")
    await client.send_message("again")

    assert operations(agent) == [("GetTask", "1.0"), *[("SendMessage", "1.0")] * 2]


@pytest.mark.rule("S19")
@both_bindings
async def test_s19_a_card_without_a_version_and_an_agent_of_0_3(binding):
    agent = FakeAgent(versions=OLDER, card=card(interface(binding, None)))
    client = client_of(agent, binding)

    task = await client.send_message("hello")
    await client.send_message("again")

    assert task.state is TaskState.COMPLETED
    assert operations(agent) == [*PROBED, *SENT * 2]
    assert len(agent.executions) == 2


async def test_what_was_found_out_is_shared_and_found_out_once():
    agent = FakeAgent(versions=OLDER, card=card(interface("JSONRPC", None)))
    shared = Endpoints()
    client = client_of(agent, shared=shared)

    await asyncio.gather(*(client.send_message("hello") for _ in range(10)))
    await client_of(agent, shared=shared).send_message("hello")

    assert operations(agent) == [*PROBED, *SENT * 11]


@pytest.mark.parametrize("code", [-32601, -32603, -32600, -32009])
async def test_whatever_says_that_a_version_is_unknown_is_followed_up(code):
    agent = FakeAgent(versions=("1.0", "0.3"), card=card(interface("JSONRPC", None)))
    agent.inject(Fail(code=code), on="GetTask")

    await client_of(agent).send_message("hello")

    assert operations(agent) == [("GetTask", "0.3"), *SENT]


@pytest.mark.parametrize("code", [-32004, -32050])
async def test_an_agent_that_answers_anything_else_is_asked_once(code):
    agent = FakeAgent(versions=("1.0", "0.3"), card=card(interface("JSONRPC", None)))
    agent.inject(Fail(code=code), on="GetTask", times=50)
    client = client_of(agent)

    await asyncio.gather(*(client.send_message("hello") for _ in range(10)))
    await client.send_message("hello")

    assert operations(agent) == [("SendMessage", "1.0")] * 11
    assert len(agent.pending_faults) == 49


async def test_those_who_wait_for_an_answer_that_does_not_come_do_not_ask_again():
    agent = FakeAgent(versions=("1.0", "0.3"), card=card(interface("JSONRPC", None)))
    agent.inject(Delay(seconds=1000), on="GetTask", times=50)
    client = client_of(agent)

    await asyncio.gather(*(client.send_message("hello") for _ in range(10)))

    assert len(agent.pending_faults) == 49


async def test_what_cannot_be_found_out_is_left_to_the_call():
    agent = FakeAgent(versions=("1.0", "0.3"), card=card(interface("JSONRPC", None)))
    agent.inject(Refuse(), on="GetTask")
    client = client_of(agent)

    await client.send_message("hello")
    await client.send_message("hello")

    assert operations(agent) == [("SendMessage", "1.0")] * 2  # which says it, too


@both_bindings
async def test_an_agent_that_declares_1_0_is_not_spoken_to_in_0_3_by_itself(binding):
    agent = FakeAgent(versions=OLDER, card=card(interface(binding)))

    with pytest.raises(A2AError, match="if the agent speaks protocol") as caught:
        await client_of(agent, binding).send_message("hello")

    assert operations(agent) == [("", "1.0")]
    assert agent.executions == {}
    assert 'pass protocol_version="0.3"' in str(caught.value)
    assert isinstance(caught.value, MethodNotFoundError if binding == "JSONRPC" else A2AHTTPError)


@both_bindings
@pytest.mark.parametrize("versions", [OLDER, NEWER])
async def test_allow_legacy_finds_out_what_an_agent_speaks_that_declares_1_0(binding, versions):
    agent = FakeAgent(versions=versions, card=card(interface(binding)))

    await client_of(agent, binding, allow_legacy=True).send_message("hello")

    newer = [("GetTask", "1.0"), ("SendMessage", "1.0")]
    assert operations(agent) == (newer if versions == NEWER else [*PROBED, *SENT])


VERSION_REFUSED = Fail(code=-32009, message="not this version")


@both_bindings
@pytest.mark.parametrize("streaming", [True, False])
async def test_an_agent_of_both_that_refuses_1_0_is_spoken_to_in_0_3(binding, streaming):
    agent = FakeAgent(versions=("1.0", "0.3"))
    name = "SendStreamingMessage" if streaming else "SendMessage"
    agent.inject(VERSION_REFUSED, on=name)
    client = client_of(agent, binding, streaming=streaming)

    first, second = await client.ask("hello"), await client.ask("again")

    assert (first.text, second.text) == ("hello", "again")
    asked = [version for operation, version in operations(agent) if operation == name]
    assert asked == ["0.3"] * 2  # the one that was refused was not taken in
    assert len(agent.executions) == 2


@both_bindings
async def test_what_is_tried_in_both_versions_is_counted_on(binding):
    agent = FakeAgent(versions=("1.0", "0.3"))
    agent.inject(VERSION_REFUSED, on="GetTask")

    with pytest.raises(TaskNotFoundError) as caught:
        await client_of(agent, binding).get_task("none such")

    assert [attempt.number for attempt in caught.value.attempts] == [1, 2]
    assert "VersionNotSupportedError" in caught.value.attempts[0].error


async def test_a_message_that_may_have_been_taken_is_not_sent_in_another_version():
    agent = FakeAgent(versions=("1.0", "0.3"))
    agent.inject(Fail(code=-32601, after_execution=True), on="SendMessage")

    with pytest.raises(MethodNotFoundError) as caught:
        await client_of(agent).send_message("hello")

    assert caught.value.executed is None
    assert len(agent.calls("SendMessage")) == 1


async def test_agent_that_refuses_1_0_and_offers_nothing_else_is_reported():
    agent = FakeAgent()
    agent.inject(VERSION_REFUSED, on="GetTask")

    with pytest.raises(VersionNotSupportedError, match=r"not this version") as caught:
        await client_of(agent).get_task("t")

    assert 'pass protocol_version="0.3"' in str(caught.value)
    assert caught.value.executed is False


async def test_an_operation_that_an_agent_may_lack_is_no_sign_of_its_version():
    agent = FakeAgent()
    agent.inject(Fail(code=-32601, message="no such method"), on="ListTasks")

    with pytest.raises(MethodNotFoundError) as caught:
        await client_of(agent).list_tasks()

    assert "protocol_version" not in str(caught.value)


async def test_credentials_go_to_an_older_interface_of_another_origin_as_little():
    elsewhere = {"url": "http://elsewhere.test/rpc", "protocolVersion": "0.3.0"}
    both = card(interface("JSONRPC"), **elsewhere)
    agent = FakeAgent(versions=("1.0", "0.3"), card=both)
    agent.inject(VERSION_REFUSED, on="SendMessage")

    with pytest.raises(CredentialOriginError, match=r"elsewhere\.test"):
        await client_of(agent, auth="Bearer secret").send_message("hello")

    assert agent.executions == {}


UNAUTHORIZED = Respond(status=401, headers={"www-authenticate": "Bearer"}, body=b"")
IN_ITS_WORDS = Respond(
    status=401,
    headers={"content-type": "application/json"},
    body=b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Unauthorized"}}',
)


@both_bindings
@pytest.mark.parametrize(
    "answer",
    [
        UNAUTHORIZED,
        IN_ITS_WORDS,
        Respond(status=403, headers={}, body=b""),
        unavailable(),
        Refuse(),
    ],
)
async def test_an_answer_that_says_nothing_about_a_version_is_not_remembered(binding, answer):
    agent = FakeAgent(versions=OLDER, card=card(interface(binding, None)))
    agent.inject(answer)  # to the question, as a gateway would
    client = client_of(agent, binding)

    with pytest.raises(A2AError):
        await client.send_message("hello")
    await client.send_message("hello")

    assert operations(agent)[-2:] == [("GetTask", "0.3"), *SENT]
    assert len(agent.executions) == 1


@both_bindings
@pytest.mark.parametrize("answer", [UNAUTHORIZED, IN_ITS_WORDS, unavailable(), Refuse()])
async def test_an_older_version_is_not_ruled_out_by_one_bad_moment(binding, answer):
    agent = FakeAgent(versions=OLDER, card=card(interface(binding, None)))
    agent.inject(answer, on="GetTask")
    client = client_of(agent, binding)

    with pytest.raises(A2AError, match="if the agent speaks protocol"):
        await client.send_message("hello")
    await client.send_message("hello")

    assert operations(agent)[-2:] == [("GetTask", "0.3"), *SENT]


@both_bindings
async def test_an_agent_that_was_not_there_yet_is_asked_again(binding):
    agent = FakeAgent(versions=OLDER, card=card(interface(binding, None)))
    agent.inject(Respond(status=404, headers={}, body=b"no such site"), times=3)
    client = client_of(agent, binding)

    with pytest.raises(A2AHTTPError):
        await client.send_message("hello")
    await client.send_message("hello")

    assert operations(agent)[-2:] == [("GetTask", "0.3"), *SENT]


async def test_an_agent_that_has_become_a_newer_one_is_asked_again():
    agent = FakeAgent(versions=("1.0", "0.3"), card=card(interface("JSONRPC", None)))
    agent.inject(Fail(code=-32601), on="GetTask")
    client = client_of(agent)
    await client.send_message("hello")

    agent.inject(Fail(code=-32601), on="SendMessage")
    with pytest.raises(MethodNotFoundError):
        await client.send_message("hello")
    await client.send_message("hello")

    assert operations(agent)[2:] == [("GetTask", "1.0"), ("SendMessage", "1.0")]


async def test_clients_that_share_what_they_know_ask_once_between_them():
    agent = FakeAgent(versions=OLDER, card=card(interface("JSONRPC", None)))
    shared = Endpoints()
    clients = [client_of(agent, shared=shared) for _ in range(3)]

    await asyncio.gather(*(client.send_message("hello") for client in clients))

    assert operations(agent) == [*PROBED, *SENT * 3]


async def test_who_asks_may_be_canceled_and_the_next_one_asks():
    agent = FakeAgent(versions=("1.0", "0.3"), card=card(interface("JSONRPC", None)))
    agent.inject(Delay(seconds=60), on="GetTask")
    client = client_of(agent)

    first = asyncio.ensure_future(client.send_message("hello"))
    await asyncio.sleep(1)
    second = asyncio.ensure_future(client.send_message("hello"))
    hurried = asyncio.ensure_future(client.send_message("hello", timeout=5))
    await asyncio.sleep(1)
    first.cancel()
    await asyncio.wait({first, second, hurried})

    assert first.cancelled()
    assert (second.exception(), hurried.exception()) == (None, None)
    assert operations(agent) == [("GetTask", "1.0")] * 2 + [("SendMessage", "1.0")] * 2


async def test_who_waits_for_an_answer_waits_no_longer_than_the_call_may_take():
    agent = FakeAgent(card=card(interface("JSONRPC", None)))
    agent.inject(Delay(seconds=60), on="GetTask")
    client = client_of(agent)
    patient = asyncio.ensure_future(client.send_message("hello"))
    await asyncio.sleep(1)

    with pytest.raises(DeadlineExceededError) as caught:
        await client.send_message("hello", timeout=5)

    assert (caught.value.executed, now()) == (False, 6)
    await patient


@both_bindings
async def test_allow_legacy_asks_nothing_where_the_card_declares_both_versions(binding):
    agent = FakeAgent(versions=("1.0", "0.3"))

    await client_of(agent, binding, allow_legacy=True).send_message("hello")

    assert operations(agent) == [("SendMessage", "1.0")]


async def test_time_that_is_over_while_a_version_is_asked_for_has_sent_nothing():
    agent = FakeAgent(card=card(interface("JSONRPC", None)))
    agent.inject(Delay(seconds=60), on="GetTask")

    with pytest.raises(DeadlineExceededError) as caught:
        await client_of(agent).send_message("hello", timeout=5)

    assert caught.value.executed is False
    assert operations(agent) == [("GetTask", "1.0")]


async def test_an_older_interface_elsewhere_is_no_matter_where_1_0_is_spoken():
    elsewhere = {"url": "http://elsewhere.test/rpc", "protocolVersion": "0.3.0"}
    agent = FakeAgent(card=card(interface("JSONRPC", None), **elsewhere))

    await client_of(agent, auth="Bearer secret").send_message("hello")

    assert operations(agent) == [("GetTask", "1.0"), ("SendMessage", "1.0")]


# ── By the caller ────────────────────────────────────────────────────────────────────────────


@both_bindings
@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("declared", ["1.0", "0.3", None, "2.0"])
async def test_the_version_that_the_caller_names_is_spoken(binding, version, declared):
    agent = FakeAgent(versions=("1.0", "0.3"), card=card(interface(binding, declared)))
    client = client_of(agent, binding, protocol_version=version)

    await client.send_message("hello")

    assert operations(agent) == [("SendMessage", version)]
    assert {each.headers["a2a-version"] for each in agent.received} == {version}  # the card's too


async def test_the_interface_of_the_version_that_the_caller_names_is_used():
    older, newer = interface("JSONRPC", "0.3", "/rpc/old"), interface("JSONRPC", "1.0")
    agent = FakeAgent(versions=("1.0", "0.3"), card=card(newer, older))

    await client_of(agent, protocol_version="0.3").send_message("hello")

    assert agent.received[-1].url == older["url"]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"protocol_version": "2.0"}, ValueError),
        ({"protocol_version": "0.3.0"}, ValueError),
        ({"protocol_version": 1.0}, TypeError),
        ({"protocol_version": ""}, ValueError),
        ({"protocol_version": "1.0", "allow_legacy": True}, ValueError),
        ({"protocol_version": "0.3", "tenant": "acme"}, ValueError),
        ({"allow_legacy": True, "tenant": "acme"}, ValueError),
        ({"protocol_version": "0.3", "allow_legacy": True, "tenant": "acme"}, ValueError),
        ({"allow_legacy": 1}, TypeError),
    ],
)
def test_what_cannot_be_a_version_is_refused(options, kind):
    with pytest.raises(kind, match=r"protocol_version|allow_legacy"):
        connect("http://agent.test", engine=FakeNetwork(), **options)


@both_bindings
@pytest.mark.parametrize(("spoken", "asked"), [("0.3", "1.0"), ("1.0", "0.3")])
async def test_a_wrong_version_that_the_caller_names_is_held_against_the_card(
    binding, spoken, asked
):
    agent = FakeAgent(versions=(spoken,), bindings=(binding,))

    with pytest.raises(A2AError) as caught:
        await client_of(agent, binding, protocol_version=asked).send_message("hello")

    declared = "0.3.0" if spoken == "0.3" else "1.0"
    assert f"protocol {asked} was used, as requested, and the card declares {declared}" in str(
        caught.value
    )
    assert f'pass protocol_version="{spoken}"' in str(caught.value)
    assert caught.value.other_version == spoken
    assert agent.executions == {}


@pytest.mark.parametrize(
    ("options", "place"), [({}, "the interface's URL in the agent card"), (None, "url=")]
)
@both_bindings
async def test_a_404_of_an_interface_names_its_address_and_what_to_check(binding, options, place):
    agent = FakeAgent(bindings=(binding,))
    agent.inject(Respond(status=404, headers={}, body=b"<html>no such page</html>"), times=3)
    options = {"url": agent.url} if options is None else options

    with pytest.raises(A2AHTTPError) as caught:
        await client_of(agent, binding, **options).send_message("hello")

    told = str(caught.value)
    assert f"there may be no {binding} interface at this address: check {place}" in told
    assert f"agent {agent.url}" in told


@both_bindings
async def test_a_refused_version_is_named_beside_those_that_the_card_declares(binding):
    agent = FakeAgent(card=card(interface(binding, "1.0")))
    agent.inject(VERSION_REFUSED, times=3)

    with pytest.raises(VersionNotSupportedError) as caught:
        await client_of(agent, binding).get_task("t-1")

    assert "protocol 1.0 was used, and the card declares 1.0" in str(caught.value)


async def test_what_a_version_lacks_is_held_against_the_card_too():
    with pytest.raises(UnsupportedOperationError) as caught:
        await client_of(FakeAgent(), protocol_version="0.3").list_tasks()

    assert "the card declares 1.0" in str(caught.value)
    assert caught.value.other_version == "1.0"


async def test_allow_legacy_adds_nothing_to_0_3_that_the_caller_names():
    agent = FakeAgent(versions=OLDER, card=card(interface("JSONRPC")))

    await client_of(agent, protocol_version="0.3", allow_legacy=True).send_message("hello")

    assert operations(agent) == SENT


async def test_a_tenant_is_something_that_0_3_does_not_know():
    agent = FakeAgent(versions=OLDER)

    with pytest.raises(VersionNotSupportedError, match="has no tenants") as caught:
        await client_of(agent, tenant="acme").send_message("hello")

    assert caught.value.executed is False
    named = card({**interface("JSONRPC", "0.3"), "tenant": "acme"})
    assert (await client_of(FakeAgent(versions=OLDER, card=named)).ask("hi")).text == "hi"


async def test_extensions_are_asked_for_in_the_words_of_both_versions():
    declared = [AgentExtension(uri="urn:a"), AgentExtension(uri="urn:b")]
    agent = FakeAgent(versions=OLDER, extensions=declared)

    await client_of(agent).send_message("hello", extensions=["urn:a", "urn:b"])

    headers = agent.received[-1].headers
    assert (headers["a2a-extensions"], headers["x-a2a-extensions"]) == ("urn:a,urn:b",) * 2


@both_bindings
async def test_a_factory_and_a_minimal_card_lead_to_an_older_agent(binding):
    agent = FakeAgent(versions=OLDER)
    minimal = minimal_agent_card(f"{agent.url}{PATHS[binding]}", [binding])
    client = ClientFactory().create(minimal, engine=FakeNetwork(agent))

    extended = await client.get_extended_agent_card()

    assert extended.name == "Fake agent, extended"
    assert {i.protocol_version for i in extended.supported_interfaces} == {"0.3.0"}
    assert (await client.ask("hello")).text == "hello"


def test_an_interface_without_a_version_is_one_in_a_card_of_1_0():
    assert AgentInterface().protocol_version is None


# ── Streams of 0.3 ───────────────────────────────────────────────────────────────────────────


def now():
    return asyncio.get_running_loop().time()


@both_bindings
async def test_a_last_event_ends_a_stream_that_stays_open(binding):
    agent = FakeAgent(asks("which?"), versions=OLDER, streaming=Streaming(stays_open=True))

    async with client_of(agent, binding).stream_message("hi") as events:
        seen = [event async for event in events]

    assert seen[-1].status.state is TaskState.INPUT_REQUIRED
    assert (now(), agent.open_streams) == (0, 0)


@both_bindings
@pytest.mark.parametrize("store_lag", [0.0, 3.0])
async def test_a_subscription_that_brings_nothing_is_looked_after(binding, store_lag):
    # Without a snapshot nothing says that the task waits for input already.
    agent = FakeAgent(
        asks("which?", after=5),
        versions=OLDER,
        streaming=Streaming(snapshot=False, stays_open=True),
        store_lag=store_lag,
    )
    client = client_of(agent, binding)

    await client.send_message("hi", return_immediately=True)
    async with client.subscribe_to_task("task-1", force_subscription=True) as events:
        answer = await events.result()

    assert (answer.needs_input, answer.question) == (True, "which?")
    assert now() < 20
    assert agent.open_streams == 0


@both_bindings
async def test_a_subscription_to_what_came_to_rest_before_it_is_not_waited_for(binding):
    quiet = Streaming(snapshot=False, stays_open=True)
    agent = FakeAgent(asks("which?", after=1), versions=OLDER, streaming=quiet)
    agent.inject(unavailable(retry_after=5), on="SubscribeToTask")

    client = client_of(agent, binding)
    await client.send_message("hi", return_immediately=True)
    async with client.subscribe_to_task("task-1", force_subscription=True) as events:
        answer = await events.result()

    assert (answer.needs_input, answer.question) == (True, "which?")
    assert (agent.calls("SubscribeToTask") != [], agent.open_streams) == (True, 0)
    assert now() < 15  # and not after two minutes of silence


@both_bindings
async def test_a_subscription_that_begins_while_its_task_is_asked_for_is_not_left_open(binding):
    quiet = Streaming(snapshot=False, stays_open=True)
    agent = FakeAgent(asks("which?", after=4), versions=OLDER, streaming=quiet)
    agent.inject(Delay(seconds=3, after_execution=False), on="GetTask")
    network = FakeNetwork(agent)
    client = connect(agent.url, engine=network, bindings=(binding,))

    await client.send_message("hi", return_immediately=True)
    async with client.subscribe_to_task("task-1", force_subscription=True) as events:
        answer = await events.result()

    assert (answer.needs_input, answer.question) == (True, "which?")
    assert (network.in_flight, agent.open_streams) == (0, 0)


async def test_a_subscription_whose_read_outlives_its_cancellation_is_not_waited_for(caplog):
    quiet = Streaming(snapshot=False, stays_open=True)
    agent = FakeAgent(asks("which?", after=1), versions=OLDER, streaming=quiet)
    agent.inject(unavailable(retry_after=5), on="SubscribeToTask")
    network = StubbornNetwork(agent)
    client = connect(agent.url, engine=network)

    await client.send_message("hi", return_immediately=True)
    async with client.subscribe_to_task("task-1", force_subscription=True) as events:
        answer = await asyncio.wait_for(events.result(), timeout=60)

    assert (answer.needs_input, answer.question) == (True, "which?")
    assert now() < 15
    assert "a subscription continues although it was cancelled" in caplog.messages
    network.released.set()
    await asyncio.sleep(1)


async def test_a_subscription_that_is_broken_off_is_refused():
    agent = FakeAgent(streams("a", "b", every=1), versions=OLDER)
    empty = Respond(status=200, headers={"content-type": "text/event-stream"}, body=b"")
    agent.inject(empty, on="SubscribeToTask", times=20)

    client = client_of(agent, "HTTP+JSON")
    await client.send_message("hi", return_immediately=True)
    async with client.subscribe_to_task("task-1", force_subscription=True) as events:
        answer = await events.result()

    assert answer.text == "ab"
    assert len(agent.pending_faults) == 19  # one try was enough


@pytest.mark.rule("S16")
@both_bindings
async def test_s16_an_authorization_is_watched_on_after_a_last_event(binding):
    agent = FakeAgent(needs_auth("log in", cleared_after=60), versions=OLDER)

    async with client_of(agent, binding).stream_message("hi") as events:
        answer = await events.result()

    assert answer.text == "authorized"


@both_bindings
async def test_who_waits_for_a_task_of_an_older_agent_does_not_subscribe_to_it(binding):
    # Its official server would store the chunks of the task once more.
    agent = FakeAgent(streams(*"abc", every=1), versions=OLDER)
    client = client_of(agent, binding)
    task = await client.send_message("hi", return_immediately=True)

    assert (await client.wait(task.id)).text == "abc"
    assert agent.calls("SubscribeToTask") == []


@both_bindings
@pytest.mark.parametrize("cut", [Cut(after_events=3), Cut(after_events=3, clean=True)])
async def test_a_cut_on_an_older_agent_is_followed_by_looks(binding, cut):
    agent = FakeAgent(streams(*"abcdef", every=3), versions=OLDER)
    agent.inject(cut, on="SendStreamingMessage")

    async with client_of(agent, binding).stream_message("hi") as events:
        texts = [text async for text in events.text_deltas()]

    assert texts == list("abcdef")  # each chunk as soon as a look shows it
    assert agent.calls("SubscribeToTask") == []
    assert (events.task, events.gap) == (agent.tasks["task-1"], True)
    assert now() <= 21 + 2  # seconds of work, and between two looks


@both_bindings
async def test_a_subscription_to_an_older_agent_that_is_cut_is_followed_by_looks(binding):
    agent = FakeAgent(streams(*"abc", every=1), versions=OLDER)
    agent.inject(Cut(after_events=2), on="SubscribeToTask")
    client = client_of(agent, binding)
    await client.send_message("hi", return_immediately=True)

    async with client.subscribe_to_task("task-1", force_subscription=True) as events:
        answer = await events.result()

    assert (answer.text, events.reconnects) == ("abc", 0)
    assert len(agent.calls("SubscribeToTask")) == 1


async def test_an_agent_of_both_versions_is_subscribed_to_in_the_newer_one_only():
    agent = FakeAgent(streams(*"abc", every=1), versions=("1.0", "0.3"))
    agent.inject(Cut(after_events=3), on="SendStreamingMessage", times=2)
    answers = [
        await client_of(agent, protocol_version=version).ask("hi") for version in ("0.3", "1.0")
    ]

    assert [answer.text for answer in answers] == ["abc", "abc"]
    (subscription,) = agent.calls("SubscribeToTask")
    assert subscription.headers["a2a-version"] == "1.0"


@both_bindings
@pytest.mark.parametrize("code", [-32001, -32601])
async def test_an_older_agent_that_keeps_no_tasks_is_subscribed_to_after_all(binding, code):
    # It has nothing that a subscription could harm.
    agent = FakeAgent(streams(*"abcd", every=2), versions=OLDER)
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    agent.inject(Cut(after_events=1), on="SubscribeToTask")
    agent.inject(Fail(code=code), on="GetTask", times=40)

    async with client_of(agent, binding).stream_message("hi") as events:
        texts = [text async for text in events.text_deltas()]

    assert (texts, events.reconnects) == (list("abcd"), 2)


async def test_older_agent_with_neither_the_task_nor_subscriptions_ends_the_stream():
    agent = FakeAgent(streams(*"abcd", every=2), versions=OLDER)
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    for name in ("SubscribeToTask", "GetTask"):
        agent.inject(Fail(code=-32001), on=name, times=9)

    async with client_of(agent).stream_message("hi") as events:
        with pytest.raises(TaskNotFoundError):
            await events.result()

    assert now() < 5
    assert len(agent.pending_faults) == 15  # three requests are enough


async def test_where_reconnecting_is_off_an_older_agent_is_not_looked_at_after_a_cut():
    agent = FakeAgent(streams(*"abc", every=1), versions=OLDER)
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")

    async with client_of(agent, resilience=Resilience.off()).stream_message("hi") as events:
        with pytest.raises(ReconnectError, match="switched off"):
            await events.result()

    assert operations(agent) == [("SendStreamingMessage", "0.3")]


@both_bindings
@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_conversation_that_only_waits_does_not_subscribe_to_an_older_agent(
    binding, is_busy
):
    agent = FakeAgent(streams(*"abc", every=9), versions=OLDER)
    task = await client_of(agent, binding).send_message("hi", return_immediately=True)
    if is_busy:
        agent.inject(unavailable(), on="GetTask", times=6)

    chat = client_of(agent, binding).conversation(task=task)

    assert (await chat.wait()).text == "abc"
    assert agent.calls("SubscribeToTask") == []


@both_bindings
async def test_an_unknown_task_is_named_where_the_agent_does_not(binding):
    client = client_of(FakeAgent(versions=OLDER), binding)

    for asking in (client.get_task, client.cancel_task, client.wait):
        with pytest.raises(TaskNotFoundError) as caught:
            await asking("none such")
        assert caught.value.task_id == "none such"
