"""Kills client processes for as long as is wanted: ``python -m tests.soak``.

``ROUNDS`` says how many rounds, ``SEED`` where they begin, ``TOGETHER`` how many run at once.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.kit.killing import one_round, processes

_SHOWN = 100


async def soak(first, rounds, together):
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
                counted, problems = await one_round(seed, Path(directory) / "round", started)
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

    async with processes() as started:
        await asyncio.gather(*(one_after_the_other() for _ in range(min(together, rounds))))
    _tell(summary() if not failed else f"{summary()}; FAILED seeds: {sorted(failed)}")
    return failed


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
    seed, rounds = _number("SEED", "0", least=0), _number("ROUNDS", "2000", least=1)
    together = _number("TOGETHER", "4", least=1)
    sys.exit(bool(asyncio.run(soak(seed, rounds, together))))


if __name__ == "__main__":
    main()
