"""A turn: what an agent answers, with all that it was replied to on the way, as one stream.

Rules: each interruption is seen to once, and each reply sent once, whatever becomes of it; what
follows a reply goes on where the stream before stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from holdfast._aio.waiting import CancelScope
from holdfast._stream.replies import still_waits
from holdfast.errors import A2AError, DeadlineExceededError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._stream.outbox import EventOutbox
    from holdfast._stream.resumable import ResumableStream
    from holdfast.types import Event, Message, Task, TaskStatus

__all__ = ["Turn"]

_LAST_WORD = 1.0
"""Seconds that an agent has to go on by itself after a question without a reply."""


class Turn:
    """The streams of one turn, one after the other: see `holdfast._client.event_stream.Live`.

    Args:
        live: The first one.
        reply_to: Gives the reply to a task that is interrupted; None for none. It is asked again
            where it was cancelled.
        send: Sends a reply, and gives the stream that follows.
        is_sent: Whether the reply that was to be sent last may have left.
        wants_reply: Says of a task that still waits for what it was given whether there is
            something to reply to all the same.
        seen_to: The interruption that the first one replies to, if it does.
        max_quiet: Seconds that the agent has to go on after that one; None for any number.
    """

    def __init__(
        self,
        live: ResumableStream,
        *,
        reply_to: Callable[[Task], Awaitable[Message | None]],
        send: Callable[[Task, Message], Awaitable[ResumableStream]],
        is_sent: Callable[[], bool],
        wants_reply: Callable[[Task], bool],
        seen_to: TaskStatus | None,
        max_quiet: float | None = None,
    ) -> None:
        self._live = live
        self._reply_to = reply_to
        self._send = send
        self._is_sent = is_sent
        self._wants_reply = wants_reply
        self._seen_to = seen_to  # the last interruption that was asked about
        self._max_quiet = max_quiet
        self._has_no_reply = False  # the interruption that was asked about last
        self._is_over = False
        self._past: list[ResumableStream] = []
        self._going_on = CancelScope()

    @property
    def told(self) -> EventOutbox:
        """What the caller has been told."""
        return self._live.told

    @property
    def reconnects(self) -> int:
        """How often its streams were subscribed to again after a cut."""
        return sum(live.reconnects for live in (*self._past, self._live))

    @property
    def gap(self) -> bool:
        """Whether status messages may be missing."""
        return any(live.gap for live in (*self._past, self._live))

    @property
    def error(self) -> A2AError | None:
        """What a connection of the last stream broke with last."""
        return self._live.error

    @property
    def cause(self) -> A2AError | None:
        """At the end, what a connection broke with, unless the agent went on after that."""
        return self._live.cause

    @property
    def is_stale(self) -> bool:
        """Whether the task that the caller has still waits for what it was just given."""
        return self._live.is_stale

    @property
    def is_settled(self) -> bool:
        """Whether the caller has been told of an answer."""
        if not self._live.is_settled:
            return False
        return self._is_over or not self._is_interrupted or self._is_answered

    async def next(self) -> Event | None:
        """The next event; None at the end."""
        while not self._is_over:
            if self._is_interrupted and not self._is_seen_to:
                await self._going_on.wait(self._go_on())
            if self._going_on.is_ended:
                await self._live.close()  # which may have come meanwhile
            event = await self._next()
            if event is not None:
                return event
            if self._is_interrupted and self._is_seen_to and not self._has_no_reply:
                task = self.told.task
                if task is not None and self._wants_reply(task):
                    self._seen_to = None
            waits = self._is_interrupted and not self._is_seen_to
            self._is_over = self._going_on.is_ended or not waits
        return None

    async def settle(self) -> None:
        """Makes a task that came to rest the agent's own to the last word, if that is quick."""
        await self._live.settle()

    async def close(self) -> None:
        """Ends it, whoever waits for an event; the agent goes on with the task."""
        self._going_on.end()
        await self._live.close()

    @property
    def _is_interrupted(self) -> bool:
        """Whether the caller has been told that the task waits for something."""
        told = self._live.told
        return told.state is not None and told.state.is_interrupted and not told.has_news

    @property
    def _is_answered(self) -> bool:
        """Whether the agent asks what has no reply: the question is the answer."""
        return self._live.is_settled and self._has_no_reply and self._is_seen_to

    @property
    def _is_seen_to(self) -> bool:
        """Whether it was asked about; the agent may tell it once more before it goes on."""
        status, told = self._seen_to, self.told
        if told.status is status or status is None or told.status is None:
            return told.status is status
        # Without a time, only the first event can be known for the same status told once more.
        is_old = status.time is not None or told.count <= 1
        return is_old and still_waits(told.status, status)

    async def _next(self) -> Event | None:
        """The next event; None at the end, which a question without a reply is soon.

        A stream may stay open after it, and the next message would wait for ever; so it may after
        one whose reply may be lost.
        """
        waits = self._live.is_settled and self._is_interrupted and self._is_seen_to
        bound = _LAST_WORD if self._is_answered else self._max_quiet
        if not waits or bound is None:
            return await self._live.next()
        scope = asyncio.timeout(bound)
        try:
            async with scope:
                return await self._live.next()
        except TimeoutError as error:
            if isinstance(error, A2AError) or not scope.expired():
                raise
        await self._live.settle()
        with contextlib.suppress(TimeoutError):  # of what does not close
            await self._live.close()
        return None

    async def _go_on(self) -> None:
        """Sees to an interruption: gets a reply, and sends it, each once."""
        task, status = self.told.task, self.told.status
        if task is None:
            return
        reply = await self._reply_to(task)
        self._seen_to, self._has_no_reply, self._max_quiet = status, reply is None, None
        if reply is None:
            return
        try:
            onward = await self._send(task, reply)
        except asyncio.CancelledError:
            if not self._is_sent():
                self._seen_to = None  # so that who goes on replies
            raise
        except A2AError as error:
            if error.executed is False:  # the reply; but what the caller asked for did run
                error.executed = True
                error.message = f"{error.message}; the reply to task {task.id} was not sent"
            if isinstance(error, DeadlineExceededError):
                error.task = error.task or task
            raise
        self._past.append(self._live)
        self._live, past = onward, self._live
        with contextlib.suppress(TimeoutError):  # the turn goes on, whatever does not close
            await past.close()
