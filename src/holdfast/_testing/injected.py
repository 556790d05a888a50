"""The faults that wait for a request, in the order in which they were injected."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast._model.operations import OPERATIONS
from holdfast._testing.serverwire import CARD

if TYPE_CHECKING:
    from holdfast._testing.faults import Fault

__all__ = ["InjectedFaults"]

_NAMES = frozenset({CARD, *(operation.name for operation in OPERATIONS)})


class InjectedFaults:
    """Faults, each for one request."""

    def __init__(self) -> None:
        self._faults: deque[tuple[str | None, Fault]] = deque()

    def add(self, fault: Fault, *, on: str | None, times: int) -> None:
        """Adds a fault.

        Args:
            fault: What goes wrong.
            on: Name of the operation that it waits for; None for whichever comes first, the card
                not counted.
            times: With how many requests.

        Raises:
            ValueError: There is no such operation.
        """
        if on is not None and on not in _NAMES:
            message = f"{on!r} is none of {', '.join(sorted(_NAMES))}"
            raise ValueError(message)
        self._faults.extend([(on, fault)] * times)

    def clear(self) -> None:
        """Forgets those that no request has met yet."""
        self._faults.clear()

    @property
    def pending(self) -> tuple[Fault, ...]:
        """Those that no request has met yet."""
        return tuple(fault for _, fault in self._faults)

    def take(self, operation: str) -> Fault | None:
        """The fault that a request meets; None for none.

        Args:
            operation: What the request asks for, by name.
        """
        for index, (on, fault) in enumerate(tuple(self._faults)):
            if on == operation or (on is None and operation != CARD):
                del self._faults[index]
                return fault
        return None
