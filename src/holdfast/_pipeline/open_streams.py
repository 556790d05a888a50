"""What layers do to a stream while it is open."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec

from holdfast._aio.closing import close
from holdfast._pipeline.transport import AnyCall, Reply, Stream, StreamWrapper
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from holdfast._pipeline.listeners import Observers

__all__ = ["BoundedStream", "InterceptedStream", "ObservedStream", "OneEvent", "replaced"]

T = TypeVar("T")


def replaced(reply: Reply[Any], stream: Stream[T]) -> Reply[Stream[T]]:
    """The reply that opened a stream, with another stream in its place."""
    return msgspec.structs.replace(reply, value=stream)


_CLOSING = 5.0
"""Seconds that a stream has to close."""


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


class ObservedStream(StreamWrapper[T]):
    """Tells observers when a stream is closed, names its call in errors, and keeps secrets."""

    def __init__(self, inner: Stream[T], call: AnyCall, observers: Observers) -> None:
        super().__init__(inner)
        self.next_nowait = inner.next_nowait
        self._call: AnyCall | None = call
        self._observers = observers
        self._failure: BaseException | None = None

    async def __anext__(self) -> T:
        self._failure = None  # one that was cancelled can be gone on with
        try:
            return await self._inner.__anext__()
        except StopAsyncIteration:
            raise
        except BaseException as failure:
            self._failure = failure
            if isinstance(failure, A2AError) and self._call is not None:
                self._call.progress.secrets.hide_in(failure)
                failure.request_id = self._call.request_id
                failure.traceparent = failure.traceparent or self._call.headers.get("traceparent")
            raise

    async def close(self) -> None:
        """Closes what is below, and tells of it once."""
        call, self._call = self._call, None
        try:
            await self._inner.close()
        finally:
            if call is not None:
                self._observers.request_finished(call, self._failure)


class InterceptedStream(StreamWrapper[T]):
    """Shows each event, and a failure, to the interceptors that were asked before.

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
            self._call.progress.secrets.hide_in(error)  # before anybody is told of it
            error.request_id = self._call.request_id
            error.traceparent = self._call.headers.get("traceparent")
            return error
        return msgspec.structs.replace(self._reply, value=event)


class BoundedStream(StreamWrapper[T]):
    """Waits for no event longer than its call may, and to be closed no longer than some seconds.

    Args:
        inner: What is below.
        bounded: Waits for something, within the bounds of the call.
    """

    def __init__(
        self,
        inner: Stream[T],
        bounded: Callable[[Coroutine[Any, Any, T]], Coroutine[Any, Any, T]],
    ) -> None:
        super().__init__(inner)
        self.next_nowait = inner.next_nowait
        self._bounded = bounded

    def __anext__(self) -> Coroutine[Any, Any, T]:
        return self._bounded(self._inner.__anext__())

    async def close(self) -> None:
        """Closes what is below, and waits for it no longer than for anything else.

        Raises:
            TimeoutError: It was given up.
        """
        await close(self._inner, seconds=_CLOSING)
