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

from tests.killing import one_round, processes

_SHOWN = 100


async def soak(first, rounds, together):
    """Runs rounds; gives the seeds of those that failed."""
    sums, failed, room = Counter(), [], asyncio.Semaphore(together)
    began = time.monotonic()

    def summary():
        return (
            f"{sums['rounds']} rounds, {sums['killed']} processes killed, {sums['messages']} "
            f"messages: {sums['executed']} executed, {sums['twice']} more than once; "
            f"{sums['answered']} answered, {sums['unknown']} reported unknown, "
            f"{sums['not sent']} not sent, {sums['lost']} lost; {time.monotonic() - began:.0f} s"
        )

    async def one(seed):
        async with room:
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

    async with processes() as started:
        await asyncio.gather(*(one(seed) for seed in range(first, first + rounds)))
    _tell(summary() if not failed else f"{summary()}; FAILED seeds: {sorted(failed)}")
    return failed


def _tell(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main():
    """Runs what the environment says; fails if a round fails."""
    seed = int(os.environ.get("SEED", "0"))
    rounds = int(os.environ.get("ROUNDS", "2000"))
    sys.exit(bool(asyncio.run(soak(seed, rounds, int(os.environ.get("TOGETHER", "4"))))))


if __name__ == "__main__":
    main()
