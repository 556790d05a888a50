"""The program in docs/howto/complete-orchestrator.md runs, is stopped by SIGTERM, and resumes."""

import asyncio
import collections
import contextlib
import json
import signal
import sys
from functools import partial

import pytest
from tests.kit.authorization_server import FakeAuthorizationServer
from tests.kit.pages import Page, execute
from tests.kit.ports import reserve_port
from tests.kit.real_agents import LIMIT

import holdfast
from holdfast.auth import oauth
from holdfast.auth.oauth import ClientCredentials
from holdfast.extend import HttpRequest
from holdfast.server import A2AServer
from holdfast.testing import FakeAgent, FakeNetwork

PAGE = Page("docs/howto/complete-orchestrator.md")
QUESTIONS = {"What is new in Rome?", "What is new in Oslo?"}


class Agents:
    """The agents of the page: one replica of `weather` is down, and `news` waits for an event."""

    def __init__(self):
        self.received = collections.Counter()
        self.released = asyncio.Event()
        self.has_all = asyncio.Event()

    def _receive(self, agent, text):
        self.received[agent, text] += 1
        if len(self.received) == 2 * len(QUESTIONS):
            self.has_all.set()

    @contextlib.asynccontextmanager
    async def serving(self, weather_port, news_port):
        async def weather(text: str):
            self._receive("weather", text)
            return "Sunny."

        async def news(text: str):
            self._receive("news", text)
            await self.released.wait()
            return "Nothing new."

        async with (
            A2AServer(weather).serving(port=weather_port, grace=1),
            A2AServer(news).serving(port=news_port, grace=1),
        ):
            yield


class Program:
    """The program of the page, in a directory of its own."""

    def __init__(self, directory, ports):
        self._directory = directory
        self._text = PAGE.block("def main").replace(
            "max_retries=3", "max_retries=3, base_delay=0.05"
        )
        for port, free in ports.items():
            self._text = self._text.replace(str(port), str(free))

    @contextlib.asynccontextmanager
    async def running(self):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", self._text),
            cwd=self._directory,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


@pytest.mark.real_time
async def test_orchestrator_is_stopped_and_resumes(tmp_path):
    ports = {port: reserve_port() for port in (9100, 9101, 9102, 9111)}
    program, agents = Program(tmp_path, ports), Agents()
    async with asyncio.timeout(LIMIT), agents.serving(ports[9111], ports[9102]):
        async with program.running() as process:
            first = [await process.stdout.readline() for _ in QUESTIONS]
            assert all(first), await process.stderr.read()
            await agents.has_all.wait()
            status = await get(f"http://localhost:{ports[9100]}/status")
            process.send_signal(signal.SIGTERM)
            rest, log = await process.communicate()
        assert process.returncode == 143, log
        assert {line.split(b": ")[1:][0] for line in first} == {b"weather"}
        assert b"news" not in rest
        assert set(status["agents"]) == {"weather", "news"}
        assert status["counts"]["answered"] == len(QUESTIONS)
        pending = await pending_calls(tmp_path, f"http://localhost:{ports[9102]}")
        assert [call.is_held for call in pending] == [False] * len(QUESTIONS)

        agents.released.set()
        async with program.running() as process:
            printed, log = await process.communicate()
        assert process.returncode == 0, log

    *lines, counts = printed.decode().splitlines()
    assert sorted(lines) == [
        "oslo-1: news: Nothing new.",
        "oslo-1: weather: Sunny.",
        "rome-1: news: Nothing new.",
        "rome-1: weather: Sunny.",
    ]
    assert "'from the journal': 2" in counts
    assert set(agents.received.values()) == {1}
    assert {text for _, text in agents.received} == QUESTIONS


async def test_an_agent_has_credentials_and_the_journal(monkeypatch, tmp_path):
    """The coordinator asks the agent of the block, too, and a second run sends nothing."""
    agents = [FakeAgent("Sunny.", url=f"http://localhost:{n}") for n in (9101, 9111, 9102)]
    orders = FakeAgent("None.", url="https://orders.example.com", token="token-1")
    network = FakeAuthorizationServer(FakeNetwork(orders, *agents), at="https://id.example.com")
    monkeypatch.setattr(oauth, "ClientCredentials", partial(ClientCredentials, engine=network))
    for name in ("connect", "Coordinator"):
        monkeypatch.setattr(holdfast, name, partial(getattr(holdfast, name), engine=network))
    names = await execute(
        PAGE.block("def main"), __name__="orchestrator", print=lambda *_, **__: 0
    )
    names = await execute(PAGE.block("all_agents"), **names)

    for _ in range(2):
        journal = holdfast.SqliteJournal(tmp_path / "calls.db", store_messages=True)
        async with (
            names["all_agents"](journal) as all_agents,
            holdfast.Coordinator(all_agents, journal=journal) as coordinator,
        ):
            assert await names["do"](coordinator, "rome-1", "What is new in Rome?")
        await journal.close()

    assert len(orders.executions) == 1
    assert orders.calls("SendStreamingMessage")[0].headers["authorization"] == "Bearer token-1"
    assert names["counts"]["answered"] == 1


async def get(url):
    async with holdfast.extend.AiohttpEngine() as engine:
        reply = await engine.request(HttpRequest(method="GET", url=url))
    return json.loads(reply.body)


async def pending_calls(directory, url):
    async with holdfast.connect(url, journal=directory / "orchestrator.db") as agent:
        return await agent.pending()


def test_every_block_is_run():
    PAGE.check_complete("def main", "all_agents")


def test_commands_exist_and_links_lead_somewhere():
    PAGE.check_commands(at_least=3)
    PAGE.check_links()
