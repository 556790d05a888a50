"""docs/pictures: each SVG is what its source makes, and shows what the code does."""

import importlib
import xml.etree.ElementTree as ET

import pytest
from tests.kit.paths import ROOT
from tests.kit.virtual_env import FixedDraws

import holdfast
from holdfast.testing import Cut, FakeAgent, FakeNetwork, streams

FOLDER = ROOT / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def sources(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)


def test_each_picture_is_what_its_source_makes():
    made = importlib.import_module("make").PICTURES

    assert sorted(made) == sorted(file.stem for file in FOLDER.glob("*.svg"))
    stale = [
        name
        for name, picture in made.items()
        if (FOLDER / f"{name}.svg").read_text(encoding="utf-8") != picture().render()
    ]
    assert not stale, "run python docs/pictures/make.py"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.svg")), ids=lambda file: file.stem)
def test_picture_describes_itself_and_needs_nothing_from_outside(file):
    picture = ET.fromstring(file.read_text(encoding="utf-8"))

    title, description = picture.find(f"{SVG}title"), picture.find(f"{SVG}desc")
    labels = picture.get("aria-labelledby").split()
    assert [title.get("id"), description.get("id")] == labels
    assert title.text
    assert len(description.text) > 100
    assert "prefers-color-scheme: dark" in picture.find(f"{SVG}style").text
    assert file.read_text(encoding="utf-8").count("http") == 1  # the name space


def test_box_refuses_text_that_does_not_fit():
    picture = importlib.import_module("drawing").Picture("t", "d", width=100, height=100)

    with pytest.raises(ValueError, match=r"needs \d+ px"):
        picture.box((0, 0), (60, 30), "much too wide")
    with pytest.raises(ValueError, match="leaves the picture"):
        picture.text((80, 20), "too wide")


async def test_cut_stream_happens_as_the_picture_shows():
    steps = importlib.import_module("cut_stream").STEPS
    *pieces, final = [step.text for step in steps if step.what in {"chunk", "lost", "held"}]
    # Half of the longest wait is 0.25 s: one piece is sent meanwhile.
    agent = FakeAgent(streams(*pieces, every=0.2), url="https://agent.example.com")
    agent.inject(Cut(after_events=4), on="SendStreamingMessage")
    requests = []

    def observe(observation):
        if isinstance(observation, holdfast.observe.AttemptStarted):
            requests.append(observation.method)

    async with holdfast.connect(
        agent.url, engine=FakeNetwork(agent), observers=[observe], env=FixedDraws(0.5)
    ) as client:
        await client.agent_card()
        requests.clear()
        async with client.stream_message("How far is the moon?") as events:
            delivered = [text async for text in events.text_deltas()]

    assert delivered == [step.delivered for step in steps if step.delivered][:-1]
    assert events.task.state.name == final
    shown = [step.text for step in steps if step.what == "request"]
    assert requests[: len(shown)] == shown
    assert set(requests[len(shown) :]) <= {"GetTask"}  # that the task shows its end
    assert len(agent.executions) == 1


def test_layers_are_those_of_the_architecture_page():
    shown = [name for name, _, _ in importlib.import_module("call_layers").LAYERS]
    block = (ROOT / "CONTRIBUTING.md").read_text().split("\nObservedLayer ", 1)[1]

    lines = f"ObservedLayer {block.split('```')[0]}".splitlines()
    assert shown == [line.split()[0] for line in lines]


def test_error_tree_has_every_error():
    text = (FOLDER / "error-tree.svg").read_text(encoding="utf-8")

    missing = [
        name
        for name, error in vars(holdfast.errors).items()
        if isinstance(error, type)
        and issubclass(error, holdfast.A2AError)
        and not name.startswith("_")
        and f">{name}" not in text.replace("\N{NO-BREAK SPACE}", "")
    ]
    assert not missing
