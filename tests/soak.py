"""Kills client processes for as long as is wanted: ``python -m tests.soak``.

``ROUNDS`` says how many rounds, ``SEED`` where they begin, ``TOGETHER`` how many run at once.
Before them, as many random plans for keys are played in virtual time: see `tests.kit.key_races`.
After them, a quarter as many have their journal in a PostgreSQL server, which ends connections and
crashes meanwhile. Then a fortieth as many kill the workers of Temporal's workflows.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import hypothesis
from tests.kit import killing
from tests.kit.key_races import RESENDING, plans, problems_of
from tests.kit.killing import harmed, processes
from tests.kit.postgres_server import Postgres

_SHOWN = 100


async def soak(first, rounds, together, server=None, temporal=None):
    """Runs rounds; gives the seeds of those that failed."""
    sums, failed, seeds = Counter(), [], iter(range(first, first + rounds))
    began = time.monotonic()

    def summary():
        return (
            f"{sums['rounds']} rounds, {sums['killed']} processes killed, {sums['messages']} "
            f"messages: {sums['executed']} executed, {sums['twice']} more than once; "
            f"{sums['answered']} answered, {sums['unknown']} reported unknown, "
            f"{sums['not sent']} not sent, {sums['lost']} lost; {time.monotonic() - began:.0f} s"
        )

    async def one(seed):
        with tempfile.TemporaryDirectory() as directory:
            try:
                path = Path(directory) / "round"
                one_round = temporal or partial(killing.one_round, server=server)
                counted, problems = await one_round(seed, path, started)
            except (TimeoutError, AssertionError) as error:
                counted, problems = {}, [repr(error)]
        sums["rounds"] += 1
        sums.update(counted)
        if problems:
            failed.append(seed)
            _tell("\n  ".join((f"seed {seed}:", *problems)))
        if sums["rounds"] % _SHOWN == 0:
            _tell(summary())

    async def one_after_the_other():
        for seed in seeds:
            await one(seed)

    async with contextlib.AsyncExitStack() as stack:
        program = "killed_client.py" if temporal is None else "killed_worker.py"
        started = await stack.enter_async_context(processes(program))
        if server is not None:
            await stack.enter_async_context(harmed(server, first))
        await asyncio.gather(*(one_after_the_other() for _ in range(min(together, rounds))))
    _tell(summary() if not failed else f"{summary()}; FAILED seeds: {sorted(failed)}")
    return failed


def play_plans(first, count):
    """Plays random plans for keys; raises an AssertionError, with the smallest that goes wrong."""
    often = hypothesis.settings(max_examples=count, deadline=None, database=None)

    @hypothesis.seed(first)
    @often
    @hypothesis.given(plan=plans())
    def never_resent(plan):
        assert problems_of(plan) == []

    @hypothesis.seed(first)
    @often
    @hypothesis.given(plan=plans(on_unknown=RESENDING))
    def resent(plan):
        assert problems_of(plan, may_resend=True) == []

    never_resent()
    resent()
    _tell(f"{2 * count} plans for keys: one execution and one result for each")


def _tell(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _number(name, default, least):
    """A whole number from the environment; ends the program if it is none, or too small."""
    said = os.environ.get(name) or default
    if not (said.isascii() and said.isdecimal() and len(said) < 10 and int(said) >= least):
        sys.stderr.write(f"{name} must be a whole number from {least} on, not {said!r}\n")
        sys.exit(2)
    return int(said)


def main():
    """Runs what the environment says; fails if a round fails."""
    first, rounds = _number("SEED", "0", least=0), _number("ROUNDS", "2000", least=1)
    together = _number("TOGETHER", "4", least=1)
    play_plans(first, rounds)
    failed = asyncio.run(soak(first, rounds, together))
    server = Postgres()
    try:
        failed += asyncio.run(soak(first, max(1, rounds // 4), together, server))
    finally:
        server.close()
    from tests.kit import killed_workflows  # what they import takes a second
    from tests.kit.temporal_server import temporal_server

    with (
        tempfile.TemporaryDirectory() as directory,
        temporal_server(Path(directory) / "log") as address,
    ):
        temporal = partial(killed_workflows.one_round, address)
        failed += asyncio.run(soak(first, max(1, rounds // 40), together, temporal=temporal))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
