"""The programs of the tutorial run as they stand, in virtual time; its commands exist."""

import asyncio
import contextlib
import functools

import pytest
from tests.kit.pages import Page

import holdfast
from holdfast.testing import Cut, FakeAgent, FakeNetwork, Reset, streams

HERE = "http://localhost:9999"
TUTORIAL = Page("docs/tutorial.md")


def program(text, **names):
    """Runs a program of the page up to its last line, and gives its coroutine function."""
    names = {"print": print, **names}
    before, _, last = TUTORIAL.block(text).rstrip().rpartition("\n")
    assert last == "asyncio.run(main())"
    exec(before, names)
    return names


@pytest.fixture
def printed(capsys):
    def lines():
        return capsys.readouterr().out.splitlines()

    return lines


def reach(monkeypatch, *agents):
    network = FakeNetwork(*agents)
    for name in ("connect", "Coordinator"):
        make = functools.partial(getattr(holdfast, name), engine=network)
        monkeypatch.setattr(holdfast, name, make)


async def test_agent_is_called(monkeypatch, printed):
    reach(monkeypatch, FakeAgent(url=HERE))
    await program("print(answer.task_id")["main"]()
    text, task = printed()
    assert text == "How far is the moon?"
    assert task.endswith(" COMPLETED")


async def test_cut_stream_is_complete(monkeypatch, printed):
    words = ["One", "word", "after", "the", "other."]
    agent = FakeAgent(streams(*(f"{word} " for word in words), every=1), url=HERE)
    agent.inject(Cut(after_events=3))
    agent.inject(Reset(), on="SubscribeToTask")
    reach(monkeypatch, agent)
    await program("events.reconnects")["main"]()
    text, outcome = printed()
    assert text.strip() == "One word after the other."
    assert outcome == "COMPLETED after 1 reconnects"
    assert len(agent.calls("SendStreamingMessage")) == 1


async def test_orchestrator_is_killed_and_resumed(monkeypatch, printed, tmp_path):
    monkeypatch.chdir(tmp_path)
    practice = program("def weather")
    weather = FakeAgent(practice["weather"], url="http://localhost:9101")
    news = FakeAgent(practice["news"], url="http://localhost:9102")
    reach(monkeypatch, weather, news)
    main = program("holdfast.Coordinator(AGENTS")["main"]

    killed = asyncio.create_task(main())
    await asyncio.sleep(10)
    first = printed()
    killed.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await killed
    await main()
    second = printed()
    await main()
    third = printed()

    headlines = "".join(f"Headline {number}. " for number in range(1, 21))
    begun = {"weather works on", "news works on", "weather", "traffic"}
    assert {line.split(":")[0] for line in first} == begun
    assert second == [f"news, resumed: {headlines}"]
    assert {line.split(":")[0] for line in third} == {*begun, "news"}
    assert f"news: {headlines}" in third


async def test_orchestrator_asks_anew_after_its_agents_lost_their_tasks(
    monkeypatch, printed, tmp_path
):
    monkeypatch.chdir(tmp_path)
    practice = program("def weather")
    main = program("holdfast.Coordinator(AGENTS")["main"]
    runs = []
    for restart in (1, 2):
        agents = [
            FakeAgent(practice[name], url=f"http://localhost:910{number}", id_suffix=f"-{restart}")
            for number, name in ((1, "weather"), (2, "news"))
        ]
        reach(monkeypatch, *agents)
        running = asyncio.create_task(main())
        if restart == 1:
            await asyncio.sleep(10)
            running.cancel()
        await asyncio.wait([running])
        runs.append(printed())
    assert runs[1][0].startswith("news, resumed: ")
    assert {line.split(":")[0] for line in runs[1]} >= {"weather", "traffic", "news"}


def test_commands_exist_and_have_these_options():
    TUTORIAL.check_commands(at_least=4)


def test_every_block_is_run():
    TUTORIAL.check_complete(
        "print(answer.task_id", "events.reconnects", "def weather", "holdfast.Coordinator(AGENTS"
    )


def test_every_link_leads_somewhere():
    TUTORIAL.check_links()
