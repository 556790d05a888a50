"""Processes of DBOS are killed: no message is executed twice, and every workflow ends."""

import asyncio
import contextlib
import json
import random
import signal

from tests.kit.killing import LIMIT, Network, agent_behind, kill_all
from tests.kit.workflow_rounds import draw_names, judge

from holdfast._journal.resolve import open_journal

__all__ = ["one_round"]

_LONGEST_LIFE_S = 2.0
"""Seconds after which a process is killed, whatever it does."""

_LATEST_MOMENT_S = 0.8
"""Seconds in which a process ends by itself, if the network does not delay it."""


async def one_round(seed, path, forks, postgres=None):
    """Kill processes as the seed decides; give what was counted, and what does not hold.

    Args:
        seed: The seed.
        path: A directory of the round's own, which does not exist yet.
        forks: What starts processes: `killing.processes` of ``killed_dbos.py``.
        postgres: The server of the journal and of DBOS; None for files.
    """
    dice = random.Random(seed)
    names = draw_names(dice, seed)
    path.mkdir()
    database, journal = f"sqlite:///{path}/dbos.db", str(path / "calls.db")
    if postgres is not None:
        database = f"postgresql://postgres@/orders_{seed}?host={postgres.directory}"
        journal = f"{postgres.dsn}&schema=journal_{seed}"
    report = path / "report"
    pids, fatal_message = [], None

    def on_message():
        if network.messages == fatal_message:
            kill_all(pids)

    async with (
        asyncio.timeout(LIMIT),
        agent_behind(lambda to: Network(to, random.Random(seed), on_message)) as (
            (agent,),
            network,
            url,
        ),
    ):

        async def start(dies=None):
            pid, ended = await forks.start(
                database=database,
                journal=journal,
                agent=url,
                names=names,
                report=str(report),
                dies=dies,
            )
            pids.append(pid)
            return ended

        killed = 0
        for _ in range(2):
            dies, life = None, _LONGEST_LIFE_S
            match dice.choice(["message", "journal", "moment"]):
                case "message":
                    fatal_message = network.messages + dice.randint(1, 3)
                case "journal":
                    dies = [dice.randint(1, 6), dice.choice(["before", "after"])]
                case "moment":
                    life = dice.uniform(0, _LATEST_MOMENT_S)
            ended = await start(dies)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(life):
                    await asyncio.shield(ended)
            kill_all(pids)
            killed += await ended == -signal.SIGKILL
            fatal_message = None
        assert await (await start()) == 0
        await network.settle()
    results = json.loads(report.read_text())
    refused = {asked: results.pop(asked) for asked in ("in a step", "with an empty key")}
    counted, problems = judge(results, agent, killed)
    problems += [
        f"what is asked {asked} ended with {result}"
        for asked, result in refused.items()
        if not str(result).startswith("ValueError")
    ]
    pending = await _pending(journal)
    counted["lost"] += len(pending)
    return counted, [*problems, *(f"{name} is pending" for name in pending)]


async def _pending(journal):
    """The ids of the messages that are recorded without an outcome."""
    store = open_journal("journal", journal)
    try:
        return [call.message_id for call in await store.unfinished() if call.outcome is None]
    finally:
        await store.close()
