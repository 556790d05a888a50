"""Clients of an agent in process, whatever the agent is and whoever calls it."""

import asyncio
import gc
import subprocess
import sys

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageRequest

from holdfast import A2AConnectionError, Resilience
from holdfast.server import A2AServer
from holdfast.testing import (
    Cut,
    FakeAgent,
    Reset,
    make_test_client_factory,
    make_test_rest_client_factory,
    pick_free_port,
    streams,
)

BOTH = pytest.mark.parametrize(
    ("make", "binding"),
    [(make_test_client_factory, "JSONRPC"), (make_test_rest_client_factory, "HTTP+JSON")],
    ids=["JSONRPC", "REST"],
)
CARD = "/.well-known/agent-card.json"


def now():
    return asyncio.get_running_loop().time()


async def words(text: str):
    """Gives back a text word by word, one in a second."""
    for word in text.split():
        await asyncio.sleep(1)
        yield f"{word} "


def a2a_server():
    return A2AServer(words)


def fake_agent():
    return FakeAgent(streams("one ", "two ", every=1))


ANY = pytest.mark.parametrize("server", [a2a_server, fake_agent])


def bindings_of(card):
    return [interface["protocolBinding"] for interface in card["supportedInterfaces"]]


@BOTH
@ANY
async def test_a_holdfast_client(make, binding, server):
    async with make(server()) as factory, factory.connect() as client:
        async with client.stream_message("one two") as events:
            told = [(round(now()), text) async for text in events.text_deltas()]
        tasks = await client.list_tasks()

    assert [text for _, text in told if text] == ["one ", "two "]
    assert told[0][0] < told[-1][0]  # as it came, not at the end
    assert len(tasks.tasks) == 1


@BOTH
@ANY
async def test_the_clients_of_the_official_sdk(make, binding, server):
    async with make(server()) as factory, factory() as http:
        client = await ClientFactory(
            ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
        ).create_from_url(factory.url)
        message = Message(role=Role.ROLE_USER, message_id="m-1", parts=[Part(text="one two")])
        told = []
        async for event in client.send_message(SendMessageRequest(message=message)):
            update = event.artifact_update
            told += [(now(), part.text) for part in update.artifact.parts if part.text]

    assert [text for _, text in told] == ["one ", "two "]
    assert told[0][0] < told[1][0]


async def test_what_a_server_declares():
    for make, binding in (
        (make_test_client_factory, "JSONRPC"),
        (make_test_rest_client_factory, "HTTP+JSON"),
    ):
        async with make(A2AServer(words), url="http://mine.test") as factory, factory() as http:
            card = (await http.get(CARD)).json()
        assert bindings_of(card) == [binding]
        assert card["supportedInterfaces"][0]["url"].startswith("http://mine.test")


async def test_card_is_narrowed_to_rest_in_transit():
    agent = FakeAgent()

    async with make_test_client_factory(agent)() as http:
        assert bindings_of((await http.get(CARD)).json()) == ["JSONRPC", "HTTP+JSON"]
    factory = make_test_rest_client_factory(agent)
    async with factory() as http:
        reply = await http.get(CARD)
    async with factory.connect() as client:
        await client.ask("hello")

    assert bindings_of(reply.json()) == ["HTTP+JSON"]
    assert agent.received[-1].url.startswith("http://agent.test/rest/")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"supportedInterfaces": 1}', b"{}"])
async def test_a_card_that_is_none_is_shown_as_it_came(body):
    async def app(_scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async with make_test_rest_client_factory(app)() as http:
        reply = await http.get(CARD)
        async with http.stream("GET", "/elsewhere") as other:
            assert await other.aread() == body

    assert reply.content.replace(b" ", b"") == body.replace(b" ", b"")


# ── httpx ────────────────────────────────────────────────────────────────────────────────────


async def test_httpx_sees_every_request_once_and_every_stream_raw():
    agent = FakeAgent(streams("one ", "two ", every=1))
    factory = make_test_client_factory(agent)
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    headers = {"a2a-version": "1.0"}
    async with factory() as http:
        agent.inject(Reset(), on="GetTask")
        with pytest.raises(httpx.RemoteProtocolError):
            await http.get("/rest/tasks/t-1", headers=headers)
        agent.inject(Cut(after_events=2, clean=True))
        sent = {"method": "POST", "url": "/rest/message:stream", "json": {"message": message}}
        async with http.stream(**sent, headers=headers) as reply:
            lines = [line async for line in reply.aiter_lines() if line.startswith("data:")]

    assert len(lines) == 2  # that it ended too early is for others to say
    assert [received.operation for received in agent.received] == ["SendStreamingMessage"]


async def test_a_client_that_is_closed_leaves_the_others_alone():
    factory = make_test_client_factory(A2AServer(words))
    async with factory:
        async with factory() as first:
            await first.get(CARD)
        async with factory() as second:
            assert (await second.get(CARD)).status_code == 200


async def test_stream_of_httpx_that_is_left_disconnects_the_application():
    told = []

    async def app(_scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        told.append((await receive())["type"])

    factory = make_test_client_factory(app)
    async with factory() as http:
        async with http.stream("GET", "/") as reply:
            assert await anext(reply.aiter_bytes()) == b"a"
            assert told == []
        forgotten = await http.send(http.build_request("GET", "/"), stream=True)
        del forgotten
        gc.collect()
    await factory.close()

    assert told == ["http.disconnect"] * 2


async def test_the_timeout_is_that_of_each_phase():
    async def slow(_scope, receive, send):
        await asyncio.sleep(5)

    factory = make_test_client_factory(slow, timeout=2)
    async with factory() as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.get("/")
    assert now() == 2
    await factory.close()


# ── What is asked for ────────────────────────────────────────────────────────────────────────


async def test_connect_takes_the_options_of_connect():
    factory = make_test_client_factory(FakeAgent(), timeout=3)
    async with factory.connect(resilience=Resilience.off(), bindings=["HTTP+JSON"]) as client:
        assert (await client.ask("hello")).text == "hello"
    with pytest.raises(A2AConnectionError):
        await factory.connect(url="http://elsewhere.test/rpc").get_task("t-1")


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        ({"server": FakeAgent(), "url": "http://other.test"}, ValueError, "pass FakeAgent"),
        ({"server": "http://agent.test"}, TypeError, "not str"),
        ({"server": FakeAgent(), "timeout": 0}, ValueError, "timeout"),
        ({"server": print, "url": "agent.test"}, ValueError, "agent.test"),
    ],
)
@BOTH
def test_what_cannot_be_right(make, binding, given, error, why):
    with pytest.raises(error, match=why):
        make(**given)


def test_without_httpx_the_error_names_the_extra():
    script = (
        "import sys\n"
        "class Nothing:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'httpx':\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Nothing())\n"
        "from holdfast.testing import *\n"
        "factory = make_test_client_factory(FakeAgent())\n"
        "assert run(factory.connect().ask('hello')).text == 'hello'\n"
        "try:\n    factory()\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert 'extra "httpx"' in done.stdout


@pytest.mark.real_time
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_a_free_port_can_be_listened_on(host):
    port = pick_free_port(host)

    server = await asyncio.start_server(lambda _reader, _writer: None, host, port)

    server.close()
    await server.wait_closed()
    assert 0 < port < 65536


def test_a_free_port_of_an_address_that_is_not_here():
    with pytest.raises(OSError, match="assign"):
        pick_free_port("192.0.2.1")


async def test_a_function_that_answers_is_no_application():
    async def answer(message):
        return "well"

    with pytest.raises(
        TypeError, match=r"answer is not an ASGI application.* A2AServer\(answer\)"
    ):
        make_test_client_factory(answer)
