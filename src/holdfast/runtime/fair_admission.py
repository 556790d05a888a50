"""Places that several lines of callers share: in turns, however long one of the lines is."""

from __future__ import annotations

from holdfast.runtime.waiting_line import WaitingLine

__all__ = ["FairAdmission"]


class FairAdmission:
    """A number of places, and lines of those who wait for one.

    Args:
        places: How many there are.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._lines: dict[WaitingLine, None] = {}  # in the order of their turns

    def line(self) -> WaitingLine:
        """A new line."""
        return WaitingLine(self.leave)

    async def enter(self, line: WaitingLine) -> None:
        """Waits in a line for a place, and takes it."""
        if self._free:  # nobody waits then
            self._free -= 1
            return
        self._lines.setdefault(line)
        await line.wait()

    def leave(self) -> None:
        """Gives the place to the first of the next line, or back."""
        while self._lines:
            line = next(iter(self._lines))
            del self._lines[line]
            if line.let_in():
                if len(line):
                    self._lines[line] = None
                return
        self._free += 1
