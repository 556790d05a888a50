"""What belongs to one event loop, for objects that may be used in several."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PerLoop"]

T = TypeVar("T")


class PerLoop(Generic[T]):
    """One thing for each event loop, made there when first asked for.

    Those of closed loops are forgotten when the next one is made. Loops may run in threads of
    their own, so no method trusts that the others stand still.

    Args:
        make: Makes the thing of the running loop.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[asyncio.AbstractEventLoop, T] = {}

    def here(self) -> T:
        """The running loop's."""
        loop = asyncio.get_running_loop()
        made = self._made.get(loop)
        if made is None:
            for known in list(self._made):
                if known.is_closed():
                    self._made.pop(known, None)
            made = self._made[loop] = self._make()
        return made

    def known_here(self) -> T | None:
        """The running loop's, if it was made; None where no loop runs."""
        try:
            return self._made.get(asyncio.get_running_loop())
        except RuntimeError:
            return None

    def here_and_closed(self) -> list[T]:
        """Those that nobody but the running loop can need any more."""
        here = asyncio.get_running_loop()
        made = list(self._made.items())
        return [thing for loop, thing in made if loop is here or loop.is_closed()]

    def forget(self) -> None:
        """Lets go of the running loop's."""
        self._made.pop(asyncio.get_running_loop(), None)

    def __len__(self) -> int:
        return len(self._made)
