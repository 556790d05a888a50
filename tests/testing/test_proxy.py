"""The proxy with faults, on real sockets, before an agent that does as it is told."""

import asyncio
import json

import aiohttp
import msgspec
import pytest
from tests.kit.ports import reserve_port
from tests.kit.raw_server import LAST_CHUNK, chunk, head, reply, serve
from tests.kit.virtual_env import SystemEnv

from holdfast import A2AConnectionError, A2ATimeoutError, RateLimitedError, Resilience, connect
from holdfast.policies import Timeouts
from holdfast.testing import (
    Cut,
    Delay,
    Duplicate,
    Fail,
    FakeAgent,
    FaultProxy,
    Garbage,
    LoopbackServer,
    Refuse,
    Reset,
    Respond,
    Stall,
    rate_limited,
    streams,
)

pytestmark = pytest.mark.real_time

SHORT = Resilience.off()
IMPATIENT = msgspec.structs.replace(SHORT, timeouts=Timeouts(first_byte=0.5, idle=0.5))


class Quick(SystemEnv):
    """Without luck: what is drawn is as short as it can be."""

    def random(self):
        return 0.0


class Way:
    """An agent, the proxy before it, and clients of it; enter it."""

    def __init__(self, agent=None):
        self.agent = agent or FakeAgent(streams("one ", "two ", "three "))

    async def __aenter__(self):
        self.server = await LoopbackServer(self.agent).__aenter__()
        self.proxy = await FaultProxy(self.server.url).__aenter__()
        self.clients = []
        return self

    async def __aexit__(self, *error):
        for client in self.clients:
            await client.close()
        await self.proxy.__aexit__(None, None, None)
        await self.server.__aexit__(None, None, None)

    def client(self, **options):
        client = connect(self.proxy.url, env=Quick(), **options)
        self.clients.append(client)
        return client


async def test_what_is_asked_goes_through_over_both_bindings():
    async with Way() as way:
        for binding in ("JSONRPC", "HTTP+JSON"):
            client = way.client(bindings=[binding])
            answer = await client.ask("hello")
            assert answer.text == "one two three "
            assert (await client.get_task(answer.task_id)).id == answer.task_id
            assert (await client.get_extended_agent_card()).name == "Fake agent, extended"
        asked = {received.operation for received in way.proxy.received}
        hosts = {received.headers["host"] for received in way.agent.received}

    assert asked >= {"GetAgentCard", "SendStreamingMessage", "GetTask", "GetExtendedAgentCard"}
    assert hosts == {way.server.url.removeprefix("http://")}
    assert way.proxy.connections == len(way.proxy.received)
    assert len(way.proxy.calls("GetTask")) >= 2


@pytest.mark.parametrize(
    "fault",
    [
        Reset(after_events=2),
        Cut(after_events=3),
        Cut(after_events=3, after_bytes=10),
        Cut(after_events=2, clean=True),
        Duplicate(event=3),
    ],
    ids=repr,
)
async def test_a_stream_that_meets_a_fault_is_whole_in_the_end(fault):
    async with Way() as way:
        way.proxy.inject(fault, on="SendStreamingMessage")
        answer = await way.client().ask("hello")

        assert answer.text == "one two three "
        assert way.proxy.pending_faults == ()
        assert len(way.agent.executions) == 1
        assert way.proxy.calls("SubscribeToTask") + way.proxy.calls("GetTask")


@pytest.mark.parametrize(
    ("fault", "executions"),
    [
        (Reset(), 0),
        (Reset(after_execution=True), 1),
        (Garbage(), 0),
        (Stall(), 0),
        (Stall(after_execution=True), 1),
        (Stall(phase="idle", after_bytes=4), 1),
        (Cut(after_bytes=4), 1),
        (Respond(status=502), 0),
        (Respond(status=502, after_execution=True), 1),
        (rate_limited(1), 0),
    ],
    ids=repr,
)
async def test_a_message_that_meets_a_fault(fault, executions):
    async with Way() as way:
        resilience = IMPATIENT if isinstance(fault, Stall) else SHORT
        client = way.client(resilience=resilience, bindings=["JSONRPC"])
        await client.agent_card()
        way.proxy.inject(fault)

        with pytest.raises(Exception) as caught:  # noqa: PT011  which is for other tests
            await client.send_message("hello")

        assert way.proxy.pending_faults == ()
        assert len(way.agent.executions) == executions
        if isinstance(fault, Stall):
            assert isinstance(caught.value.__cause__ or caught.value, A2ATimeoutError)
        if fault == rate_limited(1):
            assert isinstance(caught.value, RateLimitedError)


@pytest.mark.parametrize("after", [True, False])
async def test_what_is_late_is_executed(after):
    async with Way() as way:
        client = way.client(resilience=SHORT)
        way.proxy.inject(Delay(seconds=0.01, after_execution=after), on="SendMessage")

        task = await client.send_message("hello")

    assert list(way.agent.executions.values()) == [[task.id]]


async def test_connections_can_be_refused_and_taken_again():
    async with Way() as way:
        client = way.client(resilience=SHORT)
        await client.agent_card()
        await way.proxy.refuse()
        with pytest.raises(A2AConnectionError) as caught:
            await client.send_message("hello")
        assert (caught.value.failure, caught.value.executed) == ("refused", False)

        await way.proxy.listen()
        await client.send_message("hello")


async def test_an_agent_that_is_not_there_is_a_bad_gateway():
    async with (
        FaultProxy(f"http://127.0.0.1:{reserve_port()}") as proxy,
        aiohttp.ClientSession() as session,
        session.get(proxy.url) as answer,
    ):
        assert (answer.status, await answer.text()) == (502, "the agent is not there")
    assert [received.operation for received in proxy.received] == [""]


async def test_a_client_that_leaves_lets_go_of_the_agent():
    async def script(connection):
        await connection.request()
        await connection.until_gone()

    async with serve(script) as agent, FaultProxy(agent.url) as proxy:
        async with aiohttp.ClientSession() as session:
            asking = asyncio.create_task(session.get(proxy.url))
            await agent.until(lambda: agent.requests)
            asking.cancel()
            await asyncio.wait([asking])
        await agent.until(lambda: not agent.open)


async def test_the_replies_of_other_servers_pass_as_they_are():
    stream = "Content-Type: text/event-stream"
    replies = [
        reply(b"length"),
        head("Transfer-Encoding: chunked") + chunk(b"chu") + chunk(b"nks") + LAST_CHUNK,
        head("Connection: close") + b"to the end",
        b"HTTP/1.1 100 Continue\r\n\r\n" + reply(b"after"),
        head(status="204 No Content"),
        head("Transfer-Encoding: chunked", stream)
        + b"".join(chunk(piece) for piece in (b": hello\r\n\r\nda", b"ta: 1\r\n", b"\r\nrest"))
        + LAST_CHUNK,
        head(stream, "Connection: close") + b"data: 1\n\ndata: 2\n\n",
    ]
    events = b": hello\r\n\r\ndata: 1\r\n\r\nrest"
    bodies = [b"length", b"chunks", b"to the end", b"after", b"", events]
    bodies.append(b"data: 1\n\ndata: 2\n\n")
    left = iter(replies)

    async def script(connection):
        await connection.request()
        await connection.send(next(left))

    async with serve(script) as agent, FaultProxy(agent.url) as proxy:
        async with aiohttp.ClientSession() as session:
            for body in bodies:
                async with session.post(proxy.url + "/a?b=c", data=b"x", timeout=5) as answer:
                    assert await answer.read() == body
        assert agent.requests[0].startswith(b"POST /a?b=c HTTP/1.1\r\n")
        assert agent.requests[0].endswith(b"\r\n\r\nx")


@pytest.mark.parametrize(
    "broken",
    [
        b"this is not HTTP\r\n\r\n",
        b"",
        head("Content-Length: 9") + b"half",
        head("Transfer-Encoding: chunked") + b"zz\r\n",
        head("Transfer-Encoding: chunked") + b"5\r\nha",
        head("Content-Length: many"),
    ],
)
async def test_what_an_agent_breaks_off_is_broken_for_the_client(broken):
    async def script(connection):
        await connection.request()
        await connection.send(broken)

    async with (
        serve(script) as agent,
        FaultProxy(agent.url) as proxy,
        aiohttp.ClientSession() as session,
    ):
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(proxy.url)


@pytest.mark.parametrize(
    ("fault", "came"),
    [
        (Cut(after_events=0, clean=True), b""),
        (Cut(after_events=2, clean=True), b"data: 1\n\n: hush\n\ndata: 2\n\n"),
        (Cut(after_events=1, after_bytes=4, clean=True), b"data: 1\n\n: hu"),
        (Duplicate(event=2), b"data: 1\n\n: hush\n\ndata: 2\n\ndata: 2\n\ndata: 3\n\n"),
        (Cut(after_events=9), b"data: 1\n\n: hush\n\ndata: 2\n\ndata: 3\n\n"),
    ],
    ids=repr,
)
async def test_how_much_of_a_stream_comes(fault, came):
    async def script(connection):
        await connection.request()
        stream = head("Connection: close", "Content-Type: text/event-stream")
        await connection.send(stream + b"data: 1\n\n: hush\n\ndata: 2\n\ndata: 3\n\n")

    async with (
        serve(script) as agent,
        FaultProxy(agent.url) as proxy,
        aiohttp.ClientSession() as session,
    ):
        proxy.inject(fault)
        answer = await session.get(proxy.url)
        assert await answer.read() == came


async def test_a_stream_that_the_agent_breaks_off_is_cut():
    async def script(connection):
        await connection.request()
        stream = head("Transfer-Encoding: chunked", "Content-Type: text/event-stream")
        await connection.send(stream + chunk(b"data: 1\n\n"))

    async with (
        serve(script) as agent,
        FaultProxy(agent.url) as proxy,
        aiohttp.ClientSession() as session,
        session.get(proxy.url) as answer,
    ):
        assert await answer.content.readuntil(b"\n\n") == b"data: 1\n\n"
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


async def test_what_is_no_request_is_refused():
    async with FaultProxy("http://127.0.0.1:9") as proxy:
        port = int(proxy.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        writer.close()
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        silent.close()
        await silent.wait_closed()


async def test_a_card_leads_to_the_proxy():
    async with Way() as way, aiohttp.ClientSession() as session:
        answer = await session.get(f"{way.proxy.url}/.well-known/agent-card.json")
        card = json.loads(await answer.read())

    urls = [interface["url"] for interface in card["supportedInterfaces"]]
    assert urls == [f"{way.proxy.url}/rpc", f"{way.proxy.url}/rest"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"fault": Fail()}, "use Respond for a proxy"),
        ({"fault": Refuse()}, r"use refuse\(\) or stall\(\)"),
        ({"fault": Stall(phase="connect")}, r"use refuse\(\) or stall\(\)"),
        ({"fault": Reset(), "on": "Send"}, "on must be one of .*, not 'Send'"),
    ],
)
def test_what_a_proxy_cannot_do(given, why):
    proxy = FaultProxy("http://127.0.0.1:9")
    with pytest.raises(ValueError, match=why):
        proxy.inject(given.pop("fault"), **given)


@pytest.mark.parametrize("agent", ["https://127.0.0.1:9", "127.0.0.1:9", "http://"])
def test_where_a_proxy_cannot_lead(agent):
    with pytest.raises(ValueError, match="begins with http://"):
        FaultProxy(agent)
