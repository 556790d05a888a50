"""Environments of the client whose clock, draws and ids a test decides."""

import asyncio
import itertools
import random

from holdfast._aio.env import SystemEnv, wall_time

__all__ = [
    "EPOCH",
    "Dice",
    "FixedDraws",
    "SeededDraws",
    "SystemEnv",
    "VirtualWall",
    "advance_wall",
    "now",
    "set_wall",
    "wall_time",
]

EPOCH = 1_767_225_600.0
"""The wall time of fake agents when the loop's clock is at 0: 2026-01-01."""


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


class VirtualWall(SystemEnv):
    """Wall time that goes with the event loop's clock, as the clocks of fake agents do.

    Attributes:
        ahead: Seconds that it is ahead of theirs; a test may set it.
        draw: What each draw gives; random if None.
    """

    def __init__(self, ahead=0.0, draw=None):
        super().__init__()
        self.ahead = ahead
        self.draw = draw

    def wall(self):
        return EPOCH + now() + self.ahead

    def random(self):
        return super().random() if self.draw is None else self.draw


class FixedDraws(SystemEnv):
    """The same draw each time; 0.5 leaves a time as it is, and prefers the first of two."""

    def __init__(self, draw=0.5):
        super().__init__()
        self.draw = draw

    def random(self):
        return self.draw


class SeededDraws(SystemEnv):
    """Draws that a seed decides."""

    def __init__(self, seed=1):
        super().__init__()
        self._random = random.Random(seed)


def set_wall(seconds):
    """Set the wall time of clients and journals in virtual time, in seconds since 1970."""
    asyncio.get_running_loop().epoch = seconds - now()


def advance_wall(seconds):
    """Set the wall time of clients and journals ahead; a negative number sets it back."""
    asyncio.get_running_loop().epoch += seconds


def now():
    return asyncio.get_running_loop().time()
