"""Recorded calls of an agent whose list of replicas has changed since."""

import contextlib

import pytest
from tests.kit.batch_runs import collected
from tests.kit.virtual_env import VirtualWall

from holdfast import (
    OutcomeUnknownError,
    SqliteJournal,
    TaskNotFoundError,
    connect,
)
from holdfast._journal.agent_name import addresses_in, is_same_agent, name_of_replicas
from holdfast.errors import JournalError
from holdfast.testing import FakeAgent, FakeNetwork, Stall, completes

CHANGES = [("a", "ab"), ("a", "ba"), ("ab", "a"), ("ab", "bc")]
"""The replicas at the first start, and at the second one."""


class Fleet:
    """Replicas a, b and c, and a journal; a message runs at the replica `runs_at`."""

    def __init__(self, path, runs_at, **options):
        self.path = path
        self.options = options
        self.replicas = {
            name: FakeAgent(
                lambda turn: completes(turn.message.text.upper(), after=60),
                url=f"http://{name}.test",
                id_suffix=f"-of-{name}",
            )
            for name in "abc"
        }
        self.runs_at = runs_at

    @contextlib.asynccontextmanager
    async def started(self, names, *, reachable="abc"):
        network = FakeNetwork(*(self.replicas[name] for name in reachable))
        journal = SqliteJournal(self.path, **self.options)
        urls = [f"http://{name}.test" for name in names]
        async with connect(urls, engine=network, env=VirtualWall(), journal=journal) as client:
            yield client
        await journal.close()

    @property
    def executions(self):
        return sum(len(agent.executions) for agent in self.replicas.values())


async def abandoned_run(fleet, names):
    async with fleet.started(names, reachable=fleet.runs_at) as client:
        results = await collected(client.run(["one"], run_id="night", timeout=5))
    assert results["0"].error is not None


@pytest.mark.parametrize(("before", "after"), CHANGES)
async def test_calls_and_runs_are_found_after_a_change_of_the_replicas(tmp_path, before, after):
    fleet = Fleet(tmp_path / "calls.db", runs_at="b" if after == "bc" else "a")
    await abandoned_run(fleet, before)

    async with fleet.started(after) as client:
        (call,) = await client.pending()
        same = await client.pending(message_id=call.message_id)
        outcomes = [outcome.answer.text async for outcome in client.resume_pending()]
        results = await collected(client.run(["one"], run_id="night"))

    assert [call.message_id for call in same] == [call.message_id]
    assert outcomes == ["ONE"]
    assert results["0"].answer.text == "ONE"
    assert fleet.executions == 1


async def test_a_call_to_a_removed_replica_stays_pending_and_its_error_names_the_replica(tmp_path):
    fleet = Fleet(tmp_path / "calls.db", runs_at="b")
    await abandoned_run(fleet, "ab")

    async with fleet.started("a") as client:
        (outcome,) = [outcome async for outcome in client.resume_pending()]
        results = await collected(client.run(["one"], run_id="night"))
        pending = await client.pending()
    async with fleet.started("b") as client:
        (found,) = [outcome async for outcome in client.resume_pending()]
    async with fleet.started("a") as client:
        finished = await collected(client.run(["one"], run_id="night"))

    advice = "may be at http://b.test, which this client does not have: connect to it, too"
    for error in (outcome.error, results["0"].error, finished["0"].error):
        assert isinstance(error, TaskNotFoundError)
        assert str(error).count(advice) == 1
    assert len(pending) == 1
    assert found.answer.text == "ONE"
    assert fleet.executions == 1


async def test_search_without_a_removed_replica_does_not_end_a_call(tmp_path):
    fleet = Fleet(tmp_path / "calls.db", runs_at="b")
    fleet.replicas["b"].inject(Stall(after_execution=True), on="SendStreamingMessage")
    async with fleet.started("ab", reachable="b") as client:
        with pytest.raises(OutcomeUnknownError):
            await client.ask("one", timeout=5)

    async with fleet.started("a") as client:
        (outcome,) = [outcome async for outcome in client.resume_pending()]
        pending = await client.pending()

    error = outcome.error
    assert isinstance(error, OutcomeUnknownError)
    assert isinstance(error.search_error, JournalError)
    assert (error.search_error.reason, error.search_error.agent) == (
        "other_agent",
        "http://b.test",
    )
    assert "http://a.test has no task of it; connect to http://b.test" in str(error)
    assert len(pending) == 1


def test_names_of_replicas_keep_spaces_of_files():
    names = ["/etc/my agent/card.json", "http://b.test", "C:\\my agent\\card.json"]
    name = name_of_replicas(names)

    assert addresses_in(name) == sorted(names)
    assert addresses_in("/etc/my agent/card.json") == ["/etc/my agent/card.json"]
    assert is_same_agent(name, "http://b.test")
    assert not is_same_agent("/etc/my agent/card.json", "/etc/my other/card.json")
