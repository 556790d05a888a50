"""State per event loop, for objects that may be used in several."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PerLoop"]

T = TypeVar("T")


class PerLoop(Generic[T]):
    """One value for each event loop, created at its first use there.

    Values of closed loops are dropped when the next value is created. Loops may run in different
    threads, so no method assumes that the values of other loops stay the same.

    Args:
        make: Creates the value of the running loop.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: dict[asyncio.AbstractEventLoop, T] = {}

    def here(self, loop: asyncio.AbstractEventLoop | None = None) -> T:
        """Return the running loop's value.

        Args:
            loop: The running loop, if the caller has it: until Python 3.12, to ask for it costs a
                system call.
        """
        loop = loop or asyncio.get_running_loop()
        value = self._values.get(loop)
        if value is None:
            for other_loop in list(self._values):
                if other_loop.is_closed():
                    self._values.pop(other_loop, None)
            value = self._values[loop] = self._make()
        return value

    def known_here(self) -> T | None:
        """Return the running loop's value; None if there is none, or no loop runs."""
        try:
            return self._values.get(asyncio.get_running_loop())
        except RuntimeError:
            return None

    def here_and_closed(self) -> list[T]:
        """Return the values of the running loop and of closed loops."""
        here = asyncio.get_running_loop()
        values = list(self._values.items())
        return [value for loop, value in values if loop is here or loop.is_closed()]

    def forget(self) -> None:
        """Drop the running loop's value."""
        self._values.pop(asyncio.get_running_loop(), None)

    def __len__(self) -> int:
        return len(self._values)
