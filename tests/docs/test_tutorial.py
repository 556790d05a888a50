"""The programs of the tutorial run as they stand, in virtual time; its commands exist."""

import asyncio
import functools
import re
import sys
import traceback

import pytest
from tests.kit.pages import Page, shows

import holdfast
from holdfast._cli.demo_agent import DemoAgent, read_faults
from holdfast.testing import FakeAgent, FakeNetwork, Refuse

HERE = "http://localhost:9999"
TUTORIAL = Page("docs/tutorial.md")


def program(text, **names):
    """Runs a program of the page up to its last line, and gives its coroutine function."""
    names = {"print": print, **names}
    before, _, last = TUTORIAL.block(text).rstrip().rpartition("\n")
    assert last == "asyncio.run(main())"
    exec(before, names)
    return names


def reach(monkeypatch, *agents):
    network = FakeNetwork(*agents)
    for name in ("connect", "Coordinator"):
        make = functools.partial(getattr(holdfast, name), engine=network)
        monkeypatch.setattr(holdfast, name, make)


def down(url):
    """The address of an agent that does not run."""
    agent = FakeAgent(url=url)
    agent.inject(Refuse(), on="GetAgentCard", times=1000)
    return agent


def demo_agent(faults=""):
    """The agent of the command `demo-server`, and the lines that it prints."""
    lines = []
    agent = DemoAgent(read_faults(faults) if faults else (), log=lines.append)
    agent.url = HERE
    return agent, lines


async def test_agent_is_called(monkeypatch, capsys):
    agent, _ = demo_agent()
    reach(monkeypatch, agent)
    await program("print(answer.task_id")["main"]()
    assert shows(TUTORIAL.output("python first.py"), capsys.readouterr().out)


async def test_agent_that_does_not_run_is_an_error(monkeypatch):
    reach(monkeypatch, down(HERE))
    with pytest.raises(holdfast.A2AConnectionError) as caught:
        await program("print(answer.task_id")["main"]()
    assert f"\nholdfast.errors.A2AConnectionError: {caught.value}\n" in TUTORIAL.text


async def test_cut_stream_is_complete(monkeypatch, capsys):
    agent, lines = demo_agent("cut:3,reset")
    reach(monkeypatch, agent)
    await program("events.reconnects")["main"]()
    assert shows(TUTORIAL.output("python stream.py"), capsys.readouterr().out)
    [requests] = [text for text in TUTORIAL.texts if "SubscribeToTask" in text]
    assert shows(requests, "\n".join(lines))


class Terminal:
    """Runs the orchestrator of the page, each time as a new process with the same journal."""

    def __init__(self, monkeypatch, capsys):
        self.monkeypatch = monkeypatch
        self.capsys = capsys
        self.start_agents("first")

    def start_agents(self, name):
        """Start the two agents of the page, without the tasks of earlier ones."""
        practice = program("def weather")
        agents = [
            FakeAgent(practice[agent], url=f"http://localhost:{port}", id_suffix=f"-{name}")
            for agent, port in (("weather", 9101), ("news", 9102))
        ]
        reach(self.monkeypatch, *agents, down("http://localhost:9103"))

    async def run(self, key, *, kill_after=None):
        """Run the orchestrator, and return what it and the agents print."""
        journals = []

        def journal(*arguments, make=holdfast.SqliteJournal, **options):
            journals.append(make(*arguments, **options))
            return journals[-1]

        with self.monkeypatch.context() as patch:
            patch.setattr(holdfast, "SqliteJournal", journal)
            patch.setattr(sys, "argv", ["orchestrator.py", key])
            running = asyncio.create_task(program("holdfast.Coordinator(AGENTS")["main"]())
            await asyncio.wait([running], timeout=kill_after)
            if not running.done():
                for each in journals:
                    await each.close()
                    each._do = lost  # what a killed process does not write
                running.cancel()
            error = ""
            try:
                await running
            except holdfast.NotEnoughResultsError as failure:
                error = "".join(traceback.format_exception(failure))
            except asyncio.CancelledError:
                pass
        lines = self.capsys.readouterr().out.splitlines()
        at_agents = [line for line in lines if " works on: " in line]
        printed = [line for line in lines if line not in at_agents]
        return "\n".join([*printed, error]), at_agents


async def lost(*_work):
    raise OSError("the process was killed")


@pytest.fixture
def terminal(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    return Terminal(monkeypatch, capsys)


async def test_orchestrator_of_one_key_asks_once(terminal):
    printed, at_agents = await terminal.run("monday")
    assert shows(TUTORIAL.output("python orchestrator.py monday"), printed)
    [received] = [text for text in TUTORIAL.texts if "news works on" in text]
    assert shows(received, "\n".join(at_agents))

    again, at_agents = await terminal.run("monday")
    assert sorted(again.splitlines()) == sorted(printed.splitlines())
    assert at_agents == []


async def test_killed_orchestrator_resumes(terminal):
    [killing] = re.findall(r"python orchestrator.py tuesday &.*", TUTORIAL.text)
    printed, at_agents = await terminal.run("tuesday", kill_after=10)
    assert shows(TUTORIAL.output(killing), printed)
    assert len(at_agents) == 2

    printed, at_agents = await terminal.run("tuesday")
    assert shows(TUTORIAL.output("python orchestrator.py tuesday"), printed)
    assert at_agents == []


async def test_orchestrator_whose_agents_lost_their_tasks_needs_a_new_key(terminal):
    await terminal.run("wednesday", kill_after=10)
    terminal.start_agents("second")
    printed, at_agents = await terminal.run("wednesday")
    assert shows(TUTORIAL.output("python orchestrator.py wednesday"), printed)
    assert at_agents == []

    printed, at_agents = await terminal.run("wednesday")
    assert "NotEnoughResultsError" in printed
    assert at_agents == []

    printed, at_agents = await terminal.run("wednesday-2")
    assert "Headline 20" in printed
    assert len(at_agents) == 2


def test_commands_exist_and_have_these_options():
    TUTORIAL.check_commands(at_least=4)


def test_every_block_is_run():
    TUTORIAL.check_complete(
        "print(answer.task_id", "events.reconnects", "def weather", "holdfast.Coordinator(AGENTS"
    )


def test_every_link_leads_somewhere():
    TUTORIAL.check_links()
