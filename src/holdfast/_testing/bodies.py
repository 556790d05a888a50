"""The bodies of a fake agent's replies: what comes of them, and how they end.

A fault in the middle of a reply is worked out here, once; whatever carries the reply has only to
end it as its body says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Protocol, Self

import msgspec

from holdfast._testing.faults import Cut, Duplicate, Fail, Fault, Reset, Stall
from holdfast._testing.serverwire import Refusal
from holdfast._testing.streaming import Ping, comment, frame

if TYPE_CHECKING:
    from holdfast._testing.serverwire import Wire
    from holdfast._testing.streaming import Events
    from holdfast.types import StreamResponse

__all__ = ["Body", "Ending", "EventBody", "Reply", "Share", "WholeBody", "refusal_of", "share_of"]

Ending = Literal["whole", "cut", "reset", "stalled"]


class Body(Protocol):
    """What comes of a body: to be iterated once, piece by piece."""

    @property
    def length(self) -> int | None:
        """The bytes that are announced; None for a stream."""
        ...

    @property
    def ending(self) -> Ending:
        """What happens after the last piece."""
        ...

    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> bytes: ...


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply on its way.

    Attributes:
        status: HTTP status.
        headers: Names in lower case; those that frame the body are not among them.
        body: What comes of the body.
    """

    status: int
    headers: Mapping[str, str]
    body: Body


class Share(msgspec.Struct):
    """How much of a body a fault lets through, and how it ends then.

    Attributes:
        events: Events that still come; None for all.
        size: Bytes that still come after them.
        ending: What happens then.
    """

    events: int | None = None
    size: int = 0
    ending: Ending = "whole"


def share_of(fault: Fault | None) -> Share:
    """How much of a body comes through."""
    match fault:
        case Cut(after_events=events, after_bytes=count, clean=clean):
            return Share(events, count, "whole" if clean else "cut")
        case Stall(phase="idle", after_events=events, after_bytes=count):
            return Share(events, count, "stalled")
        case Reset(after_events=int(events)):
            return Share(events, 0, "reset")
        case _:
            return Share()


class WholeBody:
    """A body that is there at once.

    Args:
        data: All of it.
        fault: What goes wrong with it.
    """

    def __init__(self, data: bytes, fault: Fault | None = None) -> None:
        share = share_of(fault)
        self._piece = data if share.events is None or share.events else data[: share.size]
        is_whole = len(self._piece) == len(data)
        self.ending: Ending = "whole" if is_whole else share.ending
        self.length = len(self._piece if self.ending == "whole" else data)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._piece:
            raise StopAsyncIteration
        piece, self._piece = self._piece, b""
        return piece


class EventBody:
    """A body of events as they happen.

    Args:
        events: The events.
        wire: How they are written.
        fault: What goes wrong with them.
    """

    length = None

    def __init__(self, events: Events, wire: Wire, fault: Fault | None) -> None:
        self.ending: Ending = "whole"
        self._events = events
        self._wire = wire
        self._share = share_of(fault)
        self._error: Fail | None = None
        if isinstance(fault, Fail):
            self._error, self._share.events = fault, fault.after_events
        self._repeated = fault.event if isinstance(fault, Duplicate) else 0
        self._again = b""
        self._rest = b""
        self._told = 0
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        piece = self._rest or await self._next()
        size = self._events.streaming.piece
        if size is not None:
            piece, self._rest = piece[:size], piece[size:]
        return piece

    async def _next(self) -> bytes:
        """The next event, or as much of it as comes."""
        if self._is_over:
            raise StopAsyncIteration
        if self._again:
            again, self._again = self._again, b""
            return again
        share = self._share
        if share.events == share.size == 0:
            return self._end()
        item = await self._events.next()
        if item is None:
            raise StopAsyncIteration
        if isinstance(item, Ping):
            piece = comment(self._events.streaming)
        elif isinstance(item, Refusal):
            piece = self._frame(item, event="error")
        else:
            piece = self._frame(item)
        if share.events == 0:
            piece = piece[: share.size]
            share.size -= len(piece)
        elif not isinstance(item, Ping):
            self._count(piece)
        return piece

    def close(self) -> None:
        """Ends it where it stands; whoever waits for a piece is told that there is none."""
        self._events.close()

    def _count(self, piece: bytes) -> None:
        self._told += 1
        if self._share.events is not None:
            self._share.events -= 1
        if self._told == self._repeated:
            self._again = piece

    def _end(self) -> bytes:
        """Ends it as the fault says; the last piece, if there is one more."""
        self._is_over = True
        self.ending = self._share.ending
        if self._error is None:
            raise StopAsyncIteration
        return self._frame(refusal_of(self._error), event="error" if self._error.named else None)

    def _frame(self, item: StreamResponse | Refusal, *, event: str | None = None) -> bytes:
        wire = self._wire
        reply = wire.refuse(item) if isinstance(item, Refusal) else wire.answer(item)
        return frame(reply.body, self._events.streaming, event=event)


def refusal_of(fault: Fail) -> Refusal:
    """What the agent says where it fails."""
    return Refusal(fault.code, fault.message, retry_after=fault.retry_after, data=fault.data)
