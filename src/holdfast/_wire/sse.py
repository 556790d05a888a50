"""Parser of server-sent events (HTML, 9.2.5 and 9.2.6).

Rules: a line ends with LF, CRLF or CR and nothing else; an event is complete at the end of its
blank line. Data stays bytes: a character may be split anywhere, and the consumer decodes it. The
boundaries of chunks change neither the events nor what is refused, and no byte is scanned twice.
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
"""Media type of an event stream."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_SHORT_EVENT_BYTES = 512
"""Size of an event below which several are parsed together; longer ones are faster alone."""

_MAX_RETRY_MS = 10**9
"""About eleven days."""


class ServerSentEvent(msgspec.Struct, frozen=True, gc=False):
    """One event.

    Attributes:
        data: Its data lines, joined by LF; UTF-8 unless the agent errs.
        event: Type of the event.
        id: Last id of the stream; empty if there was none.
    """

    data: bytes
    event: str = "message"
    id: str = ""


class EventStreamParser:
    """Incremental parser of an event stream.

    Comments yield no events.

    Attributes:
        last_event_id: Id to send when reconnecting; that of an incomplete event does not count.
        reconnection_time: Seconds to wait before reconnecting, at most 1,000,000; None if the
            stream did not say.

    Args:
        limits: `Limits.event` bounds an event and a line. The parser uses at most twelve times
            that in memory, plus 16 times the size of a chunk for its events.
    """

    def __init__(self, limits: Limits) -> None:
        self.last_event_id = ""
        self.reconnection_time: float | None = None
        self._limits = limits
        self._continues = True  # the next chunk is read in the light of what follows
        self._is_refused = False
        self._start: bytes | None = b""  # while it may be a byte-order mark
        self._is_after_cr = False
        self._line = bytearray()  # the incomplete line
        self._size = 0  # of the incomplete event: its lines without comments
        self._data: list[bytes] = []
        self._event = ""
        self._id = ""

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Parse the next bytes of the stream.

        Returns:
            The events that they complete.

        Raises:
            LimitExceededError: An event or a line is too large. If the chunk completes events
                before it, they are returned, and the next call raises, whatever its argument.
        """
        if self._continues:
            chunk = self._continued(chunk)
        events: list[ServerSentEvent] = []
        bound, size = self._limits.event, len(chunk)
        before = self._size + len(self._line)
        position, lf, cr = 0, -1, -1
        is_untried = size > 8 * _SHORT_EVENT_BYTES
        while position < size:
            if is_untried and not before:
                is_untried = False  # only once: later events are seldom plain if these are not
                position = self._parse_plain(chunk, position, events)
            if lf < position and (lf := chunk.find(b"\n", position)) < 0:
                lf = size
            if cr < position and (cr := chunk.find(b"\r", position)) < 0:
                cr = size
            end = lf if lf < cr else cr  # noqa: FURB136  min() would take a fifth of the time
            if before + end - position > bound:
                self._refuse(events)
                break
            if end == size:
                self._line += chunk[position:]
                break
            blank = b"\n\n" if end == lf else b"\r\n\r\n"
            if (
                not before
                and chunk.startswith(b"data: ", position)
                and chunk.startswith(blank, end)
            ):
                events.append(ServerSentEvent(chunk[position + 6 : end], "message", self._id))
                position = end + len(blank)
                continue
            self._process_line(chunk[position:end], events)
            before = self._size
            position = end + 1
            if end == cr:
                self._is_after_cr = self._continues = position == size
                position += lf == position
        return events

    @property
    def is_cut(self) -> bool:
        """Return whether an event would be incomplete, and so lost, if the stream ended here."""
        return self._is_refused or self._size > 0 or bytes(self._line[:1]) not in {b"", b":"}

    def _continued(self, chunk: bytes) -> bytes:
        """Return a chunk without what the bytes before it make meaningless.

        Raises:
            LimitExceededError: The bytes before it were refused.
        """
        if self._is_refused:
            raise self._too_large()
        if self._start is not None:
            chunk = self._start + chunk
            if _BYTE_ORDER_MARK.startswith(chunk):
                self._start = chunk
                return b""
            self._start = None
            chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
        elif self._is_after_cr and chunk:
            self._is_after_cr = False
            chunk = chunk.removeprefix(b"\n")
        else:
            return chunk
        self._continues = False
        return chunk

    def _refuse(self, events: list[ServerSentEvent]) -> None:
        """Refuse an event that is too large: now, or with the next chunk if there are others."""
        self._is_refused = self._continues = True
        if not events:
            raise self._too_large()

    def _parse_plain(self, chunk: bytes, start: int, events: list[ServerSentEvent]) -> int:
        """Parse many short events of one data line and a blank line each, the usual form.

        Returns:
            The position after them; ``start`` if the chunk holds an event of another form.
        """
        if b"\n" not in chunk[start : start + _SHORT_EVENT_BYTES]:
            return start
        chunk = chunk[start:]
        end = b"\r\n" if b"\r" in chunk else b"\n"
        *lines, rest = chunk.split(end + end)
        data = [line[6:] for line in lines if line.startswith(b"data: ")]
        if not data or len(data) < len(lines) or max(map(len, lines)) > self._limits.event:
            return start
        all_data = b"".join(data)  # so that it is searched once
        if b"\n" in all_data or b"\r" in all_data:
            return start
        events += [ServerSentEvent(line, "message", self._id) for line in data]
        return start + len(chunk) - len(rest)

    def _process_line(self, line: bytes, events: list[ServerSentEvent]) -> None:
        """Process a line, or the rest of one whose beginning is buffered."""
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
                self.reconnection_time = min(int(digits), _MAX_RETRY_MS) / 1000
            case _:
                pass  # unknown field, or an invalid value

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        self.last_event_id = self._id
        if self._data:
            data = b"\n".join(self._data)
            events.append(ServerSentEvent(data, self._event or "message", self._id))
        self._data, self._event, self._size = [], "", 0

    def _too_large(self) -> LimitExceededError:
        problem = f"an event of the stream is larger than {self._limits.event} bytes"
        return limit_error("event", self._limits, problem)
