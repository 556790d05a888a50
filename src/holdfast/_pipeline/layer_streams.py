"""Streams that layers return in place of the stream of a binding."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec

from holdfast._pipeline.call_errors import complete
from holdfast._pipeline.transport import AnyCall, Reply, Stream, StreamWrapper
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["InterceptedStream", "OneEvent", "with_stream"]

T = TypeVar("T")


def with_stream(reply: Reply[Any], stream: Stream[T]) -> Reply[Stream[T]]:
    """Return the reply that opened a stream, with another stream in its place."""
    return msgspec.structs.replace(reply, value=stream)


class OneEvent(Generic[T]):
    """A stream of one event that has arrived already."""

    def __init__(self, event: T) -> None:
        self._events = [event]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if not self._events:
            raise StopAsyncIteration
        return self._events.pop()

    def next_nowait(self) -> T | None:
        """Return the event, until it is taken."""
        return self._events.pop() if self._events else None

    async def close(self) -> None:
        """Drop the event."""
        self._events.clear()


class InterceptedStream(StreamWrapper[T]):
    """Passes each event, and a failure, to the interceptors that ran before the call.

    Args:
        inner: The stream below.
        call: The streaming call.
        reply: The reply that opened the stream.
        after: Passes them an outcome, and returns their outcome, or raises it.
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
            self._held = outcome  # the event has arrived, and must not be lost
            raise

    async def _outcome(self) -> Reply[T] | A2AError:
        try:
            event = await self._inner.__anext__()
        except A2AError as error:
            complete(error, self._call)  # before interceptors see it
            return error
        return msgspec.structs.replace(self._reply, value=event)
