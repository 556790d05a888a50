"""A line of callers who wait for their turn: first come, first served.

Slots: so many at a time, in the order in which they were asked for.

`asyncio.Semaphore` does the same in four times the time, most of it to see whether one is free.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Slots", "WaitingLine"]


class Slots:
    """Some slots of one event loop.

    A slot that is given back while somebody waits goes to them at once, so that nobody who comes
    later can take it.

    Args:
        number: How many there are.
    """

    def __init__(self, number: int) -> None:
        self._free = number  # none, as long as somebody waits
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def are_taken(self) -> bool:
        """Whether the next one has to wait."""
        return not self._free

    async def take(self) -> None:
        """Takes a slot, and waits for it if need be; who is cancelled has none."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif not turn.cancelled():  # it had come meanwhile
                self.give_back()
            raise

    def give_back(self) -> None:
        """Gives a slot back that was taken."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


_FEW = 64
"""Turns of those who have left that are not worth being cleared away."""


class WaitingLine:
    """Who waits, in order.

    A turn is handed over: nobody who comes later can take it. One who has left meanwhile is passed
    over, and to leave costs the same wherever one stands.

    Args:
        unused: Called when somebody leaves who has been given a turn, and has not heard of it.
    """

    def __init__(self, unused: Callable[[], None]) -> None:
        self._unused = unused
        self._line: deque[asyncio.Future[None]] = deque()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    async def wait(self, *, first: bool = False) -> None:
        """Waits for a turn.

        Args:
            first: Whether to stand at the head of the line, not at its end.
        """
        turn = asyncio.get_running_loop().create_future()
        (self._line.appendleft if first else self._line.append)(turn)
        self._waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting -= 1
                if len(self._line) > 2 * self._waiting + _FEW:
                    self._line = deque(one for one in self._line if not one.done())
            else:
                self._unused()
            raise

    def let_in(self) -> bool:
        """Gives a turn to the first in the line; False if there is nobody."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                self._waiting -= 1
                turn.set_result(None)
                return True
        return False
