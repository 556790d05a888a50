"""An open stream, as the layers of its call hand it up: one object, whatever they want of it.

A binding opens a stream (`holdfast._pipeline.transport.Stream`). What layers add to it is data of
a `Connection` around it: until when to wait for an event, and who learns of its end. A layer that
changes the events themselves puts a `StreamWrapper` over what it gets.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec

from holdfast._aio.closing import close
from holdfast._aio.watchdog import TimeLimit, Watchdog
from holdfast._pipeline.call_errors import complete
from holdfast._pipeline.transport import AnyCall, Reply, Stream, StreamWrapper
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from holdfast._pipeline.listeners import Observers

__all__ = ["Bounds", "Connection", "InterceptedStream", "OneEvent", "connection_over", "replaced"]

T = TypeVar("T")

_CLOSE_GRACE_S = 5.0
"""Seconds that a stream has to close."""

_NO_LIMIT = contextlib.nullcontext()


def replaced(reply: Reply[Any], stream: Stream[T]) -> Reply[Stream[T]]:
    """The reply that opened a stream, with another stream in its place."""
    return msgspec.structs.replace(reply, value=stream)


class Bounds(msgspec.Struct, frozen=True):
    """Until when a stream may be waited for.

    Attributes:
        watchdog: Ends waits, at their time or all of them at once.
        at: The deadline, on the event loop's clock.
        left: To be called when a wait has ended that the watchdog has ended.
        error: Makes the error of a wait that was ended: at the deadline or, if True, before it.
    """

    watchdog: Watchdog
    at: float
    left: Callable[[], None]
    error: Callable[[bool], A2AError]


class Connection(Generic[T]):
    """One connection of a stream: what its call's layers want of it, in one place.

    Events are taken from it with `next_nowait`; where there is none, `wait` waits for one. So a
    wait that is cancelled loses nothing: an event that has come stays until it is taken.

    Args:
        source: What the binding, or a layer below, gave.
        is_last: Says of an event that nothing comes after it, however long the connection stays
            open; None where no event says so.

    Attributes:
        limit: The time limit of the wait that is in progress; None for no wait.
    """

    __slots__ = (
        "_bounds",
        "_call",
        "_failure",
        "_held",
        "_is_last",
        "_is_over",
        "_next_buffered",
        "_observers",
        "_source",
        "limit",
    )

    def __init__(self, source: Stream[T], *, is_last: Callable[[T], bool] | None = None) -> None:
        self._source = source
        self._next_buffered = source.next_nowait
        self._is_last = is_last
        self._is_over = False
        self._held: T | None = None  # that has come, and was not taken yet
        self._bounds: Bounds | None = None
        self._call: AnyCall | None = None  # until observers know that it has ended
        self._observers: Observers | None = None
        self._failure: BaseException | None = None
        self.limit: TimeLimit | None = None

    def bound(self, bounds: Bounds) -> Self:
        """Lets no wait go on for longer than its call may, nor closing for more than 5 s."""
        self._bounds = bounds
        return self

    def observe(self, call: AnyCall, observers: Observers) -> Self:
        """Has observers told when it is closed, and its call named in errors, without secrets."""
        self._call, self._observers = call, observers
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while (event := self.next_nowait()) is None:
            await self.wait()
        return event

    def next_nowait(self) -> T | None:
        """The next event if it is there already; what fails does so in `wait`."""
        event = self._held
        if event is not None:
            self._held = None
        elif self._is_over or (event := self._next_buffered()) is None:
            return None
        if self._is_last is not None:
            self._is_over = self._is_last(event)
        return event

    async def wait(self, quiet_at: float = math.inf, watchdog: Watchdog | None = None) -> bool:
        """Waits until there is an event to take.

        Args:
            quiet_at: When to stop waiting, on the event loop's clock; infinity for never.
            watchdog: What measures that where the connection has no bounds of its own.

        Returns:
            Whether there is one; False where none came until ``quiet_at``.

        Raises:
            StopAsyncIteration: The connection ended in good order.
            A2AError: It broke, its call's time is over, or the agent tells of an error.
        """
        if self._held is not None:
            return True
        if self._is_over:
            raise StopAsyncIteration
        bounds, self._failure = self._bounds, None  # a wait that was cancelled can be repeated
        if bounds is not None:
            self.limit = TimeLimit(bounds.watchdog, min(bounds.at, quiet_at))
        elif watchdog is not None:
            self.limit = TimeLimit(watchdog, quiet_at)
        try:
            with self.limit or _NO_LIMIT:
                self._held = await self._source.__anext__()
        except StopAsyncIteration:
            raise
        except BaseException as failure:
            if self._is_quiet(failure):
                return False
            raise
        finally:
            limit, self.limit = self.limit, None
            if bounds is not None and limit is not None and (limit.ended or limit.expired):
                bounds.left()
        return True

    def _is_quiet(self, failure: BaseException) -> bool:
        """Whether a wait has ended because nothing came; notes and completes any other failure.

        Raises:
            A2AError: It was ended by the bounds of the call.
        """
        limit, bounds, call = self.limit, self._bounds, self._call
        ended: A2AError | None = None
        if limit is not None and limit.fired:
            if bounds is None or not (limit.ended or limit.at >= bounds.at):
                return True
            ended = bounds.error(limit.ended)
        self._failure = failure = ended or failure
        if call is not None and isinstance(failure, A2AError):
            complete(failure, call)
        if ended is not None:
            raise ended from None
        return False

    async def close(self) -> None:
        """Lets go of the connection, and tells observers of it once.

        Raises:
            TimeoutError: It has bounds, and took longer than 5 s.
        """
        call, self._call = self._call, None
        self._held = None
        try:
            if self._bounds is None:
                await self._source.close()
            else:
                await close(self._source, seconds=_CLOSE_GRACE_S)
        finally:
            if call is not None and self._observers is not None:
                self._observers.request_finished(call, self._failure)


def connection_over(stream: Stream[T]) -> Connection[T]:
    """The stream itself, if it is a connection, or one around it."""
    return stream if isinstance(stream, Connection) else Connection(stream)


class OneEvent(Generic[T]):
    """A stream of what is there already."""

    def __init__(self, event: T) -> None:
        self._events = [event]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if not self._events:
            raise StopAsyncIteration
        return self._events.pop()

    def next_nowait(self) -> T | None:
        """The event, until it is taken."""
        return self._events.pop() if self._events else None

    async def close(self) -> None:
        """Forgets it."""
        self._events.clear()


class InterceptedStream(StreamWrapper[T]):
    """Shows each event, and a failure, to the interceptors that saw the call before.

    Args:
        inner: What is below.
        call: What is streamed.
        reply: What opened it.
        after: Shows them an outcome, and gives what they make of it, or raises it.
    """

    def __init__(
        self,
        inner: Stream[T],
        call: AnyCall,
        reply: Reply[Stream[T]],
        after: Callable[[Reply[T] | A2AError], Awaitable[Reply[T]]],
    ) -> None:
        super().__init__(inner)
        self._call = call
        self._reply: Reply[Any] = reply
        self._after = after
        self._held: Reply[T] | A2AError | None = None

    async def __anext__(self) -> T:
        outcome, self._held = self._held or await self._outcome(), None
        try:
            return (await self._after(outcome)).value
        except asyncio.CancelledError:
            self._held = outcome  # the event has come, and must not get lost
            raise

    async def _outcome(self) -> Reply[T] | A2AError:
        try:
            event = await self._inner.__anext__()
        except A2AError as error:
            complete(error, self._call)  # before interceptors see it
            return error
        return msgspec.structs.replace(self._reply, value=event)
