"""The Agent Skill: one, lean, and true: each command in it is run."""

import os
import re
import shlex
from pathlib import Path

import pytest
from tests.kit.cli_harness import AGENT, holdfast
from tests.kit.paths import ROOT

from holdfast.testing import FakeAgent, FakeNetwork, Plan, Step
from holdfast.types import Artifact, Part, TaskState

PLACE = ROOT / "src" / "holdfast" / "_cli" / "skills" / "holdfast"
SKILL = (PLACE / "SKILL.md").read_text()
EXAMPLES = (PLACE / "references" / "examples.md").read_text()
MUSTS = ("MUST", "SHALL", "SHOULD", "RECOMMENDED", "A2ACLI_SEND", "§")


def commands(text):
    """The commands in a text: on lines of their own, and within others."""
    lines = re.findall(r"^(holdfast .+)$", text, re.MULTILINE)
    return lines + re.findall(r"`(holdfast [^`]+)`", text)


def words_of(command):
    return shlex.split(command.replace("$AGENT", AGENT).replace("$ID", "task-1"))[1:]


def works_a_while():
    report = Artifact(artifact_id="a", name="report", parts=(Part(text="…"),))
    return Plan(
        (
            Step(state=TaskState.WORKING, artifacts=(report,)),
            Step(state=TaskState.COMPLETED, after=10),
        )
    )


@pytest.mark.parametrize("command", sorted({*commands(SKILL), *commands(EXAMPLES)}))
def test_skill_001_each_command_in_it_works(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("report.txt").write_text("all is well")
    network = FakeNetwork(FakeAgent(lambda _: works_a_while()))
    if "$ID" in command:
        holdfast("send", "hello", "--async", engine=lambda **_: network)
    done = holdfast(*words_of(command), card=None, engine=lambda **_: network)
    assert done.exit == 0, done.err


def test_skill_001_there_is_exactly_one_and_it_is_lean():
    assert list((ROOT / "src").rglob("SKILL.md")) == [PLACE / "SKILL.md"]
    head, body = re.fullmatch(r"---\n(.*?)\n---\n(.*)", SKILL, re.DOTALL).groups()
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert fields.keys() == {"name", "description", "compatibility"}
    assert fields["name"] == PLACE.name
    assert len(fields["description"]) <= 1024
    assert len(fields["compatibility"]) <= 500
    assert len(body.split()) < 350
    assert "holdfast help" in body
    assert "holdfast --version" in body


def test_skill_001_what_it_says_to_look_at_is_there():
    done = holdfast("send", "-o", "json", "hello", agent=FakeAgent("done"))
    assert done.json["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert done.json["task"]["artifacts"]
    failed = holdfast("task", "get", "nope", "-o", "json")
    assert failed.error.keys() >= {"code", "hint"}


def test_skill_001_skill_is_installed_where_agents_find_it(tmp_path):
    words = ("skill", "install", "--to", str(tmp_path))
    done = holdfast(*words, card=None)
    place = tmp_path / ".agents" / "skills" / "holdfast"
    assert (done.exit, done.err) == (0, "")
    assert (place / "SKILL.md").read_text() == SKILL
    assert (place / "references" / "examples.md").read_text() == EXAMPLES
    (place / "SKILL.md").write_text("mine")
    assert holdfast(*words, card=None).exit == 2
    assert (place / "SKILL.md").read_text() == "mine"
    assert holdfast(*words, "--overwrite", card=None).exit == 0
    assert (place / "SKILL.md").read_text() == SKILL


@pytest.mark.rule("P30")
@pytest.mark.skipif(os.name == "nt", reason="links take a privilege")
@pytest.mark.parametrize(
    "link",
    [
        ".agents",
        ".agents/skills",
        ".agents/skills/holdfast",
        ".agents/skills/holdfast/SKILL.md",
        ".agents/skills/holdfast/references",
        ".agents/skills/holdfast/references/examples.md",
    ],
)
@pytest.mark.parametrize("words", [[], ["--overwrite"]])
def test_skill_install_follows_no_link(tmp_path, link, words):
    mine, project = tmp_path / "mine", tmp_path / "project"
    mine.mkdir()
    (mine / "SKILL.md").write_text("mine")
    place = project / link
    place.parent.mkdir(parents=True)
    place.symlink_to(mine / "SKILL.md" if place.suffix else mine)

    done = holdfast("skill", "install", "--to", str(project), *words, card=None)

    assert (done.exit, done.out) == (2, "")
    if words or link in {".agents", ".agents/skills", ".agents/skills/holdfast"}:
        assert f"{place} is a link, which is not followed" in done.err
    assert [path.name for path in mine.rglob("*")] == ["SKILL.md"]
    assert (mine / "SKILL.md").read_text() == "mine"


@pytest.mark.skipif(os.name == "nt", reason="links take a privilege")
def test_skill_install_goes_where_the_named_directory_leads(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert holdfast("skill", "install", "--to", str(tmp_path / "link"), card=None).exit == 0
    assert (tmp_path / "real" / ".agents" / "skills" / "holdfast" / "SKILL.md").exists()


@pytest.mark.rule("P30")
@pytest.mark.parametrize("name", ["SKILL.md", "references/examples.md"])
def test_skill_install_overwrites_only_what_it_wrote(tmp_path, name):
    words = ("skill", "install", "--to", str(tmp_path), "--overwrite")
    place = tmp_path / ".agents" / "skills" / "holdfast"
    theirs = place / name
    theirs.parent.mkdir(parents=True)
    theirs.write_text("of another make")

    done = holdfast(*words, card=None)

    assert (done.exit, done.out) == (2, "")
    assert f"{theirs} was not written by skill install" in done.err
    assert [path for path in place.rglob("*") if path.is_file()] == [theirs]

    theirs.unlink()
    (place / "notes.md").write_text("kept")
    assert holdfast(*words, card=None).exit == 0
    theirs.write_text("changed since")
    assert holdfast(*words, card=None).exit == 0
    assert theirs.read_text() in {SKILL, EXAMPLES}
    assert (place / "notes.md").read_text() == "kept"


def test_skill_install_says_what_is_in_its_way(tmp_path):
    (tmp_path / ".agents").write_text("")
    done = holdfast("skill", "install", "--to", str(tmp_path), card=None)
    assert done.exit == 1
    assert f"{tmp_path / '.agents'}" in done.err
    assert "Code: HOLDFAST_ERR_FILE" in done.err
    assert "nothing was sent" not in done.err
    words = ("skill", "install", "--to", str(tmp_path / ".agents"))
    assert "'--to': " in (wrong := holdfast(*words, card=None)).err
    assert (wrong.exit, "is a file; name a directory" in wrong.err) == (2, True)


@pytest.mark.parametrize("text", [SKILL, EXAMPLES])
def test_skill_002_it_says_how_and_not_what_has_to_be(text):
    assert not [word for word in MUSTS if word in text]
    assert set(re.findall(r"\]\(([^)]+)\)", text)) <= {"references/examples.md"}
