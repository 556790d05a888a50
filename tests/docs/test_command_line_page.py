"""The page about the command line names commands and options that exist."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys

import pytest
from tests.kit.cli_harness import holdfast
from tests.kit.cli_process import BOUND, environment, served
from tests.kit.pages import ROOT, Page

from holdfast.testing import FakeAgent, fails, replies, streams

PAGE = Page("docs/howto/command-line.md")


def test_commands_exist_and_have_these_options():
    PAGE.check_commands(at_least=17)


def test_page_claims_what_the_report_says():
    report = (ROOT / "docs" / "reference" / "cli-compliance.md").read_text()
    assert ("all three tiers" in PAGE.text) is ("| Tier claimed | 3 |" in report)


def test_the_page_and_the_help_list_the_same_exit_codes():
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE.text, flags=re.MULTILINE)
    shown = holdfast("help", "exit-codes", card=None).out
    listed = " ".join(shown.partition("exit code is still 0")[0].split())
    assert len(rows) == len(re.findall(r"^  \d+ ", shown, flags=re.MULTILINE))
    assert all(f"{code} {meaning}" in listed for code, meaning in rows)


def test_every_link_leads_somewhere():
    PAGE.check_complete()
    PAGE.check_links()


# ── The shell script, and jq ─────────────────────────────────────────────────────────────────

needs_jq = pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")


def run_script(tmp_path, url, *, flags=""):
    """Run the script of the page, with this agent in place of localhost:9999."""
    [script] = re.findall(r"```sh\n(answer=.*?)```", PAGE.text, re.DOTALL)
    command = tmp_path / "holdfast"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
    command.chmod(0o700)
    script = script.replace("localhost:9999", f"{url} {flags}")
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, timeout=BOUND, check=False,
        env=environment(PATH=path), cwd=tmp_path,
    )  # fmt: skip


@needs_jq
@pytest.mark.parametrize(
    ("behaviour", "code", "text"),
    [
        (streams("two\nli", "nes\n"), 0, "two\nlines\n\n"),
        (replies("a message"), 0, "a message\n"),
        (fails("no"), 10, "\n"),
    ],
)
def test_the_script_prints_the_text_and_exits_with_the_state(tmp_path, behaviour, code, text):
    with served(FakeAgent(behaviour)) as url:
        done = run_script(tmp_path, url)

    assert (done.returncode, done.stdout) == (code, text)


@needs_jq
def test_the_script_exits_with_the_code_of_a_call_that_failed(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        down = f"http://127.0.0.1:{listener.getsockname()[1]}"
    unreachable = run_script(tmp_path, down)
    wrong = run_script(tmp_path, down, flags="--nonsense")

    assert (unreachable.returncode, wrong.returncode) == (3, 2)
    assert "the agent is down" in unreachable.stderr
    assert "A2ACLI_ERR_USAGE: No such option" in wrong.stderr


@needs_jq
def test_the_filters_print_the_text_of_each_shape(tmp_path):
    rows = re.findall(r"^\| `([^`]+)`.*`(jq [^`]+)` \|$", PAGE.text, flags=re.MULTILINE)
    agent = FakeAgent(streams("4", "\n2"))
    holdfast("send", "hello", agent=agent)
    (tmp_path / "in").write_text("hello\n")
    files = ["--input", f"{tmp_path}/in", "--results", f"{tmp_path}/out"]
    words = {
        "send": ["send", "x"],
        "send --stream": ["send", "--stream", "x"],
        "task get": ["task", "get", "task-1"],
        "task list": ["task", "list"],
        "run": ["run", *files, "--journal", f"{tmp_path}/calls.db"],
        "card get": ["card", "get"],
        "doctor": ["doctor"],
    }
    printed = {}
    for command, jq in rows:
        done = holdfast(*words[command], "-o", "json", agent=agent)
        printed[command] = subprocess.run(
            ["sh", "-c", jq], input=done.out, capture_output=True, text=True, check=True,
            timeout=BOUND,
        ).stdout  # fmt: skip

    assert printed.keys() == words.keys()
    assert printed["send"] == printed["send --stream"] == printed["task get"] == "4\n2"
    assert "task-1" in printed["task list"].split()
    assert (printed["run"], printed["card get"]) == ("1\n", "Fake agent\n")
    assert "warning\n" in printed["doctor"]


def test_an_error_names_the_ids_that_the_page_promises():
    names = re.findall(r"`(\w+Id)`", PAGE.text)
    assert set(names) >= {"taskId", "contextId", "messageId"}
    done = holdfast("task", "get", "nope", "-o", "json")
    assert json.loads(done.out)["error"]["taskId"] == "nope"
