"""Kills client processes for as long as is wanted: ``python -m tests.soak``.

``ROUNDS`` says how many rounds, ``SEED`` where they begin, ``TOGETHER`` how many run at once.
Before them, as many random plans for keys are played in virtual time: see `tests.kit.key_races`.
After them, a quarter as many have their journal in a PostgreSQL server, which ends connections and
crashes meanwhile. Then a fortieth as many kill the workers of Temporal's workflows, and a fortieth
the processes of DBOS's workflows, every second of them with PostgreSQL.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import hypothesis
from tests.kit import killing
from tests.kit.key_races import RESENDING, plans, problems_of
from tests.kit.killing import harmed, processes
from tests.kit.postgres_server import Postgres

_SHOWN = 100


@dataclass(frozen=True)
class Kind:
    """A kind of rounds.

    Attributes:
        name: The name that the report shows.
        one_round: Runs a round, given its seed, a directory and what starts processes; gives what
            was counted, and what does not hold.
        program: The file of `tests.kit` that starts processes.
        harmed: The server that ends connections and crashes meanwhile; None for none.
    """

    name: str
    one_round: Callable
    program: str = "killed_client.py"
    harmed: Postgres | None = None


async def soak(first, rounds, together, kind):
    """Runs rounds of a kind; gives the seeds of those that failed."""
    sums, failed, seeds = Counter(), [], iter(range(first, first + rounds))
    began = time.monotonic()

    def summary():
        return (
            f"{kind.name}: {sums['rounds']} rounds, {sums['killed']} processes killed, "
            f"{sums['messages']} messages: {sums['executed']} executed, "
            f"{sums['twice']} more than once; "
            f"{sums['answered']} answered, {sums['unknown']} reported unknown, "
            f"{sums['not sent']} not sent, {sums['lost']} lost; {time.monotonic() - began:.0f} s"
        )

    async def one(seed):
        with tempfile.TemporaryDirectory() as directory:
            try:
                counted, problems = await kind.one_round(seed, Path(directory) / "round", started)
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
        started = await stack.enter_async_context(processes(kind.program))
        if kind.harmed is not None:
            await stack.enter_async_context(harmed(kind.harmed, first))
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
    failed = []

    def run(share, kind):
        failed.extend(asyncio.run(soak(first, max(1, rounds // share), together, kind)))

    run(1, Kind("clients", killing.one_round))
    with contextlib.closing(Postgres()) as server:
        in_server = partial(killing.one_round, server=server)
        run(4, Kind("clients with PostgreSQL", in_server, harmed=server))
    from tests.kit import killed_steps, killed_workflows  # what they import takes a second
    from tests.kit.temporal_server import temporal_server

    with (
        tempfile.TemporaryDirectory() as directory,
        temporal_server(Path(directory) / "log") as address,
    ):
        in_workflows = partial(killed_workflows.one_round, address)
        run(40, Kind("workers of Temporal", in_workflows, "killed_worker.py"))
    with contextlib.closing(Postgres()) as server:

        def in_steps(seed, path, started):
            return killed_steps.one_round(seed, path, started, server if seed % 2 else None)

        run(40, Kind("processes of DBOS", in_steps, "killed_dbos.py"))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
