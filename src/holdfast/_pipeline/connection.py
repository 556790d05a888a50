"""An open stream, which the layers of its call pass up as one object.

A binding opens a stream (`holdfast._pipeline.transport.Stream`). What layers add to it is data of
a `Connection` around it: until when to wait for an event, and which observers to notify of its
end. A layer that changes the events themselves puts a `StreamWrapper` over the stream.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import msgspec

from holdfast._aio.closing import close
from holdfast._aio.watchdog import TimeLimit, Watchdog
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from holdfast._pipeline.observed_request import ObservedRequest
    from holdfast._pipeline.transport import Stream

__all__ = ["CLOSE_GRACE_S", "Bounds", "Connection", "connection_over"]

T = TypeVar("T")

CLOSE_GRACE_S = 5.0
"""Seconds that a stream has to close."""

_NO_LIMIT = contextlib.nullcontext()


class Bounds(msgspec.Struct, frozen=True):
    """The time limits of waits for a stream.

    Attributes:
        watchdog: Ends waits, at their deadlines or all of them at once.
        at: The deadline, on the event loop's clock.
        left: Called when a wait has ended that the watchdog has interrupted.
        error: Makes the error of an interrupted wait: at the deadline or, if True, before it.
    """

    watchdog: Watchdog
    at: float
    left: Callable[[], None]
    error: Callable[[bool], A2AError]


class Connection(Generic[T]):
    """One connection of a stream, with what the layers of its call require of it.

    Events are taken with `next_nowait`; where none is buffered, `wait` waits for one. A wait that
    is cancelled loses nothing: an event that has arrived is kept until it is taken.

    Args:
        source: The stream of the binding, or of a layer below.
        is_last: Returns whether an event is the last one, however long the connection stays
            open; None where no event is.

    Attributes:
        limit: The time limit of the wait that is in progress; None for no wait.
    """

    __slots__ = (
        "_bounds",
        "_failure",
        "_held",
        "_is_last",
        "_is_over",
        "_next_buffered",
        "_request",
        "_source",
        "limit",
    )

    def __init__(self, source: Stream[T], *, is_last: Callable[[T], bool] | None = None) -> None:
        self._source = source
        self._next_buffered = source.next_nowait
        self._is_last = is_last
        self._is_over = False
        self._held: T | None = None  # an event that has arrived and was not taken yet
        self._bounds: Bounds | None = None
        self._request: ObservedRequest | None = None
        self._failure: BaseException | None = None
        self.limit: TimeLimit | None = None

    def bound(self, bounds: Bounds) -> Self:
        """Limit waits to the deadline of the call, and closing to 5 s."""
        self._bounds = bounds
        return self

    def observe(self, request: ObservedRequest) -> Self:
        """Report the end of a request when the connection closes, and complete its errors."""
        self._request = request
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while (event := self.next_nowait()) is None:
            await self.wait()
        return event

    def next_nowait(self) -> T | None:
        """Return the next event if it is buffered; errors are raised by `wait`."""
        event = self._held
        if event is not None:
            self._held = None
        elif self._is_over or (event := self._next_buffered()) is None:
            return None
        if self._is_last is not None:
            self._is_over = self._is_last(event)
        return event

    async def wait(self, until: float = math.inf, watchdog: Watchdog | None = None) -> bool:
        """Wait until there is an event to take.

        Args:
            until: When to stop waiting, on the event loop's clock; infinity for never.
            watchdog: Measures ``until`` where the connection has no bounds of its own.

        Returns:
            Whether there is an event; False where none arrived until then.

        Raises:
            StopAsyncIteration: The connection ended normally.
            A2AError: It broke, its call's deadline has passed, or the agent reports an error.
        """
        if self._held is not None:
            return True
        if self._is_over:
            raise StopAsyncIteration
        bounds, self._failure = self._bounds, None  # a cancelled wait can be repeated
        if bounds is not None:
            self.limit = TimeLimit(bounds.watchdog, min(bounds.at, until))
        elif watchdog is not None:
            self.limit = TimeLimit(watchdog, until)
        try:
            with self.limit or _NO_LIMIT:
                self._held = await self._source.__anext__()
        except StopAsyncIteration:
            raise
        except BaseException as failure:
            if self._has_timed_out(failure):
                return False
            raise
        finally:
            limit, self.limit = self.limit, None
            if bounds is not None and limit is not None and (limit.ended or limit.expired):
                bounds.left()
        return True

    def _has_timed_out(self, failure: BaseException) -> bool:
        """Return whether a wait ended because nothing arrived; record any other failure.

        Raises:
            A2AError: The bounds of the call have ended it.
        """
        limit, bounds = self.limit, self._bounds
        ended: A2AError | None = None
        if limit is not None and limit.fired:
            if bounds is None or not (limit.ended or limit.at >= bounds.at):
                return True
            ended = bounds.error(limit.ended)
        self._failure = failure = ended or failure
        if self._request is not None and isinstance(failure, A2AError):
            self._request.complete(failure)
        if ended is not None:
            raise ended from None
        return False

    async def close(self) -> None:
        """Close the connection, and notify observers of it once.

        Raises:
            TimeoutError: It has bounds, and took longer than 5 s.
        """
        self._held = None
        try:
            if self._bounds is None:
                await self._source.close()
            else:
                await close(self._source, seconds=CLOSE_GRACE_S)
        finally:
            if self._request is not None:
                self._request.finish(self._failure)


def connection_over(stream: Stream[T]) -> Connection[T]:
    """Return the stream itself if it is a connection, or else one around it."""
    return stream if isinstance(stream, Connection) else Connection(stream)
