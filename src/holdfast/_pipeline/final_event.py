"""Streams of agents that say which event is the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from holdfast._pipeline.transport import Stream, StreamWrapper

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["StopAtFinalEvent"]

R = TypeVar("R")


class StopAtFinalEvent(StreamWrapper[R]):
    """A stream that has ended in good order after its last event, however long it stays open.

    Args:
        inner: What is below.
        is_last: Whether an event is the last one.
    """

    def __init__(self, inner: Stream[R], is_last: Callable[[R], bool]) -> None:
        super().__init__(inner)
        self.next_nowait = self._at_hand
        self._inner_at_hand = inner.next_nowait
        self._is_last = is_last
        self._is_over = False

    async def __anext__(self) -> R:
        """The next event."""
        if self._is_over:
            raise StopAsyncIteration
        return self._seen(await super().__anext__())

    def _at_hand(self) -> R | None:
        event = None if self._is_over else self._inner_at_hand()
        return None if event is None else self._seen(event)

    def _seen(self, event: R) -> R:
        self._is_over = self._is_last(event)
        return event
