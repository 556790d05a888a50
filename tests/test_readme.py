"""The code in README.md runs as it stands."""

import ast
import asyncio
import functools
import inspect
import json
import re
import sys
from pathlib import Path

import httpx
import pytest
import trustme
from a2a.types import a2a_pb2 as pb
from tests.asgi_client import request
from tests.test_client_tools import Scripted, call, calls

import holdfast
import holdfast.integrations.httpx as holdfast_httpx
from holdfast.integrations import a2a_sdk
from holdfast.server import ProtocolErrors
from holdfast.testing import (
    Cut,
    Fail,
    FakeAgent,
    FakeNetwork,
    LoopbackServer,
    Refuse,
    Reset,
    asks,
    completes,
    fails,
    rate_limited,
    streams,
)

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
PROGRAMS = [block for block in BLOCKS if "run(main())" in block]
FRAGMENTS = [block for block in BLOCKS if "run(main())" not in block]


async def execute(fragment, **names):
    """Runs a fragment that awaits at its top level, and gives the names that it leaves."""
    code = compile(fragment, str(README), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = {"holdfast": holdfast, **names}
    result = eval(code, names)
    if inspect.isawaitable(result):
        await result
    return names


def the_one_with(text):
    [fragment] = [fragment for fragment in FRAGMENTS if text in fragment]
    return fragment


@pytest.mark.real_time
@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_program_runs(program):
    async with LoopbackServer(FakeAgent()) as server:
        program = program.replace("http://localhost:9999", server.url)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", program),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            output, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (0, "")
    if "print(" in program:
        assert output.decode() == "How far is the moon?\n"


async def test_a_conversation_goes_on_until_it_needs_nothing():
    def behave(turn):
        return asks("For when?") if turn.task is None else completes("Booked.")

    agent = FakeAgent(behave)
    asked = []
    client = holdfast.connect(agent.url, engine=FakeNetwork(agent))
    await execute(
        the_one_with("needs_input"),
        agent=client,
        input=lambda question: asked.append(question) or "tonight",
        print=asked.append,
    )
    assert asked == ["For when? ", "Booked."]


async def test_a_conversation_asks_a_person_on_the_way():
    def behave(turn):
        table = "table" in turn.message.text
        return asks("For when?") if table else completes(f"Done: {turn.message.text}")

    agent = FakeAgent(behave)
    seen = []
    await execute(
        the_one_with("on_input"),
        agent=holdfast.connect(agent.url, engine=FakeNetwork(agent)),
        asyncio=asyncio,
        input=lambda question: seen.append(question) or "tonight",
        print=seen.append,
    )
    assert seen == ["For when? ", "Done: tonight", "Done: And a taxi to get there."]


async def test_an_agent_calls_a_function_here():
    agent = Scripted(calls(call(1, "distance", '{"body":"moon"}')), completes("384400.0 km"))
    table = {"moon": 384400.0}
    names = await execute(the_one_with("tools="), agent=agent.client(), TABLE=table)
    assert names["answer"].text == "384400.0 km"


async def test_an_agent_tells_when_it_is_done():
    agent = FakeAgent(completes("moon", after=100))
    client = holdfast.connect(agent.url, engine=FakeNetwork(agent))
    names = await execute(the_one_with("PushReceiver"), agent=client)
    assert names["done"].text == "moon"


async def test_an_answer_comes_piece_by_piece_although_it_is_cut():
    agent = FakeAgent(streams("384,400 ", "km, ", "on average", every=1))
    agent.inject(Cut(after_events=3))
    printed = []

    names = await execute(
        the_one_with("text_deltas"),
        agent=holdfast.connect(agent.url, engine=FakeNetwork(agent)),
        print=lambda text, **_: printed.append(text),
    )

    assert printed == ["384,400 ", "km, ", "on average"]
    assert names["answer"].text == "384,400 km, on average"
    assert agent.pending_faults == ()


async def test_messages_have_many_forms(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cat.png").write_bytes(b"\x89PNG")
    agent = FakeAgent()
    await execute(
        the_one_with("file_part"), agent=holdfast.connect(agent.url, engine=FakeNetwork(agent))
    )
    [task] = agent.tasks.values()
    picture, data = task.history[0].parts[1:]
    assert (picture.media_type, picture.raw, data.data) == ("image/png", b"\x89PNG", {"n": 1})


@pytest.mark.parametrize(
    ("behaviour", "fault", "printed"),
    [
        (None, Reset(after_execution=True), "the connection"),
        (lambda _: fails("no oven"), None, "the agent gave up: task"),
        (None, Reset(after_execution=True), "attempt"),
    ],
)
async def test_failures_tell_what_happened(behaviour, fault, printed):
    agent = FakeAgent(behaviour or "", records_messages=False)
    if fault:
        agent.inject(fault)
    lines = []
    await execute(
        the_one_with("except holdfast.OutcomeUnknownError"),
        agent=holdfast.connect(agent.url, engine=FakeNetwork(agent)),
        print=lambda *words: lines.append(" ".join(map(str, words))),
    )
    assert len(lines) == 1
    assert printed in lines[0].lower()


async def test_credentials_have_many_forms():
    provider = holdfast.StaticAuth({"authorization": "Bearer x"})
    fragment = the_one_with("an AuthProvider, asked per attempt")
    await execute(fragment, token="t", key="k", provider=provider)


KEPT = {
    "name": "Kept",
    "supportedInterfaces": [
        {"url": "https://agent.example.com/rpc", "protocolBinding": "JSONRPC"}
    ],
    "securitySchemes": {"bearerAuth": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
    "securityRequirements": [{"schemes": {"bearerAuth": {"list": []}}}],
}


async def test_each_session_has_credentials_of_its_own(monkeypatch):
    agent = FakeAgent(url="https://agent.example.com", card=KEPT, token="t")
    connect = holdfast.connect
    monkeypatch.setattr(
        holdfast, "connect", lambda url, **o: connect(url, engine=FakeNetwork(agent), **o)
    )

    names = await execute(the_one_with("sessionId"), token="t")

    assert names["answer"].text == "How far is the moon?"


@pytest.mark.real_time
async def test_an_engine_is_entered_beside_its_client(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trustme.CA().cert_pem.write_to_path("ca.pem")

    async with LoopbackServer(FakeAgent()) as server:
        fragment = the_one_with("ca.pem").replace("https://agent.example.com", server.url)
        names = await execute(fragment)

    assert names["answer"].text == "How far is the moon?"


async def test_the_words_of_the_official_sdk_work_too(monkeypatch):
    agent = FakeAgent(url="https://agent.example.com")
    told = []
    create = holdfast.ClientFactory.create
    monkeypatch.setattr(
        holdfast.ClientFactory,
        "create",
        lambda self, url: create(self, url, engine=FakeNetwork(agent)),
    )

    names = await execute(the_one_with("holdfast.ClientFactory"), print=told.append)

    assert told == [names["task"]]
    assert names["task"].status.state.is_terminal
    assert agent.received[-1].url.startswith("https://agent.example.com/rest")


async def test_the_official_sdk_is_carried(monkeypatch):
    agent = FakeAgent("384,400 km", url="http://localhost:9999")
    factory = functools.partial(a2a_sdk.client_factory, engine=FakeNetwork(agent))
    monkeypatch.setattr(a2a_sdk, "client_factory", factory)
    monkeypatch.setattr(httpx, "AsyncClient", carried_to(agent))

    agent.inject(rate_limited(retry_after=30))
    agent.inject(Cut(after_events=2))
    told = []
    await execute(the_one_with("client_factory(ClientConfig())"), print=told.append)

    assert told[-1].status_update.status.state == pb.TASK_STATE_COMPLETED
    assert "".join(told_of(told)) == "384,400 km"
    [sent] = agent.calls("SendStreamingMessage")
    assert sent.at >= 30  # as it was asked to wait
    assert len(agent.executions) == 1


def told_of(events):
    """The texts of the artifacts in events of the official SDK."""
    for event in events:
        for part in event.artifact_update.artifact.parts:
            yield part.text


async def test_a_client_of_httpx_is_carried(monkeypatch):
    agent = FakeAgent(url="http://localhost:9999")
    network = FakeNetwork(agent)
    monkeypatch.setattr(holdfast, "AiohttpEngine", lambda: network)
    carrying = functools.partial(holdfast_httpx.Transport, engine=network)
    monkeypatch.setattr(holdfast_httpx, "Transport", carrying)
    card = "http://localhost:9999/.well-known/agent-card.json"
    agent.inject(Refuse(), on="GetAgentCard")

    names = await execute(the_one_with("transport=Transport()"))
    async with names["client"] as client:
        reply = await client.get(card)
    agent.inject(Refuse(), on="GetAgentCard", times=99)
    for _ in range(5):
        async with names["httpx_client_factory"]() as client:
            with pytest.raises(httpx.ConnectError) as caught:
                await client.get(card)

    assert reply.json()["name"] == "Fake agent"
    assert isinstance(caught.value.__cause__, holdfast.CircuitOpenError)


def carried_to(agent):
    """The class of httpx clients that reach an agent in process."""
    carrying = holdfast_httpx.Transport(engine=FakeNetwork(agent))
    return functools.partial(httpx.AsyncClient, transport=carrying)


async def test_a_program_goes_on_with_what_another_has_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = FakeAgent(completes("moon", after=60), url="http://localhost:9999")
    connect = functools.partial(holdfast.connect, engine=FakeNetwork(agent))
    async with connect(agent.url, journal="sqlite:///calls.db") as left:
        with pytest.raises(holdfast.DeadlineExceededError):
            await left.ask("How far?", timeout=5)
    monkeypatch.setattr(holdfast, "connect", connect)
    seen = []

    names = await execute(the_one_with("agent.pending()"), print=seen.append)

    assert [answer.text for answer in (*seen, names["answer"])] == ["moon", "moon"]
    assert len(agent.executions) == 2
    await names["agent"].close()


async def test_many_messages_are_one_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = FakeAgent(
        lambda turn: completes(turn.message.text.upper()), url="http://localhost:9999"
    )
    connect = functools.partial(holdfast.connect, engine=FakeNetwork(agent))
    monkeypatch.setattr(holdfast, "connect", connect)
    seen = []

    await execute(
        the_one_with("run_id"), prompts=["a", "b"], print=lambda *words: seen.append(words)
    )

    assert sorted(seen) == [("0", "A"), ("1", "B")]


async def test_many_agents_are_asked_at_once(monkeypatch):
    weather = FakeAgent(completes("Rain.", after=1), url="https://weather.example.com")
    news = FakeAgent(completes("Elections.", after=2), url="https://news.example.com")
    traffic = FakeAgent(url="https://traffic.example.com")
    traffic.inject(Refuse(), on="GetAgentCard", times=100)
    network = FakeNetwork(weather, news, traffic)
    coordinator = functools.partial(
        holdfast.Coordinator,
        engine=network,
        resilience=holdfast.Resilience(breaker=holdfast.BreakerPolicy.simple(failures=1)),
    )
    monkeypatch.setattr(holdfast, "Coordinator", coordinator)
    lines = []

    await execute(
        the_one_with("fan_out"),
        weather_url=weather.url,
        news_url=news.url,
        traffic_url=traffic.url,
        print=lambda *words: lines.append(" ".join(map(str, words))),
    )

    (away,) = (line for line in lines[:3] if line.startswith("traffic "))
    assert "the connection was refused" in away
    assert [line for line in lines[:3] if line != away] == ["weather Rain.", "news Elections."]
    assert lines[3:] == ["traffic is left alone for now", "Elections."]


async def test_an_agent_tells_its_callers_where_it_broke(monkeypatch):
    b = FakeAgent(url="https://b.example.com")
    broken = holdfast.AgentError("the model is overloaded", code=-32050)
    told = holdfast.wrap_downstream(broken, agent="C", current="B").to_jsonrpc()
    b.inject(Fail(code=told["code"], message=told["message"], data=told["data"]))
    connect = functools.partial(holdfast.connect, engine=FakeNetwork(b))
    monkeypatch.setattr(holdfast, "connect", connect)

    names = await execute(the_one_with("wrap_downstream"), ProtocolErrors=ProtocolErrors)
    call = {"jsonrpc": "2.0", "id": "1", "method": "SendMessage", "params": {}}
    reply = await request(
        names["app"],
        json.dumps(call).encode(),
        headers=[("content-type", "application/json")],
    )

    error = holdfast.A2AError.from_jsonrpc(json.loads(reply.text)["error"])
    assert error.hops == ("B", "C")
    text = "the agent answered -32603: agent B failed: agent C failed: the model is overloaded"
    assert str(error) == text
    assert text in " ".join(README.read_text().split())


def test_every_block_is_run():
    tried = (
        "fan_out",
        "wrap_downstream",
        "agent.pending()",
        "run_id",
        "tools=",
        "on_input",
        "PushReceiver",
        "needs_input",
        "text_deltas",
        "file_part",
        "except holdfast",
        "AuthProvider",
        "sessionId",
        "ca.pem",
        "holdfast.ClientFactory",
        "client_factory(ClientConfig())",
        "transport=Transport()",
    )
    assert len(PROGRAMS) == 2
    assert all(any(text in fragment for text in tried) for fragment in FRAGMENTS)
