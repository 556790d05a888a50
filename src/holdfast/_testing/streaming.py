"""Streams of a fake agent: their form, and the events of one stream."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast._testing.parsed_request import Refusal
from holdfast.protocol import Verb
from holdfast.types import (
    Message,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from holdfast._testing.timeline import Event, TaskTimeline, Update

__all__ = ["Events", "KeepAlive", "Streaming", "comment", "ends", "frame"]


class Streaming(msgspec.Struct, frozen=True, kw_only=True):
    """Streaming of a fake agent; the defaults follow the specification.

    Attributes:
        declared: Whether its card declares streaming; True by default.
        verbs: The HTTP methods with which HTTP+JSON accepts a subscription; GET and POST by
            default.
        other_verb: The HTTP status for the other method: 405 or 404.
        snapshot: Whether the stream of an existing task starts with the task; on older servers it
            does not. True by default.
        overlap: Number of events before its start that such a stream repeats, although the
            snapshot may contain them; at most those of the newest message.
        stays_open: Whether a stream continues after INPUT_REQUIRED, and with the task's next turn,
            instead of ending there. False by default.
        final_task: Whether a stream ends with the whole task, after the terminal status. False by
            default.
        keep_alive: Seconds without an event after which a comment is sent; None for no comments.
        line_end: The line ending; CR LF by default.
        pretty: Whether the JSON is indented, and sent in several lines of data. False by default.
        piece: Bytes that are sent at a time, so that events and characters are split; None to send
            each event in one piece.

    Raises:
        ValueError: `overlap` is negative, or `keep_alive` or `piece` is not positive.
    """

    declared: bool = True
    verbs: tuple[Verb, ...] = ("GET", "POST")
    other_verb: Literal[404, 405] = 405
    snapshot: bool = True
    overlap: int = 0
    stays_open: bool = False
    final_task: bool = False
    keep_alive: float | None = None
    line_end: Literal["\n", "\r\n", "\r"] = "\r\n"
    pretty: bool = False
    piece: int | None = None

    def __post_init__(self) -> None:
        if self.overlap < 0:
            message = f"overlap must not be negative, not {self.overlap}"
            raise ValueError(message)
        if self.keep_alive is not None and not self.keep_alive > 0:
            message = f"keep_alive must be a positive number of seconds, not {self.keep_alive:g}"
            raise ValueError(message)
        if self.piece is not None and self.piece < 1:
            message = f"piece must be at least 1, not {self.piece}"
            raise ValueError(message)


class KeepAlive(msgspec.Struct, frozen=True):
    """A comment that keeps the stream alive."""


class Events:
    """The events of one stream, each at its time.

    Args:
        streaming: How the agent streams.
        opening: The first events.
        timeline: The timeline whose events follow; None for none.
        position: The position in the timeline of the first of those.

    Attributes:
        streaming: How the agent streams.
    """

    def __init__(
        self,
        streaming: Streaming,
        *opening: StreamResponse,
        timeline: TaskTimeline | None = None,
        position: int = 0,
    ) -> None:
        self.streaming = streaming
        self._ready: deque[StreamResponse] = deque(opening)
        self._timeline = timeline
        self._position = position
        self._last_sent_at = asyncio.get_running_loop().time()

    @classmethod
    def for_new_task(cls, streaming: Streaming, timeline: TaskTimeline, task: Task) -> Events:
        """Return the stream of a task that has just started.

        Args:
            streaming: How the agent streams.
            timeline: The task's timeline.
            task: The task after its first step.
        """
        goes_on = not ends(timeline.plan_state(timeline.opening_end), streaming)
        return cls(
            streaming,
            StreamResponse(task=task),
            timeline=timeline if goes_on else None,
            position=timeline.opening_end,
        )

    @classmethod
    def for_existing_task(
        cls, streaming: Streaming, timeline: TaskTimeline, position: int, task: Task
    ) -> Events:
        """Return the stream of an existing task.

        Args:
            streaming: How the agent streams.
            timeline: The task's timeline.
            position: Number of events that have happened.
            task: The snapshot.
        """
        opening = (StreamResponse(task=task),) if streaming.snapshot else ()
        start = max(timeline.plan_start, position - streaming.overlap)
        goes_on = start < position or not ends(timeline.plan_state(position), streaming)
        return cls(streaming, *opening, timeline=timeline if goes_on else None, position=start)

    async def next(self) -> StreamResponse | Refusal | KeepAlive | None:
        """Wait for the next event.

        Returns:
            The event; a refusal if the agent crashed; a keep-alive; None at the end.
        """
        loop = asyncio.get_running_loop()
        while not self._ready:
            timeline = self._timeline
            if timeline is None:
                return None
            event, now = timeline.event(self._position), loop.time()
            if event is not None and event.at <= now:
                refusal = self._take(timeline, event, now)
                if refusal is not None:
                    return refusal
                continue
            until = None if event is None else event.at
            if self.streaming.keep_alive is not None:
                ping = self._last_sent_at + self.streaming.keep_alive
                if ping <= now:
                    self._last_sent_at = now
                    return KeepAlive()
                until = ping if until is None else min(until, ping)
            await timeline.wait(until)
        self._last_sent_at = loop.time()
        return self._ready.popleft()

    def close(self) -> None:
        """End the stream at once, also for a reader that waits for an event."""
        timeline, self._timeline = self._timeline, None
        self._ready.clear()
        if timeline is not None:
            timeline.notify()

    def _take(self, timeline: TaskTimeline, event: Event, now: float) -> Refusal | None:
        """Queue an event that has happened; return a refusal if the agent has crashed."""
        self._position += 1
        if not event.is_streamed:
            return None
        state = event.state
        crash = timeline.crash(now) if state is TaskState.FAILED else None
        if crash is not None:
            self._timeline = None
            return Refusal(-32603, crash)
        self._ready.append(_response(event.content))
        was_answered = state is TaskState.INPUT_REQUIRED and self._position <= timeline.plan_start
        if ends(state, self.streaming) and not was_answered:
            self._timeline = None
            if self.streaming.final_task:
                self._ready.append(StreamResponse(task=timeline.task_at(self._position)))
        return None


def ends(state: TaskState | None, streaming: Streaming) -> bool:
    """Whether a stream ends with a state."""
    if state is TaskState.INPUT_REQUIRED:
        return not streaming.stays_open
    return state is not None and state.is_terminal


def frame(data: bytes, streaming: Streaming, *, event: str | None = None) -> bytes:
    """Encode data as a server-sent event.

    Args:
        data: JSON.
        streaming: The form of the event.
        event: The event's type; None for none.
    """
    end = streaming.line_end.encode()
    if streaming.pretty:
        data = msgspec.json.format(data, indent=2).replace(b"\n", end + b"data: ")
    kind = b"" if event is None else b"event: " + event.encode() + end
    return b"".join((kind, b"data: ", data, end, end))


def comment(streaming: Streaming) -> bytes:
    """Encode a comment that keeps a connection alive."""
    end = streaming.line_end
    return f": ping{end}{end}".encode()


def _response(content: Update | Message) -> StreamResponse:
    if isinstance(content, TaskArtifactUpdateEvent):
        return StreamResponse(artifact_update=content)
    if isinstance(content, TaskStatusUpdateEvent):
        return StreamResponse(status_update=content)
    return StreamResponse(message=content)
