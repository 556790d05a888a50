"""Abandoned calls: cancel the agent's task after its caller has stopped waiting for it.

A call with ``cancel_on_abandon=True`` is abandoned if its caller leaves its stream early or is
cancelled, or if its deadline passes. The caller does not wait for what follows, which happens in a
background task of the client, with a time limit for each step:

1. If the message was sent and there was no event yet, wait for the agent's first one.
2. Close the connection, and cancel the task. If its id is not known, search for it first.

A message that was not sent is not sent any more. A reply to a task cancels that task unless the
agent refuses the reply. Where there is a journal, the call is held until the end of this work: a
final task or message answers it, otherwise it stays pending. A call that another client has taken
over is left to that client.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, TypeGuard

from holdfast._aio.callbacks import cancel_and_wait
from holdfast._aio.cancel_scope import CancelScope
from holdfast._aio.per_loop import PerLoop
from holdfast._client.cancel_request import request_cancel
from holdfast._journal.outcome import outcome_of
from holdfast._policy.deadline import Deadline
from holdfast.errors import A2AError, OutcomeUnknownError, TaskNotCancelableError
from holdfast.types import CancelTaskRequest, Message

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from holdfast._client.event_stream import EventSource
    from holdfast._client.streams import StreamCalls
    from holdfast.types import Task

__all__ = ["AbandonedCall", "AbandonedCalls"]

_FIRST_EVENT_TIMEOUT_S = 10.0
"""Seconds to wait for the agent's first event, which names the task."""

_CANCEL_TIMEOUT_S = 10.0
"""Seconds to cancel a task, including the search for it."""


class AbandonedCalls:
    """The abandoned calls of a client, each in a task of its own until its task is canceled."""

    def __init__(self) -> None:
        self._running: PerLoop[set[asyncio.Task[None]]] = PerLoop(set)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start the work on an abandoned call."""
        running = self._running.here()
        task = asyncio.get_running_loop().create_task(work, name="holdfast: cancels a task")
        running.add(task)
        task.add_done_callback(running.discard)

    async def close(self) -> None:
        """Wait for all of them; each has time limits. If this is cancelled, so are they."""
        running = self._running.here()
        try:
            while running:
                await asyncio.wait(running)
        finally:
            await cancel_and_wait(*running)


class AbandonedCall:
    """One abandoned call.

    Args:
        calls: The requests of the call.
        source: Its events, or the task that opens them.
        is_readable: Whether the next event can be awaited; False while another task does.
    """

    def __init__(
        self,
        calls: StreamCalls,
        source: EventSource | asyncio.Task[EventSource] | None,
        *,
        is_readable: bool = True,
    ) -> None:
        self._calls = calls
        self._opening = source if isinstance(source, asyncio.Task) else None
        self._source = None if isinstance(source, asyncio.Task) else source
        self._is_readable = is_readable
        self._may_have_task = True  # of an unknown id
        # What follows is an operation of its own, unless it makes no request.
        self._operation = calls.scope.operation.follow_up("cancel_task")
        calls.scope.call_group.operation = self._operation
        calls.scope.call_group.is_abandoned = True
        self._take_call()
        if self._opening is not None and not calls.is_sent:
            self._opening.cancel()

    def _take_call(self) -> None:
        """Report what the journal records from now on as a step of this operation."""
        if self._calls.call is not None:
            self._calls.call.operation = self._operation

    async def cancel_task(self) -> None:
        """Cancel the agent's task, and end the call in the journal."""
        with self._operation:
            await self._cancel_task()

    async def _cancel_task(self) -> None:
        calls, answer = self._calls, None
        try:
            try:
                task_id = await self._get_task_id()
            finally:
                await self._close()
            answer = self._late_answer
            if answer is None and (task_id is not None or self._may_have_task):
                answer = await self._request_cancel(task_id)
        finally:
            self._take_call()
            if calls.call is not None and _is_final(answer):
                await calls.call.record_answer(answer)
            elif calls.call is not None:
                await calls.call.release()

    @property
    def _late_answer(self) -> Task | Message | None:
        """The answer that arrived after the caller had left; None if the task is not over."""
        outbox = None if self._source is None else self._source.outbox
        answer = None if outbox is None else outbox.task or outbox.message
        return answer if _is_final(answer) else None

    async def _get_task_id(self) -> str | None:
        """Return the id of the task, once the agent's first event names it; None without one.

        A reply whose outcome stays unknown counts as accepted: its task is the task that it
        continues.
        """
        calls = self._calls
        try:
            async with CancelScope.within(_FIRST_EVENT_TIMEOUT_S):
                await self._read_first_event()
        except OutcomeUnknownError:  # a new message was searched for, unless it is late
            self._may_have_task = calls.is_late or calls.sent_to is not None
        except Exception as error:  # noqa: BLE001  the caller's own hooks raise any
            self._may_have_task = self._has_begun and not self._is_refusal(error)
        task_id = None if self._source is None else self._source.outbox.task_id
        return task_id or (calls.sent_to if self._may_have_task else None)

    def _is_refusal(self, error: Exception) -> bool:
        """Return whether an error shows that there is no task to cancel.

        The task of a new message is searched for also after an error of the agent.
        """
        if not isinstance(error, A2AError) or self._calls.sent_to is None:
            return isinstance(error, A2AError) and error.executed is False
        return outcome_of(error, was_sent=False) in {"not_sent", "refused"}

    @property
    def _has_begun(self) -> bool:
        return self._source is not None or self._calls.is_sent

    async def _read_first_event(self) -> None:
        if self._opening is not None:
            await asyncio.wait({self._opening})
            if self._opening.cancelled():
                self._may_have_task = self._has_begun
                return
            self._source = self._opening.result()
        source = self._source
        while source is not None and self._is_readable and source.outbox.task_id is None:
            if await source.next() is None or source.is_settled:
                self._may_have_task = False  # the agent has answered with a message
                return

    async def _close(self) -> None:
        """Close the connection; a cancel request may need its slot."""
        opening = self._opening
        if opening is not None:
            await cancel_and_wait(opening)
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                self._source = opening.result()
        if self._source is not None:
            with contextlib.suppress(Exception):  # it may time out; the caller's layers raise any
                await self._source.close()

    async def _request_cancel(self, task_id: str | None) -> Task | None:
        """Cancel the task, and return it; search for it first if its id is not known.

        A task that cannot be canceled, because it is over, is returned as it is.
        """
        calls, now = self._calls, asyncio.get_running_loop().time()
        at, name = now + _CANCEL_TIMEOUT_S, "the task of an abandoned call"
        deadline = Deadline(name="cancel", timeout=_CANCEL_TIMEOUT_S, at=at)
        scope = calls.scope.follow_up(deadline)
        try:
            await self._check_not_taken_over()
            if task_id is None:
                found = await calls.find_task(None, deadline)
                if found.state.is_terminal:
                    return found
                task_id = found.id
                await self._check_not_taken_over()
            name = f"task {task_id} of an abandoned call"
            request = CancelTaskRequest(id=task_id)
            try:
                return await request_cancel(calls.client, request, scope)
            except TaskNotCancelableError:
                return await calls.client.get_task(task_id, scope)
        except Exception as error:  # noqa: BLE001  the caller's own layers raise any
            text = "%s was not canceled: %s"
            self._operation.log(logging.WARNING, text, name, error, error=error)
        return None

    async def _check_not_taken_over(self) -> None:
        """Check that the call is not another client's by now: see `HeldCall`."""
        if self._calls.call is not None:
            await self._calls.call.check_not_taken_over()


def _is_final(answer: Task | Message | None) -> TypeGuard[Task | Message]:
    """Return whether an answer ends its call."""
    return isinstance(answer, Message) or (answer is not None and answer.state.is_terminal)
