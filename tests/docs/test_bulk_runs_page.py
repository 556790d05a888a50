"""The code in docs/howto/bulk-runs.md runs as it stands, and does what the page says."""

import functools
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.kit.cli_harness import AGENT
from tests.kit.cli_harness import holdfast as holdfast_command
from tests.kit.pages import Page, execute

import holdfast
from holdfast import errors
from holdfast.testing import FakeAgent, FakeNetwork, Respond, asks, completes, fails

PAGE = Page("docs/howto/bulk-runs.md")


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """The agent that the blocks call, in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def behave(turn):
        if turn.message.text.startswith("ask "):
            return asks(turn.message.text[4:])
        return fails() if turn.message.text == "two" else completes(turn.message.text[:-1])

    agent = FakeAgent(behave, url="http://localhost:9999")
    connect = functools.partial(holdfast.connect, engine=FakeNetwork(agent))
    monkeypatch.setattr(holdfast, "connect", connect)
    return agent


async def run(text, *, change=("", "")):
    printed = []
    code = PAGE.block(text).replace(*change)
    await execute(code, print=lambda *words: printed.append(words))
    return printed


async def test_a_run_that_is_repeated_sends_nothing_again(agent):
    expected = [("0", "How far is the moon"), ("1", "How far is the sun")]
    for _ in range(2):
        assert sorted(await run("prompts")) == expected
    assert [len(made) for made in agent.executions.values()] == [1, 1]


async def test_a_message_is_recognized_by_its_key(agent):
    assert sorted(await run("items")) == [("order-17", "One pizza"), ("order-18", "Two pizzas")]
    changed = await run("items", change=("One pizza.", "Five pizzas."))

    assert isinstance(dict(changed)["order-17"], errors.KeyConflictError)
    assert len(agent.executions) == 2


async def test_finished_messages_need_no_request_if_the_journal_keeps_answers(agent):
    assert await run("answers.db") == [("0", "How far is the moon")]
    requests = len(agent.calls("GetTask"))
    assert await run("answers.db") == [("0", "How far is the moon")]

    assert len(agent.calls("GetTask")) == requests


async def test_finished_messages_are_fetched_again_if_the_journal_keeps_no_answers(agent):
    await run("prompts")
    requests = len(agent.calls("GetTask"))
    await run("prompts")

    assert len(agent.calls("GetTask")) == requests + 2


async def test_a_question_gets_a_reply_and_its_task_has_the_answer_in_the_next_run(agent):
    assert await run("Which day") == [("Frida",)]
    assert await run("Which day") == [("Frida",)]

    assert len(agent.tasks) == 1


@pytest.mark.parametrize(
    ("seconds", "expected"), [("3600", {"0", "1"}), ("0", {"not finished: start the run again"})]
)
async def test_a_run_has_a_deadline(agent, seconds, expected):
    printed = await run("asyncio.timeout", change=("3600", seconds))

    assert {words[0].removesuffix(" to continue it") for words in printed} == expected


async def test_a_run_stops_at_an_error(agent):
    await run("until-an-error", change=("until-an-error", "x"))

    assert all(len(made) == 1 for made in agent.executions.values())


async def test_a_run_stops_when_the_circuit_of_the_agent_is_open(agent):
    # Down for searches, too: their successes would count against opening the circuit.
    for operation in ("SendStreamingMessage", "ListTasks"):
        agent.inject(Respond(status=503), on=operation, times=5000)
    printed = await run("until-an-outage", change=('["one", "two", "three"]', '["one"] * 200'))

    assert any(isinstance(result, errors.CircuitOpenError) for _, result in printed)
    assert len(printed) < 200


def test_the_summary_has_a_row_for_each_member_of_the_document(tmp_path):
    rows = set(re.findall(r"^\| [^|]+ \| `(\w+)` \|", PAGE.text, flags=re.MULTILINE))

    (tmp_path / "in").write_text("a\n")
    words = ["--input", f"{tmp_path}/in", "--results", f"{tmp_path}/out", "-o", "json"]
    run = holdfast_command("run", *words, "--journal", f"{tmp_path}/calls.db").json["run"]
    assert rows | {"runId"} == run.keys()


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_lines_whose_task_failed_are_sent_again_by_the_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failing = {"b"}
    agent = FakeAgent(lambda turn: fails() if turn.message.text in failing else completes("x"))
    first = ["--input", "prompts.jsonl", "--results", "results.jsonl", "--journal", "calls.db"]
    (tmp_path / "prompts.jsonl").write_text("a\nb\nc\n")
    [block] = re.findall(r"```console\n(\$ jq.*?)```", PAGE.text, flags=re.DOTALL)
    jq, again = re.findall(r"^\$ (.*)$", block, flags=re.MULTILINE)
    holdfast_command("run", *first, agent=agent)
    failing.clear()
    subprocess.run(["sh", "-c", jq], check=True, timeout=30)
    words = shlex.split(again)[1:]
    words[words.index("localhost:9999")] = AGENT
    done = holdfast_command(*words, agent=agent)
    kept = [json.loads(line) for line in Path("kept.jsonl").read_text().splitlines()]

    assert "Summary: 1 completed, 2 done by an earlier run\n" in done.err
    states = {result["line"]: result["task"]["status"]["state"] for result in kept}
    assert states == dict.fromkeys((1, 2, 3), "TASK_STATE_COMPLETED")
    assert len(agent.executions) == 4


def test_every_block_is_run():
    PAGE.check_complete(
        "prompts",
        "answers.db",
        "Which day",
        "items",
        "until-an-error",
        "until-an-outage",
        "asyncio.timeout",
    )


def test_every_block_can_be_pasted():
    PAGE.check_pastes()


def test_every_link_leads_somewhere():
    PAGE.check_links()


def test_the_commands_exist():
    PAGE.check_commands(at_least=4)
