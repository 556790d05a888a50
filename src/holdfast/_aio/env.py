"""The only source of wall time, random numbers and new ids.

Durations are measured with the running event loop's clock instead.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Env", "SystemEnv", "wall_clock", "wall_time"]


class Env(Protocol):
    """A source of wall time, random numbers and ids."""

    def wall(self) -> float:
        """Return the seconds since the epoch."""
        ...

    def random(self) -> float:
        """Return a number from 0 up to, but not including, 1."""
        ...

    def new_id(self) -> str:
        """Return a unique id."""
        ...


class SystemEnv:
    """The system's wall time, random numbers and ids."""

    def __init__(self) -> None:
        self._random = random.Random()  # noqa: S311  spreads load, protects no secret

    def wall(self) -> float:
        """Return the seconds since the epoch; in virtual time, those of the event loop."""
        return wall_time()

    def random(self) -> float:
        """Return a number from 0 up to, but not including, 1."""
        return self._random.random()

    def new_id(self) -> str:
        """Return a random UUID (RFC 9562, version 4), in a third of the time of ``uuid``."""
        digits = os.urandom(16).hex()
        variant = _VARIANTS[digits[16]]
        return (
            f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
        )


def wall_time() -> float:
    """Return the seconds since the epoch; in an event loop in virtual time, its wall time."""
    return wall_clock()()


def wall_clock() -> Callable[[], float]:
    """Return a function that returns `wall_time`, also in threads without an event loop."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return time.time
    return partial(getattr, loop, "wall_time") if hasattr(loop, "wall_time") else time.time


_VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
"""The hexadecimal digit of the bits 10 and the last two bits of a random one (RFC 9562, 4.1)."""
