"""The code in README.md runs as it stands."""

import asyncio
import functools
import re
import shlex
import sys
import tomllib

import click
import httpx
import pytest
from a2a.types import a2a_pb2 as pb
from tests.kit.authorization_server import FakeAuthorizationServer
from tests.kit.card_signing import DOCUMENT, SIGNER, Net
from tests.kit.client_tools import Scripted, call, calls
from tests.kit.pages import ROOT, Page, execute

import holdfast
import holdfast.integrations.httpx as holdfast_httpx
import holdfast.sync
from holdfast._cli.app import app
from holdfast.auth import oauth
from holdfast.integrations import a2a_sdk
from holdfast.server import A2AServer
from holdfast.testing import (
    Cut,
    FakeAgent,
    FakeNetwork,
    LoopbackServer,
    Refuse,
    Reset,
    asks,
    completes,
    fails,
    make_test_client_factory,
    rate_limited,
    streams,
)

pytest_plugins = ["pytester"]

README = Page("README.md")
PROGRAMS = [block for block in README.blocks if "run(main())" in block]
the_one_with = README.block


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


async def test_a_conversation_continues_until_it_needs_nothing():
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
        the_one_with("on_input=ask_me"),
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
        the_one_with("async for text in events.text_deltas()"),
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
        (lambda _: fails("no oven"), None, "the task failed: task"),
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
    provider = holdfast.auth.StaticAuth({"authorization": "Bearer x"})
    fragment = the_one_with("an AuthProvider, asked per attempt")
    await execute(fragment, token="t", key="k", provider=provider)


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


async def test_program_resumes_calls_of_another_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = FakeAgent(completes("moon", after=60), url="http://localhost:9999")
    connect = functools.partial(holdfast.connect, engine=FakeNetwork(agent))
    async with connect(agent.url, journal="sqlite:///calls.db") as left:
        with pytest.raises(holdfast.DeadlineExceededError):
            await left.ask("How far?", timeout=5)
    monkeypatch.setattr(holdfast, "connect", connect)
    seen = []

    block = the_one_with("agent.resume_pending()")
    names = await execute(block, print=lambda *words: seen.append(words))

    assert [words[1:] for words in seen] == [("moon", "(0 left)")]
    assert names["answer"].text == "moon"
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
    assert lines[3:] == ["the circuit of traffic is open", "Elections."]


HERE = "https://agent.example.com"
ID = "https://id.example.com"


def reach(monkeypatch, engine):
    """Lets what is connected to be in process."""
    monkeypatch.setattr(holdfast, "connect", functools.partial(holdfast.connect, engine=engine))


async def test_tokens_are_fetched(monkeypatch):
    agent = FakeAgent("384,400 km", url=HERE, token="token-1")
    server = FakeAuthorizationServer(FakeNetwork(agent), at=ID)
    reach(monkeypatch, server)
    fetching = functools.partial(oauth.ClientCredentials, engine=server)
    monkeypatch.setattr(oauth, "ClientCredentials", fetching)
    printed = []

    block = the_one_with("ClientCredentials")
    await execute(block, print=printed.append)

    assert printed == ["384,400 km"]
    assert [said["scope"] for said in server.asked] == ["a2a"]


async def test_a_card_says_who_vouches_for_it(monkeypatch):
    place = {"url": f"{HERE}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    card = {**DOCUMENT, "supportedInterfaces": [place]}
    del card["securityRequirements"]
    keys = "https://keys.example.com/jwks.json"
    signed = SIGNER.sign(card, key_url=keys)
    printed = []
    for shown in (signed, card):
        agent = FakeAgent("384,400 km", url=HERE, card=shown)
        with monkeypatch.context() as patch:
            reach(patch, Net(agent, pages={keys: SIGNER.jwks}))
            running = execute(the_one_with("CardVerifier"), print=printed.append)
            if shown is signed:
                await running
            else:
                with pytest.raises(holdfast.errors.CardSignatureError):
                    await running
    assert printed == ["384,400 km", "verified"]
    assert agent.executions == {}


@pytest.mark.real_time
async def test_grpc_is_called_where_it_is_preferred():
    callers, printed = [], []

    async def answer(text: str, turn):
        callers.append(turn.requester.headers["user-agent"])
        return text

    async with A2AServer(answer).serving(bindings=["JSONRPC", "GRPC"]) as running:
        await execute(the_one_with('["GRPC"]').replace(HERE, running.url), print=printed.append)
    assert printed == ["How far is the moon?"]
    assert "grpc" in callers[0]


def test_everything_is_there_without_asyncio(monkeypatch):
    def behave(turn):
        if turn.task is None and "table" in turn.message.text:
            return asks("For when?")
        return completes(f"{turn.message.text}!")

    agent = FakeAgent(behave, url="http://localhost:9999")
    connect = functools.partial(holdfast.sync.connect, engine=FakeNetwork(agent))
    monkeypatch.setattr(holdfast.sync, "connect", connect)
    printed, asked = [], []
    names = {
        "print": lambda text, **_: printed.append(text),
        "input": lambda question: asked.append(question) or "tonight",
    }

    exec(the_one_with("holdfast.sync.connect"), names)

    assert printed == ["How far is the moon?!", "And in miles?!", "tonight!"]
    assert asked == ["For when? "]


async def test_a_function_is_an_agent_and_is_called_without_a_socket(monkeypatch):
    served = []
    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "run", served.append)
        patch.setattr(A2AServer, "serve", lambda server, **options: (server, options))
        names = await execute(the_one_with("A2AServer(weather).serve"))
    [(server, options)] = served
    assert options == {"port": 9999}

    async with make_test_client_factory(server) as factory, factory.connect() as agent:
        asked = await agent.ask("Paris")
        answer = await agent.ask("Oslo", task_id=asked.task_id, context_id=asked.context_id)
        card = await agent.agent_card()
    assert asked.question == "In which city, Rome or Oslo?"
    assert answer.text == "It is snowing in Oslo."
    assert (card.name, card.description) == ("weather", "Tells what the weather is like.")

    used = await execute(the_one_with("make_test_client_factory"), **names)
    async with used["factory"]() as http:
        reply = await http.get("/.well-known/agent-card.json")
    assert reply.json()["name"] == "weather"


def test_pytest_has_fixtures_for_it(pytester):
    pytester.makepyfile(the_one_with("holdfast_fake_agent"))
    without = [
        word for name in ("cacheprovider", "hypothesispytest") for word in ("-p", f"no:{name}")
    ]
    plugin = "holdfast.testing.pytest_plugin"
    done = pytester.runpytest_inprocess("-p", plugin, "--strict-markers", "-W", "error", *without)
    done.assert_outcomes(passed=1)


def test_every_extra_is_in_the_table():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {"holdfast": project["dependencies"], **project["optional-dependencies"]}
    _, _, section = README.text.partition("## Extras\n")
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:3] == "| `"]
    told = {}
    for names, _, packages in rows:
        extras = re.findall(r"`([^`]+)`", names)
        for extra in extras:
            told[extra] = {extra} if len(extras) > 1 else set(packages.split(", "))
    assert told == {
        extra: {re.match(r"[\w-]+", package)[0] for package in packages}
        for extra, packages in wanted.items()
    }


def test_the_command_line_claims_what_its_report_says():
    report = (ROOT / "docs" / "cli-compliance.md").read_text()
    assert ("all three tiers" in README.text) is ("| Tier claimed | 3 |" in report)
    assert "[docs/cli-compliance.md](docs/cli-compliance.md)" in README.text


def test_the_commands_are_there_and_have_these_options():
    lines = re.findall(r"^\$ holdfast (.*)$", README.text, flags=re.MULTILINE)
    assert len(lines) > 10
    for line in lines:
        words = shlex.split(line, comments=True)
        command = app
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= options, line


def test_every_block_is_run():
    README.check_complete(
        "import asyncio\n\nimport holdfast\n",  # the programs
        "# a chunk every ten seconds",
        "fan_out",
        "agent.resume_pending()",
        "run_id",
        "tools=",
        "on_input=ask_me",
        "PushReceiver",
        "needs_input",
        "async for text in events.text_deltas()",
        "file_part",
        "except holdfast",
        "AuthProvider",
        "ClientCredentials",
        "CardVerifier",
        '["GRPC"]',
        "holdfast.sync.connect",
        "A2AServer(weather).serve",
        "client_factory(ClientConfig())",
        "transport=Transport()",
        "holdfast_fake_agent",
        "make_test_client_factory",
    )


def test_every_link_leads_somewhere():
    README.check_links()
