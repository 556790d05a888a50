"""The bodies of a fake agent's replies, as far as a fault lets them through, and their ends.

A fault in the middle of a reply is applied here, once; what carries the reply only has to end it
as its body says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Protocol, Self

import msgspec

from holdfast._testing.faults import Cut, Duplicate, Fail, Fault, Reset, Stall
from holdfast._testing.parsed_request import Refusal
from holdfast._testing.streaming import KeepAlive, comment, frame

if TYPE_CHECKING:
    from holdfast._testing.parsed_request import ParsedRequest
    from holdfast._testing.streaming import Events
    from holdfast.types import StreamResponse

__all__ = [
    "Body",
    "BodyEnd",
    "EventBody",
    "Portion",
    "Reply",
    "WholeBody",
    "portion_of",
    "refusal_for",
]

BodyEnd = Literal["whole", "cut", "reset", "stalled"]


class Body(Protocol):
    """The received part of a body; it is iterated once, piece by piece."""

    @property
    def length(self) -> int | None:
        """The announced length in bytes; None for a stream."""
        ...

    @property
    def ending(self) -> BodyEnd:
        """The event after the last piece."""
        ...

    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> bytes: ...


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply.

    Attributes:
        status: HTTP status.
        headers: Headers except those that frame the body; names in lower case.
        body: The body.
    """

    status: int
    headers: Mapping[str, str]
    body: Body


class Portion(msgspec.Struct):
    """The part of a body that a fault lets through, and its end.

    Attributes:
        events: Events that pass; None for all.
        size: Bytes that pass after them.
        ending: The event after that.
    """

    events: int | None = None
    size: int = 0
    ending: BodyEnd = "whole"


def portion_of(fault: Fault | None) -> Portion:
    """Return the part of a body that a fault lets through."""
    match fault:
        case Cut(after_events=events, after_bytes=count, clean=clean):
            return Portion(events, count, "whole" if clean else "cut")
        case Stall(phase="idle", after_events=events, after_bytes=count):
            return Portion(events, count, "stalled")
        case Reset(after_events=int(events)):
            return Portion(events, 0, "reset")
        case _:
            return Portion()


class WholeBody:
    """A body that is sent in one piece.

    Args:
        data: The whole body.
        fault: The fault that applies to it; None for none.
    """

    def __init__(self, data: bytes, fault: Fault | None = None) -> None:
        portion = portion_of(fault)
        self._piece = data if portion.events is None or portion.events else data[: portion.size]
        is_whole = len(self._piece) == len(data)
        self.ending: BodyEnd = "whole" if is_whole else portion.ending
        self.length = len(self._piece if self.ending == "whole" else data)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._piece:
            raise StopAsyncIteration
        piece, self._piece = self._piece, b""
        return piece


class EventBody:
    """A body of events, each sent at its time.

    Args:
        events: The events.
        parsed: Encodes them.
        fault: The fault that applies to them; None for none.
    """

    length = None

    def __init__(self, events: Events, parsed: ParsedRequest, fault: Fault | None) -> None:
        self.ending: BodyEnd = "whole"
        self._events = events
        self._parsed = parsed
        self._portion = portion_of(fault)
        self._error: Fail | None = None
        if isinstance(fault, Fail):
            self._error, self._portion.events = fault, fault.after_events
        self._repeated = fault.event if isinstance(fault, Duplicate) else 0
        self._repeat = b""
        self._rest = b""
        self._sent = 0
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
        """Return the next event, or the part of it that passes."""
        if self._is_over:
            raise StopAsyncIteration
        if self._repeat:
            repeat, self._repeat = self._repeat, b""
            return repeat
        portion = self._portion
        if portion.events == portion.size == 0:
            return self._end()
        item = await self._events.next()
        if item is None:
            raise StopAsyncIteration
        if isinstance(item, KeepAlive):
            piece = comment(self._events.streaming)
        elif isinstance(item, Refusal):
            piece = self._frame(item, event="error")
        else:
            piece = self._frame(item)
        if portion.events == 0:
            piece = piece[: portion.size]
            portion.size -= len(piece)
        elif not isinstance(item, KeepAlive):
            self._count(piece)
        return piece

    def close(self) -> None:
        """End the body at once, also for a reader that waits for a piece."""
        self._events.close()

    def _count(self, piece: bytes) -> None:
        self._sent += 1
        if self._portion.events is not None:
            self._portion.events -= 1
        if self._sent == self._repeated:
            self._repeat = piece

    def _end(self) -> bytes:
        """End the body as the fault says; return the last piece if there is one more."""
        self._is_over = True
        self.ending = self._portion.ending
        if self._error is None:
            raise StopAsyncIteration
        return self._frame(refusal_for(self._error), event="error" if self._error.named else None)

    def _frame(self, item: StreamResponse | Refusal, *, event: str | None = None) -> bytes:
        parsed = self._parsed
        reply = parsed.refuse(item) if isinstance(item, Refusal) else parsed.answer(item)
        return frame(reply.body, self._events.streaming, event=event)


def refusal_for(fault: Fail) -> Refusal:
    """Return the agent's error for a fault."""
    return Refusal(fault.code, fault.message, retry_after=fault.retry_after, data=fault.data)
