"""Wait for one task: for its deliveries, and by polling the agent if there is a client.

Rules: a wait is bounded by its timeout; it ends with its watch, also during a poll. A response of
the agent is compared with deliveries that arrived meanwhile.
"""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING, TypeVar

from holdfast._aio.cancel_scope import CancelScope, ScopeCancelled
from holdfast._client.task_waiter import TaskWaiter
from holdfast._policy.deadline import Deadline, wait_deadline_error
from holdfast._stream.status_order import is_newer
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    DeadlineExceededError,
    TaskAuthRequiredError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._client.client import Client
    from holdfast._push.watches import Watch, Watches
    from holdfast.types import Task

__all__ = ["TaskWait"]

T = TypeVar("T")

_FINAL_POLL_S = 1.0
"""How long before its timeout a wait polls the agent for the last time."""


class TaskWait:
    """One wait; its timeout starts with its creation.

    Args:
        watches: The watches of the receiver.
        watch: The watch of the task.
        until: Condition on the task that ends the wait; by default that it is terminal or needs
            input. A terminal task always ends it.
        timeout: Maximum wait in seconds.
        poll_interval: Seconds without a delivery after which the agent is polled.
    """

    def __init__(
        self,
        watches: Watches,
        watch: Watch,
        *,
        until: Callable[[Task], bool] | None,
        timeout: float,
        poll_interval: float,
    ) -> None:
        self._watches = watches
        self._watch = watch
        self._task_id = watch.task_id or ""
        self._until = until
        end = asyncio.get_running_loop().time() + timeout
        self._deadline = Deadline(name="wait", timeout=timeout, at=end)
        self._poll_interval = poll_interval
        self._news = asyncio.Event()
        self._refused_before = watches.refused

    async def task(self, client: Client | None) -> Task:
        """Return the task once it fulfils the condition, also according to the `client`.

        Raises:
            DeadlineExceededError: The timeout has expired.
            TaskAuthRequiredError: The timeout has expired while the task waits for an
                authorization.
            LimitExceededError: The task has become too large.
            A2AConnectionError: The watch has ended.
            A2AError: The agent refused to return the task.
        """
        self._watch.waiting.add(self._news)
        try:
            while True:
                self._check_end()
                task = await self._waiter(client).wait(self._is_done)
                confirmed = task if client is None else await self._confirmed(client)
                if confirmed is not None:
                    return confirmed
        except (DeadlineExceededError, TaskAuthRequiredError) as error:
            error.message += self._refusals()
            raise
        finally:
            self._watch.waiting.discard(self._news)

    def _refusals(self) -> str:
        """Return the refused deliveries of this wait for its error; they may be of any task."""
        refused = self._watches.refused - self._refused_before
        if not refused:
            return ""
        count = "1 delivery" if refused == 1 else f"{refused} deliveries"
        reason = self._watches.last_refusal
        return f"; meanwhile the receiver refused {count} (the last one: {reason})"

    def _waiter(self, client: Client | None) -> TaskWaiter:
        async def poll() -> Task:
            assert client is not None  # noqa: S101  it is not called without one
            request = client.get_task(self._task_id, timeout=self._remaining())
            try:
                task = await self._request(request)
            except A2AError:
                waiter.task = self._watch.deliveries.task or waiter.task  # delivered meanwhile
                raise
            self._watches.add_polled(self._watch, task)
            return self._watch.deliveries.task or task

        waiter = TaskWaiter(
            self._task_id,
            self._watch.deliveries.task,
            deadline=self._deadline,
            get=None if client is None else poll,
            delay=self._delay,
            pause=self._delivered,
        )
        return waiter

    async def _delivered(self, seconds: float) -> Task | None:
        """Wait for a delivery, and return the task; None if there was none within `seconds`."""
        async with CancelScope.within(seconds) as scope:
            await self._news.wait()
        self._news.clear()
        self._check_end()
        return None if scope.expired else self._watch.deliveries.task

    def _is_done(self, task: Task) -> bool:
        if task.state.is_terminal:
            return True
        if self._watch.deliveries.is_terminal:
            return False
        return task.state.is_settled if self._until is None else self._until(task)

    def _delay(self, remaining: float) -> float:
        """Return the seconds until the next poll; there is one before the end."""
        return min(self._poll_interval, max(remaining / 2, min(remaining, _FINAL_POLL_S)))

    async def _confirmed(self, client: Client) -> Task | None:
        """Return the agent's version of the task once it fulfils the condition too.

        None if a newer status was delivered meanwhile.
        """
        remaining = self._remaining()
        if remaining <= 0:
            raise self._timeout_error()
        status_before = self._watch.deliveries.status
        request = client.wait(self._task_id, until=self._is_done, timeout=remaining)
        try:
            task = await self._request(request)
        except (DeadlineExceededError, TaskAuthRequiredError) as error:
            seen = error.task if isinstance(error, TaskAuthRequiredError) else None
            raise self._timeout_error(error, seen)  # noqa: B904  the error sets its cause
        status = self._watch.deliveries.status
        if status is not None and status is not status_before and is_newer(status, task.status):
            return None
        self._watches.confirm(self._watch, task)
        return task

    async def _request(self, request: Awaitable[T]) -> T:
        """Return the agent's response, unless the watch ends before it."""
        scope = CancelScope()
        self._watch.polls.add(scope)
        try:
            response = await scope.result(request)
        except ScopeCancelled:
            raise self._end_error() from None
        finally:
            self._watch.polls.discard(scope)
        self._check_end()
        return response

    # ── Ends of the wait ─────────────────────────────────────────────────────────────────────

    def _check_end(self) -> None:
        if self._watch.ended_because is not None or self._watch.failure is not None:
            raise self._end_error()

    def _end_error(self) -> A2AError:
        if self._watch.failure is not None:
            return copy(self._watch.failure)
        text = f"{self._watch.ended_because} while waiting for task {self._task_id}"
        executed = None if self._watch.deliveries.task is None else True
        return A2AConnectionError(text, failure="closed", executed=executed)

    def _timeout_error(
        self, failure: A2AError | None = None, seen: Task | None = None
    ) -> A2AError:
        task = seen or self._watch.deliveries.task
        return wait_deadline_error(self._deadline, task, self._task_id, failure)

    def _remaining(self) -> float:
        return self._deadline.remaining(asyncio.get_running_loop().time())
