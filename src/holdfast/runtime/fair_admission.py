"""Places that several lines of callers share: in turns, however long one of the lines is.

Who is called leaves as many places free as it has, so that one that never answers cannot take all
of them: the dynamic threshold of shared buffers (Choudhury and Hahne, IEEE/ACM Transactions on
Networking 6, 1998).
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from holdfast.runtime.waiting_line import WaitingLine

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FairAdmission", "FairLine"]


class FairLine:
    """Those who wait in one line, by whom they want to call."""

    def __init__(self) -> None:
        self.waiting: dict[str, WaitingLine] = {}  # in the order of their turns

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits in it."""
        return not any(map(len, self.waiting.values()))


class FairAdmission:
    """A number of places, and lines of those who wait for one.

    Args:
        places: How many there are.
        are_shared: Whether others than the one who has places may need them.
    """

    def __init__(self, places: int, are_shared: Callable[[], bool]) -> None:
        self._free = places
        self._are_shared = are_shared
        self._taken = Counter[str]()
        self._lines: dict[FairLine, None] = {}  # in the order of their turns

    async def enter(self, line: FairLine, name: str) -> None:
        """Waits in a line for a place to call somebody, and takes it."""
        if self._may_enter(name):  # nobody waits for the same one then
            self._take(name)
            return
        if name not in line.waiting:
            line.waiting[name] = WaitingLine(partial(self.leave, name))
        self._lines.setdefault(line)
        try:
            await line.waiting[name].wait()
        finally:
            if line.is_empty:
                self._lines.pop(line, None)

    def leave(self, name: str) -> None:
        """Gives the place back, and to the next who may have it."""
        self._free += 1
        self._taken[name] -= 1
        if not self._taken[name]:
            del self._taken[name]
        while self._let_in():
            pass

    def dismiss(self, name: str) -> None:
        """Ends the waits of all who want to call somebody that is gone: they leave at once."""
        for line in self._lines:
            waiting = line.waiting.pop(name, None)
            while waiting is not None and waiting.let_in():
                self._take(name)  # more than there are, for a moment

    def _may_enter(self, name: str) -> bool:
        return self._free > (self._taken[name] if self._are_shared() else 0)

    def _take(self, name: str) -> None:
        self._free -= 1
        self._taken[name] += 1

    def _let_in(self) -> bool:
        """Gives a place to the first who may have it, of the next line; False if there is none."""
        for line in self._lines if self._free else ():
            if self._let_in_of(line):
                del self._lines[line]
                if not line.is_empty:
                    self._lines[line] = None
                return True
        return False

    def _let_in_of(self, line: FairLine) -> bool:
        for name, waiting in line.waiting.items():
            if self._may_enter(name) and waiting.let_in():
                self._take(name)
                del line.waiting[name]
                if len(waiting):
                    line.waiting[name] = waiting
                return True
        return False
