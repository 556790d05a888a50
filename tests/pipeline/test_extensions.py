"""Extensions: declared, asked for and required; a mismatch is an error before anything is sent."""

import asyncio

import msgspec
import pytest

from holdfast import AgentCard, connect
from holdfast import protocol as op
from holdfast.compat import ClientFactory
from holdfast.errors import ExtensionNotSupportedError, ExtensionSupportRequiredError
from holdfast.testing import Cut, FakeAgent, FakeNetwork, completes, replies, streams
from holdfast.types import AgentExtension, GetTaskRequest, Message, Part, Role, SendMessageRequest

OPTIONAL, REQUIRED, OTHER = "urn:optional", "urn:required", "urn:other"

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
streamed_or_polled = pytest.mark.parametrize("streaming", [True, False])


def agent_with(*required, behaviour=None, **options):
    """An agent that declares the optional extension, and requires others."""
    declared = [AgentExtension(uri=OPTIONAL)]
    declared += [AgentExtension(uri=uri, required=True) for uri in required]
    return FakeAgent(behaviour or completes("done"), extensions=declared, **options)


def client_of(agent, **options):
    return connect(agent.url, engine=FakeNetwork(agent), **options)


async def streamed(client, **options):
    async with client.stream_message("hi", **options) as events:
        return await events.result()


CALLS = {
    "ask": lambda client, **options: client.ask("hi", **options),
    "send_message": lambda client, **options: client.send_message("hi", **options),
    "stream_message": streamed,
    "get_task": lambda client, **options: client.get_task("task-1", **options),
    "list_tasks": lambda client, **options: client.list_tasks(**options),
    "wait": lambda client, **options: client.wait("task-1", **options),
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def sent(agent):
    """The requests besides those for the card."""
    return [request for request in agent.received if request.operation != "GetAgentCard"]


# ── Both mismatches ──────────────────────────────────────────────────────────────────────────


@both_bindings
@each_call
async def test_an_extension_that_the_agent_does_not_declare_is_not_asked_for(call, binding):
    agent = agent_with()
    client = client_of(agent, bindings=[binding])

    with pytest.raises(ExtensionNotSupportedError) as raised:
        await call(client, extensions=[OPTIONAL, OTHER])

    assert raised.value.executed is False
    assert raised.value.extensions == (OTHER,)
    assert OTHER in raised.value.message
    assert "extensions=" in raised.value.message
    assert sent(agent) == []


@both_bindings
@each_call
async def test_an_extension_that_the_agent_requires_has_to_be_asked_for(call, binding):
    agent = agent_with(REQUIRED)
    client = client_of(agent, bindings=[binding])

    with pytest.raises(ExtensionSupportRequiredError) as raised:
        await call(client, extensions=[OPTIONAL])

    assert raised.value.executed is False
    assert raised.value.extensions == (REQUIRED,)
    assert f"extensions=['{REQUIRED}']" in raised.value.message
    assert sent(agent) == []


async def test_each_retry_of_a_refused_call_is_refused_anew_without_a_request():
    agent = agent_with(REQUIRED)
    client = client_of(agent)
    for _ in range(2):
        with pytest.raises(ExtensionSupportRequiredError):
            await client.ask("hi")

    assert len(agent.received) == 1


@pytest.mark.parametrize("uri", ["a\x1b[31m\r\nb", "x" * 100_000])
async def test_whatever_a_card_requires_is_reported_in_one_short_line(uri):
    agent = agent_with(uri)

    with pytest.raises(ExtensionSupportRequiredError) as raised:
        await client_of(agent).ask("hi")

    assert raised.value.extensions == (uri,)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 2000


async def test_an_extension_without_a_uri_cannot_be_required():
    agent = agent_with("")

    assert (await client_of(agent).ask("hi")).text == "done"


# ── What is asked for ────────────────────────────────────────────────────────────────────────


@both_bindings
@streamed_or_polled
async def test_what_the_client_and_the_call_ask_for_goes_along_once(binding, streaming):
    agent = agent_with(REQUIRED)
    client = client_of(agent, bindings=[binding], streaming=streaming, extensions=iter([REQUIRED]))

    await client.ask("hi", extensions=[OPTIONAL, REQUIRED])
    await client.get_task("task-1")

    *asked, read = (request.headers["a2a-extensions"] for request in sent(agent))
    assert set(asked) == {f"{REQUIRED},{OPTIONAL}"}
    assert read == REQUIRED


async def test_the_card_is_asked_for_without_extensions():
    agent = agent_with(REQUIRED)
    client = client_of(agent, extensions=[REQUIRED])

    await client.agent_card()

    assert "a2a-extensions" not in agent.received[0].headers


async def test_a_header_that_the_caller_writes_counts_as_asking():
    agent = agent_with(REQUIRED)
    headers = {"A2A-Extensions": f"urn:x, {REQUIRED}"}

    await client_of(agent).ask("hi", headers=headers)
    await client_of(agent, headers=headers).ask("hi")

    assert {request.headers["a2a-extensions"] for request in sent(agent)} == {f"urn:x, {REQUIRED}"}


@pytest.mark.parametrize("uris", ["urn:a", [7], [""], ["urn:a,urn:b"], ["urn:a\n"]])
def test_extensions_that_cannot_be_right_are_refused_when_the_client_is_made(uris):
    with pytest.raises((TypeError, ValueError), match="extension"):
        connect("http://agent.test", extensions=uris)


async def test_a_factory_passes_them_on():
    agent = agent_with(REQUIRED)
    client = ClientFactory().create(agent.url, engine=FakeNetwork(agent), extensions=[REQUIRED])

    assert (await client.ask("hi")).extensions == (REQUIRED,)


# ── Which card counts ────────────────────────────────────────────────────────────────────────


async def test_the_card_that_replaced_the_first_counts():
    agent = agent_with()
    client = client_of(agent, card_ttl=5)
    await client.ask("hi")
    card = await client.agent_card()
    required = AgentExtension(uri=REQUIRED, required=True)
    capabilities = msgspec.structs.replace(card.capabilities, extensions=(required,))
    agent.card = msgspec.structs.replace(card, capabilities=capabilities)
    await asyncio.sleep(10)

    with pytest.raises(ExtensionSupportRequiredError):
        await client.ask("hi")
    with pytest.raises(ExtensionNotSupportedError):
        await client.ask("hi", extensions=[OPTIONAL, REQUIRED])
    await client.ask("hi", extensions=[REQUIRED])


async def test_the_extended_card_is_fetched_whatever_the_public_one_says_and_counts_then():
    agent = agent_with(OTHER)  # the public card is another one
    public = AgentCard.from_dict(
        (await client_of(agent).agent_card()).to_dict()
        | {
            "capabilities": {
                "extendedAgentCard": True,
                "extensions": [{"uri": REQUIRED, "required": True}],
            }
        }
    )
    agent.card = public
    client = client_of(agent, extensions=[OTHER])

    with pytest.raises(ExtensionNotSupportedError):
        await client.ask("hi")
    await client.get_extended_agent_card()
    answer = await client.ask("hi")

    assert answer.extensions == (OTHER,)


# ── What is activated ────────────────────────────────────────────────────────────────────────


@both_bindings
@streamed_or_polled
@pytest.mark.parametrize("behaviour", [completes("done"), replies("done")])
async def test_an_answer_tells_what_the_agent_has_activated(binding, streaming, behaviour):
    agent = agent_with(REQUIRED, behaviour=behaviour)
    client = client_of(agent, bindings=[binding], streaming=streaming)

    answer = await client.ask("hi", extensions=[REQUIRED, OPTIONAL])

    assert answer.extensions == (REQUIRED, OPTIONAL)


async def test_a_stream_tells_it_from_the_beginning_and_over_a_cut():
    agent = agent_with(behaviour=streams("a", "b", "c", every=1))
    agent.inject(Cut(after_events=3))
    client = client_of(agent, extensions=[OPTIONAL])

    stream = client.stream_message("hi")
    assert stream.extensions == ()
    async with stream as events:
        assert events.extensions == (OPTIONAL,)
        answer = await events.result()

    assert events.reconnects == 1
    assert answer.extensions == (OPTIONAL,)


@both_bindings
async def test_a_stream_of_a_known_task_tells_it_too(binding):
    agent = agent_with(behaviour=streams("a", "b", every=1))
    client = client_of(agent, extensions=[OPTIONAL], bindings=[binding])
    task = await client.send_message("hi", return_immediately=True)

    async with client.subscribe_to_task(task.id) as events:
        answer = await events.result()

    assert answer.extensions == (OPTIONAL,)


@both_bindings
async def test_a_reply_tells_it(binding):
    agent = agent_with()
    client = client_of(agent, bindings=[binding])
    message = Message(message_id="m-1", role=Role.USER, parts=(Part(text="hi"),))

    made = await client.call(
        op.SEND_MESSAGE, SendMessageRequest(message=message), extensions=[OPTIONAL]
    )
    read = await client.call(op.GET_TASK, GetTaskRequest(id="task-1"))

    assert made.extensions == (OPTIONAL,)
    assert read.extensions == ()
