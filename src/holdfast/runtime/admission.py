"""How many calls of a client are under way at once, and who waits for a place."""

from __future__ import annotations

from holdfast.runtime.waiting_line import WaitingLine

__all__ = ["Admission"]


class Admission:
    """A number of places, and a line of those who wait for one.

    Args:
        places: How many there are.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._line = WaitingLine(self.leave)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._line)

    def enter_at_once(self) -> bool:
        """Takes a place, if one is free and nobody waits for it."""
        if self._free == 0:
            return False
        self._free -= 1
        return True

    async def enter(self) -> None:
        """Waits for a place, and takes it."""
        await self._line.wait()

    def leave(self) -> None:
        """Gives the place to the next, or back."""
        if not self._line.let_in():
            self._free += 1
