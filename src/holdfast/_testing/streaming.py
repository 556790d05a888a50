"""Streams of a fake agent: how it streams, and the events of one stream as they happen."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast._model.operations import Verb
from holdfast._testing.serverwire import Refusal
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

__all__ = ["Events", "Ping", "Streaming", "comment", "ends", "frame"]


class Streaming(msgspec.Struct, frozen=True, kw_only=True):
    """How a fake agent streams. As it is made, it does as the specification says.

    Attributes:
        declared: Whether its card says so.
        verbs: The HTTP methods by which HTTP+JSON takes a subscription.
        other_verb: The status that answers the other one: 405 or 404.
        snapshot: Whether the stream of a task that was there before begins with the task; on
            older servers it does not.
        overlap: Events that such a stream tells although they happened before it began, and the
            snapshot may hold them already; at most those of the newest message.
        stays_open: Whether a stream goes on after INPUT_REQUIRED, and with the reply to it, in
            place of ending there.
        final_task: Whether a stream ends with the whole task, after the status that ends it.
        keep_alive: Seconds without anything after which a comment comes; None for none.
        line_end: What ends a line.
        pretty: Whether the JSON is indented, and comes in many lines of data.
        piece: Bytes that come at a time, so that events, and characters, come in parts; None
            sends each event in one.

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
            message = f"an overlap of {self.overlap} events is none"
            raise ValueError(message)
        if self.keep_alive is not None and not self.keep_alive > 0:
            message = f"a comment every {self.keep_alive:g} s would be too many"
            raise ValueError(message)
        if self.piece is not None and self.piece < 1:
            message = f"{self.piece} bytes at a time would never come to an end"
            raise ValueError(message)


class Ping(msgspec.Struct, frozen=True):
    """A comment that says nothing but that the stream is alive."""


class Events:
    """The events of one stream, each as soon as it has happened.

    Args:
        streaming: How the agent streams.
        opening: What comes first.
        life: The life that it follows after that; None for none.
        place: Where among the events of the life it goes on.

    Attributes:
        streaming: How the agent streams.
    """

    def __init__(
        self,
        streaming: Streaming,
        *opening: StreamResponse,
        life: TaskTimeline | None = None,
        place: int = 0,
    ) -> None:
        self.streaming = streaming
        self._ready: deque[StreamResponse] = deque(opening)
        self._life = life
        self._place = place
        self._heard = asyncio.get_running_loop().time()  # when anything came the last time

    @classmethod
    def of_new(cls, streaming: Streaming, life: TaskTimeline, task: Task) -> Events:
        """The stream of a task that has just begun.

        Args:
            streaming: How the agent streams.
            life: The task's life.
            task: The task as it is after its opening.
        """
        goes_on = not ends(life.state_of_plan(life.opening), streaming)
        return cls(
            streaming,
            StreamResponse(task=task),
            life=life if goes_on else None,
            place=life.opening,
        )

    @classmethod
    def of_known(cls, streaming: Streaming, life: TaskTimeline, place: int, task: Task) -> Events:
        """The stream of a task that was there before.

        Args:
            streaming: How the agent streams.
            life: The task's life.
            place: Behind the events that have happened.
            task: The snapshot.
        """
        opening = (StreamResponse(task=task),) if streaming.snapshot else ()
        start = max(life.newest, place - streaming.overlap)
        goes_on = start < place or not ends(life.state_of_plan(place), streaming)
        return cls(streaming, *opening, life=life if goes_on else None, place=start)

    async def next(self) -> StreamResponse | Refusal | Ping | None:
        """Waits for the next event.

        Returns:
            The event; a refusal where the agent crashed; a ping; None at the end.
        """
        loop = asyncio.get_running_loop()
        while not self._ready:
            life = self._life
            if life is None:
                return None
            event, now = life.event(self._place), loop.time()
            if event is not None and event.at <= now:
                refusal = self._take(life, event, now)
                if refusal is not None:
                    return refusal
                continue
            until = None if event is None else event.at
            if self.streaming.keep_alive is not None:
                ping = self._heard + self.streaming.keep_alive
                if ping <= now:
                    self._heard = now
                    return Ping()
                until = ping if until is None else min(until, ping)
            await life.wait(until)
        self._heard = loop.time()
        return self._ready.popleft()

    def close(self) -> None:
        """Ends it where it stands, whoever waits for an event."""
        life, self._life = self._life, None
        self._ready.clear()
        if life is not None:
            life.stir()

    def _take(self, life: TaskTimeline, event: Event, now: float) -> Refusal | None:
        """Makes what has happened ready to be told."""
        self._place += 1
        if not event.is_streamed:
            return None
        state = event.state
        crash = life.crash(now) if state is TaskState.FAILED else None
        if crash is not None:
            self._life = None
            return Refusal(-32603, crash)
        self._ready.append(_response(event.what))
        was_answered = state is TaskState.INPUT_REQUIRED and self._place <= life.newest
        if ends(state, self.streaming) and not was_answered:
            self._life = None
            if self.streaming.final_task:
                self._ready.append(StreamResponse(task=life.task_at(self._place)))
        return None


def ends(state: TaskState | None, streaming: Streaming) -> bool:
    """Whether a stream ends with a state."""
    if state is TaskState.INPUT_REQUIRED:
        return not streaming.stays_open
    return state is not None and state.is_terminal


def frame(data: bytes, streaming: Streaming, *, event: str | None = None) -> bytes:
    """Data as a server-sent event.

    Args:
        data: JSON.
        streaming: How it is written.
        event: The event's type; None names none.
    """
    end = streaming.line_end.encode()
    if streaming.pretty:
        data = msgspec.json.format(data, indent=2).replace(b"\n", end + b"data: ")
    kind = b"" if event is None else b"event: " + event.encode() + end
    return b"".join((kind, b"data: ", data, end, end))


def comment(streaming: Streaming) -> bytes:
    """A comment that keeps a connection alive."""
    end = streaming.line_end
    return f": ping{end}{end}".encode()


def _response(what: Update | Message) -> StreamResponse:
    if isinstance(what, TaskArtifactUpdateEvent):
        return StreamResponse(artifact_update=what)
    if isinstance(what, TaskStatusUpdateEvent):
        return StreamResponse(status_update=what)
    return StreamResponse(message=what)
