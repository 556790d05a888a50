"""The code in docs/howto/bulk-runs.md runs as it stands, and does what the page says."""

import functools

import pytest
from tests.kit.pages import Page, execute

import holdfast
from holdfast import errors
from holdfast.testing import FakeAgent, FakeNetwork, completes, fails

PAGE = Page("docs/howto/bulk-runs.md")


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """The agent that the blocks call, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    agent = FakeAgent(
        lambda turn: fails() if turn.message.text == "two" else completes(turn.message.text[:-1]),
        url="http://localhost:9999",
    )
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

    assert isinstance(dict(changed)["order-17"], errors.RunItemChangedError)
    assert len(agent.executions) == 2


async def test_a_run_stops_at_an_error(agent):
    await run("results.stop()", change=("until-an-error", "x"))

    assert all(len(made) == 1 for made in agent.executions.values())


def test_every_block_is_run():
    PAGE.check_complete("prompts", "items", "results.stop()")


def test_every_link_leads_somewhere():
    PAGE.check_links()


def test_the_commands_exist():
    PAGE.check_commands(at_least=2)
