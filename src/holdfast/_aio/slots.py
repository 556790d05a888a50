"""Slots: so many at a time, in the order in which they were asked for.

`asyncio.Semaphore` does the same in four times the time, most of it to see whether one is free.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Slots"]


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
