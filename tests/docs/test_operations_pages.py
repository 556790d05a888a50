"""The code in docs/howto/troubleshooting.md and deployment-checklist.md runs as it stands."""

import functools
import re
from typing import get_args

import pytest
from tests.kit.pages import Page, execute

import holdfast
from holdfast import errors
from holdfast.testing import FakeAgent, FakeNetwork, Reset, completes, rate_limited, works_forever

PAGE = Page("docs/howto/troubleshooting.md")
CHECKLIST = Page("docs/howto/deployment-checklist.md")
HERE = "http://localhost:9999"


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs a block in an empty directory against an agent, and returns what it printed."""
    monkeypatch.chdir(tmp_path)
    connect = holdfast.connect

    async def run(text, agent, page=PAGE):
        printed = []
        reaching = functools.partial(connect, engine=FakeNetwork(agent))
        monkeypatch.setattr(holdfast, "connect", reaching)
        await execute(page.block(text), print=lambda *words: printed.append(words))
        return printed

    return run


async def test_the_content_of_an_answer_without_text_is_found(run):
    data = holdfast.data_part({"km": 384400})
    file = holdfast.types.Part(raw=b"far", filename="moon.txt")
    agent = FakeAgent(completes(data, file), url=HERE)

    printed = await run("artifact.parts", agent)
    assert printed == [(None, {"km": 384400}), ("moon.txt", b"far")]
    async with holdfast.connect(HERE) as client:
        assert (await client.ask("How far?")).text == ""


async def test_a_slow_run_shows_that_the_agent_is_rate_limiting(run):
    agent = FakeAgent(url=HERE)
    agent.inject(rate_limited(retry_after=30), times=2)

    printed = await run("is_rate_limited", agent)

    assert ("http://localhost:9999/rpc", True, 3, "closed") in printed
    assert {words[0] for words in printed if len(words) == 3} == {"0", "1", "2"}


async def test_a_lease_shows_why_resume_waits(run):
    agent = FakeAgent(works_forever(), url=HERE)
    client = holdfast.connect(HERE, engine=FakeNetwork(agent), journal="calls.db")
    message = {"messageId": "m-1", "parts": [{"text": "hi"}]}
    async with client, client.stream_message(message):
        [(message_id, is_held, held_until)] = await run("is_held", agent)

    assert (message_id, is_held) == ("m-1", True)
    assert held_until is not None


async def test_an_unknown_outcome_has_its_facts(run):
    agent = FakeAgent(url=HERE, lists_tasks=False)
    agent.inject(Reset(after_execution=True))

    [(message_id, searched, _, cause)] = await run("error.searched", agent)

    assert message_id in agent.executions
    assert "the agent has no list of tasks" in searched[0]
    assert isinstance(cause, errors.A2AConnectionError)


async def test_a_call_ends_before_its_caller_does(run):
    agent = FakeAgent(works_forever(), url=HERE)

    with pytest.raises(holdfast.DeadlineExceededError) as caught:
        await run("timeout=25", agent, CHECKLIST)

    assert (caught.value.timeout, caught.value.task.state.name) == (25, "WORKING")


def test_the_tables_name_every_reason_with_its_default():
    rows = [line.split(" | ") for line in PAGE.text.splitlines() if line.startswith("| `")]
    first = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    for kind in (errors.ConnectionFailure, errors.TimeoutPhase, errors.JournalFailure):
        assert set(get_args(kind)) <= first
    phases = {row[0].strip("| `"): row[1] for row in rows}
    for phase in get_args(errors.TimeoutPhase):
        assert phases[phase] == f"{getattr(holdfast.Timeouts(), phase):g} s"


def test_the_headings_name_errors_that_exist():
    headings = re.findall(r"^## (.*)$", PAGE.text, flags=re.MULTILINE)
    for name in re.findall(r"`(\w+Error)`", " ".join(headings)):
        assert name in errors.__all__ or issubclass(eval(name), Exception)


def test_every_block_is_run():
    PAGE.check_complete("artifact.parts", "is_rate_limited", "is_held", "error.searched")
    CHECKLIST.check_complete("timeout=25")


def test_every_block_can_be_pasted():
    PAGE.check_pastes()
    CHECKLIST.check_pastes()


def test_every_link_leads_somewhere():
    PAGE.check_links()
    CHECKLIST.check_links()


def test_the_commands_exist():
    CHECKLIST.check_commands(at_least=2)
