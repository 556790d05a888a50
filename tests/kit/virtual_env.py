"""Environments of the client whose clock, draws and ids a test decides."""

import asyncio
import itertools


class Dice:
    """Wall time, a fixed draw, and ids that count, so that two clients share none."""

    made = itertools.count(1)

    def __init__(self, draw=0.5, wall=1_700_000_000.0):
        self.draw = draw
        self.start = wall

    def wall(self):
        return self.start + now()

    def random(self):
        return self.draw

    def new_id(self):
        return f"id-{next(self.made)}"


def now():
    return asyncio.get_running_loop().time()
