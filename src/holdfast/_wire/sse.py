"""Server-sent events out of the bytes of a stream (HTML, 9.2.5 and 9.2.6).

Rules: a line ends with LF, CRLF or CR and nothing else, and an event is there with the end of its
blank line, whatever follows. Data stays bytes: a character may be split anywhere, and whoever
decodes an event judges it. How the stream is cut into chunks changes neither what comes out nor
what is refused, and costs no second look at a byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._wire.limits import limit_error

if TYPE_CHECKING:
    from holdfast._wire.limits import Limits
    from holdfast.errors import LimitExceededError

__all__ = ["EVENT_STREAM", "EventStreamParser", "ServerSentEvent"]

EVENT_STREAM = "text/event-stream"
"""The media type."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_SHORT = 512
"""Bytes of an event below which many are taken together; longer ones are sooner taken alone."""

_LONGEST = 10**9
"""Milliseconds: who is to wait for eleven days does not come back."""


class ServerSentEvent(msgspec.Struct, frozen=True, gc=False):
    """One event.

    Attributes:
        data: Its lines of data, joined by LF; UTF-8, unless the agent errs.
        event: Its type.
        id: The last id that the stream has named; empty if there was none.
    """

    data: bytes
    event: str = "message"
    id: str = ""


class EventStreamParser:
    """Takes a stream of events apart, chunk by chunk.

    Comments are not told: whoever feeds the chunks knows that something has arrived.

    Attributes:
        last_event_id: The id to name when reconnecting; one in an event that was cut off does not
            count.
        reconnection_time: Seconds to wait before reconnecting, at most 1,000,000; None if the
            stream has not said.

    Args:
        limits: Bounds an event and a line by `Limits.event`. Memory is at most twelve times
            that, and for the events of a chunk 16 times its size.
    """

    def __init__(self, limits: Limits) -> None:
        self.last_event_id = ""
        self.reconnection_time: float | None = None
        self._limits = limits
        self._is_refused = False
        self._start: bytes | None = b""  # as long as it may be a byte-order mark
        self._is_after_cr = False
        self._line = bytearray()  # as far as it has come
        self._size = 0  # of the event as far as it has come: its lines, but for comments
        self._data: list[bytes] = []
        self._event = ""
        self._id = ""

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Takes the next bytes of the stream, any number of them.

        Returns:
            The events that they complete.

        Raises:
            LimitExceededError: An event or a line is too large. If the same chunk completes events
                before it, they are returned, and the next call raises, whatever it is given.
        """
        if self._is_refused:
            raise self._too_large()
        if self._start is not None:
            chunk = self._start + chunk
            if _BYTE_ORDER_MARK.startswith(chunk):
                self._start = chunk
                return []
            self._start = None
            chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
        elif self._is_after_cr and chunk:
            self._is_after_cr = False
            chunk = chunk.removeprefix(b"\n")
        events: list[ServerSentEvent] = []
        self._read(chunk, events)
        if self._is_refused and not events:
            raise self._too_large()
        return events

    @property
    def is_cut(self) -> bool:
        """Whether the stream, if it ends here, ends inside an event, which is then lost."""
        return self._is_refused or self._size > 0 or bytes(self._line[:1]) not in {b"", b":"}

    def _read(self, chunk: bytes, events: list[ServerSentEvent]) -> None:
        bound, size = self._limits.event, len(chunk)
        before = self._size + len(self._line)
        at, lf, cr = 0, -1, -1
        is_untried = True
        while at < size:
            if is_untried and not before:
                is_untried = False  # once: what is not plain here is seldom plain later
                if size - at > 8 * _SHORT and b"\n" in chunk[at : at + _SHORT]:
                    at = size - len(self._plain(chunk[at:], events))
                    continue
            if lf < at and (lf := chunk.find(b"\n", at)) < 0:
                lf = size
            if cr < at and (cr := chunk.find(b"\r", at)) < 0:
                cr = size
            end = lf if lf < cr else cr  # noqa: FURB136  min() would take a fifth of the time
            if before + end - at > bound:
                self._is_refused = True
                return
            if end == size:
                self._line += chunk[at:]
                return
            blank = b"\n\n" if end == lf else b"\r\n\r\n"
            if not before and chunk.startswith(b"data: ", at) and chunk.startswith(blank, end):
                events.append(ServerSentEvent(chunk[at + 6 : end], "message", self._id))
                at = end + len(blank)
                continue
            self._take(chunk[at:end], events)
            before = self._size
            at = end + 1
            if end == cr:
                self._is_after_cr = at == size
                at += lf == at

    def _plain(self, chunk: bytes, events: list[ServerSentEvent]) -> bytes:
        """Takes events that are all one line of data and a blank one, as nearly all are.

        Returns:
            What is behind them; all of the chunk if another one is among them.
        """
        end = b"\r\n" if b"\r" in chunk else b"\n"
        *lines, rest = chunk.split(end + end)
        data = [line[6:] for line in lines if line.startswith(b"data: ")]
        if not data or len(data) < len(lines) or max(map(len, lines)) > self._limits.event:
            return chunk
        whole = b"".join(data)  # to look through once
        if b"\n" in whole or b"\r" in whole:
            return chunk
        events += [ServerSentEvent(line, "message", self._id) for line in data]
        return rest

    def _take(self, line: bytes, events: list[ServerSentEvent]) -> None:
        """Takes a line, or the rest of one whose beginning is there."""
        if self._line:
            self._line += line
            line = bytes(self._line)
            self._line.clear()
        elif not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        if not name:
            return  # a comment
        self._size += len(line)
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._event = value.decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
            case b"retry" if value.isdigit():
                digits = value.lstrip(b"0")[:10] or b"0"
                self.reconnection_time = min(int(digits), _LONGEST) / 1000
            case _:
                pass  # not of the standard, or not as it has to be

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        self.last_event_id = self._id
        if self._data:
            data = b"\n".join(self._data)
            events.append(ServerSentEvent(data, self._event or "message", self._id))
        self._data, self._event, self._size = [], "", 0

    def _too_large(self) -> LimitExceededError:
        what = f"an event of the stream is larger than {self._limits.event} bytes"
        return limit_error("event", self._limits, what)
