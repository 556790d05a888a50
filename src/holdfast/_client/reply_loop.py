"""The events of one turn as one stream: the agent's answer, and its answers to all replies.

Rules: each interruption is handled once, and each reply is sent once, even if the turn fails or is
cancelled; the stream that follows a reply continues where the previous stream stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from holdfast._aio.cancel_scope import CancelScope
from holdfast._stream.status_order import still_waits
from holdfast.errors import A2AError, note_task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._stream.outbox import EventOutbox
    from holdfast._stream.resumable import ResumableStream
    from holdfast.types import Event, Message, Task, TaskStatus

__all__ = ["ReplyLoop"]

_UNANSWERED_QUESTION_S = 1.0
"""Seconds for which the agent may continue by itself after a question that gets no reply."""


class ReplyLoop:
    """The streams of one turn, one after the other: an `EventSource` of an `EventStream`.

    Args:
        stream: The first stream.
        reply_to: Returns the reply to an interrupted task; None for no reply. It is called again
            after a call that was cancelled.
        send: Sends a reply, and returns the stream that follows it.
        is_sent: Whether the latest reply may have left the process.
        wants_reply: Whether a task that is still interrupted as before has something new to reply
            to.
        replied_to: The interruption that the message of the first stream replies to, if any.
        max_quiet: Seconds that the agent has to continue after that reply; None for no limit.
    """

    def __init__(
        self,
        stream: ResumableStream,
        *,
        reply_to: Callable[[Task], Awaitable[Message | None]],
        send: Callable[[Task, Message], Awaitable[ResumableStream]],
        is_sent: Callable[[], bool],
        wants_reply: Callable[[Task], bool],
        replied_to: TaskStatus | None,
        max_quiet: float | None = None,
    ) -> None:
        self._stream = stream
        self._reply_to = reply_to
        self._send = send
        self._is_sent = is_sent
        self._wants_reply = wants_reply
        self._handled = replied_to  # the latest interruption for which a reply was requested
        self._max_quiet = max_quiet
        self._has_no_reply = False  # to the interruption in _handled
        self._has_ended = False
        self._past: list[ResumableStream] = []
        self._scope = CancelScope()

    @property
    def outbox(self) -> EventOutbox:
        """The events for the caller, delivered and pending."""
        return self._stream.outbox

    @property
    def reconnects(self) -> int:
        """The number of resubscriptions after a cut."""
        return sum(stream.reconnects for stream in (*self._past, self._stream))

    @property
    def is_polled(self) -> bool:
        """Whether the task is polled, or was at the end, in place of a subscription."""
        return self._stream.is_polled

    @property
    def gap(self) -> bool:
        """Whether status messages may be missing."""
        return any(stream.gap for stream in (*self._past, self._stream))

    @property
    def error(self) -> A2AError | None:
        """The error that broke the latest connection."""
        return self._stream.error

    @property
    def cause(self) -> A2AError | None:
        """At the end: the error that broke a connection, unless the agent continued after it."""
        return self._stream.cause

    @property
    def is_stale(self) -> bool:
        """Whether the caller's task still shows the interruption that was just replied to."""
        return self._stream.is_stale

    @property
    def is_settled(self) -> bool:
        """Whether an answer was delivered to the caller."""
        if not self._stream.is_settled:
            return False
        return self._has_ended or not self._is_interrupted or self._is_answered

    async def next(self) -> Event | None:
        """Return the next event; None at the end."""
        while not self._has_ended:
            if self._is_interrupted and not self._is_handled:
                await self._scope.wait(self._handle_interruption())
            if self._scope.is_cancelled:
                await self._stream.close()  # _handle_interruption may have replaced the stream
            event = await self._next_of_stream()
            if event is not None:
                return event
            if self._is_interrupted and self._is_handled and not self._has_no_reply:
                task = self.outbox.task
                if task is not None and self._wants_reply(task):
                    self._handled = None
            is_unhandled = self._is_interrupted and not self._is_handled
            self._has_ended = self._scope.is_cancelled or not is_unhandled
        return None

    async def settle(self) -> None:
        """Refresh the finished task from the agent (waits at most 1 s)."""
        await self._stream.settle()

    async def close(self) -> None:
        """End the stream, also while `next` is waiting; the agent's task is not canceled."""
        self._scope.cancel()
        await self._stream.close()

    @property
    def _is_interrupted(self) -> bool:
        """Whether the latest event that was delivered says that the task is interrupted."""
        outbox = self._stream.outbox
        return outbox.state is not None and outbox.state.is_interrupted and not outbox.has_news

    @property
    def _is_answered(self) -> bool:
        """Whether the answer is a question that gets no reply."""
        return self._stream.is_settled and self._has_no_reply and self._is_handled

    @property
    def _is_handled(self) -> bool:
        """Whether a reply was requested; the agent may repeat the status before it continues."""
        handled, status = self._handled, self.outbox.status
        if status is handled or handled is None or status is None:
            return status is handled
        # Without a timestamp, only the first event can be recognized as a repetition.
        may_repeat = handled.time is not None or self.outbox.count <= 1
        return may_repeat and still_waits(status, handled)

    async def _next_of_stream(self) -> Event | None:
        """Return the next event; None at the end of the stream.

        An agent may keep the stream open after a question that gets no reply, and after a reply
        that may be lost. The wait is bounded in both cases.
        """
        is_waiting = self._stream.is_settled and self._is_interrupted and self._is_handled
        seconds = _UNANSWERED_QUESTION_S if self._is_answered else self._max_quiet
        if not is_waiting or seconds is None:
            return await self._stream.next()
        async with CancelScope.within(seconds):
            return await self._stream.next()
        await self._stream.settle()
        with contextlib.suppress(TimeoutError):  # closing may time out
            await self._stream.close()
        return None

    async def _handle_interruption(self) -> None:
        """Request a reply to the interruption, and send it, each at most once."""
        task, status = self.outbox.task, self.outbox.status
        if task is None:
            return
        reply = await self._reply_to(task)
        self._handled, self._has_no_reply, self._max_quiet = status, reply is None, None
        if reply is None:
            return
        try:
            next_stream = await self._send(task, reply)
        except asyncio.CancelledError:
            if not self._is_sent():
                self._handled = None  # the next iteration replies
            raise
        except A2AError as error:
            if error.executed is False:  # true of the reply, but the caller's message did run
                error.executed, error.transient = True, False
                error.message = f"{error.message}; the reply to task {task.id} was not sent"
            note_task(error, task)
            raise
        finished, self._stream = self._stream, next_stream
        self._past.append(finished)
        with contextlib.suppress(TimeoutError):  # the turn continues if closing times out
            await finished.close()
