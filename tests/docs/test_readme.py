"""The code in README.md runs as it stands, and what it claims is so."""

import asyncio
import re
import sys
import tomllib

import pytest
from tests.kit.pages import ROOT, Page, execute

import holdfast
from holdfast.testing import Cut, FakeAgent, FakeNetwork, LoopbackServer, asks, streams

README = Page("README.md")
STREAM = README.block("events.text_deltas()")


@pytest.mark.real_time
async def test_program_runs():
    async with LoopbackServer(FakeAgent()) as server:
        program = README.block("run(main())").replace("http://localhost:9999", server.url)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", program),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            output, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (0, "")
    assert output.decode() == "How far is the moon?\n"


async def test_cut_stream_is_complete():
    agent = FakeAgent(streams("384,400 ", "km, ", "on average", every=1))
    agent.inject(Cut(after_events=3))
    printed = []

    names = await execute(
        STREAM,
        agent=holdfast.connect(agent.url, engine=FakeNetwork(agent)),
        print=lambda text, **_: printed.append(text),
    )

    assert printed == ["384,400 ", "km, ", "on average"]
    assert names["answer"].text == "384,400 km, on average"
    assert agent.pending_faults == ()


async def test_stream_shows_the_question_of_a_task():
    agent, printed = FakeAgent(asks("On average?")), []
    client = holdfast.connect(agent.url, engine=FakeNetwork(agent))
    await execute(STREAM, agent=client, print=lambda text, **_: printed.append(text))
    assert printed == ["On average?"]


def test_every_extra_is_in_the_table():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {"holdfast": project["dependencies"], **project["optional-dependencies"]}
    _, _, section = README.text.partition("## Extras\n")
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:3] == "| `"]
    listed = {}
    for names, _, packages in rows:
        extras = re.findall(r"`([^`]+)`", names)
        for extra in extras:
            listed[extra] = {extra} if len(extras) > 1 else set(packages.split(", "))
    assert listed == {
        extra: {re.match(r"[\w-]+", package)[0] for package in packages}
        for extra, packages in wanted.items()
    }


def test_commands_exist_and_have_these_options():
    README.check_commands(at_least=1)


def test_readme_is_two_screens():
    assert len(README.text.splitlines()) <= 200


def test_every_block_is_run():
    README.check_complete("run(main())", "events.text_deltas()")


def test_every_link_leads_somewhere():
    README.check_links()
