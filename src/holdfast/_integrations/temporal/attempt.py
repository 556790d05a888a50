"""What the Temporal server knows of an attempt: the heartbeat details of its activity.

Before a message is sent, the server confirms the record that it may be sent
(`Attempt.record_sending`). If the server no longer waits for the worker, it refuses the record,
and the worker sends nothing. So the next attempt knows, whichever worker crashed on whichever
machine:

| Heartbeat details of the earlier attempt | The message |
|---|---|
| none, or not sent | was not sent: it is sent now |
| may have been sent | is not sent again: the journal or the task id leads to its outcome |

The heartbeats are requests whose replies are awaited. ``activity.heartbeat`` would delay them, up
to 0.8 of the heartbeat timeout, and an older one could replace a newer one. It is called only to
tell the worker of Temporal about a cancellation.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, cast

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast._aio.callbacks import cancel_and_wait

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["Attempt", "Progress"]

_RPC_TIMEOUT = timedelta(seconds=10)
_CANCELLATION_S = 10.0
"""Seconds that a cancellation takes to arrive, once the server has reported it."""

_HEARTBEATS_PER_TIMEOUT = 3
"""Number of heartbeats in one heartbeat timeout."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of an attempt, as its heartbeats carry it.

    Attributes:
        sent: Whether the message may have been sent.
        message_id: Id of the message; the same in all attempts.
        journal: Id of the journal that has a record of the message if it was sent; None without.
        task_id: Id of the agent's task, if known.
        context_id: Id of the conversation, if known.
        state: State of the task as last seen, if known.
    """

    sent: bool
    message_id: str
    journal: str | None = None
    task_id: str | None = None
    context_id: str | None = None
    state: str | None = None

    @classmethod
    def of(cls, details: object) -> Self | None:
        """Return the progress in heartbeat details; None if there is none."""
        if not isinstance(details, dict) or not {"sent", "message_id"} <= details.keys():
            return None
        members = cast("dict[str, Any]", details)
        names = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in members.items() if name in names})


class Attempt:
    """The running attempt of the activity.

    Args:
        message_id: Id of the message.

    Attributes:
        earlier: The progress of the earlier attempts; None if none may have sent the message.
        progress: The progress of this attempt.
        has_task: Set once the id of the agent's task is known.
    """

    def __init__(self, message_id: str) -> None:
        info = activity.info()
        self._handle = activity.client().get_async_activity_handle(task_token=info.task_token)
        self._timeout = info.heartbeat_timeout
        details = info.heartbeat_details
        earlier = Progress.of(details[0]) if details else None
        self.earlier = earlier if earlier is not None and earlier.sent else None
        self.progress = self.earlier or Progress(sent=False, message_id=message_id)
        self.has_task = asyncio.Event()
        self._is_sent = asyncio.Event()
        self._has_new_task = asyncio.Event()
        if self.earlier is not None:
            self._is_sent.set()
        if self.progress.task_id is not None:
            self.has_task.set()

    async def record_sending(self, journal: str | None) -> None:
        """Record on the server that the message may be sent, and wait for the confirmation.

        Args:
            journal: Id of the journal that has the record of the message.

        Raises:
            ApplicationError: The server does not confirm the record, or no longer waits for this
                attempt.
        """
        self.progress = replace(self.progress, sent=True, journal=journal)
        try:
            await self._heartbeat()
        except AsyncActivityCancelledError:
            await self._record_not_sent()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CANCELLATION_S):
                    await asyncio.Event().wait()  # until the worker cancels this task
            text = "the activity was cancelled; nothing was sent"
            raise ApplicationError(text, type="AsyncActivityCancelledError") from None
        except RPCError as error:
            text = f"the Temporal server did not confirm a heartbeat; nothing was sent: {error}"
            raise ApplicationError(text, type="RPCError") from error
        self._is_sent.set()

    async def record_not_sent(self) -> None:
        """Record on the server that the message was not sent after all, so that a retry sends it.

        If the record does not reach the server, a retry searches for the message instead.
        """
        with contextlib.suppress(AsyncActivityCancelledError, RPCError):
            await self._record_not_sent()

    async def _record_not_sent(self) -> None:
        self._is_sent.clear()
        self.progress = replace(self.progress, sent=False)
        try:
            await self._heartbeat()
        except AsyncActivityCancelledError:
            self._report_cancellation()

    def note_task(self, task_id: str, context_id: str | None, state: str | None) -> None:
        """Note the task of the message; the next heartbeat carries it."""
        if task_id != self.progress.task_id:
            self._has_new_task.set()  # heartbeat at once: the id must survive a crash
        self.progress = replace(
            self.progress,
            task_id=task_id,
            context_id=context_id,
            state=state or self.progress.state,
        )
        self.has_task.set()

    @contextlib.asynccontextmanager
    async def heartbeats(self) -> AsyncGenerator[None]:
        """Send heartbeats while the context is open, once the message may have been sent."""
        sending = asyncio.create_task(self._send_heartbeats(), name="holdfast: heartbeats")
        try:
            yield
        finally:
            await cancel_and_wait(sending)

    async def _send_heartbeats(self) -> None:
        interval = (
            None
            if self._timeout is None
            else self._timeout.total_seconds() / _HEARTBEATS_PER_TIMEOUT
        )
        while True:
            await self._is_sent.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._has_new_task.wait()
            self._has_new_task.clear()
            try:
                await self._heartbeat()
            except AsyncActivityCancelledError:
                self._report_cancellation()
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    self._report_cancellation()

    def _report_cancellation(self) -> None:
        """Let the worker of Temporal ask the server, and cancel the task of this activity."""
        activity.heartbeat(asdict(self.progress))

    async def _heartbeat(self) -> None:
        await self._handle.heartbeat(asdict(self.progress), rpc_timeout=_RPC_TIMEOUT)
