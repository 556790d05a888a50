"""A caller's call that may take several requests: observers learn of its end once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from holdfast._pipeline.listeners import Observers
    from holdfast._pipeline.transport import CallGroup

__all__ = ["ObservedCall"]


class ObservedCall:
    """Reports `CallFinished` for the caller's call, and not for each of its requests.

    As a context manager, the call lasts as long as the block. Of two in one call group, the one
    that begins first reports.

    Args:
        call_group: The state that the requests of the call share.
        observers: The observers to notify.
        operation: See below.

    Attributes:
        operation: Name of the operation that the caller called; reported where the call ends
            before its first request.
    """

    def __init__(self, call_group: CallGroup, observers: Observers, operation: str) -> None:
        self._call_group = call_group
        self._observers = observers
        self.operation = operation
        self._began = 0.0
        self._ended: float | None = None
        self._is_open = False

    def begin(self) -> None:
        """Note that the call begins now."""
        self._is_open = self._call_group.ends_with_request
        self._call_group.ends_with_request = False
        self._began = _now()

    def end(self) -> None:
        """Note that the result is available now, though it may not be reported yet."""
        if self._ended is None:
            self._ended = _now()

    def discard(self) -> None:
        """Report no end: the call is another client's."""
        self._is_open = False

    def finish(self, error: BaseException | None) -> None:
        """Report the end of the call, once.

        Args:
            error: The error that the caller gets; None where there is none.
        """
        if self._is_open:
            self._is_open = False
            duration = (_now() if self._ended is None else self._ended) - self._began
            self._observers.call_finished(self._call_group, self.operation, duration, error)

    def __enter__(self) -> Self:
        if self._call_group.is_observed:
            self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_open:
            self.finish(error)


def _now() -> float:
    return asyncio.get_running_loop().time()
