"""A message is executed at most once, and a process that dies loses no call.

Processes, sockets and SIGKILL are real. `make soak` runs thousands of such rounds.
"""

import asyncio
import json
import os
import signal
import urllib.request

import pytest
from tests import soak
from tests.kit.killing import (
    LIMIT,
    WAYS,
    Network,
    Round,
    agent_behind,
    harmed,
    one_round,
    processes,
)
from tests.kit.postgres_server import Postgres
from tests.kit.raw_server import serve
from tests.kit.real_agents import sdk_process

from holdfast.testing import completes, replies

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(os.name == "nt", reason="signals of POSIX"),
]

KILLED = -signal.SIGKILL


@pytest.mark.rule("D10")
@pytest.mark.parametrize("do", ["ask", "send", "stream", "run"])
async def test_killed_at_each_boundary_of_the_journal(do, tmp_path):
    async def killed(number, when):
        name = f"{do}-{number}-{when}"
        by = "run" if do == "run" else "call"
        async with agent_behind(Network) as ((agent,), network, url):
            one = Round(tmp_path / name, started, url, [(do, name)])
            status = await (await one.start(by, dies=[number, when]))
            await one.go_on(by)

            assert await one.problems(agent.executions, agent.tasks) == []
            assert network.messages == len(agent.executions)
            begun = number > 1 or when == "after"
            assert list(one.noted()) == [name] * (begun or by == "run")
            assert one.count("unknown") == (number == 1 and when == "after")
            return status

    async with asyncio.timeout(LIMIT), processes() as started:
        statuses = await asyncio.gather(
            *(killed(number, when) for number in range(1, 4) for when in ("before", "after"))
        )
    assert statuses[:4] == [KILLED] * 4


async def test_killed_when_the_message_has_left(tmp_path):
    async def killed(way):
        def on_message():
            one.kill()

        async with agent_behind(lambda origins: Network(origins, on_message=on_message)) as (
            (agent,),
            network,
            url,
        ):
            one = Round(tmp_path / way, started, url, [(way, f"{way}-1")])
            assert await (await one.start()) == KILLED
            await one.go_on("call")

            assert await one.problems(agent.executions, agent.tasks) == []
            assert network.messages == one.count("answered") == len(agent.executions) == 1

    async with asyncio.timeout(LIMIT), processes() as started:
        await asyncio.gather(*(killed(way) for way in WAYS))


@pytest.mark.rule("D10")
async def test_killed_at_random_moments_behind_a_bad_network(tmp_path):
    async with processes() as started:
        rounds = (one_round(seed, tmp_path / str(seed), started) for seed in range(8))
        ended = await asyncio.gather(*rounds)

    assert {seed: problems for seed, (_, problems) in enumerate(ended) if problems} == {}


@pytest.mark.rule("D10")
async def test_killed_with_a_journal_in_a_server_that_ends_connections(tmp_path):
    server = await asyncio.to_thread(Postgres)
    try:
        async with processes() as started, harmed(server, seed=1, crashes=0.0):
            rounds = (one_round(seed, tmp_path / str(seed), started, server) for seed in range(1))
            ended = await asyncio.gather(*rounds)
    finally:
        server.close()

    assert {seed: problems for seed, (_, problems) in enumerate(ended) if problems} == {}


@pytest.mark.rule("D10")
async def test_a_message_for_an_answer_that_is_lost_is_unknown_and_not_sent_again(tmp_path):
    """Of such a message the agent keeps nothing that could be found."""

    def on_message():
        one.kill()

    def between(origins):
        return Network(origins, on_message=on_message)

    async with (
        asyncio.timeout(LIMIT),
        processes() as started,
        agent_behind(between, behaviour=replies("hello")) as ((agent,), network, url),
    ):
        one = Round(tmp_path / "round", started, url, [("stream", "stream-1")])
        assert await (await one.start()) == KILLED
        await one.go_on("call")

        assert await one.problems({}) == []
        assert one.noted() == {"stream-1": "unknown"}
        assert one.count("unknown") == network.messages == 1
        assert len(agent.calls("SendStreamingMessage")) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_behind_an_address_with_two_stores_nothing_is_sent_again(way, tmp_path):
    """That one of them knows nothing of a message proves nothing."""

    def on_message():
        one.kill()

    def between(origins):
        return Network(origins, on_message=on_message)

    async with (
        asyncio.timeout(LIMIT),
        processes() as started,
        agent_behind(between, agents=2) as (agents, network, url),
    ):
        one = Round(tmp_path / "round", started, url, [(way, f"{way}-1")])
        assert await (await one.start()) == KILLED
        await one.go_on("call")

        executions = {name: made for agent in agents for name, made in agent.executions.items()}
        assert await one.problems(executions) == []
        assert network.messages == 1
        assert sum(len(agent.executions) for agent in agents) == 1


async def test_a_holder_that_stood_still_past_its_lease_finds_another_in_its_place(
    tmp_path,
):
    arrived = asyncio.Event()

    def behave(turn):
        arrived.set()
        return completes("ask-1", after=4)

    async with (
        asyncio.timeout(LIMIT),
        processes() as started,
        agent_behind(Network, behaviour=behave) as ((agent,), network, url),
    ):
        one = Round(tmp_path / "round", started, url, [("ask", "ask-1")])
        held_up = await one.start()
        holder = one.pid
        await arrived.wait()
        await one.stop()

        other = await one.start("resume")
        while one.generation("ask-1") < 2:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.02)
        os.kill(holder, signal.SIGCONT)

        assert (await held_up, await other) == (0, 0)
        assert await one.problems(agent.executions, agent.tasks) == []
        assert network.messages == len(agent.executions) == 1
        assert one.count("taken over") == one.count("answered") == 1


# ── A real agent ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.sdk
async def test_a_real_agent_runs_what_was_sent_once(tmp_path):
    def at_boundary(number, when):
        return (f"{number}-{when}", {"dies": [number, when]})

    deaths = [at_boundary(number, when) for number in (1, 2) for when in ("before", "after")]

    async def killed(way, how, job):
        def on_message():
            if not job:
                one.kill()

        network = Network([origin], on_message=on_message)
        async with serve(network) as front:
            name = f"{way}-{how}"
            one = Round(tmp_path / name, started, front.url, [(way, name)])
            assert await (await one.start(**job)) == KILLED
            await one.go_on("call")

            all_of_them = await asyncio.to_thread(executions, origin)
            executed = {sent: made for sent, made in all_of_them.items() if sent == name}
            assert await one.problems(executed) == []
            assert network.messages == len(executed)
            assert one.count("unknown") == (how == "1-after")

    with sdk_process(tmp_path / "errors") as origin:
        async with asyncio.timeout(LIMIT), processes() as started:
            await asyncio.gather(
                *(killed(way, *death) for way in WAYS for death in [*deaths, ("sent", {})])
            )


def executions(origin):
    with urllib.request.urlopen(f"{origin}/executions", timeout=LIMIT) as reply:
        return json.load(reply)


@pytest.mark.parametrize("name", ["ROUNDS", "SEED", "TOGETHER"])
@pytest.mark.parametrize("number", ["-1", "x", "1.5", "9" * 5000])
def test_numbers_of_a_soak_that_cannot_be_right_are_reported(monkeypatch, capsys, name, number):
    monkeypatch.setenv(name, number)
    with pytest.raises(SystemExit, match="2"):
        soak.main()

    assert capsys.readouterr().err.startswith(f"{name} must be a whole number from ")


@pytest.mark.parametrize("name", ["ROUNDS", "TOGETHER"])
def test_a_soak_of_nothing_is_none(monkeypatch, name):
    monkeypatch.setenv(name, "0")
    with pytest.raises(SystemExit, match="2"):
        soak.main()
